/*
 * ranges.c
 *		Where two relations differ: ranges of the key whose checksums are not
 *		the same on both sides.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "access/table.h"

#include "compat.h"
#include "names.h"
#include "query.h"
#include "range_sql.h"
#include "ranges.h"
#include "role.h"

/* the first cut has so many ranges at most: some 20 kB from the source */
#define FIRST_BITS 9
#define FIRST_RANGES (1 << FIRST_BITS)

/* each further one cuts a range that differs into so many */
#define CUT_BITS 4
#define CUT_RANGES (1 << CUT_BITS)
#define MOST_BITS 28

/* a range of so few rows is looked at row by row */
#define FEW_ROWS 8

/* ends of the first ranges are found in a sample of so many pages */
#define SAMPLE_PAGES 2048

/* one question is about so many ranges at most */
#define ASKED_AT_ONCE 1024

Ranges *
ranges_open(const Job *job, Source *source, const Shape *shape, const Scope *scope,
			Compared compared)
{
	Ranges	   *ranges = palloc0(sizeof(Ranges));
	const LoadColumn *key = &shape->columns[shape->key[0]];

	Assert(shape->nkeys > 0);
	ranges->job = job;
	ranges->source = source;
	ranges->shape = shape;
	ranges->scope = scope;
	ranges->compared = compared;
	ranges->checksum = checksum_agree(source, shape);
	ranges_go_on(ranges);
	if (shape->nkeys == 1 && shape->key_is_portable && !OidIsValid(key->collation) &&
		get_typlen(getBaseType(key->type)) > 0)
		ranges->ordered = key;
	return ranges;
}

void
ranges_go_on(Ranges *ranges)
{
	const Job  *job = ranges->job;

	ranges->guc_level = NewGUCNestLevel();
	/* whatever the owner's triggers have set meanwhile */
	role_pin_formats();
	/* expressions are small ones, and not worth a compiler */
	role_set("jit", "off");
	/* the zone of the session there; what the executor reads is made here on both sides */
	if (ranges->source->routine->outlives_commit)
		role_set("TimeZone", job->options->source_timezone ? job->options->source_timezone : "UTC");
}

void
ranges_pause(Ranges *ranges)
{
	AtEOXact_GUC(false, ranges->guc_level);
}

void
ranges_close(Ranges *ranges)
{
	ranges_pause(ranges);
}

/* Line: what a side says of a range, by the range's number */
typedef struct Line
{
	int			place;
	char	  **values;
} Line;

static int
compare_lines(const void *a, const void *b)
{
	int			left = ((const Line *) a)->place;
	int			right = ((const Line *) b)->place;

	return left < right ? -1 : left > right;
}

/* the lines in the order of their numbers */
static Line *
sorted_lines(const TextRows *rows)
{
	Line	   *lines = palloc(sizeof(Line) * Max(rows->nrows, 1));

	for (int i = 0; i < rows->nrows; i++)
	{
		/* a key is never null, but nothing keeps a source from having one */
		lines[i].place = rows->value[i][0] ? atoi(rows->value[i][0]) : -1;
		lines[i].values = rows->value[i];
	}
	qsort(lines, rows->nrows, sizeof(Line), compare_lines);
	return lines;
}

static char **
find_line(Line *lines, int n, int place)
{
	Line		wanted = {.place = place};
	Line	   *found = bsearch(&wanted, lines, n, sizeof(Line), compare_lines);

	return found ? found->values : NULL;
}

static int64
number_of(const char *text)
{
	return text ? strtoi64(text, NULL, 10) : 0;
}

/* takes over what both sides say of a range; do they differ? */
static bool
differs(const Ranges *ranges, Range *range, char **there, char **here)
{
	range->source_rows = there ? number_of(there[1]) : 0;
	range->target_rows = here ? number_of(here[1]) : 0;
	if (ranges->compared == COMPARE_COUNTS)
	{
		/* what is to be loaded yet may be here in an older version, or not at all */
		range->pending_rows = there ? number_of(there[2]) : 0;
		return range->target_rows > range->source_rows ||
			range->target_rows < range->source_rows - range->pending_rows;
	}
	return range->source_rows != range->target_rows ||
		(there && here && strcmp(there[2], here[2]) != 0);
}

/* about what an answer took on the wire: each row and value has its length before it */
static int64
size_of_answer(const TextRows *rows)
{
	int64		bytes = 0;

	for (int r = 0; r < rows->nrows; r++)
	{
		bytes += 7;
		for (int c = 0; c < rows->ncols; c++)
			bytes += 4 + (rows->value[r][c] ? strlen(rows->value[r][c]) : 0);
	}
	return bytes;
}

