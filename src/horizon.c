/*
 * horizon.c
 *		The settled horizon of a source: the bound below which no transaction
 *		there can still add a row.
 *
 * The order is all, and each step is a statement of its own, outside of any
 * transaction there:
 * 1. the bound: the clock less a margin, or the newest id;
 * 2. who is open now (witness.c);
 * 3. only then the snapshot that reads the rows (run.c).
 *
 * Whoever was open at step 2 may add rows below the bound after step 3. For a
 * time, such a row bears the start of its transaction: the bound goes down to
 * the oldest start. Where a start cannot be had, and for an id, the bound is
 * noted with the virtual transactions it waits for, and is settled in a later
 * run, when all of those are gone.
 *
 * Where nobody can tell who is open, a row counts as settled when it is older
 * than the option "settle".
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "facts.h"
#include "horizon.h"
#include "names.h"
#include "query.h"
#include "witness.h"

/*
 * How far the bound stays behind the clock. now() is the time at which a
 * statement arrived, and its transaction can be seen a little later; machines
 * pause.
 */
#define MARGIN_MS 2000

/* noted bounds are thinned out beyond this */
#define MAX_NOTED 16

/* bounds that only time can settle are noted no closer together than this */
#define NOTE_INTERVAL_MS 1000

/*
 * The zone that times without zone are in, by the option source_timezone; else
 * the source server's default. Of a source that is here, this session's default
 * may be its client's own, and nothing tells: then it is taken to be the zone
 * that is the furthest behind.
 */
static char *
zone_expression(const Source *source)
{
	if (source->job->options->source_timezone)
		return quote_literal_cstr(source->job->options->source_timezone);
	if (source->is_local)
		return "'Etc/GMT+12'";
	return "(SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'TimeZone')";
}

/*
 * The bound of an instant for the watermark's type, rounded down. The hour that
 * comes twice when summer time ends must not hide rows, so the bound of a time
 * without zone is the least local time of this instant and of the hours to come.
 */
static Bound
time_bound(Source *source, const Shape *shape, TimestampTz at)
{
	Bound		bound = {.is_set = true, .side = BOUND_BEFORE};
	TextRows   *rows;

	if (shape->watermark->type == TIMESTAMPTZOID)
	{
		bound.value = TimestampTzGetDatum(at);
		return bound;
	}
	rows = source_ask_catalog(source, psprintf(
		"SELECT pg_catalog.min(n.l)::%s FROM"
		" (SELECT %s::pg_catalog.timestamptz AS c, %s AS zone) s,"
		" LATERAL (SELECT pg_catalog.timezone(s.zone, s.c) AS l UNION ALL"
		"   SELECT pg_catalog.timezone(s.zone, t) FROM pg_catalog.generate_series("
		"     pg_catalog.date_trunc('hour', s.c) + '15 minutes'::pg_catalog.interval,"
		"     s.c + '4 hours'::pg_catalog.interval, '15 minutes'::pg_catalog.interval) t"
		"   WHERE t >= s.c) n",
		shape->watermark->sql_name, quote_literal_cstr(timestamptz_to_str(at)), zone_expression(source)));
	bound.value = watermark_parse(shape->watermark, rows->value[0][0]);
	return bound;
}

/*
 * Is this the server that the checkpoint was made for? Another one has other
 * rows below the checkpoint, and nobody would ever read them.
 */
