--
-- What is tracked besides one column: xmin, numbers that are times, a fallback, versions, the future
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE SCHEMA tracking;
SET search_path = tracking, public;
SET TimeZone = 'UTC';
\set SHOW_CONTEXT never
DO $$ BEGIN
    EXECUTE format('CREATE SERVER tracking_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
END $$;
CREATE USER MAPPING FOR CURRENT_USER SERVER tracking_loop;
-- what the last run of a job did
CREATE FUNCTION last(job text, OUT read bigint, OUT ins bigint, OUT upd bigint, OUT unch bigint, OUT superseded bigint) LANGUAGE sql AS $$
    SELECT rows_read, rows_inserted, rows_updated, rows_unchanged, rows_superseded
    FROM incload.run r WHERE r.job = $1 ORDER BY run_id DESC LIMIT 1 $$;
CREATE FUNCTION refusal(watermark text, key text[], options jsonb, source text DEFAULT 'plain', strategy text DEFAULT 'upsert') RETURNS text LANGUAGE plpgsql AS $$
DECLARE message text; detail text; hint text;
BEGIN
    PERFORM incload_create_job('tr_no', source, 'refused_copy', strategy, watermark, key, options => options);
    RAISE EXCEPTION 'it works';
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ' ' || message || ' | ' || detail || ' | ' || hint;
END $$;

--
-- xmin: a table with no column to track. Through the loopback server, so that
-- every change is a transaction of its own before the run looks.
--
-- a key of two columns: a number alone would be tracked
CREATE TABLE plain (id int, part int DEFAULT 1, v text, PRIMARY KEY (id, part));
INSERT INTO plain (id, v) SELECT i, 'v' || i FROM generate_series(1, 500) i;
CREATE FOREIGN TABLE plain_f (id int, part int, v text) SERVER tracking_loop OPTIONS (table_name 'plain');
-- few rows: full is as cheap
SELECT kind, candidate, score, chosen FROM incload_suggest('plain_f');
INSERT INTO plain (id, v) SELECT i, 'v' || i FROM generate_series(501, 20000) i;
-- many: also before anybody has analyzed the table
SELECT kind, candidate, chosen FROM incload_suggest('plain_f');
ANALYZE plain;
SELECT candidate, chosen, reason FROM incload_suggest('plain_f') WHERE candidate = 'xmin';
SELECT candidate, chosen FROM incload_suggest('plain') WHERE chosen;
-- no key to find a row again: full, however large
CREATE TABLE keyless AS SELECT i AS v FROM generate_series(1, 20000) i;
ANALYZE keyless;
SELECT kind, candidate, chosen FROM incload_suggest('keyless');

SELECT strategy, watermark, key FROM incload_create_job('tr_copy', 'plain_f', 'plain_copy');
SELECT strategy, watermark, key FROM incload_create_job('tr_local', 'plain', 'plain_local');
SELECT rows_read, rows_inserted, bytes_read > 100000 AS bytes FROM incload_run('tr_copy');
SELECT rows_read, rows_inserted FROM incload_run('tr_local');
SELECT rows_read, bytes_read FROM incload_run('tr_copy');
SELECT rows_read FROM incload_run('tr_local');
SELECT job, guarantee, bound, seen, mark IS NOT NULL AS mark, loaded_to FROM incload.checkpoint WHERE job LIKE 'tr\_%' ORDER BY job;
SELECT job, state, checkpoint = (SELECT mark::text FROM incload.checkpoint c WHERE c.job = s.job) AS mark,
    -- at the loopback server, the run's own session here is a transaction that is open there
    CASE job WHEN 'tr_local' THEN held_back_by END AS held_back_by
FROM incload.status s WHERE job LIKE 'tr\_%' ORDER BY job;
-- a run says from which mark to which it went
SELECT bool_and(r.watermark_to = c.mark::text AND r.watermark_from::bigint <= r.watermark_to::bigint) FROM incload.checkpoint c,
    LATERAL (SELECT * FROM incload.run WHERE job = c.job ORDER BY run_id DESC LIMIT 1) r WHERE c.job LIKE 'tr\_%';
UPDATE plain SET v = 'new' WHERE id IN (7, 19999);
INSERT INTO plain (id, v) VALUES (20001, 'one more');
DELETE FROM plain WHERE id = 1;
SELECT rows_read, rows_inserted, rows_updated FROM incload_run('tr_copy');
SELECT rows_read, rows_inserted, rows_updated FROM incload_run('tr_local');
-- rows that a subtransaction wrote, and those that VACUUM has frozen
BEGIN;
SAVEPOINT a;
INSERT INTO plain (id, v) VALUES (20002, 'a');
RELEASE a;
SAVEPOINT b;
INSERT INTO plain (id, v) VALUES (20003, 'b');
ROLLBACK TO b;
COMMIT;
VACUUM FREEZE plain;
SELECT rows_read, rows_inserted FROM incload_run('tr_copy');
SELECT rows_read FROM incload_run('tr_copy');
VACUUM FULL plain;
SELECT rows_read FROM incload_run('tr_copy');
-- a rewritten table has rows of a later transaction, none of them different
ALTER TABLE plain ALTER COLUMN v TYPE text USING v || '';
SELECT rows_read, rows_unchanged FROM incload_run('tr_copy');
-- in batches: committed one by one, and the mark moves with the last
UPDATE plain SET v = v || '!' WHERE id BETWEEN 101 AND 350;
SELECT (incload_alter_job('tr_copy', options => '{"batch_rows": 100}')).job_id IS NOT NULL;
CALL incload_run_in_batches('tr_copy');
SELECT rows_read, rows_updated, batches FROM incload.run WHERE job = 'tr_copy' ORDER BY run_id DESC LIMIT 1;
CALL incload_run_in_batches('tr_copy');
SELECT * FROM last('tr_copy');
SELECT count(*) FILTER (WHERE p.v IS DISTINCT FROM c.v) AS different, count(*) FILTER (WHERE p.id IS NULL) AS deleted_there
FROM plain_copy c LEFT JOIN plain p USING (id);
-- append: new rows arrive, changed ones are left as they are
SELECT job FROM incload_create_job('tr_append', 'plain_f', 'plain_append', 'append', 'xmin', '{id,part}');
SELECT rows_inserted FROM incload_run('tr_append');
UPDATE plain SET v = 'changed' WHERE id = 2;
INSERT INTO plain (id, v) VALUES (20004, 'new');
SELECT rows_read, rows_inserted, rows_unchanged FROM incload_run('tr_append');
-- a refresh prunes, and the mark is its own
SELECT rows_read, rows_pruned, rows_updated FROM incload_refresh('tr_local');
SELECT rows_read FROM incload_run('tr_local');
-- what is read changes: from the beginning again
SELECT (incload_alter_job('tr_local', options => '{"filter": "id > 10"}')).job_id IS NOT NULL;
SELECT rows_read, rows_unchanged FROM incload_run('tr_local');
-- partitions; one that is attached brings rows that are older than the mark
CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (100);
CREATE TABLE parts_2 (id int PRIMARY KEY, v int);
INSERT INTO parts_2 VALUES (100, 0), (101, 0);
INSERT INTO parts VALUES (1, 0);
SELECT job FROM incload_create_job('tr_parts', 'parts', 'parts_copy', 'upsert', 'xmin', '{id}');
SELECT rows_inserted FROM incload_run('tr_parts');
SELECT rows_read FROM incload_run('tr_parts');
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (100) TO (200);
SELECT rows_inserted, rows_unchanged FROM incload_run('tr_parts');
-- a row whose key the source has twice: the later transaction wins
CREATE TABLE twice (id int, v text);
INSERT INTO twice VALUES (1, 'late by place');
INSERT INTO twice VALUES (1, 'x');
UPDATE twice SET v = 'latest' WHERE v = 'late by place';
SELECT job FROM incload_create_job('tr_twice', 'twice', 'twice_copy', 'upsert', 'xmin', '{id}');
SELECT rows_read, rows_inserted, rows_superseded FROM incload_run('tr_twice');
TABLE twice_copy;
-- the columns of a view may be called anything
CREATE VIEW named AS SELECT id, id * 10 AS xmin FROM plain WHERE id < 5;
SELECT job FROM incload_create_job('tr_named', 'named', 'named_copy', 'upsert', 'xmin', '{id}', options => '{"exclude": ["xmin"]}');
SELECT rows_read, watermark_to FROM incload_run('tr_named');
-- refused
CREATE VIEW seen_through AS SELECT * FROM plain;
CREATE MATERIALIZED VIEW kept AS SELECT * FROM plain;
SELECT refusal('xmin', '{}', '{}', 'plain', 'append');
SELECT refusal('xmin', '{id}', '{}', 'seen_through');
SELECT refusal('xmin', '{id}', '{}', 'kept');
SELECT refusal('xmin', '{id}', '{"reader": "relation"}', 'plain_f');
SELECT o, refusal('xmin', '{id}', o::jsonb) FROM unnest(ARRAY['{"lookback": 5}', '{"start_at": "5"}', '{"null_watermark": "skip"}',
    '{"watermark_fallback": "id"}', '{"watermark_kind": "id"}', '{"only_newer": true}', '{"source_timezone": "UTC"}']) o;

--
-- numbers that are times
--
CREATE TABLE ticks (id int PRIMARY KEY, s int, ms bigint, n numeric);
CREATE FOREIGN TABLE ticks_f (id int, s int, ms bigint, n numeric) SERVER tracking_loop OPTIONS (table_name 'ticks');
INSERT INTO ticks SELECT i, 1577836800 + i, 1577836800000 + i, 1577836800.5 + i FROM generate_series(1, 5) i;
INSERT INTO ticks VALUES (6, 2147483647, 9223372036854775807, 'NaN'), (7, -2147483648, -9223372036854775808, 'Infinity'), (8, NULL, NULL, NULL);
SELECT job FROM (VALUES ('s', 'epoch_s'), ('ms', 'epoch_ms'), ('n', 'epoch_s')) v (w, k), unnest('{ticks,ticks_f}'::text[]) t,
    LATERAL incload_create_job('tr_' || w || t, t, 'copy_' || w || t, 'upsert', w, '{id}', options => jsonb_build_object('watermark_kind', k)) ORDER BY 1;
SELECT j.job, r.rows_read, r.watermark_to, r.lag BETWEEN '5 years' AND '20 years' AS lag
FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job LIKE 'tr\_%ticks%' ORDER BY j.job;
-- the bound is the clock's second or millisecond, two seconds ago, and never above
SELECT job, guarantee, loaded_to, bound_side,
    extract(epoch FROM clock_timestamp()) - bound::numeric / CASE WHEN job LIKE 'tr_ms%' THEN 1000 ELSE 1 END BETWEEN 2 AND 30 AS behind_the_clock
FROM incload.checkpoint WHERE job LIKE 'tr\_%ticks%' ORDER BY job;
SELECT j.job, r.rows_read FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job LIKE 'tr\_%ticks%' ORDER BY j.job;
SELECT job, code, details->>'cause' AS cause FROM incload.event WHERE job LIKE 'tr\_%ticks%' AND code <> 'job_created' ORDER BY 1;
-- late within the default lookback of 15 minutes, and outside of it
INSERT INTO ticks SELECT 100 + m, e - m * 60, (e - m * 60) * 1000, e - m * 60 FROM floor(extract(epoch FROM now())) e, unnest('{10,14,40}'::int[]) m;
SELECT j.job, r.rows_read, r.rows_inserted FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job LIKE 'tr\_%ticks%' ORDER BY j.job;
SELECT (incload_alter_job(job, options => '{"lookback": "1 hour"}')).job_id IS NOT NULL FROM incload.job WHERE job = 'tr_sticks_f';
SELECT rows_inserted FROM incload_run('tr_sticks_f');
-- refused
SELECT w, k, refusal(w, '{id}', jsonb_build_object('watermark_kind', k), 'ticks') FROM (VALUES ('s', 'epoch_ms'), ('s', 'time'), ('s', 'minutes')) v (w, k);
CREATE TABLE times (id int PRIMARY KEY, at timestamptz, d date, t text COLLATE "C", sm smallint);
SELECT w, k, refusal(w, '{id}', jsonb_build_object('watermark_kind', k), 'times')
FROM (VALUES ('at', 'id'), ('at', 'epoch_s'), ('d', 'epoch_ms'), ('t', 'id'), ('sm', 'epoch_s')) v (w, k);
SELECT refusal('s', '{id}', '{"watermark_kind": "epoch_s", "lookback": 900}', 'times', 'upsert');
SELECT refusal('s', '{id}', '{"watermark_kind": "epoch_s", "lookback": "7 apples"}', 'ticks', 'upsert');

--
-- a fallback for rows without a watermark
--
CREATE TABLE late (id bigserial PRIMARY KEY, v text, updated_at timestamptz);
CREATE VIEW late_view AS SELECT id, v, updated_at FROM late;
CREATE FOREIGN TABLE late_f (id bigint, v text, updated_at timestamptz) SERVER tracking_loop OPTIONS (table_name 'late');
INSERT INTO late (v) SELECT 'new' FROM generate_series(1, 1000);
SELECT job FROM unnest('{late,late_view,late_f}'::text[]) t,
    LATERAL incload_create_job('tr_' || t, t, t || '_copy', 'upsert', 'updated_at', '{id}', options => '{"watermark_fallback": "id", "settle": "1 ms", "batch_rows": 400}');
SELECT j.job, r.rows_read, r.rows_inserted FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job LIKE 'tr\_late%' ORDER BY 1;
SELECT job, fallback_bound, guarantee FROM incload.checkpoint WHERE job IN ('tr_late', 'tr_late_f') ORDER BY 1;
-- nothing of it is read again, although every row is without a watermark
SELECT j.job, r.rows_read FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job IN ('tr_late', 'tr_late_f') ORDER BY 1;
-- the mark is taken away: the fallback alone keeps them from being sent
SELECT (incload_alter_job(job, options => '{"batch_rows": 300}')).job_id IS NOT NULL FROM incload.job WHERE job IN ('tr_late', 'tr_late_f');
SELECT j.job, r.rows_read FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job IN ('tr_late', 'tr_late_f') ORDER BY 1;
-- a new row, one that is changed, one that never had either
INSERT INTO late (v) VALUES ('newer');
UPDATE late SET v = 'changed', updated_at = now() WHERE id = 17;
SELECT j.job, r.rows_read, r.rows_inserted, r.rows_updated FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job IN ('tr_late', 'tr_late_f') ORDER BY 1;
CALL incload_run_in_batches('tr_late_view');
CALL incload_run_in_batches('tr_late_view');
SELECT t, (SELECT count(*) FROM (TABLE late EXCEPT SELECT * FROM late_copy) x) AS lost FROM unnest('{late_copy}'::text[]) t
UNION ALL SELECT 'late_view_copy', (SELECT count(*) FROM (TABLE late EXCEPT SELECT * FROM late_view_copy) x)
UNION ALL SELECT 'late_f_copy', (SELECT count(*) FROM (TABLE late EXCEPT SELECT * FROM late_f_copy) x);
-- an id far above its sequence hides none that come later
INSERT INTO late (id, v) VALUES (9223372036854775807, 'by hand');
SELECT rows_inserted FROM incload_run('tr_late_f');
INSERT INTO late (v) VALUES ('after it');
SELECT rows_inserted FROM incload_run('tr_late_f');
SELECT fallback_bound FROM incload.checkpoint WHERE job = 'tr_late_f';
SELECT code, details->>'cause' AS cause FROM incload.event WHERE job = 'tr_late_f' AND code = 'id_above_sequence';
-- ids that go backwards are no silent loss
DELETE FROM late WHERE id > 900;
SELECT setval('late_id_seq', 900);
SELECT incload_run('tr_late_f');
SELECT (incload_accept_source('tr_late_f')).job_id IS NOT NULL;
INSERT INTO late (v) VALUES ('from 901 on again');
SELECT rows_inserted + rows_updated AS arrived FROM incload_run('tr_late_f');
-- refused
CREATE TABLE filled (id int PRIMARY KEY, at timestamptz NOT NULL, at2 timestamptz, t text);
SELECT refusal('at', '{id}', '{"watermark_fallback": "id"}', 'filled');
SELECT refusal('at2', '{id}', '{"watermark_fallback": "at"}', 'filled');
SELECT refusal('at2', '{id}', '{"watermark_fallback": "idd"}', 'filled');
SELECT refusal('at2', '{id}', '{"watermark_fallback": "id", "null_watermark": "skip"}', 'filled');
SELECT refusal('at2', '{}', '{"watermark_fallback": "id"}', 'filled', 'append');
SELECT refusal(NULL, '{id}', '{"watermark_fallback": "id"}', 'filled', 'full');

--
-- a source that is a log of versions
--
CREATE TABLE versions (id int, v text, at timestamptz);
CREATE FOREIGN TABLE versions_f (id int, v text, at timestamptz) SERVER tracking_loop OPTIONS (table_name 'versions');
SELECT job FROM unnest('{versions,versions_f}'::text[]) t,
    LATERAL incload_create_job('tr_' || t, t, t || '_copy', 'upsert', 'at', '{id}', options => '{"only_newer": true, "lookback": "100 years"}');
INSERT INTO versions VALUES (1, 'old', '2020-01-01'), (1, 'new', '2020-01-03'), (1, 'middle', '2020-01-02'),
    (2, 'a', '2020-01-01'), (2, 'c', '2020-01-01'), (2, 'b', '2020-01-01'), (3, 'none', NULL), (4, 'none', NULL), (4, 'some', '1900-01-01');
SELECT j.job, r.rows_read, r.rows_inserted, r.rows_superseded FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job LIKE 'tr\_versions%' ORDER BY 1;
TABLE versions_copy ORDER BY id;
-- older ones arrive late: none overwrites; a newer one does, and of two with one watermark the greater
INSERT INTO versions VALUES (1, 'older', '2020-01-02 12:00'), (2, 'aa', '2020-01-01'), (3, 'first', '2020-01-01'), (4, 'zzz', NULL), (5, 'x', '2020-01-01');
SELECT j.job, r.rows_updated, r.rows_inserted FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job LIKE 'tr\_versions%' ORDER BY 1;
INSERT INTO versions VALUES (1, 'newest', '2020-01-04'), (2, 'd', '2020-01-01');
SELECT action, key, new_row->>'v' AS new, old_row->>'v' AS old FROM incload_preview('tr_versions_f', 100) WHERE action = 'update' ORDER BY 3;
SELECT j.job, r.rows_updated FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job LIKE 'tr\_versions%' ORDER BY 1;
TABLE versions_copy ORDER BY id;
SELECT count(*) FROM (TABLE versions_copy EXCEPT TABLE versions_f_copy) x;
-- without the option, what is read last wins
SELECT (incload_alter_job('tr_versions_f', options => '{"only_newer": false}')).job_id IS NOT NULL;
INSERT INTO versions VALUES (1, 'oldest', '2020-01-01 00:00:01');
DELETE FROM versions WHERE id = 1 AND v <> 'oldest';
SELECT rows_updated FROM incload_run('tr_versions_f');
SELECT v FROM versions_f_copy WHERE id = 1;
-- refused
SELECT refusal('(coalesce(at, now()))', '{id}', '{"only_newer": true}', 'versions');
SELECT refusal('at', '{id}', '{"only_newer": true, "transforms": {"at": "at + interval ''1 day''"}}', 'versions');
SELECT refusal('at', '{id}', '{"only_newer": true, "exclude": ["at"]}', 'versions');
SELECT refusal('at', '{id}', '{"only_newer": true}', 'versions', 'append');
SELECT refusal('at', '{id}', '{"only_newer": "yes"}', 'versions');
-- the target's column becomes another later
ALTER TABLE versions_copy ALTER COLUMN at TYPE timestamptz(0);
SELECT incload_run('tr_versions');

--
-- the future
--
CREATE TABLE ahead (id int PRIMARY KEY, at timestamptz, local timestamp, d date);
INSERT INTO ahead SELECT 1, t, t AT TIME ZONE 'UTC', t FROM (SELECT now()) n (t);
SELECT job FROM unnest('{at,local,d}'::text[]) w,
    LATERAL incload_create_job('tr_ahead_' || w, 'ahead', 'ahead_' || w, 'upsert', w, '{id}', options => '{"source_timezone": "UTC"}') ORDER BY 1;
SELECT count(incload_run(job)) FROM incload.job WHERE job LIKE 'tr\_ahead%';
-- within the guard of 5 minutes, and beyond it
INSERT INTO ahead SELECT 2, t, t AT TIME ZONE 'UTC', t FROM (SELECT now() + interval '3 minutes') n (t);
INSERT INTO ahead SELECT 3, t, t AT TIME ZONE 'UTC', t FROM (SELECT now() + interval '50 hours') n (t);
INSERT INTO ahead VALUES (4, 'infinity', 'infinity', 'infinity'), (5, '9999-12-31', '9999-12-31', '9999-12-31');
SELECT j.job, r.rows_inserted, r.lag < '1 minute' AS lag FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job LIKE 'tr\_ahead%' ORDER BY 1;
SELECT c.job, loaded_to::timestamptz < now() + interval '5 minutes' AS near, bound::timestamptz <= now() AS settled FROM incload.checkpoint c WHERE c.job LIKE 'tr\_ahead%' ORDER BY 1;
SELECT job, code, details->>'cause' AS cause FROM incload.event WHERE job LIKE 'tr\_ahead%' AND code <> 'job_created' ORDER BY 1;
-- it is told once, and later rows are seen
INSERT INTO ahead SELECT 6, t, t AT TIME ZONE 'UTC', t FROM (SELECT now()) n (t);
SELECT j.job, r.rows_inserted FROM incload.job j, LATERAL incload_run(j.job) r WHERE j.job LIKE 'tr\_ahead%' ORDER BY 1;
SELECT count(*) FROM incload.event WHERE job LIKE 'tr\_ahead%' AND code = 'future_watermark';
-- without a key, what is ahead of the clock is not read yet, and told of all the same
CREATE TABLE ahead_log (id int, at timestamptz);
SELECT job FROM incload_create_job('tr_log', 'ahead', 'ahead_log', 'append', 'at', '{}', options => '{"columns": ["id", "at"], "settle": "1 ms"}');
SELECT rows_inserted < 4 AS waits FROM incload_run('tr_log');
SELECT rows_inserted < 4 AS waits FROM incload_run('tr_log');
SELECT severity, message FROM incload.event WHERE job = 'tr_log' AND code = 'future_watermark';
-- a wider guard takes the one of 50 hours for the present
SELECT (incload_alter_job('tr_ahead_at', options => '{"future_guard": "10 days"}')).job_id IS NOT NULL;
SELECT rows_read FROM incload_run('tr_ahead_at');
SELECT loaded_to::timestamptz > now() + interval '49 hours' AS guarded FROM incload.checkpoint WHERE job = 'tr_ahead_at';
-- a materialized view settles by what it was seen to have: the future is not among it
CREATE MATERIALIZED VIEW ahead_view AS SELECT id, at FROM ahead;
SELECT job FROM incload_create_job('tr_view', 'ahead_view', 'ahead_view_copy', 'upsert', 'at', '{id}', options => '{"settle": "1 ms", "lookback": "0"}');
SELECT rows_inserted FROM incload_run('tr_view');
SELECT rows_read FROM incload_run('tr_view');
INSERT INTO ahead VALUES (7, now());
REFRESH MATERIALIZED VIEW ahead_view;
SELECT rows_inserted FROM incload_run('tr_view');
SELECT refusal('at', '{id}', '{"future_guard": "soon"}', 'ahead');

-- clean up
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'tr\_%';
DROP SERVER tracking_loop CASCADE;
DROP SCHEMA tracking CASCADE;
