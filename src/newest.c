/*
 * newest.c
 *		The newest value of a watermark at a source, as a bound, and what ids
 *		have to do with their sequence.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"

#include "catalog.h"
#include "compat.h"
#include "facts.h"
#include "newest.h"
#include "query.h"

/* has a sequence, whose numbers a smaller type may not hold, given out a watermark or more? */
static bool
number_reaches(const WatermarkType *type, const char *number, bool is_given, Datum value)
{
	return DatumGetBool(DirectFunctionCall2(is_given ? numeric_ge : numeric_gt,
											DirectFunctionCall3(numeric_in, CStringGetDatum(number),
																ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)),
											DirectFunctionCall3(numeric_in, CStringGetDatum(watermark_print(type, value)),
																ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1))));
}

Bound
newest_bound(Source *source, const Job *job, const char *filter, const Track *track, const Bound *limit)
{
	bool		may_tie = job->key != NIL && track->feed != FEED_SEQUENCE && !track->is_unique;
	Bound		bound = {.side = may_tie ? BOUND_BEFORE : BOUND_AFTER};
	TextRows   *rows;

	rows = source->routine->ask(source, query_newest(track->type, track->expression, limit,
													 source->routine->from_clause(source), filter));
	if (rows->nrows == 0)
		return bound;
	bound.is_set = true;
	bound.value = watermark_parse(track->type, rows->value[0][0]);
	return bound;
}

/* a job that was stopped for it stays so, whatever the ids do meanwhile, until somebody decides */
static void
require_decision(Horizon *horizon, const Job *job)
{
	TextRows   *stop = catalog_lasting_stop(job->id);
	char	   *message;
	char	   *detail;

	if (stop == NULL)
		return;
	message = stop->value[0][0];
	detail = strchr(message, '\n');
	if (detail)
		*detail++ = '\0';
	*horizon->lasts = true;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg_internal("%s", message),
			 detail ? errdetail_internal("%s", detail) : 0,
			 errhint("That was at %s, and nobody has decided since: SELECT incload_accept_source(%s) %s, SELECT incload_refresh(%s) loads it anew.",
					 stop->value[0][1], quote_literal_cstr(job->name),
					 job->key != NIL ? "reads all of it again and goes on" : "goes on from the checkpoint",
					 quote_literal_cstr(job->name))));
}

/*
 * Ids that go backwards: a sequence was reset, or the source was restored. Rows
 * that come below the checkpoint would never be read. That the newest rows
 * were deleted is no such thing, as the sequence tells; that a sequence gives out
 * ids below those that are there is one.
 */
