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
#include "access/relation.h"
#include "access/relscan.h"
#include "access/table.h"
#include "catalog/pg_am_d.h"
#include "executor/tuptable.h"
#include "optimizer/optimizer.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/spccache.h"
#include "utils/typcache.h"

#include "ahead.h"
#include "compat.h"
#include "execute.h"
#include "leaves.h"

/* fewer staged rows than this are not worth a look */
#define FEW_ROWS 64
/* a target of fewer pages comes in by itself soon enough: 8 MB */
#define FEW_PAGES 1024

/* so many pages are read, of rows all over the first so many staged ones */
#define SAMPLES 32
#define SAMPLED_ROWS 8192
/* where one in so many takes longer than so many microseconds, they come from disk */
#define SLOW_SHARE 4
#define SLOW_US 50
/* and where that is one in so many rows, new ones among them, it is worth to look for each */
#define ROWS_SHARE 16
/* one in so many pages of effective_cache_size */
#define CACHE_SHARE 4

/* so many partitions are looked into at once: each takes 30 kB */
#define MAX_PROBES 64

/* without it, to ask for a page does nothing, whatever effective_io_concurrency says */
#ifdef USE_PREFETCH
#define CAN_ASK true
#else
#define CAN_ASK false
#endif

int			incload_read_ahead = READ_AHEAD_AUTO;

/* Probe: a table that has rows, the target or a partition of it, and the index in which keys are looked for */
typedef struct Probe
{
	Oid			table_id;		/* the key of the hash table */
	Relation	table;			/* NULL: nothing is looked for in it, likewise below */
	Relation	index;
	IndexScanDesc scan;
	ScanKeyData keys[INDEX_MAX_KEYS];
	int			position[INDEX_MAX_KEYS];	/* of a column's value in a row of the key's columns */
	BlockNumber last;			/* that was asked for */
} Probe;

typedef struct Ahead
{
	DestReceiver dest;			/* first, so that it can be cast */
	const Shape *shape;
	Relation	target;
	Leaves	   *leaves;			/* NULL: the target has the rows itself */
	HTAB	   *probes;
	MemoryContext context;
	MemoryContext scans;		/* what the probes have */

	/* while some are read */
	int64		every;
	int64		seen;
	int			ntried;			/* rows */
	int			nsampled;		/* of these: that have a page */
	int			nslow;

	/* while they are asked for */
	int64		room;
	int64		nasked;
} Ahead;

/* which operator finds a value of the i-th column? */
static Oid
equality(Relation index, int i)
{
	Oid			type = index->rd_opcintype[i];

	return get_opfamily_member(index->rd_opfamily[i], type, type, BTEqualStrategyNumber);
}

/*
 * Are these the key's columns, all of them, in whatever order, and compared as the MERGE does it?
 * A partition may have them elsewhere.
 */
static bool
is_index_of_key(Probe *probe, Relation index, const Shape *shape)
{
	const FormData_pg_index *form = index->rd_index;

	if (index->rd_rel->relam != BTREE_AM_OID || !form->indisvalid || !form->indisunique ||
		form->indnkeyatts != shape->nkeys || RelationGetIndexPredicate(index) != NIL)
		return false;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		AttrNumber	attnum = form->indkey.values[i];
		int			k = attnum > 0
			? shape_key_position(shape, NameStr(TupleDescAttr(RelationGetDescr(probe->table), attnum - 1)->attname)) : -1;

		if (k < 0 ||
			equality(index, i) != lookup_type_cache(shape->columns[shape->key[k]].type, TYPECACHE_EQ_OPR)->eq_opr)
			return false;
		probe->position[i] = k;
	}
	return true;
}

static void
begin_scan(Probe *probe)
{
	Relation	index = probe->index;

	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
		ScanKeyEntryInitialize(&probe->keys[i], 0, i + 1, BTEqualStrategyNumber, index->rd_opcintype[i],
							   index->rd_indcollation[i], get_opcode(equality(index, i)), (Datum) 0);
	/* whatever is there: a MERGE looks at it, too, before it knows that it is dead */
	probe->scan = compat_index_beginscan(probe->table, index, SnapshotAny, index->rd_index->indnkeyatts);
}

