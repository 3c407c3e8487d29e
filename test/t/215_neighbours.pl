# Jobs beside each other and beside whoever uses the database: nobody's trouble is
# another one's. A busy database, a transaction that is left open, an owner's settings,
# a window whose runner dies, a dump that is being restored.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use IncloadTest;

my ($source, $target) = two_nodes(target => "shared_preload_libraries = 'incload'\nincload.naptime = '100ms'\nmax_worker_processes = 16\n"
	. "incload.max_workers = 2\n");

sub comes_to
{
	my ($query, $wanted, $name, $database) = @_;
	return becomes(sub { $target->safe_psql($database || 'postgres', $query) }, $wanted, $name);
}

# a job of nothing but its SQL, so to speak: it reads ten rows
sub create_job
{
	my ($name, $schedule, $options, $database) = @_;

	as_role($target, 'loader', qq{SELECT incload_create_job('$name', 'src.items', 'dw.$name', 'upsert', 'updated_at', '{id}',
		schedule => '$schedule', options => '{"lookback": "0"}'::jsonb || '${\($options || '{}')}')}, $database);
	return;
}

sub runs
{
	my ($job, $database, $status) = @_;
	return $target->safe_psql($database || 'postgres', "SELECT count(*) FROM incload.run WHERE job = '$job' AND status = '@{[ $status || 'succeeded' ]}'");
}

# it runs once more from here on
sub runs_again
{
	my ($job, $name, $database) = @_;
	my $before = runs($job, $database);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_for(60, sub { runs($job, $database) > $before }), $name)
	  or diag($target->safe_psql($database || 'postgres', 'SELECT * FROM incload.status; SELECT * FROM incload.worker; SELECT *, now() FROM incload.schedule_store'));
	return;
}

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO items SELECT i, 'v' FROM generate_series(1, 10) i;
	CREATE TABLE numbers (id bigint PRIMARY KEY, v text NOT NULL);
	INSERT INTO numbers SELECT i, 'v' FROM generate_series(1, 1000) i;
	CREATE TABLE epochs (id int PRIMARY KEY, at bigint NOT NULL);
	INSERT INTO epochs SELECT i, 1577836800 + i * 3600 FROM generate_series(1, 100) i});
foreign_table($target, 'items', 'numbers', 'epochs');

#
# two databases, of which one always has more to do than there are runners
#
$target->safe_psql('postgres', 'CREATE DATABASE second');
$target->safe_psql('second', q{CREATE EXTENSION incload; CREATE EXTENSION postgres_fdw; CREATE SCHEMA src AUTHORIZATION loader; CREATE SCHEMA dw AUTHORIZATION loader});
$target->safe_psql('second', qq{CREATE SERVER source FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '@{[ $source->port ]}', dbname 'postgres');
	GRANT USAGE ON FOREIGN SERVER source TO loader;
	CREATE USER MAPPING FOR loader SERVER source OPTIONS (user 'reader', password 'reader''s secret')});
as_role($target, 'loader', 'IMPORT FOREIGN SCHEMA public LIMIT TO (items) FROM SERVER source INTO src', 'second');
create_job("busy$_", '1 second', '{"pre_sql": "SELECT pg_sleep(0.6)"}') foreach 1 .. 6;
runs_again("busy$_", "busy$_ runs") foreach 1, 6;
create_job('quiet', '1 second', undef, 'second');
my $before = runs('busy1') + runs('busy2') + runs('busy3');
runs_again('quiet', "another database gets its turn, time $_", 'second') foreach 1 .. 4;
cmp_ok(runs('busy1') + runs('busy2') + runs('busy3'), '>', $before, 'and the busy one goes on');
as_loader($target, qq{SELECT incload_drop_job('busy$_')}) foreach 1 .. 6;
as_role($target, 'loader', q{SELECT incload_drop_job('quiet')}, 'second');

#
# a transaction that has altered a job, and stays open
#
create_job('altered', '1 second');
create_job('other', '1 second');
runs_again('altered', 'a job runs');
my @open = map { session($target, 'loader') } 1 .. 2;
create_job('altered2', '1 second');
runs_again('altered2', 'and another one');
$open[0]->query_safe(q{BEGIN; SELECT incload_alter_job('altered', schedule => '2 seconds')});
$open[1]->query_safe(q{BEGIN; SELECT incload_alter_job('altered2', schedule => '2 seconds')});
usleep(1_500_000);
runs_again('other', 'others run beside jobs that are about to be altered');
is(as_loader($target, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'incload runner' AND wait_event_type = 'Lock'}), '0', 'no runner waits for the transactions');
$_->query_safe('COMMIT'), $_->quit foreach @open;
runs_again('altered', 'the altered one goes on');
as_loader($target, qq{SELECT incload_drop_job('$_')}) foreach qw(altered altered2);