static void
require_same_server(const Job *job, const Checkpoint *checkpoint, const SourceState *state)
{
	size_t		length = strcspn(state->epoch, "/");

	if (checkpoint->epoch == NULL ||
		strncmp(checkpoint->epoch, state->epoch, length + 1) == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("source %s of job \"%s\" is on another server than before", job->source_name, job->name),
			 errdetail("Its system identifier is %s, and was %s.", pnstrdup(state->epoch, length),
					   pnstrdup(checkpoint->epoch, strcspn(checkpoint->epoch, "/"))),
			 errhint("If it has the same rows, as after an upgrade, SELECT incload_accept_source(%s) goes on with it; SELECT incload_refresh(%s) loads it anew.",
					 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
}

/*
 * Ids that go backwards: a sequence was reset, or the source was restored. Rows
 * that come below the checkpoint would never be read. That the newest rows
 * were deleted is no such thing, as the sequence tells.
 */
static void
require_forward(Horizon *horizon, Source *source, const Job *job, const Shape *shape,
				const Checkpoint *checkpoint, const SourceState *state, const Bound *newest)
{
	char	   *given_out;

	if (!checkpoint->bound.is_set || !newest->is_set ||
		watermark_compare(shape->watermark, newest->value, checkpoint->bound.value) >= 0)
		return;
	/* incload_accept_source has taken the epoch away */
	if (checkpoint->epoch == NULL)
	{
		horizon->restart = *newest;
		return;
	}
	given_out = facts_last_value(source, psprintf("SELECT pg_catalog.unnest(ARRAY[%s])::pg_catalog.oid AS oid",
												  state->relations));
	if (given_out != NULL &&
		watermark_compare(shape->watermark, watermark_parse(shape->watermark, given_out),
						  checkpoint->bound.value) >= 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the watermark of source %s went backwards", job->source_name),
			 errdetail("The newest is %s, and everything up to %s was loaded before.",
					   watermark_print(shape->watermark, newest->value),
					   watermark_print(shape->watermark, checkpoint->bound.value)),
			 errhint("If a sequence was reset or the source restored, SELECT incload_refresh(%s) loads it anew; if the newest rows were deleted, SELECT incload_accept_source(%s) goes on.",
					 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
}

/* the newest value that the source has; not set where there is none */
static Bound
newest_bound(Source *source, const Job *job, const Shape *shape)
{
	Bound		bound = {.side = BOUND_AFTER};
	TextRows   *rows;

	rows = source->routine->ask(source, query_newest(shape, source->routine->from_clause(source),
													 job->options->filter));
	if (rows->nrows == 0)
		return bound;
	bound.is_set = true;
	bound.value = watermark_parse(shape->watermark, rows->value[0][0]);
	return bound;
}

static List *
still_open(List *waits, List *open)
{
	List	   *left = NIL;
	ListCell   *lw;
	ListCell   *lo;

	foreach(lw, waits)
		foreach(lo, open)
			if (strcmp(lfirst(lw), lfirst(lo)) == 0)
			{
				left = lappend(left, lfirst(lw));
				break;
			}
	return left;
}

static void
settle_at(Horizon *horizon, const Shape *shape, const Bound *bound)
{
	if (bound_compare(shape->watermark, bound, &horizon->bound) > 0)
		horizon->bound = *bound;
}

/* of noted bounds that wait, the first and the last matter most */
static List *
thin_out(List *noted)
{
	List	   *kept = NIL;

	if (list_length(noted) <= MAX_NOTED)
		return noted;
	for (int i = 0; i < list_length(noted); i++)
		if (i == 0 || i == list_length(noted) - 1 || i % 2 == 1)
			kept = lappend(kept, list_nth(noted, i));
	return kept;
}

/* bounds of earlier runs: settled where all they waited for is gone, else kept */
static void
review_noted(Horizon *horizon, const Shape *shape, const Checkpoint *checkpoint,
			 const Witness *witness)
{
	ListCell   *lc;

	/* in another epoch, the names of virtual transactions are used again */
	if (checkpoint->epoch == NULL || strcmp(checkpoint->epoch, horizon->epoch) != 0)
		return;
	foreach(lc, checkpoint->noted)
	{
		NotedBound *note = lfirst(lc);

		/* noted by another guarantee: it says nothing of who was open */
		if (note->waits == NIL)
			continue;
		note->waits = still_open(note->waits, witness->open);
		if (note->waits == NIL)
			settle_at(horizon, shape, &note->bound);
		else
			horizon->noted = lappend(horizon->noted, note);
	}
}

/* settles a bound now if it waits for nobody, else notes it for later */
static void
settle_or_note(Horizon *horizon, const Shape *shape, const Bound *bound, List *waits)
{
	NotedBound *note;
	NotedBound *last = horizon->noted ? llast(horizon->noted) : NULL;

	if (waits == NIL)
	{
		settle_at(horizon, shape, bound);
		return;
	}
	/* a higher bound that waits for the same ones is worth more */
	if (last && same_names(waits, last->waits))
	{
		last->bound = *bound;
		return;
	}
	note = palloc0(sizeof(NotedBound));
	note->bound = *bound;
	note->at = horizon->source_clock;
	note->waits = waits;
	horizon->noted = thin_out(lappend(horizon->noted, note));
}

/*
 * What the sequence that feeds the watermark has given out so far: an id above
 * it was put there by hand, and as checkpoint it would hide all that the
 * sequence has still to give. Such a row is loaded (without a key, once the
 * sequence has come so far), and told once.
 */
static void
cap_at_sequence(Source *source, const Job *job, const Shape *shape, Bound *bound)
{
	char	   *given_out;
	Bound		last = {.is_set = true, .side = BOUND_AFTER};

	if (shape->watermark_feed != FEED_SEQUENCE || !bound->is_set)
		return;
	given_out = facts_last_value(source, facts_sequences_query(source, job->watermark));
	if (given_out == NULL)
		return;
	last.value = watermark_parse(shape->watermark, given_out);
	if (bound_compare(shape->watermark, bound, &last) <= 0)
		return;
	catalog_event_once(job, "id_above_sequence", watermark_print(shape->watermark, bound->value),
					   psprintf("an id of the source, %s, is above what its sequence has given out, %s: the checkpoint stays below",
								watermark_print(shape->watermark, bound->value), given_out));
	*bound = last;
}

/*
 * A clock that was set back gives new rows watermarks below the checkpoint:
 * then the checkpoint goes back, too, where a row that is read again is not
 * doubled.
 */
static void
note_clock_back(Horizon *horizon, const Job *job, const Shape *shape, const Checkpoint *checkpoint,
				const SourceState *state, const Bound *bound)
{
	if (shape->watermark->type != TIMESTAMPTZOID || shape->nkeys == 0 ||
		!checkpoint->bound.is_set ||
		state->clock >= DatumGetTimestampTz(checkpoint->bound.value))
		return;
	horizon->restart = *bound;
	catalog_event_once(job, "clock_went_back", watermark_print(shape->watermark, checkpoint->bound.value),
					   psprintf("the source's clock shows %s, and the checkpoint was at %s: it goes back with the clock",
								timestamptz_to_str(state->clock),
								watermark_print(shape->watermark, checkpoint->bound.value)));
}

/* of bounds that wait, the first keeps the checkpoint where it is; whom it waits for has been open since before it */
static void
name_holder(Horizon *horizon, const Witness *witness)
{
	NotedBound *first = linitial(horizon->noted);
	const Holder *holder = witness_holder(witness, linitial(first->waits));

	horizon->held_since = holder->since ? holder->since : first->at;
	horizon->held_back_by = psprintf("%s, since %s%s", holder->who, timestamptz_to_str(horizon->held_since),
									 holder->since ? "" : " or earlier");
}

/* every row below was written by a transaction that is over */
static void
exact_horizon(Horizon *horizon, Source *source, const Job *job, const Shape *shape,
			  const Checkpoint *checkpoint, const SourceState *state, bool is_full)
{
	bool		by_time = shape->watermark->kind == WATERMARK_TIME;
	Bound		bound = {0};
	Witness    *witness;
	List	   *waits;

	if (!by_time)
	{
		bound = newest_bound(source, job, shape);
		if (!is_full)
			require_forward(horizon, source, job, shape, checkpoint, state, &bound);
		cap_at_sequence(source, job, shape, &bound);
	}
	witness = witness_open(source, state);
	review_noted(horizon, shape, checkpoint, witness);

	if (by_time)
	{
		TimestampTz at = TimestampTzPlusMilliseconds(state->clock, -MARGIN_MS);

		/* this very transaction may go on to write, where the source is here */
		if (source->is_local)
			at = Min(at, GetCurrentTransactionStartTimestamp());
		if (witness->oldest_start < at)
		{
			at = witness->oldest_start;
			horizon->held_since = at;
			horizon->held_back_by = psprintf("%s, since %s", witness->oldest, timestamptz_to_str(at));
		}
		bound = time_bound(source, shape, at);
		note_clock_back(horizon, job, shape, checkpoint, state, &bound);
		waits = list_concat_copy(witness->unknown, witness->prepared);
	}
	else
		waits = shape->watermark_feed == FEED_SEQUENCE ? witness->writers : witness->others;
	if (bound.is_set)
		settle_or_note(horizon, shape, &bound, waits);
	if (horizon->noted != NIL)
		name_holder(horizon, witness);
}

/* nobody can tell who is open: what is old enough counts as settled */
static void
settled_by_age(Horizon *horizon, Source *source, const Job *job, const Shape *shape,
			   const Checkpoint *checkpoint, TimestampTz clock, bool by_clock)
{
	TimestampTz settled = TimestampTzPlusMilliseconds(clock, -job->options->settle);
	NotedBound *last = NULL;
	Bound		newest;
	ListCell   *lc;

	if (shape->watermark->kind == WATERMARK_TIME && by_clock)
	{
		horizon->bound = time_bound(source, shape, settled);
		return;
	}
	foreach(lc, checkpoint->noted)
	{
		NotedBound *note = lfirst(lc);

		if (note->at <= settled && note->waits == NIL)
			settle_at(horizon, shape, &note->bound);
		else
			horizon->noted = lappend(horizon->noted, note);
		last = note;
	}
	newest = newest_bound(source, job, shape);
	if (newest.is_set &&
		(last == NULL ||
		 (bound_compare(shape->watermark, &newest, &last->bound) != 0 &&
		  clock - last->at >= NOTE_INTERVAL_MS * INT64CONST(1000))))
	{
		NotedBound *note = palloc0(sizeof(NotedBound));

		note->bound = newest;
		note->at = clock;
		horizon->noted = thin_out(lappend(horizon->noted, note));
	}
	else if (horizon->noted == NIL && last != NULL)
		/* it has become the horizon, and says that this value is known */
		horizon->noted = list_make1(last);
}

/* everything that decides which rows are read and what becomes of them */
static char *
definition_hash(const Job *job, const Shape *shape, const char *relations)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "%u %s %u %s %s %s", job->source, job->source_name, job->target,
					 strategy_name(job->strategy), job->watermark,
					 JsonbToCString(NULL, &job->options_json->root, VARSIZE(job->options_json)));
	for (int i = 0; i < shape->ncolumns; i++)
		appendStringInfo(&buf, " %s %u %d", shape->columns[i].expression,
						 shape->columns[i].type, shape->columns[i].is_key);
	/* a partition that is attached brings rows that are older than the mark */
	appendStringInfo(&buf, " %s", relations);
	return psprintf("%016llx", (unsigned long long)
					DatumGetUInt64(hash_any_extended((unsigned char *) buf.data, buf.len, 0)));
}

/*
 * The mark of this run, and whether that of the last one still tells what was
 * seen: not in another epoch of the source, not for another definition, and not
 * after so many transactions that their order could be mistaken.
 */
static void
check_mark(Horizon *horizon, Source *source, const Job *job, const Shape *shape,
		   const Checkpoint *checkpoint, const SourceState *state)
{
	horizon->definition_hash = definition_hash(job, shape, state->relations);
	/* what a function or another table says of a row may change without the row */
	if (!state->is_table || (job->options->filter && !expression_is_plain(job->options->filter)))
		return;
	source->with_xmin = true;
	horizon->mark = state->oldest_xid;
	horizon->mark_holds = checkpoint->mark != 0 &&
		checkpoint->epoch && strcmp(checkpoint->epoch, horizon->epoch) == 0 &&
		checkpoint->definition_hash &&
		strcmp(checkpoint->definition_hash, horizon->definition_hash) == 0 &&
		state->next_xid - checkpoint->mark < UINT64CONST(1) << 30;
}

/* the clock of a source whose open transactions cannot be seen */
static TimestampTz
plain_clock(Source *source)
{
	/* its snapshot may be as old as this transaction */
	return source->routine->outlives_commit ? GetCurrentTimestamp()
		: GetCurrentTransactionStartTimestamp();
}

Horizon *
horizon_observe(Source *source, const Job *job, const Shape *shape, const Checkpoint *checkpoint,
				bool is_full)
{
	Horizon    *horizon = palloc0(sizeof(Horizon));
	SourceState *state;

	horizon->guarantee = "settle";
	horizon->source_clock = plain_clock(source);
	if (shape->watermark == NULL)
		return horizon;
	if (!witness_possible(source))
	{
		settled_by_age(horizon, source, job, shape, checkpoint, horizon->source_clock,
					   get_rel_relkind(job->source) != RELKIND_MATVIEW);
		return horizon;
	}

	state = witness_state(source);
	horizon->source_clock = state->clock;
	horizon->epoch = state->epoch;
	if (!is_full)
		require_same_server(job, checkpoint, state);
	if (state->in_recovery || !state->is_tables || shape->watermark->kind == WATERMARK_ORDERED ||
		(shape->watermark->kind == WATERMARK_NUMBER && shape->watermark_feed == FEED_CACHE))
	{
		TimestampTz clock = state->clock;

		/* one that has replayed nothing since it started may be far behind */
		if (state->in_recovery && state->replayed_to == 0)
			return horizon;
		if (state->in_recovery)
			clock = Min(clock, state->replayed_to);
		settled_by_age(horizon, source, job, shape, checkpoint, clock, !state->is_refreshed);
	}
	else
	{
		horizon->guarantee = "exact";
		check_mark(horizon, source, job, shape, checkpoint, state);
		exact_horizon(horizon, source, job, shape, checkpoint, state, is_full);
	}
	return horizon;
}
