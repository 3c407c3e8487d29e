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
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "clock.h"
#include "compat.h"
#include "facts.h"
#include "horizon.h"
#include "identity.h"
#include "newest.h"
#include "query.h"
#include "track.h"
#include "witness.h"

/*
 * How far the bound stays behind the clock. now() is the time at which a
 * statement arrived, and its transaction can be seen a little later; machines
 * pause.
 */
#define MARGIN_MS 2000

/* the watermark, and the fallback for rows without one */
#define MAX_TRACKS 2

/*
 * A clock that was set back gives new rows watermarks below the checkpoint:
 * then the checkpoint goes back, too, where a row that is read again is not
 * doubled. How far it was set back, and which rows have come since, nothing
 * tells: everything is looked at again.
 */
static void
note_clock_back(Horizon *horizon, Track *track, Source *source, const Job *job,
				const SourceState *state, const Bound *bound)
{
	Bound		now;

	/* the bound is behind the clock, and mostly tells */
	if (!track->reached.is_set || bound_compare(track->type, bound, &track->reached) >= 0)
		return;
	now = clock_bound(source, track->type, state->clock);
	if (bound_compare(track->type, &now, &track->reached) >= 0)
		return;
	horizon->reread |= job->key != NIL;
	catalog_event_once(job, "clock_went_back", watermark_print(track->type, track->reached.value),
					   psprintf("the source's clock shows %s, and the checkpoint was at %s: %s",
								timestamptz_to_str(state->clock),
								watermark_print(track->type, track->reached.value),
								job->key != NIL ? "it goes back with the clock"
								: "without a key, rows of the time between are loaded by incload_refresh alone"));
}

/* the bound of a time: the clock less a margin, or the oldest start of who is open */
static Bound
open_bound(Horizon *horizon, Source *source, const Track *track, const SourceState *state,
		   const Witness *witness)
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
	return clock_bound(source, track->type, at);
}

/* of bounds that wait, the first keeps the checkpoint where it is; whom it waits for has been open since before it */
static void
name_holder(Horizon *horizon, const Track *track, const Witness *witness)
{
	NotedBound *first = linitial(track->noted);
	const Holder *holder = witness_holder(witness, linitial(first->waits));

	horizon->held_since = holder && holder->since ? holder->since : first->at;
	horizon->held_back_by = psprintf("%s, since %s%s", holder ? holder->who : (char *) linitial(first->waits),
									 timestamptz_to_str(horizon->held_since),
									 holder && holder->since ? "" : " or earlier");
}

/* every row below was written by a transaction that is over */
static void
exact_horizon(Horizon *horizon, Source *source, const Job *job, List *tracks,
			  const Checkpoint *checkpoint, const SourceState *state, bool is_full)
{
	Bound		newest[MAX_TRACKS] = {0};
	Bound		no_limit = {0};
	Witness    *witness;
	bool		same_epoch = checkpoint->epoch && strcmp(checkpoint->epoch, horizon->epoch) == 0;

	for (int i = 0; i < list_length(tracks); i++)
	{
		Track	   *track = list_nth(tracks, i);

		if (track->type->kind != WATERMARK_TIME)
			newest[i] = newest_number(horizon, source, job, track, checkpoint, state, &no_limit, is_full);
	}
	witness = witness_open(source, state);
	for (int i = 0; i < list_length(tracks); i++)
	{
		Track	   *track = list_nth(tracks, i);
		Bound		bound = newest[i];
		List	   *waits;

		/* in another epoch, the names of virtual transactions are used again */
		if (same_epoch)
			track_review(track, witness->open, witness->prepared);
		if (track->type->kind == WATERMARK_TIME)
		{
			bound = open_bound(horizon, source, track, state, witness);
			note_clock_back(horizon, track, source, job, state, &bound);
			waits = list_concat_copy(witness->unknown, witness->prepared);
		}
		else
			waits = track->feed == FEED_SEQUENCE ? witness->writers : witness->others;
		track_settle_or_note(track, &bound, waits, horizon->source_clock);
		if (track->noted != NIL)
			name_holder(horizon, track, witness);
	}
}

