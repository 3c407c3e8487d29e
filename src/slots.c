/*
 * slots.c
 *		The shared memory in which incload's background workers are listed.
 *
 * A crash of the server empties it, and ends every worker.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "marks.h"
#include "shared.h"
#include "slots.h"

/* a process that was to start and has not come in that time does not come any more */
#define STARTING_MS (120 * 1000)

typedef struct Slots
{
	LWLock		lock;
	uint32		next_serial;
	int			nslots;
	Slot		slot[FLEXIBLE_ARRAY_MEMBER];
} Slots;

static Size
slots_size(void)
{
	return add_size(offsetof(Slots, slot), mul_size(sizeof(Slot), max_worker_processes));
}

static void
make_slots(void *memory)
{
	((Slots *) memory)->nslots = max_worker_processes;
}

static SharedPiece piece = {.name = "incload workers", .tranche = "IncloadWorkers", .size = slots_size, .make = make_slots};
static int	mine = -1;

#define shared ((Slots *) piece.memory)

void
slots_preload(void)
{
	shared_preload(&piece);
}

static void
lock_slots(LWLockMode mode)
{
	shared_lock(&piece, mode);
}

static void
unlock_slots(void)
{
	shared_unlock(&piece);
}

int
slots_number(void)
{
	shared_attach(&piece);
	return shared->nslots;
}

Slot
slot_read(int index)
{
	Slot		slot;

	lock_slots(LW_SHARED);
	slot = shared->slot[index];
	unlock_slots();
	return slot;
}

/* all below that take a Slot are called with the lock held */
static void
enter_state(Slot *slot, SlotState state)
{
	slot->state = state;
	slot->since = GetCurrentTimestamp();
}

static void
wake(const Slot *slot)
{
	if (slot->proc)
		SetLatch(&slot->proc->procLatch);
}

bool
slot_is_working(const Slot *slot)
{
	return slot->kind == SLOT_RUNNER && (slot->state == SLOT_BUSY || slot->state == SLOT_STARTING);
}

static bool
is_there(const Slot *slot)
{
	return slot->state != SLOT_FREE && slot->state != SLOT_ENDED;
}

bool
slot_reserve(SlotKind kind, Oid database, Oid owner, const Task *task, bool by_hand, SlotRef *ref)
{
	Slot	   *slot = NULL;

	lock_slots(LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		Slot	   *other = &shared->slot[i];

		if (other->state == SLOT_FREE && slot == NULL)
			slot = other;
		if (kind != SLOT_RUNNER && is_there(other) && other->kind == kind && other->database == database)
		{
			slot = NULL;
			break;
		}
	}
	if (slot && !marks_is_held(database))
	{
		memset(slot, 0, sizeof(Slot));
		slot->kind = kind;
		slot->serial = slot->first_serial = ++shared->next_serial;
		slot->database = database;
		slot->owner = owner;
		slot->by_hand = by_hand;
		if (task)
			slot->task = *task;
		slot->started_at = GetCurrentTimestamp();
		enter_state(slot, SLOT_STARTING);
		ref->index = slot - shared->slot;
		ref->serial = slot->serial;
	}
	else
		slot = NULL;
	unlock_slots();
	return slot != NULL;
}

bool
slot_awaits(const SlotRef *ref, Oid database)
{
	Slot		slot = slot_read(ref->index);

	return slot.serial == ref->serial && slot.state == SLOT_STARTING && slot.pid == 0 &&
		slot.kind == SLOT_SCHEDULER && slot.by_hand && slot.database == database;
}

bool
slot_never_came(const Slot *slot)
{
	TimestampTz now = GetCurrentTimestamp();

	/* or the clock was set back */
	return slot->state == SLOT_STARTING && slot->pid == 0 &&
		(TimestampDifferenceExceeds(slot->since, now, STARTING_MS) ||
		 TimestampDifferenceExceeds(now, slot->since, STARTING_MS));
}

void
slot_give_up(const SlotRef *ref)
{
	Slot	   *slot;

	lock_slots(LW_EXCLUSIVE);
	slot = &shared->slot[ref->index];
	if (slot->serial == ref->serial && (slot->pid == 0 || slot->state == SLOT_ENDED))
		slot->state = SLOT_FREE;
	unlock_slots();
}

TaskState
slot_task_state(const SlotRef *ref)
{
	Slot		slot = slot_read(ref->index);

	if (slot.state == SLOT_FREE || ref->serial < slot.first_serial || ref->serial > slot.serial)
		return TASK_GONE;
	/* a worker gets another task only when it is done with the one before */
	if (ref->serial < slot.serial)
		return TASK_DONE;
	return slot.state == SLOT_STARTING || slot.state == SLOT_BUSY ? TASK_RUNNING : TASK_DONE;
}

