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

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "checkpoint.h"
#include "compat.h"
#include "history.h"
#include "horizon.h"
#include "merge.h"
#include "query.h"
#include "role.h"
#include "run.h"
#include "source.h"
#include "target.h"
#include "window.h"

/* what tells incload's advisory locks from those of pg_advisory_lock (1 and 2) */
#define JOB_LOCK_CLASS 73

/* an open transaction that holds the checkpoint back for so long is an event */
#define HELD_EVENT_SECONDS 3600

typedef struct Run
{
	const Job  *job;
	bool		is_full;		/* reads everything, and makes the target equal to it */
	bool		in_batches;		/* commits after each batch */
	MemoryContext context;		/* outlives the commits */

	RunRecord  *record;
	ApplyCounts committed;		/* the counts as of the last commit, likewise below */
	int64		committed_read;
	int			committed_batches;

	Source	   *source;
	Shape	   *shape;
	Checkpoint *checkpoint;
	Horizon    *horizon;
	Window		window;			/* what is still to be read */
	ReadOrder	order;
	Stage	   *stage;
	bool		is_open;		/* the reading query is */
	bool		reads_null_apart;	/* rows without a watermark get a query of their own */
} Run;

static void
job_locktag(const Job *job, LOCKTAG *tag)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (job->id >> 32), (uint32) job->id,
						 JOB_LOCK_CLASS);
}

void
run_lock(const Job *job, bool for_session)
{
	LOCKTAG		tag;
	const char *params[3];
	TextRows   *holder;

	job_locktag(job, &tag);
	if (LockAcquire(&tag, ExclusiveLock, for_session, true) != LOCKACQUIRE_NOT_AVAIL)
		return;

	params[0] = psprintf("%u", MyDatabaseId);
	params[1] = psprintf("%u", (uint32) (job->id >> 32));
	params[2] = psprintf("%u", (uint32) job->id);
	holder = catalog_query("SELECT l.pid FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted"
						   " AND l.database = $1::oid AND l.classid = $2::oid AND l.objid = $3::oid"
						   " AND l.objsubid = 73", 3, params);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("job \"%s\" is already running", job->name),
			 holder->nrows > 0
			 ? errdetail("The run is in the process with PID %s.", holder->value[0][0])
			 : errdetail("The run has just ended."),
			 errhint("A job does not overlap itself; SELECT * FROM incload.status shows what it does.")));
}

void
run_unlock_session(const Job *job)
{
	LOCKTAG		tag;

	job_locktag(job, &tag);
	LockRelease(&tag, ExclusiveLock, true);
}

/* the option lock_timeout for what is done here; there, remote.c sets it */
static void
enter_owner(Run *run, RoleBracket *bracket)
{
	role_enter_owner(bracket, run->job->owner, run->job->search_path);
	if (run->job->options->lock_timeout > 0)
		role_set("lock_timeout", psprintf(INT64_FORMAT, run->job->options->lock_timeout));
}

/*
 * The option statement_timeout bounds the whole run here, by the timer that
 * the setting of that name uses. A shorter one that runs already stays.
 * Returns when the timer of before was to go off, 0 for none.
 */
static TimestampTz
start_timeout(const Job *job)
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

static void
run_user_sql(const char *sql)
{
	if (sql == NULL)
		return;
	SPI_connect();
	if (SPI_execute(sql, false, 0) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pre_sql and post_sql cannot control transactions or COPY"),
				 errdetail("The SQL is: %s", sql),
				 errhint("It runs inside the run's transaction.")));
	SPI_finish();
}

/* "incload orders batch 3" for pg_stat_activity */
static void
show_activity(const Run *run)
{
	pgstat_report_appname(psprintf("incload %s batch %d", run->job->name, run->record->batches + 1));
}

