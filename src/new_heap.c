/*
 * new_heap.c
 *		A new heap for the target, filled beside the old one and put in its place.
 *
 * What REFRESH MATERIALIZED VIEW does to a view, for a table: the new heap is a
 * table of the moment with the columns of the target and nothing else, rows go
 * into it many at a time, then the two change their files and the target's
 * indexes are built. The target itself stays: its OID, and with it grants,
 * constraints, comments, statistics objects and views upon it.
 */
#include "postgres.h"

#include "access/multixact.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "bulk.h"
#include "compat.h"
#include "new_heap.h"

struct NewHeap
{
	const Job  *job;
	const Trouble *texts;
	MemoryContext context;
	Relation	target;
	Relation	heap;			/* NULL until there is a row to put in */
	int			options;		/* TABLE_INSERT_… */
	Bulk	   *bulk;
	int64		nrows;
};

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
new_heap_open(const Job *job, const Shape *shape, bool frozen, const Trouble *texts, MemoryContext context)
{
	MemoryContext own = AllocSetContextCreate(context, "incload new heap", ALLOCSET_DEFAULT_SIZES);
	NewHeap    *self = MemoryContextAllocZero(own, sizeof(NewHeap));

	self->job = job;
	self->texts = texts;
	self->context = own;
	/* open to the end: so this session's own SQL cannot alter it on the way */
	self->target = table_open(job->target, NEW_HEAP_LOCK);
	require_unused(self);
	if (!bulk_fits(self->target, shape))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("target %s was altered while the run began", job->target_name),
				 errdetail("Its columns are not those that the run was planned for; pre_sql may have changed them."),
				 errhint("Run the job again.")));
	self->options = TABLE_INSERT_SKIP_FSM | (frozen ? TABLE_INSERT_FROZEN : 0);
	self->bulk = bulk_open(self->target, shape, own);
	return self;
}

/* makes the table of the moment */
static void
create_heap(NewHeap *self)
{
	Form_pg_class form = self->target->rd_rel;
	Oid			oid = make_new_heap(self->job->target, form->reltablespace, form->relam,
									form->relpersistence, NEW_HEAP_LOCK);

	self->heap = table_open(oid, NoLock);
	bulk_into(self->bulk, self->heap, self->options);
}

void
new_heap_put(NewHeap *self, Datum *values, bool *nulls)
{
	Trouble		trouble;

	trouble_begin_like(&trouble, self->texts);
	if (self->heap == NULL)
		create_heap(self);
	bulk_put(self->bulk, values, nulls);
	trouble_end(&trouble);
	self->nrows++;
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
	bulk_finish(self->bulk);
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
	bulk_close(self->bulk);
	table_close(self->target, NoLock);
	MemoryContextDelete(self->context);
}
