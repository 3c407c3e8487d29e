/*
 * shape_watermark.c
 *		What a job's shape says of its watermark.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "facts.h"
#include "names.h"
#include "query.h"
#include "shape.h"
#include "shape_watermark.h"
#include "source.h"

bool
shape_tracks_xmin(const Job *job)
{
	/* a view can have a column of that name, which is one like any other */
	return job->strategy != STRATEGY_FULL && job->watermark && strcmp(job->watermark, "xmin") == 0 &&
		!name_in_list(relation_column_names(job->source), job->watermark);
}

char *
shape_watermark_expression(const Job *job)
{
	List	   *names;

	if (job->strategy == STRATEGY_FULL || job->watermark == NULL || shape_tracks_xmin(job))
		return NULL;
	names = relation_column_names(job->source);
	if (name_in_list(names, job->watermark))
		return pstrdup(quote_identifier(job->watermark));
	if (job->watermark[0] == '(')
	{
		char	   *expression = expression_embed(job->watermark, "the watermark");

		if (!expression_names_column(job->watermark))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("watermark %s depends on no column", job->watermark),
					 errdetail("It is the same for every row, or another one each time."),
					 errhint("Name a column, or write an expression over columns of %s.", job->source_name)));
		return expression;
	}
	shape_unknown_column("source", job->source_name, names, job->watermark, "watermark");
	return NULL;				/* keep compiler quiet */
}

bool
column_keeps_digits(const LoadColumn *column)
{
	int32		typmod = column->typmod;

	(void) getBaseTypeAndTypmod(column->type, &typmod);
	return typmod == -1 || typmod == column->source_typmod;
}

static void
match_watermark(const Job *job, Shape *shape, Oid type, int32 typmod, Oid collation)
{
	int			position;

	shape->watermark_position = -1;
	shape->watermark_expression = shape_watermark_expression(job);
	if (shape->watermark_expression == NULL)
		return;
	shape->watermark = watermark_type(type, collation);
	shape->watermark->typmod = typmod;
	shape->watermark->is_expression = get_attnum(job->source, job->watermark) == InvalidAttrNumber;
	watermark_read_as(shape->watermark, job->options->watermark_kind);
	shape->watermark_position = shape->ncolumns;
	shape->watermark_name = pstrdup("incload_watermark");
	while (shape_column_position(shape, shape->watermark_name) >= 0)
		shape->watermark_name = psprintf("%s_", shape->watermark_name);

	position = shape_column_position(shape, job->watermark);
	if (position >= 0 && !shape->columns[position].is_transform &&
		getBaseType(shape->columns[position].type) == shape->watermark->type &&
		shape->columns[position].same_binary &&
		column_keeps_digits(&shape->columns[position]))
		shape->watermark_position = position;
	if (job->options->only_newer && shape->watermark_position == shape->ncolumns)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"only_newer\" needs the watermark as a column of the target"),
				 errdetail("Versions are compared by it, and %s is not loaded as it is.", job->watermark),
				 errhint("Name a column as watermark, and load it without a transform and into a column of its own type.")));
}

static bool
watermark_not_null(const SourceFacts *facts, const Job *job)
{
	SourceColumn *column = job->watermark ? facts_column(facts, job->watermark) : NULL;

	/* a foreign table's own NOT NULL is a promise that nobody keeps */
	return column && column->not_null && !facts->has_children &&
		(facts->kind == RELKIND_RELATION || facts->kind == RELKIND_PARTITIONED_TABLE);
}

/* the transaction that wrote a row is told by PostgreSQL alone, and of its tables alone */
static void
require_xmin(Source *source, const Job *job, const Shape *shape, const SourceFacts *facts)
{
	bool		is_table = facts->kind == RELKIND_RELATION || facts->kind == RELKIND_PARTITIONED_TABLE;
	bool		by_other_reader = !source->routine->outlives_commit && source_is_postgres_fdw(job->source);

	if (shape->nkeys == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("watermark xmin needs a key"),
				 errdetail("Rows of transactions that overlap a run are read twice, and without a key would be doubled."),
				 errhint("Name the columns that identify a row: key => '{id}'.")));
	if (!is_table || (!source->is_local && !source->routine->outlives_commit))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("source %s does not tell which transaction wrote a row", job->source_name),
				 by_other_reader ? errdetail("Only the reader \"copy\" can ask for it.")
				 : errdetail("Only tables of PostgreSQL have an xmin."),
				 by_other_reader ? errhint("Leave the option \"reader\" out.")
				 : errhint("Track a column by watermark => '...', or use strategy full.")));
}

static WatermarkFeed
feed_of(const SourceFacts *facts, const char *name)
{
	SourceColumn *column = name ? facts_column(facts, name) : NULL;

	if (column == NULL || !column->is_counted)
		return FEED_OTHER;
	return column->is_cached ? FEED_CACHE : FEED_SEQUENCE;
}

/* does the source's catalog say that no two rows have the same? */
static bool
is_unique(const SourceFacts *facts, const char *name)
{
	return name && !facts->has_children && facts_unique_within(facts, list_make1((void *) name));
}

/* the option watermark_fallback: an id, of the relation's own columns */
static void
match_fallback(const Job *job, Shape *shape, const SourceFacts *facts)
{
	const char *name = job->options->watermark_fallback;
	AttrNumber	attnum;
	Oid			type;

	if (name == NULL || shape->watermark == NULL)
		return;
	shape_require_columns(job, relation_column_names(job->source), list_make1((void *) name),
					"option \"watermark_fallback\"");
	attnum = get_attnum(job->source, name);
	type = get_atttype(job->source, attnum);
	if (!watermark_type_fits(type, InvalidOid) ||
		watermark_type(type, InvalidOid)->kind != WATERMARK_NUMBER)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" cannot be the fallback of a watermark", name),
				 errdetail("It is of type %s; a fallback is an id that grows.", format_type_be(type)),
				 errhint("For another time, use an expression: watermark => '(coalesce(%s, %s))'.",
						 job->watermark, quote_identifier(name))));
	shape->fallback = watermark_type(type, InvalidOid);
	shape->fallback_expression = pstrdup(quote_identifier(name));
	shape->fallback_is_unique = is_unique(facts, name);
	shape->fallback_feed = feed_of(facts, name);
}

void
shape_add_watermark(Source *source, const Job *job, Shape *shape, const SourceFacts *facts,
					Oid type, int32 typmod, Oid collation)
{
	match_watermark(job, shape, type, typmod, collation);
	if (shape->watermark)
		shape->watermark->is_in_view = facts->kind == RELKIND_VIEW;
	shape->watermark_not_null = watermark_not_null(facts, job);
	shape->watermark_is_unique = is_unique(facts, job->watermark);
	shape->watermark_feed = feed_of(facts, job->watermark);
	match_fallback(job, shape, facts);
	shape->by_xmin = shape_tracks_xmin(job);
	if (shape->by_xmin)
		require_xmin(source, job, shape, facts);
}
