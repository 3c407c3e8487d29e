--
-- Targets: partitions, triggers, generated columns, defaults, constraints, row security
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE SCHEMA targets;
SET search_path = targets, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never

CREATE FUNCTION run(job text, OUT read bigint, OUT ins bigint, OUT upd bigint, OUT same bigint, OUT superseded bigint,
    OUT suppressed bigint, OUT pruned bigint, OUT batches int, OUT adds_up boolean)
LANGUAGE sql AS $$
    SELECT r.rows_read, r.rows_inserted, r.rows_updated, r.rows_unchanged, r.rows_superseded, r.rows_suppressed,
        r.rows_pruned, r.batches,
        r.rows_read = r.rows_inserted + r.rows_updated + r.rows_unchanged + r.rows_superseded + r.rows_suppressed
            + r.rows_deleted + r.rows_rejected
    FROM incload_run(job) r
$$;

CREATE TABLE src (id int PRIMARY KEY, v int NOT NULL, name text, n int);
INSERT INTO src SELECT g, g, 'name ' || g, g * 10 FROM generate_series(1, 6) g;
-- gives the rows named another version, or a new one
CREATE FUNCTION touch(VARIADIC ids int[]) RETURNS void LANGUAGE sql AS $$
    UPDATE src SET v = m.v + id FROM (SELECT max(v) AS v FROM src) m WHERE id = ANY (ids)
$$;

