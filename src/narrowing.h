/*
 * narrowing.h
 *		What a value can lose on its way from one type into another.
 */
#ifndef INCLOAD_NARROWING_H
#define INCLOAD_NARROWING_H

#include "postgres.h"

/*
 * Says in a few words what becomes of values of the first type that the second
 * cannot hold as they are; NULL where it holds them all. "by_cast" tells that
 * values are cast, and not sent as text.
 */
extern char *type_narrowing(Oid from, int32 from_typmod, Oid to, int32 to_typmod, bool by_cast);

/*
 * Is the second the same kind of type, only wider: does ALTER COLUMN TYPE from the
 * first to it keep every value as it is?
 */
extern bool type_widens(Oid from, int32 from_typmod, Oid to, int32 to_typmod);

#endif							/* INCLOAD_NARROWING_H */
