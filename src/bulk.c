/*
 * bulk.c
 *		Rows of a shape, put into a table many at a time, as COPY does it.
 *
 * What an INSERT would do to a row beside storing it is done here, by the
 * executor's own functions and against the target's definition.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/tupconvert.h"
#include "access/xact.h"
#include "executor/execPartition.h"
#include "executor/nodeModifyTable.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "rewrite/rewriteHandler.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "bulk.h"
#include "bulk_heap.h"
#include "compat.h"

/*
 * Rows for partitions wait in all of them at once, and the more wait, the more
 * of each go in together. When they have so many bytes, all are put in.
 */
#define MAX_WAITING_BYTES (4 * 1024 * 1024)
/* partitions that are ready for rows hold memory: when it is so much, or are so many, all give it back */
#define MAX_HELD_BYTES (2 * MAX_WAITING_BYTES)
#define MAX_HOLDING 256

/* ColumnDefault: what a column gets that is not loaded */
typedef struct ColumnDefault
{
	int			position;
	ExprState  *value;
} ColumnDefault;

struct Bulk
{
	const Shape *shape;
	MemoryContext context;
	Relation	target;
	CommandId	command;
	EState	   *estate;
	ResultRelInfo *result;		/* the target, whose constraints hold */
	ColumnDefault *defaults;
	int			ndefaults;
	BulkHeap   *heap;			/* where the rows go; NULL: into partitions */

	/* for partitions */
	ModifyTableState *insert;	/* what routing takes for the INSERT it serves */
	PartitionTupleRouting *routing;
	BulkJudge	judge;
	void	   *judge_arg;
	TupleTableSlot *row;		/* with the target's columns */
	List	   *partitions;		/* of BulkHeap *: those that have had a row */
	int			nholding;		/* of them */
	Size		held_bytes;		/* by their empty slots */
	Size		waiting_bytes;	/* by the rows that wait, with their slots */
};

/*
 * Asks as an INSERT would, so that a hook on it is asked, too. What is inserted
 * is what an error shows of a row to who may not read the rest.
 */
static void
require_insert(Relation target, const Shape *shape, EState *estate)
{
	ParseState *pstate = make_parsestate(NULL);
	ParseNamespaceItem *item = addRangeTableEntryForRelation(pstate, target, RowExclusiveLock,
															 NULL, false, false);

	compat_item_perms(item)->requiredPerms = ACL_INSERT;
	for (int i = 0; i < shape->ncolumns; i++)
		compat_item_perms(item)->insertedCols =
			bms_add_member(compat_item_perms(item)->insertedCols,
						   shape->columns[i].attnum - FirstLowInvalidHeapAttributeNumber);
	compat_check_perms(pstate, item);
	compat_init_range_table(estate, pstate, item);
	free_parsestate(pstate);
}

/* NULL, which a domain may refuse. Older minor releases have no function for that. */
static Node *
null_of(Form_pg_attribute att)
{
	int32		typmod = att->atttypmod;
	Oid			base = getBaseTypeAndTypmod(att->atttypid, &typmod);
	Node	   *value = (Node *) makeConst(base, typmod, att->attcollation, att->attlen, (Datum) 0, true, att->attbyval);

	if (base == att->atttypid)
		return value;
	return coerce_to_domain(value, base, typmod, att->atttypid, COERCION_IMPLICIT, COERCE_IMPLICIT_CAST, -1, false);
}

/* the columns that are not loaded get what an INSERT would give them */
static void
prepare_defaults(Bulk *self)
{
	TupleDesc	desc = RelationGetDescr(self->target);

	self->defaults = palloc(sizeof(ColumnDefault) * desc->natts);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Node	   *value;

		if (att->attisdropped || att->attgenerated || shape_loads(self->shape, att->attnum))
			continue;
		value = build_column_default(self->target, att->attnum);
		if (value == NULL)
			value = null_of(att);
		if (IsA(value, Const) && ((Const *) value)->constisnull)
			continue;
		self->defaults[self->ndefaults].position = i;
		self->defaults[self->ndefaults++].value =
			ExecInitExpr(expression_planner((Expr *) value), NULL);
	}
}

