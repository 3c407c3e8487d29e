--
-- incload_suggest, incload_check, incload_explain, incload_preview
-- on sources in this database
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
RESET client_min_messages;
CREATE SCHEMA advise;
SET search_path = advise, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';

--
-- suggest: an updated time, another time, an id, nothing
--
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer int NOT NULL,
    email_changed_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    due_date date,
    note text);
CREATE INDEX ON orders (updated_at);
SELECT * FROM incload_suggest('advise.orders');

CREATE TABLE visits (id serial PRIMARY KEY, at timestamp, page text);
SELECT kind, candidate, score, chosen FROM incload_suggest('advise.visits');

CREATE TABLE counted (id serial PRIMARY KEY, v text);
SELECT kind, candidate, score, chosen FROM incload_suggest('advise.counted');

CREATE TABLE plain (a text, b float8);
SELECT * FROM incload_suggest('advise.plain');

-- an updated time without a key is not enough
CREATE TABLE keyless (a text, lastmodified timestamptz NOT NULL, modified_by text);
SELECT kind, candidate, score, chosen FROM incload_suggest('advise.keyless');

-- keys: NULLs, deferrable, partial and expression indexes do not identify a row
CREATE TABLE keys (
    a int, b int NOT NULL, c int NOT NULL, d int NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED,
    "Updated At" timestamptz);
CREATE UNIQUE INDEX ON keys (a);
CREATE UNIQUE INDEX ON keys (b) WHERE b > 0;
CREATE UNIQUE INDEX ON keys ((c + 1));
CREATE UNIQUE INDEX ON keys (c, b) INCLUDE (d);
SELECT kind, candidate, score, chosen, reason FROM incload_suggest('advise.keys')
WHERE kind <> 'strategy';

-- how names are read; all of these are the same kind of column
CREATE TABLE names (
    id int PRIMARY KEY,
    "updatedAt" timestamptz, "LastModifiedDate" timestamptz, sys_mod_ts timestamptz,
    timemodified timestamptz, names_changed_on timestamptz,
    last_seen timestamptz, status_updated_at timestamptz,
    "createdAt" timestamptz, inserted timestamptz, event_time timestamptz,
    ts timestamptz,
    birth_date timestamptz, expires_at timestamptz, valid_from timestamptz,
    "exchangeDate" timestamptz);
SELECT candidate, score, reason FROM incload_suggest('advise.names') WHERE kind = 'watermark';

-- a view has no keys and no indexes; a partitioned table has its own; BRIN serves ranges
CREATE VIEW orders_view AS SELECT * FROM orders;
SELECT kind, candidate, score, chosen FROM incload_suggest('advise.orders_view');
CREATE TABLE parted (id int NOT NULL, at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
                     UNIQUE (at, id)) PARTITION BY RANGE (at);
CREATE INDEX ON parted USING brin (updated_at);
SELECT kind, candidate, score, chosen FROM incload_suggest('advise.parted');

-- domains count as what they stand for
CREATE DOMAIN moment AS timestamptz;
CREATE TABLE domains (id int PRIMARY KEY, updated_at moment NOT NULL);
SELECT candidate FROM incload_suggest('advise.domains') WHERE chosen ORDER BY 1;

-- what cannot be asked
DO $$
DECLARE
    name text;
    state text;
    message text;
    detail text;
    hint text;
BEGIN
    FOREACH name IN ARRAY ARRAY['advise.nothing', 'nowhere.orders', '', 'a.b.c.d', 'advise.orders_id_seq'] LOOP
        BEGIN
            PERFORM FROM incload_suggest(name);
            RAISE WARNING '%: no error', name;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
            RAISE INFO '% % | detail % | hint %', state, message, detail <> '', hint <> '';
        END;
    END LOOP;
END $$;

