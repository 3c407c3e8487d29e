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

/*
 * The same where the checkpoint is of another type than the watermark is by now,
 * and what it says of the one is not what it would say of the other.
 */
extern bool identity_check_type(const Job *job, const Checkpoint *checkpoint, const Shape *shape);

/*
 * The same where a table has come to those behind the source since the last run, a partition or
 * what a view reads, with rows below the checkpoint. Asks the source.
 */
extern bool identity_check_relations(Source *source, const Job *job, const Shape *shape,
									 const Checkpoint *checkpoint, const SourceState *state);

#endif							/* INCLOAD_IDENTITY_H */
