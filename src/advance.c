/*
 * advance.c
 *		How far a batch takes the checkpoint, and what is to be said of it.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "advance.h"

/* an open transaction that holds the checkpoint back for so long is an event */
#define HELD_EVENT_SECONDS 3600

Bound
advance_place(const Run *run)
{
	Bound		place = {0};
	MemoryContext old;
	ListCell   *lc;

	/* among rows without a watermark: every other is read */
	if (!run->stage->has_last)
		return place;
	old = MemoryContextSwitchTo(run->context);
	place.is_set = true;
	place.value = watermark_copy(run->shape->watermark, run->stage->last_watermark);
	place.side = BOUND_AFTER;
	if (run->stage->cut_at_key)
		foreach(lc, run->stage->last_key)
			place.tie_key = lappend(place.tie_key, pstrdup(lfirst(lc)));
	MemoryContextSwitchTo(old);
	return place;
}

/*
 * What this run has seen of the source, as of its own mark: all of it at its
 * end, else all up to the batch's last row. Up to the place of an earlier run,
 * that run's mark holds until this one has got there.
 */
static void
advance_seen(Run *run, bool is_last)
{
	Checkpoint *checkpoint = run->checkpoint;
	const WatermarkType *type = run->shape->watermark;
	Bound		place = {0};

	checkpoint->definition_hash = run->horizon->definition_hash;
	if (run->horizon->mark == 0)
		return;
	if (type == NULL)
	{
		if (is_last)
			checkpoint->mark = run->horizon->mark;
		return;
	}
	if (!is_last)
	{
		if (run->window.only_null)
			return;
		place = advance_place(run);
		if (!place.is_set || bound_compare(type, &place, &checkpoint->seen) < 0)
			return;
		checkpoint->seen_null = false;
	}
	else
	{
		if (run->stage->has_newest)
		{
			MemoryContext old = MemoryContextSwitchTo(run->context);

			place.is_set = true;
			place.value = watermark_copy(type, run->stage->newest_watermark);
			place.side = BOUND_AFTER;
			MemoryContextSwitchTo(old);
		}
		if (bound_compare(type, &place, &checkpoint->seen) < 0)
			place = checkpoint->seen;
		checkpoint->seen_null = true;
	}
	checkpoint->seen = place;
	checkpoint->mark = run->horizon->mark;
}

/* ids of rows without a watermark: read to the newest by the last batch, in no order of theirs */
static void
advance_fallback(Run *run, bool is_last)
{
	Checkpoint *checkpoint = run->checkpoint;
	const Bound *reached = &run->horizon->fallback;

	if (run->shape->fallback == NULL)
		return;
	checkpoint->fallback_noted = run->horizon->fallback_noted;
	if (!is_last)
		return;
	if (run->is_full || bound_compare(run->shape->fallback, reached, &checkpoint->fallback) > 0)
		checkpoint->fallback = *reached;
}

/* what the record and the checkpoint say of how far the rows go */
static void
note_newest(Run *run, bool is_last)
{
	Checkpoint *checkpoint = run->checkpoint;
	const WatermarkType *type = run->shape->watermark;
	Stage	   *stage = run->stage;
	MemoryContext old = MemoryContextSwitchTo(run->context);

	if (stage->has_present)
	{
		char	   *newest = watermark_print(type, stage->present_watermark);

		run->record->watermark_to = newest;
		if (checkpoint->loaded_to == NULL ||
			watermark_compare(type, stage->present_watermark,
							  watermark_parse(type, checkpoint->loaded_to)) > 0)
			checkpoint->loaded_to = newest;
	}
	else if (run->shape->by_xmin && is_last)
		run->record->watermark_to = psprintf(UINT64_FORMAT, checkpoint->mark);
	MemoryContextSwitchTo(old);
}

void
advance_checkpoint(Run *run, bool is_last)
{
	Checkpoint *checkpoint = run->checkpoint;
	const WatermarkType *type = run->shape->watermark;

	checkpoint->guarantee = run->horizon->guarantee;
	checkpoint->held_back_by = run->horizon->held_back_by;
	/* a run that could not ask who the source is does not forget it */
	if (run->horizon->epoch)
	{
		checkpoint->epoch = run->horizon->epoch;
		checkpoint->relations = run->horizon->relations;
	}
	if (type != NULL)
	{
		Bound		reached = run->horizon->bound;

		if (!is_last && !run->window.only_null)
		{
			Bound		place = advance_place(run);

			if (place.is_set && reached.is_set && bound_compare(type, &place, &reached) <= 0)
				reached = place;
		}
		if (reached.is_set &&
			bound_compare(type, &reached, &checkpoint->bound) >= 0)
			checkpoint->bound = reached;
		/* all was read again: a bound of before says nothing of this source */
		if (run->is_full)
			checkpoint->bound = reached;
		checkpoint->noted = run->horizon->noted;
		advance_fallback(run, is_last);
	}
	if (type != NULL || run->shape->by_xmin)
		advance_seen(run, is_last);
	note_newest(run, is_last);
	checkpoint_write(checkpoint, run->shape);
}

/* how old the newest row is that the target has, by the source's clock */
static void
note_lag(Run *run)
{
	TimestampTz newest;

	if (run->shape->watermark == NULL || run->checkpoint->loaded_to == NULL ||
		!watermark_instant(run->shape->watermark,
						   watermark_parse(run->shape->watermark, run->checkpoint->loaded_to), &newest))
		return;
	run->record->has_lag = true;
	run->record->lag = Max(run->horizon->source_clock - newest, 0);
}

/* a transaction left open at the source all night is told once, and not for ever kept silent */
static void
note_held_horizon(Run *run)
{
	const Horizon *horizon = run->horizon;

	if (horizon->held_since == 0 ||
		horizon->source_clock - horizon->held_since < HELD_EVENT_SECONDS * USECS_PER_SEC)
		return;
	catalog_event_once(run->job, "horizon_held", horizon->held_back_by,
					   psprintf("the checkpoint waits for a transaction at the source: %s",
								horizon->held_back_by));
}

/* a watermark that the clock has not reached is told once */
static void
note_future(Run *run)
{
	const Stage *stage = run->stage;
	char	   *value;

	if (stage->nfuture == 0)
		return;
	value = watermark_print(run->shape->watermark, stage->newest_watermark);
	catalog_event_once(run->job, "future_watermark", value,
					   psprintf("rows have a watermark ahead of the source's clock, up to %s: they are loaded, and the checkpoint stays below",
								value));
}

void
advance_note(Run *run)
{
	if (run->piece == NULL)
		note_lag(run);
	note_held_horizon(run);
	note_future(run);
}
