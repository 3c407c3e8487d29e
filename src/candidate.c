/*
 * candidate.c
 *		How well a column of a source serves as its watermark.
 *
 * The name gives most of the points, so that times that move with each update
 * come before other times, and those before ids; type, NOT NULL and the
 * source's indexes decide among equals.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "utils/lsyscache.h"

#include "candidate.h"
#include "compat.h"
#include "watermark.h"

Suggestion *
suggestion_new(const char *kind, const char *candidate, int score, char *reason)
{
	Suggestion *suggestion = palloc0(sizeof(Suggestion));

	suggestion->kind = kind;
	suggestion->candidate = pstrdup(candidate);
	suggestion->score = score;
	suggestion->reason = reason;
	return suggestion;
}

void
reason_add(StringInfo reason, const char *phrase)
{
	appendStringInfo(reason, "%s%s", reason->len > 0 ? "; " : "", phrase);
}

static bool
is_integer(Oid type)
{
	Oid			base = getBaseType(type);

	return base == INT2OID || base == INT4OID || base == INT8OID;
}

bool
type_is_time(Oid type)
{
	Oid			base = getBaseType(type);

	return base == TIMESTAMPTZOID || base == TIMESTAMPOID || base == DATEOID;
}

/* what the name says, in points and in words: the rule's order, whatever the catalogs say */
static int
score_name(WatermarkNature nature, StringInfo reason)
{
	switch (nature)
	{
		case NATURE_UPDATED:
			reason_add(reason, "by its name set at every change of a row");
			return 80;
		case NATURE_LAST:
			reason_add(reason, "by its name set at some changes of a row, not at all of them");
			return 58;
		case NATURE_CREATED:
			reason_add(reason, "by its name set once, when a row is made: later changes are not seen");
			return 37;
		case NATURE_PLAIN:
			reason_add(reason, "a time, though its name does not say when it is set");
			return 32;
		case NATURE_UNLIKELY:
			reason_add(reason, "by its name a time that means something else than when a row was written");
			return 3;
	}
	return 0;
}

/* what the catalogs say, in points and in words: at most 20, less than lies between names */
static int
score_facts(const SourceFacts *facts, const SourceColumn *column, Oid type, StringInfo reason)
{
	int			score = 0;

	if (getBaseType(type) == TIMESTAMPTZOID)
		score += 6;
	else if (getBaseType(type) == TIMESTAMPOID)
	{
		score += 4;
		reason_add(reason, "without time zone");
	}
	else if (getBaseType(type) == DATEOID)
		reason_add(reason, "a date: a whole day is read again by each run");

	if (column && column->not_null)
		score += 4;
	else if (facts->kind != RELKIND_VIEW)
		reason_add(reason, "may be NULL");

	if (column && column->leads_index)
	{
		score += 10;
		reason_add(reason, "leads an index at the source");
	}
	else if (facts_takes_index(facts))
		reason_add(reason, "no index at the source: each run would scan the whole table");
	return score;
}

Candidate *
candidate_of_column(const Job *job, const SourceFacts *facts, Form_pg_attribute att)
{
	const char *name = NameStr(att->attname);
	SourceColumn *column = facts_column(facts, name);
	List	   *primary_key = facts_primary_key(facts);
	Candidate  *candidate = palloc0(sizeof(Candidate));
	StringInfoData reason;
	int			score;

	if (!watermark_type_fits(att->atttypid, att->attcollation))
		return NULL;
	initStringInfo(&reason);
	candidate->is_possible = true;
	if (type_is_time(att->atttypid))
	{
		candidate->nature = watermark_nature(name, get_rel_name(job->source));
		candidate->is_possible = candidate->nature != NATURE_UNLIKELY;
		score = score_name(candidate->nature, &reason);
	}
	else
	{
		candidate->nature = NATURE_CREATED;
		if (column && column->is_counted)
			reason_add(&reason, "counted by a sequence: later changes are not seen");
		else if (is_integer(att->atttypid) && list_length(primary_key) == 1 &&
				 strcmp(linitial(primary_key), name) == 0)
			reason_add(&reason, "the primary key, which grows if the application counts it upwards: later changes are not seen");
		else if (is_integer(att->atttypid) && primary_key == NIL && name_says_key(name, get_rel_name(job->source)))
		{
			candidate->is_possible = false;
			reason_add(&reason, "an id by its name alone: choose it if it only grows");
		}
		else
			return NULL;
		score = candidate->is_possible ? 14 : 3;
	}
	score += score_facts(facts, column, att->atttypid, &reason);
	candidate->suggestion = suggestion_new("watermark", name, score, reason.data);
	return candidate;
}
