/*
 * deletes.c
 *		What a job may delete from its target, as its options have it.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parse_type.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "deletes.h"
#include "names.h"
#include "query.h"
#include "shape_watermark.h"

static const char *
mode_name(int deletes)
{
	return deletes == DELETES_SOFT ? "soft" : deletes == DELETES_TOMBSTONE ? "tombstone" : "prune";
}

/* an option that says something only with one value of "deletes" */
static void
require_mode(const JobOptions *options, int deletes, bool is_set, const char *name)
{
	if (!is_set || options->deletes == deletes)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("option \"%s\" needs the option \"deletes\" to be \"%s\"", name, mode_name(deletes)),
			 errdetail("It says nothing else."),
			 errhint("Set {\"deletes\": \"%s\"}, or leave the option out; null takes it away.", mode_name(deletes))));
}

void
deletes_check_options(const Job *job)
{
	const JobOptions *options = job->options;
	const char *needed = options->deletes == DELETES_SOFT ? "deleted_column" : "tombstone_source";

	require_mode(options, DELETES_SOFT, options->deleted_column != NULL, "deleted_column");
	require_mode(options, DELETES_SOFT, options->deleted_rows != DELETED_ROWS_DEFAULT, "deleted_rows");
	require_mode(options, DELETES_TOMBSTONE, options->tombstone_source != NULL, "tombstone_source");
	require_mode(options, DELETES_TOMBSTONE, options->tombstone_watermark != NULL, "tombstone_watermark");
	if (options->deletes <= DELETES_IGNORE)
		return;
	if (job->strategy != STRATEGY_UPSERT)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"deletes\" cannot be \"%s\" with strategy %s", mode_name(options->deletes),
						strategy_name(job->strategy)),
				 job->strategy == STRATEGY_FULL
				 ? errdetail("A full refresh takes what the source no longer has out of the target in any case.")
				 : errdetail("Append leaves the rows that the target has as they are."),
				 job->strategy == STRATEGY_FULL ? errhint("Leave the option out; rows that are marked go by the option \"filter\".")
				 : errhint("Use strategy upsert, with a key, or leave the option out.")));
	if (options->deletes != DELETES_PRUNE &&
		(options->deletes == DELETES_SOFT ? options->deleted_column : options->tombstone_source) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"deletes\" cannot be \"%s\" without the option \"%s\"", mode_name(options->deletes), needed),
				 errdetail("Nothing else tells which rows are deleted."),
				 options->deletes == DELETES_SOFT
				 ? errhint("Name the column of the source that marks them: {\"deletes\": \"soft\", \"deleted_column\": \"deleted_at\"}.")
				 : errhint("Name the relation here that lists their keys; SELECT incload_source_sql(%s) prints one for the source, once the job is there.",
						   quote_literal_cstr(job->name))));
	if (options->only_newer && deletes_from_target(job))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"only_newer\" does not go with rows that are deleted from the target"),
				 errdetail("An older version that comes later would bring a deleted row back, as nothing is left to compare it with."),
				 errhint("Keep such rows, with their mark: {\"deletes\": \"soft\", \"deleted_rows\": \"keep\"}.")));
}

bool
deletes_from_target(const Job *job)
{
	return job->options->deletes == DELETES_TOMBSTONE || job->options->deletes == DELETES_PRUNE ||
		(job->options->deletes == DELETES_SOFT && job->options->deleted_rows != DELETED_ROWS_KEEP);
}

/* Reading: what a filter names, on its way through the filter */
typedef struct Reading
{
	const Shape *shape;
	bool		is_known;		/* so far, the target has all of it as the source has it */
	bool		has_order;		/* it asks what comes before what */
	bool		has_collation;	/* and names a column whose order depends on the server */
} Reading;

/* does the target have the source's column of that name, with the same values? */
static bool
is_loaded_as_is(const Shape *shape, const char *name)
{
	int			position = shape_column_position(shape, name);
	const LoadColumn *column;

	if (position < 0)
		return false;
	column = &shape->columns[position];
	return !column->is_transform && OidIsValid(column->source_type) &&
		getBaseType(column->type) == getBaseType(column->source_type) && column_keeps_digits(column);
}

/* is it a comparison other than for equality? */
static bool
asks_order(const A_Expr *expr)
{
	const char *name = IsA(llast(expr->name), String) ? strVal(llast(expr->name)) : "";

	return strcmp(name, "<") == 0 || strcmp(name, ">") == 0 || strcmp(name, "<=") == 0 || strcmp(name, ">=") == 0 ||
		expr->kind == AEXPR_BETWEEN || expr->kind == AEXPR_NOT_BETWEEN ||
		expr->kind == AEXPR_BETWEEN_SYM || expr->kind == AEXPR_NOT_BETWEEN_SYM;
}

static bool
read_names(Node *node, void *context)
{
	Reading    *reading = context;

	if (node == NULL)
		return false;
	if (IsA(node, ColumnRef))
	{
		Node	   *last = llast(((ColumnRef *) node)->fields);

		reading->is_known &= IsA(last, String) && is_loaded_as_is(reading->shape, strVal(last));
		if (reading->is_known)
			reading->has_collation |= OidIsValid(reading->shape->columns[shape_column_position(reading->shape, strVal(last))].collation);
		return false;
	}
	if (IsA(node, A_Expr))
		reading->has_order |= asks_order((A_Expr *) node);
	/* what only the source's server has */
	if (IsA(node, CollateClause))
		reading->is_known = false;
	if (IsA(node, TypeCast))
	{
		Type		type = LookupTypeName(NULL, ((TypeCast *) node)->typeName, NULL, true);

		if (type)
			ReleaseSysCache(type);
		else
			reading->is_known = false;
	}
	return raw_expression_tree_walker(node, read_names, context);
}

char *
deletes_scope(const Job *job, const Shape *shape)
{
	const char *filter = job->options->filter;
	Reading		reading = {.shape = shape, .is_known = true};
	StringInfoData buf;

	if (filter == NULL || !expression_is_plain(filter))
		return NULL;
	read_names(linitial_node(RawStmt, raw_parser(psprintf("SELECT %s", filter), RAW_PARSE_DEFAULT))->stmt, &reading);
	if (!reading.is_known || (reading.has_order && reading.has_collation))
		return NULL;

	/* the columns bear the names that they have in the filter, and their row the name that the readers give it */
	initStringInfo(&buf);
	for (int i = 0; i < shape->ncolumns; i++)
	{
		const char *name = quote_identifier(shape->columns[i].name);

		if (is_loaded_as_is(shape, shape->columns[i].name))
			appendStringInfo(&buf, "%st.%s AS %s", buf.len ? ", " : "", name, name);
	}
	return psprintf("(SELECT %s FROM (SELECT %s) AS source)", expression_embed(filter, "option \"filter\""), buf.data);
}
