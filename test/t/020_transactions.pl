# A run belongs to the transaction that calls it, and a job does not overlap
# itself.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use IncloadTest;

my ($source, $target) = two_nodes(target => 'max_prepared_transactions = 5');

$source->safe_psql('postgres', q{
	CREATE TABLE customers (id int PRIMARY KEY, updated_at timestamptz NOT NULL, name text);
	CREATE TABLE orders (id int PRIMARY KEY, updated_at timestamptz NOT NULL, amount numeric);
	INSERT INTO customers SELECT i, '2024-01-01'::timestamptz + i * interval '1 s', 'c' || i
	FROM generate_series(1, 500) i;
	INSERT INTO orders SELECT i, '2024-01-01'::timestamptz + i * interval '1 s', i
	FROM generate_series(1, 1000) i;
});
foreign_table($target, 'customers', 'orders');
as_loader($target, q{
	SELECT incload_create_job('customers', 'src.customers', 'dw.customers');
	SELECT incload_create_job('orders', 'src.orders', 'dw.orders');
});

# all that a run may change: rows, checkpoint, history
sub state_of
{
	my ($job) = @_;
	return $target->safe_psql('postgres', qq{
		SELECT (SELECT count(*) FROM dw.$job), (SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM dw.$job t);
		SELECT * FROM incload.checkpoint WHERE job = '$job';
		SELECT * FROM incload.run WHERE job = '$job' ORDER BY run_id;
	});
}

# rolled back before anything was loaded, and again when something was
my $before = state_of('orders');
is( as_loader($target, q{
	BEGIN;
	SELECT status, rows_read, rows_inserted FROM incload_run('orders');
	SELECT count(*) FROM dw.orders;
	SELECT count(*) FROM incload.run WHERE job = 'orders';
	ROLLBACK;
}), "succeeded|1000|1000\n1000\n1", 'inside its transaction a run has done its work');
is(state_of('orders'), $before, 'ROLLBACK leaves target, checkpoint and history');

as_loader($target, q{SELECT incload_run('orders')});
is(last_run($target, 'orders'), 'succeeded|1000|1000|0|0', 'what was rolled back is loaded by the next run');
$source->safe_psql('postgres', q{
	UPDATE orders SET amount = -1, updated_at = clock_timestamp() WHERE id <= 10;
	INSERT INTO orders VALUES (1001, clock_timestamp(), 5);
});
$before = state_of('orders');
is( as_loader($target, q{
	BEGIN;
	SELECT rows_read, rows_inserted, rows_updated FROM incload_run('orders');
	ROLLBACK;
}), '11|1|10', 'the changes are seen');
is(state_of('orders'), $before, 'ROLLBACK again leaves all as it was');

# twice in one transaction: the second run goes on from the first
is( as_loader($target, q{
	BEGIN;
	SELECT rows_inserted, rows_updated FROM incload_run('orders');
	SELECT rows_inserted, rows_updated FROM incload_run('orders');
	COMMIT;
}), "1|10\n0|0", 'a second run in one transaction finds nothing new');
is(scalar differences($source, $target, 'orders', 'dw.orders'), '0|0', 'orders are the same');

# two jobs, both or neither
$source->safe_psql('postgres', q{
	INSERT INTO orders VALUES (1002, clock_timestamp(), 1), (1003, clock_timestamp(), 2);
});
as_loader($target, q{CREATE TABLE dw.narrow AS TABLE dw.orders WITH NO DATA;
	ALTER TABLE dw.narrow ADD PRIMARY KEY (id), ADD CHECK (id < 1003);
	SELECT incload_create_job('narrow', 'src.orders', 'dw.narrow')});
$before = state_of('customers') . state_of('orders');
fails_with($target, 'loader', q{
	BEGIN;
	SELECT incload_run('orders');
	SELECT incload_run('customers');
	SELECT incload_run('narrow');
}, '23514', qr/narrow/, 'the third job of a transaction fails');
is(state_of('customers') . state_of('orders'), $before, 'the two before it have done nothing');
is(last_run($target, 'narrow', 'status, sqlstate'), 'failed|23514', 'the failed one is on record');