/* nobody can tell who is open: what is old enough counts as settled. The state is that of a server that could be asked. */
static void
settled_by_age(Horizon *horizon, Source *source, const Job *job, List *tracks,
			   const Checkpoint *checkpoint, const SourceState *state,
			   TimestampTz clock, bool by_clock, bool is_full)
{
	TimestampTz settled = TimestampTzPlusMilliseconds(clock, -job->options->settle);
	ListCell   *lc;

	foreach(lc, tracks)
	{
		Track	   *track = lfirst(lc);

		if (track->type->kind == WATERMARK_TIME && by_clock)
			track->bound = clock_bound(source, track->type, settled);
		else
		{
			/* what the clock has not reached would hide what comes until then */
			Bound		limit = clock_limit(source, track->type, clock, 0);
			Bound		newest = state && track->type->kind == WATERMARK_NUMBER
				? newest_number(horizon, source, job, track, checkpoint, state, &limit, is_full)
				: newest_bound(source, job, job->options->filter, track, &limit);

			track_settle_by_age(track, &newest, settled, clock);
		}
	}
}

/* the options, but for those that do not decide which rows are read and what becomes of them */
static char *
deciding_options(const Job *job)
{
	static const char *const others[] = {
		"batch_rows", "depends_on", "first_load", "future_guard", "lock_timeout", "max_delete_fraction", "max_rate", "on_conflict", "parallel",
		"pause_after", "post_sql", "pre_sql", "reconcile_repair", "reconcile_schedule", "retry_delay", "retry_limit", "settle", "statement_timeout"
	};
	Datum		options = JsonbPGetDatum(job->options_json);

	for (int i = 0; i < lengthof(others); i++)
		options = DirectFunctionCall2(jsonb_delete, options, CStringGetTextDatum(others[i]));
	return JsonbToCString(NULL, &DatumGetJsonbP(options)->root, VARSIZE(DatumGetPointer(options)));
}

/* everything that decides which rows are read and what becomes of them */
static char *
definition_hash(Source *source, const Job *job, const Shape *shape, const char *relations)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "%u %s %u %s %s %s", job->source, job->source_name, job->target,
					 strategy_name(job->strategy), job->watermark,
					 deciding_options(job));
	for (int i = 0; i < shape->ncolumns; i++)
		appendStringInfo(&buf, " %s %u %d", shape->columns[i].expression,
						 shape->columns[i].type, shape->columns[i].is_key);
	/* a partition that is attached brings rows that are older than the mark */
	appendStringInfo(&buf, " %s", relations);
	/* nor are the columns there the same by other names */
	appendStringInfo(&buf, " %s %s", source->routine->from_clause(source), shape->source_numbers);
	return psprintf("%016llx", (unsigned long long)
					DatumGetUInt64(hash_any_extended((unsigned char *) buf.data, buf.len, 0)));
}

