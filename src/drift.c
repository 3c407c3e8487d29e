/*
 * drift.c
 *		What a run does about columns of its source that are new, gone, or of another type.
 *
 * Something has changed if it is not as the last run saw it: incload.schema_store
 * has the source's columns as of then, and those that could not be loaded. A table that
 * was meant to have fewer columns than its source is so from the beginning, and no change. What is to be done about
 * a change comes from how things are (drift_plan.c), so that a half of it that was done by hand is not done again.
 *
 * A change that evolve cannot follow is told and left, as with ignore: an ALTER runs in
 * a subtransaction, and a view that is in the way must not keep rows from being loaded. What passes by
 * itself (a lock that was not to be had) fails the run, which is tried again.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/lsyscache.h"

#include "attempt.h"
#include "catalog.h"
#include "compat.h"
#include "drift.h"
#include "drift_plan.h"
#include "facts.h"
#include "names.h"
#include "shape.h"
#include "shape_columns.h"

/* Memory: a row of incload.schema_store */
typedef struct Memory
{
	char	   *columns;		/* as drift_columns() has it; NULL: nothing is known */
	char	   *omitted;		/* names here of columns that are not loaded, as a JSON array */
	char	   *absent;			/* as drift_absent() has it */
} Memory;

static Memory
recall(int64 job_id)
{
	const char *params[1] = {catalog_number(job_id)};
	TextRows   *rows = catalog_query("SELECT columns, omitted, absent FROM incload.schema_store WHERE job_id = $1::bigint",
									 1, params);
	Memory		memory = {.omitted = "[]", .absent = "[]"};

	if (rows->nrows > 0)
	{
		memory.columns = rows->value[0][0];
		memory.omitted = rows->value[0][1];
		memory.absent = rows->value[0][2];
	}
	return memory;
}

static void
remember(int64 job_id, const Memory *memory)
{
	const char *params[4] = {catalog_number(job_id), memory->columns, memory->omitted, memory->absent};

	catalog_query("INSERT INTO incload.schema_store (job_id, columns, omitted, absent)"
				  " VALUES ($1::bigint, $2::json, $3::json, $4::json)"
				  " ON CONFLICT (job_id) DO UPDATE SET columns = EXCLUDED.columns, omitted = EXCLUDED.omitted,"
				  " absent = EXCLUDED.absent", 4, params);
}

void
drift_remember(const Job *job)
{
	Memory		memory = {.columns = job->source_columns, .omitted = "[]", .absent = job->absent_columns};

	remember(job->id, &memory);
}

void
drift_forget(int64 job_id)
{
	const char *params[1] = {catalog_number(job_id)};

	catalog_query("DELETE FROM incload.schema_store WHERE job_id = $1::bigint", 1, params);
}

char *
drift_columns(Source *source)
{
	SourceFacts *facts = facts_outline(source);
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, facts->all)
	{
		SourceColumn *column = lfirst(lc);

		appendStringInfoString(&buf, buf.len > 0 ? ", " : "{");
		escape_json(&buf, column->remote_name);
		appendStringInfoString(&buf, ": ");
		escape_json(&buf, column->type_name);
	}
	appendStringInfoString(&buf, buf.len > 0 ? "}" : "{}");
	return buf.data;
}

static List *
names_from_json(const char *json)
{
	const char *params[1] = {json};
	List	   *names = NIL;
	TextRows   *rows;

	if (strcmp(json, "[]") == 0)
		return NIL;
	rows = catalog_query("SELECT n FROM json_array_elements_text($1::json) AS e(n)", 1, params);
	for (int r = 0; r < rows->nrows; r++)
		names = lappend(names, rows->value[r][0]);
	return names;
}

static char *
names_to_json(List *names)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '[');
	foreach(lc, names)
	{
		if (buf.len > 1)
			appendStringInfoString(&buf, ", ");
		escape_json(&buf, lfirst(lc));
	}
	appendStringInfoChar(&buf, ']');
	return buf.data;
}

char *
drift_absent(Source *source)
{
	List	   *absent = NIL;
	ListCell   *lc;

	foreach(lc, facts_outline(source)->all)
		if (((SourceColumn *) lfirst(lc))->name == NULL)
			absent = lappend(absent, ((SourceColumn *) lfirst(lc))->remote_name);
	return names_to_json(absent);
}

static SourceColumn *
find_column(List *columns, const char *remote_name)
{
	ListCell   *lc;

	foreach(lc, columns)
		if (strcmp(((SourceColumn *) lfirst(lc))->remote_name, remote_name) == 0)
			return lfirst(lc);
	return NULL;
}

