# IncloadTorture::Children: client programs that are kept running: started again
# when they end or are killed, and gone at the end, however the test ends.

package IncloadTorture::Children;

use strict;
use warnings;

use POSIX ();
use Time::HiRes qw(time);

my %running;    # pid => 1, of all

END
{
	local $?;
	kill('KILL', keys(%running));
}

# new LOG: what they say is added to that file.
sub new
{
	my ($class, $log) = @_;
	return bless { log => $log, kept => {} }, $class;
}

# keep NAME COMMAND: starts it, now and again; COMMAND is code that returns the
# program and its arguments.
sub keep
{
	my ($self, $name, $command) = @_;
	$self->{kept}{$name} = { command => $command, pid => 0, not_before => 0 };
	$self->_start($name);
	return;
}

sub _start
{
	my ($self, $name) = @_;
	my $child = $self->{kept}{$name};
	my @command = $child->{command}->();
	my $pid = fork() // die "cannot fork: $!";

	if ($pid == 0)
	{
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>>', $self->{log});
		open(STDERR, '>&', \*STDOUT);
		{ no warnings; exec(@command); }
		POSIX::_exit(127);
	}
	$running{$pid} = 1;
	$child->{pid} = $pid;
	$child->{not_before} = time() + 0.3;
	return;
}

# look_after MAY: starts again who has ended, where MAY(name) is true.
sub look_after
{
	my ($self, $may) = @_;
	foreach my $name (sort(keys(%{ $self->{kept} })))
	{
		my $child = $self->{kept}{$name};
		$self->_reap($child, POSIX::WNOHANG) if $child->{pid};
		$self->_start($name) if !$child->{pid} && time() >= $child->{not_before} && $may->($name);
	}
	return;
}

sub _reap
{
	my ($self, $child, $flags) = @_;
	return if waitpid($child->{pid}, $flags) == 0;
	delete($running{ $child->{pid} });
	$child->{pid} = 0;
	return;
}

sub _kill
{
	my ($self, $child) = @_;
	return if !$child->{pid};
	kill('KILL', $child->{pid});
	$self->_reap($child, 0);
	return;
}

# kill_one PATTERN: one of those that run and are named so; false if there is none.
sub kill_one
{
	my ($self, $pattern) = @_;
	my @names = grep { /$pattern/ && $self->{kept}{$_}{pid} } sort(keys(%{ $self->{kept} }));
	return 0 if !@names;
	$self->_kill($self->{kept}{ $names[ rand(@names) ] });
	return 1;
}

sub restart
{
	my ($self, $pattern) = @_;
	foreach my $name (grep { /$pattern/ } sort(keys(%{ $self->{kept} })))
	{
		$self->_kill($self->{kept}{$name});
		$self->_start($name);
	}
	return;
}

# said PATTERN: the lines of the log that match.
sub said
{
	my ($self, $pattern) = @_;
	open(my $log, '<', $self->{log}) or die "cannot read $self->{log}: $!";
	return grep { /$pattern/ } <$log>;
}

sub end_all
{
	my ($self) = @_;
	$self->_kill($_) for values(%{ $self->{kept} });
	$self->{kept} = {};
	return;
}

1;
