--
-- Types that have another name, or another definition, at the source; values that the target's types refuse; keys of
-- every kind; partitions; 1,600 columns. By the copy reader, and through postgres_fdw.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE SCHEMA app;
CREATE SCHEMA dw;
CREATE SCHEMA far;
SET search_path = dw, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never
DO $$ BEGIN
    EXECUTE format('CREATE SERVER elsewhere_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
END $$;
CREATE USER MAPPING FOR CURRENT_USER SERVER elsewhere_loop;

-- runs the jobs NAME_copy and NAME_fdw; the first must have the rows that the source has, the second those of the first
CREATE FUNCTION runs(name text, OUT reader text, OUT ins bigint, OUT upd bigint, OUT superseded bigint, OUT adds_up boolean, OUT differ bigint)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE source text;
BEGIN
    FOREACH reader IN ARRAY '{copy,fdw}'::text[] LOOP
        SELECT r.rows_inserted, r.rows_updated, r.rows_superseded, r.rows_read = r.rows_inserted + r.rows_updated + r.rows_unchanged + r.rows_superseded
        INTO ins, upd, superseded, adds_up FROM incload_run(format('w_%s_%s', name, reader)) r;
        -- through the executor, what is read again goes by the clock
        superseded := CASE reader WHEN 'copy' THEN superseded END;
        source := CASE reader WHEN 'copy' THEN (SELECT j.source FROM incload.job j WHERE job = format('w_%s_copy', name)) ELSE format('dw.%s_copy', name) END;
        EXECUTE format('SELECT count(*) FROM ((SELECT one::text FROM %1$s one EXCEPT ALL SELECT two::text FROM %2$s two)'
            ' UNION ALL (SELECT two::text FROM %2$s two EXCEPT ALL SELECT one::text FROM %1$s one)) d', source, format('dw.%s_%s', name, reader)) INTO differ;
        RETURN NEXT;
    END LOOP;
END $$;
-- what a run of each says
CREATE FUNCTION fails(name text) RETURNS TABLE (reader text, state text, message text, detail text, hint text, rows bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH reader IN ARRAY '{copy,fdw}'::text[] LOOP
        BEGIN
            PERFORM incload_run(format('w_%s_%s', name, reader));
            state := 'ok'; message := NULL; detail := NULL; hint := NULL;
        EXCEPTION WHEN others THEN
            GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
        END;
        EXECUTE format('SELECT count(*) FROM dw.%s_%s', name, reader) INTO rows;
        RETURN NEXT;
    END LOOP;
END $$;
CREATE FUNCTION jobs(name text, watermark text, key text[], options jsonb DEFAULT '{}', strategy text DEFAULT 'upsert') RETURNS SETOF text LANGUAGE sql AS $$
    SELECT (incload_create_job(format('w_%s_copy', name), 'far.' || name, format('dw.%s_copy', name), strategy, watermark, key, options => options)).job
    UNION ALL
    SELECT (incload_create_job(format('w_%s_fdw', name), 'far.' || name, format('dw.%s_fdw', name), strategy, watermark, key, options => options || '{"reader": "relation"}')).job
$$;

--
-- enums, composites, domains and ranges under other names
--
CREATE TYPE app.status AS ENUM ('new', 'paid', 'gone', 'it''s "odd", {really}');
CREATE TYPE app.price AS (amount numeric, currency char(3));
CREATE DOMAIN app.email AS text CHECK (VALUE ~ '@');
CREATE DOMAIN app.cents AS int;
CREATE TYPE app.line AS (price app.price, tags app.status[], mail app.email);
CREATE TYPE app.span AS RANGE (SUBTYPE = timestamp);
CREATE TABLE app.orders (id int PRIMARY KEY, v int NOT NULL, s app.status, ss app.status[], p app.price, ps app.price[], e app.email, c app.cents, l app.line, ls app.line[],
    r app.span, rm app.span[]);
INSERT INTO app.orders VALUES
    (1, 1, 'new', '{new,paid,NULL}', (1.50, 'EUR'), ARRAY[ROW(-0.00, 'USD')::app.price, NULL], 'a@b', 7, ROW(ROW(1e-9, NULL), '{paid}', 'q@q'),
        ARRAY[ROW(NULL, '{"it''s \"odd\", {really}"}', 'x,@"y"')::app.line], '[2020-01-01,2020-01-02)', '{"[2020-01-01,infinity)",empty}'),
    (2, 2, 'it''s "odd", {really}', '{}', (NULL, NULL), '{}', '@', -1, ROW(NULL, NULL, NULL), '{NULL}', 'empty', '{}'),
    (3, 3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
-- here the labels stand in another order, the parts have other names and types, the domains other checks
CREATE TYPE dw.zustand AS ENUM ('it''s "odd", {really}', 'gone', 'paid', 'new');
CREATE TYPE dw.preis AS (betrag numeric, "Währung" text);
CREATE DOMAIN dw.mail AS varchar(20) CHECK (VALUE LIKE '%@%');
CREATE DOMAIN dw.ct AS bigint CHECK (VALUE < 100);
CREATE TYPE dw.zeile AS (preis dw.preis, marken dw.zustand[], post dw.mail);
CREATE TYPE dw.spanne AS RANGE (SUBTYPE = timestamp);
CREATE FOREIGN TABLE far.orders (id int, v int, s dw.zustand, ss dw.zustand[], p dw.preis, ps dw.preis[], e dw.mail, c dw.ct, l dw.zeile, ls dw.zeile[],
    r dw.spanne, rm dw.spanne[]) SERVER elsewhere_loop OPTIONS (schema_name 'app');
CREATE TABLE orders_copy (id int PRIMARY KEY, v int, s dw.zustand, ss dw.zustand[], p dw.preis, ps dw.preis[], e dw.mail, c dw.ct, l dw.zeile, ls dw.zeile[],
    r dw.spanne, rm dw.spanne[]);
CREATE TABLE orders_fdw (LIKE orders_copy INCLUDING ALL);
SELECT jobs('orders', 'v', '{id}');
SELECT * FROM runs('orders');
SELECT * FROM runs('orders');
SELECT s < 'gone' AS first_here FROM orders_copy WHERE id = 2;
-- what is made when no target is there, has the types that the foreign table names, where the source's own mean nothing here
SELECT job FROM incload_create_job('w_made', 'far.orders', 'dw.orders_made', 'upsert', 'v', '{id}');
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'orders_made'::regclass AND attnum > 2 ORDER BY attnum;
SELECT rows_inserted FROM incload_run('w_made');
SELECT count(*) FROM (SELECT one::text FROM orders_made one EXCEPT SELECT two::text FROM orders_copy two) d;
-- of a table in this database, one enum is not another
SELECT incload_create_job('w_here', 'app.orders', 'dw.orders_copy', 'upsert', 'v', '{id}');
SELECT incload_create_job('w_here', 'app.orders', 'dw.orders_copy', 'upsert', 'v', '{id}', options => '{"columns": ["id", "v", "s"], "transforms": {"s": "s::text"}}');
SELECT job FROM incload_create_job('w_here', 'app.orders', 'dw.orders_copy', 'upsert', 'v', '{id}', options => '{"columns": ["id", "v", "s"], "transforms": {"s": "s::text::dw.zustand"}}');
SELECT rows_read, rows_unchanged FROM incload_run('w_here');

-- a text there that is an enum here is cast here
CREATE TABLE app.words (id int PRIMARY KEY, v int NOT NULL, s text);
INSERT INTO app.words VALUES (1, 1, 'paid');
IMPORT FOREIGN SCHEMA app LIMIT TO (words) FROM SERVER elsewhere_loop INTO far;
CREATE TABLE words (id int PRIMARY KEY, v int, s zustand);
SELECT incload_create_job('w_words', 'far.words', 'words', 'upsert', 'v', '{id}');
SELECT job FROM incload_create_job('w_words', 'far.words', 'words', 'upsert', 'v', '{id}', options => '{"reader": "relation", "transforms": {"s": "s::zustand"}}');
SELECT rows_inserted FROM incload_run('w_words');
INSERT INTO app.words VALUES (2, 2, 'unheard of');
SELECT incload_run('w_words');
TABLE words;

-- values that a type here refuses: nothing of the run is loaded, by either reader
\x
INSERT INTO app.orders (id, v) VALUES (10, 10);
ALTER TYPE app.status ADD VALUE 'late';
INSERT INTO app.orders (id, v, s) VALUES (11, 11, 'late');
SELECT * FROM fails('orders');
UPDATE app.orders SET s = NULL, ss = '{new,late}' WHERE id = 11;
SELECT reader, state, message, rows FROM fails('orders');
UPDATE app.orders SET ss = NULL, c = 100 WHERE id = 11;
SELECT * FROM fails('orders');
UPDATE app.orders SET c = NULL, e = 'longer than twenty @ characters' WHERE id = 11;
SELECT reader, state, message, rows FROM fails('orders');
UPDATE app.orders SET e = NULL, ls = ARRAY[ROW(NULL, NULL, 'longer than twenty @ characters')::app.line] WHERE id = 11;
SELECT reader, state, message, rows FROM fails('orders');
\x
UPDATE app.orders SET ls = NULL WHERE id = 11;
SELECT * FROM runs('orders');
-- a domain of the key, one that wants no NULL, one over an array and one over a composite
CREATE DOMAIN dw.nr AS int CHECK (VALUE < 1000);
CREATE DOMAIN dw.given AS text NOT NULL;
CREATE DOMAIN dw.few AS int[] CHECK (cardinality(VALUE) < 3);
CREATE DOMAIN dw.fair AS dw.preis CHECK ((VALUE).betrag >= 0);
CREATE TABLE app.doms (id int PRIMARY KEY, v int NOT NULL, g text, f int[], p app.price);
INSERT INTO app.doms VALUES (1, 1, 'x', '{1,2}', (1, 'EUR'));
CREATE FOREIGN TABLE far.doms (id int, v int, g text, f int[], p dw.preis) SERVER elsewhere_loop OPTIONS (schema_name 'app');
CREATE TABLE doms_copy (id dw.nr PRIMARY KEY, v int, g dw.given, f dw.few, p dw.fair);
CREATE TABLE doms_fdw (LIKE doms_copy INCLUDING ALL);
SELECT jobs('doms', 'v', '{id}');
SELECT * FROM runs('doms');
INSERT INTO app.doms VALUES (2, 2, NULL, '{}', NULL);
SELECT reader, state, message, rows FROM fails('doms');
UPDATE app.doms SET g = '', f = '{1,2,3}' WHERE id = 2;
SELECT reader, state, message, rows FROM fails('doms');
UPDATE app.doms SET f = NULL, p = (-1, 'EUR') WHERE id = 2;
SELECT reader, state, message, rows FROM fails('doms');
UPDATE app.doms SET p = (0, 'EUR'), id = 1000 WHERE id = 2;
SELECT reader, state, message, rows FROM fails('doms');
UPDATE app.doms SET id = 999 WHERE id = 1000;
SELECT * FROM runs('doms');

--
-- keys of several columns, of types whose equality is not that of their images; a tie cut by them
--
CREATE EXTENSION citext SCHEMA public;
CREATE COLLATION dw.any_case (PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false);
CREATE TABLE app.keys (a text, n numeric, v int NOT NULL, x int, PRIMARY KEY (a, n));
INSERT INTO app.keys SELECT chr(65 + i / 3), i % 3 + 0.50, 1, 0 FROM generate_series(0, 20) i;
INSERT INTO app.keys VALUES ('Ä', 1.0, 1, 0), ('ß', 'NaN', 1, 0), ('', -1, 1, 0), (E'\\N', 1e30, 1, 0), ('''"', 0, 1, 0);
IMPORT FOREIGN SCHEMA app LIMIT TO (keys) FROM SERVER elsewhere_loop INTO far;
SELECT jobs('keys', 'v', '{a,n}', '{"first_load": "batches", "batch_rows": 4}');
CALL incload_run_in_batches('w_keys_copy');
CALL incload_run_in_batches('w_keys_fdw');
SELECT job, rows_read, rows_inserted, batches FROM incload.run WHERE job LIKE 'w\_keys%' ORDER BY 1;
SELECT * FROM runs('keys');
-- 1 and 1.0 are one key, and the image that was read last is the one that stays
UPDATE app.keys SET n = trim_scale(n), v = 2 WHERE a = 'A';
UPDATE app.keys SET n = 1.000000, v = 2, x = 7 WHERE a = 'Ä';
SELECT * FROM runs('keys');
SELECT a, n, x FROM keys_copy WHERE a IN ('A', 'Ä') ORDER BY a, n;

-- a key that is less here than there: two of the source's are one here, and one wins; each read says so
CREATE TABLE app.folded (a text PRIMARY KEY, v int NOT NULL, x int);
INSERT INTO app.folded VALUES ('abc', 1, 1), ('ABC', 2, 2), ('Abd', 3, 3);
IMPORT FOREIGN SCHEMA app LIMIT TO (folded) FROM SERVER elsewhere_loop INTO far;
CREATE TABLE folded_copy (a text COLLATE dw.any_case PRIMARY KEY, v int, x int);
CREATE TABLE folded_fdw (LIKE folded_copy INCLUDING ALL);
SELECT jobs('folded', 'v', '{a}');
SELECT reader, ins, upd, superseded, adds_up FROM runs('folded');
SELECT reader, ins, upd, superseded, adds_up FROM runs('folded');
TABLE folded_copy ORDER BY v;
(TABLE folded_copy EXCEPT TABLE folded_fdw) UNION ALL (TABLE folded_fdw EXCEPT TABLE folded_copy);
UPDATE app.folded SET x = 10, v = 10 WHERE a = 'abc';
SELECT reader, ins, upd, superseded, adds_up FROM runs('folded');
TABLE folded_copy ORDER BY v;
-- the same with citext, and the other way: a key that is less there
CREATE TABLE folded_ci (a public.citext PRIMARY KEY, v int, x int);
SELECT key FROM incload_create_job('w_folded_ci', 'far.folded', 'folded_ci', 'upsert', 'v', options => '{"first_load": "batches", "batch_rows": 1}');
CALL incload_run_in_batches('w_folded_ci');
SELECT rows_read, rows_inserted, rows_updated, rows_superseded FROM incload.run WHERE job = 'w_folded_ci';
TABLE folded_ci ORDER BY v;
CREATE TABLE app.ci (a public.citext PRIMARY KEY, v int NOT NULL);
INSERT INTO app.ci SELECT CASE WHEN i % 2 = 0 THEN chr(65 + i) ELSE chr(97 + i) END, 1 FROM generate_series(0, 9) i;
IMPORT FOREIGN SCHEMA app LIMIT TO (ci) FROM SERVER elsewhere_loop INTO far;
CREATE TABLE ci_copy (a text PRIMARY KEY, v int);
CREATE TABLE ci_fdw (LIKE ci_copy INCLUDING ALL);
SELECT jobs('ci', 'v', '{a}', '{"first_load": "batches", "batch_rows": 3}');
CALL incload_run_in_batches('w_ci_copy');
CALL incload_run_in_batches('w_ci_fdw');
SELECT * FROM runs('ci');
SELECT string_agg(a, '' ORDER BY a COLLATE "C") FROM ci_copy;

-- other types of keys: enum, range, array, composite, bytea, timestamptz, boolean and "char"; not portable, or cut in the tie
CREATE TABLE app.odd (s app.status, r int4range, ia int[], p app.price, by bytea, tz timestamptz, b boolean, ch "char", v int NOT NULL, x int, PRIMARY KEY (s, r, ia, p, by, tz, b, ch));
INSERT INTO app.odd SELECT CASE WHEN i % 2 = 0 THEN 'new' ELSE 'gone' END::app.status, int4range(i, i + 1), ARRAY[i, NULL], ROW(i, 'EUR')::app.price, int4send(i), '2020-01-01Z'::timestamptz + i * interval '1 us',
    i % 3 = 0, chr(65 + i)::"char", 1, 0 FROM generate_series(1, 9) i;
CREATE FOREIGN TABLE far.odd (s dw.zustand, r int4range, ia int[], p dw.preis, by bytea, tz timestamptz, b boolean, ch "char", v int, x int) SERVER elsewhere_loop OPTIONS (schema_name 'app');
SELECT jobs('odd', 'v', '{s,r,ia,p,by,tz,b,ch}', '{"first_load": "batches", "batch_rows": 4}');
CALL incload_run_in_batches('w_odd_copy');
CALL incload_run_in_batches('w_odd_fdw');
SELECT job, rows_read, rows_inserted, batches FROM incload.run WHERE job LIKE 'w\_odd%' ORDER BY 1;
UPDATE app.odd SET x = 1, v = 2 WHERE s = 'new';
SELECT * FROM runs('odd');
CREATE FOREIGN TABLE far.odd2 (r int4range, ia int[], by bytea, tz timestamptz, b boolean, ch "char", v int, x int) SERVER elsewhere_loop OPTIONS (schema_name 'app', table_name 'odd');
SELECT jobs('odd2', 'v', '{b,ch,tz,by,ia,r}', '{"first_load": "batches", "batch_rows": 4}');
CALL incload_run_in_batches('w_odd2_copy');
CALL incload_run_in_batches('w_odd2_fdw');
SELECT job, rows_read, rows_inserted, batches FROM incload.run WHERE job LIKE 'w\_odd2%' ORDER BY 1;
SELECT * FROM runs('odd2');

--
-- keys that change at the source: the new one comes, the old one stays until a refresh; keys that are exchanged
--
CREATE TABLE app.moved (id int PRIMARY KEY, v int NOT NULL, name text);
INSERT INTO app.moved VALUES (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three');
IMPORT FOREIGN SCHEMA app LIMIT TO (moved) FROM SERVER elsewhere_loop INTO far;
SELECT jobs('moved', 'v', '{id}');
SELECT * FROM runs('moved');
UPDATE app.moved SET id = 30, v = 4 WHERE id = 3;
SELECT reader, ins, upd, adds_up, differ FROM runs('moved');
UPDATE app.moved SET id = -id, v = v + 10 WHERE id < 3;
UPDATE app.moved SET id = 3 + id WHERE id < 0;
SELECT reader, ins, upd, adds_up, differ FROM runs('moved');
TABLE moved_copy ORDER BY id;
SELECT rows_read, rows_unchanged, rows_pruned FROM incload_refresh('w_moved_copy');
SELECT rows_read, rows_unchanged, rows_pruned FROM incload_refresh('w_moved_fdw');
SELECT * FROM runs('moved');

--
-- partitions of partitions, by columns that are no key; a row that moves; one that no partition takes; append
--
CREATE TABLE app.events (id int PRIMARY KEY, v int NOT NULL, region text, day date, kind app.status);
INSERT INTO app.events SELECT i, i, CASE WHEN i % 2 = 0 THEN 'eu' ELSE 'us' END, date '2020-01-30' + i, 'new' FROM generate_series(1, 6) i;
CREATE FOREIGN TABLE far.events (id int, v int, region text, day date, kind zustand) SERVER elsewhere_loop OPTIONS (schema_name 'app');
CREATE FUNCTION partitioned(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %1$I (day date, id int, region text, v int, kind zustand, loaded text DEFAULT ''here'') PARTITION BY LIST (region);
        CREATE TABLE %2$I PARTITION OF %1$I FOR VALUES IN (''eu'') PARTITION BY RANGE (day);
        CREATE TABLE %3$I PARTITION OF %2$I FOR VALUES FROM (''2020-01-01'') TO (''2020-02-01'');
        CREATE TABLE %4$I PARTITION OF %2$I FOR VALUES FROM (''2020-02-01'') TO (''2020-03-01'');
        CREATE TABLE %5$I PARTITION OF %1$I FOR VALUES IN (''us'') PARTITION BY HASH (id);
        CREATE TABLE %6$I PARTITION OF %5$I FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE %7$I PARTITION OF %5$I FOR VALUES WITH (MODULUS 2, REMAINDER 1)',
        name, name || '_eu', name || '_eu_1', name || '_eu_2', name || '_us', name || '_us_1', name || '_us_2');
END $$;
SELECT partitioned('events_copy'), partitioned('events_fdw'), partitioned('events_log');
SELECT jobs('events', 'v', '{id}', '{"first_load": "batches", "batch_rows": 4}');
CALL incload_run_in_batches('w_events_copy');
CALL incload_run_in_batches('w_events_fdw');
SELECT tableoid::regclass, count(*) FROM events_copy WHERE region = 'eu' GROUP BY 1 ORDER BY 1;
-- from one leaf to its neighbour, and to another branch; and one that stays
UPDATE app.events SET day = day + 1, v = v + 10 WHERE id = 2;
UPDATE app.events SET region = 'us', v = v + 10 WHERE id = 4;
UPDATE app.events SET kind = 'paid', v = v + 10 WHERE id = 6;
UPDATE app.events SET day = '2020-01-01', region = 'eu', v = v + 10 WHERE id = 1;
SELECT reader, ins, upd, adds_up FROM runs('events');
SELECT count(*), count(DISTINCT id) FROM events_copy;
SELECT tableoid::regclass, id, day, kind, loaded FROM events_copy WHERE region = 'eu' ORDER BY id;
SELECT count(*) FROM (SELECT id, v, region, day, kind FROM events_copy EXCEPT TABLE far.events) d;
(TABLE events_copy EXCEPT TABLE events_fdw) UNION ALL (TABLE events_fdw EXCEPT TABLE events_copy);
-- refused: by the list, by the range
UPDATE app.events SET region = 'asia', v = v + 100 WHERE id = 2;
SELECT reader, state, message, hint <> '' AS hint, rows FROM fails('events');
UPDATE app.events SET region = 'eu', day = '2021-01-01' WHERE id = 2;
SELECT reader, state, message, hint <> '' AS hint, rows FROM fails('events');
UPDATE app.events SET region = NULL, day = NULL WHERE id = 2;
SELECT reader, state, message, hint <> '' AS hint, rows FROM fails('events');
UPDATE app.events SET region = 'us' WHERE id = 2;
SELECT reader, ins, upd, adds_up FROM runs('events');
SELECT id, day, region FROM events_copy WHERE id = 2;
SELECT rows_read, rows_updated, rows_unchanged, rows_pruned FROM incload_refresh('w_events_copy');
-- append, without a key: the source's order is not that of its columns here
SELECT strategy, key FROM incload_create_job('w_events_log', 'app.events', 'events_log', 'append', '(v)', '{}', options => '{"exclude": ["kind"]}');
SELECT rows_inserted FROM incload_run('w_events_log');
SELECT rows_inserted, rows_pruned FROM incload_refresh('w_events_log');
SELECT tableoid::regclass, count(*), count(DISTINCT id) FROM events_log GROUP BY 1 ORDER BY 1;

--
-- generated columns there, as IMPORT FOREIGN SCHEMA brings them; from 18 on those that are not stored, too
--
SELECT format('CREATE TABLE app.gen (id int PRIMARY KEY, v int NOT NULL, n numeric, stored numeric GENERATED ALWAYS AS (n * 2) STORED, made text GENERATED ALWAYS AS (upper(''x'' || id)) %s)',
    CASE WHEN current_setting('server_version_num')::int >= 180000 THEN 'VIRTUAL' ELSE 'STORED' END) AS sql \gset
\set ECHO none
:sql;
\set ECHO all
INSERT INTO app.gen VALUES (1, 1, 1.5), (2, 2, NULL);
CREATE FOREIGN TABLE far.gen (id int, v int, n numeric, stored numeric, made text) SERVER elsewhere_loop OPTIONS (schema_name 'app');
SELECT jobs('gen', '(v + coalesce(stored, 0))', '{id}');
SELECT * FROM runs('gen');
UPDATE app.gen SET n = 2.50, v = 10 WHERE id = 1;
SELECT * FROM runs('gen');
TABLE gen_copy ORDER BY id;
-- as IMPORT FOREIGN SCHEMA declares it, and into a target that computes it otherwise
CREATE TABLE app.gen_s (id int PRIMARY KEY, v int NOT NULL, n numeric, twice numeric GENERATED ALWAYS AS (n * 2) STORED);
INSERT INTO app.gen_s (id, v, n) VALUES (1, 1, 1.5), (2, 2, NULL);
IMPORT FOREIGN SCHEMA app LIMIT TO (gen_s) FROM SERVER elsewhere_loop INTO far;
SELECT attgenerated FROM pg_attribute WHERE attrelid = 'far.gen_s'::regclass AND attname = 'twice';
SELECT jobs('gen_s', 'v', '{id}');
SELECT * FROM runs('gen_s');
TABLE gen_s_copy ORDER BY id;
CREATE TABLE gen_s_own (id int PRIMARY KEY, v int, n numeric, twice numeric GENERATED ALWAYS AS (n + n + 0.001) STORED);
SELECT job FROM incload_create_job('w_gen_s_own', 'far.gen_s', 'gen_s_own', 'upsert', 'v', '{id}');
SELECT rows_inserted FROM incload_run('w_gen_s_own');
UPDATE app.gen_s SET n = 3, v = 3 WHERE id = 2;
SELECT rows_updated FROM incload_run('w_gen_s_own');
TABLE gen_s_own ORDER BY id;
SELECT rows_unchanged FROM incload_refresh('w_gen_s_own');
-- a key that the target computes cannot be one that is loaded
CREATE TABLE gen_key (n numeric, v int, id int GENERATED ALWAYS AS (v) STORED PRIMARY KEY);
SELECT incload_create_job('w_gen_key', 'far.gen_s', 'gen_key', 'upsert', 'v', '{id}', options => '{"exclude": ["twice"]}');

--
-- 1,600 columns: small numbers, and many types that are mostly NULL
--
\set ECHO none
SELECT format('CREATE TABLE app.wide (%s, PRIMARY KEY (c1))', string_agg(format('c%s int2', i), ', ' ORDER BY i)) FROM generate_series(1, 1600) i \gexec
SELECT format('INSERT INTO app.wide SELECT %s FROM generate_series(1, 5) g',
    string_agg(CASE WHEN i < 3 THEN 'g' WHEN i % 7 = 0 THEN 'NULL' ELSE format('g * %s %% 30000', i) END, ', ' ORDER BY i)) FROM generate_series(1, 1600) i \gexec
SELECT format('CREATE TABLE app.sparse (%s, PRIMARY KEY (c1))', string_agg(format('c%s %s', i,
    CASE WHEN i = 1 THEN 'int' WHEN i % 3 = 0 THEN 'text' WHEN i % 3 = 1 THEN 'timestamptz' ELSE 'numeric' END), ', ' ORDER BY i)) FROM generate_series(1, 1600) i \gexec
SELECT format('CREATE FOREIGN TABLE far.%I (%s) SERVER elsewhere_loop OPTIONS (schema_name ''app'')', relname, string_agg(format('%I %s', attname, format_type(atttypid, NULL)), ', ' ORDER BY attnum))
FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0 WHERE relnamespace = 'app'::regnamespace AND relname IN ('wide', 'sparse') GROUP BY relname \gexec
\set ECHO all
INSERT INTO app.sparse (c1, c4, c1599, c1600) SELECT g, '2020-01-01Z', 'x' || g, '2020-01-02Z' FROM generate_series(1, 5) g;
SELECT job FROM incload_create_job('w_wide', 'far.wide', 'wide_copy', 'upsert', 'c2', '{c1}');
SELECT job FROM incload_create_job('w_sparse', 'far.sparse', 'sparse_copy', 'upsert', '(coalesce(c4, c1600))', '{c1}', options => '{"first_load": "batches", "batch_rows": 3, "reader": "relation"}');
SELECT action, key, (SELECT count(*) FROM jsonb_object_keys(new_row)) FROM incload_preview('w_wide', 1);
SELECT rows_read, rows_inserted FROM incload_run('w_wide');
CALL incload_run_in_batches('w_sparse');
SELECT rows_read, rows_inserted, batches FROM incload.run WHERE job = 'w_sparse';
UPDATE app.wide SET c1600 = 7, c2 = 1000 WHERE c1 = 3;
UPDATE app.sparse SET c1599 = NULL, c1600 = now(), c4 = now() WHERE c1 = 3;
SELECT rows_updated FROM incload_run('w_wide');
SELECT rows_updated FROM incload_run('w_sparse');
SELECT count(*) FROM (SELECT one::text FROM app.wide one EXCEPT SELECT two::text FROM wide_copy two) d;
SELECT count(*) FROM (SELECT one::text FROM app.sparse one EXCEPT SELECT two::text FROM sparse_copy two) d;
SELECT count(*) FROM pg_attribute WHERE attrelid = 'wide_copy'::regclass AND attnum > 0;
SELECT c1, c2, c1600 FROM wide_copy WHERE c1 IN (2, 3) ORDER BY 1;

-- clean up
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'w\_%';
DROP SERVER elsewhere_loop CASCADE;
DROP EXTENSION citext CASCADE;
DROP SCHEMA dw, app, far CASCADE;
