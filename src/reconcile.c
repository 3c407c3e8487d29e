/*
 * reconcile.c
 *		incload_reconcile: source and target compared and made equal, whatever
 *		the watermark says.
 *
 * By hash, ranges that differ are found while runs may go on, and the job's lock
 * is taken for their rows alone. What the next run will read anyway is no
 * difference: the rows above the checkpoint, and those of the lookback that were
 * written since the last run. For the rest, the target cannot be ahead of what
 * is read, as no run comes in between.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "catalog.h"
#include "compat.h"
#include "horizon.h"
#include "names.h"
#include "prune.h"
#include "reconcile.h"
#include "role.h"
#include "run.h"
#include "run_core.h"
#include "target.h"
#include "trouble.h"

typedef enum ReconcileMode
{
	MODE_COUNT,
	MODE_HASH,
	MODE_ROWS
} ReconcileMode;

static const char *const mode_names[] = {"count", "hash", "rows"};

/* Reconciliation: one call, from its arguments to its findings */
typedef struct Reconciliation
{
	ReconcileMode mode;
	bool		repair;
	ReturnSetInfo *rsinfo;
	Run		   *run;
	Scope	   *scope;
	Ranges	   *ranges;
	Judge		judge;
	int64		source_rows;
	int64		target_rows;
	int			differing;		/* ranges whose counts differ */
} Reconciliation;

void
reconcile_require_possible(const Job *job)
{
	if (job->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job \"%s\" cannot be reconciled", job->name),
				 errdetail("It has no key: nothing tells which row here is which row there."),
				 errhint("SELECT incload_refresh(%s) loads the target anew.", quote_literal_cstr(job->name))));
	if (job->options->only_newer)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("job \"%s\" cannot be reconciled", job->name),
				 errdetail("Its source is a log of versions (option \"only_newer\"): it has more than one row for a key."),
				 errhint("Reconcile a job over a view of the newest versions.")));
}

static ReconcileMode
parse_mode(const char *name)
{
	for (int i = 0; i < lengthof(mode_names); i++)
		if (strcmp(name, mode_names[i]) == 0)
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized mode \"%s\"", name),
			 errdetail("The modes are count, hash and rows."),
			 errhint("hash compares checksums and moves only rows that differ; rows reads every row; count compares numbers of rows.")));
	return MODE_HASH;			/* keep compiler quiet */
}

void
reconcile_set_pending(Judge *judge, const Window *next)
{
	const Ranges *ranges = judge->ranges;
	char	   *condition;

	judge->pending = "false";
	/* a job that reads everything each time has nothing that is yet to come: it is compared as it is */
	if (ranges->shape->watermark == NULL && !ranges->shape->by_xmin)
		return;
	condition = query_condition(ranges->shape, ranges->source, next);
	judge->pending = condition ? psprintf("COALESCE((%s), false)", condition) : "true";
	if (next->mark != 0 && ranges->source->with_xmin)
		judge->news = query_written_since(ranges->source, next->mark);
}

/* has it ever loaded what could be compared? */
static void
require_loaded(const Job *job, const Checkpoint *checkpoint)
{
	if (job->strategy == STRATEGY_FULL || checkpoint->loaded_to || checkpoint->bound.is_set || checkpoint->mark != 0 ||
		catalog_has_history(job->id))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("job \"%s\" has not loaded anything yet", job->name),
			 errdetail("All that the source has is still to come."),
			 errhint("SELECT incload_run(%s) loads it.", quote_literal_cstr(job->name))));
}

/*
 * May runs go on while ranges are compared? Not those that want more of the target than
 * this has of it by then: they would wait for this, which will wait for their job's lock.
 * And not where a wrapper may keep its snapshot to the end of this transaction: what is
 * read once the lock is had would be older than what they have loaded.
 */
static bool
lets_runs_go_on(const Reconciliation *self)
{
	const Job  *job = self->run->job;

	if (self->mode != MODE_HASH || job->options->schema_change == SCHEMA_CHANGE_EVOLVE ||
		job_full_refresh_mode(job) != FULL_REFRESH_MERGE)
		return false;
	return self->run->source->routine->outlives_commit ||
		(get_rel_relkind(job->source) == RELKIND_RELATION && !has_subclass(job->source));
}

/* the job's lock: no run comes in between from here on */
static void
take_lock(Reconciliation *self)
{
	Run		   *run = self->run;
	const Job  *before = run->job;

	run_wait_for_lock(run);
	run->job = run->record->job = job_reload(before);
	if (!job_same_definition(before, run->job))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("job \"%s\" was altered while it was compared", run->job->name),
				 errdetail("What was compared is not what it loads now."),
				 errhint("Call incload_reconcile once more.")));
}

