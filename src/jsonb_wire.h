/*
 * jsonb_wire.h
 *		Reads jsonb as a server sends it, in one pass.
 *
 * A server sends a jsonb as a version and a text, which its own output function
 * has written: one space after a comma and a colon, no other white space, each
 * key once and in the order that jsonb keeps, numbers without an exponent, no
 * escape that could be left out. jsonb_recv() takes any JSON: it builds a tree
 * by way of a parser with callbacks, sorts the keys, and turns the tree into
 * bytes. Of a text in that one form, the bytes can be written as they are read,
 * which takes a fraction of the time.
 *
 * The text is not trusted. What is not in that form to the last byte is left to
 * jsonb_recv(), from the beginning: each value and each error is the server's
 * own. utils/jsonb.h describes what is written.
 */
#ifndef INCLOAD_JSONB_WIRE_H
#define INCLOAD_JSONB_WIRE_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "commands/copy.h"
#include "fmgr.h"

/* stands in for jsonb_recv(); called by address only, SQL does not know it */
extern Datum jsonb_wire_recv(PG_FUNCTION_ARGS);

/* has a COPY that reads rows of this description call it */
extern void jsonb_wire_install(CopyFromState copy, TupleDesc desc);

#endif							/* INCLOAD_JSONB_WIRE_H */
