/*
 * agenda.c
 *		When jobs with a schedule run next: incload.schedule_store.
 *
 * planned_at is a time of the schedule: that of the run which is due, is under
 * way, is retried, or comes next. next_run_at is when it may start: a little
 * later, so that not all jobs of a minute start at once, or when it is retried.
 * Both move once the outcome of a run is known, so that what was due when the server
 * stopped is run once when it is back.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "pgtime.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "agenda.h"
#include "attempt.h"
#include "catalog.h"
#include "history.h"
#include "job.h"
#include "role.h"
#include "schedule.h"
#include "watermark.h"

/* a retry is no further away than this */
#define LONGEST_DELAY_MS (15 * 60 * 1000)

/* the advisory lock of whoever changes which job depends on which; see run.c for its neighbour */
#define ORDER_LOCK_CLASS 74

static char *
time_text(TimestampTz at)
{
	return pstrdup(timestamptz_to_str(at));
}

char *
agenda_schedule(const char *schedule)
{
	Schedule   *parsed = schedule_parse(schedule);

	if (schedule_has_zone(parsed) || schedule_is_interval(parsed))
		return pstrdup(schedule);
	return psprintf("CRON_TZ=%s %s", pg_get_timezone_name(session_timezone), schedule);
}

void
agenda_enter(const Job *job)
{
	const char *params[4] = {catalog_number(job->id)};
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz anchor;
	TimestampTz planned;
	Schedule   *schedule;

	if (job->schedule == NULL)
	{
		catalog_query("DELETE FROM incload.schedule_store WHERE job_id = $1::bigint", 1, params);
		return;
	}
	schedule = schedule_parse(job->schedule);
	anchor = schedule_anchor(schedule, now, job->id);
	/* "every five minutes" begins now, "at three o'clock" at three o'clock */
	planned = schedule_is_interval(schedule) ? now : schedule_next(schedule, anchor, now);
	params[1] = time_text(anchor);
	params[2] = time_text(planned);
	params[3] = time_text(planned + schedule_spread(schedule, job->id));
	catalog_query("INSERT INTO incload.schedule_store (job_id, anchor, planned_at, next_run_at)"
				  " VALUES ($1::bigint, $2::timestamptz, $3::timestamptz, $4::timestamptz)"
				  " ON CONFLICT (job_id) DO UPDATE SET anchor = excluded.anchor,"
				  " planned_at = excluded.planned_at, next_run_at = excluded.next_run_at,"
				  " attempt = 1, failures = 0", 4, params);
}

/* may the job's owner know of the job that it is to depend on? */
static void
require_parent(const Job *job, const char *name)
{
	Job		   *parent = catalog_find_job(name);

	if (parent && OidIsValid(parent->owner) && has_privs_of_role(job->owner, parent->owner))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("job \"%s\", on which job \"%s\" is to depend, does not exist", name, job->name),
			 errdetail("The option \"depends_on\" names jobs whose owner's role the owner of this one is in."),
			 errhint("SELECT job FROM incload.job lists your jobs.")));
}

void
agenda_require_order(const Job *job)
{
	const char *params[1] = {job->name};
	LOCKTAG		tag;
	TextRows   *rows;
	ListCell   *lc;

	if (job->options->depends_on == NIL)
		return;
	foreach(lc, job->options->depends_on)
		require_parent(job, lfirst(lc));
	/* two who change the order at once would each see a good one */
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, 0, ORDER_LOCK_CLASS);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	rows = catalog_query("WITH RECURSIVE above (name, path) AS ("
						 " SELECT $1, ARRAY[$1] UNION"
						 " SELECT n.name, a.path || n.name FROM above a"
						 " JOIN incload.job_store j ON j.job = a.name COLLATE \"C\""
						 " CROSS JOIN LATERAL jsonb_array_elements_text(j.options->'depends_on') AS n (name)"
						 " WHERE cardinality(a.path) = 1 OR a.name <> $1 AND a.name <> ALL (a.path[2:cardinality(a.path) - 1]))"
						 " SELECT array_to_string(path, ', ') FROM above"
						 " WHERE cardinality(path) > 1 AND name = $1 ORDER BY cardinality(path) LIMIT 1", 1, params);
	if (rows->nrows > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("job \"%s\" would depend on itself", job->name),
				 errdetail("Each depends on the next: %s.", rows->value[0][0]),
				 errhint("Take one of them out of the option \"depends_on\".")));
}

