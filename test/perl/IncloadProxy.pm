# IncloadProxy: a TCP proxy in front of a server that cuts and stalls connections.
#
#   my $proxy = IncloadProxy->new($port_of_the_server);
#   $proxy->port;             where clients connect instead
#   $proxy->reset;            cuts all connections, without a farewell
#   $proxy->stall($seconds);  lets nothing through for so long, either way
#   $proxy->stop;
#
# One process of its own, told by a pipe what to do.

package IncloadProxy;

use strict;
use warnings;

use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);
use Time::HiRes qw(time);

sub new
{
	my ($class, $server_port) = @_;
	my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 50)
	  or die "cannot listen: $!";
	pipe(my $commands, my $control) or die "cannot make a pipe: $!";
	my $pid = fork();

	die "cannot fork: $!" unless defined $pid;
	if ($pid == 0)
	{
		close($control);
		serve($listen, $commands, $server_port);
		# no END block of the test's is to run here
		require POSIX;
		POSIX::_exit(0);
	}
	close($commands);
	$control->autoflush(1);
	return bless { pid => $pid, control => $control, port => $listen->sockport }, $class;
}

sub port { my ($self) = @_; return $self->{port}; }
sub reset { my ($self) = @_; print { $self->{control} } "reset\n"; return; }
sub stall { my ($self, $seconds) = @_; print { $self->{control} } "stall $seconds\n"; return; }

sub stop
{
	my ($self) = @_;

	close($self->{control});
	waitpid($self->{pid}, 0);
	return;
}

# a socket closed this way sends a reset
sub cut
{
	my ($socket) = @_;

	setsockopt($socket, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
	close($socket);
	return;
}

sub serve
{
	my ($listen, $commands, $server_port) = @_;
	my $sockets = IO::Select->new;
	my %peer;
	my $stalled_until = 0;
	my $drop = sub {
		foreach my $socket (grep { defined } map { $_, delete $peer{$_} } @_)
		{
			delete $peer{$socket};
			$sockets->remove($socket);
			cut($socket);
		}
	};

	$SIG{PIPE} = 'IGNORE';
	for (;;)
	{
		my $is_stalled = time() < $stalled_until;
		my $all = IO::Select->new($commands, $is_stalled ? () : ($listen, $sockets->handles));

		foreach my $ready ($all->can_read($is_stalled ? 0.05 : 1))
		{
			if ($ready == $commands)
			{
				my $command = <$commands>;

				return unless defined $command;
				$drop->($sockets->handles) if $command =~ /^reset/;
				$stalled_until = time() + $1 if $command =~ /^stall ([\d.]+)/;
				last;
			}
			if ($ready == $listen)
			{
				my $client = $listen->accept or next;
				my $server = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server_port);

				if (!$server) { cut($client); next; }
				($peer{$client}, $peer{$server}) = ($server, $client);
				$sockets->add($client, $server);
				next;
			}
			next unless $peer{$ready};
			my $got = sysread($ready, my $bytes, 65536);
			my $peer = $peer{$ready};
			my $done = 0;

			while ($got && $done < $got)
			{
				my $written = syswrite($peer, $bytes, $got - $done, $done);

				last unless $written;
				$done += $written;
			}
			$drop->($ready) unless $got && $done == $got;
		}
	}
}

1;
