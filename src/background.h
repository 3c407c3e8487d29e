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
 * What roles and databases have set, and what the settings of the server are, must not keep a
 * worker from its books or make them lie: such settings are its own, also after RESET ALL (but
 * for "role"). Once it is connected.
 */
extern void background_pin_settings(void);

/*
 * Starts it now; this process hears by its latch when it begins and ends. False
 * where max_worker_processes are running already.
 */
extern bool background_start(BackgroundWorker *worker, BackgroundWorkerHandle **handle);

#endif							/* INCLOAD_BACKGROUND_H */
