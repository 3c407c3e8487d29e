--
-- Strategies: append with and without a key, upsert, full by merge and by truncate, refresh
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
RESET client_min_messages;
CREATE SCHEMA strategies;
SET search_path = strategies, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never

-- a run in one line; its counts must add up to the rows read
CREATE FUNCTION run(job text, refresh boolean DEFAULT false,
    OUT kind text, OUT read bigint, OUT ins bigint, OUT upd bigint, OUT same bigint, OUT superseded bigint,
    OUT suppressed bigint, OUT pruned bigint, OUT batches int, OUT adds_up boolean)
LANGUAGE plpgsql AS $$
DECLARE r incload.run;
BEGIN
    IF refresh THEN r := incload_refresh(job); ELSE r := incload_run(job); END IF;
    SELECT r.kind, r.rows_read, r.rows_inserted, r.rows_updated, r.rows_unchanged, r.rows_superseded, r.rows_suppressed,
           r.rows_pruned, r.batches,
           r.rows_read = r.rows_inserted + r.rows_updated + r.rows_unchanged + r.rows_deleted + r.rows_superseded
               + r.rows_suppressed + r.rows_rejected AND r.rows_deleted = 0 AND r.rows_rejected = 0
    INTO kind, read, ins, upd, same, superseded, suppressed, pruned, batches, adds_up;
END $$;

-- each version of a row is numbered by a sequence: what is below the newest is settled at once
CREATE SEQUENCE versions;
CREATE TABLE src (id int PRIMARY KEY, v bigint NOT NULL DEFAULT nextval('versions'), name text);
ALTER SEQUENCE versions OWNED BY src.v;
INSERT INTO src SELECT g, nextval('versions'), 'name ' || g FROM generate_series(1, 6) g;

--
-- upsert
--
SELECT strategy, key, watermark FROM incload_create_job('s_upsert', 'src', 'up', 'upsert', 'v', '{id}');
SELECT * FROM run('s_upsert');
SELECT * FROM run('s_upsert');
UPDATE src SET name = 'two', v = DEFAULT WHERE id = 2;
UPDATE src SET v = DEFAULT WHERE id = 3;
INSERT INTO src VALUES (7, DEFAULT, 'seven');
SELECT * FROM run('s_upsert');
TABLE up ORDER BY id;
SELECT bound, bound_side, noted_bounds, guarantee, loaded_to FROM incload.checkpoint WHERE job = 's_upsert';
-- a change that leaves the watermark is not seen; one that leaves all but the watermark is an update
UPDATE src SET name = 'unseen' WHERE id = 4;
SELECT * FROM run('s_upsert');
-- rows deleted at the source stay
DELETE FROM src WHERE id = 1;
SELECT * FROM run('s_upsert');
-- what is changed in the target only is put right when the row comes again
UPDATE up SET name = 'here' WHERE id IN (2, 5);
UPDATE src SET v = DEFAULT WHERE id = 2;
SELECT * FROM run('s_upsert');
-- rows that are the same write nothing
CREATE TABLE before AS SELECT id, ctid AS place, xmin AS writer FROM up;
SELECT rows_read, rows_unchanged FROM incload_run('s_upsert');
SELECT strategy FROM incload_alter_job('s_upsert', watermark => '(v)');
SELECT * FROM run('s_upsert');
SELECT id FROM up JOIN before b USING (id) WHERE up.ctid <> b.place OR up.xmin <> b.writer;
DROP TABLE before;
-- a refresh reads everything, prunes what the source lacks, and the next run goes on from there
SELECT * FROM run('s_upsert', refresh => true);
TABLE src EXCEPT TABLE up;
TABLE up EXCEPT TABLE src;
SELECT * FROM run('s_upsert');
INSERT INTO src VALUES (8, DEFAULT, 'eight');
SELECT * FROM run('s_upsert');

--
-- append with a key: rows that the target has stay as they are
--
SELECT strategy, key FROM incload_create_job('s_append', 'src', 'app', 'append', 'v');
SELECT * FROM run('s_append');
UPDATE src SET name = 'changed', v = DEFAULT WHERE id = 2;
INSERT INTO src VALUES (9, DEFAULT, 'nine');
SELECT * FROM run('s_append');
SELECT id, name FROM app WHERE id IN (2, 9) ORDER BY id;
SELECT * FROM run('s_append');
-- but a refresh makes it equal
SELECT * FROM run('s_append', refresh => true);
TABLE src EXCEPT TABLE app;
SELECT * FROM run('s_append');

--
-- append without a key
--
CREATE TABLE log (at bigint GENERATED ALWAYS AS IDENTITY, line text);
INSERT INTO log (line) SELECT 'line ' || g FROM generate_series(1, 5) g;
SELECT strategy, key, watermark FROM incload_create_job('s_log', 'log', 'log_copy', 'append', 'at');
SELECT * FROM run('s_log');
SELECT * FROM run('s_log');
INSERT INTO log (line) VALUES ('line 5'), ('line 5');
SELECT * FROM run('s_log');
SELECT line, count(*) FROM log_copy GROUP BY 1 ORDER BY 1;
-- ties at the checkpoint: the bound lies after them
INSERT INTO log (at, line) OVERRIDING SYSTEM VALUE VALUES (100, 'a'), (100, 'b'), (100, 'c');
SELECT setval(pg_get_serial_sequence('log', 'at'), 100);
SELECT * FROM run('s_log');
SELECT * FROM run('s_log');
-- with batches, too
INSERT INTO log (line) SELECT 'more' FROM generate_series(1, 7);
SELECT options FROM incload_alter_job('s_log', options => '{"batch_rows": 3}');
SELECT * FROM run('s_log');
SELECT count(*), count(DISTINCT at) FROM log_copy;
SELECT * FROM run('s_log', refresh => true);
SELECT count(*), count(DISTINCT at) FROM log_copy;
SELECT * FROM run('s_log');
-- ties that are larger than a batch, committed batch by batch
INSERT INTO log (at, line) OVERRIDING SYSTEM VALUE SELECT 200, 'tie ' || g FROM generate_series(1, 8) g;
INSERT INTO log (at, line) OVERRIDING SYSTEM VALUE SELECT 201, 'after ' || g FROM generate_series(1, 2) g;
SELECT setval(pg_get_serial_sequence('log', 'at'), 300);
CALL incload_run_in_batches('s_log');
SELECT rows_read, rows_inserted, batches FROM incload.run WHERE job = 's_log' ORDER BY run_id DESC LIMIT 1;
CALL incload_run_in_batches('s_log');
(TABLE log EXCEPT ALL TABLE log_copy) UNION ALL (TABLE log_copy EXCEPT ALL TABLE log);
SELECT status FROM incload_pause('s_log') j, incload_run(j.job);

