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

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "compat.h"
#include "execute.h"
#include "judge.h"
#include "names.h"
#include "prune.h"
#include "query.h"
#include "range_sql.h"
#include "reject.h"
#include "shape_rows.h"

/* what a staged row is, as its number */
#define ROW_KNOWN 0
#define ROW_PENDING 1			/* the next run reads it */
#define ROW_NEWS 2				/* it was written since the last run, and no run would notice */
#define ROW_DELETED 3			/* it is marked as deleted, and the target is not to have it */

/* what the target is to have just so */
#define IS_TO_BE_HERE "s.%s OPERATOR(pg_catalog.=) ANY ('{0,2}'::pg_catalog.int4[])"

/* the name under which statements see the differences that were found */
#define FOUND_NAME "incload_found"

/* and the keys of those that go */
#define DOOMED_NAME "incload_doomed"

/* the row of a difference: that of incload_reconcile, and what the source's row is */
static TupleDesc
difference_desc(void)
{
	TupleDesc	desc = CreateTemplateTupleDesc(7);

	TupleDescInitEntry(desc, 1, "difference", TEXTOID, -1, 0);
	TupleDescInitEntryCollation(desc, 1, DEFAULT_COLLATION_OID);
	TupleDescInitEntry(desc, 2, "key", JSONBOID, -1, 0);
	TupleDescInitEntry(desc, 3, "columns", TEXTARRAYOID, -1, 0);
	TupleDescInitEntryCollation(desc, 3, DEFAULT_COLLATION_OID);
	TupleDescInitEntry(desc, 4, "source_rows", INT8OID, -1, 0);
	TupleDescInitEntry(desc, 5, "target_rows", INT8OID, -1, 0);
	TupleDescInitEntry(desc, 6, "action", TEXTOID, -1, 0);
	TupleDescInitEntryCollation(desc, 6, DEFAULT_COLLATION_OID);
	TupleDescInitEntry(desc, 7, "number", INT4OID, -1, 0);
	compat_TupleDescFinalize(desc);
	return desc;
}

static void
count_difference(Judge *judge, const char *kind, int number)
{
	/* their first letters tell them apart */
	switch (*kind)
	{
		case 'm':
			judge->missing++;
			break;
		case 'e':
			judge->extra++;
			break;
		case 'd':
			judge->duplicates++;
			break;
		default:
			judge->changed++;
			judge->conflicts += number == ROW_KNOWN;
	}
}

/* goes through differences: counts them, or passes them on as rows of incload_reconcile */
static void
go_through(Judge *judge, Tuplestorestate *store, TupleDesc desc, bool counts)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);

	tuplestore_select_read_pointer(store, 0);
	tuplestore_rescan(store);
	while (tuplestore_gettupleslot(store, true, false, slot))
	{
		CHECK_FOR_INTERRUPTS();
		slot_getallattrs(slot);
		if (counts)
			count_difference(judge, VARDATA_ANY(DatumGetPointer(slot->tts_values[0])), DatumGetInt32(slot->tts_values[6]));
		else if (judge->result)
			tuplestore_putvalues(judge->result, judge->result_desc, slot->tts_values, slot->tts_isnull);
	}
	ExecDropSingleTupleTableSlot(slot);
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

	/* a row that could not be taken has no number, and is there all the same */
	return psprintf("%s%s%s AND NOT EXISTS (SELECT FROM " STAGE_NAME " AS s WHERE %s AND s.%s IS DISTINCT FROM %d)",
					range_condition(judge->ranges, SIDE_TARGET, list),
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
					key.data, relation_qualified_name(ranges->job->target), range_condition(ranges, SIDE_TARGET, list),
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

	/* whether a watermark is null does not matter to a key */
	if (judge->only_keys)
		stage->null_watermark = NULL_WATERMARK_ALWAYS;
	/* the run has put them aside already: all that counts is that they are there */
	if (source->puts_aside)
		stage->rejects = rejects_create(ranges->job, shape, 0, PG_INT64_MAX, CurrentMemoryContext);
	stage_begin_batch(stage);
	source->routine->open(source, list_make1(query_read(shape, source, ranges->job->options->filter,
														&ranges->scope->window,
														range_condition(ranges, SIDE_SOURCE, list), judge->order, 0)),
						  shape);
	while (source->routine->read(source, stage))
		continue;
	source->routine->close(source);
	judge->rows_read += stage->nrows;
	stage_reduce(stage);
	judge->superseded += stage->nsuperseded;
	return rejects_with_keys(stage->rejects, stage);
}

/* a statement's view of a store beside the stage */
static QueryEnvironment *
environment_with(Stage *stage, const char *name, Tuplestorestate *store, TupleDesc desc)
{
	QueryEnvironment *environment = stage_environment(stage);
	EphemeralNamedRelation enr = palloc0(sizeof(EphemeralNamedRelationData));

	enr->md.name = pstrdup(name);
	enr->md.reliddesc = InvalidOid;
	enr->md.tupdesc = desc;
	enr->md.enrtype = ENR_NAMED_TUPLESTORE;
	enr->md.enrtuples = tuplestore_tuple_count(store);
	enr->reldata = store;
	register_ENR(environment, enr);
	return environment;
}

