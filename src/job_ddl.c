/*
 * job_ddl.c
 *		Creating, altering, pausing and dropping jobs.
 *
 * A job is tried out before it is stored: its source is connected to, its
 * query prepared there, its shape built. What cannot work is refused here and
 * not in the night.
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

#include "catalog.h"
#include "compat.h"
#include "facts.h"
#include "job.h"
#include "names.h"
#include "query.h"
#include "role.h"
#include "run.h"
#include "shape.h"
#include "source.h"
#include "suggest.h"
#include "target.h"
#include "trouble.h"
#include "window.h"

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

/* what was chosen for the user, and why */
static void
report_choice(const Suggestion *choice)
{
	ereport(NOTICE,
			(errmsg("%s %s: %s", choice->kind, choice->candidate, choice->reason)));
}

/* fills in what was not given, as incload_suggest says */
static void
choose_missing(Source *source, Job *job, bool given_strategy, bool given_key)
{
	List	   *suggestions;
	Suggestion *choice;

	if (given_strategy && (given_key || job->key != NIL) &&
		(job->watermark != NULL || job->strategy == STRATEGY_FULL))
		return;

	suggestions = suggest(source, job, given_strategy);
	choice = suggest_chosen(suggestions, "key");
	if (job->key == NIL && !given_key && choice)
	{
		job->key = choice->names;
		report_choice(choice);
	}
	choice = suggest_chosen(suggestions, "strategy");
	if (!given_strategy && choice)
	{
		job->strategy = strategy_parse(choice->candidate);
		report_choice(choice);
	}
	choice = suggest_chosen(suggestions, "watermark");
	if (job->strategy != STRATEGY_FULL && job->watermark == NULL && choice)
	{
		job->watermark = choice->candidate;
		report_choice(choice);
	}
}

/* combinations that can never work, whatever source and target are */
static void
check_combination(const Job *job)
{
	if (job->strategy == STRATEGY_UPSERT && job->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("strategy upsert needs a key"),
				 errdetail("Neither target %s nor source %s has a primary key that says which columns identify a row.",
						   job->target_name, job->source_name),
				 errhint("Name them: key => '{id}'.")));
	if (job->strategy != STRATEGY_FULL && job->watermark == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("strategy %s needs a watermark", strategy_name(job->strategy)),
				 errdetail("No column of source %s looks like one.", job->source_name),
				 errhint("Name a column that grows with every change: watermark => 'updated_at'; or use strategy full.")));
	if (job->strategy == STRATEGY_FULL && job->watermark != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("strategy full takes no watermark"),
				 errdetail("Every run reads the whole source."),
				 errhint("Leave the watermark out, or use strategy upsert.")));
	if (job->strategy == STRATEGY_FULL && job->options->start_at)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"start_at\" needs a watermark"),
				 errdetail("Strategy full reads the whole source."),
				 errhint("Use the option \"filter\".")));
	if (job->key == NIL && job->options->lookback != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"lookback\" needs a key"),
				 errdetail("Without one, a row that is read again would be inserted again."),
				 errhint("Name a key, or leave the option out.")));
	if (job->strategy == STRATEGY_FULL && job->options->lookback != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"lookback\" needs a watermark"),
				 errdetail("Strategy full reads the whole source."),
				 errhint("Leave the option out.")));
	if (job->key == NIL && job->options->null_watermark == NULL_WATERMARK_ALWAYS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"null_watermark\" cannot be \"always\" without a key"),
				 errdetail("Every run would insert the rows without a watermark once more."),
				 errhint("Name a key, or set it to \"skip\" or \"error\".")));
	if (job->key == NIL && job->options->full_refresh_mode == FULL_REFRESH_MERGE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"full_refresh_mode\" cannot be \"merge\" without a key"),
				 errdetail("Rows are merged by key."),
				 errhint("Name a key, or set it to \"truncate\".")));
}

/* some value of a watermark's type, to try out an option on */
static Datum
sample_value(const WatermarkType *type)
{
	return watermark_parse(type, type->kind == WATERMARK_TIME ? "2000-01-01"
						   : type->type == UUIDOID ? "00000000-0000-0000-0000-000000000000"
						   : type->type == PG_LSNOID ? "0/0" : "0");
}

/* SQL that is no SQL is said now, and not by the first run */
static void
try_out_sql(const char *option, const char *sql)
{
	Trouble		trouble;

	if (sql == NULL)
		return;
	trouble_begin(&trouble, psprintf("The option \"%s\" is: %s", option, sql),
				  "Give one or more SQL statements.");
	(void) raw_parser(sql, RAW_PARSE_DEFAULT);
	trouble_end(&trouble);
}

/* "now" and "today", and a time in this session's zone, mean what they mean at this moment */
static void
fix_start(Job *job, char *value)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "{\"start_at\": ");
	escape_json(&buf, value);
	appendStringInfoChar(&buf, '}');
	job->options_json = options_merge(job->options_json,
									  DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(buf.data))));
	job->options->start_at = value;
}

