/*
 * dispatch.h
 *		A scheduler's jobs on their way to runners.
 *
 * What is due now or will be before the next time is read from the agenda into a
 * queue, each owner in turn, once a naptime. What of it is due is given to a runner
 * that is free, and no table is asked for it.
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
