--
-- Rows that are deleted at the source: marked there, or listed as tombstones
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
RESET client_min_messages;
CREATE SCHEMA deletes;
SET search_path = deletes, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never

-- a run in one line, and whether what was read adds up
CREATE FUNCTION run(name text, refresh boolean DEFAULT false, OUT read bigint, OUT ins bigint, OUT upd bigint, OUT same bigint,
    OUT del bigint, OUT superseded bigint, OUT suppressed bigint, OUT pruned bigint, OUT adds_up boolean)
LANGUAGE plpgsql AS $$
DECLARE
    r incload.run;
BEGIN
    IF refresh THEN r := incload_refresh(name); ELSE r := incload_run(name); END IF;
    SELECT r.rows_read, r.rows_inserted, r.rows_updated, r.rows_unchanged, r.rows_deleted, r.rows_superseded,
        r.rows_suppressed, r.rows_pruned,
        r.rows_read = r.rows_inserted + r.rows_updated + r.rows_unchanged + r.rows_deleted + r.rows_superseded
            + r.rows_suppressed + r.rows_rejected
    INTO read, ins, upd, same, del, superseded, suppressed, pruned, adds_up;
END $$;

--
-- soft: options that cannot work are refused
--
CREATE TABLE people (id int PRIMARY KEY, email text, v int NOT NULL, deleted_at timestamptz, is_deleted boolean, state int);
CREATE TABLE to_people (id int PRIMARY KEY, email text UNIQUE, v int);
SELECT incload_create_job('d', 'people', 'to_people', 'append', 'v', options => '{"deletes": "soft", "deleted_column": "deleted_at"}');
SELECT incload_create_job('d', 'people', 'to_people', 'full', options => '{"deletes": "soft", "deleted_column": "deleted_at"}');
SELECT incload_create_job('d', 'people', 'to_people', 'upsert', 'v', options => '{"deletes": "soft"}');
SELECT incload_create_job('d', 'people', 'to_people', 'upsert', 'v', options => '{"deleted_column": "deleted_at"}');
SELECT incload_create_job('d', 'people', 'to_people', 'upsert', 'v', options => '{"deletes": "tombstone", "tombstone_source": "people", "deleted_rows": "keep"}');
SELECT incload_create_job('d', 'people', 'to_people', 'upsert', 'v', options => '{"tombstone_source": "people"}');
SELECT incload_create_job('d', 'people', 'to_people', 'upsert', 'v', options => '{"deletes": "gone"}');
SELECT incload_create_job('d', 'people', 'to_people', 'upsert', 'v',
    options => '{"columns": ["id", "email", "v"], "deletes": "soft", "deleted_column": "deletd_at"}');
SELECT incload_create_job('d', 'people', 'to_people', 'upsert', 'v',
    options => '{"columns": ["id", "email", "v"], "deletes": "soft", "deleted_column": "state"}');
SELECT incload_create_job('d', 'people', 'to_people', 'upsert', 'v',
    options => '{"columns": ["id", "email", "v"], "deletes": "soft", "deleted_column": "(state)"}');
SELECT incload_create_job('d', 'people', 'to_people', 'upsert', 'v',
    options => '{"columns": ["id", "email", "v"], "deletes": "soft", "deleted_column": "deleted_at", "deleted_rows": "keep"}');
SELECT incload_create_job('d', 'people', 'to_people', 'upsert', 'v',
    options => '{"columns": ["id", "email", "v"], "deletes": "soft", "deleted_column": "deleted_at", "only_newer": true}');

--
-- soft, by a time that is not loaded: a first load, then what happens to rows
--
INSERT INTO people SELECT g, 'e' || g, g, CASE WHEN g % 10 = 0 THEN now() END FROM generate_series(1, 100) g;
SELECT job FROM incload_create_job('d', 'people', 'to_people', 'upsert', 'v',
    options => '{"columns": ["id", "email", "v"], "deletes": "soft", "deleted_column": "deleted_at", "lookback": "0"}');
