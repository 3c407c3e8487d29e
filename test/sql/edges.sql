--
-- Edges of watermarks: lookbacks that can be and that cannot, NULL under each policy, expressions, targets that round,
-- and the first moment that there is; by the copy reader and by the relation reader
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE SCHEMA edges;
SET search_path = edges, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never
DO $$ BEGIN
    EXECUTE format('CREATE SERVER edges_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
END $$;
CREATE USER MAPPING FOR CURRENT_USER SERVER edges_loop;

CREATE FUNCTION run(job text, OUT read bigint, OUT ins bigint, OUT upd bigint, OUT same bigint) LANGUAGE sql AS $$
    SELECT r.rows_read, r.rows_inserted, r.rows_updated, r.rows_unchanged FROM incload_run(job) r
$$;
-- what an SQL fails with, or "ok"
CREATE FUNCTION outcome(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE message text; detail text; hint text;
BEGIN
    EXECUTE sql;
    RETURN 'ok';
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ' ' || message || E'\n' || split_part(detail, E'\n', 1) || E'\n' || hint;
END $$;
-- a table there, a foreign table of it, and for each a job: e_NAME_copy and e_NAME_here, into NAME_copy and NAME_here
CREATE SCHEMA far;
CREATE FUNCTION jobs(name text, strategy text, watermark text, key text[], options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass('far.' || name) IS NULL THEN
        EXECUTE format('IMPORT FOREIGN SCHEMA edges LIMIT TO (%I) FROM SERVER edges_loop INTO far', name);
    END IF;
    RETURN NEXT (incload_create_job(format('e_%s_copy', name), 'far.' || name, name || '_copy', strategy, watermark, key, options => options)).job;
    RETURN NEXT (incload_create_job(format('e_%s_here', name), 'edges.' || name, name || '_here', strategy, watermark, key, options => options)).job;
END $$;

--
-- lookback: a difference of two values, where there is one
--
CREATE TABLE spans (id int PRIMARY KEY, d date, ts timestamp, tz timestamptz, i2 smallint, i8 bigint, n numeric, o oid,
    u uuid, t text COLLATE "C", l pg_lsn, x xid8, b bytea);
SELECT c AS watermark, l AS lookback,
    outcome(format('SELECT incload_drop_job(job) FROM incload_create_job(''e_span'', ''spans'', ''spans_copy'', ''upsert'', %L, ''{id}'', options => %L)',
        c, jsonb_build_object('lookback', l)))
FROM (VALUES ('tz', '1 day'), ('tz', '20 min 5 sec'), ('tz', '0'), ('tz', '90'), ('tz', '10000 years'), ('tz', '-1 hour'), ('tz', '1 day -1 hour'), ('tz', 'soon'),
    ('ts', '1 month'), ('d', '1 day'), ('d', '7'), ('d', '3000000'), ('d', '12 hours'), ('d', '1.5'), ('d', '-7'),
    ('i2', '100'), ('i2', '40000'), ('i8', '9223372036854775808'), ('i8', '0.5'), ('i8', '1 day'), ('i8', '-5'), ('i8', '1e3'), ('i8', '1.2.3'), ('i8', '.'),
    ('n', '0.000001'), ('o', '10'),
    ('u', '1'), ('t', '1 day'), ('l', '1'), ('x', '1'), ('b', '1')) v(c, l);
-- it needs something that it can go by
SELECT l AS arguments, outcome(format('SELECT incload_create_job(''e_span'', ''spans'', ''spans_copy'', %s, options => ''{"lookback": "1 day"}'')', l))
FROM unnest(ARRAY[$$'append', 'tz', '{}'$$, $$'full', NULL, '{id}'$$]) l;
-- it is there once: a number of days is one of days, and hours make it the day before
CREATE TABLE days (id int PRIMARY KEY, d date NOT NULL);
INSERT INTO days VALUES (1, '2020-01-01');
SELECT jobs('days', 'upsert', 'd', '{id}', '{"source_timezone": "UTC"}');
SELECT ins FROM run('e_days_copy');
SELECT ins FROM run('e_days_here');
-- rows that are late by none to four days, for each job its own
INSERT INTO days SELECT CASE job WHEN 'e_days_copy' THEN 10 ELSE 20 END + n, bound::date - n FROM incload.checkpoint, generate_series(0, 4) n WHERE job LIKE 'e\_days%';
SELECT job FROM incload_alter_job('e_days_copy', options => '{"lookback": "1 hour", "filter": "id BETWEEN 10 AND 14"}');
SELECT ins FROM run('e_days_copy');
SELECT string_agg(id::text, ' ' ORDER BY id) FROM days_copy;
SELECT job FROM incload_alter_job('e_days_here', options => '{"lookback": 3, "filter": "id BETWEEN 20 AND 24"}');
SELECT ins FROM run('e_days_here');
SELECT string_agg(id::text, ' ' ORDER BY id) FROM days_here;

--
-- a job that stopped at the first moment that there is, or before it, can go on
--
CREATE TABLE firsts (id int PRIMARY KEY, at timestamp, x int DEFAULT 0);
INSERT INTO firsts VALUES (1, '-infinity'), (2, '4714-11-24 00:00:00 BC'), (3, '4714-11-24 00:00:00 BC'), (4, '4714-11-24 00:00:00.000001 BC'), (5, '2020-01-01');
SELECT jobs('firsts', 'upsert', 'at', '{id}', '{"first_load": "batches", "batch_rows": 1}');
CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE n int;
BEGIN
    EXECUTE format('SELECT count(*) FROM %s', TG_RELID::regclass) INTO n;
    IF n = TG_ARGV[0]::int + 1 THEN RAISE EXCEPTION 'stop'; END IF;
    RETURN NULL;
END $$;
\set VERBOSITY terse
CREATE TRIGGER stop AFTER INSERT ON firsts_copy FOR EACH STATEMENT EXECUTE FUNCTION stop(1);
CREATE TRIGGER stop AFTER INSERT ON firsts_here FOR EACH STATEMENT EXECUTE FUNCTION stop(1);
CALL incload_run_in_batches('e_firsts_copy');
CALL incload_run_in_batches('e_firsts_here');
SELECT job, bound, bound_side, tie_key FROM incload.checkpoint WHERE job LIKE 'e\_firsts%' ORDER BY 1;
DROP TRIGGER stop ON firsts_copy;
DROP TRIGGER stop ON firsts_here;
CREATE TRIGGER stop AFTER INSERT ON firsts_copy FOR EACH STATEMENT EXECUTE FUNCTION stop(2);
CREATE TRIGGER stop AFTER INSERT ON firsts_here FOR EACH STATEMENT EXECUTE FUNCTION stop(2);
CALL incload_run_in_batches('e_firsts_copy');
CALL incload_run_in_batches('e_firsts_here');
SELECT job, bound, bound_side, tie_key FROM incload.checkpoint WHERE job LIKE 'e\_firsts%' ORDER BY 1;
DROP TRIGGER stop ON firsts_copy;
DROP TRIGGER stop ON firsts_here;
SELECT read, ins FROM run('e_firsts_copy');
SELECT read, ins FROM run('e_firsts_here');
(TABLE firsts EXCEPT TABLE firsts_copy) UNION ALL (TABLE firsts EXCEPT TABLE firsts_here);
\set VERBOSITY default

--
-- NULL under each policy: read never, read by every run, an error; what becomes of a row that gets a watermark, or loses it
--
CREATE TABLE gaps (id int PRIMARY KEY, at timestamptz, x int);
CREATE FUNCTION nulls(strategy text, key text[], policy text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CREATE TABLE gaps_copy (id int, at timestamptz, x int);
    CREATE TABLE gaps_here (id int, at timestamptz, x int);
    PERFORM jobs('gaps', nulls.strategy, 'at', nulls.key, CASE WHEN policy IS NULL THEN '{}' ELSE jsonb_build_object('null_watermark', policy) END);
END $$;
-- each step in a transaction of its own, as the copy reader sees what is committed
CREATE FUNCTION looks(job text, target text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE did text; rows text;
BEGIN
    BEGIN
        SELECT format('%s ins %s upd', r.rows_inserted, r.rows_updated) INTO did FROM incload_run(job) r;
    EXCEPTION WHEN others THEN
        did := SQLSTATE || ' ' || SQLERRM;
    END;
    EXECUTE format('SELECT coalesce(string_agg(concat_ws('':'', id, x), '' '' ORDER BY id, x), ''no row'') FROM %s', target) INTO rows;
    RETURN did || ', ' || rows;
END $$;
CREATE TABLE seen (n int GENERATED ALWAYS AS IDENTITY, how text, what text, copy text, here text);
SELECT string_agg(format($$
DROP TABLE IF EXISTS gaps_copy, gaps_here;
TRUNCATE gaps;
SELECT nulls(%1$L, %2$L, %3$L);
INSERT INTO gaps VALUES (1, '2020-01-01', 0), (2, NULL, 0), (3, NULL, 0);
INSERT INTO seen (how, what, copy, here) SELECT %4$L, 'two without', looks('e_gaps_copy', 'gaps_copy'), looks('e_gaps_here', 'gaps_here');
UPDATE gaps SET x = 1 WHERE id = 2;
INSERT INTO seen (how, what, copy, here) SELECT %4$L, 'one changed', looks('e_gaps_copy', 'gaps_copy'), looks('e_gaps_here', 'gaps_here');
$$, strategy, key, policy, how) || CASE WHEN key <> '{}' THEN format($$
UPDATE gaps SET x = 2, at = now() WHERE id = 3;
INSERT INTO seen (how, what, copy, here) SELECT %1$L, 'one has got one', looks('e_gaps_copy', 'gaps_copy'), looks('e_gaps_here', 'gaps_here');
UPDATE gaps SET x = 3, at = NULL WHERE id = 1;
UPDATE gaps SET x = 3, at = now() WHERE id = 2;
INSERT INTO seen (how, what, copy, here) SELECT %1$L, 'one has lost it', looks('e_gaps_copy', 'gaps_copy'), looks('e_gaps_here', 'gaps_here');
UPDATE gaps SET x = 4, at = now() WHERE id = 1;
INSERT INTO seen (how, what, copy, here) SELECT %1$L, 'none without', looks('e_gaps_copy', 'gaps_copy'), looks('e_gaps_here', 'gaps_here');
$$, how) ELSE '' END || $$
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'e\_gaps%';
$$, '' ORDER BY n) AS script
FROM (VALUES (1, 'upsert', '{id}', 'skip'), (2, 'upsert', '{id}', 'always'), (3, 'upsert', '{id}', 'error'), (4, 'upsert', '{id}', NULL),
    (5, 'append', '{id}', 'skip'), (6, 'append', '{id}', 'always'), (7, 'append', '{id}', NULL), (8, 'append', '{}', 'skip'), (9, 'append', '{}', NULL))
    v(n, strategy, key, policy), concat_ws(' ', strategy, key, coalesce(policy, 'default')) how
\gset
\o /dev/null
:script
\o
SELECT how, what, copy, CASE WHEN here = replace(copy, 'far.gaps', 'edges.gaps') THEN 'the same' ELSE here END AS here FROM seen ORDER BY n;
SELECT outcome($$SELECT jobs('gaps', 'append', 'at', '{}', '{"null_watermark": "always"}')$$);

--
-- expressions: NULL in them, what they were and what they become, ties cut in batches
--
CREATE TABLE exprs (id int PRIMARY KEY, created_at timestamptz, updated_at timestamptz, a int, b int, x int DEFAULT 0);
CREATE TABLE said (n int GENERATED ALWAYS AS IDENTITY, watermark text, reader text, first text, second text, differ bigint);
CREATE FUNCTION differ(one regclass, other regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM ((SELECT one::text FROM %1$s one EXCEPT ALL SELECT two::text FROM %2$s two)'
        ' UNION ALL (SELECT two::text FROM %2$s two EXCEPT ALL SELECT one::text FROM %1$s one)) d', one, other) INTO n;
    RETURN n;
END $$;
IMPORT FOREIGN SCHEMA edges LIMIT TO (exprs) FROM SERVER edges_loop INTO far;
SELECT string_agg(format($$
TRUNCATE exprs;
DROP TABLE IF EXISTS exprs_copy;
INSERT INTO exprs SELECT i, CASE WHEN i > 2 THEN '2020-01-01Z'::timestamptz + i / 8 * interval '1 h' END,
    CASE WHEN i %% 2 = 0 THEN '2020-01-02Z'::timestamptz END, i / 8, CASE WHEN i %% 3 = 0 THEN i / 8 + 1 END, 0 FROM generate_series(1, 20) i;
SELECT incload_create_job('e_exprs', %2$L, 'exprs_copy', 'upsert', %1$L, '{id}', options => '{"first_load": "batches", "batch_rows": 3}');
CALL incload_run_in_batches('e_exprs');
INSERT INTO exprs VALUES (21, now(), NULL, 100, NULL), (22, now(), now(), NULL, 100), (23, NULL, NULL, NULL, NULL);
UPDATE exprs SET x = 1, updated_at = now(), created_at = NULL, a = 101, b = NULL WHERE id IN (1, 2, 5);
UPDATE exprs SET x = 2, updated_at = NULL, created_at = now(), a = NULL, b = 102 WHERE id = 6;
CALL incload_run_in_batches('e_exprs');
INSERT INTO said (watermark, reader, first, second, differ)
SELECT %1$L, %2$L, (SELECT concat_ws(' ', rows_read, rows_inserted, batches) FROM incload.run WHERE job = 'e_exprs' ORDER BY run_id DESC OFFSET 1 LIMIT 1),
    (SELECT concat_ws(' ', rows_inserted, rows_updated) FROM incload.run WHERE job = 'e_exprs' ORDER BY run_id DESC LIMIT 1), differ('exprs', 'exprs_copy');
SELECT incload_drop_job('e_exprs');
DELETE FROM incload.run_store WHERE job = 'e_exprs';
$$, watermark, source), '' ORDER BY n, source) AS script
FROM (VALUES (1, '(coalesce(updated_at, created_at))'), (2, '(greatest(created_at, updated_at))'), (3, '(greatest(a, b))'), (4, '(coalesce(a, b)::numeric)'),
    (5, '(coalesce(a, b) + 0.5)'), (6, '(CASE WHEN a IS NULL THEN b ELSE a END)'), (7, '(updated_at AT TIME ZONE ''Asia/Tokyo'')'), (8, '(coalesce(updated_at, created_at)::date)')) v(n, watermark),
    unnest('{far.exprs,exprs}'::text[]) source
\gset
\o /dev/null
:script
\o
SELECT watermark, reader, first, second, differ FROM said ORDER BY n;

--
-- a target that rounds: the checkpoint is what the source has, and nothing is hidden that comes in between
--
CREATE TABLE exact (id int PRIMARY KEY, tz timestamptz, ts timestamp, n numeric(38,10), x int DEFAULT 0);
INSERT INTO exact VALUES (1, '2020-01-01 12:00:00.6Z', '2020-01-01 12:00:00.6', 0.6), (2, '2020-01-01 12:00:00.999998Z', '2020-01-01 12:00:00.999998', 0.9999999998),
    (3, '2020-01-01 12:00:00.999999Z', '2020-01-01 12:00:00.999999', 0.9999999999), (4, '2020-01-01 12:00:01Z', '2020-01-01 12:00:01', 1), (5, '2020-01-01 12:00:01.4Z', '2020-01-01 12:00:01.4', 1.4);
IMPORT FOREIGN SCHEMA edges LIMIT TO (exact) FROM SERVER edges_loop INTO far;
CREATE TABLE rounded (n int GENERATED ALWAYS AS IDENTITY, watermark text, reader text, seen text, bound text, rest text, ids text, value text);
SELECT string_agg(format($$
DROP TABLE IF EXISTS coarse;
CREATE TABLE coarse (id int PRIMARY KEY, tz timestamptz(0), ts timestamp(0), n numeric(10,0), x int);
SELECT incload_create_job('e_exact', %2$L, 'coarse', 'upsert', %1$L, '{id}', options => '{"first_load": "batches", "batch_rows": 1, "lookback": "0", "source_timezone": "UTC"}');
CREATE TRIGGER stop AFTER INSERT ON coarse FOR EACH STATEMENT EXECUTE FUNCTION stop(2);
CALL incload_run_in_batches('e_exact');
INSERT INTO rounded (watermark, reader, seen, bound) SELECT %1$L, %2$L, seen, bound FROM incload.checkpoint WHERE job = 'e_exact';
DROP TRIGGER stop ON coarse;
CALL incload_run_in_batches('e_exact');
UPDATE rounded SET rest = (SELECT concat_ws(' ', rows_read, rows_inserted, rows_updated) FROM incload.run WHERE job = 'e_exact' ORDER BY run_id DESC LIMIT 1),
    ids = (SELECT string_agg(id::text, ' ' ORDER BY id) FROM coarse), value = (SELECT %3$I FROM coarse WHERE id = 3)
WHERE rest IS NULL;
SELECT incload_drop_job('e_exact');
DELETE FROM incload.run_store WHERE job = 'e_exact';
$$, watermark, source, col), '' ORDER BY watermark, source) AS script
FROM (VALUES ('tz', 'tz'), ('ts', 'ts'), ('n', 'n'), ('(n * 1)', 'n'), ('(tz + interval ''0.000001 s'')', 'tz')) v(watermark, col), unnest('{far.exact,exact}'::text[]) source
\gset
\set VERBOSITY terse
\o /dev/null
:script
\o
\set VERBOSITY default
SELECT watermark, reader, seen, bound, rest, ids, value FROM rounded ORDER BY n;

--
-- more types that are no watermark, each with what to use instead
--
CREATE TYPE pair AS (a int, b int);
CREATE DOMAIN ratio AS float8;
CREATE EXTENSION IF NOT EXISTS citext;
CREATE TABLE refused (id int PRIMARY KEY, d ratio, p pair, ci citext, cc citext COLLATE "C", mc macaddr, bi varbit, tr tsrange, tm tstzmultirange, ta timestamptz[], ts tsvector, td tid,
    ov oidvector, xm text COLLATE "C", bp char COLLATE "C", pa path);
SELECT attname, format_type(atttypid, NULL), outcome(format('SELECT incload_drop_job(job) FROM incload_create_job(''e_no'', ''refused'', ''refused_copy'', ''upsert'', %L, ''{id}'')', attname))
FROM pg_attribute WHERE attrelid = 'refused'::regclass AND attnum > 1 ORDER BY attnum;

-- clean up
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'e\_%';
DROP SERVER edges_loop CASCADE;
DROP SCHEMA edges, far CASCADE;
