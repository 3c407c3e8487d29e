/*
 * source.c
 *		Which reader a job's source gets.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "foreign/foreign.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "role.h"
#include "source.h"

bool
source_is_postgres_fdw(Oid relation)
{
	ForeignDataWrapper *wrapper;
	HeapTuple	tuple;
	bool		result;

	if (get_rel_relkind(relation) != RELKIND_FOREIGN_TABLE)
		return false;
	wrapper = GetForeignDataWrapper(GetForeignServer(GetForeignTable(relation)->serverid)->fdwid);
	if (!OidIsValid(wrapper->fdwhandler))
		return false;

	/* a wrapper may have any name; its handler tells */
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(wrapper->fdwhandler));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = strcmp(NameStr(((Form_pg_proc) GETSTRUCT(tuple))->proname), "postgres_fdw_handler") == 0;
	ReleaseSysCache(tuple);
	return result;
}

/* does the job have SQL of its owner's own that the copy reader would run at the source? */
static bool
has_expressions(const Job *job)
{
	return job->options->filter || job->options->transforms != NIL ||
		(job->watermark && job->watermark[0] == '(');
}

/*
 * An expression can read whatever the mapped user may, there. Through the
 * foreign table alone, only its columns could be read: so the right to make
 * foreign tables of that server is asked for.
 */
static bool
may_send_expressions(const Job *job)
{
	return compat_server_aclcheck(GetForeignTable(job->source)->serverid, job->owner,
								  ACL_USAGE) == ACLCHECK_OK;
}

Source *
source_connect(const Job *job, MemoryContext context)
{
	bool		can_copy = source_is_postgres_fdw(job->source);

	if (can_copy && has_expressions(job) && !may_send_expressions(job))
	{
		if (job->options->reader == READER_COPY)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to run expressions at the server of %s", job->source_name),
					 errdetail("Role \"%s\" has no USAGE on that foreign server.", job->owner_name),
					 errhint("GRANT USAGE ON FOREIGN SERVER to it, or set the option \"reader\" to \"relation\".")));
		can_copy = false;
	}

	else if (job->options->reader == READER_COPY && !can_copy)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("reader \"copy\" cannot read %s", job->source_name),
				 errdetail("It reads foreign tables of postgres_fdw alone."),
				 errhint("Leave the option \"reader\" out, or set it to \"relation\".")));
	if (can_copy && job->options->reader != READER_RELATION)
		return source_copy_connect(job, context);
	return source_relation_connect(job, context);
}

void
source_release(Source *source)
{
	source->routine->release(source);
}

void
source_note_facts(Source *source, char kind, bool is_readable)
{
	source->may_lock = is_readable &&
		(kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE || kind == RELKIND_VIEW);
}

bool
source_ready(Source *source)
{
	return source->routine->ready == NULL || source->routine->ready(source);
}

bool
source_foresee(Source *source)
{
	return source->routine->foresee == NULL || source->routine->foresee(source);
}

TextRows *
source_ask_catalog(Source *source, const char *sql)
{
	return source_ask_catalog_about(source, sql, NULL);
}

TextRows *
source_ask_catalog_about(Source *source, const char *sql, const char *argument)
{
	int			nest_level = NewGUCNestLevel();
	TextRows   *rows;

	role_set("search_path", "pg_catalog, pg_temp");
	rows = argument ? source->routine->ask_about(source, sql, argument)
		: source->routine->ask(source, sql);
	AtEOXact_GUC(false, nest_level);
	return rows;
}
