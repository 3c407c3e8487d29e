/*
 * straight.c
 *		Rows that are certain to be new go into the target as they are read.
 *
 * A key above every key that the target has is none of its rows'. That is so of
 * nearly all new rows where keys are numbers that go up, and then neither has a
 * row to be staged nor its key to be looked for, and many rows are put in at a
 * time. All others are staged and merged. Without a key, every row is new. Keys of
 * several columns are compared in the order in which their index has the columns.
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
#include "names.h"
#include "straight.h"
#include "trouble.h"

/* KeyPart: a column of the key */
typedef struct KeyPart
{
	int			position;		/* in a row */
	TypeCacheEntry *type;
	Oid			collation;
	Datum		greatest;		/* of the greatest key of the target */
} KeyPart;

struct Straight
{
	const Job  *job;
	const Shape *shape;
	MemoryContext context;
	const Trouble *texts;		/* of errors while rows are put in */
	int64		nseen;			/* rows of the run that came before the target was looked at */

	/* of the batch */
	bool		is_off;			/* something is in the way */
	Relation	target;			/* NULL until there is a row to put in, likewise below */
	Bulk	   *bulk;
	KeyPart		parts[INDEX_MAX_KEYS];	/* of the key, in the order of its index */
	bool		has_greatest;	/* the target has a key */
	MemoryContext greatest;		/* has the values of the greatest one */
	int64		nrows;
};

/* does it keep the key unique, and nothing else? Then in which order it has the key's columns, as positions in the key */
static bool
is_of_key(Relation index, const Shape *shape, int *order)
{
	const FormData_pg_index *form = index->rd_index;

	if (!form->indisunique || index->rd_rel->relam != BTREE_AM_OID || form->indnkeyatts != shape->nkeys ||
		RelationGetIndexPredicate(index) != NIL)
		return false;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		/* a partition may have the column elsewhere */
		int			k = form->indkey.values[i] > 0
			? shape_key_position(shape, get_attname(form->indrelid, form->indkey.values[i], false)) : -1;

		if (k < 0)
			return false;
		order[i] = k;
	}
	return true;
}

/* has it the order in which keys are compared here? */
static bool
has_order(Relation index, const Shape *shape, const int *order)
{
	int16	   *option = index->rd_indoption;

	/* read from either end, it has the order of ORDER BY … DESC */
	if (option[0] != 0 && option[0] != (INDOPTION_DESC | INDOPTION_NULLS_FIRST))
		return false;
	for (int i = 0; i < shape->nkeys; i++)
	{
		const LoadColumn *column = &shape->columns[shape->key[order[i]]];

		if (option[i] != option[0] || index->rd_indcollation[i] != column->collation ||
			index->rd_opfamily[i] != lookup_type_cache(column->type, TYPECACHE_BTREE_OPFAMILY)->btree_opf)
			return false;
	}
	return true;
}

