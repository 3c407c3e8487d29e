--
-- Schedules: what intervals and cron lines mean, compared with a clock that is read minute by minute
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE SCHEMA schedules;
SET search_path = schedules, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
SET IntervalStyle = 'postgres';
\set SHOW_CONTEXT never

-- the next times of a schedule in one line
CREATE FUNCTION runs(schedule text, after timestamptz, n int DEFAULT 5) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(to_char(t, 'YYYY-MM-DD HH24:MI:SS TZH:TZM'), E'\n' ORDER BY t) FROM incload_next_runs(schedule, n, after) t
$$;
\t on
\pset format unaligned
\set after '''2023-01-31 12:00Z'''

--
-- what it takes: five times from now on, where nothing else is said
--
SELECT count(*), min(t) > now(), max(t) - min(t) FROM incload_next_runs('1 hour') t;
SELECT count(*), min(t) > now(), max(t) - min(t), bool_and(extract(second FROM t) = 0) FROM incload_next_runs('* * * * *') t;
SELECT count(*) FROM incload_next_runs('1 hour', 1000);
SELECT count(*) FROM incload_next_runs(NULL);
SELECT incload_next_runs('@daily', 2, :after);
SELECT obj_description('incload_next_runs'::regproc) <> '' AS commented, provolatile, proparallel FROM pg_proc WHERE oid = 'incload_next_runs'::regproc;

--
-- intervals: exact, from the anchor on
--
SELECT runs('5 minutes', '2023-01-01 00:00:07.123456Z', 3);
SELECT runs('90 s', :after, 3);
SELECT runs('@ 1 hour', :after, 2);
SELECT runs('P1DT1H', :after, 2);
SELECT t FROM incload_next_runs('1.5 seconds', 3, :after) t;
SELECT bool_and(t = g) AS same, count(*) FROM
    (SELECT row_number() OVER (ORDER BY t) AS n, t FROM incload_next_runs('7 minutes 1.000001 seconds', 1000, '2023-03-01 00:00Z') t) r
    JOIN (SELECT row_number() OVER (ORDER BY g) AS n, g FROM generate_series(timestamptz '2023-03-01 00:07:01.000001Z', '2023-04-01Z', '7 minutes 1.000001 seconds') g) s USING (n);
-- months count from the anchor: the 31st comes again after a short month
SELECT runs('1 month', :after, 14);
SELECT runs('1 year', '2024-02-29 12:00Z', 5);
-- each time is the anchor plus k intervals, whatever lies between
SELECT i, count(*), count(*) FILTER (WHERE t <> timestamptz '2023-01-31 02:30 Europe/Berlin' + k * i::interval) AS wrong
FROM unnest('{1 day,1 month,3 months 2 days,1 day 1 hour,7 days 0.5 s}'::text[]) i,
     incload_next_runs(i, 1000, '2023-01-31 02:30 Europe/Berlin') WITH ORDINALITY r (t, k) GROUP BY i ORDER BY i;
SET TimeZone = 'Europe/Berlin';
-- a day is 23 or 25 hours, if need be, and 24 hours are 24 hours
SELECT runs('1 day', '2023-03-24 12:00', 4);
SELECT runs('24 hours', '2023-03-24 12:00', 4);
SELECT runs('1 day', '2023-03-24 02:30', 4);
SELECT i, count(*), count(*) FILTER (WHERE t <> timestamptz '2023-01-31 02:30' + k * i::interval) AS wrong
FROM unnest('{1 day,1 month,3 months 2 days,1 day 1 hour,7 days 0.5 s}'::text[]) i,
     incload_next_runs(i, 1000, '2023-01-31 02:30') WITH ORDINALITY r (t, k) GROUP BY i ORDER BY i;

