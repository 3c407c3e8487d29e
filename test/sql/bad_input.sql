--
-- What bad input gets: an ERROR with SQLSTATE, detail and hint, and nothing changed
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE EXTENSION IF NOT EXISTS file_fdw;
CREATE SCHEMA bad;
SET search_path = bad, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';

-- what a statement raises; each is noted, and checked at the end to be complete
CREATE TABLE said (id int GENERATED ALWAYS AS IDENTITY, sql text, state text, detail text, hint text);
CREATE FUNCTION fails(sql text, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE sql;
    RAISE EXCEPTION USING ERRCODE = 'ZZ000', MESSAGE = 'it works';
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    message := regexp_replace(message, 'pg_temp_\d+', 'pg_temp_N');
    -- libpq has a lot to say; what differs from server to server is left out
    detail := replace(split_part(detail, E'\n', 1), 'port ' || current_setting('port'), 'port N');
    INSERT INTO said (sql, state, detail, hint) VALUES (sql, state, detail, hint);
END $$;
CREATE FUNCTION creates(VARIADIC args text[], OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE sql AS $$
    SELECT fails(format('SELECT incload_create_job(%s)', array_to_string(args, ', ')))
$$;

CREATE TABLE src (
    id int, n int NOT NULL, updated_at timestamptz NOT NULL, name text, f float8, j json, p point,
    i interval, tz timetz);
INSERT INTO src (id, n, updated_at, name) VALUES
    (1, 1, '2020-01-01Z', 'one'), (2, 2, '2020-01-02Z', 'two');
CREATE TABLE copy (id int PRIMARY KEY, n int, updated_at timestamptz, name text, f float8, j json, p point,
    i interval, tz timetz);
CREATE VIEW copy_view AS SELECT * FROM copy;
CREATE MATERIALIZED VIEW copy_mv AS SELECT * FROM copy;
CREATE UNLOGGED TABLE copy_unlogged (LIKE copy INCLUDING ALL);
CREATE TEMP TABLE copy_temp (LIKE copy INCLUDING ALL);
CREATE SEQUENCE seq;
CREATE TYPE composite AS (a int);
CREATE INDEX src_idx ON src (n);
SELECT job FROM incload_create_job('bad', 'src', 'copy', 'upsert', 'updated_at', '{id}');
SELECT rows_inserted FROM incload_run('bad');
-- what must not change
CREATE VIEW everything AS
SELECT (SELECT jsonb_agg(to_jsonb(j) ORDER BY job) FROM incload.job j WHERE job LIKE 'bad%') AS jobs,
       (SELECT jsonb_agg(to_jsonb(c) - 'updated_at' ORDER BY job) FROM incload.checkpoint c WHERE job LIKE 'bad%') AS checkpoints,
       (SELECT array_agg(relname ORDER BY relname) FROM pg_class
        WHERE relnamespace = 'bad'::regnamespace AND relkind NOT IN ('t', 'i', 'S')) AS relations,
       (SELECT array_agg(c ORDER BY id) FROM copy c)::text AS rows;
CREATE TABLE public.bad_before AS TABLE everything;

\x on
\pset format unaligned
--
-- unknown job
--
SELECT f AS call, said.* FROM unnest(ARRAY[
    'SELECT incload_run(%s)', 'SELECT incload_refresh(%s)', 'SELECT incload_pause(%s)',
    'SELECT incload_resume(%s)', 'SELECT incload_drop_job(%s)', 'SELECT incload_alter_job(%s)']) f,
    fails(format(f, '''badd''')) said;
SELECT * FROM fails($$SELECT incload_run('nothing like it')$$);
SELECT * FROM fails($$SELECT incload_run('')$$);
CALL incload_run_in_batches('badd');
CALL incload_run_in_batches(NULL);
BEGIN;
CALL incload_run_in_batches('bad');
ROLLBACK;
DO $$ BEGIN CALL incload_run_in_batches('bad'); EXCEPTION WHEN active_sql_transaction THEN
    RAISE WARNING 'refused inside a block with a savepoint'; END $$;

--
-- unknown source, target schema, strategy, column, option
--
SELECT * FROM creates($$'bad_1'$$, $$'sorce'$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$'nowhere.src'$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$'other_db.bad.src'$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$''$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$'"src'$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$'a.b.c.d'$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$'bad.src_idx'$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$'seq'$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$'composite'$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'nowhere.copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'other_db.bad.copy2'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$''$$);
SELECT * FROM creates($$NULL$$, $$'src'$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$NULL$$, $$'copy'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$NULL$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$'upset'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$'cdc'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$''$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"columns": ["id", "nam"]}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"exclude": ["updated"]}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"filter": "nam = 1"}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"transforms": {"name": "upper(nam)"}}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"transforms": {"nam": "upper(name)"}}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"batch_size": 3}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"entirely different": 3}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"": 3}'$$);
SELECT * FROM fails($$SELECT incload_alter_job('bad', options => '{"batch_row": null}')$$);

