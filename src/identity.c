/*
 * identity.c
 *		Whether a source is the one that a checkpoint was made for.
 *
 * Another server has other rows below the checkpoint, and nobody would ever
 * read them. The same server after a failover, or another table under the
 * source's name, has rows that can be looked at again, where there is a key. A
 * source in the job's own database goes with it, whatever becomes of the server.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "catalog.h"
#include "identity.h"

/* parts of an epoch (witness.c) */
#define EPOCH_SERVER 0
#define EPOCH_TIMELINE 1
#define EPOCH_RELATION 5

/* the n-th of an epoch's parts, from 0 */
static char *
epoch_part(const char *epoch, int n)
{
	for (; n > 0; n--)
		epoch += strcspn(epoch, "/") + 1;
	return pnstrdup(epoch, strcspn(epoch, "/"));
}

static bool
is_here(const char *epoch)
{
	size_t		length = strlen(epoch);
	size_t		end = strlen(EPOCH_HERE);

	return length > end && strcmp(epoch + length - end, EPOCH_HERE) == 0;
}

/* "database.relation.here" without the database */
static char *
relation_here(const char *epoch)
{
	return strchr(epoch_part(epoch, EPOCH_RELATION), '.') + 1;
}

/* the same server and database, on whatever timeline */
static bool
same_database(const char *was, const char *is)
{
	char	   *a = epoch_part(was, EPOCH_RELATION);
	char	   *b = epoch_part(is, EPOCH_RELATION);

	return strcmp(epoch_part(was, EPOCH_SERVER), epoch_part(is, EPOCH_SERVER)) == 0 &&
		strcspn(a, ".") == strcspn(b, ".") && strncmp(a, b, strcspn(a, ".")) == 0;
}

/*
 * Has a source in this database come with the checkpoint, and both as of one moment? By a
 * promotion, a backup, pg_upgrade or a copy of the database they have. In a dump they are as
 * of one moment, too, but while it is restored the job can be there before the rows.
 */
static bool
came_along(const Job *job, const Checkpoint *checkpoint, const SourceState *state)
{
	return is_here(checkpoint->epoch) && is_here(state->epoch) &&
		(same_database(checkpoint->epoch, state->epoch) || catalog_has_history(job->id));
}

/*
 * A new timeline: a standby was promoted, or a backup restored. What had not
 * reached it is gone from the source, and its sequences may give out ids once
 * more that were given out before. So everything is read again, where that
 * doubles nothing.
 */
