/*
 * merge.h
 *		The text of every statement that changes a target.
 */
#ifndef INCLOAD_MERGE_H
#define INCLOAD_MERGE_H

#include "postgres.h"

#include "job.h"
#include "plan.h"
#include "shape.h"
#include "stage.h"

/* what a batch did to the target; their sum is the rows staged */
typedef struct ApplyCounts
{
	int64		inserted;
	int64		updated;
	int64		unchanged;
	int64		deleted;
	int64		superseded;
	int64		suppressed;
	int64		rejected;
	int64		pruned;			/* apart from the sum */
} ApplyCounts;

/* how the staged rows get into the target */
typedef enum ApplyMode
{
	APPLY_INSERT,				/* no key: every row is new */
	APPLY_INSERT_NEW,			/* rows whose key the target lacks */
	APPLY_MERGE					/* new rows, and rows that differ */
} ApplyMode;

/* "left and right have the same key", by the key types' own equality */
extern char *merge_key_condition(const Shape *shape, const char *left, const char *right);

/*
 * "what is set in the target's row (left) is to be replaced by the source's
 * (right)": they differ, and with the option only_newer the source's is the
 * newer version. NULL where there is nothing to set.
 */
extern char *merge_update_condition(const Job *job, const Shape *shape, const char *left,
									const char *right);

extern ApplyMode merge_mode(const Job *job, const Shape *shape);

/*
 * The INSERT or MERGE from STAGE_NAME. The planner has to be led likewise; to
 * probes, the rows go in the order of their key.
 */
extern char *merge_apply_statement(const Job *job, const Shape *shape, ApplyMode mode, PlanLead lead);

/* how it will get from so many staged rows to the target's; see plan_choose */
extern ApplyPlan merge_plan(const Job *job, const Shape *shape, ApplyMode mode, double staged,
							bool is_guess, QueryEnvironment *environment);

/* what stands for putting rows into a new heap, where there is no statement */
extern char *merge_fill_statement(const Job *job, const Shape *shape);

/* deletes target rows whose key is not staged */
extern char *merge_prune_statement(const Job *job, const Shape *shape);

/*
 * Deletes target rows by key: those that are staged and marked as deleted, or,
 * of tombstones, all that are staged. Within the scope (NULL: anywhere), see deletes.h.
 */
extern char *merge_delete_statement(const Job *job, const Shape *shape, const char *scope, PlanLead lead);

/* by which way it gets at so many of them */
extern ApplyPlan merge_delete_plan(const Job *job, const Shape *shape, const char *scope, double staged,
								   bool is_guess, QueryEnvironment *environment);

/* runs it for rows that are reduced, of which so many are to be deleted */
extern void merge_delete(const Job *job, const Shape *shape, Stage *stage, const char *scope,
						 int64 marked, ApplyCounts *counts);

/*
 * Reduces and applies the staged rows; with prune, removes what is not staged.
 * Those that the target refuses go to the stage's rejects, if it has any.
 */
extern void merge_apply(const Job *job, const Shape *shape, Stage *stage, ApplyMode mode,
						bool prune, ApplyCounts *counts);

/* can a trigger keep a row of the target from being updated, or deleted? */
extern bool merge_may_suppress(Oid target, bool deletes);

/* how many rows the target has */
extern int64 merge_count(const Job *job);

extern void merge_truncate(const Job *job);

#endif							/* INCLOAD_MERGE_H */
