/*
 * facts.c
 *		What the catalog of the server that holds a source says about it.
 *
 * One small query, in the syntax of PostgreSQL 10, asked wherever the source
 * is: over the copy reader's connection, or here. The answer is turned into
 * the names that the source relation here has for its columns, since those
 * are the names that jobs are written in.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/heap.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/rel.h"

#include "compat.h"
#include "facts.h"
#include "login.h"
#include "names.h"
#include "role.h"

/*
 * One row a column. The kind and size of the relation come along, and its
 * indexes, those on all of its rows: each as how it is built (b: B-tree, r: BRIN),
 * whether it is the primary key, whether it tells rows apart, how many columns
 * its key has, and the numbers of its columns; the primary key first.
 * Servers before 11 have no column indnkeyatts, hence the detour.
 */
static const char columns_query[] =
"SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull"
/* only 18 and later have such a constraint, and one that is not valid */
" AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint n"
"  WHERE n.conrelid OPERATOR(pg_catalog.=) a.attrelid AND n.contype OPERATOR(pg_catalog.=) 'n'"
"  AND n.conkey[1] OPERATOR(pg_catalog.=) a.attnum AND NOT n.convalidated),"
" a.attidentity OPERATOR(pg_catalog.<>) ''"
" OR a.attnum OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT ad.adnum FROM pg_catalog.pg_attrdef ad"
" JOIN pg_catalog.pg_depend d"
" ON d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_attrdef'::pg_catalog.regclass"
" AND d.objid OPERATOR(pg_catalog.=) ad.oid"
" AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass"
" JOIN pg_catalog.pg_class q"
" ON q.oid OPERATOR(pg_catalog.=) d.refobjid AND q.relkind OPERATOR(pg_catalog.=) 'S'"
" WHERE ad.adrelid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass)),"
" a.attnum, c.relkind,"
" CASE WHEN c.reltuples OPERATOR(pg_catalog.>) 0 OR c.relpages OPERATOR(pg_catalog.>) 0"
" THEN c.reltuples ELSE -1 END,"
" c.relhassubclass AND c.relkind OPERATOR(pg_catalog.=) 'r',"
" (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ',"
" CASE m.amname WHEN 'btree' THEN 'b' WHEN 'brin' THEN 'r' ELSE '-' END, i.indisprimary,"
" i.indisunique AND i.indimmediate AND i.indexprs IS NULL,"
" coalesce((pg_catalog.to_jsonb(i) OPERATOR(pg_catalog.->>) 'indnkeyatts')::pg_catalog.int4, i.indnatts),"
" i.indkey), ',' ORDER BY i.indisprimary DESC, i.indexrelid)"
" FROM pg_catalog.pg_index i"
" JOIN pg_catalog.pg_class x ON x.oid OPERATOR(pg_catalog.=) i.indexrelid"
" JOIN pg_catalog.pg_am m ON m.oid OPERATOR(pg_catalog.=) x.relam"
" WHERE i.indrelid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass"
" AND i.indisvalid AND i.indisready AND i.indpred IS NULL),"
" pg_catalog.has_table_privilege(a.attrelid, 'SELECT'), a.atttypid, a.atttypmod, a.attcollation"
" FROM pg_catalog.pg_attribute a"
" JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.attrelid"
" WHERE a.attrelid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass"
" AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped"
" ORDER BY a.attnum";

/*
 * The same in less, which is all that a run has to know, since planning takes
 * longer than executing: no size, and of indexes only those that tell rows apart. A column is counted if it may be. The detour is too long, too.
 */
#define OUTLINE_QUERY(nkeys, not_null) \
"SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), " not_null "," \
" a.attidentity OPERATOR(pg_catalog.<>) '' OR a.atthasdef, a.attnum, c.relkind, -1," \
" c.relhassubclass AND c.relkind OPERATOR(pg_catalog.=) 'r'," \
" (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', '-', i.indisprimary, true," \
" i." nkeys "," \
" i.indkey), ',' ORDER BY i.indisprimary DESC, i.indexrelid)" \
" FROM pg_catalog.pg_index i WHERE i.indrelid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass" \
" AND i.indisunique AND i.indimmediate AND i.indexprs IS NULL" \
" AND i.indisvalid AND i.indisready AND i.indpred IS NULL)," \
" pg_catalog.has_table_privilege(a.attrelid, 'SELECT'), a.atttypid, a.atttypmod, a.attcollation" \
" FROM pg_catalog.pg_attribute a" \
" JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.attrelid" \
" WHERE a.attrelid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass" \
" AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped" \
" ORDER BY a.attnum"

static const char outline_query[] = OUTLINE_QUERY("indnkeyatts", "a.attnotnull");
static const char outline_query_10[] = OUTLINE_QUERY("indnatts", "a.attnotnull");

