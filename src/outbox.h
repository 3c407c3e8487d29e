/*
 * outbox.h
 *		What of events is to be told, put down in the transaction that makes them.
 *
 * Events and records of runs come here by triggers.
 */
#ifndef INCLOAD_OUTBOX_H
#define INCLOAD_OUTBOX_H

#include "postgres.h"

#include "job.h"

/* a comparison of a job has left no difference: what was told of it is over */
extern void outbox_reconciled(const Job *job, int64 run_id);

#endif							/* INCLOAD_OUTBOX_H */