/* the connection, the shape, and what is to be compared */
static void
open_sides(Reconciliation *self)
{
	Run		   *run = self->run;
	const Job  *job = run->job;

	run->source = source_connect(job, run->context);
	if (self->mode == MODE_HASH && !run->source->is_postgres)
	{
		ereport(WARNING,
				(errmsg("source %s computes no checksums: every row of it is read", job->source_name),
				 errdetail("It is read through a foreign-data wrapper."),
				 errhint("Mode count reads all rows, too, but keeps none; run it when the load does no harm.")));
		self->mode = MODE_ROWS;
	}
	/* before any lock on a relation: runs take them in this order */
	if (!lets_runs_go_on(self))
		take_lock(self);
	job = run->job;
	job_lock_relations(job, self->repair ? RowExclusiveLock : AccessShareLock);
	if (self->repair)
		target_require_writable(job, false);
	run->shape = shape_build(run->source, job);
	self->scope = scope_of(job, run->shape);
	if (self->scope->unknown)
		ereport(NOTICE,
				(errmsg("every row of target %s is taken for the job's", job->target_name),
				 errdetail("The reason: %s.", self->scope->unknown),
				 errhint("Rows that the job is not about are reported as extra, and are never deleted.")));
}

/* the lock, if it is not had yet, and the checkpoint as the last run has left it */
static void
stop_runs(Reconciliation *self)
{
	Run		   *run = self->run;
	Window		next;

	if (!run->is_locked)
		take_lock(self);
	run->checkpoint = checkpoint_read(run->job->id, run->shape, true);
	require_loaded(run->job, run->checkpoint);
	run->stop.code = "source_changed";
	run->horizon = horizon_observe(run->source, run->job, run->shape, run->checkpoint, false, &run->stop.lasts);
	run->stop.code = NULL;
	horizon_correct(run->horizon, run->checkpoint);
	next = window_next(run->job, run->shape, run->checkpoint, run->horizon);
	/* what is not settled yet comes in time, too */
	next.high.is_set = next.is_empty = false;
	self->judge.ranges = self->ranges;
	reconcile_set_pending(&self->judge, &next);
}

/* what a repair may do, by the job's own rules */
static void
set_rights(Reconciliation *self)
{
	const Job  *job = self->run->job;
	Judge	   *judge = &self->judge;
	Relation	target;

	target = table_open(job->target, AccessShareLock);
	judge->may_double = !target_key_is_unique(target, job->key);
	table_close(target, NoLock);
	if (job->options->reject_limit > 0)
	{
		self->run->source->puts_aside = true;
		judge->rejects = rejects_create(job, self->run->shape, self->run->record->run_id, job->options->reject_limit, self->run->context);
	}
	judge->order = self->run->shape->key_is_unique ? READ_ANY_ORDER : READ_BY_WATERMARK;
	judge->result = self->rsinfo ? self->rsinfo->setResult : NULL;
	judge->result_desc = self->rsinfo ? self->rsinfo->setDesc : NULL;
	judge->most_deletes = prune_limit(job, self->target_rows);
	if (!self->repair)
		return;
	judge->inserts = true;
	judge->updates = job->strategy != STRATEGY_APPEND;
	judge->updates_all = judge->updates && job->options->on_conflict <= ON_CONFLICT_SOURCE;
	judge->deletes = self->scope->unknown == NULL &&
		(job->strategy == STRATEGY_FULL || job->options->deletes > DELETES_IGNORE);
}

static void
sum_up(Reconciliation *self, List *list)
{
	ListCell   *lc;

	foreach(lc, list)
	{
		self->source_rows += ((Range *) lfirst(lc))->source_rows;
		self->target_rows += ((Range *) lfirst(lc))->target_rows;
	}
}

