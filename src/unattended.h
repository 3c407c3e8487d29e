/*
 * unattended.h
 *		Runs in a background worker, where nobody is told.
 */
#ifndef INCLOAD_UNATTENDED_H
#define INCLOAD_UNATTENDED_H

#include "postgres.h"

#include "slots.h"

/*
 * A background worker runs a job, outside of any transaction: commits batch by
 * batch, and whatever becomes of it is on record and, for a scheduled run, on the
 * agenda. Does nothing for a job that is gone, or is no longer this user's.
 */
extern void unattended_run(const Task *task);

/*
 * A background worker loads windows of a job's backfill, each in a transaction: until
 * there is none that may be loaded, or somebody cancels it; where there is a
 * scheduler, for a while.
 */
extern void unattended_backfill(const Task *task);

/* a background worker compares a job by the option reconcile_schedule; what is wrong is an event */
extern void unattended_reconcile(const Task *task);

/* a worker's transaction, with a snapshot */
extern void unattended_begin(void);
extern void unattended_commit(void);

#endif							/* INCLOAD_UNATTENDED_H */
