-- What a database of the target has: incload, the way to the source, and the
-- statement that incload's own is compared with.

CREATE EXTENSION postgres_fdw;
CREATE EXTENSION incload;
CREATE SERVER source FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host '127.0.0.1', port :'source_port', dbname :'place');
GRANT USAGE ON FOREIGN SERVER source TO loader;
CREATE USER MAPPING FOR loader SERVER source OPTIONS (user 'reader', password :'password');
CREATE SCHEMA src AUTHORIZATION loader;
CREATE TABLE single (n integer);
GRANT INSERT ON single TO loader;

-- MERGE as one writes it by hand: by the primary key, all other columns set,
-- no look at whether they differ.
CREATE FUNCTION reference_merge(target regclass, stage text) RETURNS text LANGUAGE sql STABLE AS $$
    WITH columns AS (
        SELECT attnum, quote_ident(attname) AS name, attnum = ANY (indkey) AS is_key
        FROM pg_attribute JOIN pg_index ON indrelid = attrelid AND indisprimary
        WHERE attrelid = target AND attnum > 0 AND NOT attisdropped)
    SELECT format('MERGE INTO %s AS t USING %s AS s ON %s'
                  ' WHEN MATCHED THEN UPDATE SET %s'
                  ' WHEN NOT MATCHED THEN INSERT (%s) VALUES (%s)', target, stage,
                  string_agg(format('t.%s = s.%1$s', name), ' AND ' ORDER BY attnum) FILTER (WHERE is_key),
                  string_agg(format('%s = s.%1$s', name), ', ' ORDER BY attnum) FILTER (WHERE NOT is_key),
                  string_agg(name, ', ' ORDER BY attnum), string_agg('s.' || name, ', ' ORDER BY attnum))
    FROM columns
$$;
