/*
 * shape_rows.h
 *		Rows of a shape that carry more than what is loaded, and rows as text.
 */
#ifndef INCLOAD_SHAPE_ROWS_H
#define INCLOAD_SHAPE_ROWS_H

#include "postgres.h"

#include "shape.h"

/*
 * A shape like this one, of all its columns or of the key's alone, whose rows have
 * one column more: an int4 that the source computes. Sets *name to its name.
 */
extern Shape *shape_with_number(const Shape *shape, bool only_key, const char *expression, char **name);

/* "alias"'s loaded columns, or the key's, as one jsonb object */
extern char *shape_as_json(const Shape *shape, const char *alias, bool only_key);

#endif							/* INCLOAD_SHAPE_ROWS_H */
