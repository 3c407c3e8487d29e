/*
 * merge.c
 *		The text of every statement that changes a target.
 *
 * A row of the target is updated only where its image differs from the one
 * that was read: "*<>" compares the bytes of two records, so that 1.0 and 1.00
 * differ, and types without equality (json, xml) can be compared at all.
 */
#include "postgres.h"

#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "access/htup_details.h"
#include "commands/trigger.h"
#include "storage/lockdefs.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "ahead.h"
#include "attempt.h"
#include "compat.h"
#include "deletes.h"
#include "execute.h"
#include "merge.h"
#include "names.h"
#include "plan.h"
#include "role.h"
#include "reject.h"
#include "sift.h"

ApplyMode
merge_mode(const Job *job, const Shape *shape)
{
	if (shape->nkeys == 0)
		return APPLY_INSERT;
	return job->strategy == STRATEGY_APPEND ? APPLY_INSERT_NEW : APPLY_MERGE;
}

/* "a.x, a.y, …" of the columns wanted */
static char *
column_list(const Shape *shape, const char *alias, bool only_settable)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < shape->ncolumns; i++)
	{
		if (only_settable && !shape->columns[i].is_settable)
			continue;
		appendStringInfo(&buf, "%s%s%s", buf.len ? ", " : "", alias,
						 quote_identifier(shape->columns[i].name));
	}
	return buf.data;
}

char *
merge_key_condition(const Shape *shape, const char *left, const char *right)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < shape->nkeys; i++)
	{
		LoadColumn *column = &shape->columns[shape->key[i]];
		const char *name = quote_identifier(column->name);
		Oid			equality = lookup_type_cache(column->type, TYPECACHE_EQ_OPR)->eq_opr;

		appendStringInfo(&buf, "%s%s.%s %s %s.%s", i ? " AND " : "", left, name,
						 operator_qualified_name(equality), right, name);
	}
	return buf.data;
}

/* "ROW(left…)::record <operator> ROW(right…)::record" */
static char *
compare_images(const char *left, const char *operator, const char *right)
{
	return psprintf("ROW(%s)::pg_catalog.record OPERATOR(pg_catalog.%s) ROW(%s)::pg_catalog.record",
					left, operator, right);
}

/*
 * What is true of most rows that have changed and of no other, or NULL: values
 * that are unequal have other images. It spares those rows two records.
 */
static char *
watermark_differs(const Shape *shape, const char *left, const char *right)
{
	const LoadColumn *column;
	const char *name;
	Oid			unequal;

	if (shape->watermark_position < 0 || shape->watermark_position >= shape->ncolumns)
		return NULL;
	column = &shape->columns[shape->watermark_position];
	unequal = get_negator(lookup_type_cache(column->type, TYPECACHE_EQ_OPR)->eq_opr);
	if (!column->is_settable || !OidIsValid(unequal))
		return NULL;
	name = quote_identifier(column->name);
	return psprintf("%s.%s %s %s.%s", left, name, operator_qualified_name(unequal), right, name);
}

char *
merge_update_condition(const Job *job, const Shape *shape, const char *left, const char *right)
{
	char	   *l = column_list(shape, psprintf("%s.", left), true);
	char	   *r = column_list(shape, psprintf("%s.", right), true);
	char	   *early;
	const char *w;

	if (l[0] == '\0')
		return NULL;
	if (!job->options->only_newer)
	{
		early = watermark_differs(shape, left, right);
		return early ? psprintf("(%s OR %s)", early, compare_images(l, "*<>", r))
			: compare_images(l, "*<>", r);
	}
	/* of two versions with one watermark the greater image wins, in whatever order they come */
	w = quote_identifier(shape->columns[shape->watermark_position].name);
	return psprintf("(%s.%s OPERATOR(pg_catalog.>) %s.%s OR (%s.%s IS NULL AND %s.%s IS NOT NULL)"
					" OR (%s.%s IS NOT DISTINCT FROM %s.%s AND %s))",
					right, w, left, w, left, w, right, w, left, w, right, w,
					compare_images(r, "*>", l));
}

