/*
 * outlook.h
 *		What the next run of a job will do, found out without doing it.
 */
#ifndef INCLOAD_OUTLOOK_H
#define INCLOAD_OUTLOOK_H

#include "postgres.h"

#include "fill.h"
#include "job.h"
#include "merge.h"
#include "query.h"
#include "shape.h"
#include "source.h"
#include "stage.h"
#include "tombstone.h"
#include "window.h"

typedef struct Outlook
{
	const Job  *job;
	Source	   *source;			/* connected */
	Shape	   *shape;
	Window		window;			/* what incload_run would read */
	ReadOrder	order;			/* and in which order */
	Fill		fill;			/* how its rows get into the target */
	ApplyMode	mode;			/* by which statement, for FILL_APPLY */
	Tombstones *tombstones;		/* that it would read then; NULL: the job reads none */
	bool		prunes;			/* rows that the source lacks go */
	bool		truncates;		/* all rows go first */
} Outlook;

/*
 * Looks at source, target and checkpoint as incload_run would, and locks and
 * writes nothing. Call it inside the owner bracket.
 */
extern Outlook *outlook_open(const Job *job);

/* gives up the source and what else is connected */
extern void outlook_close(const Outlook *outlook);

/* the queries that read the window (split.h); with a limit above zero, one, of its first rows by watermark */
extern List *outlook_queries(const Outlook *outlook, int64 limit);

#endif							/* INCLOAD_OUTLOOK_H */
