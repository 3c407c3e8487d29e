/*
 * shape_deleted.c
 *		What a job's shape says of rows that are marked as deleted.
 *
 * Whether a row is marked is decided at the source, and travels as a boolean of
 * its own behind the loaded columns: the column that tells need not be loaded.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "names.h"
#include "query.h"
#include "shape.h"
#include "shape_deleted.h"

/* a column's value as "the row is deleted" */
static char *
column_condition(const Job *job, const char *name)
{
	List	   *names = relation_column_names(job->source);
	Oid			type;

	if (!name_in_list(names, name))
		shape_unknown_column("source", job->source_name, names, name, "option \"deleted_column\"");
	type = getBaseType(get_atttype(job->source, get_attnum(job->source, name)));
	if (type == BOOLOID)
		return psprintf("COALESCE(%s, false)", quote_identifier(name));
	if (type == DATEOID || type == TIMESTAMPOID || type == TIMESTAMPTZOID)
		return psprintf("(%s IS NOT NULL)", quote_identifier(name));
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" cannot tell which rows are deleted", name),
			 errdetail("It is of type %s; a boolean tells when it is true, a date or timestamp when it is not null.",
					   format_type_be(type)),
			 errhint("Write a condition: {\"deleted_column\": \"(%s = ...)\"}.", quote_identifier(name))));
	return NULL;				/* keep compiler quiet */
}

/* a row that is kept is loaded like any other; without its mark, nobody could tell it from the others */
static void
require_mark(const Job *job, const Shape *shape)
{
	const char *name = job->options->deleted_column;

	if (shape_column_position(shape, name) >= 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("option \"deleted_rows\" cannot be \"keep\" where the mark is not loaded"),
			 errdetail("%s is no column that is read from source %s and stored in target %s.",
					   name, job->source_name, job->target_name),
			 errhint("Name a column that is loaded as \"deleted_column\", or leave \"deleted_rows\" out.")));
}

void
shape_add_deleted(const Job *job, Shape *shape)
{
	const char *name = job->options->deleted_column;

	shape->deleted_position = -1;
	if (job->options->deletes != DELETES_SOFT)
		return;
	if (job->options->deleted_rows == DELETED_ROWS_KEEP)
	{
		require_mark(job, shape);
		return;
	}
	/* whether an expression is a condition, the source says when the query is tried out */
	shape->deleted_expression = name[0] == '('
		? psprintf("COALESCE(%s, false)", expression_embed(name, "option \"deleted_column\""))
		: column_condition(job, name);
	shape->deleted_position = shape->ncolumns +
		(shape->watermark && shape->watermark_position == shape->ncolumns ? 1 : 0);
	shape->deleted_name = pstrdup("incload_deleted");
	while (shape_column_position(shape, shape->deleted_name) >= 0)
		shape->deleted_name = psprintf("%s_", shape->deleted_name);
}
