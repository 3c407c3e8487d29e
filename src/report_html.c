/*
 * report_html.c
 *		Values as HTML and as people read them.
 *
 * Every character that means something to HTML, and every one beyond ASCII, is
 * written as a reference. psql writes a file in whatever encoding its client
 * has, and a page of ASCII is right in each.
 */
#include "postgres.h"

#include <limits.h>
#include <math.h>

#include "mb/pg_wchar.h"

#include "report_html.h"

/*
 * one_char
 *		A code point of Unicode. Controls have no place in HTML, not even as
 *		references: they are shown by the pictures that Unicode has for them.
 */
static void
one_char(StringInfo out, pg_wchar c)
{
	if (c == '\n' || c == '\t' || c == '\r')
		appendStringInfoChar(out, ' ');
	else if (c < 0x20)
		appendStringInfo(out, "&#x%X;", 0x2400 + c);
	else if (c == 0x7f)
		appendStringInfoString(out, "&#x2421;");
	else if (c > 0x7f && c < 0xa0)
		appendStringInfoString(out, "&#xFFFD;");
	else if (c > 0x7f || strchr("&<>\"'`", (int) c) != NULL)
		appendStringInfo(out, "&#x%X;", c);
	else
		appendStringInfoChar(out, (char) c);
}

/* bytes of no known encoding */
static void
bytes(StringInfo out, const unsigned char *p, int max_chars)
{
	for (; *p && max_chars > 0; p++, max_chars--)
	{
		if (*p > 0x7f)
			appendStringInfo(out, "\\x%02X", *p);
		else
			one_char(out, *p);
	}
	if (*p)
		appendStringInfoString(out, "&#x2026;");
}

static void
chars(StringInfo out, const char *text, int max_chars)
{
	int			encoding = GetDatabaseEncoding();
	int			len = strlen(text);
	const unsigned char *p;

	if (encoding == PG_SQL_ASCII && !pg_verify_mbstr(PG_UTF8, text, len, true))
	{
		bytes(out, (const unsigned char *) text, max_chars);
		return;
	}
	/* no conversion is asked for from SQL_ASCII, and none is needed from UTF8 */
	p = (const unsigned char *) text;
	if (encoding != PG_SQL_ASCII && encoding != PG_UTF8)
		p = pg_do_encoding_conversion(unconstify(unsigned char *, p), len, encoding, PG_UTF8);
	for (; *p && max_chars > 0; p += pg_utf_mblen(p), max_chars--)
		one_char(out, utf8_to_unicode(p));
	if (*p)
		appendStringInfoString(out, "&#x2026;");
}

void
html_text(StringInfo out, const char *text)
{
	if (text)
		chars(out, text, INT_MAX);
	else
		appendStringInfoString(out, HTML_NONE);
}

void
html_line(StringInfo out, const char *text, int max_chars)
{
	if (text)
		chars(out, pnstrdup(text, strcspn(text, "\r\n")), max_chars);
	else
		appendStringInfoString(out, HTML_NONE);
}

void
html_name(StringInfo out, const char *name)
{
	appendStringInfoString(out, "<bdi>");
	html_text(out, name);
	appendStringInfoString(out, "</bdi>");
}

void
html_time(StringInfo out, const char *iso, const char *now)
{
	/* years before Christ or beyond 9999 have other places */
	bool		is_plain = iso && strlen(iso) == strlen("2026-07-01T12:30:05+02:00") && iso[10] == 'T';

	if (!is_plain)
	{
		html_text(out, iso);
		return;
	}
	appendStringInfo(out, "<time datetime=\"%s\">", iso);
	if (now == NULL || strncmp(iso, now, 10) != 0)
		appendStringInfo(out, "%.10s ", iso);
	appendStringInfo(out, "%.5s</time>", iso + 11);
}

void
html_open_table(StringInfo out, const char *css_class, const char *caption)
{
	appendStringInfo(out, "<div class=\"scroll\" role=\"group\" aria-label=\"%s\" tabindex=\"0\">"
					 "<table class=\"%s\"><caption>%s</caption>\n", caption, css_class, caption);
}

void
html_close_table(StringInfo out)
{
	appendStringInfoString(out, "</tbody></table></div>\n");
}

const char *
count_text(const char *digits)
{
	StringInfoData buf;
	int			n;

	if (digits == NULL)
		return HTML_NONE;
	initStringInfo(&buf);
	if (*digits == '-')
		appendStringInfoChar(&buf, *digits++);
	n = strspn(digits, "0123456789");
	for (int i = 0; i < n; i++)
	{
		if (i > 0 && (n - i) % 3 == 0)
			appendStringInfoChar(&buf, ',');
		appendStringInfoChar(&buf, digits[i]);
	}
	return buf.data;
}

/* the two largest units; the second one only where it is not zero */
static const char *
two_units(int64 n, int per, const char *large, const char *small)
{
	if (n % per == 0)
		return psprintf(INT64_FORMAT " %s", n / per, large);
	return psprintf(INT64_FORMAT " %s %d %s", n / per, large, (int) (n % per), small);
}

const char *
duration_text(double seconds)
{
	if (seconds < 0)
		return psprintf("-%s", duration_text(-seconds));
	if (seconds < 0.9995)
		return psprintf("%.0f ms", seconds * 1000);
	if (seconds < 9.95)
		return psprintf("%.*f s", fabs(seconds - rint(seconds)) < 0.05 ? 0 : 1, seconds);
	if (seconds < 59.5)
		return psprintf("%.0f s", seconds);
	if (seconds < 3599.5)
		return two_units((int64) rint(seconds), 60, "min", "s");
	if (seconds < 86370)
		return two_units((int64) rint(seconds / 60), 60, "h", "min");
	return two_units((int64) rint(seconds / 3600), 24, "d", "h");
}

double
number_or_none(const char *text)
{
	return text ? strtod(text, NULL) : -1;
}

void
html_state(StringInfo out, const char *state)
{
	static const char *const known[] = {"failing", "late", "paused", "never run", "running", "ok"};
	const char *icon = "never";

	for (int i = 0; i < lengthof(known); i++)
		if (strcmp(state, known[i]) == 0)
			icon = strcmp(state, "never run") == 0 ? "never" : known[i];
	appendStringInfo(out, "<span class=\"state %s\"><svg class=\"icon\" aria-hidden=\"true\">"
					 "<use href=\"#i-%s\"/></svg>", icon, icon);
	html_text(out, state);
	appendStringInfoString(out, "</span>");
}
