/*
 * batch.c
 *		One batch of a run, from reading to checkpoint.
 *
 * job, checkpoint, horizon, window, source, stage, merge, checkpoint, history:
 * here the data flows through them, in this order.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "advance.h"
#include "batch.h"
#include "catalog.h"
#include "compat.h"
#include "drift.h"
#include "merge.h"
#include "names.h"
#include "peek.h"
#include "progress.h"
#include "prune.h"
#include "role.h"
#include "split.h"
#include "straight.h"
#include "target.h"
#include "tombstone.h"
#include "trouble.h"

static const char row_hint[] =
"Mend the row at the source, change its value by the option \"transforms\", leave it out by \"filter\", or change the target; the next run goes on from the checkpoint.";

static char *
check_hint(const Job *job)
{
	return psprintf("SELECT * FROM incload_check(%s) compares the job with both sides and with the rights on them.",
					quote_literal_cstr(job->name));
}

/* the options lock_timeout and source_timezone for what is done here; there, the copy reader sets them */
void
batch_enter_owner(const Job *job, RoleBracket *bracket)
{
	role_fire_deferred(job->owner);
	role_enter_owner(bracket, job->owner, job->search_path);
	if (job->options->lock_timeout > 0)
		role_set("lock_timeout", psprintf(INT64_FORMAT, job->options->lock_timeout));
	if (job->options->source_timezone)
		role_set("TimeZone", job->options->source_timezone);
}

static void
run_user_sql(const Job *job, const char *option, const char *sql)
{
	Trouble		trouble;

	if (sql == NULL)
		return;
	trouble_begin(&trouble, psprintf("It came up in the option \"%s\": %s", option, sql),
				  psprintf("Change it: SELECT incload_alter_job(%s, options => '{\"%s\": \"...\"}').",
						   quote_literal_cstr(job->name), option));
	SPI_connect();
	if (SPI_execute(sql, false, 0) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pre_sql and post_sql cannot control transactions or COPY"),
				 errdetail("The SQL is: %s", sql),
				 errhint("It runs inside the run's transaction.")));
	SPI_finish();
	trouble_end(&trouble);
}

/*
 * "incload: orders batch 3" for pg_stat_activity. No job's name makes it look
 * like a reader (SOURCE_READER_PREFIX), which nobody waits for.
 */
static void
show_activity(const Run *run)
{
	pgstat_report_appname(psprintf("incload: %s batch %d", run->job->name, run->record->batches + 1));
}

/* where bad rows go, if they do not fail the run; a retry puts back what is bad still, however much it is */
static void
plan_rejects(Run *run)
{
	int64		limit = run->retry ? PG_INT64_MAX : run->job->options->reject_limit;

	if (limit == 0)
		return;
	run->rejects = rejects_create(run->job, run->shape, run->record->run_id, limit, run->context);
	run->rejects->is_retry = run->retry != NULL;
	run->stage->rejects = run->rejects;
	run->source->puts_aside = true;
}

/*
 * How the rows of this run are read, in which order and cut where, and how they
 * get into the target. Inside the caller's transaction everything is one batch,
 * as it commits together; so is what goes into a new heap.
 */
static void
plan_reading(Run *run)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);
	const Shape *shape = run->shape;
	bool		in_pieces;
	bool		can_cut;
	bool		needs_order;

	if (!run->window.is_empty && run->piece == NULL && run->retry == NULL)
		run->fill = fill_choose(run->job, shape, run->checkpoint, run->is_full, run->in_batches);
	in_pieces = run->in_batches && !run->is_full && run->fill.way == FILL_APPLY;
	/* without bounds, a query that ends with the batch could not go on */
	can_cut = in_pieces && (!shape->by_xmin || run->source->routine->outlives_commit);
	needs_order = in_pieces || (shape->nkeys > 0 && !shape->key_is_unique);

	run->order = needs_order ? READ_BY_WATERMARK : READ_ANY_ORDER;
	run->stage = stage_create(run->job, shape, can_cut ? run->job->options->batch_rows : 0,
							  shape->key_is_portable, run->context);
	run->stage->future = run->horizon->future;
	plan_rejects(run);
	run->reads_null_apart = in_pieces &&
		!run->source->routine->outlives_commit && run->window.with_null;
	if (run->reads_null_apart)
		run->window.with_null = false;

	run->writing.detail = psprintf("It came up while rows were written to target %s.", run->job->target_name);
	run->writing.hint = check_hint(run->job);
	run->writing.row_hint = row_hint;
	/* windows of a backfill go side by side, and each may have what another has */
	if (run->fill.way == FILL_APPLY && !run->is_full && !run->piece && !run->retry)
		run->stage->straight = straight_create(run->job, shape, &run->writing, run->context);
	if (run->fill.way != FILL_APPLY)
		run->heap = new_heap_open(run->job, shape, run->fill.way == FILL_SWAP, &run->writing, run->context);
	/* a key that may come twice is reduced before */
	if (shape->nkeys == 0 || shape->key_is_unique)
		run->stage->heap = run->heap;
	MemoryContextSwitchTo(old);
}

