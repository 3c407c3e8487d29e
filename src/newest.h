/*
 * newest.h
 *		The newest value of a watermark at a source, as a bound, and what ids
 *		have to do with their sequence.
 */
#ifndef INCLOAD_NEWEST_H
#define INCLOAD_NEWEST_H

#include "postgres.h"

#include "checkpoint.h"
#include "horizon.h"
#include "job.h"
#include "source.h"
#include "track.h"
#include "witness.h"

/*
 * A place at the newest value that the source has, up to a limit if that is set;
 * not set where there is none. Another row may come with that very value, unless
 * a sequence or a unique index keeps it from that: then the place is before it,
 * and its rows are looked at again. Without a key they cannot be, and would wait
 * for a newer value that may never come.
 */
extern Bound newest_bound(Source *source, const Job *job, const char *filter, const Track *track,
						  const Bound *limit);

/*
 * The newest number of a track, no further than its sequence has come; where ids
 * went backwards, that is an ERROR. A standby may just be behind what was read elsewhere.
 */
extern Bound newest_number(Horizon *horizon, Source *source, const Job *job, Track *track,
						   const Checkpoint *checkpoint, const SourceState *state,
						   const Bound *limit, bool is_full);

#endif							/* INCLOAD_NEWEST_H */
