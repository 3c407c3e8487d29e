/* incload--0.1.sql: the SQL surface of incload */

-- complain if the script is sourced by psql rather than by CREATE EXTENSION
\echo Use "CREATE EXTENSION incload" to load this file. \quit

/*
 * Tables are written by incload's own functions alone, as the extension's
 * owner. Users read the views, which show a job to its owner and to members
 * of that role. The tables carry no row security, so that pg_dump can read
 * them for any role that may read all data.
 */
CREATE SCHEMA incload;
COMMENT ON SCHEMA incload IS 'incload: jobs, checkpoints and the history of runs';
GRANT USAGE ON SCHEMA incload TO PUBLIC;

CREATE SEQUENCE incload.job_id_seq;
COMMENT ON SEQUENCE incload.job_id_seq IS 'incload: numbers jobs';
CREATE SEQUENCE incload.run_id_seq;
COMMENT ON SEQUENCE incload.run_id_seq IS 'incload: numbers runs; not rolled back, so that a failed run keeps its number';

CREATE TABLE incload.job_store (
    job_id      bigint PRIMARY KEY DEFAULT nextval('incload.job_id_seq'),
    job         text COLLATE "C" NOT NULL UNIQUE,
    owner       name NOT NULL,
    owner_oid   oid NOT NULL,
    source      text NOT NULL,
    source_oid  oid NOT NULL,
    target      text NOT NULL,
    target_oid  oid NOT NULL,
    database    text NOT NULL,
    strategy    text NOT NULL CHECK (strategy IN ('append', 'upsert', 'full')),
    watermark   text,
    key         text[] NOT NULL DEFAULT '{}',
    options     jsonb NOT NULL DEFAULT '{}',
    search_path text NOT NULL,
    schedule    text,
    enabled     boolean NOT NULL DEFAULT true,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    altered_at  timestamptz
);
COMMENT ON TABLE incload.job_store IS 'incload: one row a job; read it through incload.job';
COMMENT ON COLUMN incload.job_store.database IS 'system identifier and OID of the database for which the OIDs beside the names hold';
COMMENT ON COLUMN incload.job_store.search_path IS 'the search_path under which the job''s expressions and SQL were written and are run';

CREATE TABLE incload.checkpoint_store (
    job_id          bigint PRIMARY KEY REFERENCES incload.job_store ON DELETE CASCADE,
    bound           text,
    bound_side      text CHECK (bound_side IN ('before', 'after')),
    tie_key         text[],
    noted_bounds    jsonb NOT NULL DEFAULT '[]',
    fallback_bound  text,
    fallback_side   text CHECK (fallback_side IN ('before', 'after')),
    fallback_noted  jsonb NOT NULL DEFAULT '[]',
    guarantee       text CHECK (guarantee IN ('exact', 'settle')),
    held_back_by    text,
    epoch           text,
    seen            text,
    seen_tie_key    text[],
    seen_null       boolean NOT NULL DEFAULT false,
    mark            xid8,
    definition_hash text,
    loaded_to       text,
    bound_type      text,
    relations       text,
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((bound IS NULL) = (bound_side IS NULL)),
    CHECK (tie_key IS NULL OR bound IS NOT NULL)
);
COMMENT ON TABLE incload.checkpoint_store IS 'incload: how far each job is loaded; read it through incload.checkpoint';

-- the same for tombstones: there is a row once some were looked for
CREATE TABLE incload.tombstone_store (LIKE incload.checkpoint_store INCLUDING ALL,
    FOREIGN KEY (job_id) REFERENCES incload.job_store ON DELETE CASCADE);
COMMENT ON TABLE incload.tombstone_store IS 'incload: how far the tombstones of each job are read; read it through incload.tombstone';

CREATE TABLE incload.schema_store (
    job_id  bigint PRIMARY KEY REFERENCES incload.job_store ON DELETE CASCADE,
    columns json NOT NULL,
    omitted json NOT NULL DEFAULT '[]',
    absent  json NOT NULL DEFAULT '[]'
);
COMMENT ON TABLE incload.schema_store IS 'incload: the columns of each job''s source as its last run saw them; what is not so any more is the event schema_changed';
COMMENT ON COLUMN incload.schema_store.columns IS 'names and types, as the server that holds the source has them';
COMMENT ON COLUMN incload.schema_store.omitted IS 'columns here that the job would load, and for which the target has no place, or the source no values';
COMMENT ON COLUMN incload.schema_store.absent IS 'columns that the foreign table has not, by their names there';

CREATE TABLE incload.schedule_store (
    job_id      bigint PRIMARY KEY REFERENCES incload.job_store ON DELETE CASCADE,
    anchor      timestamptz NOT NULL,
    planned_at  timestamptz NOT NULL,
    next_run_at timestamptz NOT NULL,
    attempt     integer NOT NULL DEFAULT 1,
    failures    integer NOT NULL DEFAULT 0,
    last_status text,
    last_run_at timestamptz
);
CREATE INDEX schedule_store_next_idx ON incload.schedule_store (next_run_at);
COMMENT ON TABLE incload.schedule_store IS 'incload: when each job with a schedule runs next; read it through incload.status';
COMMENT ON COLUMN incload.schedule_store.anchor IS 'the time from which intervals are counted';
COMMENT ON COLUMN incload.schedule_store.planned_at IS 'the time of the schedule that is due, under way or next';
COMMENT ON COLUMN incload.schedule_store.next_run_at IS 'when its run may start: a little later, or at its retry';
COMMENT ON COLUMN incload.schedule_store.failures IS 'failures in a row by lasting faults';

CREATE TABLE incload.reconcile_schedule_store (
    job_id  bigint PRIMARY KEY REFERENCES incload.job_store ON DELETE CASCADE,
    anchor  timestamptz NOT NULL,
    next_at timestamptz NOT NULL
);
COMMENT ON TABLE incload.reconcile_schedule_store IS 'incload: when each job with the option reconcile_schedule is compared next; read it through incload.status';

CREATE TABLE incload.run_store (
    run_id          bigint PRIMARY KEY,
    job_id          bigint NOT NULL,
    job             text COLLATE "C" NOT NULL,
    owner           name NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('incremental', 'full', 'backfill', 'retry', 'reconcile')),
    status          text NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'cancelled', 'skipped')),
    trigger         text NOT NULL,
    started_at      timestamptz NOT NULL,
    finished_at     timestamptz,
    watermark_from  text,
    watermark_to    text,
    rows_read       bigint NOT NULL DEFAULT 0,
    rows_inserted   bigint NOT NULL DEFAULT 0,
    rows_updated    bigint NOT NULL DEFAULT 0,
    rows_unchanged  bigint NOT NULL DEFAULT 0,
    rows_deleted    bigint NOT NULL DEFAULT 0,
    rows_superseded bigint NOT NULL DEFAULT 0,
    rows_suppressed bigint NOT NULL DEFAULT 0,
    rows_rejected   bigint NOT NULL DEFAULT 0,
    rows_pruned     bigint NOT NULL DEFAULT 0,
    batches         integer NOT NULL DEFAULT 0,
    bytes_read      bigint NOT NULL DEFAULT 0,
    lag             interval,
    attempt         integer NOT NULL DEFAULT 1,
    sqlstate        text,
    error           text,
    hint            text,
    pid             integer
);
CREATE INDEX run_store_job_idx ON incload.run_store (job_id, run_id DESC);
-- whether a run has died is asked by each run, and must not depend on how many there were
CREATE INDEX run_store_running_idx ON incload.run_store (job_id) WHERE status = 'running';
-- the last success is asked for each job at once, and may lie behind many failures
CREATE INDEX run_store_success_idx ON incload.run_store (job_id, run_id DESC) WHERE status = 'succeeded' AND kind IN ('incremental', 'full');
CREATE INDEX run_store_started_idx ON incload.run_store USING brin (started_at);
CREATE INDEX run_store_failed_idx ON incload.run_store (finished_at) WHERE status = 'failed';
COMMENT ON TABLE incload.run_store IS 'incload: the history of runs; read it through incload.run';

CREATE SEQUENCE incload.window_id_seq;
COMMENT ON SEQUENCE incload.window_id_seq IS 'incload: numbers windows of backfills';
CREATE TABLE incload.batch_window_store (
    window_id   bigint PRIMARY KEY DEFAULT nextval('incload.window_id_seq'),
    job_id      bigint NOT NULL REFERENCES incload.job_store ON DELETE CASCADE,
    low         text NOT NULL,
    high        text NOT NULL,
    state       text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'done', 'failed', 'stopped')),
    attempts    integer NOT NULL DEFAULT 0,
    not_before  timestamptz NOT NULL DEFAULT '-infinity',
    run_id      bigint,
    rows_read   bigint,
    error       text,
    created_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz
);
CREATE INDEX batch_window_store_job_idx ON incload.batch_window_store (job_id, created_at);
-- what is still to be loaded is asked for all the time, and is mostly nothing
CREATE INDEX batch_window_store_pending_idx ON incload.batch_window_store (job_id, window_id) WHERE state = 'pending';
COMMENT ON TABLE incload.batch_window_store IS 'incload: the ledger of backfills; read it through incload.batch_window';

