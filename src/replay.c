/*
 * replay.c
 *		What a changed definition means for rows that are loaded already.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "catalog.h"
#include "compat.h"
#include "names.h"
#include "replay.h"
#include "shape.h"
#include "shape_columns.h"

/* the transform of a column; NULL for none */
static const char *
transform_of(const Job *job, const char *column)
{
	ListCell   *lc;

	foreach(lc, job->options->transforms)
		if (strcmp(((Transform *) lfirst(lc))->column, column) == 0)
			return ((Transform *) lfirst(lc))->expression;
	return NULL;
}

/* columns that are loaded now and were not, or by another expression */
static List *
other_columns(const Job *old, const Job *new)
{
	List	   *before = shape_loaded_names(old);
	List	   *columns = NIL;
	ListCell   *lc;

	foreach(lc, shape_loaded_names(new))
		if (!name_in_list(before, lfirst(lc)) ||
			!same_text(transform_of(old, lfirst(lc)), transform_of(new, lfirst(lc))))
			columns = lappend(columns, lfirst(lc));
	return columns;
}

static bool
loses_columns(const Job *old, const Job *new)
{
	List	   *now = shape_loaded_names(new);
	ListCell   *lc;

	foreach(lc, shape_loaded_names(old))
		if (!name_in_list(now, lfirst(lc)))
			return true;
	return false;
}

static bool
shares_name(List *names, List *others)
{
	ListCell   *lc;

	foreach(lc, names)
		if (name_in_list(others, lfirst(lc)))
			return true;
	return false;
}

static char *
array_of(List *columns)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, columns)
		appendStringInfo(&buf, "%s%s", buf.len > 0 ? ", " : "", quote_literal_cstr(lfirst(lc)));
	return psprintf("ARRAY[%s]", buf.data);
}

/* the calls that give the rows that are there these columns */
static char *
columns_hint(const Job *job, List *columns)
{
	const char *name = quote_literal_cstr(job->name);

	return psprintf("SELECT incload_fill_columns(%s, %s) applies it to all rows%s.", name, array_of(columns),
					shape_tracks_xmin(job) ? ""
					: psprintf("; incload_backfill(%s, from_value => ..., to_value => ..., step => ...) or incload_rewind(%s, to_value => ...) to a range of them",
							   name, name));
}

/* are other rows taken for deleted, or otherwise? */
static bool
other_deletes(const JobOptions *old, const JobOptions *new)
{
	return old->deletes != new->deletes || old->deleted_rows != new->deleted_rows ||
		!same_text(old->deleted_column, new->deleted_column);
}

/* the calls that apply the change to rows that are there */
static char *
replay_hint(const Job *old, const Job *new, List *columns)
{
	const char *name = quote_literal_cstr(new->name);
	bool		other_filter = !same_text(old->options->filter, new->options->filter);
	bool		other_start = !same_text(old->options->start_at, new->options->start_at);
	char	   *rewind;

	if (other_filter)
		return psprintf("SELECT incload_refresh(%s) applies it to all rows, and removes those that the filter no longer lets through.", name);
	if (new->key == NIL || other_deletes(old->options, new->options) || shares_name(columns, new->key) || (columns != NIL && new->options->only_newer) ||
		(other_start && new->options->start_at == NULL))
		return psprintf("SELECT incload_refresh(%s) applies it to all rows.", name);
	if (!other_start)
		return columns != NIL ? columns_hint(new, columns)
			: pstrdup("A column that is no longer loaded keeps the values that it has.");
	rewind = psprintf("SELECT incload_rewind(%s, to_value => %s) lets the next run read from there, if that is before its checkpoint.",
					  name, quote_literal_cstr(new->options->start_at));
	return columns != NIL ? psprintf("%s %s", rewind, columns_hint(new, columns)) : rewind;
}

void
replay_tell(const Job *old, const Job *new)
{
	List	   *columns = other_columns(old, new);
	CheckpointRow *row;
	char	   *message;
	char	   *hint;

	if (columns == NIL && !loses_columns(old, new) && !other_deletes(old->options, new->options) &&
		same_text(old->options->filter, new->options->filter) &&
		same_text(old->options->start_at, new->options->start_at))
		return;
	row = catalog_read_checkpoint(new->id, false);
	if (new->strategy == STRATEGY_FULL || (row->loaded_to == NULL && !(shape_tracks_xmin(new) && row->mark)))
		return;
	message = psprintf("rows that job \"%s\" has already loaded stay as they are", new->name);
	hint = replay_hint(old, new, columns);
	ereport(NOTICE,
			(errmsg_internal("%s", message),
			 errdetail("Which rows or columns are read, or how they are changed, holds from the next run on."),
			 errhint("%s", hint)));
	catalog_event(new, "rows_not_replayed", message, catalog_details(1, (const char *const[]) {"hint", hint}));
}
