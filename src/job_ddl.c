/*
 * job_ddl.c
 *		Creating, altering, pausing and dropping jobs.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/parser.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "agenda.h"
#include "catalog.h"
#include "compat.h"
#include "drift.h"
#include "job.h"
#include "job_change.h"
#include "job_trial.h"
#include "names.h"
#include "reconcile_agenda.h"
#include "replay.h"
#include "role.h"
#include "run.h"
#include "runner.h"
#include "slots.h"

/* a name that can stand in messages, lock listings and metrics without quoting trouble */
static void
check_name(const char *name)
{
	const char *detail = NULL;

	if (name[strspn(name, " \t\r\n")] == '\0')
		detail = "It is empty.";
	else if (strlen(name) >= NAMEDATALEN - 1)
		detail = psprintf("It has %d bytes; %d are the most.", (int) strlen(name), NAMEDATALEN - 2);
	else if (strpbrk(name, "'\"`\\"))
		detail = "It has a quote or a backslash in it.";
	else
		for (const char *p = name; *p && detail == NULL; p++)
			if ((unsigned char) *p < ' ' || *p == 127)
				detail = "It has a control character in it.";
	if (detail)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid job name \"%s\"", name),
				 errdetail_internal("%s", detail),
				 errhint("A short word that tells what is loaded serves best: 'orders'.")));
}

static char *
text_arg(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

static char *
required_arg(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", name),
				 errdetail("A job has a name, a source and a target."),
				 errhint("SELECT incload_create_job('orders', source => 'src.orders', target => 'public.orders');")));
	return text_arg(fcinfo, n);
}

static List *
names_arg(FunctionCallInfo fcinfo, int n)
{
	Datum	   *elements;
	bool	   *nulls;
	int			count;
	List	   *names = NIL;

	if (PG_ARGISNULL(n))
		return NIL;
	if (ARR_NDIM(PG_GETARG_ARRAYTYPE_P(n)) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("the key must be an array of one dimension"),
				 errdetail("The key is an array of column names."),
				 errhint("For example: key => '{id}'.")));
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(n), TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("a key column must not be null"),
					 errdetail("The key is an array of column names."),
					 errhint("For example: key => '{id}'.")));
		names = lappend(names, TextDatumGetCString(elements[i]));
	}
	return names;
}

static Jsonb *
empty_object(void)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
}

static void
report_taken(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("job \"%s\" already exists", name),
			 errdetail("A job's name is unique in its database."),
			 errhint("Choose another name, or change that job with incload_alter_job.")));
}

/* a schedule that was given; 'none' stands for none */
static void
set_schedule(Job *job, const char *schedule)
{
	if (schedule)
		job->schedule = pg_strcasecmp(schedule, "none") == 0 ? NULL : agenda_schedule(schedule);
}

/* a job with a schedule is run by a worker, as its owner */
static void
require_runnable(const Job *job)
{
	if (job->schedule == NULL)
		return;
	runner_require_login(job->owner, job->owner_name);
	if (!slots_has(SLOT_SCHEDULER, MyDatabaseId))
		ereport(NOTICE,
				(errmsg("no scheduler runs in this database"),
				 errdetail("The schedule of job \"%s\" holds once there is one.", job->name),
				 errhint("Set shared_preload_libraries = 'incload' and restart the server, or SELECT incload_worker_start();")));
}

PG_FUNCTION_INFO_V1(incload_create_job);

/*
 * incload_create_job(job, source, target, strategy, watermark, key, schedule, options) → incload.job
 *		Creates a job owned by the current user. A key that is an empty array
 *		means that there is none, where NULL has one looked for.
 */
