# incload_run_in_batches commits batch by batch, and goes on where it stopped,
# however it was stopped.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => 'restart_after_crash = on');

$source->safe_psql('postgres', q{
	CREATE TABLE plain (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL);
	INSERT INTO plain SELECT i, 'v' || i, '2024-01-01Z'::timestamptz + i * interval '1 s' FROM generate_series(1, 20000) i;
	CREATE INDEX ON plain (updated_at, id);
	CREATE TABLE tied (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL);
	INSERT INTO tied SELECT i, 'v' || i, '2024-01-01Z' FROM generate_series(1, 5000) i;
	CREATE TABLE holes (id int PRIMARY KEY, updated_at timestamptz);
	INSERT INTO holes SELECT i, CASE WHEN i % 2 = 0 THEN '2024-01-01Z'::timestamptz + i * interval '1 s' END FROM generate_series(1, 1000) i;
});
foreign_table($target, 'plain', 'tied', 'holes');
# a target that is slow to write, so that there is time to kill
as_loader($target, q{
	SELECT incload_create_job('plain', 'src.plain', 'dw.plain', options => '{"batch_rows": 1000}');
	SELECT incload_create_job('tied', 'src.tied', 'dw.tied', options => '{"batch_rows": 1000}');
	SELECT incload_create_job('rel_tied', 'src.tied', 'dw.rel_tied', 'upsert', 'updated_at', '{id}', options => '{"batch_rows": 1000, "reader": "relation"}');
	SELECT incload_create_job('holes', 'src.holes', 'dw.holes', options => '{"batch_rows": 100}');
	SELECT incload_create_job('rel_holes', 'src.holes', 'dw.rel_holes', 'upsert', 'updated_at', '{id}', options => '{"batch_rows": 100, "reader": "relation"}');
	CREATE FUNCTION dw.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END $$;
	CREATE TRIGGER slow AFTER INSERT ON dw.plain FOR EACH STATEMENT EXECUTE FUNCTION dw.slow();
	CREATE TRIGGER slow AFTER INSERT ON dw.tied FOR EACH STATEMENT EXECUTE FUNCTION dw.slow();
});

# stops a batched run after some batches by what is given; returns the rows that are committed
sub interrupt
{
	my ($job, $how) = @_;
	my $run = start_sql($target, 'loader', "CALL incload_run_in_batches('$job')");
	my $pid = wait_for(60, sub {
		$target->safe_psql('postgres', "SELECT pid FROM incload.run WHERE job = '$job' AND status = 'running' AND batches >= 2") });
	ok($pid, "$job: incload.run moves with each batch");
	like($target->safe_psql('postgres', "SELECT application_name FROM pg_stat_activity WHERE pid = $pid"),
		qr/^incload $job batch \d+$/, "$job: pg_stat_activity tells job and batch");
	$how->($pid);
	$run->finish;
	$target->poll_query_until('postgres', 'SELECT true') or die 'the target is gone';
	return $target->safe_psql('postgres', "SELECT count(*) FROM dw.$job");
}

# what is left is read, and no more
sub goes_on
{
	my ($job, $total, $done) = @_;

	cmp_ok($done, '>=', 2000, "$job: batches were committed");
	cmp_ok($done, '<', $total, "$job: and not all");
	is($done % 1000, 0, "$job: whole batches only");
	as_loader($target, "CALL incload_run_in_batches('$job')");
	is(last_run($target, $job, 'status, rows_read, rows_inserted'),
		'succeeded|' . ($total - $done) . '|' . ($total - $done),
		"$job: the next call reads what is left, and nothing twice");
	is($target->safe_psql('postgres',
			"SELECT status, rows_read, rows_inserted, sqlstate FROM incload.run WHERE job = '$job' AND status <> 'succeeded' ORDER BY run_id DESC LIMIT 1"),
		"failed|$done|$done|57P01", "$job: the run that died is marked as failed, with what it had committed");
	is(differences($source, $target, $job, "dw.$job"), '0|0', "$job: nothing is missing");
	return;
}

goes_on('plain', 20000, interrupt('plain', sub { kill 'KILL', $_[0] }));

# in the middle of five thousand rows with one watermark
goes_on('tied', 5000, interrupt('tied', sub { $target->safe_psql('postgres', "SELECT pg_terminate_backend($_[0])") }));

# the same through the executor
as_loader($target, "CALL incload_run_in_batches('rel_tied')");
is(last_run($target, 'rel_tied', 'rows_read, rows_inserted, batches'), '5000|5000|5', 'relation reader: a tie in five batches');
is(differences($source, $target, 'tied', 'dw.rel_tied'), '0|0', 'relation reader: equal');

# rows without a watermark: more of them than a batch takes
foreach my $job ('holes', 'rel_holes')
{
	as_loader($target, "CALL incload_run_in_batches('$job')");
	is(last_run($target, $job, 'rows_read, rows_inserted'), '1000|1000', "$job: with and without watermark");
	is(differences($source, $target, 'holes', "dw.$job"), '0|0', "$job: equal");
}

# a cancelled run keeps what it had committed
$source->safe_psql('postgres', q{UPDATE plain SET v = 'w', updated_at = clock_timestamp() WHERE id <= 10000});
as_loader($target, q{
	CREATE TRIGGER slow_too AFTER UPDATE ON dw.plain FOR EACH STATEMENT EXECUTE FUNCTION dw.slow();
});
my $run = start_sql($target, 'loader', "CALL incload_run_in_batches('plain')");
my $pid = wait_for(60, sub {
	$target->safe_psql('postgres', "SELECT pid FROM incload.run WHERE job = 'plain' AND status = 'running' AND batches >= 2") });
$target->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
my ($status, $out, $err) = $run->finish;
like($err, qr/57014/, 'a cancelled CALL says so');
my ($state, $updated) = split /\|/, last_run($target, 'plain', 'status, rows_updated');
is($state, 'cancelled', 'and is on record as cancelled');
is($target->safe_psql('postgres', q{SELECT count(*) FROM dw.plain WHERE v = 'w'}), $updated,
	'with the count of what it had committed');
as_loader($target, "CALL incload_run_in_batches('plain')");
is(last_run($target, 'plain', 'rows_updated'), 10000 - $updated, 'the rest follows');
is(differences($source, $target, 'plain', 'dw.plain'), '0|0', 'and all is equal');

done_testing();
