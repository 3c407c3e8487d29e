--
-- rows that are loaded, and what a changed job means for them
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE SCHEMA replay;
SET search_path = replay, public;
SET datestyle = 'ISO, YMD';
SET timezone = 'UTC';
RESET client_min_messages;
CREATE ROLE replay_loader;
CREATE ROLE replay_other;
GRANT ALL ON SCHEMA replay TO replay_loader, replay_other;
SET ROLE replay_loader;

CREATE TABLE people (id int PRIMARY KEY, name text, mail text, age int, updated_at timestamptz NOT NULL);
INSERT INTO people SELECT i, 'n' || i, 'm' || i, i, '2020-01-01Z'::timestamptz + i * interval '1 day' FROM generate_series(1, 5) i;
SELECT job FROM incload_create_job('r_people', 'replay.people', 'replay.people_copy', 'upsert', 'updated_at', '{id}',
	options => '{"exclude": ["age", "mail"], "lookback": "1 hour"}');

-- before a row is loaded there is nothing to tell
SELECT job FROM incload_alter_job('r_people', options => '{"filter": "id < 100"}');
SELECT rows_read, rows_inserted FROM incload_run('r_people');

-- each change names the call that applies it
ALTER TABLE people_copy ADD age int, ADD mail text, ADD mine text DEFAULT 'mine';
SELECT job FROM incload_alter_job('r_people', options => '{"exclude": ["mail"]}');
SELECT job FROM incload_alter_job('r_people', options => '{"transforms": {"mail": "upper(mail)"}}');
SELECT job FROM incload_alter_job('r_people', options => '{"filter": "id < 50"}');
SELECT job FROM incload_alter_job('r_people', options => '{"exclude": ["mail", "name"]}');
SELECT job FROM incload_alter_job('r_people', options => '{"exclude": null, "start_at": "2020-01-04"}');
SELECT job FROM incload_alter_job('r_people', options => '{"start_at": null}');
-- and what changes no row tells nothing
SELECT job FROM incload_alter_job('r_people', options => '{"retry_limit": 5}');
SELECT severity, message, details->>'hint' AS hint FROM incload.event
WHERE job = 'r_people' AND code = 'rows_not_replayed' ORDER BY event_id;

-- columns alone
UPDATE people_copy SET name = 'changed here' WHERE id = 1;
DELETE FROM people_copy WHERE id = 2;
SELECT c::text AS checkpoint FROM incload.checkpoint c WHERE job = 'r_people' \gset
SELECT job, kind, status, trigger, rows_read, rows_inserted, rows_updated, rows_unchanged, rows_superseded, batches, watermark_from
FROM incload_fill_columns('r_people', '{age}');
SELECT id, name, mail, age, mine FROM people_copy ORDER BY id;
-- a transform is applied
SELECT rows_read, rows_updated, rows_unchanged FROM incload_fill_columns('r_people', ARRAY['mail', 'age']);
SELECT id, name, mail, age, mine FROM people_copy ORDER BY id;
-- twice writes nothing
CREATE TEMP TABLE before AS SELECT ctid AS place, xmin AS by, id FROM people_copy;
SELECT rows_read, rows_updated, rows_unchanged FROM incload_fill_columns('r_people', ARRAY['mail', 'age']);
SELECT count(*) FROM people_copy p JOIN before b ON p.id = b.id AND p.ctid = b.place AND p.xmin = b.by;
SELECT c::text = :'checkpoint' AS same_checkpoint FROM incload.checkpoint c WHERE job = 'r_people';
-- what changes meanwhile comes by its watermark
UPDATE people SET age = 50, name = 'new', updated_at = now() WHERE id = 3;
SELECT rows_updated FROM incload_fill_columns('r_people', '{age}');
SELECT name, age FROM people_copy WHERE id = 3;
SELECT rows_updated FROM incload_run('r_people');
SELECT name, age FROM people_copy WHERE id = 3;
-- rolled back with its transaction
UPDATE people SET age = 60 WHERE id = 4;
BEGIN;
SELECT rows_updated FROM incload_fill_columns('r_people', '{age}');
ROLLBACK;
SELECT age FROM people_copy WHERE id = 4;
-- a target column that is NOT NULL and not among them needs no default
ALTER TABLE people_copy ALTER name SET NOT NULL;
SELECT rows_updated FROM incload_fill_columns('r_people', '{age}');

