/*
 * unattended.c
 *		Runs in a background worker, where nobody is told.
 *
 * What a session gets as an ERROR is on record here, decides when the job is run
 * again, and goes to the server's log. A worker's transactions are its own: it
 * records a failure itself, in the next one.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "agenda.h"
#include "backfill.h"
#include "batch.h"
#include "catalog.h"
#include "fault.h"
#include "history.h"
#include "incload.h"
#include "reconcile.h"
#include "reconcile_agenda.h"
#include "role.h"
#include "run.h"
#include "run_core.h"
#include "slots.h"
#include "target.h"
#include "unattended.h"

void
unattended_begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

void
unattended_commit(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* how long a runner loads windows before it asks whether others are to have a turn */
#define TURN_MS 2000

/* how a background worker commits */
static void
commit_worker(void)
{
	MemoryContext context = CurrentMemoryContext;

	unattended_commit();
	unattended_begin();
	MemoryContextSwitchTo(context);
}

/*
 * The record of a run that failed in a background worker, which has no caller
 * to tell: the server log has the error.
 */
static RunEnd
end_failed(Run *run, char **message)
{
	ErrorData  *error;
	const char *status;

	EmitErrorReport();
	error = run_take_failure(run);
	status = run_failure_status(run, error);
	AbortCurrentTransaction();
	unattended_begin();
	MemoryContextSwitchTo(run->context);
	history_write_failure(run->record, status, error, run_failure_event(run, error));
	*message = run->record->error;
	if (strcmp(status, "skipped") == 0)
		return RUN_SKIPPED;
	/* a statement_timeout, here or there, is nobody's wish */
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		return slot_mine().is_cancelled || strcmp(error->message, _("canceling statement due to user request")) == 0
			? RUN_CANCELLED : RUN_FAILED_LASTING;
	return fault_is_passing(error->sqlerrcode) ? RUN_FAILED_PASSING : RUN_FAILED_LASTING;
}

/* is the target's key kept unique by an index? Else nobody but the lock keeps two from inserting one row */
static bool
has_unique_key(const Job *job)
{
	Relation	target = try_relation_open(job->target, AccessShareLock);
	bool		is_unique;

	if (target == NULL)
		return true;			/* the run says what it lacks */
	is_unique = target_key_is_unique(target, job->key);
	relation_close(target, NoLock);
	return is_unique;
}

/*
 * A restored dump brings jobs before the keys of their targets: rows that were
 * loaded now would come once more with the rest of the dump. What pg_upgrade brings
 * is there as a whole.
 */
static void
require_restored(const Job *job)
{
	if (!job_is_restored(job) || job->key == NIL || !OidIsValid(job->target) ||
		/* of one of strategy full nothing tells whether it had loaded rows */
		(job->strategy != STRATEGY_FULL && catalog_read_checkpoint(job->id, false)->loaded_to == NULL) ||
		has_unique_key(job) || catalog_has_history(job->id))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("target %s of job \"%s\" may be about to be restored", job->target_name, job->name),
			 errdetail("The job was made in another database, and the target has no unique index on the key yet."),
			 errhint("If the dump is restored, SELECT incload_run(%s) lets it go on by its schedule.",
					 quote_literal_cstr(job->name))));
}

/*
 * Is a job that its schedule has started due still? Asked under its lock, so that nobody
 * alters it any more: that of this transaction, until the run has the session's.
 */
static bool
is_due_still(const Job *job)
{
	LOCKTAG		tag;

	run_locktag(job, &tag);
	/* the run says who has it */
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	return agenda_is_due(job->id);
}

/* the run itself; a signal to cancel it counts while it is under way, and not for what is recorded afterwards */
static RunEnd
attempt_run(Run *run, bool is_scheduled, char **message)
{
	TimestampTz volatile timeout = 0;
	RunEnd volatile end = RUN_SUCCEEDED;

	PG_TRY();
	{
		RESUME_CANCEL_INTERRUPTS();
		/* its owner may have lost the way to what it names */
		run->job = job_load(run->job->name);
		timeout = run_start_timeout(run->job);
		require_restored(run->job);
		if (is_scheduled && !is_due_still(run->job))
			end = RUN_NOT_DUE;
		else
			run_batches(run);
		HOLD_CANCEL_INTERRUPTS();
		if (strcmp(run->record->status, "skipped") == 0)
			end = RUN_SKIPPED;
		run_end(run, timeout);
	}
	PG_CATCH();
	{
		HOLD_CANCEL_INTERRUPTS();
		run_end(run, timeout);
		end = end_failed(run, message);
	}
	PG_END_TRY();
	return end;
}

