# IncloadTest: what the TAP tests share.
#
# Two servers, 'source' and 'target'. Whoever tests comes in by the socket,
# which trusts; a job comes to the source over TCP with a password, as the role
# 'reader'. Jobs belong to 'loader', who is no superuser: he owns the schemas
# src (foreign tables) and dw (targets) and may use the foreign server.

package IncloadTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

our @EXPORT = qw(two_nodes new_source new_target connect_target listen_with_password
  as_loader as_role fails_with start_sql session differences last_run settle wait_for
  foreign_table pg_major crash_backend is_back try_query becomes
  run_straight explained);

# whatever the locale of who runs the tests
my @utf8 = ('--locale=C', '--encoding=UTF8');

# pg_major NODE: 15, 16, …
sub pg_major
{
	my ($node) = @_;
	return int($node->safe_psql('postgres', 'SHOW server_version_num') / 10000);
}

# listen_with_password NODE [METHOD]: TCP too, and who comes that way needs a
# password (or meets another method).
sub listen_with_password
{
	my ($node, $method) = @_;
	my $hba = $node->data_dir . '/pg_hba.conf';
	my $rules = slurp_file($hba);

	$method ||= 'scram-sha-256';
	$rules =~ s/^host .*127\.0\.0\.1.*\n//mg;
	open(my $out, '>', $hba) or die "cannot write $hba: $!";
	print $out "host all all 127.0.0.1/32 $method\n", $rules;
	close($out);
	$node->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
	return;
}

# new_source [CONF, install_path => SERVER]: a started server with a role 'reader' that may read public.
sub new_source
{
	my ($conf, %init) = @_;
	my $node = PostgreSQL::Test::Cluster->new('source', %init);

	$node->init(extra => \@utf8);
	listen_with_password($node);
	$node->append_conf('postgresql.conf', "autovacuum = off\n" . ($conf || ''));
	$node->start;
	$node->safe_psql('postgres', q{
		CREATE ROLE reader LOGIN PASSWORD 'reader''s secret';
		GRANT pg_read_all_stats TO reader;
		ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reader;
	});
	return $node;
}

# new_target [CONF]: a started server with incload and a role 'loader'.
sub new_target
{
	my ($conf, %init) = @_;
	my $server = delete $init{install_path};
	my $node = PostgreSQL::Test::Cluster->new('target', $server ? (install_path => $server) : ());

	$node->init(extra => \@utf8, %init);
	$node->append_conf('postgresql.conf', "autovacuum = off\n" . ($conf || ''));
	$node->start;
	$node->safe_psql('postgres', q{
		CREATE EXTENSION postgres_fdw;
		CREATE EXTENSION incload;
		CREATE ROLE loader LOGIN;
		CREATE SCHEMA src AUTHORIZATION loader;
		CREATE SCHEMA dw AUTHORIZATION loader;
	});
	return $node;
}

# connect_target TARGET SOURCE: the foreign server, and loader's way to it.
sub connect_target
{
	my ($target, $source) = @_;
	my $port = $source->port;

	$target->safe_psql('postgres', qq{
		CREATE SERVER source FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '127.0.0.1', port '$port', dbname 'postgres', fetch_size '20000');
		GRANT USAGE ON FOREIGN SERVER source TO loader;
		CREATE USER MAPPING FOR loader SERVER source
			OPTIONS (user 'reader', password 'reader''s secret');
	});
	return;
}

sub two_nodes
{
	my (%conf) = @_;
	my $source = new_source($conf{source});
	my $target = new_target($conf{target}, %{ $conf{init} || {} });

	connect_target($target, $source);
	return ($source, $target);
}

# foreign_table TARGET NAME…: loader's foreign tables src.NAME for public.NAME.
sub foreign_table
{
	my ($target, @names) = @_;
	my $list = join(', ', @names);

	as_loader($target, "IMPORT FOREIGN SCHEMA public LIMIT TO ($list) FROM SERVER source INTO src");
	return;
}

# as_role NODE ROLE SQL: runs it, dies on an error, returns what it printed.
sub as_role
{
	my ($node, $role, $sql, $dbname) = @_;
	return $node->safe_psql($dbname || 'postgres', $sql, extra_params => [ '-U', $role ]);
}

sub as_loader
{
	my ($node, $sql) = @_;
	return as_role($node, 'loader', $sql);
}

