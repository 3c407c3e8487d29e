/*
 * volume.h
 *		Runs that have read far more or fewer rows than is usual for their job at that hour.
 */
#ifndef INCLOAD_VOLUME_H
#define INCLOAD_VOLUME_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

/* Surprise: such a run, and what would have been usual */
typedef struct Surprise
{
	int64		run_id;
	int64		rows;
	double		median;
	double		deviation;		/* the median of the distances from it */
	double		low;
	double		high;
	int			samples;
} Surprise;

/* of the runs that ended after "since", up to "at" */
extern List *volume_surprises(int64 job_id, TimestampTz since, TimestampTz at);

#endif							/* INCLOAD_VOLUME_H */