void
agenda_forgive(int64 job_id)
{
	const char *params[1] = {catalog_number(job_id)};

	catalog_query("UPDATE incload.schedule_store SET attempt = 1, failures = 0"
				  " WHERE job_id = $1::bigint", 1, params);
}

/*
 * What a job that depends on others is to do, by each of those: wait while the
 * other's run of this round is due, under way or retried; skip where it failed,
 * is paused or gone. A round is a time of the schedule. One without a schedule has
 * to have run since this job ran last.
 */
static const char due_query[] =
"WITH busy AS MATERIALIZED (SELECT unnest($2::bigint[]) AS job_id),"
" owners AS MATERIALIZED (SELECT b.owner, count(*) AS busy FROM busy JOIN incload.job_store b USING (job_id) GROUP BY b.owner)"
"SELECT due.job_id, due.job, due.owner, due.attempt, due.next_run_at, due.skip FROM ("
"SELECT s.job_id, j.job, j.owner, s.attempt, s.next_run_at, d.skip,"
"  row_number() OVER (PARTITION BY j.owner ORDER BY s.next_run_at, s.job_id)"
"   + coalesce(o.busy, 0) AS turn"
" FROM incload.schedule_store s JOIN incload.job_store j USING (job_id)"
" LEFT JOIN owners o ON o.owner = j.owner"
" LEFT JOIN LATERAL ("
"  SELECT bool_or(v.verdict = 'wait') AS must_wait,"
"    min('job \"' || v.name || '\"' || v.verdict) FILTER (WHERE v.verdict NOT IN ('go', 'wait')) AS skip FROM ("
"   SELECT n.name, CASE WHEN p.job_id IS NULL THEN ' does not exist'"
"     WHEN NOT p.enabled THEN ' is paused'"
"     WHEN ps.planned_at <= s.planned_at THEN 'wait'"
"     WHEN ps.job_id IS NULL AND r.status = 'running' THEN 'wait'"
"     WHEN ps.last_status = 'succeeded' OR (ps.job_id IS NULL AND r.status = 'succeeded') THEN 'go'"
"     WHEN ps.job_id IS NOT NULL AND ps.last_status IS NULL THEN 'wait'"
"     WHEN coalesce(ps.last_status, r.status) IS NULL THEN ' has not run since'"
"     WHEN coalesce(ps.last_status, r.status) = 'skipped' THEN ' was skipped'"
"     WHEN coalesce(ps.last_status, r.status) = 'cancelled' THEN ' was cancelled'"
"     ELSE ' has failed' END AS verdict"
"   FROM jsonb_array_elements_text(j.options->'depends_on') AS n (name)"
"   LEFT JOIN incload.job_store p ON p.job = n.name"
"   LEFT JOIN incload.schedule_store ps ON ps.job_id = p.job_id"
"   LEFT JOIN LATERAL (SELECT u.status FROM incload.run_store u"
"    WHERE u.job_id = p.job_id AND u.status <> 'skipped' AND u.kind IN ('incremental', 'full')"
"    AND u.started_at > coalesce(s.last_run_at, '-infinity')"
"    ORDER BY u.run_id DESC LIMIT 1) r ON ps.job_id IS NULL) v) d ON j.options ? 'depends_on'"
" WHERE s.next_run_at <= now() + $3::bigint * interval '1 ms' AND j.enabled AND s.job_id NOT IN (SELECT b.job_id FROM busy b)"
"  AND d.must_wait IS NOT TRUE) due"
" ORDER BY due.turn, due.next_run_at, due.job_id LIMIT $1::bigint";

List *
agenda_due(int limit, int ahead_ms, const char *busy)
{
	const char *params[3] = {psprintf("%d", limit), busy, psprintf("%d", ahead_ms)};
	TextRows   *rows = catalog_query_once(due_query, 3, params);
	List	   *list = NIL;

	for (int r = 0; r < rows->nrows; r++)
	{
		char	  **v = rows->value[r];
		DueJob	   *due = palloc0(sizeof(DueJob));

		due->job_id = strtoll(v[0], NULL, 10);
		due->name = v[1];
		due->owner_name = v[2];
		due->attempt = atoi(v[3]);
		due->next_run_at = v[4];
		due->at = instant_parse(v[4]);
		due->skip = v[5];
		list = lappend(list, due);
	}
	return list;
}