/* a refresh reads everything, as far as a row that is read again cannot be doubled */
static Window
full_window(Run *run)
{
	Window		window = {.with_null = job_null_watermark(run->job) != NULL_WATERMARK_SKIP};

	if (run->shape->watermark == NULL || run->shape->nkeys > 0)
		return window;
	if (!run->horizon->bound.is_set)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("it is not known yet which rows of source %s are settled", run->job->source_name),
				 errdetail("Without a key, a refresh may read only rows below which none can come any more."),
				 errhint("Try again in a few seconds.")));
	window.high = run->horizon->bound;
	return window;
}

/* a window of a backfill */
static Window
piece_window(const Run *run)
{
	const WatermarkType *type = run->shape->watermark;
	Window		window = {0};

	if (type == NULL || run->shape->nkeys == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job \"%s\" can no longer be backfilled", run->job->name),
				 errdetail("It has lost its watermark or its key."),
				 errhint("SELECT incload_cancel(%s) ends the backfill.", quote_literal_cstr(run->job->name))));
	window.low.is_set = window.high.is_set = true;
	window.low.side = window.high.side = BOUND_BEFORE;
	window.low.value = watermark_parse(type, run->piece->low);
	window.high.value = watermark_parse(type, run->piece->high);
	return window;
}

/* the relations are still those that the run began with; locked for this transaction */
static void
require_relations(Run *run)
{
	const Job  *job = run->job;
	bool		swaps = run->is_full && job_full_refresh_mode(job) == FULL_REFRESH_SWAP;

	/* a swap's lock at once: one that is made stronger later can deadlock */
	job_lock_relations(job, swaps ? NEW_HEAP_LOCK : RowExclusiveLock);
	if (relation_oid_or_invalid(job->target_name) != job->target ||
		relation_oid_or_invalid(job->source_name) != job->source)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("source or target of job \"%s\" was replaced while it ran", job->name),
				 errdetail("The source is %s, the target %s.", job->source_name, job->target_name),
				 errhint("Run the job again: it says whether it can go on.")));
}

/* plans statements of the run while the source's server makes a session for it */
static void
plan_ahead(Run *run)
{
	for (int step = 0; !source_ready(run->source); step++)
		switch (step)
		{
			case 0:
				catalog_prepare_checkpoint(false);
				break;
			case 1:
				catalog_prepare_checkpoint(true);
				break;
			case 2:
				history_prepare(run->record);
				break;
			default:
				return;
		}
}

/* from connection to window; inside the owner bracket */
static void
prepare(Run *run)
{
	MemoryContext old = MemoryContextSwitchTo(run->context);
	Trouble		trouble;

	trouble_begin(&trouble, psprintf("It came up while source %s was looked at.", run->job->source_name),
				  check_hint(run->job));
	trouble.row_hint = row_hint;
	require_relations(run);
	target_require_writable(run->job, run->is_full);
	run->stop.code = "target_replaced";
	if (!run->is_full)
		target_require_same(run->job);
	run->stop.code = NULL;
	/* the end of a run is no time to find out that they are gone */
	if (run->job->options->deletes == DELETES_TOMBSTONE)
		(void) relation_require_source(run->job->options->tombstone_source);
	run->source = source_connect(run->job, run->context);
	plan_ahead(run);
	if (!source_foresee(run->source))
	{
		drift_foresee(run->source, run->job);
		shape_foresee(run->source, run->job);
		horizon_foresee(run->source, run->job);
	}
	/* windows of a backfill are loaded side by side, and change nothing but rows */
	if (run->piece == NULL)
		drift_follow(run->source, run->job, run->record, &run->stop);
	run->shape = shape_build(run->source, run->job);
	/* windows of a backfill are loaded side by side, and leave it alone */
	run->checkpoint = checkpoint_read(run->job->id, run->shape, run->piece == NULL);
	run->stop.code = "source_changed";
	run->horizon = horizon_observe(run->source, run->job, run->shape, run->checkpoint,
								   run->is_full, &run->stop.lasts);
	run->stop.code = NULL;
	horizon_correct(run->horizon, run->checkpoint);
	run->window = run->retry ? (Window) {0}
		: run->piece ? piece_window(run)
		: run->is_full ? full_window(run)
		: window_next(run->job, run->shape, run->checkpoint, run->horizon);
	run->has_none = peek_has_none(run);
	if (run->window.low.is_set)
		run->record->watermark_from = watermark_print(run->shape->watermark, run->window.low.value);
	else if (run->shape->by_xmin && run->window.mark != 0)
		run->record->watermark_from = psprintf(UINT64_FORMAT, run->window.mark);
	trouble_end(&trouble);
	MemoryContextSwitchTo(old);
}

