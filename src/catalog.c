/*
 * catalog.c
 *		The only way into schema incload.
 *
 * Statements take their parameters as text and cast them, so that one small
 * function serves them all; a run needs a handful of them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "catalog.h"
#include "compat.h"
#include "kept_plan.h"
#include "role.h"
#include "watermark.h"

TextRows *
text_rows_from_spi(MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	TextRows   *rows = palloc0(sizeof(TextRows));

	if (SPI_tuptable)
	{
		rows->nrows = SPI_processed;
		rows->ncols = SPI_tuptable->tupdesc->natts;
		rows->value = palloc(sizeof(char **) * Max(rows->nrows, 1));
		for (int r = 0; r < rows->nrows; r++)
		{
			rows->value[r] = palloc(sizeof(char *) * rows->ncols);
			for (int c = 0; c < rows->ncols; c++)
			{
				char	   *text = SPI_getvalue(SPI_tuptable->vals[r], SPI_tuptable->tupdesc, c + 1);

				rows->value[r][c] = text ? MemoryContextStrdup(context, text) : NULL;
			}
		}
	}
	MemoryContextSwitchTo(old);
	return rows;
}

TextRows *
target_ask(const char *sql)
{
	MemoryContext context = CurrentMemoryContext;
	TextRows   *rows;
	int			code;

	SPI_connect();
	/* not read-only, so that the snapshot is a new one */
	code = SPI_execute(sql, false, 0);
	if (code < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(code));
	rows = text_rows_from_spi(context);
	SPI_finish();
	return rows;
}

/* runs a statement as the extension's owner; leaves SPI connected */
static void
execute_in_bracket(RoleBracket *bracket, const char *sql, int nparams, const char *const *params)
{
	role_enter_catalog(bracket);
	SPI_connect();
	kept_plan_execute(sql, nparams, params);
}

void
catalog_prepare(const char *sql, int nparams)
{
	RoleBracket bracket;

	role_enter_catalog(&bracket);
	SPI_connect();
	kept_plan_prepare(sql, nparams);
	SPI_finish();
	role_leave(&bracket);
}

char *
catalog_number(int64 value)
{
	return psprintf(INT64_FORMAT, value);
}

TextRows *
catalog_query(const char *sql, int nparams, const char *const *params)
{
	RoleBracket bracket;
	MemoryContext context = CurrentMemoryContext;
	TextRows   *rows;

	execute_in_bracket(&bracket, sql, nparams, params);
	rows = text_rows_from_spi(context);
	SPI_finish();
	role_leave(&bracket);
	return rows;
}

TextRows *
catalog_query_once(const char *sql, int nparams, const char *const *params)
{
	RoleBracket bracket;
	MemoryContext context = CurrentMemoryContext;
	TextRows   *rows;

	role_enter_catalog(&bracket);
	SPI_connect();
	kept_plan_execute_once(sql, nparams, params);
	rows = text_rows_from_spi(context);
	SPI_finish();
	role_leave(&bracket);
	return rows;
}

Datum
catalog_query_row(const char *sql, int nparams, const char *const *params)
{
	RoleBracket bracket;
	Datum		row;
	bool		isnull;

	execute_in_bracket(&bracket, sql, nparams, params);
	if (SPI_processed != 1)
		elog(ERROR, "no row came of: %s", sql);
	row = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	row = SPI_datumTransfer(row, false, -1);
	SPI_finish();
	role_leave(&bracket);
	return row;
}

Datum
catalog_job_row(int64 job_id)
{
	const char *params[1] = {psprintf(INT64_FORMAT, job_id)};

	return catalog_query_row("SELECT j FROM incload.job j WHERE j.job_id = $1::bigint", 1, params);
}

char *
catalog_names_to_array(List *names)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(list_length(names), 1));
	int			n = 0;
	ListCell   *lc;
	Oid			function;
	bool		varlena;

	foreach(lc, names)
		elements[n++] = CStringGetTextDatum(lfirst(lc));
	getTypeOutputInfo(TEXTARRAYOID, &function, &varlena);
	return OidOutputFunctionCall(function,
								 PointerGetDatum(construct_array(elements, n, TEXTOID, -1,
																 false, TYPALIGN_INT)));
}

