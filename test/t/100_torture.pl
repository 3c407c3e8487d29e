# Loses no row and doubles none: writers whose transactions overlap, commit
# late, roll back and prepare, while jobs run and servers are killed.
#
# INCLOAD_TORTURE_SECONDS (20) and INCLOAD_TORTURE_SEED (random) set how long
# and which; INCLOAD_TORTURE_SLEEP (3000) is the longest pause of a writer, in
# milliseconds. With INCLOAD_TORTURE_NAIVE=1 a reader that trusts
# max(updated_at) runs beside, and what it loses is printed.
use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{INCLOAD_TORTURE_SECONDS} // 20;
my $seed    = $ENV{INCLOAD_TORTURE_SEED} // int(rand(1_000_000));
my $pause   = $ENV{INCLOAD_TORTURE_SLEEP} // 3000;
srand($seed);
note "seed $seed, $seconds s, pauses up to $pause ms";

my $source = PostgreSQL::Test::Cluster->new('source');
my $target = PostgreSQL::Test::Cluster->new('target');
for my $node ($source, $target)
{
	$node->init;
	$node->append_conf('postgresql.conf', <<'CONF');
max_prepared_transactions = 50
max_connections = 60
fsync = off
restart_after_crash = on
CONF
	$node->start;
}

$source->safe_psql('postgres', <<'SQL');
CREATE TABLE changing (id bigserial PRIMARY KEY, v int NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON changing (updated_at);
CREATE TABLE growing (id bigserial PRIMARY KEY, v int);
CREATE TABLE stamped (id bigserial PRIMARY KEY, at timestamptz NOT NULL);
CREATE INDEX ON stamped (at);
INSERT INTO changing (v) SELECT 0 FROM generate_series(1, 50);
SQL
my ($host, $port) = ($source->host, $source->port);
$target->safe_psql('postgres', <<SQL);
CREATE EXTENSION postgres_fdw;
CREATE EXTENSION incload;
CREATE SERVER source FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host '$host', port '$port', dbname 'postgres');
CREATE USER MAPPING FOR CURRENT_USER SERVER source;
CREATE SCHEMA src;
IMPORT FOREIGN SCHEMA public FROM SERVER source INTO src;
SELECT incload_create_job('changing', 'src.changing', 'changing');
SELECT incload_create_job('batched', 'src.changing', 'batched', options => '{"batch_rows": 20, "lookback": "0"}');
SELECT incload_create_job('keyed', 'src.growing', 'keyed');
CREATE TABLE unkeyed (id bigint, v int);
SELECT incload_create_job('unkeyed', 'src.growing', 'unkeyed', strategy => 'append', watermark => 'id', key => '{}');
SELECT incload_create_job('stamped', 'src.stamped', 'stamped', strategy => 'upsert', watermark => 'at');
CREATE TABLE naive (id bigint PRIMARY KEY, v int, updated_at timestamptz);
SQL
is($target->safe_psql('postgres', "SELECT strategy || ' ' || coalesce(key::text, '') FROM incload.job WHERE job = 'unkeyed'"),
	'append {}', 'a job without a key is among them');

# writers: each takes its watermark early and ends late, in one way or another
my $dir = PostgreSQL::Test::Utils::tempdir;
my %script = (
	change => <<"SQL",
\\set pause1 random(1, $pause) * random(0, 1) * random(0, 1)
\\set pause2 random(1, $pause) * random(0, 1) * random(0, 1)
\\set id random(1, 60)
\\set end random(1, 10)
BEGIN;
SELECT now();
\\sleep :pause1 ms
UPDATE changing SET v = v + 1, updated_at = now() WHERE id = :id;
SAVEPOINT s;
INSERT INTO changing (v) VALUES (1);
\\if :end < 4
ROLLBACK TO s;
\\endif
\\sleep :pause2 ms
\\if :end = 10
ROLLBACK;
\\else
COMMIT;
\\endif
SQL
	grow => <<"SQL",
\\set pause1 random(1, $pause) * random(0, 1) * random(0, 1)
\\set pause2 random(1, $pause) * random(0, 1) * random(0, 1)
\\set end random(1, 8)
BEGIN;
SELECT nextval('growing_id_seq') AS id \\gset
\\sleep :pause1 ms
INSERT INTO growing (id, v) VALUES (:id, 1);
INSERT INTO growing (v) VALUES (2), (3);
\\sleep :pause2 ms
\\if :end = 8
ROLLBACK;
\\else
COMMIT;
\\endif
SQL
	prepare => <<"SQL",
\\set pause1 random(1, $pause) * random(0, 1)
\\set pause2 random(1, $pause) * random(0, 1)
\\set name random(1, 1000000000)
BEGIN;
INSERT INTO changing (v) VALUES (100);
INSERT INTO growing (v) VALUES (100);
\\sleep :pause1 ms
PREPARE TRANSACTION 'p:name';
\\sleep :pause2 ms
COMMIT PREPARED 'p:name';
SQL
	stamp => <<"SQL",
\\set age random(0, 60000)
\\set pause1 random(1, $pause) * random(0, 1)
SELECT clock_timestamp() - :age * interval '1 ms' AS at \\gset
\\sleep :pause1 ms
INSERT INTO stamped (at) VALUES (':at');
SQL
);
my @files;
for my $name (sort keys %script)
{
	PostgreSQL::Test::Utils::append_to_file("$dir/$name.sql", $script{$name});
	push @files, '-f', "$dir/$name.sql\@" . ($name eq 'prepare' ? 1 : 3);
}
my @writer = ('pgbench', '-n', '-c', 12, '-j', 1, '-T', 600, '-h', $host, '-p', $port, @files, 'postgres');
my $writers;
my $noise = '';

