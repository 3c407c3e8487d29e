/*
 * remote.c
 *		What is said to a foreign server during one use of a connection to it.
 *
 * Questions go through libpq's pipeline mode, each with a Sync of its own, so
 * that each is a transaction of its own, in the order in which they are sent,
 * however many are under way. The COPY that reads rows is a simple query, which
 * that mode does not allow: it comes after the last answer.
 *
 * A run asks a dozen questions, mostly those of the run before. They make a
 * script, which is kept with the connection, and are sent ahead; and so are
 * those that can be expected of a first run. An answer that came ahead is older
 * than one that is asked for now, and no other harm: the order is the same, and
 * the rows are read after all of them. One that is not asked for is dropped.
 *
 * Between statements nothing is open here. An error or an interrupt in the
 * middle of one leaves a connection that nobody can use, and it is closed when
 * it is given back; the server is told at the start to look every second
 * whether it still has a client (client_connection_check_interval). That works
 * for kill -9, too.
 *
 * The connection is given back by a callback of the memory context of its use,
 * registered before it is borrowed.
 */
#include "postgres.h"

#include "access/transam.h"
#include "common/hashfn.h"
#include "foreign/foreign.h"
#include "libpq-fe.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "compat.h"
#include "connection.h"
#include "login.h"
#include "remote.h"
#include "remote_core.h"
#include "script.h"

void
remote_forget_results(Remote *remote)
{
	PQclear(remote->answer);
	remote->answer = NULL;
	if (remote->copy_piece)
		PQfreemem(remote->copy_piece);
	remote->copy_piece = NULL;
}

void
remote_disconnect(Remote *remote)
{
	if (remote->connection)
		connection_hang_up(remote->connection);
	remote_release(remote);
}

void
remote_release(Remote *remote)
{
	Connection *connection = remote->connection;

	remote_forget_results(remote);
	if (connection == NULL)
		return;
	remote->connection = NULL;
	if (remote->script)
		script_shorten(remote->script, remote->asked);
	/* with answers that nobody has read, it stays in that mode, and is not kept */
	if (connection->pg)
		(void) PQexitPipelineMode(connection->pg);
	connection_give_back(connection);
}

static void
release_callback(void *arg)
{
	remote_release(arg);
}

/* the connection is gone */
void
remote_report_lost(Remote *remote, const char *sql)
{
	char	   *detail = connection_message(remote->connection);

	/* one that was sent ahead is in the script, and goes with the connection */
	sql = pstrdup(sql);
	remote_disconnect(remote);
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("lost the connection to server \"%s\"", remote->server_name),
			 errdetail_internal("%s", detail),
			 errhint("Run the job again: it goes on from its checkpoint."),
			 errcontext("remote SQL command: %s", sql)));
}

/* without a state it is libpq that speaks: the connection broke; after FATAL it will */
static bool
says_lost(Remote *remote, const PGresult *result)
{
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	return PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL ||
		PQstatus(remote->connection->pg) == CONNECTION_BAD ||
		(severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0));
}

/* raises the error that a result holds, as it was raised there; clears the result */
void
remote_report_result(Remote *remote, PGresult *result, const char *sql)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
	int			code;

	remote->connection->is_spoilt = true;
	if (says_lost(remote, result))
	{
		PQclear(result);
		remote_report_lost(remote, sql);
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

void
remote_require_open(Remote *remote, const char *sql)
{
	if (remote->connection == NULL || remote->connection->pg == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_DOES_NOT_EXIST),
				 errmsg("the connection to server \"%s\" is closed", remote->server_name),
				 errcontext("remote SQL command: %s", sql)));
}

/* the next result of what was sent, NULL between two statements */
PGresult *
remote_next_result(Remote *remote, const char *sql)
{
	PGconn	   *pg = remote->connection->pg;

	while (PQisBusy(pg))
	{
		(void) connection_wait(pg, WL_SOCKET_READABLE, -1);
		if (!PQconsumeInput(pg))
			remote_report_lost(remote, sql);
	}
	return PQgetResult(pg);
}

bool
remote_is_good(const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY;
}

/*
 * The statement of this text that is prepared on the connection. If there is
 * none, NULL, or with "prepare" it is sent to be prepared.
 */
Statement *
remote_find_statement(Remote *remote, const char *sql, bool prepare)
{
	Connection *connection = remote->connection;
	uint64		hash = DatumGetUInt64(hash_any_extended((const unsigned char *) sql, strlen(sql), 0));
	Statement  *statement;
	MemoryContext old;
	ListCell   *lc;

	foreach(lc, connection->statements)
	{
		statement = lfirst(lc);
		if (statement->hash == hash && strcmp(statement->sql, sql) == 0)
			return statement;
	}
	if (!prepare)
		return NULL;
	old = MemoryContextSwitchTo(connection->context);
	statement = palloc(sizeof(Statement));
	statement->hash = hash;
	statement->sql = pstrdup(sql);
	snprintf(statement->name, sizeof(statement->name), "incload_%d",
			 list_length(connection->statements));
	connection->statements = lappend(connection->statements, statement);
	MemoryContextSwitchTo(old);
	/* where that fails, the connection is not used again, and no more is the name */
	if (!PQsendPrepare(connection->pg, statement->name, sql, 0, NULL))
		remote_report_lost(remote, sql);
	return statement;
}

