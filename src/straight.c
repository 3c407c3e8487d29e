/*
 * straight.c
 *		Rows that are certain to be new go into the target as they are read.
 *
 * A key above every key that the target has is none of its rows'. That is so of
 * nearly all new rows where keys are numbers that go up, and then neither has a
 * row to be staged nor its key to be looked for, and many rows are put in at a
 * time. All others are staged and merged. Without a key, every row is new.
 *
 * Somebody else may add a greater key meanwhile: then a row that he has, too, is a
 * unique violation, as it would be in MERGE.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "bulk.h"
#include "catalog.h"
#include "compat.h"
#include "fill.h"
#include "plan.h"
#include "straight.h"
#include "trouble.h"

struct Straight
{
	const Job  *job;
	const Shape *shape;
	MemoryContext context;
	const Trouble *texts;		/* of errors while rows are put in */
	int			key;			/* its position in a row; -1: there is none */
	int64		nseen;			/* rows of the run that came before the target was looked at */

	/* of the batch */
	bool		is_off;			/* something is in the way */
	Relation	target;			/* NULL until there is a row to put in, likewise below */
	Bulk	   *bulk;
	TypeCacheEntry *type;		/* of the key */
	Oid			collation;
	bool		has_greatest;
	Datum		greatest;		/* of the keys of the target */
	int64		nrows;
};

/* does it keep the key unique, and nothing else? */
static bool
is_of_key(Relation index, AttrNumber key)
{
	const FormData_pg_index *form = index->rd_index;

	return form->indisunique && index->rd_rel->relam == BTREE_AM_OID &&
		form->indnkeyatts == 1 && form->indkey.values[0] == key &&
		RelationGetIndexPredicate(index) == NIL;
}

/* has it the order in which keys are compared here? */
static bool
has_order(Relation index, const TypeCacheEntry *type, Oid collation)
{
	/* read from either end, it has the order of ORDER BY … DESC */
	return (index->rd_indoption[0] == 0 || index->rd_indoption[0] == (INDOPTION_DESC | INDOPTION_NULLS_FIRST)) &&
		index->rd_opfamily[0] == type->btree_opf && index->rd_indcollation[0] == collation;
}

/* a row that takes the place of another one in an index may have to wait until that one is gone */
static const char *
index_obstacle(Relation rel, const Shape *shape, const char *name)
{
	const LoadColumn *key = &shape->columns[shape->key[0]];
	const TypeCacheEntry *type = lookup_type_cache(key->type, TYPECACHE_BTREE_OPFAMILY | TYPECACHE_CMP_PROC_FINFO);
	/* a partition may have it elsewhere */
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), key->name);
	bool		has_key_index = false;
	const char *obstacle = NULL;
	ListCell   *lc;

	if (!OidIsValid(type->cmp_proc_finfo.fn_oid))
		return "the key has no order";
	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (is_of_key(index, attnum))
		{
			if (has_order(index, type, key->collation))
				has_key_index = true;
			else
				obstacle = psprintf("index \"%s\" of the target has the key in another order", RelationGetRelationName(index));
		}
		else if (index->rd_index->indisunique || index->rd_index->indisexclusion)
			obstacle = psprintf("index \"%s\" of the target is unique, too", RelationGetRelationName(index));
		index_close(index, AccessShareLock);
	}
	if (obstacle)
		return obstacle;
	return has_key_index ? NULL : psprintf("%s has no unique index on the key alone", name);
}

/* what keeps rows from a partition */
static const char *
partition_obstacle(Relation partition, void *arg)
{
	const Shape *shape = arg;
	const char *obstacle = fill_partition_obstacle(partition);

	if (obstacle || shape->nkeys == 0)
		return obstacle;
	return index_obstacle(partition, shape,
						  psprintf("partition \"%s\" of the target", RelationGetRelationName(partition)));
}

