/*
 * window.c
 *		A range of watermarks that one read covers.
 */
#include "postgres.h"

#include "compat.h"
#include "window.h"

Window
window_next(const Job *job, const Shape *shape, const Checkpoint *checkpoint,
			const Horizon *horizon)
{
	Window		window = {0};

	if (shape->watermark == NULL)
		return window;

	window.with_null = job_null_watermark(job) != NULL_WATERMARK_SKIP;
	window.low = checkpoint->bound;
	if (!window.low.is_set && job->options->start_at)
	{
		window.low.is_set = true;
		window.low.value = watermark_parse(shape->watermark, job->options->start_at);
		window.low.side = BOUND_BEFORE;
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
