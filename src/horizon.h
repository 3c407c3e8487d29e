/*
 * horizon.h
 *		The settled horizon of a source: the bound below which no transaction
 *		there can still add a row.
 */
#ifndef INCLOAD_HORIZON_H
#define INCLOAD_HORIZON_H

#include "postgres.h"

#include "checkpoint.h"
#include "shape.h"
#include "source.h"

typedef struct Horizon
{
	Bound		bound;			/* not set: nothing is settled yet */
	const char *guarantee;		/* "exact" or "settle" */
	const char *held_back_by;	/* what keeps the bound from going further; NULL: nothing */
	TimestampTz held_since;		/* when that began; 0: not known */
	const char *relations;		/* behind the source, see witness.h; NULL where that cannot be asked */
	const char *epoch;			/* of the source: while it stays, virtual transactions keep their names */
	List	   *noted;			/* of NotedBound *, for the checkpoint */
	Bound		restart;		/* set: the source went back, by consent, and the checkpoint goes with it */
	bool		reread;			/* everything has to be read again */
	bool	   *lasts;			/* where an ERROR says that it stands until somebody decides */
	Bound		fallback;		/* as bound, noted and restart: for the id of rows without a watermark */
	List	   *fallback_noted;
	Bound		fallback_restart;
	Bound		future;			/* set: watermarks above count neither for the checkpoint nor for the lag */
	uint64		mark;			/* each transaction of the source below this xid8 is over; 0: not known */
	bool		mark_holds;		/* and the checkpoint's own mark still tells what was seen */
	char	   *definition_hash;
	TimestampTz source_clock;	/* when the run began, by the source's clock */
	int64		left_out;		/* microseconds that local time left out in the lookback, as summer time began */
} Horizon;

/* sends ahead what horizon_observe() is likely to ask in a first run */
extern void horizon_foresee(Source *source, const Job *job);

/*
 * Must be called before the snapshot that reads the rows is taken. 55000 where
 * the source is not what the checkpoint was made for (another server, ids that
 * went backwards, a new timeline without a key), unless everything is read anyway (is_full). *lasts is
 * set if that stands even when the reason goes away; NULL: the caller does not ask.
 */
extern Horizon *horizon_observe(Source *source, const Job *job, const Shape *shape,
								const Checkpoint *checkpoint, bool is_full, bool *lasts);

/* what was found out about the source takes the checkpoint back, or the mark away */
extern void horizon_correct(const Horizon *horizon, Checkpoint *checkpoint);

#endif							/* INCLOAD_HORIZON_H */
