/*
 * job_change.c
 *		What an event says of a change to a job: from what to what.
 */
#include "postgres.h"

#include "catalog.h"
#include "job_change.h"

char *
job_definition(int64 job_id)
{
	const char *params[1] = {catalog_number(job_id)};

	return catalog_query("SELECT jsonb_strip_nulls(jsonb_build_object('owner', j.owner, 'source', j.source, 'target', j.target,"
						 " 'strategy', j.strategy, 'watermark', j.watermark, 'key', to_jsonb(j.key), 'schedule', j.schedule,"
						 " 'options', j.options)) FROM incload.job_store j WHERE j.job_id = $1::bigint", 1, params)->value[0][0];
}

char *
job_change_details(const char *from, const char *to)
{
	return psprintf("{\"from\": %s, \"to\": %s}", from ? from : "null", to ? to : "null");
}

char *
job_change_difference(const char *from, const char *to, const char *more)
{
	const char *params[3] = {from, to, more};

	/* no option has the name of anything else in a definition */
	return catalog_query("SELECT jsonb_build_object("
						 "  'from', coalesce(jsonb_object_agg(d.name, d.old) FILTER (WHERE d.name IS NOT NULL), '{}'),"
						 "  'to', coalesce(jsonb_object_agg(d.name, d.new) FILTER (WHERE d.name IS NOT NULL), '{}')) || $3::jsonb"
						 " FROM (SELECT name, o.value AS old, n.value AS new"
						 "  FROM jsonb_each(($1::jsonb - 'options') || ($1::jsonb->'options')) AS o (name, value)"
						 "  FULL JOIN jsonb_each(($2::jsonb - 'options') || ($2::jsonb->'options')) AS n (name, value) USING (name)"
						 "  WHERE o.value IS DISTINCT FROM n.value) d", 3, params)->value[0][0];
}
