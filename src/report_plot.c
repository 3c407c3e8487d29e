/*
 * report_plot.c
 *		The plots of the report, as SVG.
 *
 * All places are in percent of the plot and all letters in pixels, so that a
 * plot is as wide as the screen and its letters are never squeezed. The labels
 * of the axes stand in narrow pictures of their own beside it. What a plot says
 * is said in its description, too, and for each bar where it is pointed at.
 */
#include "postgres.h"

#include <math.h>

#include "report_html.h"
#include "report_plot.h"

/* Scale: from a value to percent from the top */
typedef struct Scale
{
	bool		is_log;
	double		bottom;
	double		top;
	int			nticks;
	double		ticks[8];
} Scale;

/* what people count time in */
static const double durations[] = {
	0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400.0, 365 * 86400.0
};

static double
from_top(const Scale *scale, double value)
{
	double		part;

	value = Max(scale->bottom, Min(scale->top, value));
	if (scale->is_log)
		part = log(value / scale->bottom) / log(scale->top / scale->bottom);
	else
		part = (value - scale->bottom) / (scale->top - scale->bottom);
	/* bars of the largest value stay clear of the edge */
	return 100 - 96 * part;
}

/* from the unit below the smallest value to the one above the largest */
static Scale
log_scale(double smallest, double largest)
{
	Scale		scale = {.is_log = true};
	int			first = 0;
	int			last;
	int			step;

	while (first < lengthof(durations) - 2 && durations[first + 1] <= smallest)
		first++;
	last = first + 1;
	while (last < lengthof(durations) - 1 && durations[last] < largest)
		last++;
	scale.bottom = durations[first];
	scale.top = Max(durations[last], largest);
	step = last - first > 5 ? 2 : 1;
	for (int i = last; i >= first; i -= step)
		scale.ticks[scale.nticks++] = durations[i];
	return scale;
}

