/*
 * judge.h
 *		The rows of ranges that differ, one by one: what differs, and its mending.
 *
 * Call it while the job's lock is held: then the target is as the last run left it,
 * or as somebody's hand did, and what is read at the source is no older than it.
 */
#ifndef INCLOAD_JUDGE_H
#define INCLOAD_JUDGE_H

#include "postgres.h"

#include "utils/tuplestore.h"

#include "merge.h"
#include "query.h"
#include "ranges.h"
#include "reject.h"

/* Judge: what it is to do, and what it has found */
typedef struct Judge
{
	Ranges	   *ranges;
	ReadOrder	order;
	const char *pending;		/* SQL: a row that the next run reads anyway; it is no difference */
	const char *news;			/* SQL: a row that was written since the last run; NULL: nothing tells */
	bool		may_double;		/* nothing here keeps a key from being there twice */
	bool		only_keys;		/* rows that are here and not there; no other difference */
	bool		inserts;		/* what is missing is inserted */
	bool		updates;		/* what has changed at the source is updated */
	bool		updates_all;	/* and what may have been changed here, too */
	bool		deletes;		/* what the source does not have is deleted */
	Rejects    *rejects;		/* gets what the target refuses; NULL: that is an error */
	int64		most_deletes;	/* more are refused; -1: no limit */
	Tuplestorestate *result;	/* gets a row of incload_reconcile for each difference; NULL: nobody wants them */
	TupleDesc	result_desc;

	int64		missing;		/* there and not here */
	int64		extra;			/* here and not there */
	int64		changed;		/* on both sides, and not the same */
	int64		duplicates;		/* keys that are here more than once */
	int64		conflicts;		/* of those, the ones that were not written at the source since the last run */
	int64		rows_read;		/* moved for this */
	int64		superseded;		/* of these, rows of which the source has another one with the same key */
	ApplyCounts applied;
} Judge;

/*
 * Looks at the rows of these ranges. 55000 once more rows are to be deleted than
 * most_deletes, and then nothing of it may be kept.
 */
extern void judge_ranges(Judge *judge, List *list);

#endif							/* INCLOAD_JUDGE_H */