void
unattended_run(const Task *task)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "incload run", ALLOCSET_DEFAULT_SIZES);
	Job		   *job;
	Run		   *run;
	RunEnd		end;
	char	   *message = NULL;

	HOLD_CANCEL_INTERRUPTS();
	unattended_begin();
	MemoryContextSwitchTo(context);
	/* dropped, or given to somebody else, who has a worker of his own */
	job = catalog_find_job_by_id(task->job_id);
	if (job && job->owner == GetUserId())
	{
		run = run_new(job, context, false, true, task->run_id);
		run->commit = commit_worker;
		run->record->trigger = task->is_scheduled ? "schedule" : "start";
		run->record->attempt = task->attempt;
		end = attempt_run(run, task->is_scheduled, &message);
		/* the schedule may have been altered as soon as the job's lock was free */
		job = catalog_find_job_by_id(task->job_id);
		if (task->is_scheduled && job && end != RUN_NOT_DUE)
			agenda_settle(job, end, run->record->started_at, message);
	}
	unattended_commit();
	RESUME_CANCEL_INTERRUPTS();
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(context);
}

/*
 * Waits for a run of the job, in no transaction with a snapshot. Windows of a
 * backfill go side by side, where an index keeps them from inserting the same row.
 */
static void
lock_beside_windows(const Job *job, LOCKMODE mode)
{
	LOCKTAG		tag;

	run_locktag(job, &tag);
	StartTransactionCommand();
	(void) LockAcquire(&tag, mode, true, false);
	CommitTransactionCommand();
}

/* the run of one window, in the transaction that has claimed it */
static void
load_window(Run *run, const LedgerWindow *window, LOCKMODE mode)
{
	LOCKTAG		tag;

	/* once more for this transaction: SQL of the owner's can give up the session's */
	run_locktag(run->job, &tag);
	(void) LockAcquire(&tag, mode, false, false);
	run_begin_inside(run);
	run->is_locked = true;
	(void) run_start_timeout(run->job);
	job_require_whole(run->job);
	run_to_end(run);
	backfill_done(window, run->record->run_id, run->record->rows_read);
}

/* what became of a window: the next one, or when to look again, or never */
typedef enum WindowEnd
{
	WINDOW_NEXT,
	WINDOW_LATER,
	WINDOW_NONE
} WindowEnd;

static WindowEnd
fail_window(Run *run, const Job *job, const LedgerWindow *window)
{
	char	   *message;
	RunEnd		end;

	end = end_failed(run, &message);
	if (end == RUN_CANCELLED)
		(void) backfill_stop(job);
	else
		/* another window may have had the row meanwhile */
		backfill_failed(job, window, end == RUN_FAILED_PASSING ||
						strcmp(run->record->sqlstate, "23505") == 0, message);
	return end == RUN_CANCELLED ? WINDOW_NONE : WINDOW_NEXT;
}

/* claims a window and loads it; "next": when one that has failed may be tried again */
static WindowEnd
do_window(Job *job, LOCKMODE mode, MemoryContext context, TimestampTz *next)
{
	LedgerWindow *window;
	Run		   *run;
	WindowEnd volatile end = WINDOW_NEXT;

	unattended_begin();
	MemoryContextSwitchTo(context);
	window = backfill_claim(job, next);
	slot_note_window(window ? window->window_id : 0);
	if (window == NULL)
	{
		unattended_commit();
		return *next == 0 ? WINDOW_NONE : WINDOW_LATER;
	}
	run = run_new(job, context, false, false, 0);
	run->piece = &window->piece;
	run->record->kind = "backfill";
	run->record->trigger = "backfill";
	run->record->attempt = window->attempts + 1;
	PG_TRY();
	{
		RESUME_CANCEL_INTERRUPTS();
		load_window(run, window, mode);
		HOLD_CANCEL_INTERRUPTS();
		run_end(run, 0);
		unattended_commit();
	}
	PG_CATCH();
	{
		HOLD_CANCEL_INTERRUPTS();
		run_end(run, 0);
		end = fail_window(run, job, window);
		unattended_commit();
	}
	PG_END_TRY();
	return end;
}

