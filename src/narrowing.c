/*
 * narrowing.c
 *		What a value can lose on its way from one type into another.
 *
 * Numbers are compared by how many digits a type holds before and after the
 * point, times by the digits of their seconds, strings by their length. About
 * types of other kinds nothing is said: an assignment that cannot be made is
 * an error when the job is created.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "narrowing.h"

/* numeric without typmod, for all that matters here */
#define MANY_DIGITS 100000

/* Digits: how many a number can have; significant is 0 but for floating point */
typedef struct Digits
{
	int			whole_at_most;	/* before the point, in the largest value */
	int			whole_always;	/* before the point, that every value may have */
	int			fraction;
	int			significant;
} Digits;

/* false for a type that is no number */
static bool
digits_of(Oid type, int32 typmod, Digits *digits)
{
	*digits = (Digits) {0};
	switch (type)
	{
		case INT2OID:
			digits->whole_at_most = 5;
			digits->whole_always = 4;
			return true;
		case INT4OID:
			digits->whole_at_most = 10;
			digits->whole_always = 9;
			return true;
		case INT8OID:
			digits->whole_at_most = 19;
			digits->whole_always = 18;
			return true;
		case FLOAT4OID:
		case FLOAT8OID:
			digits->whole_at_most = digits->whole_always = digits->fraction = MANY_DIGITS;
			digits->significant = type == FLOAT4OID ? 6 : 15;
			return true;
		case NUMERICOID:
			digits->fraction = digits->whole_at_most = MANY_DIGITS;
			if (typmod >= (int32) VARHDRSZ)
			{
				int			precision = ((typmod - VARHDRSZ) >> 16) & 0xffff;

				/* the scale is a signed number of 11 bits */
				digits->fraction = (((typmod - VARHDRSZ) & 0x7ff) ^ 1024) - 1024;
				digits->whole_at_most = precision - digits->fraction;
			}
			digits->whole_always = digits->whole_at_most;
			return true;
		default:
			return false;
	}
}

static char *
narrowing_of_numbers(const Digits *from, const Digits *to, bool by_cast)
{
	if (to->significant > 0)
	{
		int			needed = from->significant > 0 ? from->significant
			: from->whole_at_most + Max(from->fraction, 0);

		return needed <= to->significant ? NULL
			: psprintf("digits beyond the first %d are lost", to->significant);
	}
	if (from->significant > 0 && to->fraction == MANY_DIGITS)
		return by_cast ? psprintf("digits beyond the first %d are lost", from->significant) : NULL;
	if (from->fraction > to->fraction)
		return to->fraction > 0
			? psprintf("digits after the point beyond %d are rounded off", to->fraction)
			: pstrdup("digits after the point are rounded off or refused");
	if (from->whole_at_most > to->whole_always)
		return pstrdup("larger values are refused");
	return NULL;
}

/* digits of the seconds that a time keeps; -1 for a type without seconds */
static int
second_digits(Oid type, int32 typmod)
{
	switch (type)
	{
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return typmod >= 0 ? typmod : MAX_TIMESTAMP_PRECISION;
		case INTERVALOID:
			return typmod >= 0 && INTERVAL_PRECISION(typmod) != INTERVAL_FULL_PRECISION
				? INTERVAL_PRECISION(typmod) : MAX_INTERVAL_PRECISION;
		default:
			return -1;
	}
}

static char *
narrowing_of_times(Oid from, int32 from_typmod, Oid to, int32 to_typmod)
{
	int			digits_from = second_digits(from, from_typmod);
	int			digits_to = second_digits(to, to_typmod);
	bool		from_instant = from == TIMESTAMPOID || from == TIMESTAMPTZOID;

	if (from_instant && to == DATEOID)
		return pstrdup("the time of day is lost");
	if (from_instant && (to == TIMEOID || to == TIMETZOID))
		return pstrdup("the date is lost");
	if (from == TIMETZOID && to == TIMEOID)
		return pstrdup("the time zone is lost");
	if (from == INTERVALOID && to == INTERVALOID && to_typmod >= 0 &&
		INTERVAL_RANGE(to_typmod) != INTERVAL_FULL_RANGE &&
		(from_typmod < 0 || INTERVAL_RANGE(from_typmod) != INTERVAL_RANGE(to_typmod)))
		return pstrdup("smaller units are lost");
	if (digits_to >= 0 && digits_from > digits_to)
		return digits_to > 0 ? psprintf("seconds are rounded to %d digits", digits_to)
			: pstrdup("fractions of a second are rounded off");
	return NULL;
}

