/*
 * stage.c
 *		The rows of one batch, between being read and being applied.
 *
 * A tuplestore holds them: in memory up to work_mem, then in a temporary file.
 * Statements see it as an ephemeral named relation, so that no catalog is
 * touched and the planner knows how many rows there are.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/tstoreReceiver.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "compat.h"
#include "execute.h"
#include "new_heap.h"
#include "progress.h"
#include "stage.h"
#include "straight.h"

Stage *
stage_create(const Job *job, const Shape *shape, int64 batch_rows, bool cut_at_key,
			 MemoryContext context)
{
	Stage	   *stage = MemoryContextAllocZero(context, sizeof(Stage));

	stage->job = job;
	stage->shape = shape;
	stage->null_watermark = job_null_watermark(job);
	stage->batch_rows = batch_rows;
	stage->cut_at_key = cut_at_key;
	stage->context = context;
	stage->brake.rate = job->options->max_rate;
	return stage;
}

/* a row's place in the reading order, kept beyond the row */
static void
remember_place(Stage *stage, Datum *values, bool *nulls)
{
	const Shape *shape = stage->shape;
	int			position = shape->watermark_position;
	MemoryContext old;

	stage->has_last = position >= 0 && !nulls[position];
	if (!stage->has_last)
		return;
	old = MemoryContextSwitchTo(stage->context);
	if (stage->last_watermark && !shape->watermark->by_value)
		pfree(DatumGetPointer(stage->last_watermark));
	stage->last_watermark = watermark_copy(shape->watermark, values[position]);
	MemoryContextSwitchTo(old);
}

static List *
key_as_text(const Shape *shape, Datum *values)
{
	List	   *key = NIL;

	for (int i = 0; i < shape->nkeys; i++)
	{
		Oid			function;
		bool		varlena;

		getTypeOutputInfo(shape->columns[shape->key[i]].type, &function, &varlena);
		key = lappend(key, OidOutputFunctionCall(function, values[shape->key[i]]));
	}
	return key;
}

static void
remember_larger(Stage *stage, Datum value, bool *has, Datum *largest)
{
	const WatermarkType *type = stage->shape->watermark;
	MemoryContext old;

	if (*has && watermark_compare(type, value, *largest) <= 0)
		return;
	old = MemoryContextSwitchTo(stage->context);
	if (*has && !type->by_value)
		pfree(DatumGetPointer(*largest));
	*largest = watermark_copy(type, value);
	*has = true;
	MemoryContextSwitchTo(old);
}

/* the largest watermark of all, and of those that the source's clock can have given */
static void
remember_newest(Stage *stage, Datum *values, bool *nulls)
{
	int			position = stage->shape->watermark_position;

	if (position < 0 || nulls[position])
		return;
	remember_larger(stage, values[position], &stage->has_newest, &stage->newest_watermark);
	if (stage->future.is_set &&
		watermark_compare(stage->shape->watermark, values[position], stage->future.value) > 0)
		stage->nfuture++;
	else
		remember_larger(stage, values[position], &stage->has_present, &stage->present_watermark);
}

static void
check_row(Stage *stage, Datum *values, bool *nulls)
{
	const Shape *shape = stage->shape;
	int			position = shape->watermark_position;

	for (int i = 0; i < shape->nkeys; i++)
		if (nulls[shape->key[i]])
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("null value in key column \"%s\" of source %s",
							shape->columns[shape->key[i]].name, stage->job->source_name),
					 position >= 0 && !nulls[position]
					 ? errdetail("The row's watermark is %s.",
								 watermark_print(shape->watermark, values[position]))
					 : errdetail("A row without a key cannot be found again."),
					 shape->of_tombstones ? errhint("Take it out there, and declare the column NOT NULL.")
					 : errhint("Choose a key that is never null, or leave such rows out: {\"filter\": \"%s IS NOT NULL\"}.",
							 quote_identifier(shape->columns[shape->key[i]].name))));
	if (position >= 0 && nulls[position] && stage->null_watermark == NULL_WATERMARK_ERROR)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("null watermark in source %s", stage->job->source_name),
				 errdetail("Nothing tells whether a row without a watermark is new."),
				 errhint("Fill in %s at the source, or set the option \"null_watermark\" to \"skip\".",
						 stage->job->watermark)));
}

bool
stage_refuses(const Stage *stage, const bool *nulls)
{
	int			position = stage->shape->watermark_position;

	for (int i = 0; i < stage->shape->nkeys; i++)
		if (nulls[stage->shape->key[i]])
			return true;
	return position >= 0 && nulls[position] && stage->null_watermark == NULL_WATERMARK_ERROR;
}

bool
stage_has_batch(const Stage *stage)
{
	return stage->batch_rows > 0 && stage->nrows + stage->nstraight >= stage->batch_rows;
}

