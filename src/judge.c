/*
 * judge.c
 *		The rows of ranges that differ, one by one: what differs, and its mending.
 *
 * The source's rows come into a stage, each with a number that tells whether the
 * next run will read it anyway. They are then compared with the target's by the
 * images that a run compares, so that nothing is called different which a run
 * would call unchanged. What is mended goes the way of a run's rows.
 */
#include "postgres.h"

#include "executor/tuptable.h"
#include "tcop/dest.h"
#include "utils/builtins.h"

#include "compat.h"
#include "execute.h"
#include "judge.h"
#include "names.h"
#include "prune.h"
#include "query.h"
#include "shape_rows.h"

/* what a staged row is, as its number */
#define ROW_KNOWN 0
#define ROW_PENDING 1			/* the next run reads it */
#define ROW_NEWS 2				/* it was written since the last run, and no run would notice */
#define ROW_DELETED 3			/* it is marked as deleted, and the target is not to have it */

/* what the target is to have just so */
#define IS_TO_BE_HERE "s.%s OPERATOR(pg_catalog.=) ANY ('{0,2}'::pg_catalog.int4[])"

/* Found: where the differences go, and are counted */
typedef struct Found
{
	DestReceiver dest;
	Judge	   *judge;
} Found;

static bool
receive_difference(TupleTableSlot *slot, DestReceiver *dest)
{
	Judge	   *judge = ((Found *) dest)->judge;
	bool		isnull;
	Datum		kind = slot_getattr(slot, 1, &isnull);
	Datum		number = slot_getattr(slot, 7, &isnull);
	const char *name = VARDATA_ANY(DatumGetPointer(kind));

	/* their first letters tell them apart */
	if (*name == 'm')
		judge->missing++;
	else if (*name == 'e')
		judge->extra++;
	else if (*name == 'd')
		judge->duplicates++;
	else
	{
		judge->changed++;
		judge->conflicts += DatumGetInt32(number) == ROW_KNOWN;
	}
	if (judge->result)
	{
		slot_getallattrs(slot);
		tuplestore_putvalues(judge->result, judge->result_desc, slot->tts_values, slot->tts_isnull);
	}
	return true;
}

static void
receiver_startup(DestReceiver *dest, int operation, TupleDesc desc)
{
}

static void
receiver_nothing(DestReceiver *dest)
{
}

/* which of the settable columns differ, as text[] */
static char *
differing_columns(const Shape *shape)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "pg_catalog.array_remove(ARRAY[NULL::pg_catalog.text");
	for (int i = 0; i < shape->ncolumns; i++)
	{
		const char *name = quote_identifier(shape->columns[i].name);

		if (shape->columns[i].is_settable)
			appendStringInfo(&buf, ", CASE WHEN ROW(t.%s)::pg_catalog.record OPERATOR(pg_catalog.*<>) ROW(s.%s)::pg_catalog.record THEN %s::pg_catalog.text END",
							 name, name, quote_literal_cstr(shape->columns[i].name));
	}
	appendStringInfoString(&buf, "], NULL)");
	return buf.data;
}

/* "a row of the target has a key, and this is it" */
static char *
joined(const Judge *judge)
{
	return psprintf("LEFT JOIN %s AS t ON %s", relation_qualified_name(judge->ranges->job->target),
					merge_key_condition(judge->ranges->shape, "t", "s"));
}

/* rows of the target in these ranges, as far as the job is about them, whose key the source has not */
static char *
extra_condition(const Judge *judge, List *list, const char *number)
{
	const Scope *scope = judge->ranges->scope;

	return psprintf("%s%s%s AND NOT EXISTS (SELECT FROM " STAGE_NAME " AS s WHERE %s AND s.%s OPERATOR(pg_catalog.<>) %d)",
					ranges_condition(judge->ranges, SIDE_TARGET, list),
					scope->target ? " AND " : "", scope->target ? scope->target : "",
					merge_key_condition(judge->ranges->shape, "t", "s"), number, ROW_DELETED);
}

/* SQL of what becomes of a row that is on both sides */
static char *
change_action(const Judge *judge, const char *number)
{
	if (judge->updates_all)
		return "'updated'";
	if (judge->updates)
		return psprintf("CASE WHEN s.%s OPERATOR(pg_catalog.=) %d THEN 'updated' ELSE 'kept' END", number, ROW_NEWS);
	return judge->inserts ? "'kept'" : "'none'";
}

