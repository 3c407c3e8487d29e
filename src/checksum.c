/*
 * checksum.c
 *		A row, or its key, as a number that is the same on both sides.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "checksum.h"
#include "compat.h"

/* what both servers are asked: equal answers mean equal hashes */
static const char probe[] =
"SELECT pg_catalog.hashtextextended('incload', 0), pg_catalog.hashtextextended(pg_catalog.repeat('incload ', 99), 0), pg_catalog.getdatabaseencoding()";

Checksum *
checksum_agree(Source *source, const Shape *shape)
{
	Checksum   *checksum = palloc0(sizeof(Checksum));
	TextRows   *here;
	TextRows   *there;

	checksum->shape = shape;
	checksum->puts_aside = source->job->options->reject_limit > 0;
	checksum->by_cast = !source->routine->outlives_commit;
	/* whatever is read through the executor is computed here on both sides */
	if (checksum->by_cast)
		return checksum;
	/* 11 has it first */
	checksum->by_md5 = source->routine->version(source) < 110000;
	if (checksum->by_md5)
		return checksum;
	here = target_ask(probe);
	there = source_ask_catalog(source, probe);
	for (int i = 0; i < here->ncols; i++)
		checksum->by_md5 |= strcmp(here->value[0][i], there->value[0][i]) != 0;
	return checksum;
}

static bool
is_integer(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

/* a column's value at the source, as it is once it is loaded */
static char *
converted(const Checksum *checksum, const LoadColumn *column)
{
	Oid			type = getBaseType(column->type);
	char	   *name;

	/* a type of one's own here has no name there that is known to mean the same */
	if (!checksum->by_cast && type >= FirstGenbkiObjectId)
		return column->expression;
	if (column->source_type == type && (column->typmod < 0 || column->typmod == column->source_typmod))
		return column->expression;
	/* whole numbers look the same in any type of theirs, and the cast would fail where one is out of range */
	if (is_integer(type) && is_integer(column->source_type))
		return column->expression;
	/* so do strings, where one that is too long may have been put aside */
	if (checksum->puts_aside && type == VARCHAROID)
		return column->expression;
	name = format_type_extended(type, column->typmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);
	/* COPY's text is read by the type's own input, which is not always what a cast does */
	return psprintf("(%s)%s::%s", column->expression, checksum->by_cast ? "" : "::pg_catalog.text", name);
}

static char *
hash_of(const Checksum *checksum, const char *text)
{
	if (!checksum->by_md5)
		return psprintf("pg_catalog.hashtextextended(%s, 0)", text);
	return psprintf("('x' OPERATOR(pg_catalog.||) pg_catalog.substr(pg_catalog.md5(pg_catalog.convert_to(%s, 'UTF8')), 1, 16))"
					"::pg_catalog.bit(64)::pg_catalog.int8", text);
}

static void
append_value(StringInfo buf, const Checksum *checksum, Side side, int position)
{
	const LoadColumn *column = &checksum->shape->columns[position];

	appendStringInfo(buf, "%s%s", buf->len > 4 ? ", " : "",
					 side == SIDE_SOURCE ? converted(checksum, column) : quote_identifier(column->name));
}

char *
checksum_of_row(const Checksum *checksum, Side side)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "ROW(");
	for (int i = 0; i < checksum->shape->ncolumns; i++)
		append_value(&buf, checksum, side, i);
	appendStringInfoString(&buf, ")::pg_catalog.text");
	return hash_of(checksum, buf.data);
}

char *
checksum_of_key(const Checksum *checksum, Side side)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "ROW(");
	for (int i = 0; i < checksum->shape->nkeys; i++)
		append_value(&buf, checksum, side, checksum->shape->key[i]);
	appendStringInfoString(&buf, ")::pg_catalog.text");
	return hash_of(checksum, buf.data);
}
