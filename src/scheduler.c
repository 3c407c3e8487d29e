/*
 * scheduler.c
 *		The background worker that starts the jobs of a database when they are due.
 *
 * It looks at the agenda each naptime, and when a job is known to be due, and
 * hands what is due to runners, at most incload.max_workers of them on the
 * server. Between two looks it is in no transaction. All that it has to remember is
 * in tables; the list of runs under way only tells it of a runner that
 * ended without recording an outcome.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "agenda.h"
#include "backfill.h"
#include "background.h"
#include "catalog.h"
#include "compat.h"
#include "history.h"
#include "incload.h"
#include "role.h"
#include "runner.h"
#include "scheduler.h"
#include "slots.h"
#include "unattended.h"

PGDLLEXPORT void incload_scheduler_main(Datum arg);

/* how often old history is looked for, and how much of it goes at once */
#define PRUNE_EVERY_MS (10 * 60 * 1000)
#define PRUNE_ROWS 10000

/* how often the log says that no worker could be had */
#define COMPLAIN_EVERY_MS (60 * 1000)

/* Started: a run that a runner was given */
typedef struct Started
{
	DueJob		due;
	SlotRef		ref;
	BackgroundWorkerHandle *handle; /* NULL: the runner was there already */
} Started;

/* Scheduler: what it knows from one look to the next */
typedef struct Scheduler
{
	MemoryContext context;		/* for what follows */
	MemoryContext look_context; /* for a look */
	List	   *started;		/* of Started * */
	bool		is_new;			/* has not looked yet */
	TimestampTz next_prune;
	TimestampTz next_complaint;
} Scheduler;

bool
scheduler_start(Oid database, bool by_hand, SlotRef *ref, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	if (!slot_reserve(SLOT_SCHEDULER, database, InvalidOid, NULL, by_hand, ref))
		return false;
	/* what ends with code 0 does not come back */
	background_describe(&worker, "incload scheduler", "incload_scheduler_main",
						by_hand ? 1 : BGW_NEVER_RESTART, ObjectIdGetDatum(by_hand ? database : InvalidOid));
	memcpy(worker.bgw_extra, ref, sizeof(SlotRef));
	if (background_start(&worker, handle))
		return true;
	slot_give_up(ref);
	return false;
}

/* job_ids that runners have, as an array's text */
static char *
busy_jobs(int *runners)
{
	StringInfoData buf;

	initStringInfo(&buf);
	*runners = 0;
	for (int i = 0; i < slots_number(); i++)
	{
		Slot		slot = slot_read(i);

		if (slot.kind != SLOT_RUNNER || slot.state == SLOT_FREE)
			continue;
		++*runners;
		if (slot.database == MyDatabaseId && !slot.task.is_backfill && (slot.state == SLOT_BUSY || slot.state == SLOT_STARTING))
			appendStringInfo(&buf, "%s" INT64_FORMAT, buf.len ? "," : "", slot.task.job_id);
	}
	return psprintf("{%s}", buf.data);
}

static void
complain(Scheduler *scheduler, const DueJob *due, RunnerStart start)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now < scheduler->next_complaint)
		return;
	scheduler->next_complaint = TimestampTzPlusMilliseconds(now, COMPLAIN_EVERY_MS);
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("job \"%s\" is due, and no background worker can be had", due->name),
			 start == RUNNER_NO_WORKER
			 ? errdetail("All of the server's worker processes are in use.")
			 : errdetail("All of incload's places for workers are in use."),
			 errhint("Raise max_worker_processes, or lower incload.max_workers.")));
}

static void
remember(Scheduler *scheduler, const DueJob *due, const SlotRef *ref, BackgroundWorkerHandle *handle)
{
	MemoryContext old = MemoryContextSwitchTo(scheduler->context);
	Started    *started = palloc0(sizeof(Started));

	started->due.job_id = due->job_id;
	started->due.attempt = due->attempt;
	started->due.name = pstrdup(due->name);
	started->due.is_backfill = due->is_backfill;
	if (due->next_run_at)
		started->due.next_run_at = pstrdup(due->next_run_at);
	started->ref = *ref;
	started->handle = handle;
	scheduler->started = lappend(scheduler->started, started);
	MemoryContextSwitchTo(old);
}

static void
forget(Scheduler *scheduler, Started *started)
{
	scheduler->started = list_delete_ptr(scheduler->started, started);
	pfree(started->due.name);
	if (started->due.next_run_at)
		pfree(started->due.next_run_at);
	if (started->handle)
		pfree(started->handle);
	pfree(started);
}