/* how the rows of this run are read: in which order, cut where */
static void
plan_reading(Run *run)
{
	const Shape *shape = run->shape;
	int64		batch_rows = run->is_full ? 0 : run->job->options->batch_rows;
	bool		needs_order = run->in_batches || (shape->nkeys > 0 && !shape->key_is_unique);

	run->order = needs_order ? READ_BY_WATERMARK : READ_ANY_ORDER;
	run->stage = stage_create(run->job, shape, batch_rows,
							  !run->in_batches || shape->key_is_portable, run->context);
	run->reads_null_apart = run->in_batches && !run->is_full &&
		!run->source->routine->outlives_commit && run->window.with_null;
	if (run->reads_null_apart)
		run->window.with_null = false;
}

/* a refresh reads everything, as far as a row that is read again cannot be doubled */
static Window
full_window(Run *run)
{
	Window		window = {.with_null = job_null_watermark(run->job) != NULL_WATERMARK_SKIP};

	if (run->shape->watermark == NULL || run->shape->nkeys > 0)
		return window;
	if (!run->horizon->bound.is_set)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("it is not known yet which rows of source %s are settled", run->job->source_name),
				 errdetail("Without a key, a refresh may read only rows below which none can come any more."),
				 errhint("Try again in a few seconds.")));
	window.high = run->horizon->bound;
	return window;
}

/* from connection to window; inside the owner bracket */
static void
prepare(Run *run)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);

	target_require_writable(run->job);
	run->source = source_connect(run->job, run->context);
	run->shape = shape_build(run->source, run->job);
	run->checkpoint = checkpoint_read(run->job->id, run->shape->watermark, true);
	run->horizon = horizon_observe(run->source, run->job, run->shape, run->checkpoint);
	if (!run->horizon->mark_holds)
	{
		run->checkpoint->seen.is_set = false;
		run->checkpoint->seen_null = false;
		run->checkpoint->mark = 0;
	}
	run->window = run->is_full ? full_window(run)
		: window_next(run->job, run->shape, run->checkpoint, run->horizon);
	if (run->window.low.is_set)
		run->record->watermark_from = watermark_print(run->shape->watermark, run->window.low.value);
	plan_reading(run);
	MemoryContextSwitchTo(old);
}

static void
open_query(Run *run)
{
	int64		limit = 0;

	/* a query that ends with the batch need not be planned for more */
	if (run->in_batches && !run->source->routine->outlives_commit && !run->window.only_null)
		limit = run->stage->batch_rows;
	run->source->routine->open(run->source,
							   query_read(run->shape, run->source, run->job->options->filter, &run->window, run->order, limit),
							   run->shape);
	run->is_open = true;
}

static void
close_query(Run *run)
{
	run->source->routine->close(run->source);
	run->is_open = false;
}

/* the place after the last row of a batch that is not the last one */
static Bound
place_after_batch(Run *run)
{
	Bound		place = {0};
	MemoryContext old;
	ListCell   *lc;

	/* among rows without a watermark: every other is read */
	if (!run->stage->has_last)
		return place;
	old = MemoryContextSwitchTo(run->context);
	place.is_set = true;
	place.value = watermark_copy(run->shape->watermark, run->stage->last_watermark);
	place.side = BOUND_AFTER;
	if (run->stage->cut_at_key)
		foreach(lc, run->stage->last_key)
			place.tie_key = lappend(place.tie_key, pstrdup(lfirst(lc)));
	MemoryContextSwitchTo(old);
	return place;
}

/* reads a batch into the stage; false when it was the last one */
static bool
read_batch(Run *run)
{
	bool		more;

	stage_begin_batch(run->stage);
	if (run->window.is_empty)
		return false;
	if (!run->is_open)
		open_query(run);
	more = run->source->routine->read(run->source, run->stage);

	if (run->in_batches && !run->source->routine->outlives_commit)
	{
		close_query(run);
		stage_forget_carried(run->stage);
		if (run->window.only_null)
			return false;
		more = run->stage->batch_rows > 0 && run->stage->nrows >= run->stage->batch_rows;
		if (more)
			run->window.low = place_after_batch(run);
		else if (run->reads_null_apart)
		{
			run->window.only_null = true;
			run->stage->batch_rows = 0;
			more = true;
		}
	}
	else if (!more)
		close_query(run);
	return more;
}

