/*
 * identity.h
 *		Whether a source is the one that a checkpoint was made for.
 */
#ifndef INCLOAD_IDENTITY_H
#define INCLOAD_IDENTITY_H

#include "postgres.h"

#include "checkpoint.h"
#include "job.h"
#include "witness.h"

/*
 * True if everything is to be read again: the server is on another timeline, or
 * the table another one. 55000 for another server, and where there is no key.
 */
extern bool identity_check(const Job *job, const Checkpoint *checkpoint, const SourceState *state);

#endif							/* INCLOAD_IDENTITY_H */
