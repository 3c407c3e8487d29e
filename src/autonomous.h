/*
 * autonomous.h
 *		A statement that commits whatever becomes of the caller's transaction.
 */
#ifndef INCLOAD_AUTONOMOUS_H
#define INCLOAD_AUTONOMOUS_H

#include "postgres.h"

/*
 * Runs one statement of incload's own in a short-lived background worker, as
 * superuser, in a transaction of its own, and waits for its end (20 seconds at
 * most; it goes on after that). It must need nothing that the calling transaction
 * holds. A WARNING says that it could not be run, or is not yet done. May be
 * called while an error is handled.
 */
extern void autonomous_execute(const char *sql);

#endif							/* INCLOAD_AUTONOMOUS_H */
