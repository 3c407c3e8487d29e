/*
 * past.c
 *		The runs of a job in the last 30 days, as objectives look at them.
 *
 * They are read from where they are kept small (outcome.c). Both places are read by one
 * snapshot, so that what moves from one to the other in between is seen once.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "past.h"

/* Reader: a Past in the making. What is newer is read first, so outcomes are put one before the other, from the end of the space. */
typedef struct Reader
{
	Outcome    *outcomes;		/* as large as the space */
	int			space;
	int			first;
	TimestampTz from;
	TimestampTz at;
	TimestampTz success;		/* the latest end of a success until "from" */
	bool		has_gone;		/* some that are read are taken back */
} Reader;

static Outcome *
make_room(Reader *reader, int n)
{
	if (reader->first < n)
	{
		int			used = reader->space - reader->first;
		int			space = Max(reader->space * 2, used + n);
		Outcome    *outcomes = palloc_extended(sizeof(Outcome) * space, MCXT_ALLOC_HUGE);

		memcpy(outcomes + space - used, reader->outcomes + reader->first, sizeof(Outcome) * used);
		pfree(reader->outcomes);
		reader->outcomes = outcomes;
		reader->space = space;
		reader->first = space - used;
	}
	return reader->outcomes + reader->first - n;
}

static void
take(Reader *reader, Datum stored)
{
	bytea	   *bytes = DatumGetByteaPP(stored);
	int			n = VARSIZE_ANY_EXHDR(bytes) / sizeof(Outcome);
	Outcome    *outcomes = make_room(reader, n);

	memcpy(outcomes, VARDATA_ANY(bytes), sizeof(Outcome) * n);
	reader->first -= n;
	for (int i = 0; i < n; i++)
	{
		reader->has_gone |= outcome_is_gone(&outcomes[i]);
		if (outcome_kind(&outcomes[i]) == OUTCOME_SUCCEEDED && outcomes[i].finished_at <= reader->from)
			reader->success = Max(reader->success, outcomes[i].finished_at);
	}
	if ((Pointer) bytes != DatumGetPointer(stored))
		pfree(bytes);
}

static bool
take_recent(const Datum *values, const bool *nulls, void *arg)
{
	take(arg, values[0]);
	return true;
}

/* a row of incload.outcome_store, by its latest outcome; false when all of the others are older than what is needed */
static bool
take_condensed(const Datum *values, const bool *nulls, void *arg)
{
	Reader	   *reader = arg;

	if (!reader->has_gone && DatumGetTimestampTz(values[0]) < reader->success)
		return false;
	take(reader, values[1]);
	return true;
}

/* what is taken back and what takes it back are side by side */
static int
compare_outcomes(const void *a, const void *b)
{
	const Outcome *left = a;
	const Outcome *right = b;
	uint64		left_rows = left->rows & ~(uint64) OUTCOME_GONE;
	uint64		right_rows = right->rows & ~(uint64) OUTCOME_GONE;

	if (left->finished_at != right->finished_at)
		return left->finished_at < right->finished_at ? -1 : 1;
	if (left->what != right->what)
		return left->what < right->what ? -1 : 1;
	return (left_rows > right_rows) - (left_rows < right_rows);
}

/* those that were taken back go, in pairs */
static int
drop_gone(Outcome *outcomes, int n)
{
	int			kept = 0;

	qsort(outcomes, n, sizeof(Outcome), compare_outcomes);
	for (int i = 0, end; i < n; i = end)
	{
		int			balance = 0;

		for (end = i; end < n && compare_outcomes(&outcomes[i], &outcomes[end]) == 0; end++)
			balance += outcome_is_gone(&outcomes[end]) ? -1 : 1;
		outcomes[i].rows &= ~(uint64) OUTCOME_GONE;
		for (; balance > 0; balance--)
			outcomes[kept++] = outcomes[i];
	}
	return kept;
}

/* they mostly are */
static void
put_in_order(Past *past)
{
	for (int i = 1; i < past->n; i++)
		if (past->outcomes[i].finished_at < past->outcomes[i - 1].finished_at)
		{
			qsort(past->outcomes, past->n, sizeof(Outcome), compare_outcomes);
			break;
		}
}