# fails_with NODE ROLE SQL SQLSTATE PATTERN NAME: one test that the last error
# has that state, and that all that was said matches. Returns what was said.
sub fails_with
{
	my ($node, $role, $sql, $sqlstate, $pattern, $name) = @_;
	my ($ret, $out, $err) = $node->psql('postgres', $sql,
		extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose' ]);
	my $ok = $ret != 0 && $err =~ /(?:ERROR|FATAL):  \Q$sqlstate\E: / && $err =~ $pattern;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($ok, $name) or diag("wanted $sqlstate and $pattern, got $ret:\n$out\n$err");
	return $err;
}

# session NODE ROLE: a psql that stays, for transactions that are left open.
sub session
{
	my ($node, $role) = @_;
	return $node->background_psql('postgres', on_error_stop => 0,
		extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose' ]);
}

# start_sql NODE ROLE SQL…: begins it and returns at once; finish() waits for its
# end and returns (exit status, stdout, stderr, seconds since the start).
sub start_sql
{
	my ($node, $role, @sql) = @_;
	my $self = bless { out => '', err => '', started => time() }, 'IncloadTest::Running';
	my @command = ($node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'),
		'-U', $role, '-v', 'VERBOSITY=verbose', '-v', 'ON_ERROR_STOP=1', map { ('-c', $_) } @sql);

	$self->{run} = IPC::Run::start(\@command, '<', \undef, '>', \$self->{out},
		'2>', \$self->{err},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $self;
}

sub IncloadTest::Running::finish
{
	my ($self) = @_;

	$self->{run}->finish;
	my $status = $self->{run}->full_result(0);
	return ($status >> 8, $self->{out}, $self->{err}, time() - $self->{started});
}

# differences SOURCE TARGET TABLE COPY…: what EXCEPT ALL gives both ways between
# a table there and each copy here, counted in one pass: "0|0" where both have
# the same rows. As text, so that 1.0 is not 1.00. TABLE and COPY may be queries
# in parentheses.
sub differences
{
	my ($source, $target, $table, @copies) = @_;
	my $rows = PostgreSQL::Test::Utils::tempdir_short() . '/rows';

	$source->safe_psql('postgres', "COPY (SELECT r::text FROM $table AS r) TO '$rows'");
	my @counts = split(/\n/, $target->safe_psql('postgres', join("\n",
		"SET work_mem = '400MB';",
		'CREATE TEMP TABLE there (x text);',
		"COPY there FROM '$rows';",
		map { qq{SELECT count(*) FILTER (WHERE n > 0), count(*) FILTER (WHERE n < 0)
			FROM (SELECT sum(d) AS n FROM (SELECT x, 1 AS d FROM there
				UNION ALL SELECT r::text, -1 FROM $_ AS r) b GROUP BY x) g;} } @copies)));
	unlink($rows);
	return wantarray ? @counts : $counts[0];
}

# last_run TARGET JOB [COLUMNS]: of the newest row of incload.run.
sub last_run
{
	my ($target, $job, $columns) = @_;
	$columns ||= 'status, rows_read, rows_inserted, rows_updated, rows_unchanged';
	return $target->safe_psql('postgres',
		"SELECT $columns FROM incload.run WHERE job = '$job' ORDER BY run_id DESC LIMIT 1");
}

# run_straight TARGET JOB [IN_BATCHES]: counts of a run, and whether rows were put in many at a time,
# by what it has logged. Takes pg_walinspect.
sub run_straight
{
	my ($target, $job, $in_batches) = @_;
	my $columns = 'rows_read, rows_inserted, rows_updated, rows_unchanged, rows_deleted';
	my $from = $target->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	my $counts = as_loader($target, $in_batches
		? "CALL incload_run_in_batches('$job'); SELECT $columns FROM incload.run WHERE job = '$job' ORDER BY run_id DESC LIMIT 1"
		: "SELECT $columns FROM incload_run('$job')");
	my $to = $target->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
	my $many = $target->safe_psql('postgres', "SELECT coalesce(sum(count), 0) FROM pg_get_wal_stats('$from', '$to', true)
		WHERE \"resource_manager/record_type\" LIKE '%MULTI_INSERT%'");
	return "$counts " . ($many > 0 ? 'straight' : 'staged');
}

# explained TARGET JOB: what incload_explain says of it, a line each
sub explained
{
	my ($target, $job) = @_;
	return as_loader($target, "SELECT string_agg(concat_ws(' ', what, plan), E'\\n') FROM incload_explain('$job')");
}

# settle SOURCE TABLE: wait until the newest row is older than the margin that
# the horizon keeps, so that the next run need not read it once more.
sub settle
{
	my ($source, @tables) = @_;
	foreach my $table (@tables)
	{
		$source->poll_query_until('postgres',
			"SELECT clock_timestamp() > max(updated_at) + interval '2.2 s' FROM $table")
		  or die "$table does not settle";
	}
	return;
}

# crash_backend NODE: one process is killed, and the server starts again under its old start time
# (restart_after_crash has to be on). A second session tells when it has noticed; and psql could be
# gone before it is asked, so another program waits for the server.
sub crash_backend
{
	my ($node) = @_;
	my @sessions = map { session($node, scalar(getpwuid($<))) } 1 .. 2;
	my ($victim, $other) = map { $_->query_safe('SELECT pg_backend_pid()') } @sessions;

	kill 'KILL', $victim;
	wait_for(60, sub { !kill(0, $other) }) or die 'the server has not noticed';
	$_->{run}->finish foreach @sessions;
	is_back($node) or die 'the server does not come back';
	return;
}

# try_query NODE SQL [ROLE [DATABASE]]: what it printed; undef where the server is gone
# or refuses. The statement is an argument: psql may be gone before it has read one, and
# who writes that would die.
sub try_query
{
	my ($node, $sql, $role, $database) = @_;
	my @command = ($node->installed_command('psql'), '-XAtq', '-d', $node->connstr($database || 'postgres'),
		($role ? ('-U', $role) : ()), '-c', $sql);
	my ($out, $err) = ('', '');

	return undef if !IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err);
	chomp($out);
	return $out;
}

# is_back NODE: waits until it answers again.
sub is_back
{
	my ($node) = @_;
	return wait_for(180, sub { defined(try_query($node, 'SELECT')) });
}

# wait_for SECONDS CODE: until CODE is true; false when the time is over.
sub wait_for
{
	my ($seconds, $code) = @_;
	my $deadline = time() + $seconds;

	while (time() < $deadline)
	{
		my $value = $code->();
		return $value if $value;
		usleep(50_000);
	}
	return 0;
}

# becomes CODE WANTED NAME [SECONDS]: a test that CODE comes to give WANTED; what it gave
# last if it does not. To be called by a function of a test file, whose caller is named.
sub becomes
{
	my ($code, $wanted, $name, $seconds) = @_;
	my $last;

	wait_for($seconds || 60, sub { $last = $code->(); return defined($last) && $last eq $wanted });
	local $Test::Builder::Level = $Test::Builder::Level + 2;
	return is($last, $wanted, $name);
}

1;
