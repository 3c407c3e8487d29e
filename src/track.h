/*
 * track.h
 *		One thing that a job tracks, and how far it is settled.
 */
#ifndef INCLOAD_TRACK_H
#define INCLOAD_TRACK_H

#include "postgres.h"

#include "checkpoint.h"
#include "shape.h"

/*
 * Track: the watermark, or the id that the option watermark_fallback names for
 * rows without one. Each has bounds of its own, that settle by the same rules.
 */
typedef struct Track
{
	const char *name;			/* as the job has it */
	const char *expression;		/* SQL over the source's columns */
	const WatermarkType *type;
	WatermarkFeed feed;
	bool		is_unique;		/* no two rows have the same value */
	Bound		reached;		/* the checkpoint's */
	List	   *was_noted;		/* likewise */

	Bound		bound;			/* settled: no row can come below */
	List	   *noted;			/* of NotedBound *: to be settled later */
	Bound		restart;		/* set: the source went back, by consent, and the checkpoint goes with it */
} Track;

/* moves the track's bound up to this one, if it is higher */
extern void track_settle_at(Track *track, const Bound *bound);

/* settles a bound now if it waits for nobody, else notes it for later; "now" is the source's clock */
extern void track_settle_or_note(Track *track, const Bound *bound, List *waits, TimestampTz now);

/*
 * Bounds of earlier runs: settled where all they waited for is gone, else kept.
 * "prepared" are those of the open ones that have written to the source.
 */
extern void track_review(Track *track, List *open, List *prepared);

/*
 * The same where nobody can tell who is open: bounds that were noted long
 * enough ago (settled_before) are settled. The newest value, if there is one, is
 * noted.
 */
extern void track_settle_by_age(Track *track, const Bound *newest, TimestampTz settled_before,
								TimestampTz now);

#endif							/* INCLOAD_TRACK_H */
