--
-- A source that has a key more than once: the newest row wins, the others are counted as superseded
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE SCHEMA dup;
SET search_path = dup, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never
DO $$ BEGIN
    EXECUTE format('CREATE SERVER dup_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
END $$;
CREATE USER MAPPING FOR CURRENT_USER SERVER dup_loop;

CREATE FUNCTION run(job text, OUT read bigint, OUT ins bigint, OUT upd bigint, OUT same bigint, OUT superseded bigint,
    OUT pruned bigint, OUT batches int, OUT adds_up boolean)
LANGUAGE sql AS $$
    SELECT r.rows_read, r.rows_inserted, r.rows_updated, r.rows_unchanged, r.rows_superseded, r.rows_pruned, r.batches,
        r.rows_read = r.rows_inserted + r.rows_updated + r.rows_unchanged + r.rows_superseded + r.rows_suppressed
    FROM incload_run(job) r
$$;

-- versions of rows, out of order, with ties, and some without a watermark
CREATE TABLE versions (id int, v int, name text);
INSERT INTO versions VALUES
    (1, 30, 'one, third'), (1, 10, 'one, first'), (2, 15, 'two'), (1, 20, 'one, second'),
    (3, 40, 'three'), (3, 5, 'three, old'), (4, NULL, 'four, no watermark'), (2, NULL, 'two, no watermark');
CREATE FOREIGN TABLE versions_f (id int, v int, name text) SERVER dup_loop OPTIONS (table_name 'versions');
CREATE TABLE by_relation (id int PRIMARY KEY, v int, name text);
CREATE TABLE by_copy (id int PRIMARY KEY, v int, name text);
CREATE TABLE by_foreign (id int PRIMARY KEY, v int, name text);
SELECT strategy FROM incload_create_job('dup_relation', 'versions', 'by_relation', 'upsert', 'v', options => '{"null_watermark": "skip"}');
SELECT strategy FROM incload_create_job('dup_copy', 'versions_f', 'by_copy', 'upsert', 'v', options => '{"null_watermark": "skip"}');
SELECT strategy FROM incload_create_job('dup_foreign', 'versions_f', 'by_foreign', 'upsert', 'v',
    options => '{"reader": "relation", "null_watermark": "skip"}');
SELECT j, r.* FROM unnest('{dup_relation,dup_copy,dup_foreign}'::text[]) j, run(j) r;
TABLE by_relation ORDER BY id;
(TABLE by_relation EXCEPT TABLE by_copy) UNION ALL (TABLE by_foreign EXCEPT TABLE by_copy);
-- again: nothing is read, or all of it is unchanged
SELECT j, r.read, r.ins, r.upd, r.adds_up FROM unnest('{dup_relation,dup_copy}'::text[]) j, run(j) r;

-- across batches: a key that comes again in a later batch is an update there
SELECT job, options FROM unnest('{dup_relation,dup_copy,dup_foreign}'::text[]) n,
    LATERAL incload_alter_job(n, watermark => '(v)', options => '{"batch_rows": 2}');
TRUNCATE by_relation, by_copy, by_foreign;
SELECT j, r.* FROM unnest('{dup_relation,dup_copy,dup_foreign}'::text[]) j, run(j) r;
TABLE by_relation ORDER BY id;
(TABLE by_relation EXCEPT TABLE by_copy) UNION ALL (TABLE by_foreign EXCEPT TABLE by_copy);
SELECT job FROM unnest('{dup_relation,dup_copy,dup_foreign}'::text[]) n,
    LATERAL incload_alter_job(n, watermark => 'v');
TRUNCATE by_relation, by_copy, by_foreign;
CALL incload_run_in_batches('dup_relation');
CALL incload_run_in_batches('dup_copy');
CALL incload_run_in_batches('dup_foreign');
SELECT DISTINCT ON (job) job, rows_read, rows_inserted, rows_updated, rows_unchanged, rows_superseded, batches
FROM incload.run WHERE job LIKE 'dup_%' ORDER BY job, run_id DESC;
TABLE by_relation ORDER BY id;
(TABLE by_relation EXCEPT TABLE by_copy) UNION ALL (TABLE by_foreign EXCEPT TABLE by_copy);

-- rows without a watermark come last: nothing tells that they are older; in one batch and in many
SELECT job FROM unnest('{dup_relation,dup_copy,dup_foreign}'::text[]) n,
    LATERAL incload_alter_job(n, watermark => '(v)', options => '{"null_watermark": "always", "batch_rows": null}');
TRUNCATE by_relation, by_copy, by_foreign;
SELECT j, r.* FROM unnest('{dup_relation,dup_copy,dup_foreign}'::text[]) j, run(j) r;
TABLE by_relation ORDER BY id;
(TABLE by_relation EXCEPT TABLE by_copy) UNION ALL (TABLE by_foreign EXCEPT TABLE by_copy);
SELECT job FROM unnest('{dup_relation,dup_copy,dup_foreign}'::text[]) n,
    LATERAL incload_alter_job(n, watermark => 'v', options => '{"null_watermark": "always", "batch_rows": 2}');
TRUNCATE by_relation, by_copy, by_foreign;
CALL incload_run_in_batches('dup_relation');
CALL incload_run_in_batches('dup_copy');
CALL incload_run_in_batches('dup_foreign');
TABLE by_relation ORDER BY id;
TABLE by_copy ORDER BY id;
(TABLE by_foreign EXCEPT TABLE by_copy) UNION ALL (TABLE by_copy EXCEPT TABLE by_foreign);

-- append: the target's row stays, whatever comes; of new ones the newest
CREATE TABLE appended (id int PRIMARY KEY, v int, name text);
INSERT INTO appended VALUES (1, 0, 'mine');
SELECT strategy FROM incload_create_job('dup_append', 'versions', 'appended', 'append', 'v', options => '{"null_watermark": "skip"}');
SELECT * FROM run('dup_append');
TABLE appended ORDER BY id;

-- full: duplicates are reduced as well; without a watermark, any one row of a key stays
CREATE TABLE filled (id int PRIMARY KEY, name text);
SELECT strategy FROM incload_create_job('dup_full', 'versions', 'filled', 'full', options => '{"exclude": ["v"]}');
SELECT * FROM run('dup_full');
SELECT id FROM filled ORDER BY id;
-- by truncate: a key that comes twice has to be reduced, too
CREATE TABLE truncated (id int PRIMARY KEY, v int, name text);
SELECT strategy FROM incload_create_job('dup_trunc', 'versions', 'truncated', 'full', options => '{"full_refresh_mode": "truncate"}');
SELECT * FROM run('dup_trunc');
SELECT id FROM truncated ORDER BY id;
-- a refresh of a job with a watermark keeps the newest
SELECT rows_read, rows_superseded, rows_pruned FROM incload_refresh('dup_relation');
TABLE by_relation ORDER BY id;

-- a transform makes keys equal
CREATE TABLE mails (mail text PRIMARY KEY, v int, n int);
INSERT INTO mails VALUES ('A@x', 1, 1), ('a@x', 2, 2), ('a@X', 3, 3), ('b@x', 4, 4);
CREATE TABLE mails_copy (mail text PRIMARY KEY, v int, n int);
SELECT strategy FROM incload_create_job('dup_mails', 'mails', 'mails_copy', 'upsert', 'v', options => '{"transforms": {"mail": "lower(mail)"}}');
SELECT * FROM run('dup_mails');
TABLE mails_copy ORDER BY mail;

-- keys that are equal and not the same: the newest image wins
CREATE TABLE nums (k numeric, v int, n int);
INSERT INTO nums VALUES (1.0, 1, 1), (1.00, 2, 2), (2, 3, 3);
CREATE TABLE nums_copy (k numeric PRIMARY KEY, v int, n int);
SELECT strategy FROM incload_create_job('dup_nums', 'nums', 'nums_copy', 'upsert', 'v');
SELECT * FROM run('dup_nums');
TABLE nums_copy ORDER BY k;
UPDATE nums SET k = 1.000, v = 4 WHERE v = 2;
SELECT * FROM run('dup_nums');
TABLE nums_copy ORDER BY k;

-- large: 20000 rows of 500 keys through small batches, the last of each key stays
CREATE TABLE big (id int, v int, n int);
INSERT INTO big SELECT g % 500, g, g FROM generate_series(1, 20000) g ORDER BY g * 7919 % 20011;
CREATE FOREIGN TABLE big_f (id int, v int, n int) SERVER dup_loop OPTIONS (table_name 'big');
CREATE TABLE big_copy (id int PRIMARY KEY, v int, n int);
SELECT strategy FROM incload_create_job('dup_big', 'big_f', 'big_copy', 'upsert', 'v', options => '{"batch_rows": 1000}');
SELECT * FROM run('dup_big');
SELECT count(*), min(n), max(n) FROM big_copy;
SELECT strategy FROM incload_alter_job('dup_big', watermark => '(v)', options => '{"batch_rows": 777}');
TRUNCATE big_copy;
SELECT * FROM run('dup_big');
SELECT count(*), min(n), max(n) FROM big_copy;
SELECT strategy FROM incload_alter_job('dup_big', watermark => 'v', options => '{"batch_rows": null}');
TRUNCATE big_copy;
SELECT * FROM run('dup_big');
SELECT count(*), min(n), max(n) FROM big_copy;

SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'dup\_%';
DROP SCHEMA dup CASCADE;
DROP SERVER dup_loop CASCADE;