/* the staged rows that are not marked as deleted, as an item of FROM; in the order of their key where wanted */
static char *
live_rows(const Shape *shape, bool ordered)
{
	char	   *where = shape->deleted_expression
		? psprintf(" WHERE NOT s.%s", quote_identifier(shape->deleted_name)) : "";

	if (!ordered && where[0] == '\0')
		return STAGE_NAME;
	return psprintf("(SELECT * FROM " STAGE_NAME " AS s%s%s%s)", where,
					ordered ? " ORDER BY " : "", ordered ? plan_key_order(shape, "s.") : "");
}

char *
merge_apply_statement(const Job *job, const Shape *shape, ApplyMode mode, PlanLead lead)
{
	char	   *target = relation_qualified_name(job->target);
	const char *stage = live_rows(shape, mode != APPLY_INSERT && lead == LEAD_PROBE);
	StringInfoData buf;
	char	   *differs;

	initStringInfo(&buf);
	if (mode == APPLY_INSERT)
	{
		appendStringInfo(&buf, "INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s AS s",
						 target, column_list(shape, "", false), column_list(shape, "s.", false), stage);
		return buf.data;
	}

	appendStringInfo(&buf, "MERGE INTO %s AS t USING %s AS s ON %s",
					 target, stage, merge_key_condition(shape, "t", "s"));
	differs = merge_update_condition(job, shape, "t", "s");
	if (mode == APPLY_MERGE && differs != NULL)
	{
		appendStringInfo(&buf, " WHEN MATCHED AND %s THEN UPDATE SET ", differs);
		for (int i = 0, n = 0; i < shape->ncolumns; i++)
		{
			const char *name = quote_identifier(shape->columns[i].name);

			if (shape->columns[i].is_settable)
				appendStringInfo(&buf, "%s%s = s.%s", n++ ? ", " : "", name, name);
		}
	}
	appendStringInfo(&buf, " WHEN NOT MATCHED THEN INSERT (%s) OVERRIDING SYSTEM VALUE VALUES (%s)",
					 column_list(shape, "", false), column_list(shape, "s.", false));
	return buf.data;
}

ApplyPlan
merge_plan(const Job *job, const Shape *shape, ApplyMode mode, double staged, bool is_guess,
		   QueryEnvironment *environment)
{
	ApplyPlan	none = {.lead = LEAD_NONE, .staged = staged};

	if (mode == APPLY_INSERT)
		return none;
	return plan_choose(job, shape, staged, is_guess,
					   plan_key_order(shape, "") ? merge_apply_statement(job, shape, mode, LEAD_PROBE) : NULL,
					   environment);
}

char *
merge_fill_statement(const Job *job, const Shape *shape)
{
	return psprintf("COPY %s (%s) FROM STDIN", relation_qualified_name(job->target),
					column_list(shape, "", false));
}

char *
merge_prune_statement(const Job *job, const Shape *shape)
{
	return psprintf("DELETE FROM %s AS t WHERE NOT EXISTS (SELECT FROM " STAGE_NAME " AS s WHERE %s)",
					relation_qualified_name(job->target), merge_key_condition(shape, "t", "s"));
}

/* counts staged rows that the target has with another image */
static char *
differing_statement(const Job *job, const Shape *shape)
{
	return psprintf("SELECT FROM %s AS s JOIN %s AS t ON %s WHERE %s", live_rows(shape, false),
					relation_qualified_name(job->target), merge_key_condition(shape, "t", "s"),
					merge_update_condition(job, shape, "t", "s"));
}

bool
merge_may_suppress(Oid target, bool deletes)
{
	List	   *tables = find_all_inheritors(target, AccessShareLock, NULL);
	bool		found = false;
	ListCell   *lc;

	foreach(lc, tables)
	{
		/* the first of them, the target itself, is not locked by now */
		Relation	rel = table_open(lfirst_oid(lc), AccessShareLock);

		if (rel->trigdesc && (deletes ? rel->trigdesc->trig_delete_before_row
							  : rel->trigdesc->trig_update_before_row))
			found = true;
		table_close(rel, NoLock);
	}
	return found;
}

