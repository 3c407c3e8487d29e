/*
 * fill_columns.c
 *		incload_fill_columns: values of some columns alone, for rows that are there.
 *
 * A column that has come later is empty in rows that were loaded before. The key
 * and those columns alone are read from the whole source, and staged, and a MERGE that
 * inserts nothing updates the rows that differ in them. It is one transaction, and has
 * the job's lock: what it reads is the latest that was read, and a row that changes
 * meanwhile comes with the next run, as the checkpoint does not move.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "batch.h"
#include "catalog.h"
#include "compat.h"
#include "execute.h"
#include "history.h"
#include "merge.h"
#include "names.h"
#include "query.h"
#include "role.h"
#include "run.h"
#include "run_core.h"
#include "shape.h"
#include "shape_columns.h"
#include "source.h"
#include "stage.h"
#include "target.h"
#include "trouble.h"

static List *
columns_arg(ArrayType *array)
{
	Datum	   *elements;
	bool	   *nulls;
	int			count;
	List	   *names = NIL;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
		if (!nulls[i] && !name_in_list(names, TextDatumGetCString(elements[i])))
			names = lappend(names, TextDatumGetCString(elements[i]));
	if (names == NIL || list_length(names) < count)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the columns to fill must be an array of different names"),
				 errdetail("It has %d elements, and %d different names.", count, list_length(names)),
				 errhint("For example: SELECT incload_fill_columns('orders', '{note}').")));
	return names;
}

/* a job whose rows can be found, and of each of which the source has one version */
static void
require_fillable(const Job *job)
{
	if (job->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("columns of job \"%s\" cannot be filled", job->name),
				 errdetail("Without a key, nothing tells which row of the target a row of the source is."),
				 errhint("SELECT incload_refresh(%s) loads the target anew.", quote_literal_cstr(job->name))));
	if (job->options->only_newer)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("columns of job \"%s\" cannot be filled", job->name),
				 errdetail("Its source is a log of versions (option \"only_newer\"), and a version is one row."),
				 errhint("SELECT incload_refresh(%s) reads all of it again.", quote_literal_cstr(job->name))));
}

/* each has to be a column that the job loads, beside the key */
static void
require_loaded(const Job *job, List *columns)
{
	List	   *loaded = shape_loaded_names(job);
	ListCell   *lc;

	foreach(lc, columns)
	{
		const char *nearest = nearest_name(loaded, lfirst(lc));

		if (name_in_list(job->key, lfirst(lc)))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("column \"%s\" is part of the key of job \"%s\"", (char *) lfirst(lc), job->name),
					 errdetail("Rows are found by their key, and keep it."),
					 errhint("Name other columns.")));
		if (!name_in_list(loaded, lfirst(lc)))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" is not loaded by job \"%s\"", (char *) lfirst(lc), job->name),
					 errdetail("Source %s does not have it, or the options leave it out.", job->source_name),
					 nearest ? errhint("Perhaps \"%s\" is meant.", nearest)
					 : errhint("The columns are those of the source that the options \"columns\", \"exclude\" and \"transforms\" let through.")));
	}
}

/* the job as it would be with the key and those columns alone */
static Job *
narrow_job(const Job *job, List *columns)
{
	Job		   *narrow = memcpy(palloc(sizeof(Job)), job, sizeof(Job));
	List	   *names = relation_column_names(job->source);
	List	   *wanted = list_concat_copy(job->key, columns);
	ListCell   *lc;

	narrow->options = memcpy(palloc(sizeof(JobOptions)), job->options, sizeof(JobOptions));
	narrow->only_fills = true;
	narrow->options->columns = narrow->options->exclude = narrow->options->transforms = NIL;
	foreach(lc, job->options->transforms)
		if (name_in_list(wanted, ((Transform *) lfirst(lc))->column))
			narrow->options->transforms = lappend(narrow->options->transforms, lfirst(lc));
	foreach(lc, wanted)
		if (name_in_list(names, lfirst(lc)))
			narrow->options->columns = lappend(narrow->options->columns, lfirst(lc));
	return narrow;
}

/* a column of the key is never set, though its image may differ where its value does not */
static Shape *
narrow_shape(Source *source, const Job *job)
{
	Shape	   *shape = shape_build(source, job);
	bool		has_any = false;

	for (int i = 0; i < shape->ncolumns; i++)
	{
		if (shape->columns[i].is_key)
			shape->columns[i].is_settable = false;
		has_any |= shape->columns[i].is_settable;
	}
	if (!has_any)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("target %s computes these columns itself", job->target_name),
				 errdetail("Generated columns are not loaded."),
				 errhint("Name columns that are.")));
	return shape;
}

/* the whole source, as a refresh reads it */
static Stage *
read_source(const Job *job, Source *source, const Shape *shape)
{
	Window		window = {.with_null = job_null_watermark(job) != NULL_WATERMARK_SKIP};
	Stage	   *stage = stage_create(job, shape, 0, false, CurrentMemoryContext);

	stage_begin_batch(stage);
	source->routine->open(source,
						  list_make1(query_read(shape, source, job->options->filter, &window, NULL,
												shape->key_is_unique ? READ_ANY_ORDER : READ_BY_WATERMARK, 0)),
						  shape);
	while (source->routine->read(source, stage))
		continue;
	source->routine->close(source);
	return stage;
}

