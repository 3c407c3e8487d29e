/*
 * history.c
 *		The record of a run.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "autonomous.h"
#include "catalog.h"
#include "compat.h"
#include "history.h"

RunRecord *
history_begin(const Job *job, const char *kind, int64 run_id)
{
	RunRecord  *record = palloc0(sizeof(RunRecord));

	record->run_id = run_id ? run_id : catalog_next_run_id();
	record->job = job;
	record->kind = kind;
	record->status = "running";
	record->trigger = "manual";
	record->attempt = 1;
	record->started_at = GetCurrentTimestamp();
	return record;
}

/* the row as the view incload.run has it; whether the caller may see it has been asked */
static const char returning[] =
" RETURNING ROW(u.run_id, u.job, u.kind, u.status, u.trigger, u.started_at, u.finished_at,"
" u.watermark_from, u.watermark_to, u.rows_read, u.rows_inserted, u.rows_updated, u.rows_unchanged,"
" u.rows_deleted, u.rows_superseded, u.rows_suppressed, u.rows_rejected, u.rows_pruned, u.batches,"
" u.bytes_read, u.lag, u.attempt, u.sqlstate, u.error, u.hint, u.pid)::incload.run";

/* Writing: a record on its way into a statement */
typedef struct Writing
{
	StringInfoData names;
	StringInfoData values;
	StringInfoData sets;		/* what an update may change */
	const char **params;		/* NULL: values stand in the statement as constants */
	int			nparams;
} Writing;

static void
put(Writing *writing, bool is_fixed, const char *name, const char *type, const char *value)
{
	char	   *constant;

	if (writing->params)
	{
		writing->params[writing->nparams++] = value;
		constant = psprintf("$%d::%s", writing->nparams, type);
	}
	else
		constant = value ? psprintf("%s::%s", quote_literal_cstr(value), type) : "NULL";
	appendStringInfo(&writing->names, "%s%s", writing->names.len ? ", " : "", name);
	appendStringInfo(&writing->values, "%s%s", writing->values.len ? ", " : "", constant);
	if (!is_fixed)
		appendStringInfo(&writing->sets, "%s%s = %s", writing->sets.len ? ", " : "", name, constant);
}

/*
 * The statement that makes the row be as the record is, whether it is there or
 * not. With params, one text for all records; else a text with constants, as a
 * background worker has to run it.
 */
static char *
write_statement(const RunRecord *record, const char **params, int *nparams)
{
	const Job  *job = record->job;
	const ApplyCounts *c = &record->counts;
	Writing		writing = {.params = params};

	initStringInfo(&writing.names);
	initStringInfo(&writing.values);
	initStringInfo(&writing.sets);
#define PUT(name, type, value) put(&writing, false, name, "pg_catalog." type, value)
#define PUT_FIXED(name, type, value) put(&writing, true, name, "pg_catalog." type, value)
	PUT_FIXED("run_id", "int8", catalog_number(record->run_id));
	PUT_FIXED("job_id", "int8", catalog_number(job->id));
	PUT_FIXED("job", "text", job->name);
	PUT_FIXED("owner", "name", job->owner_name);
	PUT_FIXED("kind", "text", record->kind);
	PUT_FIXED("trigger", "text", record->trigger);
	PUT_FIXED("attempt", "int4", catalog_number(record->attempt));
	PUT_FIXED("started_at", "timestamptz", pstrdup(timestamptz_to_str(record->started_at)));
	PUT("pid", "int4", catalog_number(MyProcPid));
	PUT("status", "text", record->status);
	PUT("finished_at", "timestamptz", record->is_finished
		? pstrdup(timestamptz_to_str(GetCurrentTimestamp())) : NULL);
	PUT("watermark_from", "text", record->watermark_from);
	PUT("watermark_to", "text", record->watermark_to);
	PUT("rows_read", "int8", catalog_number(record->rows_read));
	PUT("rows_inserted", "int8", catalog_number(c->inserted));
	PUT("rows_updated", "int8", catalog_number(c->updated));
	PUT("rows_unchanged", "int8", catalog_number(c->unchanged));
	PUT("rows_deleted", "int8", catalog_number(c->deleted));
	PUT("rows_superseded", "int8", catalog_number(c->superseded));
	PUT("rows_suppressed", "int8", catalog_number(c->suppressed));
	PUT("rows_rejected", "int8", catalog_number(c->rejected));
	PUT("rows_pruned", "int8", catalog_number(c->pruned));
	PUT("batches", "int4", catalog_number(record->batches));
	PUT("bytes_read", "int8", catalog_number(record->bytes_read));
	PUT("lag", "interval", record->has_lag
		? psprintf(INT64_FORMAT " microseconds", record->lag) : NULL);
	PUT("sqlstate", "text", record->sqlstate);
	PUT("error", "text", record->error);
	PUT("hint", "text", record->hint);
#undef PUT
#undef PUT_FIXED
	if (nparams)
		*nparams = writing.nparams;
	return psprintf("INSERT INTO incload.run_store AS u (%s) VALUES (%s)"
					" ON CONFLICT (run_id) DO UPDATE SET %s%s",
					writing.names.data, writing.values.data, writing.sets.data,
					params ? returning : "");
}

