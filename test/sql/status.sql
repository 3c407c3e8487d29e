--
-- incload.status: each state, worst first, in a line that fits a terminal; events of changes
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
RESET client_min_messages;
CREATE SCHEMA status;
SET search_path = status, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
SET IntervalStyle = 'postgres';
SET client_min_messages = warning;
\set SHOW_CONTEXT never

-- no view costs so much, of tables that were never analyzed, that JIT starts: that takes a second, for a handful of rows
CREATE FUNCTION cost(query text) RETURNS float8 AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan->0->'Plan'->'Total Cost';
END $$ LANGUAGE plpgsql;
SELECT count(*) > 15 AS views, string_agg(relname, ' ' ORDER BY relname) FILTER (WHERE cost('SELECT * FROM incload.' || relname) > 50000) AS dear
FROM pg_class WHERE relnamespace = 'incload'::regnamespace AND relkind = 'v';

CREATE TABLE source (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now());
CREATE FUNCTION make(job text, options jsonb DEFAULT NULL, schedule text DEFAULT NULL) RETURNS text AS $$
	SELECT (incload_create_job(job, 'status.source', 'status.' || job, strategy => 'upsert', watermark => 'updated_at',
		key => '{id}', schedule => schedule, options => options)).job
$$ LANGUAGE sql;
-- what became of a run, so many minutes ago
CREATE FUNCTION ran(of_job text, minutes_ago integer, outcome text DEFAULT 'succeeded', what text DEFAULT 'incremental') RETURNS void AS $$
	INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at, rows_read, lag, sqlstate, error)
	SELECT nextval('incload.run_id_seq'), job_id, job, owner, what, outcome, 'manual', now() - minutes_ago * interval '1 minute',
		CASE WHEN outcome <> 'running' THEN now() - minutes_ago * interval '1 minute' + interval '5 s' END, 1234567, '00:00:02.508082',
		CASE WHEN outcome IN ('failed', 'cancelled') THEN '08006' END,
		CASE WHEN outcome IN ('failed', 'cancelled') THEN E'could not connect to server "source"\nIs it running?' WHEN outcome = 'skipped' THEN 'left out' END
	FROM incload.job_store WHERE job = of_job
$$ LANGUAGE sql;

--
-- objectives that cannot work
--
\set VERBOSITY default
SELECT make('st_bad', '{"success_slo": 1}');
SELECT make('st_bad', '{"success_slo": 0}');
SELECT make('st_bad', '{"success_slo": "often"}');
SELECT make('st_bad', '{"freshness_slo": 30}');
SELECT make('st_bad', '{"freshness_slo": "5 minutes"}', '5 minutes');
SELECT make('st_bad', '{"freshness_slo": "23 hours"}', 'CRON_TZ=UTC 0 3 * * *');
SELECT make('st_bad', '{"freshness_slo": "2 days"}', 'CRON_TZ=UTC 0 3 * * *');
SELECT (incload_alter_job('st_bad', schedule => '2 days')).job;
SELECT incload_drop_job('st_bad');

--
-- each state
--
SELECT count(make(n)) FROM unnest('{st_new,st_ok,st_failing,st_died,st_paused,st_gave_up,st_cancelled,st_running}'::text[]) n;
SELECT count(make(n, '{"freshness_slo": "30 minutes"}')) FROM unnest('{st_fresh,st_stale,st_paused_stale,st_failing_stale,st_never_fresh}'::text[]) n;
SELECT count(make(n, schedule => '10 minutes')) FROM unnest('{st_due,st_overdue,st_left_out,st_caught_up}'::text[]) n;
SELECT ran('st_ok', 3000), ran('st_ok', 20, 'failed'), ran('st_ok', 10), ran('st_ok', 5, 'skipped'), ran('st_ok', 1, 'failed', 'backfill');
SELECT ran('st_failing', 20), ran('st_failing', 10, 'failed'), ran('st_died', 10, 'running'), ran('st_cancelled', 10, 'cancelled');
SELECT ran('st_paused', 10), ran('st_gave_up', 10, 'failed');
SELECT ran('st_fresh', 29), ran('st_stale', 31), ran('st_paused_stale', 31), ran('st_failing_stale', 31), ran('st_failing_stale', 10, 'failed');
SELECT ran('st_due', 14), ran('st_overdue', 16), ran('st_left_out', 20), ran('st_caught_up', 20), ran('st_caught_up', 1);
SELECT count(incload_pause(job)) FROM unnest('{st_paused,st_gave_up,st_paused_stale}'::text[]) job;
UPDATE incload.job_store SET created_at = now() - interval '31 minutes' WHERE job = 'st_never_fresh';
-- the schedule: due for 4 and for 6 minutes; and the last round was left out, since when one has been run, or has not
UPDATE incload.schedule_store s SET next_run_at = now() + n.at, last_status = n.last_status, last_run_at = now() - interval '9 minutes'
FROM incload.job_store j, (VALUES ('st_due', interval '-4 minutes', 'succeeded'), ('st_overdue', '-6 minutes', 'succeeded'),
	('st_left_out', '1 minute', 'skipped'), ('st_caught_up', '1 minute', 'skipped')) AS n (job, at, last_status)
