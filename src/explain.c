/*
 * explain.c
 *		incload_explain: the SQL of the next run, with plans.
 *
 * Each statement is explained by the server that would run it, and by its own
 * words: nothing is run but EXPLAIN and the questions that lead to the window.
 */
#include "postgres.h"

#include "access/table.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "compat.h"
#include "deletes.h"
#include "execute.h"
#include "facts.h"
#include "names.h"
#include "outlook.h"
#include "prune.h"
#include "role.h"
#include "straight.h"

/* Listing: the rows of incload_explain as they come */
typedef struct Listing
{
	ReturnSetInfo *rsinfo;
	int			step;
} Listing;

static void
list_step(Listing *listing, const char *side, const char *what, const char *sql, const char *plan)
{
	Datum		values[5];
	bool		nulls[5] = {0};

	if (sql == NULL)
		return;
	values[0] = Int32GetDatum(++listing->step);
	values[1] = CStringGetTextDatum(side);
	values[2] = CStringGetTextDatum(what);
	values[3] = CStringGetTextDatum(sql);
	nulls[4] = plan == NULL;
	if (plan)
		values[4] = CStringGetTextDatum(plan);
	tuplestore_putvalues(listing->rsinfo->setResult, listing->rsinfo->setDesc, values, nulls);
}

/* what the planner is told of a stage: that it holds as many rows as a batch is likely to */
static EphemeralNamedRelation
pretend_rows(Stage *stage, double rows)
{
	EphemeralNamedRelation relation;

	stage_begin_batch(stage);
	relation = get_ENR(stage_environment(stage), STAGE_NAME);
	relation->md.enrtuples = rows;
	return relation;
}

