/*
 * dispatch.c
 *		A scheduler's jobs on their way to runners.
 *
 * A job's own trouble (a row that somebody has locked, a schedule that this
 * version cannot read) is kept to itself by a subtransaction: the others go on.
 */
#include "postgres.h"

#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "agenda.h"
#include "attempt.h"
#include "backfill.h"
#include "catalog.h"
#include "compat.h"
#include "dispatch.h"
#include "history.h"
#include "incload.h"
#include "reconcile_agenda.h"
#include "role.h"
#include "run.h"
#include "runner.h"
#include "slots.h"

/* how much is read from the agenda at once */
#define QUEUE_LENGTH 1000

/* how often the log says what keeps a job from being started */
#define COMPLAIN_EVERY_MS (60 * 1000)

/* after so many waits in vain for a lock, a look leaves the rest for the next one: it is a table that is locked */
#define MOST_LOCKED 5

/* Started: a run that a runner was given */
typedef struct Started
{
	DueJob		due;
	SlotRef		ref;
	BackgroundWorkerHandle *handle; /* NULL: the runner was there already */
	bool		is_over;		/* and settled, if this transaction commits */
} Started;

/* Usage: who works, as the slots say */
typedef struct Usage
{
	int			runners;		/* on this server */
	int			working;		/* of these, not idle */
	int			ours;			/* of these, in this database */
	int			share;			/* how many that may be while others wait; 0: nobody does */
	TimestampTz others_wait;	/* since when */
	char	   *busy;			/* job_ids of this database whose scheduled run is under way: an array's text */
} Usage;

static MemoryContext own_context;
static MemoryContext queue_context;
static List *started_runs = NIL;	/* of Started * */
static List *queue = NIL;		/* of DueJob * */
static TimestampTz next_fill = 0;	/* what is in it then is too old */
static bool was_full = false;	/* there was more than it holds */
static TimestampTz next_complaint = 0;
static bool wants_backfills = false;	/* it is time to look for windows */
static int	nlocked = 0;			/* waits in vain for a lock, in this look */
static bool is_reading = false; /* an error now is the schedule's */

void
dispatch_begin(MemoryContext context)
{
	own_context = context;
	queue_context = AllocSetContextCreate(context, "incload queue", ALLOCSET_DEFAULT_SIZES);
}

/* is it time to say again what is wrong? */
static bool
may_complain(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now < next_complaint)
		return false;
	next_complaint = TimestampTzPlusMilliseconds(now, COMPLAIN_EVERY_MS);
	return true;
}

/* Guarded: what is tried for a job, and what came of it */
typedef struct Guarded
{
	bool		(*work) (const DueJob *);
	const DueJob *due;
	bool		result;
} Guarded;

static void
do_guarded(void *arg)
{
	Guarded    *guarded = arg;

	guarded->result = guarded->work(guarded->due);
}

/* does something for a job, and nothing if that fails, which is reported; what it returned, or else "otherwise" */
static bool
guarded(bool (*work) (const DueJob *), const DueJob *due, bool otherwise)
{
	Guarded		what = {.work = work, .due = due};
	ErrorData  *error = attempt(do_guarded, &what);

	if (error == NULL)
		return what.result;
	nlocked += error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE;
	if (may_complain())
		attempt_report(error);
	return otherwise;
}

static Usage
look_at_slots(void)
{
	Usage		usage = {0};
	StringInfoData busy;

	initStringInfo(&busy);
	for (int i = 0; i < slots_number(); i++)
	{
		Slot		slot = slot_read(i);
		SlotRef		ref = {.index = i, .serial = slot.serial};

		if (slot.kind != SLOT_RUNNER || slot.state == SLOT_FREE)
			continue;
		if (slot_never_came(&slot))
		{
			slot_give_up(&ref);
			continue;
		}
		usage.runners++;
		usage.working += slot_is_working(&slot);
		usage.ours += slot_is_working(&slot) && slot.database == MyDatabaseId;
		if (slot.database == MyDatabaseId && !slot.task.is_backfill && !slot.task.is_reconcile && slot_is_working(&slot))
			appendStringInfo(&busy, "%s" INT64_FORMAT, busy.len ? "," : "", slot.task.job_id);
	}
	usage.busy = psprintf("{%s}", busy.data);
	usage.share = 1 + slots_others(MyDatabaseId, &usage.others_wait);
	usage.share = usage.others_wait == 0 ? 0 : Max(incload_max_workers / usage.share, 1);
	return usage;
}