static void
open_query(Run *run)
{
	int64		limit = 0;

	/* a query that ends with the batch need not be planned for more */
	if (run->in_batches && !run->source->routine->outlives_commit && !run->window.only_null)
		limit = run->stage->batch_rows;
	/* with room for those that are put aside: fewer rows mean that there are no more */
	if (limit > 0 && run->rejects)
		limit += run->rejects->limit - run->rejects->count + 1;
	run->source->routine->open(run->source,
							   split_read(run->source, run->job, run->shape, &run->window, run->order, limit),
							   run->shape);
	run->is_open = true;
}

static void
close_query(Run *run)
{
	run->source->routine->close(run->source);
	run->is_open = false;
}

/* reads a batch into the stage; false when it was the last one */
static bool
read_batch(Run *run)
{
	bool		more;

	stage_begin_batch(run->stage);
	if (run->window.is_empty)
	{
		if (!run->horizon->bound.is_set)
			ereport(NOTICE,
					(errmsg("%s: no row of source %s is settled yet", run->job->name, run->job->source_name),
					 errdetail("Without a key, rows are read once no transaction can add one below them."),
					 run->horizon->held_back_by ?
					 errhint("This is waited for: %s.", run->horizon->held_back_by) : 0));
		return false;
	}
	if (run->retry)
	{
		retry_read(run->retry, run->job, run->shape, run->source, run->stage);
		return false;
	}
	if (run->has_none)
		return false;
	if (!run->is_open)
		open_query(run);
	more = run->source->routine->read(run->source, run->stage);

	if (run->in_batches && !run->source->routine->outlives_commit)
	{
		close_query(run);
		stage_forget_carried(run->stage);
		if (run->window.only_null)
			return false;
		more = stage_has_batch(run->stage);
		if (more)
			run->window.low = advance_place(run);
		else if (run->reads_null_apart)
		{
			run->window.only_null = true;
			run->stage->batch_rows = 0;
			more = true;
		}
	}
	else if (!more)
		close_query(run);
	return more;
}

/* the new heap takes its place, once it has the rows that were kept back */
static void
swap_in(Run *run)
{
	ApplyCounts *counts = &run->record->counts;

	if (run->fill.way == FILL_SWAP)
		counts->pruned += merge_count(run->job);
	if (!run->stage->heap)
	{
		stage_reduce(run->stage);
		counts->superseded += run->stage->nsuperseded;
		stage_pour(run->stage, run->heap);
	}
	/* rows that are marked as deleted are not put in, and it has none of them */
	counts->unchanged += run->stage->nmarked;
	counts->inserted += new_heap_swap(run->heap, run->fill.way == FILL_FIRST_LOAD);
}

static void
apply_rows(Run *run)
{
	const Job  *job = run->job;
	ApplyMode	mode = merge_mode(job, run->shape);
	bool		prune = false;

	if (run->heap)
	{
		swap_in(run);
		return;
	}
	if (run->is_full)
	{
		prune = job_full_refresh_mode(job) == FULL_REFRESH_MERGE;
		mode = prune ? APPLY_MERGE : APPLY_INSERT;
		if (!prune)
		{
			run->record->counts.pruned += merge_count(job);
			merge_truncate(job);
		}
	}
	merge_apply(job, run->shape, run->stage, mode, prune, &run->record->counts);
}

/*
 * A refresh makes the target equal to the source, and most tables may shrink. A
 * source that has no rows at all is more likely the wrong one.
 */
static void
apply_refresh(Run *run)
{
	const Job  *job = run->job;
	bool		is_empty = run->stage->nrows == run->stage->nmarked && run->stage->nrejected == 0;
	int64		pruned = run->record->counts.pruned;
	int64		before = 0;
	int64		most = -1;

	if (is_empty || options_has(job->options_json, "max_delete_fraction"))
	{
		before = merge_count(job);
		most = prune_limit(job, before);
	}
	apply_rows(run);
	run->stop.code = "prune_refused";
	/* row by row, what has gone is known; else, by how much fewer they are */
	if (most >= 0 && (run->heap == NULL && job_full_refresh_mode(job) == FULL_REFRESH_MERGE
					  ? run->record->counts.pruned - pruned : before - merge_count(job)) > most)
		prune_refuse(job, most);
	run->stop.code = NULL;
}

