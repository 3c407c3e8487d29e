/*
 * execute.c
 *		Runs a statement that incload has made, and counts what it did.
 *
 * Not through SPI: what a MERGE has inserted and updated is known to the
 * executor's own state, which SPI does not show.
 *
 * The planner is led by settings that hold while it plans, and no longer: what
 * triggers and functions of the owner's run inside the statement is planned as
 * he has set it. JIT is decided on by the planner, too. It is never worth it
 * here: each expression is a small one, and a batch waits for the compiler.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/execdesc.h"
#include "executor/executor.h"
#include "executor/tstoreReceiver.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/plannodes.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "execute.h"
#include "role.h"

static void
statement_context(void *arg)
{
	errcontext("SQL statement \"%s\"", (const char *) arg);
}

int
execute_lead_planner(PlanLead lead)
{
	int			level = NewGUCNestLevel();

	role_set("jit", "off");
	if (lead == LEAD_PROBE)
	{
		role_set("enable_nestloop", "on");
		role_set("enable_indexscan", "on");
		role_set("enable_hashjoin", "off");
		role_set("enable_mergejoin", "off");
	}
	return level;
}

void
execute_leave_planner(int level)
{
	AtEOXact_GUC(false, level);
}

static PlannedStmt *
plan_statement(const char *sql, PlanLead lead, QueryEnvironment *environment)
{
	List	   *queries;
	PlannedStmt *plan;
	int			level;

	queries = pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, pg_parse_query(sql)), sql,
												 NULL, 0, environment);
	/* rules may have replaced the statement by nothing, or by several */
	if (list_length(queries) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rule of the target rewrites the statement"),
				 errdetail("What the rule does cannot be counted."),
				 errhint("Use a trigger instead of the rule.")));
	level = execute_lead_planner(lead);
	plan = linitial_node(PlannedStmt, pg_plan_queries(queries, sql, CURSOR_OPT_PARALLEL_OK, NULL));
	execute_leave_planner(level);
	return plan;
}

/*
 * Is each nested loop one whose inner side is asked for the outer row's values?
 * If not, it reads all of the inner side for each row: that is what is left to
 * a planner which may not hash and finds no index.
 */
static void
look_for_probes(Plan *plan, int *probes, int *others)
{
	if (plan == NULL)
		return;
	if (IsA(plan, NestLoop))
	{
		if (((NestLoop *) plan)->nestParams != NIL)
			(*probes)++;
		else
			(*others)++;
	}
	else if (IsA(plan, HashJoin) || IsA(plan, MergeJoin))
		(*others)++;
	if (IsA(plan, SubqueryScan))
		look_for_probes(((SubqueryScan *) plan)->subplan, probes, others);
	look_for_probes(outerPlan(plan), probes, others);
	look_for_probes(innerPlan(plan), probes, others);
}

Tuplestorestate *
execute_into_store(const char *sql, QueryEnvironment *environment, int64 *nrows)
{
	Tuplestorestate *store = tuplestore_begin_heap(false, false, work_mem);
	DestReceiver *dest = CreateDestReceiver(DestTuplestore);

	SetTuplestoreDestReceiverParams(dest, store, CurrentMemoryContext, false, NULL, NULL);
	*nrows = execute_statement(sql, environment, dest).processed;
	return store;
}

bool
execute_can_probe(const char *sql, QueryEnvironment *environment)
{
	int			probes = 0;
	int			others = 0;

	PushActiveSnapshot(GetTransactionSnapshot());
	look_for_probes(plan_statement(sql, LEAD_PROBE, environment)->planTree, &probes, &others);
	PopActiveSnapshot();
	return probes > 0 && others == 0;
}

ExecuteCounts
execute_statement(const char *sql, QueryEnvironment *environment, DestReceiver *dest)
{
	return execute_led(sql, LEAD_NONE, environment, dest);
}

ExecuteCounts
execute_led(const char *sql, PlanLead lead, QueryEnvironment *environment, DestReceiver *dest)
{
	ExecuteCounts counts = {0};
	ErrorContextCallback callback;
	QueryDesc  *desc;

	callback.callback = statement_context;
	callback.arg = (char *) sql;
	callback.previous = error_context_stack;
	error_context_stack = &callback;

	/* see what this transaction did before, and what others have committed */
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	desc = CreateQueryDesc(plan_statement(sql, lead, environment), sql, GetActiveSnapshot(),
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
