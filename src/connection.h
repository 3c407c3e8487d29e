/*
 * connection.h
 *		Connections to foreign servers, kept from one use to the next.
 *
 * A connection serves one local user, by one user mapping, and one use at a
 * time. Between two uses it is clean: no transaction, no lock, and the settings
 * that it began with.
 */
#ifndef INCLOAD_CONNECTION_H
#define INCLOAD_CONNECTION_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "foreign/foreign.h"
#include "lib/ilist.h"
#include "libpq-fe.h"
#include "nodes/pg_list.h"

typedef struct Connection
{
	dlist_node	node;
	MemoryContext context;		/* holds all that is known about it */
	PGconn	   *pg;				/* NULL until it is being opened */
	bool		holds_fd;		/* one external file descriptor is accounted for */
	Oid			server;
	char	   *server_name;
	Oid			user;
	Oid			mapping;
	uint32		server_hash;	/* of the catalog entries that it was made from */
	uint32		mapping_hash;
	uint32		wrapper_hash;

	/* while it is being opened, for login.c */
	bool		is_opening;
	int			poll;			/* what to wait for, a PostgresPollingStatusType */
	int			timeout;		/* seconds */
	TimestampTz deadline;
	bool		needs_password;

	bool		is_lent;		/* somebody uses it */
	bool		is_stale;		/* those entries have changed since */
	bool		is_spoilt;		/* an error came up: nobody knows what it is in the middle of */
	bool		is_being_cleaned;	/* the answer to that has not been read */
	TimestampTz idle_since;

	/* kept by remote.c, and worth nothing on another connection */
	List	   *statements;		/* of Statement *: prepared there */
	List	   *scripts;		/* of Script *: what is asked, from use to use */
} Connection;

/* setting incload.idle_connection_timeout: milliseconds, 0: none is kept */
extern int	connection_idle_timeout;

/*
 * Lends a connection of this mapping and its user: one that was kept and is
 * alive, else a new one that is not open yet (pg is NULL). Nobody else gets it
 * before it is given back.
 */
extern Connection *connection_borrow(const ForeignServer *server, const UserMapping *mapping,
									 bool needs_password);

/*
 * Takes it back. It is closed unless it is sound and may be kept. Does not
 * throw, and does not wait.
 */
extern void connection_give_back(Connection *connection);

/* closes it at once, a statement in progress or not; it still has to be given back */
extern void connection_hang_up(Connection *connection);

/* what libpq says of it last, or, where it says nothing, that it is closed */
extern char *connection_message(const Connection *connection);

/*
 * Waits for the socket, the latch, or a timeout in milliseconds (-1: none), and
 * returns what came (WL_...). Can be interrupted.
 */
extern int	connection_wait(PGconn *pg, int event, long timeout);

/* the same for what comes on any of several; false if nothing does within the timeout */
extern bool connection_wait_any(PGconn *const *pgs, int n, long timeout);

#endif							/* INCLOAD_CONNECTION_H */