/* at the end of a worker; a launcher wants to know why its scheduler has gone */
static void
leave_slot(int code, Datum arg)
{
	Slot	   *slot = &shared->slot[mine];

	lock_slots(LW_EXCLUSIVE);
	slot->pid = 0;
	slot->proc = NULL;
	enter_state(slot, slot->kind == SLOT_SCHEDULER && !slot->by_hand ? SLOT_ENDED : SLOT_FREE);
	unlock_slots();
}

void
slot_claim(const SlotRef *ref)
{
	Slot	   *slot;
	bool		is_ours;

	lock_slots(LW_EXCLUSIVE);
	slot = &shared->slot[ref->index];
	is_ours = slot->serial == ref->serial && slot->state == SLOT_STARTING && !slot->leave &&
		!marks_is_held(slot->database);
	if (is_ours)
	{
		mine = ref->index;
		slot->pid = MyProcPid;
		slot->proc = MyProc;
		enter_state(slot, SLOT_BUSY);
	}
	else if (slot->serial == ref->serial && slot->state == SLOT_STARTING)
		slot->state = SLOT_FREE;
	unlock_slots();
	if (!is_ours)
		proc_exit(0);
	before_shmem_exit(leave_slot, 0);
}

Slot
slot_mine(void)
{
	return slot_read(mine);
}

void
slot_set_state(SlotState state)
{
	Slot	   *slot = &shared->slot[mine];

	lock_slots(LW_EXCLUSIVE);
	enter_state(slot, slot->leave && state == SLOT_IDLE ? SLOT_STOPPING : state);
	/* whoever has cancelled the job that is over has not meant the next one */
	if (state == SLOT_IDLE)
	{
		slot->is_cancelled = false;
		QueryCancelPending = false;
	}
	unlock_slots();
}

bool
slot_heed_stop(void)
{
	Slot	   *slot = &shared->slot[mine];

	lock_slots(LW_EXCLUSIVE);
	if (marks_is_stopped(slot->database))
		enter_state(slot, SLOT_STOPPING);
	unlock_slots();
	return slot->state == SLOT_STOPPING;
}

bool
slots_is_stopping(Oid database)
{
	bool		is_stopping = false;

	lock_slots(LW_SHARED);
	for (int i = 0; i < shared->nslots; i++)
		is_stopping |= shared->slot[i].kind == SLOT_SCHEDULER && shared->slot[i].state == SLOT_STOPPING &&
			shared->slot[i].database == database;
	unlock_slots();
	return is_stopping;
}

void
slot_set_end(SlotEnd end)
{
	lock_slots(LW_EXCLUSIVE);
	shared->slot[mine].end = end;
	unlock_slots();
}

void
slot_note_window(int64 window_id)
{
	lock_slots(LW_EXCLUSIVE);
	shared->slot[mine].task.window_id = window_id;
	unlock_slots();
}

void
slot_note_waiting(TimestampTz since)
{
	lock_slots(LW_EXCLUSIVE);
	shared->slot[mine].waits_since = since;
	unlock_slots();
}

/* does a slot tell that its database has runners at work, or wants one? */
static bool
is_counted(const Slot *slot)
{
	return (slot->kind == SLOT_RUNNER && slot_is_working(slot)) ||
		(slot->kind == SLOT_SCHEDULER && is_there(slot) && slot->waits_since != 0);
}

int
slots_others(Oid database, TimestampTz *waits_since)
{
	int			n = 0;

	*waits_since = 0;
	lock_slots(LW_SHARED);
	for (int i = 0; i < shared->nslots; i++)
	{
		Slot	   *slot = &shared->slot[i];
		bool		is_new = true;

		if (!is_counted(slot) || slot->database == database)
			continue;
		for (int j = 0; j < i && is_new; j++)
			is_new = !is_counted(&shared->slot[j]) || shared->slot[j].database != slot->database;
		n += is_new;
		if (slot->kind == SLOT_SCHEDULER && (*waits_since == 0 || slot->waits_since < *waits_since))
			*waits_since = slot->waits_since;
	}
	unlock_slots();
	return n;
}

int64
slot_last_window(const SlotRef *ref)
{
	Slot		slot = slot_read(ref->index);

	return slot.serial == ref->serial ? slot.task.window_id : 0;
}

