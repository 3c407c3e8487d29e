/*
 * drift.h
 *		What a run does about columns of its source that are new, gone, or of another type.
 */
#ifndef INCLOAD_DRIFT_H
#define INCLOAD_DRIFT_H

#include "postgres.h"

#include "history.h"
#include "job.h"
#include "source.h"

/*
 * Compares the source's columns with what they were at the last run, and with the
 * foreign table and the target, as the option schema_change says: tells what is new, lets
 * both follow, or stops by 55000, for which "stop" is set. Before the shape is built, as the
 * job's owner and inside the run's transaction. Of what did not change it costs no more than a look.
 */
extern void drift_follow(Source *source, const Job *job, const RunRecord *record, Stop *stop);

/* columns that were gone at the last run are likely to be so still: they are not asked for ahead */
extern void drift_foresee(Source *source, const Job *job);

/* the source's columns as they are now, and those of them that the foreign table has not, as JSON */
extern char *drift_columns(Source *source);
extern char *drift_absent(Source *source);

/* from here on, those that the job was tried out with are not new */
extern void drift_remember(const Job *job);

/* what the columns were is forgotten: the next run takes them as they are, or, with evolve, follows all of them */
extern void drift_forget(int64 job_id);

/* evolve needs to alter both sides: 42501, or 42809 for a target that takes no columns by itself */
extern void drift_require_alterable(const Job *job);

#endif							/* INCLOAD_DRIFT_H */