/* retries come further and further apart, and not all at once after a server came back */
TimestampTz
agenda_retry_at(const Job *job, int attempt)
{
	double		ms = job->options->retry_delay;

	for (int i = 1; i < attempt && ms < LONGEST_DELAY_MS; i++)
		ms *= 2;
	ms = Min(ms, Max(LONGEST_DELAY_MS, job->options->retry_delay));
	return TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
									   (int64) (ms * (0.75 + pg_prng_double(&pg_global_prng_state) / 2)));
}

void
agenda_enter_zone_of(const Job *job)
{
	const char *params[1] = {job->owner_name};
	TextRows   *rows;

	rows = catalog_query("SELECT split_part(c, '=', 2) FROM pg_db_role_setting s, unnest(s.setconfig) c"
						 " WHERE s.setrole IN (0, (SELECT r.oid FROM pg_roles r WHERE r.rolname = $1))"
						 " AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))"
						 " AND lower(split_part(c, '=', 1)) = 'timezone'"
						 " ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC LIMIT 1", 1, params);
	if (rows->nrows > 0)
		role_set("TimeZone", rows->value[0][0]);
}

TimestampTz
agenda_longest_retry(const Job *job)
{
	/* a quarter more than the delay; twice of it is beyond doubt */
	return TimestampTzPlusMilliseconds(GetCurrentTimestamp(), 2 * Max(LONGEST_DELAY_MS, job->options->retry_delay));
}

/* the next time of the schedule: one, however many were missed */
static void
plan_next(const Job *job, const char *anchor, const char *planned, const char **params)
{
	Schedule   *schedule = schedule_parse(job->schedule);
	int64		spread = schedule_spread(schedule, job->id);
	int			nest_level = NewGUCNestLevel();
	TimestampTz before = instant_parse(planned);
	TimestampTz next;

	if (schedule_goes_by_days(schedule))
		agenda_enter_zone_of(job);
	next = schedule_next(schedule, instant_parse(anchor), GetCurrentTimestamp() - spread);
	/* a time that is still to come was that of the run; one after it was so by a clock that was set back */
	if (before == next)
		next = schedule_next(schedule, instant_parse(anchor), before);
	AtEOXact_GUC(false, nest_level);
	params[0] = time_text(next);
	params[1] = time_text(next + spread);
}

static void
pause_failing(const Job *job, int failures, const char *error)
{
	catalog_set_enabled(job->id, false);
	catalog_page(job, "job_paused_itself",
				 psprintf("job %s has failed %d times in a row and is paused; SELECT incload_resume(%s) lets it run again once the cause is mended: %s",
						  job->name, failures, quote_literal_cstr(job->name), error ? error : "no error is known"));
}

void
agenda_require_readable(const Job *job)
{
	(void) schedule_parse(job->schedule);
}

void
agenda_pause_unreadable(const Job *job)
{
	catalog_set_enabled(job->id, false);
	catalog_page(job, "job_paused_itself",
				 psprintf("job %s is paused: its schedule \"%s\" cannot be read, and the server's log says why; SELECT incload_alter_job(%s, schedule => '...') and incload_resume(%s) let it run again",
						  job->name, job->schedule, quote_literal_cstr(job->name), quote_literal_cstr(job->name)));
}

bool
agenda_is_due(int64 job_id)
{
	const char *params[1] = {catalog_number(job_id)};

	return catalog_query("SELECT FROM incload.schedule_store WHERE job_id = $1::bigint"
						 " AND next_run_at <= clock_timestamp()", 1, params)->nrows > 0;
}

