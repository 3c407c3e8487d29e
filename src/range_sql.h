/*
 * range_sql.h
 *		Ranges of a key as SQL: in which one a row is, and what each one has.
 */
#ifndef INCLOAD_RANGE_SQL_H
#define INCLOAD_RANGE_SQL_H

#include "postgres.h"

#include "ranges.h"

/* the key that is cut by its order, as the type that its ends have */
extern char *range_key(const Ranges *ranges, Side side);

/* the number of the range that a row is in, and the number that each of the list has */
extern char *range_place(const Ranges *ranges, Side side, List *list);
extern int *range_places(const Ranges *ranges, List *list);

/* the condition on rows of a side that they are in one of these ranges; those that are cut by order are in it */
extern char *range_condition(const Ranges *ranges, Side side, List *list);

/* the query that gets one line a range from a side: its number, rows and checksum; ranges of one cut */
extern char *range_question(const Ranges *ranges, Side side, List *list);

/* a condition and another; either may be NULL */
extern char *range_both(const char *a, const char *b);

#endif							/* INCLOAD_RANGE_SQL_H */