--
-- options with values of the wrong form
--
SELECT o AS option, said.*
FROM unnest(ARRAY[
    '[]', '3', '"x"', '{"batch_rows": 0}', '{"batch_rows": "many"}', '{"batch_rows": 1.5}', '{"batch_rows": -1}',
    '{"batch_rows": 1e30}', '{"batch_rows": [1]}', '{"filter": ""}', '{"filter": true}', '{"filter": {}}',
    '{"columns": "id"}', '{"columns": []}', '{"columns": [1]}', '{"columns": [null]}', '{"columns": [["id"]]}',
    '{"transforms": ["id"]}', '{"transforms": {"id": 1}}', '{"transforms": {"id": ""}}',
    '{"reader": "fast"}', '{"null_watermark": "never"}', '{"full_refresh_mode": "swop"}',
    '{"statement_timeout": "soon"}', '{"statement_timeout": 5}', '{"statement_timeout": "-1 s"}',
    '{"statement_timeout": "1 year"}', '{"lock_timeout": "0"}', '{"settle": "a while"}',
    '{"columns": ["id"], "exclude": ["n"]}']) o,
    creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, format('options => %L', o)) said;

-- expressions that are no expressions
SELECT e AS filter, said.*
FROM unnest(ARRAY[
    'true) OR (true', 'n = 1; DROP TABLE copy', 'n = 1 /*', 'SELECT 1', 'n, id', 'n = 1 LIMIT 1', '*',
    'count(*) > 1', 'n', 'true FROM src', 'true AS x', 'nosuch(n)', 'n = ''x''', '1 = (']) e,
    creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, format('options => %L', jsonb_build_object('filter', e))) said;
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"transforms": {"name": "name; SELECT 1"}}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"pre_sql": "CREATE TABEL x ()"}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"post_sql": "SELECT 1; SELECT, 2"}'$$);

--
-- the watermark: no column, no valid expression, a type without an order
--
SELECT w AS watermark, said.*
FROM unnest(ARRAY[
    'update_at', 'zzz', '', 'updated_at + 1', '(nosuch)', '(', '(n', '(n); DROP TABLE copy', '(n, id)',
    '(updated_at', '(SELECT 1 FROM', 'f', 'j', 'p', 'i', 'tz', 'name', '(name COLLATE "POSIX")', '(now())', '(NULL)',
    '(max(n))', '(ARRAY[n])', '(n > 1)']) w,
    creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, format('watermark => %L', w), $$key => '{id}'$$) said;
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$strategy => 'full'$$, $$watermark => 'n'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$watermark => 'n'$$, $$options => '{"start_at": "x"}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$strategy => 'full'$$, $$options => '{"start_at": "1"}'$$);

--
-- the key: missing in the target or in the source, twice, without equality, NULL, none for an upsert
--
CREATE TABLE plain (a int, b int, updated_at timestamptz);
CREATE TABLE plain_copy (a int, c int, updated_at timestamptz);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$key => '{idd}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'plain'$$, $$'plain_copy'$$, $$key => '{b}'$$, $$options => '{"columns": ["a", "updated_at"]}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'plain'$$, $$'plain_copy'$$, $$key => '{c}'$$, $$options => '{"columns": ["a", "updated_at"]}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$key => '{id}'$$, $$options => '{"exclude": ["id"]}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$key => '{id,id}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$key => '{j}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$key => ARRAY[NULL]$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$key => '{{id},{n}}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'plain'$$, $$'plain_copy'$$, $$strategy => 'upsert'$$, $$options => '{"exclude": ["b"]}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'plain'$$, $$'plain_copy'$$, $$strategy => 'append'$$,
    $$options => '{"exclude": ["b"], "null_watermark": "always"}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'plain'$$, $$'plain_copy'$$, $$strategy => 'full'$$,
    $$options => '{"exclude": ["b"], "full_refresh_mode": "merge"}'$$);