--
-- a partitioned target, by its key and not; rows move between partitions
--
CREATE TABLE parted (id int, v int, name text, n int, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (1) TO (4);
CREATE TABLE parted_2 (n int, name text, id int NOT NULL, v int);
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM (4) TO (100);
SELECT strategy, key FROM incload_create_job('t_parted', 'src', 'parted', 'upsert', 'v');
SELECT * FROM run('t_parted');
SELECT tableoid::regclass, * FROM parted ORDER BY id;
UPDATE src SET name = 'changed' WHERE id IN (2, 5);
SELECT touch(2, 5);
SELECT * FROM run('t_parted');
(TABLE src EXCEPT TABLE parted) UNION ALL (TABLE parted EXCEPT TABLE src);
CREATE TABLE by_n (id int, v int, name text, n int) PARTITION BY LIST (n);
CREATE TABLE by_n_10 PARTITION OF by_n FOR VALUES IN (10, 20, 30);
CREATE TABLE by_n_other PARTITION OF by_n DEFAULT;
SELECT strategy FROM incload_create_job('t_by_n', 'src', 'by_n', 'upsert', 'v', '{id}');
SELECT * FROM run('t_by_n');
UPDATE src SET n = 40 WHERE id = 1;
UPDATE src SET n = 30 WHERE id = 6;
SELECT touch(1, 6);
SELECT * FROM run('t_by_n');
SELECT tableoid::regclass, id, n FROM by_n ORDER BY id;
SELECT rows_read, rows_updated, rows_unchanged, rows_pruned FROM incload_refresh('t_by_n');
-- no partition for a row
CREATE TABLE some_n (id int, v int, name text, n int) PARTITION BY LIST (n);
CREATE TABLE some_n_10 PARTITION OF some_n FOR VALUES IN (20);
SELECT strategy FROM incload_create_job('t_some_n', 'src', 'some_n', 'upsert', 'v', '{id}', options => '{"filter": "id IN (2, 5)"}');
SELECT incload_run('t_some_n');
SELECT count(*) FROM some_n;
SELECT strategy FROM incload_create_job('t_part_full', 'src', 'parted', 'full');
DELETE FROM src WHERE id = 3;
SELECT * FROM run('t_part_full');
SELECT options FROM incload_alter_job('t_part_full', options => '{"full_refresh_mode": "truncate"}');
SELECT * FROM run('t_part_full');
(TABLE src EXCEPT TABLE parted) UNION ALL (TABLE parted EXCEPT TABLE src);

--
-- triggers that keep rows from being written
--
CREATE TABLE guarded (id int PRIMARY KEY, v int, name text, n int);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id = ANY (TG_ARGV[0]::int[]) THEN RETURN NULL; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_insert BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION refuse('{2,5}');
SELECT strategy FROM incload_create_job('t_guarded', 'src', 'guarded', 'upsert', 'v');
SELECT * FROM run('t_guarded');
SELECT id FROM guarded ORDER BY id;
-- updates, beside inserts, and a row that is unchanged
CREATE TRIGGER refuse_update BEFORE UPDATE ON guarded FOR EACH ROW EXECUTE FUNCTION refuse('{1,4}');
UPDATE src SET name = 'again' WHERE id IN (1, 2, 4, 6);
INSERT INTO src VALUES (7, 70, 'seven', 70);
SELECT touch(1, 2, 4, 5, 6);
SELECT * FROM run('t_guarded');
SELECT id, name FROM guarded ORDER BY id;
SELECT rows_read, rows_inserted, rows_updated, rows_unchanged, rows_suppressed, rows_pruned FROM incload_refresh('t_guarded');
-- append, with a key and without, and by truncate
CREATE TABLE guarded_log (LIKE guarded);
CREATE TRIGGER refuse_insert BEFORE INSERT ON guarded_log FOR EACH ROW EXECUTE FUNCTION refuse('{2,5}');
SELECT strategy, key FROM incload_create_job('t_guarded_log', 'src', 'guarded_log', 'append', 'v', key => '{id}');
SELECT * FROM run('t_guarded_log');
-- what it has loaded would be doubled
SELECT key FROM incload_alter_job('t_guarded_log', key => '{}');
SELECT incload_drop_job('t_guarded_log');
TRUNCATE guarded_log;
SELECT key FROM incload_create_job('t_guarded_log', 'src', 'guarded_log', 'append', 'v', key => '{}');
SELECT * FROM run('t_guarded_log');
SELECT strategy FROM incload_alter_job('t_guarded_log', strategy => 'full');
SELECT * FROM run('t_guarded_log');
-- a trigger on a partition
CREATE TRIGGER refuse_update BEFORE UPDATE ON parted_2 FOR EACH ROW EXECUTE FUNCTION refuse('{5}');
UPDATE src SET name = 'parted' WHERE id IN (2, 5);
SELECT touch(2, 5);
SELECT * FROM run('t_parted');
-- a trigger that keeps rows from being pruned
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE DELETE ON parted FOR EACH ROW EXECUTE FUNCTION keep();
SELECT options FROM incload_alter_job('t_part_full', options => '{"full_refresh_mode": "merge"}');
DELETE FROM src WHERE id = 4;
SELECT * FROM run('t_part_full');
SELECT id FROM parted ORDER BY id;

-- the built-in trigger for unchanged rows
CREATE TABLE quiet (id int PRIMARY KEY, v int, name text, n int);
CREATE TRIGGER z BEFORE UPDATE ON quiet FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
SELECT strategy FROM incload_create_job('t_quiet', 'src', 'quiet', 'upsert', 'v');
SELECT * FROM run('t_quiet');
SELECT touch(1);
SELECT * FROM run('t_quiet');

--
-- a trigger that changes rows: they differ from the source, and come again as updates
--
CREATE TABLE changed (id int PRIMARY KEY, v int, name text, n int, loaded_by text);
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.name := upper(NEW.name);
    NEW.loaded_by := TG_OP;
    RETURN NEW;
END $$;
CREATE TRIGGER change BEFORE INSERT OR UPDATE ON changed FOR EACH ROW EXECUTE FUNCTION change();
SELECT strategy FROM incload_create_job('t_changed', 'src', 'changed', 'upsert', 'v');
SELECT * FROM run('t_changed');
SELECT touch(1, 2);
SELECT * FROM run('t_changed');
SELECT id, name, loaded_by FROM changed ORDER BY id;
-- a trigger that changes the key
CREATE TABLE moved (id int PRIMARY KEY, v int, name text, n int);
CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := NEW.id + 1000; RETURN NEW; END $$;
CREATE TRIGGER move BEFORE INSERT ON moved FOR EACH ROW EXECUTE FUNCTION move();
SELECT strategy FROM incload_create_job('t_moved', 'src', 'moved', 'upsert', 'v');
SELECT * FROM run('t_moved');
SELECT min(id), count(*) FROM moved;

-- AFTER triggers, by row and by statement with transition tables, see what was written
CREATE TABLE audited (id int PRIMARY KEY, v int, name text, n int);
CREATE TABLE audit (id int GENERATED ALWAYS AS IDENTITY, op text, rows bigint);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (op, rows) SELECT TG_OP, count(*) FROM changed_rows;
    RETURN NULL;
END $$;
CREATE TRIGGER a_i AFTER INSERT ON audited REFERENCING NEW TABLE AS changed_rows FOR EACH STATEMENT EXECUTE FUNCTION audit();
CREATE TRIGGER a_u AFTER UPDATE ON audited REFERENCING NEW TABLE AS changed_rows FOR EACH STATEMENT EXECUTE FUNCTION audit();
CREATE TRIGGER a_d AFTER DELETE ON audited REFERENCING OLD TABLE AS changed_rows FOR EACH STATEMENT EXECUTE FUNCTION audit();
SELECT strategy FROM incload_create_job('t_audited', 'src', 'audited', 'upsert', 'v');
SELECT * FROM run('t_audited');
INSERT INTO src VALUES (8, 500, 'eight', 80);
UPDATE src SET name = 'audited' WHERE id = 1;
SELECT touch(1);
SELECT * FROM run('t_audited');
DELETE FROM src WHERE id = 8;
SELECT rows_pruned FROM incload_refresh('t_audited');
SELECT op, rows FROM audit WHERE rows > 0 ORDER BY id;
-- an error in a trigger names the trigger, and nothing is kept
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no, not %', NEW.id; END $$;
CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON audited DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.id = 9) EXECUTE FUNCTION fail();
INSERT INTO src VALUES (9, 600, 'nine', 90);
SELECT * FROM run('t_audited');
SELECT id FROM audited WHERE id = 9;
SELECT status, sqlstate, rows_inserted FROM incload.run WHERE job = 't_audited' ORDER BY run_id DESC LIMIT 1;
DROP TRIGGER fail ON audited;
SELECT * FROM run('t_audited');

