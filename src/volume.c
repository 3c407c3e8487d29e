/*
 * volume.c
 *		Runs that have read far more or fewer rows than is usual for their job at that hour.
 *
 * A run is compared with the successful ones of the same kind that began in the same hour
 * of the day, in UTC, in the four weeks before it. Median and median distance from it
 * stand for mean and standard deviation, as a few wild runs change neither. Whoever catches
 * up on a long time without a run is expected to read more, and is not judged; neither is a job
 * before there are runs of that hour on the days of a week.
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

/* fewer say nothing, and neither do many of few days: a week has days of several kinds */
#define FEWEST_SAMPLES 8
#define FEWEST_DAYS 7

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

static int64
day_of(TimestampTz at)
{
	/* the epoch is a midnight */
	return at / USECS_PER_DAY - (at % USECS_PER_DAY < 0);
}

static int
hour_of(TimestampTz at)
{
	return (at - day_of(at) * USECS_PER_DAY) / USECS_PER_HOUR;
}

static bool
is_sample(const Outcome *sample, const Outcome *run)
{
	TimestampTz began = outcome_started_at(sample);
	TimestampTz run_began = outcome_started_at(run);

	return outcome_kind(sample) == OUTCOME_SUCCEEDED && outcome_is_full(sample) == outcome_is_full(run) &&
		began < run_began && began >= run_began - SAMPLE_DAYS * USECS_PER_DAY && hour_of(began) == hour_of(run_began);
}

/* has it ended well after that time? */
static bool
is_news(const Outcome *outcome, TimestampTz since)
{
	return outcome_kind(outcome) == OUTCOME_SUCCEEDED && outcome->finished_at > since;
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
		if (outcome_kind(&past->outcomes[i]) != OUTCOME_SUCCEEDED)
			continue;
		if (last != 0)
			gaps[i] = outcome_started_at(&past->outcomes[i]) - last;
		last = outcome_started_at(&past->outcomes[i]);
	}
	return gaps;
}

/* the number of a run, which is not kept with its outcome; NULL where the history has lost it */
static char *
run_of(int64 job_id, const Outcome *outcome)
{
	const char *params[3] = {
		catalog_number(job_id), pstrdup(timestamptz_to_str(outcome->finished_at)), catalog_number(outcome_rows(outcome))
	};
	TextRows   *rows = catalog_query("SELECT u.run_id FROM incload.run_store u WHERE u.job_id = $1::bigint AND u.status = 'succeeded'"
									 " AND u.kind IN ('incremental', 'full') AND u.finished_at = $2::timestamptz AND u.rows_read = $3::bigint"
									 " ORDER BY u.run_id DESC LIMIT 1", 3, params);

	return rows->nrows > 0 ? rows->value[0][0] : NULL;
}

/* Samples: the runs that one run is compared with */
typedef struct Samples
{
	double	   *rows;
	int			n;
	double	   *gaps;			/* of those of which it is known */
	int			ngaps;
	int			ndays;			/* on which there are some */
} Samples;

static void
gather(Samples *samples, const Past *past, const int64 *gaps, int which)
{
	int64		last_day = PG_INT64_MIN;

	samples->n = samples->ngaps = samples->ndays = 0;
	for (int i = 0; i < which; i++)
	{
		const Outcome *outcome = &past->outcomes[i];

		if (!is_sample(outcome, &past->outcomes[which]))
			continue;
		samples->rows[samples->n++] = outcome_rows(outcome);
		if (gaps[i] >= 0)
			samples->gaps[samples->ngaps++] = gaps[i];
		samples->ndays += day_of(outcome_started_at(outcome)) != last_day;
		last_day = day_of(outcome_started_at(outcome));
	}
}

/* NULL where the run is as usual, or nothing tells what is */
static Surprise *
judge(const Outcome *run, int64 gap, Samples *samples)
{
	Surprise   *surprise;
	double		middle;
	double		deviation;
	double		far;

	if (samples->n < FEWEST_SAMPLES || samples->ndays < FEWEST_DAYS || samples->ngaps == 0 ||
		gap < 0 || gap > CATCHES_UP * median(samples->gaps, samples->ngaps))
		return NULL;
	middle = median(samples->rows, samples->n);
	for (int i = 0; i < samples->n; i++)
		samples->rows[i] = fabs(samples->rows[i] - middle);
	deviation = median(samples->rows, samples->n);
	far = FAR * Max(Max(DEVIATIONS * deviation, LEAST_PART * middle), LEAST_ROWS);
	if (fabs(outcome_rows(run) - middle) <= far)
		return NULL;
	surprise = palloc0(sizeof(Surprise));
	*surprise = (Surprise) {.rows = outcome_rows(run),.median = middle,.deviation = deviation,
		.low = Max(middle - far, 0),.high = middle + far,.samples = samples->n};
	return surprise;
}

List *
volume_surprises(int64 job_id, TimestampTz since, TimestampTz at)
{
	List	   *surprises = NIL;
	bool		has_news = false;
	Past	   *past = past_read(job_id, since, at);
	Samples		samples;
	int64	   *gaps;

	for (int i = 0; i < past->n; i++)
		has_news |= is_news(&past->outcomes[i], since);
	if (!has_news)
		return NIL;
	past = past_read(job_id, since - (SAMPLE_DAYS + 1) * USECS_PER_DAY, at);
	gaps = gaps_of(past);
	samples.rows = palloc(sizeof(double) * past->n);
	samples.gaps = palloc(sizeof(double) * past->n);
	for (int i = 0; i < past->n; i++)
	{
		Surprise   *surprise;
		char	   *run_id;

		if (!is_news(&past->outcomes[i], since))
			continue;
		gather(&samples, past, gaps, i);
		surprise = judge(&past->outcomes[i], gaps[i], &samples);
		run_id = surprise ? run_of(job_id, &past->outcomes[i]) : NULL;
		if (run_id == NULL)
			continue;
		surprise->run_id = strtoll(run_id, NULL, 10);
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
