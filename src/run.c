/*
 * run.c
 *		One run of a job, from lock to history.
 *
 * There is one core and two ways to commit. incload_run works inside the
 * caller's transaction. incload_run_in_batches commits after each batch; its
 * rows come sorted by watermark and key, so that the checkpoint after a batch
 * says where the next one starts, whoever runs it.
 *
 * A run that fails leaves its record through a background worker, since its
 * own transaction is gone; the checkpoint stands where the last commit left it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "batch.h"
#include "catalog.h"
#include "compat.h"
#include "history.h"
#include "progress.h"
#include "role.h"
#include "run.h"
#include "run_core.h"

/* what tells incload's advisory locks from those of pg_advisory_lock (1 and 2) */
#define JOB_LOCK_CLASS 73

/* the runs of this session that are under way, the latest first */
static Run *innermost = NULL;

void
run_locktag(const Job *job, LOCKTAG *tag)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (job->id >> 32), (uint32) job->id,
						 JOB_LOCK_CLASS);
}

/* the PID of whoever runs the job, NULL for a prepared transaction; no row for nobody */
static TextRows *
find_holder(const Job *job)
{
	const char *params[3] = {
		psprintf("%u", MyDatabaseId), psprintf("%u", (uint32) (job->id >> 32)),
		psprintf("%u", (uint32) job->id)
	};

	return catalog_query("SELECT l.pid, l.mode FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted"
						 " AND l.database = $1::oid AND l.classid = $2::oid AND l.objid = $3::oid"
						 " AND l.objsubid = 73", 3, params);
}

/* the lock does not keep a session from itself: a run's own SQL can call */
static void
require_not_inside(const Job *job)
{
	for (Run *run = innermost; run != NULL; run = run->outer)
		if (run->job->id == job->id)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("job \"%s\" is already running", job->name),
					 errdetail("Its own run has called it: in pre_sql or post_sql, a trigger or a view."),
					 errhint("A job does not overlap itself; take the call out of what the run executes.")));
}

void
run_lock_to_change(const Job *job)
{
	LOCKTAG		tag;

	require_not_inside(job);
	run_locktag(job, &tag);
	if (LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL)
		return;
	ereport(NOTICE,
			(errmsg("waiting for the run of job \"%s\" to end", job->name),
			 errhint("SELECT incload_cancel(%s) in another session ends it at once.", quote_literal_cstr(job->name))));
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/*
 * Takes the job's lock until the end of the transaction (or of the session),
 * without waiting. 55P03 names the process that has it.
 */
static void
take_lock(const Job *job, bool for_session)
{
	LOCKTAG		tag;
	TextRows   *holder;

	require_not_inside(job);
	run_locktag(job, &tag);
	if (LockAcquire(&tag, ExclusiveLock, for_session, true) != LOCKACQUIRE_NOT_AVAIL)
		return;

	holder = find_holder(job);
	/* somebody has just ended */
	if (holder->nrows == 0 && LockAcquire(&tag, ExclusiveLock, for_session, true) != LOCKACQUIRE_NOT_AVAIL)
		return;
	/* windows of a backfill are short, and no new one begins while somebody waits */
	if (holder->nrows > 0 && strcmp(holder->value[0][1], "ShareLock") == 0)
	{
		ereport(NOTICE,
				(errmsg("waiting for the windows of a backfill of job \"%s\"", job->name)));
		(void) LockAcquire(&tag, ExclusiveLock, for_session, false);
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("job \"%s\" is already running", job->name),
			 holder->nrows == 0 ? errdetail("The run has just ended.")
			 : holder->value[0][0]
			 ? errdetail("The run is in the process with PID %s.", holder->value[0][0])
			 : errdetail("The run is in a prepared transaction, which pg_prepared_xacts shows."),
			 errhint("A job does not overlap itself; SELECT * FROM incload.status shows what it does.")));
}

void
run_wait_for_lock(Run *run)
{
	run_lock_to_change(run->job);
	run->is_locked = true;
	run_begin_inside(run);
	history_close_dead(run->job, run->record->run_id);
}

void
run_require_idle(const Job *job)
{
	LOCKTAG		tag;

	take_lock(job, false);
	run_locktag(job, &tag);
	LockRelease(&tag, ExclusiveLock, false);
}

bool
run_may_begin(const Job *job)
{
	LOCKTAG		tag;

	run_locktag(job, &tag);
	if (LockAcquire(&tag, ShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	LockRelease(&tag, ShareLock, false);
	return true;
}

int
run_holder(const Job *job)
{
	TextRows   *holder = find_holder(job);

	return holder->nrows && holder->value[0][0] ? atoi(holder->value[0][0]) : 0;
}

void
run_unlock_session(const Job *job, LOCKMODE mode)
{
	LOCKTAG		tag;

	run_locktag(job, &tag);
	LockRelease(&tag, mode, true);
}

/*
 * The option statement_timeout bounds the whole run here, by the timer that
 * the setting of that name uses. A shorter one that runs already stays.
 * Returns when the timer of before was to go off, 0 for none.
 */
TimestampTz
run_start_timeout(const Job *job)
{
	TimestampTz before = 0;
	TimestampTz ours;

	if (job->options->statement_timeout == 0)
		return 0;
	if (get_timeout_active(STATEMENT_TIMEOUT))
		before = get_timeout_finish_time(STATEMENT_TIMEOUT);
	ours = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), job->options->statement_timeout);
	if (before == 0 || ours < before)
		enable_timeout_at(STATEMENT_TIMEOUT, ours);
	return before;
}

