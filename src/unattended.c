/*
 * unattended.c
 *		Runs in a background worker, where nobody is told.
 *
 * What a session gets as an ERROR is on record here, decides when the job is run
 * again, and goes to the server's log. A worker's transactions are its own: it
 * records a failure itself, in the next one.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "agenda.h"
#include "backfill.h"
#include "batch.h"
#include "catalog.h"
#include "fault.h"
#include "history.h"
#include "incload.h"
#include "run.h"
#include "run_core.h"
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
	if (!run->is_locked)
		return RUN_SKIPPED;
	if (strcmp(status, "cancelled") == 0)
		return RUN_CANCELLED;
	return fault_is_passing(error->sqlerrcode) ? RUN_FAILED_PASSING : RUN_FAILED_LASTING;
}

void
unattended_run(const Task *task)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "incload run", ALLOCSET_DEFAULT_SIZES);
	Job		   *job;
	Run		   *volatile run;
	TimestampTz volatile timeout = 0;
	RunEnd		end = RUN_SUCCEEDED;
	char	   *message = NULL;

	unattended_begin();
	MemoryContextSwitchTo(context);
	/* dropped, or given to somebody else, who has a worker of his own */
	job = catalog_find_job_by_id(task->job_id);
	if (job == NULL || job->owner != GetUserId())
	{
		unattended_commit();
		MemoryContextDelete(context);
		return;
	}
	job = job_load(job->name);
	run = run_new(job, context, false, true, task->run_id);
	run->commit = commit_worker;
	run->record->trigger = task->is_scheduled ? "schedule" : "start";
	run->record->attempt = task->attempt;
	PG_TRY();
	{
		timeout = run_start_timeout(run->job);
		run_batches(run);
		if (strcmp(run->record->status, "skipped") == 0)
			end = RUN_SKIPPED;
		run_end(run, timeout);
	}
	PG_CATCH();
	{
		run_end(run, timeout);
		end = end_failed(run, &message);
	}
	PG_END_TRY();
	if (task->is_scheduled)
		agenda_settle(run->job, end, message);
	unattended_commit();
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(context);
}

/* waits for a run of the job, in no transaction with a snapshot; windows of a backfill go side by side */
static void
lock_beside_windows(const Job *job)
{
	LOCKTAG		tag;

	run_locktag(job, &tag);
	StartTransactionCommand();
	(void) LockAcquire(&tag, ShareLock, true, false);
	CommitTransactionCommand();
}

/* the run of one window, in the transaction that has claimed it */
static void
load_window(Run *run, const LedgerWindow *window)
{
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
		return WINDOW_NONE;
	backfill_failed(job, window, end == RUN_FAILED_PASSING, message);
	return WINDOW_NEXT;
}

/* claims a window and loads it; "next": when one that has failed may be tried again */
static WindowEnd
do_window(const Job *job, MemoryContext context, TimestampTz *next)
{
	LedgerWindow *window;
	Run		   *run;
	WindowEnd volatile end = WINDOW_NEXT;

	unattended_begin();
	MemoryContextSwitchTo(context);
	window = backfill_claim(job, next);
	if (window == NULL)
	{
		if (*next == 0)
			backfill_tell_end(job);
		unattended_commit();
		return *next == 0 ? WINDOW_NONE : WINDOW_LATER;
	}
	run = run_new(job_load(job->name), context, false, false, 0);
	run->piece = &window->piece;
	run->record->kind = "backfill";
	run->record->trigger = "backfill";
	run->record->attempt = window->attempts + 1;
	PG_TRY();
	{
		load_window(run, window);
		run_end(run, 0);
		unattended_commit();
	}
	PG_CATCH();
	{
		run_end(run, 0);
		end = fail_window(run, job, window);
		unattended_commit();
	}
	PG_END_TRY();
	return end;
}

/* the job as it is now, in a context of the caller's; NULL where it is not to be worked at any more */
static Job *
look_up(int64 job_id, MemoryContext context)
{
	Job		   *job;

	unattended_begin();
	MemoryContextSwitchTo(context);
	job = catalog_find_job_by_id(job_id);
	unattended_commit();
	return job && job->owner == GetUserId() && job->enabled ? job : NULL;
}

void
unattended_backfill(const Task *task)
{
	WindowEnd	end = WINDOW_NEXT;

	while (end != WINDOW_NONE)
	{
		MemoryContext context = AllocSetContextCreate(TopMemoryContext, "incload window", ALLOCSET_DEFAULT_SIZES);
		Job		   *job = look_up(task->job_id, context);
		TimestampTz next = 0;

		if (job)
		{
			lock_beside_windows(job);
			end = do_window(job, context, &next);
			run_unlock_session(job, ShareLock);
		}
		else
			end = WINDOW_NONE;
		MemoryContextSwitchTo(TopMemoryContext);
		MemoryContextDelete(context);
		if (end == WINDOW_LATER)
		{
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 Min(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next), 1000),
							 incload_wait_event_idle());
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
	}
}
