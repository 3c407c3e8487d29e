/*
 * source_copy.c
 *		The reader for tables of postgres_fdw: COPY over a connection of its own.
 *
 * Where every column has the same binary form on both sides, rows come in
 * COPY's binary format, else as text. The server's own COPY code parses them,
 * from a callback that waits on the latch.
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
#include "commands/copy.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "compat.h"
#include "login.h"
#include "remote.h"
#include "source.h"

typedef struct CopySource
{
	Source		base;
	Remote	   *remote;

	/* the query that is open */
	MemoryContext query_context;
	MemoryContext row_context;
	CopyFromState copy;
	RelationData relation;		/* stands for the stage, of which there is no relation */
	FormData_pg_class relation_form;
	Datum	   *values;
	bool	   *nulls;
	const char *piece;			/* what is left of the last piece received */
	int			piece_left;
	bool		ended;
} CopySource;

/*
 * COPY's callback has no argument of its own. A value's input function can run
 * another job (a domain's check can do anything): whoever sets this puts back
 * what was there.
 */
static CopySource *reading = NULL;

static int
receive(void *buffer, int min_bytes, int max_bytes)
{
	CopySource *self = reading;
	char	   *to = buffer;
	int			got = 0;

	while (got < max_bytes)
	{
		int			n;

		if (self->piece_left == 0)
		{
			if (self->ended)
				break;
			/* what has arrived is taken; more is waited for only where it is needed */
			n = remote_copy_next(self->remote, &self->piece, got < min_bytes);
			if (n == 0)
				break;
			if (n < 0)
			{
				self->ended = true;
				break;
			}
			self->piece_left = n;
			self->base.bytes_read += n;
		}
		n = Min(self->piece_left, max_bytes - got);
		memcpy(to + got, self->piece, n);
		self->piece += n;
		self->piece_left -= n;
		got += n;
	}
	return got;
}

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

		if (att->attisdropped)
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
	return remote_follow(((CopySource *) source)->remote, source->job->name);
}

static void
copy_expect(Source *source, const char *sql, const char *argument, bool wants_types)
{
	remote_expect(((CopySource *) source)->remote, sql, argument, wants_types);
}

static void
copy_describe(Source *source, const char *sql, int ncolumns,
			  Oid *types, int32 *typmods, Oid *collations)
{
	remote_describe(((CopySource *) source)->remote, sql, ncolumns, types, typmods);
	for (int i = 0; i < ncolumns; i++)
		collations[i] = OidIsValid(types[i]) ? get_typcollation(types[i]) : InvalidOid;
}

/* the relation that COPY's parser asks for column types and for its name in messages */
static void
make_relation(CopySource *self, const Shape *shape)
{
	memset(&self->relation, 0, sizeof(self->relation));
	memset(&self->relation_form, 0, sizeof(self->relation_form));
	self->relation.rd_att = shape->desc;
	self->relation.rd_rel = &self->relation_form;
	self->relation.rd_id = self->base.job->source;
	self->relation_form.relkind = RELKIND_RELATION;
	namestrcpy(&self->relation_form.relname, get_rel_name(self->base.job->source));
}

static void
copy_open(Source *source, const char *sql, const Shape *shape)
{
	CopySource *self = (CopySource *) source;
	CopySource *outer;
	List	   *options;
	MemoryContext old;

	remote_copy_start(self->remote, psprintf("COPY (%s) TO STDOUT (FORMAT %s)", sql,
											 shape->all_binary ? "binary" : "text"));

	self->query_context = AllocSetContextCreate(source->context, "incload copy", ALLOCSET_DEFAULT_SIZES);
	self->row_context = AllocSetContextCreate(self->query_context, "incload row", ALLOCSET_DEFAULT_SIZES);
	self->piece_left = 0;
	self->ended = false;

	old = MemoryContextSwitchTo(self->query_context);
	make_relation(self, shape);
	self->values = palloc(sizeof(Datum) * shape->desc->natts);
	self->nulls = palloc(sizeof(bool) * shape->desc->natts);
	options = list_make2(makeDefElem("format",
									 (Node *) makeString(shape->all_binary ? "binary" : "text"), -1),
						 makeDefElem("encoding",
									 (Node *) makeString((char *) GetDatabaseEncodingName()), -1));
	outer = reading;
	PG_TRY();
	{
		reading = self;
		self->copy = BeginCopyFrom(NULL, &self->relation, NULL, NULL, false, receive, NIL, options);
	}
	PG_FINALLY();
	{
		reading = outer;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
}

static bool
copy_read(Source *source, Stage *stage)
{
	CopySource *self = (CopySource *) source;
	ErrorContextCallback callback;
	CopySource *outer = reading;
	int			encoding = pg_get_client_encoding();
	volatile bool taken = true;
	volatile bool more = false;
	MemoryContext old = MemoryContextSwitchTo(self->row_context);

	callback.callback = CopyFromErrorCallback;
	callback.arg = self->copy;
	callback.previous = error_context_stack;
	error_context_stack = &callback;

	PG_TRY();
	{
		reading = self;
		/* binary text is taken to be in the client's encoding; what comes is in the database's */
		SetClientEncoding(GetDatabaseEncoding());
		do
		{
			MemoryContextReset(self->row_context);
			more = NextCopyFrom(self->copy, NULL, self->values, self->nulls);
			if (more)
				taken = stage_put(stage, self->values, self->nulls);
		} while (more && taken);
	}
	PG_FINALLY();
	{
		reading = outer;
		SetClientEncoding(encoding);
	}
	PG_END_TRY();

	error_context_stack = callback.previous;
	MemoryContextSwitchTo(old);
	return more;
}

static void
copy_close(Source *source)
{
	CopySource *self = (CopySource *) source;

	if (self->query_context == NULL)
		return;
	/* rows are left that nobody wants: only ending the session stops them */
	if (!self->ended)
		remote_disconnect(self->remote);
	if (self->copy)
		EndCopyFrom(self->copy);
	self->copy = NULL;
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
	.ready = copy_ready,
	.version = copy_version,
	.from_clause = copy_from_clause,
	.relation_name = copy_relation_name,
	.ask = copy_ask,
	.ask_about = copy_ask_about,
	.foresee = copy_foresee,
	.expect = copy_expect,
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
	self->remote = remote_connect(GetForeignTable(job->source)->serverid, job->owner,
								  psprintf(SOURCE_READER_PREFIX "%s", job->name),
								  job->options->statement_timeout, job->options->lock_timeout,
								  /* so that a cast to a time without zone, in an expression, means what the horizon does */
								  job->options->source_timezone ? job->options->source_timezone : "UTC",
								  context);
	return &self->base;
}
