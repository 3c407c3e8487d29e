# A run that fails is on record, with its reason, and has changed nothing; and
# whoever waits for a source that does not answer can stop waiting.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use IncloadTest;

my ($source, $target) = two_nodes(source => "max_prepared_transactions = 5\nrestart_after_crash = on", target => "wal_level = replica\nmax_wal_senders = 5");

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, n numeric, updated_at timestamptz NOT NULL);
	INSERT INTO items SELECT i, 'v' || i, i, '2024-01-01Z'::timestamptz + i * interval '1 s' FROM generate_series(1, 1000) i;
	CREATE FUNCTION slowly(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN i; END $$;
	CREATE VIEW slow AS SELECT slowly(id) AS id, v, updated_at FROM items;
});
foreign_table($target, 'items', 'slow');
as_loader($target, q{
	SELECT incload_create_job('items', 'src.items', 'dw.items');
	SELECT incload_run('items');
	SELECT incload_create_job('slow', 'src.slow', 'dw.slow', 'upsert', 'updated_at', '{id}');
});

my $checkpoint = q{SELECT bound, loaded_to, mark FROM incload.checkpoint WHERE job = '%s'};

# the job fails so, is on record so, and checkpoint and target are as before
sub fails_on_record
{
	my ($job, $sqlstate, $pattern, $what, $status) = @_;
	my $before = as_loader($target, sprintf($checkpoint, $job) . "; SELECT count(*), sum(id) FROM dw.$job");

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $said = fails_with($target, 'loader', "SELECT incload_run('$job')", $sqlstate, $pattern, $what);
	like($said, qr/HINT/, "$what: with a hint") if !$status;
	is(last_run($target, $job, 'status, sqlstate, rows_read, error IS NOT NULL, pid IS NOT NULL'),
		($status || 'failed') . "|$sqlstate|0|t|t", "$what: on record");
	is(as_loader($target, sprintf($checkpoint, $job) . "; SELECT count(*), sum(id) FROM dw.$job"), $before,
		"$what: nothing changed");
	return $said;
}

# the source refuses
$target->safe_psql('postgres', "ALTER USER MAPPING FOR loader SERVER source OPTIONS (SET password 'wrong')");
my $said = fails_on_record('items', '08001', qr/could not connect to server "source"/, 'a wrong password');
unlike($said, qr/'wrong'|password=/, 'the password is not in the message');
$target->safe_psql('postgres', "ALTER USER MAPPING FOR loader SERVER source OPTIONS (SET password 'reader''s secret')");

# what a row can be guilty of
$source->safe_psql('postgres', "UPDATE items SET v = repeat('x', 50), updated_at = now() WHERE id = 1");
as_loader($target, 'ALTER TABLE dw.items ALTER v TYPE varchar(10)');
fails_on_record('items', '22001', qr/too long/, 'a value that does not fit');
as_loader($target, 'ALTER TABLE dw.items ALTER v TYPE text');
$source->safe_psql('postgres', "UPDATE items SET v = NULL, updated_at = now() WHERE id = 1");
as_loader($target, 'ALTER TABLE dw.items ALTER v SET NOT NULL');
fails_on_record('items', '23502', qr/null value in column "v"/, 'a NULL that the target refuses');
as_loader($target, 'ALTER TABLE dw.items ALTER v DROP NOT NULL');
is(as_loader($target, "SELECT rows_updated FROM incload_run('items')"), '1', 'once it fits, it arrives');

# a lock that is not to be had
as_loader($target, q{SELECT incload_alter_job('items', options => '{"lock_timeout": "200 ms"}')});
my $locker = session($target, 'loader');
$locker->query_safe('BEGIN; LOCK dw.items');
fails_with($target, 'loader', "SELECT incload_run('items')", '55P03', qr/lock timeout/, 'lock_timeout here');
is(last_run($target, 'items', 'status, sqlstate'), 'failed|55P03', 'a lock timeout is a failure, and no skipped run');
$locker->query_safe('COMMIT');
$source->safe_psql('postgres', "BEGIN; LOCK items; PREPARE TRANSACTION 'lock'");
fails_with($target, 'loader', "SELECT incload_run('items')", '55P03', qr/lock timeout.*remote SQL/s, 'lock_timeout there');
$source->safe_psql('postgres', "ROLLBACK PREPARED 'lock'");
is(as_loader($target, "SELECT status FROM incload_run('items')"), 'succeeded', 'then it goes on');
$locker->quit;

# waiting for the source ends when it is told to
my $reading = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'incload%' AND state = 'active'";
sub slow_run { return start_sql($target, 'loader', $_[0] || "SELECT incload_run('slow')"); }
sub wait_until_reading { ok(wait_for(30, sub { $source->safe_psql('postgres', $reading) > 0 }), 'the source is being read'); return; }
sub gone_there { ok(wait_for(15, sub { $source->safe_psql('postgres', $reading) == 0 }), $_[0]); return; }

