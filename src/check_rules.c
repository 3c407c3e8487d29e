/*
 * check_rules.c
 *		The rules of incload_check, one function each.
 *
 * SQL that is to be run at the source names its relation and columns as they
 * are called there.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "check.h"
#include "compat.h"
#include "fill.h"
#include "names.h"
#include "narrowing.h"
#include "nature.h"
#include "query.h"
#include "target.h"
#include "witness.h"
#include "window.h"

static const char *
source_relation(Check *check)
{
	return check->source->routine->relation_name(check->source);
}

/* "a, b, c", each quoted for SQL where wanted */
static char *
join_names(List *names, bool quoted)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, names)
		appendStringInfo(&buf, "%s%s", buf.len ? ", " : "",
						 quoted ? quote_identifier(lfirst(lc)) : (char *) lfirst(lc));
	return buf.data;
}

/* CREATE INDEX on the source; a partitioned table does not take CONCURRENTLY */
static char *
create_index(Check *check, const char *what)
{
	return psprintf("CREATE INDEX %sON %s (%s);",
					check->facts->kind == RELKIND_PARTITIONED_TABLE ? "" : "CONCURRENTLY ",
					source_relation(check), what);
}

/* an expression's text without what servers write in different ways */
static char *
bare_expression(const char *text)
{
	char	   *bare = palloc(strlen(text) + 1);
	char	   *to = bare;

	for (const char *p = text; *p; p++)
		if (strchr(" \t\r\n()\"", *p) == NULL)
			*to++ = pg_ascii_tolower((unsigned char) *p);
	*to = '\0';
	return bare;
}

/* does an index at the source begin with this expression, as far as its text tells? */
static bool
expression_leads_index(Check *check, const char *expression)
{
	char	   *wanted = bare_expression(expression);
	TextRows   *rows = check->source->routine->ask(check->source, psprintf(
		"SELECT pg_catalog.pg_get_indexdef(i.indexrelid, 1, true) FROM pg_catalog.pg_index i"
		" WHERE i.indrelid OPERATOR(pg_catalog.=) %s::pg_catalog.regclass"
		" AND i.indkey[0] OPERATOR(pg_catalog.=) 0 AND i.indisvalid AND i.indpred IS NULL",
		quote_literal_cstr(source_relation(check))));

	for (int r = 0; r < rows->nrows; r++)
		if (strcmp(bare_expression(rows->value[r][0]), wanted) == 0)
			return true;
	return false;
}

bool
check_watermark_is_indexed(Check *check, const SourceColumn *column)
{
	return column ? column->leads_index : expression_leads_index(check, check->job->watermark);
}

static void
check_watermark_index(Check *check, SourceColumn *column)
{
	const char *watermark = check->job->watermark;

	if (!facts_takes_index(check->facts))
		return;
	if (check_watermark_is_indexed(check, column))
		return;
	check_add(check, "warning", "watermark_no_index",
			  psprintf("no index of source %s begins with watermark %s: each run scans the whole table; run this at the source",
					   source_relation(check), watermark),
			  create_index(check, column ? quote_identifier(column->remote_name) : watermark));
}

static void
check_watermark_null(Check *check, SourceColumn *column)
{
	const char *effect = NULL;
	char		kind = check->facts->kind;
	bool		can_mend = kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE;

	/* of an expression or a view nobody knows; of another kind of server we have been told */
	if (column == NULL || column->not_null || (kind != '\0' && !can_mend))
		return;
	switch (job_null_watermark(check->job))
	{
		case NULL_WATERMARK_SKIP:
			effect = "rows without one are never loaded";
			break;
		case NULL_WATERMARK_ALWAYS:
			effect = "rows without one are read again by every run";
			break;
		default:
			effect = "a row without one fails the run";
			break;
	}
	if (can_mend)
		check_add(check, "warning", "watermark_nullable",
				  psprintf("watermark %s may be NULL: %s; run this at the source",
						   column->name, effect),
				  psprintf("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL;",
						   source_relation(check), quote_identifier(column->remote_name)));
	else
		check_add(check, "info", "watermark_nullable",
				  psprintf("watermark %s is not known to be NOT NULL: %s", column->name, effect),
				  NULL);
}

