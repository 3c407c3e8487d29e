/*
 * sweep.c
 *		What a scheduler keeps ready for incload.slo, and the events that come of it.
 *
 * The figures of a job take its whole history of a month. So that nobody waits for
 * them, they are computed and kept: once a minute for a job with an objective, else every ten. It
 * is a few jobs at a time, so that no job that is due waits for that either. Whoever finds none that are fresh computes his own.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "sweep.h"
#include "unattended.h"
#include "volume.h"
#include "watermark.h"

/* how long it may take, and the most that is tried at once */
#define SWEEP_MS 40
#define MOST_JOBS 500

/* between two of them: while there are more jobs to do, and after all were done */
#define PAUSE_MS 900
#define LONG_PAUSE_MS 5000

/* a job with millions of runs takes a second by itself: a tenth of the time, at most, goes there */
#define PAUSE_TIMES 9
#define LONGEST_PAUSE_MS (10 * 60 * 1000)

/* a run is committed so long after its end, at most, to be judged by its volume */
#define COMMITTED_WITHIN_MS 60000

static int	njobs = 10;			/* that are done at once */
static TimestampTz next_sweep = 0;
static int	pause_ms = 0;		/* until then, from when it was set */

/* the figures of the jobs that have waited longest: job_id, when they were computed before, and what is left of the budget */
static TextRows *
refresh(TimestampTz at)
{
	const char *params[2] = {catalog_number(njobs), pstrdup(timestamptz_to_str(at))};

	return catalog_query_once("WITH due AS MATERIALIZED (SELECT j.job_id, c.as_of FROM incload.job_store j"
							  "  LEFT JOIN incload.slo_store c USING (job_id)"
							  "  WHERE c.as_of IS NULL OR c.as_of > $2::timestamptz OR c.as_of < $2::timestamptz"
							  "   - CASE WHEN j.options ?| '{freshness_slo,success_slo}' THEN interval '1 minute' ELSE interval '10 minutes' END"
							  "  ORDER BY c.as_of NULLS FIRST, j.job_id LIMIT $1::bigint),"
							  " computed AS MATERIALIZED (SELECT d.job_id, d.as_of AS before,"
							  "  ARRAY(SELECT f FROM incload.slo_of(d.job_id, $2::timestamptz) f) AS figures FROM due d),"
							  " kept AS (INSERT INTO incload.slo_store (job_id, as_of, figures, budget_left)"
							  "  SELECT c.job_id, $2::timestamptz, c.figures, (c.figures[3]).budget_left FROM computed c"
							  "  ON CONFLICT (job_id) DO UPDATE SET as_of = excluded.as_of, figures = excluded.figures,"
							  "  budget_left = excluded.budget_left RETURNING job_id, budget_left, told, (figures[3]).budget_by)"
							  " SELECT k.job_id, c.before, k.budget_left, k.told, k.budget_by FROM kept k JOIN computed c USING (job_id)",
							  2, params);
}

/* how much of the budget is told to be spent, in percent; what was told is taken back well below where it was told */
static int
told_after(int told, double spent)
{
	if (spent >= 0.75 || (told >= 75 && spent >= 0.6))
		return 75;
	if (spent >= 0.25 || (told >= 25 && spent >= 0.2))
		return 25;
	return 0;
}

static void
tell(const Job *job, const char *run_id, const char *severity, const char *code, const char *message, const char *details)
{
	const char *params[8] = {
		catalog_number(job->id), job->name, job->owner_name, severity, code, message, details, run_id
	};

	catalog_query("INSERT INTO incload.event_store (job_id, job, owner, severity, code, message, details, run_id)"
				  " SELECT $1::bigint, $2, $3::name, $4, $5, $6, $7::jsonb, $8::bigint"
				  " WHERE $8 IS NULL OR NOT EXISTS (SELECT FROM incload.event_store e WHERE e.job_id = $1::bigint"
				  "  AND e.code = $5 AND e.run_id = $8::bigint)", 8, params);
}

