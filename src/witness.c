/*
 * witness.c
 *		Who is open at a source: the transactions that may still add rows.
 *
 * pg_stat_activity is looked at first and pg_locks second: PREPARE moves a
 * transaction's locks before it clears its start, so that one which is being
 * prepared meanwhile is seen by the one or the other. Both show the present
 * and not a snapshot's past, which is why the rows are read after both.
 *
 * A session whose state is hidden (another role's, without pg_read_all_stats)
 * or not tracked (track_activities) still shows in pg_locks by the lock on its
 * own virtual transaction. A prepared transaction keeps the name of the
 * virtual transaction that it was, and has no pid.
 *
 * The functions below those views are asked: the joins for the names that the
 * views show cost a new session more than all the rest.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "witness.h"

bool
witness_possible(Source *source)
{
	/* a connection of incload's own begins its snapshot when it is told to */
	if (source->routine->outlives_commit)
		return true;
	/* here, a snapshot that is older than the bound would miss rows */
	return source->is_local && !IsolationUsesXactSnapshot();
}

/* what the server says of itself, and of the relation $1 */
static const char state_query[] =
"SELECT c.now, pg_catalog.pg_is_in_recovery(), pg_catalog.pg_last_xact_replay_timestamp(),"
" pg_catalog.concat_ws('/', (SELECT system_identifier FROM pg_catalog.pg_control_system()),"
/* after a promotion the control file tells of the new timeline minutes later */
"  CASE WHEN pg_catalog.pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())"
"   ELSE ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))"
"    ::pg_catalog.bit(32)::pg_catalog.int4 END, pg_catalog.pg_is_in_recovery(),"
"  pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()),"
"  coalesce(pg_catalog.date_part('epoch', pg_catalog.pg_stat_get_bgwriter_stat_reset_time()), 0),"
"  (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())"
"   OPERATOR(pg_catalog.||) '.' OPERATOR(pg_catalog.||) k.oid),"
" k.oid, k.relkind, k.relhassubclass,"
" pg_catalog.txid_snapshot_xmax(x.s), pg_catalog.txid_snapshot_xmin(x.s),"
/* a policy may show a row later that has not changed */
" CASE WHEN k.relkind IN ('r', 'p', 'm') THEN pg_catalog.has_column_privilege(k.oid, 'xmin', 'SELECT') END, pg_catalog.row_security_active(k.oid),"
/* a standby whose primary has nothing to do is as old as it, and is not behind */
" CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_is_wal_replay_paused()"
"  OR coalesce(pg_catalog.pg_last_wal_receive_lsn() > pg_catalog.pg_last_wal_replay_lsn(), false) END"
" FROM (SELECT pg_catalog.clock_timestamp() AS now OFFSET 0) c,"
" (SELECT pg_catalog.txid_current_snapshot() AS s OFFSET 0) x,"
" pg_catalog.pg_class k WHERE k.oid = $1::pg_catalog.regclass";

/*
 * What is behind the relation $1. Looked up relation by relation, by OFFSET 0,
 * too: joins would be planned as scans of whole catalogs, since nobody knows how
 * many relations there are.
 */
