/*
 * checkpoint.c
 *		How far a job is loaded for certain.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "checkpoint.h"
#include "compat.h"
#include "shape.h"

static BoundSide
side_from_text(const char *text)
{
	return strcmp(text, "after") == 0 ? BOUND_AFTER : BOUND_BEFORE;
}

static List *
noted_from_json(const char *json, const WatermarkType *type)
{
	const char *params[1] = {json};
	TextRows   *rows;
	List	   *noted = NIL;

	if (strcmp(json, "[]") == 0)
		return NIL;
	rows = catalog_query("SELECT n->>'bound', n->>'side', n->>'at', n->>'waits'"
						 " FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS e(n, i) ORDER BY i",
						 1, params);
	for (int i = 0; i < rows->nrows; i++)
	{
		NotedBound *note = palloc0(sizeof(NotedBound));

		note->bound.is_set = true;
		note->bound.value = watermark_parse(type, rows->value[i][0]);
		note->bound.side = side_from_text(rows->value[i][1]);
		note->at = instant_parse(rows->value[i][2]);
		/* virtual transactions have neither blanks nor commas */
		for (char *word = strtok(rows->value[i][3], " "); word; word = strtok(NULL, " "))
			note->waits = lappend(note->waits, word);
		noted = lappend(noted, note);
	}
	return noted;
}

static char *
noted_to_json(List *noted, const WatermarkType *type)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '[');
	foreach(lc, noted)
	{
		NotedBound *note = lfirst(lc);

		if (buf.len > 1)
			appendStringInfoChar(&buf, ',');
		appendStringInfoString(&buf, "{\"bound\":");
		escape_json(&buf, watermark_print(type, note->bound.value));
		appendStringInfo(&buf, ",\"side\":\"%s\",\"at\":\"%s\",\"waits\":\"",
						 bound_side_name(note->bound.side), timestamptz_to_str(note->at));
		for (int i = 0; i < list_length(note->waits); i++)
			appendStringInfo(&buf, "%s%s", i ? " " : "", (char *) list_nth(note->waits, i));
		appendStringInfoString(&buf, "\"}");
	}
	appendStringInfoChar(&buf, ']');
	return buf.data;
}

/* numbers alone mean the same in each of their types */
static bool
same_reading(const char *was_type, const WatermarkType *type)
{
	static const char *const numbers[] = {"smallint", "integer", "bigint", "numeric"};

	if (was_type == NULL || strcmp(was_type, type->sql_name) == 0)
		return true;
	for (int i = 0; i < lengthof(numbers); i++)
		if (strcmp(was_type, numbers[i]) == 0 || strcmp(was_type, psprintf("pg_catalog.\"%s\"", numbers[i])) == 0)
			return type->type == INT2OID || type->type == INT4OID || type->type == INT8OID ||
				type->type == NUMERICOID;
	return false;
}

Checkpoint *
checkpoint_read(int64 job_id, const Shape *shape, bool for_update)
{
	CheckpointRow *row = shape->of_tombstones ? catalog_read_tombstones(job_id, for_update)
		: catalog_read_checkpoint(job_id, for_update);
	Checkpoint *checkpoint = palloc0(sizeof(Checkpoint));
	const WatermarkType *type = shape->watermark;

	checkpoint->job_id = job_id;
	checkpoint->guarantee = row->guarantee;
	checkpoint->held_back_by = row->held_back_by;
	checkpoint->epoch = row->epoch;
	checkpoint->loaded_to = row->loaded_to;
	if (row->mark)
		checkpoint->mark = strtou64(row->mark, NULL, 10);
	checkpoint->definition_hash = row->definition_hash;
	checkpoint->relations = row->relations;
	if (type == NULL)
		return checkpoint;
	if (!same_reading(row->bound_type, type))
	{
		checkpoint->was_type = row->bound_type;
		checkpoint->loaded_to = NULL;
		checkpoint->mark = 0;
		return checkpoint;
	}
	if (row->bound)
	{
		checkpoint->bound.is_set = true;
		checkpoint->bound.value = watermark_parse(type, row->bound);
		checkpoint->bound.side = side_from_text(row->bound_side);
		checkpoint->bound.tie_key = row->tie_key;
	}
	if (row->seen && row->mark)
	{
		checkpoint->seen.is_set = true;
		checkpoint->seen.value = watermark_parse(type, row->seen);
		checkpoint->seen.side = BOUND_AFTER;
		checkpoint->seen.tie_key = row->seen_tie_key;
	}
	checkpoint->seen_null = row->seen_null;
	checkpoint->noted = noted_from_json(row->noted_bounds, type);
	if (shape->fallback == NULL)
		return checkpoint;
	if (row->fallback_bound)
	{
		checkpoint->fallback.is_set = true;
		checkpoint->fallback.value = watermark_parse(shape->fallback, row->fallback_bound);
		checkpoint->fallback.side = side_from_text(row->fallback_side);
	}
	checkpoint->fallback_noted = noted_from_json(row->fallback_noted, shape->fallback);
	return checkpoint;
}

void
checkpoint_write(const Checkpoint *checkpoint, const Shape *shape)
{
	CheckpointRow row = {.noted_bounds = "[]", .fallback_noted = "[]"};
	const WatermarkType *type = shape->watermark;

	if (checkpoint->bound.is_set)
	{
		row.bound = watermark_print(type, checkpoint->bound.value);
		row.bound_side = (char *) bound_side_name(checkpoint->bound.side);
		row.tie_key = checkpoint->bound.tie_key;
	}
	row.relations = (char *) checkpoint->relations;
	if (type)
		row.bound_type = type->sql_name;
	if (type)
		row.noted_bounds = noted_to_json(checkpoint->noted, type);
	if (checkpoint->fallback.is_set)
	{
		row.fallback_bound = watermark_print(shape->fallback, checkpoint->fallback.value);
		row.fallback_side = (char *) bound_side_name(checkpoint->fallback.side);
	}
	if (shape->fallback)
		row.fallback_noted = noted_to_json(checkpoint->fallback_noted, shape->fallback);
	row.guarantee = (char *) checkpoint->guarantee;
	row.held_back_by = (char *) checkpoint->held_back_by;
	row.epoch = (char *) checkpoint->epoch;
	if (checkpoint->seen.is_set)
	{
		row.seen = watermark_print(type, checkpoint->seen.value);
		row.seen_tie_key = checkpoint->seen.tie_key;
	}
	if (checkpoint->mark != 0)
		row.mark = psprintf(UINT64_FORMAT, checkpoint->mark);
	row.seen_null = checkpoint->seen_null;
	row.definition_hash = (char *) checkpoint->definition_hash;
	row.loaded_to = checkpoint->loaded_to;
	if (shape->of_tombstones)
		catalog_write_tombstones(checkpoint->job_id, &row);
	else
		catalog_write_checkpoint(checkpoint->job_id, &row);
}
