/*
 * history.h
 *		The record of a run.
 */
#ifndef INCLOAD_HISTORY_H
#define INCLOAD_HISTORY_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "job.h"
#include "merge.h"
#include "text_rows.h"

/* Stop: why a job stops until somebody decides */
typedef struct Stop
{
	const char *code;			/* of the event */
	bool		lasts;			/* even if the reason goes away by itself, as something may be lost by then */
} Stop;

/* RunRecord: one row of incload.run, while it is being made */
typedef struct RunRecord
{
	int64		run_id;
	const Job  *job;
	const char *kind;			/* incremental, full */
	const char *status;			/* running, succeeded, failed, cancelled, skipped */
	const char *trigger;		/* who has asked for it: manual, start, schedule */
	int			attempt;		/* from 1, for a run that is retried */
	TimestampTz started_at;
	bool		is_finished;
	char	   *watermark_from; /* text, or NULL */
	char	   *watermark_to;
	int64		rows_read;
	ApplyCounts counts;
	int			batches;
	int64		bytes_read;
	bool		has_lag;
	int64		lag;			/* microseconds */
	char	   *sqlstate;
	char	   *error;
	char	   *hint;
	Datum		row;			/* of incload.run, as it was last written */
} RunRecord;

/* a new record, with a number of its own if run_id is 0; nothing is written */
extern RunRecord *history_begin(const Job *job, const char *kind, int64 run_id);

/* writes the record as it is now, inside this transaction, and sets its row */
extern void history_write(RunRecord *record);

/* Comparison: what incload_reconcile has found */
typedef struct Comparison
{
	const char *mode;			/* count, hash, rows */
	int64		source_rows;
	int64		target_rows;
	int			ranges;			/* that were compared by checksum or count */
	int			differing;		/* of those, the ones whose counts differ, by mode count */
	int64		missing;
	int64		extra;
	int64		changed;
	int64		duplicates;
	int64		conflicts;
	int64		repaired;
} Comparison;

/* writes it beside the record of its run */
extern void history_write_comparison(const RunRecord *record, const Comparison *comparison);

/* plans that for later */
extern void history_prepare(const RunRecord *record);

/*
 * Writes a run that failed, was cancelled or was skipped, outside of this
 * transaction, which will roll back. For use while the error is handled. Where
 * the job stops until somebody decides, "stop" says why, else it is NULL.
 */
extern void history_write_outside(RunRecord *record, const char *status, const ErrorData *error,
								  const Stop *stop);

/* the same inside this transaction, for a background worker, which has ended the other one */
extern void history_write_failure(RunRecord *record, const char *status, const ErrorData *error,
								  const Stop *stop);

/* a run that incload_start() has promised, and that was cancelled before it began */
extern void history_cancel_start(int64 run_id);

/* a scheduled run that was left out, and why */
extern void history_write_skipped(const Job *job, int attempt, const char *reason);

/* a scheduled run that no worker can be started for */
extern void history_write_refused(const Job *job, int attempt, const char *error, const char *hint);

/* a scheduled run whose worker ended without a word: closes its record, or writes one */
extern void history_write_lost(const Job *job, int attempt);

/* runs of this job, but for this one, that are on record as running have died: nobody holds its lock */
extern void history_close_dead(const Job *job, int64 run_id);

/* the highest run_id; 0 without any */
extern int64 history_newest_run(void);

/*
 * Such runs of all jobs, up to a run_id: whose process does not hold the job's lock. Rows of run_id,
 * job_id, whether it was run by its schedule, started_at, and whether somebody else holds it.
 */
extern TextRows *history_dead_runs(int64 newest);

/* closes one of them; false where it is over, or somebody holds the job's lock */
extern bool history_close_dead_run(int64 run_id);

/* takes at most "limit" runs and events out that are older than that, but for what a job's status needs; how many */
extern int	history_prune(int64 minutes, int limit);

#endif							/* INCLOAD_HISTORY_H */
