/*
 * window.h
 *		A range of watermarks that one read covers.
 */
#ifndef INCLOAD_WINDOW_H
#define INCLOAD_WINDOW_H

#include "postgres.h"

#include "checkpoint.h"
#include "horizon.h"
#include "job.h"
#include "watermark.h"

typedef struct Window
{
	Bound		low;			/* not set: from the very first */
	Bound		high;			/* not set: to the newest */
	bool		with_null;		/* rows without a watermark, too */
	bool		only_null;		/* no others */
	Bound		null_low;		/* of those, only the ones with a larger fallback, or with none */

	/* rows that an earlier run has seen are not sent again: see checkpoint.h */
	Bound		seen;			/* not set: all are sent */
	bool		seen_null;
	uint64		mark;

	bool		is_empty;		/* there is nothing that may be read yet */
} Window;

/*
 * What the next run of a job reads: from its checkpoint (or start_at, or the
 * first row) to the newest row; to the horizon where a row that is read twice
 * would be doubled.
 */
extern Window window_next(const Job *job, const Shape *shape, const Checkpoint *checkpoint,
						  const Horizon *horizon);

#endif							/* INCLOAD_WINDOW_H */
