--
-- Jobs: creating with every default chosen, altering, pausing, dropping
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
RESET client_min_messages;
CREATE SCHEMA jobs;
SET search_path = jobs, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never

CREATE VIEW listed AS
SELECT job, owner, source, target, strategy, watermark, key, options, enabled
FROM incload.job WHERE job LIKE 'jobs_%' ORDER BY job;
CREATE VIEW runs AS
SELECT job, kind, status, trigger, rows_read AS read, rows_inserted AS ins, rows_updated AS upd,
       rows_unchanged AS same, rows_pruned AS pruned, batches, sqlstate
FROM incload.run WHERE job LIKE 'jobs_%' ORDER BY run_id;

--
-- options
--
SELECT name, type, "default" FROM incload_options();
SELECT count(*) FROM incload_options() WHERE meaning IS NULL OR meaning = '';

--
-- every default is chosen, and said
--
CREATE TABLE orders (
    id bigint PRIMARY KEY, amount numeric(12,2), updated_at timestamptz NOT NULL);
CREATE INDEX ON orders (updated_at);
INSERT INTO orders VALUES
    (1, 10.50, '2020-01-01 10:00Z'), (2, 20.00, '2020-01-01 11:00Z'), (3, NULL, '2020-01-02Z');

SELECT job, owner = current_user AS mine, source, target, strategy, watermark, key, options, enabled
FROM incload_create_job('jobs_orders', source => 'jobs.orders', target => 'jobs.orders_copy');
\d orders_copy
SELECT rows_read, rows_inserted, kind, status, batches, watermark_from, watermark_to, sqlstate
FROM incload_run('jobs_orders');
TABLE orders_copy ORDER BY id;
SELECT rows_read, rows_inserted, rows_unchanged FROM incload_run('jobs_orders');
SELECT bound_side, tie_key, noted_bounds, guarantee, loaded_to FROM incload.checkpoint
WHERE job = 'jobs_orders';

-- a log without an updated time: append
CREATE TABLE visits (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, page text);
INSERT INTO visits (page) VALUES ('a'), ('b');
SELECT strategy, watermark, key FROM incload_create_job('jobs_visits', 'visits', 'visits_copy');
\d visits_copy
SELECT rows_read, rows_inserted FROM incload_run('jobs_visits');
INSERT INTO visits (page) VALUES ('c');
SELECT rows_read, rows_inserted FROM incload_run('jobs_visits');
TABLE visits_copy ORDER BY id;

-- neither watermark nor key: full, and the target is truncated each time
CREATE TABLE lookup (code text, label text);
INSERT INTO lookup VALUES ('x', 'ex'), ('y', 'why');
SELECT strategy, watermark, key FROM incload_create_job('jobs_lookup', 'lookup', 'lookup_copy');
SELECT rows_read, rows_inserted, kind FROM incload_run('jobs_lookup');
SELECT rows_read, rows_inserted, rows_pruned FROM incload_run('jobs_lookup');
TABLE lookup_copy ORDER BY code;

-- the target is there: its primary key is the key, and nothing is created
CREATE TABLE customers (id int, name text, changed_at timestamp);
INSERT INTO customers VALUES (1, 'one', '2020-01-01'), (2, 'two', '2020-01-02');
CREATE TABLE customers_copy (id int PRIMARY KEY, name text, changed_at timestamp, note text DEFAULT 'mine');
SELECT strategy, watermark, key FROM incload_create_job('jobs_customers', 'customers', 'customers_copy');
SELECT rows_read, rows_inserted FROM incload_run('jobs_customers');
TABLE customers_copy ORDER BY id;

-- all is given: nothing is said but that the table is made
SELECT strategy, watermark, key, options
FROM incload_create_job(job => 'jobs_given', source => 'orders', target => 'orders_given',
    strategy => 'upsert', watermark => 'updated_at', key => '{id}',
    options => '{"exclude": ["amount"], "batch_rows": 2}');
SELECT rows_read, rows_inserted, batches FROM incload_run('jobs_given');
TABLE orders_given ORDER BY id;

-- the names are qualified when the job is made: a search_path does not change them
SET search_path = public;
SELECT rows_read, rows_unchanged FROM incload_run('jobs_orders');
SET search_path = jobs, public;
TABLE listed;

--
-- alter
--
-- options are merged; null takes one away
SELECT options FROM incload_alter_job('jobs_orders', options => '{"batch_rows": 1000, "filter": "id < 3"}');
SELECT options FROM incload_alter_job('jobs_orders', options => '{"batch_rows": null, "lock_timeout": "3 s"}');
SELECT options FROM incload_alter_job('jobs_orders', options => '{"filter": null, "lock_timeout": null}');
SELECT options FROM incload_alter_job('jobs_orders');