--
-- check: a healthy job has no findings but that it has not run
--
CREATE TABLE orders_copy (LIKE orders INCLUDING INDEXES);
ALTER TABLE orders_copy ALTER COLUMN id SET NOT NULL;
INSERT INTO orders (customer, created_at, updated_at, note)
SELECT n, '2024-01-01', '2024-01-01'::timestamptz + n * '1 hour'::interval, 'order ' || n
FROM generate_series(1, 5) n;
SELECT job, strategy, watermark, key FROM incload_create_job('advise_orders', 'advise.orders', 'advise.orders_copy');
SELECT severity, code, message, sql FROM incload_check('advise_orders');
SELECT status, rows_read, rows_inserted FROM incload_run('advise_orders');
SELECT * FROM incload_check('advise_orders');
SELECT (incload_pause('advise_orders')).job_id IS NOT NULL AS paused;
SELECT * FROM incload_check('advise_orders');
SELECT (incload_resume('advise_orders')).job_id IS NOT NULL AS resumed;

-- everything at once
CREATE TABLE bad_source (
    "Id" bigint, changed timestamptz, amount numeric, price numeric(12,4), at timestamptz(3),
    total float8, code text, num numeric(6,0), big bigint, tags varchar(20)[]);
CREATE TABLE bad_target (
    "Id" bigint, changed timestamptz, amount numeric(10,2), price numeric(12,2), at timestamptz(0),
    total float4, code varchar(10), num int, big int, tags varchar(10)[]);
SELECT job FROM incload_create_job('advise_bad', 'advise.bad_source', 'advise.bad_target',
                                   'upsert', 'changed', '{Id}');
SELECT * FROM incload_check('advise_bad');

-- the SQL that mends works, and then nothing is left to say
SELECT sql FROM incload_check('advise_bad')
WHERE code IN ('watermark_nullable', 'key_nullable', 'type_loses_digits') \gexec
CREATE INDEX ON bad_source (changed);
CREATE UNIQUE INDEX ON bad_target ("Id");
SELECT * FROM incload_check('advise_bad') WHERE code <> 'job_never_run';

-- strategies that do not see what happens
SELECT job FROM incload_create_job('advise_created', 'advise.orders', 'advise.orders_copy',
                                   'upsert', 'created_at', '{id}');
SELECT code, message, sql FROM incload_check('advise_created') WHERE code LIKE '%updates';
SELECT job FROM incload_create_job('advise_append', 'advise.orders', 'advise.orders_copy',
                                   'append', 'updated_at', '{id}');
SELECT code, message, sql FROM incload_check('advise_append') WHERE code LIKE '%updates';

-- a watermark that is an expression: its index is found by its text
SELECT job FROM incload_create_job('advise_expression', 'advise.orders', 'advise.orders_copy',
                                   'upsert', '(coalesce(updated_at, created_at))', '{id}');
SELECT code, sql FROM incload_check('advise_expression') WHERE code <> 'job_never_run';
CREATE INDEX ON orders ((coalesce(updated_at, created_at)));
SELECT code, sql FROM incload_check('advise_expression') WHERE code <> 'job_never_run';

-- a failed run, and a job that cannot work any more, are findings and not errors
ALTER TABLE orders_copy ADD CHECK (customer < 100);
INSERT INTO orders (customer, created_at, updated_at) VALUES (100, now(), clock_timestamp());
\set VERBOSITY terse
SELECT incload_run('advise_orders');
\set VERBOSITY default
SELECT severity, code, regexp_replace(message, 'number \d+(.*constraint "\w+").*', 'number N\1') AS message
FROM incload_check('advise_orders');
-- sentences are told apart by one full stop, whatever the error consists of
CREATE FUNCTION last_failure(new_error text, new_hint text) RETURNS text AS $$
    UPDATE incload.run_store SET error = new_error, hint = new_hint WHERE job = 'advise_orders' AND status = 'failed';
    SELECT regexp_replace(message, 'number \d+', 'number N') FROM incload_check('advise_orders') WHERE code = 'last_run_failed';
