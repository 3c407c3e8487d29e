/*
 * sweep.h
 *		What a scheduler keeps ready for incload.slo, and the events that come of it.
 */
#ifndef INCLOAD_SWEEP_H
#define INCLOAD_SWEEP_H

#include "postgres.h"

/*
 * Computes the figures of the jobs whose figures have become old, a few of them a call, in a
 * transaction of its own; an error is reported and ends nothing. Allocates in "context", which is reset.
 */
extern void sweep_some(MemoryContext context);

#endif							/* INCLOAD_SWEEP_H */
