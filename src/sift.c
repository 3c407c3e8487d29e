/*
 * sift.c
 *		Finds the rows of a batch that the target refuses, and applies the others.
 *
 * Each attempt is a subtransaction. At first, all rows are tried at once: where
 * none is bad, that is all there is. Else they are cut into pieces, and what is
 * left of the pieces that fail is put together and cut again, into finer ones.
 * An attempt costs a statement and what it had done by the first bad row; as
 * most pieces are good, ten bad rows in a million cost some hundred statements,
 * and little more than the work of all rows twice.
 *
 * A row that breaks a unique, exclusion or foreign key constraint may be good
 * once others are there, or gone: it is tried again as long as others are
 * applied meanwhile, and first together with all of its kind.
 */
#include "postgres.h"

#include "catalog/pg_constraint.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "catalog.h"
#include "compat.h"
#include "reject.h"
#include "sift.h"

/* pieces that rows are cut into at first */
#define FIRST_PIECES 32

/* Sifting: the rows that are still to be applied, and what a round of pieces has shown */
typedef struct Sifting
{
	Stage	   *stage;
	SiftApply	apply;
	void	   *arg;
	MemoryContext scratch;		/* of one attempt */
	Tuplestorestate *pool;		/* rows to be tried */
	int64		npool;
	int64		npieces;		/* to cut them into */
	int			refers_to_itself;	/* has the target a foreign key to itself? -1: not asked yet */

	/* the round */
	Tuplestorestate *left;		/* rows of pieces that failed */
	int64		nleft;
	int64		nfailed;		/* pieces */
	int64		nblamed;		/* of these: for what no other row can mend */
	int64		norphans;		/* likewise: for want of a row that they refer to */
	bool		has_applied;	/* a piece was good, or a row was put aside */
	List	   *errors;			/* of each piece that failed */
	ErrorData  *last;			/* of these */
} Sifting;

/* can the error be another row's doing? */
static bool
may_pass(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_UNIQUE_VIOLATION ||
		error->sqlerrcode == ERRCODE_EXCLUSION_VIOLATION ||
		error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION;
}

/* Attempt: some rows and how they are applied */
typedef struct Attempt
{
	const Sifting *sifting;
	Stage	   *stage;
} Attempt;

static void
do_attempt(void *arg)
{
	Attempt    *attempt = arg;

	MemoryContextSwitchTo(attempt->sifting->scratch);
	attempt->sifting->apply(attempt->stage, attempt->sifting->arg);
}

/* NULL, or why they could not be applied */
static ErrorData *
try_rows(const Sifting *self, Tuplestorestate *rows, int64 nrows)
{
	Stage		part = *self->stage;
	Attempt		attempt = {self, &part};
	ErrorData  *error;

	CHECK_FOR_INTERRUPTS();
	part.rows = rows;
	part.nrows = nrows;
	error = reject_try(do_attempt, &attempt, NULL);
	MemoryContextReset(self->scratch);
	return error;
}

static void
move_rows(Tuplestorestate *from, Tuplestorestate *to, int64 n, TupleTableSlot *slot)
{
	for (int64 i = 0; i < n; i++)
	{
		if (!tuplestore_gettupleslot(from, true, false, slot))
			elog(ERROR, "a staged row is missing");
		tuplestore_puttupleslot(to, slot);
	}
}

/* the rows of a piece that has failed: one that is bad by itself is put aside, others are tried again */
static void
judge_piece(Sifting *self, Tuplestorestate *piece, int64 n, ErrorData *error, TupleTableSlot *slot)
{
	tuplestore_select_read_pointer(piece, 0);
	tuplestore_rescan(piece);
	self->last = error;
	if (n == 1 && !may_pass(error))
	{
		(void) tuplestore_gettupleslot(piece, true, false, slot);
		reject_staged(self->stage->rejects, slot, error);
		self->has_applied = true;
		return;
	}
	move_rows(piece, self->left, n, slot);
	self->nleft += n;
	self->nfailed++;
	self->nblamed += !may_pass(error);
	self->norphans += error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION;
	self->errors = lappend(self->errors, error);
}

/* tries all rows of the pool in pieces; those of pieces that fail are the next pool */
static void
try_pieces(Sifting *self, TupleTableSlot *slot)
{
	ListCell   *lc;

	self->left = tuplestore_begin_heap(false, false, work_mem);
	self->nleft = self->nfailed = self->nblamed = self->norphans = 0;
	self->has_applied = false;
	foreach(lc, self->errors)
		FreeErrorData(lfirst(lc));
	list_free(self->errors);
	self->errors = NIL;
	tuplestore_select_read_pointer(self->pool, 0);
	tuplestore_rescan(self->pool);
	self->npieces = Min(self->npieces, self->npool);
	for (int64 i = 1; i <= self->npieces; i++)
	{
		int64		n = self->npool / self->npieces + (i <= self->npool % self->npieces);
		Tuplestorestate *piece = tuplestore_begin_heap(false, false, work_mem);
		ErrorData  *error;

		move_rows(self->pool, piece, n, slot);
		error = try_rows(self, piece, n);
		if (error)
			judge_piece(self, piece, n, error, slot);
		else
			self->has_applied = true;
		tuplestore_end(piece);
	}
	if (self->pool != self->stage->rows)
		tuplestore_end(self->pool);
	self->pool = self->left;
	self->npool = self->nleft;
}

