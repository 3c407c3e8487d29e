# A run belongs to the transaction that calls it: it commits with it, rolls
# back with it, and does not overlap another run of its job.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use IncloadTest;

my ($source, $target) = two_nodes();

$source->safe_psql('postgres', q{
	CREATE TABLE customers (id int PRIMARY KEY, name text, updated_at timestamptz NOT NULL);
	CREATE TABLE orders (id int PRIMARY KEY, customer int, updated_at timestamptz NOT NULL);
	INSERT INTO customers SELECT i, 'c' || i, '2024-01-01Z'::timestamptz + i * interval '1 s' FROM generate_series(1, 100) i;
	INSERT INTO orders SELECT i, i % 100 + 1, '2024-01-01Z'::timestamptz + i * interval '1 s' FROM generate_series(1, 500) i;
});
foreign_table($target, 'customers', 'orders');
as_loader($target, q{
	SELECT incload_create_job('customers', 'src.customers', 'dw.customers');
	SELECT incload_create_job('orders', 'src.orders', 'dw.orders');
});
my $state = q{SELECT (SELECT count(*) FROM dw.customers), (SELECT count(*) FROM dw.orders),
	(SELECT count(*) FROM incload.checkpoint WHERE bound IS NOT NULL), (SELECT count(*) FROM incload.run)};

# rolled back, nothing has happened
is(as_loader($target, "BEGIN; SELECT rows_inserted FROM incload_run('orders'); ROLLBACK; $state"),
	"500\n0|0|0|0", 'a run that is rolled back leaves target, checkpoint and history as they were');

# two jobs, both or neither
as_loader($target, 'ALTER TABLE dw.orders ADD CONSTRAINT small CHECK (id < 400)');
fails_with($target, 'loader', "BEGIN; SELECT incload_run('customers'); SELECT incload_run('orders'); COMMIT;",
	'23514', qr/violates check constraint "small"/, 'the second job of a transaction fails');
is(as_loader($target, $state), '0|0|0|1', 'then neither is loaded, and only the failure is on record');
is(last_run($target, 'orders', 'status, sqlstate, rows_read'), 'failed|23514|0', 'as failed, with nothing committed');
as_loader($target, 'ALTER TABLE dw.orders DROP CONSTRAINT small');
as_loader($target, "BEGIN; SELECT incload_run('customers'), incload_run('orders'); COMMIT;");
is(as_loader($target, $state), '100|500|2|3', 'without the fault, both are');
is(differences($target, 'src.orders', 'dw.orders'), '0|0', 'and equal');

# an exception block takes back the run and nothing else
as_loader($target, q{ALTER TABLE dw.customers ADD CONSTRAINT no_x CHECK (name <> 'x')});
$source->safe_psql('postgres', q{
	UPDATE customers SET name = 'x', updated_at = now() WHERE id = 1;
	UPDATE orders SET customer = 7, updated_at = now() WHERE id = 1;
});
is( as_loader($target, q{
	CREATE TABLE dw.said (what text);
	DO $$
	BEGIN
		INSERT INTO dw.said VALUES ('before');
		PERFORM incload_run('orders');
		BEGIN
			PERFORM incload_run('customers');
		EXCEPTION WHEN check_violation THEN
			INSERT INTO dw.said VALUES ('caught');
		END;
	END $$;
	SELECT string_agg(what, ' ') FROM dw.said;
	SELECT customer FROM dw.orders WHERE id = 1;
	SELECT name FROM dw.customers WHERE id = 1;
}), "before caught\n7\nc1", 'a caught failure leaves the rest of the transaction alone');
is(last_run($target, 'customers', 'status, sqlstate'), 'failed|23514', 'and is on record');
as_loader($target, 'ALTER TABLE dw.customers DROP CONSTRAINT no_x');
is(as_loader($target, "SELECT rows_read, rows_updated FROM incload_run('customers')"), '1|1',
	'the row that failed is read again');

# batches commit, so they refuse to be inside of anything
fails_with($target, 'loader', "BEGIN; CALL incload_run_in_batches('orders');", '25001',
	qr/DETAIL:.*HINT:/s, 'CALL inside a transaction block is refused');
fails_with($target, 'loader', q{DO $$ BEGIN PERFORM 1; CALL incload_run_in_batches('orders'); EXCEPTION WHEN division_by_zero THEN NULL; END $$},
	'25001', qr/transaction block/, 'and inside an exception block');

# a job does not overlap itself
my $holder = session($target, 'loader');
$holder->query_safe("BEGIN; SELECT incload_run('orders')");
my $started = time;
fails_with($target, 'loader', "SELECT incload_run('orders')", '55P03', qr/already running.*PID \d+.*HINT/s,
	'a second run fails at once');
fails_with($target, 'loader', "CALL incload_run_in_batches('orders')", '55P03', qr/already running/,
	'in batches, too');
cmp_ok(time - $started, '<', 10, 'without waiting');
fails_with($target, 'loader', "SELECT incload_alter_job('orders', options => '{\"batch_rows\": 5}')", '55P03',
	qr/already running/, 'nor is a job altered while it runs');
fails_with($target, 'loader', "SELECT incload_drop_job('orders')", '55P03', qr/already running/, 'or dropped');
is(last_run($target, 'orders', 'status, sqlstate'), 'skipped|55P03', 'it is on record as skipped');
is(as_loader($target, "SELECT state FROM incload.status WHERE job = 'orders'"), 'running',
	'the status says that the job runs');
is(as_loader($target, "SELECT status FROM incload_run('customers')"), 'succeeded', 'another job is not held up');
$holder->query_safe('COMMIT');
is(as_loader($target, "SELECT state FROM incload.status WHERE job = 'orders'"), 'ok', 'and then, that it is done');
is(as_loader($target, "SELECT status FROM incload_run('orders')"), 'succeeded', 'the lock is free again');
$holder->quit;

# a caller's isolation level is kept
is(as_loader($target, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT status FROM incload_run('orders'); COMMIT;"),
	'succeeded', 'a run works under SERIALIZABLE');
fails_with($target, 'loader', "BEGIN READ ONLY; SELECT incload_run('orders');", '25006', qr/read-only/,
	'a read-only transaction is refused');

done_testing();
