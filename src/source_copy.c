/*
 * source_copy.c
 *		The reader for tables of postgres_fdw: COPY over a connection of its own.
 *
 * The rows are read in a read-only REPEATABLE READ transaction, which ends by
 * itself with the last of them. It has nothing to do with the local transaction:
 * one sorted stream can be cut into many batches that commit one by one.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/reloptions.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_table.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "compat.h"
#include "copy_stream.h"
#include "login.h"
#include "names.h"
#include "remote.h"
#include "source.h"

typedef struct CopySource
{
	Source		base;
	Remote	   *remote;

	/* the queries that are open, one for each reader; the first one's connection is "remote" */
	MemoryContext query_context;
	CopyStream **streams;
	Remote	  **remotes;
	Remote	  **waiting;		/* room for as many */
	int			nstreams;
	int			next;			/* whose turn it is */
	Datum	   *values;
	bool	   *nulls;
} CopySource;

static bool
copy_ready(Source *source)
{
	return remote_ready(((CopySource *) source)->remote);
}

static int
copy_version(Source *source)
{
	return remote_version(((CopySource *) source)->remote);
}

static char *
copy_relation_name(Source *source)
{
	Oid			relation = source->job->source;
	ForeignTable *table = GetForeignTable(relation);

	return quote_qualified_identifier(
		foreign_option(table->options, "schema_name", get_namespace_name(get_rel_namespace(relation))),
		foreign_option(table->options, "table_name", get_rel_name(relation)));
}

/* columns bear their local names outside of this item, whatever they are called there */
static char *
copy_from_clause(Source *source)
{
	Relation	rel = table_open(source->job->source, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	StringInfoData buf;
	const char *comma = "";

	initStringInfo(&buf);
	appendStringInfoString(&buf, "(SELECT ");
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		const char *remote_name;

		if (att->attisdropped || name_in_list(source->gone, NameStr(att->attname)))
			continue;
		remote_name = foreign_option(GetForeignColumnOptions(rel->rd_id, att->attnum),
									 "column_name", NameStr(att->attname));
		appendStringInfo(&buf, "%s%s", comma, quote_identifier(remote_name));
		if (strcmp(remote_name, NameStr(att->attname)) != 0)
			appendStringInfo(&buf, " AS %s", quote_identifier(NameStr(att->attname)));
		comma = ", ";
	}
	if (source->with_xmin)
		appendStringInfo(&buf, ", xmin AS %s", source->xmin);
	if (source->with_system)
		appendStringInfo(&buf, ", %s AS %s", source->with_system, source->system);
	appendStringInfo(&buf, " FROM %s) AS source", copy_relation_name(source));
	table_close(rel, AccessShareLock);
	return buf.data;
}

static TextRows *
copy_ask(Source *source, const char *sql)
{
	return remote_query(((CopySource *) source)->remote, sql, NULL);
}

static TextRows *
copy_ask_about(Source *source, const char *sql, const char *argument)
{
	return remote_query(((CopySource *) source)->remote, sql, argument);
}

static bool
copy_foresee(Source *source)
{
	const Job  *job = source->job;

	/* no job's name has a quote in it */
	return remote_follow(((CopySource *) source)->remote,
						 job->reads_tombstones ? psprintf("%s \"tombstones\"", job->name) : job->name);
}

static void
copy_expect(Source *source, const char *sql, const char *argument, bool wants_types)
{
	remote_expect(((CopySource *) source)->remote, sql, argument, wants_types);
}

static void
copy_foretell(Source *source, const char *sql)
{
	remote_foretell(((CopySource *) source)->remote, sql);
}

static TextRows *
copy_foretold(Source *source, const char *sql)
{
	return remote_foretold(((CopySource *) source)->remote, sql);
}

static void
copy_describe(Source *source, const char *sql, int ncolumns,
			  Oid *types, int32 *typmods, Oid *collations)
{
	remote_describe(((CopySource *) source)->remote, sql, ncolumns, types, typmods);
	for (int i = 0; i < ncolumns; i++)
		collations[i] = OidIsValid(types[i]) ? get_typcollation(types[i]) : InvalidOid;
}

static Remote *
connect(const Job *job, MemoryContext context)
{
	return remote_connect(GetForeignTable(job->source)->serverid, job->owner,
						  psprintf(SOURCE_READER_PREFIX "%s", job->name),
						  job->options->statement_timeout, job->options->lock_timeout,
						  /* so that a cast to a time without zone, in an expression, means what the horizon does */
						  job->options->source_timezone ? job->options->source_timezone : "UTC",
						  context);
}

/*
 * Several readers have a connection each, and read as of the first one's
 * snapshot: a row that moves meanwhile is in one part, as it was.
 */