-- what changes which rows are read starts over, and says so
SELECT watermark, strategy FROM incload_alter_job('jobs_orders', watermark => '(updated_at)');
SELECT bound, loaded_to, guarantee FROM incload.checkpoint WHERE job = 'jobs_orders';
SELECT rows_read, rows_unchanged FROM incload_run('jobs_orders');
SELECT watermark, strategy FROM incload_alter_job('jobs_orders', watermark => 'updated_at');
SELECT watermark, strategy FROM incload_alter_job('jobs_orders', strategy => 'full');
SELECT rows_read, rows_unchanged, kind FROM incload_run('jobs_orders');
SELECT watermark, strategy FROM incload_alter_job('jobs_orders', strategy => 'upsert');
SELECT target FROM incload_alter_job('jobs_orders', target => 'orders_anew');
SELECT rows_read, rows_inserted FROM incload_run('jobs_orders');
CREATE VIEW recent AS SELECT * FROM orders WHERE id > 1;
SELECT source FROM incload_alter_job('jobs_orders', source => 'recent');
SELECT rows_read, rows_inserted FROM incload_run('jobs_orders');

-- the same values again change nothing
SELECT source FROM incload_alter_job('jobs_orders', source => 'jobs.recent', target => 'jobs.orders_anew',
    strategy => 'upsert', watermark => 'updated_at', key => '{id}');

--
-- pause and resume
--
SELECT job, enabled FROM incload_pause('jobs_orders');
SELECT job, enabled FROM incload_pause('jobs_orders');
SELECT status, rows_read, sqlstate FROM incload_run('jobs_orders');
CALL incload_run_in_batches('jobs_orders');
SELECT status, kind FROM incload_refresh('jobs_orders');
SELECT job, state, checkpoint IS NOT NULL AS has_checkpoint, last_rows FROM incload.status WHERE job = 'jobs_orders';
SELECT job, enabled FROM incload_resume('jobs_orders');
SELECT status, rows_read, sqlstate FROM incload_run('jobs_orders');

--
-- status, worst first
--
CREATE TABLE gone (id int PRIMARY KEY, updated_at timestamptz);
SELECT strategy FROM incload_create_job('jobs_gone', 'gone', 'gone_copy');
SELECT strategy FROM incload_create_job('jobs_new', 'orders', 'orders_new', key => '{id}');
SELECT enabled FROM incload_pause('jobs_visits');
DROP TABLE gone;
SELECT incload_run('jobs_gone');
SELECT job, state, guarantee, held_back_by IS NULL AS free, last_rows, last_error,
       freshness < '1 minute' AS fresh, last_success IS NOT NULL AS has_run
FROM incload.status WHERE job LIKE 'jobs_%';
SELECT job, status, kind, sqlstate, error, hint FROM incload.run WHERE job = 'jobs_gone';

--
-- run and refresh inside the caller's transaction
--
INSERT INTO orders VALUES (4, 4, '2100-01-04Z');
BEGIN;
SELECT rows_read, rows_inserted FROM incload_run('jobs_given');
SELECT count(*) FROM orders_given;
ROLLBACK;
SELECT count(*) FROM orders_given;
SELECT loaded_to FROM incload.checkpoint WHERE job = 'jobs_given';
BEGIN;
SELECT r.job, r.rows_inserted FROM (VALUES ('jobs_given'), ('jobs_new')) v(job)
CROSS JOIN LATERAL incload_run(v.job) r ORDER BY 1;
COMMIT;
SELECT count(*) FROM orders_given UNION ALL SELECT count(*) FROM orders_new;
-- in the select list
SELECT (incload_run('jobs_given')).rows_read;

--
-- batches commit one by one, and are told one by one
--
CALL incload_run_in_batches('jobs_given');
TRUNCATE orders_given;
SELECT status FROM incload_refresh('jobs_given');
TRUNCATE orders_given;
SELECT strategy, key FROM incload_alter_job('jobs_given', key => '{id}', watermark => '(updated_at)');
CALL incload_run_in_batches('jobs_given');
TABLE orders_given ORDER BY id;
SELECT * FROM runs WHERE job = 'jobs_given';

--
-- drop: the target and the history stay
--
SELECT incload_drop_job('jobs_given');
SELECT count(*) FROM orders_given;
SELECT count(*) FROM incload.job WHERE job = 'jobs_given';
SELECT count(*) FROM incload.checkpoint WHERE job = 'jobs_given';
SELECT count(*) > 0 AS history FROM incload.run WHERE job = 'jobs_given';

