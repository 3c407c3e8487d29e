/*
 * new_heap.h
 *		A new heap for the target, filled beside the old one and put in its place.
 *
 * The order of calls: new_heap_open, inside a transaction that holds
 * NEW_HEAP_LOCK on the target; new_heap_put for each row; new_heap_swap, or
 * new_heap_abandon where there was none. Until that, nothing of it is to be seen; an error, or the transaction's rollback,
 * takes it away at any point.
 */
#ifndef INCLOAD_NEW_HEAP_H
#define INCLOAD_NEW_HEAP_H

#include "postgres.h"

#include "storage/lockdefs.h"
#include "utils/relcache.h"

#include "job.h"
#include "shape.h"
#include "trouble.h"

/*
 * The lock under which rows are collected: it keeps every other writer out, so
 * that none writes into the heap that will be thrown away. Readers go on.
 */
#define NEW_HEAP_LOCK ShareRowExclusiveLock

typedef struct NewHeap NewHeap;

/*
 * Frozen rows are seen by every snapshot, however old: right where the old heap
 * has rows, which such a snapshot would else see gone and nothing in their
 * place. Where the old one is empty, rows that are not frozen keep every
 * snapshot exact. The texts are those of errors while rows are put in.
 */
extern NewHeap *new_heap_open(const Job *job, const Shape *shape, bool frozen,
							  const Trouble *texts, MemoryContext context);

/* a row of the shape, as an INSERT would take it: defaults, generated columns, constraints */
extern void new_heap_put(NewHeap *heap, Datum *values, bool *nulls);

/*
 * Puts the heap in the place of the target's, under ACCESS EXCLUSIVE, and
 * builds the indexes. With must_be_empty, rows that this transaction has put
 * into the old one meanwhile are an ERROR (55006). Returns the number of rows;
 * the new heap is closed.
 */
extern int64 new_heap_swap(NewHeap *heap, bool must_be_empty);

/* closes a new heap that no row was put into */
extern void new_heap_abandon(NewHeap *heap);

/* is there no row in the target, which is open, that any transaction could still see? */
extern bool new_heap_target_is_empty(Relation target);

/* does SQL of this session use the target, which is open once, at this moment? */
extern bool new_heap_target_in_use(Relation target);

#endif							/* INCLOAD_NEW_HEAP_H */
