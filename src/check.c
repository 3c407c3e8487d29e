/*
 * check.c
 *		incload_check: advice on a job.
 *
 * A job that cannot work is refused elsewhere, with an ERROR. Here is what
 * works and will hurt: slowly, or one day. Each finding has a code that stays
 * the same from version to version, and the SQL that mends it where there is
 * any. What the source or a broken job raises becomes a finding, too: advice
 * on a job is wanted most when it does not work.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "attempt.h"
#include "catalog.h"
#include "check.h"
#include "compat.h"
#include "role.h"
#include "target.h"

static const char *const severities[] = {"error", "warning", "info"};

void
check_add(Check *check, const char *severity, const char *code, char *message, char *sql)
{
	Finding    *finding = palloc0(sizeof(Finding));

	finding->severity = severity;
	finding->code = code;
	finding->message = message;
	finding->sql = sql;
	check->findings = lappend(check->findings, finding);
}

/* details of errors may have several lines; a finding has one */
static char *
one_line(const char *text)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (const char *p = text; *p; p++)
	{
		if (*p == '\n')
			appendStringInfoString(&buf, "; ");
		else
			appendStringInfoChar(&buf, *p == '\t' ? ' ' : *p);
	}
	return buf.data;
}

/* what separates a text from the sentence that follows: messages have no full stop, details have */
static const char *
before_sentence(const char *text)
{
	size_t		length = strlen(text);

	return length > 0 && text[length - 1] == '.' ? " " : ". ";
}

/* an error as one line of text */
static char *
error_text(const ErrorData *error)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "%s: %s", unpack_sql_state(error->sqlerrcode), error->message);
	if (error->detail)
		appendStringInfo(&buf, "%s%s", before_sentence(buf.data), error->detail);
	if (error->hint)
		appendStringInfo(&buf, "%s%s", before_sentence(buf.data), error->hint);
	return one_line(buf.data);
}

/* Part: one of the check, on its way through a subtransaction */
typedef struct Part
{
	Check	   *check;
	void		(*look) (Check *check);
} Part;

static void
look_at_part(void *arg)
{
	Part	   *part = arg;

	part->look(part->check);
}

/*
 * Runs a part of the check. An error in it becomes a finding with the
 * code, and undoes no more than the part itself; but one that tells this
 * session to stop goes on.
 */
static bool
pass_part(Check *check, void (*look) (Check *check), const char *code)
{
	Part		part = {check, look};
	ErrorData  *error = attempt(look_at_part, &part);

	if (error == NULL)
		return true;
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
		error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN ||
		error->sqlerrcode == ERRCODE_OUT_OF_MEMORY)
		ReThrowError(error);
	check_add(check, "error", code, error_text(error), NULL);
	return false;
}

static void
require_whole(Check *check)
{
	job_require_whole(check->job);
}

static void
require_writable(Check *check)
{
	target_require_writable(check->job, check->job->strategy == STRATEGY_FULL);
}

static void
reach_source(Check *check)
{
	check->source = source_connect(check->job, CurrentMemoryContext);
	check->facts = facts_gather(check->source);
}

static void
build_shape(Check *check)
{
	check->shape = shape_build(check->source, check->job);
}