/* from 18 on, rows may be NULL that were there before a NOT NULL that is not valid */
static const char outline_query_18[] = OUTLINE_QUERY("indnkeyatts",
 "a.attnotnull AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint n"
 " WHERE n.conrelid OPERATOR(pg_catalog.=) a.attrelid AND n.contype OPERATOR(pg_catalog.=) 'n'"
 " AND n.conkey[1] OPERATOR(pg_catalog.=) a.attnum AND NOT n.convalidated)");

/* the name that the server which holds the source has for a column */
static char *
remote_name(Source *source, Form_pg_attribute att)
{
	const char *name = NameStr(att->attname);

	if (source->is_postgres && !source->is_local)
		name = foreign_option(GetForeignColumnOptions(source->job->source, att->attnum),
							  "column_name", name);
	return pstrdup(name);
}

/* the columns as the catalog here has them: names on both sides, no facts yet */
static List *
local_columns(Source *source)
{
	Relation	rel = relation_open(source->job->source, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	List	   *columns = NIL;
	int			nest_level = NewGUCNestLevel();

	/* types are called as another server would call them */
	role_set("search_path", "pg_catalog, pg_temp");
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		SourceColumn *column;

		if (att->attisdropped)
			continue;
		column = palloc0(sizeof(SourceColumn));
		column->name = pstrdup(NameStr(att->attname));
		column->remote_name = remote_name(source, att);
		column->type_name = format_type_with_typemod(att->atttypid, att->atttypmod);
		column->type = att->atttypid;
		column->typmod = att->atttypmod;
		column->collation = att->attcollation;
		column->not_null = att->attnotnull;
		columns = lappend(columns, column);
	}
	AtEOXact_GUC(false, nest_level);
	relation_close(rel, AccessShareLock);
	return columns;
}

static SourceColumn *
column_by_remote_name(List *columns, const char *name)
{
	ListCell   *lc;

	foreach(lc, columns)
	{
		SourceColumn *column = lfirst(lc);

		if (strcmp(column->remote_name, name) == 0)
			return column;
	}
	return NULL;
}

static SourceColumn *
column_by_name(List *columns, const char *name)
{
	ListCell   *lc;

	foreach(lc, columns)
		if (strcmp(((SourceColumn *) lfirst(lc))->name, name) == 0)
			return lfirst(lc);
	return NULL;
}

static SourceColumn *
column_by_number(List *columns, int number)
{
	ListCell   *lc;

	foreach(lc, columns)
		if (((SourceColumn *) lfirst(lc))->number == number)
			return lfirst(lc);
	return NULL;
}

/*
 * What an index says: which columns it can find rows by, a BRIN index by any of
 * its columns and a B-tree by the first; and which are unique. A key with a
 * column that the relation here does not have is of no use to a job.
 */
static void
note_index(SourceFacts *facts, char *index)
{
	bool		is_btree = strtok(index, " ")[0] == 'b';
	bool		is_brin = index[0] == 'r';
	bool		is_primary = strtok(NULL, " ")[0] == 't';
	bool		is_key = strtok(NULL, " ")[0] == 't';
	int			nkeys = atoi(strtok(NULL, " "));
	List	   *key = NIL;
	ListCell   *lc;
	char	   *number;

	for (int i = 0; (number = strtok(NULL, " ")) != NULL; i++)
	{
		SourceColumn *column = column_by_number(facts->columns, atoi(number));

		if (column && (is_brin || (is_btree && i == 0)))
			column->leads_index = true;
		if (i >= nkeys)
			continue;
		if (column == NULL)
			is_key = false;
		else
			key = lappend(key, column->name);
	}
	if (!is_key)
		return;
	facts->unique_keys = lappend(facts->unique_keys, key);
	if (is_primary)
		foreach(lc, key)
			facts_column(facts, lfirst(lc))->primary_key_position = foreach_current_index(lc) + 1;
}

/* columns here that the source lacks; one that stands for a system column is there */
static List *
gone_columns(const SourceFacts *facts, List *locals)
{
	List	   *gone = NIL;
	ListCell   *lc;

	foreach(lc, locals)
	{
		SourceColumn *column = lfirst(lc);

		if (!list_member_ptr(facts->columns, column) && SystemAttributeByName(column->remote_name) == NULL)
			gone = lappend(gone, column);
	}
	return gone;
}

