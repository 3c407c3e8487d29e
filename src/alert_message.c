/*
 * alert_message.c
 *		What a channel is sent, in the form that its receiver expects.
 *
 * An Alertmanager is told what is so, again and again, and knows an alert by its
 * labels. The others are told what has happened, once for all events of the same
 * cause; they know by a key what they have been sent before.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "alert_message.h"
#include "catalog.h"
#include "role.h"

#define MS_OF(name, otherwise) \
	"(extract(epoch FROM coalesce(options->>'" name "', '" otherwise "')::interval) * 1000)::bigint"

List *
alert_channels(void)
{
	List	   *channels = NIL;
	TextRows   *rows = catalog_query("SELECT channel_id, channel, url, format, array_position('{info,ticket,page}', min_severity),"
									 MS_OF("timeout", "10 s") "," MS_OF("connect_timeout", "5 s") ","
									 MS_OF("group_interval", "5 min") "," MS_OF("resend", "5 min") ","
									 MS_OF("give_up_after", "3 days") ","
									 " coalesce(options->'labels', '{}'),"
									 " options->>'ca_file', options->>'user', secrets->>'password',"
									 " CASE WHEN secrets ? 'token' THEN ARRAY['Authorization: Bearer ' || (secrets->>'token')] ELSE '{}' END"
									 "  || ARRAY(SELECT h.key || ': ' || h.value FROM jsonb_each_text(secrets->'headers') h)"
									 " FROM incload.channel_store ORDER BY channel_id", 0, NULL);

	for (int r = 0; r < rows->nrows; r++)
	{
		char	  **v = rows->value[r];
		Channel    *channel = palloc0(sizeof(Channel));

		channel->id = strtoll(v[0], NULL, 10);
		channel->name = v[1];
		channel->url = v[2];
		channel->format = v[3];
		channel->min_rank = atoi(v[4]);
		channel->timeout_ms = atoi(v[5]);
		channel->connect_timeout_ms = atoi(v[6]);
		channel->group_interval_ms = atoi(v[7]);
		channel->resend_ms = atoi(v[8]);
		channel->give_up_ms = atoi(v[9]);
		channel->labels = v[10];
		channel->ca_file = v[11];
		channel->user = v[12];
		channel->password = v[13];
		channel->headers = catalog_names_from_array(v[14]);
		channels = lappend(channels, channel);
	}
	return channels;
}

bool
channel_is_alertmanager(const Channel *channel)
{
	return strcmp(channel->format, "alertmanager") == 0;
}

/* JSON is UTF-8; what a database without an encoding has in it may be anything */
static char *
to_utf8(char *text)
{
	if (GetDatabaseEncoding() == PG_SQL_ASCII)
	{
		for (char *c = text; *c; c++)
			if (IS_HIGHBIT_SET(*c))
				*c = '?';
		return text;
	}
	return pg_server_to_any(text, strlen(text), PG_UTF8);
}

static void
describe(HttpRequest *request, const Channel *channel, char *body)
{
	memset(request, 0, sizeof(HttpRequest));
	request->url = channel->url;
	request->body = to_utf8(body);
	request->user = channel->user;
	request->password = channel->password;
	request->ca_file = channel->ca_file;
	request->timeout_ms = channel->timeout_ms;
	request->connect_timeout_ms = channel->connect_timeout_ms;
	request->headers = list_concat(list_make2("Content-Type: application/json", "Expect:"), channel->headers);
}

/*
 * Alertmanager takes an alert for over at endsAt, or when it is not told again
 * for long: what lasts ends in an hour, and is sent anew before that.
 */
static const char alertmanager_query[] =
"SELECT jsonb_agg(jsonb_build_object("
"  'labels', jsonb_strip_nulls($2::jsonb || jsonb_build_object('alertname', 'incload_' || e.code, 'job', e.job,"
"     'severity', e.severity, 'code', e.code, 'database', current_database(), 'sqlstate', e.details->>'sqlstate',"
"     'server', substring(e.group_key from '/server (.*)$'))),"
"  'annotations', jsonb_strip_nulls(jsonb_build_object('summary', e.message, 'hint', e.details->>'hint',"
"     'runbook_url', incload.runbook(e.code))),"
"  'startsAt', to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),"
"  'endsAt', to_char(greatest(e.ends_at, e.at + interval '1 ms') AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))"
"  ORDER BY e.event_id)"
" FROM (SELECT v.*, (SELECT o.group_key FROM incload.outbox_store o WHERE o.event_id = v.event_id"
"     UNION ALL SELECT a.group_key FROM incload.alert_store a WHERE a.event_id = v.event_id LIMIT 1) AS group_key,"
"   clock_timestamp() + CASE WHEN v.code = 'channel_test' THEN interval '1 minute'"
"     WHEN EXISTS (SELECT FROM incload.outbox_store o WHERE o.alert_id = v.event_id)"
"      AND NOT EXISTS (SELECT FROM incload.alert_store a WHERE a.event_id = v.event_id) THEN interval '0'"
"     ELSE interval '1 hour' END AS ends_at"
"  FROM incload.event_store v WHERE v.event_id = ANY ($1::bigint[])) e";