--
-- columns that nothing is loaded into: defaults, a serial, a generated column, NULL
--
CREATE TABLE more (id int PRIMARY KEY, v int, name text, n int, nr serial, loaded text DEFAULT 'by incload', must int NOT NULL DEFAULT 7,
    twice int GENERATED ALWAYS AS (n * 2) STORED, nothing text);
SELECT strategy FROM incload_create_job('t_more', 'src', 'more', 'upsert', 'v');
SELECT * FROM run('t_more');
UPDATE more SET loaded = 'kept', nothing = 'kept' WHERE id = 1;
UPDATE src SET n = 11 WHERE id = 1;
SELECT touch(1);
SELECT * FROM run('t_more');
SELECT id, n, nr IS NOT NULL AS nr, loaded, must, twice, nothing FROM more ORDER BY id;
-- a column dropped, and one added, between
ALTER TABLE more DROP COLUMN name, ADD COLUMN name text;
SELECT rows_read, rows_updated, rows_unchanged FROM incload_refresh('t_more');
SELECT id, name FROM more ORDER BY id;

--
-- constraints: deferrable ones, foreign keys, exclusion, two rows that exchange a unique value
--
CREATE TABLE uniq (id int PRIMARY KEY, v int, name text, n int UNIQUE);
CREATE TABLE uniq_src (id int PRIMARY KEY, v int, name text, n int);
INSERT INTO uniq_src VALUES (1, 1, 'a', 10), (2, 2, 'b', 20), (3, 3, 'c', 30);
SELECT strategy FROM incload_create_job('t_uniq', 'uniq_src', 'uniq', 'upsert', 'v');
SELECT * FROM run('t_uniq');
-- a value that one row gives up and another takes
UPDATE uniq_src SET n = n + 1, v = v + 10 WHERE id = 1;
UPDATE uniq_src SET n = 10, v = v + 10 WHERE id = 2;
SELECT * FROM run('t_uniq');
-- exchanged
UPDATE uniq_src SET n = CASE id WHEN 2 THEN 30 ELSE 10 END, v = v + 20 WHERE id IN (2, 3);
SELECT * FROM run('t_uniq');
SELECT * FROM uniq ORDER BY id;
-- a new row takes what an old one gives up; a row gone at the source still has it here
INSERT INTO uniq_src VALUES (4, 100, 'd', 11);
UPDATE uniq_src SET n = 12, v = 101 WHERE id = 1;
SELECT * FROM run('t_uniq');
DELETE FROM uniq_src WHERE id = 4;
INSERT INTO uniq_src VALUES (5, 102, 'e', 11);
SELECT incload_run('t_uniq');
SELECT rows_inserted, rows_pruned FROM incload_refresh('t_uniq');
(TABLE uniq_src EXCEPT TABLE uniq) UNION ALL (TABLE uniq EXCEPT TABLE uniq_src);
-- deferred, an exchange needs nothing of the kind
ALTER TABLE uniq DROP CONSTRAINT uniq_n_key, ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED;
UPDATE uniq_src SET n = CASE id WHEN 2 THEN 10 ELSE 30 END, v = v + 200 WHERE id IN (2, 3);
SELECT * FROM run('t_uniq');
(TABLE uniq_src EXCEPT TABLE uniq) UNION ALL (TABLE uniq EXCEPT TABLE uniq_src);

