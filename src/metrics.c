/*
 * metrics.c
 *		Labels of samples in the text format of Prometheus.
 *
 * In that format a backslash, a quote and a new line in a value are escaped, and
 * nothing else is, which differs from JSON.
 */
#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "compat.h"

static void
append_value(StringInfo buf, const char *value, int len)
{
	appendStringInfoCharMacro(buf, '"');
	for (int i = 0; i < len; i++)
	{
		if (value[i] == '\n')
			appendStringInfoString(buf, "\\n");
		else if (value[i] == '"' || value[i] == '\\')
		{
			appendStringInfoCharMacro(buf, '\\');
			appendStringInfoCharMacro(buf, value[i]);
		}
		else
			appendStringInfoCharMacro(buf, value[i]);
	}
	appendStringInfoCharMacro(buf, '"');
}

PG_FUNCTION_INFO_V1(incload_metric_labels);

/*
 * incload.metric_labels(labels jsonb) → text
 *		{name="value",…}; nothing for an object without members. Names are taken
 *		as they are, and values have to be text.
 */
Datum
incload_metric_labels(PG_FUNCTION_ARGS)
{
	Jsonb	   *labels = PG_GETARG_JSONB_P(0);
	JsonbIterator *it = JsonbIteratorInit(&labels->root);
	JsonbIteratorToken token;
	JsonbValue	value;
	StringInfoData buf;

	initStringInfo(&buf);
	while ((token = JsonbIteratorNext(&it, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
		{
			appendStringInfoChar(&buf, buf.len == 0 ? '{' : ',');
			appendBinaryStringInfo(&buf, value.val.string.val, value.val.string.len);
			appendStringInfoChar(&buf, '=');
		}
		else if (token == WJB_VALUE)
		{
			if (value.type != jbvString)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("the value of a label has to be a string")));
			append_value(&buf, value.val.string.val, value.val.string.len);
		}
	}
	if (buf.len > 0)
		appendStringInfoChar(&buf, '}');
	PG_RETURN_TEXT_P(cstring_to_text_with_len(buf.data, buf.len));
}
