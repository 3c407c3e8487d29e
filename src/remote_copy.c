/*
 * remote_copy.c
 *		The COPY that reads rows from a foreign server, and the transaction around it.
 *
 * It is a simple query, which comes after the last answer to what was asked before.
 * Several connections can read as of one snapshot.
 */
#include "postgres.h"

#include "libpq-fe.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "compat.h"
#include "connection.h"
#include "remote.h"
#include "remote_core.h"

/*
 * The lock comes before the snapshot: whoever has rewritten the table in
 * between (ALTER TABLE) has left nothing in it that an older snapshot shows.
 */
#define BEGIN_READING "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY%s%s"

/* the guard's question as SQL; it was asked before, and so is prepared */
static const char *
guard_first(Remote *remote, const Guard *guard)
{
	Statement  *statement = guard && !remote->forgets ? remote_find_statement(remote, guard->sql, false) : NULL;

	if (statement == NULL)
		return "";
	remote->guard = *guard;
	return psprintf("; EXECUTE %s(%s)", statement->name, quote_literal_cstr(guard->argument));
}

/* is it the answer that was had? */
static bool
same_answer(const PGresult *result, const TextRows *answer)
{
	if (PQntuples(result) != answer->nrows)
		return false;
	for (int r = 0; r < answer->nrows; r++)
		for (int c = 0; c < answer->ncols; c++)
		{
			const char *was = answer->value[r][c];

			if (PQgetisnull(result, r, c) ? was != NULL : was == NULL || strcmp(was, PQgetvalue(result, r, c)) != 0)
				return false;
		}
	return true;
}

/* clears the result where it is not what the guard had */
static void
check_guard(Remote *remote, PGresult *result)
{
	bool		holds = same_answer(result, remote->guard.answer);

	remote->guard.answer = NULL;
	if (holds)
		return;
	remote->connection->is_spoilt = true;
	PQclear(result);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("%s at server \"%s\" was altered while the run began", remote->guard.argument,
					remote->server_name),
			 errdetail("Its columns, types or keys are not those that the run was planned for."),
			 errhint("Run the job again.")));
}

/* sends simple queries, after the last answer to what was asked before */
static void
send_simple(Remote *remote, const char *sql)
{
	remote_require_open(remote, sql);
	remote_send_settings(remote);
	remote_read_settings(remote);
	remote_abandon_sent(remote);
	if (!PQexitPipelineMode(remote->connection->pg) || !PQsendQuery(remote->connection->pg, sql))
		remote_report_lost(remote, sql);
}

/* what stands between BEGIN and the snapshot */
static const char *
lock_first(const char *relation)
{
	return relation ? psprintf("; LOCK TABLE %s IN ACCESS SHARE MODE", relation) : "";
}

char *
remote_share_snapshot(Remote *remote, const char *relation, const Guard *guard)
{
	char	   *sql = psprintf(BEGIN_READING "%s; SELECT pg_catalog.pg_export_snapshot()",
							   lock_first(relation), "", guard_first(remote, guard));
	PGresult   *result;
	char	   *snapshot = NULL;

	send_simple(remote, sql);
	while ((result = remote_next_result(remote, sql)) != NULL)
	{
		if (!remote_is_good(result))
			remote_report_result(remote, result, sql);
		if (PQresultStatus(result) == PGRES_TUPLES_OK && remote->guard.answer)
			check_guard(remote, result);
		else if (PQresultStatus(result) == PGRES_TUPLES_OK)
			snapshot = pstrdup(PQgetvalue(result, 0, 0));
		PQclear(result);
	}
	if (snapshot == NULL)
		remote_report_lost(remote, sql);
	remote->in_transaction = true;
	return snapshot;
}

