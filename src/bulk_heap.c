/*
 * bulk_heap.c
 *		Rows that wait to be put into one heap, many at a time.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xlog.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "bulk_heap.h"
#include "compat.h"

/* rows are put in when there are so many, or so many bytes, as COPY does it */
#define MAX_WAITING_ROWS 1000
#define MAX_WAITING_BYTES 65536

/* so much WAL is worth waking up its writer */
#define WAKE_BYTES (1024 * 1024)

BulkHeap *
bulk_heap_make(Relation heap, ResultRelInfo *result, int options, MemoryContext context)
{
	BulkHeap   *self = MemoryContextAllocZero(context, sizeof(BulkHeap));

	self->context = context;
	self->heap = heap;
	self->result = result;
	self->options = options;
	self->slot_bytes = sizeof(BufferHeapTupleTableSlot) +
		RelationGetDescr(heap)->natts * (sizeof(Datum) + sizeof(bool));
	return self;
}

TupleTableSlot *
bulk_heap_slot(BulkHeap *self)
{
	if (self->nwaiting == self->nslots)
	{
		MemoryContext old = MemoryContextSwitchTo(self->context);

		if (self->state == NULL)
		{
			self->state = GetBulkInsertState();
			self->slots = palloc(sizeof(TupleTableSlot *) * MAX_WAITING_ROWS);
		}
		self->slots[self->nslots++] = table_slot_create(self->heap, NULL);
		MemoryContextSwitchTo(old);
	}
	return self->slots[self->nwaiting];
}

Size
bulk_heap_add(BulkHeap *self)
{
	TupleTableSlot *slot = self->slots[self->nwaiting++];
	Size		size;

	ExecMaterializeSlot(slot);
	size = ((HeapTupleTableSlot *) slot)->tuple->t_len;
	self->waiting_bytes += size;
	return size + self->slot_bytes;
}

Size
bulk_heap_weight(const BulkHeap *self)
{
	return self->waiting_bytes + self->nwaiting * self->slot_bytes;
}

bool
bulk_heap_is_full(const BulkHeap *self)
{
	return self->nwaiting == MAX_WAITING_ROWS || self->waiting_bytes >= MAX_WAITING_BYTES;
}

static void
insert_index_entries(BulkHeap *self, EState *estate)
{
	for (int i = 0; i < self->nwaiting; i++)
	{
		ResetPerTupleExprContext(estate);
		list_free(compat_ExecInsertIndexTuples(self->result, self->slots[i], estate));
	}
}

/*
 * Has the WAL writer write what there is. By itself it looks a few times a second,
 * and rows come in so fast that WAL would be written here by then, since its buffers
 * are full, and synced, since a page leaves the ring of a bulk insert. It is woken
 * up as by a transaction that commits asynchronously.
 */
static void
wake_wal_writer(Relation heap)
{
	static XLogRecPtr woken_at = InvalidXLogRecPtr;
	XLogRecPtr	at;

	if (!RelationNeedsWAL(heap))
		return;
	at = GetXLogInsertRecPtr();
	if (at < woken_at + WAKE_BYTES)
		return;
	XLogSetAsyncXactLSN(at);
	woken_at = at;
}

void
bulk_heap_flush(BulkHeap *self, CommandId command, EState *estate, bool keeps_page)
{
	MemoryContext old;

	if (self->nwaiting == 0)
		return;
	/* what it leaves behind goes with the next row's */
	old = MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));
	table_multi_insert(self->heap, self->slots, self->nwaiting, command, self->options, self->state);
	MemoryContextSwitchTo(old);
	wake_wal_writer(self->heap);
	if (!keeps_page)
		ReleaseBulkInsertStatePin(self->state);
	if (self->result->ri_NumIndices > 0)
		insert_index_entries(self, estate);
	for (int i = 0; i < self->nwaiting; i++)
		ExecClearTuple(self->slots[i]);
	self->nwaiting = 0;
	self->waiting_bytes = 0;
}

void
bulk_heap_close(BulkHeap *self)
{
	if (self->state == NULL)
		return;
	Assert(self->nwaiting == 0);
	FreeBulkInsertState(self->state);
	table_finish_bulk_insert(self->heap, self->options);
	for (int i = 0; i < self->nslots; i++)
		ExecDropSingleTupleTableSlot(self->slots[i]);
	pfree(self->slots);
	self->nslots = 0;
	self->state = NULL;
}
