/*
 * outcome.h
 *		What the objectives of a job have to know of a run: kept small, beside the history.
 *
 * The history has a wide row for each run. The figures of incload.slo go through all runs of a
 * month, so each outcome is kept once more in the fewest bytes, many of them in one row.
 */
#ifndef INCLOAD_OUTCOME_H
#define INCLOAD_OUTCOME_H

#include "postgres.h"

#include "datatype/timestamp.h"

typedef enum OutcomeKind
{
	OUTCOME_SUCCEEDED,			/* of a run of kind incremental or full; so the next */
	OUTCOME_FAILED,
	OUTCOME_BACKFILL			/* a window of a backfill that was loaded */
} OutcomeKind;

/*
 * Outcome: a run that is over; one that was cancelled or skipped is none. It is stored as it is in
 * memory. What counts is how few bytes there are to go through.
 */
typedef struct Outcome
{
	TimestampTz finished_at;
	uint64		what;			/* 48 bits of how long it took, 16 of the class of its SQLSTATE; of a backfill, its bytes */
	uint64		rows;			/* 60 bits of rows read, 4 of what it is */
} Outcome;

StaticAssertDecl(sizeof(Outcome) == 24, "outcomes that are stored already have another size");

/* what it is, beside its kind */
#define OUTCOME_KIND_MASK 3
#define OUTCOME_FULL 4
#define OUTCOME_GONE 8			/* takes back another one, that has all else alike */
#define OUTCOME_FLAG_BITS 4

#define OUTCOME_CLASS_BITS 16

/* so many bytes of them are added to one by one, before they are condensed */
#define OUTCOMES_RECENT (40 * sizeof(Outcome))

static inline OutcomeKind
outcome_kind(const Outcome *outcome)
{
	return outcome->rows & OUTCOME_KIND_MASK;
}

static inline bool
outcome_is_full(const Outcome *outcome)
{
	return (outcome->rows & OUTCOME_FULL) != 0;
}

static inline bool
outcome_is_gone(const Outcome *outcome)
{
	return (outcome->rows & OUTCOME_GONE) != 0;
}

static inline int64
outcome_rows(const Outcome *outcome)
{
	return outcome->rows >> OUTCOME_FLAG_BITS;
}

static inline int64
outcome_bytes(const Outcome *outcome)
{
	return outcome_kind(outcome) == OUTCOME_BACKFILL ? outcome->what : 0;
}

/* of a backfill it is not known: its end */
static inline TimestampTz
outcome_started_at(const Outcome *outcome)
{
	return outcome_kind(outcome) == OUTCOME_BACKFILL ? outcome->finished_at
		: outcome->finished_at - ((int64) outcome->what >> OUTCOME_CLASS_BITS);
}

/* as a row of incload.run_store says it; its kind and status tell whether it is an outcome. SQLSTATE may be NULL. */
extern bool outcome_set_kind(Outcome *outcome, const char *kind, const char *status);
extern void outcome_set(Outcome *outcome, TimestampTz started_at, TimestampTz finished_at, int64 rows, int64 bytes, const char *sqlstate);

/* as text of the type bytea */
extern char *outcomes_as_text(const Outcome *outcomes, int n);

/* moves the recent outcomes of a row of incload.tally_store, which this transaction has locked, to incload.outcome_store */
extern void outcomes_condense(int64 job_id, const char *tally_id);

#endif							/* INCLOAD_OUTCOME_H */
