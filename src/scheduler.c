/*
 * scheduler.c
 *		The background worker that starts the jobs of a database when they are due.
 *
 * It looks at the agenda each naptime, and when a job is known to be due, and
 * hands what is due to runners, at most incload.max_workers of them on the
 * server (dispatch.c). It also delivers alerts (alert.c). Between two looks it is in
 * no transaction. All that it has to remember is in tables.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "catalog/pg_tablespace_d.h"
#include "commands/extension.h"
#include "common/relpath.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "agenda.h"
#include "alert.h"
#include "background.h"
#include "dispatch.h"
#include "history.h"
#include "incload.h"
#include "marks.h"
#include "scheduler.h"
#include "slots.h"
#include "sweep.h"
#include "unattended.h"

PGDLLEXPORT void incload_scheduler_main(Datum arg);

/* how often old history is looked for, and how much of it goes at once */
#define PRUNE_EVERY_MS (10 * 60 * 1000)
#define PRUNE_ROWS 10000

/* how many looks in a row have to find a table locked before the log says so */
#define LOCKED_LOOKS_TOLD 30

/* Scheduler: what it knows from one look to the next */
typedef struct Scheduler
{
	MemoryContext context;		/* for what follows */
	MemoryContext look_context; /* for a look */
	bool		has_settled_dead;	/* the runs that the server's end has cut off */
	bool		has_mended_clock;	/* what was planned by a clock that has been set back since */
	int			locked_looks;	/* that found a table locked, one after the other */
	TimestampTz next_prune;
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

/* one look, in one transaction; when the next is, or 0 where the extension is gone */
static TimestampTz
look(Scheduler *scheduler)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = 0;
	bool		has_settled_dead = true;
	bool		has_mended_clock = true;

	unattended_begin();
	MemoryContextSwitchTo(scheduler->look_context);
	if (OidIsValid(get_extension_oid("incload", true)))
	{
		if (!scheduler->has_settled_dead)
			has_settled_dead = agenda_settle_dead();
		if (agenda_clock_went_back() || !scheduler->has_mended_clock)
		{
			scheduler->has_mended_clock = false;
			has_mended_clock = agenda_mend_clock();
		}
		next = dispatch_look();
		if (incload_run_retention > 0 && now >= scheduler->next_prune &&
			history_prune(incload_run_retention, PRUNE_ROWS) < PRUNE_ROWS)
			scheduler->next_prune = TimestampTzPlusMilliseconds(now, PRUNE_EVERY_MS);
	}
	unattended_commit();
	dispatch_end_look(true);
	scheduler->has_settled_dead = has_settled_dead;
	scheduler->has_mended_clock = has_mended_clock;
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
		scheduler->locked_looks = 0;
	}
	PG_CATCH();
	{
		/* a table of incload's that somebody has locked is soon free, as a rule */
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			EmitErrorReport();
		else if (++scheduler->locked_looks % LOCKED_LOOKS_TOLD == 0)
			ereport(LOG,
					(errmsg("jobs are not started: a table of incload's has been locked for %d looks in a row",
							scheduler->locked_looks),
					 errdetail("Others wait until the lock is given back; pg_locks shows who has it.")));
		MemoryContextSwitchTo(scheduler->context);
		FlushErrorState();
		AbortCurrentTransaction();
		dispatch_end_look(false);
		MemoryContextReset(scheduler->look_context);
		next = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), Max(incload_naptime, 1000));
	}
	PG_END_TRY();
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
	return next;
}

/* the end, and why; the code says that the postmaster need not start it again */
static void
leave(SlotEnd end)
{
	slot_set_end(end);
	(void) slots_dismiss(MyDatabaseId, false);
	proc_exit(0);
}

/*
 * Is the database still there? Asked before there is a connection that could look it up: each has a
 * folder in the tablespace that is its default.
 */
static bool
has_folder(Oid database)
{
	DIR		   *tablespaces;
	struct dirent *entry;
	bool		is_there = access(GetDatabasePath(database, DEFAULTTABLESPACE_OID), F_OK) == 0;

	tablespaces = AllocateDir("pg_tblspc");
	while (!is_there && (entry = ReadDir(tablespaces, "pg_tblspc")) != NULL)
	{
		Oid			tablespace = strtoul(entry->d_name, NULL, 10);

		is_there = OidIsValid(tablespace) && access(GetDatabasePath(database, tablespace), F_OK) == 0;
	}
	FreeDir(tablespaces);
	return is_there;
}

/*
 * Whoever comes back after an error, or a crash of the server, has no slot any more: another
 * one has to be had. Where the launcher was quicker, there is nothing to do; where the database
 * is somebody's for himself, the postmaster starts it once more a second later.
 */
static void
claim_slot(Oid by_hand_in)
{
	SlotRef		ref;

	memcpy(&ref, MyBgworkerEntry->bgw_extra, sizeof(SlotRef));
	if (OidIsValid(by_hand_in) && !slot_awaits(&ref, by_hand_in) &&
		!slot_reserve(SLOT_SCHEDULER, by_hand_in, InvalidOid, NULL, true, &ref))
		proc_exit(marks_is_held(by_hand_in) ? 1 : 0);
	slot_claim(&ref);
}

void
incload_scheduler_main(Datum arg)
{
	Scheduler	scheduler = {0};

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	/* code 0: the postmaster need not start it again */
	if (OidIsValid(DatumGetObjectId(arg)) && !has_folder(DatumGetObjectId(arg)))
		proc_exit(0);
	claim_slot(DatumGetObjectId(arg));
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(slot_mine().database, InvalidOid, 0);
	background_pin_settings();
	SetConfigOption("search_path", "pg_catalog", PGC_USERSET, PGC_S_OVERRIDE);
	/* the planner takes a look for far more work than it is */
	SetConfigOption("jit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("max_parallel_workers_per_gather", "0", PGC_USERSET, PGC_S_OVERRIDE);
	/* nobody can shut down a server whose scheduler waits for a standby that is away */
	SetConfigOption("synchronous_commit", "local", PGC_USERSET, PGC_S_OVERRIDE);
	/* whoever locks its tables is to have them, before he is seen as the one who blocks */
	SetConfigOption("lock_timeout", "200ms", PGC_USERSET, PGC_S_OVERRIDE);

	scheduler.context = AllocSetContextCreate(TopMemoryContext, "incload scheduler", ALLOCSET_DEFAULT_SIZES);
	scheduler.look_context = AllocSetContextCreate(scheduler.context, "incload look", ALLOCSET_DEFAULT_SIZES);
	dispatch_begin(scheduler.context);
	alert_begin(scheduler.context);
	MemoryContextSwitchTo(scheduler.context);
	while (!ShutdownRequestPending)
	{
		TimestampTz next = look_safely(&scheduler);

		if (next == 0)
			leave(END_NO_EXTENSION);
		next = Min(next, alert_look());
		if (!ShutdownRequestPending && !slot_mine().leave)
			sweep_some(scheduler.look_context);
		if (!ShutdownRequestPending && !slot_mine().leave)
			alert_wait(Min(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next), Max(incload_naptime, 1000)));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (slot_heed_stop())
			leave(END_STOPPED);
		/* whoever has told it to leave has one started again, if there is to be one */
		if (slot_mine().leave)
			leave(END_UNKNOWN);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
	leave(END_UNKNOWN);
}
