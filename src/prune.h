/*
 * prune.h
 *		The option deletes prune: after a run, rows go whose keys the source no longer has.
 */
#ifndef INCLOAD_PRUNE_H
#define INCLOAD_PRUNE_H

#include "postgres.h"

#include "batch.h"

/*
 * Compares the keys of both sides and deletes what the target has beyond the
 * source's, as far as the job is about it. 55000, with everything as it was, for
 * more rows than the option max_delete_fraction allows.
 */
extern void prune_target(Run *run);

/* an ERROR (0A000) where rows of the target do not tell whether the job is about them */
extern void prune_require_possible(const Job *job, const Shape *shape);

/* the first question to the source, for incload_explain */
extern char *prune_question(const Job *job, Source *source, const Shape *shape);

#endif							/* INCLOAD_PRUNE_H */