List *
catalog_names_from_array(const char *array)
{
	List	   *names = NIL;
	Oid			function;
	Oid			param;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	if (array == NULL)
		return NIL;
	getTypeInputInfo(TEXTARRAYOID, &function, &param);
	deconstruct_array(DatumGetArrayTypeP(OidInputFunctionCall(function, (char *) array, param, -1)),
					  TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
		names = lappend(names, TextDatumGetCString(elements[i]));
	return names;
}

/* the job of the row that a query finds, if it does */
#define SELECT_JOB \
	"SELECT job_id, job, owner, source, target, strategy, watermark, key," \
	" options, search_path, enabled, target_oid, database, owner_oid, schedule, xmin" \
	" FROM incload.job_store WHERE "

Oid
catalog_job_owner(const char *name, Oid stored_owner, const char *stored_database)
{
	Oid			owner = get_role_oid(name, true);

	/* a role of the same name that is another one does not inherit the job */
	if (stored_owner != owner && strcmp(stored_database, role_database_identity()) == 0)
		return InvalidOid;
	return owner;
}

static Job *
find_job(const char *query, const char *param)
{
	TextRows   *rows = catalog_query(query, 1, &param);
	char	  **v;
	Job		   *job;

	if (rows->nrows == 0)
		return NULL;
	v = rows->value[0];

	job = palloc0(sizeof(Job));
	job->id = strtoll(v[0], NULL, 10);
	job->name = v[1];
	job->owner_name = v[2];
	job->owner = catalog_job_owner(job->owner_name, strtoul(v[13], NULL, 10), v[12]);
	job->source_name = v[3];
	job->target_name = v[4];
	job->strategy = strategy_parse(v[5]);
	job->watermark = v[6];
	job->key = catalog_names_from_array(v[7]);
	job->options_json = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(v[8])));
	job->options = options_parse(job->options_json);
	job->search_path = v[9];
	job->enabled = v[10][0] == 't';
	job->stored_target = strtoul(v[11], NULL, 10);
	job->stored_database = v[12];
	job->schedule = v[14];
	job->version = strtoul(v[15], NULL, 10);
	return job;
}

Job *
catalog_find_job(const char *name)
{
	return find_job(SELECT_JOB "job = $1", name);
}

Job *
catalog_find_job_by_id(int64 job_id)
{
	return find_job(SELECT_JOB "job_id = $1::bigint", psprintf(INT64_FORMAT, job_id));
}

TransactionId
catalog_lock_job(int64 job_id)
{
	const char *params[1] = {psprintf(INT64_FORMAT, job_id)};
	TextRows   *rows = catalog_query("SELECT xmin FROM incload.job_store WHERE job_id = $1::bigint FOR KEY SHARE", 1, params);

	return rows->nrows > 0 ? strtoul(rows->value[0][0], NULL, 10) : InvalidTransactionId;
}

List *
catalog_job_names(void)
{
	List	   *names = NIL;
	TextRows   *rows = catalog_query("SELECT job FROM incload.job_store", 0, NULL);

	for (int i = 0; i < rows->nrows; i++)
		names = lappend(names, rows->value[i][0]);
	return names;
}

/* the columns that a job is stored in, in one order for insert and update */
static void
job_params(const Job *job, const char **params)
{
	params[0] = job->name;
	params[1] = job->owner_name;
	params[2] = psprintf("%u", job->owner);
	params[3] = job->source_name;
	params[4] = psprintf("%u", job->source);
	params[5] = job->target_name;
	params[6] = psprintf("%u", job->target);
	params[7] = role_database_identity();
	params[8] = strategy_name(job->strategy);
	params[9] = job->watermark;
	params[10] = catalog_names_to_array(job->key);
	params[11] = JsonbToCString(NULL, &job->options_json->root, VARSIZE(job->options_json));
	params[12] = job->search_path;
	params[13] = job->schedule;
}

bool
catalog_insert_job(Job *job)
{
	const char *params[14];
	TextRows   *rows;

	job_params(job, params);
	rows = catalog_query("INSERT INTO incload.job_store (job, owner, owner_oid, source, source_oid,"
						 " target, target_oid, database, strategy, watermark, key, options, search_path, schedule)"
						 " VALUES ($1, $2::name, $3::oid, $4, $5::oid, $6, $7::oid, $8, $9, $10,"
						 " $11::text[], $12::jsonb, $13, $14) ON CONFLICT (job) DO NOTHING RETURNING job_id",
						 14, params);
	if (rows->nrows == 0)
		return false;
	job->id = strtoll(rows->value[0][0], NULL, 10);
	params[0] = rows->value[0][0];
	catalog_query("INSERT INTO incload.checkpoint_store (job_id) VALUES ($1::bigint)", 1, params);
	return true;
}

void
catalog_update_job(const Job *job)
{
	const char *params[15];

	job_params(job, params);
	params[14] = psprintf(INT64_FORMAT, job->id);
	catalog_query("UPDATE incload.job_store SET job = $1, owner = $2::name, owner_oid = $3::oid,"
				  " source = $4, source_oid = $5::oid, target = $6, target_oid = $7::oid,"
				  " database = $8, strategy = $9, watermark = $10, key = $11::text[],"
				  " options = $12::jsonb, search_path = $13, schedule = $14,"
				  " altered_at = clock_timestamp() WHERE job_id = $15::bigint", 15, params);
}

