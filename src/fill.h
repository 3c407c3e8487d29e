/*
 * fill.h
 *		The way in which a run's rows get into the target.
 */
#ifndef INCLOAD_FILL_H
#define INCLOAD_FILL_H

#include "postgres.h"

#include "utils/relcache.h"

#include "checkpoint.h"
#include "job.h"
#include "shape.h"

typedef enum FillWay
{
	FILL_APPLY,					/* by INSERT or MERGE, from the stage */
	FILL_FIRST_LOAD,			/* the target is empty: straight into a new heap */
	FILL_SWAP					/* a full refresh: into a new heap, whatever the old one has */
} FillWay;

typedef struct Fill
{
	FillWay		way;
	const char *obstacle;		/* what keeps a first load or a swap from being; NULL: nothing */
} Fill;

/* how a run would do it, as things are now; nothing is locked */
extern Fill fill_foresee(const Job *job, const Shape *shape, const Checkpoint *checkpoint,
						 bool is_full, bool in_batches);

/*
 * How a run does it that begins. FILL_FIRST_LOAD is had only with NEW_HEAP_LOCK
 * on the target, which is taken if it is to be had at once. A swap that cannot
 * be is an ERROR (55000).
 */
extern Fill fill_choose(const Job *job, const Shape *shape, const Checkpoint *checkpoint,
						bool is_full, bool in_batches);

/* why the target of a job cannot be given a new heap, whatever it holds; NULL: it can */
extern const char *fill_obstacle(const Job *job, const Shape *shape);

/* likewise, why rows cannot go into the target beside those that it has, otherwise than by INSERT */
extern const char *fill_straight_obstacle(const Job *job, const Shape *shape);

/* the same of one of its partitions that have rows themselves, where that goes beyond the target's own */
extern const char *fill_partition_obstacle(Relation partition);

/* an ERROR (55000) for a job that is to be refreshed by swap and cannot be */
extern void fill_require_swap(const Job *job, const Shape *shape);

#endif							/* INCLOAD_FILL_H */
