/*
 * check_schema.c
 *		The rule of incload_check on columns that source, foreign table and target
 *		do not have alike.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "check.h"
#include "compat.h"
#include "drift_plan.h"

/* the statements, or those alone that begin so; NULL for none */
static char *
statements(List *sql, const char *beginning)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, sql)
		if (strncmp(lfirst(lc), beginning, strlen(beginning)) == 0)
			appendStringInfo(&buf, "%s%s;", buf.len > 0 ? " " : "", (char *) lfirst(lc));
	return buf.len > 0 ? buf.data : NULL;
}

void
check_schema(Check *check)
{
	ListCell   *lc;

	foreach(lc, drift_differences(check->source, check->job, check->facts))
	{
		const Drift *drift = lfirst(lc);
		char	   *mend = drift->obstacle ? NULL : statements(drift->sql, "");

		switch (drift->kind)
		{
			case DRIFT_NEW:
				check_add(check, "info", "column_new",
						  psprintf("%s: it is not loaded%s%s", drift->message, drift->obstacle ? "; " : "",
								   drift->obstacle ? drift->obstacle : ""), mend);
				break;
			case DRIFT_GONE:
				check_add(check, "warning", "column_gone",
						  psprintf("%s: it is left out, and what the target has in it stays", drift->message),
						  psprintf("ALTER FOREIGN TABLE %s DROP COLUMN %s;", check->job->source_name,
								   quote_identifier(drift->column)));
				break;
			case DRIFT_RETYPED:
				/* of the target, check_types() tells */
				mend = statements(drift->sql, "ALTER FOREIGN TABLE");
				if (mend)
					check_add(check, "info", "column_retyped",
							  psprintf("%s, and the foreign table has a narrower one", drift->message), mend);
				break;
		}
	}
}
