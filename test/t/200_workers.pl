# What happens to a server happens to its workers, too: crashes, shutdowns,
# databases that are dropped and copied, an extension that comes and goes, a standby that is
# promoted. Jobs go on by themselves, and workers are in nobody's way.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use IncloadTest;

my $conf = "incload.naptime = '100ms'\nmax_worker_processes = 16\nrestart_after_crash = on\n";
my ($source, $target) = two_nodes(target => "shared_preload_libraries = 'incload'\n$conf", init => { allows_streaming => 1 });
my $rows = 0;

# a query of a database until it gives that; what it gave last if it does not
sub comes_to
{
	my ($query, $wanted, $name, $node, $database) = @_;
	return becomes(sub { try_query($node || $target, $query, undef, $database) }, $wanted, $name);
}

# a new row at the source comes to the target by itself
sub goes_on
{
	my ($name, $node, $database) = @_;

	$source->safe_psql('postgres', 'INSERT INTO items (v) VALUES (1)');
	$rows++;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	comes_to('SELECT count(*) FROM dw.items', $rows, $name, $node, $database)
	  or diag(($node || $target)->safe_psql($database || 'postgres', q{SELECT * FROM incload.worker; SELECT *, now() FROM incload.schedule_store;
		SELECT * FROM incload.run ORDER BY run_id DESC LIMIT 3; SELECT * FROM pg_stat_activity WHERE backend_type ~ 'incload'}));
	return;
}

sub pid_of
{
	my ($kind, $node, $database) = @_;
	$database ||= 'postgres';
	return ($node || $target)->safe_psql('postgres', "SELECT max(pid) FROM incload.worker WHERE kind = '$kind' AND coalesce(database, '$database') = '$database'");
}

# what a job needs, in a database of the target
sub set_up
{
	my ($node, $database) = @_;
	my $port = $source->port;

	$node->safe_psql($database, qq{
		CREATE EXTENSION IF NOT EXISTS incload; CREATE EXTENSION IF NOT EXISTS postgres_fdw;
		CREATE SCHEMA IF NOT EXISTS src AUTHORIZATION loader; CREATE SCHEMA IF NOT EXISTS dw AUTHORIZATION loader;
		DROP SERVER IF EXISTS source CASCADE;
		CREATE SERVER source FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '$port', dbname 'postgres');
		GRANT USAGE ON FOREIGN SERVER source TO loader;
		CREATE USER MAPPING FOR loader SERVER source OPTIONS (user 'reader', password 'reader''s secret')});
	as_role($node, 'loader', q{
		IMPORT FOREIGN SCHEMA public LIMIT TO (items) FROM SERVER source INTO src;
		SELECT incload_create_job('items', 'src.items', 'dw.items', 'upsert', 'updated_at', '{id}', schedule => '1 second',
			options => '{"lookback": "0", "retry_delay": "200 ms"}')}, $database);
	return;
}

$source->safe_psql('postgres', q{CREATE TABLE items (id serial PRIMARY KEY, v int, updated_at timestamptz NOT NULL DEFAULT now())});
set_up($target, 'postgres');
goes_on('a job runs by itself');

# each kind of worker is terminated; the next one does its work
foreach my $kind (qw(runner scheduler launcher))
{
	my $pid = pid_of($kind);

	is($target->safe_psql('postgres', "SELECT pg_terminate_backend($pid)"), 't', "the $kind is terminated");
	wait_for(60, sub { my $new = pid_of($kind); $new && $new ne $pid }) or diag("no new $kind");
	isnt(pid_of($kind), $pid, 'another one comes');
	goes_on('and the job goes on');
}

# killed: the server crashes and starts again, and with it all workers
foreach my $kind (qw(runner scheduler launcher))
{
	my $pid = pid_of($kind);

	kill 'KILL', $pid;
	wait_for(60, sub { (try_query($target, "SELECT count(*) FROM incload.worker WHERE kind = '$kind' AND pid <> $pid") // '') eq '1' });
	goes_on("the $kind is killed, and the job goes on");
}
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.worker WHERE kind = 'scheduler'}), '1', 'there is one scheduler');
$target->stop('immediate');
$target->start;
goes_on('after a crash of the server, too');