-- a job of the same name is another one
SELECT job FROM incload_create_job('jobs_given', 'orders', 'orders_given', 'upsert', 'updated_at', '{id}', options => '{"exclude": ["amount"]}');
SELECT state, last_success FROM incload.status WHERE job = 'jobs_given';

-- events, and who did it
SELECT job, severity, code, message, details - 'run_id' AS details FROM incload.event
WHERE job LIKE 'jobs_%' AND details->>'by' = current_user ORDER BY event_id;

-- nothing else is dumped than what a job needs
SELECT c::regclass FROM pg_extension, unnest(extconfig) c WHERE extname = 'incload' ORDER BY 1;

--
-- privileges: another role sees nothing, a member of the owner's role all
--
CREATE ROLE regress_incload_owner;
CREATE ROLE regress_incload_member IN ROLE regress_incload_owner;
CREATE ROLE regress_incload_other;
GRANT USAGE, CREATE ON SCHEMA jobs TO regress_incload_owner, regress_incload_other;
GRANT SELECT ON orders TO regress_incload_owner;
SET ROLE regress_incload_owner;
SELECT owner, target FROM incload_create_job('jobs_owned', 'orders', 'orders_owned');
SELECT rows_inserted FROM incload_run('jobs_owned');
SELECT tableowner FROM pg_tables WHERE schemaname = 'jobs' AND tablename = 'orders_owned';
SELECT job FROM incload.job UNION ALL SELECT job FROM incload.checkpoint
UNION ALL SELECT job FROM incload.run UNION ALL SELECT job FROM incload.event UNION ALL SELECT job FROM incload.status;
SET ROLE regress_incload_member;
SELECT job FROM incload.job;
SELECT rows_unchanged FROM incload_run('jobs_owned');
SELECT enabled FROM incload_pause('jobs_owned');
SELECT enabled FROM incload_resume('jobs_owned');
SET ROLE regress_incload_other;
SELECT job FROM incload.job UNION ALL SELECT job FROM incload.checkpoint
UNION ALL SELECT job FROM incload.run UNION ALL SELECT job FROM incload.event UNION ALL SELECT job FROM incload.status;
SELECT incload_run('jobs_owned');
CALL incload_run_in_batches('jobs_owned');
SELECT incload_refresh('jobs_owned');
SELECT incload_pause('jobs_owned');
SELECT incload_alter_job('jobs_owned');
SELECT incload_drop_job('jobs_owned');
SELECT count(*) FROM incload.job_store;
SELECT count(*) FROM incload.run_store;
INSERT INTO incload.event_store (owner, severity, code, message) VALUES ('x', 'info', 'x', 'x');
UPDATE incload.job SET enabled = false;
SELECT nextval('incload.run_id_seq');
-- to another owner, who must be a role that the caller can become
SELECT incload_create_job('jobs_other', 'orders', 'orders_other');
RESET ROLE;
SELECT owner FROM incload_alter_job('jobs_owned', owner => 'regress_incload_member');
SET ROLE regress_incload_member;
SELECT incload_alter_job('jobs_owned', owner => 'regress_incload_other');
RESET ROLE;
-- the owner of the job is dropped: superusers can give it to somebody else
SELECT owner FROM incload_alter_job('jobs_owned', owner => 'regress_incload_owner');
SELECT incload_drop_job('jobs_new');
SELECT job, state FROM incload.status WHERE job = 'jobs_owned';
DROP OWNED BY regress_incload_owner;
DROP ROLE regress_incload_owner;
SELECT incload_run('jobs_owned');
SELECT job, owner FROM incload.job WHERE job = 'jobs_owned';
SELECT owner = current_user AS mine FROM incload_alter_job('jobs_owned', owner => current_user, target => 'orders_owned');
SELECT rows_inserted FROM incload_run('jobs_owned');

--
-- a target that was dropped and made again is not the one that the checkpoint speaks of
--
DROP TABLE orders_owned;
SELECT incload_run('jobs_owned');
CREATE TABLE orders_owned (id bigint PRIMARY KEY, amount numeric(12,2), updated_at timestamptz);
SELECT incload_run('jobs_owned');
SELECT rows_inserted FROM incload_refresh('jobs_owned');
SELECT rows_inserted FROM incload_run('jobs_owned');

-- clean up
SET client_min_messages = warning;
SELECT count(incload_drop_job(job)) > 0 AS dropped FROM incload.job WHERE job LIKE 'jobs_%';
DROP OWNED BY regress_incload_other, regress_incload_member;
DROP ROLE regress_incload_other, regress_incload_member;
DROP SCHEMA jobs CASCADE;
