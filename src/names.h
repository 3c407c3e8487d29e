/*
 * names.h
 *		Names of relations and columns as users write them.
 */
#ifndef INCLOAD_NAMES_H
#define INCLOAD_NAMES_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "nodes/primnodes.h"

/* a possibly qualified, possibly quoted name as in a query; 42602 where it is none */
extern RangeVar *relation_parse(const char *name);

/* the relation that a stored, qualified name stands for now; InvalidOid if gone */
extern Oid	relation_oid_or_invalid(const char *name);

/*
 * The relation to read from: 42P01 where there is none, 42809 where it is of a
 * kind that has no rows to read, 42501 where the current user may not SELECT.
 */
extern Oid	relation_require_source(const char *name);

/* the same for a stored, qualified name, without asking for the right to look it up */
extern Oid	relation_stored_oid(const char *name);

/* "schema.name", each quoted where needed */
extern char *relation_qualified_name(Oid relation);

/* "OPERATOR(schema.name)" */
extern char *operator_qualified_name(Oid operator);

/* the nearest of a list of names (char *) to one that was not found, or NULL */
extern const char *nearest_name(List *names, const char *wanted);

/* the same names in the same order? */
extern bool same_names(List *a, List *b);

/* the same text, or NULL both? */
extern bool same_text(const char *a, const char *b);

extern bool name_in_list(List *names, const char *name);

/* a value as an element of an array's text */
extern char *quote_array_element(const char *text);

#endif							/* INCLOAD_NAMES_H */