void
history_write(RunRecord *record)
{
	const char *params[32];
	int			nparams;
	char	   *sql = write_statement(record, params, &nparams);
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(record));

	if (record->row)
		pfree(DatumGetPointer(record->row));
	record->row = catalog_query_row(sql, nparams, params);
	MemoryContextSwitchTo(old);
}

void
history_write_comparison(const RunRecord *record, const Comparison *comparison)
{
	const char *params[15] = {
		catalog_number(record->run_id), catalog_number(record->job->id), record->job->name, record->job->owner_name,
		comparison->mode, catalog_number(comparison->source_rows), catalog_number(comparison->target_rows),
		catalog_number(comparison->ranges), catalog_number(comparison->differing), catalog_number(comparison->missing),
		catalog_number(comparison->extra), catalog_number(comparison->changed), catalog_number(comparison->conflicts),
		catalog_number(comparison->repaired), catalog_number(comparison->duplicates)
	};

	catalog_query("INSERT INTO incload.reconcile_store (run_id, job_id, job, owner, mode, source_rows, target_rows, ranges,"
				  " ranges_differing, rows_missing, rows_extra, rows_changed, rows_conflicting, rows_repaired, rows_duplicate)"
				  " VALUES ($1::bigint, $2::bigint, $3, $4::name, $5, $6::bigint, $7::bigint, $8::int, $9::int,"
				  " $10::bigint, $11::bigint, $12::bigint, $13::bigint, $14::bigint, $15::bigint)", 15, params);
}

void
history_prepare(const RunRecord *record)
{
	const char *params[32];
	int			nparams;
	char	   *sql = write_statement(record, params, &nparams);

	catalog_prepare(sql, nparams);
}

/*
 * The event of a job that has stopped: told once, and again when the same comes
 * after somebody has decided.
 */
static char *
stop_statement(const RunRecord *record, const Stop *stop)
{
	const Job  *job = record->job;

	return psprintf("INSERT INTO incload.event_store (job_id, job, owner, run_id, severity, code, message, details)"
					" SELECT n.*, pg_catalog.jsonb_build_object('cause', n.message)%s"
					" FROM (VALUES (%s::pg_catalog.int8, %s, %s::pg_catalog.name, %s::pg_catalog.int8, 'page', %s, %s))"
					"  n (job_id, job, owner, run_id, severity, code, message)"
					" WHERE NOT EXISTS (SELECT FROM incload.event_store e WHERE e.job_id = n.job_id"
					"  AND e.code = n.code AND e.details->>'cause' = n.message"
					"  AND NOT EXISTS (SELECT FROM incload.event_store d"
					"   WHERE d.job_id = e.job_id AND d.event_id > e.event_id"
					"   AND d.code IN ('source_accepted', 'job_refreshed', 'job_altered')))",
					stop->lasts ? " || '{\"lasts\": true}'" : "",
					catalog_number(job->id), quote_literal_cstr(job->name), quote_literal_cstr(job->owner_name),
					catalog_number(record->run_id), quote_literal_cstr(stop->code), quote_literal_cstr(record->error));
}