INSERT INTO src (id, n, updated_at) VALUES (NULL, 3, '2100-01-03Z');
SELECT * FROM fails($$SELECT incload_run('bad')$$);
SELECT * FROM fails($$SELECT incload_refresh('bad')$$);
DELETE FROM src WHERE id IS NULL;

-- a NULL watermark where that is an error
CREATE TABLE logged (n int, note text);
CREATE SEQUENCE logged_n OWNED BY logged.n;
ALTER TABLE logged ALTER n SET DEFAULT nextval('logged_n');
CREATE TABLE logged_copy (n int, note text);
INSERT INTO logged VALUES (DEFAULT, 'x'), (NULL, 'x');
SELECT job FROM incload_create_job('bad_null', 'logged', 'logged_copy', 'append', 'n');
SELECT * FROM fails($$SELECT incload_run('bad_null')$$);
SELECT incload_drop_job('bad_null');

--
-- the target: a view, a foreign table, a materialized view, UNLOGGED, temporary, with rules, the source, a catalog
--
CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
CREATE FOREIGN TABLE copy_foreign (id int, n int, updated_at timestamptz) SERVER files OPTIONS (filename '/dev/null');
CREATE TABLE copy_rules (LIKE copy INCLUDING ALL);
CREATE RULE r AS ON UPDATE TO copy_rules DO INSTEAD NOTHING;
SELECT t AS target, said.*
FROM unnest(ARRAY['copy_view', 'copy_mv', 'copy_foreign', 'seq', 'src_idx', 'copy_unlogged', 'copy_temp', 'pg_temp.new_temp',
    'copy_rules', 'src', 'pg_class', 'pg_catalog.newtable', 'information_schema.tables', 'incload.run_store']) t,
    creates($$'bad_1'$$, $$'src'$$, quote_literal(t), $$'upsert'$$, $$'updated_at'$$, $$'{id}'$$) said;
-- a target that becomes UNLOGGED, or a view, later
ALTER TABLE copy SET UNLOGGED;
SELECT * FROM fails($$SELECT incload_run('bad')$$);
ALTER TABLE copy SET LOGGED;

-- columns: not in the target, without a value, of another type
CREATE TABLE narrow (id int PRIMARY KEY, n int, updated_at timestamptz);
CREATE TABLE wanting (id int PRIMARY KEY, n int, updated_at timestamptz, name text, f float8, j json, p point,
    i interval, tz timetz, must text NOT NULL);
CREATE TABLE other_types (id int PRIMARY KEY, n point, updated_at timestamptz);
CREATE TABLE local_time (id int PRIMARY KEY, n int, updated_at timestamp);
CREATE TABLE always (id int PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY, updated_at timestamptz);
SELECT t AS target, said.*
FROM (VALUES ('narrow', '{}'), ('wanting', '{}'), ('other_types', '{"columns": ["id", "n", "updated_at"]}'),
    ('local_time', '{"columns": ["id", "n", "updated_at"]}'), ('always', '{"columns": ["id", "n", "updated_at"]}')) v(t, o),
    creates($$'bad_1'$$, $$'src'$$, quote_literal(t), $$'upsert'$$, $$'updated_at'$$, $$'{id}'$$,
    format('options => %L', o)) said;

--
-- a value that does not fit the target
--
CREATE TABLE wide (id int PRIMARY KEY, n bigint, name text, amount numeric, v int NOT NULL);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE tight (id int PRIMARY KEY, n int CONSTRAINT small CHECK (n < 1000), name varchar(3), amount numeric(5,2),
    v positive);
