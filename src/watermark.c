/*
 * watermark.c
 *		Watermark values, and bounds between them.
 *
 * A value is parsed and printed by its type's own functions, under the fixed
 * formats of the owner bracket (role.c), so that it survives being stored as
 * text to the last digit.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datum.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "options.h"
#include "watermark.h"

/* from PostgreSQL's epoch to that of Unix */
#define UNIX_EPOCH_USECS ((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

/*
 * The types a watermark can have: those whose order is total and the same on
 * every server. Floating point is not among them (NaN, and values that no two
 * sides print alike), nor is an interval.
 */
static bool
kind_of(Oid type, Oid collation, WatermarkKind *kind)
{
	switch (type)
	{
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			*kind = WATERMARK_TIME;
			return true;
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case OIDOID:
			*kind = WATERMARK_NUMBER;
			return true;
		case XID8OID:
		case PG_LSNOID:
		case UUIDOID:
		case BYTEAOID:
			*kind = WATERMARK_ORDERED;
			return true;
		case TEXTOID:
		case VARCHAROID:
			/* other collations differ between servers and their libraries */
			*kind = WATERMARK_ORDERED;
			return collation == C_COLLATION_OID;
		default:
			return false;
	}
}

bool
watermark_type_fits(Oid type, Oid collation)
{
	WatermarkKind kind;

	return kind_of(getBaseType(type), collation, &kind);
}

WatermarkType *
watermark_type(Oid type, Oid collation)
{
	WatermarkType *wt = palloc0(sizeof(WatermarkType));
	Oid			base = getBaseType(type);
	Oid			function;
	bool		varlena;
	TypeCacheEntry *entry;

	if (!kind_of(base, collation, &wt->kind))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("type %s cannot be a watermark", format_type_be(type)),
				 base == TEXTOID || base == VARCHAROID
				 ? errdetail("Text is ordered differently from server to server, except under collation \"C\".")
				 : errdetail("A watermark needs a total order that is the same on every server."),
				 errhint("Use a timestamp, date, integer, numeric, uuid, bytea, pg_lsn or xid8, or text COLLATE \"C\".")));

	entry = lookup_type_cache(base, TYPECACHE_CMP_PROC);
	wt->type = base;
	wt->collation = OidIsValid(collation) ? C_COLLATION_OID : InvalidOid;
	get_typlenbyval(base, &wt->length, &wt->by_value);
	wt->typmod = -1;
	wt->sql_name = format_type_extended(base, -1, FORMAT_TYPE_FORCE_QUALIFY);
	fmgr_info(entry->cmp_proc, &wt->compare);
	getTypeInputInfo(base, &function, &wt->input_param);
	fmgr_info(function, &wt->input);
	getTypeOutputInfo(base, &function, &varlena);
	fmgr_info(function, &wt->output);
	return wt;
}

void
watermark_require_encoding(const char *source_encoding)
{
	int			there = pg_char_to_encoding(source_encoding);
	int			here = GetDatabaseEncoding();

	/* the bytes of LATIN1 and of UTF8 are in the order of code points; SQL_ASCII passes them on */
	if (there == here || there == PG_SQL_ASCII || here == PG_SQL_ASCII ||
		((there == PG_UTF8 || there == PG_LATIN1) && (here == PG_UTF8 || here == PG_LATIN1)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("text in encoding %s cannot be a watermark here", source_encoding),
			 errdetail("This database has encoding %s, in which the same texts have another order.",
					   GetDatabaseEncodingName()),
			 errhint("Use a timestamp, a number or another type that is no text.")));
}

void
watermark_read_as(WatermarkType *type, int reading)
{
	bool		fits = true;

	switch ((WatermarkReading) reading)
	{
		case READING_BY_TYPE:
			return;
		case READING_TIME:
			fits = type->kind == WATERMARK_TIME;
			break;
		case READING_ID:
			fits = type->kind == WATERMARK_NUMBER;
			break;
		case READING_EPOCH_S:
			fits = type->type == INT4OID || type->type == INT8OID || type->type == NUMERICOID;
			type->per_second = 1;
			break;
		case READING_EPOCH_MS:
			/* a number of 4 bytes ended in January 1970 */
			fits = type->type == INT8OID || type->type == NUMERICOID;
			type->per_second = 1000;
			break;
	}
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"watermark_kind\" does not go with a watermark of type %s", type->sql_name),
				 errdetail("A time is a date or a timestamp, an id is a number, and a time since 1970 is a number that is large enough for it."),
				 errhint("Leave the option out to have the watermark read by its type.")));
	if (type->per_second > 0)
		type->kind = WATERMARK_TIME;
}