/* options whose form only the watermark's type knows */
static void
try_out_values(Source *source, Job *job, const WatermarkType *type)
{
	Trouble		trouble;

	trouble_begin(&trouble, psprintf("It is a value in the options, for watermark %s.", job->watermark),
				  psprintf("\"start_at\" is a value of type %s, \"lookback\" a difference of two.", type->sql_name));
	if (job->options->start_at)
		fix_start(job, watermark_print(type, watermark_parse(type, job->options->start_at)));
	if (job->options->source_timezone)
		(void) source_ask_catalog(source, psprintf("SELECT pg_catalog.timezone(%s, pg_catalog.now())",
												   quote_literal_cstr(job->options->source_timezone)));
	if (job->options->lookback)
		(void) watermark_subtract(type, sample_value(type), job->options->lookback);
	trouble_end(&trouble);
}

/* plans the query that reads: that asks for the rights on what it names */
static void
try_out_query(Source *source, const Job *job, const Shape *shape)
{
	Window		everything = {.with_null = true};
	char	   *sql = query_read(shape, source, job->options->filter, &everything, READ_ANY_ORDER, 0);
	Trouble		trouble;

	trouble_begin(&trouble, psprintf("The source is read with: %s", sql),
				  "GRANT what lacks, at the source, or leave columns out: {\"exclude\": [...]}.");
	(void) facts_plan(source, sql);
	trouble_end(&trouble);
}

/* makes the target if it is missing, and tries the job out against both sides */
static void
try_out(Source *source, Job *job)
{
	Shape	   *shape;

	if (!OidIsValid(job->target))
	{
		List	   *columns = shape_source_columns(job);
		Oid			ignored_type;
		int32		ignored_typmod;
		Oid			ignored_collation;

		shape_describe(source, job, columns, &ignored_type, &ignored_typmod, &ignored_collation);
		job->target = target_create(job->target_name, columns, job->key);
		job->target_name = relation_qualified_name(job->target);
		ereport(NOTICE, (errmsg("table %s is created", job->target_name)));
	}
	target_require_writable(job, job->strategy == STRATEGY_FULL);
	shape = shape_build(source, job);
	if (shape->watermark)
		try_out_values(source, job, shape->watermark);
	try_out_query(source, job, shape);
	try_out_sql("pre_sql", job->options->pre_sql);
	try_out_sql("post_sql", job->options->post_sql);
}

/* resolves names, chooses what is missing, and refuses what cannot work */
static void
complete_job(Job *job, bool given_strategy, bool given_key)
{
	RoleBracket bracket;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "incload job", ALLOCSET_SMALL_SIZES);
	Source	   *source;
	Trouble		trouble;

	role_enter_owner(&bracket, job->owner, job->search_path);
	trouble_begin(&trouble, psprintf("Job \"%s\" was tried out, from source %s to target %s, and nothing is stored.",
									 job->name, job->source_name, job->target_name),
				  "See that source and target have what the job names, and that its owner may use it.");
	job->source = relation_require_source(job->source_name);
	job->source_name = relation_qualified_name(job->source);
	job->target = relation_oid_or_invalid(job->target_name);
	if (OidIsValid(job->target))
	{
		job->target_name = relation_qualified_name(job->target);
		if (job->key == NIL && !given_key)
			job->key = target_primary_key(job->target);
	}
	source = source_connect(job, context);
	choose_missing(source, job, given_strategy, given_key);
	check_combination(job);
	try_out(source, job);
	source_release(source);
	trouble_end(&trouble);
	role_leave(&bracket);
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

static void
refuse_in_recovery(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);
}

PG_FUNCTION_INFO_V1(incload_create_job);

/*
 * incload_create_job(job, source, target, strategy, watermark, key, options) → incload.job
 *		Creates a job owned by the current user. A key that is an empty array
 *		means that there is none, where NULL has one looked for.
 */
