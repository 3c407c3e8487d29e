# IncloadTorture::Mischief: what is done to clients, backends and servers while
# they work. Methods of IncloadTorture.

package IncloadTorture::Mischief;

use strict;
use warnings;

use Cwd ();
use List::Util qw(max shuffle);
use PostgreSQL::Test::Utils;
use Time::HiRes qw(sleep time);

use IncloadTest qw(wait_for);

# make_mischief UNTIL: crash servers at times that are drawn beforehand, do
# lesser things in between, and start again what has ended.
sub make_mischief
{
	my ($self, $until) = @_;
	my $rounds = max(1, int($self->{seconds} / (15 + $self->{sleep} / 500)));
	my @crashes = map { my $where = $_; map { [ $where, $_ ] } qw(crash_server crash_backend) } qw(source target);
	my @due = sort { $a <=> $b } map { time + 3 + rand($self->{seconds} - 3) } 1 .. @crashes * $rounds;
	my @todo = map { shuffle(@crashes) } 1 .. $rounds;
	my @lesser;
	my $next_lesser = time + 2;
	my $next_look = time;

	while (time < $until || @todo)
	{
		$self->{children}->look_after(sub { $self->is_up($_[0] =~ /^(source|target)/ ? $1 : 'target') });
		if (time >= $next_look)
		{
			$self->end_prepared;
			$next_look = time + 5;
		}
		if (time >= $next_lesser)
		{
			@lesser = shuffle(qw(kill_runner kill_writer end_source_backend end_target_backend)) if !@lesser;
			my $what = shift(@lesser);
			$self->$what;
			$next_lesser = time - log(1 - rand()) * 1.5;
		}
		if (@due && time >= $due[0])
		{
			my ($where, $what) = @{ shift(@todo) };
			shift(@due);
			$self->$what($where);
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

sub hit
{
	my ($self, $what) = @_;
	$self->{hits}{$what}++;
	return;
}

# SIGKILL for the postmaster; what it leaves behind ends by itself, or with it.
sub crash_server
{
	my ($self, $where) = @_;
	my $node = $self->{$where};
	my @pids = $self->server_pids($where);

	$node->kill9;
	wait_for(5, sub { !processes_of($node, @pids) }) or kill("KILL", processes_of($node, @pids));
	wait_for(60, sub {
		# after a start that failed, it takes what the old one left for running
		$node->{_pid} = undef;
		return $node->start(fail_ok => 1);
	}) or die "$where does not start again";
	$self->after_crash($where, 'crash_server');
	return;
}

# SIGKILL for one backend: the server begins anew under its old start time. One
# that was just about to end may have ended well: then another.
sub crash_backend
{
	my ($self, $where) = @_;
	my $node = $self->{$where};
	my $before = -s $node->logfile;
	my $has_said = sub { substr(slurp_file($node->logfile), $before) =~ /$_[0]/ };

	wait_for(60, sub {
		kill('KILL', processes_of($node, $self->some_backend($where)));
		return wait_for(3, sub { $has_said->('was terminated by signal 9') });
	}) or die "no backend of the $where can be killed";
	wait_for(60, sub { $has_said->('all server processes terminated; reinitializing') && $self->is_up($where) })
	  or die "$where does not come back";
	$self->after_crash($where, 'crash_backend');
	return;
}

# processes_of NODE PID…: those that are the server's still; by now a number may be
# another's. Where there is no /proc, those that are somebody's.
sub processes_of
{
	my ($node, @pids) = @_;
	my $home = Cwd::realpath($node->data_dir);

	return grep { defined($_) && kill(0, $_) } @pids if !-d '/proc/self';
	return grep { defined($_) && (readlink("/proc/$_/cwd") // '') eq $home } @pids;
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

# A writer's or reader's backend at the source; a runner's or writer's here.
sub some_backend
{
	my ($self, $where) = @_;
	my $kind = rand() < 0.5 ? "application_name = 'writer'" : "application_name LIKE 'incload %'";
	my @pids = $self->server_pids($where, "datname = 'postgres' AND $kind");
	@pids = $self->server_pids($where, "application_name IN ('writer', 'runner')") if !@pids;
	return @pids ? $pids[ rand(@pids) ] : undef;
}

# One session is ended, or its statement is.
sub end_source_backend { my ($self) = @_; return $self->end_backend('source'); }
sub end_target_backend { my ($self) = @_; return $self->end_backend('target'); }

sub end_backend
{
	my ($self, $where) = @_;
	my $pid = $self->some_backend($where) or return;
	my $how = rand() < 0.5 ? 'pg_cancel_backend' : 'pg_terminate_backend';

	$self->query($where, "SELECT $how($pid)");
	$self->hit("$where $how");
	return;
}

# SIGKILL for a client: what it has sent may go on, what it left open ends.
sub kill_runner { my ($self) = @_; return $self->kill_client('runner'); }
sub kill_writer { my ($self) = @_; return $self->kill_client('writer'); }

sub kill_client
{
	my ($self, $kind) = @_;
	$self->hit("$kind killed") if $self->{children}->kill_one(qr/$kind/);
	return;
}

# What is prepared and has lost its client is committed or rolled back in the end:
# nobody sleeps that long.
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

1;
