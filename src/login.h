/*
 * login.h
 *		How a connection to a foreign server is opened.
 */
#ifndef INCLOAD_LOGIN_H
#define INCLOAD_LOGIN_H

#include "postgres.h"

#include "foreign/foreign.h"
#include "nodes/pg_list.h"

#include "connection.h"

/* an option of a server, a mapping, a foreign table or its column; "otherwise" where it is not set */
extern const char *foreign_option(List *options, const char *name, const char *otherwise);

/*
 * The mapping with which a user comes to a server. 42704 where there is none,
 * 2F003 where it lacks the password that he needs.
 */
extern UserMapping *login_mapping(ForeignServer *server, Oid user);

/* must the user have come with a password of the mapping's own? */
extern bool login_needs_password(UserMapping *mapping);

/* begins to open a connection that has been borrowed */
extern void login_start(Connection *connection, ForeignServer *server, UserMapping *mapping,
						const char *application_name);

/*
 * Goes on with it, until it stands, or, without wait, until there is something
 * to wait for: then false. 08001: no connection; 2F003: the server did not ask
 * for the password that the user needs.
 */
extern bool login_proceed(Connection *connection, bool wait);

/*
 * Do the options of a foreign server or of the user's mapping, or this server's environment, tell
 * the other server in which time zone to be?
 */
extern bool login_gives_zone(Oid server, Oid user);

#endif							/* INCLOAD_LOGIN_H */