static int
descending(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* a round number that is not below this one */
static double
round_up(double value, bool is_time)
{
	static const double steps[] = {1, 2, 3, 4, 6, 8, 10};
	static const double times[] = {60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400};
	double		power;

	if (is_time && value > 50 && value <= 86400)
		for (int i = 0; i < lengthof(times); i++)
			if (value <= times[i])
				return times[i];
	power = pow(10, floor(log10(value)));
	for (int i = 0; i < lengthof(steps); i++)
		if (value <= steps[i] * power * 1.0000001)
			return steps[i] * power;
	return value;
}

/*
 * linear_scale
 *		From zero to a round number. One first load among small runs would make
 *		those invisible: where a tenth of the bars at most is far above the rest,
 *		the scale ends above the rest, and those are marked as cut.
 */
static Scale
linear_scale(const double *values, int n, double least, bool is_time)
{
	Scale		scale = {.is_log = false};
	double	   *sorted = palloc(sizeof(double) * Max(n, 1));
	double		largest = least;
	double		rest;

	memcpy(sorted, values, sizeof(double) * n);
	qsort(sorted, n, sizeof(double), descending);
	if (n > 0)
	{
		largest = Max(least, sorted[0]);
		rest = sorted[(n + 9) / 10 < n ? (n + 9) / 10 : 0];
		if (n >= 8 && rest > 0 && largest > 6 * rest)
			largest = Max(least, rest * 1.2);
	}
	scale.top = round_up(largest, is_time);
	scale.nticks = 3;
	scale.ticks[1] = scale.top / 2;
	scale.ticks[2] = scale.top;
	return scale;
}

static const char *
tick_text(double value, bool is_time)
{
	if (is_time)
		return value == 0 ? "0" : duration_text(value);
	if (value >= 999999.5)
		return psprintf("%g M", value / 1e6);
	return value == floor(value) ? count_text(psprintf("%.0f", value)) : psprintf("%g", value);
}

/* the axis beside the plot, and the beginning of the plot itself with its lines */
static void
open_plot(StringInfo out, const char *id, const Scale *scale, bool is_time,
		  const char *title, const char *description)
{
	appendStringInfoString(out, "<div class=\"axes\"><svg class=\"y\" aria-hidden=\"true\">");
	for (int i = 0; i < scale->nticks; i++)
		appendStringInfo(out, "<text x=\"100%%\" y=\"%.1f%%\" dy=\".35em\">%s</text>",
						 from_top(scale, scale->ticks[i]), tick_text(scale->ticks[i], is_time));
	appendStringInfo(out, "</svg><svg class=\"p\" role=\"img\" aria-labelledby=\"%s-t %s-d\">"
					 "<title id=\"%s-t\">%s</title><desc id=\"%s-d\">%s</desc>\n",
					 id, id, id, title, id, description);
	for (int i = 0; i < scale->nticks; i++)
	{
		double		y = from_top(scale, scale->ticks[i]);

		appendStringInfo(out, "<line class=\"grid\" x2=\"100%%\" y1=\"%.1f%%\" y2=\"%.1f%%\"/>", y, y);
	}
}

/* the labels below, of the first, the last and some between, for n things at the right of so many places */
static void
close_plot(StringInfo out, int n, int places, int nlabels, const char *(*label) (const void *, int), const void *of)
{
	appendStringInfoString(out, "</svg><svg class=\"x\" aria-hidden=\"true\">");
	for (int i = 0; i < nlabels; i++)
	{
		/* a single one is the newest */
		bool		is_last = i == nlabels - 1;
		int			at = is_last ? n - 1 : (int) rint((double) (n - 1) * i / (nlabels - 1));
		const char *anchor = is_last ? "end" : i == 0 ? "start" : "middle";
		double		x = is_last ? 100 : 100.0 * (places - n + at) / places;

		appendStringInfo(out, "<text x=\"%.1f%%\" y=\"12\" text-anchor=\"%s\">%s</text>", x, anchor, label(of, at));
	}
	appendStringInfoString(out, "</svg></div></figure>\n");
}

/* a bar from one height to another, which says what it is where it is pointed at */
static void
bar(StringInfo out, const char *css_class, double x, double width, double top, double bottom, const char *what)
{
	/* what is not nothing is seen */
	if (bottom - top < 1.5)
		top = bottom - 1.5;
	appendStringInfo(out, "<rect class=\"%s\" x=\"%.2f%%\" y=\"%.1f%%\" width=\"%.2f%%\" height=\"%.1f%%\">"
					 "<title>%s</title></rect>\n", css_class, x, top, width, bottom - top, what);
}

static const char *
frame_tick(const void *of, int i)
{
	const Frame *frame = of;

	return i == frame->nbins - 1 ? "now" : frame->tick[i];
}

/* the objective as a dashed line that says its value */
static void
objective_line(StringInfo out, const Scale *scale, double objective)
{
	double		y = from_top(scale, objective);

	appendStringInfo(out, "<line class=\"goal\" x2=\"100%%\" y1=\"%.1f%%\" y2=\"%.1f%%\"/>"
					 "<text class=\"goal\" x=\"0\" y=\"%.1f%%\" dx=\"4\" dy=\"%s\">objective %s</text>\n",
					 y, y, y, y < 22 ? "1.15em" : "-.4em", duration_text(objective));
}

void
plot_freshness(StringInfo out, const char *id, const Frame *frame, const Span *spans,
			   double objective, double fraction_within)
{
	double		smallest = objective > 0 ? objective : HUGE_VAL;
	double		largest = objective > 0 ? objective : 0;
	double		worst = -1;
	int			worst_bin = 0;
	int			nover = 0;
	Scale		scale;
	StringInfoData said;
	double		slot = 100.0 / frame->nbins;

	for (int i = 0; i < frame->nbins; i++)
	{
		if (!spans[i].is_known)
			continue;
		smallest = Min(smallest, spans[i].low);
		largest = Max(largest, spans[i].high);
		nover += objective > 0 && spans[i].high > objective;
		if (spans[i].high > worst)
		{
			worst = spans[i].high;
			worst_bin = i;
		}
	}

	initStringInfo(&said);
	if (worst < 0)
		appendStringInfoString(&said, "no successful run");
	else
		appendStringInfo(&said, "worst <b>%s</b>", duration_text(worst));
	if (worst >= 0 && objective > 0 && fraction_within >= 0)
		/* rounded down: what was missed once is not 100 % */
		appendStringInfo(&said, " &#xB7; <b class=\"within-%s\">%.2f %%</b> within objective",
						 frame->name, floor(fraction_within * 10000) / 100);
	appendStringInfo(out, "<figure><figcaption><span>Freshness, %s</span> %s</figcaption>", frame->title, said.data);

	scale = log_scale(worst < 0 && objective <= 0 ? 1 : smallest, largest);
	open_plot(out, id, &scale, true, psprintf("Freshness, %s", frame->title),
			  worst < 0 ? "There was no successful run." :
			  psprintf("Largest freshness %s, %s. %s Logarithmic scale.", duration_text(worst), frame->when[worst_bin],
					   objective > 0 ? psprintf("Above the objective of %s in %d of %d intervals.", duration_text(objective), nover, frame->nbins)
					   : "No objective is set."));
	for (int i = 0; i < frame->nbins; i++)
	{
		const Span *span = &spans[i];
		double		x = slot * i + slot * 0.12;
		char	   *what;

		if (!span->is_known)
			continue;
		what = psprintf("%s: %s to %s", frame->when[i], duration_text(span->low), duration_text(span->high));
		if (objective <= 0 || span->low < objective)
			bar(out, "fresh", x, slot * 0.76,
				from_top(&scale, objective > 0 ? Min(objective, span->high) : span->high),
				from_top(&scale, span->low), what);
		if (objective > 0 && span->high > objective)
			/* from the line on, so that a long time above it is an area */
			bar(out, "over", x, slot * 0.76, from_top(&scale, span->high), from_top(&scale, objective), what);
	}
	if (objective > 0)
		objective_line(out, &scale, objective);
	if (worst < 0)
		appendStringInfoString(out, "<text class=\"none\" x=\"50%\" y=\"50%\">no successful run</text>");
	close_plot(out, frame->nbins, frame->nbins, 4, frame_tick, frame);
}

static const char *
last_runs(int nruns)
{
	return nruns == 1 ? "the only run" : psprintf("last %d runs", nruns);
}

static const char *
run_tick(const void *of, int i)
{
	return ((const PlotRun *) of)[i].tick;
}

/* the number of places for bars: few runs do not get wide ones, and stand at the right */
static int
run_slots(int nruns)
{
	return Max(nruns, 20);
}

static double
run_place(int i, int nruns)
{
	return 100.0 * (run_slots(nruns) - nruns + i) / run_slots(nruns);
}

/* what is cut stands out above, with a gap */
static void
cut_mark(StringInfo out, double x, double width, const char *what)
{
	appendStringInfo(out, "<rect class=\"gap\" x=\"%.2f%%\" y=\"9%%\" width=\"%.2f%%\" height=\"4%%\"/>"
					 "<text class=\"cut\" x=\"%.2f%%\" y=\"0\" dy=\".85em\">%s</text>\n",
					 x - 0.2, width + 0.4, x + width / 2, what);
}

static bool
has_failed(const PlotRun *run)
{
	return strcmp(run->status, "failed") == 0 || strcmp(run->status, "cancelled") == 0;
}

/* a cross where a run has not succeeded */
static void
failure_mark(StringInfo out, const PlotRun *run, double x)
{
	if (has_failed(run))
		appendStringInfo(out, "<text class=\"failed\" x=\"%.2f%%\" y=\"100%%\" dy=\"-2\">&#xD7;<title>run %lld %s</title></text>\n",
						 x, (long long) run->id, run->status);
}

/* a text for the part of a bar above which another one stands */
static void
run_bars(StringInfo out, const Scale *scale, const PlotRun *run, double x, double width)
{
	const char *who = psprintf("run %lld, %s, %s", (long long) run->id, run->kind, run->status);
	double		below = 0;
	struct
	{
		const char *css_class;
		double		n;
		const char *what;
	}			parts[3] = {
		{"changed", run->changed, "changed in the target"},
		{"same", run->same, "read and not changed"},
		{"over", run->rejected, "rejected"},
	};

	for (int i = 0; i < lengthof(parts); i++)
	{
		if (parts[i].n <= 0)
			continue;
		if (below < scale->top)
			bar(out, parts[i].css_class, x, width, from_top(scale, below + parts[i].n), from_top(scale, below),
				psprintf("%s: %s rows %s", who, count_text(psprintf("%.0f", parts[i].n)), parts[i].what));
		below += parts[i].n;
	}
	if (below > scale->top)
		cut_mark(out, x, width, tick_text(below, false));
}

void
plot_rows(StringInfo out, const char *id, const PlotRun *runs, int nruns)
{
	double	   *sums = palloc(sizeof(double) * Max(nruns, 1));
	double		slot = 100.0 / run_slots(nruns);
	double		largest = 0;
	double		rejected = 0;
	int			nfailed = 0;
	Scale		scale;

	for (int i = 0; i < nruns; i++)
	{
		nfailed += has_failed(&runs[i]);
		sums[i] = runs[i].changed + runs[i].same + runs[i].rejected;
		largest = Max(largest, sums[i]);
		rejected += runs[i].rejected;
	}
	scale = linear_scale(sums, nruns, 10, false);
	appendStringInfo(out, "<figure><figcaption><span>Rows, %s</span> "
					 "<i class=\"key changed\"></i>changed <i class=\"key same\"></i>unchanged%s%s</figcaption>",
					 last_runs(nruns), rejected > 0 ? " <i class=\"key over\"></i>rejected" : "",
					 nfailed > 0 ? " <i class=\"key cross\">&#xD7;</i>not successful" : "");
	open_plot(out, id, &scale, false, psprintf("Rows, %s", last_runs(nruns)),
			  psprintf("A bar a run, the newest at the right. The largest had %s rows; %s rows were rejected in all.",
					   count_text(psprintf("%.0f", largest)), count_text(psprintf("%.0f", rejected))));
	for (int i = 0; i < nruns; i++)
	{
		run_bars(out, &scale, &runs[i], run_place(i, nruns) + slot * 0.14, slot * 0.72);
		failure_mark(out, &runs[i], run_place(i, nruns) + slot * 0.5);
	}
	close_plot(out, nruns, run_slots(nruns), nruns >= 8 ? 2 : Min(nruns, 1), run_tick, runs);
}

void
plot_durations(StringInfo out, const char *id, const PlotRun *runs, int nruns)
{
	double	   *seconds = palloc(sizeof(double) * Max(nruns, 1));
	double		slot = 100.0 / run_slots(nruns);
	double		largest = 0;
	int			nfailed = 0;
	Scale		scale;

	for (int i = 0; i < nruns; i++)
	{
		seconds[i] = Max(runs[i].seconds, 0);
		largest = Max(largest, seconds[i]);
		nfailed += has_failed(&runs[i]);
	}
	scale = linear_scale(seconds, nruns, 0.1, true);
	appendStringInfo(out, "<figure><figcaption><span>Durations, %s</span> longest <b>%s</b>%s</figcaption>",
					 last_runs(nruns), duration_text(largest),
					 nfailed > 0 ? psprintf(" <i class=\"key hollow\"></i>%d not successful", nfailed) : "");
	open_plot(out, id, &scale, true, psprintf("Durations, %s", last_runs(nruns)),
			  psprintf("A bar a run, the newest at the right. The longest took %s; %d did not succeed.",
					   duration_text(largest), nfailed));
	for (int i = 0; i < nruns; i++)
	{
		double		x = run_place(i, nruns) + slot * 0.14;

		if (runs[i].seconds >= 0)
			bar(out, has_failed(&runs[i]) ? "hollow" : "took", x, slot * 0.72, from_top(&scale, seconds[i]), 100,
				psprintf("run %lld, %s, %s: %s", (long long) runs[i].id, runs[i].kind, runs[i].status, duration_text(seconds[i])));
		if (seconds[i] > scale.top)
			cut_mark(out, x, slot * 0.72, duration_text(seconds[i]));
	}
	close_plot(out, nruns, run_slots(nruns), nruns >= 8 ? 2 : Min(nruns, 1), run_tick, runs);
}
