# IncloadBrowser: a headless Chromium, for tests of pages.
#
# Driven by its own protocol over two pipes, so that a page can be looked at as
# it is: its policy, its media, the size of its screen, and what it asks for.
# Commands and events are JSON with a NUL after each.

package IncloadBrowser;

use strict;
use warnings;

use IO::Select;
use JSON::PP;
use MIME::Base64 qw(decode_base64);
use POSIX ();
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

my $patience = 60;

# strings are bytes here, of UTF-8, as everywhere in the tests
my $json = JSON::PP->new;

# program: the path of the browser; nothing where there is none.
sub program
{
	foreach my $name (qw(chromium chromium-browser))
	{
		foreach my $dir (split(/:/, $ENV{PATH}), '/usr/bin')
		{
			return "$dir/$name" if -x "$dir/$name";
		}
	}
	return;
}

# start: a browser with one empty page. Its sandbox needs rights that not every
# machine gives; the pages here are our own, so it then goes without.
sub start
{
	my ($class) = @_;
	my $self;

	foreach my $switches ([], ['--no-sandbox'])
	{
		$self = bless { id => 0, events => [], buffer => '' }, $class;
		$self->launch(@$switches);
		last if eval { $self->call('Browser.getVersion'); 1 };
		$self->stop;
		undef $self;
	}
	die "the browser does not start" if !$self;
	my $target = $self->call('Target.createTarget', { url => 'about:blank' })->{targetId};
	$self->{session} = $self->call('Target.attachToTarget', { targetId => $target, flatten => JSON::PP::true })->{sessionId};
	$self->call("$_.enable") foreach qw(Page Network Runtime Log);
	return $self;
}

sub launch
{
	my ($self, @switches) = @_;
	my $profile = PostgreSQL::Test::Utils::tempdir();
	my $log = PostgreSQL::Test::Utils::tempdir() . '/browser.log';

	pipe(my $command_read, my $command_write) or die "no pipe: $!";
	pipe(my $answer_read, my $answer_write) or die "no pipe: $!";
	my $pid = fork();
	die "no fork: $!" if !defined $pid;
	if ($pid == 0)
	{
		# the browser reads 3 and writes 4; what is dup'ed last must not be in the way
		my $in = dup_above(fileno($command_read)) // POSIX::_exit(1);
		my $out = dup_above(fileno($answer_write)) // POSIX::_exit(1);
		POSIX::dup2($in, 3);
		POSIX::dup2($out, 4);
		open(STDOUT, '>', $log);
		open(STDERR, '>&', \*STDOUT);
		delete $ENV{DBUS_SESSION_BUS_ADDRESS};
		exec(program(), '--headless=new', '--remote-debugging-pipe', "--user-data-dir=$profile", '--disable-gpu',
			'--disable-dev-shm-usage', '--no-first-run', '--disable-background-networking', '--disable-component-update',
			'--hide-scrollbars', '--force-color-profile=srgb', @switches, 'about:blank') or POSIX::_exit(1);
	}
	close($command_read);
	close($answer_write);
	@$self{qw(pid in out)} = ($pid, $command_write, $answer_read);
	$self->{in}->autoflush(1);
	return;
}

# a copy of a file's number that is above those that are given away
sub dup_above
{
	my ($fd) = @_;
	my @low;
	my $copy;

	while (defined($copy = POSIX::dup($fd)) && $copy < 10)
	{
		push(@low, $copy);
	}
	POSIX::close($_) foreach @low;
	return $copy;
}

sub stop
{
	my ($self) = @_;

	return if !$self->{pid};
	eval { $self->call('Browser.close') };
	close($self->{$_}) foreach qw(in out);
	kill('KILL', $self->{pid});
	waitpid($self->{pid}, 0);
	delete $self->{pid};
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@);
	$self->stop;
	return;
}

# message: the next one; undef when there is none in that time.
sub message
{
	my ($self, $deadline) = @_;

	my $end;

	while (($end = index($self->{buffer}, "\0")) < 0)
	{
		my $left = $deadline - time();
		return if $left <= 0 || !IO::Select->new($self->{out})->can_read($left);
		sysread($self->{out}, $self->{buffer}, 1 << 20, length($self->{buffer})) or die 'the browser has gone';
	}
	return $json->decode(substr($self->{buffer}, 0, $end + 1, '') =~ s/\0$//r);
}

sub call
{
	my ($self, $method, $params) = @_;
	my %command = (id => ++$self->{id}, method => $method, params => $params || {});
	my $deadline = time() + $patience;

	local $SIG{PIPE} = 'IGNORE';
	$command{sessionId} = $self->{session} if $self->{session} && $method !~ /^Browser\./;
	print { $self->{in} } $json->encode(\%command), "\0" or die 'the browser has gone';
	while (my $message = $self->message($deadline))
	{
		if (!defined $message->{id})
		{
			push(@{ $self->{events} }, $message);
			next;
		}
		next if $message->{id} != $self->{id};
		die "$method: $message->{error}{message}" if $message->{error};
		return $message->{result};
	}
	die "$method: the browser does not answer";
}

# events METHOD: the parameters of those that have come, and forgets them.
sub events
{
	my ($self, $method) = @_;
	my @found = map { $_->{params} } grep { $_->{method} eq $method } @{ $self->{events} };

	$self->{events} = [ grep { $_->{method} ne $method } @{ $self->{events} } ];
	return @found;
}

# visit URL: and waits until it is loaded.
sub visit
{
	my ($self, $url) = @_;
	my $deadline = time() + $patience;

	$self->{events} = [];
	$self->call('Page.navigate', { url => $url });
	while (!grep { $_->{method} eq 'Page.loadEventFired' } @{ $self->{events} })
	{
		my $message = $self->message($deadline) or die "$url is not loaded";
		push(@{ $self->{events} }, $message);
	}
	return;
}

# value EXPRESSION: of JavaScript in the page.
sub value
{
	my ($self, $expression) = @_;
	my $answer = $self->call('Runtime.evaluate',
		{ expression => $expression, returnByValue => JSON::PP::true, awaitPromise => JSON::PP::true });

	die "$expression: " . $json->encode($answer->{exceptionDetails}) if $answer->{exceptionDetails};
	return as_bytes($answer->{result}{value});
}

# the browser writes what is beyond ASCII as characters
sub as_bytes
{
	my ($value) = @_;

	return [ map { as_bytes($_) } @$value ] if ref($value) eq 'ARRAY';
	return { map { as_bytes($_) } %$value } if ref($value) eq 'HASH';
	utf8::encode($value) if defined $value && !ref($value);
	return $value;
}

# screen WIDTH HEIGHT PHONE SCHEME: as what device, light or dark, the page is shown.
sub screen
{
	my ($self, $width, $height, $phone, $scheme) = @_;

	$self->call('Emulation.setDeviceMetricsOverride', { width => $width, height => $height, deviceScaleFactor => 1,
		mobile => $phone ? JSON::PP::true : JSON::PP::false });
	$self->call('Emulation.setEmulatedMedia', { features => [ { name => 'prefers-color-scheme', value => $scheme } ] });
	return;
}

# screenshot WHOLE: the bytes of a PNG, of the screen or of the whole page.
sub screenshot
{
	my ($self, $whole) = @_;
	return decode_base64($self->call('Page.captureScreenshot',
		{ format => 'png', captureBeyondViewport => $whole ? JSON::PP::true : JSON::PP::false })->{data});
}

1;