static void
apply_batch(Run *run)
{
	run->record->rows_read += run->stage->nrows + run->stage->nstraight + run->stage->nrejected;
	if (run->is_full)
		apply_refresh(run);
	else
		apply_rows(run);
}

/* what was put aside is on record with the batch, and what it has made obsolete is not */
static void
settle_rejects(Run *run)
{
	if (run->rejects)
		run->record->counts.rejected += list_length(run->rejects->rows);
	rejects_settle(run->job, run->shape, run->stage, run->rejects, run->is_full);
}

/* another batch, in a transaction of its own: everything must be as it was left */
static void
resume(Run *run)
{
	Checkpoint *now;

	require_relations(run);
	now = checkpoint_read(run->job->id, run->shape, true);
	if (run->shape->watermark != NULL &&
		(bound_compare(run->shape->watermark, &now->bound, &run->checkpoint->bound) != 0 ||
		 bound_compare(run->shape->watermark, &now->seen, &run->checkpoint->seen) != 0))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the checkpoint of job \"%s\" was moved while it ran", run->job->name),
				 errdetail("Another session has run it: the job's lock was given up by SQL of this run."),
				 errhint("Run the job again.")));
}

/* the batch gets into the target */
static void
write_batch(Run *run)
{
	Trouble		trouble;

	if (run->stage->straight)
		run->record->counts.inserted += straight_end_batch(run->stage->straight);
	if (run->stage->nrows > 0 || run->stage->nstraight > 0 || run->stage->nrejected > 0 || run->is_full)
	{
		trouble_begin_like(&trouble, &run->writing);
		progress_phase(PHASE_WRITING);
		apply_batch(run);
		trouble_end(&trouble);
		settle_rejects(run);
		run->record->batches++;
	}
	else if (run->heap)
		new_heap_abandon(run->heap);
	run->heap = NULL;
	if (run->retry)
		retry_settle(run->retry, run->job, run->shape);
	stage_end_batch(run->stage);
}

/* what is to be said and kept of a run whose last batch is done */
static void
finish(Run *run)
{
	const Job  *job = run->job;

	if (run->retry == NULL)
		advance_note(run);
	rejects_report(run->rejects);
	if (run->retry == NULL &&
		(job->stored_target != job->target ||
		 strcmp(job->stored_database, role_database_identity()) != 0))
		catalog_note_relations(job);
	peek_foretell(run);
	run->record->status = "succeeded";
	run->record->is_finished = true;
}

/*
 * The rows of the batch, from the source into the target. What the target's own
 * code asks on the way is answered as in an INSERT: with what this transaction
 * has done, by pre_sql for one, and with what others have committed by now.
 */
static bool
move_rows(Run *run)
{
	TimestampTz began = GetCurrentTimestamp();
	Trouble		trouble;
	bool		more;

	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	trouble_begin(&trouble, psprintf("It came up while source %s was read.", run->job->source_name),
				  check_hint(run->job));
	trouble.row_hint = row_hint;
	progress_phase(PHASE_READING);
	more = read_batch(run);
	run->reading += GetCurrentTimestamp() - began;
	trouble_end(&trouble);
	write_batch(run);
	PopActiveSnapshot();
	return more;
}

bool
run_batch(Run *run)
{
	RoleBracket bracket;
	bool		more;
	bool		is_first = run->source == NULL;
	const Job  *job = run->job;

	show_activity(run);
	progress_phase(PHASE_PREPARING);
	batch_enter_owner(job, &bracket);
	if (is_first)
		prepare(run);
	else
		resume(run);
	if (is_first && job->options->pre_sql)
	{
		run_user_sql(job, "pre_sql", job->options->pre_sql);
		require_relations(run);
	}
	if (is_first)
		plan_reading(run);
	role_pin_formats();
	more = move_rows(run);
	progress_phase(PHASE_DELETING);
	if (!more && run->piece == NULL && run->retry == NULL && job->options->deletes == DELETES_TOMBSTONE)
		tombstones_apply(run);
	if (!more && run->piece == NULL && run->retry == NULL && !run->is_full && job->options->deletes == DELETES_PRUNE)
		prune_target(run);
	progress_phase(PHASE_FINISHING);
	if (!more)
		run_user_sql(job, "post_sql", job->options->post_sql);
	/* whatever the owner's SQL has set */
	role_pin_formats();

	if (run->piece)
	{
		run->record->watermark_from = run->piece->low;
		run->record->watermark_to = run->piece->high;
	}
	else if (run->retry == NULL)
		advance_checkpoint(run, !more);
	run->record->bytes_read = run->source->bytes_read;
	if (!more)
		finish(run);
	if (run->in_batches || !more)
		history_write(run->record);
	role_leave(&bracket);
	return more;
}