static char *
fill_statement(const Job *job, const Shape *shape)
{
	StringInfoData buf;
	int			n = 0;

	initStringInfo(&buf);
	appendStringInfo(&buf, "MERGE INTO %s AS t USING " STAGE_NAME " AS s ON %s WHEN MATCHED AND %s THEN UPDATE SET ",
					 relation_qualified_name(job->target), merge_key_condition(shape, "t", "s"),
					 merge_update_condition(job, shape, "t", "s"));
	for (int i = 0; i < shape->ncolumns; i++)
	{
		const char *name = quote_identifier(shape->columns[i].name);

		if (shape->columns[i].is_settable)
			appendStringInfo(&buf, "%s%s = s.%s", n++ ? ", " : "", name, name);
	}
	return buf.data;
}

/* what a trigger kept from being updated still differs */
static char *
differing_statement(const Job *job, const Shape *shape)
{
	return psprintf("SELECT FROM " STAGE_NAME " AS s JOIN %s AS t ON %s WHERE %s",
					relation_qualified_name(job->target), merge_key_condition(shape, "t", "s"),
					merge_update_condition(job, shape, "t", "s"));
}

static void
apply(const Job *job, const Shape *shape, Stage *stage, RunRecord *record)
{
	ApplyCounts *counts = &record->counts;
	int64		differing = -1;
	ExecuteCounts done;

	record->rows_read = stage->nrows;
	stage_reduce(stage);
	counts->superseded = stage->nsuperseded;
	if (stage->nrows == 0)
		return;
	if (merge_may_suppress(job->target, false))
		differing = execute_statement(differing_statement(job, shape), stage_environment(stage), NULL).processed;
	done = execute_statement(fill_statement(job, shape), stage_environment(stage), NULL);
	if ((int64) done.merge_updated > stage->nrows)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("the key of job \"%s\" is not unique in target %s", job->name, job->target_name),
				 errdetail(INT64_FORMAT " rows were read, and " UINT64_FORMAT " rows of the target have their keys.",
						   stage->nrows, done.merge_updated),
				 errhint("Remove the duplicates, and create a unique index on the key.")));
	counts->updated = done.merge_updated;
	if (differing >= 0)
		counts->suppressed = Max(differing - counts->updated, 0);
	counts->unchanged = stage->nrows - counts->updated - counts->suppressed;
	record->batches = 1;
}

static void
fill(const Job *job, List *columns, RunRecord *record)
{
	RoleBracket bracket;
	Trouble		trouble;
	Job		   *narrow;
	Source	   *source;
	Shape	   *shape;
	Stage	   *stage;

	batch_enter_owner(job, &bracket);
	trouble_begin(&trouble, psprintf("It came up while columns of target %s were filled from source %s.",
									 job->target_name, job->source_name),
				  psprintf("SELECT * FROM incload_check(%s) compares the job with both sides and with the rights on them.",
						   quote_literal_cstr(job->name)));
	job_lock_relations(job, RowExclusiveLock);
	target_require_writable(job, false);
	target_require_same(job);
	require_loaded(job, columns);
	narrow = narrow_job(job, columns);
	source = source_connect(narrow, CurrentMemoryContext);
	shape = narrow_shape(source, narrow);
	role_pin_formats();
	stage = read_source(narrow, source, shape);
	apply(narrow, shape, stage, record);
	stage_end_batch(stage);
	record->bytes_read = source->bytes_read;
	source_release(source);
	trouble_end(&trouble);
	role_leave(&bracket);
}

/* a failed call leaves its record, as a failed run does; throws the error again */
static void
record_failure(Run *run)
{
	ErrorData  *error = run_take_failure(run);

	history_write_outside(run->record, run_failure_status(run, error), error, NULL);
	ReThrowError(error);
}

/* inside the caller's transaction; returns the row of incload.run */
static Datum
fill_in_transaction(const char *name, List *columns)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "incload fill", ALLOCSET_DEFAULT_SIZES);
	Job		   *job = job_load(name);
	Run		   *run;
	TimestampTz timeout;
	Datum		row;

	run_lock_to_change(job);
	MemoryContextSwitchTo(context);
	job = job_reload(job);
	job_require_whole(job);
	require_fillable(job);
	run = run_new(job, context, false, false, 0);
	run->record->kind = "backfill";
	timeout = run_start_timeout(job);
	run->is_locked = true;
	run_begin_inside(run);
	PG_TRY();
	{
		fill(job, columns, run->record);
		run->record->status = "succeeded";
		run->record->is_finished = true;
		history_write(run->record);
	}
	PG_CATCH();
	{
		run_end(run, timeout);
		record_failure(run);
	}
	PG_END_TRY();
	run_end(run, timeout);
	MemoryContextSwitchTo(caller);
	row = datumCopy(run->record->row, false, -1);
	MemoryContextDelete(context);
	return row;
}

PG_FUNCTION_INFO_V1(incload_fill_columns);

/*
 * incload_fill_columns(job text, columns text[]) → incload.run
 *		Gives rows that the target has the source's values of these columns, and inserts none.
 */
Datum
incload_fill_columns(PG_FUNCTION_ARGS)
{
	job_refuse_in_recovery("incload_fill_columns()");
	PG_RETURN_DATUM(fill_in_transaction(text_to_cstring(PG_GETARG_TEXT_PP(0)),
										columns_arg(PG_GETARG_ARRAYTYPE_P(1))));
}