--
-- cron lines, worked out by hand: 2023-01-31 was a Tuesday
--
SET TimeZone = 'UTC';
SELECT runs('30 2 * * *', :after, 2);
SELECT runs('*/20 * * * *', :after, 4);
SELECT runs('10-50/20 13 * * *', :after, 4);
SELECT runs('5/15 13 * * *', :after, 5);
SELECT runs('0,7,59 12-13 * * *', :after, 6);
SELECT runs('0 9 * * mon-fri', :after, 5);
SELECT runs('0 9 * FEB,Apr Sun', '2023-02-20Z', 3);
SELECT runs('0 0 * * 6-7', :after, 3);
SELECT runs('0 0 * * fri-sun', :after, 4);
SELECT runs('0 0 * * 7-1', :after, 3);
SELECT runs('0 0 * * 0-7', :after, 3);
SELECT runs('0 0 * * */3', :after, 4);
SELECT runs('0 0 31 * *', :after, 4);
-- either of them where both are given; both where one begins with *
SELECT runs('0 0 13 * fri', :after, 4);
SELECT runs('0 0 13 * */5', :after, 3);
SELECT runs('0 0 */13 * fri', :after, 3);
SELECT name, runs(upper(name), :after, 2) FROM unnest('{@hourly,@daily,@midnight,@weekly,@monthly,@yearly,@annually}'::text[]) name;
SELECT runs(E' \t30  2\t*\n*   * ', :after, 1), runs(E'\t@daily ', :after, 1);
-- "after" itself is not later
SELECT runs('0 12 * * *', :after, 1), runs('0 12 * * *', :after::timestamptz - interval '1 microsecond', 1);
-- rare ones: no February 29 in 1900 and 2100, and a Sunday among them in 28 or 40 years
SELECT runs('0 0 29 2 *', '1895-01-01Z', 3);
SELECT runs('0 0 29 2 *', '2093-01-01Z', 3);
SELECT runs('0 0 29 2 */7', '2061-01-01Z', 3);
SELECT runs('0 0 29 2 *', '4713-12-01 BC', 1) IS NOT NULL AS oldest;
-- a time zone of its own; else that of the session
SELECT runs('CRON_TZ=Europe/Berlin 30 2 * * *', '2023-06-01Z', 1), runs('tz=Asia/Kathmandu  @daily', '2023-06-01Z', 1);
SET TimeZone = 'America/New_York';
SELECT runs('30 2 * * *', '2023-06-01Z', 1), runs('TZ=UTC 30 2 * * *', '2023-06-01Z', 1);

--
-- when summer time begins and ends
--
SET TimeZone = 'Europe/Berlin';
SELECT runs('30 2 * * *', '2023-03-25 12:00', 2);
SELECT runs('0,15,30,45 2 * * *', '2023-03-25 12:00', 2);
SELECT runs('0,30 2-3 * * *', '2023-03-25 12:00', 3);
SELECT runs('30 2 * * *', '2023-10-28 12:00', 2);
SELECT runs('30 1-3 * * *', '2023-10-28 12:00', 4);
SELECT runs('30 2 * * *', '2023-10-29 02:15+01', 1);
SELECT runs('30 * * * *', '2023-03-26 00:00', 3);
SELECT runs('30 * * * *', '2023-10-29 00:45', 4);
SELECT runs('30 */2 * * *', '2023-10-29 00:45', 3);
SET TimeZone = 'America/New_York';
SELECT runs('30 2 * * *', '2023-03-11 12:00', 2);
SELECT runs('30 1 * * *', '2023-11-04 12:00', 2);
SELECT runs('0 * * * *', '2023-11-05 00:30', 3);
-- half an hour
SET TimeZone = 'Australia/Lord_Howe';
SELECT runs('15 2 * * *', '2023-09-30 12:00', 2);
SELECT runs('45 1 * * *', '2023-04-01 12:00', 2);
SELECT runs('*/15 * * * *', '2023-04-02 01:20', 6);
-- a quarter of an hour, once, at midnight
SET TimeZone = 'Asia/Kathmandu';
SELECT runs('10 0 * * *', '1985-12-31 12:00', 2);
SELECT runs('0 * * * *', '1985-12-31 22:30', 2);
-- a whole day
SET TimeZone = 'Pacific/Apia';
SELECT runs('0 12 * * *', '2011-12-29 00:00', 3);
SELECT runs('0 */12 * * *', '2011-12-29 00:00', 3);
SET TimeZone = 'UTC';

