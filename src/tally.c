/*
 * tally.c
 *		Counters that only go up, beside a history that is pruned.
 *
 * A trigger on incload.run_store adds to a job's tally what a write of a run's
 * row has brought, in the transaction that writes it: so whoever writes the
 * row, a run, a batch, the record of a failure or the closing of a dead run, is
 * counted once, and what is rolled back is not counted.
 *
 * Nobody may wait for a tally: a run's transaction can stay open for as long as
 * its session likes, and the worker that records the next failure of the same
 * session would wait for it for ever. Whoever finds a job's row locked makes
 * another, and whoever finds two free ones puts them together. The counter is
 * the sum of a job's rows.
 *
 * A tally also gathers the outcomes of runs (outcome.c): they are added up by
 * putting them one behind the other.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "incload.h"
#include "outcome.h"

/* the columns of incload.tally_store that add up; the first ones have the same names in incload.run_store */
static const char *const columns[] = {
	"rows_read", "rows_inserted", "rows_updated", "rows_unchanged", "rows_deleted", "rows_superseded",
	"rows_suppressed", "rows_rejected", "rows_pruned", "batches", "bytes_read",
	"runs_succeeded", "runs_failed", "runs_cancelled", "runs_skipped",
	"run_microseconds", "backfill_rows_read", "pages", "tickets"
};

#define NCOLUMNS lengthof(columns)
#define NSHARED 11				/* as far as bytes_read */

/* the ends of a run, as columns from runs_succeeded on; "running" is none */
static const char *const ends[] = {"succeeded", "failed", "cancelled", "skipped"};

enum
{
	RUNS_SUCCEEDED = NSHARED,
	RUN_MICROSECONDS = NSHARED + lengthof(ends),
	BACKFILL_ROWS_READ,
	PAGES,
	TICKETS
};

static Datum
attribute(TriggerData *trigger, HeapTuple tuple, const char *column, bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);

	return SPI_getbinval(tuple, desc, SPI_fnumber(desc, column), isnull);
}

static int64
number(TriggerData *trigger, HeapTuple tuple, const char *column)
{
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	bool		isnull;
	Datum		value;

	if (tuple == NULL)
		return 0;
	value = attribute(trigger, tuple, column, &isnull);
	if (isnull)
		return 0;
	return SPI_gettypeid(desc, SPI_fnumber(desc, column)) == INT4OID ? DatumGetInt32(value) : DatumGetInt64(value);
}

static char *
word(TriggerData *trigger, HeapTuple tuple, const char *column)
{
	bool		isnull;
	Datum		value;

	if (tuple == NULL)
		return "";
	value = attribute(trigger, tuple, column, &isnull);
	return isnull ? "" : TextDatumGetCString(value);
}

/* a piece of SQL for each column from one on: @ is its name, # its parameter, which are counted from 2 */
static char *
each_column(int from, const char *format)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = from; i < NCOLUMNS; i++)
	{
		appendStringInfoString(&buf, i > from ? ", " : "");
		for (const char *piece = format; *piece; piece++)
			if (*piece == '@')
				appendStringInfoString(&buf, columns[i]);
			else if (*piece == '#')
				appendStringInfo(&buf, "$%d::bigint", i - from + 2);
			else
				appendStringInfoChar(&buf, *piece);
	}
	return buf.data;
}

/* adds to a row that nobody has locked; how many the job has, 0 for no such row */
static int
add_to_free_row(int64 job_id, int from, int nparams, const char *const *params)
{
	/* made once a session, as each run comes here */
	static const char *kept[2] = {NULL, NULL};
	const char **sql = &kept[from > 0];
	TextRows   *rows;

	if (*sql == NULL)
		*sql = MemoryContextStrdup(TopMemoryContext, psprintf(
			"UPDATE incload.tally_store t SET %s, recent = t.recent || $%d::bytea, recent_to = greatest(t.recent_to, $%d::timestamptz)"
			" WHERE tally_id = (SELECT f.tally_id FROM incload.tally_store f"
			" WHERE f.job_id = $1::bigint ORDER BY f.tally_id LIMIT 1 FOR UPDATE SKIP LOCKED)"
			" RETURNING (SELECT count(*) FROM incload.tally_store c WHERE c.job_id = t.job_id), octet_length(t.recent), t.tally_id",
			each_column(from, "@ = @ + #"), nparams - 1, nparams));
	rows = catalog_query(*sql, nparams, params);
	if (rows->nrows == 0)
		return 0;
	if (atoi(rows->value[0][1]) >= OUTCOMES_RECENT)
		outcomes_condense(job_id, rows->value[0][2]);
	return atoi(rows->value[0][0]);
}

