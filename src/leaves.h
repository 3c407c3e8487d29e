/*
 * leaves.h
 *		In which partition a row with a key lies, by the key alone.
 */
#ifndef INCLOAD_LEAVES_H
#define INCLOAD_LEAVES_H

#include "postgres.h"

#include "utils/relcache.h"

#include "shape.h"

typedef struct Leaves Leaves;

/* of a partitioned table, which stays open; a key that was NOT NULL has a value for each of its columns */
extern Leaves *leaves_open(Relation target, const Shape *shape);

/*
 * The partition for rows with these values of the key's columns; InvalidOid where there is none, or
 * where it depends on more than the key.
 */
extern Oid	leaves_find(Leaves *leaves, Datum *key);

/* partitions stay locked (ACCESS SHARE) as far as they were looked into */
extern void leaves_close(Leaves *leaves);

#endif							/* INCLOAD_LEAVES_H */
