/*
 * retry.h
 *		Rows that were put aside, on their way into the target once more.
 */
#ifndef INCLOAD_RETRY_H
#define INCLOAD_RETRY_H

#include "postgres.h"

#include "job.h"
#include "shape.h"
#include "source.h"
#include "stage.h"

/* Retry: what a run that does it has found, and what became of it */
typedef struct Retry
{
	char	   *tried;			/* the reject_ids, as an array */
	int64		found;			/* rejects in all */

	int64		applied;
	int64		rejected;		/* are there still */
	int64		gone;			/* the source no longer has them */
} Retry;

/*
 * Stages the rejects of a job: with a key as the source has them now, since a row of then
 * could overwrite a newer one; without, as they were read.
 */
extern void retry_read(Retry *retry, const Job *job, const Shape *shape, Source *source, Stage *stage);

/* after they were applied, and those that are bad still put aside again */
extern void retry_settle(Retry *retry, const Job *job, const Shape *shape);

#endif							/* INCLOAD_RETRY_H */
