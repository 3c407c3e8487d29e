/*
 * checksum.h
 *		A row, or its key, as a number that is the same on both sides.
 *
 * A row is taken as text, column by column, in the form that both sessions are
 * pinned to (role_pin_formats, remote_connect), so that no setting and no version
 * changes it; at the source each column is first made what it becomes when it is
 * loaded. The text's hash is the server's own hashtextextended() where both
 * servers give the same for the same text, else the first half of its md5.
 */
#ifndef INCLOAD_CHECKSUM_H
#define INCLOAD_CHECKSUM_H

#include "postgres.h"

#include "shape.h"
#include "source.h"

typedef enum Side
{
	SIDE_SOURCE,
	SIDE_TARGET
} Side;

/* Checksum: how both sides compute it */
typedef struct Checksum
{
	const Shape *shape;
	bool		by_cast;		/* the source's values are converted by casts, as the relation reader does, and not through text */
	bool		by_md5;
	bool		puts_aside;		/* a value that has no place here is to be no error */
} Checksum;

/* asks both servers */
extern Checksum *checksum_agree(Source *source, const Shape *shape);

/* SQL of the int8 for a whole row, or for its key alone */
extern char *checksum_of_row(const Checksum *checksum, Side side);
extern char *checksum_of_key(const Checksum *checksum, Side side);

#endif							/* INCLOAD_CHECKSUM_H */
