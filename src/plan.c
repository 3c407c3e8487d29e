/*
 * plan.c
 *		How the rows of the stage find theirs in the target.
 *
 * There are two ways. Probing looks each staged row up in the index of the key:
 * its cost is that of the rows that came. A hash join reads the whole target:
 * its cost is that of the rows that are there. The planner takes each page that
 * is looked up for one that must be fetched from disk, and leaves the probes at
 * a few hundredths of the table. But most of these rows are about to be updated,
 * which fetches the page in any case; and sorted by key, they come to each page
 * once where the table lies in that order. So the choice is made here, by what
 * was measured (bench/README.md), and the planner makes it where this knows no
 * better.
 */
#include "postgres.h"

#include <math.h>

#include "access/table.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_statistic.h"
#include "optimizer/plancat.h"
#include "storage/lockdefs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "names.h"
#include "plan.h"
#include "stage.h"
#include "target.h"

/* probes win up to so many staged rows for each row of the target */
#define PROBE_RATIO 0.2
/* and up to so many where it lies in the order of its key, as this says; more was not measured */
#define PROBE_RATIO_ORDERED 1.0
#define ORDERED_CORRELATION 0.9

/* how far the rows of one table lie in the order of a column, 0 to 1, by ANALYZE */
static double
correlation(Oid table, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(table),
										Int16GetDatum(attnum), BoolGetDatum(false));
	AttStatsSlot slot;
	double		result = 0;

	if (!HeapTupleIsValid(tuple))
		return 0;
	if (get_attstatsslot(&slot, tuple, STATISTIC_KIND_CORRELATION, InvalidOid, ATTSTATSSLOT_NUMBERS))
	{
		if (slot.nnumbers == 1)
			result = fabs(slot.numbers[0]);
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(tuple);
	return result;
}

/*
 * How many rows the target has: the planner's own estimate, over all
 * partitions, by the file's size now, analyzed or not. That size. And whether most
 * of them lie in the order of the key's first column.
 */
static double
estimate_rows(const Job *job, double *size, bool *ordered)
{
	double		rows = 0;
	double		rows_ordered = 0;
	ListCell   *lc;

	*size = 0;
	foreach(lc, find_all_inheritors(job->target, AccessShareLock, NULL))
	{
		/* the first of them, the target itself, is not locked by now */
		Relation	rel = table_open(lfirst_oid(lc), AccessShareLock);
		BlockNumber pages;
		double		tuples;
		double		visible;

		if (RELKIND_HAS_TABLE_AM(rel->rd_rel->relkind))
		{
			estimate_rel_size(rel, NULL, &pages, &tuples, &visible);
			rows += tuples;
			*size += pages;
			rows_ordered += tuples * correlation(RelationGetRelid(rel),
												 get_attnum(RelationGetRelid(rel), linitial(job->key)));
		}
		table_close(rel, NoLock);
	}
	*ordered = rows_ordered >= rows * ORDERED_CORRELATION;
	return rows;
}

static bool
key_is_unique(const Job *job)
{
	Relation	rel = table_open(job->target, AccessShareLock);
	bool		result = target_key_is_unique(rel, job->key);

	table_close(rel, NoLock);
	return result;
}

char *
plan_key_order(const Shape *shape, const char *alias)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < shape->nkeys; i++)
	{
		const LoadColumn *column = &shape->columns[shape->key[i]];

		if (!OidIsValid(lookup_type_cache(column->type, TYPECACHE_LT_OPR)->lt_opr))
			return NULL;
		appendStringInfo(&buf, "%s%s%s", i ? ", " : "", alias, quote_identifier(column->name));
	}
	return buf.data;
}

/* a query for the first or the last of the target's values of the key's first column */
static char *
edge(const Job *job, const Shape *shape, bool is_last)
{
	const char *name = quote_identifier(shape->columns[shape->key[0]].name);

	return psprintf("SELECT t.%s FROM %s AS t WHERE t.%s IS NOT NULL ORDER BY t.%s%s LIMIT 1",
					name, relation_qualified_name(job->target), name, name, is_last ? " DESC" : "");
}

/*
 * How many staged rows have a key between the target's first and last, counted
 * as far as "enough".
 *
 * Rows with keys that all come after those of the target, or before, meet no
 * row of it: to look them up reads one edge of the index again and again. So it
 * is wherever new rows have higher ids.
 */
static double
count_within(const Job *job, const Shape *shape, double enough, QueryEnvironment *environment)
{
	const LoadColumn *column = &shape->columns[shape->key[0]];
	const char *name = quote_identifier(column->name);
	TypeCacheEntry *type = lookup_type_cache(column->type, TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
	char	   *sql = psprintf("SELECT FROM " STAGE_NAME " AS s"
							   " WHERE NOT s.%s %s (%s) AND NOT s.%s %s (%s) LIMIT %.0f",
							   name, operator_qualified_name(type->lt_opr), edge(job, shape, false),
							   name, operator_qualified_name(type->gt_opr), edge(job, shape, true), enough);

	return (double) execute_statement(sql, environment, NULL).processed;
}

ApplyPlan
plan_choose(const Job *job, const Shape *shape, double staged, bool is_guess,
			const char *sql, QueryEnvironment *environment)
{
	ApplyPlan	plan = {.lead = LEAD_NONE, .staged = staged, .within = -1};
	bool		ordered;

	plan.target = estimate_rows(job, &plan.pages, &ordered);
	plan.limit = plan.target * (ordered ? PROBE_RATIO_ORDERED : PROBE_RATIO);
	if (!key_is_unique(job) || sql == NULL)
	{
		plan.reason = REASON_NO_UNIQUE;
		return plan;
	}
	plan.reason = staged > plan.target * PROBE_RATIO ? REASON_ORDER : REASON_FEW;
	if (staged > plan.limit)
	{
		plan.reason = REASON_MANY;
		if (is_guess)
			return plan;
		plan.within = count_within(job, shape, floor(plan.limit) + 1, environment);
		if (plan.within > plan.limit)
			return plan;
		plan.reason = REASON_BEYOND;
	}
	if (execute_can_probe(sql, environment))
		plan.lead = LEAD_PROBE;
	else
		plan.reason = REASON_NO_INDEX;
	return plan;
}

char *
plan_reason(const ApplyPlan *plan)
{
	char	   *rows = psprintf("%.0f staged rows, about %.0f in the target", plan->staged, plan->target);
	double		percent = plan->target > 0 ? plan->limit / plan->target * 100 : 0;
	const char *probes = "probes of the key's index, sorted by key";
	const char *planner = "the planner's choice";

	switch (plan->reason)
	{
		case REASON_FEW:
			return psprintf("%s: %s, at most %.0f%%", probes, rows, percent);
		case REASON_ORDER:
			return psprintf("%s: %s, which lies in the order of its key, at most %.0f%%", probes, rows, percent);
		case REASON_BEYOND:
			return psprintf("%s: %s, and %.0f have a key among theirs", probes, rows, plan->within);
		case REASON_MANY:
			return psprintf("%s: %s, more than %.0f%%%s", planner, rows, percent,
							plan->within < 0 ? ", unless most have a key beyond all of theirs" : "");
		case REASON_NO_UNIQUE:
			return psprintf("%s: the target has no unique index on the key; %s", planner, rows);
		case REASON_NO_INDEX:
			return psprintf("%s: the key's index cannot be used here; %s", planner, rows);
	}
	return NULL;				/* keep compiler quiet */
}