#
# settings of the owner's role
#
$target->safe_psql('postgres', q{CREATE ROLE owners; GRANT owners TO loader; ALTER ROLE loader SET role = 'owners'; ALTER ROLE loader SET lock_timeout = '300ms'});
$target->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM incload.worker WHERE kind = 'runner'});
runs_again('other', 'an owner who is to be another role at once');
my $start = session($target, 'postgres');
$start->query_safe(q{SET ROLE loader; BEGIN; SELECT incload_start('other')});
usleep(1_200_000);
$start->query_safe('COMMIT');
$start->quit;
comes_to(q{SELECT string_agg(DISTINCT status, ' ') FROM incload.run WHERE job = 'other' AND trigger = 'start'}, 'succeeded', 'a lock_timeout does not end the wait for who starts a run');
$target->safe_psql('postgres', q{ALTER ROLE loader RESET role; ALTER ROLE loader RESET lock_timeout});

# in a subtransaction that is rolled back
as_loader($target, q{BEGIN; SAVEPOINT a; SELECT incload_start('other'); ROLLBACK TO a; COMMIT});
is(as_loader($target, q{SELECT count(*) FROM incload.run WHERE job = 'other' AND trigger = 'start'}), '1', 'a run that is taken back with its subtransaction is none');

# what a job leaves in its session is gone with the next one
create_job('cursor', '1 second', '{"pre_sql": "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "pause_after": 1}');
runs_again('cursor', "a cursor that is kept, run $_") foreach 1 .. 3;

# cancelled by pg_cancel_backend: nobody's failure
create_job('cancelled', '1 second', '{"pre_sql": "SELECT pg_sleep(2)", "pause_after": 1}');
ok(wait_for(60, sub { $target->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'incload runner' AND wait_event = 'PgSleep'}) eq 't' }), 'a run is cancelled');
comes_to(q{SELECT status FROM incload.run WHERE job = 'cancelled' AND status <> 'running' ORDER BY run_id LIMIT 1}, 'cancelled', 'by pg_cancel_backend');
is(as_loader($target, q{SELECT enabled FROM incload.job WHERE job = 'cancelled'}), 't', 'which pauses nothing');
as_loader($target, qq{SELECT incload_drop_job('$_')}) foreach qw(cursor cancelled);

#
# windows of backfills
#
as_loader($target, q{
	SELECT incload_create_job('numbers', 'src.numbers', 'dw.numbers', 'upsert', 'id', '{id}', options => '{"retry_delay": "50 ms", "retry_limit": 2}');
	SELECT incload_run('numbers'); UPDATE dw.numbers SET v = 'by hand';
	CREATE FUNCTION dw.die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 250 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW; END $$;
	CREATE TRIGGER die BEFORE UPDATE ON dw.numbers FOR EACH ROW EXECUTE FUNCTION dw.die();
	SELECT incload_backfill('numbers', '1', '1001', '100')});
comes_to(q{SELECT string_agg(state || ' ' || n, ', ' ORDER BY state) FROM (SELECT state, count(*) AS n FROM incload.batch_window WHERE job = 'numbers' GROUP BY state) s},
	'done 9, failed 1', 'a window whose runner dies is given up, and keeps the others from nothing');
is(as_loader($target, q{SELECT attempts, error FROM incload.batch_window WHERE state = 'failed'}), '3|the background worker ended while it loaded the window', 'it was tried again, and says why');
as_loader($target, q{DROP TRIGGER die ON dw.numbers; SELECT incload_backfill('numbers')});
comes_to(q{SELECT count(*) FROM dw.numbers WHERE v = 'by hand'}, '0', 'mended, it is loaded');

# two that were cancelled: one after the other
as_loader($target, q{SELECT incload_alter_job('numbers', options => '{"max_rate": 50}')});
as_loader($target, q{SELECT incload_backfill('numbers', '1', '101', '10')});
as_loader($target, q{SELECT incload_backfill('numbers', '101', '201', '10')});
as_loader($target, q{SELECT incload_cancel('numbers')});
comes_to(q{SELECT count(*) FROM incload.batch_window WHERE job = 'numbers' AND state = 'pending'}, '0', 'two backfills are cancelled');
as_loader($target, q{SELECT incload_alter_job('numbers', options => '{"max_rate": null}')});
my $left = "SELECT count(*) FROM incload.batch_window WHERE job = 'numbers' AND state = 'stopped'";
cmp_ok(as_loader($target, $left), '>', 10, 'windows are left of both');
as_loader($target, q{SELECT incload_backfill('numbers')});
comes_to(q{SELECT count(*) FROM incload.batch_window WHERE job = 'numbers' AND state = 'pending'}, '0', 'one goes on');
as_loader($target, q{SELECT incload_backfill('numbers')});
comes_to($left, '0', 'and then the other');

