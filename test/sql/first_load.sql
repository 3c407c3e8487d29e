--
-- First loads into an empty target, and full refreshes by swap: into a new heap, or why not
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
RESET client_min_messages;
CREATE SCHEMA first_load;
SET search_path = first_load, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never

-- a run in one line: what explain had said of it, and whether the target's file is another one
CREATE FUNCTION run(name text, refresh boolean DEFAULT false, OUT said text, OUT new_file boolean, OUT read bigint,
    OUT ins bigint, OUT upd bigint, OUT same bigint, OUT superseded bigint, OUT suppressed bigint, OUT pruned bigint,
    OUT batches int, OUT adds_up boolean)
LANGUAGE plpgsql AS $$
DECLARE
    target regclass := (SELECT j.target FROM incload.job j WHERE j.job = name)::regclass;
    old_file oid := pg_relation_filenode(target);
    r incload.run;
BEGIN
    SELECT string_agg(what, ', ' ORDER BY step) INTO said FROM incload_explain(name) WHERE side = 'target' AND what <> 'read';
    IF refresh THEN r := incload_refresh(name); ELSE r := incload_run(name); END IF;
    SELECT pg_relation_filenode(target) <> old_file, r.rows_read, r.rows_inserted, r.rows_updated, r.rows_unchanged,
        r.rows_superseded, r.rows_suppressed, r.rows_pruned, r.batches,
        r.rows_read = r.rows_inserted + r.rows_updated + r.rows_unchanged + r.rows_deleted + r.rows_superseded
            + r.rows_suppressed + r.rows_rejected AND r.rows_deleted = 0 AND r.rows_rejected = 0
    INTO new_file, read, ins, upd, same, superseded, suppressed, pruned, batches, adds_up;
END $$;

