/*
 * backfill.c
 *		Ranges of a source that are read again, window by window: incload.batch_window.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "agenda.h"
#include "backfill.h"
#include "catalog.h"
#include "role.h"
#include "runner.h"
#include "shape.h"
#include "slots.h"
#include "source.h"
#include "trouble.h"

#define MOST_WINDOWS 100000

LedgerWindow *
backfill_claim(const Job *job, TimestampTz *next)
{
	const char *params[1] = {catalog_number(job->id)};
	TextRows   *rows;
	LedgerWindow *window;

	*next = 0;
	rows = catalog_query("SELECT window_id, attempts, low, high FROM incload.batch_window_store"
						 " WHERE job_id = $1::bigint AND state = 'pending' AND not_before <= now()"
						 " ORDER BY window_id LIMIT 1 FOR UPDATE SKIP LOCKED", 1, params);
	if (rows->nrows == 0)
	{
		/* others have the rest, or it is tried again later */
		rows = catalog_query("SELECT min(not_before) FROM incload.batch_window_store WHERE job_id = $1::bigint"
							 " AND state = 'pending' AND not_before > now()", 1, params);
		*next = instant_parse(rows->value[0][0]);
		return NULL;
	}
	window = palloc0(sizeof(LedgerWindow));
	window->window_id = strtoll(rows->value[0][0], NULL, 10);
	window->attempts = atoi(rows->value[0][1]);
	window->piece.low = rows->value[0][2];
	window->piece.high = rows->value[0][3];
	return window;
}

void
backfill_done(const LedgerWindow *window, int64 run_id, int64 rows_read)
{
	const char *params[3] = {catalog_number(window->window_id), catalog_number(run_id), catalog_number(rows_read)};

	catalog_query("UPDATE incload.batch_window_store SET state = 'done', attempts = attempts + 1, error = NULL,"
				  " run_id = $2::bigint, rows_read = $3::bigint, finished_at = clock_timestamp()"
				  " WHERE window_id = $1::bigint", 3, params);
}

int
backfill_stop(const Job *job)
{
	const char *params[1] = {catalog_number(job->id)};

	return catalog_query("UPDATE incload.batch_window_store SET state = 'stopped', finished_at = clock_timestamp()"
						 " WHERE window_id IN (SELECT window_id FROM incload.batch_window_store"
						 "  WHERE job_id = $1::bigint AND state = 'pending' FOR UPDATE SKIP LOCKED)"
						 " RETURNING 1", 1, params)->nrows;
}

/* windows that have failed for good, in the backfill of this one */
static int
failures_beside(const LedgerWindow *window)
{
	const char *params[1] = {catalog_number(window->window_id)};

	return atoi(catalog_query("SELECT count(*) FROM incload.batch_window_store w JOIN incload.batch_window_store o"
							  " ON o.job_id = w.job_id AND o.created_at = w.created_at AND o.state = 'failed'"
							  " WHERE w.window_id = $1::bigint", 1, params)->value[0][0]);
}

/* no worker could be had for them, or it has ended at once: not so soon again */
static void
delay_all(int64 job_id)
{
	const char *params[1] = {catalog_number(job_id)};

	catalog_query("UPDATE incload.batch_window_store SET not_before = now() + interval '10 seconds'"
				  " WHERE window_id IN (SELECT window_id FROM incload.batch_window_store"
				  "  WHERE job_id = $1::bigint AND state = 'pending' FOR UPDATE SKIP LOCKED)", 1, params);
}

void
backfill_failed(const Job *job, const LedgerWindow *window, bool is_passing, const char *error)
{
	bool		again = is_passing;
	const char *params[4] = {
		catalog_number(window->window_id), again ? "pending" : "failed",
		timestamptz_to_str(agenda_retry_at(job, window->attempts + 1)), error
	};

	catalog_query("UPDATE incload.batch_window_store SET state = $2, attempts = attempts + 1, error = $4,"
				  " not_before = $3::timestamptz, finished_at = CASE WHEN $2 = 'failed' THEN clock_timestamp() END"
				  " WHERE window_id = $1::bigint AND state = 'pending'", 4, params);
	if (again || job->options->pause_after == 0 || failures_beside(window) < job->options->pause_after ||
		backfill_stop(job) == 0)
		return;
	catalog_page(job, "backfill_stopped",
				 psprintf("%d windows of the backfill of job %s have failed, and the rest is left; SELECT incload_backfill(%s) tries them again once the cause is mended: %s",
						  (int) job->options->pause_after, job->name, quote_literal_cstr(job->name), error));
}

void
backfill_lost(int64 job_id, int64 window_id)
{
	const char *params[1] = {catalog_number(window_id)};
	Job		   *job = catalog_find_job_by_id(job_id);
	LedgerWindow window = {.window_id = window_id};
	TextRows   *rows;

	if (job == NULL || window_id == 0)
	{
		delay_all(job_id);
		return;
	}
	rows = catalog_query("SELECT attempts FROM incload.batch_window_store WHERE window_id = $1::bigint AND state = 'pending'",
						 1, params);
	/* it had loaded it, and then ended */
	if (rows->nrows == 0)
		return;
	window.attempts = atoi(rows->value[0][0]);
	backfill_failed(job, &window, window.attempts < job->options->retry_limit,
					"the background worker ended while it loaded the window");
}

