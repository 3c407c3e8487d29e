/*
 * remote.h
 *		What is said to a foreign server during one use of a connection to it.
 *
 * Every wait can be interrupted. What the server reports is raised here with
 * its own SQLSTATE, message, detail and hint, and the remote statement as
 * context.
 */
#ifndef INCLOAD_REMOTE_H
#define INCLOAD_REMOTE_H

#include "postgres.h"

#include "text_rows.h"

typedef struct Remote Remote;

/*
 * Guard: a question with an argument and the answer that was had. Where it is asked again
 * in the transaction that reads, and answered otherwise, that fails by 40001.
 */
typedef struct Guard
{
	const char *sql;
	const char *argument;
	const TextRows *answer;
} Guard;

/*
 * Connects as the user's mapping says, or takes the connection that was kept
 * of an earlier use. It is given back at the latest when "context" is reset.
 * Timeouts are in milliseconds, 0 for none; they are set in the session there.
 *
 * 2F003: a password is required; 42704: no user mapping. A new connection is
 * waited for by the first of the functions below: 08001: there is none; 2F003:
 * the server did not ask for the password.
 */
extern Remote *remote_connect(Oid server, Oid user, const char *application_name,
							  int64 statement_timeout, int64 lock_timeout, const char *timezone,
							  MemoryContext context);

/* does the connection stand? Goes on with it without waiting. */
extern bool remote_ready(Remote *remote);

/* the server's version, as 150004 */
extern int	remote_version(Remote *remote);

/* the encoding of its database; -1 for one that is not known here */
extern int	remote_encoding(Remote *remote);

/* gives the connection back, to be kept for the next use; must not throw */
extern void remote_release(Remote *remote);

/* closes it at once, a statement in progress or not; the server notices and ends that */
extern void remote_disconnect(Remote *remote);

/*
 * From here on, what is asked is a script of this name: what two uses of the
 * connection have asked in the same words and order is sent ahead by the next
 * one, all at once. The answers are taken as they are asked for; where a use
 * asks something else, it is asked anew, and so is all that follows. False if
 * there is no such script yet.
 */
extern bool remote_follow(Remote *remote, const char *script);

/* sends a question ahead that is likely to be asked next, after those sent before */
extern void remote_expect(Remote *remote, const char *sql, const char *argument, bool wants_types);

/*
 * What the next use of the script asks after all of its questions, in words that
 * are good for once: it is sent ahead with them, if they all are.
 */
extern void remote_foretell(Remote *remote, const char *sql);

/*
 * The answer to what the last use has foretold, with which the script ends. NULL where that was not
 * sent, or in other words (NULL: any), or where something was asked since that was not sent before it, or
 * where the words do not fit what they are about any more.
 */
extern TextRows *remote_foretold(Remote *remote, const char *sql);

/*
 * Asks a query, in a transaction of its own; all as text. The argument stands
 * for $1 in it, NULL: there is none. A query with an argument is kept prepared,
 * so let its text be a constant.
 */
extern TextRows *remote_query(Remote *remote, const char *sql, const char *argument);

/* types of a query's columns; InvalidOid for those that are not built in */
extern void remote_describe(Remote *remote, const char *sql, int ncolumns,
							Oid *types, int32 *typmods);

/*
 * Begins the transaction of the next remote_copy_start() here, and returns its
 * snapshot's name, by which other connections can read the same until that ends.
 * Here and below, a relation is locked (ACCESS SHARE) before the snapshot is taken, and a guard asked after that; NULL: none.
 */
extern char *remote_share_snapshot(Remote *remote, const char *relation, const Guard *guard);

/* begins it likewise, with the snapshot that another connection shares; 55P03 where the lock is not to be had at once */
extern void remote_take_snapshot(Remote *remote, const char *snapshot, const char *relation);

/*
 * Starts a COPY … TO STDOUT in a read-only transaction of its own, which ends
 * with the last row. Does not wait for the server to begin.
 */
extern void remote_copy_start(Remote *remote, const char *sql, const char *relation, const Guard *guard);

/*
 * The next piece of the COPY: its length, and in *data its bytes, good until
 * the next call; -1 when the COPY has ended as it should. Without wait, 0 when
 * nothing has arrived.
 */
extern int	remote_copy_next(Remote *remote, const char **data, bool wait);

/* has a piece, or the end, arrived? Then as remote_copy_next() says; does not wait. */
extern bool remote_copy_arrived(Remote *remote, const char **data, int *length);

/* waits until something has come on one of the connections, at most a second; can be interrupted */
extern bool remote_wait_any(Remote *const *remotes, int n);

#endif							/* INCLOAD_REMOTE_H */