SELECT step, what, sql FROM incload_explain('d');
SELECT * FROM run('d');
SELECT count(*), count(*) FILTER (WHERE id % 10 = 0) AS deleted FROM to_people;
-- one is deleted, one that never came is deleted once more, one comes back, one is changed, one is new
UPDATE people SET v = 101, deleted_at = now() WHERE id = 1;
UPDATE people SET v = 102, deleted_at = now() WHERE id = 10;
UPDATE people SET v = 103, deleted_at = NULL WHERE id = 20;
UPDATE people SET v = 104, email = 'changed' WHERE id = 2;
-- of a new row, the unique value is that of the one that goes
INSERT INTO people VALUES (101, 'e1', 105, NULL);
SELECT action, key, new_row, old_row FROM incload_preview('d') WHERE key->>'id' <> '100';
SELECT step, what, sql FROM incload_explain('d') WHERE side = 'target' AND what <> 'read';
SELECT * FROM run('d');
SELECT * FROM to_people WHERE id IN (1, 2, 10, 20, 101) ORDER BY id;
SELECT * FROM run('d');
-- a row that was deleted comes back, with other values
UPDATE people SET v = 106, deleted_at = NULL, email = 'back' WHERE id = 1;
SELECT * FROM run('d');
SELECT * FROM to_people WHERE id = 1;
-- all in one run: the last word counts
UPDATE people SET v = 107, deleted_at = now() WHERE id BETWEEN 3 AND 8;
SELECT * FROM run('d');
-- a full refresh, in each of its ways
INSERT INTO to_people VALUES (3, 'stray', 1), (1000, 'foreign', 1);
SELECT * FROM run('d', true);
SELECT job FROM incload_alter_job('d', options => '{"full_refresh_mode": "truncate"}');
INSERT INTO to_people VALUES (3, 'stray', 1), (1000, 'foreign', 1);
SELECT * FROM run('d', true);
SELECT job FROM incload_alter_job('d', options => '{"full_refresh_mode": "swap"}');
INSERT INTO to_people VALUES (3, 'stray', 1), (1000, 'foreign', 1);
SELECT * FROM run('d', true);
SELECT count(*), (SELECT count(*) FROM people WHERE deleted_at IS NULL) AS there, count(*) FILTER (WHERE id IN (3, 1000)) AS stray FROM to_people;
CALL incload_run_in_batches('d');
UPDATE people SET v = 108, deleted_at = now() WHERE id = 9;
CALL incload_run_in_batches('d');
-- nobody may delete midway what he may not: it is said at once
CREATE ROLE deletes_owner;
GRANT USAGE ON SCHEMA deletes TO deletes_owner;
GRANT SELECT ON people TO deletes_owner;
GRANT SELECT, INSERT, UPDATE ON to_people TO deletes_owner;
SET ROLE deletes_owner;
SELECT incload_create_job('d_owner', 'people', 'to_people', 'upsert', 'v',
    options => '{"columns": ["id", "email", "v"], "deletes": "soft", "deleted_column": "deleted_at"}');
RESET ROLE;
GRANT DELETE ON to_people TO deletes_owner;
SET ROLE deletes_owner;
SELECT job FROM incload_create_job('d_owner', 'people', 'to_people', 'upsert', 'v',
    options => '{"columns": ["id", "email", "v"], "deletes": "soft", "deleted_column": "deleted_at"}');
RESET ROLE;
REVOKE DELETE ON to_people FROM deletes_owner;
SELECT severity, code, message FROM incload_check('d_owner') WHERE code <> 'job_never_run';
SELECT incload_drop_job('d_owner');

--
-- soft, by a boolean that is loaded, where a key may come twice; by a condition; and kept
--
CREATE TABLE versions (id int, v int NOT NULL, gone boolean);
INSERT INTO versions VALUES (1, 1, false), (1, 2, true), (2, 3, true), (2, 4, NULL), (3, 5, true);
CREATE TABLE to_versions (id int PRIMARY KEY, v int, gone boolean);
SELECT job FROM incload_create_job('dv', 'versions', 'to_versions', 'upsert', 'v', '{id}', options => '{"deletes": "soft", "deleted_column": "gone"}');
SELECT * FROM run('dv');
TABLE to_versions ORDER BY id;
INSERT INTO versions VALUES (2, 6, false), (2, 7, true), (3, 8, true), (3, 9, false), (4, 10, false);
SELECT * FROM run('dv');
TABLE to_versions ORDER BY id;
SELECT * FROM run('dv', true);
TABLE to_versions ORDER BY id;
CREATE TABLE swapped (LIKE to_versions);
SELECT job FROM incload_create_job('ds', 'versions', 'swapped', 'upsert', 'v', '{id}',
    options => '{"deletes": "soft", "deleted_column": "(gone AND id <> 1)", "full_refresh_mode": "swap"}');