void
backfill_tell_end(const Job *job)
{
	const char *params[1] = {catalog_number(job->id)};
	TextRows   *rows;

	if (catalog_query("SELECT FROM incload.batch_window_store WHERE job_id = $1::bigint AND state = 'pending' LIMIT 1",
					  1, params)->nrows > 0)
		return;
	rows = catalog_query("SELECT count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state IN ('failed', 'stopped')),"
						 " sum(rows_read), max(created_at)"
						 " FROM incload.batch_window_store w WHERE job_id = $1::bigint AND created_at ="
						 " (SELECT max(created_at) FROM incload.batch_window_store m WHERE m.job_id = w.job_id)",
						 1, params);
	if (rows->value[0][3] == NULL)
		return;
	catalog_note_once(job, strcmp(rows->value[0][1], "0") == 0 ? "info" : "ticket",
					  "backfill_ended", rows->value[0][3],
					  psprintf("a backfill of job %s has ended: %s windows are loaded, with %s rows, and %s are not",
								job->name, rows->value[0][0], rows->value[0][2] ? rows->value[0][2] : "0",
								rows->value[0][1]));
}

TextRows *
backfill_due(void)
{
	return catalog_query_once("SELECT j.job_id, j.job, j.owner,"
						 " least(count(*), coalesce((j.options->>'parallel')::bigint, 1))"
						 " FROM incload.batch_window_store w JOIN incload.job_store j USING (job_id)"
						 " WHERE w.state = 'pending' AND w.not_before <= now() AND j.enabled"
						 " GROUP BY j.job_id ORDER BY min(w.window_id)", 0, NULL);
}

/* what the job is tracked by, as a backfill wants it */
static const WatermarkType *
tracked_by(const Job *job, MemoryContext context)
{
	RoleBracket bracket;
	Source	   *source;
	Shape	   *shape;

	if (job->strategy == STRATEGY_FULL || job->key == NIL || (job->watermark && strcmp(job->watermark, "xmin") == 0))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job \"%s\" cannot be backfilled", job->name),
				 job->strategy == STRATEGY_FULL ? errdetail("Strategy full reads everything each time.")
				 : job->key == NIL ? errdetail("Without a key, rows that are read again would be doubled.")
				 : errdetail("The watermark xmin has no values to name a range by."),
				 job->strategy == STRATEGY_FULL ? errhint("Run it.")
				 : errhint("SELECT incload_refresh(%s) reads all of it again.", quote_literal_cstr(job->name))));
	role_enter_owner(&bracket, job->owner, job->search_path);
	source = source_connect(job, context);
	shape = shape_build(source, job);
	source_release(source);
	role_leave(&bracket);
	return shape->watermark;
}

/* a value of the watermark in its exact form; an error says what is wrong with it */
static char *
exact_value(const WatermarkType *type, const char *name, const char *value)
{
	Trouble		trouble;
	char	   *exact;

	role_pin_formats();
	trouble_begin(&trouble, psprintf("%s is a value of the watermark, of type %s.", name, type->sql_name),
				  "For example: from_value => '2020-01-01', to_value => '2021-01-01', step => '1 month'.");
	exact = watermark_print(type, watermark_parse(type, value));
	trouble_end(&trouble);
	return exact;
}

/* enters the windows into the ledger, the last one cut off at the end; how many */
static int64
enter_windows(const Job *job, const WatermarkType *type, const char *from, const char *to, const char *step)
{
	bool		by_time = type->type == DATEOID || type->type == TIMESTAMPOID || type->type == TIMESTAMPTZOID;
	const char *params[4] = {catalog_number(job->id), from, to, step};
	const char *starts;
	TextRows   *rows;
	Trouble		trouble;

	if (step == NULL)
		starts = psprintf("SELECT $2::%s AS low", type->sql_name);
	else if (by_time)
		starts = psprintf("SELECT g::%s AS low FROM (SELECT generate_series($2::%s, $3::%s, $4::interval) AS g) s WHERE g::%s < $3::%s",
						  type->sql_name, type->sql_name, type->sql_name, type->sql_name, type->sql_name);
	else if (type->kind == WATERMARK_NUMBER || type->per_second > 0)
		starts = psprintf("SELECT g::%s AS low FROM (SELECT generate_series($2::numeric, $3::numeric, $4::numeric) AS g) s WHERE g < $3::numeric",
						  type->sql_name);
	else
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a range of type %s cannot be cut into steps", type->sql_name),
				 errdetail("Steps are intervals of time, or numbers."),
				 errhint("Leave the step out, and call incload_backfill for several ranges.")));
	trouble_begin(&trouble, psprintf("The range from %s to %s was to be cut into steps of %s.", from, to, step ? step : "its length"),
				  by_time ? "A step is an interval above zero, such as '1 month'." : "A step is a number above zero.");
	rows = catalog_query(psprintf("WITH starts AS (%s LIMIT %d), ends AS ("
								  " SELECT low, coalesce(lead(low) OVER (ORDER BY low), $3::%s) AS high FROM starts)"
								  " INSERT INTO incload.batch_window_store (job_id, low, high)"
								  " SELECT $1::bigint, low::text, high::text FROM ends ORDER BY low RETURNING 1",
								  starts, MOST_WINDOWS + 1, type->sql_name), 4, params);
	trouble_end(&trouble);
	if (rows->nrows > MOST_WINDOWS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the step is too small for the range"),
				 errdetail("It would make more than %d windows.", MOST_WINDOWS),
				 errhint("Take a larger step: a window of a million rows is a good size.")));
	if (rows->nrows == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the step of the backfill goes the wrong way"),
				 errdetail("From %s, steps of %s never come to %s.", from, step, to),
				 errhint("Take a step that is positive.")));
	return rows->nrows;
}

