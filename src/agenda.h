/*
 * agenda.h
 *		When jobs with a schedule run next: incload.schedule_store.
 *
 * Like catalog.h, every function works as the extension's owner, inside the
 * caller's transaction.
 */
#ifndef INCLOAD_AGENDA_H
#define INCLOAD_AGENDA_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

#include "job.h"

/* DueJob: a job that is due, by incload.schedule_store */
typedef struct DueJob
{
	int64		job_id;
	char	   *name;
	char	   *owner_name;
	int			attempt;
	char	   *next_run_at;	/* as it was: what changes it is the outcome */
	TimestampTz at;				/* the same */
	int64		window_id;		/* that a runner had when it ended; 0: none is known */
	bool		is_backfill;	/* it has windows to load, and is on no agenda for that */
	bool		is_reconcile;	/* it is to be compared, see reconcile_agenda.h */
	char	   *skip;			/* why its run is left out; NULL: it is not */
} DueJob;

/* who goes through jobs leaves the rest for later after so many waits in vain for a lock */
#define AGENDA_MOST_LOCKED 5

typedef enum RunEnd
{
	RUN_SUCCEEDED,
	RUN_CANCELLED,
	RUN_SKIPPED,
	RUN_FAILED_PASSING,			/* by what may be over soon: it is retried */
	RUN_FAILED_DEAD,			/* its process ended: retried, but in the end it may be its own doing */
	RUN_NOT_DUE,				/* its schedule was altered in time: it has not begun, and nothing is to be settled */
	RUN_FAILED_LASTING			/* by what somebody has to mend: after a number of these the job pauses */
} RunEnd;

/* the form in which a schedule is kept: a cron line gets the zone of this session; 22023 for a bad one */
extern char *agenda_schedule(const char *schedule);

/* puts a job with a schedule onto the agenda, from now on, and takes one without from it */
extern void agenda_enter(const Job *job);

/* an error where the jobs that it depends on do not exist, are somebody else's, or depend on it in turn */
extern void agenda_require_order(const Job *job);

/* days and months are those of the owner's time zone, whoever counts them; until a nest level of settings ends */
extern void agenda_enter_zone_of(const Job *job);

/* an error where the next time of a job's schedule could not be found: it cannot be read here */
extern void agenda_require_readable(const Job *job);

/* the job pauses for that, until somebody gives it another one */
extern void agenda_pause_unreadable(const Job *job);

/* a job that was resumed: nothing is held against it */
extern void agenda_forgive(int64 job_id);

/*
 * At most "limit" jobs that are due now or within so many milliseconds, and not among
 * "busy" (an array in text form of job_id): each owner in turn, whoever waits longest
 * first. A job that depends on one whose run of this round is still to come is not due yet.
 */
extern List *agenda_due(int limit, int ahead_ms, const char *busy);

/* is it due still? Its schedule may have been altered since agenda_due() */
extern bool agenda_is_due(int64 job_id);

/*
 * The outcome of a scheduled run: when the next one is, be it a retry, and
 * whether the job pauses. RUN_FAILED_PASSING beyond the option retry_limit
 * counts as over until the next time of the schedule. A schedule that was altered
 * after the run had begun stays as it is.
 */
extern void agenda_settle(const Job *job, RunEnd end, TimestampTz started_at, const char *error);

/*
 * Runs that were under way when the server ended: their records are closed, and what was run by
 * its schedule is settled. False where somebody has a job's rows locked, or the job for himself: that
 * job's are left for another call.
 */
extern bool agenda_settle_dead(void);

/* when what has failed for the n-th time (from 1) is tried again */
extern TimestampTz agenda_retry_at(const Job *job, int attempt);

/* a retry that is further away than that was planned by another clock */
extern TimestampTz agenda_longest_retry(const Job *job);

/* was the clock set back since this process asked before? See agenda_clock.c */
extern bool agenda_clock_went_back(void);

/* plans anew what is too far away to have been planned by this clock. False where somebody has rows locked: call it again. */
extern bool agenda_mend_clock(void);

/* the same as agenda_settle() for a runner that has ended without a word, if next_run_at is still what it was */
extern void agenda_settle_lost(const DueJob *due);

#endif							/* INCLOAD_AGENDA_H */