-- a trigger that refuses
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.id = 5 THEN RETURN NULL; END IF; RETURN NEW; END';
CREATE TRIGGER refuse BEFORE UPDATE ON people_copy FOR EACH ROW EXECUTE FUNCTION refuse();
UPDATE people SET age = age + 100 WHERE id > 3;
SELECT rows_read, rows_updated, rows_unchanged, rows_suppressed FROM incload_fill_columns('r_people', '{age}');
DROP TRIGGER refuse ON people_copy;
-- an error leaves its record
ALTER TABLE people_copy ADD CONSTRAINT young CHECK (age < 1000);
UPDATE people SET age = 2000 WHERE id = 1;
SELECT incload_fill_columns('r_people', '{age}');
SELECT kind, status, sqlstate, rows_read, rows_updated FROM incload.run WHERE job = 'r_people' ORDER BY run_id DESC LIMIT 1;
SELECT state FROM incload.status WHERE job = 'r_people';

-- what cannot be filled
SELECT incload_fill_columns('r_people', '{id}');
SELECT incload_fill_columns('r_people', '{agee}');
SELECT incload_fill_columns('r_people', '{mine}');
SELECT incload_fill_columns('r_people', '{}');
SELECT incload_fill_columns('r_people', '{age,age}');
SELECT incload_fill_columns('r_people', '{age,NULL}');
SELECT incload_fill_columns('nobody', '{age}');
SELECT incload_fill_columns('r_people', NULL) IS NULL AS nothing;

-- other kinds of jobs
CREATE TABLE visits AS SELECT id, age, '2020-01-01Z'::timestamptz AS updated_at FROM people;
CREATE TABLE log_copy (LIKE visits);
CREATE VIEW versions AS SELECT id, v, at FROM (VALUES (1, 'old', '2020-01-01Z'::timestamptz), (1, 'new', '2020-01-02Z'), (2, 'one', '2020-01-01Z')) r (id, v, at);
SELECT job FROM incload_create_job('r_log', 'replay.visits', 'replay.log_copy', 'append', 'updated_at', '{}');
SELECT job FROM incload_create_job('r_xmin', 'replay.people', 'replay.xmin_copy', 'upsert', 'xmin', '{id}', options => '{"exclude": ["age"]}');
SELECT job FROM incload_create_job('r_versions', 'replay.versions', 'replay.versions_copy', 'upsert', 'at', '{id}');
SELECT job FROM incload_create_job('r_newer', 'replay.versions', 'replay.newer_copy', 'upsert', 'at', '{id}', options => '{"only_newer": true}');
SELECT job, rows_inserted FROM unnest('{r_log,r_xmin,r_versions,r_newer}'::text[]) AS j, incload_run(j) AS u;
SELECT incload_fill_columns('r_log', '{age}');
SELECT incload_fill_columns('r_newer', '{v}');
ALTER TABLE xmin_copy ADD age int;
SELECT job FROM incload_alter_job('r_xmin', options => '{"exclude": null}');
SELECT rows_read, rows_updated FROM incload_fill_columns('r_xmin', '{age}');
SELECT job FROM incload_alter_job('r_log', options => '{"filter": "id > 2"}');
-- of several rows with one key, the last by the watermark counts
UPDATE versions_copy SET v = 'spoilt';
SELECT rows_read, rows_updated, rows_superseded FROM incload_fill_columns('r_versions', '{v}');
SELECT id, v FROM versions_copy ORDER BY id;
-- columns that the target computes
ALTER TABLE xmin_copy DROP COLUMN age, ADD age int GENERATED ALWAYS AS (id * 2) STORED;
SELECT incload_fill_columns('r_xmin', '{age}');

-- privileges
SET ROLE replay_other;
SELECT incload_fill_columns('r_people', '{age}');
RESET ROLE;

SET client_min_messages = warning;
SELECT incload_drop_job(job) FROM incload.job WHERE job LIKE 'r\_%';
DROP SCHEMA replay CASCADE;
DROP OWNED BY replay_loader, replay_other;
DROP ROLE replay_loader, replay_other;
