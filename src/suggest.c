/*
 * suggest.c
 *		Which watermark, key and strategy fit a source.
 *
 * The rule: a time that moves with each update first, then another time, then
 * an id that only grows, else a full refresh. Names, types, NOT NULL and the
 * source's indexes give each candidate a score; each says why in its reason.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "candidate.h"
#include "compat.h"
#include "facts.h"
#include "names.h"
#include "nature.h"
#include "role.h"
#include "suggest.h"
#include "target.h"

#define MAX_WATERMARKS 12

/* below so many rows, reading all of them each time is cheaper than to think about it */
#define XMIN_ROWS 10000

/* Advice: what the three kinds of suggestion are worked out from */
typedef struct Advice
{
	const Job  *job;
	const SourceFacts *facts;
	List	   *watermarks;		/* of Candidate *, best first */
	List	   *keys;			/* of Suggestion *, best first */
	List	   *strategies;		/* of Suggestion *, best first */
	Candidate  *watermark;		/* the chosen one, or NULL */
	Suggestion *key;			/* the chosen one, or NULL */
} Advice;

/* is "name" among the columns that the job loads? */
static bool
is_loaded(const Job *job, const char *name)
{
	ListCell   *lc;

	foreach(lc, job->options->transforms)
		if (strcmp(((Transform *) lfirst(lc))->column, name) == 0)
			return true;
	if (get_attnum(job->source, name) == InvalidAttrNumber)
		return false;
	return job->options->columns ? name_in_list(job->options->columns, name)
		: !name_in_list(job->options->exclude, name);
}

/* best first, equals by name: list_sort keeps no order of its own */
static int
compare_suggestions(const ListCell *a, const ListCell *b)
{
	const Suggestion *left = lfirst(a);
	const Suggestion *right = lfirst(b);

	return left->score != right->score ? right->score - left->score
		: strcmp(left->candidate, right->candidate);
}

static int
compare_candidates(const ListCell *a, const ListCell *b)
{
	ListCell	left = {.ptr_value = ((Candidate *) lfirst(a))->suggestion};
	ListCell	right = {.ptr_value = ((Candidate *) lfirst(b))->suggestion};

	return compare_suggestions(&left, &right);
}

/* the watermark that the job already has, found among the candidates or put before them */
static Candidate *
given_watermark(Advice *advice)
{
	const Job  *job = advice->job;
	AttrNumber	attnum = get_attnum(job->source, job->watermark);
	Candidate  *candidate;
	ListCell   *lc;

	foreach(lc, advice->watermarks)
	{
		candidate = lfirst(lc);
		if (strcmp(candidate->suggestion->candidate, job->watermark) == 0)
			return candidate;
	}
	candidate = palloc0(sizeof(Candidate));
	candidate->nature = NATURE_CREATED;
	if (attnum == InvalidAttrNumber || type_is_time(get_atttype(job->source, attnum)))
		candidate->nature = watermark_nature(job->watermark, get_rel_name(job->source));
	candidate->suggestion = suggestion_new("watermark", job->watermark, 50, pstrdup("as given"));
	advice->watermarks = lcons(candidate, advice->watermarks);
	return candidate;
}

/* rates all columns */
static void
find_watermarks(Advice *advice)
{
	Relation	rel = relation_open(advice->job->source, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Candidate  *candidate;

		if (TupleDescAttr(desc, i)->attisdropped)
			continue;
		candidate = candidate_of_column(advice->job, advice->facts, TupleDescAttr(desc, i));
		if (candidate)
			advice->watermarks = lappend(advice->watermarks, candidate);
	}
	relation_close(rel, AccessShareLock);
	list_sort(advice->watermarks, compare_candidates);
	advice->watermarks = list_truncate(advice->watermarks, MAX_WATERMARKS);
}

/*
 * choose_watermark
 *		The best of those that can be chosen. An append wants one that stays as
 *		it is: a row whose watermark moves would come a second time.
 */
