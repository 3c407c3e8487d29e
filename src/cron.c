/*
 * cron.c
 *		Cron lines: what they say, and when their time comes.
 *
 * Each field is a set of bits. Two kinds of time are kept apart: "local" is
 * what the clock on the wall shows, as seconds since 1970 as if it were UTC;
 * "second" is real time, seconds since 1970 in UTC. Within a stretch of time
 * between two changes of the clock they differ by a constant.
 */
#include "postgres.h"

#include <ctype.h>

#include "miscadmin.h"
#include "pgtime.h"
#include "port/pg_bitutils.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "cron.h"

enum
{
	FIELD_MINUTE,
	FIELD_HOUR,
	FIELD_MONTHDAY,
	FIELD_MONTH,
	FIELD_WEEKDAY,
	NFIELDS
};

struct CronLine
{
	pg_tz	   *zone;			/* NULL: the session's */
	uint64		sets[NFIELDS];	/* bit n: the value n */
	bool		real_time;		/* the hour begins with *: comes whenever the clock shows it */
	bool		either_day;		/* day of month or day of week, not both */
};

typedef struct FieldRule
{
	const char *name;
	int			min;
	int			max;
	const char *names;			/* of three letters each, from min on; or NULL */
	const char *holds;			/* what a value may be */
} FieldRule;

static const FieldRule rules[NFIELDS] = {
	{"minute", 0, 59, NULL, "a number from 0 to 59"},
	{"hour", 0, 23, NULL, "a number from 0 to 23"},
	{"day of the month", 1, 31, NULL, "a number from 1 to 31"},
	{"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec",
	"a number from 1 to 12 or a name from jan to dec"},
	{"day of the week", 0, 6, "sunmontuewedthufrisat",
	"a number from 0 to 7 (0 and 7 are Sunday) or a name from sun to sat"},
};

