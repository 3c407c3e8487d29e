# Safety is paid for with neither freshness nor traffic nor writes: a lookback of
# a day sends what changed, whoever is open at the source, and rows that are read
# again and are the same leave no trace.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use IncloadTest;

my ($source, $target) = two_nodes(target => "wal_level = replica\ncheckpoint_timeout = 1h");

sub run_job
{
	my ($job, $columns) = @_;
	return as_loader($target, 'SELECT ' . ($columns || 'rows_read, rows_inserted, rows_updated, rows_unchanged') . " FROM incload_run('$job')");
}

#
# A day of 100,000 rows
#
$source->safe_psql('postgres', q{
	CREATE TABLE day (id int PRIMARY KEY, v int NOT NULL, note text, updated_at timestamptz NOT NULL);
	INSERT INTO day SELECT i, 0, repeat('n', 50), now() - i * interval '0.8 s' FROM generate_series(1, 100000) i;
	CREATE INDEX ON day (updated_at);
	VACUUM ANALYZE day});
foreign_table($target, 'day');
as_loader($target, q{SELECT incload_create_job('day', 'src.day', 'dw.day', 'upsert', 'updated_at', '{id}', options => '{"lookback": "1 day"}')});
is(run_job('day'), '100000|100000|0|0', 'a day is loaded');
is(run_job('day'), '0|0|0|0', 'and not read again');
cmp_ok(last_run($target, 'day', 'bytes_read'), '<', 30, 'nor sent');
$source->safe_psql('postgres', q{
	UPDATE day SET v = 1, updated_at = now() WHERE id % 1000 = 500;
	INSERT INTO day SELECT 200000 + i, 2, 'late', now() - i * interval '2 h' FROM generate_series(1, 10) i});
is(run_job('day'), '110|10|100|0', '100 changed and 10 arrived late: those are read, and no others');
cmp_ok(last_run($target, 'day', 'bytes_read'), '<', 110 * 120, 'and sent');
$source->safe_psql('postgres', q{UPDATE day SET v = 3 WHERE id BETWEEN 301 AND 305; INSERT INTO day SELECT 300000 + i, 3, 'new', now() FROM generate_series(1, 7) i});
is(run_job('day'), '12|7|5|0', 'likewise what changed without a new time, and what is newer');
is(run_job('day'), '0|0|0|0', 'then nothing');

# What the checkpoint rests at is below all that, and what was read ahead is not sent again either
my $reader = session($source, scalar(getpwuid($<)));
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM day');
as_loader($target, q{SELECT incload_create_job('fresh', 'src.day', 'dw.fresh', 'upsert', 'updated_at', '{id}', options => '{"lookback": "0"}'); SELECT incload_run('fresh')});
my $bound = q{SELECT bound FROM incload.checkpoint WHERE job = 'fresh'};
sleep(2.3);
is(run_job('fresh'), '0|0|0|0', 'what was seen is not sent again');
my $held = as_loader($target, $bound);
foreach my $n (1 .. 5)
{
	$source->safe_psql('postgres', "UPDATE day SET v = 10 + $n, updated_at = now() WHERE id = $n; INSERT INTO day VALUES (400000 + $n, $n, 'fresh', now())");
	foreach my $job (qw(day fresh))
	{
		is(run_job($job), '2|1|1|0', "run $n of $job beside a transaction that stays open: what was committed a moment ago, and no more");
	}
	is(as_loader($target, $bound), $held, 'while the checkpoint stays where that began');
}
is(differences($source, $target, 'day', 'dw.day'), '0|0', 'every row is there');
$reader->query_safe('COMMIT');
$reader->quit;
is(run_job('fresh'), '0|0|0|0', 'nor when it is over');
isnt(as_loader($target, $bound), $held, 'and the checkpoint goes on');

#
# 50,000 rows that are read again and are the same
#
$source->safe_psql('postgres', q{
	CREATE TABLE same (id int PRIMARY KEY, v numeric, doc jsonb, note text, updated_at timestamptz NOT NULL);
	INSERT INTO same SELECT i, i * 1.10, jsonb_build_object('i', i), repeat('s', 40), now() - i * interval '1 s' FROM generate_series(1, 50000) i});
foreign_table($target, 'same');
as_loader($target, q{SELECT incload_create_job('same', 'src.same', 'dw.same', 'upsert', 'updated_at', '{id}', options => '{"lookback": "1 day"}'); SELECT incload_run('same')});
$target->safe_psql('postgres', 'VACUUM (FREEZE, ANALYZE) dw.same; CHECKPOINT');

# the pages that a run writes by itself are in the log as a whole once after a checkpoint
as_loader($target, q{SELECT incload_run('same')}) foreach 1 .. 2;
$source->restart;
my $counts = q{SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del, n_dead_tup, pg_relation_size(relid), (SELECT md5(string_agg(concat_ws(' ', ctid, xmin, xmax), ',')) FROM dw.same)
	FROM pg_stat_user_tables WHERE relid = 'dw.same'::regclass};
my $before = $target->safe_psql('postgres', $counts);
my $nodes = $target->safe_psql('postgres', q{SELECT string_agg(pg_relation_filenode(c)::text, ' ') FROM (VALUES ('dw.same'::regclass), ('dw.same_pkey')) t (c)});
my ($start, $result, $end) = split(/\n/, as_loader($target, q{
	SELECT pg_current_wal_insert_lsn();
	SELECT concat_ws('|', rows_read, rows_inserted, rows_updated, rows_unchanged) FROM incload_run('same');
	SELECT pg_current_wal_insert_lsn()}));
is($result, '50000|0|0|50000', 'after a restart of the source 50,000 rows are read again');
is($target->safe_psql('postgres', $counts), $before, 'no row of the target is updated, dead, locked or moved');
my $bytes = $target->safe_psql('postgres', "SELECT pg_wal_lsn_diff('$end', '$start')");
cmp_ok($bytes, '<', 100_000, 'no more than the bookkeeping of the run is logged');
note "$bytes bytes";
my $log = `pg_waldump -p @{[ $target->data_dir ]}/pg_wal -s $start -e $end 2>/dev/null`;
like($log, qr/Transaction.*COMMIT/, 'the log can be read');
foreach my $node (split(/ /, $nodes))
{
	unlike($log, qr{\b(?:rel|blkref).*/$node\b}, "there is nothing about relation $node");
}
is(run_job('same'), '0|0|0|0', 'then the mark holds again');

# what is not the same writes that one row
$source->safe_psql('postgres', q{UPDATE same SET v = v * 1.0 WHERE id = 7});
$source->restart;
is(run_job('same'), '50000|0|1|49999', '7.70 is not 7.700');
is($target->safe_psql('postgres', q{SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = 'dw.same'::regclass}), 1, 'and is the one row that is written');

done_testing();
