/*
 * reject.h
 *		Rows that a run puts aside since they cannot be taken, with what they were refused for.
 */
#ifndef INCLOAD_REJECT_H
#define INCLOAD_REJECT_H

#include "postgres.h"

#include "executor/tuptable.h"

#include "job.h"
#include "shape.h"
#include "stage.h"

/*
 * Rejects: what a run has put aside. It is written with the batch that it belongs to,
 * and so is gone with it, too.
 */
typedef struct Rejects
{
	const Job  *job;
	const Shape *shape;
	int64		run_id;
	int64		limit;			/* so many at most */
	int64		count;			/* in all batches so far */
	char	   *first_error;	/* of the run */
	bool		is_retry;		/* of rows that were put aside before: nobody is told again */
	MemoryContext context;		/* outlives the batches */

	/* the batch */
	List	   *rows;			/* of Reject * */
	Tuplestorestate *keys;		/* rows that were not staged, and of which nothing but the key is known; NULL: none */
	int64		nkeys;
} Rejects;

extern Rejects *rejects_create(const Job *job, const Shape *shape, int64 run_id, int64 limit,
							   MemoryContext context);

/* can an error of this code be the fault of the row that met it? Not a lock, a lost right, a full disk. */
extern bool reject_blames_row(int sqlstate);

/*
 * Does something inside a subtransaction. Returns the error, in the current context, if there
 * was one that a row is to blame for, with all that was done undone; any other error is thrown.
 * Where "judging" is given, a row is to blame only while that is true.
 */
extern ErrorData *reject_try(void (*work) (void *), void *arg, const volatile bool *judging);

/*
 * Puts a row aside that was not staged: its values as text in the order of the shape's columns.
 * Not exact: bytes that mean nothing here stand in it as \xNN. An ERROR over the limit.
 */
extern void reject_unstaged(Rejects *rejects, char **values, bool is_exact, const ErrorData *error);

/* the same for one that was staged */
extern void reject_staged(Rejects *rejects, TupleTableSlot *slot, const ErrorData *error);

/* an ERROR, as more rows are bad than may be; "error" is what the last one was refused for */
extern void reject_fail(const Rejects *rejects, const ErrorData *error);

/* the stage with, for a prune, the keys of rows that were not staged; the stage itself where there are none */
extern Stage *rejects_with_keys(const Rejects *rejects, Stage *stage);

/*
 * After a batch was applied. Rejects of earlier runs whose key it has brought once more are
 * obsolete, and all of them are when everything was read; those of this batch are written.
 * "rejects" is NULL where nothing is put aside.
 */
extern void rejects_settle(const Job *job, const Shape *shape, Stage *stage, Rejects *rejects,
						   bool is_full);

/* says at the end of a run that there are rows to look after */
extern void rejects_report(const Rejects *rejects);

/* a row of text values as the text of a JSON object, and the key of it; NULL without a key */
extern char *reject_key_json(const Shape *shape, char **values);

#endif							/* INCLOAD_REJECT_H */
