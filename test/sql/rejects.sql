--
-- Rejects: rows that cannot be taken are put aside, and loaded once they can be
--
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE SCHEMA rejects;
SET search_path = rejects, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never

CREATE FUNCTION run(job text, OUT read bigint, OUT ins bigint, OUT upd bigint, OUT same bigint, OUT superseded bigint,
    OUT suppressed bigint, OUT rejected bigint, OUT batches int, OUT adds_up boolean)
LANGUAGE sql AS $$
    SELECT r.rows_read, r.rows_inserted, r.rows_updated, r.rows_unchanged, r.rows_superseded, r.rows_suppressed,
        r.rows_rejected, r.batches,
        r.rows_read = r.rows_inserted + r.rows_updated + r.rows_unchanged + r.rows_deleted + r.rows_superseded
            + r.rows_suppressed + r.rows_rejected
    FROM incload_run(job) r
$$;
CREATE FUNCTION bad(name text, OUT key jsonb, OUT sqlstate text, OUT error text)
RETURNS SETOF record LANGUAGE sql AS $$
    SELECT r.key, r.sqlstate, r.error FROM incload.reject r WHERE r.job = name ORDER BY r.key::text, r."row"::text
$$;

--
-- the option
--
CREATE TABLE src (id int, v int NOT NULL, n int, t text, p int);
CREATE TABLE tgt (id int PRIMARY KEY, v int NOT NULL, n smallint CHECK (n < 1000), t varchar(5) NOT NULL UNIQUE, p int);
SELECT strategy FROM incload_create_job('bad option', 'src', 'tgt', 'upsert', 'v', '{id}', options => '{"reject_limit": -1}');
SELECT strategy FROM incload_create_job('bad option', 'src', 'tgt', 'upsert', 'v', '{id}', options => '{"reject_limit": 1, "full_refresh_mode": "swap"}');
SELECT name, type, "default" FROM incload_options() WHERE name = 'reject_limit';

--
-- each way of being refused
--
CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent VALUES (1), (2);
ALTER TABLE tgt ADD FOREIGN KEY (p) REFERENCES parent;
CREATE FUNCTION grumble() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.t = 'grr' THEN RAISE 'the trigger does not like %', NEW.t USING DETAIL = 'Nor did it before.'; END IF;
    IF NEW.t = 'own' THEN RAISE 'by a code of its own' USING ERRCODE = 'UE001'; END IF;
    IF NEW.t = 'zero' THEN PERFORM 1 / 0; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER grumble BEFORE INSERT OR UPDATE ON tgt FOR EACH ROW EXECUTE FUNCTION grumble();
INSERT INTO src VALUES (1, 1, 10, 'good', 1), (2, 2, 1000, 'check', 1), (3, 3, 40000, 'range', 1), (4, 4, 1, 'longer', 1),
    (5, 5, 1, NULL, 1), (6, 6, 1, 'fk', 3), (7, 7, 1, 'grr', 1), (8, 8, 1, 'own', 1), (9, 9, 1, 'zero', 1),
    (NULL, 10, 1, 'nokey', 1), (11, 11, 1, 'good2', 2), (12, 12, 1, 'good2', 2), (13, 13, NULL, 'good3', NULL);
SELECT strategy FROM incload_create_job('all', 'src', 'tgt', 'upsert', 'v', '{id}', options => '{"reject_limit": 10}');
-- the table is empty, and yet it takes no new heap
SELECT what FROM incload_explain('all') WHERE what LIKE 'apply%';
SELECT * FROM run('all');
TABLE tgt;
SELECT * FROM bad('all');
SELECT r."row", r.is_exact, r.run_id = (SELECT max(run_id) FROM incload.run) AS this_run FROM incload.reject r WHERE key = '{"id": 3}';
SELECT severity, code, message, details FROM incload.event WHERE job = 'all' AND code <> 'job_created';
SELECT state, rejects, checkpoint FROM incload.status WHERE job = 'all';
SELECT severity, code, message, sql FROM incload_check('all') WHERE code = 'rows_rejected';
-- the checkpoint went on, and nothing is read again
SELECT * FROM run('all');
SELECT rejects FROM incload.status WHERE job = 'all';