/* is there anything to be gained from knowing the pages of this table's rows? */
static bool
has_pages(Relation table)
{
	return table->rd_rel->relkind == RELKIND_RELATION && table->rd_rel->relam == HEAP_TABLE_AM_OID &&
		!RelationUsesLocalBuffers(table) && get_tablespace_io_concurrency(table->rd_rel->reltablespace) > 0;
}

/* opens the table and the index of its key, if it has both */
static void
open_probe(Probe *probe, const Shape *shape)
{
	List	   *indexes = NIL;
	ListCell   *lc;

	probe->last = InvalidBlockNumber;
	/* a partition that was detached may be gone */
	probe->table = try_relation_open(probe->table_id, AccessShareLock);
	if (probe->table == NULL)
		return;
	if (has_pages(probe->table))
		indexes = RelationGetIndexList(probe->table);
	foreach(lc, indexes)
	{
		probe->index = index_open(lfirst_oid(lc), AccessShareLock);
		if (is_index_of_key(probe, probe->index, shape))
		{
			begin_scan(probe);
			return;
		}
		index_close(probe->index, NoLock);
	}
	relation_close(probe->table, NoLock);
	probe->table = NULL;
}

static void
close_probes(Ahead *self)
{
	HASH_SEQ_STATUS all;
	Probe	   *probe;

	hash_seq_init(&all, self->probes);
	while ((probe = hash_seq_search(&all)) != NULL)
	{
		if (probe->table)
		{
			index_endscan(probe->scan);
			index_close(probe->index, NoLock);
			relation_close(probe->table, NoLock);
		}
		hash_search(self->probes, &probe->table_id, HASH_REMOVE, NULL);
	}
	MemoryContextReset(self->scans);
}

/* of the table in which the row's key is; NULL for none */
static Probe *
find_probe(Ahead *self, TupleTableSlot *slot)
{
	Oid			table = self->leaves ? leaves_find(self->leaves, slot->tts_values) : RelationGetRelid(self->target);
	bool		is_there;
	Probe	   *probe;

	if (!OidIsValid(table))
		return NULL;
	probe = hash_search(self->probes, &table, HASH_FIND, NULL);
	if (probe == NULL)
	{
		if (hash_get_num_entries(self->probes) >= MAX_PROBES)
			close_probes(self);
		probe = hash_search(self->probes, &table, HASH_ENTER, &is_there);
		memset(&probe->table, 0, sizeof(Probe) - offsetof(Probe, table));
		open_probe(probe, self->shape);
	}
	return probe->table ? probe : NULL;
}

/* begins to look for a row's key; in the context of the scans, as they may keep what they make on the way */
static Probe *
seek(Ahead *self, TupleTableSlot *slot)
{
	Probe	   *probe;
	int			n;

	slot_getallattrs(slot);
	probe = find_probe(self, slot);
	if (probe == NULL)
		return NULL;
	n = probe->index->rd_index->indnkeyatts;
	for (int i = 0; i < n; i++)
	{
		/* no key of the stage is NULL */
		Assert(!slot->tts_isnull[probe->position[i]]);
		probe->keys[i].sk_argument = slot->tts_values[probe->position[i]];
	}
	index_rescan(probe->scan, probe->keys, n, NULL, 0);
	return probe;
}

static bool
next_page(Probe *probe, BlockNumber *page)
{
	ItemPointer tid = index_getnext_tid(probe->scan, ForwardScanDirection);

	if (tid)
		*page = ItemPointerGetBlockNumber(tid);
	return tid != NULL;
}

/* the last page of those that may hold a row; no leaf of the index stays pinned, which VACUUM would wait for */
static bool
find_page(Ahead *self, TupleTableSlot *slot, Probe **probe, BlockNumber *page)
{
	bool		found = false;

	*probe = seek(self, slot);
	while (*probe && next_page(*probe, page))
		found = true;
	return found;
}

