/*
 * rewind.c
 *		A checkpoint that is moved by hand: back, or on to a source that is not
 *		what it was.
 *
 * What was seen is forgotten then, as it belongs to the place that was left.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "fmgr.h"
#include "parser/parse_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "catalog.h"
#include "compat.h"
#include "drift.h"
#include "job.h"
#include "run.h"
#include "shape.h"
#include "trouble.h"
#include "watermark.h"

static void
forget_seen(CheckpointRow *row)
{
	row->seen = row->mark = NULL;
	row->seen_tie_key = NIL;
	row->seen_null = false;
	row->noted_bounds = row->fallback_noted = "[]";
}

PG_FUNCTION_INFO_V1(incload_accept_source);

/*
 * incload_accept_source(job text) → incload.job
 *		Goes on with a source that is not what it was: another server with the
 *		same rows, or one whose newest rows are gone. What was seen is forgotten;
 *		a checkpoint above the newest id comes down to it in the next run.
 */
Datum
incload_accept_source(PG_FUNCTION_ARGS)
{
	Job		   *job;
	CheckpointRow *row;
	const char *epoch;
	const char *from;

	job_refuse_in_recovery("incload_accept_source()");
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	run_lock_to_change(job);
	row = catalog_read_checkpoint(job->id, true);
	epoch = row->epoch ? row->epoch : "";
	from = row->bound ? row->bound : "";
	row->epoch = NULL;
	/* by now, ids that are reused may have come as far as before: only the stop tells */
	if (job->key != NIL && catalog_lasting_stop(job->id))
	{
		row->bound = row->bound_side = row->fallback_bound = row->fallback_side = NULL;
		row->tie_key = NIL;
	}
	forget_seen(row);
	catalog_write_checkpoint(job->id, row);
	catalog_forget_tombstones(job->id);
	drift_forget(job->id);
	catalog_event(job, "source_accepted", psprintf("job %s goes on with the source as it is", job->name),
				  catalog_details(3, (const char *const[]) {"epoch", epoch, "from", from, "to", row->bound ? row->bound : ""}));
	PG_RETURN_DATUM(catalog_job_row(job->id));
}

/* a job that has a checkpoint to go back with, and to which a row that is read again is no other row */
static void
require_rewindable(const Job *job)
{
	if (job->strategy == STRATEGY_FULL || shape_tracks_xmin(job))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("job \"%s\" cannot be rewound", job->name),
				 job->strategy == STRATEGY_FULL ? errdetail("Its strategy is full: it has no checkpoint.")
				 : errdetail("It tracks xmin: its checkpoint is no value that a row has."),
				 errhint("SELECT incload_refresh(%s) reads everything again.", quote_literal_cstr(job->name))));
	if (job->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job \"%s\" cannot be rewound", job->name),
				 errdetail("It has no key: rows that are read again would be doubled."),
				 errhint("SELECT incload_refresh(%s) loads the target anew.", quote_literal_cstr(job->name))));
}

/* the type in which a checkpoint was written */
static WatermarkType *
checkpoint_type(const Job *job, const CheckpointRow *row)
{
	Oid			type;
	int32		typmod;

	if (row->bound == NULL || row->bound_type == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job \"%s\" has no checkpoint to go back from", job->name),
				 errdetail("Nothing is loaded for certain yet."),
				 errhint("The next run reads from the beginning, or from where the option \"start_at\" says.")));
	parseTypeString(row->bound_type, &type, &typmod, NULL);
	return watermark_type(type, OidIsValid(get_typcollation(type)) ? C_COLLATION_OID : InvalidOid);
}

PG_FUNCTION_INFO_V1(incload_rewind);

/*
 * incload_rewind(job text, to_value text) → incload.job
 *		Takes the checkpoint back to just before a value of the watermark: the next run
 *		reads all from there on once more.
 */
Datum
incload_rewind(PG_FUNCTION_ARGS)
{
	char	   *value = text_to_cstring(PG_GETARG_TEXT_PP(1));
	Job		   *job;
	CheckpointRow *row;
	WatermarkType *type;
	Bound		was = {.is_set = true};
	Bound		is = {.is_set = true, .side = BOUND_BEFORE};
	char	   *from;
	Trouble		trouble;

	job_refuse_in_recovery("incload_rewind()");
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	require_rewindable(job);
	run_lock_to_change(job);
	row = catalog_read_checkpoint(job->id, true);
	type = checkpoint_type(job, row);
	from = row->bound;
	was.value = watermark_parse(type, row->bound);
	was.side = strcmp(row->bound_side, "after") == 0 ? BOUND_AFTER : BOUND_BEFORE;
	trouble_begin(&trouble, psprintf("The value is: %s", value),
				  psprintf("The checkpoint is of type %s, and is at %s.", row->bound_type, from));
	is.value = watermark_parse(type, value);
	trouble_end(&trouble);
	if (bound_compare(type, &is, &was) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the checkpoint of job \"%s\" goes back only", job->name),
				 errdetail("It is at %s, and %s is beyond that: rows between would be missed.", from,
						   watermark_print(type, is.value)),
				 errhint("Name an older value; a run takes the checkpoint on.")));
	row->bound = watermark_print(type, is.value);
	row->bound_side = "before";
	row->tie_key = NIL;
	forget_seen(row);
	catalog_write_checkpoint(job->id, row);
	catalog_event(job, "job_rewound",
				  psprintf("the checkpoint of job %s was taken back from %s to %s", job->name, from, row->bound),
				  catalog_details(2, (const char *const[]) {"from", from, "to", row->bound}));
	PG_RETURN_DATUM(catalog_job_row(job->id));
}
