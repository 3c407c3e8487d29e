/*
 * runner.c
 *		Background workers that run jobs.
 *
 * A runner is connected as the owner of the jobs that it runs, and to one
 * database. It takes its task from its slot, and then waits for another one of
 * the same owner's, so that connections to sources and plans are kept. While it
 * waits it is in no transaction.
 */
#include "postgres.h"

#include <signal.h>

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/async.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "backfill.h"
#include "background.h"
#include "catalog.h"
#include "compat.h"
#include "history.h"
#include "incload.h"
#include "job.h"
#include "role.h"
#include "run.h"
#include "runner.h"
#include "slots.h"
#include "unattended.h"

/* how long a runner waits for another task, and after how many it makes room for a fresh one */
#define IDLE_MS (60 * 1000)
#define MOST_TASKS 10000

PGDLLEXPORT void incload_runner_main(Datum arg);

RunnerStart
runner_start(Oid owner, const Task *task, SlotRef *ref, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	/* nobody at all would be the server's own superuser */
	if (!OidIsValid(owner))
		return RUNNER_NO_SLOT;
	if (!slot_reserve(SLOT_RUNNER, MyDatabaseId, owner, task, false, ref))
		return RUNNER_NO_SLOT;
	background_describe(&worker, "incload runner", "incload_runner_main", BGW_NEVER_RESTART, (Datum) 0);
	memcpy(worker.bgw_extra, ref, sizeof(SlotRef));
	if (background_start(&worker, handle))
		return RUNNER_STARTED;
	slot_give_up(ref);
	return RUNNER_NO_WORKER;
}

/* waits for the end of a transaction; false if that was cancelled */
static bool
wait_for_transaction(TransactionId xid)
{
	MemoryContext context = CurrentMemoryContext;
	bool volatile has_ended = true;

	PG_TRY();
	{
		StartTransactionCommand();
		XactLockTableWait(xid, NULL, NULL, XLTW_None);
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (error->sqlerrcode != ERRCODE_QUERY_CANCELED)
			PG_RE_THROW();
		FlushErrorState();
		AbortCurrentTransaction();
		has_ended = false;
	}
	PG_END_TRY();
	return has_ended;
}

/*
 * Is the run that somebody has asked for to be done? Not if that transaction
 * was rolled back, nor if it was cancelled meanwhile, which only then can be
 * put on record.
 */
static bool
may_begin(const Task *task)
{
	bool		is_cancelled = false;

	if (!TransactionIdIsValid(task->after))
		return true;
	pgstat_report_activity(STATE_RUNNING, "incload: waiting for the transaction that has started this run");
	while (!wait_for_transaction(task->after))
		is_cancelled = true;
	if (!TransactionIdDidCommit(task->after))
		return false;
	if (is_cancelled)
	{
		unattended_begin();
		history_cancel_start(task->run_id);
		unattended_commit();
	}
	return !is_cancelled;
}

/* jobs run as their owner, who may have been given the setting to be another one at once */
static void
stay_owner(void)
{
	SetConfigOption("role", "none", PGC_USERSET, PGC_S_OVERRIDE);
}

/* the owner's next run finds the session as this one did; what incload itself keeps stays */
static void
clean_session(void)
{
	ResetAllOptions();
	stay_owner();
	DropAllPreparedStatements();
	LockReleaseAll(USER_LOCKMETHOD, true);
	unattended_begin();
	PortalHashTableDeleteAll();
	Async_UnlistenAll();
	ResetTempTableNamespace();
	ResetSequenceCaches();
	unattended_commit();
}

static void
do_task(const Task *task)
{
	/* somebody was quicker than its start: as if he had come a little later */
	if (slot_mine().is_cancelled)
		InterruptPending = QueryCancelPending = true;
	if (may_begin(task))
	{
		char		activity[64];

		snprintf(activity, sizeof(activity), "incload: job " INT64_FORMAT, task->job_id);
		pgstat_report_activity(STATE_RUNNING, activity);
		if (task->is_backfill)
			unattended_backfill(task);
		else if (task->is_reconcile)
			unattended_reconcile(task);
		else
			unattended_run(task);
	}
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* true once there is another task, false when it is time to go */
static bool
wait_for_task(void)
{
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), IDLE_MS);

	slot_set_state(SLOT_IDLE);
	/* it may be another database's turn */
	slots_wake(SLOT_SCHEDULER, InvalidOid);
	for (;;)
	{
		Slot		slot = slot_mine();
		long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);

		if (slot.state == SLOT_BUSY)
			return true;
		if (slot.leave || left <= 0)
			return !slot_retire();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, left,
						 incload_wait_event_idle());
		ResetLatch(MyLatch);
		/* an idle worker has nothing to cancel */
		QueryCancelPending = false;
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}

