/*
 * scheduler.h
 *		The background worker that starts the jobs of a database when they are due.
 */
#ifndef INCLOAD_SCHEDULER_H
#define INCLOAD_SCHEDULER_H

#include "postgres.h"

#include "postmaster/bgworker.h"

#include "slots.h"

/*
 * Starts one in a database. By hand: it comes back by itself after a crash of the
 * server, where a launcher looks after its own. False where there is one
 * already, or no room for another.
 */
extern bool scheduler_start(Oid database, bool by_hand, SlotRef *ref, BackgroundWorkerHandle **handle);

#endif							/* INCLOAD_SCHEDULER_H */