my $run = slow_run();
wait_until_reading();
my $asked = time;
$target->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%incload_run(''slow'')%' AND pid <> pg_backend_pid()");
my ($status, $out, $err) = $run->finish;
like($err, qr/57014/, 'Ctrl-C stops a run that waits for the source');
cmp_ok(time - $asked, '<', 10, 'at once');
is(last_run($target, 'slow', 'status, sqlstate'), 'cancelled|57014', 'and it is on record as cancelled');
gone_there('the query at the source is gone, too');

fails_with($target, 'loader', "SET statement_timeout = '1s'; SELECT incload_run('slow')", '57014', qr/statement timeout/,
	'statement_timeout of the session');
gone_there('and nothing is left at the source');
as_loader($target, q{SELECT incload_alter_job('slow', options => '{"statement_timeout": "1 s"}')});
fails_with($target, 'loader', "SELECT incload_run('slow')", '57014', qr/statement timeout/, 'the option statement_timeout');
fails_with($target, 'loader', "CALL incload_run_in_batches('slow')", '57014', qr/statement timeout/, 'in batches, too');
is(as_loader($target, "SELECT pg_sleep(1.5); SELECT 1"), "\n1", 'and it is over with the run');
as_loader($target, q{SELECT incload_alter_job('slow', options => '{"statement_timeout": null}')});

# a source that is frozen, and answers nobody
# (if the test dies in between, the server must be able to stop)
my @frozen;
END { kill 'CONT', @frozen if @frozen; }
my $postmaster = $source->safe_psql('postgres', "SELECT pg_backend_pid()") && (split /\n/, slurp_file($source->data_dir . '/postmaster.pid'))[0];
$run = slow_run();
wait_until_reading();
my $reader = $source->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'incload%' AND state = 'active'");
@frozen = ($postmaster, $reader);
kill 'STOP', @frozen;
$asked = time;
$target->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%incload_run(''slow'')%' AND pid <> pg_backend_pid()");
($status, $out, $err) = $run->finish;
cmp_ok(time - $asked, '<', 10, 'Ctrl-C does not wait for a frozen source');
like($err, qr/57014/, 'and says that it was cancelled');
kill 'CONT', @frozen;
@frozen = ();
gone_there('a source that wakes up finds nobody waiting');

# the connection breaks in mid-stream
$run = slow_run("CALL incload_run_in_batches('slow')");
wait_until_reading();
$source->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'incload%'");
($status, $out, $err) = $run->finish;
like($err, qr/ERROR:  (57P01|08006)/, 'a connection that is lost in mid-stream');
like(last_run($target, 'slow', 'status, sqlstate'), qr/^failed\|(57P01|08006)$/, 'is on record');

