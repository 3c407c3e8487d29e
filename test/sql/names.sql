--
-- Names of every kind: of tables, columns, keys, schemas, servers and jobs
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE SCHEMA names;
SET search_path = names, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never
DO $body$ BEGIN
    EXECUTE format('CREATE SERVER "names; ""loop"" -- $$" FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
END $body$;
CREATE USER MAPPING FOR CURRENT_USER SERVER "names; ""loop"" -- $$";

-- every name, as a table's, and its neighbours in the list as the columns' and the schema's
CREATE TABLE list (n int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);
INSERT INTO list (name) VALUES
    ('plain'), ('UPPER'), ('Mixed Case'), ('with.dot'), ('with"quote'), ('with''apostrophe'), ('$dollar$'), ('a$1'), ('"'), (''''''),
    ('select'), ('user'), ('order'), ('table'), ('all'), ('s'), ('t'), ('source'), ('place'), ('d'), ('n'), ('incload_stage'),
    ('incload_watermark'), ('c0'), ('oid'), ('null'), ('default'), (' leading'), ('trailing '), ('--comment'), ('/*'), (E'new\nline'), (E'tab\there'),
    (E'back\\slash'), ('%s %n %'), ('größe'), ('Ünïcödé ÄÖ'), ('日本語の表'), ('😀'), ('123'), ('1e5'), ('_'), ('-'), ('@'), ('(a, b)'), ('{a,b}'),
    ('[1]'), (';drop table x'), (':name'), ('$$'), ('E''x'''), ('U&"\0061"'), (repeat('x', 63)), (repeat('ä', 31) || 'z'), (repeat('日', 21)),
    ('true'), ('current_user'), ('localtimestamp'), ('array'), ('row'), ('key'), ('value');
SELECT count(*) FROM list WHERE octet_length(name) > 63;

-- the name of the table, of its two key columns, its watermark and another column, and of its schema
CREATE FUNCTION named(n int, place int) RETURNS text LANGUAGE sql AS $body$
    SELECT l.name FROM names.list l WHERE l.n = (named.n + place - 1) % (SELECT max(m.n) FROM names.list m) + 1
$body$;
CREATE TABLE results (n int, name text, inserted text DEFAULT '', updated text DEFAULT '', again text DEFAULT '', refreshed text DEFAULT '', differ bigint);
CREATE TABLE all_results (LIKE results);
-- one step after the other, each in its own transaction, since the source is read over a connection
CREATE FUNCTION step(n int, step int) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    name text := names.named(n, 0); k text := names.named(n, 1); v text := names.named(n, 2); c text := names.named(n, 3);
    s text := names.named(n, 4); src text := format('%I.%I', s, name); reader text; target text; job text; r incload.run;
BEGIN
    IF step = 1 THEN
        EXECUTE format('CREATE SCHEMA %I', s);
        EXECUTE format('CREATE TABLE %s (%I int, %I int, %I text, %I text, PRIMARY KEY (%I, %I))', src, k, v, c, name, name, k);
        EXECUTE format('INSERT INTO %s VALUES (1, 1, ''one'', ''a''), (2, 2, ''two'', ''b''), (2, 3, ''three'', ''c'')', src);
        INSERT INTO names.results VALUES (n, name);
    ELSIF step = 2 THEN
        EXECUTE format('CREATE FOREIGN TABLE names.foreign_src (%I int, %I int, %I text, %I text) SERVER "names; ""loop"" -- $$" '
            'OPTIONS (schema_name %L, table_name %L)', k, v, c, name, s, name);
    ELSIF step = 4 THEN
        EXECUTE format('UPDATE %s SET %I = %I + 10, %I = ''changed'' WHERE %I = ''b''', src, v, v, c, name);
    END IF;
    FOREACH reader IN ARRAY '{copy,relation}'::text[] LOOP
        EXIT WHEN step IN (1, 2, 4);
        job := 'n ' || reader;
        target := format('%I.%I', s, reader || '_' || left(name, 10));
        IF step = 3 THEN
            PERFORM incload_create_job(job, CASE reader WHEN 'copy' THEN 'names.foreign_src' ELSE src END, target,
                'upsert', v, ARRAY[name, k], options => '{"batch_rows": 2}');
            r := incload_run(job);
            UPDATE names.results SET inserted = inserted || r.rows_inserted;
        ELSIF step = 5 THEN
            r := incload_run(job);
            UPDATE names.results SET updated = updated || r.rows_updated;
            -- everything again, by an expression, a filter and a transform with the names
            PERFORM incload_alter_job(job, watermark => format('(%I + 0)', v), options => jsonb_build_object(
                'filter', format('%I IS NOT NULL', name), 'transforms', jsonb_build_object(c, format('%I || ''''', c))));
            r := incload_run(job);
            UPDATE names.results SET again = again || r.rows_unchanged;
            r := incload_refresh(job);
            UPDATE names.results SET refreshed = refreshed || r.rows_unchanged;
        ELSIF step = 6 THEN
            EXECUTE format('UPDATE names.results SET differ = coalesce(differ, 0)'
                ' + (SELECT count(*) FROM ((TABLE %1$s EXCEPT TABLE %2$s) UNION ALL (TABLE %2$s EXCEPT TABLE %1$s)) x)', src, target);
            PERFORM incload_drop_job(job);
        END IF;
    END LOOP;
    IF step = 6 THEN
        EXECUTE format('DROP SCHEMA %I CASCADE', s);
        DROP FOREIGN TABLE names.foreign_src;
        INSERT INTO names.all_results SELECT * FROM names.results;
        DELETE FROM names.results;
    END IF;
END $body$;
-- every other name as the table's; the others are its columns'
\set ECHO none
\o /dev/null
SELECT format('SELECT names.step(%s, %s)', n, s) FROM list, generate_series(1, 6) s WHERE n % 2 = 0 ORDER BY n, s \gexec
\o
\set ECHO all
SELECT n, name, named(n, 1) AS key, named(n, 2) AS watermark, inserted, updated, again, refreshed, differ FROM all_results
WHERE inserted <> '33' OR updated <> '11' OR again <> '33' OR refreshed <> '33' OR differ <> 0 ORDER BY n;
SELECT count(*) FROM all_results;

--
-- how a relation is named
--
CREATE SCHEMA "Odd.Schema";
CREATE TABLE "Odd.Schema"."Odd.Table" (id int PRIMARY KEY, v int);
CREATE TABLE odd (id int PRIMARY KEY, v int);
SELECT source, target FROM incload_create_job('n_1', '"Odd.Schema"."Odd.Table"', '"Odd.Schema"."New ""Target"""', 'upsert', 'v');
SELECT source, target FROM incload_create_job('n_2', 'ODD', 'Names.New_Target', 'upsert', 'v');
SELECT source, target FROM incload_create_job('n_3', ' odd ', '  names . other_target ', 'upsert', 'v');
SELECT source, target FROM incload_create_job('n_4', 'odd'::regclass::text, 'fourth', 'upsert', 'v');
SELECT source, target FROM incload_create_job('n_5', format('%I.names.odd', current_database()), format('%I.names.fifth', current_database()), 'upsert', 'v');
SELECT incload_create_job('n_6', 'Odd.Schema.Odd.Table', 'sixth', 'upsert', 'v');
-- longer than a name can be: cut as everywhere, and found again
SELECT length(target) FROM incload_create_job('n_7', 'odd', repeat('y', 80), 'upsert', 'v');
SELECT count(*) FROM pg_class WHERE relname = repeat('y', 63) AND relnamespace = 'names'::regnamespace;
SELECT rows_read FROM incload_run('n_7');
-- renamed after the job was made: said so, by name
ALTER TABLE odd RENAME TO odder;
SELECT incload_run('n_2');
ALTER TABLE odder RENAME TO odd;
SELECT rows_read FROM incload_run('n_2');
ALTER TABLE new_target RENAME COLUMN id TO nr;
SELECT incload_run('n_2');

-- column names are taken as they are written: no folding
CREATE TABLE cased ("ID" int PRIMARY KEY, id int, "V" int, v int);
INSERT INTO cased VALUES (1, 10, 100, 1000);
SELECT key, watermark FROM incload_create_job('n_8', 'cased', 'cased_copy', 'upsert', 'V', '{ID}');
SELECT rows_inserted, watermark_to FROM incload_run('n_8');
SELECT key, watermark FROM incload_create_job('n_9', 'cased', 'cased_copy2', 'upsert', 'v', '{id}');
SELECT rows_inserted, watermark_to FROM incload_run('n_9');
SELECT incload_create_job('n_10', 'cased', 'cased_copy3', 'upsert', '"V"', '{ID}');
SELECT incload_create_job('n_10', 'cased', 'cased_copy3', 'upsert', 'V', '{"\"ID\""}');

-- an operator, a function and a type of the user's own before the built-in ones in the search_path change nothing
CREATE FUNCTION never(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT false';
CREATE OPERATOR = (LEFTARG = int, RIGHTARG = int, FUNCTION = never);
CREATE OPERATOR > (LEFTARG = int, RIGHTARG = int, FUNCTION = never);
CREATE OPERATOR >= (LEFTARG = int, RIGHTARG = int, FUNCTION = never);
CREATE OPERATOR <> (LEFTARG = int, RIGHTARG = int, FUNCTION = never);
CREATE FUNCTION never(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT false';
CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = never);
CREATE FUNCTION row_number() RETURNS bigint LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
CREATE FUNCTION count() RETURNS int LANGUAGE sql AS 'SELECT -1';
CREATE DOMAIN int4 AS text;
CREATE TABLE pg_class (a int);
CREATE TABLE pg_locks (a int);
CREATE TABLE pg_index (a int);
SET search_path = names, pg_catalog, public;
CREATE TABLE mean (id integer PRIMARY KEY, v integer);
INSERT INTO mean VALUES (1, 1), (2, 1), (3, 1), (4, 1), (5, 2);
CREATE FOREIGN TABLE mean_f (id integer, v integer) SERVER "names; ""loop"" -- $$" OPTIONS (table_name 'mean');
SELECT key FROM incload_create_job('n_mean', 'mean', 'mean_copy', 'upsert', 'v', options => '{"batch_rows": 2}');
SELECT key FROM incload_create_job('n_mean_f', 'mean_f', 'mean_copy_f', 'upsert', 'v', options => '{"batch_rows": 2}');
CALL incload_run_in_batches('n_mean');
CALL incload_run_in_batches('n_mean_f');
UPDATE mean SET v = v + 10;
CALL incload_run_in_batches('n_mean');
SELECT rows_read, rows_updated FROM incload_run('n_mean_f');
SELECT rows_read, rows_unchanged, rows_pruned FROM incload_refresh('n_mean');
SELECT job, rows_read, rows_inserted, rows_updated FROM incload.run WHERE job LIKE 'n\_mean%' ORDER BY run_id;
SELECT * FROM mean_copy ORDER BY id;
SELECT * FROM mean_copy_f ORDER BY id;
SET search_path = names, public;

-- clean up
SELECT pg_catalog.count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'n%';
DROP SERVER "names; ""loop"" -- $$" CASCADE;
DROP SCHEMA names, "Odd.Schema" CASCADE;