/* fills in what the source says, and drops columns that it lacks */
static void
note_columns(SourceFacts *facts, List *locals, const TextRows *rows)
{
	List	   *indexes = NIL;
	char	   *described;
	ListCell   *lc;

	for (int r = 0; r < rows->nrows; r++)
	{
		char	  **v = rows->value[r];
		SourceColumn *column = column_by_remote_name(locals, v[0]);

		facts->kind = v[5][0];
		facts->rows = strtod(v[6], NULL);
		facts->has_children = v[7][0] == 't';
		facts->is_readable = v[9][0] == 't';
		if (column)
			facts->columns = lappend(facts->columns, column);
		else
		{
			column = palloc0(sizeof(SourceColumn));
			column->remote_name = v[0];
		}
		column->type_name = v[1];
		column->type = strtoul(v[10], NULL, 10);
		column->typmod = atoi(v[11]);
		column->collation = strtoul(v[12], NULL, 10);
		column->not_null = v[2][0] == 't';
		column->is_counted = v[3][0] == 't';
		column->number = atoi(v[4]);
		facts->all = lappend(facts->all, column);
	}
	facts->gone = gone_columns(facts, locals);
	if (rows->nrows == 0 || rows->value[0][8] == NULL)
		return;
	described = pstrdup(rows->value[0][8]);
	for (char *index = strtok(described, ","); index; index = strtok(NULL, ","))
		indexes = lappend(indexes, index);
	foreach(lc, indexes)
		note_index(facts, lfirst(lc));
}

char *
facts_sequences_query(Source *source, const char *column)
{
	SourceColumn *found = column_by_name(local_columns(source), column);

	/* children can have an identity or a default of their own */
	return psprintf("WITH RECURSIVE k (oid) AS (SELECT %s::pg_catalog.regclass::pg_catalog.oid"
					" UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN k ON i.inhparent = k.oid)"
					" SELECT s.oid FROM k, LATERAL (SELECT c.oid FROM pg_catalog.pg_attribute a"
					" JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass"
					"  AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum"
					"  AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.deptype = 'i'"
					" JOIN pg_catalog.pg_class c ON c.oid = d.objid AND c.relkind = 'S'"
					" WHERE a.attrelid = k.oid AND a.attname = %s"
					/* one that is owned, and that the default no longer draws from, says nothing */
					" UNION SELECT c.oid FROM pg_catalog.pg_attribute a"
					" JOIN pg_catalog.pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum"
					" JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass"
					"  AND d.objid = f.oid AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass"
					" JOIN pg_catalog.pg_class c ON c.oid = d.refobjid AND c.relkind = 'S'"
					" WHERE a.attrelid = k.oid AND a.attname = %s OFFSET 0) s",
					quote_literal_cstr(source->routine->relation_name(source)),
					quote_literal_cstr(found ? found->remote_name : column),
					quote_literal_cstr(found ? found->remote_name : column));
}

/* whether a column that may be counted is, and if so, whether a session takes several numbers at once */
static void
ask_feed(Source *source, SourceFacts *facts, const char *name)
{
	SourceColumn *column = name ? facts_column(facts, name) : NULL;
	TextRows   *rows;

	if (column == NULL || !column->is_counted)
		return;
	/* of a time, the default is a clock: most jobs track one, and the question is the dearest of all */
	column->is_counted = strncmp(column->type_name, "timestamp", 9) != 0 && strcmp(column->type_name, "date") != 0;
	if (!column->is_counted)
		return;
	rows = source_ask_catalog(source, psprintf(
		"SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute a"
		"  WHERE a.attrelid = %s::pg_catalog.regclass AND a.attname = %s AND (a.attidentity <> ''"
		"  OR EXISTS (SELECT FROM pg_catalog.pg_attrdef f JOIN pg_catalog.pg_depend d"
		"    ON d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND d.objid = f.oid"
		"    AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass"
		"    JOIN pg_catalog.pg_class c ON c.oid = d.refobjid AND c.relkind = 'S'"
		"    WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum))),"
		" EXISTS (SELECT FROM pg_catalog.pg_sequence q WHERE q.seqcache > 1 AND q.seqrelid IN (%s))",
		quote_literal_cstr(source->routine->relation_name(source)),
		quote_literal_cstr(column->remote_name), facts_sequences_query(source, name)));
	column->is_counted = rows->value[0][0][0] == 't';
	column->is_cached = column->is_counted && rows->value[0][1][0] == 't';
}

/* of a source that is not PostgreSQL, what is declared here is all */
static SourceFacts *
make_facts(Source *source, const TextRows *rows)
{
	SourceFacts *facts = palloc0(sizeof(SourceFacts));
	List	   *locals = local_columns(source);

	facts->rows = -1;
	if (rows)
		note_columns(facts, locals, rows);
	else
		facts->columns = facts->all = locals;
	return facts;
}

static TextRows *
ask_columns(Source *source, const char *query)
{
	return source->is_postgres
		? source_ask_catalog_about(source, query, source->routine->relation_name(source)) : NULL;
}

