/*
 * remote.c
 *		One libpq connection to a foreign server.
 *
 * States of a connection, and what ends each:
 * - connecting: polled on the latch, until connect_timeout;
 * - idle: between statements;
 * - busy: a statement was sent; an error or an interrupt here leaves a
 *   connection that nobody can use, so its owner drops it;
 * - copying: rows arrive; likewise.
 *
 * A statement that is given up is not cancelled by a second connection: that
 * can block (PQcancel has no time limit before 17) when the server is frozen,
 * which is when somebody presses Ctrl-C. The connection is closed instead, and
 * the server is told at the start to look every second whether it still has
 * a client (client_connection_check_interval). That works for kill -9, too.
 *
 * The connection is closed by a callback of the memory context it belongs to,
 * registered before it is opened.
 */
#include "postgres.h"

#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "libpq-fe.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "access/transam.h"
#include "catalog/pg_user_mapping.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "incload.h"
#include "remote.h"

/* how long to wait for a connection when the server's options do not say */
#define DEFAULT_CONNECT_TIMEOUT 30

struct Remote
{
	PGconn	   *conn;
	bool		holds_fd;		/* one external file descriptor is accounted for */
	char	   *copy_sql;		/* for the error context */
	char	   *copy_piece;		/* libpq's, of the last remote_copy_next() */
	char	   *server_name;
	MemoryContext context;
	MemoryContextCallback callback;
};

void
remote_disconnect(Remote *remote)
{
	if (remote->copy_piece)
		PQfreemem(remote->copy_piece);
	remote->copy_piece = NULL;
	if (remote->conn)
		PQfinish(remote->conn);
	remote->conn = NULL;
	if (remote->holds_fd)
		ReleaseExternalFD();
	remote->holds_fd = false;
}

static void
disconnect_callback(void *arg)
{
	remote_disconnect(arg);
}

/* libpq's messages end with a newline */
static char *
connection_message(PGconn *conn)
{
	char	   *message = pchomp(PQerrorMessage(conn));

	return message[0] ? message : pstrdup("the server closed the connection");
}

/* the connection is gone, or never came to be */
static void
report_connection(Remote *remote, int sqlstate, const char *sql)
{
	char	   *detail = connection_message(remote->conn);

	remote_disconnect(remote);
	ereport(ERROR,
			(errcode(sqlstate),
			 sqlstate == ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION
			 ? errmsg("could not connect to server \"%s\"", remote->server_name)
			 : errmsg("lost the connection to server \"%s\"", remote->server_name),
			 errdetail_internal("%s", detail),
			 sqlstate == ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION
			 ? errhint("See that the server runs, and compare its options and the user mapping's in \\des+ and \\deu+.")
			 : errhint("Run the job again: it goes on from its checkpoint."),
			 sql ? errcontext("remote SQL command: %s", sql) : 0));
}

/* raises the error that a result holds, as it was raised there; clears the result */
static void
report_result(Remote *remote, PGresult *result, const char *sql)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
	int			code;

	/* without a state it is libpq that speaks: the connection broke; after FATAL it will */
	if (state == NULL || PQstatus(remote->conn) == CONNECTION_BAD ||
		(severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0)))
	{
		PQclear(result);
		report_connection(remote, ERRCODE_CONNECTION_FAILURE, sql);
	}
	code = MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]);
	message = pstrdup(message ? message : "unknown error");
	detail = detail ? pstrdup(detail) : NULL;
	hint = hint ? pstrdup(hint) : NULL;
	PQclear(result);

	ereport(ERROR,
			(errcode(code),
			 errmsg_internal("source server \"%s\": %s", remote->server_name, message),
			 detail ? errdetail_internal("%s", detail) : 0,
			 hint ? errhint("%s", hint) : 0,
			 errcontext("remote SQL command: %s", sql)));
}

/* waits for the socket, or a timeout in milliseconds (-1: none); false on timeout */
static bool
wait_for_socket(PGconn *conn, int event, long timeout)
{
	int			rc;

	rc = WaitLatchOrSocket(MyLatch,
						   WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | event |
						   (timeout >= 0 ? WL_TIMEOUT : 0),
						   PQsocket(conn), timeout, incload_wait_event_source());
	if (rc & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return (rc & WL_TIMEOUT) == 0;
}

/* the next result of the statement sent, NULL when there are no more */
static PGresult *
next_result(Remote *remote, const char *sql)
{
	while (PQisBusy(remote->conn))
	{
		wait_for_socket(remote->conn, WL_SOCKET_READABLE, -1);
		if (!PQconsumeInput(remote->conn))
			report_connection(remote, ERRCODE_CONNECTION_FAILURE, sql);
	}
	return PQgetResult(remote->conn);
}

/* the last result of the statement sent; an error in any of them is raised */
static PGresult *
finish_statement(Remote *remote, const char *sql)
{
	PGresult   *last = NULL;
	PGresult   *result;

	while ((result = next_result(remote, sql)) != NULL)
	{
		ExecStatusType status = PQresultStatus(result);

		PQclear(last);
		last = result;
		if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK && status != PGRES_EMPTY_QUERY)
			report_result(remote, result, sql);
	}
	if (last == NULL)
		report_connection(remote, ERRCODE_CONNECTION_FAILURE, sql);
	return last;
}

