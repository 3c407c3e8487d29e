# AlertReceiver: a server that is sent alerts, and behaves as it is told.
#
#   my $receiver = AlertReceiver->new;             plain HTTP on a port of its own
#   my $receiver = AlertReceiver->new(cert => FILE, key => FILE);      the same over TLS
#   $receiver->behave('status 500');     what it does from now on:
#       ok              200
#       status N [NAME: VALUE]   that status, with a header
#       stall           reads, and says nothing
#       drip            an answer that goes on for ever, a byte at a time
#       flood           200, and megabytes
#       reset           reads, and resets the connection
#       hold            waits until it is told to behave in another way, then 200
#   $receiver->got      the requests so far, each { path, headers, body, json }
#
# One process a connection, in a process group that ends with the object, or the test.

package AlertReceiver;

use strict;
use warnings;

use IO::Handle;
use IO::Socket::INET;
use JSON::PP ();
use POSIX ();
use Socket qw(SOL_SOCKET SO_LINGER);
use Time::HiRes qw(usleep);

use PostgreSQL::Test::Utils;

my @started;

sub new
{
	my ($class, %tls) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir_short();
	my $listener = IO::Socket::INET->new(Listen => 64, LocalAddr => '127.0.0.1', LocalPort => 0, ReuseAddr => 1)
	  or die "cannot listen: $!";
	my $self = bless { folder => $folder, port => $listener->sockport, owner => $$ }, $class;

	$self->behave('ok');
	require IO::Socket::SSL if $tls{cert};
	$self->{pid} = fork();
	die "cannot fork: $!" unless defined $self->{pid};
	if ($self->{pid} == 0)
	{
		setpgrp(0, 0);
		$SIG{CHLD} = 'IGNORE';
		while (1)
		{
			my $socket = $listener->accept or next;
			next if fork();
			eval { $self->_serve($socket, %tls) };
			POSIX::_exit(0);
		}
	}
	push @started, $self;
	return $self;
}

sub stop
{
	my ($self) = @_;

	return if !$self->{pid} || $self->{owner} != $$;
	# it may not have made its group yet
	kill('KILL', -$self->{pid}, $self->{pid});
	waitpid($self->{pid}, 0);
	$self->{pid} = 0;
	return;
}

sub url
{
	my ($self, $path) = @_;
	return "http://127.0.0.1:$self->{port}" . ($path // '/');
}

sub behave
{
	my ($self, $how) = @_;

	open(my $out, '>', "$self->{folder}/new") or die;
	print $out $how;
	close($out);
	rename("$self->{folder}/new", "$self->{folder}/how");
	return;
}

sub got
{
	my ($self) = @_;
	my @got;

	return () unless -e "$self->{folder}/got";
	foreach my $line (split(/\n/, PostgreSQL::Test::Utils::slurp_file("$self->{folder}/got")))
	{
		my $request = JSON::PP->new->decode($line);
		$request->{json} = eval { JSON::PP->new->utf8->decode($request->{body}) };
		push @got, $request;
	}
	return @got;
}

sub _serve
{
	my ($self, $socket, %tls) = @_;
	my ($head, $body) = ('', '');

	if ($tls{cert})
	{
		IO::Socket::SSL->start_SSL($socket, SSL_server => 1, SSL_cert_file => $tls{cert}, SSL_key_file => $tls{key})
		  or return;
	}
	while ((my $line = $socket->getline) ne "\r\n")
	{
		$head .= $line;
	}
	my ($path) = $head =~ /^POST (\S+)/;
	my %headers = map { /^([^:]+): (.*)\r$/ ? (lc($1) => $2) : () } split(/\n/, $head);
	$socket->read($body, $headers{'content-length'} || 0);
	open(my $out, '>>', "$self->{folder}/got") or die;
	syswrite($out, JSON::PP->new->canonical->ascii->encode({ path => $path, headers => \%headers, body => $body }) . "\n");
	close($out);
	$self->_answer($socket, PostgreSQL::Test::Utils::slurp_file("$self->{folder}/how"));
	return;
}

sub _answer
{
	my ($self, $socket, $how) = @_;
	my $ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n";

	if ($how eq 'hold')
	{
		usleep(20_000) while PostgreSQL::Test::Utils::slurp_file("$self->{folder}/how") eq 'hold';
		$how = 'ok';
	}
	if ($how eq 'ok') { print $socket "${ok}Content-Length: 2\r\n\r\nok" }
	elsif ($how =~ /^status (\d+) ?(.*)/s) { print $socket "HTTP/1.1 $1 So\r\nConnection: close\r\nContent-Length: 0\r\n" . ($2 ? "$2\r\n" : '') . "\r\n" }
	elsif ($how eq 'stall') { sleep 3600 }
	elsif ($how eq 'drip')
	{
		print $socket "${ok}\r\n";
		$socket->flush;
		while (1) { print $socket '.' or last; $socket->flush; usleep(50_000) }
	}
	elsif ($how eq 'flood')
	{
		local $SIG{PIPE} = 'IGNORE';
		print $socket "${ok}\r\n";
		for (1 .. 1000) { print $socket 'x' x 10_000 or last }
	}
	elsif ($how eq 'reset')
	{
		$socket->setsockopt(SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
	}
	close($socket);
	return;
}

END
{
	my $status = $?;
	$_->stop foreach @started;
	$? = $status;
}

1;
