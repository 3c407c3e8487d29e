/*
 * slo.c
 *		What a job has achieved, against its objectives.
 *
 * The freshness of a target is the time since its last successful run began, counted
 * from the end of that run on: it grows as time passes, and falls when a run succeeds. All
 * that is known of it is in the history of runs, and all that is said of it here is exact.
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "ages.h"
#include "catalog.h"
#include "compat.h"
#include "incload.h"
#include "past.h"
#include "role.h"
#include "schedule.h"
#include "slo.h"

/* how many times of a schedule are looked at for its shortest interval */
#define TIMES_LOOKED_AT 10

/* where freshness_slo is set and success_slo is not */
#define USUAL_FRACTION 0.99

/* Objectives: what a job is to achieve */
typedef struct Objectives
{
	int64		freshness;		/* microseconds; 0: no objective */
	bool		has_success;	/* whether runs have one */
	double		fraction;		/* of the time, and of the runs */
} Objectives;

/* Record: what became of a job between two times */
typedef struct Record
{
	TimestampTz from;
	TimestampTz to;
	Stretch    *stretches;		/* of its freshness, as far as that is known */
	int			nstretches;
	int64		observed;		/* for how long that is */
	int64		known;			/* for how long anything is known */
	int64		stale;			/* for how long it was beyond the objective */
	int64		runs;
	int64		failed;
	StringInfoData errors;		/* classes of SQLSTATE, each as often as it came, 3 bytes each */
	int64		recoveries;
	int64		recovering;		/* their time, all together */
	int64		backfill_rows;
	int64		backfill_bytes;
} Record;

/* the shortest time between two of the schedule's */
static int64
shortest_interval(const Job *job)
{
	Schedule   *schedule = schedule_parse(job->schedule);
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz last = schedule_next(schedule, now, now);
	int64		shortest = PG_INT64_MAX;

	for (int i = 0; i < TIMES_LOOKED_AT; i++)
	{
		TimestampTz next = schedule_next(schedule, now, last);

		shortest = Min(shortest, next - last);
		last = next;
	}
	return shortest;
}

void
slo_check(const Job *job)
{
	const JobOptions *options = job->options;

	if (options_has(job->options_json, "success_slo") && (options->success_slo <= 0 || options->success_slo >= 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"success_slo\" must be between 0 and 1"),
				 errdetail("What is left to 1 is the error budget: how much may go wrong."),
				 errhint("For example: options => '{\"success_slo\": 0.99}'.")));
	if (options->freshness_slo > 0 && job->schedule &&
		shortest_interval(job) >= options->freshness_slo * INT64CONST(1000))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"freshness_slo\" cannot be met by the schedule of job \"%s\"", job->name),
				 errdetail("Before each run, the target is at least as old as the time between two of them, and that is no shorter than the objective."),
				 errhint("Let it run more often, or set an objective of about twice the schedule's interval.")));
}

static Objectives
objectives_of(const Job *job)
{
	Objectives	objectives = {.freshness = job->options->freshness_slo * INT64CONST(1000)};

	objectives.has_success = job->options->success_slo > 0;
	objectives.fraction = objectives.has_success ? job->options->success_slo : USUAL_FRACTION;
	return objectives;
}

/* the freshness in each state of the target, from when it came to when the next one did */
static void
follow_freshness(Record *record, const Past *past)
{
	int			first = Max(past_state_at(past, record->from), 0);

	record->stretches = palloc(sizeof(Stretch) * (past->nstates - first + 1));
	for (int i = first; i < past->nstates; i++)
	{
		const State *state = &past->states[i];
		TimestampTz from = Max(state->since, record->from);
		TimestampTz to = i + 1 < past->nstates ? Min(state[1].since, record->to) : record->to;

		if (from < to)
			record->stretches[record->nstretches++] = (Stretch) {.low = from - state->as_of,.high = to - state->as_of};
	}
	record->observed = ages_time(record->stretches, record->nstretches);
}