static void
apply_batch(Run *run)
{
	const Job  *job = run->job;
	ApplyMode	mode = merge_mode(job, run->shape);
	bool		prune = false;

	if (run->is_full)
	{
		prune = job_full_refresh_mode(job) == FULL_REFRESH_MERGE;
		mode = prune ? APPLY_MERGE : APPLY_INSERT;
		if (!prune)
			run->record->counts.pruned += merge_truncate(job);
	}
	run->record->rows_read += run->stage->nrows;
	merge_apply(job, run->shape, run->stage, mode, prune, &run->record->counts);
}

/*
 * What this run has seen of the source, as of its own mark: all of it at its
 * end, else all up to the batch's last row. Up to the place of an earlier run,
 * that run's mark holds until this one has got there.
 */
static void
advance_seen(Run *run, bool is_last)
{
	Checkpoint *checkpoint = run->checkpoint;
	const WatermarkType *type = run->shape->watermark;
	Bound		place = {0};

	checkpoint->definition_hash = run->horizon->definition_hash;
	if (run->horizon->mark == 0)
		return;
	if (!is_last)
	{
		if (run->order != READ_BY_WATERMARK || run->window.only_null)
			return;
		place = place_after_batch(run);
		if (!place.is_set || bound_compare(type, &place, &checkpoint->seen) < 0)
			return;
		checkpoint->seen_null = false;
	}
	else
	{
		if (run->stage->has_newest)
		{
			MemoryContext old = MemoryContextSwitchTo(run->context);

			place.is_set = true;
			place.value = watermark_copy(type, run->stage->newest_watermark);
			place.side = BOUND_AFTER;
			MemoryContextSwitchTo(old);
		}
		if (bound_compare(type, &place, &checkpoint->seen) < 0)
			place = checkpoint->seen;
		checkpoint->seen_null = true;
	}
	checkpoint->seen = place;
	checkpoint->mark = run->horizon->mark;
}

/*
 * The checkpoint goes as far as the batch, and never beyond the horizon: what
 * is above may still get company, and is read again.
 */
static void
advance_checkpoint(Run *run, bool is_last)
{
	Checkpoint *checkpoint = run->checkpoint;
	const WatermarkType *type = run->shape->watermark;
	Stage	   *stage = run->stage;

	checkpoint->guarantee = run->horizon->guarantee;
	checkpoint->held_back_by = run->horizon->held_back_by;
	checkpoint->epoch = run->horizon->epoch;
	if (type != NULL)
	{
		Bound		reached = run->horizon->bound;

		/* in an order that is not the watermark's, only the end says how far */
		if (!is_last && run->order == READ_BY_WATERMARK && !run->window.only_null)
		{
			Bound		place = place_after_batch(run);

			if (place.is_set && reached.is_set && bound_compare(type, &place, &reached) <= 0)
				reached = place;
		}
		else if (!is_last && run->order != READ_BY_WATERMARK)
			reached.is_set = false;
		if (reached.is_set &&
			(run->is_full || bound_compare(type, &reached, &checkpoint->bound) >= 0))
			checkpoint->bound = reached;
		checkpoint->noted = run->horizon->noted;
		advance_seen(run, is_last);
	}
	if (stage->has_newest)
	{
		MemoryContext old = MemoryContextSwitchTo(run->context);
		char	   *newest = watermark_print(type, stage->newest_watermark);

		run->record->watermark_to = newest;
		if (checkpoint->loaded_to == NULL ||
			watermark_compare(type, stage->newest_watermark,
							  watermark_parse(type, checkpoint->loaded_to)) > 0)
			checkpoint->loaded_to = newest;
		MemoryContextSwitchTo(old);
	}
	checkpoint_write(checkpoint, type);
}

/* how old the newest row is that the target has, by the source's clock */
static void
note_lag(Run *run)
{
	TimestampTz newest;

	if (run->shape->watermark == NULL || run->shape->watermark->type != TIMESTAMPTZOID ||
		run->checkpoint->loaded_to == NULL)
		return;
	newest = DatumGetTimestampTz(watermark_parse(run->shape->watermark, run->checkpoint->loaded_to));
	if (TIMESTAMP_NOT_FINITE(newest))
		return;
	run->record->has_lag = true;
	run->record->lag = Max(run->horizon->source_clock - newest, 0);
}