void
incload_runner_main(Datum arg)
{
	SlotRef		ref;
	Slot		slot;
	int			tasks = 0;

	memcpy(&ref, MyBgworkerEntry->bgw_extra, sizeof(SlotRef));
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	slot_claim(&ref);
	/* who cancels the task before it has begun is not to end its worker */
	HOLD_CANCEL_INTERRUPTS();
	BackgroundWorkerUnblockSignals();
	slot = slot_mine();
	BackgroundWorkerInitializeConnectionByOid(slot.database, slot.owner, COMPAT_WORKER_FLAGS);
	background_pin_settings();
	/* it waits for transactions and for runs; what a run may wait for, its option says */
	SetConfigOption("lock_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE);
	RESUME_CANCEL_INTERRUPTS();
	do
	{
		slot = slot_mine();
		do_task(&slot.task);
		clean_session();
	} while ((slot.task.is_scheduled || slot.task.is_backfill || slot.task.is_reconcile) && ++tasks < MOST_TASKS && wait_for_task());
	/* any of them may wait for the room */
	slots_wake(SLOT_SCHEDULER, InvalidOid);
}

void
runner_require_login(Oid owner, const char *owner_name)
{
	if (COMPAT_WORKER_NEEDS_LOGIN && !role_can_login(owner))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a background worker cannot run as role \"%s\"", owner_name),
				 errdetail("Before PostgreSQL 17 a worker needs a role with LOGIN, and runs as the job's owner."),
				 errhint("ALTER ROLE %s LOGIN; pg_hba.conf can still keep it from connecting.",
						 quote_identifier(owner_name))));
}

PG_FUNCTION_INFO_V1(incload_start);

/*
 * incload_start(job text) → bigint
 *		Runs a job in a background worker, once this transaction has committed, and
 *		not at all if it rolls back. Returns the run_id at once. 53400 where no
 *		worker is free, 55P03 where the job is running.
 */
Datum
incload_start(PG_FUNCTION_ARGS)
{
	Job		   *job;
	RunRecord  *record;
	Task		task = {.attempt = 1};
	SlotRef		ref;
	BackgroundWorkerHandle *handle;
	RunnerStart start;

	PreventCommandDuringRecovery("incload_start()");
	PreventCommandIfReadOnly("incload_start()");
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	job_require_whole(job);
	runner_require_login(job->owner, job->owner_name);
	run_require_idle(job);
	if (slot_has_job(MyDatabaseId, job->id))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("job \"%s\" is already running", job->name),
				 errdetail("A background worker is about to run it, or loads windows of its backfill."),
				 errhint("A job does not overlap itself; SELECT * FROM incload.worker shows the workers.")));
	record = history_begin(job, job->strategy == STRATEGY_FULL ? "full" : "incremental", 0);
	record->trigger = "start";
	history_write(record);

	task.job_id = job->id;
	task.run_id = record->run_id;
	/* a subtransaction that is rolled back takes the run with it */
	task.after = GetCurrentTransactionId();
	start = runner_start(job->owner, &task, &ref, &handle);
	if (start != RUNNER_STARTED)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not start a background worker for job \"%s\"", job->name),
				 start == RUNNER_NO_WORKER
				 ? errdetail("All of the server's worker processes are in use.")
				 : errdetail("All of incload's places for workers are in use, or the database is about to be dropped or copied."),
				 errhint("Try again later, or raise max_worker_processes; SELECT * FROM incload.worker shows incload's.")));
	PG_RETURN_INT64(record->run_id);
}

PG_FUNCTION_INFO_V1(incload_cancel);

/*
 * incload_cancel(job text) → boolean
 *		Cancels the run of a job that is under way, in a worker or in a session.
 *		What it has committed stays; windows of a backfill that are still to be loaded are
 *		left. False where there is nothing to cancel.
 */
Datum
incload_cancel(PG_FUNCTION_ARGS)
{
	Job		   *job;
	bool		is_stopped;
	int			pid;

	PreventCommandDuringRecovery("incload_cancel()");
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	is_stopped = backfill_stop(job) > 0;
	if (slot_cancel(MyDatabaseId, job->id))
		PG_RETURN_BOOL(true);
	pid = run_holder(job);
	if (pid == 0 || pid == MyProcPid)
		PG_RETURN_BOOL(is_stopped);
	/* in a session: whoever may cancel that session may */
	PG_RETURN_DATUM(DirectFunctionCall1(pg_cancel_backend, Int32GetDatum(pid)));
}

static const char *const kind_names[] = {
	[SLOT_LAUNCHER] = "launcher", [SLOT_SCHEDULER] = "scheduler", [SLOT_RUNNER] = "runner",
};

static const char *const state_names[] = {
	[SLOT_STARTING] = "starting", [SLOT_BUSY] = "running", [SLOT_IDLE] = "idle",
	[SLOT_STOPPING] = "stopping", [SLOT_ENDED] = "ended",
};

PG_FUNCTION_INFO_V1(incload_workers);

/* incload.workers() → (pid, kind, database, state, job_id, since, started_at): the slots in use */
Datum
incload_workers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < slots_number(); i++)
	{
		Slot		slot = slot_read(i);
		bool		has_job = slot_is_working(&slot);
		bool		nulls[7] = {0};
		Datum		values[7];

		if (slot.state == SLOT_FREE || slot.state == SLOT_ENDED)
			continue;
		nulls[0] = slot.pid == 0;
		nulls[2] = !OidIsValid(slot.database);
		nulls[4] = !has_job;
		values[0] = Int32GetDatum(slot.pid);
		values[1] = CStringGetTextDatum(kind_names[slot.kind]);
		values[2] = ObjectIdGetDatum(slot.database);
		/* a scheduler that looks out for what is due is no run */
		values[3] = CStringGetTextDatum(slot.kind != SLOT_RUNNER && slot.state == SLOT_BUSY
										? "scheduling" : state_names[slot.state]);
		values[4] = Int64GetDatum(slot.task.job_id);
		values[5] = TimestampTzGetDatum(slot.since);
		values[6] = TimestampTzGetDatum(slot.started_at);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
