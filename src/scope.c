/*
 * scope.c
 *		Which rows of source and target a job is about.
 *
 * What is missing at the source may be deleted here only if the job would have
 * loaded it. The filter and the start are asked of the target's row, then, and
 * that has an answer where the columns that they name were loaded as they are.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "compat.h"
#include "deletes.h"
#include "scope.h"

/* the watermark's column, where the target has it as it is at the source */
static const char *
loaded_watermark(const Job *job, const Shape *shape)
{
	int			position = shape_column_position(shape, job->watermark);

	if (position < 0 || position != shape->watermark_position || shape->columns[position].is_transform)
		return NULL;
	return psprintf("t.%s", quote_identifier(job->watermark));
}

/* adds a condition on the target */
static void
narrow(Scope *scope, char *condition)
{
	scope->target = scope->target ? psprintf("%s AND %s", scope->target, condition) : condition;
}

Scope *
scope_of(const Job *job, const Shape *shape)
{
	Scope	   *scope = palloc0(sizeof(Scope));
	const WatermarkType *type = shape->watermark;
	const char *watermark = NULL;

	if (shape->deleted_expression)
		scope->source = psprintf("NOT %s", shape->deleted_expression);
	scope->window.with_null = job_null_watermark(job) != NULL_WATERMARK_SKIP;
	if (job->options->filter)
	{
		char	   *condition = deletes_scope(job, shape);

		if (condition)
			narrow(scope, condition);
		else
			scope->unknown = "a row of the target does not tell whether it passes the option \"filter\"";
	}
	if (type == NULL)
		return scope;
	watermark = loaded_watermark(job, shape);
	if (!scope->window.with_null && !shape->watermark_not_null)
	{
		if (watermark == NULL)
			scope->unknown = "the target does not have the watermark, and rows without one are not loaded";
		else
			narrow(scope, psprintf("%s IS NOT NULL", watermark));
	}
	if (job->options->start_at)
	{
		scope->window.low.is_set = true;
		scope->window.low.side = BOUND_BEFORE;
		scope->window.low.value = watermark_parse(type, job->options->start_at);
		if (watermark == NULL)
			scope->unknown = "the target does not have the watermark, and rows before the option \"start_at\" are not loaded";
		else
			narrow(scope, psprintf("(%s OPERATOR(pg_catalog.>=) %s%s)", watermark,
								   watermark_literal(type, scope->window.low.value),
								   scope->window.with_null ? psprintf(" OR %s IS NULL", watermark) : ""));
	}
	if (scope->unknown)
		scope->target = NULL;
	return scope;
}

void
scope_require_known(const Job *job, const Scope *scope, const char *what)
{
	if (scope->unknown == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s cannot tell which rows of target %s job \"%s\" is about", what, job->target_name, job->name),
			 errdetail("The reason: %s.", scope->unknown),
			 errhint("Load the columns that the filter and the watermark name, or leave the option \"deletes\" at \"ignore\".")));
}
