/*
 * report.c
 *		incload_report: the health of all jobs as one HTML page.
 *
 * The page needs no network and asks for nothing: its style, its script and its
 * plots are in it, and its own policy allows nothing else, the two known by their
 * hashes. It shows what the caller may see in the views, and neither options nor
 * values of rows.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "kept_plan.h"
#include "report.h"
#include "report_html.h"
#include "role.h"
#include "text_rows.h"

#define MAX_DETAILS 1000
#define EVENTS_SHOWN 20

/* worst first, as incload.status has them */
static const char *const states[] = {"failing", "late", "paused", "never run", "running", "ok"};

static const char context_sql[] =
	"SELECT to_char(n.at, " ISO_FORMAT "), to_char(n.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US\"+00\"'),"
	" current_database(), current_user, current_setting('TimeZone'),"
	" (SELECT CASE WHEN u.rolsuper THEN NULL ELSE (SELECT array_agg(r.rolname)::text FROM pg_roles r"
	"  WHERE pg_has_role(r.oid, 'USAGE')) END FROM pg_roles u WHERE u.rolname = current_user),"
	" (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'incload')"
	" FROM (SELECT clock_timestamp() AS at) n";

static const char bins_sql[] =
	"SELECT f.number, to_char(b.low, f.tick), to_char(b.low, f.from_form) || ' to ' || to_char(b.low + f.width, 'HH24:MI')"
	" FROM (VALUES (0, interval '15 minutes', 96, 'HH24:MI', 'DD Mon HH24:MI'),"
	"  (1, interval '6 hours', 120, 'DD Mon', 'DD Mon HH24:MI')) f(number, width, bins, tick, from_form),"
	" LATERAL (SELECT date_bin(f.width, $1::timestamptz, date_trunc('day', $1::timestamptz)) - f.width * (f.bins - 1 - i) AS low, i"
	"  FROM generate_series(0, f.bins - 1) i) b ORDER BY f.number, b.i";

/* a job beyond its objective is late, whether or not incload.status says so */
static const char jobs_sql[] =
	"SELECT s.job_id, s.job, s.owner, s.source, s.target, s.strategy, s.watermark, s.schedule, s.state,"
	" s.freshness, s.objective, s.lag, to_char(s.last_success, " ISO_FORMAT "), to_char(s.next_run, " ISO_FORMAT "),"
	" s.last_rows, s.rejects, s.last_error, s.checkpoint, s.guarantee, s.held_back_by"
	" FROM (SELECT p.*, CASE WHEN p.status_state = 'ok' AND p.freshness > p.objective THEN 'late' ELSE p.status_state END AS state"
	"  FROM (SELECT j.job_id, j.job, j.owner, j.source, j.target, j.strategy, j.watermark, j.schedule, t.state AS status_state,"
	"   extract(epoch FROM t.freshness) AS freshness, extract(epoch FROM (j.options->>'freshness_slo')::interval) AS objective,"
	"   extract(epoch FROM t.lag) AS lag, t.last_success, t.next_run, t.last_rows, t.rejects, t.last_error,"
	"   t.checkpoint, t.guarantee, t.held_back_by"
	"   FROM incload.job j JOIN incload.status t USING (job)) p) s"
	" ORDER BY array_position('{failing,late,paused,\"never run\",running,ok}', s.state),"
	" s.freshness / nullif(s.objective, 0) DESC NULLS LAST, s.job";

static const char totals_sql[] =
	"SELECT count(*) FILTER (WHERE status = 'succeeded'), count(*) FILTER (WHERE status IN ('failed', 'cancelled')),"
	" coalesce(sum(rows_read), 0), pg_size_pretty(coalesce(sum(bytes_read), 0))"
	" FROM incload.run WHERE started_at > $1::timestamptz - interval '24 hours' AND kind <> 'reconcile'";

static const char events_sql[] =
	"SELECT to_char(at, " ISO_FORMAT "), severity, code, message, job, count(*) OVER ()"
	" FROM incload.event WHERE severity IN ('page', 'ticket') AND at > $1::timestamptz - interval '7 days'"
	" ORDER BY event_id DESC LIMIT 20";

