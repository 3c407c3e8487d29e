/*
 * job_trial.c
 *		Trying a job out before it is stored.
 *
 * Its source is connected to, its query planned there, its shape built. What
 * cannot work is refused here and not in the night.
 */
#include "postgres.h"

#include "fmgr.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/memutils.h"

#include "compat.h"
#include "deletes.h"
#include "drift.h"
#include "facts.h"
#include "fill.h"
#include "job_trial.h"
#include "names.h"
#include "prune.h"
#include "query.h"
#include "reconcile_agenda.h"
#include "role.h"
#include "shape.h"
#include "slo.h"
#include "source.h"
#include "suggest.h"
#include "target.h"
#include "tombstone.h"
#include "trouble.h"
#include "window.h"

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

/* options that say something about the values of a watermark, and are set */
static const char *
watermark_option(const JobOptions *options)
{
	return options->start_at ? "start_at" : options->lookback ? "lookback"
		: options->watermark_kind != READING_BY_TYPE ? "watermark_kind"
		: options->watermark_fallback ? "watermark_fallback"
		: options->null_watermark != NULL_WATERMARK_DEFAULT ? "null_watermark"
		: options->only_newer ? "only_newer"
		: options->source_timezone ? "source_timezone" : NULL;
}

/* what goes with the strategy, and what with having no watermark */
static void
check_strategy(const Job *job)
{
	const char *option = watermark_option(job->options);

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
	if (job->strategy == STRATEGY_FULL && option)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" needs a watermark", option),
				 errdetail("Strategy full reads the whole source."),
				 job->options->start_at ? errhint("Use the option \"filter\".")
				 : errhint("Leave the option out.")));
	if (shape_tracks_xmin(job) && option)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" does not go with watermark xmin", option),
				 errdetail("It tells which transaction wrote a row, and has no values that could be compared."),
				 errhint("Leave the option out.")));
}

/* what goes with having no key */
static void
check_keyless(const Job *job)
{
	if (job->key != NIL)
		return;
	if (job->options->lookback != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"lookback\" needs a key"),
				 errdetail("Without one, a row that is read again would be inserted again."),
				 errhint("Name a key, or leave the option out.")));
	if (job->options->watermark_fallback != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"watermark_fallback\" needs a key"),
				 errdetail("A row that gets its watermark later is read once more, and without a key would be inserted again."),
				 errhint("Name a key, or leave the option out.")));
	if (job->options->null_watermark == NULL_WATERMARK_ALWAYS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"null_watermark\" cannot be \"always\" without a key"),
				 errdetail("Every run would insert the rows without a watermark once more."),
				 errhint("Name a key, or set it to \"skip\" or \"error\".")));
	if (job->options->full_refresh_mode == FULL_REFRESH_MERGE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"full_refresh_mode\" cannot be \"merge\" without a key"),
				 errdetail("Rows are merged by key."),
				 errhint("Name a key, or set it to \"truncate\" or \"swap\".")));
}

/* combinations that can never work, whatever source and target are */
static void
check_combination(const Job *job)
{
	check_strategy(job);
	check_keyless(job);
	deletes_check_options(job);
	reconcile_agenda_check(job);
	slo_check(job);
	if (job->options->watermark_fallback && job->options->null_watermark != NULL_WATERMARK_DEFAULT)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("options \"watermark_fallback\" and \"null_watermark\" cannot be used together"),
				 errdetail("Each says what becomes of rows without a watermark."),
				 errhint("Keep one of them; null takes an option away.")));
	if (job->options->only_newer && job->strategy != STRATEGY_UPSERT)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"only_newer\" needs strategy upsert"),
				 errdetail("With strategy %s no row of the target is overwritten by a version of it.", strategy_name(job->strategy)),
				 errhint("Leave the option out.")));
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
		(void) watermark_subtract(type, watermark_sample(type), job->options->lookback);
	trouble_end(&trouble);
}

/* plans the query that reads: that asks for the rights on what it names */
static void
try_out_query(Source *source, const Job *job, const Shape *shape)
{
	Window		everything = {.with_null = true};
	char	   *sql;
	Trouble		trouble;

	if (shape->fallback)
	{
		everything.null_low.is_set = true;
		everything.null_low.value = watermark_sample(shape->fallback);
	}
	sql = query_read(shape, source, job->options->filter, &everything, NULL, READ_ANY_ORDER, 0);
	trouble_begin(&trouble, psprintf("The source is read with: %s", sql),
				  "GRANT what lacks, at the source, or leave columns out: {\"exclude\": [...]}.");
	(void) facts_plan(source, sql);
	trouble_end(&trouble);
}

/* the same for the tombstones, whose query asks for keys of the source, too */
static void
try_out_tombstones(Source *source, const Job *job, const Shape *shape)
{
	Tombstones *tombstones = tombstones_open(job, source, shape, CurrentMemoryContext);
	char	   *sql;
	Trouble		trouble;

	tombstones->window.with_null = true;
	sql = tombstones_query(tombstones, 0);
	trouble_begin(&trouble, psprintf("The tombstones are read with: %s", sql),
				  "See that the columns of the key have the same types in both, and GRANT what lacks, at the source.");
	(void) facts_plan(tombstones->source, sql);
	trouble_end(&trouble);
	source_release(tombstones->source);
}

/* makes the target if it is missing, and tries the job out against both sides */
static void
try_out(Source *source, Job *job)
{
	Shape	   *shape;

	if (!OidIsValid(job->target))
	{
		List	   *columns = shape_source_columns(source, job);
		Oid			ignored_type;
		int32		ignored_typmod;
		Oid			ignored_collation;

		shape_describe(source, job, columns, &ignored_type, &ignored_typmod, &ignored_collation);
		job->target = target_create(job->target_name, columns, job->key);
		job->target_name = relation_qualified_name(job->target);
		ereport(NOTICE, (errmsg("table %s is created", job->target_name)));
	}
	target_require_writable(job, job->strategy == STRATEGY_FULL);
	drift_require_alterable(job);
	shape = shape_build(source, job);
	if (job->options->deletes == DELETES_PRUNE)
		prune_require_possible(job, shape);
	job->source_columns = drift_columns(source);
	job->absent_columns = drift_absent(source);
	if (shape->watermark)
		try_out_values(source, job, shape->watermark);
	if (job->options->watermark_fallback && shape->watermark_not_null)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"watermark_fallback\" is of no use"),
				 errdetail("Watermark %s is NOT NULL at the source.", job->watermark),
				 errhint("Leave the option out.")));
	if (job_full_refresh_mode(job) == FULL_REFRESH_SWAP)
		fill_require_swap(job, shape);
	try_out_query(source, job, shape);
	if (job->options->deletes == DELETES_TOMBSTONE)
		try_out_tombstones(source, job, shape);
	try_out_sql("pre_sql", job->options->pre_sql);
	try_out_sql("post_sql", job->options->post_sql);
}

void
job_try_out(Job *job, bool given_strategy, bool given_key)
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
