--
-- Watermarks: the types that can be one, expressions, and those that cannot
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE SCHEMA marks;
SET search_path = marks, public;
SET TimeZone = 'Europe/Berlin';
SET DateStyle = 'German, DMY';
\set SHOW_CONTEXT never
DO $$ BEGIN
    EXECUTE format('CREATE SERVER marks_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
END $$;
CREATE USER MAPPING FOR CURRENT_USER SERVER marks_loop;
CREATE DOMAIN version AS bigint CHECK (VALUE >= 0);
CREATE TYPE mood AS ENUM ('sad', 'happy');

-- three values of each type in their order; the last is in the future of every clock and sequence
CREATE TABLE kinds (n int GENERATED ALWAYS AS IDENTITY, type text, vals text[], watermark text DEFAULT 'w');
INSERT INTO kinds (type, vals) VALUES
    ('date', '{4713-01-01 BC,2020-02-29,2100-01-01}'),
    ('timestamp', '{0001-01-01 00:00:00,2020-03-29 02:30:00.000001,2100-01-01 00:00:00.999999}'),
    ('timestamptz', '{4713-01-01 00:00:00+00 BC,2020-10-25 02:30:00.123456+02,2100-01-01 00:00:00.999999+00}'),
    ('timestamptz(0)', '{2020-01-01 00:00:00+00,2020-10-25 02:30:00+01,2100-01-01 00:00:00+00}'),
    ('smallint', '{-32768,0,32767}'), ('integer', '{-2147483648,0,2147483647}'),
    ('bigint', '{-9223372036854775808,0,9223372036854775807}'),
    ('numeric', '{-1e-20,1.000000000000000000001,1e30}'), ('numeric(20,5)', '{-1.00001,1.00000,1.00001}'), ('oid', '{0,1,4294967295}'),
    ('xid8', '{0,1,18446744073709551615}'), ('pg_lsn', '{0/0,16/B374D848,FFFFFFFF/FFFFFFFF}'),
    ('uuid', '{00000000-0000-0000-0000-000000000000,a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,ffffffff-ffff-ffff-ffff-ffffffffffff}'),
    ('bytea', '{"","\\x00","\\xff00"}'),
    ('text COLLATE "C"', '{"","Z''\"\\\\ä",a}'), ('varchar(9) COLLATE "C"', '{"",B,a}'), ('version', '{0,1,9}');

-- the first two rows and a tie, then the third: committed row by row, by each reader
SELECT string_agg(format($$
DROP TABLE IF EXISTS src, dst; DROP FOREIGN TABLE IF EXISTS src_f;
CREATE TABLE src (id int PRIMARY KEY, w %1$s, x int);
CREATE FOREIGN TABLE src_f (id int, w %1$s, x int) SERVER marks_loop OPTIONS (table_name 'src');
INSERT INTO src SELECT i, v::%2$s, 0 FROM unnest(%3$L::text[]) WITH ORDINALITY u(v, i) WHERE i < 3;
INSERT INTO src SELECT 12, w, 0 FROM src WHERE id = 2;
SELECT job FROM incload_create_job('m_try', %4$L, 'dst', 'upsert', 'w', '{id}', options => '{"batch_rows": 1}');
CALL incload_run_in_batches('m_try');
INSERT INTO src SELECT 3, v::%2$s, 0 FROM unnest(%3$L::text[]) WITH ORDINALITY u(v, i) WHERE i = 3;
CALL incload_run_in_batches('m_try');
INSERT INTO results SELECT %1$L, %5$L, first.rows_read, first.rows_inserted, second.rows_inserted, second.rows_updated, c.loaded_to, c.guarantee,
    NOT EXISTS ((TABLE src EXCEPT TABLE dst) UNION ALL (TABLE dst EXCEPT TABLE src))
FROM incload.checkpoint c,
    (SELECT * FROM incload.run WHERE job = 'm_try' ORDER BY run_id DESC OFFSET 1 LIMIT 1) first,
    (SELECT * FROM incload.run WHERE job = 'm_try' ORDER BY run_id DESC LIMIT 1) second
WHERE c.job = 'm_try';
SELECT incload_drop_job('m_try');
$$, type, split_part(type, ' ', 1), vals, CASE reader WHEN 'copy' THEN 'src_f' ELSE 'src' END, reader), '' ORDER BY n, reader) AS script
FROM kinds, unnest('{copy,relation}'::text[]) reader \gset
CREATE TABLE results (type text, reader text, read bigint, ins bigint, ins_2 bigint, upd_2 bigint, loaded_to text, guarantee text, equal boolean,
    n int GENERATED ALWAYS AS IDENTITY);
\o /dev/null
:script
\o
SELECT type, reader, read, ins, ins_2, upd_2, loaded_to, guarantee, equal FROM results ORDER BY n;

--
-- expressions
--
DROP TABLE src, dst CASCADE;
CREATE TABLE src (id int PRIMARY KEY, created_at timestamptz, updated_at timestamptz, n int, doc jsonb, t text);
CREATE FOREIGN TABLE src_g (id int, created_at timestamptz, updated_at timestamptz, n int, doc jsonb, t text)
SERVER marks_loop OPTIONS (table_name 'src');
INSERT INTO src VALUES
    (1, '2020-01-01Z', NULL, 1, '{"v": 3}', 'b'), (2, '2020-01-02Z', '2020-01-05Z', 2, '{"v": 10}', 'a'), (3, NULL, NULL, 3, '{}', NULL);
SELECT w AS watermark, s AS source, r.rows_read, r.rows_inserted, r.watermark_to
FROM unnest(ARRAY['(coalesce(updated_at, created_at))', '(greatest(created_at, updated_at, ''2020-01-03Z''))', '(n * 10)', '((doc->>''v'')::int)',
        '(t COLLATE "C")', '(upper(t) COLLATE "C")', '(date_trunc(''day'', created_at))', '(n::numeric / 3)', '(created_at::date)', '((n))', '(n) -- id',
        '(CASE WHEN n > 1 THEN n END)']) w,
    unnest('{src,src_g}'::text[]) s,
    LATERAL incload_create_job('m_' || md5(w || s), s, 'e_' || md5(w || s), 'upsert', w, '{id}') j,
    LATERAL incload_run(j.job) r
ORDER BY w COLLATE "C", s;

--
-- NULL, infinity, the future: loaded, and they hide nothing that comes later
--
CREATE TABLE odd (id int PRIMARY KEY, at timestamptz, n numeric, x int DEFAULT 0);
INSERT INTO odd VALUES (1, '-infinity', 'NaN'), (2, 'infinity', 'Infinity'), (3, NULL, NULL), (4, '2200-01-01Z', 1e100), (5, '2020-01-01Z', 1);
SELECT job FROM incload_create_job('m_odd', 'odd', 'odd_copy', 'upsert', 'at', '{id}');
SELECT rows_read, rows_inserted, watermark_to FROM incload_run('m_odd');
INSERT INTO odd VALUES (6, now(), 2);
SELECT rows_inserted FROM incload_run('m_odd');
UPDATE odd SET x = 1, at = now() WHERE id = 5;
SELECT rows_updated FROM incload_run('m_odd');
SELECT bound < '2200' AS stays_below FROM incload.checkpoint WHERE job = 'm_odd';
SELECT count(*) FROM odd_copy;
-- a value given as start_at is read in the watermark's own way, whatever DateStyle and zone the session has
SELECT rows_read FROM incload_alter_job('m_odd', watermark => '(at)', options => '{"start_at": "2200-01-01 00:00:00Z", "null_watermark": "skip"}') j,
    LATERAL incload_run(j.job) r;

--
-- refused
--
CREATE TABLE refused (id int PRIMARY KEY, f4 real, f8 float8, m money, i interval, ti time, tz timetz, t text, tu text COLLATE "POSIX", c char(3) COLLATE "C",
    b boolean, e mood, j jsonb, x xid, ia int[], r int4range, n name, ine inet, bi bit(3));
CREATE FUNCTION refusal(watermark text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE message text; detail text; hint text;
BEGIN
    PERFORM incload_create_job('m_no', 'refused', 'refused_copy', 'upsert', watermark, '{id}');
    RAISE EXCEPTION 'it works';
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ' ' || message || '. ' || detail || CASE WHEN hint = '' THEN ' NO HINT' ELSE '' END;
END $$;
SELECT attname, refusal(attname) FROM pg_attribute WHERE attrelid = 'refused'::regclass AND attnum > 1 ORDER BY attnum;

-- clean up
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'm\_%';
DROP SERVER marks_loop CASCADE;
DROP SCHEMA marks CASCADE;