-- nothing was mended: all are bad still
SELECT * FROM incload_retry_rejects('all');
SELECT kind, status, rows_read, rows_rejected, rows_inserted FROM incload.run WHERE job = 'all' ORDER BY run_id DESC LIMIT 1;
-- a paused job's retry is skipped, as its runs are
SELECT enabled FROM incload_pause('all');
SELECT * FROM incload_retry_rejects('all');
SELECT enabled FROM incload_resume('all');
-- the target is mended
ALTER TABLE tgt DROP CONSTRAINT tgt_n_check, ALTER n TYPE int;
INSERT INTO parent VALUES (3);
SELECT * FROM incload_retry_rejects('all');
SELECT id, n FROM tgt WHERE id IN (2, 3, 6) ORDER BY id;
SELECT key FROM bad('all');
-- rows are as the source has them now: changed, or gone
UPDATE src SET t = 'short' WHERE id = 4;
UPDATE src SET t = 'five', v = 100 WHERE id = 5;
DELETE FROM src WHERE id = 7;
SELECT * FROM incload_retry_rejects('all');
SELECT id, v, t FROM tgt WHERE id IN (4, 5) ORDER BY id;
SELECT key FROM bad('all');
-- the checkpoint was left alone: that version comes once more, and is there
SELECT * FROM run('all');
-- another version makes a reject obsolete, be it good or bad
UPDATE src SET t = 'mine', v = 101 WHERE id = 8;
UPDATE src SET t = 'longest', v = 102 WHERE id = 9;
SELECT * FROM run('all');
SELECT * FROM bad('all');
-- one without a key is there until the source has none
UPDATE src SET id = 10 WHERE id IS NULL;
SELECT * FROM incload_retry_rejects('all');
SELECT key FROM bad('all');
-- more than may be
SELECT strategy FROM incload_alter_job('all', options => '{"reject_limit": 2}');
UPDATE src SET t = 'too long ' || id, v = 200 + id WHERE id < 4;
SELECT run('all');
SELECT status, sqlstate, rows_read, rows_rejected, error, hint FROM incload.run WHERE job = 'all' ORDER BY run_id DESC LIMIT 1;
SELECT key, error FROM bad('all');
SELECT id, t FROM tgt WHERE id < 4 ORDER BY id;
-- rolled back, there are none
BEGIN;
SELECT strategy FROM incload_alter_job('all', options => '{"reject_limit": 4}');
SELECT * FROM run('all');
SELECT count(*) FROM bad('all');
ROLLBACK;
SELECT key FROM bad('all');
-- off: what was put aside stays, and can be loaded
SELECT strategy FROM incload_alter_job('all', options => '{"reject_limit": null}');
UPDATE src SET t = 'ok' || id WHERE id < 4 OR id = 9;
SELECT * FROM incload_retry_rejects('all');
SELECT * FROM run('all');
SELECT count(*) FROM incload.reject;
SELECT id, t FROM tgt ORDER BY id;

--
-- what is not a row's fault fails the run
--
CREATE TABLE locked (id int PRIMARY KEY, v int, n int, t text, p int);
CREATE FUNCTION no_right() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' USING ERRCODE = '42501'; END $$;
CREATE TRIGGER no_right BEFORE INSERT ON locked FOR EACH ROW EXECUTE FUNCTION no_right();
SELECT strategy FROM incload_create_job('right', 'src', 'locked', 'upsert', 'v', '{id}', options => '{"reject_limit": 100}');
SELECT run('right');
DROP TRIGGER no_right ON locked;
CREATE OR REPLACE FUNCTION no_right() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'TABLE nowhere'; RETURN NEW; END $$;
CREATE TRIGGER no_right BEFORE INSERT ON locked FOR EACH ROW EXECUTE FUNCTION no_right();
SELECT run('right');
SELECT count(*) FROM incload.reject;
-- an expression fails where the source is read: so does the run
SELECT strategy FROM incload_create_job('division', 'src', 'divided', 'upsert', 'v', '{id}',
    options => '{"reject_limit": 100, "transforms": {"n": "100 / (n - 10)"}}');
SELECT run('division');

--
-- rows that are in one another's way
--
CREATE TABLE ring_src (id int PRIMARY KEY, v int NOT NULL, place int, boss int, n int);
CREATE TABLE ring (id int PRIMARY KEY, v int, place int UNIQUE, boss int REFERENCES ring, n int CHECK (n > 0));
INSERT INTO ring_src SELECT g, g, g, CASE WHEN g < 75 THEN g + 1 END, 1 FROM generate_series(1, 75) g;
SELECT strategy FROM incload_create_job('ring', 'ring_src', 'ring', 'upsert', 'v', '{id}', options => '{"reject_limit": 5}');
-- each needs the next one, and the middle is bad: what depends on it is, too
UPDATE ring_src SET n = 0 WHERE id = 3;
SELECT * FROM run('ring');
SELECT key, sqlstate FROM bad('ring');
UPDATE ring_src SET n = 1 WHERE id = 3;
SELECT * FROM incload_retry_rejects('ring');
SELECT count(*) FROM ring;
-- two exchange a value, beside a bad row
ALTER TABLE ring DROP CONSTRAINT ring_boss_fkey;
UPDATE ring_src SET place = 5000 + id, v = 1000 WHERE id IN (50, 51);
SELECT * FROM run('ring');
UPDATE ring_src SET place = 10101 - place, v = 1001 WHERE id IN (50, 51);
UPDATE ring_src SET n = -1, v = 1001 WHERE id = 70;
SELECT * FROM run('ring');
SELECT id, place FROM ring WHERE id IN (50, 51) ORDER BY id;
SELECT key, sqlstate FROM bad('ring');
-- one of two that want the same is loaded
INSERT INTO ring_src VALUES (201, 2000, 7777, NULL, 1), (202, 2001, 7777, NULL, 1);
SELECT * FROM run('ring');
SELECT count(*) FROM ring WHERE place = 7777;
SELECT sqlstate FROM bad('ring') WHERE key <> '{"id": 70}';

