/*
 * window.c
 *		A range of watermarks that one read covers.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "compat.h"
#include "window.h"

Window
window_next(const Job *job, const Shape *shape, const Checkpoint *checkpoint,
			const Horizon *horizon)
{
	Window		window = {0};

	if (shape->by_xmin && horizon->mark_holds)
		window.mark = checkpoint->mark;
	if (shape->watermark == NULL)
		return window;

	window.with_null = job_null_watermark(job) != NULL_WATERMARK_SKIP && !shape->watermark_not_null;
	window.low = checkpoint->bound;
	if (checkpoint->bound.is_set && job_lookback(job, shape->watermark->kind))
	{
		window.low.value = watermark_subtract(shape->watermark, checkpoint->bound.value,
											  job_lookback(job, shape->watermark->kind));
		if (horizon->left_out > 0)
			window.low.value = TimestampGetDatum(DatumGetTimestamp(window.low.value) - horizon->left_out);
		window.low.side = BOUND_BEFORE;
		window.low.tie_key = NIL;
	}
	if (job->options->start_at)
	{
		Bound		start = {.is_set = true, .side = BOUND_BEFORE};

		start.value = watermark_parse(shape->watermark, job->options->start_at);
		if (bound_compare(shape->watermark, &window.low, &start) < 0)
			window.low = start;
	}
	if (shape->fallback)
		window.null_low = checkpoint->fallback;
	if (horizon->mark_holds && shape->nkeys > 0)
	{
		window.seen = checkpoint->seen;
		window.seen_null = checkpoint->seen_null;
		window.mark = checkpoint->mark;
	}

	/* without a key a row that is read again would be doubled: stop where all is settled */
	if (shape->nkeys == 0)
	{
		window.high = horizon->bound;
		window.is_empty = !horizon->bound.is_set ||
			bound_compare(shape->watermark, &horizon->bound, &window.low) <= 0;
	}
	return window;
}
