/*
 * range_sql.c
 *		Ranges of a key as SQL: in which one a row is, and what each one has.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "names.h"
#include "query.h"
#include "range_sql.h"

/* beyond so many, a condition names them by their numbers, as no index would be used */
#define MOST_ALTERNATIVES 32

static char *
key_type(const Ranges *ranges)
{
	return format_type_extended(getBaseType(ranges->ordered->type), -1, FORMAT_TYPE_FORCE_QUALIFY);
}

/* the key that is cut by its order */
char *
range_key(const Ranges *ranges, Side side)
{
	return psprintf("(%s)::%s", side == SIDE_SOURCE ? ranges->ordered->expression
					: quote_identifier(ranges->ordered->name), key_type(ranges));
}

/* the low ends, and the high ends where nothing follows, as an array that width_bucket() takes */
static char *
ends_of(const Ranges *ranges, List *list)
{
	StringInfoData buf;
	const char *last = NULL;
	ListCell   *lc;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '{');
	foreach(lc, list)
	{
		const Range *range = lfirst(lc);

		if (range->low && (last == NULL || strcmp(last, range->low) != 0))
			appendStringInfo(&buf, "%s%s", buf.len > 1 ? "," : "", quote_array_element(range->low));
		if (range->high)
			appendStringInfo(&buf, "%s%s", buf.len > 1 ? "," : "", quote_array_element(range->high));
		last = range->high;
	}
	appendStringInfoChar(&buf, '}');
	return psprintf("%s::%s[]", quote_literal_cstr(buf.data), key_type(ranges));
}

/* the number of each range among these: what range_place() gives for its rows */
int *
range_places(const Ranges *ranges, List *list)
{
	int		   *numbers = palloc(sizeof(int) * Max(list_length(list), 1));
	const char *last = NULL;
	int			n = 0;
	ListCell   *lc;

	foreach(lc, list)
	{
		const Range *range = lfirst(lc);

		if (ranges->ordered == NULL)
		{
			numbers[foreach_current_index(lc)] = range->hash;
			continue;
		}
		if (range->low && (last == NULL || strcmp(last, range->low) != 0))
			n++;
		numbers[foreach_current_index(lc)] = n;
		if (range->high)
			n++;
		last = range->high;
	}
	return numbers;
}

/* SQL of the number of the range that a row is in */
char *
range_place(const Ranges *ranges, Side side, List *list)
{
	if (ranges->ordered)
		return psprintf("pg_catalog.width_bucket(%s, %s)", range_key(ranges, side), ends_of(ranges, list));
	return psprintf("(%s OPERATOR(pg_catalog.&) %d::pg_catalog.int8)", checksum_of_key(ranges->checksum, side),
					(1 << ((Range *) linitial(list))->bits) - 1);
}

/* ranges that lie beside each other are one alternative */
static char *
alternatives(const Ranges *ranges, Side side, List *list, int *n)
{
	StringInfoData buf;
	char	   *key = range_key(ranges, side);
	char	   *type = key_type(ranges);

	initStringInfo(&buf);
	*n = 0;
	for (int i = 0; i < list_length(list); i++)
	{
		const Range *first = list_nth(list, i);
		const Range *last = first;

		while (i + 1 < list_length(list) && last->high &&
			   strcmp(last->high, ((Range *) list_nth(list, i + 1))->low) == 0)
			last = list_nth(list, ++i);
		(*n)++;
		if (buf.len)
			appendStringInfoString(&buf, " OR ");
		if (first->low == NULL && last->high == NULL)
			appendStringInfoString(&buf, "true");
		else if (first->low == NULL)
			appendStringInfo(&buf, "%s OPERATOR(pg_catalog.<) %s::%s", key, quote_literal_cstr(last->high), type);
		else if (last->high == NULL)
			appendStringInfo(&buf, "%s OPERATOR(pg_catalog.>=) %s::%s", key, quote_literal_cstr(first->low), type);
		else
			appendStringInfo(&buf, "(%s OPERATOR(pg_catalog.>=) %s::%s AND %s OPERATOR(pg_catalog.<) %s::%s)",
							 key, quote_literal_cstr(first->low), type, key, quote_literal_cstr(last->high), type);
	}
	return psprintf("(%s)", buf.data);
}

