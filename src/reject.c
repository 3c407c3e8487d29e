/*
 * reject.c
 *		Rows that a run puts aside since they cannot be taken, with what they were refused for.
 *
 * They are kept as text, in a JSON object: what could not be turned into a value
 * of its type has no other form, and text becomes the very same value again.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "attempt.h"
#include "catalog.h"
#include "compat.h"
#include "reject.h"
#include "role.h"
#include "text_row.h"
#include "trouble.h"

typedef struct Reject
{
	char	   *key;			/* JSON; NULL without a key */
	char	   *row;			/* JSON */
	bool		is_exact;
	char	   *sqlstate;
	char	   *error;
} Reject;

/* OpenReject: one that was there before */
typedef struct OpenReject
{
	const char *key;
	const char *id;
} OpenReject;

Rejects *
rejects_create(const Job *job, const Shape *shape, int64 run_id, int64 limit, MemoryContext context)
{
	Rejects    *rejects = MemoryContextAllocZero(context, sizeof(Rejects));

	rejects->job = job;
	rejects->shape = shape;
	rejects->run_id = run_id;
	rejects->limit = limit;
	rejects->context = AllocSetContextCreate(context, "incload rejects", ALLOCSET_SMALL_SIZES);
	return rejects;
}

/* a class of error codes that neither the SQL standard nor PostgreSQL has: somebody raises it himself */
static bool
is_user_defined(const char *sqlstate)
{
	static const char *const taken[] = {"53", "54", "55", "57", "58", "72", "XX"};

	if (!(sqlstate[0] >= '5' && sqlstate[0] <= '9') && !(sqlstate[0] >= 'I' && sqlstate[0] <= 'Z'))
		return false;
	for (int i = 0; i < lengthof(taken); i++)
		if (strncmp(sqlstate, taken[i], 2) == 0)
			return false;
	return true;
}

bool
reject_blames_row(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case ERRCODE_DATA_EXCEPTION:
		case ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION:
		case ERRCODE_WITH_CHECK_OPTION_VIOLATION:
		case ERRCODE_PLPGSQL_ERROR:
			return true;
		default:
			/* a value that an index has no room for; what a trigger raises by a code of its own */
			return sqlstate == ERRCODE_PROGRAM_LIMIT_EXCEEDED ||
				is_user_defined(unpack_sql_state(sqlstate));
	}
}

ErrorData *
reject_try(void (*work) (void *), void *arg, const volatile bool *judging)
{
	ErrorData  *error = attempt(work, arg);

	if (error && (!reject_blames_row(error->sqlerrcode) || (judging && !*judging)))
		ReThrowError(error);
	return error;
}

static void
append_member(StringInfo buf, const char *name, const char *value, bool is_bare)
{
	appendStringInfoString(buf, buf->len > 1 ? ", " : "");
	escape_json(buf, name);
	appendStringInfoString(buf, ": ");
	if (value && !is_bare)
		escape_json(buf, value);
	else
		appendStringInfoString(buf, value ? value : "null");
}

/* the order in which jsonb keeps names */
static int
compare_names(const void *a, const void *b, void *arg)
{
	const LoadColumn *columns = arg;
	const char *left = columns[*(const int *) a].name;
	const char *right = columns[*(const int *) b].name;
	size_t		n = strlen(left);

	if (n != strlen(right))
		return n < strlen(right) ? -1 : 1;
	return memcmp(left, right, n);
}

/*
 * Whether a value of the key is written as a number, as incload_reconcile writes it. Only where jsonb
 * prints the same text again: not floating point, and neither NaN nor what is no value of the type.
 */
static bool
is_number(const LoadColumn *column, const char *value)
{
	Oid			type = getBaseType(column->type);

	if (value == NULL || (type != INT2OID && type != INT4OID && type != INT8OID && type != NUMERICOID))
		return false;
	if (*value == '-')
		value++;
	if (!isdigit((unsigned char) *value) || (value[0] == '0' && isdigit((unsigned char) value[1])))
		return false;
	value += strspn(value, "0123456789");
	if (*value == '.' && isdigit((unsigned char) value[1]))
		value += 1 + strspn(value + 1, "0123456789");
	return *value == '\0';
}