/* from the last success before the time asked for on, as far as that is known; nothing after "at" */
static void
cut(Past *past, TimestampTz from)
{
	int			first = 0;

	while (past->n > 0 && past->outcomes[past->n - 1].finished_at > past->at)
		past->n--;
	for (int i = 0; i < past->n && past->outcomes[i].finished_at <= from; i++)
		if (outcome_kind(&past->outcomes[i]) == OUTCOME_SUCCEEDED)
			first = i;
	past->outcomes += first;
	past->n -= first;
}

static void
follow_states(Past *past)
{
	TimestampTz as_of = 0;

	past->states = palloc_extended(sizeof(State) * Max(past->n, 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < past->n; i++)
	{
		const Outcome *outcome = &past->outcomes[i];

		if (outcome_kind(outcome) != OUTCOME_SUCCEEDED)
			continue;
		as_of = past->nstates == 0 ? outcome_started_at(outcome) : Max(as_of, outcome_started_at(outcome));
		past->states[past->nstates++] = (State) {.since = outcome->finished_at,.as_of = as_of};
	}
}

Past *
past_read(int64 job_id, TimestampTz from, TimestampTz at)
{
	static const char *const recent[] = {"recent"};
	static const char *const condensed[] = {"ended_by", "outcomes"};
	Reader		reader = {.space = 256,.first = 256,.from = from,.at = at,.success = PG_INT64_MIN};
	Past	   *past = palloc0(sizeof(Past));

	reader.outcomes = palloc(sizeof(Outcome) * reader.space);
	catalog_scan("tally_store", "tally_store_job_idx", job_id, recent, lengthof(recent), take_recent, &reader);
	catalog_scan("outcome_store", "outcome_store_job_idx", job_id, condensed, lengthof(condensed), take_condensed, &reader);
	past->at = at;
	past->outcomes = reader.outcomes + reader.first;
	past->n = reader.space - reader.first;
	if (reader.has_gone)
		past->n = drop_gone(past->outcomes, past->n);
	put_in_order(past);
	cut(past, from);
	follow_states(past);
	return past;
}

/* how many of the elements, which begin with a time and are in its order, are not after that time */
static int
count_until(const void *elements, int n, Size size, TimestampTz at)
{
	int			low = 0;
	int			high = n;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (*(const TimestampTz *) ((const char *) elements + middle * size) <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

StaticAssertDecl(offsetof(State, since) == 0 && offsetof(Outcome, finished_at) == 0, "they begin with a time");

int
past_state_at(const Past *past, TimestampTz at)
{
	return count_until(past->states, past->nstates, sizeof(State), at) - 1;
}

int
past_outcome_at(const Past *past, TimestampTz at)
{
	int			last = count_until(past->outcomes, past->n, sizeof(Outcome), at);

	while (last > 0 && outcome_kind(&past->outcomes[--last]) != OUTCOME_SUCCEEDED)
		continue;
	return last;
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
	TimestampTz to;
	Findings   *findings;
	int			n;
} FindingsReader;

static bool
read_findings(const Datum *values, const bool *nulls, void *arg)
{
	FindingsReader *reader = arg;
	TimestampTz at = DatumGetTimestampTz(values[FOUND_AT]);
	bool		is_wanted = false;

	for (int i = 0; i < reader->n; i++)
	{
		Findings   *findings = &reader->findings[i];

		is_wanted |= at > findings->from;
		if (at <= findings->from || at > reader->to)
			continue;
		findings->comparisons++;
		findings->source_rows += DatumGetInt64(values[FOUND_SOURCE]);
		findings->target_rows += DatumGetInt64(values[FOUND_TARGET]);
		findings->missing += DatumGetInt64(values[FOUND_MISSING]);
		findings->extra += DatumGetInt64(values[FOUND_EXTRA]);
		findings->duplicate += DatumGetInt64(values[FOUND_DUPLICATE]);
	}
	return is_wanted;
}

void
past_findings(int64 job_id, TimestampTz to, Findings *findings, int n)
{
	FindingsReader reader = {.to = to,.findings = findings,.n = n};

	catalog_scan("reconcile_store", "reconcile_store_job_idx", job_id, found_columns, FOUND_COLUMNS,
				 read_findings, &reader);
}
