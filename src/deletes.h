/*
 * deletes.h
 *		What a job may delete from its target, as its options have it.
 */
#ifndef INCLOAD_DELETES_H
#define INCLOAD_DELETES_H

#include "postgres.h"

#include "job.h"
#include "shape.h"

/* an ERROR (22023) where the options about deletes do not go with each other, or with the strategy */
extern void deletes_check_options(const Job *job);

/* do the runs of this job delete rows of the target? Then its owner needs the right to. */
extern bool deletes_from_target(const Job *job);

/*
 * The job's filter as a condition on a row "t" of the target: rows that do not
 * match it are not the job's to delete. NULL: there is no filter, or the target
 * does not tell, as a column that it names is not loaded as it is, or as it
 * depends on more than the row.
 */
extern char *deletes_scope(const Job *job, const Shape *shape);

#endif							/* INCLOAD_DELETES_H */