/* sends a question, as a transaction of its own */
void
remote_send_question(Remote *remote, Question *question, Statement *statement)
{
	PGconn	   *pg = remote->connection->pg;
	const char *name = statement ? statement->name : "";
	MemoryContext old;

	if (!(statement || PQsendPrepare(pg, "", question->sql, 0, NULL)) ||
		!(question->wants_types ? PQsendDescribePrepared(pg, name)
		  : PQsendQueryPrepared(pg, name, question->narguments,
								(const char *const *) question->arguments, NULL, NULL, 0)) ||
		!PQpipelineSync(pg))
		remote_report_lost(remote, question->sql);
	old = MemoryContextSwitchTo(remote->context);
	remote->sent = lappend(remote->sent, question);
	MemoryContextSwitchTo(old);
}

/* the answer to the first question that was sent, good or bad */
PGresult *
remote_read_answer(Remote *remote)
{
	const char *sql = ((Question *) linitial(remote->sent))->sql;
	PGresult   *answer;

	for (;;)
	{
		PGresult   *result = remote_next_result(remote, sql);

		if (result == NULL)
		{
			if (PQstatus(remote->connection->pg) == CONNECTION_BAD)
				remote_report_lost(remote, sql);
		}
		else if (PQresultStatus(result) == PGRES_PIPELINE_SYNC)
		{
			PQclear(result);
			break;
		}
		else if (remote->answer && !remote_is_good(remote->answer))
			PQclear(result);	/* the first error is the one that tells */
		else
		{
			PQclear(remote->answer);
			remote->answer = result;
			if (!remote_is_good(result) && says_lost(remote, result))
				remote_report_lost(remote, sql);
		}
	}
	remote->sent = list_delete_first(remote->sent);
	answer = remote->answer;
	remote->answer = NULL;
	if (!remote_is_good(answer))
		remote->connection->is_spoilt = true;
	return answer;
}

/* reads what was sent ahead, for nothing */
void
remote_abandon_sent(Remote *remote)
{
	while (remote->sent != NIL)
		PQclear(remote_read_answer(remote));
}

/*
 * The settings under which values mean the same on both sides, and nothing
 * waits forever. Set anew for each use, as SQL at the source may have changed
 * them.
 */
static char *
settings_for(Remote *remote)
{
	int			version = PQserverVersion(remote->connection->pg);
	MemoryContext old = MemoryContextSwitchTo(remote->context);
	char	   *sql;

#define SET(name, value) "pg_catalog.set_config('" name "', " value ", false)"
	sql = psprintf("SELECT " SET("search_path", "'pg_catalog'") ", " SET("timezone", "$4") ", "
					SET("datestyle", "'ISO'") ", " SET("intervalstyle", "'postgres'") ", "
					SET("extra_float_digits", "'3'") ", " SET("bytea_output", "'hex'") ", "
					SET("standard_conforming_strings", "'on'") ", " SET("row_security", "'on'") ", "
					SET("default_transaction_read_only", "'on'") ", "
					/* a snapshot of before the lock would show a table that is rewritten as empty */
					SET("default_transaction_isolation", "'read committed'") ", " SET("application_name", "$1") ", "
					SET("statement_timeout", "$2") ", " SET("lock_timeout", "$3") "%s%s",
					/* questions with an argument are planned once */
					version >= 120000
					? ", " SET("plan_cache_mode", "'force_generic_plan'") : "",
					/* not every platform can look; where it cannot, the setting takes nothing but 0 */
					version >= 140000
					? ", " SET("client_connection_check_interval",
							   "CASE WHEN pg_catalog.version() LIKE '%linux%' THEN '1s' ELSE '0' END") : "");
#undef SET
	MemoryContextSwitchTo(old);
	return sql;
}

/* the settings go first, without being waited for; after a COPY, questions go as those before it did */
void
remote_send_settings(Remote *remote)
{
	if (remote->connection->is_opening)
		(void) login_proceed(remote->connection, true);
	if (!remote->settings_sent)
		remote->settings.sql = settings_for(remote);
	if (!PQenterPipelineMode(remote->connection->pg))
		remote_report_lost(remote, remote->settings.sql);
	if (remote->settings_sent)
		return;
	remote_send_question(remote, &remote->settings, remote_find_statement(remote, remote->settings.sql, true));
	remote->settings_sent = true;
}