static const char behind_query[] =
/* views lead to what they read, tables to their children */
"WITH RECURSIVE rel (oid) AS (SELECT $1::pg_catalog.regclass::pg_catalog.oid UNION"
"  SELECT n.oid FROM rel, LATERAL ("
"   SELECT d.refobjid AS oid FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_depend d"
"    ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = r.oid"
"    AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid <> r.ev_class"
"    WHERE r.ev_class = rel.oid AND r.rulename = '_RETURN'"
"   UNION ALL SELECT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = rel.oid) n),"
" info AS (SELECT rel.oid,"
"   (SELECT k.relkind FROM pg_catalog.pg_class k WHERE k.oid = rel.oid) AS kind,"
/* a function might read other tables */
"   EXISTS (SELECT FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_depend d"
"     ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = r.oid"
"     AND d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass"
"     WHERE r.ev_class = rel.oid OFFSET 0) AS calls,"
/* sequences that belong to a table, or that its defaults draw from */
"   ARRAY(SELECT s.oid FROM pg_catalog.pg_depend d"
"     JOIN pg_catalog.pg_class s ON s.oid = d.objid AND s.relkind = 'S'"
"     WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = rel.oid"
"     AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.deptype IN ('a', 'i')"
"    UNION ALL SELECT s.oid FROM pg_catalog.pg_attrdef a JOIN pg_catalog.pg_depend d"
"     ON d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass"
"     AND d.objid = a.oid AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass"
"     JOIN pg_catalog.pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'"
"     WHERE a.adrelid = rel.oid) AS sequences"
"  FROM rel)"
" SELECT (SELECT pg_catalog.string_agg(o.oid::pg_catalog.text, ',' ORDER BY o.oid)"
"   FROM (SELECT oid FROM info UNION SELECT pg_catalog.unnest(sequences) FROM info) o),"
/* nothing but tables, at least one; and no function */
"  pg_catalog.bool_and(kind IN ('r', 'p', 'v') AND NOT calls)"
"   AND pg_catalog.bool_or(kind IN ('r', 'p')), pg_catalog.bool_or(kind = 'm'),"
/* a view's text is long to make, so it is looked at last */
"  CASE WHEN pg_catalog.bool_or(kind = 'v')"
"   AND (SELECT pg_catalog.count(DISTINCT q) FROM info, pg_catalog.unnest(info.sequences) q) > 1"
"   THEN (SELECT pg_catalog.bool_or(pg_catalog.pg_get_viewdef(v.oid) ~ '\\yUNION\\y') FROM info v WHERE v.kind = 'v')"
"   END FROM info";

SourceState *
witness_state(Source *source, bool with_sequences)
{
	SourceState *state = palloc0(sizeof(SourceState));
	const char *relation = source->routine->relation_name(source);
	char	  **v = source_ask_catalog_about(source, state_query, relation)->value[0];
	char		kind = v[5][0];
	bool		has_children = v[6][0] == 't';

	state->clock = instant_parse(v[0]);
	state->in_recovery = v[1][0] == 't';
	state->replayed_to = instant_parse(v[2]);
	state->epoch = source->is_local ? psprintf("%s" EPOCH_HERE, v[3]) : v[3];
	state->relations = v[4];
	state->is_tables = state->is_plain = true;
	state->is_table = kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE;
	state->next_xid = strtou64(v[7], NULL, 10);
	state->oldest_xid = strtou64(v[8], NULL, 10);
	state->shows_xmin = v[9] && v[9][0] == 't';
	state->has_policies = v[10][0] == 't';
	state->is_behind = v[11] && v[11][0] == 't';
	if (with_sequences || has_children || kind != RELKIND_RELATION)
	{
		v = source_ask_catalog_about(source, behind_query, relation)->value[0];
		state->is_plain = false;
		state->relations = v[0];
		state->is_tables = v[1][0] == 't';
		state->is_refreshed = v[2][0] == 't';
		state->is_mixed = with_sequences && v[3] && v[3][0] == 't';
	}
	return state;
}

/* Session: one of this database that may write to the source */
typedef struct Session
{
	char	   *pid;
	char	   *who;
	TimestampTz start;			/* none of its rows is older; 0: nothing is open, or it cannot be seen */
	bool		is_hidden;		/* it may have begun before "start" */
} Session;

