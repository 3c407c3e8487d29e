/*
 * run.h
 *		One run of a job, from lock to history.
 */
#ifndef INCLOAD_RUN_H
#define INCLOAD_RUN_H

#include "postgres.h"

#include "job.h"

/* takes the job's lock until the end of the transaction, to change or drop it: waits for the end of a run, as DDL does */
extern void run_lock_to_change(const Job *job);

/* is nobody running the job, or changing it? Windows of a backfill do not count. Takes no lock that stays. */
extern bool run_may_begin(const Job *job);

/* an error (55P03) where somebody runs the job now; who comes next is not kept from it */
extern void run_require_idle(const Job *job);

/* the PID of the process that runs the job, 0 for none */
extern int	run_holder(const Job *job);

#endif							/* INCLOAD_RUN_H */
