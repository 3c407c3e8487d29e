/*
 * text_row.c
 *		Rows whose values are text, and are yet to be turned into values of their types.
 *
 * The server's own reader of COPY cannot go on after a line that it could not
 * turn into a row: bytes of another encoding stop it for good, and what a line
 * held is not told. Where bad rows are put aside, lines are taken apart here.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "text_row.h"

TextInput *
text_input_create(TupleDesc desc)
{
	TextInput  *input = palloc0(sizeof(TextInput));

	input->desc = desc;
	input->functions = palloc(sizeof(FmgrInfo) * desc->natts);
	input->params = palloc(sizeof(Oid) * desc->natts);
	for (int i = 0; i < desc->natts; i++)
	{
		Oid			function;

		getTypeInputInfo(TupleDescAttr(desc, i)->atttypid, &function, &input->params[i]);
		fmgr_info(function, &input->functions[i]);
	}
	return input;
}

void
text_input_row(TextInput *input, char **texts, Datum *values, bool *nulls)
{
	for (int i = 0; i < input->desc->natts; i++)
	{
		values[i] = InputFunctionCall(&input->functions[i], texts[i], input->params[i],
									  TupleDescAttr(input->desc, i)->atttypmod);
		nulls[i] = texts[i] == NULL;
	}
}

/* what COPY writes behind a backslash; other characters stand for themselves */
static char
unescape(char c)
{
	switch (c)
	{
		case 'b':
			return '\b';
		case 'f':
			return '\f';
		case 'n':
			return '\n';
		case 'r':
			return '\r';
		case 't':
			return '\t';
		case 'v':
			return '\v';
		default:
			return c;
	}
}

void
text_row_split(char *line, int n, char **texts)
{
	char	   *from = line;
	int			found = 0;
	bool		more = true;

	while (more)
	{
		char	   *start = from;
		char	   *to = from;
		bool		is_null = from[0] == '\\' && from[1] == 'N' && (from[2] == '\t' || from[2] == '\0');

		while (*from != '\t' && *from != '\0')
		{
			if (*from == '\\' && from[1] != '\0')
			{
				*to++ = unescape(from[1]);
				from += 2;
			}
			else
				*to++ = *from++;
		}
		more = *from == '\t';
		from++;
		*to = '\0';
		if (found < n)
			texts[found] = is_null ? NULL : start;
		found++;
	}
	if (found != n)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the source has sent a row of %d columns, where %d were asked for", found, n)));
}

char *
text_row_clean(const char *line, int length, int encoding)
{
	StringInfoData buf;
	/* of another encoding, only what is in all of them is sure */
	bool		is_same = encoding == GetDatabaseEncoding() || encoding == PG_SQL_ASCII;

	initStringInfo(&buf);
	for (int i = 0; i < length;)
	{
		int			good = !IS_HIGHBIT_SET(line[i]) ? 1
			: is_same ? pg_encoding_verifymbchar(GetDatabaseEncoding(), line + i, length - i) : -1;

		if (good > 0)
			appendBinaryStringInfo(&buf, line + i, good);
		else
		{
			appendStringInfo(&buf, "\\\\x%02x", (unsigned char) line[i]);
			good = 1;
		}
		i += good;
	}
	return buf.data;
}

char **
text_row_print(TupleDesc desc, Datum *values, bool *nulls)
{
	char	  **texts = palloc0(sizeof(char *) * desc->natts);

	for (int i = 0; i < desc->natts; i++)
	{
		Oid			function;
		bool		varlena;

		if (nulls[i])
			continue;
		getTypeOutputInfo(TupleDescAttr(desc, i)->atttypid, &function, &varlena);
		texts[i] = OidOutputFunctionCall(function, values[i]);
	}
	return texts;
}