Datum
incload_create_job(PG_FUNCTION_ARGS)
{
	Job		   *job = palloc0(sizeof(Job));
	char	   *strategy = text_arg(fcinfo, 3);

	refuse_in_recovery("incload_create_job()");
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
	job->options_json = empty_object();
	if (!PG_ARGISNULL(6))
		job->options_json = options_merge(job->options_json, PG_GETARG_JSONB_P(6));
	job->options = options_parse(job->options_json);
	job->search_path = pstrdup(namespace_search_path);
	job->enabled = true;

	complete_job(job, strategy != NULL, !PG_ARGISNULL(5));
	/* another session may have been quicker */
	if (!catalog_insert_job(job))
		report_taken(job->name);
	catalog_event(job, "job_created", psprintf("job %s loads %s into %s, strategy %s", job->name,
											   job->source_name, job->target_name,
											   strategy_name(job->strategy)), NULL);
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

/* does the job, as it is now, read other rows than before, or in another order? */
static bool
changes_reading(const Job *old, const Job *new)
{
	return old->strategy != new->strategy ||
		strcmp(old->source_name, new->source_name) != 0 ||
		strcmp(old->target_name, new->target_name) != 0 ||
		(old->stored_target != new->target &&
		 strcmp(old->stored_database, role_database_identity()) == 0) ||
		(old->watermark == NULL) != (new->watermark == NULL) ||
		(old->watermark && strcmp(old->watermark, new->watermark) != 0) ||
		!same_names(old->key, new->key);
}

static bool
same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

/* would the rows loaded so far be others, or have other values, by the new options? */
static bool
changes_rows(const JobOptions *old, const JobOptions *new)
{
	ListCell   *a;
	ListCell   *b;

	if (!same_text(old->filter, new->filter) || !same_text(old->start_at, new->start_at) ||
		!same_names(old->columns, new->columns) || !same_names(old->exclude, new->exclude) ||
		list_length(old->transforms) != list_length(new->transforms))
		return true;
	forboth(a, old->transforms, b, new->transforms)
		if (!same_text(((Transform *) lfirst(a))->column, ((Transform *) lfirst(b))->column) ||
			!same_text(((Transform *) lfirst(a))->expression, ((Transform *) lfirst(b))->expression))
			return true;
	return false;
}

PG_FUNCTION_INFO_V1(incload_alter_job);

/*
 * incload_alter_job(job, source, target, strategy, watermark, key, options, owner) → incload.job
 *		Changes what is given and leaves the rest. Where source, target,
 *		strategy, watermark or key change, the next run reads everything again.
 */
Datum
incload_alter_job(PG_FUNCTION_ARGS)
{
	char	   *name = required_arg(fcinfo, 0, "job");
	Job		   *old;
	Job		   *job;

	refuse_in_recovery("incload_alter_job()");
	old = job_load(name);
	run_lock(old, false);
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
	if (!PG_ARGISNULL(6))
	{
		job->options_json = options_merge(old->options_json, PG_GETARG_JSONB_P(6));
		job->options = options_parse(job->options_json);
	}
	if (!PG_ARGISNULL(7))
		change_owner(job, text_arg(fcinfo, 7));
	else
		job_require_owner(job);

	complete_job(job, true, true);
	catalog_update_job(job);
	if (changes_reading(old, job))
	{
		catalog_reset_checkpoint(job->id);
		ereport(NOTICE,
				(errmsg("the next run of job \"%s\" reads everything again", job->name),
				 errdetail("Its checkpoint does not fit what has changed.")));
	}
	else if (job->strategy != STRATEGY_FULL && changes_rows(old->options, job->options) &&
			 catalog_read_checkpoint(job->id, false)->loaded_to != NULL)
		ereport(NOTICE,
				(errmsg("rows that job \"%s\" has already loaded stay as they are", job->name),
				 errdetail("Which rows or columns are read, or how they are changed, holds from the next run on."),
				 errhint("SELECT incload_refresh(%s) applies it to all rows.", quote_literal_cstr(job->name))));
	catalog_event(job, "job_altered", psprintf("job %s was changed", job->name), NULL);
	PG_RETURN_DATUM(catalog_job_row(job->id));
}

static Datum
set_enabled(FunctionCallInfo fcinfo, bool enabled)
{
	Job		   *job;

	refuse_in_recovery(enabled ? "incload_resume()" : "incload_pause()");
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	if (job->enabled != enabled)
	{
		catalog_set_enabled(job->id, enabled);
		catalog_event(job, enabled ? "job_resumed" : "job_paused",
					  psprintf("job %s was %s", job->name, enabled ? "resumed" : "paused"), NULL);
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

PG_FUNCTION_INFO_V1(incload_accept_source);

/*
 * incload_accept_source(job text) → incload.job
 *		Goes on with a source that is not what it was: another server with the
 *		same rows, or one whose newest rows are gone. What was seen is forgotten;
 *		a checkpoint above the newest id comes down to it in the next run.
 */
Datum
incload_accept_source(PG_FUNCTION_ARGS)
{
	Job		   *job;
	CheckpointRow *row;
	char	   *details;

	refuse_in_recovery("incload_accept_source()");
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	run_lock(job, false);
	row = catalog_read_checkpoint(job->id, true);
	details = psprintf("{\"epoch\": \"%s\"}", row->epoch ? row->epoch : "");
	row->epoch = NULL;
	row->seen = row->mark = NULL;
	row->seen_tie_key = NIL;
	row->seen_null = false;
	row->noted_bounds = "[]";
	catalog_write_checkpoint(job->id, row);
	catalog_event(job, "source_accepted", psprintf("job %s goes on with the source as it is", job->name),
				  details);
	PG_RETURN_DATUM(catalog_job_row(job->id));
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

	refuse_in_recovery("incload_drop_job()");
	job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	run_lock(job, false);
	catalog_event(job, "job_dropped", psprintf("job %s was dropped", job->name), NULL);
	catalog_delete_job(job->id);
	PG_RETURN_VOID();
}
