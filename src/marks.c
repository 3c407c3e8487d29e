/*
 * marks.c
 *		What holds for databases as long as the server runs, in shared memory.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "marks.h"
#include "shared.h"

/* databases of which something is to be remembered at once: more than one would meet */
#define MAX_MARKS 64

/* of so many extensions that were created last it is known where; whoever has heard of none of them looks everywhere */
#define CREATIONS 64

/* Mark: what holds for a database */
typedef struct Mark
{
	Oid			database;
	pid_t		held_by;		/* who has it for himself; 0: nobody */
	bool		is_stopped;		/* by incload_worker_stop() */
} Mark;

typedef struct Marks
{
	LWLock		lock;
	uint32		news;			/* how often databases came and went */
	uint32		ncreations;		/* how often the extension was created, in any database */
	Oid			creations[CREATIONS];	/* in which, round and round */
	Mark		mark[MAX_MARKS];
} Marks;

static Size
marks_size(void)
{
	return sizeof(Marks);
}

static SharedPiece piece = {.name = "incload databases", .tranche = "IncloadDatabases", .size = marks_size};

#define shared ((Marks *) piece.memory)

void
marks_preload(void)
{
	shared_preload(&piece);
}

/* what is known of a database; with "make", a new mark if need be, NULL where there are too many. With the lock held. */
static Mark *
mark_of(Oid database, bool make)
{
	Mark	   *unused = NULL;

	for (int i = 0; i < MAX_MARKS; i++)
	{
		Mark	   *mark = &shared->mark[i];

		if (mark->held_by == 0 && !mark->is_stopped)
			unused = mark;
		else if (mark->database == database)
			return mark;
	}
	if (make && unused)
		unused->database = database;
	return make ? unused : NULL;
}

bool
marks_hold(Oid database)
{
	Mark	   *mark;

	shared_lock(&piece, LW_EXCLUSIVE);
	mark = mark_of(database, true);
	if (mark)
		mark->held_by = MyProcPid;
	shared_unlock(&piece);
	return mark != NULL;
}

void
marks_release(Oid database)
{
	Mark	   *mark;

	shared_lock(&piece, LW_EXCLUSIVE);
	mark = mark_of(database, false);
	if (mark && mark->held_by == MyProcPid)
		mark->held_by = 0;
	shared_unlock(&piece);
}

bool
marks_is_held(Oid database)
{
	Mark	   *mark;
	bool		is_held;

	if (!OidIsValid(database))
		return false;
	shared_lock(&piece, LW_SHARED);
	mark = mark_of(database, false);
	is_held = mark && mark->held_by != 0;
	shared_unlock(&piece);
	return is_held;
}

bool
marks_set_stopped(Oid database, bool is_stopped)
{
	Mark	   *mark;

	shared_lock(&piece, LW_EXCLUSIVE);
	mark = mark_of(database, is_stopped);
	if (mark)
		mark->is_stopped = is_stopped;
	shared_unlock(&piece);
	return mark || !is_stopped;
}

bool
marks_is_stopped(Oid database)
{
	Mark	   *mark;
	bool		is_stopped;

	shared_lock(&piece, LW_SHARED);
	mark = mark_of(database, false);
	is_stopped = mark && mark->is_stopped;
	shared_unlock(&piece);
	return is_stopped;
}

void
marks_tell_news(void)
{
	shared_lock(&piece, LW_EXCLUSIVE);
	shared->news++;
	shared_unlock(&piece);
}

uint32
marks_news(void)
{
	uint32		news;

	shared_lock(&piece, LW_SHARED);
	news = shared->news;
	shared_unlock(&piece);
	return news;
}

void
marks_tell_created(Oid database)
{
	shared_lock(&piece, LW_EXCLUSIVE);
	shared->creations[shared->ncreations++ % CREATIONS] = database;
	shared_unlock(&piece);
}

uint32
marks_creations(void)
{
	uint32		n;

	shared_lock(&piece, LW_SHARED);
	n = shared->ncreations;
	shared_unlock(&piece);
	return n;
}

bool
marks_was_created(Oid database, uint32 since)
{
	bool		was_created;

	shared_lock(&piece, LW_SHARED);
	was_created = shared->ncreations - since > CREATIONS;
	for (uint32 n = since; n != shared->ncreations && !was_created; n++)
		was_created = shared->creations[n % CREATIONS] == database;
	shared_unlock(&piece);
	return was_created;
}
