--
-- Names of roles, servers, schemas in a search_path and jobs: quotes, dots, commas, blanks, upper case, dollar signs, reserved
-- words, 63 bytes, and letters that are no ASCII; what a hint says can be run
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE SCHEMA roles;
SET search_path = roles, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';
\set SHOW_CONTEXT never
CREATE TABLE src (id int PRIMARY KEY, v int NOT NULL, t text);
INSERT INTO src VALUES (1, 1, 'one'), (2, 2, 'two');

CREATE TABLE list (n int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);
INSERT INTO list (name) VALUES ('regress_plain'), ('regress_UPPER Case'), ('regress_"quote"'), ('regress_''apostrophe'''), ('regress_$1'), ('regress_a.b, c'), ('regress_$user'),
    ('regress_ä€日本'), ('regress_' || repeat('x', 55)), ('regress_' || repeat('ä', 27) || 'z'), ('regress_\ back'), ('regress_%s'), ('regress_;--'), ('regress_/*'), (' regress_ blanks ');
CREATE TABLE results (n int, name text, what text);
-- one role, server, schema and user mapping of the name; its job reads and writes, whoever calls it
CREATE FUNCTION make(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE name text := (SELECT l.name FROM roles.list l WHERE l.n = make.n);
BEGIN
    EXECUTE format('CREATE ROLE %I', name);
    EXECUTE format('CREATE SCHEMA %I AUTHORIZATION %1$I', name);
    EXECUTE format('GRANT USAGE ON SCHEMA roles TO %I; GRANT SELECT ON roles.src TO %1$I; GRANT INSERT ON roles.results TO %1$I', name);
    EXECUTE format('CREATE SERVER %I FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)', name,
        split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database());
    EXECUTE format('GRANT USAGE ON FOREIGN SERVER %I TO %1$I', name);
    EXECUTE format('CREATE USER MAPPING FOR %I SERVER %1$I OPTIONS (user %L, password_required ''false'')', name, current_user);
    -- found by its search_path alone: the table, and a function that only this schema has
    EXECUTE format('CREATE FOREIGN TABLE %I.there (id int, v int, t text) SERVER %1$I OPTIONS (schema_name ''roles'', table_name ''src''); ALTER FOREIGN TABLE %1$I.there OWNER TO %1$I', name);
    EXECUTE format('CREATE FUNCTION %I.mine(text) RETURNS text LANGUAGE sql AS $f$ SELECT %L || $1 $f$', name, name || '/');
    EXECUTE format('SET LOCAL search_path = %I, roles, public', name);
    EXECUTE format('SET LOCAL ROLE %I', name);
    PERFORM public.incload_create_job('role ' || n, 'there', 'here', 'upsert', 'v', '{id}',
        options => '{"reader": "relation", "transforms": {"t": "mine(t)"}, "pre_sql": "SELECT mine(''x'')", "post_sql": "INSERT INTO roles.results (name, what) VALUES (current_user, current_setting(''search_path''))"}');
    PERFORM public.incload_create_job('role copy ' || n, 'there', 'copied', 'upsert', 'v', '{id}');
END $$;
\set ECHO none
\o /dev/null
SELECT format('SELECT make(%s)', n) FROM list ORDER BY n \gexec
\o
\set ECHO all
SELECT count(*) FROM incload.job WHERE job LIKE 'role %';
SELECT count(rows_inserted), sum(rows_inserted) FROM (SELECT job FROM incload.job WHERE job LIKE 'role %' ORDER BY job_id OFFSET 0) j, LATERAL incload_run(j.job) r;
-- as whom it ran, and under which search_path
SELECT count(*), count(*) FILTER (WHERE r.name = l.name AND r.what = format('%I, roles, public', l.name)) FROM results r JOIN list l USING (name);
SELECT owner = l.name AS owner, source = format('%I.there', l.name) AS source, target = format('%I.here', l.name) AS target, count(*)
FROM incload.job JOIN list l ON job = 'role ' || n GROUP BY 1, 2, 3;
-- what was made belongs to the owner, and has what the function of his schema said
SELECT count(*), bool_and(pg_get_userbyid(relowner) = nspname) FROM pg_class c JOIN pg_namespace s ON s.oid = relnamespace WHERE relname IN ('here', 'copied') AND relkind = 'r';
CREATE FUNCTION loaded(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE t text;
BEGIN
    EXECUTE format('SELECT h.t FROM %I.here h WHERE id = 1', name) INTO t;
    RETURN t;
END $$;
SELECT bool_and(loaded(name) = name || '/one') FROM list;
-- what a hint says can be run as it stands
CREATE FUNCTION mend(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE name text := (SELECT l.name FROM roles.list l WHERE l.n = mend.n); hint text; message text;
BEGIN
    EXECUTE format('ALTER FOREIGN TABLE %I.there OWNER TO CURRENT_USER', name);
    BEGIN
        PERFORM public.incload_run('role copy ' || n);
        RETURN 'no error';
    EXCEPTION WHEN insufficient_privilege THEN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    END;
    EXECUTE split_part(hint, '; or set the option', 1);
    PERFORM public.incload_run('role copy ' || n);
    RETURN 'mended';
END $$;
SELECT mend(n), count(*) FROM list GROUP BY 1;
-- of a role without a password, of one without a user mapping, and of a job that changes hands
CREATE FUNCTION hint_of(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE message text; hint text;
BEGIN
    EXECUTE sql;
    RETURN 'no error';
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN message || E'\n' || hint;
END $$;
SELECT n, hint_of(format('SELECT incload_alter_job(%L, owner => %L)', 'role copy ' || n, (SELECT m.name FROM list m WHERE m.n = l.n % 2 + 1))) FROM list l WHERE n IN (3, 4) ORDER BY n;
DO $$ BEGIN EXECUTE format('DROP USER MAPPING FOR %I SERVER %1$I; CREATE USER MAPPING FOR %1$I SERVER %1$I', name) FROM roles.list WHERE n = 3; END $$;
DO $$ BEGIN EXECUTE format('DROP USER MAPPING FOR %I SERVER %1$I', name) FROM roles.list WHERE n = 5; END $$;
SELECT n, hint_of(format('SELECT incload_run(%L)', 'role copy ' || n)) FROM list WHERE n IN (3, 5) ORDER BY n;

--
-- names of jobs: any, but for quotes, backslashes and control characters, up to 62 bytes
--
CREATE FUNCTION outcome(job text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text; said text;
BEGIN
    PERFORM incload_create_job(job, 'src', 'by_name', 'upsert', 'v', '{id}', options => '{"batch_rows": 1}');
    said := (SELECT concat_ws(' ', r.job = outcome.job, r.status, r.rows_read) FROM incload_run(outcome.job) r)
        || (SELECT format(' %s %s', count(*), min(s.state)) FROM incload.status s WHERE s.job = outcome.job)
        || (SELECT ' ' || (count(*) > 0) FROM incload.event e WHERE e.job = outcome.job);
    PERFORM incload_drop_job(job);
    RETURN said;
EXCEPTION WHEN others THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN SQLSTATE || ' ' || detail;
END $$;
\pset format unaligned
SELECT job, octet_length(job), outcome(job) FROM unnest(ARRAY['UPPER Case', 'with.dot', 'a, b', '$1 $user $$', 'select', 'größe 日本 😀', '%s %n', '--', '/*', ';', '{"a": 1}', '\u0061', ' leading', 'trailing ',
    repeat('j', 62), repeat('j', 63), repeat('ä', 31), repeat('ä', 31) || 'j', repeat('日', 20) || 'jj', '', '   ', 'it''s', 'a"b', 'a`b', 'a\b', E'a\nb', E'a\x7fb']) job;
\pset format aligned
-- one that differs by case, or by a blank, is another
SELECT count(incload_create_job(job, 'src', 'by_name', 'upsert', 'v', '{id}')) FROM unnest('{Twice,twice,"twice "}'::text[]) job;
SELECT job FROM incload_alter_job('twice ', options => '{"batch_rows": 7}');
SELECT job, options FROM incload.job WHERE job ILIKE 'twice%' ORDER BY job COLLATE "C";

-- clean up
SELECT count(incload_drop_job(job)) FROM incload.job WHERE job LIKE 'role %' OR job ILIKE 'twice%';
\set ECHO none
SELECT format('DROP OWNED BY %I CASCADE', name), format('DROP SERVER %I CASCADE', name), format('DROP ROLE %I', name) FROM list ORDER BY n \gexec
\set ECHO all
DROP SCHEMA roles CASCADE;
