/*
 * query.c
 *		The text of what is read at a source.
 *
 * Bounds are constants of the watermark's own type, so that every wrapper can
 * ship them and every planner can use an index. Values of key columns stand
 * as bare literals: the server that reads them knows the column's type.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "utils/builtins.h"

#include "compat.h"
#include "query.h"
#include "trouble.h"
#include "source.h"
#include "window.h"

/* how many transactions after this one it may see rows of: see query_written_since */
#define LATER_NUMBERS 1048576

static const char expression_hint[] =
"Write it as it would stand in a WHERE clause, without a statement around it.";

char *
expression_embed(const char *text, const char *what)
{
	List	   *statements;
	SelectStmt *select;
	Trouble		trouble;

	/* parsed without parentheses, it cannot close those it will stand in */
	trouble_begin(&trouble, psprintf("The text of %s is: %s", what, text), expression_hint);
	statements = raw_parser(psprintf("SELECT %s", text), RAW_PARSE_DEFAULT);
	trouble_end(&trouble);
	if (list_length(statements) == 1 &&
		IsA(linitial_node(RawStmt, statements)->stmt, SelectStmt))
	{
		select = (SelectStmt *) linitial_node(RawStmt, statements)->stmt;
		if (list_length(select->targetList) == 1 &&
			linitial_node(ResTarget, select->targetList)->name == NULL &&
			!select->distinctClause && !select->intoClause && !select->fromClause &&
			!select->whereClause && !select->groupClause && !select->havingClause &&
			!select->windowClause && !select->sortClause && !select->limitOffset &&
			!select->limitCount && !select->lockingClause && !select->withClause &&
			select->op == SETOP_NONE)
			/* a comment at its end ends with the line */
			return psprintf("(%s\n)", text);
	}
	ereport(ERROR,
			(errcode(ERRCODE_SYNTAX_ERROR),
			 errmsg("%s is not a single SQL expression", what),
			 errdetail("The text is: %s", text),
			 errhint("%s", expression_hint)));
	return NULL;				/* keep compiler quiet */
}

static bool
names_column(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, ColumnRef))
		return true;
	return raw_expression_tree_walker(node, names_column, context);
}

/* is it a constant whose meaning depends on when it is read? */
static bool
names_moment(Node *node)
{
	static const char *const moments[] = {"now", "today", "tomorrow", "yesterday"};
	A_Const    *constant = (A_Const *) node;

	if (!IsA(node, A_Const) || constant->isnull || !IsA(&constant->val.node, String))
		return false;
	for (int i = 0; i < lengthof(moments); i++)
		if (pg_strcasecmp(constant->val.sval.sval, moments[i]) == 0)
			return true;
	return false;
}

static bool
looks_elsewhere(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, FuncCall) || IsA(node, SubLink) || IsA(node, SQLValueFunction) || names_moment(node))
		return true;
	return raw_expression_tree_walker(node, looks_elsewhere, context);
}

bool
expression_is_plain(const char *text)
{
	RawStmt    *statement = linitial_node(RawStmt, raw_parser(psprintf("SELECT %s", text),
															  RAW_PARSE_DEFAULT));

	return !looks_elsewhere(statement->stmt, NULL);
}

static bool
gather_influences(Node *node, void *context)
{
	Influences *influences = context;

	if (node == NULL)
		return false;
	if (IsA(node, FuncCall))
		influences->functions = lappend(influences->functions,
										strVal(llast(((FuncCall *) node)->funcname)));
	else if (IsA(node, SubLink))
		influences->by_table = true;
	else if (IsA(node, SQLValueFunction) ||
			 (IsA(node, TypeCast) && names_moment(((TypeCast *) node)->arg)))
		influences->by_moment = true;
	return raw_expression_tree_walker(node, gather_influences, influences);
}

Influences
expression_influences(const char *text)
{
	RawStmt    *statement = linitial_node(RawStmt, raw_parser(psprintf("SELECT %s", text),
															  RAW_PARSE_DEFAULT));
	Influences	influences = {0};

	gather_influences(statement->stmt, &influences);
	return influences;
}

bool
expression_names_column(const char *text)
{
	RawStmt    *statement = linitial_node(RawStmt, raw_parser(psprintf("SELECT %s", text),
															  RAW_PARSE_DEFAULT));

	return names_column(statement->stmt, NULL);
}

/* the row of key columns, or of their values at a bound */
static char *
key_row(const Shape *shape, List *values)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "ROW(");
	for (int i = 0; i < shape->nkeys; i++)
		appendStringInfo(&buf, "%s%s", i ? ", " : "",
						 values ? quote_literal_cstr(list_nth(values, i))
						 : shape->columns[shape->key[i]].expression);
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* rows above the low bound */
static void
append_low(StringInfo buf, const Shape *shape, const Bound *low)
{
	const char *w = shape->watermark_expression;
	char	   *literal = watermark_literal(shape->watermark, low->value);

	if (low->tie_key != NIL)
	{
		/* the first condition alone can use an index on the watermark */
		appendStringInfo(buf, "%s OPERATOR(pg_catalog.>=) %s AND"
						 " (%s OPERATOR(pg_catalog.>) %s OR %s OPERATOR(pg_catalog.>) %s)",
						 w, literal, w, literal, key_row(shape, NIL), key_row(shape, low->tie_key));
		return;
	}
	appendStringInfo(buf, "%s OPERATOR(pg_catalog.%s) %s", w,
					 low->side == BOUND_BEFORE ? ">=" : ">", literal);
}