/* does the type of a column here keep it from being loaded at all? */
static bool
is_unfit(Source *source, const Job *job, const SourceFacts *facts, const char *name)
{
	SourceColumn *column = facts_column(facts, name);
	int32		typmod;

	return column != NULL &&
		!shape_types_meet(drift_type_here(source, column, &typmod),
						  get_atttype(job->target, get_attnum(job->target, name)));
}

/*
 * Columns here that the job wants and that are not loaded: those that are gone, and of those that were
 * never loaded ("strangers", or all), those that the target has not, or whose type does not go into the target's.
 * A target that has lost one that was loaded is an error.
 */
static List *
omitted_columns(Source *source, const Job *job, const SourceFacts *facts, List *strangers, bool all)
{
	List	   *omitted = NIL;
	ListCell   *lc;

	foreach(lc, relation_column_names(job->source))
	{
		char	   *name = lfirst(lc);
		bool		is_gone = false;
		ListCell   *g;

		if (!shape_wants(job, name) || shape_names(job, name))
			continue;
		foreach(g, facts->gone)
			if (strcmp(((SourceColumn *) lfirst(g))->name, name) == 0)
				is_gone = true;
		if (is_gone ||
			((all || name_in_list(strangers, name)) &&
			 (get_attnum(job->target, name) == InvalidAttrNumber || is_unfit(source, job, facts, name))))
			omitted = lappend(omitted, name);
	}
	return omitted;
}

/* what became of one column of the source since the last run; NULL: nothing that the job minds */
static Drift *
compare_column(Source *source, const Job *job, const SourceFacts *facts, List *differences,
			   const char *remote_name, const char *was, const char *is)
{
	SourceColumn *column = find_column(is ? facts->all : facts->gone, remote_name);
	const char *name = column && column->name ? column->name : remote_name;
	Drift	   *drift = drift_find(differences, name);

	/* what is new and is loaded already, is as somebody has wanted it */
	if (drift == NULL && was == NULL)
		return NULL;
	if (!shape_wants(job, name) || (is && was && column->name == NULL))
		return NULL;
	if (drift == NULL)
	{
		if (is == NULL && get_attnum(job->target, name) == InvalidAttrNumber)
			return NULL;
		drift = palloc0(sizeof(Drift));
		drift->kind = is ? DRIFT_RETYPED : DRIFT_GONE;
		drift->column = pstrdup(name);
		drift->message = is
			? psprintf("column \"%s\" of source %s is of type %s", name, job->source_name, is)
			: psprintf("source %s no longer has column \"%s\"", job->source_name, name);
	}
	if (is && was)
		drift->message = psprintf("%s, and was %s", drift->message, was);
	/* it was never loaded, and cannot be */
	if (was == NULL && drift->kind == DRIFT_RETYPED && is_unfit(source, job, facts, name))
		drift->kind = DRIFT_NEW;
	return drift;
}

/* what is not as the last run saw it, as a list of Drift * */
static List *
changes_since(Source *source, const Job *job, const SourceFacts *facts, List *differences,
			  const Memory *memory, const char *columns)
{
	const char *params[2] = {memory->columns, columns};
	TextRows   *rows;
	List	   *changes = NIL;

	if (strcmp(memory->columns, columns) == 0)
		return NIL;
	rows = catalog_query("SELECT coalesce(n.key, o.key), o.value, n.value FROM json_each_text($1::json) o"
						 " FULL JOIN json_each_text($2::json) n ON n.key = o.key"
						 " WHERE o.value IS DISTINCT FROM n.value ORDER BY n.key IS NULL, 1", 2, params);
	for (int r = 0; r < rows->nrows; r++)
	{
		char	  **v = rows->value[r];
		Drift	   *drift = compare_column(source, job, facts, differences, v[0], v[1], v[2]);

		if (drift)
			changes = lappend(changes, drift);
	}
	return changes;
}

void
drift_foresee(Source *source, const Job *job)
{
	Memory		memory = recall(job->id);
	ListCell   *lc;

	/* one that lacks in the target alone is asked for, and not loaded */
	foreach(lc, names_from_json(memory.omitted))
		if (get_attnum(job->target, lfirst(lc)) != InvalidAttrNumber)
			source->gone = lappend(source->gone, lfirst(lc));
}

/* "a; b" */
static char *
join_sql(List *sql)
{
	StringInfoData buf;
	ListCell   *lc;

	if (sql == NIL)
		return NULL;
	initStringInfo(&buf);
	foreach(lc, sql)
		appendStringInfo(&buf, "%s%s", buf.len > 0 ? "; " : "", (char *) lfirst(lc));
	return buf.data;
}