/* the greatest length of a string or bit string; -1 for none, or another type */
static int
greatest_length(Oid type, int32 typmod)
{
	switch (type)
	{
		case BPCHAROID:
		case VARCHAROID:
			return typmod >= (int32) VARHDRSZ ? typmod - (int) VARHDRSZ : -1;
		case BITOID:
		case VARBITOID:
			return typmod;
		default:
			return -1;
	}
}

static char *
narrowing_of_strings(Oid from, int32 from_typmod, Oid to, int32 to_typmod)
{
	int			length_from = greatest_length(from, from_typmod);
	int			length_to = greatest_length(to, to_typmod);

	if (to == NAMEOID && from != NAMEOID)
		return psprintf("values longer than %d bytes are cut off", NAMEDATALEN - 1);
	if (length_to < 0 || (length_from >= 0 && length_from <= length_to))
		return NULL;
	return psprintf("values longer than %d are refused", length_to);
}

char *
type_narrowing(Oid from, int32 from_typmod, Oid to, int32 to_typmod, bool by_cast)
{
	Digits		from_digits;
	Digits		to_digits;
	char	   *loss;
	Oid			element;

	from = getBaseTypeAndTypmod(from, &from_typmod);
	to = getBaseTypeAndTypmod(to, &to_typmod);

	/* the typmod of an array is that of its elements */
	if (OidIsValid(element = get_element_type(from)))
		from = getBaseType(element);
	if (OidIsValid(element = get_element_type(to)))
		to = getBaseType(element);

	if (from == to && from_typmod == to_typmod)
		return NULL;
	if (digits_of(to, to_typmod, &to_digits))
	{
		if (!digits_of(from, from_typmod, &from_digits) ||
			(from == to && from_digits.significant > 0))
			return NULL;
		return narrowing_of_numbers(&from_digits, &to_digits, by_cast);
	}
	loss = narrowing_of_times(from, from_typmod, to, to_typmod);
	return loss ? loss : narrowing_of_strings(from, from_typmod, to, to_typmod);
}

/* numbers: whole ones into wider ones or numeric, floating point into double precision, numeric into numeric */
static bool
number_widens(Oid from, Oid to)
{
	bool		from_whole = from == INT2OID || from == INT4OID || from == INT8OID;

	if (from_whole)
		return to == INT2OID || to == INT4OID || to == INT8OID || to == NUMERICOID;
	return (from == FLOAT4OID && to == FLOAT8OID) || (from == NUMERICOID && to == NUMERICOID);
}

bool
type_widens(Oid from, int32 from_typmod, Oid to, int32 to_typmod)
{
	Oid			from_element = get_element_type(from);
	Oid			to_element = get_element_type(to);
	bool		same_kind;

	if (OidIsValid(from_element) != OidIsValid(to_element))
		return false;
	if (OidIsValid(from_element))
		return type_widens(from_element, from_typmod, to_element, to_typmod);
	switch (from)
	{
		case VARCHAROID:
			same_kind = to == VARCHAROID || to == TEXTOID;
			break;
		case BPCHAROID:
		case VARBITOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
			same_kind = to == from;
			break;
		default:
			same_kind = number_widens(from, to);
	}
	/* a numeric with a greater scale is another image of the same number */
	return same_kind && (from != to || from_typmod != to_typmod) &&
		type_narrowing(from, from_typmod, to, to_typmod, false) == NULL;
}
