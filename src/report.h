/*
 * report.h
 *		What the parts of the report share.
 */
#ifndef INCLOAD_REPORT_H
#define INCLOAD_REPORT_H

#include "postgres.h"

#include "lib/stringinfo.h"

#include "report_plot.h"

/* ReportJob: a line of incload.status and what belongs to it, as text */
typedef struct ReportJob
{
	const char *job_id;
	const char *job;
	const char *owner;
	const char *source;
	const char *target;
	const char *strategy;
	const char *watermark;
	const char *schedule;
	const char *state;
	const char *freshness;		/* seconds, as the next two */
	const char *objective;
	const char *lag;
	const char *last_success;	/* ISO */
	const char *next_run;
	const char *last_rows;
	const char *rejects;
	const char *last_error;
	const char *checkpoint;
	const char *guarantee;
	const char *held_back_by;
} ReportJob;

/* how a moment leaves a query, for to_char() */
#define ISO_FORMAT "'YYYY-MM-DD\"T\"HH24:MI:SSTZH:TZM'"

#define REPORT_FRAMES 2

/* Report: what is the same for all of the page */
typedef struct Report
{
	StringInfo	out;
	const char *now;			/* ISO, in the session's zone */
	const char *at;				/* the same, exactly, for queries */
	const char *owners;			/* roles whose rows the caller may see; NULL: all */
	Frame		frames[REPORT_FRAMES];
} Report;

/* the section of a job: plots, numbers, rejects, comparisons, events */
extern void report_job(const Report *report, const ReportJob *job);

/* the beginning of the page up to its body, and its end */
extern void report_open_page(StringInfo out, const char *title);
extern void report_close_page(StringInfo out);

#endif							/* INCLOAD_REPORT_H */