$$ LANGUAGE sql;
SELECT last_failure(E'it broke\nThis is why.', 'Mend it.'), last_failure('it broke', 'Mend it.'), last_failure('it broke', NULL) \gx
DELETE FROM orders WHERE customer = 100;
ALTER TABLE orders RENAME updated_at TO moved_at;
SELECT severity, code, message LIKE '42703: %updated_at%' AS column_missing
FROM incload_check('advise_orders') WHERE code <> 'last_run_failed';
ALTER TABLE orders RENAME moved_at TO updated_at;
ALTER TABLE orders_copy RENAME TO orders_gone;
SELECT severity, code, message LIKE '42P01: %orders_copy%' AS target_missing
FROM incload_check('advise_orders') WHERE code <> 'last_run_failed';
ALTER TABLE orders_gone RENAME TO orders_copy;

--
-- explain: the statements of a run in their order
--
CREATE TABLE items (id int PRIMARY KEY, updated_at timestamptz NOT NULL, v text, w numeric);
CREATE TABLE items_copy (LIKE items INCLUDING ALL);
INSERT INTO items VALUES (1, '2024-01-01', 'a', 1.0), (2, '2024-01-02', 'b', 2), (3, '2024-01-03', 'c', 3),
                         (4, '2024-01-04', 'd', 4);
INSERT INTO items_copy VALUES (1, '2024-01-01', 'a', 1.0), (2, '2024-01-02', 'old', 2), (3, '2024-01-03', 'c', 3.00),
                              (9, '2024-01-01', 'gone', 9);
SELECT job FROM incload_create_job('advise_items', 'advise.items', 'advise.items_copy',
    options => '{"start_at": "2024-01-01", "filter": "id < 4", "transforms": {"v": "upper(v)"},
                 "pre_sql": "SELECT 1", "post_sql": "SELECT 2"}');
SELECT step, side, what, sql FROM incload_explain('advise_items');
SELECT step, what, plan ~ 'Scan' AS has_plan, plan ~ 'Named Tuplestore Scan' AS reads_stage
FROM incload_explain('advise_items');
SELECT job FROM incload_create_job('advise_full', 'advise.items', 'advise.items_copy', 'full', key => '{id}');
SELECT step, side, what, sql FROM incload_explain('advise_full');
SELECT job FROM incload_create_job('advise_truncate', 'advise.items', 'advise.items_copy', 'full', key => '{id}',
    options => '{"full_refresh_mode": "truncate"}');
SELECT step, side, what, sql FROM incload_explain('advise_truncate');
-- before anything is settled an append without a key has nothing to read
CREATE TABLE log (n bigint, v text);
CREATE TABLE log_copy (LIKE log);
INSERT INTO log VALUES (1, 'x');
SELECT job FROM incload_create_job('advise_log', 'advise.log', 'advise.log_copy', 'append', 'n', '{}');
SELECT step, side, what FROM incload_explain('advise_log');
SELECT * FROM incload_preview('advise_log');
SELECT * FROM items_copy ORDER BY id;

--
-- preview: insert, update, unchanged; an image that differs counts as a change
--
SELECT (incload_alter_job('advise_items', options => '{"transforms": null, "filter": null}')).job_id IS NOT NULL AS altered;