/* a row of failures may have begun before the time, but not before the last success */
static void
count_outcomes(Record *record, const Past *past)
{
	TimestampTz failing_since = 0;

	initStringInfo(&record->errors);
	for (int i = past_outcome_at(past, record->from); i < past->n; i++)
	{
		const Outcome *outcome = &past->outcomes[i];
		bool		is_inside = outcome->finished_at > record->from && outcome->finished_at <= record->to;
		bool		succeeded = outcome_kind(outcome) == OUTCOME_SUCCEEDED;

		if (outcome_kind(outcome) == OUTCOME_BACKFILL)
		{
			record->backfill_rows += is_inside ? outcome_rows(outcome) : 0;
			record->backfill_bytes += is_inside ? outcome_bytes(outcome) : 0;
			continue;
		}
		if (is_inside)
		{
			record->runs++;
			record->failed += !succeeded;
			if (!succeeded)
			{
				appendStringInfoChar(&record->errors, outcome->what >> 8 & 0xff);
				appendStringInfoChar(&record->errors, outcome->what & 0xff);
				appendStringInfoChar(&record->errors, '\0');
			}
			if (succeeded && failing_since != 0)
			{
				record->recoveries++;
				record->recovering += outcome->finished_at - failing_since;
			}
		}
		if (succeeded)
			failing_since = 0;
		else if (failing_since == 0)
			failing_since = outcome->finished_at;
	}
}

static Record
look_back(const Past *past, const Objectives *objectives, int64 period)
{
	Record		record = {.from = past->at - period,.to = past->at};

	follow_freshness(&record, past);
	count_outcomes(&record, past);
	if (objectives->freshness > 0)
		record.stale = ages_above(record.stretches, record.nstretches, objectives->freshness);
	if (past->n > 0)
		record.known = past->at - Max(record.from, outcome_started_at(&past->outcomes[0]));
	return record;
}

/*
 * How fast the error budget is spent: 1 is a pace at which it lasts for the whole period. The
 * faster of the two objectives; NaN where neither can be judged.
 */
static double
burn_rate(const Record *record, const Objectives *objectives)
{
	double		rate = NAN;

	if (objectives->freshness > 0 && record->observed > 0)
		rate = (double) record->stale / record->observed / (1 - objectives->fraction);
	if (objectives->has_success && record->runs > 0)
		/* fmax() takes a number rather than a NaN */
		rate = fmax(rate, (double) record->failed / record->runs / (1 - objectives->fraction));
	return rate;
}

/* what is left of the error budget of the whole period: the smaller one, and by which objective; NaN likewise */
static double
budget_left(const Record *record, const Objectives *objectives, int64 period, const char **by)
{
	double		left = NAN;
	double		allowed = (1 - objectives->fraction) * period;

	*by = NULL;
	if (objectives->freshness > 0 && record->observed > 0)
	{
		left = 1 - record->stale / allowed;
		*by = "freshness";
	}
	if (objectives->has_success && record->runs > 0)
	{
		/* as if the runs of a job that is younger than the period had gone on like that all the time */
		double		of_runs = 1 - (double) record->failed / record->runs * record->known / allowed;

		if (*by == NULL || of_runs < left)
		{
			left = of_runs;
			*by = "success";
		}
	}
	return left;
}

static int
compare_classes(const void *a, const void *b)
{
	return memcmp(a, b, 3);
}

/* {"08": 2, "23": 1} */
static Datum
errors_as_json(const Record *record)
{
	StringInfoData buf;
	char	   *errors = record->errors.data;
	int			n = record->errors.len / 3;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '{');
	qsort(errors, n, 3, compare_classes);
	for (int i = 0, count = 1; i < n; i++, count++)
		if (i == n - 1 || compare_classes(errors + 3 * i, errors + 3 * (i + 1)) != 0)
		{
			appendStringInfo(&buf, "%s\"%s\": %d", buf.len > 1 ? ", " : "", errors + 3 * i, count);
			count = 0;
		}
	appendStringInfoChar(&buf, '}');
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(buf.data));
}

static Datum
interval_datum(int64 microseconds)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = microseconds % USECS_PER_DAY;
	interval->day = microseconds / USECS_PER_DAY;
	return IntervalPGetDatum(interval);
}