/*
 * Is there room for what was due at a time? Another database that waits gets its share of
 * the runners, and beyond that who was due first goes first. A look that waits for locks, or
 * a server that shuts down, starts no more.
 */
static bool
has_turn(const Usage *usage, TimestampTz at)
{
	if (usage->working >= incload_max_workers || nlocked >= MOST_LOCKED || ShutdownRequestPending)
		return false;
	return usage->share == 0 ||
		(usage->ours < usage->share && (usage->share > 1 || at <= usage->others_wait));
}

static void
complain(const DueJob *due, RunnerStart start)
{
	if (!may_complain())
		return;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 due->is_backfill
			 ? errmsg("a backfill of job \"%s\" has windows left, and no background worker can be had", due->name)
			 : due->is_reconcile
			 ? errmsg("job \"%s\" is to be reconciled, and no background worker can be had", due->name)
			 : errmsg("job \"%s\" is due, and no background worker can be had", due->name),
			 start == RUNNER_NO_WORKER
			 ? errdetail("All of the server's worker processes are in use.")
			 : errdetail("All of incload's places for workers are in use."),
			 errhint("Raise max_worker_processes, or lower incload.max_workers.")));
}

static void
remember(const DueJob *due, const SlotRef *ref, BackgroundWorkerHandle *handle)
{
	MemoryContext old = MemoryContextSwitchTo(own_context);
	Started    *started = palloc0(sizeof(Started));

	started->due.job_id = due->job_id;
	started->due.attempt = due->attempt;
	started->due.name = pstrdup(due->name);
	started->due.is_backfill = due->is_backfill;
	started->due.is_reconcile = due->is_reconcile;
	if (due->next_run_at)
		started->due.next_run_at = pstrdup(due->next_run_at);
	started->ref = *ref;
	started->handle = handle;
	started_runs = lappend(started_runs, started);
	MemoryContextSwitchTo(old);
}

static void
forget(Started *started)
{
	started_runs = list_delete_ptr(started_runs, started);
	pfree(started->due.name);
	if (started->due.next_run_at)
		pfree(started->due.next_run_at);
	if (started->handle)
		pfree(started->handle);
	pfree(started);
}

/* why no runner can be had for the owner of a job, ever, and what mends it; NULL where one can */
static char *
owner_trouble(const Job *job, char **hint)
{
	if (!OidIsValid(job->owner))
	{
		*hint = psprintf("SELECT incload_alter_job(%s, owner => '...') gives it to another role.",
						 quote_literal_cstr(job->name));
		return psprintf("role \"%s\", which owns the job, does not exist", job->owner_name);
	}
	if (COMPAT_WORKER_NEEDS_LOGIN && !role_can_login(job->owner))
	{
		*hint = psprintf("ALTER ROLE %s LOGIN;", quote_identifier(job->owner_name));
		return psprintf("role \"%s\", which owns the job, may not log in", job->owner_name);
	}
	if (compat_database_aclcheck(MyDatabaseId, job->owner, ACL_CONNECT) != ACLCHECK_OK)
	{
		*hint = psprintf("GRANT CONNECT ON DATABASE %s TO %s;",
						 quote_identifier(get_database_name(MyDatabaseId)), quote_identifier(job->owner_name));
		return psprintf("role \"%s\", which owns the job, may not connect to this database", job->owner_name);
	}
	return NULL;
}

/* a run after which nobody could tell when the next one is would be started over and over again */
static bool
is_readable(const DueJob *due)
{
	Job		   *job = catalog_find_job_by_id(due->job_id);

	is_reading = true;
	if (job && job->schedule && job->enabled)
		agenda_require_readable(job);
	is_reading = false;
	return true;
}

static bool
pause_unreadable(const DueJob *due)
{
	Job		   *job = catalog_find_job_by_id(due->job_id);

	if (job)
		agenda_pause_unreadable(job);
	return true;
}

/* is nothing to be done for it now? A lock in the way of reading it is the next look's */
static bool
is_left_out(const DueJob *due)
{
	is_reading = false;
	if (guarded(is_readable, due, false))
		return false;
	if (is_reading)
		(void) guarded(pause_unreadable, due, true);
	return true;
}