--
-- the same, counted out: what a clock shows, minute by minute
--
CREATE TABLE place (zone text, since timestamptz, till timestamptz);
INSERT INTO place VALUES
    ('Europe/Berlin', '2023-01-01Z', '2023-12-31Z'),
    ('America/New_York', '2023-10-20Z', '2024-03-20Z'),
    ('Australia/Lord_Howe', '2023-03-20Z', '2023-10-10Z'),
    ('Asia/Kathmandu', '1985-12-20Z', '1986-01-10Z'),
    ('America/Caracas', '2007-12-01Z', '2007-12-20Z'),
    ('America/Sao_Paulo', '2018-10-25Z', '2018-11-15Z'),
    ('Europe/Moscow', '2014-10-20Z', '2014-11-05Z'),
    ('Pacific/Apia', '2011-12-20Z', '2012-01-10Z'),
    ('XXX-3YYY-5:30,M2.1.0/12,M3.1.0/0:20', '2023-01-20Z', '2023-03-20Z');
-- "latest" is the latest that the clock has shown so far
CREATE TABLE shown AS
SELECT zone, t, local, max(local) OVER (PARTITION BY zone ORDER BY t) AS latest
FROM place, generate_series(since, till, '1 minute') t, LATERAL (SELECT t AT TIME ZONE zone AS local) l;
CREATE INDEX ON shown (zone, latest, t);
ANALYZE shown;

-- the lines, and what the clock shows at their times: hour, minute, day, month, day of the week
CREATE TABLE tried (schedule text, rule text, n int GENERATED ALWAYS AS IDENTITY);
INSERT INTO tried (schedule, rule) VALUES
    ('30 2 * * *', 'h = 2 AND m = 30'),
    ('*/20 * * * *', 'm IN (0, 20, 40)'),
    ('0,30 0-3 * * *', 'h <= 3 AND m IN (0, 30)'),
    ('7 */2 * * *', 'h % 2 = 0 AND m = 7'),
    ('0 0 1,15 * fri', 'h = 0 AND m = 0 AND (d IN (1, 15) OR w = 5)'),
    ('0 0 */2 * mon-fri', 'h = 0 AND m = 0 AND d % 2 = 1 AND w BETWEEN 1 AND 5'),
    ('10-50/20 1-2 * 2,3,oct,nov sun', 'h IN (1, 2) AND m IN (10, 30, 50) AND mon IN (2, 3, 10, 11) AND w = 0'),
    ('59 23 * * 7', 'h = 23 AND m = 59 AND w = 0'),
    ('* 0-2 * * sat-sun', 'h <= 2 AND w IN (0, 6)'),
    ('0 12 30,31 12,1 *', 'h = 12 AND m = 0 AND d >= 30 AND mon IN (1, 12)'),
    ('5/25 0/6 * * *', 'm IN (5, 30, 55) AND h % 6 = 0'),
    ('11 */23 28-31/3 * *', 'm = 11 AND h IN (0, 23) AND d IN (28, 31)'),
    ('15,45 1-3 26-29 * *', 'm IN (15, 45) AND h BETWEEN 1 AND 3 AND d BETWEEN 26 AND 29'),
    ('* * * 11-12,1-3 sun', 'mon IN (11, 12, 1, 2, 3) AND w = 0');
CREATE TABLE wanted (n int, zone text, t timestamptz);
CREATE TABLE given (LIKE wanted);
DO $$
DECLARE line tried; p place; since timestamptz; many timestamptz[];
    fields text := 'LATERAL (SELECT extract(hour FROM local) AS h, extract(minute FROM local) AS m, extract(day FROM local) AS d, '
        'extract(month FROM local) AS mon, extract(dow FROM local) AS w) f';
