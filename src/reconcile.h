/*
 * reconcile.h
 *		Source and target compared and made equal, whatever the watermark says.
 */
#ifndef INCLOAD_RECONCILE_H
#define INCLOAD_RECONCILE_H

#include "postgres.h"

#include "batch.h"
#include "judge.h"

/* may incload_reconcile be used for this job? An ERROR (55000, 0A000) where it may not. */
extern void reconcile_require_possible(const Job *job);

/* compares a job by hash, as its options want it, and mends what differs if they do */
extern void reconcile_run(Run *run);

/*
 * What the next run reads anyway, and what was written at the source since the last one,
 * as SQL over the source's columns; NULL: nothing tells of the latter.
 */
extern void reconcile_set_pending(Judge *judge, const Window *next);

/* so many rows of those that the target has may be deleted; -1: any number */
extern int64 reconcile_most_deletes(const Job *job, int64 target_rows);

#endif							/* INCLOAD_RECONCILE_H */
