# IncloadTorture: jobs that run while writers' transactions overlap, commit late
# and roll back, and while clients, backends and servers are killed.
#
# torture() makes two servers, lets that go on for some seconds, lets the writers
# stop and each job run once more, and looks at what has become of it.
# test/torture/ has the tables and what the writers do, Mischief.pm what is done
# to all of them, Verdict.pm what must be true in the end.

package IncloadTorture;

use strict;
use warnings;

use Exporter;
use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

use IncloadTest qw(two_nodes listen_with_password as_loader last_run wait_for try_query);
use IncloadTorture::Children;
use IncloadTorture::Mischief;
use IncloadTorture::Verdict;

our @EXPORT = qw(torture);
our @ISA = qw(Exporter IncloadTorture::Mischief IncloadTorture::Verdict);

my $scripts = dirname(__FILE__) . '/../torture';

# Each job: what it reads (and where that is), how it is run ('run' for
# incload_run, 'batches', or 'both' in turns), what its watermark is to the
# writers (a time, an id, xmin, or '' for a clock that is not the server's), and
# how it is created. A lookback of 0 lets it lose what the horizon has not held.
my $upsert = q{strategy => 'upsert', key => '{id}', watermark => };
my $append = q{strategy => 'append', key => '{}', watermark => };
my $keyed  = q{strategy => 'append', key => '{id}', watermark => };
my $small  = q{options => '{"batch_rows": 20}'};
my $strict = q{options => '{"batch_rows": 20, "lookback": "0"}'};
my @jobs   = map { my %job; @job{qw(name source how kind create)} = @$_; \%job } (
	[ 'up_run',      'src.changing',    'run',     'time', "$upsert 'updated_at', $strict" ],
	[ 'up_batches',  'src.changing',    'batches', 'time', "$upsert 'updated_at', $strict" ],
	[ 'key_run',     'src.growing',     'run',     'id',   "$keyed 'id', $strict" ],
	[ 'key_batches', 'src.growing',     'batches', 'id',   "$keyed 'id', $strict" ],
	[ 'raw_run',     'src.growing',     'run',     'id',   "$append 'id', $small" ],
	[ 'raw_batches', 'src.growing',     'batches', 'time', "$append 'created_at', $small" ],
	[ 'up_blind',    'blind.changing',  'both',    'time', "$upsert 'updated_at', $strict" ],
	[ 'raw_blind',   'blind.growing',   'both',    'id',   "$append 'id', $small" ],
	[ 'parted',      'src.parted',      'both',    'time', "$upsert 'updated_at', $strict" ],
	[ 'joined',      'src.joined',      'both',    'time', "$upsert 'updated_at', $strict" ],
	[ 'by_xmin',     'src.changing',    'both',    'xmin', "$upsert 'xmin', $small" ],
	[ 'stamped',     'src.stamped',     'both',    '',     "$upsert 'at', $small" ],
	[ 'near_up',     'public.changing', 'both',    'time', "$upsert 'updated_at', $strict" ],
	[ 'near_raw',    'public.growing',  'both',    'id',   "$append 'id', $small" ],
	[ 'near_xmin',   'public.changing', 'both',    'xmin', "$upsert 'xmin', $small" ]);

# Who runs them: a session for each kind and way, and two that take turns.
my @runners = ([qw(up_run)], [qw(up_batches)], [qw(key_run)], [qw(key_batches)], [qw(raw_run)],
	[qw(raw_batches)], [qw(up_blind raw_blind stamped by_xmin)], [qw(parted joined near_up near_raw near_xmin)]);

# Writers: script@weight for each client process, and where. 'hidden' ones do
# not let their state be tracked, now and then.
my @mixed   = qw(change@8 wait@3 grow@8 message@2 chain@2 part@4 prepare@2);
my @writers = (
	(map { { where => 'source', clients => 5, scripts => \@mixed } } 1 .. 4),
	{ where => 'source', clients => 1, scripts => ['change@1', 'grow@1'], hidden => 1 },
	{ where => 'source', clients => 4, scripts => ['stamp@1'] },
	{ where => 'source', clients => 1, scripts => ['read@1'] },
	{ where => 'target', clients => 5, scripts => [qw(change@4 wait@1 grow@4 message@1 chain@1 prepare@1)] },
);

# torture(seed, seconds, sleep in ms, naive): see above. Returns figures.
sub torture
{
	my (%arg) = @_;
	my $self = bless { %arg, name => "seed $arg{seed}", jobs => \@jobs, hits => {} }, __PACKAGE__;

	srand($self->{seed});
	$self->make_servers;
	$self->make_jobs;
	$self->{children} = IncloadTorture::Children->new($self->{source}->logfile . '.clients');
	$self->start_writers($_) for qw(source target);
	$self->start_runners;
	$self->make_mischief(time + $self->{seconds});
	$self->end_writers;

	$self->last_runs;
	$self->verdict;
	foreach my $node ($self->{source}, $self->{target})
	{
		$node->stop('immediate');
		# the next round makes nodes of the same names
		$node->clean_node if Test::More->builder->is_passing;
	}
	return $self->{figures};
}