static void
note_failure(RunRecord *record, const char *status, const ErrorData *error)
{
	record->status = status;
	record->is_finished = true;
	record->sqlstate = pstrdup(unpack_sql_state(error->sqlerrcode));
	record->error = error->detail ? psprintf("%s\n%s", error->message, error->detail)
		: pstrdup(error->message);
	record->hint = error->hint ? pstrdup(error->hint) : NULL;
}

void
history_write_outside(RunRecord *record, const char *status, const ErrorData *error, const Stop *stop)
{
	note_failure(record, status, error);
	autonomous_execute(psprintf("%s%s%s", write_statement(record, NULL, NULL), stop ? "; " : "",
								stop ? stop_statement(record, stop) : ""));
}

void
history_write_failure(RunRecord *record, const char *status, const ErrorData *error, const Stop *stop)
{
	note_failure(record, status, error);
	history_write(record);
	if (stop)
		catalog_query(stop_statement(record, stop), 0, NULL);
}

void
history_cancel_start(int64 run_id)
{
	const char *params[1] = {catalog_number(run_id)};

	catalog_query("UPDATE incload.run_store SET status = 'cancelled', finished_at = clock_timestamp(),"
				  " sqlstate = '57014', error = 'the run was cancelled before it began'"
				  " WHERE run_id = $1::bigint AND status = 'running'", 1, params);
}

static RunRecord *
scheduled_record(const Job *job, int attempt, const char *status)
{
	RunRecord  *record = history_begin(job, job->strategy == STRATEGY_FULL ? "full" : "incremental", 0);

	record->trigger = "schedule";
	record->attempt = attempt;
	record->status = status;
	record->is_finished = true;
	return record;
}

void
history_write_skipped(const Job *job, int attempt, const char *reason)
{
	RunRecord  *record = scheduled_record(job, attempt, "skipped");

	record->error = psprintf("the run was left out: %s", reason);
	history_write(record);
}

void
history_write_refused(const Job *job, int attempt, const char *error, const char *hint)
{
	RunRecord  *record = scheduled_record(job, attempt, "failed");

	record->sqlstate = "55000";
	record->error = pstrdup(error);
	record->hint = pstrdup(hint);
	history_write(record);
}

#define CLOSE_DEAD \
	"UPDATE incload.run_store u SET status = 'failed', finished_at = clock_timestamp()," \
	" sqlstate = '57P01', error = 'the session or the server ended during the run'," \
	" hint = 'Run the job again: it goes on from its checkpoint.'" \
	" WHERE status = 'running'"

void
history_write_lost(const Job *job, int attempt)
{
	const char *params[1] = {catalog_number(job->id)};
	RunRecord  *record;

	if (catalog_query(CLOSE_DEAD " AND job_id = $1::bigint AND trigger = 'schedule' RETURNING 1",
					  1, params)->nrows > 0)
		return;
	record = scheduled_record(job, attempt, "failed");
	record->sqlstate = "57P01";
	record->error = "the background worker ended before the run began";
	record->hint = "The server log says why.";
	history_write(record);
}

void
history_close_dead(const Job *job, int64 run_id)
{
	const char *params[2] = {catalog_number(job->id), catalog_number(run_id)};

	if (!catalog_has_running(job->id))
		return;
	catalog_query(CLOSE_DEAD " AND job_id = $1::bigint AND run_id <> $2::bigint", 2, params);
}

/* objsubid 73: the advisory lock that a run holds, and whoever alters the job; see run.c */
#define JOB_LOCKS \
	"SELECT FROM pg_locks l WHERE l.locktype = 'advisory'" \
	"  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())" \
	"  AND l.objsubid = 73 AND l.classid = (u.job_id >> 32)::oid" \
	"  AND l.objid = (u.job_id & 4294967295)::oid"