static void
stop_timeout(const Job *job, TimestampTz before)
{
	if (job->options->statement_timeout == 0)
		return;
	disable_timeout(STATEMENT_TIMEOUT, false);
	if (before != 0)
		enable_timeout_at(STATEMENT_TIMEOUT, before);
}

/* runs it to the end, committing after each batch where that is asked for */
void
run_to_end(Run *run)
{
	MemoryContext batch_context = AllocSetContextCreate(run->context, "incload batch",
														ALLOCSET_DEFAULT_SIZES);
	bool		more;

	do
	{
		MemoryContextSwitchTo(batch_context);
		more = run_batch(run);
		if (run->in_batches)
		{
			run->commit();
			run_report_batch(run, !more);
		}
		run->committed = run->record->counts;
		run->committed_read = run->record->rows_read;
		run->committed_batches = run->record->batches;
		progress_batches(run->committed_batches);
		MemoryContextReset(batch_context);
	} while (more);
	MemoryContextSwitchTo(run->context);
	source_release(run->source);
}

/*
 * The end of a run that failed: counts go back to what is committed. Takes the
 * error off the stack and returns it.
 */
ErrorData *
run_take_failure(Run *run)
{
	RunRecord  *record = run->record;
	ErrorData  *error;

	MemoryContextSwitchTo(run->context);
	error = CopyErrorData();
	FlushErrorState();

	if (run->source)
		source_release(run->source);
	if (run->in_batches)
	{
		record->counts = run->committed;
		record->rows_read = run->committed_read;
		record->batches = run->committed_batches;
	}
	else
	{
		memset(&record->counts, 0, sizeof(record->counts));
		record->rows_read = 0;
		record->batches = 0;
	}
	return error;
}

const char *
run_failure_status(const Run *run, const ErrorData *error)
{
	/* it has not begun: others have the job, or a dump that it came with */
	if (!run->is_locked &&
		(error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || error->sqlerrcode == ERRCODE_OBJECT_IN_USE))
		return "skipped";
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED ? "cancelled" : "failed";
}

/* the event of a failure that somebody has to decide about; NULL for any other */
const Stop *
run_failure_event(const Run *run, const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE && run->stop.code ? &run->stop : NULL;
}

/* the record of a failed run is written by somebody else's transaction; throws the error again */
static void
record_failure(Run *run)
{
	ErrorData  *error = run_take_failure(run);

	history_write_outside(run->record, run_failure_status(run, error), error, run_failure_event(run, error));
	ReThrowError(error);
}

static void
refuse_without_writes(const Job *job)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("job \"%s\" cannot run on a standby server", job->name),
				 errdetail("The server is in recovery, and nothing can be written."),
				 errhint("Run it on the primary.")));
	PreventCommandIfReadOnly("incload_run()");
}

/* from here on, a call of this very job by the run's own SQL is refused */
void
run_begin_inside(Run *run)
{
	run->outer = innermost;
	innermost = run;
	if (run->progress == NULL)
		run->progress = progress_begin(run->job, run->record->run_id, run->record->kind);
}

/*
 * Takes the job's lock and then reads the job again: it may have been altered,
 * paused or dropped since it was looked up. False for a paused one, which is
 * skipped, and that is on record.
 */
static bool
lock_job(Run *run)
{
	take_lock(run->job, run->in_batches);
	run->is_locked = true;
	run->job = run->record->job = job_reload(run->job);
	run->is_full |= run->job->strategy == STRATEGY_FULL;
	run->is_full &= run->retry == NULL;
	run->record->kind = run->retry ? "retry" : run->is_full ? "full" : "incremental";
	run_begin_inside(run);
	history_close_dead(run->job, run->record->run_id);
	if (run->job->enabled)
		return true;
	ereport(NOTICE,
			(errmsg("job \"%s\" is paused: the run is skipped", run->job->name),
			 errhint("SELECT incload_resume(%s) lets it run again.", quote_literal_cstr(run->job->name))));
	run->record->status = "skipped";
	run->record->is_finished = true;
	history_write(run->record);
	return false;
}

/* whatever became of the run, in the end or in an error */
void
run_end(Run *run, TimestampTz timeout)
{
	stop_timeout(run->job, timeout);
	if (run->progress)
		progress_end(run->progress);
	run->progress = NULL;
	if (!run->is_locked)
		return;
	innermost = run->outer;
	if (run->in_batches)
		run_unlock_session(run->job, ExclusiveLock);
	pgstat_report_appname(application_name);
}

