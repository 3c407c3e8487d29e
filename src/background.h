/*
 * background.h
 *		Starting a background worker of incload's.
 */
#ifndef INCLOAD_BACKGROUND_H
#define INCLOAD_BACKGROUND_H

#include "postgres.h"

#include "postmaster/bgworker.h"

/*
 * What a worker is, and where it begins. Its name and type are "type". It is
 * restarted restart_seconds after it ended with another code than 0, or never
 * (BGW_NEVER_RESTART).
 */
extern void background_describe(BackgroundWorker *worker, const char *type, const char *function,
								int restart_seconds, Datum arg);

/*
 * Starts it now; this process hears by its latch when it begins and ends. False
 * where max_worker_processes are running already.
 */
extern bool background_start(BackgroundWorker *worker, BackgroundWorkerHandle **handle);

#endif							/* INCLOAD_BACKGROUND_H */