# a run that was under way when the server died
as_loader($target, q{SELECT incload_create_job('long', 'src.items', 'dw.long', 'upsert', 'updated_at', '{id}', options => '{"pre_sql": "SELECT pg_sleep(600)"}')});
my $run_id = as_loader($target, q{SELECT incload_start('long')});
comes_to(q{SELECT state FROM incload.status WHERE job = 'long'}, 'running', 'a run');
$target->stop('immediate');
$target->start;
comes_to("SELECT status, sqlstate, error FROM incload.run WHERE run_id = $run_id", 'failed|57P01|the session or the server ended during the run',
	'is on record as failed once the server is back');

# likewise, but somebody has the job for himself when the server is back: nobody runs it later, whose run would close that one
$target->append_conf('postgresql.conf', "incload.databases = ''");
$run_id = as_loader($target, q{SELECT incload_start('long')});
comes_to(q{SELECT state FROM incload.status WHERE job = 'long'}, 'running', 'another run');
$target->stop('immediate');
$target->start;
my $altering = $target->background_psql('postgres');
$altering->query_safe(q{SET ROLE loader; BEGIN; SELECT incload_alter_job('long', options => '{"batch_rows": 10}')});
$target->append_conf('postgresql.conf', "incload.databases = '*'");
$target->reload;
goes_on('its job is being altered when the scheduler comes');
is(as_loader($target, "SELECT status FROM incload.run WHERE run_id = $run_id"), 'running', 'so it waits');
$altering->query_safe('ROLLBACK');
$altering->quit;
comes_to("SELECT status, sqlstate, error FROM incload.run WHERE run_id = $run_id", 'failed|57P01|the session or the server ended during the run',
	'and is on record as failed after that');

# nothing is open between two looks
as_loader($target, q{SELECT incload_alter_job('items', schedule => '1 hour'), incload_drop_job('long')});
comes_to(q{SELECT next_run > now() + interval '10 s' FROM incload.status WHERE job = 'items'}, 't', 'nothing is due');
comes_to(q{SELECT count(*) FROM incload.worker WHERE kind = 'runner' AND state <> 'idle'}, '0', 'and nobody has anything to do');
my $open = 0;
for (1 .. 20)
{
	$open += $target->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'incload runner' AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL)});
	usleep(20_000);
}
is($open, 0, 'an idle runner is in no transaction');
comes_to(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('incload scheduler', 'incload launcher') AND xact_start IS NULL AND backend_xmin IS NULL AND state IS DISTINCT FROM 'active'}, '2',
	'nor are the scheduler and the launcher');
as_loader($target, q{SELECT incload_alter_job('items', schedule => '1 second')});

# databases with a scheduler in them
$target->safe_psql('postgres', 'CREATE DATABASE second');
set_up($target, 'second');
goes_on('another database has its own scheduler', $target, 'second');
comes_to('SELECT count(*) FROM dw.items', $rows, 'beside the first one');
$target->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE second');
goes_on('a database can be copied while its jobs run', $target, 'second');
comes_to('SELECT count(*) FROM dw.items', $rows, 'and the copy has jobs that run', $target, 'copied');
$target->safe_psql('postgres', 'ALTER DATABASE copied RENAME TO renamed');
goes_on('a database can be renamed', $target, 'renamed');
my $holder = $target->background_psql('renamed');
my ($ret, $out, $err) = $target->psql('postgres', 'DROP DATABASE renamed');
like($err, qr/being accessed by other users/, 'a database that others are in is not dropped');
goes_on('and its jobs go on', $target, 'renamed');
$holder->quit;
$target->safe_psql('postgres', q{CREATE ROLE stranger LOGIN});
my $scheduler = pid_of('scheduler', $target, 'renamed');
($ret, $out, $err) = $target->psql('postgres', 'DROP DATABASE renamed', extra_params => [ '-U', 'stranger' ]);
like($err, qr/must be owner of database renamed/, 'nor by a stranger');
is(pid_of('scheduler', $target, 'renamed'), $scheduler, 'who does not stop its workers, either');
$target->safe_psql('postgres', 'DROP DATABASE renamed');
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.worker WHERE database = 'renamed' OR database IS NULL AND kind <> 'launcher'}), '0', 'a database can be dropped');

