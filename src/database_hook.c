/*
 * database_hook.c
 *		What statements about databases and the extension mean to workers.
 *
 * DROP DATABASE, CREATE DATABASE … TEMPLATE, and ALTER DATABASE … RENAME and SET
 * TABLESPACE fail while anybody is connected to the database, and the server asks only
 * workers of its own to leave. So incload's are asked first, and kept away until the
 * statement is over; if it has failed, or the database is still there, they come
 * back. Only for those who may do it: nobody else stops workers by trying. DROP and
 * ALTER EXTENSION need all of its tables at once, and take the same way.
 *
 * CREATE EXTENSION and CREATE DATABASE are news for the launcher once they are
 * committed.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "database_hook.h"
#include "incload.h"
#include "launcher.h"
#include "marks.h"
#include "scheduler.h"
#include "slots.h"

/* how long workers get to leave; the server itself then waits another 5 s */
#define WAIT_MS 10000

static ProcessUtility_hook_type next_hook = NULL;

/* with preload there is one, and the shared memory is there: to attach to it in a commit might fail */
static bool has_launcher = false;

/* what this transaction has to tell once it has committed */
static bool has_news = false;
static bool has_created = false;

/* the database that this transaction has for itself */
static struct
{
	Oid			database;
	bool		is_dropped;
	bool		by_hand;		/* it had a scheduler that no launcher brings back */
}			held;

/* lets go of a database: its workers come back, be it dropped in vain or copied */
static void
release(bool has_committed)
{
	SlotRef		ref;
	BackgroundWorkerHandle *handle;

	marks_release(held.database);
	slots_wake(SLOT_LAUNCHER, InvalidOid);
	if (held.by_hand && !(has_committed && held.is_dropped))
		(void) scheduler_start(held.database, true, &ref, &handle);
	held.database = InvalidOid;
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (event == XACT_EVENT_COMMIT && has_news)
		marks_tell_news();
	if (event == XACT_EVENT_COMMIT && has_created)
		marks_tell_created(MyDatabaseId);
	if (event == XACT_EVENT_COMMIT && (has_news || has_created))
		slots_wake(SLOT_LAUNCHER, InvalidOid);
	has_news = has_created = false;
	if (OidIsValid(held.database))
		release(event == XACT_EVENT_COMMIT);
}

static bool
is_mine(Oid database)
{
	return compat_database_ownercheck(database, GetUserId());
}

static bool
may_create_databases(void)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	bool		may = superuser();

	if (HeapTupleIsValid(tuple))
	{
		may |= ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
		ReleaseSysCache(tuple);
	}
	return may;
}

static bool
is_template(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		is = HeapTupleIsValid(tuple) && ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return is;
}

/* the option of that name, as text; NULL where it is not given */
static char *
option_text(List *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *option = lfirst(lc);

		if (strcmp(option->defname, name) == 0 && option->arg)
			return defGetString(option);
	}
	return NULL;
}

/* does the statement change or drop this extension, and may the user do it? */
static bool
is_about_extension(Node *statement)
{
	const char *name = NULL;
	Oid			extension;

	if (IsA(statement, AlterExtensionStmt))
		name = castNode(AlterExtensionStmt, statement)->extname;
	else if (IsA(statement, DropStmt) && castNode(DropStmt, statement)->removeType == OBJECT_EXTENSION)
	{
		ListCell   *lc;

		foreach(lc, castNode(DropStmt, statement)->objects)
			if (strcmp(strVal(lfirst(lc)), "incload") == 0)
				name = "incload";
	}
	if (name == NULL || strcmp(name, "incload") != 0)
		return false;
	extension = get_extension_oid(name, true);
	return OidIsValid(extension) && compat_extension_ownercheck(extension, GetUserId());
}

/* the database that a statement needs for itself, and the user may have; else InvalidOid */
static Oid
wanted_database(Node *statement)
{
	const char *name = NULL;
	bool		is_copied = false;
	Oid			database;

	if (is_about_extension(statement))
		return MyDatabaseId;

	if (IsA(statement, DropdbStmt))
		name = castNode(DropdbStmt, statement)->dbname;
	else if (IsA(statement, CreatedbStmt))
	{
		name = option_text(castNode(CreatedbStmt, statement)->options, "template");
		is_copied = true;
	}
	else if (IsA(statement, RenameStmt) && castNode(RenameStmt, statement)->renameType == OBJECT_DATABASE)
		name = castNode(RenameStmt, statement)->subname;
	else if (IsA(statement, AlterDatabaseStmt) &&
			 option_text(castNode(AlterDatabaseStmt, statement)->options, "tablespace"))
		name = castNode(AlterDatabaseStmt, statement)->dbname;
	if (name == NULL)
		return InvalidOid;
	database = get_database_oid(name, true);
	if (!OidIsValid(database) || database == MyDatabaseId)
		return InvalidOid;
	if (is_mine(database) || (is_copied && is_template(database) && may_create_databases()))
		return database;
	return InvalidOid;
}

/* what a statement tells once it is committed */
static void
note_news(Node *statement)
{
	if (!has_launcher)
		return;
	if (IsA(statement, CreatedbStmt) || IsA(statement, DropdbStmt))
		has_news = true;
	/* another one that needs this one may bring it along */
	if (IsA(statement, CreateExtensionStmt))
		has_created = true;
}

/*
 * Nobody knows what a prepared transaction has done, be it another session's or from before a
 * restart. So where there should be a scheduler and is none, it is news that the extension is there.
 * It is committed by now: nothing may be waited for, as a timeout would say that it was not.
 */
static void
look_at_prepared(void)
{
	if (slots_has(SLOT_SCHEDULER, MyDatabaseId) || marks_is_stopped(MyDatabaseId))
		return;
	has_created = !ConditionalLockRelationOid(ExtensionRelationId, AccessShareLock) ||
		(OidIsValid(get_extension_oid("incload", true)) && launcher_wants_mine());
}

/* has all of incload's workers leave a database */
static void
clear_database(Oid database)
{
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), WAIT_MS);

	while (slots_dismiss(database, true) > 0 && GetCurrentTimestamp() < until)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 20,
						 incload_wait_event_idle());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
incload_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion)
{
	Node	   *statement = pstmt->utilityStmt;
	Oid			database = IsTransactionState() ? wanted_database(statement) : InvalidOid;
	/* asked now, as the statement may not be there any more when it is over */
	bool		is_prepared = IsA(statement, TransactionStmt) &&
		castNode(TransactionStmt, statement)->kind == TRANS_STMT_COMMIT_PREPARED;

	note_news(statement);
	if (OidIsValid(database) && !OidIsValid(held.database) && slots_hold(database, &held.by_hand))
	{
		held.database = database;
		held.is_dropped = IsA(statement, DropdbStmt) || IsA(statement, DropStmt);
		clear_database(database);
	}
	if (next_hook)
		next_hook(pstmt, query, read_only_tree, context, params, environment, dest, completion);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, environment, dest,
								completion);
	if (has_launcher && is_prepared)
		look_at_prepared();
}

void
database_hook_install(void)
{
	has_launcher = process_shared_preload_libraries_in_progress;
	next_hook = ProcessUtility_hook;
	ProcessUtility_hook = incload_utility;
	RegisterXactCallback(at_transaction_end, NULL);
}
