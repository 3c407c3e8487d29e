/*
 * drift_plan.h
 *		How a source's columns differ from those here, and what would mend it.
 */
#ifndef INCLOAD_DRIFT_PLAN_H
#define INCLOAD_DRIFT_PLAN_H

#include "postgres.h"

#include "facts.h"
#include "job.h"
#include "source.h"

typedef enum DriftKind
{
	DRIFT_NEW,					/* the source has a column that is not loaded */
	DRIFT_GONE,					/* the source no longer has a column that is */
	DRIFT_RETYPED				/* a column's values may not fit any more */
} DriftKind;

/* Drift: one such difference */
typedef struct Drift
{
	DriftKind	kind;
	char	   *column;			/* by its name here, if it is here */
	char	   *message;
	List	   *sql;			/* of char *: makes the foreign table and the target follow */
	char	   *obstacle;		/* why they cannot; NULL where they can, or need not */
} Drift;

/*
 * The differences (Drift *) in columns that the job wants: of the server that holds the
 * source from the foreign table, as far as it can be asked (source_copy.c), and of both from the target.
 */
extern List *drift_differences(Source *source, const Job *job, const SourceFacts *facts);

/* the one of that column, NULL for none */
extern Drift *drift_find(List *drifts, const char *column);

/* the type here of a column of the source; InvalidOid where it is not known */
extern Oid	drift_type_here(const Source *source, const SourceColumn *column, int32 *typmod);

#endif							/* INCLOAD_DRIFT_PLAN_H */
