/*
 * channel.c
 *		Channels, by which events are told, and silences.
 *
 * A channel's URL and some of its options are secret. They stand in one table
 * that no view shows. A statement that has them in it is in no error of this
 * server's log, and in pg_stat_activity only until it begins.
 */
#include "postgres.h"

#include <unistd.h>

#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "http.h"
#include "job.h"
#include "names.h"
#include "role.h"
#include "slots.h"

typedef enum ChannelOptionType
{
	CHANNEL_TEXT,
	CHANNEL_TIME,				/* an interval above zero */
	CHANNEL_WAIT,				/* one that may be zero */
	CHANNEL_FILE,				/* of the server's */
	CHANNEL_HEADERS,			/* an object of texts */
	CHANNEL_LABELS				/* likewise, with names as Prometheus has them */
} ChannelOptionType;

/* ChannelOption: an option; "formats" are those that have it, NULL for all */
typedef struct ChannelOption
{
	const char *name;
	ChannelOptionType type;
	bool		is_secret;
	const char *formats;
} ChannelOption;

#define GROUPING_FORMATS "webhook slack pagerduty"

static const ChannelOption channel_options[] = {
	{"token", CHANNEL_TEXT, true, NULL},
	{"user", CHANNEL_TEXT, false, NULL},
	{"password", CHANNEL_TEXT, true, NULL},
	{"headers", CHANNEL_HEADERS, true, NULL},
	{"routing_key", CHANNEL_TEXT, true, "pagerduty"},
	{"ca_file", CHANNEL_FILE, false, NULL},
	{"timeout", CHANNEL_TIME, false, NULL},
	{"connect_timeout", CHANNEL_TIME, false, NULL},
	{"group_wait", CHANNEL_WAIT, false, GROUPING_FORMATS},
	{"group_interval", CHANNEL_WAIT, false, GROUPING_FORMATS},
	{"resend", CHANNEL_TIME, false, "alertmanager"},
	{"labels", CHANNEL_LABELS, false, "alertmanager"},
	{"give_up_after", CHANNEL_TIME, false, NULL},
};

/* Secrecy: a stretch whose errors do not show the statement; on the stack */
typedef ErrorContextCallback Secrecy;

static void
hide_statement(void *arg)
{
	errhidestmt(true);
}

static void
secrecy_begin(Secrecy *secrecy, const char *function)
{
	secrecy->callback = hide_statement;
	secrecy->arg = NULL;
	secrecy->previous = error_context_stack;
	error_context_stack = secrecy;
	/* what others see of this session, until its next statement */
	pgstat_report_activity(STATE_RUNNING, function);
}

static void
secrecy_end(Secrecy *secrecy)
{
	error_context_stack = secrecy->previous;
}

static void
refuse_option(const char *name, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("channel option \"%s\" has a value that cannot be used", name),
			 errdetail_internal("%s", detail)));
}

static const ChannelOption *
find_option(const char *name)
{
	List	   *names = NIL;
	const char *nearest;

	for (int i = 0; i < lengthof(channel_options); i++)
	{
		if (strcmp(channel_options[i].name, name) == 0)
			return &channel_options[i];
		names = lappend(names, (char *) channel_options[i].name);
	}
	nearest = nearest_name(names, name);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("there is no channel option \"%s\"", name),
			 nearest ? errhint("Perhaps you meant \"%s\".", nearest) : 0));
}

/* an object of texts that can stand in a header, or in labels */
static void
check_texts(const ChannelOption *option, const char *object)
{
	const char *params[1] = {object};
	TextRows   *rows = catalog_query("SELECT e.key, jsonb_typeof(e.value), e.value #>> '{}',"
									 " e.key ~ '^[A-Za-z0-9-]+$', e.key ~ '^[A-Za-z_][A-Za-z0-9_]*$',"
									 " e.value #>> '{}' ~ '[[:cntrl:]]'"
									 " FROM jsonb_each($1::jsonb) e", 1, params);

	for (int r = 0; r < rows->nrows; r++)
	{
		char	  **v = rows->value[r];

		if (strcmp(v[1], "string") != 0 || v[5][0] == 't')
			refuse_option(option->name, "Each value is a text without control characters.");
		if (option->type == CHANNEL_HEADERS && v[3][0] != 't')
			refuse_option(option->name, "A header's name has only letters, digits and hyphens.");
		if (option->type == CHANNEL_LABELS && v[4][0] != 't')
			refuse_option(option->name, "A label's name has only letters, digits and underscores, and begins with no digit.");
		if (option->type == CHANNEL_LABELS &&
			(strcmp(v[0], "alertname") == 0 || strcmp(v[0], "job") == 0 || strcmp(v[0], "severity") == 0 || strcmp(v[0], "code") == 0))
			refuse_option(option->name, "The labels alertname, job, severity and code come from the event.");
	}
}

