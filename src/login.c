/*
 * login.c
 *		How a connection to a foreign server is opened.
 *
 * Options and user mapping are postgres_fdw's, and so is the rule on passwords:
 * a non-superuser connects with a password of the mapping's own, or he could
 * use what the server process itself is trusted with; a superuser may waive
 * that in the mapping.
 */
#include "postgres.h"

#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "libpq-fe.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "connection.h"
#include "login.h"

/* how long to wait for a connection when the server's options do not say */
#define DEFAULT_CONNECT_TIMEOUT 30

const char *
foreign_option(List *options, const char *name, const char *otherwise)
{
	ListCell   *lc;

	foreach(lc, options)
		if (strcmp(((DefElem *) lfirst(lc))->defname, name) == 0)
			return defGetString(lfirst(lc));
	return otherwise;
}

/* is this one of libpq's options (the rest are postgres_fdw's own)? */
static bool
is_libpq_option(const char *name, PQconninfoOption *known)
{
	for (; known->keyword; known++)
		if (strcmp(known->keyword, name) == 0)
			return true;
	return false;
}

bool
login_needs_password(UserMapping *mapping)
{
	ListCell   *lc;

	if (superuser_arg(mapping->userid))
		return false;
	foreach(lc, mapping->options)
		if (strcmp(((DefElem *) lfirst(lc))->defname, "password_required") == 0 &&
			!defGetBoolean(lfirst(lc)))
			return false;
	return true;
}

static void
report_password(const char *server, Oid user, bool is_given)
{
	ereport(ERROR,
			(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
			 errmsg("a password is required to connect to server \"%s\"", server),
			 is_given
			 ? errdetail("The source server did not ask for the password in the user mapping of \"%s\".",
						 GetUserNameFromId(user, false))
			 : errdetail("The user mapping of \"%s\", who is not a superuser, has none.",
						 GetUserNameFromId(user, false)),
			 is_given
			 ? errhint("Change the authentication method there, or let a superuser set password_required 'false' in the user mapping.")
			 : errhint("ALTER USER MAPPING FOR %s SERVER %s OPTIONS (ADD password '...');",
					   quote_identifier(GetUserNameFromId(user, false)),
					   quote_identifier(server))));
}

UserMapping *
login_mapping(ForeignServer *server, Oid user)
{
	UserMapping *mapping;

	if (!SearchSysCacheExists2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(user),
							   ObjectIdGetDatum(server->serverid)) &&
		!SearchSysCacheExists2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid),
							   ObjectIdGetDatum(server->serverid)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("no user mapping for \"%s\" on server \"%s\"",
						GetUserNameFromId(user, false), server->servername),
				 errdetail("A job connects with its owner's user mapping."),
				 errhint("CREATE USER MAPPING FOR %s SERVER %s OPTIONS (user '...', password '...');",
						 quote_identifier(GetUserNameFromId(user, false)),
						 quote_identifier(server->servername))));
	mapping = GetUserMapping(user, server->serverid);
	if (login_needs_password(mapping) &&
		foreign_option(mapping->options, "password", "")[0] == '\0')
		report_password(server->servername, user, false);
	return mapping;
}

/* gathers libpq's keywords and values; a later one replaces an earlier */
static void
connection_options(ForeignServer *server, UserMapping *mapping, const char *application_name,
				   const char ***keywords, const char ***values)
{
	PQconninfoOption *known = PQconndefaults();
	int			n = list_length(server->options) + list_length(mapping->options);
	int			i = 0;
	List	   *both[2] = {server->options, mapping->options};

	if (known == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	*keywords = palloc0(sizeof(char *) * (n + 8));
	*values = palloc0(sizeof(char *) * (n + 8));

#define PUT(k, v) ((*keywords)[i] = (k), (*values)[i] = (v), i++)
	/* a peer that has gone without a word is noticed within a minute, whoever has to speak */
	PUT("keepalives_idle", "30");
	PUT("keepalives_interval", "10");
	PUT("keepalives_count", "3");
	PUT("tcp_user_timeout", "60000");
	for (int side = 0; side < 2; side++)
	{
		ListCell   *lc;

		foreach(lc, both[side])
		{
			DefElem    *option = lfirst(lc);

			if (is_libpq_option(option->defname, known))
				PUT(option->defname, defGetString(option));
		}
	}
	PUT("application_name", application_name);
	PUT("client_encoding", GetDatabaseEncodingName());
#undef PUT
	PQconninfoFree(known);
}

bool
login_gives_zone(Oid server_id, Oid user)
{
	ForeignServer *server = GetForeignServer(server_id);
	UserMapping *mapping = login_mapping(server, user);

	/* libpq passes PGTZ on */
	return getenv("PGTZ") != NULL ||
		strcasestr(foreign_option(server->options, "options", ""), "timezone") != NULL ||
		strcasestr(foreign_option(mapping->options, "options", ""), "timezone") != NULL;
}

static void
report_unconnected(Connection *connection, const char *detail, const char *hint)
{
	connection_hang_up(connection);
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not connect to server \"%s\"", connection->server_name),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

/* what the server says without being asked is in its own log, too */
static void
take_notice(void *arg, const PGresult *result)
{
	ereport(DEBUG1, (errmsg_internal("source server: %s", pchomp(PQresultErrorMessage(result)))));
}

void
login_start(Connection *connection, ForeignServer *server, UserMapping *mapping,
			const char *application_name)
{
	const char **keywords;
	const char **values;

	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
				 errmsg("could not connect to server \"%s\"", server->servername),
				 errdetail("There are too many open files on the local server."),
				 errhint("Raise the server's max_files_per_process and/or \"ulimit -n\" limits.")));
	connection->holds_fd = true;
	connection->timeout = atoi(foreign_option(server->options, "connect_timeout", "0"));
	if (connection->timeout <= 0)
		connection->timeout = DEFAULT_CONNECT_TIMEOUT;
	connection->deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													   connection->timeout * 1000L);
	connection->needs_password = login_needs_password(mapping);
	connection_options(server, mapping, application_name, &keywords, &values);
	connection->pg = PQconnectStartParams(keywords, values, false);
	if (connection->pg == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	PQsetNoticeReceiver(connection->pg, take_notice, NULL);
	connection->poll = PQstatus(connection->pg) == CONNECTION_BAD
		? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
	connection->is_opening = true;
}

bool
login_proceed(Connection *connection, bool wait)
{
	while (connection->poll == PGRES_POLLING_READING || connection->poll == PGRES_POLLING_WRITING)
	{
		int			event = connection->poll == PGRES_POLLING_READING
			? WL_SOCKET_READABLE : WL_SOCKET_CONNECTED;
		long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), connection->deadline);

		if (connection_wait(connection->pg, event, wait ? Max(left, 0) : 0) & event)
			connection->poll = PQconnectPoll(connection->pg);
		else if (!wait)
			return false;
		else if (left <= 0)
			report_unconnected(connection,
							   psprintf("There was no answer within %d seconds.", connection->timeout),
							   "See that the server runs; the server option connect_timeout sets how long to wait.");
	}
	if (connection->poll != PGRES_POLLING_OK)
		report_unconnected(connection, connection_message(connection),
						   "See that the server runs, and compare its options and the user mapping's in \\des+ and \\deu+.");
	if (connection->needs_password && !PQconnectionUsedPassword(connection->pg))
	{
		connection_hang_up(connection);
		report_password(connection->server_name, connection->user, true);
	}
	connection->is_opening = false;
	return true;
}
