/*
 * check_deletes.c
 *		The rules of incload_check about rows that are deleted at the source.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "check.h"
#include "compat.h"
#include "tombstone.h"

/* a table of more rows is not looked through for one that tells, unless an index leads to it */
#define FEW_ROWS 1000000

/* of so many rows that are marked, one may tell */
#define LOOKED_AT 1000

static bool
is_time(const Job *job, const char *column)
{
	AttrNumber	attnum = column ? get_attnum(job->source, column) : InvalidAttrNumber;
	Oid			type = attnum == InvalidAttrNumber ? InvalidOid : getBaseType(get_atttype(job->source, attnum));

	return type == DATEOID || type == TIMESTAMPOID || type == TIMESTAMPTZOID;
}

/* is there a row that was marked later than its watermark says that it was changed? */
static bool
has_late_mark(Check *check, SourceColumn *deleted)
{
	const Job  *job = check->job;
	const char *mark = quote_identifier(deleted->name);

	if (!is_time(job, deleted->name) || !is_time(job, job->watermark) ||
		(check->facts->rows > FEW_ROWS && !deleted->leads_index))
		return false;
	/* one clock may be read a little after the other */
	return check->source->routine->ask(check->source, psprintf(
		"SELECT 1 FROM (SELECT %s AS mark, %s AS watermark FROM %s WHERE %s IS NOT NULL LIMIT %d) AS marked"
		" WHERE marked.mark OPERATOR(pg_catalog.>) (marked.watermark OPERATOR(pg_catalog.+) '1 minute'::pg_catalog.interval) LIMIT 1",
		mark, quote_identifier(job->watermark), check->source->routine->from_clause(check->source), mark,
		LOOKED_AT))->nrows > 0;
}

/* a row is seen to be deleted when its watermark moves */
static void
check_soft(Check *check)
{
	const Job  *job = check->job;
	SourceColumn *watermark = facts_column(check->facts, job->watermark);
	SourceColumn *deleted = facts_column(check->facts, job->options->deleted_column);
	bool		stays;

	/* the transaction that marks a row writes it; and of an expression nobody knows */
	if (watermark == NULL || (deleted && strcmp(watermark->name, deleted->name) == 0))
		return;
	stays = check_watermark_stays(check, watermark);
	if (!stays && !(deleted && has_late_mark(check, deleted)))
		return;
	check_add(check, "warning", "watermark_misses_deletes",
			  psprintf("watermark %s %s: a row that is marked as deleted after it was loaded is not read again",
					   job->watermark, stays ? "stays as it is when a row changes"
					   : "does not move with the mark, as there are rows that were marked later than it says"),
			  deleted == NULL || !is_time(job, deleted->name) || !is_time(job, job->watermark) ? NULL
			  : psprintf("SELECT %s.incload_alter_job(%s, watermark => %s);", check->schema, quote_literal_cstr(job->name),
						 quote_literal_cstr(psprintf("(greatest(%s, %s))", quote_identifier(watermark->name),
													 quote_identifier(deleted->name)))));
}

/* does anything at the source's table fire when a row is deleted? */
static bool
has_delete_trigger(Check *check)
{
	return source_ask_catalog(check->source, psprintf(
		"SELECT 1 FROM pg_catalog.pg_trigger t WHERE t.tgrelid = %s::pg_catalog.regclass AND NOT t.tgisinternal"
		" AND t.tgenabled <> 'D' AND t.tgtype & %d <> 0 LIMIT 1",
		quote_literal_cstr(check->source->routine->relation_name(check->source)), TRIGGER_TYPE_DELETE))->nrows > 0;
}

static void
check_tombstones(Check *check)
{
	const Job  *job = check->job;
	Tombstones *tombstones = tombstones_open(job, check->source, check->shape, CurrentMemoryContext);
	SourceFacts *facts = facts_gather(tombstones->source);
	SourceColumn *watermark = facts_column(facts, tombstones->reading->watermark);
	const char *relation = tombstones->source->routine->relation_name(tombstones->source);

	if (facts_takes_index(facts) && watermark && !watermark->leads_index)
		check_add(check, "warning", "tombstones_no_index",
				  psprintf("no index of tombstones %s begins with %s: each run scans all of them; run this at the source",
						   relation, watermark->remote_name),
				  psprintf("CREATE INDEX %sON %s (%s);", facts->kind == RELKIND_PARTITIONED_TABLE ? "" : "CONCURRENTLY ",
						   relation, quote_identifier(watermark->remote_name)));
	if ((check->facts->kind == RELKIND_RELATION || check->facts->kind == RELKIND_PARTITIONED_TABLE) &&
		!has_delete_trigger(check))
		check_add(check, "warning", "tombstones_not_written",
				  psprintf("no trigger of source %s fires when a row is deleted: unless who deletes writes the tombstones, rows stay in the target",
						   check->source->routine->relation_name(check->source)),
				  psprintf("SELECT %s.incload_source_sql(%s);", check->schema, quote_literal_cstr(job->name)));
	source_release(tombstones->source);
}

void
check_deletes(Check *check)
{
	if (check->job->options->deletes == DELETES_SOFT)
		check_soft(check);
	else if (check->job->options->deletes == DELETES_TOMBSTONE)
		check_tombstones(check);
}