/* "it is one of these", by their numbers; where they are cut by their hash, all have the same number of bits */
static char *
numbered(const Ranges *ranges, Side side, List *list)
{
	StringInfoData buf;
	int		   *numbers;

	if (ranges->ordered == NULL && list_length(list) == 1 << ((Range *) linitial(list))->bits)
		return "true";
	numbers = range_places(ranges, list);
	initStringInfo(&buf);
	for (int i = 0; i < list_length(list); i++)
		appendStringInfo(&buf, "%s%d", i ? "," : "", numbers[i]);
	return psprintf("%s OPERATOR(pg_catalog.=) ANY ('{%s}'::pg_catalog.%s[])", range_place(ranges, side, list),
					buf.data, ranges->ordered ? "int4" : "int8");
}

char *
range_condition(const Ranges *ranges, Side side, List *list)
{
	StringInfoData buf;
	int			n;

	if (ranges->ordered)
	{
		char	   *condition = alternatives(ranges, side, list, &n);

		return n <= MOST_ALTERNATIVES ? condition : numbered(ranges, side, list);
	}
	initStringInfo(&buf);
	for (List *rest = list; rest != NIL;)
	{
		int			bits = ((Range *) linitial(rest))->bits;
		List	   *same = NIL;
		List	   *others = NIL;
		ListCell   *lc;

		foreach(lc, rest)
		{
			if (((Range *) lfirst(lc))->bits == bits)
				same = lappend(same, lfirst(lc));
			else
				others = lappend(others, lfirst(lc));
		}
		appendStringInfo(&buf, "%s%s", buf.len ? " OR " : "(", numbered(ranges, side, same));
		rest = others;
	}
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* adds a condition to another; either may be NULL */
char *
range_both(const char *a, const char *b)
{
	if (a && b)
		return psprintf("%s AND %s", a, b);
	return pstrdup(a ? a : b ? b : "true");
}

/* what is summed up of a row */
static char *
summed(const Ranges *ranges, Side side)
{
	switch (ranges->compared)
	{
		case COMPARE_COUNTS:
			return side == SIDE_TARGET || ranges->pending == NULL ? "0::pg_catalog.int8"
				: psprintf("CASE WHEN %s THEN 1::pg_catalog.int8 ELSE 0::pg_catalog.int8 END", ranges->pending);
		case COMPARE_KEYS:
			return checksum_of_key(ranges->checksum, side);
		case COMPARE_ROWS:
			break;
	}
	return checksum_of_row(ranges->checksum, side);
}

/* rows of the source that the target is to have; of those that are to be deleted by the next run, it may */
static char *
source_scope(const Ranges *ranges)
{
	if (ranges->scope->source && ranges->compared == COMPARE_COUNTS && ranges->pending)
		return psprintf("(%s OR %s)", ranges->scope->source, ranges->pending);
	return ranges->scope->source;
}

/*
 * The inner query stays one of its own (OFFSET): the outer one then takes its
 * ranges for few, and counts by hash instead of sorting all rows.
 */
char *
range_question(const Ranges *ranges, Side side, List *list)
{
	char	   *columns = psprintf("%s, %s", range_place(ranges, side, list), summed(ranges, side));
	char	   *condition = range_condition(ranges, side, list);
	char	   *rows;

	if (side == SIDE_SOURCE)
		rows = query_list(columns, ranges->shape, ranges->source, ranges->job->options->filter,
						  &ranges->scope->window, range_both(condition, source_scope(ranges)));
	else
		rows = psprintf("SELECT %s FROM %s AS t WHERE %s", columns, relation_qualified_name(ranges->job->target),
						range_both(condition, ranges->scope->target));
	return psprintf("SELECT s.place, pg_catalog.count(*), pg_catalog.sum(s.summed) FROM (%s OFFSET 0) AS s(place, summed) GROUP BY s.place",
					rows);
}