WHERE j.job_id = s.job_id AND j.job = n.job;
BEGIN;
SELECT ran('st_running', 10);
SELECT (incload_run('st_running')).status;
SELECT job, state, is_late, regexp_replace(problem, '\d\d:\d\d:\d\d$', '(a time)') AS problem, freshness_slo, last_error, pid = pg_backend_pid() AS here, last_rows
FROM incload.status WHERE job LIKE 'st\_%';
COMMIT;
SELECT job, state, is_late FROM incload.status WHERE job = 'st_running';

-- the first seven columns, whatever is in them, in 120 characters: as psql has it, with names of 16 letters
SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'incload.status'::regclass AND attnum BETWEEN 1 AND 7;
SELECT sum(greatest(w, length(name)) + 3) - 1 <= 120 AS fits FROM (
	SELECT name, max(length(value)) AS w FROM incload.status s,
		LATERAL (VALUES ('job', s.job), ('state', s.state), ('freshness', s.freshness::text), ('lag', s.lag::text),
			('last_rows', s.last_rows::text), ('next_run', s.next_run::text), ('problem', s.problem)) AS v (name, value)
	WHERE s.job LIKE 'st\_%' GROUP BY name) x;
SELECT job, freshness BETWEEN '10 minutes' AND '20 minutes' AS freshness, lag, last_rows, next_run = date_trunc('second', next_run) AS whole_seconds,
	last_success > now() - interval '11 minutes' AS success
FROM incload.status WHERE job IN ('st_ok', 'st_due') ORDER BY job;

-- whoever may not see a job does not see its figures, whichever way he asks
CREATE ROLE status_stranger;
GRANT USAGE ON SCHEMA status TO status_stranger;
SELECT job_id AS ok_id FROM incload.job WHERE job = 'st_ok' \gset
SELECT (SELECT count(*) FROM incload.slo WHERE job LIKE 'st\_%'), (SELECT count(*) FROM incload.slo_of(:ok_id, now())), (SELECT count(*) FROM incload.failure WHERE job LIKE 'st\_%') > 0 AS failures;
SET ROLE status_stranger;
SELECT (SELECT count(*) FROM incload.slo), (SELECT count(*) FROM incload.slo_of(:ok_id, now())), (SELECT count(*) FROM incload.failure),
	(SELECT count(*) FROM incload.status), (SELECT count(*) FROM incload.progress), (SELECT count(*) FROM incload.unusual_volumes(:ok_id, '-infinity', now()));
RESET ROLE;
SELECT class, sqlstate, kind, failures FROM incload.failure WHERE job = 'st_ok' ORDER BY kind;

--
-- who changed what, from what to what
--
SELECT (incload_alter_job('st_ok', schedule => '1 hour', options => '{"batch_rows": 5, "filter": "id > 0", "freshness_slo": "2 hours"}')).job;
SELECT (incload_alter_job('st_ok', options => '{"batch_rows": 6, "filter": null}')).job;
SELECT (incload_alter_job('st_ok')).job;
SELECT (incload_alter_job('st_ok', key => '{id,updated_at}')).job;
SELECT (incload_pause('st_ok')).job, (incload_resume('st_ok')).job;
INSERT INTO source VALUES (1, '2026-01-01'), (2, '2026-01-02');
SELECT (incload_alter_job('st_ok', key => '{id}', schedule => 'none')).job;
SELECT status FROM incload_run('st_ok');
DELETE FROM st_ok WHERE id = 1;
SELECT count(*) FROM incload_reconcile('st_ok', repair => true);
SELECT count(*) FROM incload_reconcile('st_ok', repair => true);
SELECT (incload_accept_source('st_ok')).job;
SELECT (incload_rewind('st_ok', '2026-01-01')).job;
SELECT incload_drop_job('st_ok');
SELECT code, details->>'by' = current_user AS by_me, at > now() - interval '1 minute' AS at,
	regexp_replace(details->>'from', '20\d\d-(?!01-0)[^",]*', '(a time)') AS "from",
	regexp_replace(details->>'to', '20\d\d-(?!01-0)[^",]*', '(a time)') AS "to"
FROM incload.event WHERE job = 'st_ok' ORDER BY event_id;

SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'st\_%';
DELETE FROM incload.run_store WHERE job LIKE 'st\_%';
REVOKE ALL ON SCHEMA status FROM status_stranger;
DROP ROLE status_stranger;
SET client_min_messages = warning;
DROP SCHEMA status CASCADE;