static void
choose_watermark(Advice *advice, bool given_strategy)
{
	const Job  *job = advice->job;
	bool		wants_steady = given_strategy && job->strategy == STRATEGY_APPEND;
	ListCell   *lc;

	if (job->watermark)
	{
		advice->watermark = given_watermark(advice);
		return;
	}
	foreach(lc, advice->watermarks)
	{
		Candidate  *candidate = lfirst(lc);
		bool		is_steady = !nature_sees_updates(candidate->nature);

		if (!candidate->is_possible)
			continue;
		if (advice->watermark == NULL)
			advice->watermark = candidate;
		if (!wants_steady || is_steady)
		{
			advice->watermark = candidate;
			return;
		}
	}
}

/* how many rows the source's table has, also where it was never analyzed */
static double
estimate_rows(Source *source, const SourceFacts *facts)
{
	if (facts->rows >= 0)
		return facts->rows;
	return facts_plan_rows(facts_plan(source, psprintf("SELECT FROM %s",
													   source->routine->from_clause(source))));
}

/*
 * suggest_xmin
 *		Where no column can be chosen, a table of PostgreSQL still tells which
 *		transaction wrote a row: a scan there, and only what changed on the wire.
 */
static void
suggest_xmin(Advice *advice, Source *source, bool given_strategy)
{
	const Job  *job = advice->job;
	char		kind = advice->facts->kind;
	Candidate  *candidate;
	double		rows;

	if (advice->watermark != NULL || (given_strategy && job->strategy != STRATEGY_UPSERT) ||
		(kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE) ||
		(!source->is_local && !source->routine->outlives_commit))
		return;
	rows = estimate_rows(source, advice->facts);
	candidate = palloc0(sizeof(Candidate));
	candidate->nature = NATURE_UPDATED;
	candidate->is_possible = (rows > XMIN_ROWS || given_strategy) && advice->key != NULL;
	candidate->suggestion = suggestion_new("watermark", "xmin", candidate->is_possible ? 30 : 8,
										   psprintf("the transaction that wrote a row, as no column can be tracked: each run scans the source's table, about %.0f rows, and only those that changed are sent",
													rows));
	advice->watermarks = lappend(advice->watermarks, candidate);
	list_sort(advice->watermarks, compare_candidates);
	if (candidate->is_possible)
		advice->watermark = candidate;
}

/* the text of an array of names */
static char *
array_literal(List *names)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(list_length(names), 1));
	int			n = 0;
	ListCell   *lc;

	foreach(lc, names)
		elements[n++] = CStringGetTextDatum(lfirst(lc));
	return OidOutputFunctionCall(F_ARRAY_OUT,
								 PointerGetDatum(construct_array(elements, n, TEXTOID, -1,
																 false, TYPALIGN_INT)));
}

/* adds a key, unless it is there already or a job could not use it */
static void
add_key(Advice *advice, List *names, int score, const char *reason)
{
	Suggestion *key;
	char	   *literal;
	char	   *lacking = NULL;
	ListCell   *lc;

	if (names == NIL)
		return;
	literal = array_literal(names);
	foreach(lc, advice->keys)
		if (strcmp(((Suggestion *) lfirst(lc))->candidate, literal) == 0)
			return;
	foreach(lc, names)
	{
		if (!is_loaded(advice->job, lfirst(lc)))
			lacking = psprintf("column \"%s\" is not loaded from the source", (char *) lfirst(lc));
		else if (OidIsValid(advice->job->target) &&
				 get_attnum(advice->job->target, lfirst(lc)) == InvalidAttrNumber)
			lacking = psprintf("the target has no column \"%s\"", (char *) lfirst(lc));
	}
	key = suggestion_new("key", literal, lacking ? 0 : score,
						 lacking ? psprintf("%s, but %s", reason, lacking) : pstrdup(reason));
	key->names = names;
	advice->keys = lappend(advice->keys, key);
}

/* what the job was given stays, whatever becomes of it */
static void
add_given_key(Advice *advice)
{
	Suggestion *key = suggestion_new("key", array_literal(advice->job->key), 100, pstrdup("as given"));

	key->names = advice->job->key;
	advice->keys = list_make1(key);
}

