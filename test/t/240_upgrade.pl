# pg_upgrade of the target, with jobs on a schedule and a backfill that is not done, and then of the
# source. Its servers start no worker, and the upgraded target goes on by itself, from each checkpoint
# and from the ledger. An upgraded source is another server, until somebody says that it has the same rows.
#
#   INCLOAD_OLD_SERVER   where the older server is installed, with incload in it, such as
#                        /usr/lib/postgresql/15; else it is an upgrade to the same version
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my $conf = "shared_preload_libraries = 'incload'\nincload.naptime = '100ms'\nmax_worker_processes = 16\n";
my @old_server = $ENV{INCLOAD_OLD_SERVER} ? (install_path => $ENV{INCLOAD_OLD_SERVER}) : ();
my $source = new_source('', @old_server);
my $target = new_target($conf, @old_server);

# upgrade OLD NAME CONF: OLD, which is stopped, as a cluster of the newer version
sub upgrade
{
	my ($old, $name, $conf, $checksums) = @_;
	my $new = PostgreSQL::Test::Cluster->new($name);

	# those are on by default from 18 on, and must be as they were
	$new->init(extra => [ '--locale=C', '--encoding=UTF8' ], no_data_checksums => $checksums eq 'off');
	$new->append_conf('postgresql.conf', "autovacuum = off\n$conf");
	my $bin = $new->config_data('--bindir');
	my $folder = PostgreSQL::Test::Utils::tempdir();
	chdir($folder) or die;
	command_ok([ "$bin/pg_upgrade", '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $old->config_data('--bindir'), '-B', $bin,
		'-s', $new->host, '-p', $old->port, '-P', $new->port ], "pg_upgrade of the $name")
	  or diag(map { ("--- $_\n", join("\n", (split(/\n/, slurp_file($_)))[-15 .. -1]), "\n") } glob($new->data_dir . '/pg_upgrade_output.d/*/log/pg_upgrade_*.log'));
	my $log = join('', map { slurp_file($_) } glob($new->data_dir . '/pg_upgrade_output.d/*/log/*.log'), glob("$folder/*.log"));
	unlike($log, qr/incload (launcher|scheduler)/, 'no worker was started meanwhile');
	return $new;
}

# everything that incload keeps, to the last column
sub kept
{
	my ($node) = @_;
	return $node->safe_psql('postgres', join('; ',
		(map { "SELECT t FROM incload.${_}_store t ORDER BY t::text" } qw(job checkpoint schedule run event batch_window)),
		map { "SELECT last_value, is_called FROM incload.${_}_id_seq" } qw(job run window)));
}

sub run_job
{
	my ($job) = @_;
	return as_loader($target, "SELECT status, rows_read, rows_inserted, rows_updated, rows_unchanged FROM incload_run('$job')");
}

# loaded TABLE ROWS NAME: a job that is due has got so many rows into it
sub loaded
{
	my ($table, $rows, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(wait_for(60, sub { as_loader($target, "SELECT count(*) FROM $table") eq $rows }), $name)
	  or diag($target->safe_psql('postgres', 'SELECT job, status, sqlstate, error FROM incload.run ORDER BY run_id DESC LIMIT 20'));
	return;
}

# nobody runs any more
sub stop_workers
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$target->safe_psql('postgres', 'SELECT incload_worker_stop()');
	ok(wait_for(60, sub { $target->safe_psql('postgres', q{SELECT count(*) FROM incload.worker WHERE kind = 'scheduler' OR (kind = 'runner' AND state <> 'idle')}) eq '0' }), 'the target comes to rest');
	return;
}

sub equal_everywhere
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_deeply([ differences($source, $target, 'items', 'dw.items', 'dw.bare'), map { scalar differences($source, $target, $_, "dw.$_") } qw(log strip changes) ],
		[ ('0|0') x 5 ], "$name: every row is there once");
	is_deeply([ map { scalar differences($target, $target, "dw.$_", "dw.${_}_copy") } qw(here here_log) ], [ ('0|0') x 2 ], 'those of this database, too');
	return;
}

