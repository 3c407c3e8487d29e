/*
 * report_job.c
 *		The section of a job in the report.
 *
 * Its rows are found by the job's number, for which the tables have indexes and
 * the views have not, as the extension's owner; so each query asks for the
 * owner of the row as the views do. Values of rows and options are not shown.
 */
#include "postgres.h"

#include "catalog.h"
#include "report.h"
#include "report_html.h"

#define RUNS_IN_PLOTS 40
#define RUNS_IN_TABLE 12

/* $1 is the job, $2 the roles whose rows may be seen; in a subquery, a parameter is cast once and not for each row */
#define ROWS_OF_JOB " WHERE x.job_id = $1::bigint AND ($2 IS NULL OR x.owner = ANY ((SELECT $2::name[])::name[]))"

/*
 * course_sql
 *		A row for each bin in which freshness is known, with its smallest and
 *		largest value; and one for each frame as a whole ("bin" is NULL), with the
 *		part of the time that was within the objective ($4, seconds), and how the
 *		runs ended.
 *
 * Freshness at a time is how long before it the last run began that had
 * succeeded by then. From the end of one such run to the end of the next it
 * grows as the clock does. The runs are fetched once, as they lie far apart.
 * The frames are those of report.c.
 */
static const char course_sql[] =
	"WITH run AS MATERIALIZED (SELECT x.run_id, x.status, x.kind, x.started_at, x.finished_at"
	" FROM incload.run_store x" ROWS_OF_JOB " AND x.kind <> 'reconcile'),"
	" stretch AS MATERIALIZED (SELECT started_at AS since, finished_at AS low,"
	"  coalesce(lead(finished_at) OVER (ORDER BY finished_at, run_id), (SELECT $3::timestamptz)) AS high"
	"  FROM run WHERE status = 'succeeded' AND kind IN ('incremental', 'full') AND finished_at <= (SELECT $3::timestamptz)),"
	" frame AS MATERIALIZED (SELECT v.*, (SELECT $3::timestamptz) - v.length AS since,"
	"  date_bin(v.width, (SELECT $3::timestamptz), date_trunc('day', (SELECT $3::timestamptz))) - v.width * (v.bins - 1) AS begins"
	"  FROM (VALUES (0, interval '24 hours', interval '15 minutes', 96),"
	"   (1, interval '720 hours', interval '6 hours', 120)) v(number, length, width, bins))"
	" SELECT number, bin, date_part('epoch', min(greatest(low, bin_low) - since)),"
	"  date_part('epoch', max(least(high, bin_high) - since)), NULL"
	" FROM (SELECT f.number, b.bin, s.since, s.low, s.high, f.begins + f.width * b.bin AS bin_low,"
	"   f.begins + f.width * (b.bin + 1) AS bin_high"
	"  FROM frame f JOIN stretch s ON s.high > f.begins AND s.high > s.low"
	"  CROSS JOIN LATERAL generate_series("
	"   greatest(0, floor(date_part('epoch', s.low - f.begins) / date_part('epoch', f.width)))::integer,"
	"   ceil(date_part('epoch', s.high - f.begins) / date_part('epoch', f.width))::integer - 1) AS b(bin)) p"
	" GROUP BY number, bin"
	" UNION ALL SELECT f.number, NULL, (SELECT 1 - sum(greatest(0, date_part('epoch', s.high"
	"   - greatest(s.low, f.since, s.since + (SELECT $4::double precision) * interval '1 second'))))"
	"   / sum(date_part('epoch', s.high - greatest(s.low, f.since)))"
	"   FROM stretch s WHERE s.high > f.since AND s.high > s.low),"
	"  r.succeeded, r.not_succeeded"
	" FROM frame f CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE status = 'succeeded') AS succeeded,"
	"  count(*) FILTER (WHERE status IN ('failed', 'cancelled')) AS not_succeeded"
	"  FROM run WHERE started_at > f.since AND started_at <= (SELECT $3::timestamptz)) r";

