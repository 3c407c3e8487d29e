/*
 * clock.c
 *		Instants of a source's clock as values of a watermark that is a time.
 *
 * A timestamptz and a number since 1970 are instants themselves. A date and a
 * timestamp are local: the source converts, as it knows its zones.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "foreign/foreign.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "login.h"

/* did this session there get its zone from its role, or from who connects, so that others may have another? */
static bool
zone_is_personal(Source *source)
{
	if (source->zone_is_asked)
		return source->zone_is_personal;
	source->zone_is_personal =
		login_gives_zone(GetForeignTable(source->job->source)->serverid, source->job->owner) ||
		source_ask_catalog(source,
						   "SELECT EXISTS (SELECT FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) c"
						   " WHERE s.setrole = (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = session_user)"
						   " AND s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database d"
						   "  WHERE d.datname = pg_catalog.current_database()))"
						   " AND pg_catalog.lower(c) LIKE 'timezone=%')")->value[0][0][0] == 't';
	source->zone_is_asked = true;
	return source->zone_is_personal;
}

/*
 * The zone that times without zone are in, by the option source_timezone; else
 * the source server's default. Where it cannot be asked, where the session's own
 * default would answer, and for what an expression yields, nothing tells: then
 * the given one is taken.
 */
static char *
zone_expression(Source *source, const WatermarkType *type, const char *unknown)
{
	if (source->job->options->source_timezone)
		return quote_literal_cstr(source->job->options->source_timezone);
	if (!source->routine->outlives_commit || type->is_expression || zone_is_personal(source))
		return quote_literal_cstr(unknown);
	return "(SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'TimeZone')";
}

/*
 * How far a time may have been rounded down when it was stored, in microseconds:
 * a column with fewer digits than a clock has can show a time before its
 * transaction began. What an expression has gone through, or a column of a view
 * that does not tell its digits, is not known.
 */
static int64
rounded_by(const WatermarkType *type)
{
	int64		unit = USECS_PER_SEC;

	if (type->type != TIMESTAMPTZOID && type->type != TIMESTAMPOID)
		return 0;
	if (type->typmod < 0)
		return type->is_expression || type->is_in_view ? unit : 0;
	for (int digit = 0; digit < type->typmod; digit++)
		unit /= 10;
	return unit > 1 ? unit : 0;
}

/* false where the type is local */
static bool
instant_as_watermark(const WatermarkType *type, TimestampTz at, Datum *value)
{
	if (type->type == TIMESTAMPTZOID)
		*value = TimestampTzGetDatum(at);
	else if (type->per_second > 0)
		*value = watermark_of_instant(type, at);
	else
		return false;
	return true;
}

Bound
clock_bound(Source *source, const WatermarkType *type, TimestampTz at)
{
	Bound		bound = {.is_set = true, .side = BOUND_BEFORE};
	TextRows   *rows;

	at -= rounded_by(type);
	if (instant_as_watermark(type, at, &bound.value))
		return bound;
	rows = source_ask_catalog(source, psprintf(
		"SELECT pg_catalog.min(n.l)::%s FROM"
		" (SELECT %s::pg_catalog.timestamptz AS c, %s AS zone) s,"
		" LATERAL (SELECT pg_catalog.timezone(s.zone, s.c) AS l UNION ALL"
		"   SELECT pg_catalog.timezone(s.zone, t) FROM pg_catalog.generate_series("
		"     pg_catalog.date_trunc('hour', s.c) + '15 minutes'::pg_catalog.interval,"
		"     s.c + '4 hours'::pg_catalog.interval, '15 minutes'::pg_catalog.interval) t"
		"   WHERE t >= s.c) n",
		type->sql_name, quote_literal_cstr(timestamptz_to_str(at)),
		/* the zone furthest behind */
		zone_expression(source, type, "Etc/GMT+12")));
	bound.value = watermark_parse(type, rows->value[0][0]);
	return bound;
}

Bound
clock_limit(Source *source, const WatermarkType *type, TimestampTz now, int64 ahead)
{
	Bound		limit = {.side = BOUND_AFTER};
	TimestampTz at = TimestampTzPlusMilliseconds(now, ahead);
	TextRows   *rows;

	if (type->kind != WATERMARK_TIME)
		return limit;
	limit.is_set = true;
	if (instant_as_watermark(type, at, &limit.value))
		return limit;
	/* local clocks may be put forward or back meanwhile */
	rows = source_ask_catalog(source, psprintf(
		"SELECT GREATEST(pg_catalog.timezone(s.zone, s.n) + (s.c - s.n), pg_catalog.timezone(s.zone, s.c))::%s"
		" FROM (SELECT %s::pg_catalog.timestamptz AS n, %s::pg_catalog.timestamptz AS c, %s AS zone) s",
		type->sql_name, quote_literal_cstr(timestamptz_to_str(now)),
		quote_literal_cstr(timestamptz_to_str(at)),
		/* the zone furthest ahead */
		zone_expression(source, type, "Etc/GMT-14")));
	limit.value = watermark_parse(type, rows->value[0][0]);
	return limit;
}

int64
clock_left_out(Source *source, const WatermarkType *type, const Bound *from, const char *lookback)
{
	TextRows   *rows;

	if (type->type != TIMESTAMPOID || lookback == NULL || !from->is_set ||
		/* there was no summer time then */
		DatumGetTimestamp(from->value) < instant_parse("1900-01-01 00:00:00+00") ||
		/* everything is read again */
		TIMESTAMP_NOT_FINITE(DatumGetTimestamp(watermark_subtract(type, from->value, lookback))))
		return 0;
	rows = source_ask_catalog(source, psprintf(
		"SELECT (extract(epoch FROM b.l - b.span"
		" - pg_catalog.timezone(b.zone, pg_catalog.timezone(b.zone, b.l) - b.span)) * 1000000)::pg_catalog.int8"
		" FROM (SELECT %s AS l, %s::pg_catalog.interval AS span, %s AS zone) b",
		watermark_literal(type, from->value), quote_literal_cstr(lookback),
		zone_expression(source, type, "Etc/GMT+12")));
	return Max(strtoi64(rows->value[0][0], NULL, 10), 0);
}