connect_target($target, $source);
$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text NOT NULL, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO items SELECT i, 'v', '2020-01-01Z'::timestamptz + i * interval '1 hour' FROM generate_series(1, 1000) i;
	CREATE TABLE log (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int);
	INSERT INTO log (v) SELECT i FROM generate_series(1, 500) i;
	CREATE TABLE strip (id int PRIMARY KEY, v int NOT NULL, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO strip SELECT i, 0 FROM generate_series(1, 100) i;
	CREATE TABLE changes (id int PRIMARY KEY, v int NOT NULL);
	INSERT INTO changes SELECT i, 0 FROM generate_series(1, 200) i;
	GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO reader});
foreign_table($target, qw(items log strip changes));
as_loader($target, q{
	CREATE TABLE dw.here (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO dw.here SELECT i, 'v', '2020-01-01Z'::timestamptz + i * interval '1 hour' FROM generate_series(1, 50) i;
	CREATE TABLE dw.here_log (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int);
	INSERT INTO dw.here_log (v) SELECT i FROM generate_series(1, 60) i;
	CREATE TABLE dw.bare (id int, v text, updated_at timestamptz);
	SELECT incload_create_job('items', 'src.items', 'dw.items', 'upsert', 'updated_at', '{id}', schedule => '1 second', options => '{"lookback": "0"}');
	SELECT incload_create_job('bare', 'src.items', 'dw.bare', 'upsert', 'updated_at', '{id}', schedule => '1 second');
	SELECT incload_create_job('log', 'src.log', 'dw.log', 'append', 'id', '{}', schedule => 'CRON_TZ=Europe/Berlin 0 0 1 1 *');
	SELECT incload_create_job('strip', 'src.strip', 'dw.strip', 'upsert', 'updated_at', '{id}', options => '{"lookback": "1 day"}');
	SELECT incload_create_job('changes', 'src.changes', 'dw.changes', 'upsert', 'xmin', '{id}');
	SELECT incload_create_job('here', 'dw.here', 'dw.here_copy', 'upsert', 'updated_at', '{id}', schedule => '1 second');
	SELECT incload_create_job('here_log', 'dw.here_log', 'dw.here_log_copy', 'append', 'id', '{}', schedule => '1 second');
	SELECT incload_run('log')});
loaded('dw.items', 1000, 'jobs run on the old server');
loaded('dw.bare', 1000, 'one without a unique index');
loaded('dw.here_copy', 50, 'one with a source beside its target');
loaded('dw.here_log_copy', 60, 'and without a key');
settle($source, 'strip');
run_job($_) foreach qw(strip strip changes);
as_loader($target, q{SELECT incload_pause('items'); SELECT incload_backfill('items', '2020-01-01Z', '2020-02-13Z', '1 day'); SELECT incload_alter_job('log', schedule => 'none')});

# what is kept is looked at, and new rows and backdated changes come
stop_workers();
as_loader($target, q{INSERT INTO dw.here VALUES (100, 'new'); INSERT INTO dw.here_log (v) VALUES (100)});
my $before = kept($target);
like($before, qr/pending/, 'with windows of a backfill in the ledger');
my $last_run = $target->safe_psql('postgres', 'SELECT max(run_id) FROM incload.run');
my $checksums = $target->safe_psql('postgres', 'SHOW data_checksums');
my $identifier = $target->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()');
$target->stop;
$source->safe_psql('postgres', q{INSERT INTO items VALUES (2000, 'new'); INSERT INTO log (v) VALUES (501); UPDATE items SET v = 'backdated' WHERE id % 100 = 3;
	UPDATE strip SET v = 1 WHERE id = 7; UPDATE changes SET v = 1 WHERE id = 7});

$target = upgrade($target, 'target_upgraded', "${conf}incload.databases = 'nowhere'\n", $checksums);
$target->start;
isnt($target->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()'), $identifier, 'it is another server');
is(kept($target), $before, 'each job, checkpoint, schedule, run, event and window is there');
is(run_job('strip'), 'succeeded|1|0|1|0', 'what the source has shown before is known');
is(run_job('changes'), 'succeeded|1|0|1|0', 'by the watermark xmin, too');
$target->append_conf('postgresql.conf', "incload.databases = '*'\n");
$target->reload;
loaded('dw.here_copy', 51, 'a job goes on by itself whose source was upgraded with it');
loaded('dw.here_log_copy', 61, 'without a key, too');
loaded('dw.bare', 1001, 'so does one without a unique index on its target');
as_loader($target, q{SELECT incload_resume('items'); SELECT incload_alter_job('log', schedule => '1 second')});
loaded('dw.items', 1001, 'one that was paused goes on from its checkpoint');
loaded('dw.log', 501, 'one without a key, too');
ok(wait_for(60, sub { as_loader($target, q{SELECT count(*) FROM incload.batch_window WHERE state <> 'done'}) eq '0' }), 'and the backfill');
is($target->safe_psql('postgres', qq{SELECT count(*) FROM incload.run WHERE run_id > $last_run AND status = 'failed'}), '0', 'no run has failed');
is(as_loader($target, q{SELECT count(*) FROM incload.run WHERE job = 'items' AND kind = 'incremental' AND rows_inserted > 1 AND run_id > } . $last_run), '0', 'nothing was read from the beginning');
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.event WHERE code IN ('source_replaced', 'source_changed', 'new_timeline')}), '0', 'and nobody was alarmed');
as_loader($target, q{SELECT incload_backfill('bare', '2020-01-01Z', '2020-02-13Z')});
ok(wait_for(60, sub { as_loader($target, q{SELECT count(*) FROM incload.batch_window WHERE state <> 'done'}) eq '0' }), 'a backfill begins anew');
equal_everywhere('the target was upgraded');

