/*
 * connection.c
 *		Connections to foreign servers, kept from one use to the next.
 *
 * States of a connection, and what ends each:
 * - lent: somebody opens or uses it, until it is given back;
 * - being cleaned: it was given back, and the statements that undo what SQL at
 *   the source may have left in its session are under way; whoever borrows it
 *   reads their answer, so that nobody waits for it in between;
 * - idle: until it is borrowed, found dead, stale, or expired.
 *
 * One that is given back in any other state than between two statements, or
 * that has seen an error, is closed. To cancel what it does would take a second
 * connection, and that can block (PQcancel has no time limit before 17) just
 * when the server is frozen, which is when somebody presses Ctrl-C.
 *
 * A change of server, user mapping or wrapper closes idle connections at once,
 * and a lent one when it is given back. It comes as an invalidation, so that a
 * change that this transaction makes, or takes back, counts as well.
 *
 * Expiry has a timer. Its handler does what a catchup interrupt does: a session
 * that waits for its client wakes up and begins and ends a transaction, and
 * that transaction's end closes what has expired. Inside a transaction block
 * there is no such end, and the connection stays until the block's.
 */
#include "postgres.h"

#include "access/xact.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/sinval.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "connection.h"
#include "incload.h"

/* how long to wait for the answer to the cleaning, which takes no time */
#define CLEANING_WAIT_MS 5000

/* a connection on which more than this was prepared is not kept: it takes memory there */
#define MAX_STATEMENTS 200

/*
 * What DISCARD ALL does, but for what is prepared. Of the settings, each use
 * makes its own (remote.c); others that SQL there has made end here.
 */
static const char cleaning[] =
"SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *;"
" SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES";

int			connection_idle_timeout = 600000;

static dlist_head connections = DLIST_STATIC_INIT(connections);
static bool is_set_up = false;
static TimeoutId expiry_timer;

int
connection_wait(PGconn *pg, int event, long timeout)
{
	int			rc;

	rc = WaitLatchOrSocket(MyLatch,
						   WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | event |
						   (timeout >= 0 ? WL_TIMEOUT : 0),
						   PQsocket(pg), timeout, incload_wait_event_source());
	if (rc & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return rc;
}

bool
connection_wait_any(PGconn *const *pgs, int n, long timeout)
{
	WaitEventSet *set = compat_CreateWaitEventSet(n + 2);
	WaitEvent	event;
	int			nevents;

	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < n; i++)
		AddWaitEventToSet(set, WL_SOCKET_READABLE, PQsocket(pgs[i]), NULL, NULL);
	nevents = WaitEventSetWait(set, timeout, &event, 1, incload_wait_event_source());
	FreeWaitEventSet(set);
	if (nevents > 0 && (event.events & WL_LATCH_SET))
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return nevents > 0;
}

char *
connection_message(const Connection *connection)
{
	/* libpq's messages end with a newline */
	char	   *message = pchomp(PQerrorMessage(connection->pg));

	return message[0] ? message : pstrdup("the server closed the connection");
}

void
connection_hang_up(Connection *connection)
{
	if (connection->pg)
		PQfinish(connection->pg);
	connection->pg = NULL;
	if (connection->holds_fd)
		ReleaseExternalFD();
	connection->holds_fd = false;
}

static void
close_connection(Connection *connection)
{
	connection_hang_up(connection);
	dlist_delete(&connection->node);
	MemoryContextDelete(connection->context);
}

static bool
is_idle(const Connection *connection)
{
	return !connection->is_lent && connection->pg != NULL;
}

static TimestampTz
expires_at(const Connection *connection)
{
	return TimestampTzPlusMilliseconds(connection->idle_since, connection_idle_timeout);
}

/* at the end of each transaction: closes what has expired, and sees to the rest in time */
static void
at_transaction_end(XactEvent event, void *arg)
{
	TimestampTz next = DT_NOEND;
	dlist_mutable_iter iter;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	dlist_foreach_modify(iter, &connections)
	{
		Connection *connection = dlist_container(Connection, node, iter.cur);

		if (!is_idle(connection))
			continue;
		if (expires_at(connection) <= GetCurrentTimestamp())
			close_connection(connection);
		else
			next = Min(next, expires_at(connection));
	}
	/* an error has stopped all timers; one that goes off too early does no harm */
	if (next != DT_NOEND &&
		(!get_timeout_active(expiry_timer) || get_timeout_finish_time(expiry_timer) > next))
		enable_timeout_at(expiry_timer, next);
}

/* server, mapping or wrapper has changed; hash 0: anything may have */
static void
at_change(Datum arg, int cache, uint32 hash)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &connections)
	{
		Connection *connection = dlist_container(Connection, node, iter.cur);

		if (hash != 0 &&
			hash != (cache == FOREIGNSERVEROID ? connection->server_hash :
					 cache == USERMAPPINGOID ? connection->mapping_hash : connection->wrapper_hash))
			continue;
		connection->is_stale = true;
		if (is_idle(connection))
			close_connection(connection);
	}
}