bool
stage_is_full(const Stage *stage)
{
	return stage->cut_at_key && stage_has_batch(stage);
}

/* may this row open the next batch? Not inside a tie that a bound cannot cut. */
static bool
may_cut_before(const Stage *stage, Datum *values, bool *nulls)
{
	int			position = stage->shape->watermark_position;

	if (position < 0 || stage->cut_at_key)
		return true;
	if (nulls[position] || !stage->has_last)
		return nulls[position] == stage->has_last;
	return watermark_compare(stage->shape->watermark, values[position], stage->last_watermark) != 0;
}

/* is it marked as deleted at the source? */
static bool
is_marked(const Stage *stage, Datum *values, bool *nulls)
{
	int			position = stage->shape->deleted_position;

	return position >= 0 && !nulls[position] && DatumGetBool(values[position]);
}

/* gives each row that is staged and not marked to a function */
static void
pour(Stage *stage, void (*take) (void *into, Datum *values, bool *nulls), void *into)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(stage->shape->desc, &TTSOpsMinimalTuple);
	MemoryContext row_context = AllocSetContextCreate(stage->context, "incload row", ALLOCSET_DEFAULT_SIZES);

	tuplestore_select_read_pointer(stage->rows, 0);
	tuplestore_rescan(stage->rows);
	/* a row that comes from a file is the slot's, in the context in which it is read */
	while (tuplestore_gettupleslot(stage->rows, true, false, slot))
	{
		MemoryContext old = MemoryContextSwitchTo(row_context);

		CHECK_FOR_INTERRUPTS();
		slot_getallattrs(slot);
		if (!is_marked(stage, slot->tts_values, slot->tts_isnull))
			take(into, slot->tts_values, slot->tts_isnull);
		MemoryContextSwitchTo(old);
		MemoryContextReset(row_context);
	}
	MemoryContextDelete(row_context);
	ExecDropSingleTupleTableSlot(slot);
}

static void
take_straight(void *straight, Datum *values, bool *nulls)
{
	straight_put(straight, values, nulls);
}

/* puts a row straight into the target where that can be */
static bool
put_straight(Stage *stage, Datum *values, bool *nulls)
{
	if (stage->straight == NULL || !straight_takes(stage->straight, values))
		return false;
	/* without a key, those that came before are new, too: so all go in by the order in which they are read */
	if (stage->shape->nkeys == 0 && stage->nrows > 0)
	{
		pour(stage, take_straight, stage->straight);
		tuplestore_clear(stage->rows);
		stage->nstraight += stage->nrows;
		stage->nrows = 0;
	}
	straight_put(stage->straight, values, nulls);
	stage->nstraight++;
	return true;
}

static void
add_row(Stage *stage, Datum *values, bool *nulls)
{
	bool		marked = is_marked(stage, values, nulls);

	if (marked)
		stage->nmarked++;
	if (marked || !put_straight(stage, values, nulls))
	{
		if (!stage->heap)
			tuplestore_putvalues(stage->rows, stage->shape->desc, values, nulls);
		else if (!marked)
			new_heap_put(stage->heap, values, nulls);
		stage->nrows++;
	}
	progress_row();
	remember_newest(stage, values, nulls);
	brake_row(&stage->brake);
}

bool
stage_put(Stage *stage, Datum *values, bool *nulls)
{
	bool		watches_ties = stage->batch_rows > 0 && !stage->cut_at_key;
	bool		closes_batch;

	check_row(stage, values, nulls);
	if (stage_has_batch(stage) && may_cut_before(stage, values, nulls))
	{
		MemoryContext old = MemoryContextSwitchTo(stage->context);
		HeapTuple	tuple = heap_form_tuple(stage->shape->desc, values, nulls);

		stage->carried = compat_minimal_tuple(tuple);
		heap_freetuple(tuple);
		MemoryContextSwitchTo(old);
		return false;
	}
	add_row(stage, values, nulls);
	closes_batch = stage_has_batch(stage);
	if (watches_ties || closes_batch)
		remember_place(stage, values, nulls);
	if (closes_batch && stage->cut_at_key && stage->has_last)
	{
		MemoryContext old;

		list_free_deep(stage->last_key);
		old = MemoryContextSwitchTo(stage->context);
		stage->last_key = key_as_text(stage->shape, values);
		MemoryContextSwitchTo(old);
	}
	return true;
}

void
stage_forget_carried(Stage *stage)
{
	if (stage->carried)
		heap_free_minimal_tuple(stage->carried);
	stage->carried = NULL;
}

