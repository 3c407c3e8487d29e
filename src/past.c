/*
 * past.c
 *		The runs of a job in the last 30 days, as objectives look at them.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "past.h"

/* Reader: a Past in the making */
typedef struct Reader
{
	Past	   *past;
	int			space;
	TimestampTz from;
	bool		knows_before;	/* a success that ended before "from" is in it */
} Reader;

/* the columns of incload.run_store that are looked at, in the order of these */
enum
{
	RUN_ID, RUN_KIND, RUN_STATUS, RUN_STARTED, RUN_FINISHED, RUN_ROWS, RUN_BYTES, RUN_SQLSTATE, RUN_COLUMNS
};

static const char *const run_columns[RUN_COLUMNS] = {
	"run_id", "kind", "status", "started_at", "finished_at", "rows_read", "bytes_read", "sqlstate"
};

static bool
text_is(Datum value, const char *word)
{
	text	   *t = DatumGetTextPP(value);
	int			length = strlen(word);

	return VARSIZE_ANY_EXHDR(t) == length && memcmp(VARDATA_ANY(t), word, length) == 0;
}

/* is it an outcome, and of which kind? */
static bool
classify(const Datum *values, Outcome *outcome)
{
	bool		succeeded = text_is(values[RUN_STATUS], "succeeded");

	outcome->is_full = text_is(values[RUN_KIND], "full");
	if (text_is(values[RUN_KIND], "backfill"))
	{
		outcome->kind = OUTCOME_BACKFILL;
		return succeeded;
	}
	if (!outcome->is_full && !text_is(values[RUN_KIND], "incremental"))
		return false;
	outcome->kind = succeeded ? OUTCOME_SUCCEEDED : OUTCOME_FAILED;
	return succeeded || text_is(values[RUN_STATUS], "failed");
}

static void
keep(Reader *reader, const Outcome *outcome)
{
	Past	   *past = reader->past;

	if (past->n == reader->space)
	{
		reader->space *= 2;
		past->outcomes = repalloc_huge(past->outcomes, sizeof(Outcome) * reader->space);
	}
	past->outcomes[past->n++] = *outcome;
}

/* a row of incload.run_store, the newest first; false when enough is known */
static bool
read_run(const Datum *values, const bool *nulls, void *arg)
{
	Reader	   *reader = arg;
	Outcome		outcome = {0};

	outcome.started_at = DatumGetTimestampTz(values[RUN_STARTED]);
	/* runs are numbered as they start, but for one that was promised a number: a run or two may be out of order */
	if (reader->knows_before && outcome.started_at < reader->from)
		return false;
	if (nulls[RUN_FINISHED] || !classify(values, &outcome))
		return true;
	outcome.finished_at = DatumGetTimestampTz(values[RUN_FINISHED]);
	if (outcome.finished_at > reader->past->at)
		return true;
	outcome.run_id = DatumGetInt64(values[RUN_ID]);
	outcome.rows_read = DatumGetInt64(values[RUN_ROWS]);
	outcome.bytes_read = DatumGetInt64(values[RUN_BYTES]);
	if (!nulls[RUN_SQLSTATE])
		strlcpy(outcome.error_class, TextDatumGetCString(values[RUN_SQLSTATE]), sizeof(outcome.error_class));
	keep(reader, &outcome);
	reader->knows_before |= outcome.kind == OUTCOME_SUCCEEDED && outcome.finished_at <= reader->from;
	return true;
}

static int
compare_outcomes(const void *a, const void *b)
{
	TimestampTz left = ((const Outcome *) a)->finished_at;
	TimestampTz right = ((const Outcome *) b)->finished_at;

	return (left > right) - (left < right);
}

Past *
past_read(int64 job_id, TimestampTz from, TimestampTz at)
{
	Reader		reader = {.past = palloc0(sizeof(Past)),.space = 64,.from = from};

	reader.past->at = at;
	reader.past->outcomes = palloc(sizeof(Outcome) * reader.space);
	catalog_scan("run_store", "run_store_job_idx", job_id, run_columns, RUN_COLUMNS, read_run, &reader);
	qsort(reader.past->outcomes, reader.past->n, sizeof(Outcome), compare_outcomes);
	return reader.past;
}

/* the same of incload.reconcile_store */
enum
{
	FOUND_AT, FOUND_SOURCE, FOUND_TARGET, FOUND_MISSING, FOUND_EXTRA, FOUND_DUPLICATE, FOUND_COLUMNS
};

static const char *const found_columns[FOUND_COLUMNS] = {
	"at", "source_rows", "target_rows", "rows_missing", "rows_extra", "rows_duplicate"
};

typedef struct FindingsReader
{
	Findings	findings;
	TimestampTz from;
	TimestampTz to;
} FindingsReader;

static bool
read_findings(const Datum *values, const bool *nulls, void *arg)
{
	FindingsReader *reader = arg;
	Findings   *findings = &reader->findings;
	TimestampTz at = DatumGetTimestampTz(values[FOUND_AT]);

	if (at > reader->to || at <= reader->from)
		return at > reader->from;
	findings->comparisons++;
	findings->source_rows += DatumGetInt64(values[FOUND_SOURCE]);
	findings->target_rows += DatumGetInt64(values[FOUND_TARGET]);
	findings->missing += DatumGetInt64(values[FOUND_MISSING]);
	findings->extra += DatumGetInt64(values[FOUND_EXTRA]);
	findings->duplicate += DatumGetInt64(values[FOUND_DUPLICATE]);
	return true;
}

Findings
past_findings(int64 job_id, TimestampTz from, TimestampTz to)
{
	FindingsReader reader = {.from = from,.to = to};

	catalog_scan("reconcile_store", "reconcile_store_job_idx", job_id, found_columns, FOUND_COLUMNS,
				 read_findings, &reader);
	return reader.findings;
}
