/*
 * source.h
 *		The readers, behind one small interface.
 *
 * The order of calls: source_connect; then ask and describe at will; open; read
 * until it returns false; close; any of these again; source_release. A source
 * works as the job's owner: call it inside the owner bracket (role.h).
 */
#ifndef INCLOAD_SOURCE_H
#define INCLOAD_SOURCE_H

#include "postgres.h"

#include "job.h"
#include "shape.h"
#include "stage.h"
#include "text_rows.h"

typedef struct Source Source;

/* application_name of a connection that reads, followed by the job's name */
#define SOURCE_READER_PREFIX "incload reader: "

typedef struct SourceRoutine
{
	const char *name;			/* as the option "reader" has it */

	/* an open query goes on after the local transaction has committed */
	bool		outlives_commit;

	/* it can read by several queries at once, as of one snapshot */
	bool		reads_parts;

	/* is it connected? Does not wait, as all that asks does; NULL: always */
	bool		(*ready) (Source *source);

	/* the version of the server that holds the rows, as 150004, where that is PostgreSQL */
	int			(*version) (Source *source);

	/* the relation as an item of FROM, with the local column names, as "source" */
	char	   *(*from_clause) (Source *source);

	/* the relation's name there, qualified and quoted */
	char	   *(*relation_name) (Source *source);

	/* a small query of incload's own, outside the reading snapshot; all as text */
	TextRows   *(*ask) (Source *source, const char *sql);

	/* the same with $1 in it; planned once a session, so let its text be a constant */
	TextRows   *(*ask_about) (Source *source, const char *sql, const char *argument);

	/* sends ahead what the runs before have asked in their course; false if that is not known */
	bool		(*foresee) (Source *source);

	/* sends a question ahead that will be asked next, most likely */
	void		(*expect) (Source *source, const char *sql, const char *argument, bool wants_types);

	/* leaves a question for the next use, which sends it ahead, after the rest; NULL: cannot */
	void		(*foretell) (Source *source, const char *sql);

	/* the answer to that, if it came after all that was asked, and is in these words; NULL: not known. No words: none is wanted. */
	TextRows   *(*foretold) (Source *source, const char *sql);

	/* types of a query's columns; InvalidOid for a type that is not known here */
	void		(*describe) (Source *source, const char *sql, int ncolumns,
							 Oid *types, int32 *typmods, Oid *collations);

	/* starts the reading queries (of char *): more than one only where reads_parts */
	void		(*open) (Source *source, List *queries, const Shape *shape);

	/* puts rows into the stage until its batch is full (true) or there are no more (false) */
	bool		(*read) (Source *source, Stage *stage);

	/* ends the reading query; safe to call when none is open */
	void		(*close) (Source *source);

	/* gives up everything at once, also in the middle of an error; must not throw */
	void		(*release) (Source *source);
} SourceRoutine;

/* Source: the part that all readers have in common; each puts its own behind it */
struct Source
{
	const SourceRoutine *routine;
	const Job  *job;
	MemoryContext context;		/* lives as long as the source */
	int64		bytes_read;		/* sent by the source since connect */
	bool		is_postgres;	/* ask() reaches the server that holds the rows */
	bool		is_local;		/* the rows are in this database */
	bool		puts_aside;		/* the stage has a place for rows that cannot be staged; set before open */
	bool		may_lock;		/* the relation can be locked there, by who reads it */
	const struct Source *beside;	/* of another relation there, which the queries name, too; NULL: none */
	bool		with_xmin;		/* the relation is a table, and its from_clause shows xmin: */
	char	   *xmin;			/* the xid that wrote a row, as SQL */
	bool		zone_is_asked;	/* what follows is known */
	bool		zone_is_personal;	/* the session there has a time zone of its own, not its server's */
	const char *with_system;	/* a system column that the from_clause shows, too; NULL: none */
	char	   *system;			/* as SQL, wherever it is shown */
	TextRows   *outline;		/* what facts_outline() was told */
	const char *outline_sql;	/* and by which question */
	List	   *gone;			/* columns (char *) that are no longer there: the from_clause leaves them out */
};

/*
 * Chooses the reader by the job's options and the kind of its source, and
 * connects it. Everything it holds goes with "context", whatever ends that; a
 * connection that is sound is kept for the next one.
 */
extern Source *source_connect(const Job *job, MemoryContext context);
extern void source_release(Source *source);

/* is there nothing to wait for before it can be asked? */
extern bool source_ready(Source *source);

/*
 * Asks something of incload's own that has no expression of the owner's in it:
 * where the source is here, what his search_path holds must not stand in for
 * the server's own functions and operators.
 */
extern TextRows *source_ask_catalog(Source *source, const char *sql);
extern TextRows *source_ask_catalog_about(Source *source, const char *sql, const char *argument);

/* what the source's catalog says of the relation: its kind, and whether all of it may be read */
extern void source_note_facts(Source *source, char kind, bool is_readable);

/*
 * What is asked from here on is what every run of the job asks, and in its
 * order. False if the source may be told what to expect.
 */
extern bool source_foresee(Source *source);

/* for source_connect: each reader's own */
extern Source *source_copy_connect(const Job *job, MemoryContext context);
extern Source *source_relation_connect(const Job *job, MemoryContext context);

/* is this a foreign table of postgres_fdw? */
extern bool source_is_postgres_fdw(Oid relation);

#endif							/* INCLOAD_SOURCE_H */