/* says goodbye, lest the servers log that somebody has vanished */
static void
at_exit(int code, Datum arg)
{
	dlist_iter	iter;

	dlist_foreach(iter, &connections)
	{
		Connection *connection = dlist_container(Connection, node, iter.cur);

		if (connection->pg == NULL)
			continue;
		/* closing a socket that has something to read would be a reset */
		if (connection->is_being_cleaned)
			(void) PQconsumeInput(connection->pg);
		PQfinish(connection->pg);
		connection->pg = NULL;
	}
}

static void
set_up(void)
{
	if (is_set_up)
		return;
	expiry_timer = RegisterTimeout(USER_TIMEOUT, HandleCatchupInterrupt);
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, at_change, (Datum) 0);
	CacheRegisterSyscacheCallback(USERMAPPINGOID, at_change, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNDATAWRAPPEROID, at_change, (Datum) 0);
	RegisterXactCallback(at_transaction_end, NULL);
	on_proc_exit(at_exit, (Datum) 0);
	is_set_up = true;
}

static bool
finish_cleaning(Connection *connection)
{
	TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), CLEANING_WAIT_MS);
	PGresult   *result;
	bool		is_clean = true;

	for (;;)
	{
		while (PQisBusy(connection->pg))
		{
			long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);

			if (left <= 0)
				return false;
			(void) connection_wait(connection->pg, WL_SOCKET_READABLE, left);
			if (!PQconsumeInput(connection->pg))
				return false;
		}
		result = PQgetResult(connection->pg);
		if (result == NULL)
			break;
		is_clean &= PQresultStatus(result) == PGRES_COMMAND_OK ||
			PQresultStatus(result) == PGRES_TUPLES_OK;
		PQclear(result);
	}
	connection->is_being_cleaned = false;
	return is_clean;
}

/* has the server closed it, as far as can be seen here? */
static bool
is_alive(Connection *connection)
{
	if (connection->is_being_cleaned && !finish_cleaning(connection))
		return false;
	/* twice: what comes first may be the reason, and the end only then */
	for (int i = 0; i < 2; i++)
		if (!PQconsumeInput(connection->pg) || PQisBusy(connection->pg))
			return false;
	return !connection->is_spoilt && PQstatus(connection->pg) == CONNECTION_OK &&
		PQtransactionStatus(connection->pg) == PQTRANS_IDLE;
}

static Connection *
new_connection(const UserMapping *mapping, const ForeignServer *server)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "incload connection",
												  ALLOCSET_SMALL_SIZES);
	Connection *connection = MemoryContextAllocZero(context, sizeof(Connection));

	connection->context = context;
	connection->server = server->serverid;
	connection->server_name = MemoryContextStrdup(context, server->servername);
	connection->user = mapping->userid;
	connection->mapping = mapping->umid;
	connection->server_hash = GetSysCacheHashValue1(FOREIGNSERVEROID,
													ObjectIdGetDatum(server->serverid));
	connection->mapping_hash = GetSysCacheHashValue1(USERMAPPINGOID, ObjectIdGetDatum(mapping->umid));
	connection->wrapper_hash = GetSysCacheHashValue1(FOREIGNDATAWRAPPEROID,
													 ObjectIdGetDatum(server->fdwid));
	connection->is_lent = true;
	dlist_push_tail(&connections, &connection->node);
	return connection;
}

Connection *
connection_borrow(const ForeignServer *server, const UserMapping *mapping, bool needs_password)
{
	dlist_iter	iter;

	set_up();
	dlist_foreach(iter, &connections)
	{
		Connection *connection = dlist_container(Connection, node, iter.cur);

		if (!is_idle(connection) ||
			connection->server != server->serverid || connection->user != mapping->userid)
			continue;
		/* he may have got a mapping of his own since, or be no superuser any more */
		if (connection->mapping == mapping->umid &&
			(!needs_password || PQconnectionUsedPassword(connection->pg)) &&
			is_alive(connection))
		{
			connection->is_lent = true;
			return connection;
		}
		close_connection(connection);
		break;
	}
	return new_connection(mapping, server);
}

static bool
may_be_kept(const Connection *connection)
{
	dlist_iter	iter;

	if (connection->pg == NULL || connection->is_spoilt || connection->is_stale ||
		connection_idle_timeout == 0 || proc_exit_inprogress ||
		PQstatus(connection->pg) != CONNECTION_OK ||
		PQpipelineStatus(connection->pg) != PQ_PIPELINE_OFF ||
		PQtransactionStatus(connection->pg) != PQTRANS_IDLE ||
		list_length(connection->statements) > MAX_STATEMENTS)
		return false;
	/* a run inside a run had to have a second one */
	dlist_foreach(iter, &connections)
	{
		Connection *other = dlist_container(Connection, node, iter.cur);

		if (other != connection && is_idle(other) &&
			other->server == connection->server && other->user == connection->user)
			return false;
	}
	return true;
}

void
connection_give_back(Connection *connection)
{
	if (!may_be_kept(connection) || !PQsendQuery(connection->pg, cleaning))
	{
		close_connection(connection);
		return;
	}
	connection->is_being_cleaned = true;
	connection->is_lent = false;
	connection->idle_since = GetCurrentTimestamp();
}