static void
require_forward(Horizon *horizon, Track *track, Source *source, const Job *job,
				const Checkpoint *checkpoint, const SourceState *state, const Bound *newest,
				const Bound *capped)
{
	char	   *given_out;
	bool		is_given;
	bool		is_whole;

	/* everything is read again in any case */
	if (horizon->reread && job->key != NIL)
		return;
	if (!track->reached.is_set || !newest->is_set ||
		watermark_compare(track->type, capped->value, track->reached.value) >= 0)
		return;
	/* without a key, to go on from the sequence would double the rows above it */
	*horizon->lasts = true;
	if ((checkpoint->epoch != NULL || job->key == NIL) &&
		watermark_compare(track->type, newest->value, track->reached.value) >= 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the sequence of source %s went backwards", job->source_name),
				 capped->side == BOUND_AFTER
				 ? errdetail("It has given out %s as the last %s, and everything up to %s was loaded before.",
							 watermark_print(track->type, capped->value), track->name,
							 watermark_print(track->type, track->reached.value))
				 : errdetail("It will give out %s as the first %s, and everything up to %s was loaded before.",
							 watermark_print(track->type, capped->value), track->name,
							 watermark_print(track->type, track->reached.value)),
				 job->key == NIL
				 ? errhint("Set the sequence above the ids that are there; then SELECT incload_refresh(%s) loads the source anew.",
						   quote_literal_cstr(job->name))
				 : errhint("SELECT incload_accept_source(%s) reads all of it again and goes on.",
						   quote_literal_cstr(job->name))));
	/*
	 * incload_accept_source has taken the epoch away. Rows may have come below
	 * the newest since it was asked for; only a key lets them be looked for.
	 */
	if (checkpoint->epoch == NULL)
	{
		horizon->reread |= job->key != NIL;
		track->restart = *capped;
		return;
	}
	/* another column's sequence would hide that this one was reset */
	given_out = track->feed != FEED_OTHER
		? facts_last_value(source, facts_sequences_query(source, track->name), true, &is_given, &is_whole)
		: facts_last_value(source, psprintf("SELECT pg_catalog.unnest(ARRAY[%s])::pg_catalog.oid AS oid",
											state->relations), false, &is_given, &is_whole);
	if (given_out != NULL && number_reaches(track->type, given_out, is_given, track->reached.value))
		return;
	/* the newest may just have left the filter */
	if (job->options->filter && track->feed == FEED_OTHER)
	{
		Bound		no_limit = {0};
		Bound		unfiltered = newest_bound(source, job, NULL, track, &no_limit);

		if (unfiltered.is_set && watermark_compare(track->type, unfiltered.value, track->reached.value) >= 0)
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the watermark of source %s went backwards", job->source_name),
			 errdetail("The newest %s is %s, and everything up to %s was loaded before.", track->name,
					   watermark_print(track->type, newest->value),
					   watermark_print(track->type, track->reached.value)),
			 errhint("If a sequence was reset or the source restored, SELECT incload_refresh(%s) loads it anew; if the newest rows were deleted, SELECT incload_accept_source(%s) goes on.",
					 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
}

/*
 * What the sequence that feeds the watermark has given out so far: an id above
 * it was put there by hand, and as checkpoint it would hide all that the
 * sequence has still to give. Such a row is loaded (without a key, once the
 * sequence has come so far), and told once.
 */
static void
cap_at_sequence(Source *source, const Job *job, const Track *track, Bound *bound)
{
	char	   *given_out;
	bool		is_given;
	bool		is_whole;
	Bound		last = {.is_set = true};

	if (track->feed == FEED_OTHER || !bound->is_set)
		return;
	given_out = facts_last_value(source, facts_sequences_query(source, track->name), true, &is_given, &is_whole);
	if (!is_whole)
		catalog_event_once(job, "sequence_unreadable", track->name,
						   psprintf("the role at the source may not read the sequence of %s: an id that is put in above it hides all that come after; SELECT * FROM incload_check(%s) has the GRANT",
									track->name, quote_literal_cstr(job->name)));
	if (given_out == NULL || number_reaches(track->type, given_out, is_given, bound->value))
		return;
	last.value = watermark_parse(track->type, given_out);
	last.side = is_given ? BOUND_AFTER : BOUND_BEFORE;
	catalog_event_once(job, "id_above_sequence", watermark_print(track->type, bound->value),
					   psprintf("an id of the source, %s, is above what its sequence %s, %s: the checkpoint stays below",
								watermark_print(track->type, bound->value),
								is_given ? "has given out" : "will give out first", given_out));
	*bound = last;
}

/* no order among ids of several sequences: those of the one hide those of the other */
static void
note_mixed(const Job *job, const Track *track, const SourceState *state)
{
	if (state->is_mixed)
		catalog_event_once(job, "several_sequences", track->name,
						   psprintf("source %s puts rows of tables together that have a sequence each: a new %s of one that is below those of another is not loaded; track a time, or load each table by a job of its own",
									job->source_name, track->name));
}

/* NaN and Infinity can be no bound; without a key, what no bound comes to is not read */
static void
note_endless(Source *source, const Job *job, const Track *track)
{
	TextRows   *rows;

	if (job->key != NIL || track->type->type != NUMERICOID)
		return;
	rows = source->routine->ask(source, psprintf(
		"SELECT %s FROM %s WHERE %s IS NOT NULL ORDER BY 1 DESC LIMIT 1", track->expression,
		source->routine->from_clause(source), track->expression));
	if (rows->nrows > 0 && (strcmp(rows->value[0][0], "NaN") == 0 || strcmp(rows->value[0][0], "Infinity") == 0))
		catalog_event_once(job, "endless_watermark", rows->value[0][0],
						   psprintf("rows of the source have %s as %s: without a key they are never loaded",
									rows->value[0][0], track->name));
}

Bound
newest_number(Horizon *horizon, Source *source, const Job *job, Track *track,
			  const Checkpoint *checkpoint, const SourceState *state, const Bound *limit, bool is_full)
{
	Bound		newest = newest_bound(source, job, job->options->filter, track, limit);
	Bound		capped = newest;

	note_mixed(job, track, state);
	note_endless(source, job, track);
	cap_at_sequence(source, job, track, &capped);
	if (!is_full && !state->in_recovery)
	{
		require_forward(horizon, track, source, job, checkpoint, state, &newest, &capped);
		if (track->reached.is_set && checkpoint->epoch != NULL && !horizon->reread)
			require_decision(horizon, job);
	}
	return capped;
}
