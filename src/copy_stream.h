/*
 * copy_stream.h
 *		One COPY that a server sends, and the rows in it.
 */
#ifndef INCLOAD_COPY_STREAM_H
#define INCLOAD_COPY_STREAM_H

#include "postgres.h"

#include "remote.h"
#include "shape.h"
#include "stage.h"

typedef struct CopyStream CopyStream;

/*
 * Starts the COPY of a query over a connection, after locking what is named by "lock" and asking the guard. The relation is the one that
 * messages name. All of it lives in "context"; the connection stays the caller's. Where rows
 * can be put aside, they come as text, and in the encoding that they have there.
 */
extern CopyStream *copy_stream_open(Remote *remote, const char *sql, const char *lock, const Guard *guard,
									const Shape *shape, Oid relation, bool puts_aside,
									MemoryContext context);

/* why copy_stream_read() has come back */
typedef enum StreamState
{
	STREAM_ENDED,				/* there are no more rows */
	STREAM_FULL,				/* the stage has taken its last row */
	STREAM_DRY					/* what has arrived is taken, as far as one can tell */
} StreamState;

/*
 * Puts rows into the stage. With "only_arrived", it returns rather than wait, if
 * it has put a row; "values" and "nulls" have room for one.
 */
extern StreamState copy_stream_read(CopyStream *stream, Stage *stage, Datum *values, bool *nulls,
									bool only_arrived);

/* has a row come that is not taken yet, or the end? Does not wait. */
extern bool copy_stream_arrived(CopyStream *stream);

/* has all of it been taken? */
extern bool copy_stream_ended(const CopyStream *stream);

/* bytes that have come since the last call */
extern int64 copy_stream_bytes(CopyStream *stream);

extern void copy_stream_close(CopyStream *stream);

#endif							/* INCLOAD_COPY_STREAM_H */