# query NODE SQL: what it printed; undef if the server is gone or refuses.
sub query
{
	my ($self, $where, $sql) = @_;
	return try_query($self->{$where}, $sql);
}

sub make_servers
{
	my ($self) = @_;
	my $conf = <<'CONF';
max_connections = 100
max_prepared_transactions = 60
max_worker_processes = 24
restart_after_crash = on
track_commit_timestamp = on
autovacuum = on
autovacuum_naptime = 5
log_statement = none
shared_buffers = 32MB
CONF

	($self->{source}, $self->{target}) = two_nodes(source => $conf, target => $conf);
	$self->{$_}->safe_psql('postgres', slurp_file("$scripts/schema.sql")) for qw(source target);
	$self->{source}->safe_psql('postgres', q{CREATE ROLE blind LOGIN PASSWORD 'blind''s secret'});
	# each run connects, and scram takes a good part of a short one
	listen_with_password($self->{source}, 'password');
	$self->{source}->reload;
	return;
}

sub make_jobs
{
	my ($self) = @_;
	my $port = $self->{source}->port;

	# a server whose reader does not see when other roles' transactions began
	$self->{target}->safe_psql('postgres', qq{
		CREATE SERVER blind FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '127.0.0.1', port '$port', dbname 'postgres');
		GRANT USAGE ON FOREIGN SERVER blind TO loader;
		CREATE USER MAPPING FOR loader SERVER blind OPTIONS (user 'blind', password 'blind''s secret');
		CREATE SCHEMA blind AUTHORIZATION loader;
		GRANT pg_read_all_stats TO loader});
	as_loader($self->{target}, q{
		IMPORT FOREIGN SCHEMA public EXCEPT (version) FROM SERVER source INTO src;
		IMPORT FOREIGN SCHEMA public LIMIT TO (changing, growing) FROM SERVER blind INTO blind});
	foreach my $job (@jobs)
	{
		as_loader($self->{target}, "SELECT FROM incload_create_job('$job->{name}', '$job->{source}',"
			. " 'dw.$job->{name}', $job->{create})");
	}
	# each checkpoint that is committed, and when at the earliest
	$self->{target}->safe_psql('postgres', q{
		CREATE TABLE checkpoint_kept (job_id bigint, bound text, side text, tied boolean, mark bigint,
			loaded_to text, at timestamptz NOT NULL DEFAULT clock_timestamp());
		CREATE INDEX ON checkpoint_kept (job_id, at);
		CREATE FUNCTION keep_checkpoint() RETURNS trigger LANGUAGE plpgsql AS
		$$
		BEGIN
			INSERT INTO public.checkpoint_kept
			VALUES (NEW.job_id, NEW.bound, NEW.bound_side, NEW.tie_key IS NOT NULL, NEW.mark::text::bigint,
				NEW.loaded_to);
			RETURN NULL;
		END
		$$;
		CREATE TRIGGER keep_checkpoint AFTER UPDATE ON incload.checkpoint_store
			FOR EACH ROW EXECUTE FUNCTION keep_checkpoint();
		CREATE TABLE dw.naive_up (LIKE changing INCLUDING INDEXES);
		CREATE TABLE dw.naive_raw (LIKE growing)});
	return;
}

# Writers, as pgbench; each process has its own seed.
sub start_writers
{
	my ($self, $where) = @_;
	my $node = $self->{$where};
	my $n = 0;

	foreach my $writer (grep { $_->{where} eq $where } @writers)
	{
		$self->{children}->keep("$where writer " . ++$n, sub {
			my $tracked = $writer->{hidden} && rand() < 0.5 ? 'off' : 'on';
			return ('env', 'PGAPPNAME=writer', "PGOPTIONS=-c track_activities=$tracked",
				$node->installed_command('pgbench'), '-n', '-c', $writer->{clients}, '-j', 1,
				'-T', 3600, '--max-tries', 5, '--random-seed', int(rand(1e9)), '-D', "max=$self->{sleep}",
				'-h', $node->host, '-p', $node->port,
				(map { ('-f', "$scripts/" . s/@/.pgbench@/r) } @{ $writer->{scripts} }), 'postgres');
		});
	}
	return;
}