/*
 * Can two rows that exchange a value run into a unique index on the way? They
 * can where there is one besides the key's.
 */
static bool
has_other_unique(const Job *job)
{
	Relation	rel = table_open(job->target, AccessShareLock);
	List	   *indexes = RelationGetIndexList(rel);
	int			unique = 0;
	ListCell   *lc;

	foreach(lc, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(lc)));

		if (HeapTupleIsValid(tuple))
		{
			if (((Form_pg_index) GETSTRUCT(tuple))->indisunique &&
				((Form_pg_index) GETSTRUCT(tuple))->indimmediate)
				unique++;
			ReleaseSysCache(tuple);
		}
	}
	table_close(rel, AccessShareLock);
	return unique > 1;
}

/*
 * May a changed row be deleted and inserted anew? Not where a foreign key
 * would take other rows along, where the target has columns, triggers or row
 * security of its own, or where the owner may not delete.
 */
static bool
may_replace_rows(const Job *job, const Shape *shape)
{
	Relation	rel = table_open(job->target, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	bool		result = true;

	for (int i = 0; i < desc->natts && result; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		bool		is_loaded = att->attisdropped || att->attgenerated;

		for (int c = 0; c < shape->ncolumns && !is_loaded; c++)
			is_loaded = shape->columns[c].attnum == att->attnum;
		result = is_loaded;
	}
	/* a table that is referred to has triggers for it; others may keep a row from coming back */
	if (rel->trigdesc)
		for (int i = 0; i < rel->trigdesc->numtriggers && result; i++)
			result = RI_FKey_trigger_type(rel->trigdesc->triggers[i].tgfoid) == RI_TRIGGER_FK;
	if (rel->rd_rel->relrowsecurity)
		result = false;
	table_close(rel, AccessShareLock);
	return result && pg_class_aclcheck(job->target, GetUserId(), ACL_DELETE) == ACLCHECK_OK;
}

/* deletes target rows that are staged with another image */
static char *
delete_differing_statement(const Job *job, const Shape *shape)
{
	return psprintf("DELETE FROM %s AS t USING %s AS s WHERE %s AND %s",
					relation_qualified_name(job->target), live_rows(shape, false), merge_key_condition(shape, "t", "s"),
					merge_update_condition(job, shape, "t", "s"));
}

/* MergeWork: a MERGE, and what it did */
typedef struct MergeWork
{
	const char *sql;
	PlanLead	lead;
	QueryEnvironment *environment;
	ExecuteCounts done;
} MergeWork;

static void
work_merge(void *arg)
{
	MergeWork  *work = arg;

	work->done = execute_led(work->sql, work->lead, work->environment, NULL);
}

/*
 * Runs the MERGE, or, where rows exchange unique values among themselves, what
 * comes to the same: the rows that differ are deleted, and all of them inserted.
 */
static ExecuteCounts
merge_or_replace(const Job *job, const Shape *shape, ApplyMode mode, PlanLead lead,
				 QueryEnvironment *environment)
{
	MergeWork	work = {merge_apply_statement(job, shape, mode, lead), lead, environment};
	ErrorData  *error;
	uint64		deleted;

	if (mode != APPLY_MERGE || !has_other_unique(job) || !may_replace_rows(job, shape))
	{
		work_merge(&work);
		return work.done;
	}
	error = attempt(work_merge, &work);
	if (error == NULL)
		return work.done;
	if (error->sqlerrcode != ERRCODE_UNIQUE_VIOLATION)
		ReThrowError(error);
	deleted = execute_led(delete_differing_statement(job, shape), lead, environment, NULL).processed;
	work.sql = merge_apply_statement(job, shape, APPLY_INSERT_NEW, lead);
	work_merge(&work);
	work.done.merge_inserted -= deleted;
	work.done.merge_updated = deleted;
	return work.done;
}

/* each row that is staged has written one row at most */
static void
require_unique(const Job *job, int64 staged, uint64 written)
{
	if ((int64) written > staged)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("the key of job \"%s\" is not unique in target %s", job->name, job->target_name),
				 errdetail(INT64_FORMAT " rows were read, and " UINT64_FORMAT " rows of the target have their keys.",
						   staged, written),
				 errhint("Remove the duplicates, and create a unique index on the key.")));
}

