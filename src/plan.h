/*
 * plan.h
 *		How the rows of the stage find theirs in the target.
 */
#ifndef INCLOAD_PLAN_H
#define INCLOAD_PLAN_H

#include "postgres.h"

#include "utils/queryenvironment.h"

#include "execute.h"
#include "job.h"
#include "shape.h"

/* why the planner is led to probes, or left alone */
typedef enum ApplyReason
{
	REASON_FEW,					/* few rows against those of the target */
	REASON_ORDER,				/* more, and the target lies in the order of the key */
	REASON_BEYOND,				/* few of them lie where the target has keys */
	REASON_MANY,				/* more than that */
	REASON_NO_UNIQUE,			/* the target's key has no unique index */
	REASON_NO_INDEX				/* it has one, and it cannot be used for this */
} ApplyReason;

/* ApplyPlan: the way that was chosen, and by what */
typedef struct ApplyPlan
{
	PlanLead	lead;
	ApplyReason reason;
	double		staged;			/* rows in the stage */
	double		within;			/* those not beyond all keys of the target; -1: not counted */
	double		target;			/* rows of the target, about */
	double		pages;			/* that they take up, over all partitions */
	double		limit;			/* rows in the stage up to which probes win */
} ApplyPlan;

/*
 * Chooses how a statement gets from the staged rows, of which there are so
 * many, to those of the target. "sql" is the statement that would look each row
 * up. With an empty stage, "staged" is a guess, and nothing is counted.
 */
extern ApplyPlan plan_choose(const Job *job, const Shape *shape, double staged, bool is_guess,
							 const char *sql, QueryEnvironment *environment);

/* the choice and its reason, in a line */
extern char *plan_reason(const ApplyPlan *plan);

/* "k1, k2, …" to sort staged rows by; NULL where a type of the key has no order */
extern char *plan_key_order(const Shape *shape, const char *alias);

#endif							/* INCLOAD_PLAN_H */