/* a run that no runner is to have; what keeps it from that is on record */
static bool
settle_without_runner(const DueJob *due)
{
	Job		   *job = catalog_find_job_by_id(due->job_id);
	char	   *hint;
	char	   *trouble;
	const char *skip = due->skip;

	if (job == NULL || job->schedule == NULL || !job->enabled || !agenda_is_due(job->id))
		return true;
	trouble = owner_trouble(job, &hint);
	if (due->skip == NULL && trouble == NULL && !run_may_begin(job))
		/* somebody runs it, or has altered it and not committed: no runner is to wait for him */
		skip = psprintf("job \"%s\" is already running, or about to be altered", job->name);
	if (skip)
		history_write_skipped(job, due->attempt, skip);
	else if (trouble)
		history_write_refused(job, due->attempt, trouble, hint);
	else
		return false;
	agenda_settle(job, skip ? RUN_SKIPPED : RUN_FAILED_LASTING, GetCurrentTimestamp(),
				  skip ? skip : trouble);
	return true;
}

/* the same for a job with windows to load */
static bool
settle_backfill(const DueJob *due)
{
	Job		   *job = catalog_find_job_by_id(due->job_id);
	char	   *hint;
	char	   *trouble = job ? owner_trouble(job, &hint) : NULL;

	if (job && trouble == NULL)
		return false;
	if (job && backfill_stop(job) > 0)
		catalog_page(job, "backfill_stopped", psprintf("the backfill of job %s is left: %s; %s", job->name, trouble, hint));
	return true;
}

static bool
settle_lost(const DueJob *due)
{
	/* the windows of one that is gone are still in the ledger */
	if (due->is_backfill)
		backfill_lost(due->job_id, due->window_id);
	/* the next time of a comparison is planned already */
	else if (!due->is_reconcile)
		agenda_settle_lost(due);
	return true;
}

/* gives a job to a runner of its owner's; false where there is no room for another one */
static bool
start_job(const DueJob *due, Usage *usage)
{
	Task		task = {.job_id = due->job_id, .attempt = due->attempt,
		.is_scheduled = !due->is_backfill && !due->is_reconcile, .is_backfill = due->is_backfill,
		.is_reconcile = due->is_reconcile};
	Oid			owner = get_role_oid(due->owner_name, true);
	BackgroundWorkerHandle *handle = NULL;
	MemoryContext old;
	RunnerStart start = RUNNER_STARTED;
	SlotRef		ref;

	if (!slot_offer(MyDatabaseId, owner, &task, &ref))
	{
		if (usage->runners >= incload_max_workers)
			return false;
		old = MemoryContextSwitchTo(own_context);
		start = runner_start(owner, &task, &ref, &handle);
		MemoryContextSwitchTo(old);
		if (start == RUNNER_STARTED)
			usage->runners++;
	}
	if (start != RUNNER_STARTED)
	{
		complain(due, start);
		return false;
	}
	usage->working++;
	usage->ours++;
	remember(due, &ref, handle);
	return true;
}

static void
fill_queue(const Usage *usage)
{
	MemoryContext old;
	TimestampTz now;

	queue = NIL;
	MemoryContextReset(queue_context);
	old = MemoryContextSwitchTo(queue_context);
	queue = agenda_due(QUEUE_LENGTH, incload_naptime, usage->busy);
	MemoryContextSwitchTo(old);
	wants_backfills = true;
	now = GetCurrentTimestamp();
	was_full = list_length(queue) == QUEUE_LENGTH;
	next_fill = TimestampTzPlusMilliseconds(now, incload_naptime);
}

/* starts what is due as long as there is room. "next": when another one is due */
static void
start_due_jobs(Usage *usage, TimestampTz *next)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		wants_room = false;
	TimestampTz waits_since = 0;
	List	   *waiting = NIL;
	ListCell   *lc;

	/* further away than it was set: the clock was set back */
	if (next_fill <= now || next_fill > TimestampTzPlusMilliseconds(now, incload_naptime) ||
		(queue == NIL && was_full))
		fill_queue(usage);
	foreach(lc, queue)
	{
		DueJob	   *due = lfirst(lc);
		MemoryContext old;

		if (due->at > now)
			*next = Min(*next, due->at);
		else if (has_turn(usage, due->at) &&
				 (is_left_out(due) || guarded(settle_without_runner, due, true)))
			continue;
		/* what cannot be started may be another owner's turn, whose runner is free */
		else if (has_turn(usage, due->at))
		{
			if (start_job(due, usage))
				continue;
			/* somebody else's runner that has nothing to do is in the way, until the next look */
			if (!wants_room)
				slot_dismiss_one(MyDatabaseId, get_role_oid(due->owner_name, true));
			wants_room = true;
		}
		if (due->at <= now && (waits_since == 0 || due->at < waits_since))
			waits_since = due->at;
		old = MemoryContextSwitchTo(queue_context);
		waiting = lappend(waiting, due);
		MemoryContextSwitchTo(old);
	}
	list_free(queue);
	queue = waiting;
	slot_note_waiting(waits_since);
}