void
facts_add_feeds(Source *source, SourceFacts *facts)
{
	if (!source->is_postgres)
		return;
	ask_feed(source, facts, source->job->watermark);
	ask_feed(source, facts, source->job->options->watermark_fallback);
}

SourceFacts *
facts_gather(Source *source)
{
	SourceFacts *facts = make_facts(source, ask_columns(source, columns_query));

	facts_add_feeds(source, facts);
	return facts;
}

static const char *
outline_of(Source *source)
{
	int			version = source->routine->version(source);

	return version >= 180000 ? outline_query_18 : version >= 110000 ? outline_query : outline_query_10;
}

void
facts_foresee(Source *source)
{
	source->routine->expect(source, outline_of(source), source->routine->relation_name(source), false);
}

SourceFacts *
facts_outline(Source *source)
{
	if (source->outline == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(source->context);

		source->outline_sql = outline_of(source);
		source->outline = ask_columns(source, source->outline_sql);
		MemoryContextSwitchTo(old);
	}
	return make_facts(source, source->outline);
}

char *
facts_last_value(Source *source, const char *oids_query, bool least, bool *is_given, bool *is_whole)
{
	StringInfoData buf;
	TextRows   *names;
	TextRows   *last;

	names = source_ask_catalog(source, psprintf(
		"SELECT CASE WHEN pg_catalog.has_sequence_privilege(c.oid, 'SELECT') THEN c.oid::pg_catalog.regclass END"
		" FROM (%s) o JOIN pg_catalog.pg_class c ON c.oid = o.oid"
		" WHERE c.relkind = 'S'",
		oids_query));
	/* pg_sequence_last_value() would lock them as nextval() does */
	initStringInfo(&buf);
	*is_whole = true;
	for (int r = 0; r < names->nrows; r++)
	{
		if (names->value[r][0])
			appendStringInfo(&buf, "%sSELECT s.last_value, s.is_called FROM %s s",
							 buf.len > 0 ? " UNION ALL " : "", names->value[r][0]);
		else
			*is_whole = false;
	}
	if (buf.len == 0)
		return NULL;
	last = source_ask_catalog(source, psprintf("SELECT l.last_value, l.is_called FROM (%s) l ORDER BY %s LIMIT 1", buf.data,
											 /* one that was never drawn from may never be */
											 least ? "2 DESC, 1" : "1 DESC, 2 DESC"));
	*is_given = last->value[0][1][0] == 't';
	return last->value[0][0];
}

SourceColumn *
facts_column(const SourceFacts *facts, const char *name)
{
	return column_by_name(facts->columns, name);
}

char *
facts_numbers(const SourceFacts *facts)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, facts->columns)
	{
		SourceColumn *column = lfirst(lc);

		appendStringInfo(&buf, "%d %s,", column->number, quote_identifier(column->remote_name));
	}
	return buf.data;
}

List *
facts_primary_key(const SourceFacts *facts)
{
	List	   *key = NIL;

	/* positions are few and small: pick them one after the other */
	for (int position = 1;; position++)
	{
		int			before = list_length(key);
		ListCell   *lc;

		foreach(lc, facts->columns)
		{
			SourceColumn *column = lfirst(lc);

			if (column->primary_key_position == position)
				key = lappend(key, column->name);
		}
		if (list_length(key) == before)
			return key;
	}
}

bool
facts_unique_within(const SourceFacts *facts, List *key)
{
	ListCell   *lc;

	foreach(lc, facts->unique_keys)
	{
		bool		covered = true;
		ListCell   *name;

		foreach(name, (List *) lfirst(lc))
			if (!name_in_list(key, lfirst(name)))
				covered = false;
		if (covered)
			return true;
	}
	return false;
}

bool
facts_takes_index(const SourceFacts *facts)
{
	return facts->kind == RELKIND_RELATION || facts->kind == RELKIND_PARTITIONED_TABLE ||
		facts->kind == RELKIND_MATVIEW;
}

/*
 * facts_plan
 *		The plan of a query, from the server that would run it. EXPLAIN plans
 *		and runs nothing.
 */
char *
facts_plan(Source *source, const char *sql)
{
	TextRows   *rows = source->routine->ask(source, psprintf("EXPLAIN (VERBOSE) %s", sql));
	StringInfoData plan;

	initStringInfo(&plan);
	for (int r = 0; r < rows->nrows; r++)
		appendStringInfo(&plan, "%s%s", r ? "\n" : "", rows->value[r][0]);
	return plan.data;
}

double
facts_plan_rows(const char *plan)
{
	const char *rows = strstr(plan, " rows=");

	return rows ? strtod(rows + strlen(" rows="), NULL) : 0;
}