void
stage_begin_batch(Stage *stage)
{
	MemoryContext old = MemoryContextSwitchTo(stage->context);

	stage->rows = tuplestore_begin_heap(false, false, work_mem);
	stage->nrows = 0;
	stage->nstraight = 0;
	stage->nmarked = 0;
	stage->nsuperseded = 0;
	stage->nrejected = 0;
	brake_release(&stage->brake);
	if (stage->carried)
	{
		MinimalTuple carried = stage->carried;
		TupleTableSlot *slot = MakeSingleTupleTableSlot(stage->shape->desc, &TTSOpsMinimalTuple);

		ExecStoreMinimalTuple(carried, slot, false);
		slot_getallattrs(slot);
		stage->carried = NULL;
		/* what is looked up for its sake is not to stay until the end of the run */
		MemoryContextSwitchTo(old);
		stage_put(stage, slot->tts_values, slot->tts_isnull);
		ExecDropSingleTupleTableSlot(slot);
		heap_free_minimal_tuple(carried);
	}
	MemoryContextSwitchTo(old);
}

void
stage_end_batch(Stage *stage)
{
	if (stage->rows)
		tuplestore_end(stage->rows);
	stage->rows = NULL;
	stage->nrows = 0;
}

static void
take_into_heap(void *heap, Datum *values, bool *nulls)
{
	new_heap_put(heap, values, nulls);
}

void
stage_pour(Stage *stage, NewHeap *heap)
{
	pour(stage, take_into_heap, heap);
}

void
stage_show(Stage *stage, const char *name, QueryEnvironment *environment)
{
	EphemeralNamedRelation enr = palloc0(sizeof(EphemeralNamedRelationData));

	enr->md.name = pstrdup(name);
	enr->md.reliddesc = InvalidOid;
	enr->md.tupdesc = stage->shape->desc;
	enr->md.enrtype = ENR_NAMED_TUPLESTORE;
	enr->md.enrtuples = stage->nrows;
	enr->reldata = stage->rows;
	register_ENR(environment, enr);
}

QueryEnvironment *
stage_environment(Stage *stage)
{
	QueryEnvironment *environment = create_queryEnv();

	stage_show(stage, STAGE_NAME, environment);
	return environment;
}

/* what a query returns, in a store that lives as long as the stage */
static Tuplestorestate *
query_into_store(Stage *stage, const char *sql, QueryEnvironment *environment, int64 *nrows)
{
	MemoryContext old = MemoryContextSwitchTo(stage->context);
	Tuplestorestate *store = execute_into_store(sql, environment, nrows);

	MemoryContextSwitchTo(old);
	return store;
}

void
stage_fill(Stage *stage, const char *sql, QueryEnvironment *environment)
{
	stage_end_batch(stage);
	stage->nsuperseded = 0;
	stage->rows = query_into_store(stage, sql, environment, &stage->nrows);
}

int64
stage_keep(Stage *stage, const char *sql, QueryEnvironment *environment)
{
	int64		before = stage->nrows;
	Tuplestorestate *kept = query_into_store(stage, sql, environment, &stage->nrows);

	tuplestore_end(stage->rows);
	stage->rows = kept;
	return before - stage->nrows;
}

/*
 * The order in which the versions of a key stand, the one to keep first: the
 * last in reading order; for a log of versions the newest, and of two with one
 * watermark the greater image.
 */
static char *
version_order(const Stage *stage, const char *columns)
{
	if (!stage->job->options->only_newer)
		return pstrdup("place DESC");
	return psprintf("c%d DESC NULLS LAST, ROW(%s)::pg_catalog.record USING OPERATOR(pg_catalog.*>)",
					stage->shape->watermark_position, columns);
}

/*
 * The rows have come in reading order, so the last of a key is the newest.
 * The executor's sort finds it; the number of a row is its place in the store.
 */
void
stage_reduce(Stage *stage)
{
	const Shape *shape = stage->shape;
	StringInfoData columns;
	StringInfoData key;

	if (shape->key_is_unique || shape->nkeys == 0 || stage->nrows < 2)
		return;

	initStringInfo(&columns);
	for (int i = 0; i < shape->desc->natts; i++)
		appendStringInfo(&columns, "%sc%d", i ? ", " : "", i);
	initStringInfo(&key);
	for (int i = 0; i < shape->nkeys; i++)
		appendStringInfo(&key, "%sc%d", i ? ", " : "", shape->key[i]);

	stage->nsuperseded = stage_keep(stage,
									psprintf("SELECT %s FROM (SELECT DISTINCT ON (%s) * FROM"
											 " (SELECT *, pg_catalog.row_number() OVER () AS place FROM "
											 STAGE_NAME " AS s(%s)) n ORDER BY %s, %s) d ORDER BY place",
											 columns.data, key.data, columns.data, key.data,
											 version_order(stage, columns.data)),
									stage_environment(stage));
	if (stage->nmarked > 0)
		stage->nmarked = execute_statement(psprintf("SELECT FROM " STAGE_NAME " AS s WHERE s.%s",
													quote_identifier(shape->deleted_name)),
										   stage_environment(stage), NULL).processed;
}
