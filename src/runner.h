/*
 * runner.h
 *		Background workers that run jobs.
 */
#ifndef INCLOAD_RUNNER_H
#define INCLOAD_RUNNER_H

#include "postgres.h"

#include "postmaster/bgworker.h"

#include "slots.h"

typedef enum RunnerStart
{
	RUNNER_STARTED,
	RUNNER_NO_SLOT,				/* max_worker_processes, or the database's workers are held off */
	RUNNER_NO_WORKER			/* the server has no worker process left */
} RunnerStart;

/* an error (55000) where the server has no workers for a role without LOGIN, and this is one */
extern void runner_require_login(Oid owner, const char *owner_name);

/* starts a worker that connects to this database as the owner, and begins with the task */
extern RunnerStart runner_start(Oid owner, const Task *task, SlotRef *ref, BackgroundWorkerHandle **handle);

#endif							/* INCLOAD_RUNNER_H */