fails_with($target, 'loader', q{SELECT incload_run('customers'), incload_run('orders'), incload_run('narrow')},
	'23514', qr/narrow/, 'the same in one statement');
is(state_of('customers') . state_of('orders'), $before, 'and nothing is loaded');

as_loader($target, q{BEGIN; SELECT incload_run('customers'), incload_run('orders'); COMMIT});
is(last_run($target, 'customers'), 'succeeded|500|500|0|0', 'without the bad one, the first is loaded');
is(last_run($target, 'orders', 'status, rows_inserted'), 'succeeded|2', 'and the second');

# savepoints and exception blocks
$source->safe_psql('postgres', q{INSERT INTO customers VALUES (501, clock_timestamp(), 'new')});
is( as_loader($target, q{
	BEGIN;
	SAVEPOINT s;
	SELECT rows_inserted FROM incload_run('customers');
	ROLLBACK TO s;
	SELECT count(*) FROM dw.customers;
	SELECT rows_inserted FROM incload_run('customers');
	COMMIT;
	SELECT count(*) FROM dw.customers;
}), "1\n500\n1\n501", 'ROLLBACK TO a savepoint undoes a run, and frees the job');

$source->safe_psql('postgres', q{INSERT INTO customers VALUES (502, clock_timestamp(), 'newer')});
is( as_loader($target, q{
	CREATE TABLE dw.log (state text, message text, pid int);
	DO $$
	DECLARE message text;
	BEGIN
		FOR n IN 1 .. 2 LOOP
			BEGIN
				PERFORM incload_run('narrow');
			EXCEPTION WHEN check_violation THEN
				GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
				INSERT INTO dw.log VALUES (SQLSTATE, message, pg_backend_pid());
			END;
		END LOOP;
		PERFORM incload_run('customers');
	END $$;
	SELECT state, message ~ 'narrow', pid = pg_backend_pid() FROM dw.log;
	SELECT count(*) FROM dw.customers;
	SELECT current_setting('application_name'), current_user;
}), "23514|t|t\n23514|t|t\n502\n020_transactions.pl|loader",
	'an exception block catches a failed run, and the session goes on');
is( $target->safe_psql('postgres', q{SELECT count(*), count(DISTINCT run_id) FROM incload.run
	WHERE job = 'narrow' AND status = 'failed' AND sqlstate = '23514'}),
	'4|4', 'each failure is on record, those that were caught too');
is($target->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), 0,
	'no lock is left');

# CALL commits, so it wants no transaction around it
foreach my $case (
	[ 'a transaction block', q{BEGIN; CALL incload_run_in_batches('orders')} ],
	[ 'a function', q{DO $$ BEGIN BEGIN CALL incload_run_in_batches('orders');
		EXCEPTION WHEN division_by_zero THEN NULL; END; END $$} ])
{
	fails_with($target, 'loader', $case->[1], '25001', qr/HINT:  .*incload_run/,
		"CALL inside $case->[0] is refused");
}
as_loader($target, q{DO $$ BEGIN CALL incload_run_in_batches('orders'); CALL incload_run_in_batches('customers'); END $$});
is(last_run($target, 'customers', 'status'), 'succeeded', 'a DO block that may commit can CALL');

# one job, two sessions
my $holder = session($target, 'loader');
$holder->query_safe(q{BEGIN});
$holder->query_safe(q{SELECT incload_run('orders')});
my $pid = $holder->query_safe('SELECT pg_backend_pid()');
is(as_loader($target, q{SELECT state, pid FROM incload.status WHERE job = 'orders'}),
	"running|$pid", 'incload.status tells a run that is not yet committed, and where');
is(as_loader($target, q{SELECT state FROM incload.status WHERE job = 'customers'}),
	'ok', 'and no other job is running');

