/*
 * new_heap.c
 *		A new heap for the target, filled beside the old one and put in its place.
 *
 * What REFRESH MATERIALIZED VIEW does to a view, for a table: the new heap is a
 * table of the moment with the columns of the target and nothing else, rows go
 * into it many at a time, then the two change their files and the target's
 * indexes are built. The target itself stays: its OID, and with it grants,
 * constraints, comments, statistics objects and views upon it.
 *
 * What an INSERT would do to a row beside storing it is done here, by the
 * executor's own functions and against the target's definition.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/multixact.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/nodeModifyTable.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "pgstat.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "new_heap.h"

/* rows are put in when there are so many, or so many bytes, as COPY does it */
#define MAX_WAITING_ROWS 1000
#define MAX_WAITING_BYTES 65536

/* ColumnDefault: what a column gets that is not loaded */
typedef struct ColumnDefault
{
	int			position;
	ExprState  *value;
} ColumnDefault;

struct NewHeap
{
	const Job  *job;
	const Shape *shape;
	MemoryContext context;
	Relation	target;
	Relation	heap;			/* NULL until there is a row to put in */
	int			options;		/* TABLE_INSERT_… */
	CommandId	command;
	BulkInsertState bulk;
	EState	   *estate;
	ResultRelInfo *result;		/* the target, whose constraints hold */
	ColumnDefault *defaults;
	int			ndefaults;
	bool		has_generated;
	int64		nrows;

	/* rows that wait */
	TupleTableSlot *slots[MAX_WAITING_ROWS];
	int			nwaiting;
	Size		waiting_bytes;
};

/* asks as an INSERT would, so that a hook on it is asked, too */
static void
require_insert(Relation target, const Shape *shape)
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
	free_parsestate(pstate);
}

/* the columns that are not loaded get what an INSERT would give them */
static void
prepare_defaults(NewHeap *self)
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
new_heap_target_in_use(Relation target)
{
	return target->rd_refcnt != 1 || AfterTriggerPendingOnRel(RelationGetRelid(target));
}

/* what is reading the old heap would be left without it */
static void
require_unused(NewHeap *self)
{
	if (new_heap_target_in_use(self->target))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("target %s is in use by this session", self->job->target_name),
				 errdetail("A cursor or a query under way reads it, or triggers on it are pending."),
				 errhint("Close the cursor, or run the job in a transaction of its own.")));
}