/* a column of the source that moves with each update, if its name tells */
static const char *
updated_column(Check *check)
{
	const char *relation = get_rel_name(check->job->source);
	ListCell   *lc;

	foreach(lc, check->facts->columns)
	{
		const char *name = ((SourceColumn *) lfirst(lc))->name;
		Oid			type = getBaseType(get_atttype(check->job->source,
												   get_attnum(check->job->source, name)));

		if ((type == TIMESTAMPTZOID || type == TIMESTAMPOID) &&
			watermark_nature(name, relation) == NATURE_UPDATED)
			return name;
	}
	return NULL;
}

bool
check_watermark_stays(Check *check, SourceColumn *column)
{
	List	   *primary_key = facts_primary_key(check->facts);

	if (column && (column->is_counted ||
				   (list_length(primary_key) == 1 &&
					strcmp(linitial(primary_key), column->name) == 0)))
		return true;
	return watermark_nature(check->job->watermark,
							get_rel_name(check->job->source)) == NATURE_CREATED;
}

/* do strategy and watermark go together? */
static void
check_strategy(Check *check, SourceColumn *column)
{
	const Job  *job = check->job;
	const char *name = quote_literal_cstr(job->name);

	if (job->strategy == STRATEGY_UPSERT && check_watermark_stays(check, column))
	{
		const char *better = updated_column(check);

		check_add(check, "warning", "watermark_misses_updates",
				  psprintf("watermark %s stays as it is when a row changes: upsert does not see such changes",
						   job->watermark),
				  better == NULL ? NULL
				  : psprintf("SELECT %s.incload_alter_job(%s, watermark => %s);",
							 check->schema, name, quote_literal_cstr(better)));
	}
	if (job->strategy == STRATEGY_APPEND &&
		nature_sees_updates(watermark_nature(job->watermark, get_rel_name(job->source))))
	{
		if (job->key != NIL)
			check_add(check, "warning", "append_ignores_updates",
					  psprintf("watermark %s moves when a row changes, and append leaves the target's row as it is",
							   job->watermark),
					  psprintf("SELECT %s.incload_alter_job(%s, strategy => 'upsert');",
							   check->schema, name));
		else
			check_add(check, "warning", "append_repeats_updates",
					  psprintf("watermark %s moves when a row changes, and append without a key adds a changed row a second time",
							   job->watermark), NULL);
	}
}

/* an id that is put in by hand must not hide those that its sequence has still to give */
static void
check_sequences(Check *check, SourceColumn *column)
{
	TextRows   *rows;

	if (column == NULL || !column->is_counted)
		return;
	rows = source_ask_catalog(check->source, psprintf(
		"SELECT c.oid::pg_catalog.regclass, pg_catalog.quote_ident(current_user)"
		" FROM (%s) o JOIN pg_catalog.pg_class c ON c.oid = o.oid"
		/* the CASE keeps the right from being asked of what is no sequence */
		" WHERE CASE WHEN c.relkind = 'S' THEN NOT pg_catalog.has_sequence_privilege(c.oid, 'SELECT') END ORDER BY 1",
		facts_sequences_query(check->source, column->name)));
	for (int r = 0; r < rows->nrows; r++)
		check_add(check, "warning", "sequence_unreadable",
				  psprintf("sequence %s of %s cannot be read: an id above it would hide all that come after; run this at the source",
						   rows->value[r][0], column->name),
				  psprintf("GRANT SELECT ON SEQUENCE %s TO %s;", rows->value[r][0], rows->value[r][1]));
}

void
check_watermark(Check *check)
{
	const Job  *job = check->job;
	SourceColumn *column;

	if (job->strategy == STRATEGY_FULL || job->watermark == NULL)
		return;
	column = facts_column(check->facts, job->watermark);
	/* neither a column that both sides have nor an expression: the shape says so */
	if (column == NULL && job->watermark[0] != '(')
		return;
	check_watermark_index(check, column);
	check_watermark_null(check, column);
	check_sequences(check, column);
	if (job->options->watermark_fallback)
		check_sequences(check, facts_column(check->facts, job->options->watermark_fallback));
	check_strategy(check, column);
}

static bool
is_transformed(const Job *job, const char *name)
{
	ListCell   *lc;

	foreach(lc, job->options->transforms)
		if (strcmp(((Transform *) lfirst(lc))->column, name) == 0)
			return true;
	return false;
}