/* the text that the jsonb of it has, so that it can be compared */
char *
reject_key_json(const Shape *shape, char **values)
{
	StringInfoData buf;
	int		   *order;

	if (shape->nkeys == 0)
		return NULL;
	order = palloc(sizeof(int) * shape->nkeys);
	memcpy(order, shape->key, sizeof(int) * shape->nkeys);
	qsort_arg(order, shape->nkeys, sizeof(int), compare_names, shape->columns);
	initStringInfo(&buf);
	appendStringInfoChar(&buf, '{');
	for (int i = 0; i < shape->nkeys; i++)
		append_member(&buf, shape->columns[order[i]].name, values[order[i]], is_number(&shape->columns[order[i]], values[order[i]]));
	appendStringInfoChar(&buf, '}');
	return buf.data;
}

static char *
row_json(const Shape *shape, char **values)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '{');
	for (int i = 0; i < shape->desc->natts; i++)
		append_member(&buf, NameStr(TupleDescAttr(shape->desc, i)->attname), values[i], false);
	appendStringInfoChar(&buf, '}');
	return buf.data;
}

/* what a row was refused for, without what incload says of every error there */
static char *
error_text(const ErrorData *error)
{
	if (error->detail == NULL || trouble_said(error->detail))
		return pstrdup(error->message);
	return psprintf("%s\n%s", error->message, error->detail);
}

void
reject_fail(const Rejects *rejects, const ErrorData *error)
{
	ereport(ERROR,
			(errcode(error->sqlerrcode),
			 errmsg("more rows of job \"%s\" cannot be taken than the option \"reject_limit\" allows", rejects->job->name),
			 errdetail("It allows " INT64_FORMAT "; the last one: %s", rejects->limit, error_text(error)),
			 errhint("Mend them at the source, change the target, or raise the option.")));
}

/*
 * A key is printed in one way, so that it is found again by its text: whatever the zone of
 * the session is. The caller takes the setting back by AtEOXact_GUC(false, level).
 */
static int
pin_keys(void)
{
	int			level = NewGUCNestLevel();

	role_set("TimeZone", "UTC");
	return level;
}

static void
add(Rejects *rejects, char **keys, char **values, bool is_exact, const ErrorData *error)
{
	MemoryContext old;
	Reject	   *reject;

	if (rejects->count >= rejects->limit)
		reject_fail(rejects, error);
	old = MemoryContextSwitchTo(rejects->context);
	reject = palloc(sizeof(Reject));
	reject->key = reject_key_json(rejects->shape, keys);
	reject->row = row_json(rejects->shape, values);
	reject->is_exact = is_exact;
	reject->sqlstate = pstrdup(unpack_sql_state(error->sqlerrcode));
	reject->error = error_text(error);
	rejects->rows = lappend(rejects->rows, reject);
	if (rejects->first_error == NULL)
		rejects->first_error = MemoryContextStrdup(GetMemoryChunkContext(rejects), reject->error);
	MemoryContextSwitchTo(old);
	rejects->count++;
}

/* KeyWork: the key of a row that was not staged, and where it goes */
typedef struct KeyWork
{
	const Shape *shape;
	char	  **texts;
	Datum	   *values;
	bool	   *nulls;
} KeyWork;

static void
read_key(void *arg)
{
	KeyWork    *work = arg;

	for (int i = 0; i < work->shape->nkeys; i++)
	{
		const LoadColumn *column = &work->shape->columns[work->shape->key[i]];
		Oid			function;
		Oid			param;

		getTypeInputInfo(column->type, &function, &param);
		work->values[work->shape->key[i]] = OidInputFunctionCall(function, work->texts[work->shape->key[i]],
																 param, column->typmod);
		work->nulls[work->shape->key[i]] = work->texts[work->shape->key[i]] == NULL;
	}
}

/*
 * A prune has to leave the row alone that the target has of before; of a key that is no value
 * it has none. Returns the key as that row's would be printed, and as it came where it is none.
 */
static char **
keep_key(Rejects *rejects, char **texts)
{
	TupleDesc	desc = rejects->shape->desc;
	KeyWork		work = {rejects->shape, texts};
	MemoryContext old;

	if (rejects->shape->nkeys == 0)
		return texts;
	work.values = palloc0(sizeof(Datum) * desc->natts);
	work.nulls = palloc(sizeof(bool) * desc->natts);
	memset(work.nulls, true, sizeof(bool) * desc->natts);
	if (reject_try(read_key, &work, NULL) != NULL)
		return texts;
	old = MemoryContextSwitchTo(rejects->context);
	if (rejects->keys == NULL)
		rejects->keys = tuplestore_begin_heap(false, false, 64);
	tuplestore_putvalues(rejects->keys, desc, work.values, work.nulls);
	MemoryContextSwitchTo(old);
	rejects->nkeys++;
	return text_row_print(desc, work.values, work.nulls);
}

