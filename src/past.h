/*
 * past.h
 *		The runs of a job in the last 30 days, as objectives look at them.
 */
#ifndef INCLOAD_PAST_H
#define INCLOAD_PAST_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "outcome.h"

#define PAST_DAYS 30

/* State: what the target is as of, from the end of one successful run to that of the next */
typedef struct State
{
	TimestampTz since;			/* the end of that run */
	TimestampTz as_of;			/* its start, or a later one of those before it */
} State;

typedef struct Past
{
	TimestampTz at;				/* nothing after it is known */
	Outcome    *outcomes;		/* by finished_at; reaches back to the last success before the time asked for */
	int			n;
	State	   *states;			/* by "since" */
	int			nstates;
} Past;

/*
 * What is on record of the job as of a time, and at least from another time on; by the active
 * snapshot. No more is read than what is needed, however long the history is.
 */
extern Past *past_read(int64 job_id, TimestampTz from, TimestampTz at);

/* the last state that had come by then; -1 for none */
extern int past_state_at(const Past *past, TimestampTz at);

/* the outcome by which it had come; without one, the first */
extern int past_outcome_at(const Past *past, TimestampTz at);

/* Findings: what the comparisons of a job have found after a time */
typedef struct Findings
{
	TimestampTz from;			/* given by the caller */
	int64		comparisons;
	int64		source_rows;
	int64		target_rows;
	int64		missing;
	int64		extra;
	int64		duplicate;
} Findings;

/* adds up those until a time, for each of the times from which on they are asked for */
extern void past_findings(int64 job_id, TimestampTz to, Findings *findings, int n);

#endif							/* INCLOAD_PAST_H */
