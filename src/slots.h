/*
 * slots.h
 *		The shared memory in which incload's background workers are listed.
 *
 * Each worker has a slot from before it is started until it is gone. The slot
 * says what it is, for which database, and what it is to do: a scheduler hands
 * a job to a runner by it, incload.worker shows it, and who has to have a
 * database for himself asks it who is to leave.
 */
#ifndef INCLOAD_SLOTS_H
#define INCLOAD_SLOTS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/proc.h"

typedef enum SlotKind
{
	SLOT_LAUNCHER,				/* one a server, only with preload */
	SLOT_SCHEDULER,				/* one a database */
	SLOT_RUNNER					/* runs jobs of one owner in one database */
} SlotKind;

typedef enum SlotState
{
	SLOT_FREE,					/* nobody's; → starting */
	SLOT_STARTING,				/* registered, not there yet; → busy, or free if it never comes */
	SLOT_BUSY,					/* works; → idle, stopping, ended, free */
	SLOT_IDLE,					/* a runner that waits for a job; → busy, stopping, free */
	SLOT_STOPPING,				/* one that was told to leave; → ended, free */
	SLOT_ENDED					/* a launcher's scheduler that is gone, and why; → free, by the launcher */
} SlotState;

/* why a scheduler is gone */
typedef enum SlotEnd
{
	END_UNKNOWN,				/* an error, or it was terminated: it is started again */
	END_NO_EXTENSION,			/* there is nothing to schedule until CREATE EXTENSION */
	END_STOPPED					/* incload_worker_stop() */
} SlotEnd;

/* Task: a run that a runner is to do */
typedef struct Task
{
	int64		job_id;
	int64		run_id;			/* the number that was promised; 0: none */
	int			attempt;		/* from 1 */
	bool		is_scheduled;	/* its outcome sets when the job runs next */
	bool		is_backfill;	/* loads windows of the job's backfill, until there are none */
	bool		is_reconcile;	/* compares the job's source and target, by the option reconcile_schedule */
	int64		window_id;		/* of these, the one that it has now; 0: none */
	TransactionId after;		/* only once this transaction has committed, if set */
} Task;

typedef struct Slot
{
	SlotKind	kind;
	SlotState	state;
	uint32		serial;			/* of its use: another one is another worker, or another task of the same */
	uint32		first_serial;	/* of the worker's first task */
	pid_t		pid;			/* 0 while it starts */
	PGPROC	   *proc;
	Oid			database;		/* none for the launcher */
	Oid			owner;			/* of a runner's jobs */
	bool		by_hand;		/* a scheduler of incload_worker_start() */
	bool		leave;			/* told to leave */
	bool		is_cancelled;	/* somebody has cancelled the task, by slot_cancel() */
	SlotEnd		end;
	TimestampTz waits_since;	/* a scheduler whose jobs find no room: when the first was due; 0: none does */
	Task		task;
	TimestampTz started_at;
	TimestampTz since;			/* in this state */
} Slot;

/* SlotRef: what a worker is given to find its slot */
typedef struct SlotRef
{
	int			index;
	uint32		serial;
} SlotRef;

typedef enum TaskState
{
	TASK_RUNNING,				/* or about to; → done, gone */
	TASK_DONE,					/* its outcome is on record */
	TASK_GONE					/* the runner has ended: whether it had recorded the outcome is to be looked up */
} TaskState;

/* asks for the memory; from _PG_init, where the library is preloaded */
extern void slots_preload(void);

/* how many slots there are; each is read by slot_read() */
extern int	slots_number(void);
extern Slot slot_read(int index);

/*
 * Takes a free slot for a worker that will be started. False where there is
 * none, or, for a scheduler, one is in that database already, or its workers are
 * held off.
 */
extern bool slot_reserve(SlotKind kind, Oid database, Oid owner, const Task *task, bool by_hand,
						 SlotRef *ref);
/* does this slot still wait for a scheduler that was started by hand in that database? After a crash it may be anybody's */
extern bool slot_awaits(const SlotRef *ref, Oid database);
/* was it taken for a worker that should be there by now? */
extern bool slot_never_came(const Slot *slot);
/* gives it back: the worker could not be started, or never came */
extern void slot_give_up(const SlotRef *ref);

/* how far a runner is with the task that it was given by that use of its slot */
extern TaskState slot_task_state(const SlotRef *ref);

/* the worker itself: this is my slot; ends the process where it was given up */
extern void slot_claim(const SlotRef *ref);
extern Slot slot_mine(void);
extern void slot_set_state(SlotState state);
extern void slot_set_end(SlotEnd end);
/* a scheduler: was it stopped? Then it is on its way out for everybody */
extern bool slot_heed_stop(void);
extern void slot_note_window(int64 window_id);
extern void slot_note_waiting(TimestampTz since);

/*
 * What schedulers of other databases have to do with the room for runners: how many of these
 * databases have runners at work or wait for one; and since when the first of them waits, 0: none.
 */
extern int	slots_others(Oid database, TimestampTz *waits_since);

/* the window that a runner had when it ended, if its slot was not used since; 0: none is known */
extern int64 slot_last_window(const SlotRef *ref);

/* gives a task to an idle runner of that owner; false where none is */
extern bool slot_offer(Oid database, Oid owner, const Task *task, SlotRef *ref);
/* a runner that waits too long: false if it was given a task in this very moment */
extern bool slot_retire(void);
/* tells an idle runner to make room for one of this owner's in this database */
extern void slot_dismiss_one(Oid database, Oid owner);

/* is a runner at work at the job, or about to be? */
extern bool slot_has_job(Oid database, int64 job_id);

/* cancels what runs the job; false where no runner does */
extern bool slot_cancel(Oid database, int64 job_id);

/*
 * Tells everybody in a database to leave, or its idle runners and its scheduler
 * alone. Returns how many of them are still there.
 */
extern int	slots_dismiss(Oid database, bool busy_ones_too);

/* a runner that has a task, or comes for one */
extern bool slot_is_working(const Slot *slot);

/* is there a worker of that kind for a database? */
extern bool slots_has(SlotKind kind, Oid database);

/* wakes a kind of worker, of a database or of all (InvalidOid) */
extern void slots_wake(SlotKind kind, Oid database);

/*
 * From now on no worker of incload's enters the database; false where too many are held.
 * marks_release() ends that. "had_by_hand": it has a scheduler that no launcher brings back.
 */
extern bool slots_hold(Oid database, bool *had_by_hand);

/* was its scheduler stopped, and has heeded that, and is not gone yet? */
extern bool slots_is_stopping(Oid database);

#endif							/* INCLOAD_SLOTS_H */
