/*
 * bulk.c
 *		Rows of a shape, put into a table many at a time, as COPY does it.
 *
 * What an INSERT would do to a row beside storing it is done here, by the
 * executor's own functions and against the target's definition.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/nodeModifyTable.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "rewrite/rewriteHandler.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "bulk.h"
#include "compat.h"

/* rows are put in when there are so many, or so many bytes, as COPY does it */
#define MAX_WAITING_ROWS 1000
#define MAX_WAITING_BYTES 65536

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
	Relation	heap;			/* where the rows go */
	int			options;		/* TABLE_INSERT_… */
	CommandId	command;
	BulkInsertState state;
	EState	   *estate;
	ResultRelInfo *result;		/* the target, whose constraints hold */
	ColumnDefault *defaults;
	int			ndefaults;
	bool		has_generated;

	/* rows that wait */
	TupleTableSlot *slots[MAX_WAITING_ROWS];
	int			nwaiting;
	Size		waiting_bytes;
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
		/* a domain may refuse NULL */
		if (value == NULL)
			value = coerce_null_to_domain(att->atttypid, att->atttypmod, att->attcollation,
										  att->attlen, att->attbyval);
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
	TupleConstr *constr = RelationGetDescr(target)->constr;

	self->shape = shape;
	self->context = own;
	self->target = target;
	self->estate = CreateExecutorState();
	require_insert(target, shape, self->estate);
	self->result = makeNode(ResultRelInfo);
	InitResultRelInfo(self->result, target, 1, NULL, 0);
	self->has_generated = constr && constr->has_generated_stored;
	prepare_defaults(self);
	MemoryContextSwitchTo(old);
	return self;
}

void
bulk_into(Bulk *self, Relation heap, int options)
{
	MemoryContext old = MemoryContextSwitchTo(self->context);

	self->heap = heap;
	self->options = options;
	self->command = GetCurrentCommandId(true);
	self->state = GetBulkInsertState();
	if (heap == self->target)
		ExecOpenIndices(self->result, false);
	MemoryContextSwitchTo(old);
}

/* the indexes of the target get the rows that it has got */
static void
insert_index_entries(Bulk *self)
{
	for (int i = 0; i < self->nwaiting; i++)
	{
		ResetPerTupleExprContext(self->estate);
		list_free(compat_ExecInsertIndexTuples(self->result, self->slots[i], self->estate));
	}
}

static void
flush(Bulk *self)
{
	MemoryContext old;

	if (self->nwaiting == 0)
		return;
	/* what it leaves behind goes with the next row's */
	old = MemoryContextSwitchTo(GetPerTupleMemoryContext(self->estate));
	table_multi_insert(self->heap, self->slots, self->nwaiting, self->command,
					   self->options, self->state);
	MemoryContextSwitchTo(old);
	if (self->result->ri_NumIndices > 0)
		insert_index_entries(self);
	for (int i = 0; i < self->nwaiting; i++)
		ExecClearTuple(self->slots[i]);
	self->nwaiting = 0;
	self->waiting_bytes = 0;
}

/* the next slot, with what is loaded and what is not */
static TupleTableSlot *
fill_slot(Bulk *self, Datum *values, bool *nulls)
{
	const Shape *shape = self->shape;
	ExprContext *econtext = GetPerTupleExprContext(self->estate);
	TupleTableSlot *slot = self->slots[self->nwaiting];

	if (slot == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(self->context);

		slot = self->slots[self->nwaiting] = table_slot_create(self->heap, NULL);
		MemoryContextSwitchTo(old);
	}
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
	return slot;
}

void
bulk_put(Bulk *self, Datum *values, bool *nulls)
{
	TupleTableSlot *slot;

	ResetPerTupleExprContext(self->estate);
	slot = fill_slot(self, values, nulls);
	if (self->has_generated)
		ExecComputeStoredGenerated(self->result, self->estate, slot, CMD_INSERT);
	if (RelationGetDescr(self->target)->constr)
		ExecConstraints(self->result, slot, self->estate);
	ExecMaterializeSlot(slot);
	self->waiting_bytes += ((HeapTupleTableSlot *) slot)->tuple->t_len;
	self->nwaiting++;
	if (self->nwaiting == MAX_WAITING_ROWS || self->waiting_bytes >= MAX_WAITING_BYTES)
		flush(self);
}

void
bulk_finish(Bulk *self)
{
	flush(self);
	FreeBulkInsertState(self->state);
	table_finish_bulk_insert(self->heap, self->options);
	for (int i = 0; i < MAX_WAITING_ROWS && self->slots[i]; i++)
		ExecDropSingleTupleTableSlot(self->slots[i]);
	if (self->result->ri_NumIndices > 0)
		ExecCloseIndices(self->result);
}

void
bulk_close(Bulk *self)
{
	FreeExecutorState(self->estate);
	MemoryContextDelete(self->context);
}