/* the periods that are looked back on: each but the six hours is a row */
enum
{
	BACK_HOUR, BACK_DAY, BACK_MONTH, BACK_ROWS, BACK_SIX_HOURS = BACK_ROWS, BACK_COUNT
};

/* Back: what the rows of a job are made of */
typedef struct Back
{
	const Past *past;
	Objectives	objectives;
	Record		records[BACK_COUNT];
	Findings	findings[BACK_ROWS];
	double		left;			/* of the budget of the longest one */
	const char *by;
} Back;

/* columns of incload.slo_figures */
enum
{
	SLO_PERIOD, SLO_AS_OF, SLO_OBSERVED, SLO_P50, SLO_P95, SLO_P99, SLO_FRESHNESS, SLO_FRESH, SLO_SUCCESS, SLO_LEFT, SLO_BY,
	SLO_BURN_1H, SLO_BURN_6H, SLO_RUNS, SLO_FAILED, SLO_RATE, SLO_ERRORS, SLO_RECOVERIES, SLO_RECOVERY, SLO_BACKFILL_ROWS,
	SLO_BACKFILL_BYTES, SLO_COMPARISONS, SLO_MISSING, SLO_EXTRA, SLO_DUPLICATE, SLO_COLUMNS
};

/* Row: on its way to the result; nothing is in it that is not put in */
typedef struct Row
{
	Datum		values[SLO_COLUMNS];
	bool		nulls[SLO_COLUMNS];
} Row;

static void
set(Row *row, int column, bool is_known, Datum value)
{
	row->nulls[column] = !is_known;
	row->values[column] = value;
}

static void
set_fraction(Row *row, int column, bool is_known, double value)
{
	set(row, column, is_known && !isnan(value), Float8GetDatum(value));
}

static void
fill_row(Row *row, const Back *back, int which, const Interval *period)
{
	const Objectives *objectives = &back->objectives;
	const Record *record = &back->records[which];
	const Findings *findings = &back->findings[which];
	bool		is_observed = record->observed > 0;
	static const int percentiles[] = {500, 950, 990};
	int64		ages[lengthof(percentiles)] = {0};

	if (is_observed)
		ages_percentiles(record->stretches, record->nstretches, percentiles, lengthof(percentiles), ages);

	set(row, SLO_PERIOD, true, IntervalPGetDatum(period));
	set(row, SLO_AS_OF, true, TimestampTzGetDatum(back->past->at));
	set(row, SLO_OBSERVED, true, interval_datum(record->observed));
	for (int i = 0; i < lengthof(percentiles); i++)
		set(row, SLO_P50 + i, is_observed, interval_datum(ages[i]));
	set(row, SLO_FRESHNESS, objectives->freshness > 0, interval_datum(objectives->freshness));
	set_fraction(row, SLO_FRESH, is_observed && objectives->freshness > 0,
				 1 - (double) record->stale / Max(record->observed, 1));
	set_fraction(row, SLO_SUCCESS, objectives->freshness > 0 || objectives->has_success, objectives->fraction);
	set_fraction(row, SLO_LEFT, true, back->left);
	set(row, SLO_BY, back->by != NULL, back->by ? CStringGetTextDatum(back->by) : (Datum) 0);
	set_fraction(row, SLO_BURN_1H, true, burn_rate(&back->records[BACK_HOUR], objectives));
	set_fraction(row, SLO_BURN_6H, true, burn_rate(&back->records[BACK_SIX_HOURS], objectives));
	set(row, SLO_RUNS, true, Int64GetDatum(record->runs));
	set(row, SLO_FAILED, true, Int64GetDatum(record->failed));
	set_fraction(row, SLO_RATE, record->runs > 0, 1 - (double) record->failed / Max(record->runs, 1));
	set(row, SLO_ERRORS, true, errors_as_json(record));
	set(row, SLO_RECOVERIES, true, Int64GetDatum(record->recoveries));
	set(row, SLO_RECOVERY, record->recoveries > 0, interval_datum(record->recovering / Max(record->recoveries, 1)));
	set(row, SLO_BACKFILL_ROWS, true, Int64GetDatum(record->backfill_rows));
	set(row, SLO_BACKFILL_BYTES, true, Int64GetDatum(record->backfill_bytes));
	set(row, SLO_COMPARISONS, true, Int64GetDatum(findings->comparisons));
	set_fraction(row, SLO_MISSING, findings->source_rows > 0, (double) findings->missing / Max(findings->source_rows, 1));
	set_fraction(row, SLO_EXTRA, findings->target_rows > 0, (double) findings->extra / Max(findings->target_rows, 1));
	set_fraction(row, SLO_DUPLICATE, findings->target_rows > 0, (double) findings->duplicate / Max(findings->target_rows, 1));
}

