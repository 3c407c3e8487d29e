/*
 * leaves.c
 *		In which partition a row with a key lies, by the key alone.
 *
 * The executor finds that as well, for rows that are put in: it takes the locks of
 * an INSERT for it, and a row without a partition is an error. Here, nothing is.
 */
#include "postgres.h"

#include "access/relation.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/rel.h"

#include "leaves.h"

/* Leaves: a partitioned table, and those among its partitions that are partitioned, too */
struct Leaves
{
	const Shape *shape;
	Relation	rel;
	PartitionKey key;
	PartitionDesc desc;
	bool		is_by_key;		/* each column of its partition key is one of the job's */
	int			position[PARTITION_MAX_KEYS];	/* which one */
	Leaves	  **below;			/* by partition; NULL: not looked into */
};

Leaves *
leaves_open(Relation rel, const Shape *shape)
{
	Leaves	   *self = palloc0(sizeof(Leaves));

	self->shape = shape;
	self->rel = rel;
	self->key = RelationGetPartitionKey(rel);
	self->desc = RelationGetPartitionDesc(rel, true);
	self->below = palloc0(sizeof(Leaves *) * Max(self->desc->nparts, 1));
	self->is_by_key = true;
	for (int i = 0; i < self->key->partnatts && self->is_by_key; i++)
	{
		AttrNumber	attnum = self->key->partattrs[i];

		/* 0 is an expression */
		self->position[i] = attnum == 0 ? -1
			: shape_key_position(shape, NameStr(TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attname));
		self->is_by_key = self->position[i] >= 0;
	}
	return self;
}

/* the number of the partition; -1 for none */
static int
find_partition(Leaves *self, Datum *key)
{
	PartitionKey by = self->key;
	PartitionBoundInfo bounds = self->desc->boundinfo;
	Datum		values[PARTITION_MAX_KEYS];
	bool		nulls[PARTITION_MAX_KEYS] = {false};
	bool		is_equal = false;
	int			at;
	int			found = -1;

	if (!self->is_by_key || self->desc->nparts == 0)
		return -1;
	for (int i = 0; i < by->partnatts; i++)
		values[i] = key[self->position[i]];
	switch (by->strategy)
	{
		case PARTITION_STRATEGY_HASH:
			return bounds->indexes[compute_partition_hash_value(by->partnatts, by->partsupfunc, by->partcollation,
																values, nulls) % bounds->nindexes];
		case PARTITION_STRATEGY_LIST:
			at = partition_list_bsearch(by->partsupfunc, by->partcollation, bounds, values[0], &is_equal);
			if (at >= 0 && is_equal)
				found = bounds->indexes[at];
			break;
		case PARTITION_STRATEGY_RANGE:
			/* of the bound that is not above it, and the range that begins there */
			at = partition_range_datum_bsearch(by->partsupfunc, by->partcollation, bounds, by->partnatts, values, &is_equal);
			found = bounds->indexes[at + 1];
			break;
	}
	return found >= 0 ? found : bounds->default_index;
}

Oid
leaves_find(Leaves *self, Datum *key)
{
	int			found = find_partition(self, key);

	if (found < 0)
		return InvalidOid;
	if (self->desc->is_leaf[found])
		return self->desc->oids[found];
	if (self->below[found] == NULL)
	{
		/* it may be gone, if it was detached without a lock on its parent */
		Relation	rel = try_relation_open(self->desc->oids[found], AccessShareLock);
		MemoryContext old;

		if (rel == NULL)
			return InvalidOid;
		old = MemoryContextSwitchTo(GetMemoryChunkContext(self));
		self->below[found] = leaves_open(rel, self->shape);
		MemoryContextSwitchTo(old);
	}
	return leaves_find(self->below[found], key);
}

void
leaves_close(Leaves *self)
{
	for (int i = 0; i < self->desc->nparts; i++)
		if (self->below[i])
		{
			Relation	rel = self->below[i]->rel;

			leaves_close(self->below[i]);
			relation_close(rel, NoLock);
		}
}