/* a run that cannot be given to any runner; what keeps it from that is on record */
static bool
settle_without_runner(const DueJob *due)
{
	Job		   *job = catalog_find_job_by_id(due->job_id);
	const char *reason = due->skip;
	RunEnd		end = RUN_SKIPPED;

	if (job == NULL || job->schedule == NULL)
		return true;
	if (reason)
		history_write_skipped(job, due->attempt, reason);
	else if (!OidIsValid(job->owner) || (COMPAT_WORKER_NEEDS_LOGIN && !role_can_login(job->owner)))
	{
		reason = OidIsValid(job->owner)
			? psprintf("role \"%s\", which owns the job, may not log in", job->owner_name)
			: psprintf("role \"%s\", which owns the job, does not exist", job->owner_name);
		history_write_refused(job, due->attempt, reason,
							  OidIsValid(job->owner)
							  ? psprintf("ALTER ROLE %s LOGIN;", quote_identifier(job->owner_name))
							  : psprintf("SELECT incload_alter_job(%s, owner => '...') gives it to another role.",
										 quote_literal_cstr(job->name)));
		end = RUN_FAILED_LASTING;
	}
	else
		return false;
	agenda_settle(job, end, reason);
	return true;
}

/* gives a due job to a runner of its owner's; false where there is no room for another one */
static bool
start_job(Scheduler *scheduler, const DueJob *due, int *runners)
{
	Task		task = {.job_id = due->job_id, .attempt = due->attempt,
		.is_scheduled = !due->is_backfill, .is_backfill = due->is_backfill};
	Oid			owner = get_role_oid(due->owner_name, true);
	BackgroundWorkerHandle *handle = NULL;
	MemoryContext old;
	RunnerStart start;
	SlotRef		ref;

	if (slot_offer(MyDatabaseId, owner, &task, &ref))
	{
		remember(scheduler, due, &ref, NULL);
		return true;
	}
	if (*runners >= incload_max_workers)
		return false;
	old = MemoryContextSwitchTo(scheduler->context);
	start = runner_start(owner, &task, &ref, &handle);
	MemoryContextSwitchTo(old);
	if (start != RUNNER_STARTED)
	{
		complain(scheduler, due, start);
		return false;
	}
	++*runners;
	remember(scheduler, due, &ref, handle);
	return true;
}

static void
start_due_jobs(Scheduler *scheduler)
{
	int			runners;
	char	   *busy = busy_jobs(&runners);
	bool		needs_room = false;
	ListCell   *lc;

	foreach(lc, agenda_due(incload_max_workers, busy))
	{
		DueJob	   *due = lfirst(lc);

		if (!settle_without_runner(due) && !start_job(scheduler, due, &runners))
			needs_room = true;
	}
	/* somebody else's runner that has nothing to do makes room for the next look */
	if (needs_room)
		slot_dismiss_one();
}

/* workers that load windows of a job's backfill */
static int
backfill_workers(int64 job_id)
{
	int			n = 0;

	for (int i = 0; i < slots_number(); i++)
	{
		Slot		slot = slot_read(i);

		n += slot.kind == SLOT_RUNNER && (slot.state == SLOT_BUSY || slot.state == SLOT_STARTING) &&
			slot.database == MyDatabaseId && slot.task.is_backfill && slot.task.job_id == job_id;
	}
	return n;
}

/* after the jobs that are due: what is left of the runners loads windows */
static void
start_backfills(Scheduler *scheduler)
{
	TextRows   *rows = backfill_due();
	int			runners;

	(void) busy_jobs(&runners);
	for (int r = 0; r < rows->nrows; r++)
	{
		char	  **v = rows->value[r];
		DueJob		due = {.job_id = strtoll(v[0], NULL, 10), .name = v[1], .owner_name = v[2],
			.attempt = 1, .is_backfill = true};

		for (int n = backfill_workers(due.job_id); n < atoi(v[3]); n++)
			if (!start_job(scheduler, &due, &runners))
				break;
	}
}

