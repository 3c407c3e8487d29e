/*
 * prune.c
 *		The option deletes prune: after a run, rows go whose keys the source no longer has.
 *
 * Checksums of the keys tell in which ranges the two sides differ, and only the
 * keys of those are read. The source is asked after it was read: a key that it
 * has not by then was deleted, and one that comes back comes by its watermark.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "compat.h"
#include "judge.h"
#include "prune.h"
#include "range_sql.h"

void
prune_require_possible(const Job *job, const Shape *shape)
{
	scope_require_known(job, scope_of(job, shape), "a prune");
}

int64
prune_limit(const Job *job, int64 target_rows)
{
	return job->options->max_delete_fraction >= 1 ? -1 : (int64) (job->options->max_delete_fraction * target_rows);
}

void
prune_refuse(const Job *job, int64 most)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("job \"%s\" would delete more rows of target %s than the option \"max_delete_fraction\" allows",
					job->name, job->target_name),
			 errdetail("More than " INT64_FORMAT " rows are no longer at source %s.", most, job->source_name),
			 errhint("See that the source is the right one and whole. If it is: SELECT incload_alter_job(%s, options => '{\"max_delete_fraction\": 1}').",
					 quote_literal_cstr(job->name))));
}

static Ranges *
open_ranges(const Job *job, Source *source, const Shape *shape)
{
	prune_require_possible(job, shape);
	return ranges_open(job, source, shape, scope_of(job, shape), COMPARE_KEYS);
}

void
prune_target(Run *run)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "incload prune", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Judge		judge = {.pending = "false", .only_keys = true, .deletes = true, .order = READ_ANY_ORDER};
	int64		target_rows = 0;
	List	   *all;
	List	   *list;
	ListCell   *lc;

	judge.ranges = open_ranges(run->job, run->source, run->shape);
	all = ranges_cut(judge.ranges);
	list = ranges_differing(judge.ranges, all);
	foreach(lc, all)
		target_rows += ((Range *) lfirst(lc))->target_rows;
	judge.most_deletes = prune_limit(run->job, target_rows);
	run->stop.code = "prune_refused";
	judge_ranges(&judge, ranges_narrowed(judge.ranges, list));
	run->stop.code = NULL;
	ranges_close(judge.ranges);
	run->record->counts.pruned += judge.applied.pruned;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

char *
prune_question(const Job *job, Source *source, const Shape *shape)
{
	Ranges	   *ranges = open_ranges(job, source, shape);
	char	   *sql = range_question(ranges, SIDE_SOURCE, ranges_cut(ranges));

	ranges_close(ranges);
	return sql;
}
