/*
 * volume.c
 *		Runs that have read far more or fewer rows than is usual for their job at that hour.
 *
 * A run is compared with the successful ones of the same kind that began in the same hour
 * of the day, in UTC, in the four weeks before it. Median and median distance from it
 * stand for mean and standard deviation, as a few wild runs change neither. Whoever catches
 * up on a long time without a run is expected to read more, and is not judged.
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "catalog.h"
#include "compat.h"
#include "past.h"
#include "slo.h"
#include "volume.h"

/* fewer say nothing */
#define FEWEST_SAMPLES 8

#define SAMPLE_DAYS 28

/* a normal distribution's standard deviation, in median distances */
#define DEVIATIONS 1.4826

/* so many of these away is far */
#define FAR 6

/* a distance counts as at least this part of the median, and as so many rows */
#define LEAST_PART 0.1
#define LEAST_ROWS 10

/* a time without a run that is so many times as long as usual makes a run one that catches up */
#define CATCHES_UP 2

static int
compare_doubles(const void *a, const void *b)
{
	double		left = *(const double *) a;
	double		right = *(const double *) b;

	return (left > right) - (left < right);
}

/* sorts them */
static double
median(double *values, int n)
{
	qsort(values, n, sizeof(double), compare_doubles);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static int
hour_of(TimestampTz at)
{
	/* the epoch is a midnight */
	int64		hour = at / USECS_PER_HOUR - (at % USECS_PER_HOUR < 0);

	return (hour % 24 + 24) % 24;
}

static bool
is_sample(const Outcome *sample, const Outcome *run)
{
	return sample->kind == OUTCOME_SUCCEEDED && sample->is_full == run->is_full &&
		sample->started_at < run->started_at &&
		sample->started_at >= run->started_at - SAMPLE_DAYS * USECS_PER_DAY &&
		hour_of(sample->started_at) == hour_of(run->started_at);
}

/* how long before it the last success began, for each; -1 where none is known */
static int64 *
gaps_of(const Past *past)
{
	int64	   *gaps = palloc(sizeof(int64) * Max(past->n, 1));
	TimestampTz last = 0;

	for (int i = 0; i < past->n; i++)
	{
		gaps[i] = -1;
		if (past->outcomes[i].kind != OUTCOME_SUCCEEDED)
			continue;
		if (last != 0)
			gaps[i] = past->outcomes[i].started_at - last;
		last = past->outcomes[i].started_at;
	}
	return gaps;
}

/* NULL where the run is as usual, or nothing tells what is */
static Surprise *
judge(const Past *past, const int64 *gaps, int which, double *rows, double *times)
{
	const Outcome *run = &past->outcomes[which];
	Surprise   *surprise;
	double		middle;
	double		deviation;
	double		far;
	int			n = 0;
	int			ntimes = 0;

	for (int i = 0; i < which; i++)
		if (is_sample(&past->outcomes[i], run))
		{
			rows[n++] = past->outcomes[i].rows_read;
			if (gaps[i] >= 0)
				times[ntimes++] = gaps[i];
		}
	if (n < FEWEST_SAMPLES || gaps[which] < 0 || gaps[which] > CATCHES_UP * median(times, ntimes))
		return NULL;
	middle = median(rows, n);
	for (int i = 0; i < n; i++)
		rows[i] = fabs(rows[i] - middle);
	deviation = median(rows, n);
	far = FAR * Max(Max(DEVIATIONS * deviation, LEAST_PART * middle), LEAST_ROWS);
	if (fabs(run->rows_read - middle) <= far)
		return NULL;
	surprise = palloc0(sizeof(Surprise));
	*surprise = (Surprise) {.run_id = run->run_id,.rows = run->rows_read,.median = middle,.deviation = deviation,
		.low = Max(middle - far, 0),.high = middle + far,.samples = n};
	return surprise;
}

List *
volume_surprises(int64 job_id, TimestampTz since, TimestampTz at)
{
	List	   *surprises = NIL;
	bool		has_news = false;
	Past	   *past = past_read(job_id, since, at);
	int64	   *gaps;
	double	   *rows;
	double	   *times;

	for (int i = 0; i < past->n; i++)
		has_news |= past->outcomes[i].kind == OUTCOME_SUCCEEDED && past->outcomes[i].finished_at > since;
	if (!has_news)
		return NIL;
	past = past_read(job_id, since - (SAMPLE_DAYS + 1) * USECS_PER_DAY, at);
	gaps = gaps_of(past);
	rows = palloc(sizeof(double) * past->n);
	times = palloc(sizeof(double) * past->n);
	for (int i = 0; i < past->n; i++)
	{
		Surprise   *surprise = NULL;

		if (past->outcomes[i].kind == OUTCOME_SUCCEEDED && past->outcomes[i].finished_at > since)
			surprise = judge(past, gaps, i, rows, times);
		if (surprise)
			surprises = lappend(surprises, surprise);
	}
	return surprises;
}

PG_FUNCTION_INFO_V1(incload_unusual_volumes);

/*
 * incload.unusual_volumes(job_id, since, at) → (run_id, rows_read, median, deviation, low, high, samples)
 *		The runs of a job that the caller may see which have ended between the two times, and whose volume
 *		is far from the usual.
 */
Datum
incload_unusual_volumes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz since = PG_GETARG_TIMESTAMPTZ(1);
	TimestampTz at = PG_GETARG_TIMESTAMPTZ(2);
	Job		   *job;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	job = catalog_find_job_by_id(PG_GETARG_INT64(0));
	if (job == NULL || !slo_may_see(job) || TIMESTAMP_NOT_FINITE(since) || TIMESTAMP_NOT_FINITE(at))
		return (Datum) 0;
	foreach(lc, volume_surprises(job->id, since, at))
	{
		Surprise   *surprise = lfirst(lc);
		bool		nulls[7] = {0};
		Datum		values[7] = {
			Int64GetDatum(surprise->run_id), Int64GetDatum(surprise->rows), Float8GetDatum(surprise->median),
			Float8GetDatum(surprise->deviation), Float8GetDatum(surprise->low), Float8GetDatum(surprise->high),
			Int32GetDatum(surprise->samples)
		};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
