-- The source, after pgbench -i: a key is there already; add what an application
-- table usually has beside it, a time of the last change that a trigger keeps.
-- The rows are given ages of one to 365 days.

ALTER TABLE pgbench_accounts ADD COLUMN updated_at timestamptz NOT NULL
    DEFAULT date_trunc('second', now()) - interval '1 day' - random() * interval '364 days';
ALTER TABLE pgbench_accounts ALTER COLUMN updated_at SET DEFAULT now();
CREATE INDEX pgbench_accounts_updated_at ON pgbench_accounts (updated_at);

CREATE FUNCTION set_updated_at() RETURNS trigger LANGUAGE plpgsql AS
$$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END
$$;
CREATE TRIGGER set_updated_at BEFORE UPDATE ON pgbench_accounts
    FOR EACH ROW EXECUTE FUNCTION set_updated_at();

CREATE SEQUENCE new_account_ids START 1000001;
VACUUM (ANALYZE) pgbench_accounts;

-- Whom the target logs in as: it may read that one table, nothing else.
CREATE ROLE reader LOGIN PASSWORD :'password';
GRANT SELECT ON pgbench_accounts TO reader;