--
-- full by merge: rows that differ are updated, rows gone are pruned
--
SELECT strategy, key, watermark FROM incload_create_job('s_merge', 'src', 'merged', 'full');
SELECT * FROM run('s_merge');
UPDATE src SET name = 'merged' WHERE id = 5;
DELETE FROM src WHERE id IN (6, 7);
INSERT INTO src VALUES (10, DEFAULT, 'ten');
SELECT * FROM run('s_merge');
(TABLE src EXCEPT TABLE merged) UNION ALL (TABLE merged EXCEPT TABLE src);
SELECT * FROM run('s_merge');
SELECT * FROM run('s_merge', refresh => true);
-- an empty source empties the target where that is allowed
BEGIN;
SELECT job FROM incload_alter_job('s_merge', options => '{"max_delete_fraction": 1}');
DELETE FROM src;
SELECT * FROM run('s_merge');
SELECT count(*) FROM merged;
ROLLBACK;
CALL incload_run_in_batches('s_merge');

--
-- full by truncate
--
SELECT strategy, options FROM incload_create_job('s_truncate', 'src', 'truncated', 'full', options => '{"full_refresh_mode": "truncate"}');
SELECT * FROM run('s_truncate');
DELETE FROM src WHERE id = 10;
SELECT * FROM run('s_truncate');
(TABLE src EXCEPT TABLE truncated) UNION ALL (TABLE truncated EXCEPT TABLE src);
BEGIN;
SELECT job FROM incload_alter_job('s_truncate', options => '{"max_delete_fraction": 1}');
DELETE FROM src;
SELECT * FROM run('s_truncate');
SELECT count(*) FROM truncated;
ROLLBACK;
SELECT count(*) FROM truncated;
-- a target that others refer to cannot be truncated, and keeps its rows
CREATE TABLE refers (id int REFERENCES truncated);
SELECT incload_run('s_truncate');
SELECT count(*) FROM truncated;
DROP TABLE refers;
-- batch_rows does not cut a full run
SELECT options FROM incload_alter_job('s_truncate', options => '{"batch_rows": 2}');
SELECT * FROM run('s_truncate');
SELECT options FROM incload_alter_job('s_merge', options => '{"batch_rows": 2}');
SELECT * FROM run('s_merge');

-- an UNLOGGED target is good for a full job
ALTER TABLE truncated SET UNLOGGED;
SELECT * FROM run('s_truncate');
ALTER TABLE truncated SET LOGGED;

-- a deleted key that comes back with another row
DELETE FROM merged;
SELECT * FROM run('s_merge');

-- a source without rows
CREATE TABLE empty (id int PRIMARY KEY, updated_at timestamptz);
SET client_min_messages = warning;
SELECT strategy FROM incload_create_job('s_empty', 'empty', 'empty_copy');
SELECT * FROM run('s_empty');
SELECT * FROM run('s_empty', refresh => true);
CALL incload_run_in_batches('s_empty');
SELECT bound IS NULL AS unset, loaded_to FROM incload.checkpoint WHERE job = 's_empty';

-- a key of several columns, in another order than the table's
CREATE TABLE many (b text, a int, c date, n int, v int, PRIMARY KEY (a, c, b));
INSERT INTO many VALUES ('x', 1, '2020-01-01', 1, 1), ('y', 1, '2020-01-01', 2, 2), ('x', 1, '2020-01-02', 3, 3);
SELECT key FROM incload_create_job('s_many', 'many', 'many_copy', 'upsert', 'v');
SELECT * FROM run('s_many');
UPDATE many SET n = n * 10, v = v + 10 WHERE b = 'x';
SELECT * FROM run('s_many');
(TABLE many EXCEPT TABLE many_copy) UNION ALL (TABLE many_copy EXCEPT TABLE many);
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'many_copy'::regclass AND contype = 'p';

-- a key is all there is
CREATE TABLE pairs (a int, b int, PRIMARY KEY (a, b));
INSERT INTO pairs VALUES (1, 1), (1, 2);
SELECT strategy FROM incload_create_job('s_pairs', 'pairs', 'pairs_copy', 'full', key => '{a,b}');
SELECT * FROM run('s_pairs');
DELETE FROM pairs WHERE b = 2;
INSERT INTO pairs VALUES (2, 1);
SELECT * FROM run('s_pairs');
TABLE pairs_copy ORDER BY 1, 2;
SELECT strategy FROM incload_alter_job('s_pairs', strategy => 'upsert', watermark => 'a');
SELECT * FROM run('s_pairs');
SELECT * FROM run('s_pairs');

-- clean up
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 's\_%';
DROP SCHEMA strategies CASCADE;