bool
bulk_fits(Relation target, const Shape *shape)
{
	TupleDesc	desc = RelationGetDescr(target);

	for (int i = 0; i < shape->ncolumns; i++)
	{
		const LoadColumn *column = &shape->columns[i];
		Form_pg_attribute att;

		if (column->attnum < 1 || column->attnum > desc->natts)
			return false;
		att = TupleDescAttr(desc, column->attnum - 1);
		if (att->attisdropped || att->attgenerated || strcmp(NameStr(att->attname), column->name) != 0 ||
			att->atttypid != column->type || att->atttypmod != column->typmod || att->attcollation != column->collation)
			return false;
	}
	return true;
}

Bulk *
bulk_open(Relation target, const Shape *shape, MemoryContext context)
{
	MemoryContext own = AllocSetContextCreate(context, "incload bulk", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(own);
	Bulk	   *self = palloc0(sizeof(Bulk));

	self->shape = shape;
	self->context = own;
	self->target = target;
	self->estate = CreateExecutorState();
	require_insert(target, shape, self->estate);
	self->result = makeNode(ResultRelInfo);
	InitResultRelInfo(self->result, target, 1, NULL, 0);
	prepare_defaults(self);
	MemoryContextSwitchTo(old);
	return self;
}

void
bulk_into(Bulk *self, Relation heap, int options)
{
	MemoryContext old = MemoryContextSwitchTo(self->context);

	self->command = GetCurrentCommandId(true);
	self->heap = bulk_heap_make(heap, self->result, options, self->context);
	if (heap == self->target)
		ExecOpenIndices(self->result, false);
	MemoryContextSwitchTo(old);
}

void
bulk_into_partitions(Bulk *self, BulkJudge judge, void *arg)
{
	MemoryContext old = MemoryContextSwitchTo(self->context);

	self->command = GetCurrentCommandId(true);
	self->judge = judge;
	self->judge_arg = arg;
	self->insert = makeNode(ModifyTableState);
	self->insert->ps.state = self->estate;
	self->insert->operation = CMD_INSERT;
	self->insert->mt_nrels = 1;
	self->insert->resultRelInfo = self->result;
	self->insert->rootResultRelInfo = self->result;
	self->routing = ExecSetupPartitionTupleRouting(self->estate, self->target);
	self->row = table_slot_create(self->target, NULL);
	MemoryContextSwitchTo(old);
}

/* what is loaded of a row, and what is not */
static void
fill_slot(Bulk *self, TupleTableSlot *slot, Datum *values, bool *nulls)
{
	const Shape *shape = self->shape;
	ExprContext *econtext = GetPerTupleExprContext(self->estate);

	memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts);
	for (int i = 0; i < shape->ncolumns; i++)
	{
		int			position = shape->columns[i].attnum - 1;

		slot->tts_values[position] = values[i];
		slot->tts_isnull[position] = nulls[i];
	}
	for (int i = 0; i < self->ndefaults; i++)
	{
		int			position = self->defaults[i].position;

		slot->tts_values[position] = ExecEvalExprSwitchContext(self->defaults[i].value, econtext,
															   &slot->tts_isnull[position]);
	}
	ExecStoreVirtualTuple(slot);
	slot->tts_tableOid = RelationGetRelid(self->target);
}

/* a partition's first row: it was locked just now, and may have been altered before that */
static BulkHeap *
add_partition(Bulk *self, ResultRelInfo *result)
{
	Relation	partition = result->ri_RelationDesc;
	const char *obstacle = self->judge(partition, self->judge_arg);
	BulkHeap   *heap;
	MemoryContext old;

	if (obstacle)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("partition \"%s\" was altered while the run wrote to its parent", RelationGetRelationName(partition)),
				 errdetail("Its rows have to go another way: %s.", obstacle),
				 errhint("Run the job again.")));
	heap = bulk_heap_make(partition, result, 0, self->context);
	/* the field is for those who put many rows in at a time, which is COPY and nobody else */
	result->ri_CopyMultiInsertBuffer = (struct CopyMultiInsertBuffer *) heap;
	old = MemoryContextSwitchTo(self->context);
	self->partitions = lappend(self->partitions, heap);
	MemoryContextSwitchTo(old);
	return heap;
}

