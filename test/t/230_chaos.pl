# Fifty jobs on a schedule of a second over live writers, while workers, servers and
# connections die at random. Afterwards nobody has to do anything: all jobs run again by
# themselves, and every target is equal to its source.
#
#   INCLOAD_CHAOS_SECONDS   how long (60); for some 500 and more, FILE_TIMEOUT has to be longer as well
#   INCLOAD_CHAOS_SEED      of the order in which things die
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use IncloadProxy;
use IncloadTest;

my $seconds = $ENV{INCLOAD_CHAOS_SECONDS} || 60;
my $seed = $ENV{INCLOAD_CHAOS_SEED} || int(rand(2**31));
my $tables = 5;
my $copies = 5;

note("INCLOAD_CHAOS_SEED=$seed");
srand($seed);

my ($source, $target) = two_nodes(source => "restart_after_crash = on\n", target => q{
	shared_preload_libraries = 'incload'
	restart_after_crash = on
	max_worker_processes = 24
	incload.max_workers = 6
	incload.naptime = '200ms'
});
my $proxy = IncloadProxy->new($source->port);
my $port = $proxy->port;

$target->safe_psql('postgres', "ALTER SERVER source OPTIONS (SET port '$port')");
foreach my $n (1 .. $tables)
{
	$source->safe_psql('postgres', qq{
		CREATE TABLE items$n (id int PRIMARY KEY, v int NOT NULL, updated_at timestamptz NOT NULL DEFAULT now());
		INSERT INTO items$n SELECT i, 0 FROM generate_series(1, 500) i;
		CREATE TABLE log$n (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int NOT NULL)});
}
$source->safe_psql('postgres', 'GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO reader');
foreign_table($target, map { ("items$_", "log$_") } 1 .. $tables);
foreach my $n (1 .. $tables)
{
	as_loader($target, join('', map { qq{
		SELECT incload_create_job('items${n}_$_', 'src.items$n', 'dw.items${n}_$_', 'upsert', 'updated_at', '{id}',
			schedule => '1 second', options => '{"retry_delay": "500 ms"}');
		SELECT incload_create_job('log${n}_$_', 'src.log$n', 'dw.log${n}_$_', 'append', 'id', '{}',
			schedule => '1 second', options => '{"retry_delay": "500 ms"}');
	} } 1 .. $copies));
}
is(as_loader($target, 'SELECT count(*) FROM incload.job WHERE schedule IS NOT NULL'), 2 * $tables * $copies, 'the jobs');

# writers: short ones, and transactions that commit late; they come back when their server does
my $script = PostgreSQL::Test::Utils::tempdir() . '/write.pgbench';
append_to_file($script, q{
\set n random(1, 5)
\set pause random(1, 1500)
BEGIN;
SELECT set_config('chaos.n', :n::text, true);
DO $$ BEGIN
	EXECUTE format('UPDATE items%s SET v = v + 1, updated_at = now() WHERE id = %s', current_setting('chaos.n'), 1 + (random() * 499)::int);
	EXECUTE format('INSERT INTO log%s (v) VALUES (1)', current_setting('chaos.n'));
END $$;
\sleep :pause ms
END;
});
my @writers = ('bash', '-c', 'trap \'kill $pid; exit\' TERM; while :; do "$@" & pid=$!; wait $pid; sleep 0.2; done', 'writers',
	$source->installed_command('pgbench'), '-n', '-c', 8, '-j', 1, '-T', 3600, '-f', $script,
	'-h', $source->host, '-p', $source->port, 'postgres');
my ($said, $complained) = ('', '');
my $writers = IPC::Run::start(\@writers, '<', \undef, '>', \$said, '2>', \$complained);

sub target_says
{
	my ($query) = @_;
	return try_query($target, $query) // '';
}

sub signal_worker
{
	my ($kind, $signal) = @_;
	my $pid = target_says("SELECT pid FROM incload.worker WHERE kind = '$kind' AND pid IS NOT NULL ORDER BY random() LIMIT 1");
	kill $signal, $pid if $pid;
	return;
}

my %deaths = (
	runner_terminated => sub { signal_worker('runner', 'TERM') },
	runner_killed => sub { signal_worker('runner', 'KILL') },
	scheduler_terminated => sub { signal_worker('scheduler', 'TERM') },
	scheduler_killed => sub { signal_worker('scheduler', 'KILL') },
	launcher_terminated => sub { signal_worker('launcher', 'TERM') },
	connections_reset => sub { $proxy->reset },
	connections_stalled => sub { $proxy->stall(0.5 + rand(3)) },
	readers_terminated => sub { try_query($source, q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'}) },
	source_restarted => sub { $source->stop('immediate'); usleep(rand(2_000_000)); $source->start },
	target_restarted => sub { $target->stop('immediate'); $target->start },
	run_cancelled => sub { target_says(q{SELECT incload_cancel(job) FROM incload.status WHERE state = 'running' LIMIT 1}) },
);
my %seen;
my $end = time() + $seconds;
while (time() < $end)
{
	my @names = sort keys %deaths;
	my $name = $names[ int(rand(@names)) ];

	$deaths{$name}->();
	$seen{$name}++;
	usleep(500_000 + rand(1_500_000));
}
note('what happened: ' . join(', ', map { "$_ $seen{$_}" } sort keys %seen));
$writers->signal('TERM');
$writers->finish;
# what it has left open is rolled back
$source->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pgbench'});
ok(wait_for(60, sub { target_says('SELECT 1') eq '1' }), 'the target is there');

# nobody does anything but wait
my $since = $target->safe_psql('postgres', 'SELECT clock_timestamp()');
my $waiting = qq{SELECT string_agg(job, ' ') FROM incload.job j WHERE NOT EXISTS (SELECT FROM incload.run u
	WHERE u.job = j.job AND u.trigger = 'schedule' AND u.status = 'succeeded' AND u.started_at > timestamptz '$since' + interval '5 s')};
ok(wait_for(150, sub { target_says($waiting) eq '' && target_says('SELECT 1') eq '1' }), 'all jobs run again by themselves')
  or diag($target->safe_psql('postgres', 'SELECT * FROM incload.status; SELECT * FROM incload.worker; SELECT *, now() FROM incload.schedule_store'));
is(target_says(q{SELECT count(*) FROM incload.job WHERE NOT enabled}), '0', 'none has paused itself');
foreach my $n (1 .. $tables)
{
	is_deeply([ differences($source, $target, "items$n", map { "dw.items${n}_$_" } 1 .. $copies) ], [ ('0|0') x $copies ], "every copy of items$n is equal to it");
	is_deeply([ differences($source, $target, "log$n", map { "dw.log${n}_$_" } 1 .. $copies) ], [ ('0|0') x $copies ], "and of log$n, without a key");
}
cmp_ok($source->safe_psql('postgres', join(' + ', map { "(SELECT count(*) FROM log$_)" } 1 .. $tables) =~ s/^/SELECT /r), '>', 100, 'there was something to load');
cmp_ok($target->safe_psql('postgres', q{SELECT count(*) FROM incload.run WHERE status = 'failed'}), '>', 0, 'and something to survive');
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.run WHERE status = 'running' AND pid NOT IN (SELECT pid FROM incload.worker WHERE pid IS NOT NULL)}), '0', 'no dead run is on record as running');

$proxy->stop;
$target->stop;
$source->stop;
done_testing();