static void
check_time(const ChannelOption *option, const char *value)
{
	const char *params[1] = {value};
	char	   *ms = catalog_query("SELECT (extract(epoch FROM $1::interval) * 1000)::bigint", 1, params)->value[0][0];

	if (strtoll(ms, NULL, 10) < (option->type == CHANNEL_TIME ? 1 : 0) || strtoll(ms, NULL, 10) > PG_INT32_MAX)
		refuse_option(option->name, option->type == CHANNEL_TIME
					  ? "It is an interval above zero, and of 24 days at most."
					  : "It is an interval of 24 days at most.");
}

static void
check_option(const ChannelOption *option, const char *format, const char *type, const char *value)
{
	bool		is_object = option->type == CHANNEL_HEADERS || option->type == CHANNEL_LABELS;

	if (option->formats && strstr(option->formats, format) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("channel option \"%s\" means nothing to format %s", option->name, format),
				 errdetail("It is for %s.", option->formats)));
	if (strcmp(type, is_object ? "object" : "string") != 0)
		refuse_option(option->name, is_object ? "It is an object of texts." : "It is a text.");
	switch (option->type)
	{
		case CHANNEL_HEADERS:
		case CHANNEL_LABELS:
			check_texts(option, value);
			break;
		case CHANNEL_TIME:
		case CHANNEL_WAIT:
			check_time(option, value);
			break;
		case CHANNEL_FILE:
			if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_SERVER_FILES))
				ereport(ERROR,
						(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						 errmsg("permission denied to name a file of the server"),
						 errdetail("Only roles with privileges of the \"%s\" role may set the option \"%s\".",
								   "pg_read_server_files", option->name)));
			if (access(value, R_OK) != 0)
				refuse_option(option->name, "The server cannot read that file.");
			break;
		case CHANNEL_TEXT:
			for (const char *c = value; *c; c++)
				if ((unsigned char) *c < ' ' || *c == 127)
					refuse_option(option->name, "It has control characters.");
			break;
	}
}

/* takes options apart into what may be shown and what may not; "given" are those that are new */
static void
check_options(const char *format, const char *given, const char *all, char **shown, char **secrets)
{
	const char *params[2] = {given};
	TextRows   *rows = catalog_query("SELECT e.key, jsonb_typeof(e.value), e.value #>> '{}' FROM jsonb_each($1::jsonb) e", 1, params);
	List	   *secret_names = NIL;

	for (int r = 0; r < rows->nrows; r++)
	{
		const ChannelOption *option = find_option(rows->value[r][0]);

		/* null: the default */
		if (strcmp(rows->value[r][1], "null") != 0)
			check_option(option, format, rows->value[r][1], rows->value[r][2]);
	}
	for (int i = 0; i < lengthof(channel_options); i++)
		if (channel_options[i].is_secret)
			secret_names = lappend(secret_names, (char *) channel_options[i].name);
	params[0] = all;
	params[1] = catalog_names_to_array(secret_names);
	rows = catalog_query("SELECT a - $2::text[], (SELECT coalesce(jsonb_object_agg(e.key, e.value), '{}') FROM jsonb_each(a) e"
						 "  WHERE e.key = ANY ($2::text[])), a ? 'routing_key', a ? 'token', a ? 'user', a ? 'password'"
						 " FROM (SELECT jsonb_strip_nulls($1::jsonb)) x (a)", 2, params);
	if (strcmp(format, "pagerduty") == 0 && rows->value[0][2][0] != 't')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a channel of format pagerduty needs the option \"routing_key\""),
				 errhint("It is the integration key of the service, for the Events API v2.")));
	if (rows->value[0][3][0] == 't' && rows->value[0][4][0] == 't')
		refuse_option("token", "A request has a token, or a user and a password.");
	if (rows->value[0][5][0] == 't' && rows->value[0][4][0] != 't')
		refuse_option("password", "It needs the option \"user\".");
	*shown = rows->value[0][0];
	*secrets = rows->value[0][1];
}

static void
require_word(const char *what, const char *word, const char *words)
{
	const char *params[2] = {word, words};

	if (catalog_query("SELECT WHERE $1 = ANY ($2::text[])", 2, params)->nrows == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is no %s", word, what),
				 errhint("It is one of %s.", words)));
}

static char *
require_url(const char *url)
{
	char	   *origin;

	if (!http_check_url(url, &origin))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the URL cannot be used"),
				 errdetail("It begins with https:// or http://, and has a host.")));
	return origin;
}

/* the row of the view that stands for a channel */
static Datum
channel_row(const char *name)
{
	return catalog_query_row("SELECT c FROM incload.channel c WHERE c.channel = $1", 1, &name);
}

