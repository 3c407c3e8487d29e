/*
 * reconcile_agenda.c
 *		When jobs are reconciled by themselves: the option reconcile_schedule.
 *
 * One that fails, or whose worker dies, is not tried again before the next time:
 * it reads the whole source, and nothing is lost meanwhile.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "agenda.h"
#include "catalog.h"
#include "reconcile.h"
#include "reconcile_agenda.h"
#include "runner.h"
#include "schedule.h"
#include "watermark.h"

void
reconcile_agenda_check(const Job *job)
{
	if (job->options->reconcile_schedule == NULL)
	{
		if (job->options->reconcile_repair)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("option \"reconcile_repair\" needs the option \"reconcile_schedule\""),
					 errdetail("It says what a job does that is reconciled by itself."),
					 errhint("Set a schedule, or call incload_reconcile(%s, repair => true).", quote_literal_cstr(job->name))));
		return;
	}
	(void) schedule_parse(job->options->reconcile_schedule);
	reconcile_require_possible(job);
	runner_require_login(job->owner, job->owner_name);
}

/* the next time after now */
static TimestampTz
next_time(const Job *job, TimestampTz anchor)
{
	Schedule   *schedule = schedule_parse(job->options->reconcile_schedule);
	int64		spread = schedule_spread(schedule, job->id);
	int			nest_level = NewGUCNestLevel();
	TimestampTz next;

	if (!schedule_has_zone(schedule))
		agenda_enter_zone_of(job);
	next = schedule_next(schedule, anchor, GetCurrentTimestamp() - spread) + spread;
	AtEOXact_GUC(false, nest_level);
	return next;
}

void
reconcile_agenda_enter(const Job *job)
{
	const char *params[3] = {catalog_number(job->id)};
	TimestampTz anchor;

	if (job->options->reconcile_schedule == NULL)
	{
		catalog_query("DELETE FROM incload.reconcile_schedule_store WHERE job_id = $1::bigint", 1, params);
		return;
	}
	anchor = schedule_anchor(schedule_parse(job->options->reconcile_schedule), GetCurrentTimestamp(), job->id);
	params[1] = pstrdup(timestamptz_to_str(anchor));
	params[2] = pstrdup(timestamptz_to_str(next_time(job, anchor)));
	catalog_query("INSERT INTO incload.reconcile_schedule_store (job_id, anchor, next_at)"
				  " VALUES ($1::bigint, $2::timestamptz, $3::timestamptz)"
				  " ON CONFLICT (job_id) DO UPDATE SET anchor = excluded.anchor, next_at = excluded.next_at", 3, params);
}

void
reconcile_agenda_begin(const Job *job)
{
	const char *params[2] = {catalog_number(job->id)};
	TextRows   *rows = catalog_query("SELECT anchor FROM incload.reconcile_schedule_store WHERE job_id = $1::bigint FOR UPDATE", 1, params);

	/* the schedule was taken away meanwhile */
	if (rows->nrows == 0 || job->options->reconcile_schedule == NULL)
		return;
	params[1] = pstrdup(timestamptz_to_str(next_time(job, instant_parse(rows->value[0][0]))));
	catalog_query("UPDATE incload.reconcile_schedule_store SET next_at = $2::timestamptz WHERE job_id = $1::bigint", 2, params);
}

TextRows *
reconcile_agenda_due(void)
{
	return catalog_query_once("SELECT j.job_id, j.job, j.owner"
							  " FROM incload.reconcile_schedule_store s JOIN incload.job_store j USING (job_id)"
							  " WHERE s.next_at <= now() AND j.enabled ORDER BY s.next_at, j.job_id", 0, NULL);
}