/* what is older than the history is kept says nothing, even if some of it is still there */
static int64
kept_part(int64 period)
{
	return incload_run_retention > 0 ? Min(period, incload_run_retention * USECS_PER_MINUTE) : period;
}

bool
slo_may_see(const Job *job)
{
	return superuser() || GetUserId() == role_extension_owner() ||
		(OidIsValid(job->owner) && has_privs_of_role(GetUserId(), job->owner));
}

/* Asked: of a job, what its figures take. Most of it is not looked at, as they are asked of all jobs at once. */
typedef struct Asked
{
	bool		may_see;
	Objectives	objectives;
} Asked;

enum
{
	JOB_OWNER, JOB_OWNER_OID, JOB_DATABASE, JOB_OPTIONS, JOB_COLUMNS
};

static const char *const job_columns[JOB_COLUMNS] = {"owner", "owner_oid", "database", "options"};

static bool
read_job(const Datum *values, const bool *nulls, void *arg)
{
	Asked	   *asked = arg;
	Job			job = {0};

	job.options_json = DatumGetJsonbP(values[JOB_OPTIONS]);
	job.options = options_parse(job.options_json);
	job.owner = catalog_job_owner(NameStr(*DatumGetName(values[JOB_OWNER])), DatumGetObjectId(values[JOB_OWNER_OID]),
								  TextDatumGetCString(values[JOB_DATABASE]));
	asked->may_see = slo_may_see(&job);
	asked->objectives = objectives_of(&job);
	return false;
}

static void
look_back_on(Back *back, int64 job_id, TimestampTz at, const int64 *lengths)
{
	back->past = past_read(job_id, at - lengths[BACK_MONTH], at);
	for (int i = 0; i < BACK_COUNT; i++)
		back->records[i] = look_back(back->past, &back->objectives, lengths[i]);
	for (int i = 0; i < BACK_ROWS; i++)
		back->findings[i].from = back->records[i].from;
	past_findings(job_id, at, back->findings, BACK_ROWS);
	back->left = budget_left(&back->records[BACK_MONTH], &back->objectives, lengths[BACK_MONTH], &back->by);
}

PG_FUNCTION_INFO_V1(incload_slo_of);

/*
 * incload.slo_of(job_id, at) → setof incload.slo_figures
 *		The figures of a job that the caller may see, as of a time: a row for each period.
 */
Datum
incload_slo_of(PG_FUNCTION_ARGS)
{
	static const Interval rows[BACK_ROWS] = {{.time = USECS_PER_HOUR}, {.day = 1}, {.day = PAST_DAYS}};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		job_id = PG_GETARG_INT64(0);
	TimestampTz at = PG_GETARG_TIMESTAMPTZ(1);
	int64		lengths[BACK_COUNT] = {[BACK_SIX_HOURS] = kept_part(6 * USECS_PER_HOUR)};
	Asked		asked = {0};
	Back		back = {0};

	InitMaterializedSRF(fcinfo, 0);
	catalog_scan("job_store", "job_store_pkey", job_id, job_columns, JOB_COLUMNS, read_job, &asked);
	if (!asked.may_see || TIMESTAMP_NOT_FINITE(at))
		return (Datum) 0;
	back.objectives = asked.objectives;
	for (int i = 0; i < BACK_ROWS; i++)
		lengths[i] = kept_part(rows[i].time + rows[i].day * USECS_PER_DAY);
	look_back_on(&back, job_id, at, lengths);
	for (int i = 0; i < BACK_ROWS; i++)
	{
		Row			row;

		fill_row(&row, &back, i, &rows[i]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row.values, row.nulls);
	}
	return (Datum) 0;
}