/* a line for each range whose counts differ */
static void
report_counts(Reconciliation *self, List *list)
{
	ListCell   *lc;

	foreach(lc, list)
	{
		Range	   *range = lfirst(lc);
		Datum		values[6] = {0};
		bool		nulls[6] = {false, false, true};
		char	   *key = self->ranges->ordered
			? psprintf("SELECT pg_catalog.jsonb_build_object('from', %s::pg_catalog.text, 'to', %s::pg_catalog.text)",
					   range->low ? quote_literal_cstr(range->low) : "NULL", range->high ? quote_literal_cstr(range->high) : "NULL")
			: psprintf("SELECT pg_catalog.jsonb_build_object('hash', %u, 'bits', %d)", range->hash, range->bits);

		values[0] = CStringGetTextDatum("count");
		values[1] = DirectFunctionCall1(jsonb_in, CStringGetDatum(target_ask(key)->value[0][0]));
		values[3] = Int64GetDatum(range->source_rows);
		values[4] = Int64GetDatum(range->target_rows);
		values[5] = CStringGetTextDatum("none");
		if (self->rsinfo)
			tuplestore_putvalues(self->rsinfo->setResult, self->rsinfo->setDesc, values, nulls);
	}
	self->differing = list_length(list);
}

static void
compare_counts(Reconciliation *self)
{
	List	   *all;

	self->ranges = ranges_open(self->run->job, self->run->source, self->run->shape, self->scope, COMPARE_COUNTS);
	stop_runs(self);
	self->ranges->pending = self->judge.pending;
	all = ranges_cut(self->ranges);
	report_counts(self, ranges_differing(self->ranges, all));
	sum_up(self, all);
}

static void
compare_hashes(Reconciliation *self)
{
	List	   *all;
	List	   *list;

	self->ranges = ranges_open(self->run->job, self->run->source, self->run->shape, self->scope, COMPARE_ROWS);
	all = ranges_cut(self->ranges);
	list = ranges_differing(self->ranges, all);
	sum_up(self, all);
	list = ranges_narrowed(self->ranges, list);
	stop_runs(self);
	set_rights(self);
	judge_ranges(&self->judge, list);
}

static void
compare_rows(Reconciliation *self)
{
	const Scope *scope = self->scope;
	List	   *all;
	ListCell   *lc;

	self->ranges = ranges_open(self->run->job, self->run->source, self->run->shape, scope, COMPARE_ROWS);
	stop_runs(self);
	self->target_rows = strtoi64(target_ask(psprintf("SELECT pg_catalog.count(*) FROM %s AS t WHERE %s",
													 relation_qualified_name(self->run->job->target),
													 scope->target ? scope->target : "true"))->value[0][0], NULL, 10);
	set_rights(self);
	all = ranges_cut(self->ranges);
	/* about as many in each */
	foreach(lc, all)
		((Range *) lfirst(lc))->target_rows = self->target_rows / list_length(all) + 1;
	judge_ranges(&self->judge, all);
	self->source_rows = self->judge.rows_read;
}

/* what was found, for people, the record, and whoever is on call */
static void
write_report(Reconciliation *self)
{
	const Judge *judge = &self->judge;
	const ApplyCounts *applied = &judge->applied;
	RunRecord  *record = self->run->record;
	Comparison	comparison = {
		.mode = mode_names[self->mode],
		.source_rows = self->source_rows, .target_rows = self->target_rows,
		.ranges = self->ranges->nasked, .differing = self->differing,
		.missing = judge->missing, .extra = judge->extra, .changed = judge->changed, .duplicates = judge->duplicates,
		.conflicts = judge->conflicts,
		.repaired = applied->inserted + applied->updated + applied->pruned
	};
	int64		found = judge->missing + judge->extra + judge->changed + judge->duplicates;
	/* whose version stays is settled, where the target's wins */
	int64		unsettled = found -
		(self->repair && record->job->options->on_conflict == ON_CONFLICT_TARGET ? judge->conflicts : 0);
	char	   *message = self->mode == MODE_COUNT
		? psprintf("%d of %d ranges have other numbers of rows", self->differing, self->ranges->nasked)
		: psprintf("missing " INT64_FORMAT ", extra " INT64_FORMAT ", changed " INT64_FORMAT "%s%s", judge->missing, judge->extra, judge->changed,
				   judge->duplicates ? psprintf(", keys that are there twice " INT64_FORMAT, judge->duplicates) : "",
				   self->repair ? psprintf("; inserted " INT64_FORMAT ", updated " INT64_FORMAT ", deleted " INT64_FORMAT,
										   applied->inserted, applied->updated, applied->pruned) : "");

	record->kind = "reconcile";
	record->rows_read = judge->rows_read;
	record->counts = *applied;
	/* what was read, and is as it was */
	record->counts.unchanged = judge->rows_read - applied->inserted - applied->updated - applied->superseded -
		applied->suppressed - applied->rejected;
	record->bytes_read = self->run->source->bytes_read;
	record->status = "succeeded";
	record->is_finished = true;
	history_write(record);
	history_write_comparison(record, &comparison);
	ereport(NOTICE,
			(errmsg("%s: %s", record->job->name, found || self->differing ? message : "no difference"),
			 errdetail(INT64_FORMAT " rows of the source and " INT64_FORMAT " of the target were compared; "
					   INT64_FORMAT " rows were read.", self->source_rows, self->target_rows, judge->rows_read)));
	if (judge->superseded > 0)
		ereport(WARNING,
				(errmsg("source %s has keys of job \"%s\" more than once", record->job->source_name, record->job->name),
				 errdetail(INT64_FORMAT " of the rows that were read have the key of another one.", judge->superseded),
				 errhint("The one that is read last counts: a run and a comparison may take different ones. Choose a key that identifies a row.")));
	rejects_report(judge->rejects);
	if (unsettled > 0 || self->differing > 0)
		catalog_ticket(record->job, record->run_id, "reconcile_mismatch",
					   psprintf("source and target of job %s differ: %s", record->job->name, message));
}