static void
append_high(StringInfo buf, const Shape *shape, const Bound *high)
{
	appendStringInfo(buf, "%s OPERATOR(pg_catalog.%s) %s", shape->watermark_expression,
					 high->side == BOUND_BEFORE ? "<" : "<=",
					 watermark_literal(shape->watermark, high->value));
}

/*
 * Was a row written by a transaction that was not over when the mark was taken?
 * age() counts from the same place for both, so it is right across a
 * wraparound. A row that was frozen long ago keeps its number, which comes
 * again after 2^32 others: as one of the future it is left out, and as one of
 * the strip it is sent once more.
 *
 * Here, the reading transaction may have a number of its own, from which age()
 * counts then, and see rows with later ones, its own subtransactions' too. Those
 * beyond the room that is left for them come with the next run, as the mark of
 * this one is no higher than its number.
 */
char *
query_written_since(const Source *source, uint64 mark)
{
	return psprintf("pg_catalog.age(%s) OPERATOR(pg_catalog.>=) %d"
					" AND pg_catalog.age(%s) OPERATOR(pg_catalog.<=) pg_catalog.age('%u'::pg_catalog.xid)",
					source->xmin, source->is_local ? -LATER_NUMBERS : 0, source->xmin, (uint32) mark);
}

/* does the window leave out some of the rows without a watermark that it is about? */
static bool
narrows_null(const Window *window, const char *news)
{
	return window->null_low.is_set || (window->seen_null && news);
}

/* rows without a watermark, as far as they are not loaded or were not seen */
static char *
null_condition(const Shape *shape, const Window *window, const char *news)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "%s IS NULL", shape->watermark_expression);
	if (!narrows_null(window, news))
		return buf.data;
	if (window->null_low.is_set)
		appendStringInfo(&buf, " AND (%s OPERATOR(pg_catalog.%s) %s OR %s IS NULL)", shape->fallback_expression,
						 window->null_low.side == BOUND_BEFORE ? ">=" : ">",
						 watermark_literal(shape->fallback, window->null_low.value),
						 shape->fallback_expression);
	if (window->seen_null && news)
		appendStringInfo(&buf, " AND %s", news);
	return psprintf("(%s)", buf.data);
}

/* the conditions on the watermark, or nothing where every row is wanted */
char *
query_condition(const Shape *shape, const Source *source, const Window *window)
{
	StringInfoData buf;
	char	   *news = window->mark != 0 && source->with_xmin
		? query_written_since(source, window->mark) : NULL;

	if (shape->by_xmin)
		return news;
	if (shape->watermark == NULL)
		return NULL;
	if (window->only_null)
		return null_condition(shape, window, news);
	initStringInfo(&buf);
	if (window->low.is_set)
		append_low(&buf, shape, &window->low);
	if (window->high.is_set)
	{
		if (buf.len > 0)
			appendStringInfoString(&buf, " AND ");
		append_high(&buf, shape, &window->high);
	}
	if (window->seen.is_set && news)
	{
		appendStringInfo(&buf, "%s(", buf.len > 0 ? " AND " : "");
		append_low(&buf, shape, &window->seen);
		appendStringInfo(&buf, " OR (%s))", news);
	}
	if (buf.len == 0)
	{
		if (window->with_null && !narrows_null(window, news))
			return NULL;
		appendStringInfo(&buf, "%s IS NOT NULL", shape->watermark_expression);
	}
	if (window->with_null)
		return psprintf("(%s OR %s)", buf.data, null_condition(shape, window, news));
	return buf.data;
}

static void
append_where(StringInfo buf, const char *filter, const char *condition)
{
	const char *word = " WHERE ";

	if (filter)
	{
		appendStringInfo(buf, "%s%s", word, expression_embed(filter, "option \"filter\""));
		word = " AND ";
	}
	if (condition)
		appendStringInfo(buf, "%s%s", word, condition);
}

