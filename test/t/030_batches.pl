# incload_run_in_batches commits batch by batch, and goes on where it stopped,
# however it was stopped.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

# no sort at the source, so that a stream can stop in the middle
my ($source, $target) = two_nodes(
	source => "enable_sort = off\nenable_seqscan = off",
	target => 'restart_after_crash = on');

$source->safe_psql('postgres', q{
	CREATE TABLE plain (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL);
	INSERT INTO plain SELECT i, 'v' || i, '2024-01-01Z'::timestamptz + i * interval '1 s' FROM generate_series(1, 20000) i;
	CREATE INDEX ON plain (updated_at, id);
	CREATE TABLE tied (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL);
	INSERT INTO tied SELECT i, 'v' || i, '2024-01-01Z' FROM generate_series(1, 5000) i;
	CREATE INDEX ON tied (updated_at, id);
	CREATE TABLE holes (id int PRIMARY KEY, updated_at timestamptz);
	INSERT INTO holes SELECT i, CASE WHEN i % 2 = 0 THEN '2024-01-01Z'::timestamptz + i * interval '1 s' END FROM generate_series(1, 6000) i;
	CREATE INDEX ON holes (updated_at, id);

	-- who reads a row beyond 3500 waits while somebody has lock 7
	CREATE FUNCTION gate(id int) RETURNS boolean LANGUAGE plpgsql COST 10000 AS $$
	BEGIN
		IF id > 3500 THEN
			PERFORM pg_advisory_lock_shared(7);
			PERFORM pg_advisory_unlock_shared(7);
		END IF;
		RETURN true;
	END $$;
});
foreign_table($target, 'plain', 'tied', 'holes');

# a statement that brings a target beyond 2000 rows waits here while somebody
# has lock 7; so a run can be stopped after exactly two batches
as_loader($target, q{
	CREATE FUNCTION dw.gate() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE n int;
	BEGIN
		EXECUTE format('SELECT count(*) FROM %s WHERE %s', TG_RELID::regclass, TG_ARGV[0]) INTO n;
		IF n > 2000 THEN
			PERFORM pg_advisory_xact_lock_shared(7);
		END IF;
		RETURN NULL;
	END $$;
});

# a job of src.SOURCE, whose target has that gate
sub gated_job
{
	my ($job, $from, $options) = @_;

	as_loader($target, qq{
		SELECT incload_create_job('$job', 'src.$from', 'dw.$job', 'upsert', 'updated_at', '{id}',
			options => '{"batch_rows": 1000$options}');
		CREATE TRIGGER gate AFTER INSERT ON dw.$job FOR EACH STATEMENT EXECUTE FUNCTION dw.gate('true');
	});
	return;
}

# calls the job, and stops it in its third batch by what is given
sub interrupt
{
	my ($job, $how) = @_;
	my $gate = session($target, 'loader');
	$gate->query_safe('SELECT pg_advisory_lock(7)');
	my $run = start_sql($target, 'loader', "CALL incload_run_in_batches('$job')");
	my $pid = wait_for(60, sub {
		$target->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory'") });

	ok($pid, "$job: is at its third batch") or die;
	is( $target->safe_psql('postgres', "SELECT application_name FROM pg_stat_activity WHERE pid = $pid"),
		"incload: $job batch 3", "$job: pg_stat_activity tells job and batch");
	is( last_run($target, $job, 'status, batches, rows_read, rows_inserted, finished_at IS NULL, pid'),
		"running|2|2000|2000|t|$pid", "$job: incload.run moves with each batch");
	is(as_loader($target, "SELECT state, pid FROM incload.status WHERE job = '$job'"), "running|$pid",
		"$job: incload.status says that it runs");
	is($target->safe_psql('postgres', "SELECT count(*) FROM dw.$job"), 2000, "$job: the batches are there for everybody");
	$how->($pid);
	my ($status, $out, $err) = $run->finish;
	isnt($status, 0, "$job: the session notices");
	is_back($target) or die 'the target is gone';
	$gate->{run}->kill_kill;
	$target->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'}) or die;
	is($target->safe_psql('postgres', "SELECT count(*) FROM dw.$job"), 2000, "$job: two batches are committed");
	return $err;
}

# what is left is read, and no more
sub goes_on
{
	my ($job, $from, $total, $unchanged) = @_;

	as_loader($target, "CALL incload_run_in_batches('$job')");
	is( last_run($target, $job),
		join('|', 'succeeded', $total - 2000 + $unchanged, $total - 2000, 0, $unchanged),
		"$job: the next call reads what is left, and nothing twice");
	is( $target->safe_psql('postgres',
			"SELECT status, rows_read, rows_inserted, batches, sqlstate, finished_at IS NOT NULL, hint IS NOT NULL"
			  . " FROM incload.run WHERE job = '$job' AND status <> 'succeeded'"),
		"failed|2000|2000|2|57P01|t|t", "$job: the run that died is marked as failed, with what it had committed");
	is(differences($source, $target, $from, "dw.$job"), '0|0', "$job: nothing is missing");
	as_loader($target, "CALL incload_run_in_batches('$job')");
	is(last_run($target, $job, 'status, rows_inserted'), 'succeeded|0', "$job: then there is nothing new");
	return;
}

sub kill_backend { kill 'KILL', $_[0]; return; }

sub terminate { $target->safe_psql('postgres', "SELECT pg_terminate_backend($_[0])"); return; }

# killed, the postmaster restarts; the source notices that nobody listens
gated_job('plain', 'plain', '');
interrupt('plain', \&kill_backend);
ok( wait_for(20, sub {
		$source->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'incload%'}) eq '0' }),
	'plain: the session at the source ends');
