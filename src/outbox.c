/*
 * outbox.c
 *		What of events is to be told, put down in the transaction that makes them.
 *
 * By triggers, so that it does not depend on who writes an event, or the record
 * of a run that failed, which another process writes. A trouble that lasts is a
 * row of incload.alert_store: who fails again is not told again, and what ends
 * it is told where its beginning was. Nothing here waits for another
 * transaction: rows are only added, and removed by whoever has the job's lock.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"

#include "catalog.h"
#include "fault.h"
#include "outbox.h"
#include "role.h"

/* Lasting: an event whose trouble has an end, and what that is */
typedef struct Lasting
{
	const char *code;
	const char *ended_by;
} Lasting;

static const Lasting lasting[] = {
	{"run_failed", "run"},
	{"job_paused_itself", "run"},
	{"source_changed", "run"},
	{"target_replaced", "run"},
	{"prune_refused", "run"},
	{"reconcile_mismatch", "reconcile"},
	{"reconcile_failed", "reconcile"},
};

static const char *
what_ends(const char *code)
{
	for (int i = 0; i < lengthof(lasting); i++)
		if (strcmp(lasting[i].code, code) == 0)
			return lasting[i].ended_by;
	return NULL;
}

/* the row that a trigger is about */
static TriggerData *
trigger_data(FunctionCallInfo fcinfo)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function is called by triggers of incload's tables alone")));
	return (TriggerData *) fcinfo->context;
}

static char *
new_value(TriggerData *data, const char *column)
{
	TupleDesc	desc = RelationGetDescr(data->tg_relation);
	HeapTuple	tuple = TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple : data->tg_trigtuple;

	return SPI_getvalue(tuple, desc, SPI_fnumber(desc, column));
}

/*
 * Who is told of an event. Others that have the same code, SQLSTATE and foreign server,
 * or else job, have its cause, and wait for each other for the time of group_wait.
 * An Alertmanager groups by itself.
 */
static const char tell_query[] =
"WITH g AS (SELECT $4 || coalesce('/' || ($5::jsonb->>'sqlstate'), '') || coalesce('/server ' ||"
"   (SELECT s.srvname FROM incload.job_store j JOIN pg_foreign_table t ON t.ftrelid = j.source_oid"
"     JOIN pg_foreign_server s ON s.oid = t.ftserver WHERE j.job_id = $2::bigint AND j.database = $6),"
"   '/job ' || $2, '') AS key),"
" a AS (INSERT INTO incload.alert_store (event_id, job_id, code, cause, group_key, ended_by)"
"   SELECT $1::bigint, $2::bigint, $4, $5::jsonb->>'sqlstate', g.key, $7 FROM g WHERE $7 IS NOT NULL AND $2 IS NOT NULL"
"   AND NOT EXISTS (SELECT FROM incload.alert_store o WHERE o.job_id = $2::bigint AND o.code = $4"
"     AND o.cause IS NOT DISTINCT FROM $5::jsonb->>'sqlstate') RETURNING event_id)"
" INSERT INTO incload.outbox_store (channel_id, event_id, alert_id, job_id, kind, group_key, next_try)"
" SELECT c.channel_id, $1::bigint, a.event_id, $2::bigint, CASE WHEN a.event_id IS NULL THEN 'notice' ELSE 'firing' END,"
"   g.key, clock_timestamp() + CASE c.format WHEN 'alertmanager' THEN '0'"
"     ELSE coalesce(c.options->>'group_wait', '30 s') END::interval"
" FROM g CROSS JOIN incload.channel_store c LEFT JOIN a ON true"
" WHERE array_position('{info,ticket,page}', $3) >= array_position('{info,ticket,page}', c.min_severity)";

/* the end of a job's troubles is told where their beginning was, or will be */
static const char end_query[] =
"WITH a AS (DELETE FROM incload.alert_store WHERE job_id = $1::bigint AND ended_by = coalesce($2, ended_by)"
"   RETURNING event_id)"
" INSERT INTO incload.outbox_store (channel_id, event_id, alert_id, job_id, kind, group_key, next_try)"
" SELECT o.channel_id, $3::bigint, o.alert_id, o.job_id, 'resolved', o.group_key, clock_timestamp()"
" FROM a JOIN incload.outbox_store o ON o.alert_id = a.event_id WHERE o.kind = 'firing'";

static void
end_alerts(const char *job_id, const char *ended_by, const char *event_id)
{
	const char *params[3] = {job_id, ended_by, event_id};

	(void) catalog_query(end_query, 3, params);
}

PG_FUNCTION_INFO_V1(incload_event_made);

/*
 * incload.event_made()
 *		For a new row of incload.event_store.
 */
