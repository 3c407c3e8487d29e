/*
 * scope.c
 *		Which rows of source and target a job is about.
 *
 * What is missing at the source may be deleted here only if the job would have
 * loaded it. The filter and the start are asked of the target's row, then, and
 * that has an answer where the columns that they name were loaded as they are.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "query.h"
#include "scope.h"

/* the column is in the target as it is at the source */
static bool
is_loaded_as_is(const Shape *shape, const char *name)
{
	int			position = shape_column_position(shape, name);
	const LoadColumn *column;

	if (position < 0)
		return false;
	column = &shape->columns[position];
	return !column->is_transform && OidIsValid(column->source_type) &&
		getBaseType(column->source_type) == getBaseType(column->type);
}

/* a function of the server's own: another may be there and not here */
static bool
is_built_in(const char *name)
{
	CatCList   *functions = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(name));
	bool		found = false;

	for (int i = 0; i < functions->n_members; i++)
		if (((Form_pg_proc) GETSTRUCT(&functions->members[i]->tuple))->pronamespace == PG_CATALOG_NAMESPACE)
			found = true;
	ReleaseSysCacheList(functions);
	return found;
}

/* why a row of the target cannot be asked whether it passes the filter; NULL: it can */
static char *
filter_obstacle(const Job *job, const Shape *shape)
{
	Influences	influences = expression_influences(job->options->filter);
	ListCell   *lc;

	if (influences.by_table)
		return "the option \"filter\" looks into another table";
	foreach(lc, influences.functions)
		if (!is_built_in(lfirst(lc)))
			return psprintf("the option \"filter\" calls %s, which is a function of the source", (char *) lfirst(lc));
	foreach(lc, expression_columns(job->options->filter))
		if (!is_loaded_as_is(shape, lfirst(lc)))
			return psprintf("the option \"filter\" names column \"%s\", which the target does not have as it is at the source",
							(char *) lfirst(lc));
	return NULL;
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

	scope->window.with_null = job_null_watermark(job) != NULL_WATERMARK_SKIP;
	if (job->options->filter)
	{
		scope->unknown = filter_obstacle(job, shape);
		narrow(scope, expression_embed(job->options->filter, "option \"filter\""));
	}
	if (type == NULL)
		return scope;
	if (is_loaded_as_is(shape, job->watermark))
		watermark = quote_identifier(job->watermark);
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
