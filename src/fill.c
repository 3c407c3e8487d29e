/*
 * fill.c
 *		The way in which a run's rows get into the target.
 *
 * Rows that go into a new heap are neither seen by triggers nor decoded for a
 * subscriber nor checked against foreign keys, and the swap takes the table's
 * owner. Where any of that is called for, the rows go by INSERT or MERGE, as
 * they do when there are rows already.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "access/tableam.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_publication.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "compat.h"
#include "fill.h"
#include "new_heap.h"

/* a kind of table that cannot change its heap, or not by itself; one with partitions has none to change */
static const char *
kind_obstacle(Relation target, bool in_new_heap)
{
	bool		is_partitioned = target->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;

	if (is_partitioned && in_new_heap)
		return "the target is partitioned";
	if (target->rd_rel->relispartition)
		return "the target is a partition";
	if (has_superclass(RelationGetRelid(target)))
		return "the target inherits from another table";
	if (!is_partitioned && find_inheritance_children(RelationGetRelid(target), NoLock) != NIL)
		return "other tables inherit from the target";
	if (target->rd_rel->relhasrules)
		return "the target has rules";
	if (!is_partitioned && target->rd_rel->relam != HEAP_TABLE_AM_OID)
		return "the target has another access method than heap";
	return NULL;
}

/* what wants to see each row as it comes, or the statement that brings them */
static const char *
trigger_obstacle(Relation rel, const char *name, bool by_statement)
{
	TriggerDesc *triggers = rel->trigdesc;
	bool		found = false;

	for (int i = 0; triggers && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (!by_statement && !TRIGGER_FOR_ROW(trigger->tgtype))
			continue;
		if (RI_FKey_trigger_type(trigger->tgfoid) == RI_TRIGGER_NONE)
			return psprintf("%s has triggers", name);
		found = true;
	}
	return found ? psprintf("%s has foreign keys, or is referred to by one", name) : NULL;
}

static const char *
decoding_obstacle(Relation target)
{
	PublicationDesc published;

	RelationBuildPublicationDesc(target, &published);
	if (published.pubactions.pubinsert || published.pubactions.pubupdate ||
		published.pubactions.pubdelete || published.pubactions.pubtruncate)
		return "the target is published";
	/* pgoutput decodes what is published; others may decode everything, where there is what to decode */
	if (!XLogLogicalInfoActive())
		return NULL;
	if (catalog_query("SELECT true FROM pg_replication_slots WHERE slot_type = 'logical'"
					  " AND database = current_database() AND plugin <> 'pgoutput'", 0, NULL)->nrows > 0)
		return "a logical replication slot of this database may decode the target";
	return NULL;
}

/*
 * Indexes that would be built otherwise than they are kept. One that is not valid
 * is made so by a new heap, and where rows are added gets them as from an INSERT.
 */
static const char *
index_obstacle(Relation target, bool in_new_heap)
{
	List	   *indexes = RelationGetIndexList(target);
	const char *obstacle = NULL;
	ListCell   *lc;

	foreach(lc, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(lc)));
		Form_pg_index form;

		if (!HeapTupleIsValid(tuple))
			continue;
		form = (Form_pg_index) GETSTRUCT(tuple);
		if (in_new_heap && (!form->indisvalid || !form->indisready))
			obstacle = psprintf("index \"%s\" is not valid", get_rel_name(form->indexrelid));
		else if (!form->indimmediate)
			obstacle = psprintf("constraint \"%s\" is deferrable", get_rel_name(form->indexrelid));
		ReleaseSysCache(tuple);
	}
	return obstacle;
}

/* a default that may look at the rows that came before */
static const char *
default_obstacle(Relation target, const Shape *shape)
{
	TupleDesc	desc = RelationGetDescr(target);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Node	   *value;

		if (att->attisdropped || att->attgenerated || shape_loads(shape, att->attnum))
			continue;
		value = build_column_default(target, att->attnum);
		if (value && contain_volatile_functions_not_nextval((Node *) expression_planner((Expr *) value)))
			return psprintf("the default of column \"%s\" is volatile", NameStr(att->attname));
	}
	return NULL;
}

/* the swap takes the table's owner */
static const char *
owner_obstacle(Relation target)
{
	if (!compat_table_ownercheck(RelationGetRelid(target), GetUserId()))
		return psprintf("role \"%s\" does not own the target", GetUserNameFromId(GetUserId(), false));
	return NULL;
}

/* what keeps rows from a new heap, or, without one, from being put in otherwise than by INSERT */
static const char *
find_obstacle(const Job *job, const Shape *shape, bool in_new_heap)
{
	Relation	target = table_open(job->target, AccessShareLock);
	const char *obstacle = kind_obstacle(target, in_new_heap);

	/* all rows go in, and what is wrong with one comes out in an index */
	if (obstacle == NULL && job->options->reject_limit > 0)
		obstacle = "rows that the target refuses are put aside, as the option \"reject_limit\" asks for";
	if (obstacle == NULL && in_new_heap)
		obstacle = owner_obstacle(target);
	if (obstacle == NULL && check_enable_rls(job->target, InvalidOid, true) == RLS_ENABLED)
		obstacle = "the target has row security";
	/* before triggers: a deferrable constraint has one */
	if (obstacle == NULL)
		obstacle = index_obstacle(target, in_new_heap);
	if (obstacle == NULL)
		obstacle = trigger_obstacle(target, "the target", true);
	if (obstacle == NULL && in_new_heap)
		obstacle = decoding_obstacle(target);
	if (obstacle == NULL)
		obstacle = default_obstacle(target, shape);
	table_close(target, AccessShareLock);
	return obstacle;
}

