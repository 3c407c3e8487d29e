# IncloadTorture: jobs that run while writers' transactions overlap, commit late
# and roll back, and while clients, backends and servers are killed.
#
# torture() makes two servers, lets that go on for some seconds, lets the writers
# stop and each job run once more, and then asserts that
# - each target has its source's rows, each exactly once;
# - no checkpoint that was ever committed was above the horizon (see
#   checkpoints_were_settled);
# - no run failed but for what was done to it.
# test/torture/ has the tables and what the writers do; here is who does it when.

package IncloadTorture;

use strict;
use warnings;

use Exporter 'import';
use File::Basename qw(dirname);
use List::Util qw(max shuffle sum);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

use IncloadTest;
use IncloadTorture::Children;

our @EXPORT = qw(torture);

my $scripts = dirname(__FILE__) . '/../torture';

# Each job: what it reads (and where that is), how it is created, how it is run
# ('run' for incload_run, 'batches', or 'both' in turns), and which writers'
# tables its watermark comes from, as a time or as an id ('' for a clock that is
# nobody's). A lookback of 0 lets it lose what the horizon has not held.
my $upsert = q{strategy => 'upsert', watermark => 'updated_at', key => '{id}'};
my $append = q{strategy => 'append', watermark => 'id'};
my @jobs   = (
	[ 'up_run',      'src.changing',    'run',     'time', $upsert,                    '' ],
	[ 'up_batches',  'src.changing',    'batches', 'time', $upsert,                    '' ],
	[ 'key_run',     'src.growing',     'run',     'id',   "$append, key => '{id}'",   '' ],
	[ 'key_batches', 'src.growing',     'batches', 'id',   "$append, key => '{id}'",   '' ],
	[ 'raw_run',     'src.growing',     'run',     'id',   "$append, key => '{}'",     'raw' ],
	[ 'raw_batches', 'src.growing',     'batches', 'time', q{strategy => 'append', watermark => 'created_at', key => '{}'}, 'raw' ],
	[ 'up_blind',    'blind.changing',  'both',    'time', $upsert,                    '' ],
	[ 'raw_blind',   'blind.growing',   'both',    'id',   "$append, key => '{}'",     'raw' ],
	[ 'parted',      'src.parted',      'both',    'time', $upsert,                    '' ],
	[ 'joined',      'src.joined',      'both',    'time', $upsert,                    '' ],
	[ 'stamped',     'src.stamped',     'both',    '',     q{strategy => 'upsert', watermark => 'at', key => '{id}'}, 'default' ],
	[ 'near_up',     'public.changing', 'both',    'time', $upsert,                    '' ],
	[ 'near_raw',    'public.growing',  'both',    'id',   "$append, key => '{}'",     'raw' ],
);
@jobs = map { my %job; @job{qw(name source how kind create note)} = @$_; \%job } @jobs;

# Who runs them: a session for each kind and way, and two that take turns.
my @runners = ([qw(up_run)], [qw(up_batches)], [qw(key_run)], [qw(key_batches)], [qw(raw_run)],
	[qw(raw_batches)], [qw(up_blind raw_blind stamped)], [qw(parted joined near_up near_raw)]);

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

# What a writer may end with: broken connections, a statement or a session that
# was ended, a prepared transaction that was ended for it, a deadlock too many.
my $expected_ends = join('|', 'terminating connection', 'canceling statement', 'backend died',
	'server closed the connection', 'connection to server', 'could not (create|receive|send)',
	'Run was aborted', 'prepared transaction with identifier .* (does not exist|is busy)');

# What a run may fail of: connections that break, servers that stop or start,
# a job that still runs elsewhere, a statement_timeout.
my $expected_failures = q{'^(08...|57P0.|55P03|57014)$'};

# torture(seed, seconds, sleep in ms, naive): see above. Returns figures.
sub torture
{
	my (%arg) = @_;
	my $self = bless {%arg, name => "seed $arg{seed}", hits => {}}, __PACKAGE__;

	srand($self->{seed});
	$self->make_servers;
	$self->make_jobs;
	$self->{children} = IncloadTorture::Children->new($self->{source}->logfile . '.clients');
	$self->start_writers($_) for qw(source target);
	$self->start_runners;
	$self->make_mischief(time + $self->{seconds});
	$self->end_writers;

	$self->last_runs;
	$self->figures;
	$self->targets_are_equal;
	$self->checkpoints_were_settled;
	$self->runs_were_sound;
	$_->stop('immediate') for $self->{source}, $self->{target};
	return $self->{figures};
}

