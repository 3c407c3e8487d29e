/*
 * facts.h
 *		What the catalog of the server that holds a source says about it.
 */
#ifndef INCLOAD_FACTS_H
#define INCLOAD_FACTS_H

#include "postgres.h"

#include "source.h"

typedef struct SourceColumn
{
	char	   *name;			/* as the source relation here has it; NULL: it has it not */
	char	   *remote_name;	/* as the server that holds it has it */
	char	   *type_name;		/* as the server that holds it has it; likewise the next three */
	Oid			type;
	int32		typmod;
	Oid			collation;
	bool		not_null;
	int			number;			/* there; 0: not known */
	int			primary_key_position;	/* from 1; 0: not in it */
	bool		leads_index;	/* first column of a valid, full index */
	bool		is_counted;		/* identity, or fed by a sequence */
	bool		is_cached;		/* sessions take that sequence's numbers ahead, several at once */
} SourceColumn;

typedef struct SourceFacts
{
	List	   *columns;		/* of SourceColumn *, those that both sides have */
	List	   *all;			/* likewise, all that the server which holds it has */
	List	   *gone;			/* likewise, columns here that it no longer has */
	List	   *unique_keys;	/* of List of char *: columns of each unique index */
	double		rows;			/* the planner's estimate; -1: not known */
	bool		is_readable;	/* the role there has SELECT on all of it, not on columns alone */
	bool		has_children;	/* others inherit from it, and its indexes and constraints are not theirs */
	char		kind;			/* relkind where the rows are; '\0': not known */
} SourceFacts;

/* looks up what helps to choose and to warn */
extern SourceFacts *facts_gather(Source *source);

/*
 * Looks up what a run has to know: columns and their types, NOT NULL and unique
 * keys, and the kind of the relation. All else is not filled in. Asked once; what is
 * here is looked at each time.
 */
extern SourceFacts *facts_outline(Source *source);

/* asks whether the watermark and its fallback are counted, and adds it */
extern void facts_add_feeds(Source *source, SourceFacts *facts);

/* sends ahead what that will ask first */
extern void facts_foresee(Source *source);

extern SourceColumn *facts_column(const SourceFacts *facts, const char *name);

/* names of the primary key's columns in order (char *), NIL for none */
/* the columns' names and numbers, as text */
extern char *facts_numbers(const SourceFacts *facts);

extern List *facts_primary_key(const SourceFacts *facts);

/* is some unique index covered by these columns (char *)? */
extern bool facts_unique_within(const SourceFacts *facts, List *key);

/* is the source, where its rows are, something that an index can be created on? */
extern bool facts_takes_index(const SourceFacts *facts);

/* EXPLAIN of a query of the source, lines joined */
extern char *facts_plan(Source *source, const char *sql);

/* the planner's estimate at the top of a plan's text; 0 where there is none */
extern double facts_plan_rows(const char *plan);

/* the sequences that feed a column of the source's relation: a query of their oid */
extern char *facts_sequences_query(Source *source, const char *column);

/*
 * The largest number that some sequences have given out, as text, or, if
 * is_given is false then, the one that they will give out first; NULL where that
 * cannot be seen. With "least", what the one has given out that is furthest
 * behind: where several feed a column, it is still to give all that is above. Of the relations that the query names by oid, those that
 * are no sequence do not count; is_whole is false if some may not be read. Takes no lock that a writer would take.
 */
extern char *facts_last_value(Source *source, const char *oids_query, bool least, bool *is_given, bool *is_whole);

#endif							/* INCLOAD_FACTS_H */