SELECT * FROM run('ds', true);
TABLE swapped ORDER BY id;
CREATE TABLE kept (LIKE to_versions);
SELECT job FROM incload_create_job('dk', 'versions', 'kept', 'upsert', 'v', '{id}', options => '{"deletes": "soft", "deleted_column": "gone", "deleted_rows": "keep", "only_newer": true}');
SELECT * FROM run('dk');
TABLE kept ORDER BY id;
-- what is loaded already stays until a refresh
SELECT job FROM incload_alter_job('dk', options => '{"deleted_rows": null, "only_newer": null}');
SELECT * FROM run('dk', true);
TABLE kept ORDER BY id;

--
-- soft, where the watermark does not move: the time of deletion is a part of it
--
CREATE TABLE docs (id int PRIMARY KEY, updated_at timestamptz NOT NULL, deleted_at timestamptz);
INSERT INTO docs SELECT g, '2024-01-01Z'::timestamptz + g * interval '1 min' FROM generate_series(1, 5) g;
CREATE INDEX ON docs (updated_at);
SELECT job FROM incload_create_job('dd', 'docs', 'to_docs', 'upsert', 'updated_at', '{id}',
    options => '{"deletes": "soft", "deleted_column": "deleted_at", "lookback": "0"}');
SELECT * FROM run('dd');
UPDATE docs SET deleted_at = updated_at + interval '1 day' WHERE id = 2;
SELECT * FROM run('dd');
SELECT severity, code, message, sql FROM incload_check('dd');
SELECT job FROM incload_alter_job('dd', watermark => '(greatest(updated_at, deleted_at))');
SELECT severity, code FROM incload_check('dd');
SELECT * FROM run('dd');
SELECT id FROM to_docs ORDER BY id;
SELECT job FROM incload_create_job('dc', 'people', 'to_people', 'upsert', 'id',
    options => '{"columns": ["id", "email", "v"], "deletes": "soft", "deleted_column": "deleted_at"}');
SELECT severity, code, message, sql FROM incload_check('dc') WHERE code LIKE '%delet%';

--
-- soft: triggers, row security and partitions of the target
--
CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, gone boolean NOT NULL DEFAULT false);
INSERT INTO items (id, v) SELECT g, g FROM generate_series(1, 20) g;
CREATE TABLE to_items (id int PRIMARY KEY, v int, gone boolean) PARTITION BY RANGE (id);
CREATE TABLE to_items_1 PARTITION OF to_items FOR VALUES FROM (0) TO (10);
CREATE TABLE to_items_2 PARTITION OF to_items FOR VALUES FROM (10) TO (1000);
CREATE FUNCTION keep_odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN old.id % 2 = 0 THEN old END; END $$;
CREATE TRIGGER keep_odd BEFORE DELETE ON to_items FOR EACH ROW EXECUTE FUNCTION keep_odd();
SELECT job FROM incload_create_job('di', 'items', 'to_items', 'upsert', 'v', options => '{"deletes": "soft", "deleted_column": "gone"}');
SELECT * FROM run('di');
UPDATE items SET v = v + 20, gone = true WHERE id BETWEEN 8 AND 12;
INSERT INTO items VALUES (500, 500, true);
SELECT * FROM run('di');
SELECT id, tableoid::regclass, gone FROM to_items WHERE id BETWEEN 7 AND 13 ORDER BY id;
DROP TRIGGER keep_odd ON to_items;
ALTER TABLE to_items ENABLE ROW LEVEL SECURITY;
ALTER TABLE to_items FORCE ROW LEVEL SECURITY;
CREATE POLICY see_all ON to_items USING (true);
CREATE POLICY keep_low ON to_items AS RESTRICTIVE FOR DELETE USING (id > 10);
ALTER TABLE to_items OWNER TO deletes_owner;
GRANT SELECT ON items TO deletes_owner;
SELECT job FROM incload_alter_job('di', owner => 'deletes_owner');
SELECT incload_drop_job('di');
SET ROLE deletes_owner;
SELECT job FROM incload_create_job('di', 'items', 'to_items', 'upsert', 'v', options => '{"deletes": "soft", "deleted_column": "gone"}');
SELECT * FROM run('di');
RESET ROLE;
SELECT id FROM to_items WHERE id BETWEEN 7 AND 13 ORDER BY id;
-- a key that the target has twice is told, and nothing is deleted
CREATE TABLE twice (id int, v int);
INSERT INTO twice VALUES (8, 1), (8, 1);
SELECT job FROM incload_create_job('dt', 'items', 'twice', 'upsert', 'v', '{id}',
    options => '{"columns": ["id", "v"], "filter": "id = 8", "deletes": "soft", "deleted_column": "gone", "first_load": "batches"}');
