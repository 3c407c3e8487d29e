/*
 * past.h
 *		The runs of a job in the last 30 days, as objectives look at them.
 */
#ifndef INCLOAD_PAST_H
#define INCLOAD_PAST_H

#include "postgres.h"

#include "datatype/timestamp.h"

#define PAST_DAYS 30

typedef enum OutcomeKind
{
	OUTCOME_SUCCEEDED,			/* of a run of kind incremental or full; so the next */
	OUTCOME_FAILED,
	OUTCOME_BACKFILL			/* a window of a backfill that was loaded */
} OutcomeKind;

/* Outcome: a run that is over; one that was cancelled or skipped is none */
typedef struct Outcome
{
	OutcomeKind kind;
	bool		is_full;
	int64		run_id;
	TimestampTz started_at;
	TimestampTz finished_at;
	int64		rows_read;
	int64		bytes_read;
	char		error_class[3]; /* of its SQLSTATE */
} Outcome;

typedef struct Past
{
	TimestampTz at;				/* nothing after it is known */
	Outcome    *outcomes;		/* by finished_at; reaches back to the last success before the time asked for */
	int			n;
} Past;

/*
 * What is on record of the job as of a time, and at least from another time on. Each call
 * reads the newest runs first and no more than it needs, however long the history is.
 */
extern Past *past_read(int64 job_id, TimestampTz from, TimestampTz at);

/* Findings: what the comparisons of a job have found */
typedef struct Findings
{
	int64		comparisons;
	int64		source_rows;
	int64		target_rows;
	int64		missing;
	int64		extra;
	int64		duplicate;
} Findings;

/* of those between two times, the first one excluded */
extern Findings past_findings(int64 job_id, TimestampTz from, TimestampTz to);

#endif							/* INCLOAD_PAST_H */