--
-- constraints that are deferred to the end of the transaction
--
CREATE TABLE deferred (id int PRIMARY KEY, v int, p int REFERENCES parent DEFERRABLE INITIALLY DEFERRED,
    u int UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE deferred_src (id int, v int, p int, u int);
INSERT INTO deferred_src VALUES (1, 1, 1, 1), (2, 2, 99, 2), (3, 3, 1, 1), (4, 4, 2, 4);
SELECT strategy FROM incload_create_job('deferred', 'deferred_src', 'deferred', 'upsert', 'v', '{id}', options => '{"reject_limit": 2}');
SELECT * FROM run('deferred');
SELECT key, sqlstate FROM bad('deferred');
-- the caller's own transaction still defers
BEGIN;
UPDATE deferred_src SET p = 1, v = v + 10 WHERE id = 2;
SELECT ins FROM run('deferred');
INSERT INTO deferred VALUES (77, 1, 77, 77);
INSERT INTO parent VALUES (77);
COMMIT;
SELECT id, p, u FROM deferred ORDER BY id;

-- of a name that another table's constraint has, which is never deferred
CREATE TABLE namesake (p int, CONSTRAINT deferred_p_fkey CHECK (p > 0));
UPDATE deferred_src SET v = v + 100;
SELECT * FROM run('deferred');
DROP TABLE namesake;

--
-- a log of versions: an older one that comes late does not hide the newer that was bad
--
CREATE TABLE log_of (id int, v int NOT NULL, n int);
CREATE TABLE latest (id int PRIMARY KEY, v int, n int CHECK (n > 0));
INSERT INTO log_of VALUES (1, 1, 1), (1, 3, -1), (2, 9, 1);
SELECT strategy FROM incload_create_job('latest', 'log_of', 'latest', 'upsert', 'v', '{id}', options => '{"only_newer": true, "reject_limit": 1, "lookback": 100}');
SELECT * FROM run('latest');
TABLE latest;
INSERT INTO log_of VALUES (1, 2, 2);
DELETE FROM log_of WHERE v = 3;
SELECT run.rejected FROM run('latest');
SELECT key, error FROM bad('latest');
INSERT INTO log_of VALUES (1, 3, -1);
SELECT * FROM incload_retry_rejects('latest');
UPDATE log_of SET n = 3 WHERE v = 3;
SELECT * FROM incload_retry_rejects('latest');
SELECT * FROM latest ORDER BY id;

--
-- partitions, no key, refreshes
--
CREATE TABLE parted (id int PRIMARY KEY, v int, t text NOT NULL) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (1) TO (10);
CREATE TABLE parted_2 PARTITION OF parted (CHECK (t <> 'bad')) FOR VALUES FROM (10) TO (20);
CREATE TABLE parted_src AS SELECT g AS id, g AS v, CASE g WHEN 15 THEN 'bad' ELSE 'good' END AS t FROM generate_series(1, 20) g;
SELECT strategy FROM incload_create_job('parted', 'parted_src', 'parted', 'upsert', 'v', '{id}', options => '{"reject_limit": 2}');
SELECT * FROM run('parted');
SELECT * FROM bad('parted');
CREATE TABLE parted_3 PARTITION OF parted FOR VALUES FROM (20) TO (30);
SELECT * FROM incload_retry_rejects('parted');
-- a refresh makes all of before obsolete; a row that is bad at the source is not pruned here
INSERT INTO parted VALUES (15, 0, 'kept'), (19, 1, 'another') ON CONFLICT (id) DO UPDATE SET t = excluded.t;
INSERT INTO parted VALUES (29, 1, 'pruned');
SELECT rows_read, rows_updated, rows_unchanged, rows_rejected, rows_pruned FROM incload_refresh('parted');
SELECT id, t FROM parted WHERE t <> 'good';
UPDATE parted_src SET t = 'good' WHERE id = 15;
SELECT rows_read, rows_updated, rows_unchanged, rows_rejected, rows_pruned FROM incload_refresh('parted');
SELECT count(*) FROM bad('parted');
-- likewise one that does not come as far as the stage
CREATE TABLE narrow (id int PRIMARY KEY, n smallint);
INSERT INTO narrow VALUES (1, 1), (2, 2), (3, 3);
CREATE TABLE narrow_src AS VALUES (1, 10), (2, 100000);
ALTER TABLE narrow_src RENAME column1 TO id;
ALTER TABLE narrow_src RENAME column2 TO n;
SELECT strategy FROM incload_create_job('narrow', 'narrow_src', 'narrow', 'full', key => '{id}', options => '{"reject_limit": 2}');
SELECT rows_read, rows_updated, rows_rejected, rows_pruned FROM incload_run('narrow');
TABLE narrow ORDER BY id;
-- without a key, the row itself is loaded
CREATE TABLE log_src (at int NOT NULL, t text, n int);
CREATE TABLE log (at int, t text CHECK (t <> 'bad'), n smallint);
INSERT INTO log_src VALUES (1, 'good', 1), (2, 'bad', 2), (3, E'tab\tnewline\n"quote" \\ {é}', 70000), (4, NULL, NULL);
SELECT strategy FROM incload_create_job('log', 'log_src', 'log', 'append', 'at', options => '{"reject_limit": 2}');
SELECT * FROM run('log');
SELECT * FROM bad('log');
UPDATE log_src SET t = 'mended' WHERE at = 2;
ALTER TABLE log ALTER n TYPE int;
SELECT * FROM incload_retry_rejects('log');
ALTER TABLE log DROP CONSTRAINT log_t_check;
SELECT * FROM incload_retry_rejects('log');
SELECT * FROM log ORDER BY at;
-- a watermark that must not be NULL
CREATE TABLE null_src (id int, at int, t text);
INSERT INTO null_src VALUES (1, 1, 'a'), (2, NULL, 'b');
CREATE TABLE nulls (id int PRIMARY KEY, at int, t text);
SELECT strategy FROM incload_create_job('nulls', 'null_src', 'nulls', 'upsert', 'at', '{id}', options => '{"null_watermark": "error", "reject_limit": 1}');
SELECT * FROM run('nulls');
SELECT * FROM bad('nulls');
UPDATE null_src SET at = 0 WHERE id = 2;
SELECT * FROM incload_retry_rejects('nulls');
TABLE nulls ORDER BY id;

--
-- batches that end among bad rows
--
CREATE TABLE many_src (id int PRIMARY KEY, v int NOT NULL, n int);
CREATE TABLE many (id int PRIMARY KEY, v int, n smallint);
INSERT INTO many_src SELECT g, g / 3, CASE WHEN g % 10 IN (0, 1, 9) THEN 100000 ELSE g END FROM generate_series(1, 100) g;
SELECT strategy FROM incload_create_job('many', 'many_src', 'many', 'upsert', 'v', '{id}', options => '{"reject_limit": 30, "batch_rows": 7}');
CALL incload_run_in_batches('many');
SELECT status, rows_read, rows_inserted, rows_rejected, batches FROM incload.run WHERE job = 'many';
SELECT count(*), count(DISTINCT key), bool_and(sqlstate = '22003') FROM bad('many');
SELECT count(*), min(id), max(id) FROM many;
ALTER TABLE many ALTER n TYPE int;
SELECT * FROM incload_retry_rejects('many');
(TABLE many_src EXCEPT TABLE many) UNION ALL (TABLE many EXCEPT TABLE many_src);
-- over the limit, what is committed stays, with its rejects
UPDATE many_src SET v = 1000 + id, n = CASE WHEN id % 10 = 0 THEN -1 ELSE id END;
ALTER TABLE many ADD CHECK (n > 0);
SELECT strategy FROM incload_alter_job('many', options => '{"reject_limit": 5}');
CALL incload_run_in_batches('many');
SELECT status, sqlstate, rows_read, rows_updated + rows_unchanged AS applied, rows_rejected, batches FROM incload.run WHERE job = 'many' ORDER BY run_id DESC LIMIT 1;
SELECT count(*) FROM bad('many');
-- the next run goes on, and may put aside as many again
CALL incload_run_in_batches('many');
SELECT status, rows_rejected FROM incload.run WHERE job = 'many' ORDER BY run_id DESC LIMIT 1;
SELECT count(*), count(DISTINCT key) FROM bad('many');

--
-- with the job, its rejects go; a role sees its own jobs' alone
--
CREATE ROLE regress_incload_nobody;
SET ROLE regress_incload_nobody;
SELECT count(*) FROM incload.reject;
SELECT incload_retry_rejects('many');
SELECT count(*) FROM incload.reject_store;
RESET ROLE;
DROP ROLE regress_incload_nobody;
SELECT incload_drop_job('many');
SELECT count(*) FROM incload.reject WHERE job = 'many';
SELECT count(incload_drop_job(job)) FROM incload.job WHERE source LIKE 'rejects.%';
SELECT count(*) FROM incload.reject_store;
DROP SCHEMA rejects CASCADE;
