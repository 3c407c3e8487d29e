/*
 * history.c
 *		The record of a run.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "autonomous.h"
#include "catalog.h"
#include "compat.h"
#include "history.h"

RunRecord *
history_begin(const Job *job, const char *kind)
{
	RunRecord  *record = palloc0(sizeof(RunRecord));

	record->run_id = catalog_next_run_id();
	record->job = job;
	record->kind = kind;
	record->status = "running";
	record->started_at = GetCurrentTimestamp();
	return record;
}

/* one column of a record: its name and its value as an SQL constant */
static void
put(StringInfo names, StringInfo values, StringInfo sets, const char *name, char *value)
{
	appendStringInfo(names, "%s%s", names->len ? ", " : "", name);
	appendStringInfo(values, "%s%s", values->len ? ", " : "", value);
	if (sets->len || strcmp(name, "status") == 0)
		appendStringInfo(sets, "%s%s = %s", sets->len ? ", " : "", name, value);
}

static char *
text_constant(const char *text)
{
	return text ? quote_literal_cstr(text) : "NULL";
}

static char *
number_constant(int64 number)
{
	return psprintf(INT64_FORMAT, number);
}

/*
 * The statement that makes the row be as the record is, whether it is there or
 * not. A text with constants, as a background worker may have to run it.
 */
static char *
write_statement(const RunRecord *record)
{
	const Job  *job = record->job;
	const ApplyCounts *c = &record->counts;
	StringInfoData names;
	StringInfoData values;
	StringInfoData sets;

	initStringInfo(&names);
	initStringInfo(&values);
	initStringInfo(&sets);
#define PUT(name, value) put(&names, &values, &sets, name, value)
	PUT("run_id", number_constant(record->run_id));
	PUT("job_id", number_constant(job->id));
	PUT("job", text_constant(job->name));
	PUT("owner", text_constant(job->owner_name));
	PUT("kind", text_constant(record->kind));
	PUT("trigger", "'manual'");
	PUT("started_at", text_constant(timestamptz_to_str(record->started_at)));
	PUT("pid", number_constant(MyProcPid));
	/* from here on, what an update may change */
	PUT("status", text_constant(record->status));
	PUT("finished_at", record->is_finished ? "pg_catalog.clock_timestamp()" : "NULL");
	PUT("watermark_from", text_constant(record->watermark_from));
	PUT("watermark_to", text_constant(record->watermark_to));
	PUT("rows_read", number_constant(record->rows_read));
	PUT("rows_inserted", number_constant(c->inserted));
	PUT("rows_updated", number_constant(c->updated));
	PUT("rows_unchanged", number_constant(c->unchanged));
	PUT("rows_superseded", number_constant(c->superseded));
	PUT("rows_suppressed", number_constant(c->suppressed));
	PUT("rows_pruned", number_constant(c->pruned));
	PUT("batches", number_constant(record->batches));
	PUT("bytes_read", number_constant(record->bytes_read));
	PUT("lag", record->has_lag ? psprintf("'" INT64_FORMAT " microseconds'::pg_catalog.interval",
										  record->lag) : "NULL");
	PUT("sqlstate", text_constant(record->sqlstate));
	PUT("error", text_constant(record->error));
	PUT("hint", text_constant(record->hint));
#undef PUT
	return psprintf("INSERT INTO incload.run_store (%s) VALUES (%s)"
					" ON CONFLICT (run_id) DO UPDATE SET %s",
					names.data, values.data, sets.data);
}

void
history_write(const RunRecord *record)
{
	catalog_query(write_statement(record), 0, NULL);
}

void
history_write_outside(RunRecord *record, const char *status, const ErrorData *error)
{
	record->status = status;
	record->is_finished = true;
	record->sqlstate = pstrdup(unpack_sql_state(error->sqlerrcode));
	record->error = error->detail ? psprintf("%s\n%s", error->message, error->detail)
		: pstrdup(error->message);
	record->hint = error->hint ? pstrdup(error->hint) : NULL;
	autonomous_execute(write_statement(record));
}

void
history_close_dead(const Job *job)
{
	const char *params[1] = {psprintf(INT64_FORMAT, job->id)};

	catalog_query("UPDATE incload.run_store SET status = 'failed', finished_at = clock_timestamp(),"
				  " sqlstate = '57P01', error = 'the session or the server ended during the run',"
				  " hint = 'Run the job again: it goes on from its checkpoint.'"
				  " WHERE job_id = $1::bigint AND status = 'running'", 1, params);
}
