/*
 * run.h
 *		One run of a job, from lock to history.
 */
#ifndef INCLOAD_RUN_H
#define INCLOAD_RUN_H

#include "postgres.h"

#include "job.h"

/*
 * Takes the job's lock until the end of the transaction (or of the session),
 * without waiting. 55P03 names the process that has it.
 */
extern void run_lock(const Job *job, bool for_session);

#endif							/* INCLOAD_RUN_H */
