/*
 * bulk_heap.h
 *		Rows that wait to be put into one heap, many at a time.
 *
 * The order of calls: bulk_heap_make; bulk_heap_slot and bulk_heap_add for each
 * row; bulk_heap_flush; bulk_heap_close, after which it can be used again.
 */
#ifndef INCLOAD_BULK_HEAP_H
#define INCLOAD_BULK_HEAP_H

#include "postgres.h"

#include "access/heapam.h"
#include "nodes/execnodes.h"

typedef struct BulkHeap
{
	MemoryContext context;
	Relation	heap;
	ResultRelInfo *result;		/* whose constraints hold, and whose indexes, if open, get the rows */
	int			options;		/* TABLE_INSERT_… */
	BulkInsertState state;		/* NULL: nothing is held, likewise below */
	TupleTableSlot **slots;
	int			nslots;			/* that were made */
	Size		slot_bytes;		/* of an empty one */
	int			nwaiting;
	Size		waiting_bytes;	/* of their rows, without the slots */
} BulkHeap;

extern BulkHeap *bulk_heap_make(Relation heap, ResultRelInfo *result, int options, MemoryContext context);

/* for the next row; it is empty, and is taken by bulk_heap_add */
extern TupleTableSlot *bulk_heap_slot(BulkHeap *self);

/* the row in that slot, of which a copy is made; how many bytes it takes, with its slot */
extern Size bulk_heap_add(BulkHeap *self);

/* how many bytes all take that wait */
extern Size bulk_heap_weight(const BulkHeap *self);

/* have as many come as are put in at once? */
extern bool bulk_heap_is_full(const BulkHeap *self);

/* puts in what waits. A page stays at hand for the next rows if it is kept. */
extern void bulk_heap_flush(BulkHeap *self, CommandId command, EState *estate, bool keeps_page);

/* gives back what it holds; nothing waits */
extern void bulk_heap_close(BulkHeap *self);

#endif							/* INCLOAD_BULK_HEAP_H */
