# IncloadTorture::Verdict: what must be true when all is over. Each target has its
# source's rows, each exactly once; no checkpoint that was ever committed was
# above the horizon; no run failed but for what was done to it. Methods of
# IncloadTorture.

package IncloadTorture::Verdict;

use strict;
use warnings;

use List::Util qw(sum);
use PostgreSQL::Test::Utils;
use Test::More;

# What a writer may end with: broken connections, a statement or a session that
# was ended, a prepared transaction that was ended for it, a deadlock too many.
my $expected_ends = join('|', 'terminating connection', 'canceling statement', 'backend died',
	'server closed the connection', 'connection to server', 'could not (create|receive|send)',
	'Run was aborted', 'prepared transaction with identifier .* (does not exist|is busy)');

# What a run may fail of: connections that break, servers that stop or start,
# a job that still runs elsewhere, a statement_timeout.
my $expected_failures = q{'^(08...|57P0.|55P03|57014)$'};

sub verdict
{
	my ($self) = @_;
	$self->figures;
	$self->targets_are_equal;
	$self->checkpoints_were_settled;
	$self->runs_were_sound;
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
	foreach my $job (@{ $self->{jobs} })
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
# by the run that wrote the checkpoint: what it wrote must be above, and so must
# its number be above the mark. Nobody asks incload, but the trigger that keeps
# what it has stored. What had been read by then, max(watermark), would not do.
sub checkpoints_were_settled
{
	my ($self) = @_;
	my $name = $self->{name};
	my ($danger, $total) = (0, 0);

	$self->gather_versions;
	foreach my $job (grep { $_->{kind} } @{ $self->{jobs} })
	{
		my ($met, $places, $below, $ahead, $back, $example) = $self->held_against($job);
		my $moved = "$name: $met versions came after $places checkpoints of $job->{name}";
		# One that never moves would prove nothing. But who does not see when others
		# began waits until he has seen each of them idle, and a crash begins that anew.
		$job->{source} =~ /^blind/ ? note($moved) : cmp_ok($places, '>', 0, $moved);
		is("$below $back", '0 0', "$name: none came below, and no checkpoint of $job->{name} went back")
		  or diag($example);
		$danger += $ahead;
		$total += $met;
	}
	cmp_ok($danger, '>', 0, "$name: rows came below what had been read, $danger of $total");
	$self->{figures}{danger} = $danger;
	return;
}

# Every version of every row, and when its transaction was committed.
sub gather_versions
{
	my ($self) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir_short() . '/versions';
	my $versions = 'SELECT source, id, at, xmin::text::bigint AS xid,'
	  . ' pg_xact_commit_timestamp(xmin) AS committed FROM version';

	$self->{source}->safe_psql('postgres', "COPY ($versions) TO '$file'");
	$self->{target}->safe_psql('postgres', qq{
		CREATE TABLE here AS $versions;
		CREATE TABLE there (LIKE here);
		COPY there FROM '$file'});
	unlink($file);
	return;
}

# Each version against the last checkpoint of before its commit: how many there
# are, against how many places; how many are below, and below what had been read;
# how many checkpoints were below the one before; an example.
sub held_against
{
	my ($self, $job) = @_;
	my ($schema, $table) = split(/\./, $job->{source});
	my $versions = $schema eq 'public' ? 'here' : 'there';
	my $tables = $table eq 'joined' ? "'changing', 'parted'" : "'$table'";
	my ($value, $bound, $read) = @{{
		time => [ 'at', 'bound::timestamptz', 'loaded_to::timestamptz' ],
		id => [ 'id', 'bound::bigint', 'loaded_to::bigint' ],
		# its place is its mark
		xmin => [ 'xid', 'mark', 'NULL::bigint' ] }->{ $job->{kind} }};

	return split(/\|/, $self->{target}->safe_psql('postgres', qq{
		WITH kept AS NOT MATERIALIZED (SELECT c.*, $bound AS b FROM checkpoint_kept c
			WHERE c.job_id = (SELECT j.job_id FROM incload.job j WHERE j.job = '$job->{name}')),
		met AS (SELECT v.$value AS value, v.xid, v.committed, k.* FROM $versions v, LATERAL (
			SELECT k.* FROM kept k WHERE k.at < v.committed ORDER BY k.at DESC LIMIT 1) k
			WHERE v.source IN ($tables)),
		below AS (SELECT * FROM met WHERE value < b OR value = b AND side = 'after' AND NOT tied OR xid < mark)
		SELECT (SELECT count(*) FROM met), (SELECT count(DISTINCT b) FROM met), (SELECT count(*) FROM below),
			(SELECT count(*) FROM met WHERE value <= $read),
			(SELECT count(*) FROM (SELECT b < lag(b) OVER (ORDER BY at) AS back FROM kept) l WHERE back),
			(SELECT format('%s of transaction %s, committed at %s, is below the checkpoint %s with mark %s of %s',
				value, xid, committed, b, mark, at) FROM below LIMIT 1)}));
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
					. " (SELECT sum(rows_inserted) FROM incload.run WHERE job = '$_->{name}')" } @{ $self->{jobs} })),
		'', "$name: all rows of the targets are on record as inserted");
	is($node->safe_psql('postgres', "SELECT job, guarantee FROM incload.status WHERE guarantee IS DISTINCT FROM 'exact'"),
		'', "$name: the guarantee is exact");
	is(join("\n", grep { !/$expected_ends/ } $self->{children}->said(qr/pgbench: error/)),
		'', "$name: no writer ended but for what was done to it");
	is(join(' ', grep { !$self->{hits}{$_} } 'runner killed', 'writer killed',
			map { ("$_ crash_server", "$_ crash_backend") } qw(source target)),
		'', "$name: clients were killed, and both servers crashed in both ways");
	return;
}

1;
