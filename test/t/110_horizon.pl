# Whoever is open at the source when a job runs, and however he shows there,
# loses no row: HorizonTest says how that is proven.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use HorizonTest;
use IncloadTest;

my ($source, $target) = horizon_nodes("wal_level = logical\nmax_wal_senders = 5\nmax_replication_slots = 5\nrestart_after_crash = on");

my $seen = qr/^exact: pid (\d+) \(110_horizon.pl\), since \d{4}-\S+ [\d:.]+\+00$/;
my $unseen = qr/^exact: pid (\d+) \(110_horizon.pl\), since \d{4}-\S+ [\d:.]+\+00 or earlier$/;
my $before = q{BEGIN; INSERT INTO t (who) VALUES ('before')};
my $late = q{SELECT nextval('t_id_seq'); SELECT gate(); INSERT INTO t (id, who) VALUES (lastval(), 'late')};

# a session that is idle in its transaction
add_place('seen', in_session('BEGIN'), held => $seen);
add_place('unseen', in_session('BEGIN'), held => $unseen, reader => 'plain');
add_place('untracked', in_session('SET track_activities = off; BEGIN'), held => $unseen);
add_place('untracked_then', in_session('BEGIN; SET track_activities = off'), held => $unseen);
add_place('untracked_first', in_session('SET track_activities = off; BEGIN; SET track_activities = on; SELECT 1'), held => $unseen);
add_place('chained', in_session("$before; COMMIT AND CHAIN"), held => $seen, before => ' before', settled => 'first before');

# a transaction that began inside a message: its rows bear the message's arrival
add_place('inside', in_message("$before; COMMIT; BEGIN; $late; COMMIT"), held => $seen, before => ' before');
add_place('inside_chained', in_message("$before; COMMIT AND CHAIN; $late; COMMIT"), held => $seen, before => ' before');
add_place('inside_unseen', in_message("$before; COMMIT; BEGIN; $late; COMMIT"), held => $unseen, before => ' before', reader => 'plain');

# no session at all
add_place('prepared', prepared(q{INSERT INTO t (who) VALUES ('late')}));
add_place('prepared_unseen', prepared(q{INSERT INTO t (who) VALUES ('late')}), reader => 'plain');

prove_places(qw(seen unseen untracked untracked_then untracked_first chained inside inside_chained inside_unseen prepared prepared_unseen));

# a server that tracks nobody; and a crash that takes the sessions along and leaves what is prepared
$source->safe_psql('postgres', 'ALTER SYSTEM SET track_activities = off; SELECT pg_reload_conf()');
add_place('nobody_tracked', in_session('BEGIN'), held => $unseen);
add_place('crash', prepared(q{INSERT INTO t (who) VALUES ('late')}));
open_places('nobody_tracked', 'crash');
write_places('nobody_tracked', 'crash');
close_places('nobody_tracked');
$source->safe_psql('postgres', 'ALTER SYSTEM RESET track_activities; SELECT pg_reload_conf()');

my $started = $source->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
crash_backend($source);
is($source->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'a crash of one backend leaves the start time');
is($source->safe_psql('postgres', q{SELECT string_agg(DISTINCT virtualtransaction, ' ') LIKE '-1/%' FROM pg_locks WHERE pid IS NULL}), 't',
	'and gives the prepared transaction another name');
run_places('crash');
are_held('after a crash of the source', 'crash');
close_places('crash');

# who holds nothing: who streams changes has been active since he began, who keeps an advisory lock is
# idle, and autovacuum writes no rows
my @free = qw(free free_unseen);
add_place('free');
add_place('free_unseen', reader => 'plain');
my $said = '';
my (@keepers, @streams);
foreach my $name (@free)
{
	$source->safe_psql($name, qq{
		INSERT INTO t (who) VALUES ('first');
		SELECT pg_create_logical_replication_slot('$name', 'test_decoding');
		CREATE TABLE dead (v text) WITH (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0,
			autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_cost_delay = 100);
		INSERT INTO dead SELECT repeat('x', 1000) FROM generate_series(1, 3000);
		DELETE FROM dead});
	push @streams, IPC::Run::start([ 'pg_recvlogical', '-d', $source->connstr($name), '--slot', $name, '--start', '-f', '/dev/null' ],
		'<', \undef, '>&', \$said);
	push @keepers, $source->background_psql($name);
	$keepers[-1]->query_safe('SELECT pg_advisory_lock(1)');
}
$source->safe_psql('postgres', q{ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET autovacuum_naptime = '1s'; SELECT pg_reload_conf()});
my $at_work = q{SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'free%'
	AND (backend_type = 'autovacuum worker' AND xact_start IS NOT NULL OR query LIKE 'START_REPLICATION%' AND state = 'active')};
ok(wait_for(60, sub { $source->safe_psql('postgres', $at_work) == 4 }), 'a stream and autovacuum in each database') or diag $said;
sleep(2.3);
run_places(@free);
run_places(@free);
is($source->safe_psql('postgres', $at_work), 4, 'have not ended meanwhile');
my $free = look(@free);
foreach my $name (@free)
{
	is($free->{$name}{rows}, 'first / first / first / first', "$name: they do not hold back rows");
	is($free->{$name}{says}, 'exact: free', "$name: nor the checkpoint");
}
$_->kill_kill foreach @streams;
$_->quit foreach @keepers;

done_testing();