# the extension goes and comes
$target->safe_psql('second', 'DROP EXTENSION incload CASCADE; DROP SCHEMA dw CASCADE; DROP SCHEMA src CASCADE');
comes_to(q{SELECT count(*) FROM incload.worker WHERE database = 'second'}, '0', 'without the extension there is nothing to schedule');
set_up($target, 'second');
goes_on('created again, it has a scheduler again', $target, 'second');
$scheduler = pid_of('scheduler', $target, 'second');
$target->safe_psql('second', q{BEGIN; DROP EXTENSION incload CASCADE; ROLLBACK});
goes_on('dropped in vain, it has its jobs as before', $target, 'second');
isnt(pid_of('scheduler', $target, 'second'), $scheduler, 'and another scheduler');
$scheduler = pid_of('scheduler', $target, 'second');
$target->safe_psql('second', q{ALTER EXTENSION incload UPDATE});
goes_on('an update has the workers begin anew', $target, 'second');
isnt(pid_of('scheduler', $target, 'second'), $scheduler, 'with another scheduler');

# stopped, started
$target->safe_psql('second', 'SELECT incload_worker_stop()');
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.worker WHERE database = 'second' AND kind = 'scheduler'}), '0', 'a scheduler can be stopped');
goes_on('others are not');
is($target->safe_psql('second', 'SELECT count(*) FROM dw.items'), $rows - 1, 'a database without one loads nothing');
is($target->safe_psql('second', 'SELECT incload_worker_start()'), 't', 'it can be started');
is($target->safe_psql('postgres', 'SELECT incload_worker_start()'), 'f', 'one that is there is not started twice');
goes_on('and loads again', $target, 'second');

# settings, reloaded
$target->append_conf('postgresql.conf', "incload.databases = 'postgres'");
$target->reload;
comes_to(q{SELECT string_agg(DISTINCT database, ',') FROM incload.worker WHERE kind = 'scheduler'}, 'postgres', 'incload.databases says where');
$target->append_conf('postgresql.conf', "incload.databases = 'second, postgres'");
$target->reload;
comes_to(q{SELECT string_agg(DISTINCT database, ',') FROM incload.worker WHERE kind = 'scheduler'}, 'postgres,second', 'and can be changed at any time');
goes_on('and they load', $target, 'second');
$target->safe_psql('postgres', 'DROP DATABASE second');

# no worker to be had: it is said, and nothing hangs
$target->append_conf('postgresql.conf', 'max_worker_processes = 3');
$target->restart;
comes_to(q{SELECT count(*) FROM incload.worker WHERE kind = 'scheduler'}, '1', 'launcher, scheduler, and one more');
comes_to(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'logical replication launcher'}, '1', 'which is taken');
fails_with($target, 'loader', q{SELECT incload_start('items')}, '53400', qr/could not start a background worker.*max_worker_processes/s, 'no worker is free: incload_start says so');
ok(wait_for(60, sub { slurp_file($target->logfile) =~ /WARNING:  job "items" is due, and no background worker can be had/ }), 'and the scheduler does, in the log');
$target->append_conf('postgresql.conf', 'max_worker_processes = 16');
$target->restart;
goes_on('with workers, it goes on');

# each kind of shutdown ends at once
foreach my $mode (qw(smart fast immediate))
{
	my $begin = time();
	$target->stop($mode);
	# far more than it takes, far less than the minute that pg_ctl would wait
	cmp_ok(time() - $begin, '<', 30, "a $mode shutdown ends");
	$target->start;
	goes_on('and the job goes on afterwards');
}

# a standby runs nothing, until it is promoted
$target->append_conf('postgresql.conf', "incload.databases = '*'");
as_loader($target, q{CREATE TABLE dw.here (id bigint GENERATED ALWAYS AS IDENTITY, v text); INSERT INTO dw.here (v) VALUES ('loaded');
	SELECT incload_create_job('here', 'dw.here', 'dw.here_copy', 'append', 'id', '{}')});
