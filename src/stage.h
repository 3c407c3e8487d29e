/*
 * stage.h
 *		The rows of one batch, between being read and being applied.
 */
#ifndef INCLOAD_STAGE_H
#define INCLOAD_STAGE_H

#include "postgres.h"

#include "utils/queryenvironment.h"
#include "utils/tuplestore.h"

#include "brake.h"
#include "job.h"
#include "shape.h"

/* the name under which statements see the staged rows */
#define STAGE_NAME "incload_stage"

struct NewHeap;
struct Rejects;
struct Straight;

typedef struct Stage
{
	const Shape *shape;
	const Job  *job;
	NullWatermark null_watermark;
	int64		batch_rows;		/* a batch is full from here on; 0: never */
	bool		cut_at_key;		/* a batch may end inside a tie; else it goes on to its end */
	struct Rejects *rejects;	/* where a reader puts rows that cannot be staged; NULL: they are an ERROR */
	struct NewHeap *heap;		/* rows pass through into it and are not kept; NULL: they are kept */

	struct Straight *straight;	/* takes rows that are certain to be new; NULL: they are kept, too */

	/* the batch */
	MemoryContext context;
	Tuplestorestate *rows;
	int64		nrows;			/* rows in it now */
	int64		nstraight;		/* rows that are in the target instead */
	int64		nmarked;		/* of those, rows that are marked as deleted; a heap does not get them */
	int64		nsuperseded;	/* rows that gave way to a newer one of the same key */
	int64		nrejected;		/* rows that were read and could not be staged */

	/* what was put in so far, over all batches */
	bool		has_last;		/* whether the last row put in had a watermark */
	Datum		last_watermark; /* of the last row put in, in reading order */
	List	   *last_key;		/* its key as text (char *), where cut_at_key */
	bool		has_newest;
	Datum		newest_watermark;	/* the largest of all */
	Bound		future;			/* above it, a watermark is ahead of the source's clock */
	int64		nfuture;		/* how many rows have one */
	bool		has_present;
	Datum		present_watermark;	/* the largest of the others */

	Brake		brake;			/* the option max_rate */

	/* a row that was read but belongs to the next batch */
	MinimalTuple carried;
} Stage;

extern Stage *stage_create(const Job *job, const Shape *shape, int64 batch_rows,
						   bool cut_at_key, MemoryContext context);

/* starts a batch, with the row that the last one left over if there is one */
extern void stage_begin_batch(Stage *stage);

/* forgets a row left over: the next read starts again from the last bound */
extern void stage_forget_carried(Stage *stage);

/*
 * Puts a row in. False when it was not taken into this batch, which is full:
 * the row is kept for the next, and the reader has to stop. A NULL in the key
 * is an ERROR (23502), so is a missing watermark where the policy says so.
 */
extern bool stage_put(Stage *stage, Datum *values, bool *nulls);

/* would a row with NULLs there be an ERROR? */
extern bool stage_refuses(const Stage *stage, const bool *nulls);

/* has it as many rows as a batch is to have? */
extern bool stage_has_batch(const Stage *stage);

/* is a batch full that could end before any row? */
extern bool stage_is_full(const Stage *stage);

/* keeps of each key the row that was read last */
extern void stage_reduce(Stage *stage);

/* fills the batch with what a query of incload's own returns, in the shape of its rows */
extern void stage_fill(Stage *stage, const char *sql, QueryEnvironment *environment);

/* puts the rows that were kept into a new heap */
extern void stage_pour(Stage *stage, struct NewHeap *heap);

/* what makes a statement see the rows as STAGE_NAME */
extern QueryEnvironment *stage_environment(Stage *stage);

/* the same under another name, beside other relations */
extern void stage_show(Stage *stage, const char *name, QueryEnvironment *environment);

/* keeps of the rows those that a SELECT of all their columns returns; how many are gone */
extern int64 stage_keep(Stage *stage, const char *sql, QueryEnvironment *environment);

/* lets the rows go; before a commit */
extern void stage_end_batch(Stage *stage);

#endif							/* INCLOAD_STAGE_H */