void
alert_state(HttpRequest *request, const Channel *channel, const char *event_ids)
{
	static const char path[] = "/api/v2/alerts";
	const char *params[2] = {event_ids, channel->labels};
	char	   *body = catalog_query(alertmanager_query, 2, params)->value[0][0];
	int			length = strlen(channel->url);

	describe(request, channel, body ? body : "[]");
	while (length > 0 && channel->url[length - 1] == '/')
		length--;
	if (length < strlen(path) || strncmp(channel->url + length - strlen(path), path, strlen(path)) != 0)
		request->url = psprintf("%.*s%s", length, channel->url, path);
}

/*
 * The others. $1 rows of the outbox, $2 key, $3 routing key, $4 format, $5 what
 * PagerDuty knows the cause by. "about" is the event that began
 * a trouble, or tells what is told once.
 */
static const char message_query[] =
"WITH d AS MATERIALIZED (SELECT o.kind, o.group_key, o.alert_id, e.event_id, e.at, e.job, e.run_id, e.severity, e.code,"
"   e.message, e.details, b.code AS about, b.severity AS about_severity,"
"   array_position('{info,ticket,page}', b.severity) AS rank"
"  FROM incload.outbox_store o JOIN incload.event_store e USING (event_id)"
"  JOIN incload.event_store b ON b.event_id = CASE WHEN o.kind = 'resolved' THEN o.alert_id ELSE o.event_id END"
"  WHERE o.outbox_id = ANY ($1::bigint[])),"
" s AS (SELECT CASE WHEN bool_or(d.kind = 'firing') THEN 'firing' ELSE max(d.kind) END AS status, max(d.group_key) AS group_key,"
"   (array_agg(d.about ORDER BY d.event_id))[1] AS about,"
"   (array_agg(d.about_severity ORDER BY d.rank DESC))[1] AS severity,"
"   (array_agg(d.message ORDER BY d.event_id))[1] AS message, min(d.at) AS at, count(DISTINCT d.job) AS jobs,"
"   (SELECT string_agg(f.job, ', ' ORDER BY f.job) FROM (SELECT DISTINCT g.job FROM d g ORDER BY g.job LIMIT 20) f) AS names,"
"   jsonb_agg(jsonb_build_object('event_id', d.event_id, 'alert', d.alert_id, 'kind', d.kind, 'at', d.at, 'job', d.job, 'run_id', d.run_id,"
"     'severity', d.severity, 'code', d.code, 'about', d.about, 'message', d.message, 'details', d.details,"
"     'runbook', incload.runbook(d.about)) ORDER BY d.event_id) AS events FROM d),"
" t AS (SELECT s.*, CASE s.status WHEN 'resolved' THEN 'resolved: ' ELSE '' END ||"
"   CASE WHEN s.jobs > 1 THEN format('%s jobs, %s: %s%s; the first: %s', s.jobs, s.about, s.names,"
"     CASE WHEN s.jobs > 20 THEN format(' and %s more', s.jobs - 20) ELSE '' END, s.message)"
"   ELSE s.message END AS title, incload.runbook(s.about) AS runbook FROM s)"
" SELECT CASE $4"
"  WHEN 'slack' THEN jsonb_build_object('text', replace(replace(replace("
"     upper(t.severity) || ' ' || current_database() || ': ' || left(t.title, 3000) || E'\\n' || t.runbook,"
"     '&', '&amp;'), '<', '&lt;'), '>', '&gt;'))"
"  WHEN 'pagerduty' THEN jsonb_build_object('routing_key', $3, 'dedup_key', $5 || md5(t.group_key),"
"     'event_action', CASE t.status WHEN 'resolved' THEN 'resolve' ELSE 'trigger' END,"
"     'client', 'incload', 'links', CASE WHEN t.runbook ~ '^https?://' THEN"
"       jsonb_build_array(jsonb_build_object('href', t.runbook, 'text', 'runbook')) ELSE '[]' END,"
"     'payload', jsonb_build_object('summary', left(t.title, 1000), 'source', current_database(), 'timestamp', t.at,"
"       'severity', CASE t.severity WHEN 'page' THEN 'critical' WHEN 'ticket' THEN 'warning' ELSE 'info' END,"
"       'class', t.about, 'group', t.group_key, 'custom_details', jsonb_build_object('jobs', t.jobs, 'names', t.names,"
"         'runbook', t.runbook)))"
"  ELSE jsonb_build_object('version', 1, 'key', $2, 'status', t.status, 'group', t.group_key, 'severity', t.severity,"
"     'code', t.about, 'title', t.title, 'runbook', t.runbook, 'database', current_database(), 'events', t.events)"
"  END FROM t";

void
alert_message(HttpRequest *request, const Channel *channel, const char *outbox_ids, const char *key)
{
	const char *params[5] = {outbox_ids, key, NULL, channel->format, psprintf("incload-%s-", role_database_identity())};
	const char *id = catalog_number(channel->id);

	if (channel_is_alertmanager(channel))
	{
		alert_state(request, channel,
					catalog_query("SELECT array_agg(DISTINCT CASE WHEN kind = 'resolved' THEN alert_id ELSE event_id END)"
								  " FROM incload.outbox_store WHERE outbox_id = ANY ($1::bigint[])", 1, params)->value[0][0]);
		return;
	}
	params[2] = catalog_query("SELECT secrets->>'routing_key' FROM incload.channel_store WHERE channel_id = $1::bigint",
							  1, &id)->value[0][0];
	describe(request, channel, catalog_query(message_query, 5, params)->value[0][0]);
	request->headers = lappend(request->headers, psprintf("Idempotency-Key: %s", key));
}
