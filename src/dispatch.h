/*
 * dispatch.h
 *		A scheduler's jobs on their way to runners.
 *
 * What is due is read from the agenda into a queue, each owner in turn, once a
 * naptime or when the queue is empty; a runner that becomes free takes the next of the
 * queue, and asks no table for it.
 */
#ifndef INCLOAD_DISPATCH_H
#define INCLOAD_DISPATCH_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* once a process, in a memory context that lives as long */
extern void dispatch_begin(MemoryContext context);

/*
 * Inside a transaction: looks after the runs that were started, starts what is
 * due, and windows of backfills with the runners that are left. Returns when to
 * look again.
 */
extern TimestampTz dispatch_look(void);

/* that transaction has committed, or not: what it has settled is forgotten, or settled again */
extern void dispatch_end_look(bool has_committed);

#endif							/* INCLOAD_DISPATCH_H */
