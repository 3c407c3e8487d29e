# pg_upgrade with jobs on a schedule and a backfill that is not done: its servers start no
# worker, and the upgraded one goes on by itself, from each checkpoint and from the ledger.
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
my $old_server = $ENV{INCLOAD_OLD_SERVER};
my $source = new_source();
my $old = new_target($conf, $old_server ? (install_path => $old_server) : ());

connect_target($old, $source);
$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text NOT NULL, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO items SELECT i, 'v', '2020-01-01Z'::timestamptz + i * interval '1 hour' FROM generate_series(1, 1000) i;
	CREATE TABLE log (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int);
	INSERT INTO log (v) SELECT i FROM generate_series(1, 500) i;
	GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO reader});
foreign_table($old, 'items', 'log');
as_loader($old, q{
	SELECT incload_create_job('items', 'src.items', 'dw.items', 'upsert', 'updated_at', '{id}', schedule => '1 second', options => '{"lookback": "0"}');
	SELECT incload_create_job('log', 'src.log', 'dw.log', 'append', 'id', '{}', schedule => 'CRON_TZ=Europe/Berlin 0 0 1 1 *');
	SELECT incload_run('log')});
ok(wait_for(60, sub { as_loader($old, 'SELECT count(*) FROM dw.items') eq '1000' }), 'jobs run on the old server');
as_loader($old, q{SELECT incload_pause('items'); SELECT incload_backfill('items', '2020-01-01Z', '2020-02-13Z', '1 day'); SELECT incload_alter_job('log', schedule => 'none')});
my $state = q{SELECT job, owner, source, target, schedule, key, bound, bound_side, loaded_to FROM incload.job JOIN incload.checkpoint USING (job_id, job) ORDER BY job};
my $before = $old->safe_psql('postgres', $state);
is($old->safe_psql('postgres', q{SELECT count(*) FROM incload.batch_window WHERE state = 'pending'}), '43', 'a paused job leaves its windows in the ledger');
my $last_run = $old->safe_psql('postgres', 'SELECT max(run_id) FROM incload.run');
$old->stop;

# new rows and backdated changes come meanwhile
$source->safe_psql('postgres', q{INSERT INTO items VALUES (2000, 'new'); INSERT INTO log (v) VALUES (501); UPDATE items SET v = 'backdated' WHERE id % 100 = 3});

my $new = PostgreSQL::Test::Cluster->new('upgraded');
$new->init(extra => [ '--locale=C', '--encoding=UTF8' ]);
$new->append_conf('postgresql.conf', $conf);
my $bin = $new->config_data('--bindir');
my $old_bin = $old->config_data('--bindir');
my $folder = PostgreSQL::Test::Utils::tempdir();
chdir($folder) or die;
command_ok([ "$bin/pg_upgrade", '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $old_bin, '-B', $bin,
	'-s', $new->host, '-p', $old->port, '-P', $new->port ], 'pg_upgrade');
unlike(join('', map { slurp_file($_) } glob($new->data_dir . '/pg_upgrade_output.d/*/log/*.log'), glob("$folder/*.log")),
	qr/incload (launcher|scheduler)/, 'no worker was started meanwhile');
$new->start;
is($new->safe_psql('postgres', $state), $before, 'each job and checkpoint is there');
as_loader($new, q{SELECT incload_resume('items'); SELECT incload_alter_job('log', schedule => '1 second')});
ok(wait_for(60, sub { as_loader($new, 'SELECT count(*) FROM dw.items') eq '1001' }), 'a job goes on by itself');
ok(wait_for(60, sub { as_loader($new, 'SELECT count(*) FROM dw.log') eq '501' }), 'one without a key, too');
ok(wait_for(60, sub { as_loader($new, q{SELECT count(*) FROM incload.batch_window WHERE state <> 'done'}) eq '0' }), 'and the backfill');
is_deeply([ differences($source, $new, 'items', 'dw.items') ], ['0|0'], 'every row is there once');
is_deeply([ differences($source, $new, 'log', 'dw.log') ], ['0|0'], 'of each table');
is(as_loader($new, q{SELECT count(*) FROM incload.run WHERE job = 'items' AND kind = 'incremental' AND rows_inserted > 1 AND run_id > } . $last_run), '0', 'nothing was read from the beginning');

$new->stop;
$source->stop;
done_testing();
