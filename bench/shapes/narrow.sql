-- Rows of little but their header.

CREATE TABLE narrow (
    id         integer PRIMARY KEY,
    v          integer NOT NULL,
    updated_at timestamptz NOT NULL);
CREATE INDEX narrow_updated_at ON narrow (updated_at);

\if :is_source
CREATE PROCEDURE narrow_add(first bigint, last bigint, moment timestamptz DEFAULT NULL) LANGUAGE sql AS $$
    INSERT INTO narrow
    SELECT n, n % 1000, coalesce(moment, '2024-01-01Z'::timestamptz + n * interval '1 ms')
    FROM generate_series(first, last) n
$$;
CREATE PROCEDURE narrow_change(percent float8) LANGUAGE sql AS $$
    UPDATE narrow AS t SET v = v + 1, updated_at = clock_timestamp()
    FROM unnest(ARRAY(SELECT ctid FROM narrow TABLESAMPLE BERNOULLI (percent) ORDER BY random())) AS s(place)
    WHERE t.ctid = s.place
$$;
\endif