static bool
is_plain(const char *expression)
{
	return expression == NULL || expression_is_plain(expression);
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
	horizon->definition_hash = definition_hash(source, job, shape, state->relations);
	if (!state->is_table || !state->shows_xmin)
		return;
	/* what a function, another table or a policy says of a row may change without the row */
	if (!shape->by_xmin &&
		(state->has_policies || !is_plain(job->options->filter) ||
		 (job->watermark[0] == '(' && !is_plain(job->watermark))))
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

/* what the job tracks: nothing, its watermark, or that and the fallback */
static List *
tracks_of(const Job *job, const Shape *shape, const Checkpoint *checkpoint)
{
	Track	   *track;
	List	   *tracks;

	if (shape->watermark == NULL)
		return NIL;
	track = palloc0(sizeof(Track));
	track->name = job->watermark;
	track->expression = shape->watermark_expression;
	track->type = shape->watermark;
	track->feed = shape->watermark_feed;
	track->is_unique = shape->watermark_is_unique;
	track->reached = checkpoint->bound;
	track->was_noted = checkpoint->noted;
	tracks = list_make1(track);
	if (shape->fallback == NULL)
		return tracks;
	track = palloc0(sizeof(Track));
	track->name = job->options->watermark_fallback;
	track->expression = shape->fallback_expression;
	track->type = shape->fallback;
	track->feed = shape->fallback_feed;
	track->is_unique = shape->fallback_is_unique;
	track->reached = checkpoint->fallback;
	track->was_noted = checkpoint->fallback_noted;
	return lappend(tracks, track);
}

/* is one of them a number, which a sequence may have given out? */
static bool
tracks_number(List *tracks)
{
	ListCell   *lc;

	foreach(lc, tracks)
		if (((Track *) lfirst(lc))->type->kind == WATERMARK_NUMBER)
			return true;
	return false;
}

/* can the tracks be settled by looking at who is open? */
static bool
can_be_exact(const Job *job, const SourceState *state, List *tracks)
{
	ListCell   *lc;

	if (state->in_recovery || !state->is_tables)
		return false;
	/* who writes to another table that it reads is not seen */
	if (job->watermark[0] == '(' && expression_influences(job->watermark).by_table)
		return false;
	foreach(lc, tracks)
	{
		Track	   *track = lfirst(lc);

		if (track->type->kind == WATERMARK_ORDERED ||
			(track->type->kind == WATERMARK_NUMBER && track->feed == FEED_CACHE))
			return false;
	}
	return true;
}

/* the settled horizon of what has bounds */
static void
settle_tracks(Horizon *horizon, Source *source, const Job *job, const Shape *shape, List *tracks,
			  const Checkpoint *checkpoint, const SourceState *state, bool is_full)
{
	TimestampTz clock = state->clock;
	ListCell   *lc;

	if (can_be_exact(job, state, tracks))
	{
		horizon->guarantee = "exact";
		check_mark(horizon, source, job, shape, checkpoint, state);
		/* a time noted in one zone is another one in the next */
		if (checkpoint->definition_hash == NULL ||
			strcmp(checkpoint->definition_hash, horizon->definition_hash) != 0)
			foreach(lc, tracks)
				((Track *) lfirst(lc))->was_noted = NIL;
		exact_horizon(horizon, source, job, tracks, checkpoint, state, is_full);
		return;
	}
	/* a standby that has replayed nothing since it started may be far behind */
	if (state->in_recovery && state->replayed_to == 0)
		return;
	if (state->in_recovery)
		clock = Min(clock, state->replayed_to);
	if (state->is_behind)
	{
		horizon->held_since = state->replayed_to;
		horizon->held_back_by = psprintf("the standby's replay, which is at %s",
										 timestamptz_to_str(state->replayed_to));
	}
	settled_by_age(horizon, source, job, tracks, checkpoint, state, clock, !state->is_refreshed, is_full);
}

/*
 * The watermark xmin needs no bounds: what is not older than the last run's mark
 * is read again. A snapshot's own xmin is as exact on a standby, and for a
 * transaction that has taken its snapshot before.
 */
static void
observe_xmin(Horizon *horizon, Source *source, const Job *job, const Shape *shape,
			 const Checkpoint *checkpoint, const SourceState *state)
{
	const Holder *holder;

	if (!state->is_table || !state->is_tables)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("source %s does not tell which transaction wrote a row", job->source_name),
				 errdetail("It is no table, or a partition of it is none."),
				 errhint("Track a column by watermark => '...', or use strategy full.")));
	if (!state->shows_xmin)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for xmin of source %s", job->source_name),
				 errdetail("The role at the source has rights on columns alone, and xmin is none of them."),
				 errhint("GRANT SELECT on the whole table, or track a column by watermark => '...'.")));
	horizon->guarantee = "exact";
	check_mark(horizon, source, job, shape, checkpoint, state);
	/* the next to be over may be the newest there is, and open all the same */
	holder = witness_of_xid(source, state->oldest_xid);
	if (holder)
	{
		/* where its start is hidden, as long as the mark has stood still */
		horizon->held_since = holder->since ? holder->since : catalog_mark_since(job->id, state->oldest_xid);
		horizon->held_back_by = holder->since == 0 ? holder->who
			: psprintf("%s, since %s", holder->who, timestamptz_to_str(holder->since));
	}
	else if (state->oldest_xid < state->next_xid)
		horizon->held_back_by = psprintf("transaction " UINT64_FORMAT, state->oldest_xid);
}

