-- What the job's owner does: log in to the source and see its table here.

CREATE USER MAPPING FOR loader SERVER shop
    OPTIONS (user 'reader', password :'password');
CREATE SCHEMA src;
IMPORT FOREIGN SCHEMA public LIMIT TO (pgbench_accounts) FROM SERVER shop INTO src;