/*
 * The executor counts an insert that a trigger refused as an action taken, and
 * not as a row written; of an update that was refused it counts nothing. So
 * where a trigger may refuse updates, what differs is counted beforehand.
 */
static void
run_merge(const Job *job, const Shape *shape, Stage *stage, ApplyMode mode, ApplyCounts *counts)
{
	QueryEnvironment *environment = stage_environment(stage);
	ApplyPlan	plan = merge_plan(job, shape, mode, stage->nrows, false, environment);
	PlanLead	lead = plan.lead;
	int64		live = stage->nrows - stage->nmarked;
	int64		differing = -1;
	int64		inserted;
	int64		suppressed;
	ExecuteCounts done;

	ahead_look(job, shape, &plan, live_rows(shape, false), live, environment);
	if (mode == APPLY_MERGE && merge_update_condition(job, shape, "t", "s") != NULL &&
		merge_may_suppress(job->target, false))
		differing = execute_led(differing_statement(job, shape), lead, environment, NULL).processed;
	done = merge_or_replace(job, shape, mode, lead, environment);

	require_unique(job, live, done.processed);
	inserted = done.processed - done.merge_updated;
	suppressed = done.merge_inserted - inserted;
	if (differing >= 0)
		suppressed += Max(differing - (int64) done.merge_updated, 0);
	counts->inserted += inserted;
	counts->updated += done.merge_updated;
	counts->suppressed += suppressed;
	counts->unchanged += live - inserted - done.merge_updated - suppressed;
}

/* the staged rows that are marked as deleted, as an item of FROM */
static char *
marked_rows(const Shape *shape, bool ordered)
{
	return psprintf("(SELECT * FROM " STAGE_NAME " AS s%s%s%s%s)",
					shape->deleted_expression ? " WHERE s." : "",
					shape->deleted_expression ? quote_identifier(shape->deleted_name) : "",
					ordered ? " ORDER BY " : "", ordered ? plan_key_order(shape, "s.") : "");
}

/* the rows of the target that are to go, after FROM or USING: joined to what is staged */
static char *
doomed_rows(const Job *job, const Shape *shape, const char *scope, bool of_delete, PlanLead lead)
{
	StringInfoData buf;

	initStringInfo(&buf);
	if (of_delete)
		appendStringInfo(&buf, "%s AS t USING ", relation_qualified_name(job->target));
	appendStringInfo(&buf, "%s AS s%s%s WHERE %s%s%s", marked_rows(shape, lead == LEAD_PROBE),
					 of_delete ? "" : ", ", of_delete ? "" : psprintf("%s AS t", relation_qualified_name(job->target)),
					 merge_key_condition(shape, "t", "s"), scope ? " AND " : "", scope ? scope : "");
	return buf.data;
}

char *
merge_delete_statement(const Job *job, const Shape *shape, const char *scope, PlanLead lead)
{
	return psprintf("DELETE FROM %s", doomed_rows(job, shape, scope, true, lead));
}

ApplyPlan
merge_delete_plan(const Job *job, const Shape *shape, const char *scope, double staged,
				  bool is_guess, QueryEnvironment *environment)
{
	return plan_choose(job, shape, staged, is_guess,
					   plan_key_order(shape, "") ? merge_delete_statement(job, shape, scope, LEAD_PROBE) : NULL,
					   environment);
}

/* may a row be told to go and stay? By a trigger, or as a policy lets it be seen and not deleted. */
static bool
may_suppress_deletes(const Job *job)
{
	Relation	rel = table_open(job->target, AccessShareLock);
	bool		has_policies = rel->rd_rel->relrowsecurity;

	table_close(rel, AccessShareLock);
	return has_policies || merge_may_suppress(job->target, true);
}

