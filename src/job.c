/*
 * job.c
 *		A job as it is stored, and what is known about it when it runs.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "compat.h"
#include "job.h"
#include "names.h"
#include "role.h"

static const char *const strategy_names[] = {
	[STRATEGY_APPEND] = "append",
	[STRATEGY_UPSERT] = "upsert",
	[STRATEGY_FULL] = "full",
};

const char *
strategy_name(Strategy strategy)
{
	return strategy_names[strategy];
}

Strategy
strategy_parse(const char *name)
{
	for (int i = 0; i < lengthof(strategy_names); i++)
		if (strcmp(name, strategy_names[i]) == 0)
			return (Strategy) i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized strategy \"%s\"", name),
			 errdetail("The strategies are append, upsert and full."),
			 errhint("Leave it out to have one chosen; SELECT * FROM incload_suggest(source) shows which, and why.")));
	return STRATEGY_FULL;		/* keep compiler quiet */
}

static void
unknown_job(const char *name)
{
	const char *nearest = nearest_name(catalog_job_names(), name);

	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("job \"%s\" does not exist", name),
			 nearest && has_privs_of_role(GetUserId(), catalog_find_job(nearest)->owner)
			 ? errdetail("There is a job \"%s\".", nearest)
			 : errdetail("No job of this database has that name."),
			 errhint("SELECT job FROM incload.job lists your jobs.")));
}

/* whether the owner may look them up is asked when he does */
static void
resolve_relations(Job *job)
{
	job->source = relation_stored_oid(job->source_name);
	job->target = relation_stored_oid(job->target_name);
}

Job *
job_load(const char *name)
{
	Job		   *job = catalog_find_job(name);

	if (job == NULL)
		unknown_job(name);
	/* one whose owner is gone belongs to superusers */
	if (OidIsValid(job->owner) ? !has_privs_of_role(GetUserId(), job->owner) : !superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for job \"%s\"", name),
				 errdetail("The job belongs to another role."),
				 errhint("Its owner, and members of that role, may use it.")));

	resolve_relations(job);
	return job;
}

Job *
job_reload(const Job *job)
{
	Job		   *same;

	if (catalog_lock_job(job->id) != job->version ||
		get_role_oid(job->owner_name, true) != job->owner)
		return job_load(job->name);
	/* the relations can have been changed for others without it */
	same = palloc(sizeof(Job));
	*same = *job;
	resolve_relations(same);
	return same;
}

bool
job_same_definition(const Job *a, const Job *b)
{
	return a->source == b->source && a->target == b->target && a->strategy == b->strategy &&
		same_text(a->watermark, b->watermark) && same_names(a->key, b->key) && a->owner == b->owner &&
		compareJsonbContainers(&a->options_json->root, &b->options_json->root) == 0;
}

void
job_require_owner(const Job *job)
{
	if (!OidIsValid(job->owner))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("owner \"%s\" of job \"%s\" does not exist", job->owner_name, job->name),
				 errdetail("The role was dropped or renamed after the job was created."),
				 errhint("SELECT incload_alter_job(%s, owner => '...') gives it to another role.",
						 quote_literal_cstr(job->name))));
}

static void
require_relations(const Job *job, bool has_source, bool has_target)
{
	if (!has_source)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("source %s of job \"%s\" does not exist", job->source_name, job->name),
				 errdetail("The relation was dropped or renamed after the job was created."),
				 errhint("Create it again, or SELECT incload_alter_job(%s, source => '...').",
						 quote_literal_cstr(job->name))));
	if (!has_target)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("target %s of job \"%s\" does not exist", job->target_name, job->name),
				 errdetail("The table was dropped or renamed after the job was created."),
				 errhint("SELECT incload_alter_job(%s, target => '...') makes it anew, or names another.",
						 quote_literal_cstr(job->name))));
}

void
job_require_whole(const Job *job)
{
	job_require_owner(job);
	require_relations(job, OidIsValid(job->source), OidIsValid(job->target));
}

void
job_lock_relations(const Job *job, LOCKMODE mode)
{
	LockRelationOid(job->source, AccessShareLock);
	LockRelationOid(job->target, mode);
	require_relations(job, SearchSysCacheExists1(RELOID, ObjectIdGetDatum(job->source)),
					  SearchSysCacheExists1(RELOID, ObjectIdGetDatum(job->target)));
}

NullWatermark
job_null_watermark(const Job *job)
{
	if (job->options->null_watermark != NULL_WATERMARK_DEFAULT)
		return (NullWatermark) job->options->null_watermark;
	return job->strategy == STRATEGY_UPSERT ? NULL_WATERMARK_ALWAYS : NULL_WATERMARK_ERROR;
}

const char *
job_lookback(const Job *job, WatermarkKind kind)
{
	const char *lookback = job->options->lookback;

	if (job->key == NIL)
		return NULL;
	if (lookback == NULL)
		return kind == WATERMARK_TIME ? "15 minutes" : NULL;
	/* zero in any spelling is none */
	return lookback[strspn(lookback, "0.")] == '\0' ? NULL : lookback;
}

FirstLoad
job_first_load(const Job *job, bool in_batches)
{
	if (job->options->first_load != FIRST_LOAD_DEFAULT)
		return (FirstLoad) job->options->first_load;
	return in_batches && options_has(job->options_json, "batch_rows")
		? FIRST_LOAD_BATCHES : FIRST_LOAD_DIRECT;
}

FullRefreshMode
job_full_refresh_mode(const Job *job)
{
	if (job->options->full_refresh_mode != FULL_REFRESH_DEFAULT)
		return (FullRefreshMode) job->options->full_refresh_mode;
	return job->key != NIL ? FULL_REFRESH_MERGE : FULL_REFRESH_TRUNCATE;
}

bool
job_is_restored(const Job *job)
{
	return strcmp(job->stored_database, role_database_identity()) != 0;
}

void
job_refuse_in_recovery(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);
}