Datum
incload_event_made(PG_FUNCTION_ARGS)
{
	TriggerData *data = trigger_data(fcinfo);
	const char *params[7] = {
		new_value(data, "event_id"), new_value(data, "job_id"), new_value(data, "severity"),
		new_value(data, "code"), new_value(data, "details"), NULL, NULL
	};
	const char *code = params[3];

	/* whoever makes these has the outbox tell them as what they are */
	if (strcmp(code, "channel_test") == 0 || strcmp(code, "run_recovered") == 0 ||
		strcmp(code, "reconcile_recovered") == 0)
		return PointerGetDatum(NULL);
	params[5] = role_database_identity();
	params[6] = what_ends(code);
	if (params[6] != NULL || catalog_has_channels())
		(void) catalog_query(tell_query, 7, params);
	if (strcmp(code, "job_dropped") == 0 && params[1] && catalog_has_alerts(strtoll(params[1], NULL, 10)))
		end_alerts(params[1], NULL, params[0]);
	return PointerGetDatum(NULL);
}

/* the event that a job's troubles are over, and what follows from it; "who" is job_id, job, owner, run_id */
static void
recover(const char *const *who, const char *ended_by, const char *code)
{
	const char *params[6] = {who[0], who[1], who[2], who[3], code, ended_by};
	TextRows   *rows;

	if (!catalog_has_alerts(strtoll(params[0], NULL, 10)))
		return;
	rows = catalog_query("INSERT INTO incload.event_store (job_id, job, owner, run_id, severity, code, message, details)"
						 " SELECT $1::bigint, $2, $3::name, $4::bigint, 'info', $5,"
						 "  format(CASE $6 WHEN 'run' THEN 'job %s has run again; it had failed since %s'"
						 "    ELSE 'source and target of job %s are the same again; they had differed since %s' END,"
						 "   $2, to_char(min(a.since), 'YYYY-MM-DD HH24:MI:SSOF')),"
						 "  jsonb_build_object('since', min(a.since), 'codes', jsonb_agg(DISTINCT a.code))"
						 " FROM incload.alert_store a WHERE a.job_id = $1::bigint AND a.ended_by = $6"
						 " HAVING count(*) > 0 RETURNING event_id", 6, params);
	if (rows->nrows > 0)
		end_alerts(params[0], ended_by, rows->value[0][0]);
}

void
outbox_reconciled(const Job *job, int64 run_id)
{
	const char *who[4] = {catalog_number(job->id), job->name, job->owner_name, catalog_number(run_id)};

	recover(who, "reconcile", "reconcile_recovered");
}

/* a run that failed, told once for each SQLSTATE until one succeeds; not one that will be retried */
static void
tell_failure(TriggerData *data)
{
	const char *sqlstate = new_value(data, "sqlstate");
	bool		is_passing = sqlstate && strlen(sqlstate) == 5 &&
		fault_is_passing(MAKE_SQLSTATE(sqlstate[0], sqlstate[1], sqlstate[2], sqlstate[3], sqlstate[4]));
	const char *params[9] = {
		new_value(data, "job_id"), new_value(data, "job"), new_value(data, "owner"),
		new_value(data, "run_id"), sqlstate, new_value(data, "error"), new_value(data, "hint"),
		is_passing && strcmp(new_value(data, "trigger"), "schedule") == 0 ? "t" : "f",
		new_value(data, "attempt")
	};

	(void) catalog_query("INSERT INTO incload.event_store (job_id, job, owner, run_id, severity, code, message, details)"
						 " SELECT $1::bigint, $2, $3::name, $4::bigint, 'ticket', 'run_failed',"
						 "  format('a run of job %s has failed: %s', $2, split_part($6, E'\\n', 1)),"
						 "  jsonb_strip_nulls(jsonb_build_object('sqlstate', $5, 'hint', $7))"
						 " WHERE NOT EXISTS (SELECT FROM incload.alert_store a WHERE a.job_id = $1::bigint"
						 "   AND a.code = 'run_failed' AND a.cause IS NOT DISTINCT FROM $5)"
						 "  AND NOT ($8::boolean AND $9::integer <= coalesce((SELECT (j.options->>'retry_limit')::integer"
						 "   FROM incload.job_store j WHERE j.job_id = $1::bigint), 3))", 9, params);
}

PG_FUNCTION_INFO_V1(incload_run_ended);

/*
 * incload.run_ended()
 *		For a row of incload.run_store that says that a run has succeeded or failed.
 */
Datum
incload_run_ended(PG_FUNCTION_ARGS)
{
	TriggerData *data = trigger_data(fcinfo);
	const char *who[4] = {
		new_value(data, "job_id"), new_value(data, "job"), new_value(data, "owner"), new_value(data, "run_id")
	};

	if (strcmp(new_value(data, "status"), "succeeded") == 0)
		recover(who, "run", "run_recovered");
	else
		tell_failure(data);
	return PointerGetDatum(NULL);
}