-- both tables have the same rows
CREATE FUNCTION differ(a regclass, b regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM ((TABLE %1$s EXCEPT ALL TABLE %2$s) UNION ALL (TABLE %2$s EXCEPT ALL TABLE %1$s)) d', a, b) INTO n;
    RETURN n;
END $$;

CREATE TABLE src (id int PRIMARY KEY, v int NOT NULL, name text, doc jsonb, big text);
-- values of every length: inline, compressed, and out of line
INSERT INTO src SELECT g, g, 'name ' || g, jsonb_build_object('g', g),
    CASE g % 3 WHEN 0 THEN (SELECT string_agg(md5((g * i)::text), '') FROM generate_series(1, 300) i) WHEN 1 THEN repeat('x', 5000) END
FROM generate_series(1, 2500) g;

--
-- a first load: the table stays what it was but for its rows
--
CREATE TABLE dst (gone int, big text, id int NOT NULL, doc jsonb, v int, name text COLLATE "C",
    made timestamptz DEFAULT now(), n serial, u text DEFAULT 'here',
    twice int GENERATED ALWAYS AS (v * 2) STORED, upper_name text GENERATED ALWAYS AS (upper(name)) STORED,
    CONSTRAINT dst_v CHECK (v > 0), CONSTRAINT dst_twice CHECK (twice > 0 AND tableoid <> 0));
ALTER TABLE dst DROP COLUMN gone;
ALTER TABLE dst ALTER doc SET STORAGE EXTERNAL, ALTER big SET COMPRESSION pglz;
ALTER TABLE dst SET (fillfactor = 60, autovacuum_enabled = false);
ALTER TABLE dst ADD PRIMARY KEY (id);
CREATE INDEX dst_name ON dst (lower(name)) WHERE v > 10;
CREATE INDEX dst_doc ON dst USING gin (doc);
CREATE UNIQUE INDEX dst_v_key ON dst (v) INCLUDE (id);
CLUSTER dst USING dst_pkey;
ALTER TABLE dst REPLICA IDENTITY USING INDEX dst_pkey;
CREATE STATISTICS dst_stats ON v, name FROM dst;
CREATE VIEW on_dst AS SELECT id, twice FROM dst;
CREATE ROLE first_load_reader;
GRANT SELECT ON dst TO first_load_reader;
COMMENT ON TABLE dst IS 'what is said of it';
COMMENT ON COLUMN dst.v IS 'and of this';
CREATE TABLE kept AS SELECT c.oid, c.relacl, c.relreplident, c.reloptions, c.relkind, c.relowner, c.relnatts
    FROM pg_class c WHERE oid = 'dst'::regclass;
CREATE TABLE kept_indexes AS SELECT indexrelid, indisclustered, indisreplident, indisvalid, indisprimary, pg_get_indexdef(indexrelid) AS def
    FROM pg_index WHERE indrelid = 'dst'::regclass;

SELECT strategy, key FROM incload_create_job('fl', 'src', 'dst', 'upsert', 'v');
SELECT what, sql, plan FROM incload_explain('fl') WHERE step = 2;
SELECT * FROM run('fl');
CREATE VIEW dst_as_src AS SELECT id, v, name, doc, big FROM dst;
SELECT differ('src', 'dst_as_src');
SELECT count(*), min(n), max(n), count(DISTINCT n), count(*) FILTER (WHERE twice = v * 2 AND upper_name = upper(name)) AS generated,
    count(DISTINCT made), min(u) FROM dst;
-- the indexes are there, and right
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM dst WHERE lower(name) = 'name 77' AND v > 10;
SELECT id FROM dst WHERE lower(name) = 'name 77' AND v > 10;
SELECT id FROM dst WHERE id = 2500;
SELECT count(*) FROM dst WHERE doc @> '{"g": 1234}';
RESET enable_seqscan;
-- and all that is said about it
SELECT * FROM kept EXCEPT SELECT c.oid, c.relacl, c.relreplident, c.reloptions, c.relkind, c.relowner, c.relnatts FROM pg_class c WHERE relname = 'dst';
SELECT * FROM kept_indexes EXCEPT SELECT indexrelid, indisclustered, indisreplident, indisvalid, indisprimary, pg_get_indexdef(indexrelid)
    FROM pg_index WHERE indrelid = 'dst'::regclass;
SELECT obj_description('dst'::regclass), col_description('dst'::regclass, 5), has_table_privilege('first_load_reader', 'dst', 'SELECT'),
    (SELECT count(*) FROM pg_statistic_ext WHERE stxrelid = 'dst'::regclass), (SELECT sum(twice) FROM on_dst);
SELECT attname, attstorage, attcompression FROM pg_attribute WHERE attrelid = 'dst'::regclass AND attname IN ('doc', 'big') ORDER BY 1;
-- out of line, in a toast table that bears the table's name, and nothing is left of the table of the moment
SELECT relname = 'pg_toast_' || 'dst'::regclass::oid AS named, relrewrite, pg_relation_size(oid) > 0 AS filled
    FROM pg_class WHERE oid = (SELECT reltoastrelid FROM pg_class WHERE oid = 'dst'::regclass);
SELECT count(*) FROM pg_class WHERE relname LIKE 'pg\_temp\_%';
-- autovacuum knows that there is something to analyze
SELECT pg_stat_force_next_flush();
SELECT n_tup_ins, n_live_tup, n_dead_tup, n_mod_since_analyze FROM pg_stat_user_tables WHERE relid = 'dst'::regclass;
-- from then on it is as ever
UPDATE src SET name = 'changed', v = 2501 WHERE id = 1;
SELECT * FROM run('fl');
SELECT differ('src', 'dst_as_src');

--
-- without a key, with one that is not an index, in batches, and when asked not to
--
CREATE TABLE log (n bigint GENERATED ALWAYS AS IDENTITY, w text);
INSERT INTO log (w) SELECT 'w' || g % 7 FROM generate_series(1, 1500) g;
CREATE TABLE log_copy (LIKE log);
SELECT strategy FROM incload_create_job('fl_log', 'log', 'log_copy', 'append', 'n', '{}');
SELECT * FROM run('fl_log');
INSERT INTO log (w) VALUES ('last');
SELECT * FROM run('fl_log');
SELECT differ('log', 'log_copy');
CREATE TABLE bare (LIKE src);
SELECT strategy FROM incload_create_job('fl_bare', 'src', 'bare', 'upsert', 'v', '{id}', options => '{"batch_rows": 1000, "first_load": "direct"}');
CALL incload_run_in_batches('fl_bare');
SELECT differ('src', 'bare');
-- whoever says how large his batches are gets them, and in a run that has none it is as ever
CREATE TABLE in_batches (LIKE src INCLUDING ALL);
SELECT strategy FROM incload_create_job('fl_batches', 'src', 'in_batches', 'upsert', 'v', '{id}', options => '{"batch_rows": 1000}');
BEGIN;
SELECT said, new_file, ins, batches FROM run('fl_batches');
ROLLBACK;
CALL incload_run_in_batches('fl_batches');
SELECT differ('src', 'in_batches');
TRUNCATE in_batches;
SELECT incload_drop_job('fl_batches');
SELECT strategy FROM incload_create_job('fl_batches', 'src', 'in_batches', 'upsert', 'v', '{id}', options => '{"first_load": "batches"}');
SELECT said, new_file, ins, batches FROM run('fl_batches');
-- nothing to load: nothing happens to the file
CREATE TABLE nothing (LIKE src INCLUDING ALL);
SELECT strategy FROM incload_create_job('fl_nothing', 'src', 'nothing', 'upsert', 'v', options => '{"filter": "id < 0"}');
SELECT * FROM run('fl_nothing');
SELECT job FROM incload_alter_job('fl_nothing', options => '{"filter": null}');
SELECT * FROM run('fl_nothing');
-- rows that are dead to everybody are none
CREATE TABLE emptied (LIKE src INCLUDING ALL);
INSERT INTO emptied SELECT * FROM src LIMIT 10;
DELETE FROM emptied;
SELECT strategy FROM incload_create_job('fl_emptied', 'src', 'emptied', 'upsert', 'v');
-- (this very transaction may still be asked for them)
BEGIN;
INSERT INTO emptied SELECT * FROM src LIMIT 10;
DELETE FROM emptied;
SELECT * FROM run('fl_emptied');
ROLLBACK;
VACUUM emptied;
SELECT * FROM run('fl_emptied');

--
-- what does not fit fails as with INSERT, and leaves nothing
--
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN filled AS text NOT NULL;
CREATE TABLE bad (id int PRIMARY KEY, v int CHECK (v < 2400), name text, doc jsonb, big text);
SELECT strategy FROM incload_create_job('fl_bad', 'src', 'bad', 'upsert', 'v');
CREATE FUNCTION try(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE state text; message text; detail text; hint text;
BEGIN
    PERFORM incload_run(name);
    RETURN 'it works';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(' | ', state, message, left(detail, 60), left(hint, 22));
END $$;
SELECT try('fl_bad');
ALTER TABLE bad DROP CONSTRAINT bad_v_check, ALTER big SET NOT NULL;
SELECT try('fl_bad');
ALTER TABLE bad ALTER big DROP NOT NULL, ALTER v TYPE positive;
UPDATE src SET v = -1 WHERE id = 2000;
SELECT try('fl_bad');
UPDATE src SET v = 2000 WHERE id = 2000;
ALTER TABLE bad ALTER v TYPE int, ADD extra filled;
SELECT try('fl_bad');
ALTER TABLE bad DROP extra, ALTER name TYPE varchar(8);
SELECT try('fl_bad');
ALTER TABLE bad ALTER name TYPE text;
-- (one value comes twice)
CREATE UNIQUE INDEX ON bad ((v % 2499));
SELECT try('fl_bad');
DROP INDEX bad_expr_idx;
ALTER TABLE bad ADD CONSTRAINT bad_excl EXCLUDE ((v % 2100) WITH =);
SELECT try('fl_bad');
ALTER TABLE bad DROP CONSTRAINT bad_excl;
ALTER TABLE bad ADD half int GENERATED ALWAYS AS (1000 / (v - 2300)) STORED;
SELECT try('fl_bad');
SELECT count(*), pg_relation_size('bad') FROM bad;
SELECT count(*) FROM pg_class WHERE relname LIKE 'pg\_temp\_%';
SELECT bound IS NULL AND loaded_to IS NULL AND seen IS NULL AS untouched FROM incload.checkpoint WHERE job = 'fl_bad';
ALTER TABLE bad DROP half;
SELECT said, new_file, ins FROM run('fl_bad');
-- identity, and its values
CREATE TABLE idents (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int, nr bigint GENERATED BY DEFAULT AS IDENTITY (START 100), d positive DEFAULT 7);
SELECT strategy FROM incload_create_job('fl_idents', 'src', 'idents', 'upsert', 'v', options => '{"columns": ["id", "v"]}');
SELECT said, new_file, ins FROM run('fl_idents');
SELECT count(*) FILTER (WHERE i.id = s.id AND i.v = s.v), min(nr), max(nr), min(d) FROM idents i JOIN src s USING (id);
-- the planner knows the size
SELECT reltuples, relpages > 0 AS has_pages FROM pg_class WHERE oid = 'idents'::regclass;

--
-- transactions: rolled back, in a savepoint, with a cursor of this session on the target
--
CREATE TABLE trans (LIKE src INCLUDING ALL);
SELECT strategy FROM incload_create_job('fl_trans', 'src', 'trans', 'upsert', 'v');
CREATE TABLE old_file AS SELECT pg_relation_filenode('trans') AS file;
BEGIN;
SELECT said, new_file, ins FROM run('fl_trans');
SELECT count(*) FROM trans;
ROLLBACK;
SELECT count(*), (SELECT file FROM old_file) = pg_relation_filenode('trans') AS old_file FROM trans;
BEGIN;
SAVEPOINT s;
SELECT said, new_file, ins FROM run('fl_trans');
ROLLBACK TO s;
SELECT count(*) FROM trans;
SELECT said, new_file, ins FROM run('fl_trans');
RELEASE s;
SELECT count(*), max(id) FROM trans;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM trans;
FETCH c;
SELECT said, new_file, ins FROM run('fl_trans');
FETCH c;
SELECT count(*) FROM trans;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM trans;
SELECT said, new_file, ins FROM run('fl_trans');
SELECT count(*) FROM trans;
ROLLBACK;
-- made, loaded and looked at in one transaction
BEGIN;
CREATE TABLE fresh (LIKE src INCLUDING ALL);
SELECT strategy FROM incload_create_job('fl_fresh', 'src', 'fresh', 'upsert', 'v');
SAVEPOINT s;
SELECT said, new_file, ins FROM run('fl_fresh');
UPDATE src SET name = 'again', v = 3000 WHERE id = 3;
SELECT said, new_file, ins, upd FROM run('fl_fresh');
COMMIT;
SELECT differ('src', 'fresh');
-- SQL of the run that writes into the target meanwhile
CREATE FUNCTION meddle(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN IF i = 2000 THEN INSERT INTO trans VALUES (-1, 1); END IF; RETURN i; END $$;
SELECT job FROM incload_alter_job('fl_trans', options => '{"transforms": {"name": "first_load.meddle(id)::text"}}');
SELECT try('fl_trans');
CREATE OR REPLACE FUNCTION meddle(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN IF i = 2000 THEN ALTER TABLE trans ADD another int; END IF; RETURN i; END $$;
SELECT try('fl_trans');
SELECT count(*) FROM trans;
-- but before, it may
SELECT job FROM incload_alter_job('fl_trans', options => '{"transforms": null, "pre_sql": "INSERT INTO first_load.trans VALUES (-1, 1)"}');
SELECT said, new_file, ins FROM run('fl_trans');
SELECT count(*), min(id) FROM trans;
SELECT incload_drop_job('fl_trans');
SELECT strategy FROM incload_create_job('fl_trans', 'src', 'trans', 'upsert', 'v', options => '{"pre_sql": "TRUNCATE first_load.trans"}');
SELECT said, new_file, ins FROM run('fl_trans');

--
-- what keeps a table from a new heap
--
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TABLE other (id int PRIMARY KEY);
INSERT INTO other SELECT id FROM src;
CREATE TABLE way (LIKE src INCLUDING ALL);
SELECT strategy FROM incload_create_job('fl_way', 'src', 'way', 'upsert', 'v');
-- with the table as it is after a change, which is undone
CREATE FUNCTION after(change text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    r record;
    swap text := 'it can be swapped';
BEGIN
    EXECUTE change;
    SELECT * INTO r FROM run('fl_way');
    BEGIN
        PERFORM incload_alter_job('fl_way', options => '{"full_refresh_mode": "swap"}');
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
        GET STACKED DIAGNOSTICS swap = PG_EXCEPTION_DETAIL;
    END;
    RAISE SQLSTATE 'ZZ001' USING MESSAGE = concat_ws(' | ', r.said, r.new_file, r.ins, r.adds_up, swap);
EXCEPTION WHEN SQLSTATE 'ZZ001' THEN
    RETURN SQLERRM;
END $$;
SET client_min_messages = error;
SELECT change, after(change) FROM unnest(ARRAY[
    'SELECT 1',
    'INSERT INTO way VALUES (-1, 1)',
    'CREATE TRIGGER t BEFORE INSERT ON way FOR EACH ROW EXECUTE FUNCTION nothing()',
    'CREATE TRIGGER t AFTER INSERT ON way REFERENCING NEW TABLE AS n EXECUTE FUNCTION nothing()',
    'ALTER TABLE way ADD FOREIGN KEY (id) REFERENCES other',
    'CREATE TABLE refers (id int REFERENCES way)',
    'CREATE TABLE child () INHERITS (way)',
    'CREATE TABLE parent (LIKE src); ALTER TABLE way INHERIT parent',
    'CREATE TABLE whole (LIKE src) PARTITION BY RANGE (id); ALTER TABLE whole ATTACH PARTITION way DEFAULT',
    'CREATE PUBLICATION p FOR TABLE way',
    'CREATE PUBLICATION p FOR ALL TABLES',
    'CREATE PUBLICATION p FOR TABLES IN SCHEMA first_load',
    'ALTER TABLE way ADD UNIQUE (name) DEFERRABLE',
    'UPDATE pg_index SET indisvalid = false WHERE indexrelid = $$way_pkey$$::regclass',
    'ALTER TABLE way ADD r float DEFAULT random()',
    'ALTER TABLE way ENABLE ROW LEVEL SECURITY'
]) AS c(change);
RESET client_min_messages;
CREATE TABLE parted (LIKE src, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE parted_all PARTITION OF parted DEFAULT;
SELECT strategy FROM incload_create_job('fl_parted', 'src', 'parted', 'upsert', 'v');
SELECT what FROM incload_explain('fl_parted');
SELECT rows_inserted FROM incload_run('fl_parted');
-- a source that nobody knows to have each key once
CREATE VIEW view_of_src AS SELECT * FROM src UNION ALL SELECT id, 2600, 'newer', NULL, NULL FROM src WHERE id = 7;
CREATE TABLE versions (LIKE src INCLUDING ALL);
SELECT strategy FROM incload_create_job('fl_versions', 'view_of_src', 'versions', 'upsert', 'v');
SELECT * FROM run('fl_versions');
SELECT id, v, name FROM versions WHERE id = 7;
-- rights: the table's owner, the right to INSERT alone, and row security that holds for him
CREATE ROLE first_load_owner;
CREATE ROLE first_load_other;
GRANT USAGE, CREATE ON SCHEMA first_load TO first_load_owner, first_load_other;
GRANT SELECT ON src TO first_load_owner, first_load_other;
GRANT SELECT ON incload.job TO first_load_owner, first_load_other;
SET ROLE first_load_owner;
CREATE TABLE owned (LIKE src INCLUDING ALL);
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON owned TO first_load_other;
SELECT strategy FROM incload_create_job('fl_owner', 'src', 'owned', 'upsert', 'v');
SET ROLE first_load_other;
SELECT strategy FROM incload_create_job('fl_other', 'src', 'owned', 'upsert', 'v');
RESET ROLE;
BEGIN;
SELECT said, new_file, ins FROM run('fl_other');
ROLLBACK;
SELECT incload_alter_job('fl_other', options => '{"full_refresh_mode": "swap"}');
BEGIN;
ALTER TABLE owned ENABLE ROW LEVEL SECURITY;
SELECT said, new_file, ins FROM run('fl_owner');
ROLLBACK;
BEGIN;
ALTER TABLE owned ENABLE ROW LEVEL SECURITY;
ALTER TABLE owned FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON owned USING (true);
SELECT said, new_file, ins FROM run('fl_owner');
ROLLBACK;
BEGIN;
REVOKE INSERT ON owned FROM first_load_owner;
SELECT try('fl_owner');
ROLLBACK;
SELECT said, new_file, ins FROM run('fl_owner');

--
-- a full refresh by swap
--
CREATE TABLE whole (LIKE src INCLUDING ALL);
CREATE VIEW on_whole AS SELECT count(*), sum(v) FROM whole;
INSERT INTO whole SELECT g, g FROM generate_series(-10, -1) g;
SELECT strategy, options FROM incload_create_job('fl_swap', 'src', 'whole', 'full', options => '{"full_refresh_mode": "swap"}');
SELECT what, sql, plan FROM incload_explain('fl_swap') WHERE step = 2;
SELECT * FROM incload_check('fl_swap') WHERE code LIKE '%swap%';
SELECT * FROM run('fl_swap');
SELECT differ('src', 'whole'), * FROM on_whole;
DELETE FROM src WHERE id > 2490;
SELECT * FROM run('fl_swap');
SELECT differ('src', 'whole'), * FROM on_whole;
CALL incload_run_in_batches('fl_swap');
SELECT differ('src', 'whole'), * FROM on_whole;
BEGIN;
SELECT said, new_file, ins, pruned FROM run('fl_swap');
SELECT * FROM on_whole;
ROLLBACK;
SELECT differ('src', 'whole'), * FROM on_whole;
-- to nothing, and from nothing
SELECT job FROM incload_alter_job('fl_swap', options => '{"filter": "false", "max_delete_fraction": 1}');
SELECT * FROM run('fl_swap');
SELECT * FROM on_whole;
SELECT job FROM incload_alter_job('fl_swap', options => '{"filter": null}');
SELECT * FROM run('fl_swap');
SELECT differ('src', 'whole');
-- what the rows break leaves the old ones
ALTER TABLE whole ADD CHECK (v <> 1000) NOT VALID;
SELECT try('fl_swap');
SELECT differ('src', 'whole');
ALTER TABLE whole DROP CONSTRAINT whole_v_check;
-- keys that come twice
CREATE TABLE newest (LIKE src INCLUDING ALL);
SELECT strategy FROM incload_create_job('fl_newest', 'view_of_src', 'newest', 'upsert', 'v', '{id}', options => '{"full_refresh_mode": "swap"}');
SELECT new_file, read, ins, superseded, pruned, adds_up FROM run('fl_newest', refresh => true);
SELECT new_file, read, ins, superseded, pruned, adds_up FROM run('fl_newest', refresh => true);
SELECT count(*), count(*) FILTER (WHERE name = 'newer' AND id = 7) FROM newest;
SELECT said, new_file, ins, same FROM run('fl_newest');
-- without a key
CREATE TABLE keyless (LIKE src);
SELECT strategy FROM incload_create_job('fl_keyless', 'src', 'keyless', 'full', key => '{}', options => '{"full_refresh_mode": "swap"}');
SELECT * FROM run('fl_keyless');
SELECT * FROM run('fl_keyless');
SELECT differ('src', 'keyless');
-- an UNLOGGED table stays one
CREATE UNLOGGED TABLE unlogged (LIKE src INCLUDING ALL);
SELECT strategy FROM incload_create_job('fl_unlogged', 'src', 'unlogged', 'full', options => '{"full_refresh_mode": "swap"}');
SELECT said, new_file, ins, pruned FROM run('fl_unlogged');
SELECT said, new_file, ins, pruned FROM run('fl_unlogged');
SELECT relpersistence FROM pg_class WHERE relname IN ('unlogged', 'unlogged_pkey');
-- what came in between is said by explain and check, and by the run
CREATE TRIGGER t BEFORE UPDATE ON whole FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT what FROM incload_explain('fl_swap');
SELECT severity, code, message, sql FROM incload_check('fl_swap') WHERE code = 'swap_impossible';
SELECT try('fl_swap');
DROP TRIGGER t ON whole;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM whole;
SELECT incload_run('fl_swap');
ROLLBACK;
SELECT incload_create_job('fl_refused', 'src', 'refused_swap', 'full', options => '{"full_refresh_mode": "swop"}');
SELECT incload_create_job('fl_refused', 'src', 'parted', 'full', options => '{"full_refresh_mode": "swap"}');
-- a first load of a job that is refreshed otherwise
CREATE TABLE merged (LIKE src INCLUDING ALL);
SELECT strategy FROM incload_create_job('fl_merged', 'src', 'merged', 'full');
SELECT said, new_file, ins, pruned FROM run('fl_merged');
DELETE FROM src WHERE id = 1;
SELECT said, new_file, ins, same, pruned FROM run('fl_merged');

SET client_min_messages = warning;
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'fl\_%';
DROP SCHEMA first_load CASCADE;
REVOKE ALL ON incload.job FROM first_load_owner, first_load_other;
DROP ROLE first_load_reader, first_load_owner, first_load_other;