/* has the target a foreign key to itself? Then rows may wait for one another, all over the batch. */
static bool
refers_to_itself(Sifting *self)
{
	if (self->refers_to_itself < 0)
		self->refers_to_itself = catalog_query("SELECT FROM pg_constraint WHERE contype = 'f' AND conrelid = $1::oid"
											   " AND confrelid = conrelid", 1,
											   (const char *const[]) {psprintf("%u", self->stage->job->target)})->nrows > 0;
	return self->refers_to_itself;
}

/*
 * Each piece that fails has a bad row of its own. That is certain where no other
 * row can mend it, and assumed where a round has come to nothing.
 */
static void
check_limit(Sifting *self)
{
	const Rejects *rejects = self->stage->rejects;
	int64		certain = self->has_applied ? self->nblamed : self->nfailed;

	if (!self->has_applied && self->npieces < self->npool && refers_to_itself(self))
		certain -= self->norphans;
	if (certain > rejects->limit - rejects->count)
		reject_fail(rejects, self->last);
}

/* what is left, row by row, cannot be applied whatever comes first */
static void
reject_left(Sifting *self, TupleTableSlot *slot)
{
	ListCell   *lc;

	tuplestore_select_read_pointer(self->pool, 0);
	tuplestore_rescan(self->pool);
	foreach(lc, self->errors)
	{
		(void) tuplestore_gettupleslot(self->pool, true, false, slot);
		reject_staged(self->stage->rejects, slot, lfirst(lc));
	}
	self->npool = 0;
}

/* cuts and tries until nothing is left */
static void
sift_pool(Sifting *self)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(self->stage->shape->desc, &TTSOpsMinimalTuple);
	MemoryContext round = AllocSetContextCreate(CurrentMemoryContext, "incload sift", ALLOCSET_DEFAULT_SIZES);

	while (self->npool > 0)
	{
		MemoryContext old = MemoryContextSwitchTo(round);
		bool		row_by_row = self->npieces >= self->npool;

		try_pieces(self, slot);
		if (self->npool > 0)
		{
			check_limit(self);
			if (!self->has_applied && row_by_row)
				reject_left(self, slot);
			/* most pieces should be good ones */
			else if (!self->has_applied || self->nfailed * 4 > self->npieces)
				self->npieces = Max(self->npieces, self->nfailed) * 4;
			/* what others may have been in the way of */
			if (self->npool > 0 && self->has_applied && self->nblamed == 0 &&
				try_rows(self, self->pool, self->npool) == NULL)
				self->npool = 0;
		}
		MemoryContextSwitchTo(old);
	}
	/* what it has may be in the context of the rounds */
	ExecDropSingleTupleTableSlot(slot);
	tuplestore_end(self->pool);
	MemoryContextDelete(round);
}

/*
 * The constraints on rows of the target that are deferred unless one asks for it, as SET
 * CONSTRAINTS has them. That takes all of one name in a schema: "others" are those of which
 * some are never deferred.
 */
static List *
deferred_constraints(const Stage *stage, List **others)
{
	TextRows   *rows = catalog_query("WITH tree AS (SELECT $1::oid AS oid UNION SELECT relid::oid FROM pg_partition_tree($1::oid::regclass))"
									 " SELECT DISTINCT n.nspname, c.conname, EXISTS (SELECT FROM pg_constraint o WHERE o.connamespace = n.oid"
									 "  AND o.conname = c.conname AND NOT o.condeferred) FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace"
									 " WHERE c.condeferred AND (c.conrelid IN (SELECT oid FROM tree) OR c.confrelid IN (SELECT oid FROM tree))"
									 "  AND has_schema_privilege($2::oid, n.oid, 'USAGE')", 2,
									 (const char *const[]) {psprintf("%u", stage->job->target), psprintf("%u", stage->job->owner)});
	List	   *names = NIL;

	for (int i = 0; i < rows->nrows; i++)
	{
		RangeVar   *name = makeRangeVar(rows->value[i][0], rows->value[i][1], -1);

		if (rows->value[i][2][0] == 't')
			*others = lappend(*others, name);
		else
			names = lappend(names, name);
	}
	return names;
}

static void
set_constraints(List *names, bool deferred)
{
	ConstraintsSetStmt *statement = makeNode(ConstraintsSetStmt);

	statement->constraints = names;
	statement->deferred = deferred;
	AfterTriggerSetState(statement);
}

void
sift(Stage *stage, SiftApply apply, void *arg)
{
	Sifting		self = {
		.stage = stage, .apply = apply, .arg = arg, .pool = stage->rows, .npool = stage->nrows,
		.npieces = FIRST_PIECES, .refers_to_itself = -1,
		.scratch = AllocSetContextCreate(CurrentMemoryContext, "incload attempt", ALLOCSET_DEFAULT_SIZES)
	};
	/* at COMMIT it would be too late to tell whose fault it is; what is pending already is not these rows' */
	List	   *others = NIL;
	List	   *deferred = deferred_constraints(stage, &others);

	if (deferred || others)
		set_constraints(list_concat_copy(deferred, others), false);
	if (try_rows(&self, stage->rows, stage->nrows) != NULL)
		sift_pool(&self);
	MemoryContextDelete(self.scratch);
	/* the caller's transaction goes on; somebody else's may defer nothing, see role_fire_deferred() */
	if (deferred && !InSecurityRestrictedOperation())
		set_constraints(deferred, true);
}