/* Course: what became of it; fraction_within below zero is not known */
typedef struct Course
{
	Span		spans[PLOT_MAX_BINS];
	double		fraction_within;
	const char *succeeded;
	const char *not_succeeded;
} Course;

static const char runs_sql[] =
	"SELECT x.run_id, to_char(x.started_at, " ISO_FORMAT "), x.kind, x.status,"
	" extract(epoch FROM x.finished_at - x.started_at), x.rows_inserted + x.rows_updated + x.rows_deleted,"
	" x.rows_unchanged + x.rows_superseded + x.rows_suppressed, x.rows_rejected,"
	" x.rows_read, x.rows_inserted, x.rows_updated, x.rows_deleted, x.rows_unchanged, x.rows_pruned, x.sqlstate, x.error,"
	" to_char(x.started_at, 'DD Mon HH24:MI'), x.rows_superseded, x.rows_suppressed"
	" FROM incload.run_store x" ROWS_OF_JOB
	" AND x.kind <> 'reconcile' AND x.status <> 'skipped' ORDER BY x.run_id DESC LIMIT $3::integer";

static const char rejects_sql[] =
	"SELECT x.sqlstate, count(*), to_char(min(x.at), " ISO_FORMAT "), to_char(max(x.at), " ISO_FORMAT "),"
	" (array_agg(x.error ORDER BY x.reject_id DESC))[1]"
	" FROM incload.reject_store x WHERE x.job_id = $1::bigint GROUP BY x.sqlstate ORDER BY count(*) DESC, x.sqlstate LIMIT 6";

static const char reconcile_sql[] =
	"SELECT to_char(x.at, " ISO_FORMAT "), x.mode, x.source_rows, x.target_rows, x.rows_missing, x.rows_extra,"
	" x.rows_changed, x.rows_duplicate, x.rows_conflicting, x.rows_repaired, x.ranges_differing"
	" FROM incload.reconcile_store x" ROWS_OF_JOB " ORDER BY x.run_id DESC LIMIT 6";

static const char events_sql[] =
	"SELECT to_char(x.at, " ISO_FORMAT "), x.severity, x.code, x.message"
	" FROM incload.event_store x" ROWS_OF_JOB
	" AND x.severity IN ('page', 'ticket') ORDER BY x.event_id DESC LIMIT 6";

static TextRows *
ask(const Report *report, const ReportJob *job, const char *sql, int nparams, const char *third, const char *fourth)
{
	const char *params[4] = {job->job_id, report->owners, third, fourth};

	return catalog_query(sql, nparams, params);
}

static void
fact(StringInfo out, const char *name, const char *css_class, const char *value)
{
	appendStringInfo(out, "<div><dt>%s</dt><dd class=\"%s\">%s</dd></div>", name, css_class, value);
}

/* the words of these are the users' own */
static void
fact_text(StringInfo out, const char *name, const char *value, int max_chars)
{
	if (value == NULL)
		return;
	appendStringInfo(out, "<div><dt>%s</dt><dd><bdi>", name);
	html_line(out, value, max_chars);
	appendStringInfoString(out, "</bdi></dd></div>");
}

static const char *
seconds_text(const char *seconds)
{
	return seconds ? duration_text(strtod(seconds, NULL)) : HTML_NONE;
}

static void
heading(const Report *report, const ReportJob *job)
{
	StringInfo	out = report->out;

	appendStringInfo(out, "<section class=\"job\" id=\"job-%s\" aria-labelledby=\"h-%s\"><h3 id=\"h-%s\">",
					 job->job_id, job->job_id, job->job_id);
	html_name(out, job->job);
	appendStringInfoChar(out, ' ');
	html_state(out, job->state);
	appendStringInfoString(out, "</h3>\n<p class=\"meta\">");
	html_name(out, job->source);
	appendStringInfoString(out, " &#x2192; ");
	html_name(out, job->target);
	appendStringInfo(out, " &#xB7; %s", job->strategy);
	if (job->watermark && job->watermark[0] == '(')
		appendStringInfoString(out, " by an expression");
	else if (job->watermark)
	{
		appendStringInfoString(out, " by ");
		html_name(out, job->watermark);
	}
	appendStringInfoString(out, " &#xB7; ");
	if (job->schedule)
	{
		appendStringInfoString(out, "schedule ");
		html_name(out, job->schedule);
	}
	else
		appendStringInfoString(out, "no schedule");
	appendStringInfoString(out, " &#xB7; owner ");
	html_name(out, job->owner);
	appendStringInfoString(out, "</p>\n");
	if (job->last_error)
	{
		appendStringInfoString(out, "<p class=\"error\"><b>Last error</b> ");
		html_line(out, job->last_error, 400);
		appendStringInfoString(out, "</p>\n");
	}
}