# query NODE SQL: what it printed; undef if the server is gone or refuses.
sub query
{
	my ($self, $where, $sql) = @_;
	my ($status, $out) = $self->{$where}->psql('postgres', $sql, on_error_die => 0);
	return $status == 0 ? $out : undef;
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
		my $options = '{"batch_rows": 20' . ($job->{note} eq '' ? ', "lookback": "0"}' : '}');
		as_loader($self->{target}, "SELECT FROM incload_create_job('$job->{name}', '$job->{source}',"
			. " 'dw.$job->{name}', $job->{create}, options => '$options')");
	}
	# each checkpoint that is committed, and when at the earliest
	$self->{target}->safe_psql('postgres', q{
		CREATE TABLE checkpoint_kept (job_id bigint, bound text, side text, tied boolean, loaded_to text,
			at timestamptz NOT NULL DEFAULT clock_timestamp());
		CREATE INDEX ON checkpoint_kept (job_id, at);
		CREATE FUNCTION keep_checkpoint() RETURNS trigger LANGUAGE plpgsql AS
		$$
		BEGIN
			INSERT INTO public.checkpoint_kept
			VALUES (NEW.job_id, NEW.bound, NEW.bound_side, NEW.tie_key IS NOT NULL, NEW.loaded_to);
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

# make_mischief UNTIL: crash servers at times that are drawn beforehand, do
# lesser things in between, and start again what has ended.
sub make_mischief
{
	my ($self, $until) = @_;
	my $rounds = max(1, int($self->{seconds} / (15 + $self->{sleep} / 500)));
	my @crashes = map { my $where = $_; map { [ $where, $_ ] } qw(crash_server crash_backend) } qw(source target);
	my @due = sort { $a <=> $b } map { time + 3 + rand($self->{seconds} - 3) } 1 .. @crashes * $rounds;
	my @todo = map { shuffle(@crashes) } 1 .. $rounds;
	my @lesser = qw(kill_runner kill_writer end_backend end_backend end_prepared);
	my $next_lesser = time + 2;

	while (time < $until || @todo)
	{
		$self->{children}->look_after(sub { $self->is_up($_[0] =~ /^(source|target)/ ? $1 : 'target') });
		if (@due && time >= $due[0])
		{
			my ($where, $what) = @{ shift(@todo) };
			shift(@due);
			$self->$what($where);
		}
		elsif (time >= $next_lesser)
		{
			my $what = $lesser[ rand(@lesser) ];
			$self->$what;
			$next_lesser = time - log(1 - rand()) * 1.5;
		}
		sleep(0.05);
	}
	return;
}

sub is_up
{
	my ($self, $where) = @_;
	return defined($self->query($where, 'SELECT'));
}

sub hit { my ($self, $what) = @_; $self->{hits}{$what}++; return; }

# SIGKILL for the postmaster; what it leaves behind ends by itself, or with it.
sub crash_server
{
	my ($self, $where) = @_;
	my $node = $self->{$where};
	my @left = $self->server_pids($where);

	$node->kill9;
	gone(5, @left) or kill('KILL', @left);
	wait_for(60, sub { $node->start(fail_ok => 1) }) or die "$where does not start again";
	$self->after_crash($where, 'crash_server');
	return;
}

# SIGKILL for one backend: the server begins anew under its old start time.
sub crash_backend
{
	my ($self, $where) = @_;
	my @left = $self->server_pids($where, "backend_type = 'client backend'");
	my $pid = $self->some_backend($where) or return;

	kill('KILL', $pid);
	gone(30, @left) or die "$where has not begun anew";
	wait_for(60, sub { $self->is_up($where) }) or die "$where does not come back";
	$self->after_crash($where, 'crash_backend');
	return;
}

# Clients that sleep would not notice.
sub after_crash
{
	my ($self, $where, $what) = @_;
	$self->hit("$where $what");
	$self->{children}->restart(qr/^$where writer/);
	return;
}

sub server_pids
{
	my ($self, $where, $which) = @_;
	my $pids = $self->query($where, 'SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()'
		. ($which ? " AND $which" : ''));
	return split(/\n/, $pids // '');
}

# gone SECONDS PID…: wait until none of them is there.
sub gone
{
	my ($seconds, @pids) = @_;
	return !@pids || wait_for($seconds, sub { !grep { kill(0, $_) } @pids });
}

# A writer's or reader's backend at the source; a runner's or writer's here.
sub some_backend
{
	my ($self, $where) = @_;
	my $kind = rand() < 0.5 ? "application_name = 'writer'" : "application_name LIKE 'incload %'";
	my @pids = $self->server_pids($where, "datname = 'postgres' AND $kind");
	@pids = $self->server_pids($where, "application_name IN ('writer', 'runner')") if !@pids;
	return @pids ? $pids[ rand(@pids) ] : undef;
}

sub end_backend
{
	my ($self) = @_;
	my $where = rand() < 0.5 ? 'source' : 'target';
	my $pid = $self->some_backend($where) or return;
	my $how = rand() < 0.5 ? 'pg_cancel_backend' : 'pg_terminate_backend';

	$self->query($where, "SELECT $how($pid)");
	$self->hit("$where $how");
	return;
}

sub kill_runner { my ($self) = @_; $self->{children}->kill_one(qr/runner/) && $self->hit('runner killed'); return; }
sub kill_writer { my ($self) = @_; $self->{children}->kill_one(qr/writer/) && $self->hit('writer killed'); return; }

# What is prepared and has lost its client is committed or rolled back, some time.
sub end_prepared
{
	my ($self, $now) = @_;
	my $age = $now ? 0 : $self->{sleep} + 2000;

	foreach my $where (qw(source target))
	{
		my $gids = $self->query($where, "SELECT gid FROM pg_prepared_xacts"
			. " WHERE prepared < clock_timestamp() - $age * interval '1 ms'");
		foreach my $gid (split(/\n/, $gids // ''))
		{
			$self->query($where, (rand() < 0.7 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$gid'");
			$self->hit("$where orphan ended");
		}
	}
	return;
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

# rows_of NODE RELATION: what it has, each row as text, and how many times.
sub rows_of
{
	my ($node, $relation) = @_;
	my %rows;
	$rows{$_}++ for split(/\n/, $node->safe_psql('postgres', "SELECT * FROM $relation"));
	return \%rows;
}

# lost JOB: rows that are missing, and rows that are wrong or there too often.
sub lost
{
	my ($self, $from, $to) = @_;
	my ($schema, $table) = split(/\./, $from);
	my $where = $schema eq 'public' ? 'target' : 'source';
	my $want = $self->{rows}{$where}{$table} //= rows_of($self->{$where}, "public.$table");
	my $got = rows_of($self->{target}, $to);
	my @missing = sort(grep { !$got->{$_} } keys(%$want));
	my @excess = sort(grep { $got->{$_} > ($want->{$_} // 0) } keys(%$got));
	return (\@missing, \@excess, sum(0, values(%$want)));
}

sub targets_are_equal
{
	my ($self) = @_;
	foreach my $job (@jobs)
	{
		my ($missing, $excess, $rows) = $self->lost($job->{source}, "dw.$job->{name}");
		ok(!@$missing && !@$excess && $rows > 60,
			"$self->{name}: $job->{name} has the $rows rows of $job->{source}, each once")
		  or diag(sprintf("missing %d: %s\nwrong or twice %d: %s", scalar(@$missing), join(' ', grep { defined } @$missing[ 0 .. 9 ]),
				scalar(@$excess), join(' ', grep { defined } @$excess[ 0 .. 9 ])));
		$self->{figures}{rows}{$job->{source}} = $rows;
	}
	return if !$self->{naive};
	foreach my $pair ([ 'src.changing', 'dw.naive_up' ], [ 'src.growing', 'dw.naive_raw' ])
	{
		my ($missing) = $self->lost(@$pair);
		push(@{ $self->{figures}{naive} }, scalar(@$missing));
		cmp_ok(scalar(@$missing), '>', 0, "$self->{name}: max(watermark) has lost rows in $pair->[1]");
	}
	return;
}

# No row came below a checkpoint. Both servers have the machine's clock. A
# transaction whose commit time is after that of a checkpoint could not be seen
# by the run that wrote the checkpoint, nor by the horizon as over: what it
# wrote must be above. Nobody asks incload: its triggers aside, this is what the
# writers and the clock say. The last value read instead of the checkpoint,
# which is max(watermark), would not have stood this.
sub checkpoints_were_settled
{
	my ($self) = @_;
	my ($danger, $total) = (0, 0);
	my $there = PostgreSQL::Test::Utils::tempdir_short() . '/versions';
	my $versions = "SELECT source, id, at, pg_xact_commit_timestamp(xmin) AS committed FROM version";

	$self->{source}->safe_psql('postgres', "COPY ($versions) TO '$there'");
	$self->{target}->safe_psql('postgres', qq{
		CREATE TABLE there (source text, id bigint, at timestamptz, committed timestamptz);
		COPY there FROM '$there';
		CREATE TABLE here AS $versions});
	unlink($there);
	foreach my $job (grep { $_->{kind} } @jobs)
	{
		my ($schema, $table) = split(/\./, $job->{source});
		my $log = $schema eq 'public' ? 'here' : 'there';
		my $from = $table eq 'joined' ? "'changing', 'parted'" : "'$table'";
		my ($mark, $type) = $job->{kind} eq 'id' ? ('id', 'bigint') : ('at', 'timestamptz');
		my ($stored, $versions_seen, $below, $ahead, $back, $example) = split(/\|/, $self->{target}->safe_psql('postgres', qq{
			WITH kept AS (SELECT c.* FROM checkpoint_kept c JOIN incload.job j USING (job_id) WHERE j.job = '$job->{name}'),
			met AS (SELECT v.$mark AS mark, v.committed, k.* FROM $log v, LATERAL (
				SELECT k.*, k.bound::$type AS b FROM kept k WHERE k.at < v.committed ORDER BY k.at DESC LIMIT 1) k
				WHERE v.source IN ($from)),
			bad AS (SELECT * FROM met WHERE mark < b OR mark = b AND side = 'after' AND NOT tied)
			SELECT (SELECT count(DISTINCT bound) FROM met), (SELECT count(*) FROM met), (SELECT count(*) FROM bad),
				(SELECT count(*) FROM met WHERE mark <= loaded_to::$type),
				(SELECT count(*) FROM (SELECT bound::$type < lag(bound::$type) OVER (ORDER BY at) AS b FROM kept) l WHERE l.b),
				(SELECT format('%s, committed at %s, below the checkpoint %s of %s', mark, committed, bound, at) FROM bad LIMIT 1)}));
		# without sight of who is open, the checkpoint waits for all of them
		cmp_ok($stored, '>', $schema eq 'blind' ? 0 : 1, "$self->{name}: $versions_seen versions came after $stored checkpoints of $job->{name}");
		is("$below $back", '0 0', "$self->{name}: no row came below a checkpoint of $job->{name}, and none went back")
		  or diag($example);
		$danger += $ahead;
		$total += $versions_seen;
	}
	cmp_ok($danger, '>', 0, "$self->{name}: rows came below what had been read, $danger of $total");
	$self->{figures}{danger} = $danger;
	return;
}

# The record of all runs: enough of each kind; none failed for a reason of its
# own; all counts add up, and say what the targets have.
sub runs_were_sound
{
	my ($self) = @_;
	my $node = $self->{target};
	my $name = $self->{name};

	is($node->safe_psql('postgres', "SELECT job, coalesce(r.n, 0) FROM incload.job LEFT JOIN"
			. " (SELECT job, count(*) AS n FROM incload.run WHERE status = 'succeeded' GROUP BY 1) r USING (job)"
			. " WHERE coalesce(r.n, 0) < 3"),
		'', "$name: each job ran");
	is($node->safe_psql('postgres', "SELECT job, sqlstate, error, count(*) FROM incload.run"
			. " WHERE status <> 'succeeded' AND coalesce(sqlstate !~ $expected_failures, status <> 'failed') GROUP BY 1, 2, 3"),
		'', "$name: no run failed but for what was done to it");
	is($node->safe_psql('postgres', "SELECT run_id, job, status FROM incload.run WHERE rows_read <>"
			. " rows_inserted + rows_updated + rows_unchanged + rows_deleted + rows_superseded + rows_suppressed + rows_rejected"),
		'', "$name: of each run, what was read is what was done");
	is($node->safe_psql('postgres', join(' UNION ALL ', map {
					"SELECT '$_->{name}' WHERE (SELECT count(*) FROM dw.$_->{name}) IS DISTINCT FROM"
					. " (SELECT sum(rows_inserted) FROM incload.run WHERE job = '$_->{name}')" } @jobs)),
		'', "$name: all rows of the targets are on record as inserted");
	is($node->safe_psql('postgres', "SELECT job, guarantee FROM incload.status WHERE guarantee IS DISTINCT FROM 'exact'"),
		'', "$name: the guarantee is exact");
	is(join("\n", grep { !/$expected_ends/ } $self->{children}->said(qr/pgbench: error/)),
		'', "$name: no writer ended but for what was done to it");
	is(join(' ', grep { !$self->{hits}{$_} } map { ("$_ crash_server", "$_ crash_backend") } qw(source target)),
		'', "$name: both servers crashed, in both ways");
	return;
}

# What a reader wants to know of it.
sub figures
{
	my ($self) = @_;
	my $hits = $self->{hits};
	my $figures = $self->{figures} = { naive => [] };

	$figures->{runs} = $self->{target}->safe_psql('postgres', "SELECT count(*) FROM incload.run WHERE status = 'succeeded'");
	$figures->{failed} = $self->{target}->safe_psql('postgres', "SELECT count(*) FROM incload.run WHERE status <> 'succeeded'");
	$figures->{crashes} = sum(0, map { $hits->{$_} } grep { /crash/ } keys(%$hits));
	$figures->{hits} = sum(0, values(%$hits)) - $figures->{crashes};
	note("$self->{name}: $figures->{runs} runs, $figures->{failed} failed, ", join(', ', map { "$_ $hits->{$_}" } sort(keys(%$hits))));
	note($self->{target}->safe_psql('postgres', "SELECT job, status, sqlstate, count(*), left(max(error), 60) FROM incload.run GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"));
	return;
}

1;
