/*
 * tombstone.c
 *		Tombstones: a relation at the source that lists the keys of deleted rows.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "advance.h"
#include "compat.h"
#include "deletes.h"
#include "execute.h"
#include "merge.h"
#include "names.h"
#include "query.h"
#include "shape_watermark.h"
#include "tombstone.h"
#include "trouble.h"

/* so many keys are asked for in one question */
#define KEYS_ASKED 500

/* the server that holds a relation; InvalidOid: this one */
static Oid
server_of(Oid relation)
{
	return get_rel_relkind(relation) == RELKIND_FOREIGN_TABLE ? GetForeignTable(relation)->serverid : InvalidOid;
}

/* one snapshot has to show both, so that a row and its tombstone cannot be seen at different times */
static void
require_beside(const Job *job, const Job *reading)
{
	if (reading->source == job->source)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("source %s cannot list its own deleted rows", job->source_name),
				 errdetail("A key that is in the source is not deleted."),
				 errhint("Name another relation as \"tombstone_source\"; for a column that marks rows, set {\"deletes\": \"soft\"}.")));
	if (server_of(reading->source) != server_of(job->source))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tombstones %s are not where source %s is", reading->source_name, job->source_name),
				 errdetail("Only a server that has both can tell, at one moment, which keys are deleted."),
				 errhint("Name a table of the same foreign server as \"tombstone_source\".")));
}

/* names of a relation's columns, but for these */
static List *
other_columns(Oid relation, List *names)
{
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, relation_column_names(relation))
		if (!name_in_list(names, lfirst(lc)))
			others = lappend(others, lfirst(lc));
	return others;
}

/* the reading of a job's tombstones, as if it were a job: their keys, with the transforms that the key has */
static Job *
reading_of(const Job *job, const Source *rows)
{
	Job		   *reading = memcpy(palloc(sizeof(Job)), job, sizeof(Job));
	JobOptions *options = options_parse(NULL);
	ListCell   *lc;

	reading->reads_tombstones = true;
	reading->source = relation_require_source(job->options->tombstone_source);
	reading->source_name = relation_qualified_name(reading->source);
	reading->watermark = job->options->tombstone_watermark ? job->options->tombstone_watermark : "deleted_at";
	reading->options = options;
	options->exclude = other_columns(reading->source, job->key);
	foreach(lc, job->options->transforms)
		if (name_in_list(job->key, ((Transform *) lfirst(lc))->column))
			options->transforms = lappend(options->transforms, lfirst(lc));
	options->reader = rows->routine->outlives_commit ? READER_COPY : READER_RELATION;
	options->settle = job->options->settle;
	options->source_timezone = job->options->source_timezone;
	options->statement_timeout = job->options->statement_timeout;
	options->lock_timeout = job->options->lock_timeout;
	options->max_rate = job->options->max_rate;
	return reading;
}

/*
 * Is a key told by the same value in both, and found in the target by it? A
 * type of its own may have an equality of its own, which incload's connection
 * does not see.
 */
static void
require_same_key(const Tombstones *self)
{
	for (int i = 0; i < self->shape->nkeys; i++)
	{
		const LoadColumn *row = &self->rows_shape->columns[self->rows_shape->key[i]];
		const LoadColumn *tombstone = &self->shape->columns[self->shape->key[i]];
		Oid			type = OidIsValid(row->source_type) ? getBaseType(row->source_type) : InvalidOid;

		if (!OidIsValid(tombstone->source_type) || getBaseType(tombstone->source_type) != type)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("key column \"%s\" has another type in the tombstones", row->name),
					 errdetail("It is %s in source %s, and %s in %s.",
							   OidIsValid(row->source_type) ? format_type_be(row->source_type) : "of a type that is not known here",
							   self->job->source_name,
							   OidIsValid(tombstone->source_type) ? format_type_be(tombstone->source_type) : "of a type that is not known here",
							   self->reading->source_name),
					 errhint("Give both the same type, at the source and here.")));
		if (type >= FirstGenbkiObjectId && !type_is_enum(type))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("tombstones cannot be told by key column \"%s\"", row->name),
					 errdetail("Whether two values of type %s are equal is for that type to say, at the source.", format_type_be(type)),
					 errhint("Use a key of built-in types, or mark deleted rows at the source: {\"deletes\": \"soft\"}.")));
		if (!column_keeps_digits(row) || !column_keeps_digits(tombstone))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("key column \"%s\" is rounded in target %s", row->name, self->job->target_name),
					 errdetail("Several keys of the source can be one there, and a tombstone of one would delete the others."),
					 errhint("Give it the type that it has at the source.")));
	}
}

