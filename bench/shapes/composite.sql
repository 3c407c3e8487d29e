-- A key of three columns, one of them text.

CREATE TABLE composite (
    tenant     integer,
    day        date,
    code       text,
    amount     numeric(10,2) NOT NULL,
    attributes jsonb NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, day, code));
CREATE INDEX composite_updated_at ON composite (updated_at);

\if :is_source
CREATE PROCEDURE composite_add(first bigint, last bigint, moment timestamptz DEFAULT NULL) LANGUAGE sql AS $$
    INSERT INTO composite
    SELECT n % 50, date '2020-01-01' + (n / 50 % 1000)::int, 'code ' || n, n % 100000 / 100.0,
           jsonb_build_object('n', n, 'word', md5(n::text)),
           coalesce(moment, '2024-01-01Z'::timestamptz + n * interval '1 ms')
    FROM generate_series(first, last) n
$$;
CREATE PROCEDURE composite_change(percent float8) LANGUAGE sql AS $$
    UPDATE composite AS t SET amount = amount + 1, updated_at = clock_timestamp()
    FROM unnest(ARRAY(SELECT ctid FROM composite TABLESAMPLE BERNOULLI (percent) ORDER BY random())) AS s(place)
    WHERE t.ctid = s.place
$$;
\endif