/* windows of the last backfill that was left unfinished: once more; how many */
static int64
enter_again(const Job *job)
{
	const char *params[1] = {catalog_number(job->id)};
	TextRows   *rows;

	rows = catalog_query("UPDATE incload.batch_window_store w SET state = 'pending', attempts = 0,"
						 " not_before = '-infinity', finished_at = NULL WHERE job_id = $1::bigint"
						 " AND state IN ('pending', 'failed', 'stopped') AND created_at ="
						 " (SELECT max(created_at) FROM incload.batch_window_store m WHERE m.job_id = w.job_id"
						 "  AND m.state IN ('pending', 'failed', 'stopped'))"
						 " RETURNING 1", 1, params);
	if (rows->nrows == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("job \"%s\" has no backfill that was left unfinished", job->name),
				 errdetail("Without a range, incload_backfill goes on with windows that have failed or were stopped."),
				 errhint("Name a range: from_value => '2020-01-01', to_value => '2021-01-01', step => '1 month'.")));
	return rows->nrows;
}

/* without a scheduler, the workers are started from here */
static void
start_workers(const Job *job, int64 windows)
{
	Task		task = {.job_id = job->id, .attempt = 1, .is_backfill = true};
	int			wanted = (int) Min(job->options->parallel, windows);

	if (slots_has(SLOT_SCHEDULER, MyDatabaseId))
		return;
	task.after = GetTopTransactionId();
	for (int i = 0; i < wanted; i++)
	{
		SlotRef		ref;
		BackgroundWorkerHandle *handle;

		if (runner_start(job->owner, &task, &ref, &handle) == RUNNER_STARTED)
			continue;
		if (i > 0)
			break;
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not start a background worker for the backfill of job \"%s\"", job->name),
				 errdetail("No background worker is free, and no scheduler runs in this database."),
				 errhint("Try again later, or raise max_worker_processes; SELECT * FROM incload.worker shows incload's.")));
	}
}

PG_FUNCTION_INFO_V1(incload_backfill);

/*
 * incload_backfill(job text, from_value text, to_value text, step text) → bigint
 *		Reads a range of the source again, in workers: rows from from_value on, below
 *		to_value, in windows of a step. Without a range, goes on with the windows of the last
 *		one that have failed or were stopped. Returns the number of windows.
 */
Datum
incload_backfill(PG_FUNCTION_ARGS)
{
	Job		   *job;
	const WatermarkType *type;
	RoleBracket bracket;
	char	   *from = NULL;
	char	   *to = NULL;
	char	   *step = PG_ARGISNULL(3) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(3));
	int64		windows;

	PreventCommandDuringRecovery("incload_backfill()");
	PreventCommandIfReadOnly("incload_backfill()");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) != PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("a backfill takes a job and both ends of a range"),
				 errdetail("Without a range, it goes on with what the last one has left."),
				 errhint("For example: SELECT incload_backfill('orders', from_value => '2020-01-01', to_value => '2021-01-01', step => '1 month').")));
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	job_require_whole(job);
	runner_require_login(job->owner, job->owner_name);
	if (PG_ARGISNULL(1))
		windows = enter_again(job);
	else
	{
		type = tracked_by(job, CurrentMemoryContext);
		/* a value reads the same here and in the workers, whatever the session prefers */
		role_enter_owner(&bracket, job->owner, job->search_path);
		from = exact_value(type, "from_value", text_to_cstring(PG_GETARG_TEXT_PP(1)));
		to = exact_value(type, "to_value", text_to_cstring(PG_GETARG_TEXT_PP(2)));
		if (watermark_compare(type, watermark_parse(type, from), watermark_parse(type, to)) >= 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("the range of the backfill is empty"),
					 errdetail("It begins at %s, and ends before %s.", from, to),
					 errhint("from_value is the lower end and belongs to the range; to_value does not.")));
		windows = enter_windows(job, type, from, to, step);
		role_leave(&bracket);
	}
	catalog_event(job, "backfill_started", psprintf("a backfill of job %s: " INT64_FORMAT " windows", job->name, windows),
				  from ? catalog_details(2, (const char *const[]) {"from", from, "to", to}) : NULL);
	start_workers(job, windows);
	PG_RETURN_INT64(windows);
}