SELECT job FROM incload_create_job('bad_fit', 'wide', 'tight', 'upsert', 'v');
CREATE FUNCTION does_not_fit(r wide, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM wide;
    INSERT INTO wide SELECT r.*;
    SELECT * INTO state, message, detail, hint FROM fails($f$SELECT incload_run('bad_fit')$f$);
END $$;
SELECT * FROM does_not_fit((1, 3000000000, 'x', 1, 1));
SELECT * FROM does_not_fit((1, 1, 'long', 1, 1));
SELECT * FROM does_not_fit((1, 1, 'x', 1000, 1));
SELECT * FROM does_not_fit((1, 1001, 'x', 1, 1));
SELECT * FROM does_not_fit((1, 1, 'x', 1, -1));
CREATE UNIQUE INDEX ON tight (name);
DELETE FROM wide;
INSERT INTO wide VALUES (1, 1, 'x', 1, 1);
SELECT rows_inserted FROM incload_run('bad_fit');
SELECT * FROM does_not_fit((2, 1, 'x', 1, 2));
ALTER TABLE tight ALTER n SET NOT NULL;
SELECT * FROM does_not_fit((2, NULL, 'y', 1, 2));
TABLE tight;

--
-- privileges, at the source and in the target
--
CREATE ROLE regress_incload_bad LOGIN PASSWORD 'right';
GRANT USAGE ON SCHEMA bad TO regress_incload_bad;
GRANT SELECT, INSERT ON said TO regress_incload_bad;
CREATE TABLE mine (id int PRIMARY KEY, n int, updated_at timestamptz);
SET ROLE regress_incload_bad;
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$);
RESET ROLE;
GRANT SELECT (id, n, updated_at) ON src TO regress_incload_bad;
SET ROLE regress_incload_bad;
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'mine'$$, $$key => '{id}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'mine'$$, $$key => '{id}'$$, $$options => '{"columns": ["id", "n", "updated_at"]}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'brand_new'$$, $$key => '{id}'$$, $$options => '{"columns": ["id", "n", "updated_at"]}'$$);
RESET ROLE;
GRANT INSERT ON mine TO regress_incload_bad;
SET ROLE regress_incload_bad;
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'mine'$$, $$key => '{id}'$$, $$options => '{"columns": ["id", "n", "updated_at"]}'$$);
RESET ROLE;
GRANT SELECT ON mine TO regress_incload_bad;
SET ROLE regress_incload_bad;
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'mine'$$, $$'upsert'$$, $$key => '{id}'$$, $$options => '{"columns": ["id", "n", "updated_at"]}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'mine'$$, $$'full'$$, $$key => '{id}'$$, $$options => '{"columns": ["id", "n", "updated_at"]}'$$);
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'mine'$$, $$'full'$$, $$key => '{id}'$$,
    $$options => '{"columns": ["id", "n", "updated_at"], "full_refresh_mode": "truncate"}'$$);
-- another's job
SELECT * FROM fails($$SELECT incload_run('bad')$$);
SELECT * FROM fails($$SELECT incload_run('badd')$$);
RESET ROLE;

