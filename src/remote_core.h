/*
 * remote_core.h
 *		What remote.c, remote_copy.c and remote_script.c share of a connection in use.
 */
#ifndef INCLOAD_REMOTE_CORE_H
#define INCLOAD_REMOTE_CORE_H

#include "postgres.h"

#include "libpq-fe.h"

#include "connection.h"
#include "remote.h"
#include "script.h"

/* Statement: one that is prepared on a connection */
typedef struct Statement
{
	uint64		hash;			/* of the text */
	char	   *sql;
	char		name[24];
} Statement;

struct Remote
{
	Connection *connection;		/* NULL: given back, or lost */
	char	   *server_name;
	MemoryContext context;
	MemoryContextCallback callback;

	Question	settings;		/* what is to be set there for this use */
	bool		settings_sent;
	Script	   *script;			/* NULL: what is asked is nobody's script */
	int			asked;			/* how many of the script's questions */
	bool		is_past;		/* what is asked from here on does not belong to it */
	List	   *sent;			/* of Question *: not answered yet */
	Question   *last;			/* of these, what the use before has foretold; NULL: nothing */
	PGresult   *answer;			/* of the first of these, as far as it is read */

	bool		forgets;		/* what was prepared is not known there any more: somebody stands between */
	Guard		guard;			/* what is still to be answered as before; no answer: nothing */
	bool		in_transaction; /* it is open, with a snapshot that others share */
	bool		copy_begins;	/* the COPY is sent, and its first answer not read */
	char	   *copy_sql;		/* for the error context */
	char	   *copy_piece;		/* libpq's, of the last remote_copy_next() */
};

/* lets go of what was read last */
extern void remote_forget_results(Remote *remote);

/* the connection is gone; throws */
extern void remote_report_lost(Remote *remote, const char *sql);

/* what the server has reported, as an ERROR of its own; throws */
extern void remote_report_result(Remote *remote, PGresult *result, const char *sql);

/* an error where the connection is closed */
extern void remote_require_open(Remote *remote, const char *sql);

/* the next result of what was sent, NULL between two statements */
extern PGresult *remote_next_result(Remote *remote, const char *sql);

/* is it no error? */
extern bool remote_is_good(const PGresult *result);

/* the statement of this text that is prepared on the connection; if there is none, NULL, or with "prepare" it is sent to be prepared */
extern Statement *remote_find_statement(Remote *remote, const char *sql, bool prepare);

/* sends the settings of this use, if they are not sent; questions can be sent after that */
extern void remote_send_settings(Remote *remote);

/* waits until they are set */
extern void remote_read_settings(Remote *remote);

/* sends a question, as a transaction of its own; by what is prepared, or NULL */
extern void remote_send_question(Remote *remote, Question *question, Statement *statement);

/* the answer to the first question that was sent, good or bad */
extern PGresult *remote_read_answer(Remote *remote);

/* an answer as text; clears it */
extern TextRows *remote_rows_of(Remote *remote, PGresult *result);

/* reads what was sent ahead, for nothing */
extern void remote_abandon_sent(Remote *remote);

#endif							/* INCLOAD_REMOTE_CORE_H */
