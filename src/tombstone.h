/*
 * tombstone.h
 *		Tombstones: a relation at the source that lists the keys of deleted rows.
 *
 * They are read at the end of a run, by a source, a horizon and a checkpoint of
 * their own, and so none is missed, however late it commits. Which rows go is
 * decided by the source itself: a tombstone counts only if the source has no
 * row of that key in the very snapshot in which the tombstone is read. A row
 * that was inserted again is not deleted, whatever was read in which order. And
 * all rows of the run were read in a snapshot before, so none of them can bring
 * a deleted row back.
 */
#ifndef INCLOAD_TOMBSTONE_H
#define INCLOAD_TOMBSTONE_H

#include "postgres.h"

#include "batch.h"

typedef struct Tombstones
{
	const Job  *job;			/* whose tombstones they are */
	Source	   *rows;			/* its source, */
	const Shape *rows_shape;	/* as it reads that */
	Job		   *reading;		/* stands for the reading of the tombstones */
	Source	   *source;			/* connected */
	Shape	   *shape;
	Checkpoint *checkpoint;		/* these three by tombstones_look() */
	Horizon    *horizon;
	Window		window;
	int64		nread;			/* these two by tombstones_stage(): all that were read, */
	int64		nspared;		/* and those whose key the source was found to have */
} Tombstones;

/*
 * Connects to the tombstones and works out their shape, or says why they cannot
 * work (22023, 42P01, 42703, 42804). The caller releases the source.
 */
extern Tombstones *tombstones_open(const Job *job, Source *rows, const Shape *rows_shape, MemoryContext context);

/* what the next reading is to cover, all of them for a full refresh; with for_update, the checkpoint is locked */
extern void tombstones_look(Tombstones *tombstones, bool for_update, bool is_full);

/* the SELECT for that; with a limit above zero, of the first ones */
extern char *tombstones_query(const Tombstones *tombstones, int64 limit);

/* the SELECT that asks the source for keys; NULL where the one above has asked already */
extern char *tombstones_question(const Tombstones *tombstones, const char *keys);

/* reads them into a stage, and leaves one a key there, of those that the source has not */
extern Stage *tombstones_stage(Tombstones *tombstones, int64 limit, MemoryContext context);

/* reads the tombstones of a run and deletes by them, once its last row is in the target */
extern void tombstones_apply(Run *run);

#endif							/* INCLOAD_TOMBSTONE_H */
