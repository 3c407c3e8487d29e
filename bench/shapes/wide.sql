-- 200 columns: 98 bigint and 99 text beside key, number of the row and watermark.

SELECT format('CREATE TABLE wide (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL, changes integer NOT NULL, %s)',
              string_agg(format(CASE WHEN n % 2 = 0 THEN 'i%s bigint' ELSE 't%s text' END, n), ', ' ORDER BY n))
FROM generate_series(1, 197) n \gexec
CREATE INDEX wide_updated_at ON wide (updated_at);

\if :is_source
SELECT format($f$
    CREATE PROCEDURE wide_add(first bigint, last bigint, moment timestamptz DEFAULT NULL) LANGUAGE sql AS $$
        INSERT INTO wide
        SELECT n, coalesce(moment, '2024-01-01Z'::timestamptz + n * interval '1 ms'), 0, %s
        FROM generate_series(first, last) n
    $$ $f$, string_agg(format(CASE WHEN n % 2 = 0 THEN 'n * %s' ELSE 'left(md5((n + %s)::text), 12)' END, n), ', ' ORDER BY n))
FROM generate_series(1, 197) n \gexec
CREATE PROCEDURE wide_change(percent float8) LANGUAGE sql AS $$
    UPDATE wide AS t SET changes = changes + 1, updated_at = clock_timestamp()
    FROM unnest(ARRAY(SELECT ctid FROM wide TABLESAMPLE BERNOULLI (percent) ORDER BY random())) AS s(place)
    WHERE t.ctid = s.place
$$;
\endif
