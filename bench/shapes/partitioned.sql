-- At the target, 100 partitions by key.

ALTER TABLE base RENAME TO template;
CREATE TABLE base (LIKE template) PARTITION BY HASH (id);
SELECT format('CREATE TABLE base_%s PARTITION OF base FOR VALUES WITH (MODULUS 100, REMAINDER %s)', n, n)
FROM generate_series(0, 99) n \gexec
DROP TABLE template;
ALTER TABLE base ADD PRIMARY KEY (id);
CREATE INDEX base_updated_at ON base (updated_at);