-- a filter by more than the row: what comes to match it later is not new by it
CREATE FUNCTION advise.due(timestamptz) RETURNS bool STABLE LANGUAGE sql AS 'SELECT $1 < now()';
CREATE FUNCTION advise.even(int) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT $1 % 2 = 0';
CREATE FUNCTION advise.filter_advice(filter text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM incload_alter_job('advise_items', options => jsonb_build_object('filter', filter));
    RETURN QUERY SELECT c.severity || ': ' || c.message FROM incload_check('advise_items') c WHERE c.code = 'filter_changes';
END $$;
SELECT f.filter, (SELECT advise.filter_advice(f.filter)) FROM unnest(ARRAY[
    'id < 4', 'advise.even(id) AND lower(v) <> ''x''', 'to_char(updated_at, ''YYYY'') > ''2020''', 'v <> ''now''',
    'updated_at < now()', 'advise.due(updated_at)', 'random() < 2', 'updated_at < ''today''::timestamptz',
    'updated_at < CURRENT_TIMESTAMP', 'v IN (SELECT v FROM advise.items)']) f(filter);
SELECT (incload_alter_job('advise_items', options => '{"filter": null}')).job_id IS NOT NULL AS altered;
SELECT * FROM incload_preview('advise_items');
SELECT action, key FROM incload_preview('advise_items', 2);
SELECT action, key FROM incload_preview('advise_full');
SELECT action, key, old_row FROM incload_preview('advise_truncate', 1);
SELECT job FROM incload_create_job('advise_new', 'advise.items', 'advise.items_copy', 'append', 'id', '{id}');
SELECT action, key, old_row ->> 'v' AS old FROM incload_preview('advise_new');
-- only the newest of a key counts
CREATE TABLE versions (id int, place int, "Id" text, updated_at timestamptz);
CREATE TABLE versions_copy (id int PRIMARY KEY, place int, "Id" text, updated_at timestamptz);
INSERT INTO versions VALUES (1, 1, 'first', '2024-01-01'), (2, 2, 'other', '2024-01-02'), (1, 3, 'last', '2024-01-03');
SELECT job FROM incload_create_job('advise_versions', 'advise.versions', 'advise.versions_copy');
SELECT action, key, new_row ->> 'Id' AS "Id", new_row ->> 'place' AS place FROM incload_preview('advise_versions');
-- what would fail a run fails here
INSERT INTO versions VALUES (NULL, 4, 'none', '2024-01-04');
SELECT * FROM incload_preview('advise_versions');
SELECT * FROM incload_preview('advise_items', 0);
SELECT * FROM incload_preview('advise_nothing');
-- it shows what a run does, and leaves all as it was
SELECT bound, loaded_to FROM incload.checkpoint WHERE job = 'advise_items';
SELECT count(*) FROM incload.run WHERE job = 'advise_items';
SELECT rows_inserted, rows_updated, rows_unchanged FROM incload_run('advise_items');
SELECT action, key FROM incload_preview('advise_items');

--
-- whose job it is
--
CREATE ROLE regress_advise_owner;
CREATE ROLE regress_advise_other;
GRANT USAGE, CREATE ON SCHEMA advise TO regress_advise_owner;
GRANT SELECT ON items TO regress_advise_owner;
SET ROLE regress_advise_owner;
CREATE TABLE advise.items_own (LIKE advise.items INCLUDING ALL);
SELECT job FROM incload_create_job('advise_own', 'advise.items', 'advise.items_own');
SELECT code FROM incload_check('advise_own');
SELECT step, what FROM incload_explain('advise_own');
SELECT action, key FROM incload_preview('advise_own', 1);
SELECT * FROM incload_check('advise_items');
SET ROLE regress_advise_other;
SELECT * FROM incload_check('advise_own');
SELECT * FROM incload_explain('advise_own');
SELECT * FROM incload_preview('advise_own');
SELECT * FROM incload_suggest('advise.items');
RESET ROLE;
-- a superuser reads as the owner, who may no longer
REVOKE SELECT ON items FROM regress_advise_owner;
SELECT severity, code, message LIKE '42501: %' AS denied FROM incload_check('advise_own') WHERE severity = 'error';
SELECT * FROM incload_preview('advise_own');
SELECT current_user = session_user AS same_user, current_setting('search_path') AS search_path;

SET client_min_messages = warning;
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'advise\_%';
DROP SCHEMA advise CASCADE;
DROP OWNED BY regress_advise_owner;
DROP ROLE regress_advise_owner, regress_advise_other;
