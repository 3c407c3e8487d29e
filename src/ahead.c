/*
 * ahead.c
 *		Pages of the target that are asked for before a MERGE looks into them.
 *
 * A nested loop fetches a row, and then the next one. Where rows have changed all
 * over a table that no cache holds, each is a page from disk, and waiting for one
 * after the other is nearly all that the MERGE does. The keys are known by then. So
 * the index is gone through for them beforehand, and the kernel is told of each page
 * of the table that will be wanted, as a bitmap heap scan does it; disks are many
 * times faster at many requests than at one.
 *
 * Where the pages are in memory, all that is to go through the index twice. So a few
 * of them are read first, which they would be in any case, and how long that takes
 * decides. No more pages are asked for than a part of what effective_cache_size says the
 * caches have: the first of them might be dropped again before the MERGE comes to them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "access/table.h"
#include "catalog/pg_am_d.h"
#include "executor/tuptable.h"
#include "optimizer/optimizer.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/spccache.h"

#include "ahead.h"
#include "compat.h"
#include "execute.h"
#include "plan.h"

/* fewer staged rows than this are not worth a look */
#define FEW_ROWS 64
/* a table of fewer pages comes in by itself soon enough: 8 MB */
#define FEW_PAGES 1024

/* so many pages are read, of rows all over the first so many staged ones */
#define SAMPLES 32
#define SAMPLED_ROWS 8192
/* where one in so many takes longer than so many microseconds, they come from disk */
#define SLOW_SHARE 4
#define SLOW_US 50
/* one in so many pages of effective_cache_size */
#define CACHE_SHARE 4

int			incload_read_ahead = READ_AHEAD_AUTO;

typedef struct Ahead
{
	DestReceiver dest;			/* first, so that it can be cast */
	Relation	table;
	Relation	index;
	IndexScanDesc scan;
	ScanKeyData keys[INDEX_MAX_KEYS];
	int			position[INDEX_MAX_KEYS];	/* of a key's value in a row of the key's columns */

	/* while some are read */
	int64		every;
	int64		seen;
	int			nsampled;
	int			nslow;

	/* while they are asked for */
	BlockNumber last;
	int64		room;
	int64		nasked;
} Ahead;

/* are these the key's columns, all of them, in whatever order? */
static bool
is_index_of_key(Ahead *self, Relation index, const Shape *shape)
{
	const FormData_pg_index *form = index->rd_index;

	if (index->rd_rel->relam != BTREE_AM_OID || !form->indisvalid || !form->indisunique ||
		form->indnkeyatts != shape->nkeys || RelationGetIndexPredicate(index) != NIL)
		return false;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		int			k = 0;

		while (k < shape->nkeys && shape->columns[shape->key[k]].attnum != form->indkey.values[i])
			k++;
		if (k == shape->nkeys)
			return false;
		self->position[i] = k;
	}
	return true;
}

static void
begin_scan(Ahead *self)
{
	Relation	index = self->index;

	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
	{
		Oid			type = index->rd_opcintype[i];
		Oid			equal = get_opfamily_member(index->rd_opfamily[i], type, type, BTEqualStrategyNumber);

		ScanKeyEntryInitialize(&self->keys[i], 0, i + 1, BTEqualStrategyNumber, type,
							   index->rd_indcollation[i], get_opcode(equal), (Datum) 0);
	}
	/* whatever is there: a MERGE looks at it, too, before it knows that it is dead */
	self->scan = compat_index_beginscan(self->table, index, SnapshotAny, index->rd_index->indnkeyatts);
}

/* opens the table and the index of its key; false where there is nothing to be gained, or no such index */
static bool
open_target(Ahead *self, const Job *job, const Shape *shape)
{
	Relation	table = table_open(job->target, AccessShareLock);
	List	   *indexes = NIL;
	ListCell   *lc;

	self->table = table;
	if (table->rd_rel->relkind == RELKIND_RELATION && table->rd_rel->relam == HEAP_TABLE_AM_OID &&
		!RelationUsesLocalBuffers(table) && get_tablespace_io_concurrency(table->rd_rel->reltablespace) > 0 &&
		(incload_read_ahead == READ_AHEAD_ON || RelationGetNumberOfBlocks(table) >= FEW_PAGES))
		indexes = RelationGetIndexList(table);
	foreach(lc, indexes)
	{
		self->index = index_open(lfirst_oid(lc), AccessShareLock);
		if (is_index_of_key(self, self->index, shape))
		{
			begin_scan(self);
			return true;
		}
		index_close(self->index, AccessShareLock);
	}
	table_close(table, NoLock);
	return false;
}