/* looks after the runs that were started: whose runner has ended without an outcome is retried */
static void
follow_started(Scheduler *scheduler)
{
	ListCell   *lc;
	List	   *over = NIL;

	foreach(lc, scheduler->started)
	{
		Started    *started = lfirst(lc);
		TaskState	state = slot_task_state(&started->ref);
		pid_t		pid;

		/* one that has never come to claim its slot */
		if (state == TASK_RUNNING && started->handle &&
			GetBackgroundWorkerPid(started->handle, &pid) == BGWH_STOPPED)
		{
			slot_give_up(&started->ref);
			state = slot_task_state(&started->ref);
		}
		if (state == TASK_RUNNING)
			continue;
		/* the window of one that is gone is still in the ledger */
		if (state == TASK_GONE && !started->due.is_backfill)
			agenda_settle_lost(&started->due);
		over = lappend(over, started);
	}
	foreach(lc, over)
		forget(scheduler, lfirst(lc));
}

/* one look, in one transaction; when the next is, or 0 where the extension is gone */
static TimestampTz
look(Scheduler *scheduler)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = 0;

	unattended_begin();
	MemoryContextSwitchTo(scheduler->look_context);
	if (OidIsValid(get_extension_oid("incload", true)))
	{
		if (scheduler->is_new)
			history_close_all_dead();
		scheduler->is_new = false;
		follow_started(scheduler);
		start_due_jobs(scheduler);
		start_backfills(scheduler);
		if (incload_run_retention > 0 && now >= scheduler->next_prune &&
			history_prune(incload_run_retention, PRUNE_ROWS) < PRUNE_ROWS)
			scheduler->next_prune = TimestampTzPlusMilliseconds(now, PRUNE_EVERY_MS);
		next = Min(agenda_next(), TimestampTzPlusMilliseconds(now, incload_naptime));
	}
	unattended_commit();
	MemoryContextSwitchTo(scheduler->context);
	MemoryContextReset(scheduler->look_context);
	return next;
}

/* a look; an error in it is reported and ends nothing: the next look is later */
static TimestampTz
look_safely(Scheduler *scheduler)
{
	TimestampTz volatile next = 0;

	pgstat_report_activity(STATE_RUNNING, "incload: looking for jobs that are due");
	PG_TRY();
	{
		next = look(scheduler);
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			EmitErrorReport();
		MemoryContextSwitchTo(scheduler->context);
		FlushErrorState();
		AbortCurrentTransaction();
		MemoryContextReset(scheduler->look_context);
		next = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), Max(incload_naptime, 1000));
	}
	PG_END_TRY();
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
	return next;
}

/* the end: why, and with which code */
static void
leave(SlotEnd end, int code)
{
	slot_set_end(end);
	(void) slots_dismiss(MyDatabaseId, false);
	proc_exit(code);
}

/*
 * Whoever comes back after a crash of the server has no slot any more, as
 * nobody has: one of its own has to be had.
 */
static void
claim_slot(Oid by_hand_in)
{
	SlotRef		ref;

	memcpy(&ref, MyBgworkerEntry->bgw_extra, sizeof(SlotRef));
	if (OidIsValid(by_hand_in) && slot_is_stale(&ref) &&
		!slot_reserve(SLOT_SCHEDULER, by_hand_in, InvalidOid, NULL, true, &ref))
		proc_exit(0);
	slot_claim(&ref);
}

void
incload_scheduler_main(Datum arg)
{
	Scheduler	scheduler = {.is_new = true};

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	claim_slot(DatumGetObjectId(arg));
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(slot_mine().database, InvalidOid, 0);
	SetConfigOption("search_path", "pg_catalog", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("DateStyle", "ISO, YMD", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_USERSET, PGC_S_OVERRIDE);
	/* the planner takes a look for far more work than it is */
	SetConfigOption("jit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	/* whoever locks its tables is to have them, before he is seen as the one who blocks */
	SetConfigOption("lock_timeout", "200ms", PGC_USERSET, PGC_S_OVERRIDE);

	scheduler.context = AllocSetContextCreate(TopMemoryContext, "incload scheduler", ALLOCSET_DEFAULT_SIZES);
	scheduler.look_context = AllocSetContextCreate(scheduler.context, "incload look", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(scheduler.context);
	while (!ShutdownRequestPending)
	{
		TimestampTz next = look_safely(&scheduler);

		if (next == 0)
			leave(END_NO_EXTENSION, 0);
		if (!ShutdownRequestPending && !slot_mine().leave)
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next),
							 incload_wait_event_idle());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (slots_is_stopped(MyDatabaseId))
			leave(END_STOPPED, 0);
		/* by hand, the postmaster starts it again */
		if (slot_mine().leave)
			leave(END_UNKNOWN, 1);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
	leave(END_UNKNOWN, 0);
}