void
remote_take_snapshot(Remote *remote, const char *snapshot, const char *relation)
{
	/* who queues for the table waits for the first reader, and that would wait for this one */
	char	   *sql = psprintf(BEGIN_READING "; SET TRANSACTION SNAPSHOT %s", lock_first(relation),
							   relation ? " NOWAIT" : "", quote_literal_cstr(snapshot));
	PGresult   *result;

	send_simple(remote, sql);
	while ((result = remote_next_result(remote, sql)) != NULL)
	{
		if (!remote_is_good(result))
			remote_report_result(remote, result, sql);
		PQclear(result);
	}
	remote->in_transaction = true;
}

void
remote_copy_start(Remote *remote, const char *sql, const char *relation, const Guard *guard)
{
	if (remote->in_transaction && !PQsendQuery(remote->connection->pg, psprintf("%s; COMMIT", sql)))
		remote_report_lost(remote, sql);
	else if (!remote->in_transaction)
		send_simple(remote, psprintf(BEGIN_READING "%s; %s; COMMIT", lock_first(relation), "",
									 guard_first(remote, guard), sql));
	remote->in_transaction = false;
	remote->copy_sql = MemoryContextStrdup(remote->context, sql);
	remote->copy_begins = true;
}

/* has the COPY begun? The server says so with the first rows, and not before. */
static bool
copy_has_begun(Remote *remote, bool wait)
{
	const char *sql = remote->copy_sql;
	PGresult   *result;

	while (remote->copy_begins)
	{
		if (!wait && PQisBusy(remote->connection->pg))
			return false;
		result = remote_next_result(remote, sql);
		if (result == NULL)
			remote_report_lost(remote, sql);
		if (PQresultStatus(result) == PGRES_COPY_OUT)
			remote->copy_begins = false;
		else if (PQresultStatus(result) == PGRES_TUPLES_OK && remote->guard.answer)
			check_guard(remote, result);
		else if (PQresultStatus(result) != PGRES_COMMAND_OK)
			remote_report_result(remote, result, sql);
		PQclear(result);
	}
	return true;
}

bool
remote_copy_arrived(Remote *remote, const char **data, int *length)
{
	/* what is there first: to read on, libpq moves all of it */
	*length = remote_copy_next(remote, data, false);
	if (*length != 0)
		return true;
	if (!PQconsumeInput(remote->connection->pg))
		remote_report_lost(remote, remote->copy_sql);
	*length = remote_copy_next(remote, data, false);
	return *length != 0;
}

bool
remote_wait_any(Remote *const *remotes, int n)
{
	PGconn	  **pgs = palloc(sizeof(PGconn *) * n);
	bool		has_come;

	for (int i = 0; i < n; i++)
		pgs[i] = remotes[i]->connection->pg;
	has_come = connection_wait_any(pgs, n, 1000);
	pfree(pgs);
	return has_come;
}

int
remote_copy_next(Remote *remote, const char **data, bool wait)
{
	PGconn	   *pg = remote->connection->pg;
	PGresult   *result;
	int			length;
	bool		is_dry = false;

	remote_forget_results(remote);
	if (!copy_has_begun(remote, wait))
		return 0;
	while ((length = PQgetCopyData(pg, &remote->copy_piece, true)) == 0)
	{
		if (!wait)
			return 0;
		/* mostly more has come meanwhile, and to wait costs several system calls */
		if (is_dry)
			(void) connection_wait(pg, WL_SOCKET_READABLE, -1);
		if (!PQconsumeInput(pg))
			remote_report_lost(remote, remote->copy_sql);
		is_dry = true;
	}
	if (length > 0)
	{
		/* a stream that never runs dry never waits */
		CHECK_FOR_INTERRUPTS();
		*data = remote->copy_piece;
		return length;
	}
	if (length == -2)
		remote_report_lost(remote, remote->copy_sql);
	/* the end of the COPY, and that of its transaction */
	while ((result = remote_next_result(remote, remote->copy_sql)) != NULL)
	{
		if (!remote_is_good(result))
			remote_report_result(remote, result, remote->copy_sql);
		PQclear(result);
	}
	return -1;
}