# the process that sends the rows is killed when half of them have come
$source->safe_psql('postgres', q{
	CREATE TABLE halves (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL);
	INSERT INTO halves SELECT i, repeat('v', 100), '2024-01-01Z'::timestamptz + i * interval '1 s' FROM generate_series(1, 2000) i;
	CREATE FUNCTION gate(id int) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		IF id > 1000 THEN
			PERFORM pg_advisory_lock_shared(7);
			PERFORM pg_advisory_unlock_shared(7);
		END IF;
		RETURN true;
	END $$;
});
foreign_table($target, 'halves');
as_loader($target, q{SELECT incload_create_job('halves', 'src.halves', 'dw.halves', options => '{"filter": "public.gate(id)"}')});
my $before = as_loader($target, sprintf($checkpoint, 'halves'));
my $gate = session($source, scalar(getpwuid($<)));
$gate->query_safe('SELECT pg_advisory_lock(7)');
$run = start_sql($target, 'loader', "SELECT incload_run('halves')");
my $sender = wait_for(30, sub { $source->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory'") });
ok($sender, 'the stream has stopped half way');
kill 'KILL', $sender;
($status, $out, $err) = $run->finish;
like($err, qr/ERROR:  08006: lost the connection to server "source".*HINT:/s, 'a source that crashes in mid-stream');
is(last_run($target, 'halves', 'status, sqlstate, rows_read, rows_inserted, hint IS NOT NULL'), 'failed|08006|0|0|t', 'is on record');
is(as_loader($target, 'SELECT count(*) FROM dw.halves; ' . sprintf($checkpoint, 'halves')), "0\n$before", 'and has left nothing');
is_back($source) or die 'the source is gone';
is(as_loader($target, "SELECT rows_inserted FROM incload_run('halves')"), '2000', 'then the job goes on');
is(differences($source, $target, 'halves', 'dw.halves'), '0|0', 'without loss');
$gate->{run}->kill_kill;

# what is found out only when a batch commits
as_loader($target, q{
	CREATE TABLE dw.parents (id int PRIMARY KEY);
	INSERT INTO dw.parents SELECT generate_series(1, 1500);
	SELECT incload_create_job('late', 'src.halves', 'dw.late', options => '{"batch_rows": 1000}');
	ALTER TABLE dw.late ADD FOREIGN KEY (id) REFERENCES dw.parents DEFERRABLE INITIALLY DEFERRED;
});
fails_with($target, 'loader', "CALL incload_run_in_batches('late')", '23503', qr/foreign key constraint/, 'a batch that cannot commit');
is(last_run($target, 'late', 'status, sqlstate, batches, rows_read, rows_inserted'), 'failed|23503|1|1000|1000',
	'is on record, with what was committed before');
is(as_loader($target, 'SELECT count(*) FROM dw.late'), '1000', 'and that is there');
is(as_loader($target, q{SELECT state, last_error LIKE '23503%' FROM incload.status WHERE job = 'late'}), 'failing|t', 'the status says so');
my $stays = session($target, 'loader');
$stays->query("CALL incload_run_in_batches('late')");
is(last_run($target, 'late', 'status, sqlstate, batches'), 'failed|23503|0', 'it fails once more, in a session that stays');
as_loader($target, q{INSERT INTO dw.parents SELECT generate_series(1501, 2000); CALL incload_run_in_batches('late')});
$stays->quit;
is(last_run($target, 'late'), 'succeeded|1000|1000|0|0', 'and the rest follows');

# the source is not what it was
$source->safe_psql('postgres', 'ALTER TABLE items RENAME COLUMN id TO ident');
fails_on_record('items', '42703', qr/source src.items no longer has column "id".*names it as key/s, 'a key column that is gone at the source');
$source->safe_psql('postgres', 'ALTER TABLE items RENAME COLUMN ident TO id; ALTER TABLE items RENAME TO things');
fails_on_record('items', '42P01', qr/"public.items" does not exist/, 'a table that is gone at the source');
$source->safe_psql('postgres', 'ALTER TABLE things RENAME TO items');

# the target is not what it was
as_loader($target, 'CREATE TABLE dw.aside AS TABLE dw.items; DROP TABLE dw.items; CREATE TABLE dw.items (LIKE src.items)');
fails_with($target, 'loader', "SELECT incload_run('items')", '55000', qr/not the table it was.*incload_refresh/s,
	'a target that was dropped and created again');
is(as_loader($target, "SELECT rows_inserted FROM incload_refresh('items'); SELECT status FROM incload_run('items')"),
	"1000\nsucceeded", 'is filled by a refresh, and goes on');

# the source is down
$source->stop('immediate');
fails_on_record('items', '08001', qr/could not connect/, 'a source that is down');
$source->start;
is(as_loader($target, "SELECT status FROM incload_run('items')"), 'succeeded', 'once it is up, the job goes on');
is(as_loader($target, "SELECT state, last_error IS NULL FROM incload.status WHERE job = 'items'"), 'ok|t', 'and its status is well');

# a server that is too busy to start a worker: the error comes, and its record after it
my $busy = session($target, 'loader');
my $suspended = $target->{_pid};
$source->stop;
$busy->query(q{SET statement_timeout = '3 s'});
my $runs = $target->safe_psql('postgres', 'SELECT count(*) FROM incload.run');
{
	local $SIG{ALRM} = sub { kill 'CONT', $suspended; die 'the session did not come back' };
	alarm 120;
	kill 'STOP', $suspended;
	$busy->query(q{SELECT incload_run('items')});
	kill 'CONT', $suspended;
	alarm 0;
}
like($busy->{stderr}, qr/WARNING:  01000: the failed run is not yet recorded.*HINT: .*ERROR:  08001/s,
	'where a worker does not come, a cancel ends the wait for it, and the error is raised');
ok(wait_for(60, sub { $target->safe_psql('postgres', 'SELECT count(*) FROM incload.run') == $runs + 1 }), 'the record is made later');
is(last_run($target, 'items', 'status, sqlstate'), 'failed|08001', 'and is that of the run');
$busy->quit;
$source->start;

# no background worker to be had: a warning, and the error all the same
$target->append_conf('postgresql.conf', 'max_worker_processes = 0');
$target->restart;
$source->stop;
$runs = $target->safe_psql('postgres', 'SELECT count(*) FROM incload.run');
$asked = time;
fails_with($target, 'loader', "SELECT incload_run('items')", '08001', qr/WARNING:.*could not record.*max_worker_processes/s,
	'without a worker the error is raised all the same');
cmp_ok(time - $asked, '<', 20, 'and nothing hangs');
is($target->safe_psql('postgres', 'SELECT count(*) FROM incload.run'), $runs, 'no record could be made');
$source->start;

# a standby runs nothing
$target->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($target, 'base', has_streaming => 1);
$standby->start;
foreach my $sql ("SELECT incload_run('items')", "CALL incload_run_in_batches('items')", "SELECT incload_refresh('items')")
{
	fails_with($standby, 'loader', $sql, '25006', qr/standby.*HINT:.*primary/s, "a standby refuses: $sql");
}
is(as_role($standby, 'loader', "SELECT job FROM incload.status WHERE job = 'items'"), 'items', 'and shows the status');

done_testing();