/* the unique indexes that are not the primary key */
static void
add_unique_keys(Advice *advice)
{
	ListCell   *lc;

	foreach(lc, advice->facts->unique_keys)
	{
		List	   *names = lfirst(lc);
		bool		not_null = true;
		ListCell   *name;

		foreach(name, names)
			if (!facts_column(advice->facts, lfirst(name))->not_null)
				not_null = false;
		if (not_null)
			add_key(advice, names, 70, "a unique index at the source, all its columns NOT NULL");
		else
			add_key(advice, names, 20, "a unique index at the source, but a column of it may be NULL");
	}
}

/* the job's own key, the target's primary key, the source's, its unique indexes */
static void
find_keys(Advice *advice)
{
	const Job  *job = advice->job;
	List	   *names;
	ListCell   *lc;

	if (job->key != NIL)
		add_given_key(advice);
	if (OidIsValid(job->target))
		add_key(advice, target_primary_key(job->target), 95, "the primary key of the target");
	add_key(advice, facts_primary_key(advice->facts), 90, "the primary key of the source");
	add_unique_keys(advice);
	if (advice->facts->unique_keys == NIL)
	{
		names = relation_column_names(job->source);
		foreach(lc, names)
			if (name_says_key(lfirst(lc), get_rel_name(job->source)))
				add_key(advice, list_make1(lfirst(lc)), 15,
						"by its name alone, as no key can be seen at the source: give it if it identifies a row");
	}
	list_sort(advice->keys, compare_suggestions);
	/* those of 40 and above are known to identify a row */
	if (advice->keys != NIL && ((Suggestion *) linitial(advice->keys))->score >= 40)
		advice->key = linitial(advice->keys);
}

/* how well upsert fits, and why */
static Suggestion *
rate_upsert(const Advice *advice)
{
	const char *watermark;
	bool		sees_updates;
	int			score;

	if (advice->watermark == NULL)
		return suggestion_new("strategy", "upsert", 0,
							  pstrdup("no column tells which rows are new or changed"));
	watermark = advice->watermark->suggestion->candidate;
	sees_updates = nature_sees_updates(advice->watermark->nature);
	if (advice->key == NULL)
		return suggestion_new("strategy", "upsert", 0,
							  psprintf(sees_updates
									   ? "%s tells which rows changed, but no key is known by which to find them again in the target"
									   : "%s tells which rows are new, but no key is known that tells one row from another",
									   watermark));
	score = advice->watermark->suggestion->score;
	if (sees_updates)
		return suggestion_new("strategy", "upsert", score,
							  psprintf("%s finds rows that are new or changed, key %s finds them in the target; rows deleted at the source stay",
									   watermark, advice->key->candidate));
	return suggestion_new("strategy", "upsert", score / 2,
						  psprintf("%s finds new rows; a row that changes without it is not seen", watermark));
}

/* how well append fits, and why */
static Suggestion *
rate_append(const Advice *advice)
{
	const char *watermark;
	int			score;

	if (advice->watermark == NULL)
		return suggestion_new("strategy", "append", 0, pstrdup("no column tells which rows are new"));
	watermark = advice->watermark->suggestion->candidate;
	score = advice->watermark->suggestion->score;
	if (nature_sees_updates(advice->watermark->nature))
		return suggestion_new("strategy", "append", score / 4,
							  psprintf(advice->key
									   ? "%s moves when a row changes, and append leaves rows that the target has as they are"
									   : "%s moves when a row changes, and append adds a changed row a second time",
									   watermark));
	return suggestion_new("strategy", "append", score,
						  psprintf("%s finds new rows; rows changed or deleted at the source later are not seen",
								   watermark));
}

/* what a full refresh costs, and why it is all that is left where it is */
static Suggestion *
rate_full(const Advice *advice, bool is_best)
{
	StringInfoData reason;

	initStringInfo(&reason);
	if (is_best && advice->watermark)
		reason_add(&reason, psprintf("%s tells which rows changed, but without a key a changed row could not be found again in the target: give one with key => '{...}'",
									 advice->watermark->suggestion->candidate));
	else if (is_best)
		reason_add(&reason, "no column tells which rows are new or changed: give one with watermark => '...' if there is one");
	if (advice->facts->rows >= 0)
		reason_add(&reason, psprintf("reads all of about %.0f rows each time", advice->facts->rows));
	else
		reason_add(&reason, "reads the whole source each time");
	return suggestion_new("strategy", "full", is_best ? 50 : 10, reason.data);
}

