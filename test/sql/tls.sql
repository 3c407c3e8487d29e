--
-- incload_check warns of a source on another machine that may send its rows in clear
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS incload;
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE SCHEMA tls;
SET search_path = tls, public;
CREATE TABLE there (id int PRIMARY KEY, v int);
-- the first host answers, so that nothing has to be looked up: the second is another machine
SELECT split_part(current_setting('unix_socket_directories'), ',', 1) AS socket, current_setting('port') AS port, current_database() AS dbname,
    split_part(current_setting('unix_socket_directories'), ',', 1) || ',db.example.org' AS both \gset
CREATE SERVER "tls Server" FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host :'socket', port :'port', dbname :'dbname');
CREATE USER MAPPING FOR CURRENT_USER SERVER "tls Server";
CREATE FOREIGN TABLE src (id int, v int) SERVER "tls Server" OPTIONS (schema_name 'tls', table_name 'there');
SELECT job FROM incload_create_job('tls', 'tls.src', 'tls.dst', 'full', key => '{id}');
CREATE FUNCTION warned(OUT message text, OUT sql text) RETURNS SETOF record LANGUAGE sql AS
$$ SELECT message, sql FROM public.incload_check('tls') WHERE code = 'source_without_tls' AND severity = 'warning' $$;
-- a socket
SELECT * FROM warned();
ALTER SERVER "tls Server" OPTIONS (SET host :'both');
SELECT message, sql FROM warned();
-- an address that stands beside the name is what is connected to
ALTER SERVER "tls Server" OPTIONS (ADD hostaddr ',127.0.0.1');
SELECT * FROM warned();
ALTER SERVER "tls Server" OPTIONS (SET hostaddr ',10.0.0.1');
SELECT sql FROM warned();
DO $$
DECLARE socket text := split_part(current_setting('unix_socket_directories'), ',', 1);
        hosts text;
        mode text;
        n int;
BEGIN
    ALTER SERVER "tls Server" OPTIONS (DROP hostaddr);
    FOREACH hosts IN ARRAY '{"","LOCALHOST","127.0.0.2","::1","db.example.org","db.example.org,localhost","10.0.0.1"}'::text[] LOOP
        EXECUTE format('ALTER SERVER "tls Server" OPTIONS (SET host %L)', socket || ',' || hosts);
        SELECT count(*) INTO n FROM tls.warned();
        RAISE INFO 'to %: % warning(s)', hosts, n;
    END LOOP;
    EXECUTE format('ALTER SERVER "tls Server" OPTIONS (SET host %L, ADD sslmode ''prefer'')', socket || ',db.example.org');
    FOREACH mode IN ARRAY '{disable,allow,prefer,require,verify-ca,verify-full}'::text[] LOOP
        EXECUTE format('ALTER SERVER "tls Server" OPTIONS (SET sslmode %L)', mode);
        SELECT count(*) INTO n FROM tls.warned();
        RAISE INFO 'sslmode %: % warning(s)', mode, n;
    END LOOP;
END $$;
-- a socket takes no TLS, so what mends can be run, and the job goes on
ALTER SERVER "tls Server" OPTIONS (SET sslmode 'disable');
SELECT message, sql FROM warned();
SELECT sql FROM warned() \gexec
SELECT * FROM warned();
SELECT status FROM incload_run('tls');
-- read by another reader, or from here
ALTER SERVER "tls Server" OPTIONS (DROP sslmode);
SELECT job FROM incload_alter_job('tls', options => '{"reader": "relation"}');
SELECT sql FROM warned();
SELECT job FROM incload_alter_job('tls', source => 'tls.there', options => '{"reader": null}');
SELECT * FROM warned();
SELECT incload_drop_job('tls');
DROP SCHEMA tls CASCADE;
DROP SERVER "tls Server" CASCADE;
