/*
 * source.c
 *		Which reader a job's source gets.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "foreign/foreign.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
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

Source *
source_connect(const Job *job, MemoryContext context)
{
	bool		can_copy = source_is_postgres_fdw(job->source);

	if (job->options->reader == READER_COPY && !can_copy)
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