static void
record_event(const Job *job, const RunRecord *record, const char *severity, const Drift *drift,
			 const char *message, const char *sql, const char *hint)
{
	static const char *const kinds[] = {
		[DRIFT_NEW] = "new", [DRIFT_GONE] = "gone", [DRIFT_RETYPED] = "retyped",
	};
	const char *params[10] = {
		catalog_number(job->id), job->name, job->owner_name, catalog_number(record->run_id), severity,
		message, drift->column, kinds[drift->kind], sql, hint
	};

	catalog_query("INSERT INTO incload.event_store (job_id, job, owner, run_id, severity, code, message, details)"
				  " VALUES ($1::bigint, $2, $3::name, $4::bigint, $5, 'schema_changed', $6, jsonb_strip_nulls("
				  "jsonb_build_object('column', $7, 'change', $8, 'sql', $9, 'hint', $10)))", 10, params);
}

/* how rows that are loaded by now get the values of a column that is new */
static char *
fill_call(const Job *job, const Drift *drift)
{
	return job->key == NIL || job->options->only_newer
		? psprintf("SELECT incload_refresh(%s)", quote_literal_cstr(job->name))
		: psprintf("SELECT incload_fill_columns(%s, ARRAY[%s])", quote_literal_cstr(job->name),
				   quote_literal_cstr(drift->column));
}

/* the change is not followed, and somebody should know it */
static void
tell(const Job *job, const RunRecord *record, const Drift *drift, const char *reason)
{
	const char *effect = drift->kind == DRIFT_NEW ? "it is not loaded"
		: drift->kind == DRIFT_GONE ? "it is left out, and what the target has in it stays"
		: drift->sql != NIL || drift->obstacle ? "values may not fit" : "its values fit as before";
	const char *hint = NULL;

	if (drift->kind == DRIFT_NEW && drift->sql != NIL && drift->obstacle == NULL)
		hint = psprintf("Run the SQL, and then, for rows that are loaded by now: %s; or leave the column out by the option \"exclude\" once the foreign table has it.",
						fill_call(job, drift));
	else if (drift->kind == DRIFT_GONE)
		hint = "Where the column was renamed, the foreign table can be told so: ALTER FOREIGN TABLE ... ALTER COLUMN ... OPTIONS (SET column_name '...').";
	record_event(job, record,
				 drift->kind == DRIFT_RETYPED && drift->sql == NIL && drift->obstacle == NULL ? "info" : "ticket",
				 drift, psprintf("%s: %s%s%s", drift->message, effect, reason ? "; " : "", reason ? reason : ""),
				 drift->obstacle ? NULL : join_sql(drift->sql), hint);
}

/* does somebody have to mend what the error says, or does it pass? */
static bool
is_lasting(int sqlerrcode)
{
	switch (ERRCODE_TO_CATEGORY(sqlerrcode))
	{
		case MAKE_SQLSTATE('0', 'A', '0', '0', '0'):
		case MAKE_SQLSTATE('2', '2', '0', '0', '0'):
		case MAKE_SQLSTATE('2', '3', '0', '0', '0'):
		case MAKE_SQLSTATE('2', 'B', '0', '0', '0'):
		case MAKE_SQLSTATE('4', '2', '0', '0', '0'):
		case MAKE_SQLSTATE('5', '4', '0', '0', '0'):
		case MAKE_SQLSTATE('P', '0', '0', '0', '0'):
			return true;
		default:
			return sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	}
}

static void
run_statements(void *arg)
{
	List	   *sql = arg;
	ListCell   *lc;

	SPI_connect();
	foreach(lc, sql)
		if (SPI_execute(lfirst(lc), false, 0) != SPI_OK_UTILITY)
			elog(ERROR, "unexpected result of: %s", (char *) lfirst(lc));
	SPI_finish();
}

/* all of the statements, or none; returns why they did not work, NULL if they did */
static char *
try_statements(List *sql)
{
	ErrorData  *error = attempt(run_statements, sql);

	if (error == NULL)
		return NULL;
	if (!is_lasting(error->sqlerrcode))
		ReThrowError(error);
	return error->detail ? psprintf("%s (%s)", error->message, error->detail) : error->message;
}

/* lets foreign table and target follow one change */
static void
evolve(const Job *job, const RunRecord *record, const Drift *drift)
{
	char	   *failure;

	if (drift->obstacle || drift->sql == NIL)
	{
		tell(job, record, drift, drift->obstacle);
		return;
	}
	failure = try_statements(drift->sql);
	if (failure)
	{
		tell(job, record, drift, psprintf("it could not be followed: %s", failure));
		return;
	}
	record_event(job, record, "info", drift,
				 psprintf("%s: it was %s", drift->message, drift->kind == DRIFT_NEW ? "added" : "widened here, too"),
				 join_sql(drift->sql),
				 drift->kind != DRIFT_NEW ? NULL
				 : psprintf("Rows that were loaded before have no value in it until they change at the source: %s fills it in.",
							fill_call(job, drift)));
}