SELECT incload_run('dt');
SELECT count(*) FROM twice;

--
-- the filter is the job's own part of the target
--
CREATE TABLE regions (id int PRIMARY KEY, region text, v int NOT NULL, gone boolean NOT NULL DEFAULT false);
CREATE TABLE to_regions (id int PRIMARY KEY, region text, v int);
INSERT INTO regions SELECT g, CASE g % 2 WHEN 0 THEN 'eu' ELSE 'us' END, g FROM generate_series(1, 6) g;
SELECT job FROM incload_create_job('eu', 'regions', 'to_regions', 'upsert', 'v',
    options => '{"columns": ["id", "region", "v"], "filter": "region = ''eu''", "deletes": "soft", "deleted_column": "gone"}');
SELECT job FROM incload_create_job('us', 'regions', 'to_regions', 'upsert', 'v',
    options => '{"columns": ["id", "region", "v"], "filter": "region = ''us''", "deletes": "soft", "deleted_column": "gone"}');
SELECT * FROM run('eu');
SELECT * FROM run('us');
-- a row of the other region came over, and is deleted here: the other's row is not this job's to delete
UPDATE regions SET v = 10, region = 'eu', gone = true WHERE id = 1;
UPDATE regions SET v = 11, gone = true WHERE id = 2;
SELECT action, key FROM incload_preview('eu') WHERE key->>'id' IN ('1', '2');
SELECT sql FROM incload_explain('eu') WHERE what = 'delete';
SELECT * FROM run('eu');
TABLE to_regions ORDER BY id;
-- where a function decides, or the column is not loaded, the target does not tell
SELECT job FROM incload_alter_job('eu', options => '{"filter": "lower(region) = ''eu''"}');
SELECT sql FROM incload_explain('eu') WHERE what = 'delete';
SELECT job FROM incload_alter_job('eu', options => '{"filter": "source.v > 3 AND NOT gone"}');
SELECT sql FROM incload_explain('eu') WHERE what = 'delete';
SELECT job FROM incload_alter_job('eu', options => '{"filter": "source.v > ''3''::int"}');
SELECT sql FROM incload_explain('eu') WHERE what = 'delete';