/* a transaction left open at the source all night is told once, and not for ever kept silent */
static void
note_held_horizon(Run *run)
{
	const Horizon *horizon = run->horizon;

	if (horizon->held_since == 0 ||
		horizon->source_clock - horizon->held_since < HELD_EVENT_SECONDS * USECS_PER_SEC)
		return;
	catalog_event_once(run->job, "horizon_held", horizon->held_back_by,
					   psprintf("the checkpoint waits for a transaction at the source: %s",
								horizon->held_back_by));
}

static void
report_batch(Run *run, bool is_last)
{
	RunRecord  *record = run->record;

	/* one line a batch; a run of one batch tells by its result alone */
	if (is_last && !run->in_batches)
		return;
	ereport(NOTICE,
			(errmsg("%s: batch %d: " INT64_FORMAT " rows read, " INT64_FORMAT " inserted, "
					INT64_FORMAT " updated, " INT64_FORMAT " unchanged%s%s",
					run->job->name, record->batches, record->rows_read - run->committed_read,
					record->counts.inserted - run->committed.inserted,
					record->counts.updated - run->committed.updated,
					record->counts.unchanged - run->committed.unchanged,
					record->watermark_to ? ", to " : "",
					record->watermark_to ? record->watermark_to : "")));
}

/* one batch, from reading to checkpoint; false when it was the last one */
static bool
run_batch(Run *run)
{
	RoleBracket bracket;
	bool		more;
	bool		is_first = run->record->batches == 0;

	show_activity(run);
	enter_owner(run, &bracket);
	if (run->source == NULL)
		prepare(run);
	else
		(void) checkpoint_read(run->job->id, run->shape->watermark, true);
	if (is_first)
		run_user_sql(run->job->options->pre_sql);
	more = read_batch(run);
	if (run->stage->nrows > 0 || run->is_full)
	{
		apply_batch(run);
		run->record->batches++;
	}
	stage_end_batch(run->stage);
	if (!more)
		run_user_sql(run->job->options->post_sql);

	advance_checkpoint(run, !more);
	run->record->bytes_read = run->source->bytes_read;
	if (!more)
	{
		note_lag(run);
		note_held_horizon(run);
		run->record->status = "succeeded";
		run->record->is_finished = true;
	}
	if (run->in_batches || !more)
		history_write(run->record);
	report_batch(run, !more);
	role_leave(&bracket);
	return more;
}

/* runs it to the end, committing after each batch where that is asked for */
static void
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
			SPI_commit();
			EnsurePortalSnapshotExists();
		}
		run->committed = run->record->counts;
		run->committed_read = run->record->rows_read;
		run->committed_batches = run->record->batches;
		MemoryContextReset(batch_context);
	} while (more);
	MemoryContextSwitchTo(run->context);
	source_release(run->source);
}

/*
 * The end of a run that failed: counts go back to what is committed, and the
 * record is written by somebody else's transaction. Throws the error again.
 */
static void
record_failure(Run *run, bool was_locked)
{
	RunRecord  *record = run->record;
	ErrorData  *error;
	const char *status;

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
	status = !was_locked ? "skipped"
		: error->sqlerrcode == ERRCODE_QUERY_CANCELED ? "cancelled" : "failed";
	history_write_outside(record, status, error);
	pgstat_report_appname(application_name);
	ReThrowError(error);
}

/* refuses where nothing can be written; a paused job is skipped (false) */
static bool
may_run(const Job *job)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("job \"%s\" cannot run on a standby server", job->name),
				 errdetail("The server is in recovery, and nothing can be written."),
				 errhint("Run it on the primary.")));
	PreventCommandIfReadOnly("incload_run()");
	if (job->enabled)
		return true;
	ereport(NOTICE,
			(errmsg("job \"%s\" is paused: the run is skipped", job->name),
			 errhint("SELECT incload_resume(%s) lets it run again.", quote_literal_cstr(job->name))));
	return false;
}

