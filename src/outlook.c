/*
 * outlook.c
 *		What the next run of a job will do, found out without doing it.
 *
 * The same steps as a run's, from connection to window, but the checkpoint is
 * read without its lock and nothing is written.
 */
#include "postgres.h"

#include "checkpoint.h"
#include "compat.h"
#include "horizon.h"
#include "outlook.h"
#include "split.h"
#include "target.h"

Outlook *
outlook_open(const Job *job)
{
	Outlook    *outlook = palloc0(sizeof(Outlook));
	Checkpoint *checkpoint;
	Horizon    *horizon;

	outlook->job = job;
	target_require_writable(job, job->strategy == STRATEGY_FULL);
	outlook->source = source_connect(job, CurrentMemoryContext);
	outlook->shape = shape_build(outlook->source, job);
	checkpoint = checkpoint_read(job->id, outlook->shape, false);
	horizon = horizon_observe(outlook->source, job, outlook->shape, checkpoint, job->strategy == STRATEGY_FULL, NULL);
	horizon_correct(horizon, checkpoint);
	outlook->window = window_next(job, outlook->shape, checkpoint, horizon);
	outlook->order = outlook->shape->nkeys > 0 && !outlook->shape->key_is_unique
		? READ_BY_WATERMARK : READ_ANY_ORDER;

	outlook->fill = fill_foresee(job, outlook->shape, checkpoint, job->strategy == STRATEGY_FULL, false);
	outlook->mode = merge_mode(job, outlook->shape);
	if (job->strategy == STRATEGY_FULL)
	{
		outlook->prunes = job_full_refresh_mode(job) == FULL_REFRESH_MERGE;
		outlook->truncates = !outlook->prunes && outlook->fill.way == FILL_APPLY;
		outlook->mode = outlook->prunes ? APPLY_MERGE : APPLY_INSERT;
	}
	if (job->options->deletes == DELETES_TOMBSTONE)
	{
		outlook->tombstones = tombstones_open(job, outlook->source, outlook->shape, CurrentMemoryContext);
		tombstones_look(outlook->tombstones, false, false);
	}
	return outlook;
}

void
outlook_close(const Outlook *outlook)
{
	if (outlook->tombstones)
		source_release(outlook->tombstones->source);
	source_release(outlook->source);
}

List *
outlook_queries(const Outlook *outlook, int64 limit)
{
	return split_read(outlook->source, outlook->job, outlook->shape, &outlook->window,
					  limit > 0 ? READ_BY_WATERMARK : outlook->order, limit);
}
