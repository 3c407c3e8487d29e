/*
 * target.h
 *		The table that a job writes: whether it can be written, and its making.
 */
#ifndef INCLOAD_TARGET_H
#define INCLOAD_TARGET_H

#include "postgres.h"

#include "utils/relcache.h"

#include "job.h"
#include "shape.h"

/* errors unless the job's owner can load into the target as the strategy, or a full refresh, needs it */
extern void target_require_writable(const Job *job, bool is_full);

/*
 * Errors (55000) where the target was dropped and created again in this very
 * database: its checkpoint is of rows that are gone. A restored one is accepted.
 */
extern void target_require_same(const Job *job);

/* names of the columns of the target's primary key (char *), NIL for none */
extern List *target_primary_key(Oid target);

/* is there a unique index on the target within the key's columns (char *), that a row cannot evade? */
extern bool target_key_is_unique(Relation target, List *key);

/*
 * Creates the target like the columns that the source sends (LoadColumn *, with
 * types), with the key as primary key, as the current user. Returns its OID.
 */
extern Oid	target_create(const char *name, List *columns, List *key);

#endif							/* INCLOAD_TARGET_H */