static Strategy
choose_strategy(const Advice *advice)
{
	bool		sees_updates;

	if (advice->watermark == NULL)
		return STRATEGY_FULL;
	sees_updates = nature_sees_updates(advice->watermark->nature);
	if (!sees_updates)
		return STRATEGY_APPEND;
	if (advice->key)
		return STRATEGY_UPSERT;
	/* whoever names a watermark wants to load by it, and is told what lacks */
	return advice->job->watermark ? STRATEGY_UPSERT : STRATEGY_FULL;
}

static void
find_strategies(Advice *advice, bool given_strategy)
{
	Strategy	strategy = given_strategy ? advice->job->strategy : choose_strategy(advice);
	bool		full_is_best = !given_strategy && strategy == STRATEGY_FULL;
	ListCell   *lc;

	advice->strategies = list_make3(rate_upsert(advice), rate_append(advice),
									rate_full(advice, full_is_best));
	list_sort(advice->strategies, compare_suggestions);
	foreach(lc, advice->strategies)
	{
		Suggestion *suggestion = lfirst(lc);

		suggestion->chosen = strcmp(suggestion->candidate, strategy_name(strategy)) == 0;
		if (suggestion->chosen && given_strategy)
			suggestion->reason = psprintf("as given; %s", suggestion->reason);
	}
	if (strategy == STRATEGY_FULL)
		advice->watermark = NULL;
	if (advice->watermark)
		advice->watermark->suggestion->chosen = true;
	if (advice->key)
		advice->key->chosen = true;
}

List *
suggest(Source *source, const Job *job, bool given_strategy)
{
	Advice		advice = {.job = job};
	List	   *suggestions = NIL;
	ListCell   *lc;

	advice.facts = facts_gather(source);
	find_watermarks(&advice);
	find_keys(&advice);
	choose_watermark(&advice, given_strategy);
	suggest_xmin(&advice, source, given_strategy);
	find_strategies(&advice, given_strategy);

	suggestions = list_copy(advice.strategies);
	foreach(lc, advice.watermarks)
		suggestions = lappend(suggestions, ((Candidate *) lfirst(lc))->suggestion);
	return list_concat(suggestions, advice.keys);
}

Suggestion *
suggest_chosen(List *suggestions, const char *kind)
{
	ListCell   *lc;

	foreach(lc, suggestions)
	{
		Suggestion *suggestion = lfirst(lc);

		if (suggestion->chosen && strcmp(suggestion->kind, kind) == 0)
			return suggestion;
	}
	return NULL;
}

/* a job that is nothing but its source, read as the current user */
static Job *
job_of_source(const char *name)
{
	Job		   *job = palloc0(sizeof(Job));

	job->name = "incload_suggest";
	job->source = relation_require_source(name);
	job->source_name = relation_qualified_name(job->source);
	job->owner = GetUserId();
	job->owner_name = GetUserNameFromId(job->owner, false);
	job->options = options_parse(NULL);
	job->search_path = pstrdup(namespace_search_path);
	job->enabled = true;
	return job;
}

PG_FUNCTION_INFO_V1(incload_suggest);

/*
 * incload_suggest(source) → (kind, candidate, score, chosen, reason)
 *		What incload_create_job would choose for this source, and what else
 *		there is. Runs as the caller.
 */
Datum
incload_suggest(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Job		   *job = job_of_source(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	RoleBracket bracket;
	Source	   *source;
	List	   *suggestions;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	role_enter_owner(&bracket, job->owner, job->search_path);
	source = source_connect(job, CurrentMemoryContext);
	suggestions = suggest(source, job, false);
	source_release(source);
	role_leave(&bracket);

	foreach(lc, suggestions)
	{
		Suggestion *suggestion = lfirst(lc);
		Datum		values[5];
		bool		nulls[5] = {0};

		values[0] = CStringGetTextDatum(suggestion->kind);
		values[1] = CStringGetTextDatum(suggestion->candidate);
		values[2] = Int32GetDatum(suggestion->score);
		values[3] = BoolGetDatum(suggestion->chosen);
		values[4] = CStringGetTextDatum(suggestion->reason);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