void
agenda_settle(const Job *job, RunEnd end, TimestampTz started_at, const char *error)
{
	static const char *const status[] = {
		[RUN_SUCCEEDED] = "succeeded", [RUN_CANCELLED] = "cancelled", [RUN_SKIPPED] = "skipped",
		[RUN_FAILED_PASSING] = "failed", [RUN_FAILED_DEAD] = "failed", [RUN_FAILED_LASTING] = "failed",
	};
	const char *params[7] = {catalog_number(job->id)};
	TextRows   *rows = catalog_query("SELECT anchor, planned_at, attempt, failures, next_run_at FROM incload.schedule_store"
									 " WHERE job_id = $1::bigint FOR UPDATE", 1, params);
	int			attempt;
	int			failures;

	/* the schedule was taken away meanwhile */
	if (rows->nrows == 0 || job->schedule == NULL)
		return;
	/* or it was altered, and that run was none of its times */
	if (instant_parse(rows->value[0][4]) > started_at)
	{
		params[1] = status[end];
		params[2] = time_text(started_at);
		catalog_query("UPDATE incload.schedule_store SET last_status = $2, last_run_at = $3::timestamptz"
					  " WHERE job_id = $1::bigint", 3, params);
		return;
	}
	attempt = atoi(rows->value[0][2]);
	failures = atoi(rows->value[0][3]);
	params[1] = rows->value[0][1];
	if (end == RUN_SUCCEEDED)
		failures = 0;
	/* while a dump is restored, what the job needs may not be there yet */
	else if ((end == RUN_FAILED_LASTING || end == RUN_FAILED_DEAD) && !job_is_restored(job))
		failures++;
	if ((end == RUN_FAILED_PASSING || end == RUN_FAILED_DEAD) && attempt <= job->options->retry_limit)
	{
		params[2] = time_text(agenda_retry_at(job, attempt));
		attempt++;
	}
	else
	{
		plan_next(job, rows->value[0][0], rows->value[0][1], &params[1]);
		attempt = 1;
	}
	if ((end == RUN_FAILED_LASTING || end == RUN_FAILED_DEAD) && job->options->pause_after > 0 &&
		failures >= job->options->pause_after)
		pause_failing(job, failures, error);
	params[3] = psprintf("%d", attempt);
	params[4] = psprintf("%d", failures);
	params[5] = status[end];
	params[6] = time_text(started_at);
	catalog_query("UPDATE incload.schedule_store SET planned_at = $2::timestamptz,"
				  " next_run_at = $3::timestamptz, attempt = $4::integer, failures = $5::integer,"
				  " last_status = $6, last_run_at = $7::timestamptz WHERE job_id = $1::bigint", 7, params);
}

void
agenda_settle_lost(const DueJob *due)
{
	const char *params[2] = {catalog_number(due->job_id), due->next_run_at};
	TextRows   *rows;
	Job		   *job = catalog_find_job(due->name);

	rows = catalog_query("SELECT FROM incload.schedule_store WHERE job_id = $1::bigint"
						 " AND next_run_at = $2::timestamptz", 2, params);
	if (rows->nrows == 0 || job == NULL || job->id != due->job_id)
		return;
	history_write_lost(job, due->attempt);
	agenda_settle(job, RUN_FAILED_DEAD, GetCurrentTimestamp(), "the process of the run has ended");
}

/* of a row of history_dead_runs() */
static void
settle_dead_run(void *row)
{
	char	  **v = row;
	Job		   *job;

	if (!history_close_dead_run(strtoll(v[0], NULL, 10)) || v[2][0] != 't')
		return;
	job = catalog_find_job_by_id(strtoll(v[1], NULL, 10));
	if (job)
		agenda_settle(job, RUN_FAILED_DEAD, instant_parse(v[3]), "the server ended during the run");
}

static void
close_dead_run(void *row)
{
	(void) history_close_dead_run(strtoll(((char **) row)[0], NULL, 10));
}

bool
agenda_settle_dead(void)
{
	static int64 newest = -1;	/* that there was at the first call: what comes later is not the server's end */
	int			nheld = 0;
	int			nlocked = 0;
	TextRows   *rows;

	if (newest < 0)
		newest = history_newest_run();
	rows = history_dead_runs(newest);
	for (int r = 0; r < rows->nrows && nlocked < AGENDA_MOST_LOCKED; r++)
	{
		ErrorData  *error;

		/* such as by whoever alters it */
		if (rows->value[r][4][0] == 't')
		{
			nheld++;
			continue;
		}
		error = attempt(settle_dead_run, rows->value[r]);
		/* such as a schedule that cannot be read: whoever is to start the job sees to that */
		if (error && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		{
			attempt_report(error);
			error = attempt(close_dead_run, rows->value[r]);
		}
		nlocked += error && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE;
	}
	return nlocked == 0 && nheld == 0;
}