/* both sides work at the same time, where they are two servers */
static List *
ask_both(Ranges *ranges, List *list)
{
	const SourceRoutine *routine = ranges->source->routine;
	char	   *sql = range_question(ranges, SIDE_SOURCE, list);
	int		   *numbers = range_places(ranges, list);
	List	   *found = NIL;
	TextRows   *here;
	TextRows   *there;
	Line	   *lines_here;
	Line	   *lines_there;
	ListCell   *lc;

	if (routine->expect)
		routine->expect(ranges->source, sql, NULL, false);
	here = target_ask(range_question(ranges, SIDE_TARGET, list));
	there = routine->ask(ranges->source, sql);
	ranges->source->bytes_read += size_of_answer(there);
	lines_here = sorted_lines(here);
	lines_there = sorted_lines(there);
	foreach(lc, list)
	{
		Range	   *range = lfirst(lc);
		int			place = numbers[foreach_current_index(lc)];

		if (differs(ranges, range, find_line(lines_there, there->nrows, place),
					find_line(lines_here, here->nrows, place)))
			found = lappend(found, range);
	}
	ranges->nasked += list_length(list);
	return found;
}

List *
ranges_differing(Ranges *ranges, List *candidates)
{
	List	   *found = NIL;
	List	   *some = NIL;
	ListCell   *lc;

	foreach(lc, candidates)
	{
		some = lappend(some, lfirst(lc));
		if (list_length(some) < ASKED_AT_ONCE && lnext(candidates, lc))
			continue;
		found = list_concat(found, ask_both(ranges, some));
		some = NIL;
	}
	return found;
}

static Range *
new_range(Range *whole, char *low, char *high, int bits, uint32 hash)
{
	Range	   *range = palloc0(sizeof(Range));

	range->whole = whole;
	range->low = low;
	range->high = high;
	range->bits = bits;
	range->hash = hash;
	return range;
}

/* the pages of a table and of its partitions, and the rows as of the last ANALYZE, -1: not known */
static void
target_size(const Job *job, int64 *pages, int64 *rows)
{
	TextRows   *size = target_ask(psprintf(
		"SELECT pg_catalog.div(pg_catalog.sum(pg_catalog.pg_relation_size(c.oid)), pg_catalog.current_setting('block_size')::pg_catalog.numeric)::pg_catalog.int8,"
		" pg_catalog.sum(CASE WHEN c.relkind OPERATOR(pg_catalog.=) 'p' THEN 0 ELSE c.reltuples END)::pg_catalog.int8, pg_catalog.min(c.reltuples)"
		" FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) %u OR c.oid OPERATOR(pg_catalog.=) ANY"
		" (SELECT p.relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree(%u) AS p)", job->target, job->target));

	*pages = number_of(size->value[0][0]);
	*rows = size->value[0][2][0] == '-' ? -1 : number_of(size->value[0][1]);
}

/* ends of ranges with about the same number of rows, by a sample of the target */
static List *
cut_by_order(const Ranges *ranges, int64 pages)
{
	char	   *sample = pages > SAMPLE_PAGES
		? psprintf(" TABLESAMPLE SYSTEM (%f)", 100.0 * SAMPLE_PAGES / pages) : "";
	TextRows   *ends = target_ask(psprintf(
		"SELECT DISTINCT ON (n.k) n.k::pg_catalog.text FROM"
		" (SELECT s.k, pg_catalog.row_number() OVER (ORDER BY s.k), pg_catalog.count(*) OVER () FROM"
		"  (SELECT %s FROM %s AS t%s WHERE %s) AS s(k)) AS n(k, n, c)"
		" WHERE n.n OPERATOR(pg_catalog.%%) GREATEST(n.c OPERATOR(pg_catalog./) %d, %d) OPERATOR(pg_catalog.=) 0 ORDER BY n.k",
		range_key(ranges, SIDE_TARGET), relation_qualified_name(ranges->job->target), sample,
		range_both(NULL, ranges->scope->target), FIRST_RANGES, *sample ? 1 : FEW_ROWS));
	List	   *list = NIL;
	char	   *low = NULL;

	for (int i = 0; i < ends->nrows; i++)
	{
		list = lappend(list, new_range(NULL, low, ends->value[i][0], 0, 0));
		low = ends->value[i][0];
	}
	return lappend(list, new_range(NULL, low, NULL, 0, 0));
}