/* two rows of a job become one, if nobody has locked them */
static void
merge(int64 job_id)
{
	const char *job[1] = {catalog_number(job_id)};
	TextRows   *rows = catalog_query("SELECT tally_id FROM incload.tally_store WHERE job_id = $1::bigint"
									 " ORDER BY tally_id LIMIT 2 FOR UPDATE SKIP LOCKED", 1, job);

	if (rows->nrows < 2)
		return;
	catalog_query(psprintf("WITH other AS (DELETE FROM incload.tally_store WHERE tally_id = $2::bigint RETURNING *)"
						   " UPDATE incload.tally_store t SET %s, recent = t.recent || o.recent, recent_to = greatest(t.recent_to, o.recent_to)"
						   " FROM other o WHERE t.tally_id = $1::bigint",
						   each_column(0, "@ = t.@ + o.@")),
				  2, (const char *const[]) {rows->value[0][0], rows->value[1][0]});
}

/*
 * Adds to one of the job's rows. In a transaction with one snapshot for all its
 * statements, a row that was changed since would be an error: it always makes
 * its own.
 */
static void
add(int64 job_id, const int64 *gains, const Outcome *outcomes, int noutcomes)
{
	const char *params[NCOLUMNS + 3] = {catalog_number(job_id)};
	int			from = 0;
	int			n;
	int			nrows = 0;

	/* a run without news has counted nothing */
	while (from < NSHARED && gains[from] == 0)
		from++;
	from = from == NSHARED ? NSHARED : 0;
	for (int i = from; i < NCOLUMNS; i++)
		params[i - from + 1] = catalog_number(gains[i]);
	n = NCOLUMNS - from + 1;
	params[n++] = outcomes_as_text(outcomes, noutcomes);
	params[n++] = noutcomes > 0 ? pstrdup(timestamptz_to_str(Max(outcomes[0].finished_at, outcomes[noutcomes - 1].finished_at))) : NULL;
	if (!IsolationUsesXactSnapshot())
		nrows = add_to_free_row(job_id, from, n, params);
	if (nrows == 0)
		catalog_query(psprintf("INSERT INTO incload.tally_store (job_id, %s, recent, recent_to)"
							   " VALUES ($1::bigint, %s, $%d::bytea, $%d::timestamptz)",
							   each_column(from, "@"), each_column(from, "#"), n - 1, n), n, params);
	else if (nrows > 1)
		merge(job_id);
}