Datum
watermark_parse(const WatermarkType *type, const char *text)
{
	return InputFunctionCall((FmgrInfo *) &type->input, (char *) text, type->input_param, -1);
}

Datum
watermark_sample(const WatermarkType *type)
{
	switch (type->type)
	{
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return watermark_parse(type, "2000-01-01");
		case PG_LSNOID:
			return watermark_parse(type, "0/0");
		case UUIDOID:
			return watermark_parse(type, "00000000-0000-0000-0000-000000000000");
		case BYTEAOID:
			return watermark_parse(type, "\\x");
		default:
			return watermark_parse(type, "0");
	}
}

char *
watermark_print(const WatermarkType *type, Datum value)
{
	return OutputFunctionCall((FmgrInfo *) &type->output, value);
}

Datum
watermark_copy(const WatermarkType *type, Datum value)
{
	return datumCopy(value, type->by_value, type->length);
}

int
watermark_compare(const WatermarkType *type, Datum a, Datum b)
{
	return DatumGetInt32(FunctionCall2Coll((FmgrInfo *) &type->compare, type->collation, a, b));
}

char *
watermark_literal(const WatermarkType *type, Datum value)
{
	return psprintf("%s::%s", quote_literal_cstr(watermark_print(type, value)), type->sql_name);
}

static Interval *
parse_interval(const char *lookback)
{
	Interval   *span = DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(lookback),
															 ObjectIdGetDatum(InvalidOid),
															 Int32GetDatum(-1)));

	if (span->month < 0 || span->day < 0 || span->time < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"lookback\""),
				 errdetail("\"%s\" goes forward, not back.", lookback),
				 errhint("Give an interval such as \"15 minutes\", or \"0\".")));
	return span;
}