void
merge_delete(const Job *job, const Shape *shape, Stage *stage, const char *scope, int64 marked,
			 ApplyCounts *counts)
{
	QueryEnvironment *environment = stage_environment(stage);
	ApplyPlan	plan;
	PlanLead	lead;
	int64		found = 0;
	int64		deleted;
	int64		suppressed;
	int			level = NewGUCNestLevel();

	/* the filter's texts mean here what they mean there */
	if (scope && shape->zone)
		role_set("TimeZone", shape->zone);
	plan = merge_delete_plan(job, shape, scope, marked, false, environment);
	lead = plan.lead;
	ahead_look(job, shape, &plan, marked_rows(shape, false), marked, environment);
	if (may_suppress_deletes(job))
		found = execute_led(psprintf("SELECT FROM %s", doomed_rows(job, shape, scope, false, lead)),
							lead, environment, NULL).processed;
	deleted = execute_led(merge_delete_statement(job, shape, scope, lead), lead, environment, NULL).processed;
	AtEOXact_GUC(false, level);
	require_unique(job, marked, Max(found, deleted));
	suppressed = Max(found - deleted, 0);
	counts->deleted += deleted;
	counts->suppressed += suppressed;
	/* those that the target does not have */
	counts->unchanged += marked - deleted - suppressed;
}

/* ApplyWork: how staged rows are applied, in one piece or in several */
typedef struct ApplyWork
{
	const Job  *job;
	const Shape *shape;
	ApplyMode	mode;
	ApplyCounts *counts;
} ApplyWork;

static void
apply_rows(Stage *stage, void *arg)
{
	ApplyWork  *work = arg;
	ApplyCounts counts = *work->counts;

	if (work->mode == APPLY_INSERT)
	{
		ExecuteCounts done = execute_statement(merge_apply_statement(work->job, work->shape, work->mode, LEAD_NONE),
											   stage_environment(stage), NULL);

		counts.inserted += done.processed;
		counts.suppressed += stage->nrows - stage->nmarked - done.processed;
	}
	else
		run_merge(work->job, work->shape, stage, work->mode, &counts);
	/* an error may be caught, and the rows be applied otherwise */
	*work->counts = counts;
}

/* where rows may be put aside, those that are marked as deleted are not among them: they are dealt with by now */
static void
sift_live(Stage *stage, ApplyWork *work)
{
	Stage		live = *stage;

	if (stage->nmarked == 0)
	{
		sift(stage, apply_rows, work);
		return;
	}
	live.rows = NULL;
	live.nmarked = 0;
	stage_fill(&live, psprintf("SELECT * FROM " STAGE_NAME " AS s WHERE NOT s.%s", quote_identifier(stage->shape->deleted_name)),
			   stage_environment(stage));
	sift(&live, apply_rows, work);
	stage_end_batch(&live);
}

void
merge_apply(const Job *job, const Shape *shape, Stage *stage, ApplyMode mode,
			bool prune, ApplyCounts *counts)
{
	ApplyWork	work = {job, shape, mode, counts};

	stage_reduce(stage);
	counts->superseded += stage->nsuperseded;
	if (prune)
	{
		Stage	   *kept = rejects_with_keys(stage->rejects, stage);

		counts->pruned += execute_statement(merge_prune_statement(job, shape),
											stage_environment(kept), NULL).processed;
		if (kept != stage)
			stage_end_batch(kept);
	}
	/* first, so that what they have can be taken by others of the same batch: a unique name */
	if (stage->nmarked > 0)
		merge_delete(job, shape, stage, deletes_scope(job, shape), stage->nmarked, counts);
	if (stage->nrows == stage->nmarked)
		return;
	if (stage->rejects)
		sift_live(stage, &work);
	else
		apply_rows(stage, &work);
}

int64
merge_count(const Job *job)
{
	return execute_statement(psprintf("SELECT FROM %s", relation_qualified_name(job->target)),
							 NULL, NULL).processed;
}

void
merge_truncate(const Job *job)
{
	char	   *target = relation_qualified_name(job->target);

	SPI_connect();
	if (SPI_execute(psprintf("TRUNCATE %s", target), false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not truncate %s", target);
	SPI_finish();
}