static void
facts(const Report *report, const ReportJob *job, const Course *courses)
{
	StringInfo	out = report->out;
	StringInfoData next;
	static const char *const names[REPORT_FRAMES] = {"Runs, 24 h", "Runs, 30 days"};

	appendStringInfoString(out, "<dl class=\"facts\">");
	if (job->freshness)
		fact(out, "Freshness", "", seconds_text(job->freshness));
	fact(out, "Objective", "", job->objective ? seconds_text(job->objective) : "none set");
	if (job->lag)
		fact(out, "Lag", "", seconds_text(job->lag));
	if (job->next_run)
	{
		initStringInfo(&next);
		html_time(&next, job->next_run, report->now);
		fact(out, "Next run", "", next.data);
	}
	for (int i = 0; i < REPORT_FRAMES; i++)
	{
		const Course *course = &courses[i];

		fact(out, names[i], psprintf("runs-%s", report->frames[i].name),
			 strcmp(course->not_succeeded, "0") == 0 ? psprintf("%s ok", count_text(course->succeeded))
			 : psprintf("%s ok, <b>%s not</b>", count_text(course->succeeded), count_text(course->not_succeeded)));
	}
	fact(out, "Rejects waiting", "", count_text(job->rejects));
	fact_text(out, "Checkpoint", job->checkpoint, 60);
	fact_text(out, "Guarantee", job->guarantee, 20);
	fact_text(out, "Held back by", job->held_back_by, 120);
	appendStringInfoString(out, "</dl>\n");
}

/* one for each frame */
static Course *
gather_course(const Report *report, const ReportJob *job)
{
	TextRows   *rows = ask(report, job, course_sql, 4, report->at, job->objective);
	Course	   *courses = palloc0(sizeof(Course) * REPORT_FRAMES);

	for (int i = 0; i < rows->nrows; i++)
	{
		char	  **v = rows->value[i];
		Course	   *course = &courses[atoi(v[0])];

		if (v[1] == NULL)
		{
			course->fraction_within = number_or_none(v[2]);
			course->succeeded = v[3];
			course->not_succeeded = v[4];
		}
		else if (atoi(v[1]) < PLOT_MAX_BINS)
			course->spans[atoi(v[1])] = (Span)
			{
				.is_known = true,.low = strtod(v[2], NULL),.high = strtod(v[3], NULL)
			};
	}
	return courses;
}

static void
freshness_plots(const Report *report, const ReportJob *job, const Course *courses)
{
	for (int i = 0; i < REPORT_FRAMES; i++)
		plot_freshness(report->out, psprintf("f%d-%s", i, job->job_id), &report->frames[i], courses[i].spans,
					   number_or_none(job->objective), courses[i].fraction_within);
}

/* from the newest to the oldest comes the table, the other way round come the plots */
static void
run_plots(const Report *report, const ReportJob *job, const TextRows *rows)
{
	PlotRun    *runs = palloc0(sizeof(PlotRun) * Max(rows->nrows, 1));

	for (int i = 0; i < rows->nrows; i++)
	{
		char	  **v = rows->value[rows->nrows - 1 - i];

		runs[i] = (PlotRun)
		{
			.id = strtoll(v[0], NULL, 10),.tick = v[16] ? v[16] : "",.kind = v[2],.status = v[3],
				.seconds = number_or_none(v[4]),.changed = strtod(v[5], NULL),.same = strtod(v[6], NULL),
				.rejected = strtod(v[7], NULL)
		};
	}
	plot_rows(report->out, psprintf("r-%s", job->job_id), runs, rows->nrows);
	plot_durations(report->out, psprintf("d-%s", job->job_id), runs, rows->nrows);
}