/* what the job's own record says: paused, never run, last run failed */
static void
check_record(Check *check)
{
	const Job  *job = check->job;
	const char *params[1] = {psprintf(INT64_FORMAT, job->id)};
	const char *name = quote_literal_cstr(job->name);
	TextRows   *rows;
	char	  **v;

	if (!job->enabled)
		check_add(check, "warning", "job_paused",
				  pstrdup("the job is paused: its runs are skipped"),
				  psprintf("SELECT %s.incload_resume(%s);", check->schema, name));

	rows = catalog_query("SELECT run_id, status, sqlstate, error, hint FROM incload.run_store"
						 " WHERE job_id = $1::bigint AND status IN ('succeeded', 'failed', 'cancelled')"
						 " ORDER BY run_id DESC LIMIT 1", 1, params);
	if (rows->nrows == 0)
	{
		check_add(check, "info", "job_never_run",
				  pstrdup("the job has not run yet: its first run reads everything from where it starts"),
				  psprintf("SELECT * FROM %s.incload_run(%s);", check->schema, name));
		return;
	}
	v = rows->value[0];
	if (strcmp(v[1], "succeeded") != 0)
		check_add(check, strcmp(v[1], "failed") == 0 ? "error" : "warning", "last_run_failed",
				  one_line(psprintf("the last run, number %s, %s: %s: %s%s%s", v[0],
									strcmp(v[1], "failed") == 0 ? "failed" : "was cancelled",
									v[2] ? v[2] : "no SQLSTATE", v[3] ? v[3] : "no message",
									v[4] ? before_sentence(v[3] ? v[3] : "") : "", v[4] ? v[4] : "")), NULL);
}

/* rows that wait until somebody mends what they were refused for */
static void
check_rejects(Check *check)
{
	const char *params[1] = {psprintf(INT64_FORMAT, check->job->id)};
	TextRows   *rows;

	if (!catalog_has_rejects(check->job->id))
		return;
	rows = catalog_query("SELECT count(*), (array_agg(error ORDER BY reject_id))[1] FROM incload.reject_store"
						 " WHERE job_id = $1::bigint", 1, params);
	check_add(check, "warning", "rows_rejected",
			  one_line(psprintf("%s rows could not be taken and are in incload.reject; the first: %s",
								rows->value[0][0], rows->value[0][1])),
			  psprintf("SELECT * FROM %s.incload_retry_rejects(%s);", check->schema, quote_literal_cstr(check->job->name)));
}

/* all rules, each as far as what it needs could be had */
static void
examine(Check *check)
{
	RoleBracket bracket;

	check_record(check);
	check_rejects(check);
	if (!pass_part(check, require_whole, "job_cannot_run"))
		return;

	role_enter_owner(&bracket, check->job->owner, check->job->search_path);
	pass_part(check, require_writable, "job_cannot_run");
	pass_part(check, check_target_key, "job_cannot_run");
	pass_part(check, check_tls, "job_cannot_run");
	if (pass_part(check, reach_source, "source_unreachable") &&
		pass_part(check, check_watermark, "source_unreachable") &&
		pass_part(check, check_source_key, "source_unreachable") &&
		pass_part(check, check_schema, "source_unreachable") &&
		pass_part(check, build_shape, "job_cannot_run"))
	{
		pass_part(check, check_types, "job_cannot_run");
		pass_part(check, check_swap, "job_cannot_run");
		pass_part(check, check_reading, "job_cannot_run");
		pass_part(check, check_deletes, "job_cannot_run");
	}
	if (check->source)
		source_release(check->source);
	role_leave(&bracket);
}

PG_FUNCTION_INFO_V1(incload_check);

/*
 * incload_check(job) → (severity, code, message, sql)
 *		The findings on a job, the gravest first; none for a healthy one.
 */
Datum
incload_check(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Check		check = {0};

	check.schema = quote_identifier(get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid)));
	check.job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	InitMaterializedSRF(fcinfo, 0);
	examine(&check);

	for (int i = 0; i < lengthof(severities); i++)
	{
		ListCell   *lc;

		foreach(lc, check.findings)
		{
			Finding    *finding = lfirst(lc);
			Datum		values[4];
			bool		nulls[4] = {0};

			if (strcmp(finding->severity, severities[i]) != 0)
				continue;
			values[0] = CStringGetTextDatum(finding->severity);
			values[1] = CStringGetTextDatum(finding->code);
			values[2] = CStringGetTextDatum(finding->message);
			nulls[3] = finding->sql == NULL;
			if (!nulls[3])
				values[3] = CStringGetTextDatum(finding->sql);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
	}
	return (Datum) 0;
}