static const char activity_query[] =
"SELECT a.pid, LEAST(a.xact_start, CASE WHEN a.state <> 'idle' THEN a.query_start END),"
" a.application_name, a.state IS NULL OR a.state = 'disabled'"
"  OR (a.state <> 'idle' AND a.xact_start IS NULL)"
" FROM pg_catalog.pg_stat_get_activity(NULL::pg_catalog.int4) a"
" WHERE a.datid = (SELECT d.oid FROM pg_catalog.pg_database d"
"   WHERE d.datname = pg_catalog.current_database())"
" AND a.pid <> pg_catalog.pg_backend_pid()"
/* autovacuum alone has no user; its type is not shown to everyone */
" AND a.usesysid IS NOT NULL"
/* who streams changes writes none; all his transactions bear the stream's start */
" AND NOT (a.backend_type = 'walsender' AND a.query LIKE 'START\\_REPLICATION %')"
/* incload's own readers write nothing */
" AND NOT (a.usesysid = pg_catalog.quote_ident(session_user)::pg_catalog.regrole"
"  AND a.application_name LIKE '" SOURCE_READER_PREFIX "%')";

/*
 * Sessions of this database, and which of those that can be seen began first.
 * An active one without a transaction is between two of one message, and the
 * second bears that message's arrival. One that has no start in its transaction
 * began it while it was not tracked.
 */
static List *
look_at_activity(Source *source, Witness *witness)
{
	List	   *sessions = NIL;
	TextRows   *rows;

	/* within a transaction, the view is kept as it was first seen */
	if (source->is_local)
		(void) source_ask_catalog(source, "SELECT pg_catalog.pg_stat_clear_snapshot()");

	rows = source_ask_catalog(source, activity_query);
	witness->oldest_start = DT_NOEND;
	for (int i = 0; i < rows->nrows; i++)
	{
		char	  **v = rows->value[i];
		Session    *session = palloc0(sizeof(Session));

		session->pid = v[0];
		session->who = v[2] && v[2][0] ? psprintf("pid %s (%s)", v[0], v[2]) : psprintf("pid %s", v[0]);
		session->start = instant_parse(v[1]);
		session->is_hidden = v[3] == NULL || v[3][0] == 't';
		sessions = lappend(sessions, session);
		if (session->start != 0 && session->start < witness->oldest_start)
		{
			witness->oldest_start = session->start;
			witness->oldest = session->who;
		}
	}
	return sessions;
}

static Session *
session_by_pid(List *sessions, const char *pid)
{
	ListCell   *lc;

	foreach(lc, sessions)
		if (pid != NULL && strcmp(((Session *) lfirst(lc))->pid, pid) == 0)
			return lfirst(lc);
	return NULL;
}

static Holder *
new_holder(const char *name, const Session *session, const char *gid, const char *prepared_at)
{
	Holder	   *holder = palloc0(sizeof(Holder));

	holder->name = pstrdup(name);
	if (session)
	{
		holder->who = session->who;
		holder->since = session->is_hidden ? 0 : session->start;
	}
	else if (gid)
	{
		holder->who = psprintf("prepared transaction %s", quote_literal_cstr(gid));
		holder->since = instant_parse(prepared_at);
	}
	else
		holder->who = psprintf("virtual transaction %s", name);
	return holder;
}

/* who is open by his locks, and whether he has a write lock on one of some relations */
#define LOCKS_QUERY(relations) \
"SELECT l.virtualtransaction, l.pid, pg_catalog.bool_or(l.locktype = 'relation'" \
" AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d" \
"  WHERE d.datname = pg_catalog.current_database())" \
" AND l.relation = " relations " AND (l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock'," \
"   'ExclusiveLock', 'AccessExclusiveLock')" \
/* a partition with rows in it, attached by a prepared transaction */ \
"  OR (l.pid IS NULL AND l.mode = 'ShareUpdateExclusiveLock')))," \
" pg_catalog.max(p.gid), pg_catalog.max(p.prepared)" \
" FROM pg_catalog.pg_lock_status() l LEFT JOIN pg_catalog.pg_prepared_xact() p" \
"  ON l.pid IS NULL AND l.locktype = 'transactionid' AND p.transaction = l.transactionid" \
/* an idle session that keeps an advisory lock is number 0 of its transactions: none */ \
" WHERE l.virtualtransaction NOT LIKE '%/0' GROUP BY 1, 2"

