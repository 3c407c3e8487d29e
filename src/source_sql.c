/*
 * source_sql.c
 *		incload_source_sql: what to create at the source of a job.
 *
 * It is printed and not run: the role that reads there may not create anything,
 * and its owner decides. Each statement can be run again.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "catalog/pg_trigger.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "foreign/foreign.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/lsyscache.h"

#include "check.h"
#include "compat.h"
#include "login.h"
#include "names.h"
#include "nature.h"
#include "role.h"

/* Script: what is to be printed, and for what */
typedef struct Script
{
	Check		check;			/* job, source and facts of it */
	char	   *relation;		/* the source's own, qualified and quoted */
	char	   *schema;			/* its parts */
	char	   *table;
	char	   *reader;			/* the role that reads there, quoted */
	int			version;		/* of the server */
	List	   *statements;		/* of char * */
} Script;

static void
say(Script *script, const char *note, char *statement)
{
	script->statements = lappend(script->statements, psprintf("-- %s\n%s", note, statement));
}

/* an object of incload's making beside the source's table, qualified and quoted */
static char *
beside(const Script *script, const char *label)
{
	return quote_qualified_identifier(script->schema, makeObjectName(script->table, NULL, label));
}

static void
say_function(Script *script, const char *note, const char *label, const char *settings, const char *body)
{
	say(script, note,
		psprintf("CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql%s SET search_path = pg_catalog, pg_temp AS %s;",
				 beside(script, label), settings, quote_literal_cstr(body)));
}

/* before 14, a trigger cannot be replaced */
static void
say_trigger(Script *script, const char *note, const char *label, const char *when, const char *how, const char *function)
{
	const char *name = quote_identifier(makeObjectName(script->table, NULL, label));
	bool		replaces = script->version >= 140000;

	if (!replaces)
		say(script, note, psprintf("DROP TRIGGER IF EXISTS %s ON %s;", name, script->relation));
	say(script, note,
		psprintf("CREATE %sTRIGGER %s %s ON %s %s EXECUTE %s %s();", replaces ? "OR REPLACE " : "", name, when,
				 script->relation, how, script->version >= 110000 ? "FUNCTION" : "PROCEDURE", beside(script, function)));
}

static bool
is_table(const Script *script)
{
	return script->check.facts->kind == RELKIND_RELATION || script->check.facts->kind == RELKIND_PARTITIONED_TABLE;
}

static void
say_index(Script *script)
{
	const Job  *job = script->check.job;
	SourceColumn *column = facts_column(script->check.facts, job->watermark);

	if (!facts_takes_index(script->check.facts) || (column == NULL && job->watermark[0] != '(') ||
		check_watermark_is_indexed(&script->check, column))
		return;
	say(script, "each run looks for rows by the watermark",
		psprintf("CREATE INDEX %sIF NOT EXISTS %s ON %s (%s);",
				 script->check.facts->kind == RELKIND_PARTITIONED_TABLE ? "" : "CONCURRENTLY ",
				 quote_identifier(makeObjectName(script->table, column ? column->remote_name : "watermark", "idx")),
				 script->relation, column ? quote_identifier(column->remote_name) : job->watermark));
}

/* does a trigger set the column already, as far as its text tells? */
static bool
is_set_by_trigger(Script *script, const SourceColumn *column)
{
	return source_ask_catalog(script->check.source, psprintf(
		"SELECT 1 FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid"
		" WHERE t.tgrelid = %s::pg_catalog.regclass AND NOT t.tgisinternal AND t.tgenabled <> 'D'"
		" AND t.tgtype & %d = %d AND pg_catalog.strpos(p.prosrc, %s) > 0 LIMIT 1",
		quote_literal_cstr(script->relation), TRIGGER_TYPE_ROW | TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_UPDATE,
		TRIGGER_TYPE_ROW | TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_UPDATE,
		quote_literal_cstr(column->remote_name)))->nrows > 0;
}

/* the clock as a value of the watermark; of a time without zone, in the zone in which it is read */
static char *
clock_as(Script *script, Oid type)
{
	const char *zone = script->check.job->options->source_timezone;

	if (type == TIMESTAMPTZOID)
		return "clock_timestamp()";
	if (zone == NULL)
		zone = source_ask_catalog(script->check.source,
								  "SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'TimeZone'")->value[0][0];
	return psprintf("clock_timestamp() AT TIME ZONE %s", quote_literal_cstr(zone));
}

static void
say_watermark(Script *script)
{
	const Job  *job = script->check.job;
	SourceColumn *column = facts_column(script->check.facts, job->watermark);
	Oid			type = column ? getBaseType(get_atttype(job->source, get_attnum(job->source, column->name))) : InvalidOid;

	if (job->strategy != STRATEGY_UPSERT || !is_table(script) || (type != TIMESTAMPTZOID && type != TIMESTAMPOID) ||
		watermark_nature(job->watermark, get_rel_name(job->source)) == NATURE_CREATED ||
		is_set_by_trigger(script, column))
		return;
	say_function(script, "the watermark moves with each change, whoever makes it, and is never backdated",
				 "incload_watermark", "",
				 psprintf("\nBEGIN\n    NEW.%s := %s;\n    RETURN NEW;\nEND\n",
						  quote_identifier(column->remote_name), clock_as(script, type)));
	say_trigger(script, "leave these two out where your programs set it by the clock of this server", "incload_watermark",
				"BEFORE INSERT OR UPDATE", "FOR EACH ROW", "incload_watermark");
}