void
reject_unstaged(Rejects *rejects, char **values, bool is_exact, const ErrorData *error)
{
	int			level = pin_keys();

	add(rejects, keep_key(rejects, values), values, is_exact, error);
	AtEOXact_GUC(false, level);
}

void
reject_staged(Rejects *rejects, TupleTableSlot *slot, const ErrorData *error)
{
	int			level = pin_keys();
	char	  **values;

	slot_getallattrs(slot);
	values = text_row_print(rejects->shape->desc, slot->tts_values, slot->tts_isnull);
	add(rejects, values, values, true, error);
	AtEOXact_GUC(false, level);
}

static void
copy_rows(Tuplestorestate *from, Tuplestorestate *to, TupleTableSlot *slot)
{
	tuplestore_select_read_pointer(from, 0);
	tuplestore_rescan(from);
	while (tuplestore_gettupleslot(from, true, false, slot))
		tuplestore_puttupleslot(to, slot);
}

Stage *
rejects_with_keys(const Rejects *rejects, Stage *stage)
{
	TupleTableSlot *slot;
	Stage	   *both;

	if (rejects == NULL || rejects->keys == NULL)
		return stage;
	both = palloc(sizeof(Stage));
	*both = *stage;
	slot = MakeSingleTupleTableSlot(stage->shape->desc, &TTSOpsMinimalTuple);
	both->rows = tuplestore_begin_heap(false, false, work_mem);
	copy_rows(stage->rows, both->rows, slot);
	copy_rows(rejects->keys, both->rows, slot);
	both->nrows += rejects->nkeys;
	ExecDropSingleTupleTableSlot(slot);
	return both;
}

static int
compare_open(const void *a, const void *b)
{
	return strcmp(((const OpenReject *) a)->key, ((const OpenReject *) b)->key);
}

/* the key of a staged row, as it would stand in a reject of it */
static char *
staged_key(const Shape *shape, TupleTableSlot *slot)
{
	char	  **texts = palloc0(sizeof(char *) * shape->desc->natts);

	slot_getallattrs(slot);
	for (int i = 0; i < shape->nkeys; i++)
	{
		int			position = shape->key[i];
		Oid			function;
		bool		varlena;

		getTypeOutputInfo(shape->columns[position].type, &function, &varlena);
		texts[position] = OidOutputFunctionCall(function, slot->tts_values[position]);
	}
	return reject_key_json(shape, texts);
}

/* takes out those of which the batch has brought another version, be it good or bad */
static void
remove_obsolete(const Job *job, const Shape *shape, Stage *stage)
{
	const char *params[1] = {catalog_number(job->id)};
	TextRows   *open = catalog_query("SELECT key::text, reject_id FROM incload.reject_store WHERE job_id = $1::bigint"
									 " AND key IS NOT NULL", 1, params);
	OpenReject *sorted = palloc(sizeof(OpenReject) * Max(open->nrows, 1));
	TupleTableSlot *slot = MakeSingleTupleTableSlot(shape->desc, &TTSOpsMinimalTuple);
	MemoryContext row_context = AllocSetContextCreate(CurrentMemoryContext, "incload row", ALLOCSET_DEFAULT_SIZES);
	StringInfoData ids;
	int			level = pin_keys();

	initStringInfo(&ids);
	for (int i = 0; i < open->nrows; i++)
		sorted[i] = (OpenReject) {open->value[i][0], open->value[i][1]};
	qsort(sorted, open->nrows, sizeof(OpenReject), compare_open);
	tuplestore_select_read_pointer(stage->rows, 0);
	tuplestore_rescan(stage->rows);
	/* a row that comes from a file is the slot's, in the context in which it is read */
	while (open->nrows > 0 && tuplestore_gettupleslot(stage->rows, true, false, slot))
	{
		MemoryContext old = MemoryContextSwitchTo(row_context);
		OpenReject	wanted;
		OpenReject *found;

		CHECK_FOR_INTERRUPTS();
		wanted.key = staged_key(shape, slot);
		found = bsearch(&wanted, sorted, open->nrows, sizeof(OpenReject), compare_open);
		if (found)
			appendStringInfo(&ids, "%s%s", ids.len ? "," : "{", found->id);
		MemoryContextSwitchTo(old);
		MemoryContextReset(row_context);
	}
	MemoryContextDelete(row_context);
	ExecDropSingleTupleTableSlot(slot);
	AtEOXact_GUC(false, level);
	if (ids.len == 0)
		return;
	appendStringInfoChar(&ids, '}');
	params[0] = ids.data;
	catalog_query("DELETE FROM incload.reject_store WHERE reject_id = ANY ($1::bigint[])", 1, params);
}