const char *
fill_obstacle(const Job *job, const Shape *shape)
{
	return find_obstacle(job, shape, true);
}

const char *
fill_straight_obstacle(const Job *job, const Shape *shape)
{
	return find_obstacle(job, shape, false);
}

/*
 * Who inserts through the parent meets the parent's rules, row security and
 * defaults, and of a partition's triggers those for each row.
 */
const char *
fill_partition_obstacle(Relation partition)
{
	const char *name = psprintf("partition \"%s\" of the target", RelationGetRelationName(partition));
	const char *obstacle;

	if (partition->rd_rel->relkind != RELKIND_RELATION)
		return psprintf("%s is a foreign table", name);
	if (partition->rd_rel->relam != HEAP_TABLE_AM_OID)
		return psprintf("%s has another access method than heap", name);
	obstacle = index_obstacle(partition, false);
	return obstacle ? obstacle : trigger_obstacle(partition, name, false);
}

void
fill_require_swap(const Job *job, const Shape *shape)
{
	const char *obstacle = fill_obstacle(job, shape);

	if (obstacle == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("target %s of job \"%s\" cannot be swapped", job->target_name, job->name),
			 errdetail("The reason: %s.", obstacle),
			 errhint("Set the option \"full_refresh_mode\" to %s.",
					 job->key != NIL ? "\"merge\" or \"truncate\"" : "\"truncate\"")));
}

/* of a table that is none of heap's nobody asks, and none but its owner is told */
static bool
has_rows(const Job *job)
{
	Relation	target = table_open(job->target, AccessShareLock);
	bool		result = target->rd_rel->relkind == RELKIND_RELATION &&
		target->rd_rel->relam == HEAP_TABLE_AM_OID &&
		compat_table_ownercheck(job->target, GetUserId()) && !new_heap_target_is_empty(target);

	table_close(target, AccessShareLock);
	return result;
}

/* what keeps an empty target from being filled at once */
static const char *
first_load_obstacle(const Job *job, const Shape *shape)
{
	const char *obstacle = fill_obstacle(job, shape);
	Relation	target;

	if (obstacle != NULL)
		return obstacle;
	if (shape->nkeys > 0 && !shape->key_is_unique)
		return "nothing tells that the source has each key once";
	target = table_open(job->target, AccessShareLock);
	if (new_heap_target_in_use(target))
		obstacle = "this session uses the target";
	table_close(target, AccessShareLock);
	return obstacle;
}

/* may this run fill an empty target at once? */
static bool
may_be_first_load(const Job *job, const Shape *shape, const Checkpoint *checkpoint,
				  bool is_full, bool in_batches)
{
	FirstLoad	wanted = job_first_load(job, in_batches);
	bool		was_loaded = checkpoint->loaded_to != NULL ||
		(shape->by_xmin && checkpoint->mark != 0);

	return wanted == FIRST_LOAD_DIRECT && (is_full || !was_loaded);
}

Fill
fill_foresee(const Job *job, const Shape *shape, const Checkpoint *checkpoint,
			 bool is_full, bool in_batches)
{
	Fill		fill = {FILL_APPLY, NULL};

	if (is_full && job_full_refresh_mode(job) == FULL_REFRESH_SWAP)
	{
		fill.way = FILL_SWAP;
		fill.obstacle = fill_obstacle(job, shape);
	}
	else if (may_be_first_load(job, shape, checkpoint, is_full, in_batches))
	{
		/* a refresh finds rows as a rule; a first load should not */
		if (!has_rows(job))
			fill.obstacle = first_load_obstacle(job, shape);
		else if (!is_full)
			fill.obstacle = "the target has rows";
		else
			return fill;
		fill.way = fill.obstacle ? FILL_APPLY : FILL_FIRST_LOAD;
	}
	return fill;
}

Fill
fill_choose(const Job *job, const Shape *shape, const Checkpoint *checkpoint,
			bool is_full, bool in_batches)
{
	Fill		fill = fill_foresee(job, shape, checkpoint, is_full, in_batches);

	if (fill.way == FILL_SWAP)
		fill_require_swap(job, shape);
	if (fill.way != FILL_FIRST_LOAD)
		return fill;
	if (!ConditionalLockRelationOid(job->target, NEW_HEAP_LOCK))
	{
		fill.way = FILL_APPLY;
		fill.obstacle = "others write to the target";
		return fill;
	}
	/* once more, now that nobody else can write */
	fill = fill_foresee(job, shape, checkpoint, is_full, in_batches);
	if (fill.way != FILL_FIRST_LOAD)
		UnlockRelationOid(job->target, NEW_HEAP_LOCK);
	return fill;
}