static void
run_table(const Report *report, const TextRows *rows)
{
	StringInfo	out = report->out;
	int			n = Min(rows->nrows, RUNS_IN_TABLE);

	if (n == 0)
		return;
	appendStringInfo(out, "<details><summary>%s in numbers</summary>",
					 n == 1 ? "The run" : psprintf("The last %d runs", n));
	html_open_table(out, "runs", "Last runs, the newest first");
	appendStringInfoString(out, "<thead><tr><th scope=\"col\">Run</th><th scope=\"col\">Began</th><th scope=\"col\">Kind</th>"
						   "<th scope=\"col\">Status</th><th scope=\"col\" class=\"n\">Took</th><th scope=\"col\" class=\"n\">Read</th>"
						   "<th scope=\"col\" class=\"n\">Inserted</th><th scope=\"col\" class=\"n\">Updated</th>"
						   "<th scope=\"col\" class=\"n\">Deleted</th><th scope=\"col\" class=\"n\">Unchanged</th>"
						   "<th scope=\"col\" class=\"n\">Superseded</th><th scope=\"col\" class=\"n\">Suppressed</th>"
						   "<th scope=\"col\" class=\"n\">Rejected</th><th scope=\"col\" class=\"n\">Pruned</th>"
						   "<th scope=\"col\">Error</th></tr></thead><tbody>\n");
	for (int i = 0; i < n; i++)
	{
		char	  **v = rows->value[i];
		static const int counts[] = {8, 9, 10, 11, 12, 17, 18, 7, 13};

		appendStringInfo(out, "<tr><th scope=\"row\">%s</th><td>", v[0]);
		html_time(out, v[1], report->now);
		appendStringInfo(out, "</td><td>%s</td><td>%s</td><td class=\"n\">%s</td>", v[2], v[3], seconds_text(v[4]));
		for (int c = 0; c < lengthof(counts); c++)
			appendStringInfo(out, "<td class=\"n\">%s</td>", count_text(v[counts[c]]));
		appendStringInfoString(out, "<td class=\"wide\">");
		if (v[15])
		{
			html_text(out, v[14]);
			appendStringInfoString(out, ": ");
		}
		html_line(out, v[15], 160);
		appendStringInfoString(out, "</td></tr>\n");
	}
	html_close_table(out);
	appendStringInfoString(out, "</details>\n");
}

static void
rejects(const Report *report, const ReportJob *job)
{
	StringInfo	out = report->out;
	TextRows   *rows;

	if (number_or_none(job->rejects) <= 0)
		return;
	rows = ask(report, job, rejects_sql, 1, NULL, NULL);
	appendStringInfo(out, "<h4>Rejects: %s rows wait</h4>\n", count_text(job->rejects));
	html_open_table(out, "rejects", "Rows that could not be taken, by SQLSTATE");
	appendStringInfoString(out, "<thead><tr><th scope=\"col\">SQLSTATE</th><th scope=\"col\" class=\"n\">Rows</th>"
						   "<th scope=\"col\">First</th><th scope=\"col\">Last</th><th scope=\"col\">Newest error</th></tr></thead><tbody>\n");
	for (int i = 0; i < rows->nrows; i++)
	{
		char	  **v = rows->value[i];

		appendStringInfoString(out, "<tr><th scope=\"row\">");
		html_text(out, v[0]);
		appendStringInfo(out, "</th><td class=\"n\">%s</td><td>", count_text(v[1]));
		html_time(out, v[2], report->now);
		appendStringInfoString(out, "</td><td>");
		html_time(out, v[3], report->now);
		appendStringInfoString(out, "</td><td class=\"wide\">");
		html_line(out, v[4], 160);
		appendStringInfoString(out, "</td></tr>\n");
	}
	html_close_table(out);
}

