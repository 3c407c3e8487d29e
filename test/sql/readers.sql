--
-- Readers: the same rows by copy and by relation; options that change what is read, each seen to do so
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE EXTENSION IF NOT EXISTS file_fdw;
CREATE SCHEMA readers;
SET search_path = readers, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never
DO $$ BEGIN
    EXECUTE format('CREATE SERVER readers_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
END $$;
CREATE USER MAPPING FOR CURRENT_USER SERVER readers_loop;

CREATE FUNCTION run(job text, OUT read bigint, OUT ins bigint, OUT upd bigint, OUT same bigint, OUT pruned bigint,
    OUT batches int, OUT adds_up boolean)
LANGUAGE sql AS $$
    SELECT r.rows_read, r.rows_inserted, r.rows_updated, r.rows_unchanged, r.rows_pruned, r.batches,
        r.rows_read = r.rows_inserted + r.rows_updated + r.rows_unchanged + r.rows_superseded + r.rows_suppressed
    FROM incload_run(job) r
$$;
-- rows that one has and the other has not
CREATE FUNCTION apart(one text, other text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM ((%1$s EXCEPT ALL %2$s) UNION ALL (%2$s EXCEPT ALL %1$s)) d', one, other) INTO n;
    RETURN n;
END $$;

CREATE SCHEMA "Far Away";
CREATE TABLE "Far Away"."Order Lines" ("ID" int PRIMARY KEY, "Version No" int, "e-mail" text, qty int, "from" date, secret text);
INSERT INTO "Far Away"."Order Lines"
SELECT g, g * 10, 'User' || g || '@Example.Org', g % 4, date '2020-01-01' + g, 'secret ' || g FROM generate_series(1, 20) g;
INSERT INTO "Far Away"."Order Lines" VALUES (21, NULL, NULL, NULL, NULL, NULL), (22, NULL, 'null', 1, '2020-01-01', 'x');

-- a foreign table that names nothing as it is there
CREATE FOREIGN TABLE lines (
    v int OPTIONS (column_name 'Version No'), id int OPTIONS (column_name 'ID'), mail text OPTIONS (column_name 'e-mail'),
    "Qty" int OPTIONS (column_name 'qty'), day date OPTIONS (column_name 'from'), secret text)
SERVER readers_loop OPTIONS (schema_name 'Far Away', table_name 'Order Lines');
CREATE VIEW lines_v AS
SELECT "Version No" AS v, "ID" AS id, "e-mail" AS mail, qty AS "Qty", "from" AS day, secret FROM "Far Away"."Order Lines";
CREATE MATERIALIZED VIEW lines_mv AS TABLE lines_v;

--
-- four ways to read, one result
--
SELECT n, key, watermark, strategy FROM (VALUES
    ('copy', 'lines', '{}'), ('foreign', 'lines', '{"reader": "relation"}'), ('view', 'lines_v', '{}'), ('mv', 'lines_mv', '{}'))
    v(n, source, options),
    LATERAL incload_create_job('r_' || n, source, 'by_' || n, 'upsert', 'v', '{id}', options => options::jsonb);
\d by_copy
SELECT n, r.* FROM unnest('{copy,foreign,view,mv}'::text[]) n, run('r_' || n) r;
SELECT n, apart('TABLE by_' || n, 'TABLE lines') FROM unnest('{copy,foreign,view,mv}'::text[]) n;
-- what was seen is not sent again, with a watermark or without
SELECT * FROM run('r_copy');
-- the key of a foreign table is the one of the table behind it, under the name that it has here
SELECT strategy, key, watermark FROM incload_create_job('r_key', 'lines', 'by_key', watermark => 'v');
SELECT incload_drop_job('r_key');
DROP TABLE by_key;

--
-- changes, and batches
--
UPDATE "Far Away"."Order Lines" SET qty = 100, "Version No" = 1000 + "ID" WHERE "ID" <= 3;
INSERT INTO "Far Away"."Order Lines" VALUES (30, 2000, 'new', 1, '2021-01-01', 'y');
REFRESH MATERIALIZED VIEW lines_mv;
SELECT n, r.ins, r.upd, r.adds_up FROM unnest('{copy,foreign,view,mv}'::text[]) n, run('r_' || n) r;
SELECT n, apart('TABLE by_' || n, 'TABLE lines') FROM unnest('{copy,foreign,view,mv}'::text[]) n;
TRUNCATE by_copy, by_foreign, by_view, by_mv;
SELECT job FROM unnest('{copy,foreign,view,mv}'::text[]) n,
    LATERAL incload_alter_job('r_' || n, watermark => '(v)', options => '{"batch_rows": 6}');
SELECT n, r.* FROM unnest('{copy,foreign,view,mv}'::text[]) n, run('r_' || n) r;
TRUNCATE by_copy, by_foreign, by_view, by_mv;
SELECT job FROM unnest('{copy,foreign,view,mv}'::text[]) n, LATERAL incload_alter_job('r_' || n, watermark => 'v');
CALL incload_run_in_batches('r_copy');
CALL incload_run_in_batches('r_foreign');
CALL incload_run_in_batches('r_view');
CALL incload_run_in_batches('r_mv');
SELECT DISTINCT ON (job) job, rows_read, rows_inserted, rows_unchanged, batches FROM incload.run
WHERE job LIKE 'r\_%' ORDER BY job, run_id DESC;
SELECT n, apart('TABLE by_' || n, 'TABLE lines') FROM unnest('{copy,foreign,view,mv}'::text[]) n;
-- a number of rows that is a multiple of the batch
SELECT job FROM unnest('{copy,view}'::text[]) n,
    LATERAL incload_alter_job('r_' || n, watermark => '(v)', options => '{"batch_rows": 7, "null_watermark": "skip"}');
TRUNCATE by_copy, by_view;
SELECT n, r.* FROM unnest('{copy,view}'::text[]) n, run('r_' || n) r;

--
-- options
--
CREATE FUNCTION tries(options jsonb, watermark text DEFAULT 'v') RETURNS TABLE (reader text, read bigint, ins bigint, ids text, differ bigint)
LANGUAGE plpgsql AS $$
DECLARE kind text; source text;
BEGIN
    DROP TABLE IF EXISTS try_copy, try_view;
    FOR kind, source IN VALUES ('copy', 'lines'), ('view', 'lines_v') LOOP
        PERFORM incload_create_job('r_try', source, 'try_' || kind, 'upsert', watermark, '{id}', options => options);
        reader := kind;
        SELECT r.read, r.ins INTO read, ins FROM readers.run('r_try') r;
        EXECUTE format('SELECT string_agg(id::text, '' '' ORDER BY id) FROM try_%s', kind) INTO ids;
        differ := CASE kind WHEN 'view' THEN readers.apart('TABLE try_copy', 'TABLE try_view') END;
        RETURN NEXT;
        PERFORM incload_drop_job('r_try');
    END LOOP;
END $$;
-- filter
SELECT * FROM tries('{"filter": "id > 18"}');
SELECT * FROM tries('{"filter": "\"Qty\" = 1 OR mail = ''new'' -- with a comment"}');
SELECT * FROM tries('{"filter": "day BETWEEN ''2020-01-05'' AND ''2020-01-07''"}');
SELECT * FROM tries('{"filter": "NULL"}');
-- columns, exclude
SELECT * FROM tries('{"columns": ["id", "Qty"]}');
TABLE try_copy ORDER BY id LIMIT 2;
SELECT * FROM tries('{"exclude": ["mail", "secret", "v"]}');
TABLE try_copy ORDER BY id LIMIT 2;
-- transforms: of columns there are, of new ones, of the key, of the watermark's column
SELECT * FROM tries('{"transforms": {"mail": "lower(mail)", "secret": "md5(secret)", "double": "\"Qty\" * 2"}}');
SELECT id, mail, secret, double FROM try_copy ORDER BY id LIMIT 2;
SELECT * FROM tries('{"transforms": {"id": "id + 1000", "v": "-v"}}');
SELECT v, id FROM try_copy ORDER BY id LIMIT 2;
-- a transform of the watermark's column changes what is loaded, and not in which order it is read
SELECT n, j.job FROM (VALUES ('copy', 'lines'), ('view', 'lines_v')) s(n, source), LATERAL incload_create_job('r_minus_' || n, source,
    'minus_' || n, 'upsert', 'v', '{id}', options => '{"transforms": {"v": "-v"}, "batch_rows": 5, "null_watermark": "skip"}') j;
CALL incload_run_in_batches('r_minus_copy');
CALL incload_run_in_batches('r_minus_view');
SELECT job, rows_read, rows_inserted, batches, watermark_to FROM incload.run WHERE job LIKE 'r\_minus%' ORDER BY run_id;
SELECT apart('SELECT v, id, mail, "Qty", day, secret FROM minus_copy', 'SELECT -v, id, mail, "Qty", day, secret FROM lines WHERE v IS NOT NULL'),
    apart('SELECT v, id, mail, "Qty", day, secret FROM minus_view', 'SELECT -v, id, mail, "Qty", day, secret FROM lines WHERE v IS NOT NULL');
SELECT incload_drop_job('r_minus_copy'), incload_drop_job('r_minus_view');
-- the copy reader has them evaluated at the source
SELECT reader, read FROM tries('{"transforms": {"who": "current_setting(''application_name'') LIKE ''incload%''"}, "exclude": ["mail"]}');
SELECT DISTINCT 'copy' AS reader, who AS at_source FROM try_copy UNION ALL SELECT DISTINCT 'view', who FROM try_view ORDER BY 1;
-- the watermark an expression
SELECT * FROM tries('{"start_at": "2020-01-19", "null_watermark": "skip"}', '(day)');
SELECT * FROM tries('{"start_at": "190"}', '(coalesce(v, 0))');
-- start_at is inclusive
SELECT * FROM tries('{"start_at": "190", "null_watermark": "skip"}');
SELECT * FROM tries('{"start_at": "191", "null_watermark": "skip"}');
SELECT * FROM tries('{"start_at": 200}');
-- null_watermark
SELECT * FROM tries('{"null_watermark": "skip"}');
SELECT * FROM tries('{"null_watermark": "always"}');
SELECT * FROM tries('{"null_watermark": "error"}');
-- all at once
SELECT * FROM tries('{"filter": "id < 20", "exclude": ["secret"], "transforms": {"mail": "md5(mail)"}, "start_at": 120, "batch_rows": 2, "null_watermark": "skip"}');

-- pre_sql and post_sql: run as the owner, once a run, in its transaction
CREATE TABLE notes (id int GENERATED ALWAYS AS IDENTITY, note text, rows bigint);
SELECT job FROM incload_create_job('r_sql', 'lines', 'by_sql', 'upsert', 'v', '{id}', options => '{"batch_rows": 10,
    "pre_sql": "INSERT INTO notes (note, rows) SELECT ''before'', count(*) FROM by_sql; DELETE FROM notes WHERE false",
    "post_sql": "INSERT INTO notes (note, rows) SELECT ''after'', count(*) FROM by_sql; SELECT 1"}');
SELECT * FROM run('r_sql');
CALL incload_run_in_batches('r_sql');
SELECT note, rows FROM notes ORDER BY id;
-- once a run, too, where a batch has no rows
CREATE VIEW no_lines AS SELECT * FROM lines_v WHERE false;
SELECT job FROM incload_create_job('r_none', 'no_lines', 'by_none', 'upsert', 'v', '{id}',
    options => '{"pre_sql": "INSERT INTO notes (note) VALUES (''none'')", "post_sql": "INSERT INTO notes (note) VALUES (''none'')"}');
CALL incload_run_in_batches('r_none');
SELECT count(*) FROM notes WHERE note = 'none';
DELETE FROM notes WHERE note = 'none';
-- they fail the run, and it leaves nothing
SELECT job FROM incload_alter_job('r_sql', options => '{"post_sql": "SELECT 1 / (count(*) - count(*)) FROM by_sql"}');
TRUNCATE by_sql;
SELECT incload_run('r_sql');
SELECT count(*) FROM by_sql;
SELECT note, rows FROM notes ORDER BY id;
-- SET in pre_sql ends with the run
SELECT job FROM incload_alter_job('r_sql', options => '{"pre_sql": "SET work_mem = ''65MB''", "post_sql": "INSERT INTO notes (note) SELECT current_setting(''work_mem'')"}');
SELECT status FROM incload_run('r_sql');
SELECT note FROM notes ORDER BY id DESC LIMIT 1;
SELECT current_setting('work_mem') = '65MB' AS leaked;

--
-- timeouts
--
SELECT job FROM incload_create_job('r_slow', 'lines', 'by_slow', 'upsert', 'v', '{id}', options => '{"filter": "pg_sleep(5) IS NOT NULL", "statement_timeout": "100 ms"}');
-- which of the two servers says so first is up to them
\set VERBOSITY sqlstate
SELECT incload_run('r_slow');
\set VERBOSITY default
SELECT job FROM incload_alter_job('r_slow', source => 'lines_v');
SELECT incload_run('r_slow');
SELECT DISTINCT status, sqlstate FROM incload.run WHERE job = 'r_slow';
-- and are no longer there afterwards
SELECT pg_sleep(0.2);

--
-- a file, and any other wrapper, by the relation reader
--
CREATE SERVER readers_files FOREIGN DATA WRAPPER file_fdw;
CREATE FOREIGN TABLE file (id int, at timestamptz, name text) SERVER readers_files
OPTIONS (program 'printf "1;2020-01-01 00:00:00Z;one\n2;2020-01-02 00:00:00Z;\"t;w;o\"\n3;;\n"', format 'csv', delimiter ';');
SELECT strategy, watermark FROM incload_create_job('r_file', 'file', 'by_file', 'upsert', 'at', '{id}');
SELECT * FROM run('r_file');
SELECT * FROM run('r_file');
TABLE by_file ORDER BY id;
ALTER FOREIGN TABLE file OPTIONS (SET program 'printf "1;2020-01-01 00:00:00Z;one\n2;2100-01-02 00:00:00Z;zwei\nx"');
SELECT incload_run('r_file');
ALTER FOREIGN TABLE file OPTIONS (SET program 'printf "1;2020-01-01 00:00:00Z;one\n2;2100-01-02 00:00:00Z;zwei\n"');
SELECT * FROM run('r_file');
TABLE by_file ORDER BY id;
SELECT loaded_to, guarantee FROM incload.checkpoint WHERE job = 'r_file';

-- a partitioned source, a join, a set of rows
CREATE TABLE parts (id int, v int, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a');
CREATE TABLE parts_b PARTITION OF parts DEFAULT;
INSERT INTO parts VALUES (1, 1, 'a'), (1, 2, 'b'), (2, 3, 'c');
SELECT key FROM incload_create_job('r_parts', 'parts', 'by_parts', 'upsert', 'v');
SELECT * FROM run('r_parts');
SELECT * FROM run('r_parts');
CREATE VIEW joined AS SELECT p.id, p.region, p.v + l.id AS v, l.mail FROM parts p JOIN lines l USING (id);
SELECT key FROM incload_create_job('r_joined', 'joined', 'by_joined', 'upsert', 'v', '{id,region}');
SELECT read, ins, adds_up FROM run('r_joined');
SELECT apart('TABLE joined', 'TABLE by_joined');

-- a column of the foreign table that is dropped; a remote one that has come since is not looked at
ALTER FOREIGN TABLE lines DROP COLUMN secret;
ALTER TABLE "Far Away"."Order Lines" ADD COLUMN more int;
SELECT adds_up FROM run('r_copy');
ALTER TABLE "Far Away"."Order Lines" RENAME COLUMN "e-mail" TO email;
ALTER FOREIGN TABLE lines ALTER COLUMN mail OPTIONS (SET column_name 'email');
UPDATE "Far Away"."Order Lines" SET email = 'e', "Version No" = 5000 WHERE "ID" = 1;
SELECT upd, adds_up FROM run('r_copy');
SELECT mail, secret FROM by_copy WHERE id = 1;

-- clean up
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'r\_%';
DROP SERVER readers_loop, readers_files CASCADE;
DROP SCHEMA readers, "Far Away" CASCADE;