static const struct
{
	const char *name;
	const char *line;
}			nicknames[] = {
	{"@hourly", "0 * * * *"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@weekly", "0 0 * * 0"},
	{"@monthly", "0 0 1 * *"},
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
};

static const char *const zone_prefixes[] = {"CRON_TZ=", "TZ="};

/* the place in a line that is read, for its errors */
typedef struct Place
{
	const char *text;			/* the whole schedule */
	const FieldRule *rule;
} Place;

/* after so long, days of month, month and week go together as they did before */
#define DAYS_PER_CYCLE 146097
#define SECS_PER_CYCLE (INT64CONST(146097) * SECS_PER_DAY)

/* no clock is put further back than twice the week that a zone may be away from UTC */
#define LOOK_BACK (15 * SECS_PER_DAY)

/* the timestamp 0 in seconds since 1970 */
#define EPOCH_SHIFT ((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY)

static bool
is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static const char *
skip_blanks(const char *p)
{
	while (is_blank(*p))
		p++;
	return p;
}

static const char *
skip_word(const char *p)
{
	while (*p != '\0' && !is_blank(*p))
		p++;
	return p;
}

/* the length of the prefix that names a time zone, or 0 */
static size_t
zone_prefix(const char *p)
{
	for (int i = 0; i < lengthof(zone_prefixes); i++)
		if (pg_strncasecmp(p, zone_prefixes[i], strlen(zone_prefixes[i])) == 0)
			return strlen(zone_prefixes[i]);
	return 0;
}

bool
cron_is_meant(const char *text)
{
	const char *p = skip_blanks(text);
	const char *second;
	int			words = 0;

	/* an interval may be written as "@ 1 hour" */
	if (zone_prefix(p) > 0 || (p[0] == '@' && isalpha((unsigned char) p[1])) ||
		strchr(p, '*') != NULL)
		return true;
	second = skip_blanks(skip_word(p));
	for (; *p != '\0'; p = skip_blanks(skip_word(p)))
		words++;
	return words >= NFIELDS && isdigit((unsigned char) *second);
}

static void
bad_line(const char *text, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid schedule \"%s\"", text),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

static void
bad_field(const Place *place, const char *fault, const char *hint)
{
	bad_line(place->text,
			 psprintf("In the field for the %s, %s.", place->rule->name, fault),
			 hint ? hint :
			 "A field holds *, a value, a range such as 1-5, a step such as */15, or a list of these such as 0,30.");
}

/* the number at *p, which is moved behind it; -1 if there is none, or one of no use */
static int
read_number(const char **p)
{
	int			number = 0;

	if (!isdigit((unsigned char) **p))
		return -1;
	for (; isdigit((unsigned char) **p); (*p)++)
		number = Min(number * 10 + (**p - '0'), 1000);
	return number;
}

/* the value at *p, a number or a name, which is moved behind it; -1 if there is none */
static int
read_value(const FieldRule *rule, const char **p)
{
	int			max = rule == &rules[FIELD_WEEKDAY] ? 7 : rule->max;
	int			value;

	if (rule->names && isalpha((unsigned char) **p))
	{
		for (int i = 0; rule->names[i * 3] != '\0'; i++)
			if (pg_strncasecmp(*p, rule->names + i * 3, 3) == 0)
			{
				*p += 3;
				return rule->min + i;
			}
		return -1;
	}
	value = read_number(p);
	return value >= rule->min && value <= max ? value : -1;
}

static void
backward_range(const Place *place, const char *range, int low, int high, int step)
{
	bad_field(place, psprintf("the range \"%s\" ends before it begins", range),
			  step > 1 ? "Write it as two ranges, each with its step." :
			  psprintf("Write it as two ranges: \"%d-%d,%d-%d\".",
					   low, place->rule->max, place->rule->min, high));
}

/* one member of a field's list: *, value, or range, and a step */
static uint64
read_member(const Place *place, const char *member)
{
	const FieldRule *rule = place->rule;
	const char *p = member;
	int			low = rule->min;
	int			high = rule->max;
	int			step = 1;
	uint64		set = 0;

	if (*p == '*')
		p++;
	else
	{
		low = read_value(rule, &p);
		if (*p == '-' && low >= 0)
		{
			p++;
			high = read_value(rule, &p);
		}
		else if (*p != '/')
			high = low;
	}
	if (low < 0 || high < 0 || (*p != '\0' && *p != '/'))
		bad_field(place, psprintf("\"%s\" %s %s", member,
								  strchr(member, '-') ? "does not begin and end with" : "is not",
								  rule->holds), NULL);
	if (*p == '/')
	{
		const char *digits = ++p;

		step = read_number(&p);
		if (step < 1 || step > rule->max - rule->min + 1 || *p != '\0')
			bad_field(place, psprintf("the step \"%s\" is not a number from 1 to %d",
									  digits, rule->max - rule->min + 1), NULL);
	}
	if (rule == &rules[FIELD_WEEKDAY])
	{
		/* Sunday begins a range as 0 and ends it as 7 */
		if (low == 7)
		{
			low = 0;
			high %= 7;
		}
		else if (high == 0 && low > 0)
			high = 7;
	}
	if (high < low)
		backward_range(place, member, low, high, step);
	for (int value = low; value <= high; value += step)
		set |= UINT64CONST(1) << (rule == &rules[FIELD_WEEKDAY] ? value % 7 : value);
	return set;
}

static uint64
read_field(const Place *place, char *field)
{
	uint64		set = 0;

	for (char *next = field; next != NULL;)
	{
		char	   *member = next;

		next = strchr(member, ',');
		if (next)
			*next++ = '\0';
		set |= read_member(place, member);
	}
	return set;
}

/* reads the time zone that the line begins with, if it does; returns what follows */
static const char *
read_zone(CronLine *line, const char *text, const char *p)
{
	size_t		prefix = zone_prefix(p);
	const char *end;
	char	   *name;

	if (prefix == 0)
		return p;
	p += prefix;
	end = skip_word(p);
	name = pnstrdup(p, end - p);
	line->zone = pg_tzset(name);
	if (line->zone == NULL || !pg_tz_acceptable(line->zone))
		bad_line(text, psprintf("\"%s\" is not a time zone.", name),
				 "SELECT name FROM pg_timezone_names lists the time zones.");
	return skip_blanks(end);
}

static const char *
read_nickname(const char *text, const char *p)
{
	size_t		length = strlen(p);

	while (is_blank(p[length - 1]))
		length--;
	for (int i = 0; i < lengthof(nicknames); i++)
		if (strlen(nicknames[i].name) == length &&
			pg_strncasecmp(p, nicknames[i].name, length) == 0)
			return nicknames[i].line;
	bad_line(text, psprintf("\"%s\" is not known.", pnstrdup(p, length)),
			 "Known are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually.");
	return NULL;				/* keep compiler quiet */
}

/* the next value of a set, from "from" on; -1 if there is none */
static int
next_in_set(uint64 set, int from)
{
	set &= ~UINT64CONST(0) << from;
	return set ? pg_rightmost_one_pos64(set) : -1;
}

static int64
floor_divide(int64 number, int64 by)
{
	return number / by - (number % by < 0 ? 1 : 0);
}

static bool
day_matches(const CronLine *line, int day_of_month, int day_of_week)
{
	bool		month_day = (line->sets[FIELD_MONTHDAY] >> day_of_month) & 1;
	bool		week_day = (line->sets[FIELD_WEEKDAY] >> day_of_week) & 1;

	return line->either_day ? month_day || week_day : month_day && week_day;
}

/* the first local time of the line that is later; false if there is none */
static bool
next_local(const CronLine *line, int64 local, int64 *next)
{
	int64		minute = floor_divide(local, SECS_PER_MINUTE) + 1;
	int64		day = floor_divide(minute, MINS_PER_HOUR * HOURS_PER_DAY);
	int64		last_day = day + DAYS_PER_CYCLE;
	int			from_minute = minute - day * MINS_PER_HOUR * HOURS_PER_DAY;

	while (day <= last_day)
	{
		int			julian = day + UNIX_EPOCH_JDATE;
		int			y,
					m,
					d;

		CHECK_FOR_INTERRUPTS();
		j2date(julian, &y, &m, &d);
		if (!((line->sets[FIELD_MONTH] >> m) & 1))
		{
			/* on the first of the next month */
			day += day_tab[isleap(y)][m - 1] - d + 1;
			from_minute = 0;
			continue;
		}
		if (day_matches(line, d, j2day(julian)))
		{
			int			from_hour = from_minute / MINS_PER_HOUR;
			int			h = next_in_set(line->sets[FIELD_HOUR], from_hour);
			int			min = next_in_set(line->sets[FIELD_MINUTE], h == from_hour ? from_minute % MINS_PER_HOUR : 0);

			if (min < 0)
			{
				h = next_in_set(line->sets[FIELD_HOUR], from_hour + 1);
				min = next_in_set(line->sets[FIELD_MINUTE], 0);
			}
			if (h >= 0)
			{
				*next = day * SECS_PER_DAY + (h * MINS_PER_HOUR + min) * SECS_PER_MINUTE;
				return true;
			}
		}
		day++;
		from_minute = 0;
	}
	return false;
}

/* Stretch: the time from a second to the next change of the clock */
typedef struct Stretch
{
	int64		end;			/* the first second that is no longer in it */
	int64		offset;			/* local = second + offset */
} Stretch;

static Stretch
stretch_from(pg_tz *zone, int64 second)
{
	pg_time_t	from = second;
	pg_time_t	boundary;
	long int	offset = 0;
	long int	later_offset;
	int			is_dst;
	int			later_is_dst;
	Stretch		stretch;

	if (pg_next_dst_boundary(&from, &offset, &is_dst, &boundary, &later_offset, &later_is_dst, zone) == 1)
		stretch.end = boundary;
	else
		stretch.end = PG_INT64_MAX;
	stretch.offset = offset;
	return stretch;
}

/* the latest local time that the clock has shown by then: it may have been put back since */
static int64
latest_local(pg_tz *zone, int64 second)
{
	int64		latest = PG_INT64_MIN;
	int64		from = second - LOOK_BACK;

	for (;;)
	{
		Stretch		stretch = stretch_from(zone, from);

		if (second < stretch.end)
			return Max(latest, second + stretch.offset);
		latest = Max(latest, stretch.end - 1 + stretch.offset);
		from = stretch.end;
	}
}

/* when the clock shows this local time or a later one for the first time */
static int64
first_shown(pg_tz *zone, int64 local)
{
	int64		from = local - LOOK_BACK;

	for (;;)
	{
		Stretch		stretch = stretch_from(zone, from);
		int64		second = Max(from, local - stretch.offset);

		if (second < stretch.end)
			return second;
		from = stretch.end;
	}
}

/* the first second of the line that is later, each time that the clock shows it; false if there is none */
static bool
next_shown(const CronLine *line, pg_tz *zone, int64 second, int64 *next)
{
	int64		from = second + 1;

	while (from <= second + SECS_PER_CYCLE)
	{
		Stretch		stretch = stretch_from(zone, from);
		int64		local;

		if (!next_local(line, from + stretch.offset - 1, &local))
			return false;
		*next = local - stretch.offset;
		if (*next < stretch.end)
			return true;
		from = stretch.end;
	}
	return false;
}

/* the first second of the line that is later; false if there is none */
static bool
next_second(const CronLine *line, int64 second, int64 *next)
{
	pg_tz	   *zone = line->zone ? line->zone : session_timezone;
	int64		local;

	if (line->real_time)
		return next_shown(line, zone, second, next);
	/* what the clock has shown before does not come again when it is put back */
	if (!next_local(line, latest_local(zone, second), &local))
		return false;
	*next = first_shown(zone, local);
	return true;
}

CronLine *
cron_parse(const char *text)
{
	CronLine   *line = palloc0(sizeof(CronLine));
	const char *fields[NFIELDS];
	const char *p = read_zone(line, text, skip_blanks(text));
	int			nfields = 0;
	int64		ignored;

	if (*p == '@')
		p = read_nickname(text, p);
	for (; *p != '\0'; p = skip_blanks(skip_word(p)))
	{
		if (nfields < NFIELDS)
			fields[nfields] = p;
		nfields++;
	}
	if (nfields != NFIELDS)
		bad_line(text, psprintf("A cron line has five fields, and this one has %d.", nfields),
				 "The fields are minute, hour, day of the month, month and day of the week, such as \"30 2 * * mon-fri\". What comes more often than every minute is an interval, such as \"10 seconds\".");
	for (int i = 0; i < NFIELDS; i++)
	{
		Place		place = {text, &rules[i]};

		line->sets[i] = read_field(&place, pnstrdup(fields[i], skip_word(fields[i]) - fields[i]));
	}
	line->real_time = *fields[FIELD_HOUR] == '*';
	line->either_day = *fields[FIELD_MONTHDAY] != '*' && *fields[FIELD_WEEKDAY] != '*';
	if (!next_second(line, EPOCH_SHIFT, &ignored))
		bad_line(text, "It never comes.",
				 "Compare the days of the month and the months: February has 29 days at most.");
	return line;
}

bool
cron_has_zone(const CronLine *line)
{
	return line->zone != NULL;
}

TimestampTz
cron_next(const CronLine *line, TimestampTz after)
{
	int64		next;

	if (!next_second(line, floor_divide(after, USECS_PER_SEC) + EPOCH_SHIFT, &next) ||
		next - EPOCH_SHIFT < MIN_TIMESTAMP / USECS_PER_SEC ||
		next - EPOCH_SHIFT >= END_TIMESTAMP / USECS_PER_SEC)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range"),
				 errdetail("The schedule has no time later than \"%s\".", timestamptz_to_str(after)),
				 errhint("Ask for its time from an earlier one on.")));
	return (next - EPOCH_SHIFT) * USECS_PER_SEC;
}
