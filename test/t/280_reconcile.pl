# incload_reconcile finds what differs, moves no more than it has to, mends it, and
# raises no false alarm over what the next run would load anyway.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();

# where the same is tried on many servers, fewer do
my $rows = $ENV{INCLOAD_RECONCILE_ROWS} || 1_000_000;

# reconcile JOB [MODE [REPAIR]]: what it says, by kind
sub reconcile
{
	my ($job, $mode, $repair) = @_;

	$mode ||= 'hash';
	$repair = $repair ? 'true' : 'false';
	return as_loader($target, qq{SELECT difference || ':' || count(*) || coalesce('/' || string_agg(DISTINCT action, ','), '') FROM incload_reconcile('$job', '$mode', $repair) GROUP BY difference ORDER BY difference});
}

# a million rows; then somebody's hands on both sides
$source->safe_psql('postgres', qq{
	CREATE TABLE orders (id bigint PRIMARY KEY, customer int, amount numeric(12,2), status text, created_at timestamptz,
		updated_at timestamptz NOT NULL, note text, doc jsonb);
	CREATE INDEX ON orders (updated_at);
	INSERT INTO orders SELECT i, i % 1000, i * 0.37, 's' || i % 5, '2024-01-01Z', '2024-01-01Z'::timestamptz + i * interval '1 s', md5(i::text), jsonb_build_object('n', i)
	FROM generate_series(1, $rows) i;
	ANALYZE orders});
foreign_table($target, 'orders');
as_loader($target, q{
	SELECT incload_create_job('orders', 'src.orders', 'dw.orders', 'upsert', 'updated_at', '{id}', options => '{"deletes": "prune"}');
	SELECT incload_run('orders');
	ANALYZE dw.orders});
is(reconcile('orders'), '', 'what is equal has no differences');
is(reconcile('orders', 'count'), '', 'nor by its counts');

my ($half, $third, $most, $twentieth, $tenth) = ($rows / 2, int($rows / 3), $rows - 1, $rows / 20, $rows / 10);
as_loader($target, qq{
	UPDATE dw.orders SET status = 'by hand' WHERE id IN (1, 77, $half, $half + 1, $rows);
	DELETE FROM dw.orders WHERE id IN (2, $third, $most);
	INSERT INTO dw.orders (id, status, updated_at) VALUES (-5, 'invented', '2024-01-05'), ($rows + 1, 'invented', '2024-01-01'), ($rows * 5, 'invented', '2024-01-02'), ($rows * 9, 'invented', NULL)});
$source->safe_psql('postgres', qq{
	DELETE FROM orders WHERE id % $twentieth = 11;
	UPDATE orders SET amount = amount + 1, updated_at = updated_at - interval '1 day' WHERE id % $tenth = 13});

is(reconcile('orders'), "changed:15/none\nextra:24/none\nmissing:3/none", 'exactly what was changed is found');
is(as_loader($target, q{SELECT string_agg(difference || ' ' || (key->>'id'), ', ' ORDER BY (key->>'id')::bigint) FROM incload_reconcile('orders') WHERE (key->>'id')::bigint IN (-5, 1, 2, 11, 13)}),
	'extra -5, changed 1, missing 2, extra 11, changed 13', 'by key');
is(as_loader($target, q{SELECT string_agg(DISTINCT columns::text, ' ' ORDER BY columns::text) FROM incload_reconcile('orders') WHERE difference = 'changed'}),
	'{amount,updated_at} {status}', 'and by the columns that differ');
