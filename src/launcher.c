/*
 * launcher.c
 *		The background worker that keeps a scheduler in each database.
 *
 * It is in no database itself, and so in nobody's way. Which databases have the
 * extension cannot be seen from outside: a scheduler is started in each that
 * may have it, and ends at once where there is none. Such a database is tried again
 * when the extension was created there or the launcher is new. A scheduler that ends for
 * another reason comes back, later each time.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "background.h"
#include "incload.h"
#include "launcher.h"
#include "marks.h"
#include "scheduler.h"
#include "slots.h"
#include "unattended.h"

PGDLLEXPORT void incload_launcher_main(Datum arg);

/* how often databases are looked up where nothing tells of a new one */
#define LOOK_EVERY_MS 10000

/* a scheduler that ends at once comes back after a second, then two, at most a minute */
#define LONGEST_WAIT_MS 60000

/* Place: a database in which there is or should be a scheduler */
typedef struct Place
{
	Oid			database;
	NameData	name;
	bool		is_wanted;
	bool		is_running;		/* started by this launcher, and not yet seen to have ended */
	bool		is_empty;		/* has not the extension, as of "creations" */
	uint32		creations;
	int			failures;
	TimestampTz started_at;
	TimestampTz next_try;
	TimestampTz next_complaint;
	SlotRef		ref;
	BackgroundWorkerHandle *handle;
} Place;

static List *places = NIL;

void
launcher_register(void)
{
	BackgroundWorker worker;

	/* pg_upgrade starts servers to look at them */
	if (IsBinaryUpgrade)
		return;
	background_describe(&worker, "incload launcher", "incload_launcher_main", 1, (Datum) 0);
	RegisterBackgroundWorker(&worker);
}

static Place *
place_of(Oid database)
{
	ListCell   *lc;
	Place	   *place;

	foreach(lc, places)
		if (((Place *) lfirst(lc))->database == database)
			return lfirst(lc);
	place = palloc0(sizeof(Place));
	place->database = database;
	places = lappend(places, place);
	return place;
}

/* is the database named by incload.databases, or meant by its asterisk? */
static bool
is_listed(List *names, const FormData_pg_database *database)
{
	ListCell   *lc;

	/* nobody can connect to one whose DROP DATABASE was interrupted: its limit is -2 */
	if (!database->datallowconn || database->datconnlimit < -1)
		return false;
	foreach(lc, names)
		if (strcmp(lfirst(lc), NameStr(database->datname)) == 0 ||
			(strcmp(lfirst(lc), "*") == 0 && !database->datistemplate))
			return true;
	return false;
}

bool
launcher_wants_mine(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	List	   *names;
	bool		is_wanted;

	if (!HeapTupleIsValid(tuple))
		return false;
	(void) SplitGUCList(pstrdup(incload_databases), ',', &names);
	is_wanted = is_listed(names, (Form_pg_database) GETSTRUCT(tuple));
	ReleaseSysCache(tuple);
	return is_wanted;
}

/* takes a name out, and leaves the asterisk; a name that was a database's twice is none that is missing */
static List *
list_delete_named(List *names, const char *name)
{
	ListCell   *lc;

	foreach(lc, names)
		if (strcmp(lfirst(lc), name) == 0 && strcmp(name, "*") != 0)
			names = foreach_delete_current(names, lc);
	return names;
}

/* names of the setting that are no database's: said once for each value of it */
static void
tell_missing(List *names)
{
	static char *told = NULL;
	ListCell   *lc;

	if (told && strcmp(told, incload_databases) == 0)
		return;
	if (told)
		pfree(told);
	told = MemoryContextStrdup(TopMemoryContext, incload_databases);
	foreach(lc, names)
		if (strcmp(lfirst(lc), "*") != 0)
			ereport(WARNING,
					(errcode(ERRCODE_UNDEFINED_DATABASE),
					 errmsg("database \"%s\", which incload.databases names, does not exist or allows no connections", (char *) lfirst(lc)),
					 errdetail("Its jobs do not run by their schedules."),
					 errhint("Names are taken as they are written; see that this one is right.")));
}

/* which databases are there and wanted; forgets those that are gone */
static void
look_up_databases(MemoryContext context)
{
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
	List	   *names;
	ListCell   *lc;
	Place	   *place;

	foreach(lc, places)
		((Place *) lfirst(lc))->is_wanted = false;
	unattended_begin();
	(void) SplitGUCList(pstrdup(incload_databases), ',', &names);
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old;

		if (!is_listed(names, database))
			continue;
		old = MemoryContextSwitchTo(context);
		place = place_of(database->oid);
		place->is_wanted = true;
		place->name = database->datname;
		MemoryContextSwitchTo(old);
		names = list_delete_named(names, NameStr(database->datname));
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	tell_missing(names);
	unattended_commit();
	MemoryContextSwitchTo(context);
}

