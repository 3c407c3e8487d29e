/*
 * witness.h
 *		Who is open at a source: the transactions that may still add rows.
 */
#ifndef INCLOAD_WITNESS_H
#define INCLOAD_WITNESS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

#include "shape.h"
#include "source.h"

/* SourceState: what a source's server says of itself, at the start of a run */
typedef struct SourceState
{
	TimestampTz clock;			/* read before all else */
	bool		in_recovery;
	TimestampTz replayed_to;	/* on a standby: the last commit it has; 0: none yet */
	bool		is_behind;		/* it has received more, or its replay is paused */
	char	   *epoch;
	char	   *relations;		/* OIDs of the tables behind the source, and, where asked for, of their sequences */
	bool		is_plain;		/* that is one table, and nothing else was asked for */
	bool		is_tables;		/* there is nothing but tables behind it */
	bool		is_mixed;		/* where asked for: a UNION of tables that take numbers from several sequences */
	bool		is_refreshed;	/* there is a materialized view, whose rows come with a REFRESH */
	bool		is_table;		/* it is one itself, so that its rows have an xmin, */
	bool		shows_xmin;		/* which the role there may read */
	bool		has_policies;	/* row security decides which rows it sees */
	uint64		next_xid;		/* xid8 */
	uint64		oldest_xid;		/* xid8: each transaction below is over */
} SourceState;

/* how the epoch of a source in this database ends */
#define EPOCH_HERE ".here"

/* Holder: an open transaction, and who that is as far as one can see */
typedef struct Holder
{
	char	   *name;			/* of the virtual transaction, if that is how it was found */
	char	   *who;			/* "pid 17 (psql)" */
	TimestampTz since;			/* 0: that cannot be seen */
} Holder;

/* Witness: the transactions that were open after that */
typedef struct Witness
{
	TimestampTz oldest_start;	/* of those whose start can be seen; DT_NOEND: none */
	char	   *oldest;			/* who that is */
	List	   *open;			/* of char *: every virtual transaction there is, "pid:name"; "name" if prepared */
	List	   *holders;		/* of Holder *: the same */
	List	   *unknown;		/* those of which the start cannot be seen */
	List	   *others;			/* all but its kind and autovacuum; this one only if it may go on to write */
	List	   *writers;		/* those with a write lock on the relations */
	List	   *prepared;		/* the prepared ones among the writers */
} Witness;

/* can the source's server tell who is open, and is its answer about the rows that are read? */
extern bool witness_possible(Source *source);

extern SourceState *witness_state(Source *source, bool with_sequences);

/* sends ahead what the two will ask in a first run, where the source is a plain table */
extern void witness_foresee(Source *source, bool by_number);

/* after the bound was taken, and before the snapshot that reads the rows */
extern Witness *witness_open(Source *source, const SourceState *state);

/* who a virtual transaction is; NULL where it is not open */
extern const Holder *witness_holder(const Witness *witness, const char *name);

/* the same for the number of a transaction; NULL where that cannot be seen */
extern const Holder *witness_of_xid(Source *source, uint64 xid);

#endif							/* INCLOAD_WITNESS_H */