/* how many runners load windows of a job's backfill, or compare it */
static int
runners_of(int64 job_id, bool is_backfill)
{
	int			n = 0;

	for (int i = 0; i < slots_number(); i++)
	{
		Slot		slot = slot_read(i);

		n += slot_is_working(&slot) && slot.database == MyDatabaseId && slot.task.job_id == job_id &&
			(is_backfill ? slot.task.is_backfill : slot.task.is_reconcile);
	}
	return n;
}

/* windows of backfills, with the runners that are left: one is kept free for jobs that will be due */
static void
start_backfills(Usage *usage)
{
	TextRows   *rows = backfill_due();
	int			most = Max(incload_max_workers - 1, 1);

	for (int r = 0; r < rows->nrows; r++)
	{
		char	  **v = rows->value[r];
		DueJob		due = {.job_id = strtoll(v[0], NULL, 10), .name = v[1], .owner_name = v[2],
			.attempt = 1, .is_backfill = true};

		if (guarded(settle_backfill, &due, true))
			continue;
		for (int n = runners_of(due.job_id, true); n < atoi(v[3]) && usage->working < most && usage->share == 0; n++)
			if (!start_job(&due, usage))
				break;
	}
}

/* a comparison for which no runner can ever be had: its job's runs say so, and it waits for its next time */
static bool
settle_reconcile(const DueJob *due)
{
	Job		   *job = catalog_find_job_by_id(due->job_id);
	char	   *hint;
	char	   *trouble = job ? owner_trouble(job, &hint) : NULL;

	if (job && trouble == NULL)
		return false;
	if (job)
	{
		reconcile_agenda_begin(job);
		catalog_event_once(job, "reconcile_failed", trouble, psprintf("job %s cannot be reconciled: %s; %s", job->name, trouble, hint));
	}
	return true;
}

/* comparisons that are due, likewise */
static void
start_reconciles(Usage *usage)
{
	TextRows   *rows = reconcile_agenda_due();
	int			most = Max(incload_max_workers - 1, 1);

	for (int r = 0; r < rows->nrows; r++)
	{
		char	  **v = rows->value[r];
		DueJob		due = {.job_id = strtoll(v[0], NULL, 10), .name = v[1], .owner_name = v[2],
			.attempt = 1, .is_reconcile = true};

		if (runners_of(due.job_id, false) > 0 || guarded(settle_reconcile, &due, true))
			continue;
		if (usage->working >= most || usage->share > 0 || !start_job(&due, usage))
			break;
	}
}

/* looks after the runs that were started: whose runner has ended without an outcome is retried */
static void
follow_started(void)
{
	ListCell   *lc;

	foreach(lc, started_runs)
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
		if (state == TASK_GONE && started->due.is_backfill)
			started->due.window_id = slot_last_window(&started->ref);
		started->is_over = state == TASK_DONE ||
			(state == TASK_GONE && guarded(settle_lost, &started->due, false));
		wants_backfills |= started->is_over && started->due.is_backfill;
	}
}

TimestampTz
dispatch_look(void)
{
	TimestampTz next = DT_NOEND;
	Usage		usage;

	nlocked = 0;
	follow_started();
	usage = look_at_slots();
	start_due_jobs(&usage, &next);
	if (wants_backfills)
	{
		start_reconciles(&usage);
		start_backfills(&usage);
	}
	wants_backfills = false;
	/* who waits for a runner is started when one becomes free, which wakes us */
	return queue == NIL && was_full ? GetCurrentTimestamp() : Min(next, next_fill);
}

void
dispatch_end_look(bool has_committed)
{
	List	   *over = NIL;
	ListCell   *lc;

	foreach(lc, started_runs)
		if (((Started *) lfirst(lc))->is_over)
			over = lappend(over, lfirst(lc));
	foreach(lc, over)
	{
		if (has_committed)
			forget(lfirst(lc));
		else
			((Started *) lfirst(lc))->is_over = false;
	}
	list_free(over);
	/* what of the queue was started is not known */
	if (!has_committed)
		next_fill = 0;
}
