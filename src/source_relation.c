/*
 * source_relation.c
 *		The reader for anything that can be selected from: tables, views, and
 *		foreign tables of every wrapper.
 *
 * The query runs in the executor, inside the local transaction, so that each
 * wrapper's own push-down works. Rows are converted to the types of the stage
 * as an assignment would convert them: a value that does not fit is an error
 * and is never cut to fit.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "executor/execdesc.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "kept_plan.h"
#include "names.h"
#include "progress.h"
#include "reject.h"
#include "source.h"
#include "text_row.h"

typedef struct RelationSource RelationSource;

/* RowReceiver: where the executor puts rows; passes them on to the stage */
typedef struct RowReceiver
{
	DestReceiver dest;
	RelationSource *source;
	Stage	   *stage;
	bool		is_full;		/* the stage has taken its last row */
} RowReceiver;

struct RelationSource
{
	Source		base;
	MemoryContext query_context;
	QueryDesc  *query;
	EState	   *estate;			/* for the conversion */
	ProjectionInfo *convert;	/* NULL where every type is right as it comes */
	const Shape *shape;
	RowReceiver receiver;
};

/* of a relation that is here */
static int
relation_version(Source *source)
{
	return atoi(GetConfigOption("server_version_num", false, false));
}

static char *
relation_name(Source *source)
{
	return relation_qualified_name(source->job->source);
}

static char *
relation_from_clause(Source *source)
{
	source->system = psprintf("source.%s", source->with_system ? source->with_system : "tableoid");
	return psprintf("%s AS source", relation_name(source));
}

static TextRows *
relation_ask(Source *source, const char *sql)
{
	return target_ask(sql);
}

static TextRows *
relation_ask_about(Source *source, const char *sql, const char *argument)
{
	MemoryContext context = CurrentMemoryContext;
	TextRows   *rows;

	SPI_connect();
	kept_plan_execute(sql, 1, &argument);
	rows = text_rows_from_spi(context);
	SPI_finish();
	return rows;
}

/* the one query that a SELECT of incload's making is after analysis */
static Query *
analyze(const char *sql)
{
	List	   *queries;

	queries = pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, pg_parse_query(sql)), sql,
												 NULL, 0, NULL);
	return linitial_node(Query, queries);
}

static void
relation_describe(Source *source, const char *sql, int ncolumns,
				  Oid *types, int32 *typmods, Oid *collations)
{
	Query	   *query;
	int			i = 0;
	ListCell   *lc;

	PushActiveSnapshot(GetTransactionSnapshot());
	query = analyze(sql);
	foreach(lc, query->targetList)
	{
		TargetEntry *entry = lfirst(lc);

		if (entry->resjunk)
			continue;
		Assert(i < ncolumns);
		types[i] = exprType((Node *) entry->expr);
		typmods[i] = exprTypmod((Node *) entry->expr);
		collations[i] = exprCollation((Node *) entry->expr);
		i++;
	}
	PopActiveSnapshot();
}

