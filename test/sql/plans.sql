--
-- How the staged rows find theirs in the target: probes of the key's index, or
-- as the planner will; what incload_explain says of it, and what a run does
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
RESET client_min_messages;
CREATE SCHEMA plans;
SET search_path = plans, public;

-- sources of 100 and of 3000 rows; their ids lie all over those of the target
CREATE TABLE few (id int PRIMARY KEY, v bigint NOT NULL, name text);
INSERT INTO few SELECT n * 100, n, 'few ' || n FROM generate_series(1, 100) n;
CREATE TABLE many (id int PRIMARY KEY, v bigint NOT NULL, name text);
INSERT INTO many SELECT n * 3, n, 'many ' || n FROM generate_series(1, 3000) n;
ANALYZE few, many;
CREATE TABLE target (id int PRIMARY KEY, v bigint NOT NULL, name text);
INSERT INTO target SELECT n, 0, 'old ' || n FROM generate_series(1, 10000) n ORDER BY md5(n::text);
ANALYZE target;

-- why, and the nodes of the plan without what they cost; of a target of more than
-- 9999 rows, how large it is known to be depends on when it was analyzed
CREATE FUNCTION chosen(job text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT CASE WHEN n = 1 THEN regexp_replace(line, 'about \d{5} ', 'about N ') ELSE substring(line FROM '^( *(?:-> +)?\S[^(]*?)  \(cost') END
    FROM incload_explain(job), regexp_split_to_table(plan, '\n') WITH ORDINALITY AS l(line, n)
    WHERE what LIKE 'apply%' AND (n = 1 OR line ~ '\(cost' AND line !~ 'Sort|Subquery Scan')
    ORDER BY n
$$;
-- what a run reads of a table: all of it, or single rows
CREATE FUNCTION reads(job text, relation regclass, OUT rows_read bigint, OUT updated bigint, OUT all_rows boolean, OUT probes bigint)
LANGUAGE plpgsql AS $$
DECLARE
    seq_before bigint;
    idx_before bigint;
BEGIN
    SELECT seq_tup_read, idx_scan INTO seq_before, idx_before FROM pg_stat_xact_user_tables WHERE relid = relation;
    SELECT r.rows_read, r.rows_updated INTO rows_read, updated FROM incload_run(job) r;
    SELECT seq_tup_read - seq_before > 100, idx_scan - idx_before INTO all_rows, probes
    FROM pg_stat_xact_user_tables WHERE relid = relation;
END $$;

--
-- by the share of rows
--
SELECT job FROM incload_create_job('plans_few', 'few', 'target', 'upsert', 'v', '{id}');
SELECT job FROM incload_create_job('plans_many', 'many', 'target', 'upsert', 'v', '{id}');
SELECT * FROM chosen('plans_few');
SELECT * FROM chosen('plans_many');
SELECT * FROM reads('plans_few', 'target');
SELECT * FROM reads('plans_many', 'target');
-- whatever the session prefers
UPDATE few SET v = v + 100, name = 'again';
SET enable_nestloop = off;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SELECT * FROM reads('plans_few', 'target');
RESET enable_nestloop;
RESET enable_indexscan;
RESET enable_bitmapscan;
-- append looks up keys, too
SELECT job FROM incload_create_job('plans_append', 'few', 'target', 'append', 'v', '{id}');
SELECT * FROM chosen('plans_append');

--
-- a target that lies in the order of its key is probed further
--
CREATE TABLE ordered (LIKE target INCLUDING ALL);
INSERT INTO ordered SELECT n, 0, 'old ' || n FROM generate_series(1, 5000) n;
ANALYZE ordered;
SELECT job FROM incload_create_job('plans_ordered', 'many', 'ordered', 'upsert', 'v', '{id}');
SELECT * FROM chosen('plans_ordered') LIMIT 1;
SELECT * FROM reads('plans_ordered', 'ordered');

--
-- rows beyond all that the target has are looked up, however many they are
--
INSERT INTO many SELECT 10000 + n, 3000 + n, 'new ' || n FROM generate_series(1, 5000) n;
SELECT * FROM reads('plans_many', 'target');
-- an empty one has none
CREATE TABLE empty (LIKE target INCLUDING ALL);
CREATE TABLE refers (id int REFERENCES empty);
SELECT job FROM incload_create_job('plans_empty', 'many', 'empty', 'append', 'v', '{id}');
SELECT * FROM reads('plans_empty', 'empty');

--
-- a target that was never analyzed is as large as its file
--
CREATE TABLE unknown (id int PRIMARY KEY, v bigint NOT NULL, name text) WITH (autovacuum_enabled = off);
INSERT INTO unknown SELECT n, 0, 'old ' || n FROM generate_series(1, 10000) n;
SELECT reltuples FROM pg_class WHERE oid = 'unknown'::regclass;
SELECT job FROM incload_create_job('plans_unknown', 'few', 'unknown', 'upsert', 'v', '{id}');
SELECT regexp_replace(line, 'about \d+ ', 'about N ') FROM chosen('plans_unknown') line;
SELECT * FROM reads('plans_unknown', 'unknown');

--
-- partitions are added up; of each row, one is looked into
--
CREATE TABLE parted (id int PRIMARY KEY, v bigint NOT NULL, name text) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (5001);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (5001) TO (100000);
INSERT INTO parted TABLE target;
DELETE FROM parted WHERE id > 10000;
VACUUM (ANALYZE) parted;
SELECT job FROM incload_create_job('plans_parted', 'few', 'parted', 'upsert', 'v', '{id}');
SELECT * FROM chosen('plans_parted');
SELECT * FROM reads('plans_parted', 'parted_2');

--
-- keys of several columns, and such as no index can answer for
--
CREATE TABLE pairs (a int, b text, v bigint NOT NULL);
INSERT INTO pairs SELECT n, 'b' || n, n FROM generate_series(1, 100) n;
ANALYZE pairs;
CREATE TABLE pairs_target (a int, b text, v bigint NOT NULL, PRIMARY KEY (b, a));
INSERT INTO pairs_target SELECT n, 'b' || n, 0 FROM generate_series(1, 2000) n;
ANALYZE pairs_target;
SELECT job FROM incload_create_job('plans_pairs', 'pairs', 'pairs_target', 'upsert', 'v', '{a,b}');
SELECT * FROM chosen('plans_pairs');
ALTER TABLE pairs_target DROP CONSTRAINT pairs_target_pkey;
CREATE INDEX ON pairs_target (a);
CREATE UNIQUE INDEX ON pairs_target (a, b) WHERE v >= 0;
SELECT * FROM chosen('plans_pairs') LIMIT 1;
-- a unique index on some of the key's columns will do
CREATE UNIQUE INDEX ON pairs_target (b);
SELECT * FROM chosen('plans_pairs') LIMIT 1;

-- row security goes first, and numeric's equality may not: the index is of no use
CREATE ROLE regress_plans_owner;
GRANT USAGE, CREATE ON SCHEMA plans TO regress_plans_owner;
CREATE TABLE nums (id numeric PRIMARY KEY, v bigint NOT NULL);
INSERT INTO nums SELECT n, n FROM generate_series(1, 100) n;
ANALYZE nums;
GRANT SELECT ON nums TO regress_plans_owner;
CREATE TABLE nums_target (id numeric PRIMARY KEY, v bigint NOT NULL);
INSERT INTO nums_target SELECT n, 0 FROM generate_series(1, 2000) n;
ANALYZE nums_target;
GRANT SELECT, INSERT, UPDATE ON nums_target TO regress_plans_owner;
CREATE FUNCTION may_see(bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN true; END $$;
CREATE POLICY seen ON nums_target USING (may_see(v));
SET ROLE regress_plans_owner;
SELECT job FROM incload_create_job('plans_nums', 'plans.nums', 'plans.nums_target', 'upsert', 'v', '{id}');
SELECT * FROM chosen('plans_nums') LIMIT 1;
RESET ROLE;
ALTER TABLE nums_target ENABLE ROW LEVEL SECURITY;
SELECT * FROM chosen('plans_nums') LIMIT 1;
SELECT rows_read, rows_updated FROM incload_run('plans_nums');

--
-- the planner is led for incload's statement alone: not for what a trigger runs
-- inside it, and not for what comes after it, or after its error
--
CREATE TABLE settings (name text, setting text);
CREATE FUNCTION note_settings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO plans.settings
    SELECT s.name, s.setting FROM pg_settings s WHERE s.name IN ('enable_hashjoin', 'enable_mergejoin', 'jit');
    IF NEW.name = 'bad' THEN
        RAISE 'a bad row';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER note_settings BEFORE INSERT OR UPDATE ON target FOR EACH ROW EXECUTE FUNCTION note_settings();
SET jit = on;
INSERT INTO few VALUES (20000, 1000, 'good');
SELECT rows_read, rows_inserted FROM incload_run('plans_few');
SELECT DISTINCT * FROM settings ORDER BY 1;
INSERT INTO few VALUES (20001, 1001, 'bad');
DO $$
BEGIN
    PERFORM incload_run('plans_few');
EXCEPTION WHEN raise_exception THEN
    RAISE INFO '%', SQLERRM;
END $$;
SELECT name, setting FROM pg_settings WHERE name IN ('enable_hashjoin', 'enable_mergejoin', 'jit') ORDER BY 1;
RESET jit;

SET client_min_messages = warning;
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'plans\_%';
DROP SCHEMA plans CASCADE;
DROP OWNED BY regress_plans_owner;
DROP ROLE regress_plans_owner;