/* the plan of a statement that reads the stage, which is empty, by a planner led so */
static char *
plan_with_stage(const Outlook *outlook, const char *sql, PlanLead lead, double rows)
{
	MemoryContext context = CurrentMemoryContext;
	Stage	   *stage = stage_create(outlook->job, outlook->shape, 0, true, context);
	EphemeralNamedRelation relation = pretend_rows(stage, rows);
	TextRows   *lines;
	StringInfoData plan;
	int			level;

	SPI_connect();
	level = execute_lead_planner(lead);
	if (SPI_register_relation(relation) != SPI_OK_REL_REGISTER ||
		SPI_execute(psprintf("EXPLAIN %s", sql), false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not explain: %s", sql);
	execute_leave_planner(level);
	lines = text_rows_from_spi(context);
	SPI_finish();
	stage_end_batch(stage);

	initStringInfo(&plan);
	for (int r = 0; r < lines->nrows; r++)
		appendStringInfo(&plan, "%s%s", r ? "\n" : "", lines->value[r][0]);
	return plan.data;
}

/* what stands for a plan where there is no statement to be planned */
static char *
plan_of_new_heap(const Job *job)
{
	Relation	target = table_open(job->target, AccessShareLock);
	int			indexes = list_length(RelationGetIndexList(target));

	table_close(target, AccessShareLock);
	return psprintf("New heap of %s, under SHARE ROW EXCLUSIVE\n"
					"  ->  takes the place of the old one, and %d %s built, under ACCESS EXCLUSIVE",
					job->target_name, indexes, indexes == 1 ? "index is" : "indexes are");
}

/* a step's name, with what keeps it from being another */
static const char *
with_obstacle(const char *name, const char *keeps, const Outlook *outlook)
{
	return outlook->fill.obstacle
		? psprintf("%s (%s: %s)", name, keeps, outlook->fill.obstacle) : name;
}

/* the rows that are not staged, or, at the end of the other rows' plan, why all are */
static char *
list_straight(Listing *listing, const Outlook *outlook, char *text)
{
	const char *obstacle = straight_obstacle(outlook->job, outlook->shape);

	if (obstacle)
		return psprintf("%s\nAll rows are staged: %s", text, obstacle);
	list_step(listing, "target", "put in", merge_fill_statement(outlook->job, outlook->shape),
			  psprintf("Rows are put in as they are read%s, from the %dst of a run on",
					   outlook->shape->nkeys > 0 ? " whose key is above all keys of the target" : "",
					   STRAIGHT_FROM + 1));
	return text;
}

/* how the rows get from the stage into the target, with the reason in its first line */
static void
list_apply(Listing *listing, const Outlook *outlook, double rows)
{
	const Job  *job = outlook->job;
	Stage	   *stage = stage_create(job, outlook->shape, 0, true, CurrentMemoryContext);
	QueryEnvironment *environment = create_queryEnv();
	ApplyPlan	plan;
	char	   *sql;
	char	   *text;

	register_ENR(environment, pretend_rows(stage, rows));
	plan = merge_plan(job, outlook->shape, outlook->mode, rows, true, environment);
	stage_end_batch(stage);
	sql = merge_apply_statement(job, outlook->shape, outlook->mode, plan.lead);
	text = plan_with_stage(outlook, sql, plan.lead, rows);
	if (outlook->mode != APPLY_INSERT)
		text = psprintf("Chosen: %s\n%s", plan_reason(&plan), text);
	if (job->strategy != STRATEGY_FULL)
		text = list_straight(listing, outlook, text);
	list_step(listing, "target", with_obstacle("apply", "no first load", outlook), sql, text);
}

/* how rows of the target go whose deletion was read; the shape is that of the rows that tell */
static void
list_deletion(Listing *listing, const Outlook *outlook, const Shape *shape, double rows)
{
	const Job  *job = outlook->job;
	Outlook		telling = *outlook;
	Stage	   *stage = stage_create(job, shape, 0, true, CurrentMemoryContext);
	QueryEnvironment *environment = create_queryEnv();
	const char *scope = deletes_scope(job, outlook->shape);
	ApplyPlan	plan;
	char	   *sql;

	telling.shape = (Shape *) shape;
	register_ENR(environment, pretend_rows(stage, rows));
	plan = merge_delete_plan(job, shape, scope, rows, true, environment);
	stage_end_batch(stage);
	sql = merge_delete_statement(job, shape, scope, plan.lead);
	list_step(listing, "target", "delete", sql,
			  psprintf("Chosen: %s\n%s", plan_reason(&plan), plan_with_stage(&telling, sql, plan.lead, rows)));
}

/* all steps of a run, in the order in which it takes them */
static void
list_run(Listing *listing, const Outlook *outlook)
{
	const Job  *job = outlook->job;
	bool		is_remote = outlook->source->routine->outlives_commit;
	List	   *queries = outlook_queries(outlook, 0);
	int			n = list_length(queries);
	double		rows = 0;
	char	   *sql;
	char	   *plan;
	ListCell   *lc;

	list_step(listing, "target", "pre_sql", job->options->pre_sql, NULL);
	foreach(lc, queries)
	{
		plan = facts_plan(outlook->source, lfirst(lc));
		rows += facts_plan_rows(plan);
		list_step(listing, is_remote ? "source" : "target",
				  outlook->window.is_empty ? "read (not yet: no row is settled)"
				  : n > 1 ? psprintf("read (part %d of %d, side by side)", foreach_current_index(lc) + 1, n)
				  : "read", lfirst(lc), plan);
	}
	if (job->strategy != STRATEGY_FULL)
		rows = Min(rows, (double) job->options->batch_rows);
	if (outlook->truncates)
		list_step(listing, "target", "truncate",
				  psprintf("TRUNCATE %s", relation_qualified_name(job->target)), NULL);
	if (outlook->prunes && outlook->fill.way == FILL_APPLY)
	{
		sql = merge_prune_statement(job, outlook->shape);
		list_step(listing, "target", "prune", sql, plan_with_stage(outlook, sql, LEAD_NONE, rows));
	}
	if (outlook->shape->deleted_expression && outlook->fill.way == FILL_APPLY)
		list_deletion(listing, outlook, outlook->shape, rows);
	if (outlook->fill.way == FILL_APPLY)
		list_apply(listing, outlook, rows);
	else
		list_step(listing, "target", outlook->fill.way == FILL_FIRST_LOAD ? "first load"
				  : with_obstacle("swap", "impossible", outlook),
				  merge_fill_statement(job, outlook->shape), plan_of_new_heap(job));
	if (outlook->tombstones)
	{
		sql = tombstones_query(outlook->tombstones, 0);
		plan = facts_plan(outlook->tombstones->source, sql);
		list_step(listing, is_remote ? "source" : "target", "read tombstones", sql, plan);
		list_step(listing, "target", "ask for their keys", tombstones_question(outlook->tombstones, "..."), NULL);
		list_deletion(listing, outlook, outlook->tombstones->shape, facts_plan_rows(plan));
	}
	if (job->options->deletes == DELETES_PRUNE)
	{
		sql = prune_question(job, outlook->source, outlook->shape);
		list_step(listing, is_remote ? "source" : "target", "compare keys, for a prune", sql, facts_plan(outlook->source, sql));
	}
	list_step(listing, "target", "post_sql", job->options->post_sql, NULL);
}

PG_FUNCTION_INFO_V1(incload_explain);

/*
 * incload_explain(job) → (step, side, what, sql, plan)
 *		What the next incload_run would run, where, and how. "side" is where the
 *		SQL runs, and with it filter, transforms and watermark expression.
 */
Datum
incload_explain(PG_FUNCTION_ARGS)
{
	Listing		listing = {.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo};
	Job		   *job = job_load(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	RoleBracket bracket;
	Outlook    *outlook;

	job_require_whole(job);
	InitMaterializedSRF(fcinfo, 0);
	role_enter_owner(&bracket, job->owner, job->search_path);
	outlook = outlook_open(job);
	list_run(&listing, outlook);
	outlook_close(outlook);
	role_leave(&bracket);
	return (Datum) 0;
}