static void
refuse_unknown(const char *name)
{
	TextRows   *rows = catalog_query("SELECT channel FROM incload.channel_store", 0, NULL);
	List	   *names = NIL;
	const char *nearest;

	for (int r = 0; r < rows->nrows; r++)
		names = lappend(names, rows->value[r][0]);
	nearest = nearest_name(names, name);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("there is no channel \"%s\"", name),
			 nearest ? errhint("Perhaps you meant \"%s\".", nearest) : 0));
}

/* who did what to a channel, or to all jobs; its event_id */
static char *
own_event(const char *code, const char *message, const char *details)
{
	const char *params[4] = {GetUserNameFromId(GetUserId(), false), code, message, details ? details : "{}"};

	return catalog_query("INSERT INTO incload.event_store (owner, severity, code, message, details)"
						 " VALUES ($1::name, 'info', $2, $3, jsonb_build_object('by', $1) || $4::jsonb)"
						 " RETURNING event_id", 4, params)->value[0][0];
}

/* an argument as text; NULL for null */
static char *
text_argument(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

static char *
json_argument(FunctionCallInfo fcinfo, int n)
{
	Jsonb	   *json;

	if (PG_ARGISNULL(n))
		return "{}";
	json = PG_GETARG_JSONB_P(n);
	if (!JB_ROOT_IS_OBJECT(json) || JB_ROOT_IS_SCALAR(json))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("options must be a JSON object")));
	return JsonbToCString(NULL, &json->root, VARSIZE(json));
}

static void
require_argument(const char *value, const char *name)
{
	if (value == NULL || *value == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null or empty", name)));
}

PG_FUNCTION_INFO_V1(incload_add_channel);

/*
 * incload_add_channel(name, url, format, min_severity, options) → incload.channel
 */
Datum
incload_add_channel(PG_FUNCTION_ARGS)
{
	Secrecy		secrecy;
	const char *params[8] = {0};
	char	   *shown;
	char	   *secrets;
	Datum		row;

	secrecy_begin(&secrecy, "incload_add_channel()");
	job_refuse_in_recovery("incload_add_channel()");
	params[0] = text_argument(fcinfo, 0);
	params[1] = text_argument(fcinfo, 1);
	params[3] = text_argument(fcinfo, 2);
	params[4] = text_argument(fcinfo, 3);
	require_argument(params[0], "name");
	require_argument(params[1], "url");
	require_argument(params[3], "format");
	require_argument(params[4], "min_severity");
	params[2] = require_url(params[1]);
	require_word("format of a channel", params[3], "{alertmanager,webhook,slack,pagerduty}");
	require_word("severity", params[4], "{page,ticket,info}");
	check_options(params[3], json_argument(fcinfo, 4), json_argument(fcinfo, 4), &shown, &secrets);
	params[5] = shown;
	params[6] = secrets;
	params[7] = GetUserNameFromId(GetUserId(), false);
	if (catalog_query("INSERT INTO incload.channel_store (channel, url, origin, format, min_severity, options, secrets, created_by)"
					  " VALUES ($1, $2, $3, $4, $5, $6::jsonb, $7::jsonb, $8::name)"
					  " ON CONFLICT (channel) DO NOTHING RETURNING 1", 8, params)->nrows == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("there is a channel \"%s\" already", params[0]),
				 errhint("incload_alter_channel changes it.")));
	(void) own_event("channel_added", psprintf("channel %s sends events to %s", params[0], params[2]), NULL);
	row = channel_row(params[0]);
	secrecy_end(&secrecy);
	PG_RETURN_DATUM(row);
}

PG_FUNCTION_INFO_V1(incload_alter_channel);

/*
 * incload_alter_channel(name, url, min_severity, options) → incload.channel
 *		What is null stays.
 */
Datum
incload_alter_channel(PG_FUNCTION_ARGS)
{
	Secrecy		secrecy;
	const char *params[6] = {0};
	const char *merge[2];
	char	   *given;
	char	   *shown;
	char	   *secrets;
	TextRows   *rows;
	Datum		row;

	secrecy_begin(&secrecy, "incload_alter_channel()");
	job_refuse_in_recovery("incload_alter_channel()");
	params[0] = text_argument(fcinfo, 0);
	params[1] = text_argument(fcinfo, 1);
	params[3] = text_argument(fcinfo, 2);
	given = json_argument(fcinfo, 3);
	require_argument(params[0], "name");
	if (params[1])
		params[2] = require_url(params[1]);
	if (params[3])
		require_word("severity", params[3], "{page,ticket,info}");
	merge[0] = params[0];
	merge[1] = given;
	rows = catalog_query("SELECT format, options || secrets || $2::jsonb FROM incload.channel_store"
						 " WHERE channel = $1 FOR UPDATE", 2, merge);
	if (rows->nrows == 0)
		refuse_unknown(params[0]);
	check_options(rows->value[0][0], given, rows->value[0][1], &shown, &secrets);
	params[4] = shown;
	params[5] = secrets;
	(void) catalog_query("UPDATE incload.channel_store SET url = coalesce($2, url), origin = coalesce($3, origin),"
						 " min_severity = coalesce($4, min_severity), options = $5::jsonb, secrets = $6::jsonb"
						 " WHERE channel = $1", 6, params);
	(void) own_event("channel_altered", psprintf("channel %s was changed", params[0]), NULL);
	row = channel_row(params[0]);
	secrecy_end(&secrecy);
	PG_RETURN_DATUM(row);
}

