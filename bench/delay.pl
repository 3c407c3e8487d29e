# perl bench/delay.pl PORT TO DELAY
#
# A proxy from 127.0.0.1:PORT to 127.0.0.1:TO that hands on each byte DELAY
# milliseconds after it came, both ways: a network that is far and wide.  It ends
# with whoever started it.

use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(time);

my ($port, $to, $delay) = @ARGV;
die "usage: delay.pl PORT TO DELAY\n" if !defined $delay;
$delay /= 1000;

# what may wait on its way before the sender has to
my $most = 64 * 1024 * 1024;
my $parent = getppid();
my $server = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 64, ReuseAddr => 1)
  or die "cannot listen on $port: $!\n";
my %peer;    # socket => the other end
my %queue;   # socket => [time due, bytes] to be written to it; no bytes: its end
my %waiting; # socket => bytes in its queue
$SIG{PIPE} = 'IGNORE';

while (getppid() == $parent)
{
	my @reading = ($server, grep { !$peer{$_}{ended} && $waiting{ $peer{$_}{other} } < $most } map { $_->{self} } values %peer);
	my @due = map { $_->[0][0] } grep { @$_ } values %queue;
	my $wait = 0.5;

	foreach my $moment (@due)
	{
		$wait = $moment - time if $moment - time < $wait;
	}
	my @ready = IO::Select->new(@reading)->can_read($wait > 0 ? $wait : 0);
	foreach my $socket (@ready)
	{
		if ($socket == $server) { take_client(); }
		elsif ($peer{$socket}) { take_bytes($socket); }
	}
	hand_on($_) foreach map { $_->{self} } values %peer;
}

sub take_client
{
	my $client = $server->accept or return;
	my $inner = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $to);

	return close($client) if !$inner;
	foreach my $pair ([ $client, $inner ], [ $inner, $client ])
	{
		$pair->[0]->setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);
		$pair->[0]->blocking(0);
		$peer{ $pair->[0] } = { self => $pair->[0], other => $pair->[1], ended => 0 };
		$queue{ $pair->[0] } = [];
		$waiting{ $pair->[0] } = 0;
	}
	return;
}

sub take_bytes
{
	my ($socket) = @_;
	my $other = $peer{$socket}{other};
	my $got = sysread($socket, my $bytes, 65536);

	return if !defined $got && $!{EAGAIN};
	$peer{$socket}{ended} = 1 if !$got;
	push @{ $queue{$other} }, [ time + $delay, $got ? $bytes : undef ];
	$waiting{$other} += $got || 0;
	return;
}

# what is due for this socket
sub hand_on
{
	my ($socket) = @_;
	my $queue = $queue{$socket} or return;

	while (@$queue && $queue->[0][0] <= time)
	{
		if (!defined $queue->[0][1])
		{
			forget($socket);
			return;
		}
		my $sent = syswrite($socket, $queue->[0][1]);
		if (!defined $sent)
		{
			forget($socket) if !$!{EAGAIN};
			return;
		}
		$waiting{$socket} -= $sent;
		substr($queue->[0][1], 0, $sent, '');
		shift @$queue if $queue->[0][1] eq '';
	}
	return;
}

sub forget
{
	my ($socket) = @_;
	my $other = $peer{$socket}{other};

	foreach my $end ($socket, $other)
	{
		delete $peer{$end};
		delete $queue{$end};
		delete $waiting{$end};
		close($end);
	}
	return;
}