goes_on('plain', 'plain', 20000, 0);

# told to go, in the middle of five thousand rows with one watermark
gated_job('tied', 'tied', '');
like(interrupt('tied', \&terminate), qr/57P01/, 'tied: the session was terminated');
goes_on('tied', 'tied', 5000, 0);

# the whole server goes
gated_job('whole', 'tied', '');
interrupt('whole', sub { $target->stop('immediate'); $target->start; return; });
goes_on('whole', 'tied', 5000, 0);

# through the executor, where what was seen cannot be told: a lookback reads
# it again, and without one it is not
gated_job('rel_tied', 'tied', ', "reader": "relation", "lookback": "0"');
interrupt('rel_tied', \&terminate);
goes_on('rel_tied', 'tied', 5000, 0);
gated_job('rel_plain', 'plain', ', "reader": "relation"');
interrupt('rel_plain', \&kill_backend);
goes_on('rel_plain', 'plain', 20000, 901);

# rows without a watermark, more of them than a batch takes, after the others or
# before them
gated_job('holes', 'holes', '');
interrupt('holes', \&terminate);
goes_on('holes', 'holes', 6000, 0);
gated_job('rel_holes', 'holes', ', "reader": "relation", "lookback": "0"');
interrupt('rel_holes', \&terminate);
as_loader($target, q{CALL incload_run_in_batches('rel_holes')});
is(last_run($target, 'rel_holes'), 'succeeded|4000|4000|0|0', 'rel_holes: the next call reads what is left');
is(differences($source, $target, 'holes', 'dw.rel_holes'), '0|0', 'rel_holes: nothing is missing');
as_loader($target, q{CALL incload_run_in_batches('rel_holes')});
is(last_run($target, 'rel_holes'), 'succeeded|3000|0|0|3000', 'rel_holes: rows without a watermark are always read');

# a cancelled call keeps what it had committed
$source->safe_psql('postgres', q{UPDATE plain SET v = 'w', updated_at = clock_timestamp() WHERE id <= 10000});
as_loader($target, q{
	DROP TRIGGER gate ON dw.plain;
	CREATE TRIGGER gate_w AFTER UPDATE ON dw.plain FOR EACH STATEMENT EXECUTE FUNCTION dw.gate($$v = 'w'$$);
});
my $gate = session($target, 'loader');
$gate->query_safe('SELECT pg_advisory_lock(7)');
my $run = start_sql($target, 'loader', q{CALL incload_run_in_batches('plain')});
my $pid = wait_for(60, sub {
	$target->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory'}) });
ok($pid, 'plain: is at its third batch of updates');
$target->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
my ($status, $out, $err) = $run->finish;
like($err, qr/ERROR:  57014/, 'a cancelled CALL says so');
like($err, qr/NOTICE: .*batch 2: 1000 rows read, 0 inserted, 1000 updated/, 'and each batch was told');
is( last_run($target, 'plain', 'status, sqlstate, batches, rows_read, rows_updated'),
	'cancelled|57014|2|2000|2000', 'it is on record, with what it had committed');
is($target->safe_psql('postgres', q{SELECT count(*) FROM dw.plain WHERE v = 'w'}), 2000, 'and that stays');
$gate->query_safe('SELECT pg_advisory_unlock(7)');
as_loader($target, q{CALL incload_run_in_batches('plain')});
is(last_run($target, 'plain', 'rows_read - rows_unchanged, rows_updated'), '8000|8000', 'the rest follows');
is(differences($source, $target, 'plain', 'dw.plain'), '0|0', 'and all is equal');

# the connection breaks between two batches
gated_job('cut', 'plain', ', "filter": "public.gate(id)", "lookback": "0"');
as_loader($target, 'DROP TRIGGER gate ON dw.cut');
$source->safe_psql('postgres', q{UPDATE plain SET updated_at = '2024-01-01Z'::timestamptz + id * interval '1 s' WHERE id <= 10000});
my $there = session($source, scalar(getpwuid($<)));
$there->query_safe('SELECT pg_advisory_lock(7)');
$run = start_sql($target, 'loader', q{CALL incload_run_in_batches('cut')});
ok( wait_for(60, sub { last_run($target, 'cut', 'batches') eq '3' }), 'cut: three batches are committed, and the source is silent');
$source->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'incload%'});
($status, $out, $err) = $run->finish;
like($err, qr/ERROR:  (57P01|08006)/, 'cut: the call fails');
like(last_run($target, 'cut', 'status, batches, rows_read, rows_inserted, sqlstate, hint IS NOT NULL'),
	qr/^failed\|3\|3000\|3000\|(57P01|08006)\|t$/, 'cut: it is on record with what it had committed');
is($target->safe_psql('postgres', 'SELECT count(*) FROM dw.cut'), 3000, 'cut: and that stays');
$there->query_safe('SELECT pg_advisory_unlock(7)');
as_loader($target, q{CALL incload_run_in_batches('cut')});
is(last_run($target, 'cut'), 'succeeded|17000|17000|0|0', 'cut: the next call reads what is left');
is(differences($source, $target, 'plain', 'dw.cut'), '0|0', 'cut: nothing is missing');
$gate->quit;
$there->quit;

$target->stop;
$source->stop;
done_testing();
