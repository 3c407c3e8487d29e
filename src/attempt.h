/*
 * attempt.h
 *		Something that may fail, and takes nothing else along.
 */
#ifndef INCLOAD_ATTEMPT_H
#define INCLOAD_ATTEMPT_H

#include "postgres.h"

/*
 * Does it in a subtransaction. Returns NULL, or the error, in the current memory
 * context, once all that was done is undone. The caller throws again what is
 * not his to bear: a cancel, a full disk.
 */
extern ErrorData *attempt(void (*work) (void *), void *arg);

/* tells the server's log of it, as of an error that nobody has caught, and goes on */
extern void attempt_report(ErrorData *error);

#endif							/* INCLOAD_ATTEMPT_H */
