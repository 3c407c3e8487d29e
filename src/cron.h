/*
 * cron.h
 *		Cron lines: what they say, and when their time comes.
 */
#ifndef INCLOAD_CRON_H
#define INCLOAD_CRON_H

#include "postgres.h"

#include "datatype/timestamp.h"

typedef struct CronLine CronLine;

/*
 * By its form: is the text meant as a cron line, and not as an interval? So is
 * what begins with a time zone or with @ and a letter, what has a *, and what
 * has five words or more of which the second begins with a digit.
 */
extern bool cron_is_meant(const char *text);

/*
 * ERROR 22023, with the field and what it may hold, for a line that cannot be
 * read, whose time zone is not known, or whose time never comes.
 */
extern CronLine *cron_parse(const char *text);

/* does it name a time zone? */
extern bool cron_has_zone(const CronLine *line);

/*
 * The first time of the line that is later than "after", which must be finite,
 * in the line's time zone or else in that of the session at the time of this
 * call. ERROR 22008 where it is beyond what a timestamp holds.
 *
 * A line with a fixed hour comes when the clock on the wall first shows its
 * time or, where that is left out, a later one; a line whose hour begins with
 * * comes whenever the clock shows it.
 */
extern TimestampTz cron_next(const CronLine *line, TimestampTz after);

#endif							/* INCLOAD_CRON_H */