static void
close_target(Ahead *self)
{
	index_endscan(self->scan);
	index_close(self->index, NoLock);
	table_close(self->table, NoLock);
}

/* begins to look for a row's key */
static void
seek(Ahead *self, TupleTableSlot *slot)
{
	int			n = self->index->rd_index->indnkeyatts;

	slot_getallattrs(slot);
	for (int i = 0; i < n; i++)
	{
		/* no key of the stage is NULL */
		Assert(!slot->tts_isnull[self->position[i]]);
		self->keys[i].sk_argument = slot->tts_values[self->position[i]];
	}
	index_rescan(self->scan, self->keys, n, NULL, 0);
}

static bool
next_page(Ahead *self, BlockNumber *page)
{
	ItemPointer tid = index_getnext_tid(self->scan, ForwardScanDirection);

	if (tid)
		*page = ItemPointerGetBlockNumber(tid);
	return tid != NULL;
}

/* reads a page of some of the rows */
static bool
sample_row(TupleTableSlot *slot, DestReceiver *dest)
{
	Ahead	   *self = (Ahead *) dest;
	BlockNumber page;

	if (self->seen++ % self->every == 0)
	{
		seek(self, slot);
		if (next_page(self, &page))
		{
			instr_time	start;
			instr_time	time;

			INSTR_TIME_SET_CURRENT(start);
			ReleaseBuffer(ReadBuffer(self->table, page));
			INSTR_TIME_SET_CURRENT(time);
			INSTR_TIME_SUBTRACT(time, start);
			self->nsampled++;
			self->nslow += INSTR_TIME_GET_MICROSEC(time) > SLOW_US;
		}
	}
	return self->seen < SAMPLED_ROWS;
}

/* asks for the pages of a row */
static bool
ask_for_row(TupleTableSlot *slot, DestReceiver *dest)
{
	Ahead	   *self = (Ahead *) dest;
	BlockNumber page;

	seek(self, slot);
	while (next_page(self, &page))
	{
		if (page == self->last)
			continue;
		self->last = page;
		if (PrefetchBuffer(self->table, MAIN_FORKNUM, page).initiated_io)
			self->nasked++;
	}
	return self->nasked < self->room;
}

static void
startup(DestReceiver *dest, int operation, TupleDesc desc)
{
}

static void
nothing(DestReceiver *dest)
{
}

static void
go_through(Ahead *self, bool (*receive) (TupleTableSlot *slot, DestReceiver *dest), const char *sql,
		   QueryEnvironment *environment)
{
	self->dest.receiveSlot = receive;
	self->dest.rStartup = startup;
	self->dest.rShutdown = nothing;
	self->dest.rDestroy = nothing;
	self->dest.mydest = DestNone;
	(void) execute_statement(sql, environment, &self->dest);
}

/* do the pages come from disk? */
static bool
is_slow(Ahead *self, const char *query, int64 nrows, QueryEnvironment *environment)
{
	self->every = Max(Min(nrows, SAMPLED_ROWS) / SAMPLES, 1);
	go_through(self, sample_row, query, environment);
	return self->nslow > 0 && self->nslow * SLOW_SHARE >= self->nsampled;
}

void
ahead_look(const Job *job, const Shape *shape, const char *rows, int64 nrows, QueryEnvironment *environment)
{
#ifdef USE_PREFETCH
	Ahead		self = {.last = InvalidBlockNumber, .room = Max(effective_cache_size / CACHE_SHARE, 1)};
	char	   *query;

	if (incload_read_ahead == READ_AHEAD_OFF || nrows < FEW_ROWS || !open_target(&self, job, shape))
		return;
	query = psprintf("SELECT %s FROM %s AS s", plan_key_order(shape, "s."), rows);
	if (incload_read_ahead == READ_AHEAD_ON || is_slow(&self, query, nrows, environment))
	{
		go_through(&self, ask_for_row, psprintf("%s ORDER BY %s", query, plan_key_order(shape, "s.")), environment);
		ereport(DEBUG1,
				(errmsg_internal("asked for " INT64_FORMAT " pages of %s ahead of the rows", self.nasked, job->target_name)));
	}
	close_target(&self);
#endif
}
