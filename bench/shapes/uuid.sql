-- A key in no order: where a row lies says nothing of where its key is in the index.

CREATE TABLE uuid (
    id         pg_catalog.uuid PRIMARY KEY,
    amount     numeric(10,2) NOT NULL,
    note       text,
    attributes jsonb NOT NULL,
    updated_at timestamptz NOT NULL);
CREATE INDEX uuid_updated_at ON uuid (updated_at);

\if :is_source
CREATE PROCEDURE uuid_add(first bigint, last bigint, moment timestamptz DEFAULT NULL) LANGUAGE sql AS $$
    INSERT INTO uuid
    SELECT md5(n::text)::pg_catalog.uuid, n % 100000 / 100.0, 'row ' || n, jsonb_build_object('n', n, 'word', md5(n::text)),
           coalesce(moment, '2024-01-01Z'::timestamptz + n * interval '1 ms')
    FROM generate_series(first, last) n
$$;
CREATE PROCEDURE uuid_change(percent float8) LANGUAGE sql AS $$
    UPDATE uuid AS t SET amount = amount + 1, updated_at = clock_timestamp()
    FROM unnest(ARRAY(SELECT ctid FROM uuid TABLESAMPLE BERNOULLI (percent) ORDER BY random())) AS s(place)
    WHERE t.ctid = s.place
$$;
\endif
