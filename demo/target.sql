-- What an administrator does once in the target: the extensions, the way to the
-- source, and a plain role that owns the database and will own the job.

CREATE EXTENSION postgres_fdw;
CREATE EXTENSION incload;

CREATE SERVER shop FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host '127.0.0.1', port :'source_port', dbname 'shop');
GRANT USAGE ON FOREIGN SERVER shop TO loader;