static void
require_open(Remote *remote, const char *sql)
{
	if (remote->conn == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_DOES_NOT_EXIST),
				 errmsg("the connection to server \"%s\" is closed", remote->server_name),
				 errcontext("remote SQL command: %s", sql)));
}

TextRows *
remote_query(Remote *remote, const char *sql)
{
	PGresult   *result;
	TextRows   *rows = palloc0(sizeof(TextRows));

	require_open(remote, sql);
	if (!PQsendQuery(remote->conn, sql))
		report_connection(remote, ERRCODE_CONNECTION_FAILURE, sql);
	result = finish_statement(remote, sql);

	PG_TRY();
	{
		rows->nrows = PQntuples(result);
		rows->ncols = PQnfields(result);
		rows->value = palloc(sizeof(char **) * Max(rows->nrows, 1));
		for (int r = 0; r < rows->nrows; r++)
		{
			rows->value[r] = palloc(sizeof(char *) * Max(rows->ncols, 1));
			for (int c = 0; c < rows->ncols; c++)
				rows->value[r][c] = PQgetisnull(result, r, c) ? NULL
					: pstrdup(PQgetvalue(result, r, c));
		}
	}
	PG_FINALLY();
	{
		PQclear(result);
	}
	PG_END_TRY();
	return rows;
}

void
remote_describe(Remote *remote, const char *sql, int ncolumns, Oid *types, int32 *typmods)
{
	PGresult   *result;

	require_open(remote, sql);
	if (!PQsendPrepare(remote->conn, "", sql, 0, NULL))
		report_connection(remote, ERRCODE_CONNECTION_FAILURE, sql);
	PQclear(finish_statement(remote, sql));
	if (!PQsendDescribePrepared(remote->conn, ""))
		report_connection(remote, ERRCODE_CONNECTION_FAILURE, sql);
	result = finish_statement(remote, sql);

	Assert(PQnfields(result) == ncolumns);
	for (int i = 0; i < ncolumns; i++)
	{
		types[i] = PQftype(result, i) < FirstGenbkiObjectId ? PQftype(result, i) : InvalidOid;
		typmods[i] = OidIsValid(types[i]) ? PQfmod(result, i) : -1;
	}
	PQclear(result);
}

void
remote_copy_start(Remote *remote, const char *sql)
{
	PGresult   *result;

	require_open(remote, sql);
	if (!PQsendQuery(remote->conn, sql))
		report_connection(remote, ERRCODE_CONNECTION_FAILURE, sql);
	result = next_result(remote, sql);
	if (PQresultStatus(result) != PGRES_COPY_OUT)
		report_result(remote, result, sql);
	PQclear(result);
	remote->copy_sql = MemoryContextStrdup(remote->context, sql);
}

