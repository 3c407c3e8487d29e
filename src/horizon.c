/*
 * horizon.c
 *		The settled horizon of a source: the bound below which no transaction
 *		there can still add a row.
 *
 * So far a row counts as settled a fixed time after it could be seen: for a
 * time, the source's clock less SETTLE_MS; for any other type, the newest value
 * that was noted so long ago.
 *
 * A time without zone is taken to be in the source server's default zone. Its
 * hour that comes twice when summer time ends must not hide rows: the bound is
 * the least local time of this instant and of the hours to come.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "horizon.h"
#include "query.h"

#define SETTLE_MS 5000

/* bounds noted closer together than this are of no use beside each other */
#define NOTE_INTERVAL_MS 1000

/* the clock that no row of the coming snapshot can be behind */
static const char *
clock_expression(Source *source)
{
	if (source->routine->outlives_commit)
		return "pg_catalog.clock_timestamp()";
	/* a local table under READ COMMITTED is read by a snapshot yet to be taken */
	if (source->is_local && !IsolationUsesXactSnapshot())
		return "pg_catalog.clock_timestamp()";
	/* elsewhere the snapshot may be as old as this transaction */
	return "pg_catalog.transaction_timestamp()";
}

static TimestampTz
ask_clock(Source *source)
{
	TextRows   *rows = source->routine->ask(source, psprintf("SELECT %s", clock_expression(source)));

	return DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in,
												   CStringGetDatum(rows->value[0][0]),
												   ObjectIdGetDatum(InvalidOid),
												   Int32GetDatum(-1)));
}

/* the bound for a watermark that comes from the source's clock */
static Bound
time_bound(Source *source, const Shape *shape, TimestampTz instant)
{
	Bound		bound = {.is_set = true, .side = BOUND_BEFORE};
	char	   *literal = quote_literal_cstr(timestamptz_to_str(instant));
	TextRows   *rows;

	if (shape->watermark->type == TIMESTAMPTZOID)
	{
		bound.value = TimestampTzGetDatum(instant);
		return bound;
	}
	rows = source->routine->ask(source, psprintf(
		"SELECT pg_catalog.min(l)::%s FROM"
		" (SELECT %s::pg_catalog.timestamptz AS c,"
		"   (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'TimeZone') AS zone) s,"
		" LATERAL (SELECT pg_catalog.timezone(s.zone, s.c) AS l UNION ALL"
		"   SELECT pg_catalog.timezone(s.zone, t) FROM pg_catalog.generate_series("
		"     pg_catalog.date_trunc('hour', s.c) + '15 minutes'::pg_catalog.interval,"
		"     s.c + '4 hours'::pg_catalog.interval, '15 minutes'::pg_catalog.interval) t"
		"   WHERE t >= s.c) n",
		shape->watermark->sql_name, literal));
	bound.value = watermark_parse(shape->watermark, rows->value[0][0]);
	return bound;
}

/*
 * The newest bound that was noted long enough ago; and the notes for the next
 * run, with the newest value that the source has now.
 */
static void
noted_bound(Source *source, const Job *job, const Shape *shape, const Checkpoint *checkpoint,
			Horizon *horizon)
{
	TimestampTz settled = TimestampTzPlusMilliseconds(horizon->source_clock, -SETTLE_MS);
	NotedBound *last = NULL;
	TextRows   *rows;
	ListCell   *lc;

	foreach(lc, checkpoint->noted)
	{
		NotedBound *note = lfirst(lc);

		if (note->at <= settled)
			horizon->bound = note->bound;
		else
			horizon->noted = lappend(horizon->noted, note);
		last = note;
	}
	/* a note that has become the horizon stays, or an idle source would have none */
	if (horizon->noted == NIL && last != NULL)
		horizon->noted = list_make1(last);

	rows = source->routine->ask(source, query_newest(shape, source->routine->from_clause(source),
													 job->options->filter));
	if (rows->nrows == 1)
	{
		NotedBound *note = palloc0(sizeof(NotedBound));

		note->bound.is_set = true;
		note->bound.side = BOUND_AFTER;
		note->bound.value = watermark_parse(shape->watermark, rows->value[0][0]);
		note->at = horizon->source_clock;
		if (last == NULL ||
			(bound_compare(shape->watermark, &note->bound, &last->bound) != 0 &&
			 note->at - last->at >= NOTE_INTERVAL_MS * INT64CONST(1000)))
			horizon->noted = lappend(horizon->noted, note);
	}
}

Horizon *
horizon_observe(Source *source, const Job *job, const Shape *shape, const Checkpoint *checkpoint)
{
	Horizon    *horizon = palloc0(sizeof(Horizon));

	horizon->guarantee = "settle";
	horizon->source_clock = ask_clock(source);
	if (shape->watermark == NULL)
		return horizon;
	if (shape->watermark->kind == WATERMARK_TIME)
		horizon->bound = time_bound(source, shape,
									TimestampTzPlusMilliseconds(horizon->source_clock, -SETTLE_MS));
	else
		noted_bound(source, job, shape, checkpoint, horizon);
	return horizon;
}