/* the conversion from what the query returns to what the stage holds */
static void
prepare_conversion(RelationSource *self, TupleDesc from)
{
	TupleDesc	to = self->shape->desc;
	List	   *targets = NIL;
	bool		is_needed = false;
	ExprContext *econtext;
	TupleTableSlot *slot;

	for (int i = 0; i < to->natts; i++)
	{
		Form_pg_attribute in = TupleDescAttr(from, i);
		Form_pg_attribute out = TupleDescAttr(to, i);
		Node	   *expr = (Node *) makeVar(1, i + 1, in->atttypid, in->atttypmod, in->attcollation, 0);

		if (in->atttypid != out->atttypid ||
			(out->atttypmod != -1 && out->atttypmod != in->atttypmod))
		{
			expr = coerce_to_target_type(NULL, expr, in->atttypid, out->atttypid, out->atttypmod,
										 COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
			if (expr == NULL)
				elog(ERROR, "cannot convert column \"%s\"", NameStr(out->attname));
			is_needed = true;
		}
		targets = lappend(targets, makeTargetEntry((Expr *) expression_planner((Expr *) expr), i + 1,
												   pstrdup(NameStr(out->attname)), false));
	}
	self->estate = CreateExecutorState();
	econtext = GetPerTupleExprContext(self->estate);
	self->convert = NULL;
	if (!is_needed)
		return;
	slot = compat_MakeTupleTableSlot(to, &TTSOpsVirtual);
	self->convert = ExecBuildProjectionInfo(targets, econtext, slot, NULL, from);
}

/* converts a row and puts it into the stage */
static bool
take_row(RelationSource *self, Stage *stage, TupleTableSlot *slot)
{
	ExprContext *econtext = GetPerTupleExprContext(self->estate);
	MemoryContext old;
	Size		size;
	bool		taken;

	if (self->convert)
	{
		econtext->ecxt_scantuple = slot;
		slot = ExecProject(self->convert);
	}
	slot_getallattrs(slot);
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	size = heap_compute_data_size(self->shape->desc, slot->tts_values, slot->tts_isnull);
	self->base.bytes_read += size;
	progress_bytes(size);
	taken = stage_put(stage, slot->tts_values, slot->tts_isnull);
	MemoryContextSwitchTo(old);
	return taken;
}

/* Taking: a row that may be put aside */
typedef struct Taking
{
	RelationSource *source;
	Stage	   *stage;
	TupleTableSlot *slot;
	bool		taken;
} Taking;

static void
take_doubtful(void *arg)
{
	Taking	   *taking = arg;

	taking->taken = take_row(taking->source, taking->stage, taking->slot);
}

/* the same where a row can be bad: that is put aside */
static bool
take_or_reject(RelationSource *self, Stage *stage, TupleTableSlot *slot)
{
	Taking		taking = {self, stage, slot};
	MemoryContext old = MemoryContextSwitchTo(GetPerTupleExprContext(self->estate)->ecxt_per_tuple_memory);
	ErrorData  *error = reject_try(take_doubtful, &taking, NULL);

	if (error && stage_is_full(stage))
		/* the next batch reads it again */
		taking.taken = false;
	else if (error)
	{
		slot_getallattrs(slot);
		reject_unstaged(stage->rejects, text_row_print(slot->tts_tupleDescriptor, slot->tts_values, slot->tts_isnull),
						true, error);
		stage->nrejected++;
		taking.taken = true;
	}
	MemoryContextSwitchTo(old);
	return taking.taken;
}

static bool
receive_row(TupleTableSlot *slot, DestReceiver *dest)
{
	RowReceiver *receiver = (RowReceiver *) dest;
	RelationSource *self = receiver->source;
	Stage	   *stage = receiver->stage;
	bool		taken;

	ResetExprContext(GetPerTupleExprContext(self->estate));
	slot_getallattrs(slot);
	if (stage->rejects && (self->convert || stage_refuses(stage, slot->tts_isnull)))
		taken = take_or_reject(self, stage, slot);
	else
		taken = take_row(self, stage, slot);
	receiver->is_full = !taken;
	return taken;
}

static void
receiver_startup(DestReceiver *dest, int operation, TupleDesc desc)
{
}

static void
receiver_nothing(DestReceiver *dest)
{
}

static void
relation_open_query(Source *source, List *queries, const Shape *shape)
{
	const char *sql = linitial(queries);
	RelationSource *self = (RelationSource *) source;
	MemoryContext old;
	PlannedStmt *plan;

	self->query_context = AllocSetContextCreate(source->context, "incload relation", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(self->query_context);
	self->shape = shape;

	PushActiveSnapshot(GetTransactionSnapshot());
	plan = compat_pg_plan_query(analyze(sql), sql, 0);
	/* the relations are locked by now: an older snapshot would show nothing of one that was rewritten before */
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
	self->receiver.dest.receiveSlot = receive_row;
	self->receiver.dest.rStartup = receiver_startup;
	self->receiver.dest.rShutdown = receiver_nothing;
	self->receiver.dest.rDestroy = receiver_nothing;
	self->receiver.source = self;
	self->query = CreateQueryDesc(plan, pstrdup(sql), GetActiveSnapshot(), InvalidSnapshot,
								  &self->receiver.dest, NULL, NULL, 0);
	ExecutorStart(self->query, 0);
	prepare_conversion(self, self->query->tupDesc);
	PopActiveSnapshot();
	MemoryContextSwitchTo(old);
}

static bool
relation_read(Source *source, Stage *stage)
{
	RelationSource *self = (RelationSource *) source;

	self->receiver.stage = stage;
	self->receiver.is_full = false;
	PushActiveSnapshot(self->query->snapshot);
	compat_ExecutorRun(self->query, ForwardScanDirection, 0);
	PopActiveSnapshot();
	return self->receiver.is_full;
}

static void
relation_close_query(Source *source)
{
	RelationSource *self = (RelationSource *) source;

	if (self->query == NULL)
		return;
	ExecutorFinish(self->query);
	ExecutorEnd(self->query);
	FreeQueryDesc(self->query);
	self->query = NULL;
	FreeExecutorState(self->estate);
	MemoryContextDelete(self->query_context);
}

static void
relation_release(Source *source)
{
	/* the transaction's end takes what an open query holds */
}

static const SourceRoutine relation_routine = {
	.name = "relation",
	.outlives_commit = false,
	.version = relation_version,
	.from_clause = relation_from_clause,
	.relation_name = relation_name,
	.ask = relation_ask,
	.ask_about = relation_ask_about,
	.describe = relation_describe,
	.open = relation_open_query,
	.read = relation_read,
	.close = relation_close_query,
	.release = relation_release,
};

Source *
source_relation_connect(const Job *job, MemoryContext context)
{
	RelationSource *self = MemoryContextAllocZero(context, sizeof(RelationSource));
	char		relkind = get_rel_relkind(job->source);

	self->base.routine = &relation_routine;
	self->base.job = job;
	self->base.context = context;
	self->base.xmin = "source.xmin";
	self->base.is_postgres = relkind != RELKIND_FOREIGN_TABLE;
	self->base.is_local = relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE ||
		relkind == RELKIND_MATVIEW;
	return &self->base;
}