int
remote_copy_next(Remote *remote, const char **data, bool wait)
{
	int			length;

	if (remote->copy_piece)
		PQfreemem(remote->copy_piece);
	remote->copy_piece = NULL;

	while ((length = PQgetCopyData(remote->conn, &remote->copy_piece, true)) == 0)
	{
		if (!wait)
			return 0;
		wait_for_socket(remote->conn, WL_SOCKET_READABLE, -1);
		if (!PQconsumeInput(remote->conn))
			report_connection(remote, ERRCODE_CONNECTION_FAILURE, remote->copy_sql);
	}
	if (length > 0)
	{
		/* a stream that never runs dry never waits */
		CHECK_FOR_INTERRUPTS();
		*data = remote->copy_piece;
		return length;
	}
	if (length == -2)
		report_connection(remote, ERRCODE_CONNECTION_FAILURE, remote->copy_sql);
	PQclear(finish_statement(remote, remote->copy_sql));
	return -1;
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

static UserMapping *
require_mapping(ForeignServer *server, Oid user)
{
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
	return GetUserMapping(user, server->serverid);
}

const char *
foreign_option(List *options, const char *name, const char *otherwise)
{
	ListCell   *lc;

	foreach(lc, options)
		if (strcmp(((DefElem *) lfirst(lc))->defname, name) == 0)
			return defGetString(lfirst(lc));
	return otherwise;
}

/*
 * As postgres_fdw: a non-superuser connects with a password of the mapping's
 * own, or he could use what the server process itself is trusted with; a
 * superuser may waive that in the mapping.
 */
static bool
password_needed(UserMapping *mapping, Oid user)
{
	ListCell   *lc;

	if (superuser_arg(user))
		return false;
	foreach(lc, mapping->options)
		if (strcmp(((DefElem *) lfirst(lc))->defname, "password_required") == 0 &&
			!defGetBoolean(lfirst(lc)))
			return false;
	return true;
}

static void
report_password(ForeignServer *server, Oid user, bool is_given)
{
	ereport(ERROR,
			(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
			 errmsg("a password is required to connect to server \"%s\"", server->servername),
			 is_given
			 ? errdetail("The source server did not ask for the password in the user mapping of \"%s\".",
						 GetUserNameFromId(user, false))
			 : errdetail("The user mapping of \"%s\", who is not a superuser, has none.",
						 GetUserNameFromId(user, false)),
			 is_given
			 ? errhint("Change the authentication method there, or let a superuser set password_required 'false' in the user mapping.")
			 : errhint("ALTER USER MAPPING FOR %s SERVER %s OPTIONS (ADD password '...');",
					   quote_identifier(GetUserNameFromId(user, false)),
					   quote_identifier(server->servername))));
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
	/* a peer that has gone without a word is noticed within a minute or so */
	PUT("keepalives_idle", "30");
	PUT("keepalives_interval", "10");
	PUT("keepalives_count", "3");
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

/* waits until the connection stands, at most connect_timeout seconds */
static void
complete_connection(Remote *remote, int timeout)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout * 1000L);
	PostgresPollingStatusType poll = PGRES_POLLING_WRITING;

	while (poll == PGRES_POLLING_READING || poll == PGRES_POLLING_WRITING)
	{
		long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);

		if (left <= 0 ||
			!wait_for_socket(remote->conn,
							 poll == PGRES_POLLING_READING ? WL_SOCKET_READABLE : WL_SOCKET_CONNECTED,
							 left))
		{
			char	   *name = remote->server_name;

			remote_disconnect(remote);
			ereport(ERROR,
					(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
					 errmsg("could not connect to server \"%s\"", name),
					 errdetail("There was no answer within %d seconds.", timeout),
					 errhint("See that the server runs; the server option connect_timeout sets how long to wait.")));
		}
		poll = PQconnectPoll(remote->conn);
	}
	if (poll != PGRES_POLLING_OK)
		report_connection(remote, ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION, NULL);
}

/* settings under which values mean the same on both sides, and nothing waits forever */
static void
configure_session(Remote *remote, int64 statement_timeout, int64 lock_timeout)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf,
						   "SET search_path = pg_catalog; SET timezone = 'UTC'; SET datestyle = ISO;"
						   " SET intervalstyle = postgres; SET extra_float_digits = 3;"
						   " SET bytea_output = hex; SET standard_conforming_strings = on;"
						   " SET row_security = on; SET default_transaction_read_only = on;");
	appendStringInfo(&buf, " SET statement_timeout = " INT64_FORMAT ";", statement_timeout);
	appendStringInfo(&buf, " SET lock_timeout = " INT64_FORMAT ";", lock_timeout);
	/* not every platform can look; where it cannot, the setting takes nothing but 0 */
	appendStringInfoString(&buf,
						   " SELECT set_config('client_connection_check_interval', '1s', false)"
						   " WHERE current_setting('server_version_num')::int >= 140000"
						   " AND version() LIKE '%linux%'");
	(void) remote_query(remote, buf.data);
}

Remote *
remote_connect(Oid server_id, Oid user, const char *application_name,
			   int64 statement_timeout, int64 lock_timeout, MemoryContext context)
{
	ForeignServer *server = GetForeignServer(server_id);
	UserMapping *mapping = require_mapping(server, user);
	const char *timeout;
	const char **keywords;
	const char **values;
	Remote	   *remote;

	if (password_needed(mapping, user))
	{
		const char *password = foreign_option(mapping->options, "password", NULL);

		if (password == NULL || password[0] == '\0')
			report_password(server, user, false);
	}
	timeout = foreign_option(server->options, "connect_timeout", NULL);

	remote = MemoryContextAllocZero(context, sizeof(Remote));
	remote->context = context;
	remote->server_name = MemoryContextStrdup(context, server->servername);
	remote->callback.func = disconnect_callback;
	remote->callback.arg = remote;
	MemoryContextRegisterResetCallback(context, &remote->callback);

	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
				 errmsg("could not connect to server \"%s\"", server->servername),
				 errdetail("There are too many open files on the local server."),
				 errhint("Raise the server's max_files_per_process and/or \"ulimit -n\" limits.")));
	remote->holds_fd = true;
	connection_options(server, mapping, application_name, &keywords, &values);
	remote->conn = PQconnectStartParams(keywords, values, false);
	if (remote->conn == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	if (PQstatus(remote->conn) == CONNECTION_BAD)
		report_connection(remote, ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION, NULL);
	complete_connection(remote, timeout && atoi(timeout) > 0 ? atoi(timeout)
						: DEFAULT_CONNECT_TIMEOUT);
	if (password_needed(mapping, user) && !PQconnectionUsedPassword(remote->conn))
	{
		remote_disconnect(remote);
		report_password(server, user, true);
	}
	configure_session(remote, statement_timeout, lock_timeout);
	return remote;
}