/* gives a slot of its partition what the row has, in the order of its columns */
static BulkHeap *
route(Bulk *self)
{
	ResultRelInfo *result = ExecFindPartition(self->insert, self->result, self->routing, self->row, self->estate);
	BulkHeap   *heap = (BulkHeap *) result->ri_CopyMultiInsertBuffer;
	TupleConversionMap *map = compat_root_to_partition_map(result, self->estate);
	TupleTableSlot *slot;
	int			held;

	if (heap == NULL)
		heap = add_partition(self, result);
	held = heap->nslots;
	self->nholding += heap->state == NULL;
	slot = bulk_heap_slot(heap);
	self->held_bytes += (heap->nslots - held) * heap->slot_bytes;
	if (map)
		execute_attr_map_slot(map->attrMap, self->row, slot);
	else
	{
		int			natts = slot->tts_tupleDescriptor->natts;

		memcpy(slot->tts_values, self->row->tts_values, natts * sizeof(Datum));
		memcpy(slot->tts_isnull, self->row->tts_isnull, natts * sizeof(bool));
		ExecStoreVirtualTuple(slot);
	}
	slot->tts_tableOid = RelationGetRelid(heap->heap);
	return heap;
}

static void
flush_partitions(Bulk *self)
{
	ListCell   *lc;

	/* no page is kept at hand: a page for each would be many */
	foreach(lc, self->partitions)
		bulk_heap_flush(lfirst(lc), self->command, self->estate, false);
	self->waiting_bytes = 0;
}

static void
close_partitions(Bulk *self)
{
	ListCell   *lc;

	flush_partitions(self);
	foreach(lc, self->partitions)
		bulk_heap_close(lfirst(lc));
	self->nholding = 0;
	self->held_bytes = 0;
}

/* puts rows in before too many wait */
static void
make_room(Bulk *self, BulkHeap *heap)
{
	if (bulk_heap_is_full(heap))
	{
		self->waiting_bytes -= bulk_heap_weight(heap);
		bulk_heap_flush(heap, self->command, self->estate, self->routing == NULL);
	}
	if (self->held_bytes >= MAX_HELD_BYTES || self->nholding > MAX_HOLDING)
		close_partitions(self);
	else if (self->waiting_bytes >= MAX_WAITING_BYTES && self->routing)
		flush_partitions(self);
}

void
bulk_put(Bulk *self, Datum *values, bool *nulls)
{
	BulkHeap   *heap = self->heap;
	TupleTableSlot *slot;
	TupleConstr *constr;

	/* the row before it lies in that memory */
	if (heap == NULL)
		ExecClearTuple(self->row);
	ResetPerTupleExprContext(self->estate);
	fill_slot(self, heap ? bulk_heap_slot(heap) : self->row, values, nulls);
	if (heap == NULL)
		heap = route(self);
	slot = bulk_heap_slot(heap);
	constr = RelationGetDescr(heap->result->ri_RelationDesc)->constr;
	if (constr && constr->has_generated_stored)
		ExecComputeStoredGenerated(heap->result, self->estate, slot, CMD_INSERT);
	if (constr)
		ExecConstraints(heap->result, slot, self->estate);
	self->waiting_bytes += bulk_heap_add(heap);
	make_room(self, heap);
}

void
bulk_finish(Bulk *self)
{
	if (self->routing)
	{
		close_partitions(self);
		ExecDropSingleTupleTableSlot(self->row);
		/* routing has made slots for itself */
		ExecResetTupleTable(self->estate->es_tupleTable, false);
		ExecCleanupTupleRouting(self->insert, self->routing);
		return;
	}
	bulk_heap_flush(self->heap, self->command, self->estate, true);
	bulk_heap_close(self->heap);
	if (self->result->ri_NumIndices > 0)
		ExecCloseIndices(self->result);
}

void
bulk_close(Bulk *self)
{
	FreeExecutorState(self->estate);
	MemoryContextDelete(self->context);
}
