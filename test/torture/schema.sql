-- What is written to and read from, at the source and at the target itself.
-- The table version has every version of every row, from the transaction that
-- wrote it: its commit time tells what could not be seen before.

CREATE TABLE version (source text NOT NULL, id bigint NOT NULL, at timestamptz NOT NULL);

CREATE FUNCTION keep_version() RETURNS trigger LANGUAGE plpgsql AS
$$
BEGIN
    INSERT INTO version VALUES (TG_ARGV[0], NEW.id, (to_jsonb(NEW) ->> TG_ARGV[1])::timestamptz);
    RETURN NULL;
END
$$;

CREATE TABLE changing (id bigserial PRIMARY KEY, v int NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON changing (updated_at);
CREATE TRIGGER keep_version AFTER INSERT OR UPDATE ON changing
    FOR EACH ROW EXECUTE FUNCTION keep_version('changing', 'updated_at');

CREATE TABLE growing (id bigserial PRIMARY KEY, v int NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON growing (created_at);
CREATE TRIGGER keep_version AFTER INSERT ON growing
    FOR EACH ROW EXECUTE FUNCTION keep_version('growing', 'created_at');

-- a row moves between the halves, and stays the same row by its id
CREATE TABLE parted (id bigserial, half int NOT NULL, v int NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, half)) PARTITION BY LIST (half);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES IN (0);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE INDEX ON parted (updated_at);
CREATE TRIGGER keep_version AFTER INSERT OR UPDATE ON parted
    FOR EACH ROW EXECUTE FUNCTION keep_version('parted', 'updated_at');

CREATE VIEW joined AS
SELECT c.id, c.v, p.half, p.v AS w, greatest(c.updated_at, p.updated_at) AS updated_at
FROM changing c JOIN parted p USING (id);

-- by the clock of an application
CREATE TABLE stamped (id bigserial PRIMARY KEY, v int NOT NULL, at timestamptz NOT NULL);
CREATE INDEX ON stamped (at);

INSERT INTO changing (v) SELECT 0 FROM generate_series(1, 200);
INSERT INTO growing (v) SELECT 0 FROM generate_series(1, 50);
INSERT INTO parted (half, v) SELECT i % 2, 0 FROM generate_series(1, 200) i;
INSERT INTO stamped (v, at) SELECT 0, now() FROM generate_series(1, 50);

GRANT SELECT ON ALL TABLES IN SCHEMA public TO PUBLIC;
GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO PUBLIC;