/* who had the target mended, outside the owner's bracket, as it may be somebody else */
static void
tell_repair(const Reconciliation *self)
{
	const ApplyCounts *applied = &self->judge.applied;
	const RunRecord *record = self->run->record;

	if (applied->inserted + applied->updated + applied->pruned == 0)
		return;
	catalog_event(record->job, "job_repaired",
				  psprintf("the target of job %s was repaired: " INT64_FORMAT " rows inserted, " INT64_FORMAT " updated, " INT64_FORMAT " deleted",
						   record->job->name, applied->inserted, applied->updated, applied->pruned),
				  psprintf("{\"run_id\": " INT64_FORMAT ", \"from\": {\"missing\": " INT64_FORMAT ", \"changed\": " INT64_FORMAT ", \"extra\": " INT64_FORMAT "},"
						   " \"to\": {\"inserted\": " INT64_FORMAT ", \"updated\": " INT64_FORMAT ", \"deleted\": " INT64_FORMAT "}}",
						   record->run_id, self->judge.missing, self->judge.changed, self->judge.extra,
						   applied->inserted, applied->updated, applied->pruned));
}

static void
reconcile_body(Run *run, void *argument)
{
	Reconciliation *self = argument;
	RoleBracket bracket;
	Trouble		trouble;

	self->run = run;
	run->record->kind = "reconcile";
	run->progress = progress_begin(run->job, run->record->run_id, run->record->kind);
	progress_phase(PHASE_COMPARING);
	job_require_whole(run->job);
	reconcile_require_possible(run->job);
	batch_enter_owner(run->job, &bracket);
	trouble_begin(&trouble, psprintf("It came up while job %s was reconciled.", run->job->name),
				  psprintf("SELECT * FROM incload_check(%s) compares the job with both sides and with the rights on them.",
						   quote_literal_cstr(run->job->name)));
	trouble.row_hint = psprintf("SELECT incload_run(%s) first, if the source's columns have changed since the last run; what a column here has no place for stands in the message.",
								quote_literal_cstr(run->job->name));
	open_sides(self);
	switch (self->mode)
	{
		case MODE_COUNT:
			compare_counts(self);
			break;
		case MODE_HASH:
			compare_hashes(self);
			break;
		case MODE_ROWS:
			compare_rows(self);
			break;
	}
	ranges_close(self->ranges);
	trouble_end(&trouble);
	write_report(self);
	source_release(run->source);
	role_leave(&bracket);
	tell_repair(self);
}

void
reconcile_run(Run *run)
{
	Reconciliation self = {.mode = MODE_HASH, .repair = run->job->options->reconcile_repair};

	reconcile_body(run, &self);
}

PG_FUNCTION_INFO_V1(incload_reconcile);

/*
 * incload_reconcile(job, mode, repair) → (difference, key, columns, source_rows, target_rows, action)
 *		A row for each difference between source and target, and what became of it.
 */
Datum
incload_reconcile(PG_FUNCTION_ARGS)
{
	Reconciliation self = {
		.mode = parse_mode(text_to_cstring(PG_GETARG_TEXT_PP(1))),
		.repair = PG_GETARG_BOOL(2),
		.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo
	};

	if (self.mode == MODE_COUNT && self.repair)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("mode count cannot repair"),
				 errdetail("Numbers of rows do not tell which ones differ."),
				 errhint("Use mode hash or rows.")));
	InitMaterializedSRF(fcinfo, 0);
	(void) run_inside(text_to_cstring(PG_GETARG_TEXT_PP(0)), reconcile_body, &self);
	return (Datum) 0;
}