/*
 * The keys of what is to go are found under the settings of the source, and deleted under
 * those that the owner's triggers have in a run.
 */
static void
delete_extra(Judge *judge, List *list, Stage *stage, const char *number)
{
	const Shape *shape = judge->ranges->shape;
	const char *target = relation_qualified_name(judge->ranges->job->target);
	TupleDesc	desc = CreateTemplateTupleDesc(shape->nkeys);
	StringInfoData key;
	Tuplestorestate *doomed;
	int64		n;

	initStringInfo(&key);
	for (int i = 0; i < shape->nkeys; i++)
	{
		const LoadColumn *column = &shape->columns[shape->key[i]];

		appendStringInfo(&key, "%st.%s", i ? ", " : "", quote_identifier(column->name));
		TupleDescInitEntry(desc, i + 1, column->name, column->type, column->typmod, 0);
		TupleDescInitEntryCollation(desc, i + 1, column->collation);
	}
	compat_TupleDescFinalize(desc);
	doomed = execute_into_store(psprintf("SELECT %s FROM %s AS t WHERE %s", key.data, target, extra_condition(judge, list, number)),
								stage_environment(stage), &n);
	ranges_pause(judge->ranges);
	judge->applied.pruned += execute_statement(psprintf("DELETE FROM %s AS t USING " DOOMED_NAME " AS s WHERE %s", target,
														merge_key_condition(shape, "t", "s")),
											   environment_with(stage, DOOMED_NAME, doomed, desc), NULL).processed;
	ranges_go_on(judge->ranges);
	tuplestore_end(doomed);
}

/* what is invented goes first: it may have a unique value that a missing row has */
static void
mend(Judge *judge, List *list, Stage *stage, const char *number, int64 extra)
{
	const Job  *job = judge->ranges->job;
	Stage	   *writing;

	if (judge->deletes && extra > 0)
		delete_extra(judge, list, stage, number);
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

/* how much of what was to be done was not: by a trigger, a policy, or as the target refuses it */
static int64
undone(const Judge *judge, int64 extra)
{
	return judge->applied.suppressed + judge->applied.rejected + (judge->deletes ? extra - judge->applied.pruned : 0);
}

/* the differences once more, where those that are still there are told as kept */
static Tuplestorestate *
say_what_stayed(Judge *judge, List *list, Stage *stage, const char *number, Tuplestorestate *found, TupleDesc desc)
{
	int64		n;

	return execute_into_store(psprintf("SELECT f.difference, f.key, f.columns, f.source_rows, f.target_rows,"
									   " CASE WHEN p.key IS NULL THEN f.action ELSE 'kept' END, f.number"
									   " FROM " FOUND_NAME " AS f LEFT JOIN (%s) AS p(difference, key, columns, source_rows, target_rows, action, number)"
									   " ON p.difference OPERATOR(pg_catalog.=) f.difference AND p.key OPERATOR(pg_catalog.=) f.key",
									   difference_statement(judge, list, number)),
							  environment_with(stage, FOUND_NAME, found, desc), &n);
}

/* ranges of no more rows than a batch, or all of them */
static void
judge_some(Judge *judge, List *list)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "incload judge", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	int64		extra = judge->extra;
	int64		before = undone(judge, judge->extra);
	char	   *number;
	Stage	   *stage = read_rows(judge, list, &number);
	TupleDesc	desc = difference_desc();
	int64		n;
	Tuplestorestate *found = execute_into_store(difference_statement(judge, list, number), stage_environment(stage), &n);

	go_through(judge, found, desc, true);
	if (judge->deletes && judge->most_deletes >= 0 && judge->extra > judge->most_deletes)
		prune_refuse(judge->ranges->job, judge->most_deletes);
	mend(judge, list, stage, number, judge->extra - extra);
	if (undone(judge, judge->extra) > before)
		found = say_what_stayed(judge, list, stage, number, found, desc);
	go_through(judge, found, desc, false);
	tuplestore_end(found);
	stage_end_batch(stage);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

void
judge_ranges(Judge *judge, List *list)
{
	/* where the source is read by streaming it, once is enough; and a key that is cut by its hash need not be equal by it */
	bool		at_once = judge->ranges->ordered == NULL || !judge->ranges->source->is_postgres;
	List	   *some = NIL;
	int64		rows = 0;
	ListCell   *lc;

	foreach(lc, list)
	{
		Range	   *range = lfirst(lc);
		Range	   *next = lnext(list, lc) ? lfirst(lnext(list, lc)) : NULL;

		some = lappend(some, range);
		rows += Max(range->source_rows, range->target_rows);
		if (next && (at_once || rows < judge->ranges->job->options->batch_rows))
			continue;
		judge_some(judge, some);
		some = NIL;
		rows = 0;
	}
}