PG_FUNCTION_INFO_V1(incload_drop_channel);

/*
 * incload_drop_channel(name)
 *		What it has not delivered goes with it.
 */
Datum
incload_drop_channel(PG_FUNCTION_ARGS)
{
	const char *params[1] = {text_argument(fcinfo, 0)};
	TextRows   *rows;

	job_refuse_in_recovery("incload_drop_channel()");
	rows = catalog_query("DELETE FROM incload.channel_store WHERE channel = $1 RETURNING channel_id", 1, params);
	if (rows->nrows == 0)
		refuse_unknown(params[0]);
	(void) own_event("channel_dropped", psprintf("channel %s was dropped", params[0]), NULL);
	(void) catalog_query("DELETE FROM incload.outbox_store WHERE channel_id = $1::bigint", 1,
						 (const char *const *) rows->value[0]);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(incload_test_channel);

/*
 * incload_test_channel(name) → outbox_id
 *		Nobody waits here: the transaction is open.
 */
Datum
incload_test_channel(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0);
	const char *params[2] = {name};
	TextRows   *rows;

	job_refuse_in_recovery("incload_test_channel()");
	rows = catalog_query("SELECT channel_id FROM incload.channel_store WHERE channel = $1", 1, params);
	if (rows->nrows == 0)
		refuse_unknown(name);
	params[0] = rows->value[0][0];
	params[1] = own_event("channel_test", psprintf("a test of channel %s: nothing is wrong", name), NULL);
	rows = catalog_query("INSERT INTO incload.outbox_store (channel_id, event_id, kind, group_key, next_try)"
						 " VALUES ($1::bigint, $2::bigint, 'test', 'channel_test/' || $2, clock_timestamp())"
						 " RETURNING outbox_id", 2, params);
	if (!slots_has(SLOT_SCHEDULER, MyDatabaseId))
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("no scheduler runs in this database, and nothing is delivered before one does"),
				 errhint("SELECT incload_worker_start() starts one.")));
	PG_RETURN_INT64(strtoll(rows->value[0][0], NULL, 10));
}

PG_FUNCTION_INFO_V1(incload_silence);

/*
 * incload_silence(job, duration, reason) → when it ends
 *		In the place of the silence that the job had; job null: all jobs.
 */
Datum
incload_silence(PG_FUNCTION_ARGS)
{
	char	   *name = text_argument(fcinfo, 0);
	Job		   *job = NULL;
	const char *params[4] = {0};
	const char *details[2];
	TextRows   *rows;

	job_refuse_in_recovery("incload_silence()");
	if (PG_ARGISNULL(1))
		require_argument(NULL, "duration");
	if (name)
		job = job_load(name);
	else if (!has_privs_of_role(GetUserId(), role_extension_owner()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to silence all jobs"),
				 errdetail("Only the owner of the extension may do that."),
				 errhint("incload_silence('...', ...) silences a job of your own.")));
	params[0] = job ? catalog_number(job->id) : NULL;
	params[1] = DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(1)));
	params[2] = text_argument(fcinfo, 2);
	params[3] = GetUserNameFromId(GetUserId(), false);
	(void) catalog_query("UPDATE incload.silence_store SET ends_at = clock_timestamp()"
						 " WHERE job_id IS NOT DISTINCT FROM $1::bigint AND ends_at > clock_timestamp()", 1, params);
	rows = catalog_query("INSERT INTO incload.silence_store (job_id, ends_at, reason, created_by)"
						 " VALUES ($1::bigint, clock_timestamp() + $2::interval, $3, $4::name) RETURNING ends_at", 4, params);
	details[0] = "until";
	details[1] = rows->value[0][0];
	if (job)
		catalog_event(job, "job_silenced", psprintf("nobody is told about job %s until %s", job->name, details[1]),
					  catalog_details(1, details));
	else
		(void) own_event("job_silenced", psprintf("nobody is told about any job until %s", details[1]),
						 catalog_details(1, details));
	PG_RETURN_DATUM(DirectFunctionCall3(timestamptz_in, CStringGetDatum(rows->value[0][0]),
										ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}
