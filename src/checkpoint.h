/*
 * checkpoint.h
 *		How far a job is loaded for certain.
 */
#ifndef INCLOAD_CHECKPOINT_H
#define INCLOAD_CHECKPOINT_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "watermark.h"

struct Shape;

/*
 * NotedBound: a bound that will be settled once each of some virtual
 * transactions of the source is over, or, where those cannot be seen, once it
 * is old enough.
 */
typedef struct NotedBound
{
	Bound		bound;
	TimestampTz at;				/* when it was noted, by the source's clock */
	List	   *waits;			/* of char *: virtual transactions, see witness.h */
} NotedBound;

/* Checkpoint: incload.checkpoint, its values as the watermark's type has them */
typedef struct Checkpoint
{
	int64		job_id;
	Bound		bound;			/* everything below it is loaded */
	List	   *noted;			/* of NotedBound *, oldest first */
	Bound		fallback;		/* the same for the id of rows without a watermark */
	List	   *fallback_noted;
	const char *guarantee;		/* NULL before the first run */
	const char *held_back_by;	/* NULL: nothing */
	const char *epoch;			/* of the source, at the last run */

	/*
	 * What was seen: below this place, rows whose transaction is older than
	 * mark. For the watermark xmin, mark is all there is.
	 */
	Bound		seen;			/* not set: nothing */
	bool		seen_null;		/* rows without a watermark, too */
	uint64		mark;			/* xid8 of the source; 0: none */
	const char *definition_hash;	/* of what was read, and for which target */
	char	   *loaded_to;		/* the newest watermark ever loaded, as text */
	const char *relations;		/* of the source, at the last run: see witness.h */
	const char *was_type;		/* all this was of that type, and says nothing of another; NULL: it is the same */
} Checkpoint;

/* reads it, with the types that the job's shape has; for_update locks the row until the transaction ends */
extern Checkpoint *checkpoint_read(int64 job_id, const struct Shape *shape, bool for_update);
extern void checkpoint_write(const Checkpoint *checkpoint, const struct Shape *shape);

#endif							/* INCLOAD_CHECKPOINT_H */
