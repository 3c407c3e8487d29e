/*
 * remote.h
 *		One libpq connection to a foreign server.
 *
 * Options, user mapping and the rules on passwords are postgres_fdw's. Every
 * wait can be interrupted. What the server reports is raised here with its own
 * SQLSTATE, message, detail and hint, and the remote statement as context.
 */
#ifndef INCLOAD_REMOTE_H
#define INCLOAD_REMOTE_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "text_rows.h"

typedef struct Remote Remote;

/* an option of a server, a mapping, a foreign table or its column; "otherwise" where it is not set */
extern const char *foreign_option(List *options, const char *name, const char *otherwise);

/*
 * Connects as the user's mapping says. The connection is closed at the latest
 * when "context" is reset. Timeouts are in milliseconds, 0 for none; they are
 * set in the session there.
 *
 * 08001: no connection; 2F003: a password is required; 42704: no user mapping.
 */
extern Remote *remote_connect(Oid server, Oid user, const char *application_name,
							  int64 statement_timeout, int64 lock_timeout,
							  MemoryContext context);

/* closes it at once, a statement in progress or not; the server notices and ends that */
extern void remote_disconnect(Remote *remote);

/* runs one or more statements; rows of the last one, or none */
extern TextRows *remote_query(Remote *remote, const char *sql);

/* types of a query's columns; InvalidOid for those that are not built in */
extern void remote_describe(Remote *remote, const char *sql, int ncolumns,
							Oid *types, int32 *typmods);

/* starts a COPY … TO STDOUT */
extern void remote_copy_start(Remote *remote, const char *sql);

/*
 * The next piece of the COPY: its length, and in *data its bytes, good until
 * the next call; -1 when the COPY has ended as it should. Without wait, 0 when
 * nothing has arrived.
 */
extern int	remote_copy_next(Remote *remote, const char **data, bool wait);

#endif							/* INCLOAD_REMOTE_H */