void
check_source_key(Check *check)
{
	const Job  *job = check->job;
	char		kind = check->facts->kind;
	StringInfoData mend;
	List	   *nullable = NIL;
	ListCell   *lc;

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		return;
	initStringInfo(&mend);
	appendStringInfo(&mend, "ALTER TABLE %s", source_relation(check));
	foreach(lc, job->key)
	{
		SourceColumn *column = facts_column(check->facts, lfirst(lc));

		if (column == NULL || column->not_null || is_transformed(job, column->name))
			continue;
		appendStringInfo(&mend, "%s ALTER COLUMN %s SET NOT NULL", nullable ? "," : "",
						 quote_identifier(column->remote_name));
		nullable = lappend(nullable, column->name);
	}
	if (nullable != NIL)
		check_add(check, "warning", "key_nullable",
				  psprintf("key column %s may be NULL in source %s: a row without it fails the run; run this at the source",
						   join_names(nullable, false), source_relation(check)),
				  psprintf("%s;", mend.data));
}

/* the key's columns that may be NULL in the target */
static List *
nullable_in_target(Relation target, List *key)
{
	TupleDesc	desc = RelationGetDescr(target);
	List	   *nullable = NIL;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && !att->attnotnull && name_in_list(key, NameStr(att->attname)))
			nullable = lappend(nullable, pstrdup(NameStr(att->attname)));
	}
	return nullable;
}

void
check_target_key(Check *check)
{
	const Job  *job = check->job;
	Relation	target;
	List	   *nullable;

	if (job->key == NIL ||
		(job->strategy == STRATEGY_FULL && job_full_refresh_mode(job) != FULL_REFRESH_MERGE))
		return;
	target = table_open(job->target, AccessShareLock);
	if (!target_key_is_unique(target, job->key))
		check_add(check, "warning", "target_key_not_unique",
				  psprintf("target %s has no unique index on the key (%s): nothing keeps it from having a key twice, and each batch scans the whole table",
						   job->target_name, join_names(job->key, false)),
				  psprintf("CREATE UNIQUE INDEX %sON %s (%s);",
						   target->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ? "" : "CONCURRENTLY ",
						   job->target_name, join_names(job->key, true)));
	nullable = nullable_in_target(target, job->key);
	if (nullable != NIL)
	{
		StringInfoData mend;
		ListCell   *lc;

		initStringInfo(&mend);
		foreach(lc, nullable)
			appendStringInfo(&mend, "%s ALTER COLUMN %s SET NOT NULL", mend.len ? "," : "",
							 quote_identifier(lfirst(lc)));
		check_add(check, "warning", "key_nullable",
				  psprintf("key column %s may be NULL in target %s: rows without it are never found again",
						   join_names(nullable, false), job->target_name),
				  psprintf("ALTER TABLE %s%s;", job->target_name, mend.data));
	}
	table_close(target, AccessShareLock);
}

void
check_swap(Check *check)
{
	const Job  *job = check->job;
	const char *obstacle;

	if (job_full_refresh_mode(job) != FULL_REFRESH_SWAP)
		return;
	obstacle = fill_obstacle(job, check->shape);
	if (obstacle == NULL)
		return;
	check_add(check, job->strategy == STRATEGY_FULL ? "error" : "warning", "swap_impossible",
			  psprintf("a full refresh will fail: target %s cannot be swapped: %s", job->target_name, obstacle),
			  psprintf("SELECT %s.incload_alter_job(%s, options => '{\"full_refresh_mode\": \"%s\"}');",
					   check->schema, quote_literal_cstr(job->name), job->key != NIL ? "merge" : "truncate"));
}

void
check_types(Check *check)
{
	bool		by_cast = !check->source->routine->outlives_commit;

	for (int i = 0; i < check->shape->ncolumns; i++)
	{
		const LoadColumn *column = &check->shape->columns[i];
		char	   *from;
		char	   *loss;

		if (!OidIsValid(column->source_type))
			continue;
		loss = type_narrowing(column->source_type, column->source_typmod,
							  column->type, column->typmod, by_cast);
		if (loss == NULL)
			continue;
		from = format_type_with_typemod(column->source_type, column->source_typmod);
		check_add(check, "warning", "type_loses_digits",
				  psprintf("column %s is %s at the source and %s in the target: %s",
						   column->name, from,
						   format_type_with_typemod(column->type, column->typmod), loss),
				  psprintf("ALTER TABLE %s ALTER COLUMN %s TYPE %s;", check->job->target_name,
						   quote_identifier(column->name), from));
	}
}