static bool
accept_timeline(const Job *job, const Checkpoint *checkpoint, const SourceState *state)
{
	char	   *was = epoch_part(checkpoint->epoch, EPOCH_TIMELINE);
	char	   *is = epoch_part(state->epoch, EPOCH_TIMELINE);

	if (strcmp(was, is) == 0)
		return false;
	if (job->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("source %s of job \"%s\" is on another timeline than before", job->source_name, job->name),
				 errdetail("It was %s and is %s: a standby was promoted, or a backup restored, and without a key nothing can be read again to see what was lost.", was, is),
				 errhint("SELECT incload_accept_source(%s) goes on from the checkpoint; SELECT incload_refresh(%s) loads it anew.",
						 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
	catalog_event_once(job, "new_timeline", is,
					   psprintf("the source is on timeline %s and was on %s, by a promotion or a restored backup: everything is read again",
								is, was));
	return true;
}

/*
 * Another table of the same server: it was dropped and made again, or one that
 * was made beside it has taken its name, or the foreign server leads to another
 * database. Its rows may be older than the checkpoint, and nobody would read them.
 */
static bool
accept_relation(const Job *job, const Checkpoint *checkpoint, const SourceState *state, bool along)
{
	char	   *was = along ? relation_here(checkpoint->epoch) : epoch_part(checkpoint->epoch, EPOCH_RELATION);
	char	   *is = along ? relation_here(state->epoch) : epoch_part(state->epoch, EPOCH_RELATION);

	if (strcmp(was, is) == 0)
		return false;
	if (job->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("source %s of job \"%s\" is another table than before", job->source_name, job->name),
				 errdetail("It was dropped and created again, or another one has taken its name, and without a key nothing can be read again to see what is new."),
				 errhint("SELECT incload_accept_source(%s) goes on from the checkpoint; SELECT incload_refresh(%s) loads it anew.",
						 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
	catalog_event_once(job, "source_replaced", is,
					   "the source is another table than before, of the same name: everything is read again");
	return true;
}

bool
identity_check(const Job *job, const Checkpoint *checkpoint, const SourceState *state)
{
	char	   *was;
	char	   *is;
	bool		reread;

	if (checkpoint->epoch == NULL)
		return false;
	if (came_along(job, checkpoint, state))
		return accept_relation(job, checkpoint, state, true);
	was = epoch_part(checkpoint->epoch, EPOCH_SERVER);
	is = epoch_part(state->epoch, EPOCH_SERVER);
	if (strcmp(was, is) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("source %s of job \"%s\" is on another server than before", job->source_name, job->name),
				 errdetail("Its system identifier is %s, and was %s.", is, was),
				 errhint("If it has the same rows, as after an upgrade, SELECT incload_accept_source(%s) goes on with it; SELECT incload_refresh(%s) loads it anew.",
						 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
	reread = accept_timeline(job, checkpoint, state);
	return accept_relation(job, checkpoint, state, false) || reread;
}

bool
identity_check_type(const Job *job, const Checkpoint *checkpoint, const Shape *shape)
{
	if (checkpoint->was_type == NULL)
		return false;
	if (job->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("watermark %s of job \"%s\" has another type than before", job->watermark, job->name),
				 errdetail("It was %s and is %s, and without a key nothing can be read again to see what is new.",
						   checkpoint->was_type, shape->watermark->sql_name),
				 errhint("SELECT incload_refresh(%s) loads the source anew.", quote_literal_cstr(job->name))));
	catalog_event_once(job, "watermark_retyped", shape->watermark->sql_name,
					   psprintf("watermark %s was of type %s and is of type %s: everything is read again",
								job->watermark, checkpoint->was_type, shape->watermark->sql_name));
	return true;
}

/* which of them stand in no earlier list, as "1,2"; NULL: none. Both lists are sorted and have no blanks. */
static char *
relations_new_in(const char *is, const char *was)
{
	char	   *known = psprintf(",%s,", was);
	StringInfoData buf;
	char	   *oid;
	char	   *rest = NULL;

	initStringInfo(&buf);
	for (oid = strtok_r(pstrdup(is), ",", &rest); oid; oid = strtok_r(NULL, ",", &rest))
		if (strstr(known, psprintf(",%s,", oid)) == NULL)
			appendStringInfo(&buf, "%s%s", buf.len > 0 ? "," : "", oid);
	return buf.len > 0 ? buf.data : NULL;
}

/* has one of these children of the source a row below the checkpoint? */
static bool
has_old_rows(Source *source, const Job *job, const Shape *shape, const Checkpoint *checkpoint,
			 const char *children)
{
	char	   *from;
	char	   *sql;

	source->with_system = "tableoid";
	from = source->routine->from_clause(source);
	source->with_system = NULL;
	sql = psprintf("SELECT 1 FROM %s WHERE %s OPERATOR(pg_catalog.=) ANY ('{%s}'::pg_catalog.oid[]) AND %s OPERATOR(pg_catalog.<=) %s LIMIT 1",
				   from, source->system, children, shape->watermark_expression,
				   watermark_literal(shape->watermark, checkpoint->bound.value));
	return source->routine->ask(source, sql)->nrows > 0;
}

/*
 * Children that are new and have rows at all: those that are made ahead, empty, are
 * of no interest. Behind a view, a child may be of any table.
 */
static const char newcomers_query[] =
"SELECT pg_catalog.string_agg(c.oid::pg_catalog.text, ',') FILTER (WHERE i.inhrelid IS NOT NULL),"
" pg_catalog.bool_or(i.inhrelid IS NULL)"
" FROM pg_catalog.pg_class c LEFT JOIN (SELECT DISTINCT h.inhrelid FROM pg_catalog.pg_inherits h) i"
" ON i.inhrelid = c.oid"
" WHERE c.oid = ANY (pg_catalog.string_to_array($1, ',')::pg_catalog.oid[]) AND c.relkind <> 'S'"
" AND (c.relkind <> 'r' OR pg_catalog.pg_relation_size(c.oid) > 0) AND c.relkind <> 'p'";

bool
identity_check_relations(Source *source, const Job *job, const Shape *shape,
						 const Checkpoint *checkpoint, const SourceState *state)
{
	char	   *newcomers;
	char	  **v;
	bool		brings_old;

	/* the watermark xmin has no bound, and reads again whenever the list is another one */
	if (checkpoint->epoch == NULL || checkpoint->relations == NULL || !checkpoint->bound.is_set)
		return false;
	newcomers = relations_new_in(state->relations, checkpoint->relations);
	if (newcomers == NULL)
		return false;
	v = source_ask_catalog_about(source, newcomers_query, newcomers)->value[0];
	if (state->is_table)
		brings_old = v[0] != NULL && has_old_rows(source, job, shape, checkpoint, v[0]);
	else
		brings_old = v[1] && v[1][0] == 't';
	if (!brings_old)
		return false;
	if (job->key == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("source %s of job \"%s\" has got a table with older rows", job->source_name, job->name),
				 state->is_table ? errdetail("A partition or a child was attached that has rows below the checkpoint, and without a key they would be missed or doubled.")
				 : errdetail("The view reads a table that it did not read before, and without a key its older rows would be missed or doubled."),
				 errhint("SELECT incload_accept_source(%s) goes on from the checkpoint; SELECT incload_refresh(%s) loads it anew.",
						 quote_literal_cstr(job->name), quote_literal_cstr(job->name))));
	catalog_event_once(job, "source_extended", newcomers,
					   state->is_table ? "a partition or a child with older rows was attached to the source: everything is read again"
					   : "the source is a view that reads a table which it did not read before: everything is read again");
	return true;
}