/* reads a page of some of the rows */
static bool
sample_row(TupleTableSlot *slot, DestReceiver *dest)
{
	Ahead	   *self = (Ahead *) dest;
	MemoryContext old = MemoryContextSwitchTo(self->scans);
	Probe	   *probe;
	BlockNumber page;

	if (self->seen++ % self->every == 0)
	{
		self->ntried++;
		if (find_page(self, slot, &probe, &page))
		{
			instr_time	start;
			instr_time	time;

			INSTR_TIME_SET_CURRENT(start);
			ReleaseBuffer(ReadBuffer(probe->table, page));
			INSTR_TIME_SET_CURRENT(time);
			INSTR_TIME_SUBTRACT(time, start);
			self->nsampled++;
			self->nslow += INSTR_TIME_GET_MICROSEC(time) > SLOW_US;
		}
	}
	MemoryContextSwitchTo(old);
	return self->seen < SAMPLED_ROWS;
}

/* asks for the pages of a row */
static bool
ask_for_row(TupleTableSlot *slot, DestReceiver *dest)
{
	Ahead	   *self = (Ahead *) dest;
	MemoryContext old = MemoryContextSwitchTo(self->scans);
	Probe	   *probe = seek(self, slot);
	BlockNumber page;

	while (probe && next_page(probe, &page))
	{
		if (page == probe->last)
			continue;
		probe->last = page;
		if (PrefetchBuffer(probe->table, MAIN_FORKNUM, page).initiated_io)
			self->nasked++;
	}
	MemoryContextSwitchTo(old);
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
	return self->nslow > 0 && self->nslow * SLOW_SHARE >= self->nsampled && self->nslow * ROWS_SHARE >= self->ntried;
}

/* is it worth a look? */
static bool
is_worth_it(const ApplyPlan *plan, int64 nrows)
{
	return CAN_ASK && incload_read_ahead != READ_AHEAD_OFF && plan->lead == LEAD_PROBE && nrows >= FEW_ROWS &&
		(incload_read_ahead == READ_AHEAD_ON || plan->pages >= FEW_PAGES);
}

/* false where there is nothing to be gained */
static bool
open_target(Ahead *self, const Job *job)
{
	HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(Probe)};

	self->context = control.hcxt = AllocSetContextCreate(CurrentMemoryContext, "incload read-ahead", ALLOCSET_DEFAULT_SIZES);
	self->scans = AllocSetContextCreate(self->context, "incload read-ahead scans", ALLOCSET_DEFAULT_SIZES);
	self->target = table_open(job->target, AccessShareLock);
	if (self->target->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
	{
		MemoryContext old = MemoryContextSwitchTo(self->context);

		self->leaves = leaves_open(self->target, self->shape);
		MemoryContextSwitchTo(old);
	}
	else if (!has_pages(self->target))
	{
		table_close(self->target, NoLock);
		MemoryContextDelete(self->context);
		return false;
	}
	self->probes = hash_create("incload read-ahead", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	return true;
}

static void
close_target(Ahead *self)
{
	close_probes(self);
	if (self->leaves)
		leaves_close(self->leaves);
	table_close(self->target, NoLock);
	MemoryContextDelete(self->context);
}

void
ahead_look(const Job *job, const Shape *shape, const ApplyPlan *plan, const char *rows, int64 nrows,
		   QueryEnvironment *environment)
{
	Ahead		self = {.shape = shape, .room = Max(effective_cache_size / CACHE_SHARE, 1)};
	char	   *query;

	if (!is_worth_it(plan, nrows) || !open_target(&self, job))
		return;
	query = psprintf("SELECT %s FROM %s AS s", plan_key_order(shape, "s."), rows);
	if (incload_read_ahead == READ_AHEAD_ON || is_slow(&self, query, nrows, environment))
	{
		go_through(&self, ask_for_row, psprintf("%s ORDER BY %s", query, plan_key_order(shape, "s.")), environment);
		ereport(DEBUG1,
				(errmsg_internal("asked for " INT64_FORMAT " pages of %s ahead of the rows", self.nasked, job->target_name)));
	}
	close_target(&self);
}
