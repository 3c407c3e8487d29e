/*
 * target.c
 *		The table that a job writes: whether it can be written, and its making.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "deletes.h"
#include "names.h"
#include "role.h"
#include "target.h"
#include "trouble.h"

static const char *
kind_name(char relkind)
{
	switch (relkind)
	{
		case RELKIND_VIEW:
			return "a view";
		case RELKIND_MATVIEW:
			return "a materialized view";
		case RELKIND_FOREIGN_TABLE:
			return "a foreign table";
		case RELKIND_INDEX:
		case RELKIND_PARTITIONED_INDEX:
			return "an index";
		case RELKIND_SEQUENCE:
			return "a sequence";
		default:
			return "not a table";
	}
}

static void
refuse(const Job *job, int sqlstate, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("%s cannot be the target of job \"%s\"", job->target_name, job->name),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

static void
require_privilege(const Job *job, AclMode mode, const char *word)
{
	char	   *role = GetUserNameFromId(job->owner, false);

	if (pg_class_aclcheck(job->target, job->owner, mode) == ACLCHECK_OK)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for target %s", job->target_name),
			 errdetail("Role \"%s\" needs %s on it.", role, word),
			 errhint("GRANT %s ON %s TO %s;", word, job->target_name, quote_identifier(role))));
}

static void
require_privileges(const Job *job, bool is_full)
{
	require_privilege(job, ACL_INSERT, "INSERT");
	if (job->key != NIL)
		require_privilege(job, ACL_SELECT, "SELECT");
	if (job->strategy == STRATEGY_UPSERT)
		require_privilege(job, ACL_UPDATE, "UPDATE");
	if (deletes_from_target(job))
		require_privilege(job, ACL_DELETE, "DELETE");
	if (is_full && job_full_refresh_mode(job) == FULL_REFRESH_MERGE)
	{
		require_privilege(job, ACL_UPDATE, "UPDATE");
		require_privilege(job, ACL_DELETE, "DELETE");
	}
	/* that a swap is the owner's is said with the other reasons, see fill.c */
	if (is_full && job_full_refresh_mode(job) == FULL_REFRESH_SWAP)
		require_privilege(job, ACL_SELECT, "SELECT");
	if (is_full && job_full_refresh_mode(job) == FULL_REFRESH_TRUNCATE)
	{
		require_privilege(job, ACL_SELECT, "SELECT");
		require_privilege(job, ACL_TRUNCATE, "TRUNCATE");
	}
}

/* a crash empties an unlogged partition, and the checkpoint does not know */
static void
require_logged_partitions(const Job *job)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(job->target, AccessShareLock, NULL))
	{
		Oid			partition = lfirst_oid(lc);

		if (get_rel_persistence(partition) == RELPERSISTENCE_UNLOGGED)
			refuse(job, ERRCODE_WRONG_OBJECT_TYPE,
				   psprintf("Its partition %s is UNLOGGED: a crash empties it and leaves the checkpoint, so that rows would be lost.",
							relation_qualified_name(partition)),
				   psprintf("ALTER TABLE %s SET LOGGED;", relation_qualified_name(partition)));
	}
}

void
target_require_writable(const Job *job, bool is_full)
{
	Relation	rel = relation_open(job->target, AccessShareLock);
	char		relkind = rel->rd_rel->relkind;
	char		persistence = rel->rd_rel->relpersistence;
	bool		has_rules = rel->rd_rel->relhasrules;
	bool		is_catalog = IsCatalogRelation(rel);
	bool		is_own = rel->rd_rel->relnamespace == get_namespace_oid("incload", true);

	relation_close(rel, AccessShareLock);

	if (job->target == job->source)
		refuse(job, ERRCODE_INVALID_PARAMETER_VALUE, "It is the job's source.",
			   "Name another table; one that does not exist is created.");
	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		refuse(job, ERRCODE_WRONG_OBJECT_TYPE, psprintf("It is %s.", kind_name(relkind)),
			   "Name a table or a partitioned table.");
	if (is_own)
		refuse(job, ERRCODE_WRONG_OBJECT_TYPE, "It is incload's own.", "Name a table of your own.");
	if (is_catalog)
		refuse(job, ERRCODE_WRONG_OBJECT_TYPE, "It is a system catalog.", "Name a table of your own.");
	if (persistence == RELPERSISTENCE_TEMP)
		refuse(job, ERRCODE_WRONG_OBJECT_TYPE,
			   "It is a temporary table: it ends with the session, and the checkpoint does not.",
			   "Name a permanent table.");
	if (persistence == RELPERSISTENCE_UNLOGGED && job->strategy != STRATEGY_FULL)
		refuse(job, ERRCODE_WRONG_OBJECT_TYPE,
			   "It is UNLOGGED: a crash empties it and leaves the checkpoint, so that rows would be lost.",
			   psprintf("ALTER TABLE %s SET LOGGED; or use strategy full.", job->target_name));
	if (job->strategy != STRATEGY_FULL)
		require_logged_partitions(job);
	if (has_rules)
		refuse(job, ERRCODE_FEATURE_NOT_SUPPORTED,
			   "It has rules, and MERGE does not work on a table with rules.",
			   "Use triggers instead of rules.");
	require_privileges(job, is_full);
}