/* a comparison by count says how many ranges differ, one by hash or rows which rows do */
static const char *
verdict(char **v)
{
	double		differing = strtod(v[4], NULL) + strtod(v[5], NULL) + strtod(v[6], NULL) + strtod(v[7], NULL);

	if (differing == 0 && strtod(v[10], NULL) == 0)
		return "equal";
	if (strtod(v[9], NULL) >= differing && differing > 0)
		return "<b>repaired</b>";
	return "<b>differs</b>";
}

static void
comparisons(const Report *report, const ReportJob *job)
{
	StringInfo	out = report->out;
	TextRows   *rows = ask(report, job, reconcile_sql, 2, NULL, NULL);

	if (rows->nrows == 0)
		return;
	appendStringInfoString(out, "<h4>Source and target compared</h4>\n");
	html_open_table(out, "reconciles", "Reconcile results, the newest first");
	appendStringInfoString(out, "<thead><tr><th scope=\"col\">When</th><th scope=\"col\">Result</th><th scope=\"col\">Mode</th>"
						   "<th scope=\"col\" class=\"n\">Source</th><th scope=\"col\" class=\"n\">Target</th>"
						   "<th scope=\"col\" class=\"n\">Missing</th><th scope=\"col\" class=\"n\">Extra</th>"
						   "<th scope=\"col\" class=\"n\">Changed</th><th scope=\"col\" class=\"n\">Duplicate</th><th scope=\"col\" class=\"n\">Conflicting</th>"
						   "<th scope=\"col\" class=\"n\">Repaired</th></tr></thead><tbody>\n");
	for (int i = 0; i < rows->nrows; i++)
	{
		char	  **v = rows->value[i];

		appendStringInfoString(out, "<tr><th scope=\"row\">");
		html_time(out, v[0], report->now);
		appendStringInfo(out, "</th><td>%s</td><td>%s</td>", verdict(v), v[1]);
		for (int c = 2; c <= 9; c++)
			appendStringInfo(out, "<td class=\"n\">%s</td>", count_text(v[c]));
		appendStringInfoString(out, "</tr>\n");
	}
	html_close_table(out);
}

static void
events(const Report *report, const ReportJob *job)
{
	StringInfo	out = report->out;
	TextRows   *rows = ask(report, job, events_sql, 2, NULL, NULL);

	if (rows->nrows == 0)
		return;
	appendStringInfoString(out, "<h4>Pages and tickets</h4>\n<ul class=\"events\">");
	for (int i = 0; i < rows->nrows; i++)
	{
		char	  **v = rows->value[i];

		appendStringInfo(out, "<li><span class=\"severity %s\">%s</span> ", v[1], v[1]);
		html_time(out, v[0], report->now);
		appendStringInfoString(out, " <code>");
		html_text(out, v[2]);
		appendStringInfoString(out, "</code> ");
		html_line(out, v[3], 240);
		appendStringInfoString(out, "</li>\n");
	}
	appendStringInfoString(out, "</ul>\n");
}

void
report_job(const Report *report, const ReportJob *job)
{
	Course	   *courses = gather_course(report, job);
	TextRows   *runs = ask(report, job, runs_sql, 3, catalog_number(RUNS_IN_PLOTS), NULL);

	heading(report, job);
	facts(report, job, courses);
	if (runs->nrows > 0)
	{
		appendStringInfoString(report->out, "<div class=\"plots\">\n");
		freshness_plots(report, job, courses);
		run_plots(report, job, runs);
		appendStringInfoString(report->out, "</div>\n");
	}
	else
		appendStringInfoString(report->out, "<p class=\"meta\">There was no run yet.</p>\n");
	run_table(report, runs);
	rejects(report, job);
	comparisons(report, job);
	events(report, job);
	appendStringInfoString(report->out, "</section>\n");
}
