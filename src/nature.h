/*
 * nature.h
 *		What the names of columns say about their values.
 */
#ifndef INCLOAD_NATURE_H
#define INCLOAD_NATURE_H

#include "postgres.h"

/* WatermarkNature: when a column's value moves, as far as its name tells */
typedef enum WatermarkNature
{
	NATURE_UPDATED,				/* at every change of the row */
	NATURE_LAST,				/* at some changes: last_seen, password_changed_at */
	NATURE_CREATED,				/* once, when the row is made */
	NATURE_PLAIN,				/* the name does not say */
	NATURE_UNLIKELY				/* it tells something else: birth, end, due */
} WatermarkNature;

/*
 * Reads the words of a column's name, or of an expression in parentheses.
 * Words that the relation's own name has say nothing more.
 */
extern WatermarkNature watermark_nature(const char *name, const char *relation);

/* does a row that changes get another value, with some luck? */
extern bool nature_sees_updates(WatermarkNature nature);

/* is the name that of a surrogate key: "id", or the relation's name with "id"? */
extern bool name_says_key(const char *name, const char *relation);

#endif							/* INCLOAD_NATURE_H */