/* a row that takes the place of another one in an index may have to wait until that one is gone */
static const char *
index_obstacle(Relation rel, const Shape *shape, const char *name, int *order)
{
	bool		has_key_index = false;
	const char *obstacle = NULL;
	ListCell   *lc;

	for (int i = 0; i < shape->nkeys; i++)
		if (!OidIsValid(lookup_type_cache(shape->columns[shape->key[i]].type, TYPECACHE_CMP_PROC_FINFO)->cmp_proc_finfo.fn_oid))
			return "the key has no order";
	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		int			its_order[INDEX_MAX_KEYS];

		if (is_of_key(index, shape, its_order))
		{
			if (!has_order(index, shape, its_order))
				obstacle = psprintf("index \"%s\" of the target has the key in another order", RelationGetRelationName(index));
			else if (index->rd_index->indisvalid)
			{
				has_key_index = true;
				memcpy(order, its_order, sizeof(int) * shape->nkeys);
			}
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
	int			order[INDEX_MAX_KEYS];

	if (obstacle || shape->nkeys == 0)
		return obstacle;
	return index_obstacle(partition, shape,
						  psprintf("partition \"%s\" of the target", RelationGetRelationName(partition)), order);
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

/* likewise, from the target itself; else the order of the key's columns in its index */
static const char *
target_obstacle(const Job *job, const Shape *shape, int *order)
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
	if (!shape->key_is_unique)
		return "nothing tells that the source has each key once";
	target = table_open(job->target, AccessShareLock);
	obstacle = index_obstacle(target, shape, "the target", order);
	table_close(target, AccessShareLock);
	return obstacle;
}

static const char *
find_obstacle(const Job *job, const Shape *shape, int *order)
{
	const char *obstacle = target_obstacle(job, shape, order);

	return obstacle ? obstacle : partitions_obstacle(job->target, shape);
}

const char *
straight_obstacle(const Job *job, const Shape *shape)
{
	int			order[INDEX_MAX_KEYS];

	return find_obstacle(job, shape, order);
}

Straight *
straight_create(const Job *job, const Shape *shape, const Trouble *texts, MemoryContext context)
{
	Straight   *self = MemoryContextAllocZero(context, sizeof(Straight));

	self->job = job;
	self->shape = shape;
	self->context = context;
	self->texts = texts;
	return self;
}

/* looks for the greatest of the target's keys that a row of the run can have at all: those without a NULL */
static char *
greatest_query(Straight *self)
{
	StringInfoData list;
	StringInfoData where;
	StringInfoData order;

	initStringInfo(&list);
	initStringInfo(&where);
	initStringInfo(&order);
	for (int i = 0; i < self->shape->nkeys; i++)
	{
		const char *name = quote_identifier(self->shape->columns[self->parts[i].position].name);
		const char *comma = i ? ", " : "";

		appendStringInfo(&list, "%st.%s", comma, name);
		appendStringInfo(&where, "%st.%s IS NOT NULL", i ? " AND " : "", name);
		appendStringInfo(&order, "%st.%s DESC", comma, name);
	}
	return psprintf("SELECT %s FROM %s AS t WHERE %s ORDER BY %s LIMIT 1", list.data,
					relation_qualified_name(self->job->target), where.data, order.data);
}

/* in the order of the columns in the index */
static void
prepare_parts(Straight *self, const int *order)
{
	const Shape *shape = self->shape;

	for (int i = 0; i < shape->nkeys; i++)
	{
		KeyPart    *part = &self->parts[i];

		part->position = shape->key[order[i]];
		part->type = lookup_type_cache(shape->columns[part->position].type, TYPECACHE_CMP_PROC_FINFO);
		part->collation = shape->columns[part->position].collation;
	}
}

static void
find_greatest(Straight *self)
{
	MemoryContext context = CurrentMemoryContext;

	self->greatest = AllocSetContextCreate(self->context, "incload greatest key", ALLOCSET_SMALL_SIZES);
	SPI_connect();
	if (SPI_execute(greatest_query(self), false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not look for the greatest key");
	self->has_greatest = SPI_processed > 0;
	MemoryContextSwitchTo(self->greatest);
	for (int i = 0; i < self->shape->nkeys && self->has_greatest; i++)
	{
		KeyPart    *part = &self->parts[i];
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &isnull);

		part->greatest = part->type->typlen == -1 ? PointerGetDatum(PG_DETOAST_DATUM_COPY(value))
			: datumCopy(value, part->type->typbyval, part->type->typlen);
	}
	SPI_finish();
	MemoryContextSwitchTo(context);
}

/* from here on, rows may go in */
static void
begin(Straight *self)
{
	int			order[INDEX_MAX_KEYS];

	/* locked, so that nothing comes in their way; altered since the shape was made: between two batches, or by pre_sql */
	self->target = table_open(self->job->target, RowExclusiveLock);
	if (find_obstacle(self->job, self->shape, order) != NULL || !bulk_fits(self->target, self->shape))
	{
		table_close(self->target, NoLock);
		self->target = NULL;
		self->is_off = true;
		return;
	}
	if (self->shape->nkeys > 0)
	{
		prepare_parts(self, order);
		find_greatest(self);
	}
	self->bulk = bulk_open(self->target, self->shape, self->context);
	if (self->target->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		bulk_into_partitions(self->bulk, partition_obstacle, (void *) self->shape);
	else
		bulk_into(self->bulk, self->target, 0);
}

/* is its key above the greatest? The first column in which they differ tells. */
static bool
is_new(Straight *self, Datum *values)
{
	if (!self->has_greatest)
		return true;
	for (int i = 0; i < self->shape->nkeys; i++)
	{
		const KeyPart *part = &self->parts[i];
		int			difference = DatumGetInt32(FunctionCall2Coll(&part->type->cmp_proc_finfo, part->collation,
																 values[part->position], part->greatest));

		if (difference != 0)
			return difference > 0;
	}
	return false;
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
		if (self->greatest)
			MemoryContextDelete(self->greatest);
	}
	self->has_greatest = false;
	self->greatest = NULL;
	self->is_off = false;
	self->target = NULL;
	self->bulk = NULL;
	self->nrows = 0;
	return nrows;
}