static void
require_trigger(FunctionCallInfo fcinfo)
{
	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(((TriggerData *) fcinfo->context)->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(((TriggerData *) fcinfo->context)->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function is a trigger of incload's own tables")));
}

/* the column of a run's end; -1 as long as it has none */
static int
end_column(const char *status)
{
	for (int i = 0; i < lengthof(ends); i++)
		if (strcmp(status, ends[i]) == 0)
			return RUNS_SUCCEEDED + i;
	return -1;
}

/* what the row's counts have grown by; a run that failed falls back to what is committed, which is not less */
static void
take_counts(TriggerData *trigger, HeapTuple before, HeapTuple now, int64 *gains)
{
	for (int i = 0; i < NSHARED; i++)
		gains[i] = Max(number(trigger, now, columns[i]) - number(trigger, before, columns[i]), 0);
	if (strcmp(word(trigger, now, "kind"), "backfill") == 0)
		gains[BACKFILL_ROWS_READ] = gains[0];
}

static void
take_end(TriggerData *trigger, HeapTuple before, HeapTuple now, int64 *gains)
{
	int			end = end_column(word(trigger, now, "status"));
	bool		isnull;
	TimestampTz started = DatumGetTimestampTz(attribute(trigger, now, "started_at", &isnull));
	Datum		finished = attribute(trigger, now, "finished_at", &isnull);

	if (end < 0 || end_column(word(trigger, before, "status")) >= 0)
		return;
	gains[end] = 1;
	if (!isnull)
		gains[RUN_MICROSECONDS] = Max(DatumGetTimestampTz(finished) - started, 0);
}

/* is the run of that row over, in a way that says something? */
static bool
take_outcome(TriggerData *trigger, HeapTuple tuple, Outcome *outcome)
{
	Datum		started;
	Datum		finished;
	bool		isnull;

	if (tuple == NULL || !outcome_set_kind(outcome, word(trigger, tuple, "kind"), word(trigger, tuple, "status")))
		return false;
	started = attribute(trigger, tuple, "started_at", &isnull);
	finished = attribute(trigger, tuple, "finished_at", &isnull);
	if (isnull)
		return false;
	outcome_set(outcome, DatumGetTimestampTz(started), DatumGetTimestampTz(finished), number(trigger, tuple, "rows_read"),
				number(trigger, tuple, "bytes_read"), word(trigger, tuple, "sqlstate"));
	return true;
}

/* what has to be added to the outcomes of the job, for them to be as the row is now; at most two */
static int
take_outcomes(TriggerData *trigger, HeapTuple before, HeapTuple now, Outcome *outcomes)
{
	bool		was = take_outcome(trigger, before, &outcomes[0]);
	bool		is = take_outcome(trigger, now, &outcomes[was]);

	if (was && is && memcmp(&outcomes[0], &outcomes[1], sizeof(Outcome)) == 0)
		return 0;
	if (was)
		outcomes[0].rows |= OUTCOME_GONE;
	return was + is;
}

/* A row leaves the history. What is as old as what is pruned is not looked at, and goes with others of its age. */
static void
take_deletion(TriggerData *trigger, HeapTuple before)
{
	int64		gains[NCOLUMNS] = {0};
	Outcome		outcomes[2];
	int			n = take_outcomes(trigger, before, NULL, outcomes);
	int64		job_id = number(trigger, before, "job_id");

	if (n == 0 || (incload_run_retention > 0 &&
				   outcome_started_at(&outcomes[0]) < GetCurrentTimestamp() - incload_run_retention * USECS_PER_MINUTE))
		return;
	/* nothing is kept of a job that was dropped */
	if (catalog_has_tally(job_id))
		add(job_id, gains, outcomes, n);
}

PG_FUNCTION_INFO_V1(incload_tally_run);

/*
 * incload.tally_run() → trigger
 *		After a row of incload.run_store is written: what it says more than before.
 */
Datum
incload_tally_run(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	int64		gains[NCOLUMNS] = {0};
	Outcome		outcomes[2];
	HeapTuple	before = NULL;
	HeapTuple	now;
	int			noutcomes;
	bool		has_news;

	require_trigger(fcinfo);
	now = trigger->tg_trigtuple;
	if (TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
	{
		take_deletion(trigger, now);
		return PointerGetDatum(NULL);
	}
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
	{
		before = trigger->tg_trigtuple;
		now = trigger->tg_newtuple;
	}
	take_counts(trigger, before, now, gains);
	take_end(trigger, before, now, gains);
	noutcomes = take_outcomes(trigger, before, now, outcomes);
	has_news = noutcomes > 0;
	for (int i = 0; i < NCOLUMNS; i++)
		has_news |= gains[i] != 0;
	if (has_news)
		add(number(trigger, now, "job_id"), gains, outcomes, noutcomes);
	return PointerGetDatum(NULL);
}

PG_FUNCTION_INFO_V1(incload_tally_event);

/*
 * incload.tally_event() → trigger
 *		After a page or a ticket of a job is written.
 */
Datum
incload_tally_event(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	int64		gains[NCOLUMNS] = {0};

	require_trigger(fcinfo);
	gains[strcmp(word(trigger, trigger->tg_trigtuple, "severity"), "page") == 0 ? PAGES : TICKETS] = 1;
	add(number(trigger, trigger->tg_trigtuple, "job_id"), gains, NULL, 0);
	return PointerGetDatum(NULL);
}
