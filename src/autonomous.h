/*
 * autonomous.h
 *		A statement that commits whatever becomes of the caller's transaction.
 */
#ifndef INCLOAD_AUTONOMOUS_H
#define INCLOAD_AUTONOMOUS_H

#include "postgres.h"

/*
 * Runs one statement of incload's own in a short-lived background worker, as
 * superuser, in a transaction of its own, and waits for its end (5 seconds at
 * most). It must need nothing that the calling transaction holds. False, after
 * a WARNING, when it could not be run. May be called while an error is handled.
 */
extern bool autonomous_execute(const char *sql);

#endif							/* INCLOAD_AUTONOMOUS_H */