/* asks as the caller, who sees what the views show him */
static TextRows *
ask_as_caller(const char *sql, int nparams, const char *param)
{
	MemoryContext context = CurrentMemoryContext;
	TextRows   *rows;

	SPI_connect();
	kept_plan_execute_once(sql, nparams, &param);
	rows = text_rows_from_spi(context);
	SPI_finish();
	return rows;
}

static void
gather_frames(Report *report)
{
	TextRows   *rows = ask_as_caller(bins_sql, 1, report->at);

	report->frames[0].name = "day";
	report->frames[0].title = "last 24 hours";
	report->frames[1].name = "month";
	report->frames[1].title = "last 30 days";
	for (int i = 0; i < rows->nrows; i++)
	{
		Frame	   *frame = &report->frames[atoi(rows->value[i][0])];

		Assert(frame->nbins < PLOT_MAX_BINS);
		frame->tick[frame->nbins] = rows->value[i][1];
		frame->when[frame->nbins++] = rows->value[i][2];
	}
}

/* the members are the columns, in their order */
StaticAssertDecl(sizeof(ReportJob) == 20 * sizeof(char *), "a column of the jobs is not a member");

static ReportJob *
gather_jobs(int *njobs)
{
	TextRows   *rows = ask_as_caller(jobs_sql, 0, NULL);
	ReportJob  *jobs = palloc0(sizeof(ReportJob) * Max(rows->nrows, 1));

	for (int i = 0; i < rows->nrows; i++)
		memcpy(&jobs[i], rows->value[i], sizeof(ReportJob));
	*njobs = rows->nrows;
	return jobs;
}

static int
count_state(const ReportJob *jobs, int njobs, const char *state)
{
	int			n = 0;

	for (int i = 0; i < njobs; i++)
		n += strcmp(jobs[i].state, state) == 0;
	return n;
}

/* "2 failing, 1 late of 12 jobs" */
static char *
headline(const ReportJob *jobs, int njobs)
{
	int			failing = count_state(jobs, njobs, "failing");
	int			late = count_state(jobs, njobs, "late");
	const char *all = psprintf("%s job%s", count_text(psprintf("%d", njobs)), njobs == 1 ? "" : "s");

	if (njobs == 0)
		return pstrdup("No job yet");
	if (failing == 0 && late == 0)
		return psprintf("None of %s is failing or late", all);
	if (failing == 0)
		return psprintf("%d late of %s", late, all);
	if (late == 0)
		return psprintf("%d failing of %s", failing, all);
	return psprintf("%d failing, %d late of %s", failing, late, all);
}

static void
write_header(const Report *report, char **context, const char *line, const ReportJob *jobs, int njobs)
{
	StringInfo	out = report->out;
	TextRows   *totals;

	appendStringInfoString(out, "<header><p class=\"meta\">incload ");
	html_text(out, context[6]);
	appendStringInfoString(out, " &#xB7; database ");
	html_name(out, context[2]);
	appendStringInfoString(out, " &#xB7; seen by ");
	html_name(out, context[3]);
	appendStringInfoString(out, " &#xB7; ");
	html_time(out, report->now, NULL);
	appendStringInfoChar(out, ' ');
	html_text(out, context[4]);
	appendStringInfo(out, "</p>\n<h1>%s</h1>\n", line);
	if (njobs == 0)
	{
		appendStringInfoString(out, "</header>\n");
		return;
	}
	appendStringInfoString(out, "<ul class=\"tiles\">");
	for (int i = 0; i < lengthof(states); i++)
	{
		int			n = count_state(jobs, njobs, states[i]);

		appendStringInfo(out, "<li class=\"%s\"><b>%s</b> ", n == 0 ? "zero" : "some", count_text(psprintf("%d", n)));
		html_state(out, states[i]);
		appendStringInfoString(out, "</li>");
	}
	totals = ask_as_caller(totals_sql, 1, report->at);
	appendStringInfo(out, "</ul>\n<p class=\"totals\">Last 24 hours: <b>%s</b> runs succeeded, <b>%s</b> did not; "
					 "<b>%s</b> rows read, <b>%s</b>.</p></header>\n",
					 count_text(totals->value[0][0]), count_text(totals->value[0][1]),
					 count_text(totals->value[0][2]), totals->value[0][3]);
}