/* keys that the target has more than once, in the same form; to be added */
static char *
duplicate_statement(const Judge *judge, List *list, const char *number)
{
	const Ranges *ranges = judge->ranges;
	const Shape *shape = ranges->shape;
	StringInfoData key;

	initStringInfo(&key);
	for (int i = 0; i < shape->nkeys; i++)
		appendStringInfo(&key, "%s%s", i ? ", " : "", quote_identifier(shape->columns[shape->key[i]].name));
	return psprintf(" UNION ALL SELECT 'duplicate', %s, NULL, NULL, t.%s, '%s', %d FROM"
					" (SELECT %s, pg_catalog.count(*) FROM %s AS t WHERE %s%s%s GROUP BY %s) AS t(%s, %s) WHERE t.%s OPERATOR(pg_catalog.>) 1",
					shape_as_json(shape, "t", true), number, judge->inserts ? "kept" : "none", ROW_KNOWN,
					key.data, relation_qualified_name(ranges->job->target), ranges_condition(ranges, SIDE_TARGET, list),
					ranges->scope->target ? " AND " : "", ranges->scope->target ? ranges->scope->target : "",
					key.data, key.data, number, number);
}

/* the differences, as rows of incload_reconcile and the row's number */
static char *
difference_statement(const Judge *judge, List *list, const char *number)
{
	const Shape *shape = judge->ranges->shape;
	const char *differs = merge_update_condition(judge->ranges->job, shape, "t", "s");
	StringInfoData buf;

	initStringInfo(&buf);
	if (!judge->only_keys)
	{
		appendStringInfo(&buf, "SELECT 'missing'::pg_catalog.text, %s, NULL::pg_catalog.text[], NULL::pg_catalog.int8, NULL::pg_catalog.int8,"
						 " '%s'::pg_catalog.text, s.%s FROM " STAGE_NAME " AS s %s WHERE " IS_TO_BE_HERE " AND t.ctid IS NULL UNION ALL ",
						 shape_as_json(shape, "s", true), judge->inserts ? "inserted" : "none", number,
						 joined(judge), number);
		if (differs)
			appendStringInfo(&buf, "SELECT 'changed', %s, %s, NULL, NULL, %s, s.%s FROM " STAGE_NAME " AS s %s"
							 " WHERE " IS_TO_BE_HERE " AND t.ctid IS NOT NULL AND %s UNION ALL ",
							 shape_as_json(shape, "s", true), differing_columns(shape), change_action(judge, number),
							 number, joined(judge), number, differs);
	}
	appendStringInfo(&buf, "SELECT 'extra'::pg_catalog.text, %s, NULL::pg_catalog.text[], NULL::pg_catalog.int8, NULL::pg_catalog.int8,"
					 " '%s'::pg_catalog.text, %d FROM %s AS t WHERE %s",
					 shape_as_json(shape, "t", true),
					 judge->deletes ? "deleted" : judge->inserts ? "kept" : "none", ROW_KNOWN,
					 relation_qualified_name(judge->ranges->job->target), extra_condition(judge, list, number));
	if (judge->may_double && !judge->only_keys)
		appendStringInfoString(&buf, duplicate_statement(judge, list, number));
	return buf.data;
}

/* the staged rows that are to be written, in the shape of the job's rows */
static char *
mending_rows(const Judge *judge, const char *number)
{
	const Shape *shape = judge->ranges->shape;
	const char *differs = merge_update_condition(judge->ranges->job, shape, "t", "s");
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < shape->desc->natts; i++)
		appendStringInfo(&buf, "%s%s%s", i ? ", " : "SELECT ", i == shape->deleted_position ? "false AS " : "s.",
						 quote_identifier(NameStr(TupleDescAttr(shape->desc, i)->attname)));
	appendStringInfo(&buf, " FROM " STAGE_NAME " AS s %s WHERE " IS_TO_BE_HERE " AND (t.ctid IS NULL",
					 joined(judge), number);
	if (differs && judge->updates)
		appendStringInfo(&buf, " OR (%s%s)", differs, judge->updates_all ? ""
						 : psprintf(" AND s.%s OPERATOR(pg_catalog.=) %d", number, ROW_NEWS));
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* the source's rows of these ranges */
static Stage *
read_rows(Judge *judge, List *list, char **number)
{
	Ranges	   *ranges = judge->ranges;
	Source	   *source = ranges->source;
	const char *deleted = ranges->shape->deleted_expression;
	char	   *what = psprintf("CASE WHEN %s THEN %d WHEN %s THEN %d WHEN %s THEN %d ELSE %d END",
								judge->pending, ROW_PENDING, deleted ? deleted : "false", ROW_DELETED,
								judge->news ? judge->news : "false", ROW_NEWS, ROW_KNOWN);
	Shape	   *shape = shape_with_number(ranges->shape, judge->only_keys, what, number);
	Stage	   *stage = stage_create(ranges->job, shape, 0, false, CurrentMemoryContext);

	/* a key that is no value here is none of the target's; and whether a watermark is null does not matter to a key */
	if (judge->only_keys)
	{
		stage->null_watermark = NULL_WATERMARK_ALWAYS;
		if (source->puts_aside)
			stage->rejects = rejects_create(ranges->job, shape, 0, PG_INT64_MAX, CurrentMemoryContext);
	}
	stage_begin_batch(stage);
	source->routine->open(source, list_make1(query_read(shape, source, ranges->job->options->filter,
														&ranges->scope->window,
														ranges_condition(ranges, SIDE_SOURCE, list), judge->order, 0)),
						  shape);
	while (source->routine->read(source, stage))
		continue;
	source->routine->close(source);
	judge->rows_read += stage->nrows;
	stage_reduce(stage);
	return stage;
}