BEGIN
    FOR line IN TABLE tried LOOP
        IF split_part(line.schedule, ' ', 2) LIKE '*%' THEN
            -- whenever the clock shows it
            EXECUTE format('INSERT INTO wanted SELECT %s, zone, t FROM shown, %s WHERE %s', line.n, fields, line.rule);
        ELSE
            -- when it shows that or more for the first time
            EXECUTE format('INSERT INTO wanted SELECT DISTINCT %s, zone, t FROM place, '
                'generate_series(since AT TIME ZONE zone, till AT TIME ZONE zone, ''1 minute'') series (local), %s, LATERAL '
                '(SELECT s.t FROM shown s WHERE s.zone = place.zone AND s.latest >= series.local ORDER BY s.latest, s.t LIMIT 1) s WHERE %s',
                line.n, fields, line.rule);
        END IF;
        FOR p IN TABLE place LOOP
            since := p.since - interval '1 second';
            WHILE since < p.till LOOP
                SELECT array_agg(t ORDER BY t) INTO many
                FROM incload_next_runs('CRON_TZ=' || p.zone || ' ' || line.schedule, 1000, since) t;
                INSERT INTO given SELECT line.n, p.zone, t FROM unnest(many) t WHERE t <= p.till;
                IF many[1000] <= since THEN RAISE EXCEPTION 'no later time of "%" than %', line.schedule, since; END IF;
                since := many[1000];
            END LOOP;
        END LOOP;
    END LOOP;
END $$;
CREATE INDEX ON wanted (zone, n, t);
SELECT schedule, count(*) AS times,
    count(*) FILTER (WHERE g.t IS NULL) AS missing, count(*) FILTER (WHERE w.t IS NULL) AS wrong
FROM wanted w FULL JOIN given g USING (n, zone, t) JOIN tried USING (n) GROUP BY n, schedule ORDER BY n;
SELECT zone, count(*) AS times FROM given GROUP BY zone ORDER BY zone;
SELECT count(*) AS doubled FROM (SELECT FROM given GROUP BY n, zone, t HAVING count(*) > 1) d;

-- from any time on, and from any near a change of the clock
CREATE TABLE asked AS
SELECT zone, t FROM place, generate_series(since, since + interval '300 days', '33:17:33.7') t WHERE till > since + interval '300 days'
UNION ALL SELECT zone, change + g FROM (VALUES
    ('Europe/Berlin', timestamptz '2023-03-26 01:00Z'), ('Europe/Berlin', '2023-10-29 01:00Z'),
    ('Australia/Lord_Howe', '2023-04-01 15:00Z'), ('Asia/Kathmandu', '1985-12-31 18:30Z'),
    ('Pacific/Apia', '2011-12-30 10:00Z')) v (zone, change), generate_series(-10, 10) i, LATERAL (SELECT i * interval '11 minutes 13.31 seconds' AS g) g
UNION ALL SELECT 'Europe/Berlin', timestamptz '2023-10-29 01:00Z' + g * interval '1 microsecond' FROM generate_series(-1, 1) g;
SELECT count(*) AS asked, count(*) FILTER (WHERE given <> wanted) AS wrong FROM asked a, tried,
    LATERAL (SELECT min(w.t) AS wanted FROM wanted w WHERE w.zone = a.zone AND w.n = tried.n AND w.t > a.t) w,
    incload_next_runs('TZ=' || a.zone || ' ' || schedule, 1, a.t) given WHERE wanted IS NOT NULL;

--
-- what it refuses, and what it says then
--
CREATE FUNCTION refuses(schedule text, after timestamptz DEFAULT '2023-01-01Z', n int DEFAULT 1) RETURNS text LANGUAGE plpgsql AS $$
DECLARE message text; detail text; hint text;
BEGIN
    RETURN 'taken: ' || runs(schedule, after, n);
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ' ' || message || E'\n   ' || detail || E'\n   ' || hint;
END $$;
-- neither
SELECT refuses(s) FROM unnest(ARRAY['', ' ', 'soon', 'infinity', '-infinity', '99999999999 years', 'every 5 minutes', '0 9 mon-fri',
    'daily', E'5 minutes\n6 minutes']) s;