void
remote_read_settings(Remote *remote)
{
	PGresult   *result;

	if (remote->sent == NIL || linitial(remote->sent) != &remote->settings)
		return;
	result = remote_read_answer(remote);
	if (!remote_is_good(result))
		remote_report_result(remote, result, remote->settings.sql);
	PQclear(result);
}

/*
 * Was it the statement's being prepared that failed? A table may have got
 * another column type since, or somebody between here and there may not know
 * what was prepared.
 */
static bool
plan_does_not_fit(const PGresult *answer)
{
	const char *state = PQresultErrorField(answer, PG_DIAG_SQLSTATE);

	return state && (strcmp(state, "0A000") == 0 || strcmp(state, "26000") == 0);
}

/* the answer, which is a good one */
static PGresult *
ask(Remote *remote, Question *question)
{
	PGresult   *answer;

	remote_require_open(remote, question->sql);
	remote_send_settings(remote);
	remote_read_settings(remote);
	/* what is asked after all of something else is not waited for any more */
	while (remote->sent != NIL && !question_same(linitial(remote->sent), question))
		PQclear(remote_read_answer(remote));
	if (remote->sent == NIL)
		remote_send_question(remote, question,
					  remote_find_statement(remote, question->sql, question->narguments > 0));
	if (remote->script && !remote->is_past)
		script_note(remote->script, remote->asked++, question);
	answer = remote_read_answer(remote);
	if (!remote_is_good(answer) && plan_does_not_fit(answer))
	{
		remote->forgets = true;
		PQclear(answer);
		remote_abandon_sent(remote);
		remote_send_question(remote, question, NULL);
		answer = remote_read_answer(remote);
	}
	if (!remote_is_good(answer))
		remote_report_result(remote, answer, question->sql);
	return answer;
}

/* an answer as text; clears it */
TextRows *
remote_rows_of(Remote *remote, PGresult *result)
{
	TextRows   *rows;

	/* so that it goes, whatever happens */
	remote->answer = result;
	rows = palloc0(sizeof(TextRows));
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
	remote_forget_results(remote);
	return rows;
}

bool
remote_ready(Remote *remote)
{
	remote_require_open(remote, "");
	return !remote->connection->is_opening || login_proceed(remote->connection, false);
}

int
remote_version(Remote *remote)
{
	remote_require_open(remote, "");
	remote_send_settings(remote);
	return PQserverVersion(remote->connection->pg);
}

int
remote_encoding(Remote *remote)
{
	const char *name;

	remote_require_open(remote, "");
	name = PQparameterStatus(remote->connection->pg, "server_encoding");
	return name ? pg_char_to_encoding(name) : -1;
}

TextRows *
remote_query(Remote *remote, const char *sql, const char *argument)
{
	Question	question = {.sql = (char *) sql, .narguments = argument != NULL,
		.arguments = {(char *) argument}};

	return remote_rows_of(remote, ask(remote, &question));
}

void
remote_describe(Remote *remote, const char *sql, int ncolumns, Oid *types, int32 *typmods)
{
	Question	question = {.wants_types = true, .sql = (char *) sql};
	PGresult   *result = ask(remote, &question);

	Assert(PQnfields(result) == ncolumns);
	for (int i = 0; i < ncolumns; i++)
	{
		types[i] = PQftype(result, i) < FirstGenbkiObjectId ? PQftype(result, i) : InvalidOid;
		typmods[i] = OidIsValid(types[i]) ? PQfmod(result, i) : -1;
	}
	PQclear(result);
}

Remote *
remote_connect(Oid server_id, Oid user, const char *application_name,
			   int64 statement_timeout, int64 lock_timeout, const char *timezone,
			   MemoryContext context)
{
	ForeignServer *server = GetForeignServer(server_id);
	UserMapping *mapping = login_mapping(server, user);
	Remote	   *remote = MemoryContextAllocZero(context, sizeof(Remote));
	MemoryContext old;

	remote->context = context;
	remote->server_name = MemoryContextStrdup(context, server->servername);
	remote->callback.func = release_callback;
	remote->callback.arg = remote;
	MemoryContextRegisterResetCallback(context, &remote->callback);

	remote->connection = connection_borrow(server, mapping, login_needs_password(mapping));
	if (remote->connection->pg == NULL)
		login_start(remote->connection, server, mapping, application_name);

	old = MemoryContextSwitchTo(context);
	remote->settings.narguments = 4;
	remote->settings.arguments[0] = pstrdup(application_name);
	remote->settings.arguments[1] = psprintf(INT64_FORMAT, statement_timeout);
	remote->settings.arguments[2] = psprintf(INT64_FORMAT, lock_timeout);
	remote->settings.arguments[3] = pstrdup(timezone);
	MemoryContextSwitchTo(old);
	return remote;
}