/* what is invented goes first: it may have a unique value that a missing row has */
static void
mend(Judge *judge, List *list, Stage *stage, const char *number, int64 extra)
{
	const Job  *job = judge->ranges->job;
	Stage	   *writing;

	if (judge->deletes && extra > 0)
		judge->applied.pruned += execute_statement(psprintf("DELETE FROM %s AS t WHERE %s", relation_qualified_name(job->target),
															extra_condition(judge, list, number)),
												   stage_environment(stage), NULL).processed;
	if (!judge->inserts)
		return;
	writing = stage_create(job, judge->ranges->shape, 0, false, CurrentMemoryContext);
	stage_fill(writing, mending_rows(judge, number), stage_environment(stage));
	/* the owner's triggers run under the settings that they run under in a run */
	ranges_pause(judge->ranges);
	writing->rejects = judge->rejects;
	if (writing->nrows > 0)
		merge_apply(job, judge->ranges->shape, writing, judge->updates ? APPLY_MERGE : APPLY_INSERT_NEW,
					false, &judge->applied);
	if (judge->rejects)
		judge->applied.rejected += list_length(judge->rejects->rows);
	/* what is mended is no longer put aside, with or without a limit on more of it */
	rejects_settle(job, judge->ranges->shape, writing, judge->rejects, false);
	ranges_go_on(judge->ranges);
	stage_end_batch(writing);
}

/* ranges of one cut, and of no more rows than a batch */
static void
judge_some(Judge *judge, List *list)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "incload judge", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	int64		extra = judge->extra;
	char	   *number;
	Stage	   *stage = read_rows(judge, list, &number);
	Found		found = {.dest = {.receiveSlot = receive_difference, .rStartup = receiver_startup,
			.rShutdown = receiver_nothing, .rDestroy = receiver_nothing},
		.judge = judge};

	(void) execute_statement(difference_statement(judge, list, number), stage_environment(stage), &found.dest);
	if (judge->deletes && judge->most_deletes >= 0 && judge->extra > judge->most_deletes)
		prune_refuse(judge->ranges->job, judge->most_deletes);
	mend(judge, list, stage, number, judge->extra - extra);
	stage_end_batch(stage);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* by how many bits of the hash they are cut; then those of one cut are looked at at once */
static int
compare_cuts(const ListCell *a, const ListCell *b)
{
	return ((const Range *) lfirst(a))->bits - ((const Range *) lfirst(b))->bits;
}

void
judge_ranges(Judge *judge, List *list)
{
	/* where the source is read by streaming it, once is enough; and a key that is cut by its hash need not be equal by it */
	bool		at_once = judge->ranges->ordered == NULL || !judge->ranges->source->is_postgres;
	List	   *some = NIL;
	int64		rows = 0;
	ListCell   *lc;

	/* each look at a cut by hash is one at all rows */
	if (judge->ranges->ordered == NULL)
		list_sort(list, compare_cuts);
	foreach(lc, list)
	{
		Range	   *range = lfirst(lc);
		Range	   *next = lnext(list, lc) ? lfirst(lnext(list, lc)) : NULL;

		some = lappend(some, range);
		rows += Max(range->source_rows, range->target_rows);
		if (next && next->bits == range->bits && (at_once || rows < judge->ranges->job->options->batch_rows))
			continue;
		judge_some(judge, some);
		some = NIL;
		rows = 0;
	}
}