Tombstones *
tombstones_open(const Job *job, Source *rows, const Shape *rows_shape, MemoryContext context)
{
	Tombstones *self = palloc0(sizeof(Tombstones));
	Trouble		trouble;

	trouble_begin(&trouble, psprintf("It came up while the tombstones %s were looked at.", job->options->tombstone_source),
				  "They need the columns of the key, under the same names, and a watermark, which the option \"tombstone_watermark\" names.");
	self->job = job;
	self->rows = rows;
	self->rows_shape = rows_shape;
	self->reading = reading_of(job, rows);
	require_beside(job, self->reading);
	self->source = source_connect(self->reading, context);
	self->source->beside = rows;
	if (!source_foresee(self->source))
		shape_foresee(self->source, self->reading);
	self->shape = shape_build(self->source, self->reading);
	/* how far to look again is said in the watermark's own terms */
	if (rows_shape->watermark && self->shape->watermark && rows_shape->watermark->kind == self->shape->watermark->kind)
		self->reading->options->lookback = job->options->lookback;
	require_same_key(self);
	trouble_end(&trouble);
	return self;
}

void
tombstones_look(Tombstones *self, bool for_update, bool is_full)
{
	self->checkpoint = checkpoint_read(self->job->id, self->shape, for_update);
	self->horizon = horizon_observe(self->source, self->reading, self->shape, self->checkpoint, is_full, NULL);
	horizon_correct(self->horizon, self->checkpoint);
	/* a refresh goes on with a source that is not what it was */
	if (is_full)
		self->checkpoint->bound.is_set = self->checkpoint->seen.is_set = false;
	self->window = window_next(self->reading, self->shape, self->checkpoint, self->horizon);
}

/* "the source has no row of this key that the job would read" */
static char *
key_is_gone(const Tombstones *self)
{
	const Shape *shape = self->rows_shape;
	StringInfoData names;
	StringInfoData same;
	const char *filter = self->job->options->filter;

	initStringInfo(&names);
	initStringInfo(&same);
	for (int i = 0; i < shape->nkeys; i++)
	{
		/* names of their own, so that those of the tombstones are not hidden */
		appendStringInfo(&names, "%s%s AS incload_key_%d", i ? ", " : "", shape->columns[shape->key[i]].expression, i);
		appendStringInfo(&same, "%salive.incload_key_%d OPERATOR(pg_catalog.=) %s", i ? " AND " : "", i,
						 self->shape->columns[self->shape->key[i]].expression);
	}
	return psprintf("NOT EXISTS (SELECT FROM (SELECT %s FROM %s%s%s) AS alive WHERE %s)",
					names.data, self->rows->routine->from_clause(self->rows),
					filter ? " WHERE " : "", filter ? expression_embed(filter, "option \"filter\"") : "", same.data);
}

/*
 * Does one query say which tombstones there are and which of their keys the
 * source has? Where the executor here would have to fetch all of the source for
 * that, it is asked for the keys themselves, in the same transaction: a wrapper
 * keeps its snapshot there, and what is here is asked by a later one.
 */
static bool
asks_at_once(const Tombstones *self)
{
	return self->rows->routine->outlives_commit || self->rows->is_local;
}

char *
tombstones_query(const Tombstones *self, int64 limit)
{
	return query_read(self->shape, self->source, NULL, &self->window,
					  asks_at_once(self) ? key_is_gone(self) : NULL,
					  limit > 0 ? READ_BY_WATERMARK : READ_ANY_ORDER, limit);
}

/* a key column as the source has it, and its type */
static const LoadColumn *
key_of_rows(const Tombstones *self, int i)
{
	const Shape *shape = self->rows_shape;

	return &shape->columns[shape_column_position(shape, self->shape->columns[i].name)];
}

char *
tombstones_question(const Tombstones *self, const char *keys)
{
	const Shape *shape = self->shape;
	const char *filter = self->job->options->filter;
	StringInfoData buf;

	if (asks_at_once(self))
		return NULL;
	initStringInfo(&buf);
	/* rows of the tombstones' own shape: all of its columns are the key's */
	for (int i = 0; i < shape->ncolumns; i++)
		appendStringInfo(&buf, "%s%s", i ? ", " : "SELECT ", key_of_rows(self, i)->expression);
	if (shape->watermark_position == shape->ncolumns)
		appendStringInfo(&buf, ", NULL::%s", shape->watermark->sql_name);
	appendStringInfo(&buf, " FROM %s WHERE ", self->rows->routine->from_clause(self->rows));
	if (filter)
		appendStringInfo(&buf, "%s AND ", expression_embed(filter, "option \"filter\""));
	appendStringInfo(&buf, "(%s)", keys);
	return buf.data;
}

/* an expression that makes of a staged key what stands for it in the question, as constants of the source's types */
static char *
key_as_condition(const Tombstones *self)
{
	const Shape *shape = self->shape;
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < shape->nkeys; i++)
	{
		const char *name = shape->columns[shape->key[i]].name;
		const LoadColumn *row = key_of_rows(self, shape->key[i]);

		appendStringInfo(&buf, "%s%s, pg_catalog.quote_literal(s.%s::pg_catalog.text), %s",
						 i ? ", " : "pg_catalog.concat(",
						 quote_literal_cstr(psprintf("%s%s OPERATOR(pg_catalog.=) ", i ? " AND " : "(", row->expression)),
						 quote_identifier(name),
						 quote_literal_cstr(psprintf("::%s", format_type_extended(row->source_type, -1,
																				  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY))));
	}
	appendStringInfoString(&buf, ", ')')");
	return buf.data;
}