-- foreign keys, deferred to the end of the transaction: two jobs in one
CREATE TABLE parent (id int PRIMARY KEY, v int);
CREATE TABLE child (id int PRIMARY KEY, v int, parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE parent_src (id int PRIMARY KEY, v int);
CREATE TABLE child_src (id int PRIMARY KEY, v int, parent int);
INSERT INTO parent_src VALUES (1, 1);
INSERT INTO child_src VALUES (1, 1, 1);
SELECT strategy FROM incload_create_job('t_parent', 'parent_src', 'parent', 'upsert', 'v');
SELECT strategy FROM incload_create_job('t_child', 'child_src', 'child', 'upsert', 'v');
SELECT incload_run('t_child');
SELECT count(*) FROM child;
BEGIN;
SELECT rows_inserted FROM incload_run('t_child');
SELECT rows_inserted FROM incload_run('t_parent');
COMMIT;
SELECT count(*) FROM child;

-- NULL in the target's key: never matched
CREATE TABLE loose (id int, v int, name text, n int);
INSERT INTO loose VALUES (NULL, 0, 'null', 0), (1, 0, 'first', 0);
SELECT strategy FROM incload_create_job('t_loose', 'src', 'loose', 'upsert', 'v', '{id}');
SELECT * FROM run('t_loose');
SELECT id, count(*), min(name), max(name) FROM loose GROUP BY 1 ORDER BY 1;

-- inheritance: the children of the target are the target's, too
CREATE TABLE parent_t (id int PRIMARY KEY, v int, name text, n int);
CREATE TABLE child_t () INHERITS (parent_t);
INSERT INTO child_t VALUES (1, 0, 'in the child', 0);
SELECT strategy FROM incload_create_job('t_inherit', 'src', 'parent_t', 'upsert', 'v');
SELECT * FROM run('t_inherit');
SELECT tableoid::regclass, count(*), count(DISTINCT id) FROM parent_t GROUP BY 1 ORDER BY 1;

--
-- row security: a run works as its owner
--
CREATE ROLE regress_incload_rls;
GRANT USAGE ON SCHEMA targets TO regress_incload_rls;
GRANT SELECT ON src TO regress_incload_rls;
CREATE TABLE secured (id int PRIMARY KEY, v int, name text, n int);
ALTER TABLE secured ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON secured USING (id <> 2) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON secured TO regress_incload_rls;
SET ROLE regress_incload_rls;
SELECT strategy FROM incload_create_job('t_secured', 'src', 'secured', 'upsert', 'v', options => '{"filter": "id <> 2"}');
SELECT rows_read, rows_inserted FROM incload_run('t_secured');
RESET ROLE;
UPDATE src SET name = 'secured' WHERE id = 1;
SELECT touch(1);
-- called by a superuser, it is still the owner's
SELECT rows_read, rows_updated FROM incload_run('t_secured');
-- a row that its owner may not write is an error, and does not slip through
ALTER POLICY p ON secured USING (true) WITH CHECK (name NOT LIKE 'secret%');
UPDATE src SET name = 'secret' WHERE id = 1;
SELECT touch(1);
SELECT rows_read FROM incload_run('t_secured');
-- a row that the owner cannot see is there all the same
ALTER POLICY p ON secured USING (id <> 1) WITH CHECK (true);
SELECT rows_read FROM incload_run('t_secured');
-- a source with row security shows what its owner may see
ALTER TABLE src ENABLE ROW LEVEL SECURITY;
CREATE POLICY s ON src FOR SELECT TO regress_incload_rls USING (id > 5);
ALTER POLICY p ON secured USING (true) WITH CHECK (true);
SELECT rows_read, rows_pruned FROM incload_refresh('t_secured');
SELECT id FROM secured ORDER BY id;
-- a function in a trigger of the target runs as the owner of the job, too
CREATE TABLE who (name text);
GRANT INSERT ON who TO regress_incload_rls;
CREATE FUNCTION who() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO targets.who VALUES (current_user); RETURN NULL; END $$;
CREATE TRIGGER who AFTER UPDATE ON secured FOR EACH STATEMENT EXECUTE FUNCTION who();
UPDATE src SET name = 'who' WHERE id = 6;
SELECT touch(6);
SELECT rows_updated FROM incload_run('t_secured');
TABLE who;
-- and one that is deferred
CREATE CONSTRAINT TRIGGER who_late AFTER UPDATE ON secured DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION who();
UPDATE src SET name = 'late' WHERE id = 6;
SELECT touch(6);
TRUNCATE who;
BEGIN;
SELECT rows_updated FROM incload_run('t_secured');
COMMIT;
SELECT DISTINCT name FROM who;

-- clean up
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 't\_%';
DROP OWNED BY regress_incload_rls;
DROP ROLE regress_incload_rls;
DROP SCHEMA targets CASCADE;