static void
write_no_job(StringInfo out)
{
	appendStringInfoString(out,
						   "<section><h2>Create one</h2>\n<p>There is no job that this role may see. "
						   "A job copies what is new or changed from a source, such as a foreign table, to a table here:</p>\n"
						   "<pre><code>SELECT incload_create_job(&#x27;orders&#x27;, source =&gt; &#x27;src.orders&#x27;, target =&gt; &#x27;public.orders&#x27;);\n"
						   "SELECT incload_run(&#x27;orders&#x27;);\n"
						   "SELECT incload_alter_job(&#x27;orders&#x27;, schedule =&gt; &#x27;5 minutes&#x27;);</code></pre>\n"
						   "<p><code>SELECT * FROM incload_suggest(&#x27;src.orders&#x27;)</code> says beforehand what it would choose.</p></section>\n");
}

static void
write_events(const Report *report)
{
	StringInfo	out = report->out;
	TextRows   *rows = ask_as_caller(events_sql, 1, report->at);

	appendStringInfoString(out, "<section><h2>Pages and tickets, last 7 days</h2>\n");
	if (rows->nrows == 0)
	{
		appendStringInfoString(out, "<p class=\"meta\">None.</p></section>\n");
		return;
	}
	appendStringInfoString(out, "<ul class=\"events\">");
	for (int i = 0; i < rows->nrows; i++)
	{
		char	  **v = rows->value[i];

		appendStringInfo(out, "<li><span class=\"severity %s\">%s</span> ", v[1], v[1]);
		html_time(out, v[0], report->now);
		appendStringInfoChar(out, ' ');
		if (v[4])
			html_name(out, v[4]);
		appendStringInfoString(out, " <code>");
		html_text(out, v[2]);
		appendStringInfoString(out, "</code> ");
		html_line(out, v[3], 200);
		appendStringInfoString(out, "</li>\n");
	}
	appendStringInfoString(out, "</ul>\n");
	if (strtol(rows->value[0][5], NULL, 10) > rows->nrows)
		appendStringInfo(out, "<p class=\"meta\">The newest %d of %s; all are in <code>incload.event</code>.</p>\n",
						 rows->nrows, count_text(rows->value[0][5]));
	appendStringInfoString(out, "</section>\n");
}

static void
write_row(const Report *report, const ReportJob *job, bool has_details)
{
	StringInfo	out = report->out;
	double		freshness = number_or_none(job->freshness);
	double		objective = number_or_none(job->objective);
	bool		is_over = objective > 0 && freshness > objective;

	appendStringInfoString(out, "<tr><th scope=\"row\">");
	if (has_details)
		appendStringInfo(out, "<a href=\"#job-%s\">", job->job_id);
	html_name(out, job->job);
	appendStringInfo(out, "%s</th><td>", has_details ? "</a>" : "");
	html_state(out, job->state);
	appendStringInfo(out, "</td><td class=\"n\" data-seconds=\"%s\">%s%s%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td>",
					 job->freshness ? job->freshness : "", is_over ? "<b>" : "",
					 job->freshness ? duration_text(freshness) : HTML_NONE, is_over ? "</b>" : "",
					 job->objective ? duration_text(objective) : HTML_NONE,
					 job->lag ? duration_text(strtod(job->lag, NULL)) : HTML_NONE);
	html_time(out, job->last_success, report->now);
	appendStringInfo(out, "</td><td class=\"n\">%s</td><td>", count_text(job->last_rows));
	html_time(out, job->next_run, report->now);
	appendStringInfo(out, "</td><td class=\"n\">%s</td><td class=\"wide\">", count_text(job->rejects));
	if (job->last_error)
		html_line(out, job->last_error, 140);
	appendStringInfoString(out, "</td></tr>\n");
}