void
catalog_note_relations(const Job *job)
{
	const char *params[5] = {
		psprintf(INT64_FORMAT, job->id), psprintf("%u", job->source),
		psprintf("%u", job->target), role_database_identity(), psprintf("%u", job->owner)
	};

	catalog_query("UPDATE incload.job_store SET source_oid = $2::oid, target_oid = $3::oid,"
				  " database = $4, owner_oid = $5::oid WHERE job_id = $1::bigint", 5, params);
}

void
catalog_set_enabled(int64 job_id, bool enabled)
{
	const char *params[2] = {psprintf(INT64_FORMAT, job_id), enabled ? "t" : "f"};

	catalog_query("UPDATE incload.job_store SET enabled = $2::boolean, altered_at = clock_timestamp()"
				  " WHERE job_id = $1::bigint", 2, params);
}

void
catalog_delete_job(int64 job_id)
{
	const char *params[1] = {psprintf(INT64_FORMAT, job_id)};
	int			nest_level = NewGUCNestLevel();

	/* what depends on it goes with it by triggers, which a session can have turned off */
	(void) set_config_option("session_replication_role", "origin", PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	catalog_query("DELETE FROM incload.job_store WHERE job_id = $1::bigint", 1, params);
	catalog_query("DELETE FROM incload.tally_store WHERE job_id = $1::bigint", 1, params);
	catalog_query("DELETE FROM incload.outcome_store WHERE job_id = $1::bigint", 1, params);
	AtEOXact_GUC(false, nest_level);
}

TextRows *
catalog_lasting_stop(int64 job_id)
{
	const char *params[1] = {psprintf(INT64_FORMAT, job_id)};
	TextRows   *rows;

	rows = catalog_query("SELECT e.message, e.at FROM incload.event_store e WHERE e.job_id = $1::bigint"
						 " AND e.code = 'source_changed' AND e.details ? 'lasts' AND NOT EXISTS"
						 " (SELECT FROM incload.event_store d WHERE d.job_id = e.job_id AND d.event_id > e.event_id"
						 "  AND (d.code IN ('source_accepted', 'job_refreshed') OR d.details ? 'reset'))"
						 " ORDER BY e.event_id DESC LIMIT 1", 1, params);
	return rows->nrows > 0 ? rows : NULL;
}

bool
catalog_omits_column(int64 job_id, const char *column, bool by_name)
{
	const char *params[3] = {catalog_number(job_id), column, by_name ? "t" : "f"};

	return catalog_query("SELECT FROM incload.schema_store WHERE job_id = $1::bigint"
						 " AND $2 NOT IN (SELECT json_array_elements_text(omitted))"
						 " AND $2 NOT IN (SELECT json_array_elements_text(absent))"
						 " AND (NOT $3::boolean OR columns->$2 IS NOT NULL)", 3, params)->nrows == 0;
}

char *
catalog_details(int n, const char *const *names_and_texts)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < n; i++)
	{
		appendStringInfoString(&buf, i ? ", " : "{");
		escape_json(&buf, names_and_texts[2 * i]);
		appendStringInfoString(&buf, ": ");
		escape_json(&buf, names_and_texts[2 * i + 1]);
	}
	appendStringInfoChar(&buf, '}');
	return buf.data;
}

/* the relation of that name in schema incload; an error where it is gone */
static Oid
own_relation(const char *name)
{
	Oid			relation = get_relname_relid(name, get_namespace_oid("incload", false));

	if (!OidIsValid(relation))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"incload.%s\" does not exist", name),
				 errdetail("It is a part of the extension."),
				 errhint("DROP EXTENSION incload and create it again; or restore it from a dump.")));
	return relation;
}

int64
catalog_next_run_id(void)
{
	return nextval_internal(own_relation("run_id_seq"), false);
}