CREATE SEQUENCE incload.reject_id_seq;
COMMENT ON SEQUENCE incload.reject_id_seq IS 'incload: numbers rows that were put aside';
CREATE TABLE incload.reject_store (
    reject_id   bigint PRIMARY KEY DEFAULT nextval('incload.reject_id_seq'),
    job_id      bigint NOT NULL REFERENCES incload.job_store ON DELETE CASCADE,
    run_id      bigint NOT NULL,
    key         jsonb,
    row         jsonb NOT NULL,
    is_exact    boolean NOT NULL,
    sqlstate    text NOT NULL,
    error       text NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX reject_store_job_idx ON incload.reject_store (job_id);
CREATE INDEX reject_store_key_idx ON incload.reject_store (job_id, jsonb_hash_extended(key, 0));
COMMENT ON TABLE incload.reject_store IS 'incload: rows that could not be taken; read it through incload.reject';

CREATE TABLE incload.reconcile_store (
    run_id           bigint PRIMARY KEY,
    job_id           bigint NOT NULL,
    job              text COLLATE "C" NOT NULL,
    owner            name NOT NULL,
    at               timestamptz NOT NULL DEFAULT clock_timestamp(),
    mode             text NOT NULL CHECK (mode IN ('count', 'hash', 'rows')),
    source_rows      bigint NOT NULL,
    target_rows      bigint NOT NULL,
    ranges           integer NOT NULL,
    ranges_differing integer NOT NULL,
    rows_missing     bigint NOT NULL,
    rows_extra       bigint NOT NULL,
    rows_changed     bigint NOT NULL,
    rows_duplicate   bigint NOT NULL DEFAULT 0,
    rows_conflicting bigint NOT NULL,
    rows_repaired    bigint NOT NULL
);
CREATE INDEX reconcile_store_job_idx ON incload.reconcile_store (job_id, run_id DESC);
COMMENT ON TABLE incload.reconcile_store IS 'incload: what incload_reconcile has found; read it through incload.reconcile';

CREATE TYPE incload.slo_figures AS (
    period           interval,
    as_of            timestamptz,
    observed         interval,
    freshness_p50    interval,
    freshness_p95    interval,
    freshness_p99    interval,
    freshness_slo    interval,
    fresh_fraction   double precision,
    success_slo      double precision,
    budget_left      double precision,
    budget_by        text,
    burn_rate_1h     double precision,
    burn_rate_6h     double precision,
    runs             bigint,
    failed           bigint,
    success_rate     double precision,
    errors           jsonb,
    recoveries       bigint,
    time_to_recover  interval,
    backfill_rows    bigint,
    backfill_bytes   bigint,
    comparisons      bigint,
    missing_rate     double precision,
    extra_rate       double precision,
    duplicate_rate   double precision
);
COMMENT ON TYPE incload.slo_figures IS 'incload: a row of incload.slo, but for the job';

-- one row a job, updated in place each minute
CREATE TABLE incload.slo_store (
    job_id      bigint PRIMARY KEY REFERENCES incload.job_store ON DELETE CASCADE,
    as_of       timestamptz NOT NULL,
    figures     incload.slo_figures[] NOT NULL,
    budget_left double precision,
    told        smallint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE incload.slo_store IS 'incload: the figures of incload.slo, as a scheduler has computed them last';
COMMENT ON COLUMN incload.slo_store.told IS 'how much of the error budget is known to be spent, in percent: 0, 25 or 75';

CREATE TABLE incload.event_store (
    event_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_id      bigint,
    job         text COLLATE "C",
    owner       name NOT NULL,
    run_id      bigint,
    severity    text NOT NULL CHECK (severity IN ('page', 'ticket', 'info')),
    code        text NOT NULL,
    message     text NOT NULL,
    details     jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX event_store_job_idx ON incload.event_store (job_id, event_id DESC);
CREATE INDEX event_store_page_idx ON incload.event_store (job_id, event_id DESC) WHERE severity = 'page';
COMMENT ON TABLE incload.event_store IS 'incload: what an operator should know; read it through incload.event';

CREATE FUNCTION incload.runbook(code text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN pg_catalog.rtrim(coalesce(pg_catalog.current_setting('incload.runbook_url', true), ''), '/')
    || CASE WHEN coalesce(pg_catalog.current_setting('incload.runbook_url', true), '') = '' THEN '' ELSE '/' END
    || 'docs/runbooks/' || code || '.md';
COMMENT ON FUNCTION incload.runbook(text) IS 'the page that says what to do about an event or an alert: a path below the setting incload.runbook_url';

-- counters that only go up; the history is pruned, and this is not. A job has one row, or several while transactions overlap.
CREATE TABLE incload.tally_store (
    tally_id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id             bigint NOT NULL,
    rows_read          bigint NOT NULL DEFAULT 0,
    rows_inserted      bigint NOT NULL DEFAULT 0,
    rows_updated       bigint NOT NULL DEFAULT 0,
    rows_unchanged     bigint NOT NULL DEFAULT 0,
    rows_deleted       bigint NOT NULL DEFAULT 0,
    rows_superseded    bigint NOT NULL DEFAULT 0,
    rows_suppressed    bigint NOT NULL DEFAULT 0,
    rows_rejected      bigint NOT NULL DEFAULT 0,
    rows_pruned        bigint NOT NULL DEFAULT 0,
    batches            bigint NOT NULL DEFAULT 0,
    bytes_read         bigint NOT NULL DEFAULT 0,
    runs_succeeded     bigint NOT NULL DEFAULT 0,
    runs_failed        bigint NOT NULL DEFAULT 0,
    runs_cancelled     bigint NOT NULL DEFAULT 0,
    runs_skipped       bigint NOT NULL DEFAULT 0,
    run_microseconds   bigint NOT NULL DEFAULT 0,
    backfill_rows_read bigint NOT NULL DEFAULT 0,
    pages              bigint NOT NULL DEFAULT 0,
    tickets            bigint NOT NULL DEFAULT 0,
    recent_to          timestamptz,
    recent             bytea NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE INDEX tally_store_job_idx ON incload.tally_store (job_id);
COMMENT ON TABLE incload.tally_store IS 'incload: what runs and events of each job add up to; read it through incload.metrics';
COMMENT ON COLUMN incload.tally_store.recent IS 'outcomes of runs that are not in incload.outcome_store yet, and recent_to the latest end of them';

-- what the figures of incload.slo are computed from; a row that has as many as fit a page is not compressed, as it is read all the time
CREATE TABLE incload.outcome_store (
    chunk_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id      bigint NOT NULL,
    ended_by    timestamptz NOT NULL,
    outcomes    bytea NOT NULL
) WITH (toast_tuple_target = 8160);
ALTER TABLE incload.outcome_store ALTER COLUMN outcomes SET STORAGE EXTERNAL;
CREATE INDEX outcome_store_job_idx ON incload.outcome_store (job_id, ended_by DESC);
COMMENT ON TABLE incload.outcome_store IS 'incload: outcomes of runs, condensed, beside the history of runs; read it through incload.slo';
COMMENT ON COLUMN incload.outcome_store.ended_by IS 'the latest end of a run among them';

CREATE FUNCTION incload.tally_run() RETURNS trigger LANGUAGE C AS 'MODULE_PATHNAME', 'incload_tally_run';
COMMENT ON FUNCTION incload.tally_run() IS 'incload: adds to incload.tally_store what the row of a run says more than before';
CREATE FUNCTION incload.tally_event() RETURNS trigger LANGUAGE C AS 'MODULE_PATHNAME', 'incload_tally_event';
COMMENT ON FUNCTION incload.tally_event() IS 'incload: adds a page or a ticket to incload.tally_store';
CREATE FUNCTION incload.forget_outcomes() RETURNS trigger LANGUAGE C AS 'MODULE_PATHNAME', 'incload_forget_outcomes';
COMMENT ON FUNCTION incload.forget_outcomes() IS 'incload: incload.slo knows no runs that the history has lost';
REVOKE ALL ON FUNCTION incload.tally_run(), incload.tally_event(), incload.forget_outcomes() FROM PUBLIC;
CREATE TRIGGER tally AFTER INSERT OR UPDATE OR DELETE ON incload.run_store
    FOR EACH ROW EXECUTE FUNCTION incload.tally_run();
ALTER TABLE incload.run_store ENABLE ALWAYS TRIGGER tally;
COMMENT ON TRIGGER tally ON incload.run_store IS 'incload: counters outlive the history; outcomes of runs are in it, and kept small';
CREATE TRIGGER forget_outcomes AFTER TRUNCATE ON incload.run_store
    FOR EACH STATEMENT EXECUTE FUNCTION incload.forget_outcomes();
ALTER TABLE incload.run_store ENABLE ALWAYS TRIGGER forget_outcomes;
COMMENT ON TRIGGER forget_outcomes ON incload.run_store IS 'incload: incload.slo knows no runs that the history has lost';
CREATE TRIGGER tally AFTER INSERT ON incload.event_store
    FOR EACH ROW WHEN (NEW.severity <> 'info' AND NEW.job_id IS NOT NULL) EXECUTE FUNCTION incload.tally_event();
ALTER TABLE incload.event_store ENABLE ALWAYS TRIGGER tally;
COMMENT ON TRIGGER tally ON incload.event_store IS 'incload: counters outlive the history';

SELECT pg_catalog.pg_extension_config_dump('incload.job_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('incload.run_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('incload.job_store', '');
SELECT pg_catalog.pg_extension_config_dump('incload.checkpoint_store', '');
SELECT pg_catalog.pg_extension_config_dump('incload.tombstone_store', '');
SELECT pg_catalog.pg_extension_config_dump('incload.schema_store', '');
SELECT pg_catalog.pg_extension_config_dump('incload.schedule_store', '');
SELECT pg_catalog.pg_extension_config_dump('incload.reconcile_schedule_store', '');
SELECT pg_catalog.pg_extension_config_dump('incload.window_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('incload.batch_window_store', '');
SELECT pg_catalog.pg_extension_config_dump('incload.reject_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('incload.reject_store', '');

/*
 * Views. Each shows a row to the members of its owner's role, looked up by
 * name once a query; a superuser also sees what a dropped role left behind.
 */
CREATE VIEW incload.job WITH (security_barrier) AS
SELECT j.job_id, j.job, j.owner, j.source, j.target, j.strategy, j.watermark,
       j.key, j.schedule, j.options, j.enabled, j.search_path, j.created_at, j.altered_at
FROM incload.job_store j
WHERE j.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                  WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
   OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
COMMENT ON VIEW incload.job IS 'one row a job: what is loaded from where to where, and how';

CREATE VIEW incload.checkpoint WITH (security_barrier) AS
SELECT c.job_id, j.job, c.bound, c.bound_side, c.tie_key, c.noted_bounds,
       c.fallback_bound, c.fallback_side, c.fallback_noted, c.guarantee, c.held_back_by, c.epoch, c.seen,
       c.seen_tie_key, c.seen_null, c.mark, c.definition_hash, c.loaded_to, c.bound_type, c.relations, c.updated_at
FROM incload.checkpoint_store c
JOIN incload.job_store j USING (job_id)
WHERE j.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                  WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
   OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
COMMENT ON VIEW incload.checkpoint IS 'how far each job is loaded for certain, committed with the rows';
COMMENT ON COLUMN incload.checkpoint.bound IS 'the settled horizon that was reached: every row below it (bound_side: just before or just after the value) is loaded';
COMMENT ON COLUMN incload.checkpoint.bound_type IS 'the type of bound, seen and loaded_to';
COMMENT ON COLUMN incload.checkpoint.relations IS 'OIDs of the tables behind the source, and, for a number, of their sequences, at the last run';
COMMENT ON COLUMN incload.checkpoint.fallback_bound IS 'the same for the option watermark_fallback: every row without a watermark up to this id is loaded';
COMMENT ON COLUMN incload.checkpoint.mark IS 'each transaction of the source below this xid8 was over at the last run; for the watermark xmin, the checkpoint itself';
COMMENT ON COLUMN incload.checkpoint.seen IS 'how far the last run read; below it, rows whose transaction is older than mark are not sent again';

CREATE VIEW incload.tombstone WITH (security_barrier) AS
SELECT t.job_id, j.job, t.bound, t.bound_side, t.noted_bounds, t.guarantee, t.held_back_by, t.epoch, t.seen, t.mark,
       t.loaded_to, t.bound_type, t.updated_at
FROM incload.tombstone_store t
JOIN incload.job_store j USING (job_id)
WHERE j.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                  WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
   OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
COMMENT ON VIEW incload.tombstone IS 'how far the tombstones of each job are read, with the columns of incload.checkpoint; committed with the rows that they deleted';

CREATE VIEW incload.run WITH (security_barrier) AS
SELECT u.run_id, u.job, u.kind, u.status, u.trigger, u.started_at, u.finished_at,
       u.watermark_from, u.watermark_to, u.rows_read, u.rows_inserted,
       u.rows_updated, u.rows_unchanged, u.rows_deleted, u.rows_superseded,
       u.rows_suppressed, u.rows_rejected, u.rows_pruned, u.batches,
       u.bytes_read, u.lag, u.attempt, u.sqlstate, u.error, u.hint, u.pid
FROM incload.run_store u
WHERE u.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                  WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
   OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
COMMENT ON VIEW incload.run IS 'the history of runs: what each read and did, and how it ended';
COMMENT ON COLUMN incload.run.rows_read IS 'rows that the source sent = inserted + updated + unchanged + deleted + superseded + suppressed + rejected';
COMMENT ON COLUMN incload.run.rows_deleted IS 'target rows that were deleted, as the source marks them or lists their keys';
COMMENT ON COLUMN incload.run.rows_superseded IS 'rows read of which a newer one with the same key came in the same batch';
COMMENT ON COLUMN incload.run.rows_suppressed IS 'rows that a trigger of the target kept from being written';
COMMENT ON COLUMN incload.run.rows_pruned IS 'target rows that a full refresh removed as the source no longer has them; not part of rows_read';
COMMENT ON COLUMN incload.run.lag IS 'the source''s clock at the start of the run, less the newest watermark loaded by then';

CREATE VIEW incload.reject WITH (security_barrier) AS
SELECT r.reject_id, r.run_id, j.job, r.key, r.row, r.sqlstate, r.error, r.at, r.is_exact
FROM incload.reject_store r
JOIN incload.job_store j USING (job_id)
WHERE j.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                  WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
   OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
COMMENT ON VIEW incload.reject IS 'rows that could not be taken, and why; incload_retry_rejects loads them once they can be';
COMMENT ON COLUMN incload.reject.run_id IS 'the run that met the row last';
COMMENT ON COLUMN incload.reject.key IS 'the key in it: integers and numerics as numbers, all else as text; NULL for a job without a key';
COMMENT ON COLUMN incload.reject.row IS 'its values by the target''s columns, as text';
COMMENT ON COLUMN incload.reject.is_exact IS 'false: bytes that mean nothing in this database''s encoding stand in it as \xNN';

CREATE VIEW incload.reconcile WITH (security_barrier) AS
SELECT c.run_id, c.job, c.at, c.mode, c.source_rows, c.target_rows, c.rows_missing, c.rows_extra, c.rows_changed,
       c.rows_duplicate, c.rows_conflicting, c.rows_repaired, c.ranges, c.ranges_differing
FROM incload.reconcile_store c
WHERE c.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                  WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
   OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
COMMENT ON VIEW incload.reconcile IS 'what each call of incload_reconcile has compared and found';
COMMENT ON COLUMN incload.reconcile.source_rows IS 'rows of the source that the job is about, as they were counted';
COMMENT ON COLUMN incload.reconcile.rows_missing IS 'rows that the source has and the target has not';
COMMENT ON COLUMN incload.reconcile.rows_extra IS 'rows that the target has and the source has not';
COMMENT ON COLUMN incload.reconcile.rows_changed IS 'rows that both have, and that are not the same';
COMMENT ON COLUMN incload.reconcile.rows_duplicate IS 'keys that the target has more than once';
COMMENT ON COLUMN incload.reconcile.rows_conflicting IS 'of the changed ones, those that were not written at the source since the last run: they may have been changed at the target';
COMMENT ON COLUMN incload.reconcile.rows_repaired IS 'rows that were inserted, updated and deleted at the target';
COMMENT ON COLUMN incload.reconcile.ranges IS 'ranges of the key that were compared by checksum or by count';
COMMENT ON COLUMN incload.reconcile.ranges_differing IS 'by mode count, those whose counts differ';

CREATE VIEW incload.event WITH (security_barrier) AS
SELECT e.event_id, e.at, e.job, e.run_id, e.severity, e.code, e.message, e.details, incload.runbook(e.code) AS runbook
FROM incload.event_store e
WHERE e.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                  WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
   OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
COMMENT ON VIEW incload.event IS 'what an operator should know: jobs created, altered, paused, dropped, refreshed';
COMMENT ON COLUMN incload.event.runbook IS 'the page that says what to do about it, below the setting incload.runbook_url';

/*
 * A job's run holds an advisory lock of incload's own kind (objsubid 73, which
 * pg_advisory_lock cannot take): it tells a run that is under way, whose rows
 * are not yet committed, and tells a run that died from one that works.
 */
CREATE VIEW incload.status WITH (security_barrier) AS
SELECT x.job, x.state,
       date_trunc('second', x.freshness) AS freshness,
       date_trunc('second', x.lag) AS lag,
       x.last_rows,
       x.next_run::timestamptz(0) AS next_run,
       CASE WHEN x.state = 'failing' THEN left(x.last_error, 27)
            WHEN x.late_by_slo THEN left('older than ' || x.freshness_slo, 27)
            WHEN x.late_by_schedule AND x.next_run < clock_timestamp() THEN left('due for ' || date_trunc('second', clock_timestamp() - x.next_run), 27)
            WHEN x.late_by_schedule THEN 'the last round was left out'
            WHEN x.state = 'paused' THEN left(x.last_error, 27) END AS problem,
       x.last_success, x.is_late, x.freshness_slo, x.budget_left, x.failures, x.checkpoint, x.guarantee, x.held_back_by,
       x.pid, x.last_error, x.rejects, x.next_reconcile
FROM (
    SELECT y.*, y.late_by_slo OR y.late_by_schedule AS is_late,
           CASE WHEN y.is_running THEN 'running'
                WHEN NOT y.enabled THEN 'paused'
                WHEN y.last_status NOT IN ('succeeded') THEN 'failing'
                WHEN y.late_by_slo OR y.late_by_schedule THEN 'late'
                WHEN y.last_status IS NULL THEN 'never run'
                ELSE 'ok' END AS state
    FROM (
        SELECT j.job, j.enabled, l.job_id IS NOT NULL AS is_running, e.status AS last_status,
               s.finished_at AS last_success, clock_timestamp() - s.started_at AS freshness, s.lag, s.rows_read AS last_rows,
               CASE WHEN j.enabled THEN a.next_run_at END AS next_run,
               (j.options->>'freshness_slo')::interval AS freshness_slo,
               j.enabled AND j.options ? 'freshness_slo'
               AND clock_timestamp() - coalesce(s.started_at, j.created_at) > (j.options->>'freshness_slo')::interval AS late_by_slo,
               coalesce(j.enabled AND NOT j.options ? 'freshness_slo' AND l.job_id IS NULL
                        AND (a.next_run_at < clock_timestamp() - interval '5 minutes'
                             OR (a.last_status IN ('skipped', 'cancelled')
                                 AND coalesce(s.finished_at, '-infinity') < a.last_run_at)), false) AS late_by_schedule,
               g.budget_left, a.failures,
               CASE WHEN c.bound IS NULL AND j.watermark = 'xmin' THEN c.mark::text ELSE c.bound END AS checkpoint,
               c.guarantee, c.held_back_by, l.pid,
               CASE WHEN e.status = 'running' AND l.job_id IS NULL
                    THEN 'the session or the server ended during the run'
                    WHEN e.status NOT IN ('succeeded', 'running')
                    THEN e.sqlstate || ': ' || split_part(e.error, E'\n', 1) END AS last_error,
               (SELECT count(*) FROM incload.reject_store r WHERE r.job_id = j.job_id) AS rejects,
               CASE WHEN j.enabled THEN m.next_at END AS next_reconcile
        FROM incload.job_store j
        -- DISTINCT, though by a primary key, and LIMIT 1 tell the planner that a job has one row at most. By the foreign
        -- keys alone a table that was never analyzed is taken to hold several rows a job, and with these multiplied
        -- the cost of a handful of jobs is one at which JIT starts, for a second.
        LEFT JOIN (SELECT DISTINCT ON (m.job_id) m.job_id, m.next_at FROM incload.reconcile_schedule_store m) m USING (job_id)
        LEFT JOIN (SELECT DISTINCT ON (c.job_id) c.* FROM incload.checkpoint_store c) c USING (job_id)
        LEFT JOIN (SELECT DISTINCT ON (a.job_id) a.* FROM incload.schedule_store a) a USING (job_id)
        LEFT JOIN (SELECT DISTINCT ON (g.job_id) g.job_id, g.budget_left FROM incload.slo_store g) g USING (job_id)
        LEFT JOIN LATERAL (SELECT u.status, u.sqlstate, u.error, u.started_at, u.finished_at, u.lag, u.rows_read FROM incload.run_store u
                           WHERE u.job_id = j.job_id AND u.status <> 'skipped' AND u.kind IN ('incremental', 'full')
                           ORDER BY u.run_id DESC LIMIT 1) e ON true
        -- mostly that one has succeeded, and no other is looked up
        LEFT JOIN LATERAL (SELECT e.started_at, e.finished_at, e.lag, e.rows_read WHERE e.status = 'succeeded'
                           UNION ALL
                           (SELECT u.started_at, u.finished_at, u.lag, u.rows_read FROM incload.run_store u
                            WHERE e.status <> 'succeeded' AND u.job_id = j.job_id AND u.status = 'succeeded' AND u.kind IN ('incremental', 'full')
                            ORDER BY u.run_id DESC LIMIT 1)
                           LIMIT 1) s ON true
        LEFT JOIN (SELECT (k.classid::bigint << 32) | k.objid::bigint AS job_id, min(k.pid) AS pid
                   FROM pg_catalog.pg_locks k
                   WHERE k.locktype = 'advisory' AND k.objsubid = 73 AND k.granted
                     AND k.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
                   GROUP BY 1) l ON l.job_id = j.job_id
        WHERE j.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                          WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
           OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)
    ) y
) x
ORDER BY CASE WHEN x.state = 'failing' THEN 0
              WHEN x.is_late THEN 1
              ELSE 2 + array_position('{paused,never run,running,ok}', x.state) END, x.job;
COMMENT ON VIEW incload.status IS 'a line a job, worst first: its state, how fresh its target is, its last error; the first seven columns fit a terminal';
COMMENT ON COLUMN incload.status.state IS 'failing, late, paused, never run, running or ok';
COMMENT ON COLUMN incload.status.freshness IS 'time since the last successful run began: the target is no older than this';
COMMENT ON COLUMN incload.status.lag IS 'the source''s clock at the start of the last successful run, less the newest watermark loaded by its end';
COMMENT ON COLUMN incload.status.last_rows IS 'rows read by the last successful run';
COMMENT ON COLUMN incload.status.next_run IS 'when the next run by the schedule may start, or a failed one is retried';
COMMENT ON COLUMN incload.status.problem IS 'why it is failing, late or paused, in a few words';
COMMENT ON COLUMN incload.status.last_success IS 'when the last successful run ended';
COMMENT ON COLUMN incload.status.is_late IS 'the target is older than the option freshness_slo; without it: a run has been due for five minutes, or the last one by the schedule was left out or cancelled';
COMMENT ON COLUMN incload.status.budget_left IS 'the part of the error budget of 30 days that is left, as a scheduler has computed it last; see incload.slo';
COMMENT ON COLUMN incload.status.failures IS 'failures of runs by the schedule in a row, by lasting faults';
COMMENT ON COLUMN incload.status.held_back_by IS 'the open transaction at the source that kept the checkpoint of the last run from going further';
COMMENT ON COLUMN incload.status.pid IS 'the process of the run that is under way';
COMMENT ON COLUMN incload.status.last_error IS 'SQLSTATE and message, if the last run failed or was cancelled';
COMMENT ON COLUMN incload.status.rejects IS 'rows that were put aside and wait in incload.reject';
COMMENT ON COLUMN incload.status.next_reconcile IS 'when source and target are compared next, by the option reconcile_schedule';
COMMENT ON COLUMN incload.status.guarantee IS 'exact: the settled horizon was seen at the source; settle: rows count as settled after a fixed time';

/*
 * What jobs have achieved. A scheduler keeps the figures ready; where none does, or a job was
 * altered since, they are computed for whoever looks.
 */
CREATE FUNCTION incload.slo_of(job_id bigint, at timestamptz)
RETURNS SETOF incload.slo_figures LANGUAGE C STABLE STRICT PARALLEL UNSAFE ROWS 3
AS 'MODULE_PATHNAME', 'incload_slo_of';
COMMENT ON FUNCTION incload.slo_of(bigint, timestamptz) IS 'incload: what a job has achieved as of a time; read it through incload.slo';

CREATE FUNCTION incload.unusual_volumes(job_id bigint, since timestamptz, at timestamptz,
    OUT run_id bigint, OUT rows_read bigint, OUT median double precision, OUT deviation double precision,
    OUT low double precision, OUT high double precision, OUT samples integer)
RETURNS SETOF record LANGUAGE C STABLE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_unusual_volumes';
COMMENT ON FUNCTION incload.unusual_volumes(bigint, timestamptz, timestamptz) IS
'incload: runs of a job, ended between two times, that have read far more or fewer rows than is usual at that hour';

CREATE VIEW incload.slo WITH (security_barrier) AS
SELECT j.job, f.*
FROM incload.job j
LEFT JOIN incload.slo_store c ON c.job_id = j.job_id AND c.as_of > clock_timestamp() - interval '1 hour'
     AND c.as_of >= coalesce(j.altered_at, j.created_at)
CROSS JOIN LATERAL (SELECT k.* FROM unnest(c.figures) k
                    UNION ALL
                    SELECT o.* FROM incload.slo_of(j.job_id, clock_timestamp()) o WHERE c.job_id IS NULL) f;
COMMENT ON VIEW incload.slo IS 'what each job has achieved in the last hour, day and 30 days, against its objectives: three rows a job';
COMMENT ON COLUMN incload.slo.period IS 'the hour, the day or the 30 days before as_of; no longer than incload.run_retention';
COMMENT ON COLUMN incload.slo.as_of IS 'when this was computed: by a scheduler, each minute or so for a job with an objective, else every ten minutes; without a scheduler, now';
COMMENT ON COLUMN incload.slo.observed IS 'for how much of the period the freshness is known, by the history of runs';
COMMENT ON COLUMN incload.slo.freshness_p50 IS 'for half of that time the target was no older than this; likewise p95 and p99';
COMMENT ON COLUMN incload.slo.freshness_p95 IS 'for 95% of that time the target was no older than this';
COMMENT ON COLUMN incload.slo.freshness_p99 IS 'for 99% of that time the target was no older than this';
COMMENT ON COLUMN incload.slo.freshness_slo IS 'the option of that name';
COMMENT ON COLUMN incload.slo.fresh_fraction IS 'the part of that time in which the target was no older than freshness_slo';
COMMENT ON COLUMN incload.slo.success_slo IS 'the option of that name, or 0.99 where freshness_slo alone is set';
COMMENT ON COLUMN incload.slo.budget_left IS 'the part of the error budget of 30 days that is left, by the worse objective; below 0 when more was spent; the same in each row of a job';
COMMENT ON COLUMN incload.slo.budget_by IS 'which objective that is: freshness or success';
COMMENT ON COLUMN incload.slo.burn_rate_1h IS 'how fast the budget was spent in the last hour: at 1 it lasts for the period; the same in each row of a job';
COMMENT ON COLUMN incload.slo.burn_rate_6h IS 'the same for the last six hours';
COMMENT ON COLUMN incload.slo.runs IS 'runs of kind incremental and full that ended in the period, succeeded or failed';
COMMENT ON COLUMN incload.slo.failed IS 'those that failed';
COMMENT ON COLUMN incload.slo.success_rate IS 'the part that succeeded';
COMMENT ON COLUMN incload.slo.errors IS 'how many of them failed, by the class of the SQLSTATE';
COMMENT ON COLUMN incload.slo.recoveries IS 'successes that ended a row of failures in the period';
COMMENT ON COLUMN incload.slo.time_to_recover IS 'from the end of the first failure of such a row to the end of the success, on the average';
COMMENT ON COLUMN incload.slo.backfill_rows IS 'rows read by windows of backfills';
COMMENT ON COLUMN incload.slo.backfill_bytes IS 'and their bytes';
COMMENT ON COLUMN incload.slo.comparisons IS 'calls of incload_reconcile, and those by reconcile_schedule';
COMMENT ON COLUMN incload.slo.missing_rate IS 'the part of the source''s rows that these found missing in the target';
COMMENT ON COLUMN incload.slo.extra_rate IS 'the part of the target''s rows that they found to be none of the source''s';
COMMENT ON COLUMN incload.slo.duplicate_rate IS 'keys that they found more than once in the target, as a part of the target''s rows';

CREATE VIEW incload.failure WITH (security_barrier) AS
SELECT u.job, date_trunc('day', u.finished_at) AS day, left(u.sqlstate, 2) AS class, u.sqlstate, u.kind, count(*) AS failures,
       max(u.finished_at) AS last_at
FROM incload.run_store u
WHERE u.status = 'failed'
  AND (u.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                   WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
       OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user))
GROUP BY 1, 2, 3, 4, 5;
COMMENT ON VIEW incload.failure IS 'failed runs over time: how many a job, day and SQLSTATE, of any kind';
COMMENT ON COLUMN incload.failure.day IS 'in the time zone of the session';
COMMENT ON COLUMN incload.failure.class IS 'the class of the SQLSTATE';

CREATE VIEW incload.batch_window WITH (security_barrier) AS
SELECT w.window_id, j.job, w.low, w.high, w.state, w.attempts, w.run_id, w.rows_read, w.error,
       w.created_at, w.finished_at
FROM incload.batch_window_store w
JOIN incload.job_store j USING (job_id)
WHERE j.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                  WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
   OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
COMMENT ON VIEW incload.batch_window IS 'the ledger of backfills: each window, and whether it is loaded';
COMMENT ON COLUMN incload.batch_window.low IS 'rows from this watermark on';
COMMENT ON COLUMN incload.batch_window.high IS 'and below this one';
COMMENT ON COLUMN incload.batch_window.state IS 'pending, done, failed for good, or stopped by incload_cancel or too many failures';
COMMENT ON COLUMN incload.batch_window.created_at IS 'when incload_backfill was called; the same for all of its windows';

/*
 * What is under way: runs, as they say themselves in shared memory, since their rows are not
 * committed; and backfills that have windows left.
 */
CREATE FUNCTION incload.running(OUT pid integer, OUT job_id bigint, OUT run_id bigint, OUT kind text, OUT phase text,
    OUT rows_read bigint, OUT bytes_read bigint, OUT batches bigint, OUT started_at timestamptz)
RETURNS SETOF record LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'incload_running';
COMMENT ON FUNCTION incload.running() IS 'incload: the runs that are under way in this database; read them through incload.progress';

CREATE VIEW incload.progress WITH (security_barrier) AS
SELECT p.job, p.kind, p.phase, p.rows_read,
       round((p.rows_read / p.seconds)::numeric) AS rows_per_second,
       p.bytes_read, p.done, p.total, p.unit,
       CASE WHEN p.done > 0 AND p.total > 0
            THEN date_trunc('second', greatest(p.seconds * interval '1 second' / p.done * (p.total - p.done), '0')) END AS time_left,
       p.started_at, p.run_id, p.pid
FROM (
    SELECT q.*, greatest(extract(epoch FROM clock_timestamp() - q.started_at), 0.001) AS seconds
    FROM (
        SELECT j.job, r.kind, r.phase, r.rows_read, r.bytes_read,
               CASE WHEN r.kind = 'full' THEN r.rows_read ELSE r.batches END AS done,
               f.rows_read AS total,
               CASE WHEN r.kind = 'full' THEN 'rows' ELSE 'batches' END AS unit,
               r.started_at, r.run_id, r.pid
        FROM incload.running() r
        JOIN incload.job j USING (job_id)
        LEFT JOIN LATERAL (SELECT u.rows_read FROM incload.run_store u
                           WHERE r.kind = 'full' AND u.job_id = r.job_id AND u.kind = 'full' AND u.status = 'succeeded'
                           ORDER BY u.run_id DESC LIMIT 1) f ON true
        WHERE r.kind <> 'backfill' OR NOT EXISTS (SELECT FROM incload.batch_window_store w
                                                  WHERE w.job_id = r.job_id AND w.state = 'pending')
        UNION ALL
        SELECT j.job, 'backfill', coalesce(r.phase, 'waiting'), b.rows_read + coalesce(r.rows_read, 0), r.bytes_read,
               b.done, b.total, 'windows', b.started_at, NULL, r.pid
        FROM (SELECT w.job_id, w.created_at AS started_at, count(*) AS total,
                     count(*) FILTER (WHERE w.state <> 'pending') AS done, coalesce(sum(w.rows_read), 0)::bigint AS rows_read
              FROM incload.batch_window_store w
              WHERE w.job_id IN (SELECT v.job_id FROM incload.batch_window_store v WHERE v.state = 'pending')
              GROUP BY w.job_id, w.created_at
              HAVING count(*) FILTER (WHERE w.state = 'pending') > 0) b
        JOIN incload.job j USING (job_id)
        LEFT JOIN (SELECT x.job_id, min(x.phase) AS phase, sum(x.rows_read)::bigint AS rows_read,
                          sum(x.bytes_read)::bigint AS bytes_read, min(x.pid) AS pid
                   FROM incload.running() x WHERE x.kind = 'backfill' GROUP BY x.job_id) r USING (job_id)
    ) q
) p;
COMMENT ON VIEW incload.progress IS 'runs and backfills that are under way: what each does, how far it is, how fast, and how long yet';
COMMENT ON COLUMN incload.progress.phase IS 'preparing, reading, writing, deleting, finishing, comparing; of a backfill between two windows, waiting';
COMMENT ON COLUMN incload.progress.rows_read IS 'so far, those of batches that are not committed yet among them';
COMMENT ON COLUMN incload.progress.rows_per_second IS 'on the average';
COMMENT ON COLUMN incload.progress.bytes_read IS 'so far; of a backfill, those of the windows that are being read';
COMMENT ON COLUMN incload.progress.done IS 'windows of a backfill that are over; rows of a full run; else batches that are committed';
COMMENT ON COLUMN incload.progress.total IS 'windows of a backfill; of a full run, the rows that the last one read; else not known';
COMMENT ON COLUMN incload.progress.unit IS 'windows, rows or batches: what done and total count';
COMMENT ON COLUMN incload.progress.time_left IS 'if it goes on as it has so far, where total is known';
COMMENT ON COLUMN incload.progress.pid IS 'the process that does it; of a backfill, one of them';

/*
 * The background workers of the server. Which job a runner has is shown to the
 * job's owner, and to sessions in the same database.
 */
CREATE FUNCTION incload.workers(OUT pid integer, OUT kind text, OUT database oid,
    OUT state text, OUT job_id bigint, OUT since timestamptz, OUT started_at timestamptz)
RETURNS SETOF record LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'incload_workers';
COMMENT ON FUNCTION incload.workers() IS 'incload: the background workers; read them through incload.worker';

CREATE VIEW incload.worker WITH (security_barrier) AS
SELECT w.pid, w.kind, d.datname AS database, w.state, j.job, w.since, w.started_at
FROM incload.workers() w
LEFT JOIN pg_catalog.pg_database d ON d.oid = w.database
LEFT JOIN incload.job_store j ON j.job_id = w.job_id AND d.datname = current_database()
     AND (j.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                      WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
          OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user));
COMMENT ON VIEW incload.worker IS 'the background workers of the server: launcher, schedulers, and runners with the job that each runs';
COMMENT ON COLUMN incload.worker.state IS 'starting, scheduling, running a job, idle (waiting for the next one), stopping';
COMMENT ON COLUMN incload.worker.since IS 'when it entered that state';

/*
 * What a Prometheus exporter scrapes: numbers only, so a role that may read all
 * statistics sees those of all jobs. One row a job is gathered first, with the
 * locks of running jobs read once for all of them.
 */
CREATE VIEW incload.metrics WITH (security_barrier) AS
WITH locked AS MATERIALIZED (
    SELECT (k.classid::bigint << 32) | k.objid::bigint AS job_id
    FROM pg_catalog.pg_locks k
    WHERE k.locktype = 'advisory' AND k.objsubid = 73 AND k.granted
      AND k.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
), tally AS (
    SELECT t.job_id, sum(t.rows_read::float8) AS rows_read, sum(t.rows_inserted::float8) AS rows_inserted,
           sum(t.rows_updated::float8) AS rows_updated, sum(t.rows_unchanged::float8) AS rows_unchanged,
           sum(t.rows_deleted::float8) AS rows_deleted, sum(t.rows_superseded::float8) AS rows_superseded,
           sum(t.rows_suppressed::float8) AS rows_suppressed, sum(t.rows_rejected::float8) AS rows_rejected,
           sum(t.rows_pruned::float8) AS rows_pruned, sum(t.batches::float8) AS batches,
           sum(t.bytes_read::float8) AS bytes_read, sum(t.runs_succeeded::float8) AS runs_succeeded,
           sum(t.runs_failed::float8) AS runs_failed, sum(t.runs_cancelled::float8) AS runs_cancelled,
           sum(t.runs_skipped::float8) AS runs_skipped, sum(t.run_microseconds::float8) / 1e6 AS run_seconds,
           sum(t.backfill_rows_read::float8) AS backfill_rows_read, sum(t.pages::float8) AS pages,
           sum(t.tickets::float8) AS tickets
    FROM incload.tally_store t
    GROUP BY t.job_id
), job AS MATERIALIZED (
    SELECT j.job_id, j.job, j.owner, j.source, j.target, j.strategy, j.schedule, j.enabled,
           jsonb_build_object('job', j.job) AS labels,
           coalesce(a.failures, 0) AS failures, c.held_back_by, coalesce(r.n, 0) AS rejects,
           CASE WHEN j.enabled THEN date_part('epoch', a.next_run_at) END AS next_run,
           CASE WHEN c.bound_type = 'timestamp with time zone' THEN date_part('epoch', c.bound::timestamptz) END AS bound,
           date_part('epoch', s.started_at) AS success_began, date_part('epoch', s.finished_at) AS success_ended,
           date_part('epoch', s.lag) AS lag,
           coalesce(e.status IN ('failed', 'cancelled'), false) AS is_failing, e.rows_read::float8 AS last_rows,
           date_part('epoch', e.finished_at - e.started_at) AS last_duration,
           j.job_id IN (SELECT l.job_id FROM locked l) AS is_running,
           date_part('epoch', (j.options->>'freshness_slo')::interval) AS freshness_objective,
           (j.options->>'success_slo')::float8 AS success_objective, g.budget_left,
           CASE WHEN p.at > coalesce(s.finished_at, '-infinity') THEN p.code END AS page,
           coalesce(t.rows_read, 0) AS rows_read, coalesce(t.rows_inserted, 0) AS rows_inserted, coalesce(t.rows_updated, 0) AS rows_updated,
           coalesce(t.rows_unchanged, 0) AS rows_unchanged, coalesce(t.rows_deleted, 0) AS rows_deleted, coalesce(t.rows_superseded, 0) AS rows_superseded,
           coalesce(t.rows_suppressed, 0) AS rows_suppressed, coalesce(t.rows_rejected, 0) AS rows_rejected, coalesce(t.rows_pruned, 0) AS rows_pruned, coalesce(t.batches, 0) AS batches,
           coalesce(t.bytes_read, 0) AS bytes_read, coalesce(t.runs_succeeded, 0) AS runs_succeeded, coalesce(t.runs_failed, 0) AS runs_failed,
           coalesce(t.runs_cancelled, 0) AS runs_cancelled, coalesce(t.runs_skipped, 0) AS runs_skipped, coalesce(t.run_seconds, 0) AS run_seconds,
           coalesce(t.backfill_rows_read, 0) AS backfill_rows_read, coalesce(t.pages, 0) AS pages, coalesce(t.tickets, 0) AS tickets
    FROM incload.job_store j
    LEFT JOIN tally t USING (job_id)
    LEFT JOIN (SELECT r.job_id, count(*) AS n FROM incload.reject_store r GROUP BY r.job_id) r USING (job_id)
    -- DISTINCT and LIMIT as in incload.status
    LEFT JOIN (SELECT DISTINCT ON (c.job_id) c.job_id, c.bound, c.bound_type, c.held_back_by FROM incload.checkpoint_store c) c USING (job_id)
    LEFT JOIN (SELECT DISTINCT ON (a.job_id) a.job_id, a.next_run_at, a.failures FROM incload.schedule_store a) a USING (job_id)
    LEFT JOIN (SELECT DISTINCT ON (g.job_id) g.job_id, g.budget_left FROM incload.slo_store g) g USING (job_id)
    LEFT JOIN LATERAL (SELECT u.status, u.rows_read, u.started_at, u.finished_at, u.lag FROM incload.run_store u
                       WHERE u.job_id = j.job_id AND u.status NOT IN ('running', 'skipped') AND u.kind IN ('incremental', 'full')
                       ORDER BY u.run_id DESC LIMIT 1) e ON true
    -- as in incload.status
    LEFT JOIN LATERAL (SELECT e.started_at, e.finished_at, e.lag WHERE e.status = 'succeeded'
                       UNION ALL
                       (SELECT u.started_at, u.finished_at, u.lag FROM incload.run_store u
                        WHERE e.status <> 'succeeded' AND u.job_id = j.job_id AND u.status = 'succeeded' AND u.kind IN ('incremental', 'full')
                        ORDER BY u.run_id DESC LIMIT 1)
                       LIMIT 1) s ON true
    LEFT JOIN LATERAL (SELECT v.code, v.at FROM incload.event_store v
                       WHERE v.job_id = j.job_id AND v.severity = 'page'
                       ORDER BY v.event_id DESC LIMIT 1) p ON true
    WHERE j.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                      WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
       OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)
       OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
), compared AS MATERIALIZED (
    SELECT j.labels, c.*
    FROM job j,
    LATERAL (SELECT c.at, c.rows_missing, c.rows_extra, c.rows_changed, c.source_rows, c.rows_repaired FROM incload.reconcile_store c
             WHERE c.job_id = j.job_id ORDER BY c.run_id DESC LIMIT 1) c
)
SELECT 'incload_job_info' AS name, j.labels || jsonb_build_object('owner', j.owner, 'source', j.source, 'target', j.target, 'strategy', j.strategy, 'schedule', coalesce(j.schedule, '')) AS labels, 1::float8 AS value, 'gauge' AS type,
       'What a job loads, as labels; always 1.' AS help FROM job j
UNION ALL SELECT 'incload_job_enabled', j.labels, j.enabled::int::float8, 'gauge',
       'Whether the job may run: 0 for a paused one.' FROM job j
UNION ALL SELECT 'incload_job_running', j.labels, j.is_running::int::float8, 'gauge',
       'Whether a run of the job is under way.' FROM job j
UNION ALL SELECT 'incload_job_failing', j.labels, j.is_failing::int::float8, 'gauge',
       'Whether the last run that ended failed or was cancelled.' FROM job j
UNION ALL SELECT 'incload_job_consecutive_failures', j.labels, (j.failures)::float8, 'gauge',
       'Failures in a row of runs by the schedule, by faults that do not pass by themselves.' FROM job j
UNION ALL SELECT 'incload_job_rejects', j.labels, (j.rejects)::float8, 'gauge',
       'Rows that were put aside and wait in incload.reject.' FROM job j
UNION ALL SELECT 'incload_job_horizon_held', j.labels, (j.held_back_by IS NOT NULL)::int::float8, 'gauge',
       'Whether an open transaction at the source kept the checkpoint of the last run from going further.' FROM job j
UNION ALL SELECT 'incload_job_freshness_seconds', j.labels, (date_part('epoch', clock_timestamp()) - j.success_began)::float8, 'gauge',
       'Time since the last successful run began: the target is no older than this.' FROM job j WHERE j.success_began IS NOT NULL
UNION ALL SELECT 'incload_job_lag_seconds', j.labels, j.lag, 'gauge',
       'The source''s clock at the start of the last successful run, less the newest watermark loaded by it.' FROM job j WHERE j.lag IS NOT NULL
UNION ALL SELECT 'incload_job_last_success_timestamp_seconds', j.labels, j.success_ended, 'gauge',
       'When the last successful run ended, in seconds since 1970.' FROM job j WHERE j.success_ended IS NOT NULL
UNION ALL SELECT 'incload_job_last_run_duration_seconds', j.labels, j.last_duration, 'gauge',
       'How long the last run that ended has taken.' FROM job j WHERE j.last_duration IS NOT NULL
UNION ALL SELECT 'incload_job_last_run_rows', j.labels, j.last_rows, 'gauge',
       'Rows that the last run that ended has read.' FROM job j WHERE j.last_rows IS NOT NULL
UNION ALL SELECT 'incload_job_next_run_timestamp_seconds', j.labels, j.next_run, 'gauge',
       'When the next run by the schedule may start, in seconds since 1970.' FROM job j WHERE j.next_run IS NOT NULL
UNION ALL SELECT 'incload_job_checkpoint_timestamp_seconds', j.labels, j.bound, 'gauge',
       'The checkpoint of a job whose watermark is a timestamptz, in seconds since 1970.' FROM job j WHERE j.bound IS NOT NULL
UNION ALL SELECT 'incload_job_freshness_objective_seconds', j.labels, j.freshness_objective, 'gauge',
       'How fresh the target is to be: the option freshness_slo.' FROM job j WHERE j.freshness_objective IS NOT NULL
UNION ALL SELECT 'incload_job_success_objective_ratio', j.labels, j.success_objective, 'gauge',
       'The part of runs that is to succeed: the option success_slo.' FROM job j WHERE j.success_objective IS NOT NULL
UNION ALL SELECT 'incload_job_error_budget_left_ratio', j.labels, j.budget_left, 'gauge',
       'The part of the error budget of 30 days that is left, as a scheduler has computed it last.' FROM job j WHERE j.budget_left IS NOT NULL
UNION ALL SELECT 'incload_page_open', j.labels || jsonb_build_object('code', j.page), 1::float8, 'gauge',
       'There was a page, by its code, and no successful run since; absent otherwise.' FROM job j WHERE j.page IS NOT NULL
UNION ALL SELECT 'incload_runs_total', j.labels || '{"status": "succeeded"}', j.runs_succeeded, 'counter',
       'Runs that have ended, by status.' FROM job j
UNION ALL SELECT 'incload_runs_total', j.labels || '{"status": "failed"}', j.runs_failed, 'counter',
       'Runs that have ended, by status.' FROM job j
UNION ALL SELECT 'incload_runs_total', j.labels || '{"status": "cancelled"}', j.runs_cancelled, 'counter',
       'Runs that have ended, by status.' FROM job j
UNION ALL SELECT 'incload_runs_total', j.labels || '{"status": "skipped"}', j.runs_skipped, 'counter',
       'Runs that have ended, by status.' FROM job j
UNION ALL SELECT 'incload_job_run_seconds_total', j.labels, j.run_seconds, 'counter',
       'Time that runs have taken.' FROM job j
UNION ALL SELECT 'incload_job_batches_total', j.labels, j.batches, 'counter',
       'Batches that were applied.' FROM job j
UNION ALL SELECT 'incload_job_read_bytes_total', j.labels, j.bytes_read, 'counter',
       'Bytes that the source has sent.' FROM job j
UNION ALL SELECT 'incload_job_read_rows_total', j.labels, j.rows_read, 'counter',
       'Rows that the source has sent.' FROM job j
UNION ALL SELECT 'incload_job_backfill_read_rows_total', j.labels, j.backfill_rows_read, 'counter',
       'Rows among them that were read by backfills.' FROM job j
UNION ALL SELECT 'incload_rows_total', j.labels || '{"outcome": "inserted"}', j.rows_inserted, 'counter',
       'What became of rows that were read; pruned ones were rows of the target alone.' FROM job j
UNION ALL SELECT 'incload_rows_total', j.labels || '{"outcome": "updated"}', j.rows_updated, 'counter',
       'What became of rows that were read; pruned ones were rows of the target alone.' FROM job j
UNION ALL SELECT 'incload_rows_total', j.labels || '{"outcome": "unchanged"}', j.rows_unchanged, 'counter',
       'What became of rows that were read; pruned ones were rows of the target alone.' FROM job j
UNION ALL SELECT 'incload_rows_total', j.labels || '{"outcome": "deleted"}', j.rows_deleted, 'counter',
       'What became of rows that were read; pruned ones were rows of the target alone.' FROM job j
UNION ALL SELECT 'incload_rows_total', j.labels || '{"outcome": "superseded"}', j.rows_superseded, 'counter',
       'What became of rows that were read; pruned ones were rows of the target alone.' FROM job j
UNION ALL SELECT 'incload_rows_total', j.labels || '{"outcome": "suppressed"}', j.rows_suppressed, 'counter',
       'What became of rows that were read; pruned ones were rows of the target alone.' FROM job j
UNION ALL SELECT 'incload_rows_total', j.labels || '{"outcome": "rejected"}', j.rows_rejected, 'counter',
       'What became of rows that were read; pruned ones were rows of the target alone.' FROM job j
UNION ALL SELECT 'incload_rows_total', j.labels || '{"outcome": "pruned"}', j.rows_pruned, 'counter',
       'What became of rows that were read; pruned ones were rows of the target alone.' FROM job j
UNION ALL SELECT 'incload_events_total', j.labels || '{"severity": "page"}', j.pages, 'counter',
       'Events that somebody has to see to, by severity.' FROM job j
UNION ALL SELECT 'incload_events_total', j.labels || '{"severity": "ticket"}', j.tickets, 'counter',
       'Events that somebody has to see to, by severity.' FROM job j
UNION ALL SELECT 'incload_reconcile_timestamp_seconds', c.labels, date_part('epoch', c.at), 'gauge',
       'When source and target were last compared, in seconds since 1970.' FROM compared c
UNION ALL SELECT 'incload_reconcile_differing_rows', c.labels || '{"difference": "missing"}', c.rows_missing::float8, 'gauge',
       'Rows that the last comparison found to differ, by how.' FROM compared c
UNION ALL SELECT 'incload_reconcile_differing_rows', c.labels || '{"difference": "extra"}', c.rows_extra::float8, 'gauge',
       'Rows that the last comparison found to differ, by how.' FROM compared c
UNION ALL SELECT 'incload_reconcile_differing_rows', c.labels || '{"difference": "changed"}', c.rows_changed::float8, 'gauge',
       'Rows that the last comparison found to differ, by how.' FROM compared c
UNION ALL SELECT 'incload_reconcile_source_rows', c.labels, c.source_rows::float8, 'gauge',
       'Rows of the source that the last comparison counted.' FROM compared c
UNION ALL SELECT 'incload_reconcile_repaired_rows', c.labels, c.rows_repaired::float8, 'gauge',
       'Rows that the last comparison has mended.' FROM compared c
UNION ALL SELECT 'incload_backfill_windows', jsonb_build_object('job', j.job, 'state', w.state), count(*)::float8, 'gauge',
       'Windows of the job''s newest backfill, by state.'
FROM (SELECT b.*, max(b.created_at) OVER (PARTITION BY b.job_id) AS newest FROM incload.batch_window_store b) w
JOIN job j USING (job_id)
WHERE w.created_at = w.newest
GROUP BY j.job, w.state
UNION ALL
SELECT 'incload_scheduler_up', '{}', count(*)::float8, 'gauge', 'Whether a scheduler runs the jobs of this database by their schedules.'
FROM (SELECT FROM incload.workers() k JOIN pg_catalog.pg_database d ON d.oid = k.database
      WHERE k.kind = 'scheduler' AND d.datname = current_database()) k
UNION ALL
SELECT 'incload_build_info', jsonb_build_object('version', x.extversion), 1, 'gauge', 'The version of incload; always 1.'
FROM pg_catalog.pg_extension x WHERE x.extname = 'incload';
COMMENT ON VIEW incload.metrics IS 'what a Prometheus exporter scrapes, a sample a row; members of pg_read_all_stats see all jobs';
COMMENT ON COLUMN incload.metrics.name IS 'by the conventions of Prometheus: seconds and bytes, _total for what only goes up';
COMMENT ON COLUMN incload.metrics.labels IS 'the name of the job among them, but for what concerns the database';
COMMENT ON COLUMN incload.metrics.type IS 'counter or gauge; counters outlive the history of runs, and start at 0 in a restored dump';

CREATE FUNCTION incload.metric_labels(labels jsonb) RETURNS text LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'incload_metric_labels';
COMMENT ON FUNCTION incload.metric_labels(jsonb) IS 'incload: labels as the text format of Prometheus has them; nothing for none';

GRANT SELECT ON incload.job, incload.checkpoint, incload.tombstone, incload.run, incload.reject, incload.reconcile, incload.event, incload.status,
    incload.slo, incload.failure,
    incload.worker, incload.batch_window, incload.progress, incload.metrics TO PUBLIC;

/*
 * Functions, in the schema named at CREATE EXTENSION.
 */
CREATE FUNCTION incload_create_job(
    job text, source text, target text, strategy text DEFAULT NULL,
    watermark text DEFAULT NULL, key text[] DEFAULT NULL,
    schedule text DEFAULT NULL, options jsonb DEFAULT NULL)
RETURNS incload.job LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_create_job';
COMMENT ON FUNCTION incload_create_job(text, text, text, text, text, text[], text, jsonb) IS
'create a job that loads source into target; what is left out is chosen as incload_suggest says';

CREATE FUNCTION incload_alter_job(
    job text, source text DEFAULT NULL, target text DEFAULT NULL, strategy text DEFAULT NULL,
    watermark text DEFAULT NULL, key text[] DEFAULT NULL,
    schedule text DEFAULT NULL, options jsonb DEFAULT NULL, owner text DEFAULT NULL)
RETURNS incload.job LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_alter_job';
COMMENT ON FUNCTION incload_alter_job(text, text, text, text, text, text[], text, jsonb, text) IS
'change a job; options are merged into those it has, and an option set to null goes back to its default';

CREATE FUNCTION incload_pause(job text)
RETURNS incload.job LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_pause';
COMMENT ON FUNCTION incload_pause(text) IS 'pause a job: its runs are skipped until incload_resume';

CREATE FUNCTION incload_resume(job text)
RETURNS incload.job LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_resume';
COMMENT ON FUNCTION incload_resume(text) IS 'let a paused job run again';

CREATE FUNCTION incload_accept_source(job text)
RETURNS incload.job LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_accept_source';
COMMENT ON FUNCTION incload_accept_source(text) IS
'go on with a source that was found to be another server, or to have gone backwards';

CREATE FUNCTION incload_rewind(job text, to_value text)
RETURNS incload.job LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_rewind';
COMMENT ON FUNCTION incload_rewind(text, text) IS
'take the checkpoint back to just before a value of the watermark, so that the next run reads from there once more';

CREATE FUNCTION incload_drop_job(job text)
RETURNS void LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_drop_job';
COMMENT ON FUNCTION incload_drop_job(text) IS 'drop a job and its checkpoint; the target and the history stay';

CREATE FUNCTION incload_options(OUT name text, OUT type text, OUT "default" text, OUT meaning text)
RETURNS SETOF record LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'incload_options';
COMMENT ON FUNCTION incload_options() IS 'every option of a job: name, type, default, meaning';

CREATE FUNCTION incload_next_runs(schedule text, n integer DEFAULT 5, after timestamptz DEFAULT now())
RETURNS SETOF timestamptz LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'incload_next_runs';
COMMENT ON FUNCTION incload_next_runs(text, integer, timestamptz) IS
'the next n times of a schedule, an interval or a cron line; intervals are counted from after';

CREATE FUNCTION incload_suggest(source text,
    OUT kind text, OUT candidate text, OUT score integer, OUT chosen boolean, OUT reason text)
RETURNS SETOF record LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_suggest';
COMMENT ON FUNCTION incload_suggest(text) IS
'candidate watermarks, keys and strategies for a source, scored from 0 to 100, with reasons';

CREATE FUNCTION incload_check(job text,
    OUT severity text, OUT code text, OUT message text, OUT sql text)
RETURNS SETOF record LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_check';
COMMENT ON FUNCTION incload_check(text) IS
'advice on a job: severity (error, warning, info), code, message, and the SQL that mends it';

CREATE FUNCTION incload_explain(job text,
    OUT step integer, OUT side text, OUT what text, OUT sql text, OUT plan text)
RETURNS SETOF record LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_explain';
COMMENT ON FUNCTION incload_explain(text) IS
'the SQL that the next run will run at the source and here, step by step, with plans';

CREATE FUNCTION incload_source_sql(job text)
RETURNS SETOF text LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_source_sql';
COMMENT ON FUNCTION incload_source_sql(text) IS
'what to create at the source, one statement a row: an index on the watermark, a trigger that sets it, a table of tombstones';

CREATE FUNCTION incload_preview(job text, max_rows integer DEFAULT 10,
    OUT action text, OUT key jsonb, OUT new_row jsonb, OUT old_row jsonb)
RETURNS SETOF record LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_preview';
COMMENT ON FUNCTION incload_preview(text, integer) IS
'the first rows that the next run would read, and what it would do with each; nothing is changed';

CREATE FUNCTION incload_run(job text)
RETURNS incload.run LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_run';
COMMENT ON FUNCTION incload_run(text) IS
'run a job now, inside this transaction; raises an ERROR when the run fails';

CREATE PROCEDURE incload_run_in_batches(job text)
LANGUAGE C AS 'MODULE_PATHNAME', 'incload_run_in_batches';
COMMENT ON PROCEDURE incload_run_in_batches(text) IS
'run a job now and commit batch by batch; goes on where an earlier call was stopped';

CREATE FUNCTION incload_start(job text)
RETURNS bigint LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_start';
COMMENT ON FUNCTION incload_start(text) IS
'run a job in a background worker once this transaction commits; returns the run_id at once';

CREATE FUNCTION incload_backfill(job text, from_value text DEFAULT NULL, to_value text DEFAULT NULL,
    step text DEFAULT NULL)
RETURNS bigint LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_backfill';
COMMENT ON FUNCTION incload_backfill(text, text, text, text) IS
'read a range of the source again, window by window, in workers; without a range, go on with what the last one has left';

CREATE FUNCTION incload_fill_columns(job text, columns text[])
RETURNS incload.run LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_fill_columns';
COMMENT ON FUNCTION incload_fill_columns(text, text[]) IS
'give rows that the target has the source''s values of these columns, in one transaction; no row is inserted';

CREATE FUNCTION incload_cancel(job text)
RETURNS boolean LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_cancel';
COMMENT ON FUNCTION incload_cancel(text) IS
'cancel the run of a job that is under way; what it has committed stays';

CREATE FUNCTION incload_worker_start()
RETURNS boolean LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_worker_start';
COMMENT ON FUNCTION incload_worker_start() IS
'start a scheduler for the jobs of this database; false where there is one';
REVOKE ALL ON FUNCTION incload_worker_start() FROM PUBLIC;

CREATE FUNCTION incload_worker_stop()
RETURNS boolean LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_worker_stop';
COMMENT ON FUNCTION incload_worker_stop() IS
'stop the scheduler of this database; runs that are under way go on';
REVOKE ALL ON FUNCTION incload_worker_stop() FROM PUBLIC;

CREATE FUNCTION incload_refresh(job text)
RETURNS incload.run LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_refresh';
COMMENT ON FUNCTION incload_refresh(text) IS
'read the whole source again and make the target equal to it, whatever the job''s strategy, inside this transaction';

CREATE FUNCTION incload_retry_rejects(job text, OUT applied bigint, OUT rejected bigint, OUT gone bigint)
RETURNS record LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_retry_rejects';
COMMENT ON FUNCTION incload_retry_rejects(text) IS
'load the rows that were put aside, as far as they can be taken by now; those leave incload.reject';

CREATE FUNCTION incload_reconcile(job text, mode text DEFAULT 'hash', repair boolean DEFAULT false,
    OUT difference text, OUT key jsonb, OUT columns text[], OUT source_rows bigint, OUT target_rows bigint, OUT action text)
RETURNS SETOF record LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_reconcile';
COMMENT ON FUNCTION incload_reconcile(text, text, boolean) IS
'compare source and target by count, hash or rows: a row for each difference, and with repair what became of it';

CREATE FUNCTION incload_report(details integer DEFAULT 20)
RETURNS text LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_report';
COMMENT ON FUNCTION incload_report(integer) IS
'the health of all jobs as one HTML page, with plots for so many of them, the worst first';

CREATE FUNCTION incload_metrics_text()
RETURNS text LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT pg_catalog.string_agg(f.family, '' ORDER BY f.name COLLATE "C")
    FROM (SELECT m.name, pg_catalog.format(E'# HELP %1$s %2$s\n# TYPE %1$s %3$s\n', m.name, m.help, m.type)
                 || pg_catalog.string_agg(m.name || incload.metric_labels(m.labels) || ' ' || m.value || E'\n', '') AS family
          FROM incload.metrics m
          GROUP BY m.name, m.help, m.type) f;
END;
COMMENT ON FUNCTION incload_metrics_text() IS 'incload.metrics in the text format of Prometheus, for a textfile collector or a gateway';

/*
 * Alerts. What is to be told is put into the outbox by triggers, in the
 * transaction that makes it, whoever writes it; the scheduler delivers. There
 * are no foreign keys here: a run must not wait for whoever drops a channel.
 */
CREATE SEQUENCE incload.channel_id_seq;
COMMENT ON SEQUENCE incload.channel_id_seq IS 'incload: numbers channels';
CREATE TABLE incload.channel_store (
    channel_id   bigint PRIMARY KEY DEFAULT nextval('incload.channel_id_seq'),
    channel      text COLLATE "C" NOT NULL UNIQUE,
    url          text NOT NULL,
    origin       text NOT NULL,
    format       text NOT NULL CHECK (format IN ('alertmanager', 'webhook', 'slack', 'pagerduty')),
    min_severity text NOT NULL CHECK (min_severity IN ('page', 'ticket', 'info')),
    options      jsonb NOT NULL DEFAULT '{}',
    secrets      jsonb NOT NULL DEFAULT '{}',
    created_by   name NOT NULL DEFAULT session_user,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE incload.channel_store IS 'incload: where events are sent, with what is secret about it; read it through incload.channel';
COMMENT ON COLUMN incload.channel_store.url IS 'all of it; as a rule its path, or a password in it, is secret';
COMMENT ON COLUMN incload.channel_store.origin IS 'scheme, host and port of url, which may be shown';
COMMENT ON COLUMN incload.channel_store.secrets IS 'options that nobody is shown';

CREATE TABLE incload.silence_store (
    silence_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id     bigint,
    ends_at    timestamptz NOT NULL,
    reason     text,
    created_by name NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE incload.silence_store IS 'incload: jobs about which nobody is told for a time; read it through incload.silence';
COMMENT ON COLUMN incload.silence_store.job_id IS 'NULL: all jobs';

CREATE TABLE incload.alert_store (
    event_id   bigint PRIMARY KEY,
    job_id     bigint NOT NULL,
    code       text NOT NULL,
    cause      text,
    group_key  text NOT NULL,
    ended_by   text NOT NULL CHECK (ended_by IN ('run', 'reconcile')),
    since      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX alert_store_job_idx ON incload.alert_store (job_id);
COMMENT ON TABLE incload.alert_store IS 'incload: troubles that last, by the event that told of each; a row goes when its trouble is over';
COMMENT ON COLUMN incload.alert_store.cause IS 'SQLSTATE of the failure';
COMMENT ON COLUMN incload.alert_store.group_key IS 'troubles with the same one have the same cause, and are told together';
COMMENT ON COLUMN incload.alert_store.ended_by IS 'what ends it: a run of the job that succeeds, or a comparison that finds no difference';

CREATE TABLE incload.outbox_store (
    outbox_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel_id  bigint NOT NULL,
    event_id    bigint NOT NULL,
    alert_id    bigint,
    job_id      bigint,
    kind        text NOT NULL CHECK (kind IN ('firing', 'resolved', 'notice', 'test')),
    group_key   text NOT NULL,
    state       text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'silenced', 'failed')),
    delivery_id bigint,
    attempts    integer NOT NULL DEFAULT 0,
    next_try    timestamptz NOT NULL,
    last_error  text,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz
);
-- what is pending is asked for all the time, and is mostly nothing
CREATE INDEX outbox_store_pending_idx ON incload.outbox_store (channel_id, next_try) WHERE state = 'pending';
CREATE INDEX outbox_store_group_idx ON incload.outbox_store (channel_id, group_key, finished_at);
CREATE INDEX outbox_store_alert_idx ON incload.outbox_store (alert_id);
COMMENT ON TABLE incload.outbox_store IS 'incload: what is to be told by which channel, and what became of it; read it through incload.outbox';
COMMENT ON COLUMN incload.outbox_store.alert_id IS 'event_id of the trouble that begins or ends with it; NULL for what is told once';
COMMENT ON COLUMN incload.outbox_store.delivery_id IS 'rows that are delivered together; it makes the idempotency key';

SELECT pg_catalog.pg_extension_config_dump('incload.channel_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('incload.channel_store', '');

CREATE FUNCTION incload.event_made() RETURNS trigger LANGUAGE C
AS 'MODULE_PATHNAME', 'incload_event_made';
COMMENT ON FUNCTION incload.event_made() IS 'incload: puts an event into the outbox';
REVOKE ALL ON FUNCTION incload.event_made() FROM PUBLIC;
CREATE TRIGGER event_made AFTER INSERT ON incload.event_store
    FOR EACH ROW EXECUTE FUNCTION incload.event_made();
ALTER TABLE incload.event_store ENABLE ALWAYS TRIGGER event_made;
COMMENT ON TRIGGER event_made ON incload.event_store IS 'incload: puts an event into the outbox';

CREATE FUNCTION incload.run_ended() RETURNS trigger LANGUAGE C
AS 'MODULE_PATHNAME', 'incload_run_ended';
COMMENT ON FUNCTION incload.run_ended() IS 'incload: the events of a job that fails, and of one that runs again';
REVOKE ALL ON FUNCTION incload.run_ended() FROM PUBLIC;
CREATE TRIGGER run_ended AFTER INSERT OR UPDATE OF status ON incload.run_store
    FOR EACH ROW WHEN (NEW.status IN ('succeeded', 'failed') AND NEW.kind IN ('incremental', 'full'))
    EXECUTE FUNCTION incload.run_ended();
ALTER TABLE incload.run_store ENABLE ALWAYS TRIGGER run_ended;
COMMENT ON TRIGGER run_ended ON incload.run_store IS 'incload: the events of a job that fails, and of one that runs again';

/*
 * Channels, and what became of what they were to tell. incload.channel is for
 * those who are granted it.
 */
CREATE VIEW incload.channel WITH (security_barrier) AS
SELECT c.channel_id, c.channel, c.origin, c.format, c.min_severity, c.options,
       ARRAY(SELECT k.name FROM pg_catalog.jsonb_object_keys(c.secrets) k (name) ORDER BY k.name) AS secrets,
       c.created_by, c.created_at
FROM incload.channel_store c;
COMMENT ON VIEW incload.channel IS 'where events are sent';
COMMENT ON COLUMN incload.channel.origin IS 'scheme, host and port of its URL; the rest of it may be secret';
COMMENT ON COLUMN incload.channel.secrets IS 'the names of options whose values are not shown';

CREATE VIEW incload.silence WITH (security_barrier) AS
SELECT s.silence_id, j.job, s.ends_at, s.ends_at > clock_timestamp() AS active, s.reason, s.created_by, s.created_at
FROM incload.silence_store s
LEFT JOIN incload.job_store j USING (job_id)
WHERE s.job_id IS NULL
   OR j.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                  WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
   OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
COMMENT ON VIEW incload.silence IS 'jobs about which nobody is told for a time';
COMMENT ON COLUMN incload.silence.job IS 'NULL: all jobs';

CREATE VIEW incload.outbox WITH (security_barrier) AS
SELECT o.outbox_id, c.channel, o.kind, e.job, e.severity, e.code, o.group_key, o.state, o.attempts,
       CASE WHEN o.state = 'pending' THEN o.next_try END AS next_try, o.last_error, o.delivery_id,
       o.event_id, o.alert_id, o.created_at, o.finished_at
FROM incload.outbox_store o
JOIN incload.channel_store c USING (channel_id)
JOIN incload.event_store e USING (event_id)
WHERE e.owner IN (SELECT r.rolname FROM pg_catalog.pg_roles r
                  WHERE pg_catalog.pg_has_role(r.oid, 'USAGE'))
   OR (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
COMMENT ON VIEW incload.outbox IS 'what is to be told by which channel, and what became of it';
COMMENT ON COLUMN incload.outbox.kind IS 'firing: a trouble has begun; resolved: it is over; notice: what is told once; test';
COMMENT ON COLUMN incload.outbox.state IS 'pending, delivered, silenced, or failed: given up';
COMMENT ON COLUMN incload.outbox.next_try IS 'not before then; a silence, or an earlier delivery about the same cause, may hold it longer';
COMMENT ON COLUMN incload.outbox.delivery_id IS 'rows with the same one are one message, with one idempotency key';

GRANT SELECT ON incload.silence, incload.outbox TO PUBLIC;

CREATE FUNCTION incload_add_channel(name text, url text, format text DEFAULT 'webhook',
    min_severity text DEFAULT 'ticket', options jsonb DEFAULT NULL)
RETURNS incload.channel LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_add_channel';
COMMENT ON FUNCTION incload_add_channel(text, text, text, text, jsonb) IS
'send events from min_severity on to a URL, as alertmanager, webhook, slack or pagerduty expects them';
REVOKE ALL ON FUNCTION incload_add_channel(text, text, text, text, jsonb) FROM PUBLIC;

CREATE FUNCTION incload_alter_channel(name text, url text DEFAULT NULL,
    min_severity text DEFAULT NULL, options jsonb DEFAULT NULL)
RETURNS incload.channel LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_alter_channel';
COMMENT ON FUNCTION incload_alter_channel(text, text, text, jsonb) IS
'change a channel; options are merged into those it has, and an option set to null goes back to its default';
REVOKE ALL ON FUNCTION incload_alter_channel(text, text, text, jsonb) FROM PUBLIC;

CREATE FUNCTION incload_drop_channel(name text)
RETURNS void LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_drop_channel';
COMMENT ON FUNCTION incload_drop_channel(text) IS 'drop a channel, and what it has not delivered';
REVOKE ALL ON FUNCTION incload_drop_channel(text) FROM PUBLIC;

CREATE FUNCTION incload_test_channel(name text)
RETURNS bigint LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_test_channel';
COMMENT ON FUNCTION incload_test_channel(text) IS
'have the scheduler send a test event once this transaction commits; returns the outbox_id under which incload.outbox says what became of it';
REVOKE ALL ON FUNCTION incload_test_channel(text) FROM PUBLIC;

CREATE FUNCTION incload_silence(job text, duration interval, reason text DEFAULT NULL)
RETURNS timestamptz LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'incload_silence';
COMMENT ON FUNCTION incload_silence(text, interval, text) IS
'tell nobody about a job (NULL: any job) for that time, counted from now; 0 ends it; returns when it ends';