void
target_require_same(const Job *job)
{
	if (job->stored_target == job->target ||
		strcmp(job->stored_database, role_database_identity()) != 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("target %s of job \"%s\" is not the table it was", job->target_name, job->name),
			 errdetail("It was dropped and created again: rows below the checkpoint are not in it."),
			 errhint("SELECT incload_refresh(%s) fills it anew and goes on from there.",
					 quote_literal_cstr(job->name))));
}

List *
target_primary_key(Oid target)
{
	Relation	rel = relation_open(target, AccessShareLock);
	Oid			index;
	List	   *names = NIL;

	(void) RelationGetIndexList(rel);	/* fills in rd_pkindex */
	index = rel->rd_pkindex;
	if (OidIsValid(index))
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
		Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);

		for (int i = 0; i < form->indnkeyatts; i++)
			names = lappend(names, get_attname(target, form->indkey.values[i], false));
		ReleaseSysCache(tuple);
	}
	relation_close(rel, AccessShareLock);
	return names;
}

bool
target_key_is_unique(Relation target, List *key)
{
	bool		found = false;
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(target))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Form_pg_index form = index->rd_index;
		bool		covered = form->indisunique && form->indimmediate && form->indisvalid &&
			RelationGetIndexPredicate(index) == NIL;

		for (int i = 0; covered && i < form->indnkeyatts; i++)
		{
			AttrNumber	attnum = form->indkey.values[i];

			/* 0 is an expression */
			covered = attnum > 0 &&
				name_in_list(key, NameStr(TupleDescAttr(RelationGetDescr(target), attnum - 1)->attname));
		}
		found |= covered;
		index_close(index, AccessShareLock);
	}
	return found;
}

/* a key column that the target will not have */
static void
require_key_columns(List *columns, List *key)
{
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, columns)
		names = lappend(names, ((LoadColumn *) lfirst(lc))->name);
	foreach(lc, key)
		if (!name_in_list(names, lfirst(lc)))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("key column \"%s\" is not loaded", (char *) lfirst(lc)),
					 errdetail("The target is created with the columns that are loaded, and needs its key."),
					 errhint("Column names are taken as they are written, without quotes.")));
}

Oid
target_create(const char *name, List *columns, List *key)
{
	RangeVar   *range = relation_parse(name);
	Oid			namespace;
	char	   *qualified;
	StringInfoData buf;
	const char *comma = "";
	ListCell   *lc;
	Trouble		trouble;

	require_key_columns(columns, key);
	trouble_begin(&trouble, psprintf("Target %s does not exist, and would be created.", name),
				  "Create it yourself, or name one in a schema that is there and in which the job's owner may create tables.");
	namespace = RangeVarGetCreationNamespace(range);
	qualified = quote_qualified_identifier(get_namespace_name(namespace), range->relname);
	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE TABLE %s (", qualified);
	foreach(lc, columns)
	{
		LoadColumn *column = lfirst(lc);

		if (!OidIsValid(column->source_type))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("the type of column \"%s\" is not known here", column->name),
					 errdetail("It is a type of the source server's own."),
					 errhint("Create the target %s yourself, or cast the column in its transform.", qualified)));
		appendStringInfo(&buf, "%s%s %s", comma, quote_identifier(column->name),
						 format_type_extended(column->source_type, column->source_typmod,
											  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
		if (OidIsValid(column->source_collation) &&
			column->source_collation != get_typcollation(column->source_type))
			appendStringInfo(&buf, " COLLATE %s", generate_collation_name(column->source_collation));
		comma = ", ";
	}
	if (key != NIL)
	{
		appendStringInfoString(&buf, ", PRIMARY KEY (");
		comma = "";
		foreach(lc, key)
		{
			appendStringInfo(&buf, "%s%s", comma, quote_identifier(lfirst(lc)));
			comma = ", ";
		}
		appendStringInfoChar(&buf, ')');
	}
	appendStringInfoChar(&buf, ')');

	SPI_connect();
	if (SPI_execute(buf.data, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not create table %s", qualified);
	SPI_finish();
	trouble_end(&trouble);
	return RangeVarGetRelid(range, NoLock, false);
}