/* "now, is_due": of the functions that a filter calls, those whose answer for a row may change by themselves */
static char *
changing_functions(Check *check, List *functions)
{
	StringInfoData names;
	TextRows   *rows;
	ListCell   *lc;

	if (functions == NIL || !(check->source->is_postgres || check->source->is_local))
		return NULL;
	initStringInfo(&names);
	foreach(lc, functions)
		appendStringInfo(&names, "%s%s", names.len ? ", " : "", quote_literal_cstr(lfirst(lc)));
	/* most built-in ones that are stable depend on settings, and so on the row alone; these read the clock */
	rows = source_ask_catalog(check->source, psprintf(
		"SELECT pg_catalog.string_agg(DISTINCT p.proname, ', ' ORDER BY p.proname) FROM pg_catalog.pg_proc p"
		" WHERE p.proname IN (%s) AND (p.provolatile = 'v' OR (p.provolatile = 's' AND p.oid >= %u)"
		"  OR p.proname IN ('now', 'transaction_timestamp', 'statement_timestamp'))",
		names.data, FirstNormalObjectId));
	return rows->value[0][0];
}

/* a row that comes to match the filter by itself does not become new by it */
static void
check_filter(Check *check)
{
	const Job  *job = check->job;
	const char *by = NULL;
	Influences	influences;
	char	   *functions;

	if (job->options->filter == NULL || job->strategy == STRATEGY_FULL)
		return;
	influences = expression_influences(job->options->filter);
	functions = changing_functions(check, influences.functions);
	if (influences.by_moment)
		by = "on when it is asked";
	else if (influences.by_table)
		by = "on other rows";
	else if (functions)
		by = psprintf("on %s()", functions);
	if (by)
		check_add(check, "warning", "filter_changes",
				  psprintf("the filter depends %s: a row that comes to match it and is not itself changed is not loaded: filter by the row alone, and leave the rest to who reads the target",
						   by), NULL);
}

/* of ids that come from several sequences, those of one hide those of another */
static void
check_view_number(Check *check)
{
	const Shape *shape = check->shape;

	if (shape->watermark == NULL || shape->watermark->kind != WATERMARK_NUMBER ||
		!witness_possible(check->source) || !witness_state(check->source, true)->is_mixed)
		return;
	check_add(check, "warning", "several_sequences",
			  psprintf("source %s puts rows of tables together that have a sequence each: a new %s of one that is below those of another is not loaded: track a time, or load each table by a job of its own",
					   source_relation(check), check->job->watermark), NULL);
}

/* the condition that a plan applies to rows a wrapper has fetched; NULL for none */
static char *
filter_above_wrapper(char *plan)
{
	bool		in_foreign_scan = false;
	char	   *rest = NULL;

	for (char *line = strtok_r(plan, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
	{
		char	   *text = line + strspn(line, " ");

		if (line == plan || strncmp(text, "->", 2) == 0)
			in_foreign_scan = strstr(text, "Foreign Scan") != NULL;
		else if (in_foreign_scan && strncmp(text, "Filter: ", 8) == 0)
			return text + 8;
	}
	return NULL;
}

/*
 * check_reading
 *		Has the reading query of a run after the first planned, with a bound on
 *		the watermark. That alone finds out what the owner may not read, there
 *		or here; and the plan shows a condition that a wrapper keeps back.
 */
void
check_reading(Check *check)
{
	const Job  *job = check->job;
	Source	   *source = check->source;
	Window		window = {0};
	char	   *sql;
	char	   *kept_back;

	if (check->shape->watermark)
	{
		window.low.is_set = true;
		window.low.value = watermark_sample(check->shape->watermark);
		window.with_null = job_null_watermark(job) != NULL_WATERMARK_SKIP;
	}
	sql = query_read(check->shape, source, job->options->filter,
					 &window, NULL, READ_ANY_ORDER, 0);
	kept_back = filter_above_wrapper(facts_plan(source, sql));
	check_filter(check);
	check_view_number(check);

	/* where the source is such a table itself, that is its server's affair */
	if (kept_back == NULL || source->routine->outlives_commit)
		return;
	check_add(check, "warning", "filter_not_shipped",
			  psprintf("a condition is not sent to the source but applied here, after its rows were fetched: %s",
					   kept_back),
			  !source_is_postgres_fdw(job->source) ? NULL
			  : psprintf("SELECT %s.incload_alter_job(%s, options => '{\"reader\": \"copy\"}');",
						 check->schema, quote_literal_cstr(job->name)));
}