as_loader($target, q{SELECT incload_run('here')});
as_loader($target, q{INSERT INTO dw.here (v) VALUES ('not yet')});
$target->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($target, 'backup', has_streaming => 1);
$standby->start;
$target->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT count(*) FROM incload.worker'), '0', 'a standby has no workers');
fails_with($standby, 'loader', q{SELECT incload_start('items')}, '25006', qr/recovery/, 'and starts no run');
$target->stop;
$standby->promote;
goes_on('once promoted, it goes on from the checkpoint', $standby);
is(as_loader($standby, q{SELECT status, rows_read FROM incload_run('here')}), 'succeeded|1', 'so does one without a key whose source was promoted with it');
is($standby->safe_psql('postgres', q{SELECT count(*), count(DISTINCT id) FROM dw.items}), "$rows|$rows", 'with each row once');

# without preload, by hand
$standby->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$standby->restart;
is($standby->safe_psql('postgres', 'SELECT count(*) FROM incload.worker'), '0', 'without preload there are no workers');
is($standby->safe_psql('postgres', 'SELECT incload_worker_start()'), 't', 'until a scheduler is started by hand');
goes_on('then jobs run', $standby);
is($standby->safe_psql('postgres', 'SELECT incload_worker_start()'), 'f', 'which is started once');
$scheduler = pid_of('scheduler', $standby);
kill 'KILL', pid_of('runner', $standby) || $scheduler;
comes_to("SELECT count(*) FROM incload.worker WHERE kind = 'scheduler' AND pid <> $scheduler", '1', 'after a crash it comes back', $standby);
goes_on('and jobs run', $standby);
$standby->safe_psql('postgres', 'CREATE DATABASE elsewhere');
$standby->safe_psql('elsewhere', 'CREATE EXTENSION incload');
is($standby->safe_psql('elsewhere', 'SELECT incload_worker_start()'), 't', 'one more, in another database');
crash_backend($standby);
comes_to("SELECT string_agg(database, ' ' ORDER BY database) FROM incload.worker WHERE kind = 'scheduler' AND pid IS NOT NULL", 'elsewhere postgres', 'after a crash each is in its own', $standby);
is($standby->safe_psql('elsewhere', 'SELECT incload_worker_stop()'), 't', 'the other one is not needed');
goes_on('the first is', $standby);
my $other = $standby->background_psql('elsewhere');
$other->query_safe("LOAD 'incload'");
$other->query_safe('CREATE DATABASE copied TEMPLATE postgres');
goes_on('a session that has loaded the library can copy the database', $standby);
$other->quit;
is($standby->safe_psql('postgres', 'SELECT incload_worker_stop()'), 't', 'it can be stopped');
is($standby->safe_psql('postgres', 'SELECT incload_worker_stop()'), 'f', 'once');
$standby->safe_psql('elsewhere', 'DROP DATABASE copied');
comes_to('SELECT count(*) FROM incload.worker', '0', 'and nobody is left', $standby);
is($standby->safe_psql('postgres', 'SELECT incload_worker_start()'), 't', 'started again');
goes_on('jobs run', $standby);

# one that cannot come back, and whose database is dropped meanwhile, stays away
$standby->safe_psql('postgres', 'ALTER SYSTEM SET log_min_messages = debug1');
$standby->reload;
$standby->safe_psql('postgres', 'CREATE DATABASE brief');
$standby->safe_psql('brief', 'CREATE EXTENSION incload');
is($standby->safe_psql('brief', 'SELECT incload_worker_start()'), 't', 'a scheduler');
$standby->safe_psql('postgres', 'ALTER DATABASE brief ALLOW_CONNECTIONS false');
my $offset = -s $standby->logfile;
crash_backend($standby);
ok(wait_for(60, sub { slurp_file($standby->logfile, $offset) =~ /FATAL:  database "brief" is not currently accepting connections/ }), 'which tries to come back after a crash');
goes_on('another one does', $standby);
unlike(slurp_file($standby->logfile, $offset), qr/unregistering background worker "incload scheduler"/, 'each is the postmaster\'s to start');
$standby->safe_psql('postgres', 'DROP DATABASE brief');
ok(wait_for(60, sub { slurp_file($standby->logfile, $offset) =~ /unregistering background worker "incload scheduler"/ }), 'until the database is not there any more');
goes_on('the other goes on', $standby);

$standby->stop;
$source->stop;
done_testing();