/* what of a number is left when a lookback is taken off it; not below what the type has */
static Datum
subtract_number(const WatermarkType *type, Datum value, const char *lookback)
{
	Datum		number = DirectFunctionCall3(numeric_in, CStringGetDatum(watermark_print(type, value)),
											 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	Datum		less;
	const char *least = NULL;
	Datum		result;

	if (lookback[strspn(lookback, "0123456789.")] != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"lookback\""),
				 errdetail("The watermark is a number, so the lookback is a number, too."),
				 errhint("For example: {\"lookback\": 1000}.")));
	less = DirectFunctionCall3(numeric_in, CStringGetDatum(lookback),
							   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	result = DirectFunctionCall1(numeric_floor, DirectFunctionCall2(numeric_sub, number, less));
	if (type->type == NUMERICOID)
		return DirectFunctionCall2(numeric_sub, number, less);
	least = type->type == INT2OID ? "-32768" : type->type == INT4OID ? "-2147483648"
		: type->type == INT8OID ? "-9223372036854775808" : "0";
	result = DirectFunctionCall2(numeric_larger, result,
								 DirectFunctionCall3(numeric_in, CStringGetDatum(least),
													 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	return watermark_parse(type, DatumGetCString(DirectFunctionCall1(numeric_out, result)));
}

bool
watermark_instant(const WatermarkType *type, Datum value, TimestampTz *at)
{
	Datum		units;
	int64		number;

	if (type->type == TIMESTAMPTZOID)
		*at = DatumGetTimestampTz(value);
	else if (type->per_second > 0)
	{
		units = DirectFunctionCall3(numeric_in, CStringGetDatum(watermark_print(type, value)),
									ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
		if (numeric_is_nan(DatumGetNumeric(units)) || numeric_is_inf(DatumGetNumeric(units)))
			return false;
		units = DirectFunctionCall1(numeric_floor, units);
		/* what lies beyond all timestamps is no instant */
		if (DatumGetInt32(DirectFunctionCall2(numeric_cmp,
											  DirectFunctionCall1(numeric_abs, units),
											  DirectFunctionCall1(int8_numeric,
																  Int64GetDatum(INT64CONST(9000000000000) * type->per_second)))) > 0)
			return false;
		number = DatumGetInt64(DirectFunctionCall1(numeric_int8, units));
		*at = number * (USECS_PER_SEC / type->per_second) - UNIX_EPOCH_USECS;
	}
	else
		return false;
	return IS_VALID_TIMESTAMP(*at);
}

Datum
watermark_of_instant(const WatermarkType *type, TimestampTz at)
{
	int64		unit = USECS_PER_SEC / type->per_second;
	int64		since = at + UNIX_EPOCH_USECS;
	int64		number = since / unit - (since % unit < 0 ? 1 : 0);

	return watermark_parse(type, psprintf(INT64_FORMAT, number));
}

/* an interval below a number since 1970, rounded down */
static Datum
subtract_from_epoch(const WatermarkType *type, Datum value, const char *lookback)
{
	Interval   *span = parse_interval(lookback);
	TimestampTz at;

	/* what is no instant is far away from every other */
	if (!watermark_instant(type, value, &at))
		return value;
	return watermark_of_instant(type, DatumGetTimestampTz(DirectFunctionCall2(timestamptz_mi_interval,
																			  TimestampTzGetDatum(at),
																			  IntervalPGetDatum(span))));
}

/* more microseconds than a span can have, whatever its months; months of 31 days, days of 25 hours */
static double
longest(const Interval *span)
{
	return ((double) span->month * 31 + span->day) * 25 * SECS_PER_HOUR * USECS_PER_SEC + span->time;
}

/* how far a time is from the earliest that its type has; -1 for one that is infinite */
static double
room_below(const WatermarkType *type, Datum value)
{
	if (type->type == DATEOID)
		return DATE_NOT_FINITE(DatumGetDateADT(value)) ? -1
			: ((double) DatumGetDateADT(value) - (DATETIME_MIN_JULIAN - POSTGRES_EPOCH_JDATE)) * USECS_PER_DAY;
	return TIMESTAMP_NOT_FINITE(DatumGetTimestamp(value)) ? -1
		: (double) DatumGetTimestamp(value) - MIN_TIMESTAMP;
}

/* a time less a span; from the beginning of all time where there is nothing so early */
static Datum
subtract_time(const WatermarkType *type, Datum value, const char *lookback)
{
	Interval   *span = parse_interval(lookback);
	double		room = room_below(type, value);

	if (room < 0)
		return value;
	if (type->type == DATEOID)
	{
		if (room < longest(span))
			return DateADTGetDatum(DATEVAL_NOBEGIN);
		/* a date less some hours is the day before */
		return DirectFunctionCall1(timestamp_date,
								   DirectFunctionCall2(date_mi_interval, value, IntervalPGetDatum(span)));
	}
	if (room < longest(span))
		return TimestampGetDatum(DT_NOBEGIN);
	return DirectFunctionCall2(type->type == TIMESTAMPOID ? timestamp_mi_interval : timestamptz_mi_interval,
							   value, IntervalPGetDatum(span));
}

Datum
watermark_subtract(const WatermarkType *type, Datum value, const char *lookback)
{
	switch (type->kind)
	{
		case WATERMARK_TIME:
			if (type->per_second > 0)
				return subtract_from_epoch(type, value, lookback);
			/* a number alone is one of days, as in date - 7; an interval would have it in seconds */
			if (type->type == DATEOID && lookback[strspn(lookback, "0123456789.")] == '\0')
				lookback = psprintf("%s days", lookback);
			return subtract_time(type, value, lookback);
		case WATERMARK_NUMBER:
			return subtract_number(type, value, lookback);
		case WATERMARK_ORDERED:
			break;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("option \"lookback\" does not go with a watermark of type %s", type->sql_name),
			 errdetail("Nothing can be subtracted from it."),
			 errhint("Leave the option out; \"settle\" says how long such a watermark is waited for.")));
	return value;				/* keep compiler quiet */
}

int
bound_compare(const WatermarkType *type, const Bound *a, const Bound *b)
{
	int			order;

	if (!a->is_set || !b->is_set)
		return (int) a->is_set - (int) b->is_set;
	order = watermark_compare(type, a->value, b->value);
	return order != 0 ? order : (int) a->side - (int) b->side;
}

TimestampTz
instant_parse(const char *text)
{
	if (text == NULL)
		return 0;
	return DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in, CStringGetDatum(text),
												   ObjectIdGetDatum(InvalidOid),
												   Int32GetDatum(-1)));
}

const char *
bound_side_name(BoundSide side)
{
	return side == BOUND_BEFORE ? "before" : "after";
}