/* what keeps rows from one of the partitions, if there are any; whichever gets rows is not known yet */
static const char *
partitions_obstacle(Oid target, const Shape *shape)
{
	const char *obstacle = NULL;
	ListCell   *lc;

	if (get_rel_relkind(target) != RELKIND_PARTITIONED_TABLE)
		return NULL;
	/* the first of them, the target itself, is not locked by that */
	for_each_from(lc, find_all_inheritors(target, AccessShareLock, NULL), 1)
	{
		Relation	partition = table_open(lfirst_oid(lc), NoLock);

		if (obstacle == NULL && partition->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
			obstacle = partition_obstacle(partition, (void *) shape);
		table_close(partition, AccessShareLock);
	}
	return obstacle;
}

/* likewise, from the target itself */
static const char *
target_obstacle(const Job *job, const Shape *shape)
{
	const char *obstacle = fill_straight_obstacle(job, shape);
	Relation	target;

	if (obstacle)
		return obstacle;
	/* those of them that come again are looked for among the staged rows */
	if (catalog_has_rejects(job->id))
		return "rows of the job are put aside";
	if (shape->nkeys == 0)
		return NULL;
	if (shape->nkeys > 1)
		return "the key has several columns";
	if (!shape->key_is_unique)
		return "nothing tells that the source has each key once";
	target = table_open(job->target, AccessShareLock);
	obstacle = index_obstacle(target, shape, "the target");
	table_close(target, AccessShareLock);
	return obstacle;
}

const char *
straight_obstacle(const Job *job, const Shape *shape)
{
	const char *obstacle = target_obstacle(job, shape);

	return obstacle ? obstacle : partitions_obstacle(job->target, shape);
}

Straight *
straight_create(const Job *job, const Shape *shape, const Trouble *texts, MemoryContext context)
{
	Straight   *self = MemoryContextAllocZero(context, sizeof(Straight));

	self->job = job;
	self->shape = shape;
	self->context = context;
	self->texts = texts;
	self->key = shape->nkeys > 0 ? shape->key[0] : -1;
	return self;
}

static void
find_greatest(Straight *self)
{
	const LoadColumn *key = &self->shape->columns[self->key];
	MemoryContext context = CurrentMemoryContext;
	bool		isnull = true;
	Datum		value = (Datum) 0;

	self->type = lookup_type_cache(key->type, TYPECACHE_CMP_PROC_FINFO);
	self->collation = key->collation;
	SPI_connect();
	if (SPI_execute(plan_edge(self->job, self->shape, true), false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not look for the greatest key");
	if (SPI_processed > 0)
		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	self->has_greatest = !isnull;
	if (!isnull)
	{
		MemoryContext old = MemoryContextSwitchTo(self->context);

		self->greatest = self->type->typlen == -1 ? PointerGetDatum(PG_DETOAST_DATUM_COPY(value))
			: datumCopy(value, self->type->typbyval, self->type->typlen);
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	MemoryContextSwitchTo(context);
}

/* from here on, rows may go in */
static void
begin(Straight *self)
{
	/* locked, so that nothing comes in their way; altered since the shape was made: between two batches, or by pre_sql */
	self->target = table_open(self->job->target, RowExclusiveLock);
	if (straight_obstacle(self->job, self->shape) != NULL || !bulk_fits(self->target, self->shape))
	{
		table_close(self->target, NoLock);
		self->target = NULL;
		self->is_off = true;
		return;
	}
	if (self->key >= 0)
		find_greatest(self);
	self->bulk = bulk_open(self->target, self->shape, self->context);
	if (self->target->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		bulk_into_partitions(self->bulk, partition_obstacle, (void *) self->shape);
	else
		bulk_into(self->bulk, self->target, 0);
}

static bool
is_new(Straight *self, Datum *values)
{
	return self->key < 0 || !self->has_greatest ||
		DatumGetInt32(FunctionCall2Coll(&self->type->cmp_proc_finfo, self->collation,
										values[self->key], self->greatest)) > 0;
}

bool
straight_takes(Straight *self, Datum *values)
{
	Trouble		trouble;

	if (self->is_off)
		return false;
	if (self->bulk == NULL)
	{
		if (self->nseen++ < STRAIGHT_FROM)
			return false;
		trouble_begin_like(&trouble, self->texts);
		begin(self);
		trouble_end(&trouble);
		if (self->is_off)
			return false;
	}
	return is_new(self, values);
}

void
straight_put(Straight *self, Datum *values, bool *nulls)
{
	Trouble		trouble;

	trouble_begin_like(&trouble, self->texts);
	bulk_put(self->bulk, values, nulls);
	trouble_end(&trouble);
	self->nrows++;
}

int64
straight_end_batch(Straight *self)
{
	int64		nrows = self->nrows;
	Trouble		trouble;

	if (self->bulk)
	{
		trouble_begin_like(&trouble, self->texts);
		bulk_finish(self->bulk);
		trouble_end(&trouble);
		bulk_close(self->bulk);
		table_close(self->target, NoLock);
		CommandCounterIncrement();
		if (self->has_greatest && !self->type->typbyval)
			pfree(DatumGetPointer(self->greatest));
	}
	self->has_greatest = false;
	self->is_off = false;
	self->target = NULL;
	self->bulk = NULL;
	self->nrows = 0;
	return nrows;
}
