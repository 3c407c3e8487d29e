/*
 * backfill.h
 *		Ranges of a source that are read again, window by window: incload.batch_window.
 *
 * The ledger says which windows are still to be loaded. A window is marked in the
 * transaction that loads it, and is locked until then: whoever dies has done
 * nothing, and another one takes it. All functions work as the extension's owner,
 * inside the caller's transaction.
 */
#ifndef INCLOAD_BACKFILL_H
#define INCLOAD_BACKFILL_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "batch.h"
#include "job.h"

/* LedgerWindow: one that this transaction has claimed */
typedef struct LedgerWindow
{
	int64		window_id;
	int			attempts;		/* so far */
	Piece		piece;
} LedgerWindow;

/* the next window of a job that nobody has claimed; NULL for none, and then when one may be tried again, 0 for never */
extern LedgerWindow *backfill_claim(const Job *job, TimestampTz *next);

extern void backfill_done(const LedgerWindow *window, int64 run_id, int64 rows_read);

/* it has failed: by what passes, it is tried again until that is over; else it is left, and too many that are left end the backfill */
extern void backfill_failed(const Job *job, const LedgerWindow *window, bool is_passing, const char *error);

/* a runner has ended with a window in its hands, which counts as one that failed; 0: none is known, and all wait a little */
extern void backfill_lost(int64 job_id, int64 window_id);

/* tells, once, that a backfill of the job has come to its end, if that is so */
extern void backfill_tell_end(const Job *job);

/* leaves the windows that nobody has begun; how many */
extern int	backfill_stop(const Job *job);

/* jobs with windows that may be loaded now: rows of job_id, job, owner, and how many workers are wanted */
extern TextRows *backfill_due(void);

#endif							/* INCLOAD_BACKFILL_H */
