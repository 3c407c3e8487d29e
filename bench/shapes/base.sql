-- The table of the issue: 8 columns with jsonb, a primary key and one index.

CREATE TABLE base (
    id          bigint PRIMARY KEY,
    customer_id integer NOT NULL,
    state       text NOT NULL,
    amount      numeric(10,2) NOT NULL,
    note        text,
    attributes  jsonb NOT NULL,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL);
CREATE INDEX base_updated_at ON base (updated_at);

\if :is_source
CREATE PROCEDURE base_add(first bigint, last bigint, moment timestamptz DEFAULT NULL) LANGUAGE sql AS $$
    INSERT INTO base
    SELECT n, n * 7919 % 100003, (ARRAY['new', 'paid', 'sent', 'done'])[1 + n % 4], n % 100000 / 100.0,
           'order number ' || n || ' ' || md5(n::text),
           jsonb_build_object('channel', (ARRAY['web', 'shop', 'phone'])[1 + n % 3], 'items', n % 9,
                              'discount', n % 20 / 100.0, 'tags', jsonb_build_array('a' || n % 10, 'b' || n % 7)),
           '2024-01-01Z'::timestamptz + n * interval '1 ms',
           coalesce(moment, '2024-01-01Z'::timestamptz + n * interval '1 ms')
    FROM generate_series(first, last) n
$$;

-- Rows from all over the table, in no order.
CREATE PROCEDURE base_change(percent float8) LANGUAGE sql AS $$
    UPDATE base AS t SET state = 'changed', amount = amount + 1, updated_at = clock_timestamp()
    FROM unnest(ARRAY(SELECT ctid FROM base TABLESAMPLE BERNOULLI (percent) ORDER BY random())) AS s(place)
    WHERE t.ctid = s.place
$$;
\endif
