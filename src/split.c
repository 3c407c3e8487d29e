/*
 * split.c
 *		One read as several queries, for readers that read side by side.
 *
 * A table is cut by where its rows lie: ranges of pages are of equal length, and
 * are read from PostgreSQL 14 on without a look at the others. What has no place
 * of its own, a partitioned table or a view, is cut by equal ranges of its watermark, or of
 * the first column of its key: that is worth its while where an index or the
 * partitions serve them.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "split.h"

/* a reader gets at least so many pages: for less, no connection is made */
#define LEAST_PAGES 128

static const char extent_query[] =
"SELECT c.relkind, c.relhassubclass,"
" CASE WHEN c.relkind = 'r' THEN pg_catalog.has_column_privilege(c.oid, 'ctid', 'SELECT') END,"
" pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::pg_catalog.int8"
" FROM pg_catalog.pg_class c WHERE c.oid = $1::pg_catalog.regclass";

/* conditions by ranges of pages */
static List *
cut_pages(const Source *source, int64 pages, int n)
{
	List	   *parts = NIL;

	n = Min(n, pages / LEAST_PAGES);
	for (int i = 0; i < n; i++)
	{
		char	   *from = psprintf("%s OPERATOR(pg_catalog.>=) '(" INT64_FORMAT ",0)'::pg_catalog.tid",
									source->system, pages * i / n);
		char	   *to = psprintf("%s OPERATOR(pg_catalog.<) '(" INT64_FORMAT ",0)'::pg_catalog.tid",
								  source->system, pages * (i + 1) / n);

		/* the table may have grown since */
		parts = lappend(parts, i == 0 ? to : i == n - 1 ? from : psprintf("%s AND %s", from, to));
	}
	return list_length(parts) > 1 ? parts : NIL;
}

/* conditions by ranges of an expression; rows without a value are in the first */
static List *
cut_values(Source *source, const Job *job, const WatermarkType *type, const char *expression, int n)
{
	TextRows   *rows = source_ask_catalog(source, query_ranges(type, expression, n,
															   source->routine->from_clause(source),
															   job->options->filter));
	List	   *parts = NIL;
	char	   *low = NULL;

	for (int r = 0; r < rows->nrows; r++)
	{
		char	   *high = watermark_literal(type, watermark_parse(type, rows->value[r][0]));

		/* fewer values than ranges */
		if (low != NULL && strcmp(low, high) == 0)
			continue;
		parts = lappend(parts, low == NULL
						? psprintf("(%s OPERATOR(pg_catalog.<) %s OR %s IS NULL)", expression, high, expression)
						: psprintf("%s OPERATOR(pg_catalog.>=) %s AND %s OPERATOR(pg_catalog.<) %s",
								   expression, low, expression, high));
		low = high;
	}
	if (low != NULL)
		parts = lappend(parts, psprintf("%s OPERATOR(pg_catalog.>=) %s", expression, low));
	return parts;
}

/* can a type be cut into equal ranges? */
static bool
has_ranges(const WatermarkType *type)
{
	return type->kind == WATERMARK_TIME || type->kind == WATERMARK_NUMBER;
}

/* conditions that cut the source into parts; NIL: it is one */
static List *
cut(Source *source, const Job *job, const Shape *shape, int n)
{
	char	  **v = source_ask_catalog_about(source, extent_query,
											 source->routine->relation_name(source))->value[0];

	if (v[0][0] == RELKIND_RELATION && v[1][0] == 'f' && v[2][0] == 't' &&
		source->routine->version(source) >= 140000)
	{
		source->with_system = "ctid";
		return cut_pages(source, strtoi64(v[3], NULL, 10), n);
	}
	if (shape->watermark && has_ranges(shape->watermark))
		return cut_values(source, job, shape->watermark, shape->watermark_expression, n);
	if (shape->key_is_portable)
	{
		const LoadColumn *column = &shape->columns[shape->key[0]];
		Oid			type = getBaseType(column->type);

		if (watermark_type_fits(type, InvalidOid) && has_ranges(watermark_type(type, InvalidOid)))
			return cut_values(source, job, watermark_type(type, InvalidOid), column->expression, n);
	}
	return NIL;
}

List *
split_read(Source *source, const Job *job, const Shape *shape, const Window *window,
		   ReadOrder order, int64 limit)
{
	List	   *parts = NIL;
	List	   *queries = NIL;
	ListCell   *lc;

	if (job->options->parallel > 1 && source->routine->reads_parts && order == READ_ANY_ORDER &&
		limit == 0 && !window->low.is_set && window->mark == 0)
		parts = cut(source, job, shape, job->options->parallel);
	foreach(lc, parts)
		queries = lappend(queries, query_read(shape, source, job->options->filter, window, lfirst(lc),
											  order, limit));
	if (parts == NIL)
		queries = list_make1(query_read(shape, source, job->options->filter, window, NULL, order, limit));
	source->with_system = NULL;
	return queries;
}