Run *
run_new(Job *job, MemoryContext context, bool refresh, bool in_batches, int64 run_id)
{
	Run		   *run = palloc0(sizeof(Run));

	refuse_without_writes(job);
	run->context = context;
	run->job = job;
	run->is_full = refresh || job->strategy == STRATEGY_FULL;
	run->in_batches = in_batches;
	run->record = history_begin(job, run->is_full ? "full" : "incremental", run_id);
	return run;
}

Datum
run_inside(const char *name, RunBody body, void *argument)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(caller, "incload run", ALLOCSET_DEFAULT_SIZES);
	Run		   *run;
	TimestampTz timeout;
	Datum		row;

	MemoryContextSwitchTo(context);
	run = run_new(job_load(name), context, false, false, 0);
	timeout = run_start_timeout(run->job);
	PG_TRY();
	{
		body(run, argument);
	}
	PG_CATCH();
	{
		run_end(run, timeout);
		record_failure(run);
	}
	PG_END_TRY();
	run_end(run, timeout);
	MemoryContextSwitchTo(caller);
	row = run->record->row ? datumCopy(run->record->row, false, -1) : (Datum) 0;
	MemoryContextDelete(context);
	return row;
}

/* what is new; or, with a Retry, what was put aside */
static void
load_body(Run *run, void *retry)
{
	run->retry = retry;
	if (!lock_job(run))
		return;
	job_require_whole(run->job);
	run_to_end(run);
}

static void
refresh_body(Run *run, void *argument)
{
	run->is_full = true;
	run->record->kind = "full";
	if (!lock_job(run))
		return;
	job_require_whole(run->job);
	run_to_end(run);
	catalog_event(run->job, "job_refreshed", "the target was made equal to the whole source",
				  psprintf("{\"run_id\": " INT64_FORMAT "}", run->record->run_id));
}

PG_FUNCTION_INFO_V1(incload_run);

/*
 * incload_run(job text) → incload.run
 *		Runs a job inside this transaction. Raises an ERROR when the run fails;
 *		the failed run is on record all the same.
 */
Datum
incload_run(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(run_inside(text_to_cstring(PG_GETARG_TEXT_PP(0)), load_body, NULL));
}

PG_FUNCTION_INFO_V1(incload_refresh);

/*
 * incload_refresh(job text) → incload.run
 *		Reads the whole source and makes the target equal to it.
 */
Datum
incload_refresh(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(run_inside(text_to_cstring(PG_GETARG_TEXT_PP(0)), refresh_body, NULL));
}

PG_FUNCTION_INFO_V1(incload_retry_rejects);

/*
 * incload_retry_rejects(job text) → (applied, rejected, gone)
 *		Loads what was put aside, as far as it can be taken by now.
 */
Datum
incload_retry_rejects(PG_FUNCTION_ARGS)
{
	Retry	   *retry = palloc0(sizeof(Retry));
	TupleDesc	desc;
	Datum		values[3];
	bool		nulls[3];

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	(void) run_inside(text_to_cstring(PG_GETARG_TEXT_PP(0)), load_body, retry);
	/* a paused job's is skipped */
	memset(nulls, retry->tried == NULL, sizeof(nulls));
	values[0] = Int64GetDatum(retry->applied);
	values[1] = Int64GetDatum(retry->rejected);
	values[2] = Int64GetDatum(retry->gone);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* how a procedure commits */
static void
commit_procedure(void)
{
	SPI_commit();
	EnsurePortalSnapshotExists();
}

/* from lock to history, committing after each batch */
void
run_batches(Run *run)
{
	if (!lock_job(run))
		return;
	history_write(run->record);
	run->commit();
	job_require_whole(run->job);
	run_to_end(run);
}

PG_FUNCTION_INFO_V1(incload_run_in_batches);

/*
 * incload_run_in_batches(job text)
 *		Runs a job and commits batch by batch. 25001 inside a transaction block.
 */
Datum
incload_run_in_batches(PG_FUNCTION_ARGS)
{
	MemoryContext context;
	Run		   *run;
	TimestampTz timeout;

	if (!fcinfo->context || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("incload_run_in_batches cannot run inside a transaction block"),
				 errdetail("It commits after each batch."),
				 errhint("Call it outside of BEGIN, of functions and of exception blocks, or use incload_run.")));
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("job must not be null"),
				 errdetail("incload_run_in_batches takes the name of a job."),
				 errhint("SELECT job FROM incload.job lists your jobs.")));

	context = AllocSetContextCreate(PortalContext, "incload run", ALLOCSET_DEFAULT_SIZES);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	MemoryContextSwitchTo(context);
	run = run_new(job_load(text_to_cstring(PG_GETARG_TEXT_PP(0))), context, false, true, 0);
	run->commit = commit_procedure;
	timeout = run_start_timeout(run->job);
	PG_TRY();
	{
		run_batches(run);
	}
	PG_CATCH();
	{
		run_end(run, timeout);
		record_failure(run);
	}
	PG_END_TRY();
	run_end(run, timeout);
	SPI_finish();
	MemoryContextDelete(context);
	PG_RETURN_VOID();
}
