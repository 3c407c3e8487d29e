/*
 * preview.c
 *		incload_preview: the rows that the next run would read, and what it
 *		would do with each.
 *
 * The first rows of the next window are staged as a run stages them, and then
 * joined to the target instead of applied. No lock of the job is taken and
 * nothing is written. What triggers of the target would do is not foreseen.
 */
#include "postgres.h"

#include "executor/tstoreReceiver.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"

#include "compat.h"
#include "deletes.h"
#include "execute.h"
#include "names.h"
#include "outlook.h"
#include "role.h"
#include "shape_rows.h"

/* reads the first rows of the window into a stage, as one batch */
static Stage *
stage_first_rows(const Outlook *outlook, int max_rows)
{
	Stage	   *stage = stage_create(outlook->job, outlook->shape, 0, true, CurrentMemoryContext);

	stage_begin_batch(stage);
	if (!outlook->window.is_empty)
	{
		outlook->source->routine->open(outlook->source, outlook_queries(outlook, max_rows),
									   outlook->shape);
		while (outlook->source->routine->read(outlook->source, stage))
			continue;
		outlook->source->routine->close(outlook->source);
	}
	stage_reduce(stage);
	return stage;
}

/* a name for the rows' numbers that no column has */
static char *
place_name(const Shape *shape)
{
	char	   *name = pstrdup("place");

	for (int i = 0; i < shape->ncolumns; i++)
		if (strcmp(shape->columns[i].name, name) == 0)
		{
			name = psprintf("%s_", name);
			i = -1;
		}
	return name;
}

/*
 * compare_statement
 *		The SELECT of incload_preview's columns. Rows come in the order in which
 *		they were read; a row of the target is there where its key is not null.
 */
static char *
compare_statement(const Outlook *outlook, int max_rows)
{
	const Shape *shape = outlook->shape;
	const char *place = place_name(shape);
	StringInfoData columns;
	StringInfoData buf;
	char	   *differs = NULL;
	char	   *found = NULL;

	if (outlook->mode != APPLY_INSERT)
		found = psprintf("t.%s IS NOT NULL", quote_identifier(shape->columns[shape->key[0]].name));
	if (outlook->mode == APPLY_MERGE)
		differs = merge_update_condition(outlook->job, shape, "t", "s");

	initStringInfo(&columns);
	for (int i = 0; i < shape->desc->natts; i++)
		appendStringInfo(&columns, "%s, ", quote_identifier(NameStr(TupleDescAttr(shape->desc, i)->attname)));

	initStringInfo(&buf);
	appendStringInfoString(&buf, "SELECT CASE");
	if (shape->deleted_expression)
	{
		char	   *scope = deletes_scope(outlook->job, shape);
		const char *marked = quote_identifier(shape->deleted_name);

		appendStringInfo(&buf, " WHEN s.%s AND %s%s%s THEN 'delete' WHEN s.%s THEN 'unchanged'",
						 marked, found, scope ? " AND " : "", scope ? scope : "", marked);
	}
	if (differs)
		appendStringInfo(&buf, " WHEN %s AND %s THEN 'update'", found, differs);
	if (found)
		appendStringInfo(&buf, " WHEN %s THEN 'unchanged'", found);
	appendStringInfo(&buf, "%s 'insert' END, %s, %s, ", found ? " ELSE" : " WHEN true THEN",
					 shape->nkeys > 0 ? shape_as_json(shape, "s", true) : "NULL::pg_catalog.jsonb",
					 shape_as_json(shape, "s", false));
	if (found)
		appendStringInfo(&buf, "CASE WHEN %s THEN %s END", found, shape_as_json(shape, "t", false));
	else
		appendStringInfoString(&buf, "NULL::pg_catalog.jsonb");
	appendStringInfo(&buf, " FROM (SELECT x.*, pg_catalog.row_number() OVER () FROM " STAGE_NAME
					 " AS x) AS s(%s%s)", columns.data, place);
	if (found)
		appendStringInfo(&buf, " LEFT JOIN %s AS t ON %s",
						 relation_qualified_name(outlook->job->target),
						 merge_key_condition(shape, "t", "s"));
	appendStringInfo(&buf, " ORDER BY s.%s LIMIT %d", place, max_rows);
	return buf.data;
}

/* the same for tombstones, which have a key alone */
static char *
compare_tombstones(const Outlook *outlook)
{
	const Shape *shape = outlook->tombstones->shape;
	char	   *scope = deletes_scope(outlook->job, outlook->shape);

	return psprintf("SELECT CASE WHEN t.%s IS NOT NULL%s%s THEN 'delete' ELSE 'unchanged' END, %s, NULL::pg_catalog.jsonb,"
					" CASE WHEN t.%s IS NOT NULL THEN %s END FROM " STAGE_NAME " AS s LEFT JOIN %s AS t ON %s",
					quote_identifier(shape->columns[shape->key[0]].name), scope ? " AND " : "", scope ? scope : "",
					shape_as_json(shape, "s", true), quote_identifier(shape->columns[shape->key[0]].name),
					shape_as_json(outlook->shape, "t", false), relation_qualified_name(outlook->job->target),
					merge_key_condition(shape, "t", "s"));
}

PG_FUNCTION_INFO_V1(incload_preview);

/*
 * incload_preview(job, max_rows) → (action, key, new_row, old_row)
 *		At most so many rows of the next run, in the order of the watermark.
 */
Datum
incload_preview(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int			max_rows = PG_GETARG_INT32(1);
	Job		   *job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	RoleBracket bracket;
	Outlook    *outlook;
	Stage	   *stage;
	DestReceiver *dest;

	if (max_rows < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_rows must be at least 1"),
				 errdetail("It is %d.", max_rows),
				 errhint("incload_preview shows that many of the rows that the next run would read.")));
	job_require_whole(job);
	InitMaterializedSRF(fcinfo, 0);

	role_enter_owner(&bracket, job->owner, job->search_path);
	outlook = outlook_open(job);
	stage = stage_first_rows(outlook, max_rows);
	dest = CreateDestReceiver(DestTuplestore);
	SetTuplestoreDestReceiverParams(dest, rsinfo->setResult,
									rsinfo->econtext->ecxt_per_query_memory, false, NULL, NULL);
	max_rows -= execute_statement(compare_statement(outlook, max_rows), stage_environment(stage), dest).processed;
	stage_end_batch(stage);
	if (outlook->tombstones && max_rows > 0)
	{
		stage = tombstones_stage(outlook->tombstones, max_rows, CurrentMemoryContext);
		(void) execute_statement(psprintf("%s LIMIT %d", compare_tombstones(outlook), max_rows),
								 stage_environment(stage), dest);
		stage_end_batch(stage);
	}
	outlook_close(outlook);
	role_leave(&bracket);
	return (Datum) 0;
}