static void
copy_open(Source *source, List *queries, const Shape *shape)
{
	CopySource *self = (CopySource *) source;
	int			n = list_length(queries);
	const char *snapshot = NULL;
	const char *lock = source->may_lock ? copy_relation_name(source) : NULL;
	const Source *beside = source->beside;
	Guard		guard = {.sql = source->outline_sql, .argument = copy_relation_name(source), .answer = source->outline};
	MemoryContext context = AllocSetContextCreate(source->context, "incload copy", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	/* a table that is rewritten looks empty to a snapshot of before */
	if (lock && beside && beside->may_lock)
		lock = psprintf("%s, %s", lock, copy_relation_name((Source *) beside));
	self->query_context = context;
	self->values = palloc(sizeof(Datum) * shape->desc->natts);
	self->nulls = palloc(sizeof(bool) * shape->desc->natts);
	self->streams = palloc0(sizeof(CopyStream *) * n);
	self->remotes = palloc0(sizeof(Remote *) * n);
	self->waiting = palloc0(sizeof(Remote *) * n);
	self->nstreams = n;
	self->next = 0;
	/* connections are made side by side */
	for (int i = 0; i < n; i++)
		self->remotes[i] = i == 0 ? self->remote : connect(source->job, context);
	if (n > 1)
		snapshot = remote_share_snapshot(self->remote, lock, source->outline ? &guard : NULL);
	for (int i = 1; i < n; i++)
		remote_take_snapshot(self->remotes[i], snapshot, lock);
	for (int i = 0; i < n; i++)
		self->streams[i] = copy_stream_open(self->remotes[i], list_nth(queries, i), lock,
											source->outline ? &guard : NULL, shape,
											source->job->source, source->puts_aside, context);
	MemoryContextSwitchTo(old);
}

/* the stream that is to be read next: one of which something has arrived; NULL when all have ended */
static CopyStream *
choose_stream(CopySource *self)
{
	bool		waits = self->nstreams > 1;

	for (;;)
	{
		int			n = 0;

		for (int i = 0; i < self->nstreams; i++)
		{
			int			which = self->next;

			self->next = (self->next + 1) % self->nstreams;
			if (copy_stream_ended(self->streams[which]))
				continue;
			if (!waits || copy_stream_arrived(self->streams[which]))
				return self->streams[which];
			self->waiting[n++] = self->remotes[which];
		}
		if (n == 0)
			return NULL;
		/* after that, wait for the one whose turn it is, lest rows lie here that were taken for none */
		waits = remote_wait_any(self->waiting, n);
	}
}

static bool
copy_read(Source *source, Stage *stage)
{
	CopySource *self = (CopySource *) source;
	CopyStream *stream;
	StreamState state = STREAM_ENDED;

	while (state != STREAM_FULL && (stream = choose_stream(self)) != NULL)
	{
		state = copy_stream_read(stream, stage, self->values, self->nulls, self->nstreams > 1);
		source->bytes_read += copy_stream_bytes(stream);
	}
	return state == STREAM_FULL;
}

static void
copy_close(Source *source)
{
	CopySource *self = (CopySource *) source;

	if (self->query_context == NULL)
		return;
	for (int i = 0; i < self->nstreams; i++)
	{
		copy_stream_close(self->streams[i]);
		/* one of a kind is kept, and this has heard more */
		if (i > 0)
			remote_disconnect(self->remotes[i]);
	}
	MemoryContextDelete(self->query_context);
	self->query_context = NULL;
}

static void
copy_release(Source *source)
{
	remote_release(((CopySource *) source)->remote);
}

static const SourceRoutine copy_routine = {
	.name = "copy",
	.outlives_commit = true,
	.reads_parts = true,
	.ready = copy_ready,
	.version = copy_version,
	.from_clause = copy_from_clause,
	.relation_name = copy_relation_name,
	.ask = copy_ask,
	.ask_about = copy_ask_about,
	.foresee = copy_foresee,
	.expect = copy_expect,
	.foretell = copy_foretell,
	.foretold = copy_foretold,
	.describe = copy_describe,
	.open = copy_open,
	.read = copy_read,
	.close = copy_close,
	.release = copy_release,
};

/*
 * No executor looks at the rights on the foreign table here. Which columns the
 * job's expressions use is known to the source's server alone, so the right on
 * all of them is asked for.
 */
static void
require_select(const Job *job)
{
	char	   *role = GetUserNameFromId(job->owner, false);

	if (pg_class_aclcheck(job->source, job->owner, ACL_SELECT) == ACLCHECK_OK ||
		pg_attribute_aclcheck_all(job->source, job->owner, ACL_SELECT, ACLMASK_ALL) == ACLCHECK_OK)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for source %s", job->source_name),
			 errdetail("Role \"%s\" may not SELECT all of it.", role),
			 errhint("GRANT SELECT ON %s TO %s; or set the option \"reader\" to \"relation\".",
					 job->source_name, quote_identifier(role))));
}

Source *
source_copy_connect(const Job *job, MemoryContext context)
{
	CopySource *self = MemoryContextAllocZero(context, sizeof(CopySource));

	require_select(job);
	self->base.routine = &copy_routine;
	self->base.job = job;
	self->base.context = context;
	self->base.is_postgres = true;
	self->base.xmin = "incload_xmin";
	while (get_attnum(job->source, self->base.xmin) != InvalidAttrNumber)
		self->base.xmin = psprintf("%s_", self->base.xmin);
	self->base.system = "incload_system";
	while (get_attnum(job->source, self->base.system) != InvalidAttrNumber)
		self->base.system = psprintf("%s_", self->base.system);
	self->remote = connect(job, context);
	return &self->base;
}