# Runners: psql sessions that go through a long script, ten calls a second.
sub start_runners
{
	my ($self) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my %job = map { $_->{name} => $_ } @jobs;

	foreach my $runner (@runners)
	{
		my $file = "$dir/$runner->[0].sql";
		my @lines;
		for my $i (0 .. 199)
		{
			my $job = $job{ $runner->[ $i % @$runner ] };
			push(@lines, one_call($job), 'SELECT pg_sleep(0.1);');
		}
		append_to_file($file, join("\n", @lines, ''));
		$self->start_runner("runner of @$runner", 'loader', $file);
	}
	return if !$self->{naive};
	append_to_file("$dir/naive.sql", q{
		INSERT INTO dw.naive_up SELECT * FROM src.changing
			WHERE updated_at > (SELECT coalesce(max(updated_at), '-infinity') FROM dw.naive_up)
			ON CONFLICT (id) DO UPDATE SET v = excluded.v, updated_at = excluded.updated_at;
		INSERT INTO dw.naive_raw SELECT * FROM src.growing
			WHERE id > (SELECT coalesce(max(id), 0) FROM dw.naive_raw);
		SELECT pg_sleep(0.1);} x 200);
	$self->{target}->safe_psql('postgres', 'GRANT ALL ON dw.naive_up, dw.naive_raw TO loader');
	$self->start_runner('naive runner', 'loader', "$dir/naive.sql");
	return;
}

sub start_runner
{
	my ($self, $name, $role, $file) = @_;
	my $node = $self->{target};

	$self->{children}->keep($name, sub {
		return ('env', 'PGAPPNAME=runner', 'PGOPTIONS=-c client_min_messages=warning',
			$node->installed_command('psql'), '-Xq', '-o', '/dev/null', '-v', 'VERBOSITY=terse',
			'-h', $node->host, '-p', $node->port, '-U', $role, '-f', $file, 'postgres');
	});
	return;
}

# one_call JOB: mostly plain; now and then in a transaction, rolled back, in a
# snapshot that is older than the run, or stopped in the middle.
sub one_call
{
	my ($job) = @_;
	my $way = $job->{how} eq 'both' ? (rand() < 0.5 ? 'run' : 'batches') : $job->{how};
	my $call = $way eq 'run' ? "SELECT FROM incload_run('$job->{name}');"
	  : "CALL incload_run_in_batches('$job->{name}');";
	my $dice = rand();

	return 'SET statement_timeout = ' . (5 + int(rand(60))) . "; $call RESET statement_timeout;" if $dice < 0.05;
	return $call if $dice < 0.8 || $way eq 'batches';
	return "BEGIN; $call ROLLBACK;" if $dice < 0.85;
	return "BEGIN; SAVEPOINT one; $call ROLLBACK TO SAVEPOINT one; $call COMMIT;" if $dice < 0.9;
	# a local source is read in that snapshot, and then nobody promises anything
	return "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; $call COMMIT;"
	  if $dice < 0.95 && $job->{source} !~ /^public/;
	return "BEGIN; SAVEPOINT one; $call RELEASE SAVEPOINT one; COMMIT;";
}

# Nobody is left who could write; one that waits for a lock does not notice that
# its client is gone.
sub end_writers
{
	my ($self) = @_;
	my $anyone = q{FROM pg_stat_activity WHERE pid <> pg_backend_pid()
		AND (application_name IN ('writer', 'runner') OR application_name LIKE 'incload %')};

	$self->{children}->end_all;
	foreach my $where (qw(source target))
	{
		wait_for(120, sub {
			$self->query($where, "SELECT pg_terminate_backend(pid) $anyone");
			return ($self->query($where, "SELECT count(*) $anyone") // '') eq '0';
		}) or die "somebody stays at the $where";
	}
	$self->end_prepared(1);
	return;
}

# After the margin that the horizon keeps behind the clock, one run each brings
# all, and another one nothing.
sub last_runs
{
	my ($self) = @_;
	my ($failed, $again) = ('', '');

	sleep(2.5);
	foreach my $job (@jobs)
	{
		my $call = $job->{how} eq 'batches' ? "CALL incload_run_in_batches('$job->{name}')" : "SELECT incload_run('$job->{name}')";
		my ($status, undef, $err) = $self->{target}->psql('postgres', $call, extra_params => [ '-U', 'loader' ]);
		$failed .= "$job->{name}: $err" if $status != 0;
		$self->{target}->psql('postgres', $call, extra_params => [ '-U', 'loader' ]);
		my $changed = last_run($self->{target}, $job->{name}, 'status, rows_inserted + rows_updated');
		$again .= "$job->{name}: $changed\n" if $changed ne 'succeeded|0';
	}
	is($failed, '', "$self->{name}: the last run of each job succeeds");
	is($again, '', "$self->{name}: one more changes nothing");
	return;
}


1;