NewHeap *
new_heap_open(const Job *job, const Shape *shape, bool frozen, MemoryContext context)
{
	MemoryContext own = AllocSetContextCreate(context, "incload new heap", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(own);
	NewHeap    *self = palloc0(sizeof(NewHeap));
	TupleConstr *constr;

	self->job = job;
	self->shape = shape;
	self->context = own;
	/* open to the end: so this session's own SQL cannot alter it on the way */
	self->target = table_open(job->target, NEW_HEAP_LOCK);
	require_unused(self);
	self->options = TABLE_INSERT_SKIP_FSM | (frozen ? TABLE_INSERT_FROZEN : 0);
	require_insert(self->target, shape);

	self->estate = CreateExecutorState();
	self->result = makeNode(ResultRelInfo);
	InitResultRelInfo(self->result, self->target, 0, NULL, 0);
	constr = RelationGetDescr(self->target)->constr;
	self->has_generated = constr && constr->has_generated_stored;
	prepare_defaults(self);
	MemoryContextSwitchTo(old);
	return self;
}

/* makes the table of the moment */
static void
create_heap(NewHeap *self)
{
	MemoryContext old = MemoryContextSwitchTo(self->context);
	Form_pg_class form = self->target->rd_rel;
	Oid			oid = make_new_heap(self->job->target, form->reltablespace, form->relam,
									form->relpersistence, NEW_HEAP_LOCK);

	self->heap = table_open(oid, NoLock);
	self->command = GetCurrentCommandId(true);
	self->bulk = GetBulkInsertState();
	MemoryContextSwitchTo(old);
}

static void
flush(NewHeap *self)
{
	MemoryContext old;

	if (self->nwaiting == 0)
		return;
	/* what it leaves behind goes with the next row's */
	old = MemoryContextSwitchTo(GetPerTupleMemoryContext(self->estate));
	table_multi_insert(self->heap, self->slots, self->nwaiting, self->command,
					   self->options, self->bulk);
	MemoryContextSwitchTo(old);
	for (int i = 0; i < self->nwaiting; i++)
		ExecClearTuple(self->slots[i]);
	self->nwaiting = 0;
	self->waiting_bytes = 0;
}

/* the next slot, with what is loaded and what is not */
static TupleTableSlot *
fill_slot(NewHeap *self, Datum *values, bool *nulls)
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
new_heap_put(NewHeap *self, Datum *values, bool *nulls)
{
	TupleTableSlot *slot;

	if (self->heap == NULL)
		create_heap(self);
	ResetPerTupleExprContext(self->estate);
	slot = fill_slot(self, values, nulls);
	if (self->has_generated)
		ExecComputeStoredGenerated(self->result, self->estate, slot, CMD_INSERT);
	if (RelationGetDescr(self->target)->constr)
		ExecConstraints(self->result, slot, self->estate);
	ExecMaterializeSlot(slot);
	self->waiting_bytes += ((HeapTupleTableSlot *) slot)->tuple->t_len;
	self->nwaiting++;
	self->nrows++;
	if (self->nwaiting == MAX_WAITING_ROWS || self->waiting_bytes >= MAX_WAITING_BYTES)
		flush(self);
}

bool
new_heap_target_is_empty(Relation target)
{
	SnapshotData snapshot;
	TableScanDesc scan;
	TupleTableSlot *slot;
	bool		found;

	/* a row that is dead to some transactions only counts as one */
	InitNonVacuumableSnapshot(snapshot, GlobalVisTestFor(target));
	scan = table_beginscan_strat(target, &snapshot, 0, NULL, true, false);
	slot = table_slot_create(target, NULL);
	found = table_scan_getnextslot(scan, ForwardScanDirection, slot);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	return !found;
}

/* the last rows; then the new heap is on its own */
static Oid
finish_rows(NewHeap *self)
{
	Oid			oid;

	if (self->heap == NULL)
		create_heap(self);
	flush(self);
	FreeBulkInsertState(self->bulk);
	table_finish_bulk_insert(self->heap, self->options);
	for (int i = 0; i < MAX_WAITING_ROWS && self->slots[i]; i++)
		ExecDropSingleTupleTableSlot(self->slots[i]);
	oid = RelationGetRelid(self->heap);
	table_close(self->heap, NoLock);
	return oid;
}

int64
new_heap_swap(NewHeap *self, bool must_be_empty)
{
	Relation	target = self->target;
	int64		nrows = self->nrows;
	Oid			heap = finish_rows(self);

	LockRelationOid(RelationGetRelid(target), AccessExclusiveLock);
	if (must_be_empty && !new_heap_target_is_empty(target))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("target %s was written to during its first load", self->job->target_name),
				 errdetail("This transaction has done it, by a function that was called for a row."),
				 errhint("Take that out, or set the option \"first_load\" to \"batches\".")));
	require_unused(self);
	/* who has read the old heap under SERIALIZABLE has read what changes now */
	CheckTableForSerializableConflictIn(target);
	TransferPredicateLocksToHeapRelation(target);
	compat_finish_heap_swap(RelationGetRelid(target), heap, RecentXmin, ReadNextMultiXactId(),
							target->rd_rel->relpersistence);
	/* rows put in were counted for the table of the moment */
	pgstat_count_truncate(target);
	pgstat_count_heap_insert(target, nrows);
	CommandCounterIncrement();
	new_heap_abandon(self);
	return nrows;
}

void
new_heap_abandon(NewHeap *self)
{
	FreeExecutorState(self->estate);
	table_close(self->target, NoLock);
	MemoryContextDelete(self->context);
}
