/*
 * job_trial.h
 *		Trying a job out before it is stored.
 */
#ifndef INCLOAD_JOB_TRIAL_H
#define INCLOAD_JOB_TRIAL_H

#include "postgres.h"

#include "job.h"

/*
 * Resolves the names of a job, chooses what is missing (a key only if none was
 * given, not even an empty one), makes its target if that is missing, and
 * refuses what cannot work. Names and OIDs are filled in.
 */
extern void job_try_out(Job *job, bool given_strategy, bool given_key);

#endif							/* INCLOAD_JOB_TRIAL_H */
