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

/* RunRecord: one row of incload.run, while it is being made */
typedef struct RunRecord
{
	int64		run_id;
	const Job  *job;
	const char *kind;			/* incremental, full */
	const char *status;			/* running, succeeded, failed, cancelled, skipped */
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
} RunRecord;

/* a new record with its number; nothing is written */
extern RunRecord *history_begin(const Job *job, const char *kind);

/* writes the record as it is now, inside this transaction */
extern void history_write(const RunRecord *record);

/*
 * Writes a run that failed, was cancelled or was skipped, outside of this
 * transaction, which will roll back. For use while the error is handled. Where
 * the job stops until somebody decides, "stop" is the code of an event, else NULL.
 */
extern void history_write_outside(RunRecord *record, const char *status, const ErrorData *error,
								  const char *stop);

/* runs of this job that are on record as running have died: nobody holds its lock */
extern void history_close_dead(const Job *job);

#endif							/* INCLOAD_HISTORY_H */
