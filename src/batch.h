/*
 * batch.h
 *		One batch of a run, from reading to checkpoint.
 */
#ifndef INCLOAD_BATCH_H
#define INCLOAD_BATCH_H

#include "postgres.h"

#include "checkpoint.h"
#include "fill.h"
#include "history.h"
#include "horizon.h"
#include "job.h"
#include "new_heap.h"
#include "progress.h"
#include "query.h"
#include "reject.h"
#include "retry.h"
#include "role.h"
#include "shape.h"
#include "source.h"
#include "stage.h"
#include "trouble.h"
#include "window.h"

/* Piece: a range of watermarks as text, the low end included, the high end not */
typedef struct Piece
{
	char	   *low;
	char	   *high;
} Piece;

/* Run: everything that a run knows, from its first batch to its last */
typedef struct Run
{
	const Job  *job;
	bool		is_full;		/* reads everything, and makes the target equal to it */
	const Piece *piece;			/* of a backfill: reads this range alone, and moves no checkpoint; or NULL */
	Retry	   *retry;			/* takes up what was put aside alone, and moves no checkpoint; or NULL */
	bool		in_batches;		/* commits after each batch */
	void		(*commit) (void);	/* how, and begins the next transaction */
	bool		is_locked;		/* holds the job's lock */
	Progress   *progress;		/* what others see of it; NULL before it begins */
	MemoryContext context;		/* outlives the commits */

	RunRecord  *record;
	ApplyCounts committed;		/* the counts as of the last commit, likewise below */
	int64		committed_read;
	int			committed_batches;

	/* what the session was told of, and when */
	ApplyCounts told;
	int64		told_read;
	int			told_batches;
	TimestampTz told_at;

	Source	   *source;
	Shape	   *shape;
	Checkpoint *checkpoint;
	Horizon    *horizon;
	Window		window;			/* what is still to be read */
	ReadOrder	order;
	Fill		fill;			/* how its rows get into the target */
	NewHeap    *heap;			/* where they go, but for FILL_APPLY */
	Stage	   *stage;
	Trouble		writing;		/* what errors are told to mean while rows are written */
	Rejects    *rejects;		/* rows that are put aside; NULL: they fail the run */
	bool		is_open;		/* the reading query is */
	bool		has_none;		/* it is known that it has no rows */
	int64		reading;		/* microseconds that the rows have taken to read */
	bool		reads_null_apart;	/* rows without a watermark get a query of their own */
	Stop		stop;			/* what a 55000 would be now: source or target are not what they were */
	struct Run *outer;			/* the run whose SQL has called this one */
} Run;

/*
 * Reads a batch, applies it, moves the checkpoint and writes the record, as the
 * job's owner and inside the current transaction; the first one also connects
 * and plans. False when it was the last one.
 */
extern bool run_batch(Run *run);

/* begins to act as the job's owner, with the settings that the job's options make */
extern void batch_enter_owner(const Job *job, RoleBracket *bracket);

/* tells of a batch that is committed by a NOTICE, and of many small ones by one now and then */
extern void run_report_batch(Run *run, bool is_last);

#endif							/* INCLOAD_BATCH_H */