/* conditions for the keys that are staged and that the target has, some at a time */
static TextRows *
conditions(const Tombstones *self, Stage *stage)
{
	MemoryContext context = CurrentMemoryContext;
	QueryEnvironment *environment = stage_environment(stage);
	PlanLead	lead = merge_delete_plan(self->job, self->shape, NULL, stage->nrows, false, environment).lead;
	TextRows   *rows;
	int			level;

	SPI_connect();
	level = execute_lead_planner(lead);
	if (SPI_register_relation(get_ENR(environment, STAGE_NAME)) != SPI_OK_REL_REGISTER ||
		SPI_execute(psprintf("SELECT pg_catalog.string_agg(s.incload_condition, ' OR ') FROM"
							 " (SELECT %s AS incload_condition, pg_catalog.row_number() OVER () OPERATOR(pg_catalog./) %d AS incload_part"
							 "  FROM " STAGE_NAME " AS s JOIN %s AS t ON %s) AS s GROUP BY s.incload_part",
							 key_as_condition(self), KEYS_ASKED, relation_qualified_name(self->job->target),
							 merge_key_condition(self->shape, "t", "s")), false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not make conditions of keys");
	execute_leave_planner(level);
	rows = text_rows_from_spi(context);
	SPI_finish();
	return rows;
}

/* takes those out of the stage whose keys the source has */
static void
spare_living(Tombstones *self, Stage *stage, MemoryContext context)
{
	const SourceRoutine *routine = self->rows->routine;
	TextRows   *asked = conditions(self, stage);
	QueryEnvironment *environment = stage_environment(stage);
	Stage	   *living;

	if (asked->nrows == 0)
		return;
	living = stage_create(self->reading, self->shape, 0, true, context);
	stage_begin_batch(living);
	for (int r = 0; r < asked->nrows; r++)
	{
		routine->open(self->rows, list_make1(tombstones_question(self, asked->value[r][0])), self->shape);
		while (routine->read(self->rows, living))
			continue;
		routine->close(self->rows);
	}
	stage_show(living, "incload_living", environment);
	if (living->nrows > 0)
		self->nspared = stage_keep(stage, psprintf("SELECT s.* FROM " STAGE_NAME " AS s WHERE NOT EXISTS"
												   " (SELECT FROM incload_living AS l WHERE %s)",
												   merge_key_condition(self->shape, "l", "s")), environment);
	stage_end_batch(living);
}

Stage *
tombstones_stage(Tombstones *self, int64 limit, MemoryContext context)
{
	Stage	   *stage = stage_create(self->reading, self->shape, 0, true, context);
	const SourceRoutine *routine = self->source->routine;

	stage->future = self->horizon->future;
	stage_begin_batch(stage);
	routine->open(self->source, list_make1(tombstones_query(self, limit)), self->shape);
	while (routine->read(self->source, stage))
		continue;
	routine->close(self->source);
	self->nread = stage->nrows;
	self->nspared = 0;
	stage_reduce(stage);
	if (stage->nrows > 0 && !asks_at_once(self))
		spare_living(self, stage, context);
	return stage;
}

/* moves the checkpoint of the tombstones as that of rows is moved, by a run of nothing else */
static void
advance(const Run *run, const Tombstones *self, Stage *stage)
{
	Run			reading = {0};

	reading.job = self->reading;
	reading.is_full = run->is_full;
	reading.context = CurrentMemoryContext;
	reading.record = palloc0(sizeof(RunRecord));
	reading.source = self->source;
	reading.shape = self->shape;
	reading.checkpoint = self->checkpoint;
	reading.horizon = self->horizon;
	reading.window = self->window;
	reading.stage = stage;
	advance_checkpoint(&reading, true);
	advance_note(&reading);
}

void
tombstones_apply(Run *run)
{
	Tombstones *self;
	ApplyCounts *counts = &run->record->counts;
	Stage	   *stage;
	int64		before = run->record->rows_read;
	Trouble		trouble;

	/* nothing more is asked of it: one connection does for both */
	source_release(run->source);
	self = tombstones_open(run->job, run->source, run->shape, CurrentMemoryContext);
	trouble_begin(&trouble, psprintf("It came up while the tombstones %s were read, or their rows deleted.", self->reading->source_name),
				  psprintf("SELECT * FROM incload_check(%s) compares the job with both sides and with the rights on them.",
						   quote_literal_cstr(run->job->name)));
	tombstones_look(self, true, run->is_full);
	stage = tombstones_stage(self, 0, CurrentMemoryContext);
	run->record->rows_read += self->nread;
	counts->superseded += stage->nsuperseded;
	counts->unchanged += self->nspared;
	if (stage->nrows > 0)
		merge_delete(run->job, self->shape, stage, deletes_scope(run->job, run->shape), stage->nrows, counts);
	/* they come with the last batch of rows, where there is one */
	if (run->record->rows_read > before && before == run->committed_read && !run->is_full)
		run->record->batches++;
	advance(run, self, stage);
	stage_end_batch(stage);
	run->source->bytes_read += self->source->bytes_read;
	source_release(self->source);
	trouble_end(&trouble);
}
