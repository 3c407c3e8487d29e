/*
 * schedule.h
 *		When a job is due: every so often, or by a cron line.
 */
#ifndef INCLOAD_SCHEDULE_H
#define INCLOAD_SCHEDULE_H

#include "postgres.h"

#include "datatype/timestamp.h"

typedef struct Schedule Schedule;

/*
 * Reads a schedule into the current memory context. ERROR 22023, with detail
 * and hint, for what is neither an interval nor a cron line, for an interval
 * below a second, above 100 years, or with a negative part, and for a cron
 * line whose time never comes.
 */
extern Schedule *schedule_parse(const char *text);

/* is it an interval with days or months, which a time zone measures? */
extern bool schedule_goes_by_days(const Schedule *schedule);

extern bool schedule_is_interval(const Schedule *schedule);

/* is it a cron line that names its time zone? */
extern bool schedule_has_zone(const Schedule *schedule);

/*
 * The first time of the schedule that is later than "after". An interval counts
 * from "anchor": it comes at anchor + k × interval for every whole k, negative
 * ones too, so that late runs do not shift it. Months and days are counted by
 * the calendar of the session's time zone, hours and less as they pass. A cron
 * line ignores the anchor, and goes by its own time zone or else the session's
 * at the time of this call. Costs the same however far the two are apart.
 *
 * ERROR 22008 where it is not a time that a timestamptz holds, and for an
 * anchor or "after" that is infinite.
 */
extern TimestampTz schedule_next(const Schedule *schedule, TimestampTz anchor, TimestampTz after);

/*
 * By how many microseconds after its time this job starts, so that a thousand
 * jobs with the same minute do not start in one second. Always the same for a
 * job: for a cron line from 0 to below 60 s, by a hash of the id; for an
 * interval 0, as its anchor is spread already.
 */
extern int64 schedule_spread(const Schedule *schedule, int64 job_id);

/*
 * Where the intervals of a new job are counted from: up to an interval, at most
 * 10 minutes, after it was created, by a hash of the id.
 */
extern TimestampTz schedule_anchor(const Schedule *schedule, TimestampTz created, int64 job_id);

#endif							/* INCLOAD_SCHEDULE_H */
