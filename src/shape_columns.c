/*
 * shape_columns.c
 *		Which columns of its source a job reads.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "foreign/foreign.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "catalog.h"
#include "compat.h"
#include "facts.h"
#include "names.h"
#include "query.h"
#include "shape.h"
#include "shape_columns.h"
#include "source.h"

List *
relation_column_names(Oid relation)
{
	List	   *names = NIL;
	Relation	rel = table_open(relation, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped)
			names = lappend(names, pstrdup(NameStr(att->attname)));
	}
	table_close(rel, AccessShareLock);
	return names;
}

void
shape_unknown_column(const char *side, const char *relation, List *names, const char *wanted,
			   const char *role)
{
	const char *nearest = nearest_name(names, wanted);

	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" does not exist in %s %s", wanted, side, relation),
			 errdetail("It is named as %s.", role),
			 nearest ? errhint("Perhaps \"%s\" is meant.", nearest)
			 : errhint("Column names are taken as they are written, without quotes.")));
}

void
shape_require_columns(const Job *job, List *names, List *wanted, const char *role)
{
	ListCell   *lc;

	foreach(lc, wanted)
		if (!name_in_list(names, lfirst(lc)))
			shape_unknown_column("source", job->source_name, names, lfirst(lc), role);
}

static LoadColumn *
new_column(const char *name, char *expression, bool is_transform)
{
	LoadColumn *column = palloc0(sizeof(LoadColumn));

	column->name = pstrdup(name);
	column->expression = expression;
	column->is_transform = is_transform;
	column->typmod = column->source_typmod = -1;
	return column;
}

bool
shape_wants(const Job *job, const char *name)
{
	const JobOptions *options = job->options;

	return options->columns ? name_in_list(options->columns, name) : !name_in_list(options->exclude, name);
}

bool
shape_names(const Job *job, const char *name)
{
	ListCell   *lc;

	foreach(lc, job->options->transforms)
		if (strcmp(((Transform *) lfirst(lc))->column, name) == 0)
			return true;
	return name_in_list(job->key, name) || name_in_list(job->options->columns, name);
}

List *
shape_source_columns(const Source *source, const Job *job)
{
	const JobOptions *options = job->options;
	List	   *names = relation_column_names(job->source);
	List	   *columns = NIL;
	List	   *transformed = NIL;
	ListCell   *lc;

	shape_require_columns(job, names, options->columns, "option \"columns\"");
	shape_require_columns(job, names, options->exclude, "option \"exclude\"");

	foreach(lc, options->transforms)
		transformed = lappend(transformed, ((Transform *) lfirst(lc))->column);
	foreach(lc, names)
	{
		char	   *name = lfirst(lc);

		if (!shape_wants(job, name) || name_in_list(source->gone, name))
			continue;
		if (!name_in_list(transformed, name))
			columns = lappend(columns, new_column(name, pstrdup(quote_identifier(name)), false));
	}
	foreach(lc, options->transforms)
	{
		Transform  *transform = lfirst(lc);
		char	   *what = psprintf("the transform of column \"%s\"", transform->column);

		columns = lappend(columns, new_column(transform->column,
											  expression_embed(transform->expression, what),
											  true));
	}
	if (columns == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job \"%s\" has no column to load", job->name),
				 errdetail("The options leave out every column of %s.", job->source_name),
				 errhint("Change the option \"columns\" or \"exclude\".")));
	return columns;
}

List *
shape_loaded_names(const Job *job)
{
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, relation_column_names(job->source))
		if (shape_wants(job, lfirst(lc)))
			names = lappend(names, lfirst(lc));
	foreach(lc, job->options->transforms)
		if (!name_in_list(names, ((Transform *) lfirst(lc))->column))
			names = lappend(names, ((Transform *) lfirst(lc))->column);
	return names;
}

bool
shape_may_leave_out(const Job *job, const char *name)
{
	if (shape_names(job, name))
		return false;
	/* what is tried out has to fit, but that evolve makes it fit by the first run */
	if (job->is_new)
		return job->options->schema_change == SCHEMA_CHANGE_EVOLVE;
	return catalog_omits_column(job->id, name, get_rel_relkind(job->source) != RELKIND_FOREIGN_TABLE);
}

/* has the column a name of its own at the source, if only the same one? */
static bool
has_remote_name(Oid relation, const char *column)
{
	ListCell   *lc;

	foreach(lc, GetForeignColumnOptions(relation, get_attnum(relation, column)))
		if (strcmp(((DefElem *) lfirst(lc))->defname, "column_name") == 0)
			return true;
	return false;
}

void
shape_note_gone(Source *source, const Job *job, const SourceFacts *facts)
{
	ListCell   *lc;

	foreach(lc, facts->gone)
	{
		char	   *name = ((SourceColumn *) lfirst(lc))->name;
		const char *role = name_in_list(job->key, name) ? "key"
			: job->strategy != STRATEGY_FULL && job->watermark && strcmp(job->watermark, name) == 0 ? "watermark"
			: job->options->watermark_fallback && strcmp(job->options->watermark_fallback, name) == 0
			? "option \"watermark_fallback\"" : NULL;

		if (role)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("source %s no longer has column \"%s\"", job->source_name, name),
					 errdetail("The foreign table still has it, and the job names it as %s.", role),
					 errhint("Name another one: SELECT incload_alter_job(%s, ...); or, where it was renamed: ALTER FOREIGN TABLE %s ALTER COLUMN %s OPTIONS (%s column_name '...');",
							 quote_literal_cstr(job->name), job->source_name, quote_identifier(name),
							 has_remote_name(job->source, name) ? "SET" : "ADD")));
	}
	if (job->is_new && job->options->schema_change != SCHEMA_CHANGE_EVOLVE)
		return;
	source->gone = NIL;
	foreach(lc, facts->gone)
		source->gone = lappend(source->gone, ((SourceColumn *) lfirst(lc))->name);
}
