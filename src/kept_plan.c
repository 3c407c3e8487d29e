/*
 * kept_plan.c
 *		Statements of incload's own, planned once a session.
 *
 * A run executes the same handful of small statements each time, and planning
 * them takes longer than executing them. Whatever changes what they name makes
 * the server plan them again.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/resowner.h"

#include "compat.h"
#include "kept_plan.h"

#define MAX_PARAMS 40

/* texts that are no constants must not fill the memory */
#define MAX_PLANS 200

typedef struct KeptPlan
{
	const char *sql;			/* the key */
	SPIPlanPtr	plan;
} KeptPlan;

static HTAB *plans = NULL;

static uint32
hash_text(const void *key, Size size)
{
	const char *sql = *(const char *const *) key;

	return DatumGetUInt32(hash_any((const unsigned char *) sql, strlen(sql)));
}

static int
compare_texts(const void *a, const void *b, Size size)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
}

static SPIPlanPtr
prepare(const char *sql, int nparams)
{
	Oid			types[MAX_PARAMS];
	SPIPlanPtr	plan;

	for (int i = 0; i < nparams; i++)
		types[i] = TEXTOID;
	/* which rows there are matters for none of them */
	plan = SPI_prepare_cursor(sql, nparams, types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare_cursor failed: %s", SPI_result_code_string(SPI_result));
	return plan;
}

static KeptPlan *
find_kept(const char *sql)
{
	if (plans == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(char *), .entrysize = sizeof(KeptPlan),
		.hash = hash_text, .match = compare_texts};

		plans = hash_create("incload plans", 32, &control, HASH_ELEM | HASH_FUNCTION | HASH_COMPARE);
	}
	return hash_search(plans, &sql, HASH_FIND, NULL);
}

static SPIPlanPtr
find_plan(const char *sql, int nparams)
{
	KeptPlan   *kept = find_kept(sql);
	SPIPlanPtr	plan;

	if (kept)
		return kept->plan;
	plan = prepare(sql, nparams);
	if (hash_get_num_entries(plans) < MAX_PLANS)
	{
		const char *key = MemoryContextStrdup(TopMemoryContext, sql);

		SPI_keepplan(plan);
		kept = hash_search(plans, &key, HASH_ENTER, NULL);
		kept->plan = plan;
	}
	return plan;
}

static void
take_params(int nparams, const char *const *params, Datum *values, char *nulls)
{
	Assert(nparams <= MAX_PARAMS);
	for (int i = 0; i < nparams; i++)
	{
		nulls[i] = params[i] ? ' ' : 'n';
		values[i] = params[i] ? CStringGetTextDatum(params[i]) : (Datum) 0;
	}
}

void
kept_plan_execute_once(const char *sql, int nparams, const char *const *params)
{
	Datum		values[MAX_PARAMS] = {0};
	char		nulls[MAX_PARAMS] = {0};
	Oid			types[MAX_PARAMS];
	int			code;

	take_params(nparams, params, values, nulls);
	for (int i = 0; i < nparams; i++)
		types[i] = TEXTOID;
	code = SPI_execute_with_args(sql, nparams, types, values, nulls, false, 0);
	if (code < 0)
		elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(code));
}

void
kept_plan_execute(const char *sql, int nparams, const char *const *params)
{
	Datum		values[MAX_PARAMS] = {0};
	char		nulls[MAX_PARAMS] = {0};
	int			code;

	take_params(nparams, params, values, nulls);
	code = SPI_execute_plan(find_plan(sql, nparams), values, nulls, false, 0);
	if (code < 0)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(code));
}

void
kept_plan_prepare(const char *sql, int nparams)
{
	SPIPlanPtr	statement = find_plan(sql, nparams);
	CachedPlan *plan;

	/* what is not kept would be planned for nothing */
	if (find_kept(sql) == NULL)
		return;
	plan = SPI_plan_get_cached_plan(statement);
	if (plan)
		ReleaseCachedPlan(plan, CurrentResourceOwner);
}