/* a run inside the caller's transaction; returns its number */
static int64
run_in_transaction(const char *name, bool refresh)
{
	MemoryContext caller = CurrentMemoryContext;
	Run		   *run;
	MemoryContext context = AllocSetContextCreate(caller, "incload run", ALLOCSET_DEFAULT_SIZES);
	volatile bool locked = false;
	volatile TimestampTz timeout = 0;
	int64		run_id;
	Job		   *job;

	MemoryContextSwitchTo(context);
	job = job_load(name);
	run = palloc0(sizeof(Run));
	run->context = context;
	run->job = job;
	run->is_full = refresh || job->strategy == STRATEGY_FULL;
	if (!may_run(job))
	{
		run->record = history_begin(job, run->is_full ? "full" : "incremental");
		run->record->status = "skipped";
		run->record->is_finished = true;
		history_write(run->record);
	}
	else
	{
		run->record = history_begin(job, run->is_full ? "full" : "incremental");
		PG_TRY();
		{
			run_lock(job, false);
			locked = true;
			history_close_dead(job);
			job_require_whole(job);
			timeout = start_timeout(job);
			run_to_end(run);
			stop_timeout(job, timeout);
		}
		PG_CATCH();
		{
			if (locked)
				stop_timeout(job, timeout);
			record_failure(run, locked);
		}
		PG_END_TRY();
		pgstat_report_appname(application_name);
		if (refresh)
			catalog_event(job, "job_refreshed", "the target was made equal to the whole source",
						  psprintf("{\"run_id\": " INT64_FORMAT "}", run->record->run_id));
	}
	run_id = run->record->run_id;
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return run_id;
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
	int64		run_id = run_in_transaction(text_to_cstring(PG_GETARG_TEXT_PP(0)), false);

	PG_RETURN_DATUM(catalog_run_row(run_id));
}

PG_FUNCTION_INFO_V1(incload_refresh);

/*
 * incload_refresh(job text) → incload.run
 *		Reads the whole source and makes the target equal to it.
 */
Datum
incload_refresh(PG_FUNCTION_ARGS)
{
	int64		run_id = run_in_transaction(text_to_cstring(PG_GETARG_TEXT_PP(0)), true);

	PG_RETURN_DATUM(catalog_run_row(run_id));
}

/* the run of incload_run_in_batches, once it holds the job's lock */
static void
run_committing(Run *run)
{
	volatile TimestampTz timeout = 0;

	PG_TRY();
	{
		history_close_dead(run->job);
		history_write(run->record);
		SPI_commit();
		EnsurePortalSnapshotExists();
		job_require_whole(run->job);
		timeout = start_timeout(run->job);
		run_to_end(run);
		stop_timeout(run->job, timeout);
	}
	PG_CATCH();
	{
		stop_timeout(run->job, timeout);
		run_unlock_session(run->job);
		record_failure(run, true);
	}
	PG_END_TRY();
	run_unlock_session(run->job);
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
	Job		   *job;

	if (!fcinfo->context || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("incload_run_in_batches cannot run inside a transaction block"),
				 errdetail("It commits after each batch."),
				 errhint("Call it outside of BEGIN and of functions, or use incload_run.")));
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("job must not be null"),
				 errdetail("incload_run_in_batches takes the name of a job."),
				 errhint("SELECT job FROM incload.job lists your jobs.")));

	context = AllocSetContextCreate(PortalContext, "incload run", ALLOCSET_DEFAULT_SIZES);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	MemoryContextSwitchTo(context);
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	run = palloc0(sizeof(Run));
	run->context = context;
	run->job = job;
	run->is_full = job->strategy == STRATEGY_FULL;
	run->in_batches = true;
	if (may_run(job))
	{
		run->record = history_begin(job, run->is_full ? "full" : "incremental");
		PG_TRY();
		{
			run_lock(job, true);
		}
		PG_CATCH();
		{
			record_failure(run, false);
		}
		PG_END_TRY();
		run_committing(run);
		pgstat_report_appname(application_name);
	}
	else
	{
		run->record = history_begin(job, run->is_full ? "full" : "incremental");
		run->record->status = "skipped";
		run->record->is_finished = true;
		history_write(run->record);
	}
	SPI_finish();
	MemoryContextDelete(context);
	PG_RETURN_VOID();
}