#define IS_DEAD "u.status = 'running' AND NOT EXISTS (" JOB_LOCKS ")"

int64
history_newest_run(void)
{
	return strtoll(catalog_query_once("SELECT coalesce(max(run_id), 0) FROM incload.run_store", 0, NULL)->value[0][0], NULL, 10);
}

TextRows *
history_dead_runs(int64 newest)
{
	const char *params[1] = {catalog_number(newest)};

	return catalog_query_once("SELECT u.run_id, u.job_id, u.trigger = 'schedule', u.started_at, EXISTS (" JOB_LOCKS ")"
							  " FROM incload.run_store u WHERE u.status = 'running' AND u.run_id <= $1::bigint"
							  " AND NOT EXISTS (" JOB_LOCKS " AND l.pid = u.pid) ORDER BY u.run_id", 1, params);
}

bool
history_close_dead_run(int64 run_id)
{
	const char *params[1] = {catalog_number(run_id)};

	return catalog_query(CLOSE_DEAD " AND run_id = $1::bigint AND " IS_DEAD " RETURNING 1", 1, params)->nrows > 0;
}

int
history_prune(int64 minutes, int limit)
{
	const char *params[2] = {catalog_number(minutes), catalog_number(limit)};
	int			pruned;

	pruned = catalog_query("DELETE FROM incload.run_store WHERE run_id IN (SELECT u.run_id FROM incload.run_store u"
						   " WHERE u.started_at < now() - $1::bigint * interval '1 minute' AND u.status <> 'running'"
						   " AND (u.run_id < (SELECT max(s.run_id) FROM incload.run_store s"
						   "   WHERE s.job_id = u.job_id AND s.status = 'succeeded' AND s.kind IN ('incremental', 'full'))"
						   "  OR NOT EXISTS (SELECT FROM incload.job_store j WHERE j.job_id = u.job_id))"
						   " LIMIT $2::bigint) RETURNING 1", 2, params)->nrows;
	/* outcomes of the same age, many in a row: as above, none is younger than the last success */
	pruned += catalog_query("DELETE FROM incload.outcome_store WHERE chunk_id IN (SELECT o.chunk_id FROM incload.outcome_store o"
							" WHERE o.ended_by < now() - $1::bigint * interval '1 minute'"
							" AND (o.ended_by < (SELECT s.finished_at FROM incload.run_store s WHERE s.job_id = o.job_id"
							"   AND s.status = 'succeeded' AND s.kind IN ('incremental', 'full') ORDER BY s.run_id DESC LIMIT 1)"
							"  OR NOT EXISTS (SELECT FROM incload.job_store j WHERE j.job_id = o.job_id))"
							" LIMIT $2::bigint) RETURNING 1", 2, params)->nrows;
	pruned += catalog_query("DELETE FROM incload.batch_window_store WHERE window_id IN (SELECT w.window_id"
							" FROM incload.batch_window_store w WHERE w.state <> 'pending'"
							" AND w.finished_at < now() - $1::bigint * interval '1 minute'"
							" LIMIT $2::bigint) RETURNING 1", 2, params)->nrows;
	pruned += catalog_query("DELETE FROM incload.reconcile_store WHERE run_id IN (SELECT c.run_id"
							" FROM incload.reconcile_store c WHERE c.at < now() - $1::bigint * interval '1 minute'"
							" LIMIT $2::bigint) RETURNING 1", 2, params)->nrows;
	return pruned + catalog_query("DELETE FROM incload.event_store WHERE event_id IN (SELECT e.event_id"
								  " FROM incload.event_store e WHERE e.at < now() - $1::bigint * interval '1 minute'"
								  /* what is still to be told, or to be told to be over, stays */
								  " AND NOT EXISTS (SELECT FROM incload.alert_store a WHERE a.event_id = e.event_id)"
								  " AND NOT EXISTS (SELECT FROM incload.outbox_store o WHERE o.state = 'pending'"
								  "  AND e.event_id IN (o.event_id, o.alert_id))"
								  " LIMIT $2::bigint) RETURNING 1", 2, params)->nrows;
}