# The source's turn. Nothing tells that it has the same rows: its jobs stop until that is said.
stop_workers();
like(run_job($_), qr/^succeeded\|0\|/, "$_ knows all there is") foreach qw(strip changes);
$last_run = $target->safe_psql('postgres', 'SELECT max(run_id) FROM incload.run');
$source->safe_psql('postgres', q{INSERT INTO items VALUES (2001, 'last'); INSERT INTO log (v) VALUES (502); UPDATE strip SET v = 2 WHERE id = 8; UPDATE changes SET v = 2 WHERE id = 8});
$checksums = $source->safe_psql('postgres', 'SHOW data_checksums');
$source->stop;
$source = upgrade($source, 'source_upgraded', '', $checksums);
listen_with_password($source);
$source->start;
$source->safe_psql('postgres', q{INSERT INTO items VALUES (2002, 'first'); INSERT INTO log (v) VALUES (503); UPDATE strip SET v = 3 WHERE id = 9; UPDATE changes SET v = 3 WHERE id = 9});
$target->safe_psql('postgres', "ALTER SERVER source OPTIONS (SET port '" . $source->port . "')");
$target->safe_psql('postgres', 'SELECT incload_worker_start()');
my @jobs = qw(items bare log strip changes);
foreach my $job (qw(strip changes))
{
	fails_with($target, 'loader', "SELECT incload_run('$job')", '55000', qr/source src.$job of job "$job" is on another server.*incload_accept_source/s, "$job does not take another server for granted");
}
ok(wait_for(60, sub { $target->safe_psql('postgres', q{SELECT count(DISTINCT job) FROM incload.event WHERE code = 'source_changed' AND severity = 'page'}) eq @jobs }), 'nor do those that run by themselves, and each says so');
is($target->safe_psql('postgres', qq{SELECT coalesce(sum(rows_read), 0) FROM incload.run WHERE run_id > $last_run AND job IN ('items', 'bare', 'log', 'strip', 'changes')}), '0', 'nothing was read');
# after failures enough one pauses itself
as_loader($target, join('; ', map { "SELECT incload_accept_source('$_'); SELECT incload_resume('$_')" } @jobs));
loaded('dw.items', 1003, 'a job goes on once the source is accepted');
loaded('dw.bare', 1003, 'each does');
loaded('dw.log', 503, 'without a key, too');
is(run_job('strip'), 'succeeded|100|0|2|98', 'what is within the lookback is looked at again once');
is(run_job('changes'), 'succeeded|200|0|2|198', 'by the watermark xmin, everything');
$source->safe_psql('postgres', 'UPDATE strip SET v = 4 WHERE id = 10; UPDATE changes SET v = 4 WHERE id = 10');
is(run_job($_), 'succeeded|1|0|1|0', "then $_ knows again what it has seen") foreach qw(strip changes);
is($target->safe_psql('postgres', qq{SELECT sum(rows_read) FROM incload.run WHERE run_id > $last_run AND job = 'log'}), '2', 'nothing was read twice where that would double it');
cmp_ok($target->safe_psql('postgres', qq{SELECT max(rows_read) FROM incload.run WHERE run_id > $last_run AND job = 'items'}), '<', 10, 'and nothing from the beginning');
equal_everywhere('the source was upgraded');

$target->stop;
$source->stop;
done_testing();