--
-- tombstones: what cannot work is refused
--
CREATE TABLE orders (region text, id int, v int NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (region, id));
CREATE TABLE to_orders (region text, id int, v int NOT NULL, updated_at timestamptz, PRIMARY KEY (region, id));
CREATE TABLE gone (region text, id int, deleted_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE gone_wrong (region text, id bigint, deleted_at timestamptz);
CREATE TABLE gone_short (region text, deleted_at timestamptz);
SELECT incload_create_job('t', 'orders', 'to_orders', 'upsert', 'updated_at', options => '{"deletes": "tombstone"}');
SELECT incload_create_job('t', 'orders', 'to_orders', 'append', 'updated_at', options => '{"deletes": "tombstone", "tombstone_source": "gone"}');
SELECT incload_create_job('t', 'orders', 'to_orders', 'upsert', 'updated_at', options => '{"deletes": "tombstone", "tombstone_source": "nowhere"}');
SELECT incload_create_job('t', 'orders', 'to_orders', 'upsert', 'updated_at', options => '{"deletes": "tombstone", "tombstone_source": "orders", "tombstone_watermark": "updated_at"}');
SELECT incload_create_job('t', 'orders', 'to_orders', 'upsert', 'updated_at', options => '{"deletes": "tombstone", "tombstone_source": "gone_wrong"}');
SELECT incload_create_job('t', 'orders', 'to_orders', 'upsert', 'updated_at', options => '{"deletes": "tombstone", "tombstone_source": "gone_short"}');
SELECT incload_create_job('t', 'orders', 'to_orders', 'upsert', 'updated_at', options => '{"deletes": "tombstone", "tombstone_source": "gone", "tombstone_watermark": "deletd_at"}');
SELECT incload_create_job('t', 'orders', 'to_orders', 'upsert', 'updated_at', options => '{"deletes": "tombstone", "tombstone_source": "gone", "only_newer": true}');

--
-- tombstones: what becomes of rows
--
INSERT INTO orders SELECT 'eu', g, g FROM generate_series(1, 50) g;
SELECT job FROM incload_create_job('t', 'orders', 'to_orders', 'upsert', 'updated_at', options => '{"deletes": "tombstone", "tombstone_source": "gone"}');
SELECT severity, code, message, sql FROM incload_check('t');
SELECT * FROM run('t');
SELECT bound IS NOT NULL AS bound, guarantee, bound_type, loaded_to FROM incload.tombstone WHERE job = 't';
-- deleted; deleted twice; deleted and inserted again, changed; a tombstone of what is there; of what never was
DELETE FROM orders WHERE id IN (1, 2, 3);
INSERT INTO gone VALUES ('eu', 1), ('eu', 2), ('eu', 2), ('eu', 3), ('eu', 4), ('us', 5);
INSERT INTO orders VALUES ('eu', 3, 33);
SELECT action, key, old_row - 'updated_at' AS old_row FROM incload_preview('t', 100) WHERE new_row IS NULL ORDER BY key;
SELECT action, count(*) FROM incload_preview('t', 4) GROUP BY 1;
SELECT step, side, what, regexp_replace(sql, '''\d{4}[^'']*''', '''…''', 'g') AS sql FROM incload_explain('t') WHERE what IN ('read tombstones', 'delete');
SELECT ins, upd, del, superseded, suppressed, adds_up FROM run('t');
SELECT id, v FROM to_orders WHERE id <= 5 ORDER BY id;
-- nothing is deleted a second time, and a row that comes back after its tombstone was read stays
SELECT ins, upd, del, superseded, suppressed, adds_up FROM run('t');
INSERT INTO orders VALUES ('eu', 1, 11);
SELECT ins, upd, del, superseded, suppressed, adds_up FROM run('t');
SELECT ins, upd, del, superseded, suppressed, adds_up FROM run('t');
SELECT id, v FROM to_orders WHERE id <= 5 ORDER BY id;
-- a run that is rolled back has read no tombstone
DELETE FROM orders WHERE id = 4;
INSERT INTO gone VALUES ('eu', 4);
BEGIN;
SELECT del FROM run('t');
ROLLBACK;
SELECT count(*) FROM to_orders WHERE id = 4;
CALL incload_run_in_batches('t');
SELECT count(*) FROM to_orders WHERE id = 4;
SELECT batches, rows_deleted FROM incload.run WHERE job = 't' ORDER BY run_id DESC LIMIT 1;
-- a refresh, and a source that is accepted: tombstones are read again, and do no harm
SELECT adds_up, pruned FROM run('t', true);
SELECT job FROM incload_accept_source('t');
SELECT count(*) FROM incload.tombstone WHERE job = 't';
SELECT upd, ins, del, adds_up FROM run('t');
SELECT count(*), (SELECT count(*) FROM orders) AS there FROM to_orders;
-- a key that is the source's by a transform is that of the tombstones by the same
CREATE TABLE renamed (LIKE to_orders INCLUDING INDEXES);
SELECT job FROM incload_create_job('tt', 'orders', 'renamed', 'upsert', 'updated_at',
    options => '{"deletes": "tombstone", "tombstone_source": "gone", "transforms": {"id": "id + 1000"}, "filter": "v < 40"}');
SELECT ins, del, adds_up FROM run('tt');
DELETE FROM orders WHERE id IN (5, 6, 45);
INSERT INTO gone VALUES ('eu', 5), ('eu', 6), ('eu', 45);
-- this one is in the source again, and no longer in the job's part of it
INSERT INTO orders VALUES ('eu', 6, 60);
SELECT regexp_replace(sql, '''\d{3,}[^'']*''', '''…''', 'g') AS sql FROM incload_explain('tt') WHERE what IN ('read tombstones', 'delete');
SELECT ins, del, adds_up FROM run('tt');
SELECT id, v FROM renamed WHERE id BETWEEN 1004 AND 1007 ORDER BY id;
SELECT del FROM run('t');
SELECT id, v FROM to_orders WHERE id BETWEEN 5 AND 7 ORDER BY id;
-- the other job shares the target, and its rows are not this one's
CREATE TABLE more (LIKE gone);
SELECT job FROM incload_alter_job('tt', target => 'to_orders', options => '{"transforms": null, "filter": "region = ''us''", "tombstone_source": "more"}');
DELETE FROM orders WHERE id = 7;
INSERT INTO more VALUES ('eu', 7, now());
SELECT ins, same, del, adds_up FROM run('tt');
SELECT count(*) FROM to_orders WHERE id = 7;
-- the owner needs the right to read them
ALTER TABLE to_orders OWNER TO deletes_owner;
GRANT SELECT ON orders TO deletes_owner;
SET ROLE deletes_owner;
SELECT incload_create_job('to', 'orders', 'to_orders', 'upsert', 'updated_at', options => '{"deletes": "tombstone", "tombstone_source": "gone"}');
RESET ROLE;

-- tombstones that are numbered; their sequence is reset, and a refresh goes on
CREATE TYPE kind AS ENUM ('b', 'a');
CREATE TYPE pair AS (a int, b int);
CREATE DOMAIN code AS int CHECK (VALUE > 0);
CREATE TABLE things (k kind, c code, v int NOT NULL, PRIMARY KEY (k, c));
CREATE TABLE things_gone (n bigint GENERATED ALWAYS AS IDENTITY, k kind, c code);
INSERT INTO things SELECT 'b', g, g FROM generate_series(1, 9) g;
SELECT job FROM incload_create_job('th', 'things', 'to_things', 'upsert', 'v',
    options => '{"deletes": "tombstone", "tombstone_source": "things_gone", "tombstone_watermark": "n"}');
SELECT ins, del, adds_up FROM run('th');
DELETE FROM things WHERE c IN (1, 2);
INSERT INTO things_gone (k, c) VALUES ('b', 1), ('b', 2), ('a', 3);
SELECT ins, del, same, adds_up FROM run('th');
SELECT ins, del, same, adds_up FROM run('th');
TRUNCATE things_gone RESTART IDENTITY;
DELETE FROM things WHERE c = 3;
INSERT INTO things_gone (k, c) VALUES ('b', 3);
SELECT incload_run('th');
SELECT pruned, del, adds_up FROM run('th', true);
DELETE FROM things WHERE c = 4;
INSERT INTO things_gone (k, c) VALUES ('b', 4);
SELECT del, adds_up FROM run('th');
SELECT k, c FROM to_things ORDER BY 1, 2;
INSERT INTO things_gone (k) VALUES ('b');
SELECT incload_run('th');
-- a type of its own may have an equality of its own
CREATE TABLE pairs (p pair PRIMARY KEY, v int NOT NULL);
CREATE TABLE pairs_gone (p pair, deleted_at timestamptz);
SELECT incload_create_job('pa', 'pairs', 'to_pairs', 'upsert', 'v', options => '{"deletes": "tombstone", "tombstone_source": "pairs_gone"}');
CREATE TABLE rounded (id numeric(10, 2) PRIMARY KEY, v int NOT NULL);
CREATE TABLE rounded_gone (id numeric(10, 2), deleted_at timestamptz);
CREATE TABLE to_rounded (id numeric(10, 1) PRIMARY KEY, v int);
SELECT incload_create_job('ro', 'rounded', 'to_rounded', 'upsert', 'v', options => '{"deletes": "tombstone", "tombstone_source": "rounded_gone"}');

--
-- what is to be created at the source, created and tried
--
CREATE SCHEMA "so urce";
CREATE TABLE "so urce"."Lines" ("Order" int, "a ""b" text COLLATE "C", v int, updated_at timestamptz NOT NULL DEFAULT '2024-01-01Z', PRIMARY KEY ("Order", "a ""b"));
INSERT INTO "so urce"."Lines" SELECT g, 'x''' || g, g FROM generate_series(1, 10) g;
SELECT job FROM incload_create_job('lines', '"so urce"."Lines"', 'to_lines', 'upsert', 'updated_at');
SELECT incload_source_sql('lines');
SET client_min_messages = warning;
SELECT incload_source_sql('lines') \gexec
-- and once more
SELECT incload_source_sql('lines') \gexec
RESET client_min_messages;
SELECT job FROM incload_alter_job('lines', options => '{"deletes": "tombstone", "tombstone_source": "\"so urce\".\"Lines_deleted\""}');
SELECT severity, code FROM incload_check('lines');
SELECT split_part(sql, E'\n', 2) FROM incload_source_sql('lines') AS sql WHERE sql LIKE '%INDEX%' OR sql LIKE '%NEW.updated_at%';
SELECT ins, del, adds_up FROM run('lines');
DELETE FROM "so urce"."Lines" WHERE "Order" = 1;
UPDATE "so urce"."Lines" SET "Order" = 20 WHERE "Order" = 2;
UPDATE "so urce"."Lines" SET v = 33 WHERE "Order" = 3;
SELECT "Order", "a ""b", deleted_at > now() - interval '1 minute' AS now FROM "so urce"."Lines_deleted" ORDER BY 1;

SELECT ins, upd, del, adds_up FROM run('lines');
SELECT "Order", "a ""b", v FROM to_lines ORDER BY 1;
TRUNCATE "so urce"."Lines";
INSERT INTO "so urce"."Lines" VALUES (5, 'x''5', 55);
SELECT ins, upd, del, adds_up FROM run('lines');
SELECT "Order", "a ""b", v FROM to_lines ORDER BY 1;
-- a partitioned source: rows that move, and those that are deleted from a partition itself; a time in a zone
CREATE TABLE parts (id int, p int, at timestamp NOT NULL, PRIMARY KEY (id, p)) PARTITION BY LIST (p);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
INSERT INTO parts SELECT g, 1, '2024-01-01' FROM generate_series(1, 5) g;
SELECT job FROM incload_create_job('parts', 'parts', 'to_parts', 'upsert', 'at', options => '{"source_timezone": "Asia/Tokyo"}');
SELECT sql FROM incload_source_sql('parts') AS sql WHERE sql ~ 'INDEX|NEW\.|TRUNCATE ON';
SELECT incload_source_sql('parts') \gexec
SELECT job FROM incload_alter_job('parts', options => '{"deletes": "tombstone", "tombstone_source": "parts_deleted"}');
INSERT INTO parts VALUES (6, 1, '2000-01-01');
SELECT abs(extract(epoch FROM at - now() AT TIME ZONE 'Asia/Tokyo')) < 60 AS set_by_the_clock FROM parts WHERE id = 6;
SELECT ins, upd, del, adds_up FROM run('parts');
UPDATE parts SET p = 2 WHERE id IN (1, 2);
DELETE FROM parts_2 WHERE id = 2;
DELETE FROM parts_1 WHERE id = 3;
SELECT ins, upd, del, adds_up FROM run('parts');
SELECT id, p FROM to_parts ORDER BY 1;
-- a view takes nothing of the kind, and neither does one that is full, or marks its rows
CREATE VIEW on_parts AS SELECT * FROM parts;
SELECT job FROM incload_create_job('on_parts', 'on_parts', 'to_parts', 'upsert', 'at', options => '{"source_timezone": "Asia/Tokyo"}');
SELECT count(*) FROM incload_source_sql('on_parts');
SELECT count(*) FROM incload_source_sql('dd');
SELECT incload_source_sql('nothing');

SELECT incload_drop_job(job) FROM incload.job WHERE owner = 'deletes_owner';
DROP OWNED BY deletes_owner;
DROP ROLE deletes_owner;