static void
write_jobs(const Report *report, const ReportJob *jobs, int njobs, int ndetails)
{
	StringInfo	out = report->out;

	appendStringInfoString(out, "<section><h2>All jobs, worst first</h2>\n"
						   "<p class=\"filter\" hidden><label>Show only <input type=\"search\" placeholder=\"a name, a state, an error\"></label> "
						   "<output></output></p>\n");
	html_open_table(out, "jobs", "All jobs, worst first");
	appendStringInfoString(out, "<thead><tr><th scope=\"col\">Job</th><th scope=\"col\">State</th>"
						   "<th scope=\"col\" class=\"n\">Freshness</th><th scope=\"col\" class=\"n\">Objective</th>"
						   "<th scope=\"col\" class=\"n\">Lag</th><th scope=\"col\">Last success</th>"
						   "<th scope=\"col\" class=\"n\">Rows read</th><th scope=\"col\">Next run</th>"
						   "<th scope=\"col\" class=\"n\">Rejects</th><th scope=\"col\">Last error</th></tr></thead><tbody>\n");
	for (int i = 0; i < njobs; i++)
		write_row(report, &jobs[i], i < ndetails);
	html_close_table(out);
	appendStringInfoString(out, "</section>\n");
}

static void
write_details(const Report *report, const ReportJob *jobs, int njobs, int ndetails)
{
	StringInfo	out = report->out;

	if (ndetails == 0)
		return;
	appendStringInfoString(out, "<section class=\"details\"><h2>Job by job</h2>\n");
	if (ndetails < njobs)
		appendStringInfo(out, "<p class=\"meta left-out\">The worst %s of %s jobs. The other %s are in the table alone; "
						 "<code>SELECT incload_report(%d)</code> shows more here.</p>\n",
						 count_text(psprintf("%d", ndetails)), count_text(psprintf("%d", njobs)),
						 count_text(psprintf("%d", njobs - ndetails)), Min(njobs, MAX_DETAILS));
	for (int i = 0; i < ndetails; i++)
	{
		CHECK_FOR_INTERRUPTS();
		report_job(report, &jobs[i]);
	}
	appendStringInfoString(out, "</section>\n");
}

static void
write_page(StringInfo out, int max_details)
{
	Report		report = {.out = out};
	char	  **context = ask_as_caller(context_sql, 0, NULL)->value[0];
	int			njobs;
	ReportJob  *jobs;
	char	   *line;
	int			ndetails;

	report.now = context[0];
	report.at = context[1];
	report.owners = context[5];
	gather_frames(&report);
	jobs = gather_jobs(&njobs);
	line = headline(jobs, njobs);
	ndetails = Min(njobs, max_details);

	report_open_page(out, line);
	write_header(&report, context, line, jobs, njobs);
	appendStringInfoString(out, "<main>\n");
	if (njobs == 0)
		write_no_job(out);
	else
		write_jobs(&report, jobs, njobs, ndetails);
	write_events(&report);
	write_details(&report, jobs, njobs, ndetails);
	appendStringInfoString(out, "</main>\n");
	report_close_page(out);
}

PG_FUNCTION_INFO_V1(incload_report);

/*
 * incload_report(details) → text
 *		One HTML page: the health of all jobs that the caller may see, and more
 *		about so many of them, the worst first.
 */
Datum
incload_report(PG_FUNCTION_ARGS)
{
	int32		max_details = PG_GETARG_INT32(0);
	StringInfoData out;
	int			guc_nest_level;

	if (max_details < 0 || max_details > MAX_DETAILS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid number of jobs to show in detail: %d", max_details),
				 errdetail("It goes from 0 to %d.", MAX_DETAILS)));

	initStringInfo(&out);
	guc_nest_level = NewGUCNestLevel();
	role_set("search_path", "pg_catalog, pg_temp");
	/* these are many small queries, of which compiling one may take longer than all of them */
	role_set("jit", "off");
	write_page(&out, max_details);
	AtEOXact_GUC(true, guc_nest_level);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
