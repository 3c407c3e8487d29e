/*
 * query.h
 *		The text of what is read at a source.
 */
#ifndef INCLOAD_QUERY_H
#define INCLOAD_QUERY_H

#include "postgres.h"

#include "shape.h"
struct Window;

typedef enum ReadOrder
{
	READ_ANY_ORDER,
	READ_BY_WATERMARK			/* then by key; rows without a watermark last */
} ReadOrder;

/*
 * The SELECT for a window, or for the part of it that a further condition lets
 * through (NULL: all). With a limit above zero, only so many rows; ties included
 * where the key cannot cut them.
 */
extern char *query_read(const Shape *shape, struct Source *source, const char *filter,
						const struct Window *window, const char *part, ReadOrder order, int64 limit);

/* a query that tells whether a window has any row that passes the filter, in the plan in which all would be read */
extern char *query_any(const Shape *shape, struct Source *source, const char *filter,
					   const struct Window *window);

/* "SELECT list" of the rows of a window that pass the filter, and a further condition (NULL: none) */
extern char *query_list(const char *list, const Shape *shape, struct Source *source, const char *filter,
						const struct Window *window, const char *part);

/* the condition that the window's bounds are, as query_read() has it; NULL: every row is in it */
extern char *query_condition(const Shape *shape, const struct Source *source, const struct Window *window);

/* "the row was written by a transaction that was not over when the mark was taken" */
extern char *query_written_since(const struct Source *source, uint64 mark);

/*
 * Values of an expression that cut what lies between its smallest and its largest into n equal
 * ranges: the ends of all but the last. Fewer, and some alike, where there are not so many.
 */
extern char *query_ranges(const WatermarkType *type, const char *expression, int n,
						  const char *from, const char *filter);

/* one row with the newest value of a watermark, or of a fallback, that the filter lets through */
extern char *query_newest(const WatermarkType *type, const char *expression, const Bound *limit,
						  const char *from, const char *filter);

/* a query of the given columns and the watermark, for its types alone */
extern char *query_describe(List *columns, const char *watermark_expression,
							const char *from, const char *filter);

/*
 * Checks that a text is one SQL expression, so that it can be embedded, and
 * returns it in parentheses. "what" names it in the error (42601).
 */
extern char *expression_embed(const char *text, const char *what);

/* does an expression that can be embedded depend on a column at all? */
extern bool expression_names_column(const char *text);

/* Influences: what an expression depends on beside the row, as far as its text tells */
typedef struct Influences
{
	bool		by_moment;		/* CURRENT_DATE, 'now', the session's role */
	bool		by_table;		/* a subquery */
	List	   *functions;		/* names of those that it calls, without their schemas, as char * */
} Influences;

extern Influences expression_influences(const char *text);

/* does an expression depend on the row alone: operators and constants, no function, no other table? */
extern bool expression_is_plain(const char *text);

#endif							/* INCLOAD_QUERY_H */
