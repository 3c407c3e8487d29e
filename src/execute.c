/*
 * execute.c
 *		Runs a statement that incload has made, and counts what it did.
 *
 * Not through SPI: what a MERGE has inserted and updated is known to the
 * executor's own state, which SPI does not show.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/execdesc.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "execute.h"

static void
statement_context(void *arg)
{
	errcontext("SQL statement \"%s\"", (const char *) arg);
}

ExecuteCounts
execute_statement(const char *sql, QueryEnvironment *environment, DestReceiver *dest)
{
	ExecuteCounts counts = {0};
	ErrorContextCallback callback;
	List	   *queries;
	List	   *plans;
	QueryDesc  *desc;

	callback.callback = statement_context;
	callback.arg = (char *) sql;
	callback.previous = error_context_stack;
	error_context_stack = &callback;

	/* see what this transaction did before, and what others have committed */
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	queries = pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, pg_parse_query(sql)), sql,
												 NULL, 0, environment);
	/* rules may have replaced the statement by nothing, or by several */
	if (list_length(queries) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rule of the target rewrites the statement"),
				 errdetail("What the rule does cannot be counted."),
				 errhint("Use a trigger instead of the rule.")));
	plans = pg_plan_queries(queries, sql, CURSOR_OPT_PARALLEL_OK, NULL);

	desc = CreateQueryDesc(linitial_node(PlannedStmt, plans), sql, GetActiveSnapshot(),
						   InvalidSnapshot, dest ? dest : None_Receiver, NULL, environment, 0);
	ExecutorStart(desc, 0);
	compat_ExecutorRun(desc, ForwardScanDirection, 0);
	ExecutorFinish(desc);

	counts.processed = desc->estate->es_processed;
	if (IsA(desc->planstate, ModifyTableState))
	{
		ModifyTableState *state = (ModifyTableState *) desc->planstate;

		counts.merge_inserted = (uint64) state->mt_merge_inserted;
		counts.merge_updated = (uint64) state->mt_merge_updated;
	}
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
	PopActiveSnapshot();
	CommandCounterIncrement();

	error_context_stack = callback.previous;
	return counts;
}