sub start_writers
{
	$noise = '';
	$writers = IPC::Run::start(\@writer, '<', \undef, '>&', \$noise);
}

sub stop_writers
{
	$writers->kill_kill if $writers;
	undef $writers;
}

my $naive_mark = '-infinity';

sub run_all
{
	my $count = 0;
	for my $job (qw(changing batched keyed unkeyed stamped))
	{
		my $sql = $job eq 'batched' ? "CALL incload_run_in_batches('$job')" : "SELECT incload_run('$job')";
		$count++ if $target->psql('postgres', $sql, timeout => 60) == 0;
	}
	if ($ENV{INCLOAD_TORTURE_NAIVE})
	{
		my $top = $source->safe_psql('postgres', 'SELECT max(updated_at) FROM changing');
		$target->psql('postgres', "INSERT INTO naive SELECT * FROM src.changing WHERE updated_at > '$naive_mark'"
			. " ON CONFLICT (id) DO UPDATE SET v = excluded.v, updated_at = excluded.updated_at");
		$naive_mark = $top;
	}
	return $count;
}

my ($runs, $kills) = (0, 0);
my $end = time + $seconds;
start_writers();
while (time < $end)
{
	$runs += run_all();
	my $dice = rand;
	if ($dice < 0.04)
	{
		# the source crashes; prepared transactions stay
		stop_writers();
		$source->stop('immediate');
		$source->start;
		start_writers();
		$kills++;
	}
	elsif ($dice < 0.07)
	{
		# one backend of the source dies: the server restarts under its old start time
		my $pid = $source->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE query LIKE '%changing%' AND pid <> pg_backend_pid() LIMIT 1");
		stop_writers();
		kill 'KILL', $pid if $pid =~ /^\d+$/;
		$source->poll_query_until('postgres', 'SELECT true') or die 'source is gone';
		start_writers();
		$kills++;
	}
	elsif ($dice < 0.11)
	{
		# the target dies in the middle of a run
		my $runner = IPC::Run::start([ 'psql', '-XAtq', '-h', $target->host, '-p', $target->port, '-c',
				"SELECT incload_run('changing')", 'postgres' ], '<', \undef, '>', \my $out, '2>', \my $err);
		sleep(rand(0.05));
		$target->stop('immediate');
		$runner->finish;
		$target->start;
		$kills++;
	}
	sleep(0.05);
}
note "$runs runs, $kills crashes";
cmp_ok($runs, '>', 10, 'jobs ran while the writers wrote');

stop_writers();
$source->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pgbench'");
$source->safe_psql('postgres', "COMMIT PREPARED '$_'")
  for split /\n/, $source->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts');
sleep(2.5);    # the margin that the bound keeps behind the clock
is(run_all(), 5, 'the last run of each job succeeds');
is(run_all(), 5, 'and so does one more');

for my $pair ([ 'changing', 'changing' ], [ 'changing', 'batched' ], [ 'growing', 'keyed' ],
	[ 'growing', 'unkeyed' ], [ 'stamped', 'stamped' ])
{
	my ($from, $to) = @$pair;
	my $sql = "SELECT * FROM %s ORDER BY 1, 2";
	my $want = $source->safe_psql('postgres', sprintf($sql, $from));
	my $got  = $target->safe_psql('postgres', sprintf($sql, "public.$to"));
	my $rows = () = $want =~ /\n/g;
	cmp_ok($rows, '>', 20, "$from has rows to lose");
	ok($got eq $want, "$to is equal to $from, row by row (seed $seed)")
	  or diag_difference($want, $got);
}
if ($ENV{INCLOAD_TORTURE_NAIVE})
{
	my %got = map { $_ => 1 } split /\n/, $target->safe_psql('postgres', 'SELECT * FROM naive');
	my @want = split /\n/, $source->safe_psql('postgres', 'SELECT * FROM changing');
	diag sprintf('max(updated_at) lost %d of %d rows', scalar(grep { !$got{$_} } @want), scalar @want);
}

sub diag_difference
{
	my %want = map { $_ => 1 } split /\n/, shift;
	my %got;
	$got{$_}++ for split /\n/, shift;
	diag "missing: $_" for (sort grep { !$got{$_} } keys %want)[ 0 .. 9 ];
	diag "too much: $_" for (grep { !$want{$_} || $got{$_} > 1 } sort keys %got)[ 0 .. 9 ];
}

done_testing();
