-- Rows of 1 MB: a bytea that does not compress, stored out of line.

CREATE TABLE megabyte (
    id         integer PRIMARY KEY,
    name       text NOT NULL,
    body       bytea NOT NULL,
    updated_at timestamptz NOT NULL);
ALTER TABLE megabyte ALTER body SET STORAGE EXTERNAL;
CREATE INDEX megabyte_updated_at ON megabyte (updated_at);

\if :is_source
CREATE PROCEDURE megabyte_add(first bigint, last bigint, moment timestamptz DEFAULT NULL) LANGUAGE sql AS $$
    INSERT INTO megabyte
    SELECT n, 'file ' || n, decode(repeat(md5(n::text), 32768), 'hex'),
           coalesce(moment, '2024-01-01Z'::timestamptz + n * interval '1 ms')
    FROM generate_series(first, last) n
$$;
-- The bytes change, too: else the update would leave them where they are.
CREATE PROCEDURE megabyte_change(percent float8) LANGUAGE sql AS $$
    UPDATE megabyte SET body = set_byte(body, 0, (get_byte(body, 0) + 1) % 256), updated_at = clock_timestamp()
    WHERE random() * 100 < percent
$$;
\endif