static void
write_rejects(Rejects *rejects)
{
	ListCell   *lc;

	foreach(lc, rejects->rows)
	{
		const Reject *reject = lfirst(lc);
		const char *params[7] = {
			catalog_number(rejects->job->id), catalog_number(rejects->run_id), reject->key, reject->row,
			reject->is_exact ? "t" : "f", reject->sqlstate, reject->error
		};

		/* one that is found bad again before it was staged is not there twice */
		if (reject->key)
			catalog_query("DELETE FROM incload.reject_store WHERE job_id = $1::bigint"
						  " AND jsonb_hash_extended(key, 0) = jsonb_hash_extended($2::jsonb, 0) AND key = $2::jsonb",
						  2, (const char *const[]) {params[0], params[2]});
		catalog_query("INSERT INTO incload.reject_store (job_id, run_id, key, \"row\", is_exact, sqlstate, error)"
					  " VALUES ($1::bigint, $2::bigint, $3::jsonb, $4::jsonb, $5::boolean, $6, $7)", 7, params);
	}
}

static char *
how_many(int64 n)
{
	return n == 1 ? pstrdup("1 row") : psprintf(INT64_FORMAT " rows", n);
}

/* a ticket, one for a run, which says after each batch how many there are */
static void
write_event(const Rejects *rejects)
{
	const Job  *job = rejects->job;
	const char *params[7] = {
		catalog_number(job->id), job->name, job->owner_name, catalog_number(rejects->run_id),
		psprintf("%s could not be taken, and stand in incload.reject; the first: %s", how_many(rejects->count), rejects->first_error),
		catalog_number(rejects->count),
		psprintf("SELECT * FROM incload.reject WHERE job = %s;", quote_literal_cstr(job->name))
	};

	catalog_query("WITH told AS (UPDATE incload.event_store SET message = $5,"
				  "  details = details || jsonb_build_object('rows', $6::bigint)"
				  "  WHERE job_id = $1::bigint AND run_id = $4::bigint AND code = 'rows_rejected' RETURNING 1)"
				  " INSERT INTO incload.event_store (job_id, job, owner, run_id, severity, code, message, details)"
				  " SELECT $1::bigint, $2, $3::name, $4::bigint, 'ticket', 'rows_rejected', $5,"
				  "  jsonb_build_object('rows', $6::bigint, 'sql', $7) WHERE NOT EXISTS (SELECT FROM told)", 7, params);
}

void
rejects_settle(const Job *job, const Shape *shape, Stage *stage, Rejects *rejects, bool is_full)
{
	if (catalog_has_rejects(job->id))
	{
		if (is_full)
			catalog_query("DELETE FROM incload.reject_store WHERE job_id = $1::bigint", 1,
						  (const char *const[]) {catalog_number(job->id)});
		/* in a log of versions, what was read last may be older than what was bad */
		else if (shape->nkeys > 0 && stage->rows &&
				 (!job->options->only_newer || (rejects && rejects->is_retry)))
			remove_obsolete(job, shape, stage);
	}
	if (rejects == NULL || rejects->rows == NIL)
		return;
	write_rejects(rejects);
	if (!rejects->is_retry)
		write_event(rejects);
	if (rejects->keys)
		tuplestore_end(rejects->keys);
	rejects->keys = NULL;
	rejects->nkeys = 0;
	rejects->rows = NIL;
	MemoryContextReset(rejects->context);
}

void
rejects_report(const Rejects *rejects)
{
	if (rejects == NULL || rejects->count == 0 || rejects->is_retry)
		return;
	ereport(WARNING,
			(errmsg("%s: %s could not be taken, and stand in incload.reject", rejects->job->name, how_many(rejects->count)),
			 errdetail("The first: %s", rejects->first_error),
			 errhint("Once they can be, SELECT * FROM incload_retry_rejects(%s) loads them.",
					 quote_literal_cstr(rejects->job->name))));
}