bool
slot_offer(Oid database, Oid owner, const Task *task, SlotRef *ref)
{
	bool		is_given = false;

	lock_slots(LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots && !is_given && !marks_is_held(database); i++)
	{
		Slot	   *slot = &shared->slot[i];

		if (slot->kind != SLOT_RUNNER || slot->state != SLOT_IDLE || slot->leave ||
			slot->database != database || slot->owner != owner)
			continue;
		slot->task = *task;
		slot->is_cancelled = false;
		/* another task is another use: who watches the former one sees its end */
		slot->serial = ++shared->next_serial;
		enter_state(slot, SLOT_BUSY);
		wake(slot);
		ref->index = i;
		ref->serial = slot->serial;
		is_given = true;
	}
	unlock_slots();
	return is_given;
}

bool
slot_retire(void)
{
	Slot	   *slot = &shared->slot[mine];
	bool		is_idle;

	lock_slots(LW_EXCLUSIVE);
	is_idle = slot->state != SLOT_BUSY;
	if (is_idle)
		enter_state(slot, SLOT_STOPPING);
	unlock_slots();
	return is_idle;
}

void
slot_dismiss_one(Oid database, Oid owner)
{
	Slot	   *oldest = NULL;

	lock_slots(LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		Slot	   *slot = &shared->slot[i];

		/* one of his own takes the job by itself */
		if (slot->kind == SLOT_RUNNER && slot->state == SLOT_IDLE &&
			(slot->database != database || slot->owner != owner) &&
			(oldest == NULL || slot->since < oldest->since))
			oldest = slot;
	}
	if (oldest)
	{
		oldest->leave = true;
		enter_state(oldest, SLOT_STOPPING);
		wake(oldest);
	}
	unlock_slots();
}

bool
slot_has_job(Oid database, int64 job_id)
{
	bool		is_found = false;

	lock_slots(LW_SHARED);
	for (int i = 0; i < shared->nslots; i++)
	{
		Slot	   *slot = &shared->slot[i];

		/* a comparison takes the job's lock when it needs it */
		is_found |= slot_is_working(slot) && slot->database == database && slot->task.job_id == job_id &&
			!slot->task.is_reconcile;
	}
	unlock_slots();
	return is_found;
}

bool
slot_cancel(Oid database, int64 job_id)
{
	bool		is_found = false;

	lock_slots(LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		Slot	   *slot = &shared->slot[i];

		if (!slot_is_working(slot) || slot->database != database || slot->task.job_id != job_id)
			continue;
		is_found = true;
		/* one that is still starting looks for that before it begins */
		slot->is_cancelled = true;
		if (slot->pid != 0)
			kill(slot->pid, SIGINT);
	}
	unlock_slots();
	return is_found;
}

int
slots_dismiss(Oid database, bool busy_ones_too)
{
	int			left = 0;

	lock_slots(LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		Slot	   *slot = &shared->slot[i];

		if (!is_there(slot) || slot->database != database || slot->pid == MyProcPid ||
			(!busy_ones_too && slot->kind == SLOT_RUNNER && slot->state != SLOT_IDLE))
			continue;
		left++;
		slot->leave = true;
		/* whoever waits looks there when he is woken */
		if (slot->kind == SLOT_RUNNER && slot->state == SLOT_BUSY)
			kill(slot->pid, SIGTERM);
		wake(slot);
	}
	unlock_slots();
	return left;
}

bool
slots_has(SlotKind kind, Oid database)
{
	bool		is_found = false;

	lock_slots(LW_SHARED);
	for (int i = 0; i < shared->nslots; i++)
		is_found |= is_there(&shared->slot[i]) && shared->slot[i].kind == kind &&
			shared->slot[i].database == database;
	unlock_slots();
	return is_found;
}

void
slots_wake(SlotKind kind, Oid database)
{
	lock_slots(LW_SHARED);
	for (int i = 0; i < shared->nslots; i++)
		if (is_there(&shared->slot[i]) && shared->slot[i].kind == kind &&
			(!OidIsValid(database) || shared->slot[i].database == database))
			wake(&shared->slot[i]);
	unlock_slots();
}

bool
slots_hold(Oid database, bool *had_by_hand)
{
	bool		is_held;

	lock_slots(LW_EXCLUSIVE);
	is_held = marks_hold(database);
	/* at this very moment: one that begins now gives its slot up */
	*had_by_hand = false;
	for (int i = 0; i < shared->nslots; i++)
		*had_by_hand |= is_there(&shared->slot[i]) && shared->slot[i].kind == SLOT_SCHEDULER &&
			shared->slot[i].by_hand && shared->slot[i].database == database;
	unlock_slots();
	return is_held;
}