-- no interval to go by
SELECT refuses(s) FROM unnest(ARRAY['0', '0.999999 seconds', '-1 hour', '1 day -1 second', '1 month -31 days', '5 minutes ago', '101 years',
    '100 years 1 day', '100 years 1 second', '178000000 years', '2147483647 days', '876600 hours 1 second', '2562047788 hours']) s;
SELECT refuses(s) FROM unnest(ARRAY['1 second', '100 years', '876582 hours']) s;
-- fields
SELECT refuses(s) FROM unnest(ARRAY['* * * *', '* * * * * *', '*', '0 1 2 3 4 5', '@daily @daily', 'TZ=UTC', 'TZ=UTC 1 day']) s;
SELECT refuses(s) FROM unnest(ARRAY['60 * * * *', '-1 * * * *', '* 24 * * *', '* * 0 * *', '* * 32 * *', '* * * 0 *', '* * * 13 *', '* * * * 8',
    '4294967296 * * * *', '* six * * *', '* * * foo *', '* * * january *', '* * * * monday', '* * mon * *', '* * * * jan', '? * * * *', '* * L * *',
    '* * * * fri#2', '1,,2 * * * *', '1, * * * *', ',1 * * * *', '1-2-3 * * * *', '1- * * * *', '-5 * * * *', '1-60 * * * *', '** * * * *', '*5 * * * *',
    '*-5 * * * *', '1.5 * * * *', '+1 * * * *', '0x1 * * * *', '1;2 * * * *', '٣ * * * *', '* * * * ä']) s;
-- ranges and steps
SELECT refuses(s) FROM unnest(ARRAY['* 22-4 * * *', '* * * * fri-mon', '* * 28-3 * *', '* * * nov-feb *', '50-10/5 * * * *', '*/0 * * * *',
    '*/61 * * * *', '*/ * * * *', '*/a * * * *', '*/-5 * * * *', '*/5/5 * * * *', '5/ * * * *', '* */25 * * *', '* * * * */8', '/5 * * * *']) s;
-- the two ranges that it names are taken
SELECT runs('0 22-23,0-4 * * *', '2023-01-01 21:00Z', 8);
SELECT runs('0 0 * * 5-6,0-1', '2023-01-01 21:00Z', 5);
-- names and zones
SELECT refuses(s) FROM unnest(ARRAY['@reboot', '@every 5m', '@dail', '@dailyy', 'CRON_TZ=Europe/Berln 0 0 * * *', 'TZ= 0 0 * * *',
    'TZ=' || repeat('x', 300) || ' 0 0 * * *', 'TZ=../../etc/passwd @daily', 'TZ=right/UTC @daily']) s;
-- never: no such day, or one whose hour is always left out
SELECT refuses(s) FROM unnest(ARRAY['0 0 30 2 *', '0 0 31 2,4,6,9,11 *', '0 0 30,31 feb */2', 'TZ=AAA0BBB,J84/0,J300/0 0 */24 25 3 *']) s;
SELECT refuses(s) FROM unnest(ARRAY['0 0 30 2 mon', 'TZ=AAA0BBB,J84/0,J300/0 0 0 25 3 *']) s;
-- times and numbers
SELECT refuses('1 day', 'infinity'), refuses('1 day', '-infinity');
SELECT refuses('1 hour', n => 0), refuses('1 hour', n => -1), refuses('1 hour', n => 1001);
SELECT refuses('@yearly', '294276-06-01Z'), refuses('1000 hours', '294276-12-31Z'), refuses('1 month', '294276-12-31Z');

DROP SCHEMA schedules CASCADE;