--
-- servers: no mapping, no password, down, login refused, the connection dropped in mid-stream, table or column gone
--
DO $$ BEGIN
    EXECUTE format('CREATE SERVER bad_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
    EXECUTE format('CREATE SERVER bad_tcp FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host ''127.0.0.1'', port %L, dbname %L)',
        current_setting('port'), current_database());
END $$;
CREATE SERVER bad_down FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '/nowhere/at/all', dbname 'x');
CREATE FOREIGN TABLE loop (id int, n int, updated_at timestamptz) SERVER bad_loop OPTIONS (schema_name 'bad', table_name 'src');
CREATE FOREIGN TABLE down (id int, n int, updated_at timestamptz) SERVER bad_down;
CREATE FOREIGN TABLE tcp (id int, n int, updated_at timestamptz) SERVER bad_tcp OPTIONS (schema_name 'bad', table_name 'src');
GRANT SELECT ON loop, down, tcp TO regress_incload_bad;
GRANT ALL ON mine TO regress_incload_bad;
GRANT USAGE ON FOREIGN SERVER bad_loop, bad_tcp TO regress_incload_bad;
SELECT * FROM creates($$'bad_1'$$, $$'loop'$$, $$'mine'$$);
CREATE USER MAPPING FOR regress_incload_bad SERVER bad_loop;
CREATE USER MAPPING FOR regress_incload_bad SERVER bad_tcp OPTIONS (user 'regress_incload_bad', password 'wrong');
CREATE USER MAPPING FOR CURRENT_USER SERVER bad_loop;
CREATE USER MAPPING FOR CURRENT_USER SERVER bad_down;
SELECT * FROM creates($$'bad_1'$$, $$'down'$$, $$'mine'$$);
SELECT job FROM incload_create_job('bad_down', 'down', 'mine', 'upsert', 'updated_at', options => '{"reader": "relation"}');
SELECT * FROM fails($$SELECT incload_run('bad_down')$$);
SELECT incload_drop_job('bad_down');
SET ROLE regress_incload_bad;
SELECT * FROM creates($$'bad_1'$$, $$'loop'$$, $$'mine'$$);
SELECT * FROM creates($$'bad_1'$$, $$'tcp'$$, $$'mine'$$);
ALTER USER MAPPING FOR regress_incload_bad SERVER bad_loop OPTIONS (ADD password '');
SELECT * FROM creates($$'bad_1'$$, $$'loop'$$, $$'mine'$$);
ALTER USER MAPPING FOR regress_incload_bad SERVER bad_loop OPTIONS (SET password 'right');
-- let in without being asked for it
SELECT * FROM creates($$'bad_1'$$, $$'loop'$$, $$'mine'$$);
-- no right at the source
RESET ROLE;
ALTER USER MAPPING FOR regress_incload_bad SERVER bad_tcp OPTIONS (SET password 'right');
REVOKE SELECT ON src FROM regress_incload_bad;
REVOKE SELECT (id, n, updated_at) ON src FROM regress_incload_bad;
SET ROLE regress_incload_bad;
SELECT * FROM creates($$'bad_1'$$, $$'tcp'$$, $$'mine'$$);
RESET ROLE;

-- the source goes away, in ways
CREATE TABLE away (id int PRIMARY KEY, n int, name text);
INSERT INTO away SELECT g, g, 'x' FROM generate_series(1, 1000) g;
CREATE FOREIGN TABLE away_f (id int, n int, name text) SERVER bad_loop OPTIONS (table_name 'away');
CREATE TABLE away_copy (id int PRIMARY KEY, n int, name text);
SELECT job FROM incload_create_job('bad_away', 'away_f', 'away_copy', 'upsert', 'n', options => '{"schema_change": "fail"}');
ALTER TABLE away RENAME name TO label;
SELECT * FROM fails($$SELECT incload_run('bad_away')$$);
ALTER TABLE away RENAME label TO name;
ALTER TABLE away RENAME TO gone;
SELECT * FROM fails($$SELECT incload_run('bad_away')$$);
SELECT * FROM creates($$'bad_1'$$, $$'away_f'$$, $$'away_copy'$$);
ALTER TABLE gone RENAME TO away;
ALTER FOREIGN TABLE away_f RENAME name TO label;
SELECT * FROM fails($$SELECT incload_run('bad_away')$$);
ALTER FOREIGN TABLE away_f RENAME label TO name;
ALTER TABLE away_copy RENAME name TO label;
SELECT * FROM fails($$SELECT incload_run('bad_away')$$);
ALTER TABLE away_copy RENAME label TO name;
ALTER TABLE away_copy RENAME TO gone;
SELECT * FROM fails($$SELECT incload_run('bad_away')$$);
ALTER TABLE gone RENAME TO away_copy;
-- dropped in mid-stream
CREATE FUNCTION ends_at(n int, last int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF n = last THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10); END IF;
    RETURN true;
