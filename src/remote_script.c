/*
 * remote_script.c
 *		What is sent ahead, before anybody asks.
 *
 * What two uses of a connection have asked in the same words and order (script.c)
 * is sent by the next one all at once; the answers are taken as they are asked for.
 */
#include "postgres.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "libpq-fe.h"
#include "utils/memutils.h"

#include "compat.h"
#include "remote.h"
#include "remote_core.h"
#include "script.h"

/*
 * What is sent meanwhile goes out in one piece, where the platform can do that: each
 * of libpq's pipeline syncs sends by itself, and wakes the server. Not while the
 * connection is made: each step there waits for an answer, and would be held back
 * until the platform loses patience.
 */
static void
hold_back(Remote *remote, int hold)
{
#ifdef TCP_CORK
	if (!remote->connection->is_opening)
		(void) setsockopt(PQsocket(remote->connection->pg), IPPROTO_TCP, TCP_CORK, &hold, sizeof(hold));
#endif
}

/* what the use before has foretold, after all else; it is good for this one alone, sent or not */
static void
send_last(Remote *remote, bool is_after_all)
{
	Question	question = {.sql = remote->script->last};
	MemoryContext old = MemoryContextSwitchTo(remote->context);

	if (question.sql && is_after_all)
	{
		remote->last = question_copy(&question);
		remote_send_question(remote, remote->last, NULL);
	}
	script_note_last(remote->script, NULL);
	MemoryContextSwitchTo(old);
}

/* as far as it is known what will be asked; how many questions that are */
static int
send_settled(Remote *remote)
{
	ListCell   *lc;

	foreach(lc, remote->script->questions)
	{
		Question   *question = lfirst(lc);

		if (!question->is_settled)
			return foreach_current_index(lc);
		remote_send_question(remote, question, remote_find_statement(remote, question->sql, true));
	}
	return list_length(remote->script->questions);
}

bool
remote_follow(Remote *remote, const char *name)
{
	int			nsent;

	Assert(remote->script == NULL && remote->asked == 0);
	remote_require_open(remote, name);
	remote->script = script_find(&remote->connection->scripts, name, remote->connection->context);
	hold_back(remote, true);
	remote_send_settings(remote);
	nsent = send_settled(remote);
	send_last(remote, nsent == list_length(remote->script->questions));
	hold_back(remote, false);
	return nsent > 0;
}

void
remote_foretell(Remote *remote, const char *sql)
{
	remote_require_open(remote, sql);
	if (remote->script)
		script_note_last(remote->script, sql);
}

TextRows *
remote_foretold(Remote *remote, const char *sql)
{
	Question   *last = remote->last;
	PGresult   *answer;

	remote->last = NULL;
	remote->is_past = true;
	if (last == NULL || remote->sent == NIL || linitial(remote->sent) != last ||
		sql == NULL || strcmp(last->sql, sql) != 0)
	{
		remote_abandon_sent(remote);
		return NULL;
	}
	answer = remote_read_answer(remote);
	if (remote_is_good(answer))
		return remote_rows_of(remote, answer);
	/* class 42: the relation may be another one by now, and who reads it tells that apart by a guard */
	if (strncmp(PQresultErrorField(answer, PG_DIAG_SQLSTATE), "42", 2) != 0)
		remote_report_result(remote, answer, sql);
	PQclear(answer);
	return NULL;
}

void
remote_expect(Remote *remote, const char *sql, const char *argument, bool wants_types)
{
	Question	question = {.wants_types = wants_types, .sql = (char *) sql,
		.narguments = argument != NULL, .arguments = {(char *) argument}};
	MemoryContext old = MemoryContextSwitchTo(remote->context);
	Question   *copy = question_copy(&question);

	MemoryContextSwitchTo(old);
	remote_require_open(remote, sql);
	remote_send_settings(remote);
	remote_send_question(remote, copy, remote_find_statement(remote, sql, argument != NULL));
}