Datum
incload_create_job(PG_FUNCTION_ARGS)
{
	Job		   *job = palloc0(sizeof(Job));
	char	   *strategy = text_arg(fcinfo, 3);

	job_refuse_in_recovery("incload_create_job()");
	job->name = required_arg(fcinfo, 0, "job");
	job->source_name = required_arg(fcinfo, 1, "source");
	job->target_name = required_arg(fcinfo, 2, "target");
	check_name(job->name);
	if (catalog_find_job(job->name))
		report_taken(job->name);

	job->owner = GetUserId();
	job->owner_name = GetUserNameFromId(job->owner, false);
	if (strategy)
		job->strategy = strategy_parse(strategy);
	job->watermark = text_arg(fcinfo, 4);
	job->key = names_arg(fcinfo, 5);
	set_schedule(job, text_arg(fcinfo, 6));
	job->options_json = empty_object();
	if (!PG_ARGISNULL(7))
		job->options_json = options_merge(job->options_json, PG_GETARG_JSONB_P(7));
	job->options = options_parse(job->options_json);
	job->search_path = pstrdup(namespace_search_path);
	job->enabled = true;
	job->is_new = true;

	require_runnable(job);
	job_try_out(job, strategy != NULL, !PG_ARGISNULL(5));
	/* another session may have been quicker */
	if (!catalog_insert_job(job))
		report_taken(job->name);
	if (job->options->schema_change != SCHEMA_CHANGE_EVOLVE)
		drift_remember(job);
	agenda_require_order(job);
	if (job->schedule)
		agenda_enter(job);
	if (job->options->reconcile_schedule)
		reconcile_agenda_enter(job);
	catalog_event(job, "job_created", psprintf("job %s loads %s into %s, strategy %s", job->name,
											   job->source_name, job->target_name,
											   strategy_name(job->strategy)),
				  job_change_details(NULL, job_definition(job->id)));
	PG_RETURN_DATUM(catalog_job_row(job->id));
}

/* gives the job to another role, which the caller must be able to become */
static void
change_owner(Job *job, const char *owner_name)
{
	Oid			owner = get_role_oid(owner_name, true);

	if (!OidIsValid(owner))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" does not exist", owner_name),
				 errdetail("A job belongs to a role, and runs as that role."),
				 errhint("SELECT rolname FROM pg_roles lists the roles.")));
	if (!compat_can_set_role(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to give job \"%s\" to role \"%s\"", job->name, owner_name),
				 errdetail("The job would run as that role, and \"%s\" may not.",
						   GetUserNameFromId(GetUserId(), false)),
				 errhint("GRANT %s TO %s;", quote_identifier(owner_name),
						 quote_identifier(GetUserNameFromId(GetUserId(), false)))));
	job->owner = owner;
	job->owner_name = pstrdup(owner_name);
}

/* is it another table? After a restore, the OID that was stored says nothing, and the name does */
static bool
changes_target(const Job *old, const Job *new)
{
	if (strcmp(old->stored_database, role_database_identity()) != 0)
		return strcmp(old->target_name, new->target_name) != 0;
	return old->stored_target != new->target;
}

/* does the job, as it is now, read other rows than before, or in another order? */
static bool
changes_reading(const Job *old, const Job *new)
{
	return old->strategy != new->strategy ||
		strcmp(old->source_name, new->source_name) != 0 ||
		strcmp(old->target_name, new->target_name) != 0 ||
		changes_target(old, new) ||
		(old->watermark == NULL) != (new->watermark == NULL) ||
		(old->watermark && strcmp(old->watermark, new->watermark) != 0) ||
		old->options->watermark_kind != new->options->watermark_kind ||
		!same_text(old->options->watermark_fallback, new->options->watermark_fallback) ||
		!same_names(old->key, new->key);
}

/* are the tombstones others than those that were read so far? */
static bool
changes_tombstones(const JobOptions *old, const JobOptions *new)
{
	return !same_text(old->tombstone_source, new->tombstone_source) ||
		!same_text(old->tombstone_watermark, new->tombstone_watermark);
}

/* without a key, rows that are read again are doubled in a target that has them */
static void
require_no_doubles(const Job *old, const Job *new)
{
	if (new->key != NIL || new->strategy == STRATEGY_FULL || changes_target(old, new) ||
		catalog_read_checkpoint(old->id, false)->loaded_to == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("job \"%s\" has loaded rows that would be loaded a second time", new->name),
			 errdetail("With another source, watermark, strategy or key everything is read again, and without a key nothing tells which rows target %s has.",
					   new->target_name),
			 errhint("Name a key; or empty the target, drop the job and create it anew.")));
}

/* which columns of the source are no news to the altered job */
static void
note_columns(const Job *old, const Job *new)
{
	bool		evolves = new->options->schema_change == SCHEMA_CHANGE_EVOLVE;
	/* another reader may see other columns */
	bool		is_other = new->is_new || old->options->reader != new->options->reader;

	/* all that it lacks is what evolve is there for */
	if (evolves && (is_other || old->options->schema_change != SCHEMA_CHANGE_EVOLVE))
		drift_forget(new->id);
	else if (is_other)
		drift_remember(new);
}

PG_FUNCTION_INFO_V1(incload_alter_job);

/*
 * incload_alter_job(job, source, target, strategy, watermark, key, schedule, options, owner) → incload.job
 *		Changes what is given and leaves the rest; the schedule 'none' takes it away. Where source, target,
 *		strategy, watermark or key change, the next run reads everything again.
 */
