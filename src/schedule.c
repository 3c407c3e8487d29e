/*
 * schedule.c
 *		When a job is due: every so often, or by a cron line.
 *
 * Nothing is remembered here: what a schedule says for a time follows from its
 * text, the anchor, and the rules of the time zone.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "common/int.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "cron.h"
#include "schedule.h"
#include "trouble.h"

struct Schedule
{
	CronLine   *cron;			/* NULL: an interval */
	Interval	interval;
	int64		length;			/* of the interval in microseconds, on the average */
};

/* the months of the calendar's 400 years on the average */
#define USECS_PER_MONTH (INT64CONST(2629746) * USECS_PER_SEC)

/* keeps all sums here, and those of callers, far from overflow */
#define LONGEST (100 * MONTHS_PER_YEAR * USECS_PER_MONTH)

#define SPREAD_CRON (60 * USECS_PER_SEC)
#define SPREAD_ANCHOR (10 * SECS_PER_MINUTE * USECS_PER_SEC)

static void
bad_schedule(const char *text, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid schedule \"%s\"", text),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

/*
 * False if the text is no interval. Reading one touches nothing but memory, so
 * that the error needs no subtransaction to be caught.
 */
static bool
read_interval(const char *text, Interval *interval)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool is_interval = true;

	PG_TRY();
	{
		*interval = *DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(text),
														   ObjectIdGetDatum(InvalidOid),
														   Int32GetDatum(-1)));
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FlushErrorState();
		is_interval = false;
	}
	PG_END_TRY();
	return is_interval && !compat_interval_is_infinite(interval);
}

/* the longest length there is stands for all that are longer */
static int64
interval_length(const Interval *interval)
{
	int64		length;

	if (interval->month > LONGEST / USECS_PER_MONTH || interval->day > LONGEST / USECS_PER_DAY ||
		pg_add_s64_overflow(interval->month * USECS_PER_MONTH + interval->day * USECS_PER_DAY,
							interval->time, &length))
		return PG_INT64_MAX;
	return length;
}

Schedule *
schedule_parse(const char *text)
{
	Schedule   *schedule = palloc0(sizeof(Schedule));
	Interval   *interval = &schedule->interval;
	const char *hint = "Use an interval from a second to 100 years, such as \"5 minutes\".";

	if (cron_is_meant(text))
	{
		schedule->cron = cron_parse(text);
		return schedule;
	}
	if (!read_interval(text, interval))
		bad_schedule(text, "It is neither an interval nor a cron line.",
					 "An interval is such as \"5 minutes\", and a cron line such as \"30 2 * * mon-fri\".");
	if (interval->month < 0 || interval->day < 0 || interval->time < 0)
		bad_schedule(text, "The interval is negative, or a part of it is.", hint);
	schedule->length = interval_length(interval);
	if (schedule->length < USECS_PER_SEC)
		bad_schedule(text, "The interval is shorter than a second.", hint);
	if (schedule->length > LONGEST)
		bad_schedule(text, "The interval is longer than 100 years.", hint);
	return schedule;
}

static const char range_detail[] = "The next time of a schedule is not one that a timestamp holds.";
static const char range_hint[] = "Ask for its time from an earlier one on.";

static void
out_of_range(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
			 errmsg("timestamp out of range"),
			 errdetail_internal("%s", range_detail),
			 errhint("%s", range_hint)));
}

/*
 * anchor + count × interval. No product overflows, as the whole of it is within
 * a few intervals of a timestamp.
 */
static TimestampTz
nth_time(const Interval *interval, TimestampTz anchor, int64 count)
{
	Interval	all = {
		.month = count * interval->month,
		.day = count * interval->day,
		.time = count * interval->time
	};

	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(anchor),
												   IntervalPGetDatum(&all)));
}

static TimestampTz
next_of_interval(const Schedule *schedule, TimestampTz anchor, TimestampTz after)
{
	const Interval *interval = &schedule->interval;
	int64		elapsed;
	int64		count;
	TimestampTz next;
	Trouble		trouble;

	if (pg_sub_s64_overflow(after, anchor, &elapsed))
		out_of_range();
	count = elapsed / schedule->length - (elapsed % schedule->length < 0 ? 1 : 0);
	if (interval->month == 0 && interval->day == 0)
	{
		next = anchor + count * schedule->length;
		if (pg_add_s64_overflow(next, schedule->length, &next) || !IS_VALID_TIMESTAMP(next))
			out_of_range();
		return next;
	}
	/* months and days differ in length, but over any time by less than two of them */
	trouble_begin(&trouble, range_detail, range_hint);
	while (nth_time(interval, anchor, count) > after)
		count--;
	while ((next = nth_time(interval, anchor, count)) <= after)
	{
		CHECK_FOR_INTERRUPTS();
		count++;
	}
	trouble_end(&trouble);
	return next;
}

bool
schedule_goes_by_days(const Schedule *schedule)
{
	return schedule->cron == NULL && (schedule->interval.day != 0 || schedule->interval.month != 0);
}

bool
schedule_is_interval(const Schedule *schedule)
{
	return schedule->cron == NULL;
}

bool
schedule_has_zone(const Schedule *schedule)
{
	return schedule->cron && cron_has_zone(schedule->cron);
}

TimestampTz
schedule_next(const Schedule *schedule, TimestampTz anchor, TimestampTz after)
{
	if (TIMESTAMP_NOT_FINITE(after) || (!schedule->cron && TIMESTAMP_NOT_FINITE(anchor)))
		out_of_range();
	if (schedule->cron)
		return cron_next(schedule->cron, after);
	return next_of_interval(schedule, anchor, after);
}

/* from 0 to below the limit */
static int64
hash_below(int64 job_id, int64 limit)
{
	return hash_bytes_extended((const unsigned char *) &job_id, sizeof(job_id), 0) % (uint64) limit;
}

int64
schedule_spread(const Schedule *schedule, int64 job_id)
{
	return schedule->cron ? hash_below(job_id, SPREAD_CRON) : 0;
}

TimestampTz
schedule_anchor(const Schedule *schedule, TimestampTz created, int64 job_id)
{
	if (schedule->cron)
		return created;
	return created + hash_below(job_id, Min(schedule->length, SPREAD_ANCHOR));
}

PG_FUNCTION_INFO_V1(incload_next_runs);

/*
 * incload_next_runs(schedule, n, after) → setof timestamptz
 *		The next n times of a schedule, with intervals counted from "after".
 */
Datum
incload_next_runs(PG_FUNCTION_ARGS)
{
	char	   *what = text_to_cstring(PG_GETARG_TEXT_PP(0));
	int32		n = PG_GETARG_INT32(1);
	TimestampTz anchor = PG_GETARG_TIMESTAMPTZ(2);
	TimestampTz next = anchor;
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Schedule   *schedule;

	if (n < 1 || n > 1000)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"n\" is out of range"),
				 errdetail("The number of times is %d.", n),
				 errhint("Give a number from 1 to 1000; \"after\" goes on from the last time.")));
	if (TIMESTAMP_NOT_FINITE(anchor))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"after\" must be finite"),
				 errdetail("Nothing comes after infinity, and everything before it."),
				 errhint("Give a time, or leave it out for now().")));
	schedule = schedule_parse(what);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < n; i++)
	{
		Datum		values[1];
		bool		nulls[1] = {false};

		CHECK_FOR_INTERRUPTS();
		next = schedule_next(schedule, anchor, next);
		values[0] = TimestampTzGetDatum(next);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
