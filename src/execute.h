/*
 * execute.h
 *		Runs a statement that incload has made, and counts what it did.
 */
#ifndef INCLOAD_EXECUTE_H
#define INCLOAD_EXECUTE_H

#include "postgres.h"

#include "tcop/dest.h"
#include "utils/queryenvironment.h"
#include "utils/tuplestore.h"

typedef struct ExecuteCounts
{
	uint64		processed;		/* rows written, or returned */
	uint64		merge_inserted; /* insert actions that MERGE took, a trigger's refusal included */
	uint64		merge_updated;	/* update actions that wrote a row */
} ExecuteCounts;

/* PlanLead: where the planner is led. JIT is off in any case: see execute.c */
typedef enum PlanLead
{
	LEAD_NONE,					/* nowhere: it goes by its own estimates */
	LEAD_PROBE					/* to a nested loop, which looks each row up in an index */
} PlanLead;

/*
 * Plans and runs one statement as the current user, seeing the relations of
 * the environment (may be NULL). Rows go to dest (NULL: nowhere).
 */
extern ExecuteCounts execute_statement(const char *sql, QueryEnvironment *environment,
									   DestReceiver *dest);

/* the same, with the planner led; what runs inside the statement is not */
extern ExecuteCounts execute_led(const char *sql, PlanLead lead, QueryEnvironment *environment,
								 DestReceiver *dest);

/* the same, with its rows in a store of this memory context, and how many there are */
extern Tuplestorestate *execute_into_store(const char *sql, QueryEnvironment *environment, int64 *nrows);

/* would the planner, led to probes, really look each row up in an index? */
extern bool execute_can_probe(const char *sql, QueryEnvironment *environment);

/* leads the planner until the level that is returned is left again, or by an error */
extern int	execute_lead_planner(PlanLead lead);
extern void execute_leave_planner(int level);

#endif							/* INCLOAD_EXECUTE_H */
