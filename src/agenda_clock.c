/*
 * agenda_clock.c
 *		The agenda after the server's clock was set back.
 *
 * Times that were planned by a clock that was ahead would keep jobs silent until it
 * is there again. What is further away than it could have been planned by now is
 * planned anew. A small step back changes nothing: no time of a schedule comes twice for it.
 */
#include "postgres.h"

#include "portability/instr_time.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "agenda.h"
#include "attempt.h"
#include "catalog.h"
#include "reconcile_agenda.h"
#include "schedule.h"
#include "watermark.h"

/* by how much the clock has to go back to be looked after */
#define STEP (1 * USECS_PER_SEC)

/* what waits for another attempt at something, by no option of a job's, does not wait longer */
#define LONGEST_WAIT "interval '65 minutes'"

bool
agenda_clock_went_back(void)
{
	static int64 most_ahead = PG_INT64_MIN;
	instr_time	monotonic;
	int64		ahead;

	INSTR_TIME_SET_CURRENT(monotonic);
	ahead = GetCurrentTimestamp() - (int64) INSTR_TIME_GET_MICROSEC(monotonic);
	if (most_ahead != PG_INT64_MIN && ahead < most_ahead - STEP)
	{
		most_ahead = ahead;
		return true;
	}
	most_ahead = Max(most_ahead, ahead);
	return false;
}

/* could that time of the schedule have been planned by now? The one after the next is the last that could. */
static bool
is_plausible(const Schedule *schedule, TimestampTz anchor, TimestampTz planned)
{
	return planned <= schedule_next(schedule, anchor, schedule_next(schedule, anchor, GetCurrentTimestamp()));
}

/* of a row of what follows: job_id, anchor, planned_at, next_run_at, attempt, schedule */
static void
mend_job(void *row)
{
	char	  **v = row;
	const char *params[4] = {v[0], NULL, NULL, v[3]};
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz anchor = instant_parse(v[1]);
	TimestampTz next_run = instant_parse(v[3]);
	int64		job_id = strtoll(v[0], NULL, 10);
	bool		is_retried = atoi(v[4]) > 1;
	Schedule   *schedule = schedule_parse(v[5]);
	int64		spread = schedule_spread(schedule, job_id);
	int			nest_level = NewGUCNestLevel();
	Job		   *job = is_retried || schedule_goes_by_days(schedule) ? catalog_find_job_by_id(job_id) : NULL;
	TimestampTz planned = now;

	if (job && schedule_goes_by_days(schedule))
		agenda_enter_zone_of(job);
	if (is_plausible(schedule, anchor, instant_parse(v[2])) &&
		(job && is_retried ? next_run <= agenda_longest_retry(job) : is_plausible(schedule, anchor, next_run - spread)))
	{
		AtEOXact_GUC(false, nest_level);
		return;
	}
	/* a retry is due now: the time that it is for is over */
	if (!is_retried)
		planned = schedule_next(schedule, anchor, now - spread);
	AtEOXact_GUC(false, nest_level);
	params[1] = pstrdup(timestamptz_to_str(planned));
	params[2] = pstrdup(timestamptz_to_str(is_retried ? now : planned + spread));
	catalog_query("UPDATE incload.schedule_store SET planned_at = $2::timestamptz, next_run_at = $3::timestamptz,"
				  " last_run_at = CASE WHEN last_run_at > clock_timestamp() THEN clock_timestamp() ELSE last_run_at END"
				  " WHERE job_id = $1::bigint AND next_run_at = $4::timestamptz", 4, params);
}

/* of a row of job_id, anchor, next_at, schedule */
static void
mend_reconcile(void *row)
{
	char	  **v = row;
	int64		job_id = strtoll(v[0], NULL, 10);
	Schedule   *schedule = schedule_parse(v[3]);
	int			nest_level = NewGUCNestLevel();
	Job		   *job = catalog_find_job_by_id(job_id);
	bool		is_good;

	if (job == NULL)
		return;
	if (!schedule_has_zone(schedule))
		agenda_enter_zone_of(job);
	is_good = is_plausible(schedule, instant_parse(v[1]), instant_parse(v[2]) - schedule_spread(schedule, job_id));
	AtEOXact_GUC(false, nest_level);
	if (!is_good)
		reconcile_agenda_begin(job);
}

/* what is tried again and goes by no schedule */
static void
mend_waiting(void *arg)
{
	catalog_query("UPDATE incload.batch_window_store SET not_before = now()"
				  " WHERE state = 'pending' AND not_before > now() + " LONGEST_WAIT, 0, NULL);
	catalog_query("UPDATE incload.outbox_store SET next_try = now()"
				  " WHERE state = 'pending' AND next_try > now() + " LONGEST_WAIT, 0, NULL);
}

/* how many of these waited in vain for a lock; another error is that job's, and told of */
static int
mend_each(TextRows *rows, void (*mend) (void *))
{
	int			nlocked = 0;

	for (int r = 0; r < rows->nrows && nlocked < AGENDA_MOST_LOCKED; r++)
	{
		ErrorData  *error = attempt(mend, rows->value[r]);

		if (error && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
			nlocked++;
		else if (error)
			attempt_report(error);
	}
	return nlocked;
}

bool
agenda_mend_clock(void)
{
	int			nlocked = mend_each(catalog_query_once("SELECT s.job_id, s.anchor, s.planned_at, s.next_run_at, s.attempt, j.schedule"
													   " FROM incload.schedule_store s JOIN incload.job_store j USING (job_id)"
													   " WHERE s.next_run_at > now() AND j.schedule IS NOT NULL", 0, NULL), mend_job);
	ErrorData  *error;

	nlocked += mend_each(catalog_query_once("SELECT s.job_id, s.anchor, s.next_at, j.options->>'reconcile_schedule'"
											" FROM incload.reconcile_schedule_store s JOIN incload.job_store j USING (job_id)"
											" WHERE s.next_at > now() AND j.options ? 'reconcile_schedule'", 0, NULL), mend_reconcile);
	error = attempt(mend_waiting, NULL);
	if (error && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		attempt_report(error);
	return nlocked == 0 && (error == NULL || error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE);
}