/* has its scheduler ended, and why? */
static void
follow(Place *place)
{
	pid_t		pid;
	Slot		slot;
	bool		is_stopped;
	int			ms;

	if (!place->is_running || GetBackgroundWorkerPid(place->handle, &pid) != BGWH_STOPPED)
		return;
	slot = slot_read(place->ref.index);
	place->is_running = false;
	place->is_empty = slot.serial == place->ref.serial && slot.end == END_NO_EXTENSION;
	is_stopped = slot.serial == place->ref.serial && slot.end == END_STOPPED;
	slot_give_up(&place->ref);
	pfree(place->handle);
	/* one that has worked for a while has not failed to start */
	if (place->is_empty || is_stopped ||
		TimestampDifferenceExceeds(place->started_at, GetCurrentTimestamp(), LONGEST_WAIT_MS))
		place->failures = 0;
	ms = is_stopped ? 0 : Min(1000 << Min(place->failures, 10), LONGEST_WAIT_MS);
	place->failures += !is_stopped;
	place->next_try = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ms);
}

/* a scheduler cannot be started, and not because there is one: said each minute */
static void
complain(Place *place)
{
	TimestampTz now = GetCurrentTimestamp();

	if (slots_has(SLOT_SCHEDULER, place->database) || now < place->next_complaint)
		return;
	place->next_complaint = TimestampTzPlusMilliseconds(now, 60000);
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("no background worker can be had for the scheduler of database \"%s\"", NameStr(place->name)),
			 errdetail("All of the server's worker processes are in use."),
			 errhint("Raise max_worker_processes.")));
}

/* starts its scheduler where there should be one */
static void
keep(Place *place, TimestampTz *next)
{
	TimestampTz now = GetCurrentTimestamp();

	follow(place);
	if (place->is_running || !place->is_wanted ||
		(place->is_empty && !marks_was_created(place->database, place->creations)) ||
		marks_is_held(place->database) || marks_is_stopped(place->database))
		return;
	if (place->is_empty)
		place->next_try = 0;
	/* further away than it was set: the clock was set back */
	if (place->next_try > TimestampTzPlusMilliseconds(now, LONGEST_WAIT_MS))
		place->next_try = now;
	if (place->next_try > now)
	{
		*next = Min(*next, place->next_try);
		return;
	}
	place->creations = marks_creations();
	place->is_empty = false;
	place->started_at = now;
	place->is_running = scheduler_start(place->database, false, &place->ref, &place->handle);
	if (place->is_running)
		return;
	place->next_try = TimestampTzPlusMilliseconds(place->started_at, 1000);
	*next = Min(*next, place->next_try);
	complain(place);
}

/* tells the schedulers of databases that are no longer wanted to leave, and forgets the places */
static void
drop_unwanted(void)
{
	ListCell   *lc;

	foreach(lc, places)
	{
		Place	   *place = lfirst(lc);

		if (place->is_wanted)
			continue;
		if (place->is_running)
			(void) slots_dismiss(place->database, false);
		else
		{
			places = foreach_delete_current(places, lc);
			pfree(place);
		}
	}
}

/* schedulers that a launcher before this one has started are nobody's, but are told all the same */
static void
dismiss_strangers(void)
{
	for (int i = 0; i < slots_number(); i++)
	{
		Slot		slot = slot_read(i);
		ListCell   *lc;
		bool		is_wanted = false;

		if (slot.kind != SLOT_SCHEDULER || slot.by_hand || slot.state == SLOT_FREE || slot.state == SLOT_ENDED)
			continue;
		foreach(lc, places)
			is_wanted |= ((Place *) lfirst(lc))->database == slot.database && ((Place *) lfirst(lc))->is_wanted;
		if (!is_wanted)
			(void) slots_dismiss(slot.database, false);
	}
}

/* slots of schedulers that a launcher before this one has started, and that are gone or have never come */
static void
free_ended_slots(void)
{
	for (int i = 0; i < slots_number(); i++)
	{
		Slot		slot = slot_read(i);
		SlotRef		ref = {.index = i, .serial = slot.serial};
		bool		is_ours = false;
		ListCell   *lc;

		if (slot.kind != SLOT_SCHEDULER || !(slot.state == SLOT_ENDED || slot_never_came(&slot)))
			continue;
		/* why one of its own has ended is still to be read */
		foreach(lc, places)
			is_ours |= ((Place *) lfirst(lc))->is_running && ((Place *) lfirst(lc))->ref.serial == slot.serial;
		if (!is_ours)
			slot_give_up(&ref);
	}
}

