--
-- Values of every kind arrive as they are, by both readers, and are unchanged when they come again
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE SCHEMA types;
SET search_path = types, public;
SET TimeZone = 'Asia/Kathmandu';
SET DateStyle = 'SQL, DMY';
\set SHOW_CONTEXT never
SET IntervalStyle = 'sql_standard';
SET bytea_output = 'escape';
SET extra_float_digits = 0;
DO $$ BEGIN
    EXECUTE format('CREATE SERVER types_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
END $$;
CREATE USER MAPPING FOR CURRENT_USER SERVER types_loop;

CREATE FUNCTION run(job text, OUT read bigint, OUT ins bigint, OUT upd bigint, OUT same bigint, OUT adds_up boolean)
LANGUAGE sql AS $$
    SELECT r.rows_read, r.rows_inserted, r.rows_updated, r.rows_unchanged,
        r.rows_read = r.rows_inserted + r.rows_updated + r.rows_unchanged + r.rows_superseded + r.rows_suppressed
    FROM incload_run(job) r
$$;
-- rows whose images differ, json and xml included
CREATE FUNCTION differing(one regclass, other regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    IF one::text LIKE '%wide' THEN RETURN NULL; END IF;
    EXECUTE format('SELECT count(*) FROM (SELECT id, a_row FROM %s a_row) a FULL JOIN (SELECT id, b_row FROM %s b_row) b USING (id)'
        ' WHERE a.id IS NULL OR b.id IS NULL OR a_row::text <> b_row::text OR a_row::record *<> b_row::record', one, other) INTO n;
    RETURN n;
END $$;
-- make foreign twins, targets and jobs for a table: the copy reader, the relation reader here, the same through postgres_fdw
CREATE FUNCTION make(src text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE kind text;
BEGIN
    EXECUTE format('IMPORT FOREIGN SCHEMA types LIMIT TO (%I) FROM SERVER types_loop INTO twins OPTIONS (import_generated ''false'')', src);
    FOREACH kind IN ARRAY '{copy,relation,foreign}'::text[] LOOP
        PERFORM incload_create_job(format('types_%s_%s', src, kind),
            CASE kind WHEN 'relation' THEN format('types.%I', src) ELSE format('twins.%I', src) END,
            format('types.%I', src || '_' || kind), 'upsert', 'v', '{id}',
            options => CASE kind WHEN 'foreign' THEN '{"reader": "relation"}'::jsonb END);
    END LOOP;
END $$;
CREATE SCHEMA twins;
CREATE FUNCTION runs(src text) RETURNS TABLE (by text, read bigint, ins bigint, upd bigint, same bigint, adds_up boolean, differing bigint)
LANGUAGE plpgsql AS $$
DECLARE kind text;
BEGIN
    FOREACH kind IN ARRAY '{copy,relation,foreign}'::text[] LOOP
        -- through postgres_fdw ids settle with time: how many come again is not told
        RETURN QUERY SELECT kind, CASE WHEN kind <> 'foreign' THEN r.read END, r.ins, r.upd,
            CASE WHEN kind <> 'foreign' THEN r.same END, r.adds_up, types.differing(format('types.%I', src)::regclass, format('types.%I', src || '_' || kind)::regclass)
        FROM types.run(format('types_%s_%s', src, kind)) r;
    END LOOP;
END $$;

--
-- built-in types, with their extremes
--
CREATE TABLE built_in (
    id int PRIMARY KEY, v int NOT NULL,
    b boolean, i2 smallint, i8 bigint, r real, d double precision, n numeric, n38 numeric(38,10), m money,
    t text, vc varchar(5), c char(5), nm name, ch "char", by bytea, u uuid,
    da date, ti time, ttz timetz, ts timestamp, tz timestamptz, iv interval, ts0 timestamptz(0),
    j json, jb jsonb, jp jsonpath, ine inet, cid cidr, mac macaddr, mac8 macaddr8,
    bi bit(5), vb varbit, pt point, ln line, ls lseg, bo box, pa path, po polygon, ci circle,
    tsv tsvector, tsq tsquery, lsn pg_lsn, x8 xid8, o oid, x xid, tid tid,
    i4r int4range, nr numrange, tzr tstzrange, dmr datemultirange,
    ia int[], ta text[], na numeric[], tza timestamptz[], rc regclass, rt regtype, ov oidvector);
INSERT INTO built_in (id, v) VALUES (1, 1);
INSERT INTO built_in VALUES (2, 2,
    true, -32768, 9223372036854775807, 'NaN', '-Infinity', 'NaN', 1234567890123456789012345678.0123456789, -12.34,
    E'tab\t, newline\n, backslash \\ and \\N, quote '' and "', 'ä€𝄞  ', 'x', 'a name', 'z', '\x00ff5c0a', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
    'infinity', '24:00:00', '23:59:59.999999+15:59', '294276-12-31 23:59:59.999999', '-infinity', '-1 year 2 mons -3 days 04:05:06.000007', '2020-01-01 12:00:00.5+00',
    '{"a": 1.00,  "a": 2}', '{"b": 1.00, "a": [null, "\u00e4"]}', '$.a[*] ? (@ > 1)', '::ffff:1.2.3.4/120', '10.1.0.0/16', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05',
    B'10101', B'', '(1e-300,-0)', '{1,-1,0.1}', '[(0,0),(1,1)]', '(2,2),(1,1)', '[(0,0),(1,1)]', '((0,0),(1,1),(0,1))', '<(0,0),0.1>',
    'fat:1A cat:2', 'fat & !cat', 'FFFFFFFF/FFFFFFFF', '18446744073709551615', 4294967295, '4294967295', '(4294967294,65535)',
    '[1,)', '(,1.50]', '["2020-01-01 00:00:00.000001+00",infinity)', '{[2020-01-01,2020-02-01),[2021-01-01,)}',
    '[-1:0]={1,NULL}', ARRAY['', NULL, 'NULL', '{"}', E'\\'], '{1.0,1.00,NaN}', '{infinity,"2020-01-01 00:00:00.123456+00"}', 'pg_class', 'int[]', '1 2 3');
INSERT INTO built_in VALUES (3, 3,
    false, 32767, -9223372036854775808, '1e-45', 5e-324, 'Infinity', -0.0000000001, '92233720368547758.07',
    '', '', '', '', '', '', '00000000-0000-0000-0000-000000000000',
    '4713-01-01 BC', '00:00', '00:00-15:59', '4713-01-01 00:00:00 BC', '0001-01-01 00:00:00.000001+00', '178000000 years', 'infinity',
    '[]', '[]', '$', '::', '::/0', '00:00:00:00:00:00', '00:00:00:00:00:00:00:00',
    B'00000', B'1', '(Infinity,NaN)', '{0,1,0}', '[(0,0),(0,0)]', '(0,0),(0,0)', '((0,0))', '((0,0))', '<(0,0),0>',
    '', '', '0/0', '0', 0, '0', '(0,0)',
    'empty', '(,)', 'empty', '{}',
    '{}', '{}', '{}', '{}', NULL, 'types.built_in', '');
INSERT INTO built_in (id, v, n, d, r, ia, tz) VALUES
    (4, 4, 1e-20, 0.1 + 0.2::float8, 0.1::real, '{{1,2},{3,4}}', '2020-03-29 01:59:59.999999+01'),
    (5, 5, '-Infinity', '-0', '-0', '[0:1][2:3]={{1,2},{3,NULL}}', '2020-10-25 02:30:00+01');
SELECT make('built_in');
SELECT * FROM runs('built_in');
SELECT * FROM runs('built_in');
-- again from the start: every row is there already, and nothing is written
SELECT count(incload_alter_job(job, watermark => '(v)')) FROM incload.job WHERE job LIKE 'types\_%';
SELECT * FROM runs('built_in');
-- the smallest differences are updates: a trailing zero, a negative zero, a blank in json, a lower bound
UPDATE built_in SET n = 'NaN', n38 = n38, d = '-0', j = '{"a": 1.00, "a": 2}', v = 12 WHERE id = 2;
UPDATE built_in SET d = '0', v = 13 WHERE id = 5;
UPDATE built_in SET n = 1.0e-20::numeric(30,25), v = 14 WHERE id = 4;
UPDATE built_in SET ia = '{NULL}', na = '{NULL,1.0}', v = 15 WHERE id = 3;
SELECT * FROM runs('built_in');
SELECT * FROM runs('built_in') WHERE upd > 0;

--
-- types of one's own
--
CREATE TYPE mood AS ENUM ('sad', 'ok', 'Happy, "really"');
CREATE DOMAIN posint AS int CHECK (VALUE > 0);
CREATE DOMAIN shorttext AS varchar(4) COLLATE "C" DEFAULT 'x' CHECK (VALUE <> 'bad');
CREATE DOMAIN posints AS posint[] CHECK (cardinality(VALUE) < 4);
CREATE TYPE pair AS (a int, b text, c mood);
CREATE TYPE nested AS (p pair, ps pair[], d posint);
CREATE TYPE floatrange AS RANGE (subtype = float8, subtype_diff = float8mi);
CREATE TABLE own (
    id int PRIMARY KEY, v int NOT NULL,
    m mood, ma mood[], di posint, dt shorttext, da posints, p pair, n nested, fr floatrange, fm floatmultirange, row_of built_in);
INSERT INTO own (id, v) VALUES (1, 1);
INSERT INTO own VALUES (2, 2, 'Happy, "really"', '{sad,NULL,ok}', 7, 'abcd', '{1,2}', '(1,"a ""b"", c",sad)', '("(1,,ok)","{""(2,x,)"",NULL}",3)', '[0.1,NaN]', '{[1,2),[3,)}',
        (SELECT whole FROM built_in whole WHERE id = 4)),
    (3, 3, 'sad', '{}', 1, '', '{}', '(,,)', '(,{},)', 'empty', '{}', NULL);
SELECT make('own');
SELECT * FROM runs('own');
SELECT * FROM runs('own');
SELECT count(incload_alter_job(job, watermark => '(v)')) FROM incload.job WHERE job LIKE 'types\_own%';
SELECT * FROM runs('own');
SELECT attname, format_type(atttypid, atttypmod), attcollation::regcollation FROM pg_attribute
WHERE attrelid = 'own_copy'::regclass AND attnum > 0 ORDER BY attnum;

--
-- xml, where the server has it
--
CREATE TABLE markup (id int PRIMARY KEY, v int, x text);
SELECT EXISTS (SELECT FROM pg_config() WHERE name = 'CONFIGURE' AND setting LIKE '%--with-libxml%') AS has_xml \gset
\if :has_xml
ALTER TABLE markup ALTER x TYPE xml USING x::xml;
\endif
INSERT INTO markup VALUES (1, 1, '<a b="ä">x &amp; y</a>'), (2, 2, '<!-- c --><a/>'), (3, 3, '');
SELECT make('markup');
SELECT * FROM runs('markup');
SELECT count(incload_alter_job(job, watermark => '(v)')) FROM incload.job WHERE job LIKE 'types\_markup%';
SELECT * FROM runs('markup');

--
-- generated and identity columns, in the source and in the target
--
CREATE TABLE made (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int, price numeric, gross numeric GENERATED ALWAYS AS (price * 1.19) STORED,
    num int GENERATED BY DEFAULT AS IDENTITY);
INSERT INTO made (v, price) VALUES (1, 100), (2, 0.01);
INSERT INTO made (v, price, num) VALUES (3, NULL, 100);
SELECT make('made');
SELECT * FROM runs('made');
SELECT attname, attidentity, attgenerated FROM pg_attribute WHERE attrelid = 'made_copy'::regclass AND attnum > 0 ORDER BY attnum;
TABLE made_copy ORDER BY id;
-- a target that generates its key ALWAYS, computes a column itself, and has an identity of its own
CREATE TABLE made_t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int, price numeric, gross numeric GENERATED ALWAYS AS (price * 2) STORED,
    num int GENERATED BY DEFAULT AS IDENTITY, own int GENERATED ALWAYS AS IDENTITY (START 1000));
SELECT strategy FROM incload_create_job('types_made_t', 'twins.made', 'made_t', 'upsert', 'v');
SELECT * FROM run('types_made_t');
TABLE made_t ORDER BY id;
UPDATE made SET price = 50, v = 11 WHERE id = 1;
SELECT * FROM run('types_made_t');
TABLE made_t ORDER BY id;
SELECT strategy FROM incload_alter_job('types_made_t', watermark => '(v)');
SELECT * FROM run('types_made_t');
-- the same with append, without a key
CREATE TABLE made_a (id int GENERATED ALWAYS AS IDENTITY, v int, price numeric, gross numeric GENERATED ALWAYS AS (price * 2) STORED,
    num int GENERATED ALWAYS AS IDENTITY);
SELECT strategy FROM incload_create_job('types_made_a', 'made', 'made_a', 'append', 'v', options => '{"exclude": ["gross"]}');
SELECT strategy, key FROM incload_alter_job('types_made_a', key => '{}');
SELECT * FROM run('types_made_a');
TABLE made_a ORDER BY id;

--
-- from one type into another: as an assignment would, and never cut to fit
--
CREATE TABLE wide (id int PRIMARY KEY, v int, a int, b text, c numeric, d timestamptz, e date, f varchar(10), g int);
INSERT INTO wide VALUES (1, 1, 1, '2020-01-01', 1.5, '2020-01-01 12:00:00.6+00', '2020-01-02', '7', 8);
CREATE TABLE wide_copy (id bigint PRIMARY KEY, v numeric, a text, b text, c float8, d timestamptz(0), e timestamp, f char(12), g bigint);
CREATE TABLE wide_relation (LIKE wide_copy INCLUDING ALL);
CREATE TABLE wide_foreign (LIKE wide_copy INCLUDING ALL);
SELECT make('wide');
SELECT by, read, ins, upd, same, adds_up FROM runs('wide');
SET DateStyle = 'ISO, YMD';
SET TimeZone = 'UTC';
TABLE wide_copy;
(TABLE wide_relation EXCEPT TABLE wide_copy) UNION ALL (TABLE wide_foreign EXCEPT TABLE wide_copy);
SELECT count(incload_alter_job(job, watermark => '(v)')) FROM incload.job WHERE job LIKE 'types\_wide%';
SELECT by, read, ins, upd, same, adds_up FROM runs('wide');

-- clean up
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'types\_%';
DROP SERVER types_loop CASCADE;
DROP SCHEMA types, twins CASCADE;