static void
report_changes(const Job *job, List *changes)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, changes)
	{
		const Drift *drift = lfirst(lc);

		appendStringInfo(&buf, "%s%s%s%s.", buf.len > 0 ? "\n" : "", drift->message,
						 drift->obstacle && drift->kind != DRIFT_GONE ? ": " : "",
						 drift->obstacle && drift->kind != DRIFT_GONE ? drift->obstacle : "");
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the columns of source %s are not what they were", job->source_name),
			 errdetail_internal("%s", buf.data),
			 errhint("SELECT incload_accept_source(%s) goes on with them as they are; the option \"schema_change\" set to \"evolve\" lets foreign table and target follow. SELECT * FROM incload_check(%s) has the SQL.",
					 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
}

/*
 * What is to be told or followed now. Where nothing is known, with evolve all that differs, else what is
 * not loaded: a foreign table may be meant to have fewer columns than its source.
 */
static List *
find_changes(Source *source, const Job *job, const SourceFacts *facts, const Memory *memory, const Memory *now)
{
	List	   *before = names_from_json(memory->omitted);
	List	   *differences = drift_differences(source, job, facts);
	bool		knows = memory->columns != NULL;
	List	   *changes = NIL;
	ListCell   *lc;

	if (!knows && job->options->schema_change == SCHEMA_CHANGE_EVOLVE)
		return differences;
	if (knows)
		changes = changes_since(source, job, facts, differences, memory, now->columns);
	foreach(lc, names_from_json(now->omitted))
	{
		Drift	   *drift = drift_find(differences, lfirst(lc));

		if (drift && !name_in_list(before, lfirst(lc)) && !list_member_ptr(changes, drift))
			changes = lappend(changes, drift);
	}
	return changes;
}

void
drift_follow(Source *source, const Job *job, const RunRecord *record, Stop *stop)
{
	SourceFacts *facts = facts_outline(source);
	Memory		memory = recall(job->id);
	bool		knows = memory.columns != NULL;
	List	   *strangers = list_concat(names_from_json(memory.omitted), names_from_json(memory.absent));
	Memory		now = {.columns = drift_columns(source), .absent = drift_absent(source)};
	List	   *changes;
	ListCell   *lc;

	now.omitted = names_to_json(omitted_columns(source, job, facts, strangers, !knows));
	if (knows && strcmp(memory.columns, now.columns) == 0 && strcmp(memory.omitted, now.omitted) == 0 &&
		strcmp(memory.absent, now.absent) == 0)
		return;
	changes = find_changes(source, job, facts, &memory, &now);
	if (changes != NIL && knows && job->options->schema_change == SCHEMA_CHANGE_FAIL)
	{
		stop->code = "schema_changed";
		report_changes(job, changes);
	}
	foreach(lc, changes)
	{
		Drift	   *drift = lfirst(lc);

		if (job->options->schema_change == SCHEMA_CHANGE_EVOLVE)
			evolve(job, record, drift);
		else
			tell(job, record, drift, drift->kind == DRIFT_GONE ? NULL : drift->obstacle);
		if (drift->kind == DRIFT_NEW)
			strangers = lappend(strangers, drift->column);
	}
	/* as they are now that both have followed */
	facts = facts_outline(source);
	now.omitted = names_to_json(omitted_columns(source, job, facts, strangers, !knows));
	now.absent = drift_absent(source);
	remember(job->id, &now);
}

static void
require_ownership(const Job *job, Oid relation, const char *name, const char *what)
{
	if (compat_table_ownercheck(relation, job->owner))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("option \"schema_change\" cannot be \"evolve\" for job \"%s\"", job->name),
			 errdetail("Columns are added to %s %s by its owner alone, and role \"%s\" is not.", what, name,
					   job->owner_name),
			 errhint("ALTER %s %s OWNER TO %s; or leave the option out.",
					 strcmp(what, "target") == 0 ? "TABLE" : "FOREIGN TABLE", name,
					 quote_identifier(job->owner_name))));
}

void
drift_require_alterable(const Job *job)
{
	if (job->options->schema_change != SCHEMA_CHANGE_EVOLVE)
		return;
	require_ownership(job, job->target, job->target_name, "target");
	if (source_is_postgres_fdw(job->source) && job->options->reader != READER_RELATION)
		require_ownership(job, job->source, job->source_name, "foreign table");
	if (get_rel_relispartition(job->target))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("option \"schema_change\" cannot be \"evolve\" for job \"%s\"", job->name),
				 errdetail("Target %s is a partition, which has the columns of its parent and no others.", job->target_name),
				 errhint("Let the job load the partitioned table, or leave the option out.")));
}