/* the job as it is now, in a context of the caller's; NULL where it is not to be worked at any more */
static Job *
look_up(int64 job_id, MemoryContext context, LOCKMODE *mode)
{
	Job		   *job;

	unattended_begin();
	MemoryContextSwitchTo(context);
	job = catalog_find_job_by_id(job_id);
	if (job && (job->owner != GetUserId() || !job->enabled))
		job = NULL;
	if (job)
	{
		job = job_load(job->name);
		*mode = has_unique_key(job) ? ShareLock : ExclusiveLock;
	}
	unattended_commit();
	return job;
}

/* one window, in a context of its own */
static WindowEnd
next_window(const Task *task, TimestampTz *next)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "incload window", ALLOCSET_DEFAULT_SIZES);
	LOCKMODE	mode = ShareLock;
	Job		   *job = look_up(task->job_id, context, &mode);
	WindowEnd	end = WINDOW_NONE;

	if (job)
	{
		lock_beside_windows(job, mode);
		end = do_window(job, mode, context, next);
		run_unlock_session(job, mode);
		unattended_begin();
		backfill_tell_end(job);
		unattended_commit();
	}
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(context);
	return end;
}

void
unattended_backfill(const Task *task)
{
	TimestampTz began = GetCurrentTimestamp();
	WindowEnd	end;

	HOLD_CANCEL_INTERRUPTS();
	do
	{
		TimestampTz next = 0;

		end = next_window(task, &next);
		if (slot_mine().leave)
			break;
		/* a scheduler has others to think of: it gives out the rest once more */
		if (slots_has(SLOT_SCHEDULER, MyDatabaseId) &&
			(end == WINDOW_LATER || TimestampDifferenceExceeds(began, GetCurrentTimestamp(), TURN_MS)))
			break;
		if (end == WINDOW_LATER)
		{
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 Min(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next), 1000),
							 incload_wait_event_idle());
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
	} while (end != WINDOW_NONE);
	RESUME_CANCEL_INTERRUPTS();
}

/* the comparison itself, in this transaction */
static void
attempt_reconcile(Run *run)
{
	TimestampTz volatile timeout = 0;
	char	   *message;

	PG_TRY();
	{
		RESUME_CANCEL_INTERRUPTS();
		run->job = job_load(run->job->name);
		timeout = run_start_timeout(run->job);
		reconcile_run(run);
		HOLD_CANCEL_INTERRUPTS();
		run_end(run, timeout);
	}
	PG_CATCH();
	{
		HOLD_CANCEL_INTERRUPTS();
		run_end(run, timeout);
		(void) end_failed(run, &message);
		catalog_ticket(run->job, run->record->run_id, "reconcile_failed",
					   psprintf("job %s could not be reconciled: %s", run->job->name, message));
	}
	PG_END_TRY();
}

void
unattended_reconcile(const Task *task)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "incload reconcile", ALLOCSET_DEFAULT_SIZES);
	Job		   *job;
	Run		   *run;

	HOLD_CANCEL_INTERRUPTS();
	unattended_begin();
	MemoryContextSwitchTo(context);
	job = catalog_find_job_by_id(task->job_id);
	if (job && job->owner == GetUserId() && job->enabled && job->options->reconcile_schedule)
	{
		/* whatever becomes of it, the next one is at its time */
		reconcile_agenda_begin(job);
		commit_worker();
		run = run_new(job, context, false, false, 0);
		run->record->trigger = "schedule";
		attempt_reconcile(run);
	}
	unattended_commit();
	RESUME_CANCEL_INTERRUPTS();
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(context);
}
