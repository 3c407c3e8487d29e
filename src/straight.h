/*
 * straight.h
 *		Rows that are certain to be new go into the target as they are read.
 */
#ifndef INCLOAD_STRAIGHT_H
#define INCLOAD_STRAIGHT_H

#include "postgres.h"

#include "job.h"
#include "shape.h"
#include "trouble.h"

/* so many rows of a run are staged in any case: fewer are not worth it */
#define STRAIGHT_FROM 1000

typedef struct Straight Straight;

/*
 * For the batches of a run that adds to its target; nothing is looked at before a
 * run is worth it. The texts are those of errors while rows are put in.
 */
extern Straight *straight_create(const Job *job, const Shape *shape, const Trouble *texts, MemoryContext context);

/* is that row of the batch new, and many enough have come? If not, it has to be staged. */
extern bool straight_takes(Straight *straight, Datum *values);

/* a row that it takes */
extern void straight_put(Straight *straight, Datum *values, bool *nulls);

/* the last rows of a batch; how many it has taken */
extern int64 straight_end_batch(Straight *straight);

/* what keeps rows from it; NULL: nothing */
extern const char *straight_obstacle(const Job *job, const Shape *shape);

#endif							/* INCLOAD_STRAIGHT_H */