/* has a table of incload's a row of the job in this index? Without a plan, as each run asks it. */
static bool
has_row(const char *table, const char *index, int64 job_id)
{
	Relation	rel = table_open(own_relation(table), AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, get_attnum(RelationGetRelid(rel), "job_id"), BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(job_id));
	PushActiveSnapshot(GetTransactionSnapshot());
	scan = systable_beginscan(rel, own_relation(index), true, GetActiveSnapshot(), 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	PopActiveSnapshot();
	table_close(rel, AccessShareLock);
	return found;
}

void
catalog_scan(const char *table, const char *index, int64 job_id, const char *const *columns, int ncolumns,
			 CatalogVisitor visit, void *arg)
{
	Relation	rel = table_open(own_relation(table), AccessShareLock);
	Relation	index_rel = index_open(own_relation(index), AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	AttrNumber *numbers = palloc(sizeof(AttrNumber) * ncolumns);
	Datum	   *values = palloc(sizeof(Datum) * ncolumns);
	bool	   *nulls = palloc(sizeof(bool) * ncolumns);
	Datum	   *all = palloc(sizeof(Datum) * desc->natts);
	bool	   *all_nulls = palloc(sizeof(bool) * desc->natts);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		goes_on = true;

	for (int i = 0; i < ncolumns; i++)
		numbers[i] = get_attnum(RelationGetRelid(rel), columns[i]);
	ScanKeyInit(&key, get_attnum(RelationGetRelid(rel), "job_id"), BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(job_id));
	scan = systable_beginscan_ordered(rel, index_rel, GetActiveSnapshot(), 1, &key);
	while (goes_on && HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		CHECK_FOR_INTERRUPTS();
		heap_deform_tuple(tuple, desc, all, all_nulls);
		for (int i = 0; i < ncolumns; i++)
		{
			values[i] = all[numbers[i] - 1];
			nulls[i] = all_nulls[numbers[i] - 1];
		}
		goes_on = visit(values, nulls, arg);
	}
	systable_endscan_ordered(scan);
	index_close(index_rel, AccessShareLock);
	table_close(rel, AccessShareLock);
}

bool
catalog_has_running(int64 job_id)
{
	/* the index has the running ones alone */
	return has_row("run_store", "run_store_running_idx", job_id);
}

bool
catalog_has_rejects(int64 job_id)
{
	return has_row("reject_store", "reject_store_job_idx", job_id);
}

bool
catalog_has_tally(int64 job_id)
{
	return has_row("tally_store", "tally_store_job_idx", job_id);
}

bool
catalog_has_alerts(int64 job_id)
{
	return has_row("alert_store", "alert_store_job_idx", job_id);
}

bool
catalog_has_channels(void)
{
	Relation	rel = table_open(own_relation("channel_store"), AccessShareLock);
	bool		found = RelationGetNumberOfBlocks(rel) > 0;

	table_close(rel, AccessShareLock);
	return found;
}

bool
catalog_has_history(int64 job_id)
{
	const char *params[1] = {psprintf(INT64_FORMAT, job_id)};

	return catalog_query("SELECT FROM incload.run_store WHERE job_id = $1::bigint AND status = 'succeeded'"
						 " AND kind IN ('incremental', 'full') LIMIT 1", 1, params)->nrows > 0;
}

TimestampTz
catalog_mark_since(int64 job_id, uint64 mark)
{
	const char *params[2] = {psprintf(INT64_FORMAT, job_id), psprintf(UINT64_FORMAT, mark)};

	return instant_parse(catalog_query("SELECT min(started_at) FROM incload.run_store WHERE job_id = $1::bigint"
									   " AND status = 'succeeded' AND watermark_to = $2", 2, params)->value[0][0]);
}

void
catalog_event(const Job *job, const char *code, const char *message, const char *details)
{
	const char *params[7] = {
		psprintf(INT64_FORMAT, job->id), job->name, job->owner_name, code, message,
		details ? details : "{}", GetUserNameFromId(GetUserId(), false)
	};

	catalog_query("INSERT INTO incload.event_store (job_id, job, owner, severity, code, message, details)"
				  " VALUES ($1::bigint, $2, $3::name, 'info', $4, $5,"
				  " jsonb_build_object('by', $7) || $6::jsonb)", 7, params);
}

void
catalog_ticket(const Job *job, int64 run_id, const char *code, const char *message)
{
	const char *params[6] = {catalog_number(job->id), job->name, job->owner_name, code, message, catalog_number(run_id)};

	catalog_query("INSERT INTO incload.event_store (job_id, job, owner, severity, code, message, run_id)"
				  " VALUES ($1::bigint, $2, $3::name, 'ticket', $4, $5, $6::bigint)", 6, params);
}

void
catalog_page(const Job *job, const char *code, const char *message)
{
	const char *params[5] = {psprintf(INT64_FORMAT, job->id), job->name, job->owner_name, code, message};

	catalog_query("INSERT INTO incload.event_store (job_id, job, owner, severity, code, message)"
				  " VALUES ($1::bigint, $2, $3::name, 'page', $4, $5)", 5, params);
}

void
catalog_event_once(const Job *job, const char *code, const char *cause, const char *message)
{
	catalog_note_once(job, "ticket", code, cause, message);
}

void
catalog_note_once(const Job *job, const char *severity, const char *code, const char *cause,
				  const char *message)
{
	const char *params[7] = {
		psprintf(INT64_FORMAT, job->id), job->name, job->owner_name, code, message, cause, severity
	};

	catalog_query("INSERT INTO incload.event_store (job_id, job, owner, severity, code, message, details)"
				  " SELECT $1::bigint, $2, $3::name, $7, $4, $5, jsonb_build_object('cause', $6)"
				  " WHERE NOT EXISTS (SELECT FROM incload.event_store e WHERE e.job_id = $1::bigint"
				  "  AND e.code = $4 AND e.details->>'cause' = $6)", 7, params);
}