is(as_loader($target, q{SELECT rows_missing, rows_extra, rows_changed, source_rows, target_rows FROM incload.reconcile ORDER BY run_id DESC LIMIT 1}), '3|24|15|' . ($rows - 20) . '|' . ($rows + 1), 'and on record');
like(as_loader($target, q{SELECT severity, message FROM incload.event WHERE code = 'reconcile_mismatch' ORDER BY event_id DESC LIMIT 1}), qr/^ticket\|source and target of job orders differ: missing 3, extra 24, changed 15$/, 'an event tells of it');
cmp_ok(as_loader($target, q{SELECT max(rows_read) FROM incload.run WHERE kind = 'reconcile'}), '<', 10000, 'few rows have been moved');
like(reconcile('orders', 'count'), qr/^count:\d+\/none$/, 'counts differ in some ranges');
is(reconcile('orders', 'rows'), "changed:15/none\nextra:24/none\nmissing:3/none", 'row by row, the same is found');
is(as_loader($target, q{SELECT rows_read FROM incload.run WHERE kind = 'reconcile' ORDER BY run_id DESC LIMIT 1}), $rows - 20, 'and every row is read for it');
is(as_loader($target, q{SELECT count(*) FROM dw.orders WHERE status IN ('by hand', 'invented')}), '9', 'nothing was touched by all this');

is(reconcile('orders', 'hash', 1), "changed:15/updated\nextra:24/deleted\nmissing:3/inserted", 'all of it is mended');
is(as_loader($target, q{SELECT rows_inserted, rows_updated, rows_pruned FROM incload.run WHERE kind = 'reconcile' ORDER BY run_id DESC LIMIT 1}), '3|15|24', 'and counted');
is(reconcile('orders'), '', 'a second pass finds nothing');
is_deeply([ differences($source, $target, 'orders', 'dw.orders') ], ['0|0'], 'indeed they are equal');


# what is newer than the checkpoint is no difference; who wins is an option
as_loader($target, q{SELECT incload_alter_job('orders', options => '{"deletes": null, "on_conflict": "target"}'); SELECT incload_run('orders')});
$source->safe_psql('postgres', q{
	UPDATE orders SET note = 'new', updated_at = now() WHERE id BETWEEN 1000 AND 1100;
	INSERT INTO orders (id, updated_at) SELECT i, now() FROM generate_series(20000001, 20000100) i;
	DELETE FROM orders WHERE id = 500});
is(reconcile('orders'), 'extra:1/none', 'rows that the next run loads are no differences');
is(reconcile('orders', 'rows'), 'extra:1/none', 'nor by rows');
is(reconcile('orders', 'count'), 'count:1/none', 'nor by counts');
is(reconcile('orders', 'hash', 1), 'extra:1/kept', 'a job that ignores deletes keeps what the source does not have');
as_loader($target, q{UPDATE dw.orders SET note = 'hand' WHERE id = 3});
$source->safe_psql('postgres', q{UPDATE orders SET note = 'backdated', updated_at = '2024-01-01Z' WHERE id = 4});
is(reconcile('orders', 'hash', 1), "changed:2/kept,updated\nextra:1/kept", 'the version of the target stays, and what the source has just written comes');
is(as_loader($target, q{SELECT string_agg(note, ' ' ORDER BY id) FROM dw.orders WHERE id IN (3, 4)}), 'hand backdated', 'each in its place');
is(as_loader($target, q{SELECT rows_conflicting, rows_repaired FROM incload.reconcile ORDER BY run_id DESC LIMIT 1}), '1|1', 'a conflict is counted');

# the settings and modes that cannot work
fails_with($target, 'loader', q{SELECT * FROM incload_reconcile('orders', 'checksum')}, '22023', qr/unrecognized mode "checksum"/, 'a mode that is none');
fails_with($target, 'loader', q{SELECT * FROM incload_reconcile('orders', 'count', true)}, '22023', qr/mode count cannot repair/, 'counts repair nothing');
as_loader($target, q{SELECT incload_create_job('never', 'src.orders', 'dw.never', 'upsert', 'updated_at', '{id}')});
fails_with($target, 'loader', q{SELECT * FROM incload_reconcile('never')}, '55000', qr/job "never" has not loaded anything yet/, 'before the first run');
is(as_loader($target, q{SELECT status, kind FROM incload.run WHERE job = 'never'}), 'failed|reconcile', 'a failed one is on record');

done_testing();
