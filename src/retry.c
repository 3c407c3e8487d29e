/*
 * retry.c
 *		Rows that were put aside, on their way into the target once more.
 *
 * What a run has rejected may have been changed, or deleted, since then. A row
 * that has a key is read again from the source, and goes the way of any other.
 */
#include "postgres.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "catalog.h"
#include "compat.h"
#include "query.h"
#include "reject.h"
#include "retry.h"
#include "text_row.h"
#include "window.h"

/* keys that one query asks for */
#define KEYS_AT_ONCE 200

/* the text of a member of a reject's row; false where it has none of that name */
static bool
member_text(Jsonb *row, const char *name, char **text)
{
	JsonbValue	value;

	if (getKeyJsonValueFromContainer(&row->root, name, strlen(name), &value) == NULL)
		return false;
	*text = value.type == jbvString ? pnstrdup(value.val.string.val, value.val.string.len) : NULL;
	return true;
}

static Jsonb *
parse_row(const char *text)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
}

/*
 * Can the text of a value here be compared with values there, as what it is?
 * Else it is compared with their texts, which no index helps.
 */
static bool
has_literal(const LoadColumn *column)
{
	char		category;
	char		source_category;
	bool		preferred;

	if (!OidIsValid(column->source_type) || getBaseType(column->source_type) >= FirstGenbkiObjectId)
		return false;
	get_type_category_preferred(column->type, &category, &preferred);
	get_type_category_preferred(column->source_type, &source_category, &preferred);
	return category == source_category;
}

/* "it is this row", over the source's columns; NULL where the reject does not have the key of now */
static char *
row_condition(const Shape *shape, Jsonb *row)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < shape->nkeys; i++)
	{
		const LoadColumn *column = &shape->columns[shape->key[i]];
		char	   *text;

		if (!member_text(row, column->name, &text))
			return NULL;
		appendStringInfoString(&buf, i ? " AND " : "(");
		if (text == NULL)
			appendStringInfo(&buf, "%s IS NULL", column->expression);
		else
			appendStringInfo(&buf, has_literal(column) ? "%s OPERATOR(pg_catalog.=) %s"
							 : "CAST(%s AS pg_catalog.text) OPERATOR(pg_catalog.=) %s",
							 column->expression, quote_literal_cstr(text));
	}
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* stages what the source has now of the rows that a condition lets through */
static void
read_again(const Job *job, const Shape *shape, Source *source, Stage *stage, const char *condition)
{
	Window		everything = {.with_null = true};
	char	   *sql = query_read(shape, source, job->options->filter, &everything, psprintf("(%s)", condition),
								 shape->key_is_unique ? READ_ANY_ORDER : READ_BY_WATERMARK, 0);

	source->routine->open(source, list_make1(sql), shape);
	while (source->routine->read(source, stage))
		;
	source->routine->close(source);
}

/* StoredRow: one that is staged as it was read */
typedef struct StoredRow
{
	Stage	   *stage;
	TextInput  *input;
	Jsonb	   *row;
	char	  **texts;
	Datum	   *values;
	bool	   *nulls;
} StoredRow;

static void
stage_stored(void *arg)
{
	StoredRow  *stored = arg;
	TupleDesc	desc = stored->input->desc;

	for (int i = 0; i < desc->natts; i++)
	{
		const char *name = NameStr(TupleDescAttr(desc, i)->attname);

		stored->texts[i] = NULL;
		if (!member_text(stored->row, name, &stored->texts[i]))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("the row that was put aside has no value for column \"%s\"", name),
					 errdetail("The column is new to the job, and without a key the row cannot be read again."),
					 errhint("A full refresh reads everything again.")));
	}
	text_input_row(stored->input, stored->texts, stored->values, stored->nulls);
	(void) stage_put(stored->stage, stored->values, stored->nulls);
}

static void
read_stored(const Shape *shape, Stage *stage, const char *row)
{
	int			natts = shape->desc->natts;
	StoredRow	stored = {
		.stage = stage, .input = text_input_create(shape->desc), .row = parse_row(row),
		.texts = palloc0(sizeof(char *) * natts), .values = palloc(sizeof(Datum) * natts),
		.nulls = palloc(sizeof(bool) * natts)
	};
	ErrorData  *error = reject_try(stage_stored, &stored, NULL);

	if (error == NULL)
		return;
	/* all of it: the error came at the first that is bad */
	for (int i = 0; i < natts; i++)
		(void) member_text(stored.row, NameStr(TupleDescAttr(shape->desc, i)->attname), &stored.texts[i]);
	reject_unstaged(stage->rejects, stored.texts, true, error);
	stage->nrejected++;
}

static void
add_id(StringInfo ids, const char *id)
{
	appendStringInfo(ids, "%s%s", ids->len > 1 ? "," : "", id);
}

void
retry_read(Retry *retry, const Job *job, const Shape *shape, Source *source, Stage *stage)
{
	const char *params[1] = {catalog_number(job->id)};
	TextRows   *rows = catalog_query("SELECT reject_id, \"row\", is_exact FROM incload.reject_store"
									 " WHERE job_id = $1::bigint ORDER BY reject_id", 1, params);
	StringInfoData ids;
	StringInfoData condition;
	int			n = 0;

	initStringInfo(&ids);
	initStringInfo(&condition);
	appendStringInfoChar(&ids, '{');
	retry->found = rows->nrows;
	for (int i = 0; i < rows->nrows; i++)
	{
		char	  **v = rows->value[i];
		char	   *is_row = shape->nkeys > 0 ? row_condition(shape, parse_row(v[1])) : NULL;

		CHECK_FOR_INTERRUPTS();
		if (is_row)
		{
			appendStringInfo(&condition, "%s%s", n++ ? " OR " : "", is_row);
			add_id(&ids, v[0]);
		}
		/* bytes that were no text are not what they were */
		else if (shape->nkeys == 0 && v[2][0] == 't')
		{
			read_stored(shape, stage, v[1]);
			add_id(&ids, v[0]);
		}
		if (n == KEYS_AT_ONCE || (n > 0 && i == rows->nrows - 1))
		{
			read_again(job, shape, source, stage, condition.data);
			resetStringInfo(&condition);
			n = 0;
		}
	}
	appendStringInfoChar(&ids, '}');
	retry->tried = ids.data;
}

void
retry_settle(Retry *retry, const Job *job, const Shape *shape)
{
	const char *params[2] = {catalog_number(job->id), retry->tried};
	int64		left = 0;

	/* what was read again is out by now, or there as another; of the rest, a key that means the same on both sides tells */
	if (shape->nkeys == 0 || shape->key_is_portable)
		left = catalog_query("DELETE FROM incload.reject_store WHERE job_id = $1::bigint"
							 " AND reject_id = ANY ($2::bigint[]) RETURNING 1", 2, params)->nrows;
	retry->gone = shape->nkeys > 0 ? left : 0;
	retry->rejected = strtoi64(catalog_query("SELECT count(*) FROM incload.reject_store WHERE job_id = $1::bigint",
											 1, params)->value[0][0], NULL, 10);
	retry->applied = retry->found - retry->gone - retry->rejected;
}
