/*
 * report_html.h
 *		Values as HTML and as people read them.
 *
 * What these write is ASCII alone, so that the page is the same whatever encoding
 * it is written to a file in.
 */
#ifndef INCLOAD_REPORT_HTML_H
#define INCLOAD_REPORT_HTML_H

#include "postgres.h"

#include "lib/stringinfo.h"

/* a dash, for what there is no value for */
#define HTML_NONE "&#x2013;"

/* text between tags or between quotes; NULL is a dash */
extern void html_text(StringInfo out, const char *text);

/* its first line, and no more than that many characters of it */
extern void html_line(StringInfo out, const char *text, int max_chars);

/* a name that may run from right to left, apart from what stands around it */
extern void html_name(StringInfo out, const char *name);

/* "2026-07-01T12:30:05+02:00" as a time element; without its date where that is the day of "now" */
extern void html_time(StringInfo out, const char *iso, const char *now);

/* opens a table that scrolls by itself, with a caption for those who cannot see */
extern void html_open_table(StringInfo out, const char *css_class, const char *caption);
extern void html_close_table(StringInfo out);

/* digits with commas, as ASCII; a dash for NULL */
extern const char *count_text(const char *digits);

/* "1 h 5 min" */
extern const char *duration_text(double seconds);

/* a number that a query printed; -1 for NULL */
extern double number_or_none(const char *text);

/* the icon and the word of a job's state */
extern void html_state(StringInfo out, const char *state);

#endif							/* INCLOAD_REPORT_HTML_H */