/* told: in percent, of before */
static void
follow_budget(int64 job_id, const char *left, int told, const char *by)
{
	double		spent = left ? 1 - strtod(left, NULL) : 0;
	int			now = told_after(told, spent);
	const char *params[2] = {catalog_number(job_id), catalog_number(now)};
	static const int steps[] = {25, 75};
	Job		   *job;

	if (now == told)
		return;
	catalog_query("UPDATE incload.slo_store SET told = $2::smallint WHERE job_id = $1::bigint", 2, params);
	job = catalog_find_job_by_id(job_id);
	for (int i = 0; job && i < lengthof(steps); i++)
		if (told < steps[i] && now >= steps[i])
			tell(job, NULL, steps[i] == 75 ? "page" : "ticket", psprintf("error_budget_%d", steps[i]),
				 psprintf("job %s has spent %d%% of its error budget of 30 days: %.1f%%, by its %s", job->name, steps[i],
						  spent * 100, by),
				 psprintf("{\"spent\": %.6f, \"by\": \"%s\"}", spent, by));
}

/* whole numbers, as a median of rows mostly is one */
static void
follow_volume(int64 job_id, TimestampTz since, TimestampTz at)
{
	List	   *surprises = volume_surprises(job_id, since, at);
	Job		   *job = surprises ? catalog_find_job_by_id(job_id) : NULL;
	ListCell   *lc;

	foreach(lc, surprises)
	{
		Surprise   *surprise = lfirst(lc);

		if (job)
			tell(job, catalog_number(surprise->run_id), "ticket", "volume_unusual",
				 psprintf("run " INT64_FORMAT " of job %s has read " INT64_FORMAT " rows: at that hour it is %.0f to %.0f, going by %d runs",
						  surprise->run_id, job->name, surprise->rows, surprise->low, surprise->high, surprise->samples),
				 psprintf("{\"rows_read\": " INT64_FORMAT ", \"median\": %.1f, \"deviation\": %.1f, \"samples\": %d}",
						  surprise->rows, surprise->median, surprise->deviation, surprise->samples));
	}
}

static void
sweep(MemoryContext context)
{
	TimestampTz now = GetCurrentTimestamp();
	MemoryContext job_context;
	TextRows   *rows;
	instr_time	began;
	instr_time	took;

	INSTR_TIME_SET_CURRENT(began);
	unattended_begin();
	MemoryContextSwitchTo(context);
	rows = refresh(now);
	/* a job's whole history is read: all of them together need not fit the memory */
	job_context = AllocSetContextCreate(context, "incload sweep of a job", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(job_context);
	for (int r = 0; r < rows->nrows; r++)
	{
		char	  **v = rows->value[r];
		int64		job_id = strtoll(v[0], NULL, 10);
		TimestampTz before = v[1] ? Min(instant_parse(v[1]), now) : now;

		follow_budget(job_id, v[2], atoi(v[3]), v[4]);
		follow_volume(job_id, before - COMMITTED_WITHIN_MS * INT64CONST(1000), now);
		MemoryContextReset(job_context);
	}
	unattended_commit();
	INSTR_TIME_SET_CURRENT(took);
	INSTR_TIME_SUBTRACT(took, began);
	pause_ms = Max(rows->nrows < njobs ? LONG_PAUSE_MS : PAUSE_MS,
				   (int) Min(PAUSE_TIMES * INSTR_TIME_GET_MILLISEC(took), LONGEST_PAUSE_MS));
	next_sweep = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), pause_ms);
	if (rows->nrows == njobs)
		njobs = Min(Max(njobs * SWEEP_MS / Max(INSTR_TIME_GET_MILLISEC(took), SWEEP_MS / 2), 1), MOST_JOBS);
}

void
sweep_some(MemoryContext context)
{
	MemoryContext old = CurrentMemoryContext;
	TimestampTz now = GetCurrentTimestamp();

	/* further away than it was set: the clock was set back */
	if (now < next_sweep && next_sweep <= TimestampTzPlusMilliseconds(now, pause_ms))
		return;
	PG_TRY();
	{
		sweep(context);
	}
	PG_CATCH();
	{
		/* a table that somebody has locked: a lock of which the scheduler's other looks tell */
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			EmitErrorReport();
		MemoryContextSwitchTo(old);
		FlushErrorState();
		AbortCurrentTransaction();
		pause_ms = LONG_PAUSE_MS;
		next_sweep = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), pause_ms);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	MemoryContextReset(context);
}
