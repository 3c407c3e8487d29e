--
-- incload_rewind: a checkpoint that is taken back, by whom, and what is refused
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
RESET client_min_messages;
CREATE SCHEMA rewinding;
SET search_path = rewinding, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';

CREATE TABLE orders (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL);
INSERT INTO orders SELECT n, 'x', timestamptz '2024-01-01 00:00:00+00' + n * interval '1 hour' FROM generate_series(1, 10) n;
CREATE TABLE orders_copy (LIKE orders INCLUDING ALL);
SELECT job FROM incload_create_job('rw', 'orders', 'orders_copy', 'upsert', 'updated_at', options => '{"lookback": "0"}');
-- nothing is loaded yet
SELECT incload_rewind('rw', '2024-01-01');
SELECT rows_read, rows_inserted FROM incload_run('rw');
SELECT rows_read FROM incload_run('rw');

-- somebody's hand at the target: what is read once more mends it
UPDATE orders_copy SET v = 'by hand' WHERE id IN (2, 8);
SELECT job FROM incload_rewind('rw', '2024-01-01 05:00:00+00');
SELECT bound, bound_side, seen, mark, noted_bounds FROM incload.checkpoint WHERE job = 'rw';
SELECT rows_read, rows_updated, rows_unchanged FROM incload_run('rw');
SELECT id, v FROM orders_copy WHERE v <> 'x' ORDER BY id;
SELECT rows_read FROM incload_run('rw');
SELECT severity, message ~ '^the checkpoint of job rw was taken back from 202' AS says, details->>'by' = current_user AS by_whom, details->>'to' AS to
FROM incload.event WHERE job = 'rw' AND code = 'job_rewound';
-- a value in the session's zone
SET TimeZone = 'America/New_York';
SELECT job FROM incload_rewind('rw', '2023-12-31 21:30');
SET TimeZone = 'UTC';
SELECT bound::timestamptz FROM incload.checkpoint WHERE job = 'rw';
SELECT rows_read, rows_updated FROM incload_run('rw');

-- it is undone with its transaction
BEGIN;
SELECT job FROM incload_rewind('rw', '2024-01-01');
ROLLBACK;
SELECT rows_read FROM incload_run('rw');

-- refused
DO $$
DECLARE detail text; hint text;
BEGIN
    PERFORM incload_rewind('rw', '2999-01-01');
EXCEPTION WHEN invalid_parameter_value THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE NOTICE '% % %', SQLERRM, regexp_replace(detail, 'It is at [0-9:.+ -]+,', 'It is at a time,'), hint;
END $$;
DO $$
DECLARE detail text; hint text;
BEGIN
    PERFORM incload_rewind('rw', 'yesterday evening');
EXCEPTION WHEN invalid_datetime_format THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE NOTICE '% % %', SQLERRM, detail, regexp_replace(hint, 'is at [0-9:.+ -]+', 'is at a time');
END $$;
SELECT (incload_rewind('rw', '-infinity')).job;
SELECT rows_read FROM incload_run('rw');
SELECT incload_rewind('nobody', '1');
CREATE TABLE log (id bigint GENERATED ALWAYS AS IDENTITY, v text);
CREATE TABLE log_copy (id bigint, v text);
SELECT job FROM incload_create_job('rw_log', 'log', 'log_copy', 'append', 'id', '{}');
SELECT incload_rewind('rw_log', '1');
SELECT job FROM incload_create_job('rw_full', 'orders', 'orders_copy', 'full');
SELECT incload_rewind('rw_full', '1');
SELECT job FROM incload_create_job('rw_xmin', 'orders', 'orders_copy', 'upsert', 'xmin');
SELECT incload_rewind('rw_xmin', '1');

-- a number, text and null
CREATE TABLE counted (id int PRIMARY KEY);
INSERT INTO counted SELECT generate_series(1, 10);
CREATE TABLE counted_copy (LIKE counted INCLUDING ALL);
SELECT job FROM incload_create_job('rw_n', 'counted', 'counted_copy', 'upsert', 'id');
SELECT rows_read FROM incload_run('rw_n');
SELECT job FROM incload_rewind('rw_n', '7');
SELECT rows_read, rows_unchanged FROM incload_run('rw_n');
SELECT incload_rewind('rw_n', 'seven');
SELECT incload_rewind('rw_n', NULL) IS NULL AS nothing;
CREATE TABLE words (w text COLLATE "C" PRIMARY KEY);
INSERT INTO words VALUES ('a'), ('b'), ('c');
CREATE TABLE words_copy (LIKE words INCLUDING ALL);
SELECT job FROM incload_create_job('rw_w', 'words', 'words_copy', 'upsert', 'w', options => '{"settle": "1 ms"}');
SELECT rows_read FROM incload_run('rw_w');
SELECT pg_sleep(0.05);
SELECT rows_read >= 0 AS ran FROM incload_run('rw_w');
SELECT job FROM incload_rewind('rw_w', 'b');
SELECT rows_read FROM incload_run('rw_w');

-- somebody else's job
CREATE ROLE rw_other;
SET ROLE rw_other;
SELECT incload_rewind('rw', '2024-01-01');
RESET ROLE;
DROP ROLE rw_other;

SET client_min_messages = warning;
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'rw%';
DROP SCHEMA rewinding CASCADE;