/* what a column of a relation here is called where the rows are */
static const char *
remote_column(Oid relation, const char *name)
{
	AttrNumber	attnum = get_attnum(relation, name);

	if (attnum == InvalidAttrNumber || !source_is_postgres_fdw(relation))
		return name;
	return foreign_option(GetForeignColumnOptions(relation, attnum), "column_name", name);
}

/* the same for a relation, qualified and quoted */
static char *
remote_relation(Oid relation, char **table)
{
	const char *schema = get_namespace_name(get_rel_namespace(relation));
	const char *name = get_rel_name(relation);

	if (source_is_postgres_fdw(relation))
	{
		schema = foreign_option(GetForeignTable(relation)->options, "schema_name", schema);
		name = foreign_option(GetForeignTable(relation)->options, "table_name", name);
	}
	*table = pstrdup(name);
	return quote_qualified_identifier(schema, name);
}

/* TombstoneTable: as it is at the source, or is to be */
typedef struct TombstoneTable
{
	char	   *relation;		/* qualified and quoted */
	char	   *table;
	const char *watermark;		/* not quoted */
	StringInfoData columns;		/* their definitions */
	StringInfoData names;		/* of the key there */
	StringInfoData from;		/* of the key in the source's table */
	StringInfoData old;			/* and in a row that is gone, */
	StringInfoData rekeyed;		/* or has got another key */
} TombstoneTable;

/* false where a key column is none of the source's own, or the watermark is an expression */
static bool
describe_tombstones(const Script *script, TombstoneTable *t)
{
	const Job  *job = script->check.job;
	Oid			relation = job->options->tombstone_source ? relation_require_source(job->options->tombstone_source) : InvalidOid;
	ListCell   *lc;

	t->watermark = job->options->tombstone_watermark ? job->options->tombstone_watermark : "deleted_at";
	t->table = makeObjectName(script->table, NULL, "deleted");
	t->relation = quote_qualified_identifier(script->schema, t->table);
	if (OidIsValid(relation))
	{
		t->relation = remote_relation(relation, &t->table);
		t->watermark = remote_column(relation, t->watermark);
	}
	initStringInfo(&t->columns);
	initStringInfo(&t->names);
	initStringInfo(&t->from);
	initStringInfo(&t->old);
	initStringInfo(&t->rekeyed);
	foreach(lc, job->key)
	{
		SourceColumn *column = facts_column(script->check.facts, lfirst(lc));
		const char *comma = foreach_current_index(lc) ? ", " : "";
		const char *there;
		const char *name;

		if (column == NULL)
			return false;
		name = quote_identifier(column->remote_name);
		there = quote_identifier(OidIsValid(relation) ? remote_column(relation, column->name) : column->remote_name);
		appendStringInfo(&t->columns, "    %s %s NOT NULL,\n", there, column->type_name);
		appendStringInfo(&t->names, "%s%s", comma, there);
		appendStringInfo(&t->from, "%s%s", comma, name);
		appendStringInfo(&t->old, "%sOLD.%s", comma, name);
		appendStringInfo(&t->rekeyed, "%sOLD.%s IS DISTINCT FROM NEW.%s", comma[0] ? " OR " : "", name, name);
	}
	return t->watermark[0] != '(';
}

static void
say_tombstone_table(Script *script, const TombstoneTable *t)
{
	const char *watermark = quote_identifier(t->watermark);

	say(script, "keys of rows that were deleted; those older than incload.tombstone says may be taken out",
		psprintf("CREATE TABLE IF NOT EXISTS %s (\n%s    %s timestamp with time zone NOT NULL DEFAULT clock_timestamp()\n);",
				 t->relation, t->columns.data, watermark));
	say(script, "each run looks for new ones",
		psprintf("CREATE INDEX IF NOT EXISTS %s ON %s (%s);",
				 quote_identifier(makeObjectName(t->table, t->watermark, "idx")), t->relation, watermark));
	say(script, "the role that reads",
		psprintf("GRANT SELECT ON %s TO %s;", t->relation, script->reader));
}