# seconds since 1970 are cut into numbers
as_loader($target, q{SELECT incload_create_job('epochs', 'src.epochs', 'dw.epochs', 'upsert', 'at', '{id}', options => '{"watermark_kind": "epoch_s"}'); SELECT incload_run('epochs')});
is(as_loader($target, q{SELECT incload_backfill('epochs', '1577836800', '1578268800', '86400')}), '5', 'a range of seconds is cut into days');
comes_to(q{SELECT count(*) FROM incload.batch_window WHERE job = 'epochs' AND state = 'done'}, '5', 'and loaded');
fails_with($target, 'loader', "SELECT incload_backfill('numbers', '1', '10', '$_')", '22023', qr/DETAIL:  The range from 1 to 10 was to be cut into steps of $_.*HINT/s, "a step of $_") foreach qw(0 NaN);

#
# a launcher that is new can take a database away all the same
#
$target->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM incload.worker WHERE kind = 'launcher'});
comes_to(q{SELECT count(*) FROM incload.worker WHERE kind = 'launcher'}, '1', 'a new launcher');
$target->safe_psql('postgres', q{ALTER SYSTEM SET incload.databases = 'second, nowhere'});
$target->safe_psql('postgres', 'SELECT pg_reload_conf()');
comes_to(q{SELECT string_agg(database, ' ') FROM incload.worker WHERE kind = 'scheduler'}, 'second', 'a database is taken out of the list');
ok(wait_for(10, sub { slurp_file($target->logfile) =~ /database "nowhere", which incload.databases names, does not exist/ }), 'one that does not exist is told of');
is($target->safe_psql('postgres', 'SELECT incload_worker_start()'), 't', 'there one can be started by hand');
is($target->safe_psql('postgres', 'SELECT incload_worker_stop()'), 't', 'stopped');
is($target->safe_psql('postgres', 'SELECT incload_worker_start()'), 't', 'and started again');
is($target->safe_psql('postgres', q{SELECT string_agg(database, ' ' ORDER BY database) FROM incload.worker WHERE kind = 'scheduler'}), 'postgres second', 'it is there');
$target->safe_psql('postgres', 'SELECT incload_worker_stop()');
$target->safe_psql('postgres', 'ALTER SYSTEM RESET incload.databases');
$target->safe_psql('postgres', 'SELECT pg_reload_conf(); SELECT incload_worker_start()');
runs_again('other', 'and jobs run again when it is back');

#
# a job that came with a dump, and has not all that it needs yet
#
as_loader($target, q{
	SELECT incload_create_job('whole', 'src.numbers', 'dw.whole', 'full', key => '{id}', schedule => '1 second');
	SELECT incload_create_job('barred', 'src.items', 'dw.barred', 'upsert', 'updated_at', '{id}', schedule => '1 second', options => '{"pause_after": 2}')});
runs_again('whole', 'a job of strategy full');
runs_again('barred', 'and one that upserts');
my $dump = $target->basedir . '/jobs.dump';
$target->command_ok([ 'pg_dump', '-Fc', '-f', $dump, 'postgres' ], 'they are dumped');
$target->safe_psql('postgres', 'CREATE DATABASE third');
$target->command_ok([ 'pg_restore', '--section=pre-data', '-d', 'third', $dump ], 'restored: what comes first');
$target->command_ok([ 'pg_restore', '--section=data', '-d', 'third', $dump ], 'then rows and jobs');
comes_to(q{SELECT count(*) > 1 FROM incload.run WHERE job = 'whole' AND error ~ 'may be about to be restored'}, 't', 'one of strategy full waits for its key', 'third');
is($target->safe_psql('third', 'SELECT count(*), count(DISTINCT id) FROM dw.whole'), '1000|1000', 'and doubles nothing');
$target->safe_psql('third', 'REVOKE ALL ON SCHEMA src FROM loader; ALTER SCHEMA src OWNER TO postgres');
$target->command_ok([ 'pg_restore', '--section=post-data', '-d', 'third', $dump ], 'the keys');
comes_to(q{SELECT count(*) > 3 FROM incload.run WHERE job = 'barred' AND status = 'failed' AND sqlstate = '42501'}, 't', 'a job that lacks its rights yet', 'third');
is($target->safe_psql('third', q{SELECT enabled FROM incload.job WHERE job = 'barred'}), 't', 'is not paused for it');
$target->safe_psql('third', 'ALTER SCHEMA src OWNER TO loader; GRANT ALL ON SCHEMA src TO loader');
runs_again('whole', 'it goes on by itself', 'third');
runs_again('barred', 'and so does the other', 'third');

done_testing();