foreach my $sql (q{SELECT incload_run('orders')}, q{CALL incload_run_in_batches('orders')},
	q{SELECT incload_refresh('orders')})
{
	my $started = time();
	my $said = fails_with($target, 'loader', $sql, '55P03', qr/DETAIL:  .*\b$pid\b/, "refused: $sql");
	cmp_ok(time() - $started, '<', 5, 'at once');
	is(last_run($target, 'orders', 'status, sqlstate, error ~ \'already running\', hint IS NOT NULL, rows_read'),
		'skipped|55P03|t|t|0', 'and recorded as skipped');
}
foreach my $sql (q{SELECT incload_alter_job('orders', options => '{"batch_rows": 5}')},
	q{SELECT incload_drop_job('orders')}, q{SELECT incload_accept_source('orders')})
{
	fails_with($target, 'loader', "SET lock_timeout = '100 ms'; $sql", '55P03',
		qr/waiting for the run of job "orders" to end.*lock timeout/s, "waits for the run: $sql");
}
is(as_loader($target, q{SELECT rows_read FROM incload_run('customers')}), 0, 'another job runs meanwhile');
is(as_loader($target, q{SELECT pg_try_advisory_lock(n) FROM generate_series(1, 3) n}),
	"t\nt\nt", 'the lock is of its own kind');
$holder->query_safe('COMMIT');
is(as_loader($target, q{SELECT state FROM incload.status WHERE job = 'orders'}), 'ok', 'then it is free');
is(as_loader($target, q{SELECT status FROM incload_run('orders')}), 'succeeded', 'and runs');

# in an aborted transaction the job is free at once
$holder->query('BEGIN; SELECT incload_run(\'orders\'); SELECT 1 / 0');
is(as_loader($target, q{SELECT status FROM incload_run('orders')}), 'succeeded', 'an aborted transaction holds nothing');
$holder->query('ROLLBACK');
$holder->quit;

# prepared, the transaction has no process, and the job still runs in it
as_loader($target, q{BEGIN; SELECT incload_run('orders'); PREPARE TRANSACTION 'run'});
is(as_loader($target, q{SELECT state, pid FROM incload.status WHERE job = 'orders'}), 'running|', 'a prepared run is running');
fails_with($target, 'loader', q{SELECT incload_run('orders')}, '55P03', qr/DETAIL:  .*prepared transaction/, 'and holds the job');
as_loader($target, q{COMMIT PREPARED 'run'});
is(as_loader($target, q{SELECT status FROM incload_run('orders')}), 'succeeded', 'until it is committed');

# repeatable read: a run sees what the source has now, and its own snapshot here
$source->safe_psql('postgres', q{INSERT INTO customers VALUES (503, clock_timestamp(), 'late')});
is( as_loader($target, q{
	BEGIN ISOLATION LEVEL REPEATABLE READ;
	SELECT count(*) FROM dw.customers;
	SELECT rows_inserted FROM incload_run('customers');
	SELECT count(*) FROM dw.customers;
	COMMIT}), "502\n1\n503", 'a run works under repeatable read');
fails_with($target, 'loader', q{BEGIN READ ONLY; SELECT incload_run('customers')}, '25006', qr/read-only/,
	'a read-only transaction is refused');
is(scalar differences($source, $target, 'customers', 'dw.customers'), '0|0', 'customers are the same');
is(as_loader($target, q{BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT status FROM incload_run('orders'); COMMIT}),
	'succeeded', 'and under serializable');

# what failed is read again
$source->safe_psql('postgres', q{UPDATE customers SET name = 'x', updated_at = clock_timestamp() WHERE id = 1});
as_loader($target, q{ALTER TABLE dw.customers ADD CONSTRAINT no_x CHECK (name <> 'x')});
fails_with($target, 'loader', q{SELECT incload_run('customers')}, '23514', qr/no_x/, 'a row that does not fit');
as_loader($target, q{ALTER TABLE dw.customers DROP CONSTRAINT no_x});
is(as_loader($target, q{SELECT rows_updated FROM incload_run('customers')}), 1, 'comes with the run after the repair');

$target->stop;
$source->stop;
done_testing();