static void
say_tombstone_triggers(Script *script, const TombstoneTable *t)
{
	say_function(script, "who deletes a row needs no right on the tombstones", "incload_deleted", " SECURITY DEFINER",
				 psprintf("\nBEGIN\n    IF TG_OP = 'TRUNCATE' THEN\n"
						  "        INSERT INTO %s (%s) SELECT %s FROM %s;\n"
						  "    ELSE\n        INSERT INTO %s (%s) VALUES (%s);\n    END IF;\n    RETURN NULL;\nEND\n",
						  t->relation, t->names.data, t->from.data, script->relation,
						  t->relation, t->names.data, t->old.data));
	say(script, "nobody else puts it on a table of his own",
		psprintf("REVOKE ALL ON FUNCTION %s() FROM PUBLIC;", beside(script, "incload_deleted")));
	say_trigger(script, "a row that is deleted leaves its key", "incload_deleted", "AFTER DELETE", "FOR EACH ROW", "incload_deleted");
	say_trigger(script, "so does one whose key is changed", "incload_rekeyed", "AFTER UPDATE",
				psprintf("FOR EACH ROW WHEN (%s)", t->rekeyed.data), "incload_deleted");
	say_trigger(script, script->check.facts->kind == RELKIND_PARTITIONED_TABLE
				? "TRUNCATE writes a tombstone for every row, and takes as long as that does; of a partition by itself, or one that is detached or dropped, it writes none"
				: "TRUNCATE writes a tombstone for every row, and takes as long as that does; without this trigger the target keeps those rows",
				"incload_truncated", "BEFORE TRUNCATE", "FOR EACH STATEMENT", "incload_deleted");
}

/* what is left to do here, where the job does not know of the tombstones yet */
static void
say_rest(Script *script, const TombstoneTable *t)
{
	const Job  *job = script->check.job;
	char	   *here = t->relation;
	char	   *import = "";
	StringInfoData options;
	const char *schema = get_namespace_name(get_rel_namespace(job->source));

	if (job->options->deletes == DELETES_TOMBSTONE)
		return;
	if (source_is_postgres_fdw(job->source))
	{
		import = psprintf("-- IMPORT FOREIGN SCHEMA %s LIMIT TO (%s) FROM SERVER %s INTO %s;\n",
						  quote_identifier(script->schema), quote_identifier(t->table),
						  quote_identifier(GetForeignServer(GetForeignTable(job->source)->serverid)->servername),
						  quote_identifier(schema));
		here = quote_qualified_identifier(schema, t->table);
	}
	initStringInfo(&options);
	appendStringInfoString(&options, "{\"deletes\": \"tombstone\", \"tombstone_source\": ");
	escape_json(&options, here);
	appendStringInfoChar(&options, '}');
	say(script, "then, where the job is:",
		psprintf("%s-- SELECT incload_alter_job(%s, options => %s);", import, quote_literal_cstr(job->name),
				 quote_literal_cstr(options.data)));
}

static void
say_tombstones(Script *script)
{
	const Job  *job = script->check.job;
	TombstoneTable t = {0};

	if (job->strategy != STRATEGY_UPSERT || !is_table(script) || job->options->deletes == DELETES_SOFT ||
		!describe_tombstones(script, &t))
		return;
	say_tombstone_table(script, &t);
	say_tombstone_triggers(script, &t);
	say_rest(script, &t);
}

/* asks what the relation is called there; a source that is not PostgreSQL's has nothing to be created by this SQL */
static void
look_up(Script *script)
{
	Source	   *source = script->check.source;
	char	  **v;

	if (!source->is_postgres && !source->is_local)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("source %s is not known to be a relation of PostgreSQL", script->check.job->source_name),
				 errdetail("What is created there would be in another language."),
				 errhint("incload_check says what the source lacks.")));
	script->relation = source->routine->relation_name(source);
	v = source_ask_catalog(source, psprintf(
		"SELECT n.nspname, c.relname, pg_catalog.quote_ident(current_user) FROM pg_catalog.pg_class c"
		" JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s::pg_catalog.regclass",
		quote_literal_cstr(script->relation)))->value[0];
	script->schema = v[0];
	script->table = v[1];
	script->reader = v[2];
	script->version = source->routine->version(source);
	script->check.facts = facts_gather(source);
}

/* the job as the reader that can ask the source itself is chosen by it */
static Job *
asking(const Job *job)
{
	Job		   *asker = memcpy(palloc(sizeof(Job)), job, sizeof(Job));

	asker->options = memcpy(palloc(sizeof(JobOptions)), job->options, sizeof(JobOptions));
	asker->options->reader = READER_AUTO;
	asker->options->filter = NULL;
	asker->options->transforms = NIL;
	return asker;
}

PG_FUNCTION_INFO_V1(incload_source_sql);

/*
 * incload_source_sql(job) → setof text
 *		What the source lacks for the job, a statement a row, to be run there by
 *		the owner of its table.
 */
Datum
incload_source_sql(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Job		   *job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	Script		script = {0};
	RoleBracket bracket;
	ListCell   *lc;

	job_require_whole(job);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	role_enter_owner(&bracket, job->owner, job->search_path);
	script.check.job = asking(job);
	script.check.source = source_connect(script.check.job, CurrentMemoryContext);
	look_up(&script);
	if (job->strategy != STRATEGY_FULL && job->watermark)
	{
		say_index(&script);
		say_watermark(&script);
	}
	say_tombstones(&script);
	source_release(script.check.source);
	role_leave(&bracket);
	foreach(lc, script.statements)
	{
		Datum		value = CStringGetTextDatum(lfirst(lc));
		bool		null = false;

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &null);
	}
	return (Datum) 0;
}