Datum
incload_alter_job(PG_FUNCTION_ARGS)
{
	char	   *name = required_arg(fcinfo, 0, "job");
	Job		   *old;
	Job		   *job;
	char	   *definition;

	job_refuse_in_recovery("incload_alter_job()");
	old = job_load(name);
	run_lock_to_change(old);
	old = job_reload(old);
	job = memcpy(palloc(sizeof(Job)), old, sizeof(Job));

	if (!PG_ARGISNULL(1))
		job->source_name = text_arg(fcinfo, 1);
	if (!PG_ARGISNULL(2))
		job->target_name = text_arg(fcinfo, 2);
	if (!PG_ARGISNULL(3))
		job->strategy = strategy_parse(text_arg(fcinfo, 3));
	if (!PG_ARGISNULL(4))
		job->watermark = text_arg(fcinfo, 4);
	else if (job->strategy == STRATEGY_FULL)
		job->watermark = NULL;
	if (!PG_ARGISNULL(5))
		job->key = names_arg(fcinfo, 5);
	set_schedule(job, text_arg(fcinfo, 6));
	if (!PG_ARGISNULL(7))
	{
		job->options_json = options_merge(old->options_json, PG_GETARG_JSONB_P(7));
		job->options = options_parse(job->options_json);
	}
	if (!PG_ARGISNULL(8))
		change_owner(job, text_arg(fcinfo, 8));
	else
		job_require_owner(job);

	job->is_new = !PG_ARGISNULL(1) || !PG_ARGISNULL(2);
	require_runnable(job);
	job_try_out(job, true, true);
	definition = job_definition(job->id);
	catalog_update_job(job);
	note_columns(old, job);
	agenda_require_order(job);
	if (!same_text(old->schedule, job->schedule))
		agenda_enter(job);
	if (!same_text(old->options->reconcile_schedule, job->options->reconcile_schedule))
		reconcile_agenda_enter(job);
	if (changes_tombstones(old->options, job->options))
		catalog_forget_tombstones(job->id);
	if (changes_reading(old, job))
	{
		require_no_doubles(old, job);
		catalog_reset_checkpoint(job->id);
		ereport(NOTICE,
				(errmsg("the next run of job \"%s\" reads everything again", job->name),
				 errdetail("Its checkpoint does not fit what has changed.")));
	}
	else
		replay_tell(old, job);
	catalog_event(job, "job_altered", psprintf("job %s was changed", job->name),
				  job_change_difference(definition, job_definition(job->id),
										changes_reading(old, job) ? "{\"reset\": true}" : "{}"));
	PG_RETURN_DATUM(catalog_job_row(job->id));
}

static Datum
set_enabled(FunctionCallInfo fcinfo, bool enabled)
{
	Job		   *job;

	job_refuse_in_recovery(enabled ? "incload_resume()" : "incload_pause()");
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	if (job->enabled != enabled)
	{
		catalog_set_enabled(job->id, enabled);
		if (enabled)
			agenda_forgive(job->id);
		catalog_event(job, enabled ? "job_resumed" : "job_paused",
					  psprintf("job %s was %s", job->name, enabled ? "resumed" : "paused"),
					  enabled ? "{\"from\": \"paused\", \"to\": \"enabled\"}" : "{\"from\": \"enabled\", \"to\": \"paused\"}");
	}
	return catalog_job_row(job->id);
}

PG_FUNCTION_INFO_V1(incload_pause);

/*
 * incload_pause(job text) → incload.job
 *		From now on runs of the job are skipped; one that is under way goes on.
 */
Datum
incload_pause(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(set_enabled(fcinfo, false));
}

PG_FUNCTION_INFO_V1(incload_resume);

/* incload_resume(job text) → incload.job: lets a paused job run again */
Datum
incload_resume(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(set_enabled(fcinfo, true));
}

PG_FUNCTION_INFO_V1(incload_drop_job);

/*
 * incload_drop_job(job text) → void
 *		Drops the job and its checkpoint. The target and the history stay.
 */
Datum
incload_drop_job(PG_FUNCTION_ARGS)
{
	Job		   *job;

	job_refuse_in_recovery("incload_drop_job()");
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	run_lock_to_change(job);
	catalog_event(job, "job_dropped", psprintf("job %s was dropped", job->name),
				  job_change_details(job_definition(job->id), NULL));
	catalog_delete_job(job->id);
	PG_RETURN_VOID();
}