static const char locks_query[] =
LOCKS_QUERY("ANY (pg_catalog.string_to_array($1, ',')::pg_catalog.oid[])");

/* the same for the source alone, by its name, so that it can be asked before its OID is known */
static const char locks_query_plain[] =
LOCKS_QUERY("$1::pg_catalog.regclass");

Witness *
witness_open(Source *source, const SourceState *state)
{
	Witness    *witness = palloc0(sizeof(Witness));
	List	   *sessions = look_at_activity(source, witness);
	TextRows   *rows;

	rows = state->is_plain
		? source_ask_catalog_about(source, locks_query_plain, source->routine->relation_name(source))
		: source_ask_catalog_about(source, locks_query, state->relations);
	for (int i = 0; i < rows->nrows; i++)
	{
		char	  **v = rows->value[i];
		bool		writes = v[2] && v[2][0] == 't';
		Session    *session = session_by_pid(sessions, v[1]);
		/* a backend's number alone is soon another's */
		char	   *name = v[1] ? psprintf("%s:%s", v[1], v[0]) : v[0];

		witness->open = lappend(witness->open, name);
		witness->holders = lappend(witness->holders, new_holder(name, session, v[3], v[4]));
		if (writes)
			witness->writers = lappend(witness->writers, name);
		if (v[1] == NULL && writes)
			witness->prepared = lappend(witness->prepared, name);
		if (v[1] == NULL ? writes : session != NULL)
			witness->others = lappend(witness->others, name);
		if (source->is_local && v[1] && atoi(v[1]) == MyProcPid)
		{
			/* this one may go on to write, with a number that it has taken by now; without its pid, as later ones of this session are not it */
			Holder	   *own = new_holder(v[0], NULL, NULL, NULL);

			own->who = psprintf("pid %s, which ran the job", v[1]);
			own->since = GetCurrentTransactionStartTimestamp();
			witness->holders = lappend(witness->holders, own);
			if (writes || IsTransactionBlock())
				witness->others = lappend(witness->others, v[0]);
		}
		if (session && session->is_hidden)
			witness->unknown = lappend(witness->unknown, name);
	}
	return witness;
}

void
witness_foresee(Source *source, bool by_number)
{
	const char *relation = source->routine->relation_name(source);

	source->routine->expect(source, state_query, relation, false);
	/* then comes the newest number, or, for a time, who is open */
	if (by_number)
	{
		source->routine->expect(source, behind_query, relation, false);
		return;
	}
	source->routine->expect(source, activity_query, NULL, false);
	source->routine->expect(source, locks_query_plain, relation, false);
}

const Holder *
witness_holder(const Witness *witness, const char *name)
{
	ListCell   *lc;

	foreach(lc, witness->holders)
		if (strcmp(((Holder *) lfirst(lc))->name, name) == 0)
			return lfirst(lc);
	return NULL;
}

const Holder *
witness_of_xid(Source *source, uint64 xid)
{
	Holder	   *holder;
	TextRows   *rows;

	rows = source_ask_catalog(source, psprintf(
		"SELECT 'pid ' || a.pid || coalesce(' (' || NULLIF(a.application_name, '') || ')', ''), a.xact_start"
		" FROM pg_catalog.pg_stat_activity a WHERE a.backend_xid = '%u'::pg_catalog.xid"
		" AND a.pid <> pg_catalog.pg_backend_pid()"
		" UNION ALL SELECT 'prepared transaction ' || pg_catalog.quote_literal(p.gid), p.prepared"
		" FROM pg_catalog.pg_prepared_xacts p WHERE p.transaction = '%u'::pg_catalog.xid",
		(uint32) xid, (uint32) xid));
	if (rows->nrows == 0)
		return NULL;
	holder = palloc0(sizeof(Holder));
	holder->who = rows->value[0][0];
	holder->since = instant_parse(rows->value[0][1]);
	return holder;
}