char *
query_read(const Shape *shape, Source *source, const char *filter,
		   const Window *window, const char *part, ReadOrder order, int64 limit)
{
	StringInfoData buf;
	char	   *condition = query_condition(shape, source, window);

	if (part)
		condition = condition ? psprintf("%s AND %s", condition, part) : (char *) part;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "SELECT ");
	for (int i = 0; i < shape->ncolumns; i++)
	{
		const LoadColumn *column = &shape->columns[i];

		appendStringInfo(&buf, "%s%s", i ? ", " : "", column->expression);
		if (column->is_transform)
			appendStringInfo(&buf, " AS %s", quote_identifier(column->name));
	}
	if (shape->watermark && shape->watermark_position == shape->ncolumns)
		appendStringInfo(&buf, ", %s AS %s", shape->watermark_expression,
						 quote_identifier(shape->watermark_name));
	if (shape->deleted_expression)
		appendStringInfo(&buf, ", %s AS %s", shape->deleted_expression, quote_identifier(shape->deleted_name));
	appendStringInfo(&buf, " FROM %s", source->routine->from_clause(source));
	append_where(&buf, filter, condition);

	if (order == READ_BY_WATERMARK && shape->watermark)
	{
		/* by position: a name would mean the column that is sent, which may be a transform's */
		appendStringInfo(&buf, " ORDER BY %d", shape->watermark_position + 1);
		if (shape->key_is_portable)
			for (int i = 0; i < shape->nkeys; i++)
				appendStringInfo(&buf, ", %d", shape->key[i] + 1);
		if (limit > 0)
			appendStringInfo(&buf, " FETCH FIRST " INT64_FORMAT " ROWS %s", limit,
							 shape->key_is_portable ? "ONLY" : "WITH TIES");
	}
	else
	{
		/* of two rows with one key, the later transaction's comes last */
		if (order == READ_BY_WATERMARK && shape->by_xmin && source->with_xmin && !shape->key_is_unique)
			appendStringInfo(&buf, " ORDER BY pg_catalog.age(%s) DESC", source->xmin);
		if (limit > 0)
			appendStringInfo(&buf, " LIMIT " INT64_FORMAT, limit);
	}
	return buf.data;
}

char *
query_list(const char *list, const Shape *shape, Source *source, const char *filter,
		   const Window *window, const char *part)
{
	StringInfoData buf;
	char	   *condition = query_condition(shape, source, window);

	if (part)
		condition = condition ? psprintf("%s AND %s", condition, part) : (char *) part;
	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT %s FROM %s", list, source->routine->from_clause(source));
	append_where(&buf, filter, condition);
	return buf.data;
}

char *
query_any(const Shape *shape, Source *source, const char *filter, const Window *window)
{
	/* EXISTS over the rows themselves would be planned for the first one; older servers know no other WITH */
	return psprintf("WITH incload_rows AS %s(%s) SELECT EXISTS (SELECT FROM incload_rows)",
					source->routine->version(source) >= 120000 ? "MATERIALIZED " : "",
					query_list("", shape, source, filter, window, NULL));
}

/* NaN and Infinity sort above all there will ever be */
static char *
condition_finite(const WatermarkType *type, const char *expression)
{
	if (type->type == NUMERICOID)
		return psprintf("%s::pg_catalog.text NOT IN ('NaN', 'Infinity', '-Infinity')", expression);
	if (type->kind == WATERMARK_TIME && type->type != INT4OID && type->type != INT8OID)
		return psprintf("pg_catalog.isfinite(%s)", expression);
	return psprintf("%s IS NOT NULL", expression);
}

char *
query_ranges(const WatermarkType *type, const char *expression, int n,
			 const char *from, const char *filter)
{
	StringInfoData buf;
	const char *name = format_type_be(type->type);

	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT value FROM (SELECT i, low, (%s)::%s AS value FROM (SELECT pg_catalog.min(%s) AS low, pg_catalog.max(%s) AS high FROM %s",
					 type->type == DATEOID || type->type == TIMESTAMPOID || type->type == TIMESTAMPTZOID
					 ? psprintf("low + (high - low) * i / %d", n)
					 : psprintf("low::pg_catalog.numeric + (high::pg_catalog.numeric - low::pg_catalog.numeric) * i / %d", n),
					 name, expression, expression, from);
	append_where(&buf, filter, condition_finite(type, expression));
	appendStringInfo(&buf, ") ends, pg_catalog.generate_series(1, %d) i) cuts WHERE value > low ORDER BY i", n - 1);
	return buf.data;
}

char *
query_newest(const WatermarkType *type, const char *expression, const Bound *limit,
			 const char *from, const char *filter)
{
	StringInfoData buf;
	char	   *condition;

	/* NaN and Infinity sort above all there will ever be */
	if (limit->is_set)
		condition = psprintf("%s OPERATOR(pg_catalog.<=) %s", expression,
							 watermark_literal(type, limit->value));
	else if (type->type == NUMERICOID)
		condition = psprintf("%s::pg_catalog.text NOT IN ('NaN', 'Infinity')", expression);
	else
		condition = psprintf("%s IS NOT NULL", expression);
	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT %s FROM %s", expression, from);
	append_where(&buf, filter, condition);
	appendStringInfoString(&buf, " ORDER BY 1 DESC LIMIT 1");
	return buf.data;
}

char *
query_describe(List *columns, const char *watermark_expression,
			   const char *from, const char *filter)
{
	StringInfoData buf;
	const char *comma = "";
	ListCell   *lc;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "SELECT ");
	foreach(lc, columns)
	{
		appendStringInfo(&buf, "%s%s", comma, ((LoadColumn *) lfirst(lc))->expression);
		comma = ", ";
	}
	if (watermark_expression)
		appendStringInfo(&buf, "%s%s", comma, watermark_expression);
	appendStringInfo(&buf, " FROM %s", from);
	append_where(&buf, filter, NULL);
	return buf.data;
}