END $$;
SELECT job FROM incload_alter_job('bad_away', options => '{"filter": "bad.ends_at(n, 900)"}');
SELECT * FROM fails($$SELECT incload_run('bad_away')$$);
-- an error in mid-stream
SELECT job FROM incload_alter_job('bad_away', options => '{"filter": "1 / (900 - n) IS NOT NULL"}');
SELECT * FROM fails($$SELECT incload_run('bad_away')$$);
SELECT job FROM incload_alter_job('bad_away', options => '{"reader": "relation"}');
SELECT * FROM fails($$SELECT incload_run('bad_away')$$);
-- it takes too long there; a lock is held here
SELECT job FROM incload_alter_job('bad_away', options => '{"reader": null, "filter": "pg_sleep(10) IS NOT NULL", "statement_timeout": "50 ms"}');
\set SHOW_CONTEXT never
SELECT incload_run('bad_away');
SELECT count(*) FROM away_copy;
SELECT job FROM incload_alter_job('bad_away', options => '{"filter": null, "statement_timeout": null}');
SELECT rows_inserted FROM incload_run('bad_away');
-- reader copy where it cannot be
SELECT * FROM creates($$'bad_1'$$, $$'src'$$, $$'copy'$$, $$options => '{"reader": "copy"}'$$);

--
-- pre_sql and post_sql
--
SELECT s AS sql, said.*
FROM unnest(ARRAY['COMMIT', 'CREATE TABEL x ()', 'SELECT 1/0', 'COPY src TO STDOUT', 'SAVEPOINT x', 'VACUUM copy',
    'DROP TABLE copy', 'SELECT incload_run(''bad'')']) s,
    fails(format('SELECT incload_run((incload_alter_job(''bad'', options => %L)).job)',
    jsonb_build_object('pre_sql', s))) said;

--
-- a job's name
--
SELECT n AS name, said.*
FROM unnest(ARRAY['', '   ', E'\t', 'it''s', '"x"', 'back`tick', 'back\slash', E'line\nbreak', repeat('x', 63), repeat('ä', 32), 'bad']) n,
    creates(quote_literal(n), $$'src'$$, $$'copy'$$) said;
SELECT job FROM incload_create_job(repeat('ä', 31), 'src', 'copy', 'upsert', 'updated_at');
SELECT rows_read FROM incload_run(repeat('ä', 31));
SELECT incload_drop_job(repeat('ä', 31));
SELECT job FROM incload_create_job('a job; with.dots - and Größe', 'src', 'copy', 'upsert', 'updated_at');
SELECT rows_read FROM incload_run('a job; with.dots - and Größe');
SELECT incload_drop_job('a job; with.dots - and Größe');

--
-- altering into what cannot work, and into another's hands
--
SELECT a AS change, said.*
FROM unnest(ARRAY['source => ''nosuch''', 'target => ''copy_view''', 'strategy => ''x''', 'watermark => ''f''', 'key => ''{nosuch}''',
    'options => ''{"reader": "copy"}''', 'owner => ''regress_nobody''', 'owner => ''''', 'owner => ''regress_incload_bad''']) a,
    fails(format('SELECT incload_alter_job(''bad'', %s)', a)) said;

-- a read-only transaction
BEGIN READ ONLY;
SELECT incload_run('bad');
ROLLBACK;

\x off
\pset format aligned
-- nothing has changed
DROP FUNCTION does_not_fit, ends_at;
DROP FOREIGN TABLE loop, down, tcp, away_f, copy_foreign;
DROP TABLE plain, plain_copy, logged, logged_copy, copy_rules, narrow, wanting, other_types, local_time, always, wide, tight,
    mine, away, away_copy;
SELECT incload_drop_job('bad_fit'), incload_drop_job('bad_away');
(TABLE everything EXCEPT TABLE public.bad_before) UNION ALL (TABLE public.bad_before EXCEPT TABLE everything);
DROP TABLE public.bad_before;

-- each has a SQLSTATE, a detail and a hint
SELECT count(*) > 150 AS many FROM said;
SELECT state, sql, detail, hint FROM said
WHERE state = 'ZZ000' OR coalesce(detail, '') = '' OR coalesce(hint, '') = '' OR state LIKE 'XX%' ORDER BY id;
-- and each run that failed is on record with them
SELECT count(*) > 20 AS many, bool_and(sqlstate IS NOT NULL AND error <> '') AS all_said
FROM incload.run WHERE job LIKE 'bad%' AND status = 'failed';
SELECT DISTINCT status FROM incload.run WHERE job LIKE 'bad%' ORDER BY 1;

DROP SERVER bad_loop, bad_tcp, bad_down, files CASCADE;
SELECT incload_drop_job('bad');
DROP OWNED BY regress_incload_bad;
DROP ROLE regress_incload_bad;
DROP SCHEMA bad CASCADE;
