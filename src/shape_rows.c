/*
 * shape_rows.c
 *		Rows of a shape that carry more than what is loaded, and rows as text.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "shape_rows.h"

/* a name that no column has */
static char *
free_name(const Shape *shape, const char *wanted)
{
	char	   *name = pstrdup(wanted);

	while (shape_column_position(shape, name) >= 0 ||
		   (shape->watermark_name && strcmp(shape->watermark_name, name) == 0))
		name = psprintf("%s_", name);
	return name;
}

Shape *
shape_with_number(const Shape *shape, bool only_key, const char *expression, char **name)
{
	Shape	   *copy = palloc(sizeof(Shape));
	LoadColumn *number;
	int			position = -1;

	*copy = *shape;
	copy->columns = palloc0(sizeof(LoadColumn) * (shape->ncolumns + 1));
	copy->key = palloc(sizeof(int) * Max(shape->nkeys, 1));
	copy->ncolumns = 0;
	for (int i = 0; i < shape->ncolumns; i++)
	{
		if (only_key && !shape->columns[i].is_key)
			continue;
		for (int k = 0; k < shape->nkeys; k++)
			if (shape->key[k] == i)
				copy->key[k] = copy->ncolumns;
		if (shape->watermark_position == i)
			position = copy->ncolumns;
		copy->columns[copy->ncolumns++] = shape->columns[i];
	}
	copy->deleted_expression = copy->deleted_name = NULL;
	copy->deleted_position = -1;
	*name = free_name(shape, "incload_number");
	number = &copy->columns[copy->ncolumns++];
	number->name = *name;
	number->expression = psprintf("(%s)::pg_catalog.int4", expression);
	number->is_transform = true;
	number->type = number->source_type = INT4OID;
	number->typmod = number->source_typmod = -1;
	number->same_binary = true;
	/* a watermark that is not loaded comes after all columns */
	if (shape->watermark)
	{
		copy->watermark_position = position >= 0 ? position : copy->ncolumns;
		if (position < 0 && copy->watermark_name == NULL)
			copy->watermark_name = free_name(copy, "incload_watermark");
	}
	shape_build_desc(copy);
	return copy;
}

char *
shape_as_json(const Shape *shape, const char *alias, bool only_key)
{
	int			n = only_key ? shape->nkeys : shape->ncolumns;
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "(SELECT pg_catalog.to_jsonb(r.*) FROM (SELECT ");
	for (int i = 0; i < n; i++)
		appendStringInfo(&buf, "%s%s.%s", i ? ", " : "", alias,
						 quote_identifier(shape->columns[only_key ? shape->key[i] : i].name));
	appendStringInfoString(&buf, ") AS r)");
	return buf.data;
}
