/*
 * ahead.h
 *		Pages of the target that are asked for before a MERGE looks into them.
 */
#ifndef INCLOAD_AHEAD_H
#define INCLOAD_AHEAD_H

#include "postgres.h"

#include "utils/queryenvironment.h"

#include "job.h"
#include "plan.h"
#include "shape.h"

/* incload.read_ahead */
typedef enum ReadAhead
{
	READ_AHEAD_OFF,
	READ_AHEAD_ON,
	READ_AHEAD_AUTO				/* where reading a few of the pages took long */
} ReadAhead;

extern int	incload_read_ahead;

/*
 * Asks the kernel for the pages that hold the rows with the keys of "rows", an item
 * of FROM with the stage's columns that has so many rows. Does nothing where they are
 * not probed for, or where this is of no use, or not possible: see ahead.c. Throws what
 * the comparison of keys throws.
 */
extern void ahead_look(const Job *job, const Shape *shape, const ApplyPlan *plan, const char *rows, int64 nrows,
					   QueryEnvironment *environment);

#endif							/* INCLOAD_AHEAD_H */