List *
ranges_cut(Ranges *ranges)
{
	List	   *list = NIL;
	int64		pages;
	int64		rows;
	int			bits = FIRST_BITS;

	target_size(ranges->job, &pages, &rows);
	if (ranges->ordered)
		return cut_by_order(ranges, pages);
	while (rows >= 0 && bits > 0 && rows < ((int64) FEW_ROWS << bits))
		bits--;
	for (uint32 hash = 0; hash < (1u << bits); hash++)
		list = lappend(list, new_range(NULL, NULL, NULL, bits, hash));
	return list;
}

/* each range by the rows that the target has there, in the order of the key */
static List *
cut_further_by_order(const Ranges *ranges, List *list)
{
	int		   *numbers = range_places(ranges, list);
	TextRows   *ends = target_ask(psprintf(
		"SELECT n.place, n.k::pg_catalog.text FROM"
		" (SELECT s.place, s.k, pg_catalog.row_number() OVER w, pg_catalog.count(*) OVER (PARTITION BY s.place) FROM"
		"  (SELECT %s, %s FROM %s AS t WHERE %s) AS s(place, k) WINDOW w AS (PARTITION BY s.place ORDER BY s.k)) AS n(place, k, n, c)"
		" WHERE n.n OPERATOR(pg_catalog.>) 1 AND (n.n OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog.%%)"
		"  GREATEST(n.c OPERATOR(pg_catalog./) %d, 1) OPERATOR(pg_catalog.=) 0 ORDER BY n.place, n.k",
		range_place(ranges, SIDE_TARGET, list), range_key(ranges, SIDE_TARGET),
		relation_qualified_name(ranges->job->target),
		range_both(range_condition(ranges, SIDE_TARGET, list), ranges->scope->target), CUT_RANGES));
	List	   *pieces = NIL;
	int			next = 0;
	ListCell   *lc;

	foreach(lc, list)
	{
		Range	   *range = lfirst(lc);
		Range	   *last;
		char	   *low = range->low;

		for (; next < ends->nrows && atoi(ends->value[next][0]) == numbers[foreach_current_index(lc)]; next++)
		{
			/* in a target whose key is not unique */
			if (low && strcmp(low, ends->value[next][1]) == 0)
				continue;
			pieces = lappend(pieces, new_range(range, low, ends->value[next][1], 0, 0));
			low = ends->value[next][1];
		}
		last = new_range(range, low, range->high, 0, 0);
		/* nowhere to cut: its rows all have one key */
		last->is_done = low == range->low;
		pieces = lappend(pieces, last);
	}
	return pieces;
}

static List *
cut_further_by_hash(List *list)
{
	List	   *pieces = NIL;
	ListCell   *lc;

	foreach(lc, list)
	{
		Range	   *range = lfirst(lc);

		for (uint32 piece = 0; piece < CUT_RANGES; piece++)
			pieces = lappend(pieces, new_range(range, NULL, NULL, range->bits + CUT_BITS,
											   range->hash | (piece << range->bits)));
	}
	return pieces;
}

/* is it to be cut no more? Of a range that the target has nothing in, nothing tells where. */
static bool
is_small(const Ranges *ranges, const Range *range)
{
	return Max(range->source_rows, range->target_rows) <= FEW_ROWS ||
		(ranges->ordered && range->target_rows < 2) || range->bits + CUT_BITS > MOST_BITS;
}

/* those of a list that are still to be cut */
static List *
large_ones(const Ranges *ranges, List *list)
{
	List	   *large = NIL;
	ListCell   *lc;

	foreach(lc, list)
	{
		Range	   *range = lfirst(lc);

		range->is_done |= is_small(ranges, range);
		if (!range->is_done)
			large = lappend(large, range);
	}
	return large;
}

/* the list with those that were cut replaced by their pieces, in its order */
static List *
with_pieces(List *list, List *pieces)
{
	List	   *result = NIL;
	int			next = 0;
	ListCell   *lc;

	foreach(lc, list)
	{
		Range	   *range = lfirst(lc);

		if (range->is_done)
			result = lappend(result, range);
		while (next < list_length(pieces) && ((Range *) list_nth(pieces, next))->whole == range)
			result = lappend(result, list_nth(pieces, next++));
	}
	return result;
}

List *
ranges_narrowed(Ranges *ranges, List *candidates)
{
	List	   *list = candidates;
	List	   *large;

	while ((large = large_ones(ranges, list)) != NIL)
	{
		List	   *pieces = ranges->ordered ? cut_further_by_order(ranges, large) : cut_further_by_hash(large);
		List	   *found = ranges_differing(ranges, pieces);
		ListCell   *lc;

		/* where most of the pieces differ, cutting them again would cost more than it spares */
		if (list_length(found) > list_length(pieces) / 2)
			foreach(lc, found)
				((Range *) lfirst(lc))->is_done = true;
		list = with_pieces(list, found);
	}
	return list;
}