void
horizon_foresee(Source *source, const Job *job)
{
	AttrNumber	attnum = job->watermark ? get_attnum(job->source, job->watermark) : InvalidAttrNumber;

	/* of an expression, the source will tell what it is */
	if (attnum != InvalidAttrNumber)
		witness_foresee(source, TypeCategory(getBaseType(get_atttype(job->source, attnum))) ==
						TYPCATEGORY_NUMERIC);
}

/*
 * Without a key, rows ahead of the clock wait until the clock has come so far, and
 * those that it never reaches wait for ever. They are not read, so they are looked for.
 */
static void
note_waiting_future(Source *source, const Job *job, const Track *track, const Bound *future)
{
	Bound		no_limit = {0};
	Bound		newest = newest_bound(source, job, job->options->filter, track, &no_limit);

	if (newest.is_set && bound_compare(track->type, &newest, future) > 0)
		catalog_event_once(job, "future_watermark", watermark_print(track->type, newest.value),
						   psprintf("rows have a watermark ahead of the source's clock, up to %s: without a key they are loaded once the clock has come so far",
									watermark_print(track->type, newest.value)));
}

Horizon *
horizon_observe(Source *source, const Job *job, const Shape *shape, const Checkpoint *checkpoint,
				bool is_full, bool *lasts)
{
	Horizon    *horizon = palloc0(sizeof(Horizon));
	bool		nobody_asks;
	List	   *tracks = tracks_of(job, shape, checkpoint);
	SourceState *state;
	Track	   *track;

	horizon->guarantee = "settle";
	horizon->lasts = lasts ? lasts : &nobody_asks;
	horizon->source_clock = plain_clock(source);
	if (!is_full)
		horizon->reread = identity_check_type(job, checkpoint, shape);
	if (tracks == NIL && !shape->by_xmin)
		return horizon;
	if (!shape->by_xmin && !witness_possible(source))
		settled_by_age(horizon, source, job, tracks, checkpoint, NULL, horizon->source_clock,
					   get_rel_relkind(job->source) != RELKIND_MATVIEW, is_full);
	else
	{
		state = witness_state(source, tracks_number(tracks));
		horizon->source_clock = state->clock;
		horizon->epoch = state->epoch;
		horizon->relations = state->relations;
		if (!is_full)
			horizon->reread |= identity_check(job, checkpoint, state) ||
				identity_check_relations(source, job, shape, checkpoint, state);
		if (shape->by_xmin)
			observe_xmin(horizon, source, job, shape, checkpoint, state);
		else
			settle_tracks(horizon, source, job, shape, tracks, checkpoint, state, is_full);
	}
	if (tracks == NIL)
		return horizon;
	track = linitial(tracks);
	horizon->bound = track->bound;
	horizon->noted = track->noted;
	horizon->restart = track->restart;
	horizon->left_out = clock_left_out(source, track->type, &checkpoint->bound,
									   job_lookback(job, track->type->kind));
	horizon->future = clock_limit(source, track->type, horizon->source_clock,
								  job->options->future_guard);
	if (shape->nkeys == 0 && horizon->future.is_set)
		note_waiting_future(source, job, track, &horizon->future);
	if (list_length(tracks) > 1)
	{
		track = lsecond(tracks);
		horizon->fallback = track->bound;
		horizon->fallback_noted = track->noted;
		horizon->fallback_restart = track->restart;
	}
	return horizon;
}

void
horizon_correct(const Horizon *horizon, Checkpoint *checkpoint)
{
	if (horizon->restart.is_set)
		checkpoint->bound = horizon->restart;
	if (horizon->fallback_restart.is_set)
		checkpoint->fallback = horizon->fallback_restart;
	if (horizon->reread)
		checkpoint->bound.is_set = checkpoint->fallback.is_set = false;
	if (!horizon->mark_holds)
	{
		checkpoint->seen.is_set = false;
		checkpoint->seen_null = false;
		checkpoint->mark = 0;
	}
}
