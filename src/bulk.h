/*
 * bulk.h
 *		Rows of a shape, put into a table many at a time, as COPY does it.
 *
 * The order of calls: bulk_open; bulk_into or bulk_into_partitions; bulk_put for each row; bulk_finish;
 * bulk_close.
 */
#ifndef INCLOAD_BULK_H
#define INCLOAD_BULK_H

#include "postgres.h"

#include "utils/relcache.h"

#include "shape.h"

typedef struct Bulk Bulk;

/* are the target's columns still those that the shape was made for? */
extern bool bulk_fits(Relation target, const Shape *shape);

/* for rows of the target, which fits and stays open; 42501 without the right to INSERT */
extern Bulk *bulk_open(Relation target, const Shape *shape, MemoryContext context);

/*
 * Where the rows go from here on, with options of table_multi_insert: a heap with
 * the target's columns, or the target itself, the indexes of which get them, too.
 */
extern void bulk_into(Bulk *bulk, Relation heap, int options);

/* what forbids that rows are put into a partition in this way; NULL: nothing */
typedef const char *(*BulkJudge) (Relation partition, void *arg);

/*
 * The rows go into the target's partitions, each into its own, as an INSERT's rows do.
 * The judge is asked about each that gets rows, once it is locked, and 40001 is
 * raised if there is something.
 */
extern void bulk_into_partitions(Bulk *bulk, BulkJudge judge, void *arg);

/* a row of the shape, as an INSERT would take it: defaults, generated columns, constraints; no triggers, no row security */
extern void bulk_put(Bulk *bulk, Datum *values, bool *nulls);

/* the last rows, of all that were put in */
extern void bulk_finish(Bulk *bulk);

extern void bulk_close(Bulk *bulk);

#endif							/* INCLOAD_BULK_H */