void
incload_launcher_main(Datum arg)
{
	TimestampTz next_lookup = 0;
	uint32		news = marks_news();
	SlotRef		ref;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	if (!slot_reserve(SLOT_LAUNCHER, InvalidOid, InvalidOid, NULL, false, &ref))
		proc_exit(1);
	slot_claim(&ref);
	BackgroundWorkerUnblockSignals();
	/* only what all databases share */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext, "incload launcher", ALLOCSET_DEFAULT_SIZES));
	free_ended_slots();
	while (!ShutdownRequestPending)
	{
		TimestampTz now = GetCurrentTimestamp();
		ListCell   *lc;

		if (now >= next_lookup || next_lookup > TimestampTzPlusMilliseconds(now, LOOK_EVERY_MS) ||
			news != marks_news())
		{
			look_up_databases(CurrentMemoryContext);
			news = marks_news();
			next_lookup = TimestampTzPlusMilliseconds(now, LOOK_EVERY_MS);
		}
		now = next_lookup;
		foreach(lc, places)
			keep(lfirst(lc), &now);
		drop_unwanted();
		dismiss_strangers();
		free_ended_slots();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), now), LOOK_EVERY_MS),
						 incload_wait_event_idle());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			next_lookup = 0;
		}
	}
	/* another code than 0: whoever has terminated it has not turned it off */
	proc_exit(1);
}

/* waits, five seconds at most, while that is true of this database */
static void
wait_while(bool (*is_true) (Oid database))
{
	for (int i = 0; i < 100 && is_true(MyDatabaseId); i++)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 50,
						 incload_wait_event_idle());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static bool
has_scheduler(Oid database)
{
	return slots_has(SLOT_SCHEDULER, database);
}

static bool
has_no_scheduler(Oid database)
{
	return !has_scheduler(database);
}

static void
refuse_start(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not start a scheduler for this database"),
			 errdetail_internal("%s", detail),
			 errhint("Raise max_worker_processes; SELECT * FROM incload.worker shows incload's workers.")));
}

PG_FUNCTION_INFO_V1(incload_worker_start);

/*
 * incload_worker_start() → boolean
 *		Lets the jobs of this database run by their schedules: starts a scheduler,
 *		by hand where the library is not preloaded, until the server restarts.
 *		False where there is one. 53400 where no worker is free.
 */
Datum
incload_worker_start(PG_FUNCTION_ARGS)
{
	BackgroundWorkerHandle *handle;
	SlotRef		ref;
	pid_t		pid;
	bool		was_stopped;

	PreventCommandDuringRecovery("incload_worker_start()");
	if (slots_has(SLOT_SCHEDULER, MyDatabaseId) && !marks_is_stopped(MyDatabaseId))
		PG_RETURN_BOOL(false);
	was_stopped = marks_is_stopped(MyDatabaseId);
	(void) marks_set_stopped(MyDatabaseId, false);
	/* one that has just heard of it is not to be taken for one that stays */
	wait_while(slots_is_stopping);
	if (slots_has(SLOT_LAUNCHER, InvalidOid) && was_stopped)
	{
		slots_wake(SLOT_LAUNCHER, InvalidOid);
		/* it has none for a database that incload.databases does not list */
		wait_while(has_no_scheduler);
		if (has_scheduler(MyDatabaseId))
			PG_RETURN_BOOL(true);
	}
	if (!scheduler_start(MyDatabaseId, true, &ref, &handle))
	{
		/* somebody was quicker */
		if (slots_has(SLOT_SCHEDULER, MyDatabaseId))
			PG_RETURN_BOOL(false);
		refuse_start("No background worker is free.");
	}
	if (WaitForBackgroundWorkerStartup(handle, &pid) != BGWH_STARTED)
		refuse_start("It has ended at once; the server log says why.");
	PG_RETURN_BOOL(true);
}

PG_FUNCTION_INFO_V1(incload_worker_stop);

/*
 * incload_worker_stop() → boolean
 *		Ends the scheduler of this database and its idle runners; runs that are under
 *		way go on. It stays away until incload_worker_start() or a restart of the
 *		server. False where there is none.
 */
Datum
incload_worker_stop(PG_FUNCTION_ARGS)
{
	bool		is_there = slots_has(SLOT_SCHEDULER, MyDatabaseId);

	PreventCommandDuringRecovery("incload_worker_stop()");
	if ((is_there || slots_has(SLOT_LAUNCHER, InvalidOid)) && !marks_set_stopped(MyDatabaseId, true))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the scheduler of this database cannot be stopped"),
				 errdetail("Too many databases have theirs stopped already."),
				 errhint("The setting incload.databases lists those in which jobs run by their schedules.")));
	slots_wake(SLOT_SCHEDULER, MyDatabaseId);
	/* it has a look to end first */
	if (is_there)
		wait_while(has_scheduler);
	PG_RETURN_BOOL(is_there);
}
