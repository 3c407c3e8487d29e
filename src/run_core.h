/*
 * run_core.h
 *		The parts of a run that a session and a background worker share.
 */
#ifndef INCLOAD_RUN_CORE_H
#define INCLOAD_RUN_CORE_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/lock.h"

#include "batch.h"
#include "job.h"

/* a run of the job, in a context that outlives its transactions; its record gets a new number for run_id 0 */
extern Run *run_new(Job *job, MemoryContext context, bool refresh, bool in_batches, int64 run_id);

/*
 * The option statement_timeout begins to count. Returns when the timer of before was
 * to go off, 0 for none, for run_end().
 */
extern TimestampTz run_start_timeout(const Job *job);

/* what a function does with a job inside the caller's transaction */
typedef void (*RunBody) (Run *run, void *argument);

/*
 * Does it for the job of that name, as a run that is on record whatever becomes of
 * it. Returns the row of incload.run that was written last.
 */
extern Datum run_inside(const char *name, RunBody body, void *argument);

/* takes the job's lock until the end of the transaction; waits for a run that is under way */
extern void run_wait_for_lock(Run *run);

/* from lock to history, committing after each batch by run->commit; the record of a paused job's run is "skipped" */
extern void run_batches(Run *run);

/* all batches of a run whose lock is held */
extern void run_to_end(Run *run);

/* from here on, a call of this very job by the run's own SQL is refused */
extern void run_begin_inside(Run *run);

/* whatever became of the run, in the end or in an error: gives back timer and lock */
extern void run_end(Run *run, TimestampTz timeout);

/*
 * The end of a run that failed: counts go back to what is committed. Takes the
 * error off the stack and returns it.
 */
extern ErrorData *run_take_failure(Run *run);

/* the status of a run that failed by this error, and the event if somebody has to decide about it, else NULL */
extern const char *run_failure_status(const Run *run, const ErrorData *error);
extern const Stop *run_failure_event(const Run *run, const ErrorData *error);

/* the job's advisory lock */
extern void run_locktag(const Job *job, LOCKTAG *tag);
extern void run_unlock_session(const Job *job, LOCKMODE mode);

#endif							/* INCLOAD_RUN_CORE_H */
