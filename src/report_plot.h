/*
 * report_plot.h
 *		The plots of the report, as SVG.
 */
#ifndef INCLOAD_REPORT_PLOT_H
#define INCLOAD_REPORT_PLOT_H

#include "postgres.h"

#include "lib/stringinfo.h"

#define PLOT_MAX_BINS 128

/* Frame: a stretch of time, cut into bins that are the same for all jobs */
typedef struct Frame
{
	const char *name;			/* in the page's ids: day, month */
	const char *title;
	int			nbins;
	const char *when[PLOT_MAX_BINS];	/* of each bin, from and to */
	const char *tick[PLOT_MAX_BINS];	/* its beginning, in few letters */
} Frame;

/* Span: the smallest and the largest freshness in a bin, in seconds */
typedef struct Span
{
	bool		is_known;
	double		low;
	double		high;
} Span;

/* PlotRun: what the bars of a run need */
typedef struct PlotRun
{
	int64		id;
	const char *tick;			/* when it began, in few letters */
	const char *kind;
	const char *status;
	double		seconds;
	double		changed;		/* rows that changed the target */
	double		same;			/* rows read that did not */
	double		rejected;
} PlotRun;

/* ranges of freshness over time, on a logarithmic scale; an objective below zero is none */
extern void plot_freshness(StringInfo out, const char *id, const Frame *frame,
						   const Span *spans, double objective, double fraction_within);

/* a bar a run, oldest first */
extern void plot_rows(StringInfo out, const char *id, const PlotRun *runs, int nruns);
extern void plot_durations(StringInfo out, const char *id, const PlotRun *runs, int nruns);

#endif							/* INCLOAD_REPORT_PLOT_H */
