# A million rows from one server to another: the first run, a delta, an empty
# run, by incload_run and by incload_run_in_batches. After each the two tables
# hold the same rows, and the history has exactly the numbers.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my $rows = 1_000_000;
my ($source, $target) = two_nodes();

$source->safe_psql('postgres', qq{
	CREATE TABLE orders (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL,
		amount numeric(12,3), details jsonb, note text);
	INSERT INTO orders SELECT i, '2024-03-01 00:00:00+00'::timestamptz + i * interval '1.000007 s',
		CASE WHEN i % 1000 <> 0 THEN i * 0.010 END,
		jsonb_build_object('n', i, 'even', i % 2 = 0),
		CASE WHEN i % 10 = 0 THEN E'a\\tb\\\\c ' || i ELSE 'order ' || i END
	FROM generate_series(1, $rows) i;
	CREATE INDEX ON orders (updated_at, id);
	ANALYZE orders;
});
foreign_table($target, 'orders');
as_loader($target, q{
	SELECT incload_create_job('whole', 'src.orders', 'dw.whole');
	SELECT incload_create_job('batched', 'src.orders', 'dw.batched', options => '{"batch_rows": 300000}');
});
is(as_loader($target, q{SELECT strategy, watermark, key FROM incload.job ORDER BY job}),
	"upsert|updated_at|{id}\nupsert|updated_at|{id}", 'strategy, watermark and key were found');

# The rows that only one of two tables has, or has otherwise, byte by byte. Ids
# are unique, so this is what EXCEPT both ways would bring, in a fifth of the time.
sub differing
{
	my ($one, $other) = @_;
	return qq{SELECT count(*) FROM $one a FULL JOIN $other b USING (id)
		WHERE a.updated_at IS NULL OR b.updated_at IS NULL OR a *<> b;};
}

# the numbers that a run must have; every other count must be 0
sub check_runs
{
	my ($what, $read, $inserted, $updated, $batches) = @_;
	my $rows = PostgreSQL::Test::Utils::tempdir_short() . '/rows';

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $job ('whole', 'batched')
	{
		is( last_run($target, $job, 'status, rows_read, rows_inserted, rows_updated, rows_unchanged,'
				  . ' rows_deleted + rows_superseded + rows_suppressed + rows_rejected + rows_pruned'),
			"succeeded|$read|$inserted|$updated|0|0", "$what, $job: the counts");
		is(last_run($target, $job, 'batches'), $batches->{$job}, "$what, $job: batches");
	}
	$source->safe_psql('postgres', "COPY orders TO '$rows' (FORMAT binary)");
	is( $target->safe_psql('postgres', join("\n",
			"SET work_mem = '400MB';",
			'CREATE TEMP TABLE there (LIKE dw.whole);',
			"COPY there FROM '$rows' (FORMAT binary);",
			'SELECT count(*) FROM there;',
			differing('there', 'dw.whole'),
			differing('dw.whole', 'dw.batched'))),
		$source->safe_psql('postgres', 'SELECT count(*) FROM orders') . "\n0\n0",
		"$what: the source and both targets have the same rows");
	unlink($rows);
	return;
}

sub run_both
{
	# what incload_run returns is the row of the history
	my $returned = as_loader($target, q{SELECT r.run_id, r.rows_read, r.status FROM incload_run('whole') r});
	is($returned, last_run($target, 'whole', 'run_id, rows_read, status'), 'incload_run returns its record');
	as_loader($target, q{CALL incload_run_in_batches('batched')});
	return;
}

run_both();
check_runs('first run', $rows, $rows, 0, { whole => 1, batched => 4 });
is(last_run($target, 'whole', 'bytes_read > 50 * rows_read'), 't', 'bytes are counted');
is( last_run($target, 'whole', 'watermark_to'),
	$source->safe_psql('postgres', 'SELECT max(updated_at) FROM orders'),
	'the newest watermark is on record');
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.checkpoint WHERE guarantee = 'exact'}),
	2, 'the horizon was seen');

# each hundredth row changes, in one column or another
$source->safe_psql('postgres', qq{
	UPDATE orders SET updated_at = clock_timestamp(),
		amount = CASE WHEN id % 300 = 0 THEN amount + 1 ELSE amount END,
		details = CASE WHEN id % 300 = 100 THEN details || '{"new": [1, null]}' ELSE details END,
		note = CASE WHEN id % 300 = 200 THEN NULL ELSE note END
	WHERE id % 100 = 0;
	INSERT INTO orders SELECT $rows + i, clock_timestamp(), i, '{}', 'new' FROM generate_series(1, 1000) i;
});
settle($source, 'orders');
run_both();
check_runs('delta', 11_000, 1_000, 10_000, { whole => 1, batched => 1 });

run_both();
check_runs('empty run', 0, 0, 0, { whole => 0, batched => 0 });

# a refresh reads all of it again, and writes only what differs
$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, updated_at timestamptz NOT NULL, v text);
	INSERT INTO items SELECT i, '2024-03-01'::timestamptz + i * interval '1 s', 'v' || i
	FROM generate_series(1, 20000) i;
});
foreign_table($target, 'items');
as_loader($target, q{
	SELECT incload_create_job('items', 'src.items', 'dw.items');
	SELECT incload_run('items');
});
my $before = $target->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
as_loader($target, q{SELECT incload_refresh('items')});
is(last_run($target, 'items', 'kind, rows_read, rows_inserted, rows_updated, rows_unchanged, rows_pruned'),
	'full|20000|0|0|20000|0', 'a refresh finds nothing to do');
my $wal = $target->safe_psql('postgres', "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$before')");
cmp_ok($wal, '<', 100_000, 'and so writes next to nothing to the WAL');

as_loader($target, q{
	DELETE FROM dw.items WHERE id <= 10;
	UPDATE dw.items SET v = 'x' WHERE id = 11;
	SELECT incload_run('items');
});
is(last_run($target, 'items'), 'succeeded|0|0|0|0', 'a run does not see what was changed here');
$source->safe_psql('postgres', 'DELETE FROM items WHERE id BETWEEN 21 AND 25');
as_loader($target, q{SELECT incload_refresh('items')});
is(last_run($target, 'items', 'rows_read, rows_inserted, rows_updated, rows_unchanged, rows_pruned'),
	'19995|10|1|19984|5', 'a refresh repairs, and counts');
is(scalar differences($source, $target, 'items', 'dw.items'), '0|0', 'refresh: the same rows');

$target->stop;
$source->stop;
done_testing();
