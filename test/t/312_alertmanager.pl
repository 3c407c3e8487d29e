# The real Alertmanager, and receivers with certificates: what it is told, when it is told
# again, what it knows of the end; and who is not sent anything.
use strict;
use warnings;

use IO::Socket::INET;
use JSON::PP ();
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use AlertReceiver;
use IncloadTest;

my ($source, $target) = two_nodes(
	target => "shared_preload_libraries = 'incload'\nincload.naptime = '100ms'\nmax_worker_processes = 24\nlog_statement = none\nincload.runbook_url = 'https://runbooks.example/'\n");
my @daemons;

sub sql { return $target->safe_psql('postgres', $_[0]) }

sub comes_to
{
	my ($query, $wanted, $name) = @_;
	return becomes(sub { sql($query) }, $wanted, $name)
	  || diag(sql('SELECT * FROM incload.outbox ORDER BY outbox_id DESC LIMIT 10'));
}

sub run
{
	my ($job) = @_;
	return ($target->psql('postgres', "SELECT incload_run('$job')", extra_params => [ '-U', 'loader' ]))[0];
}

sub free_port
{
	my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0) or die "no port: $!";
	return $socket->sockport;
}

# a program in the background, with its output in a file; ended at the end
sub start
{
	my ($log, @command) = @_;
	my $pid = fork();

	if ($pid == 0)
	{
		open(STDOUT, '>>', $log);
		open(STDERR, '>&', \*STDOUT);
		open(STDIN, '<', '/dev/null');
		exec(@command) or POSIX::_exit(1);
	}
	push @daemons, $pid;
	return $pid;
}

sub stop
{
	my ($pid) = @_;

	kill 'KILL', $pid;
	waitpid($pid, 0);
	@daemons = grep { $_ != $pid } @daemons;
	return;
}

END
{
	my $status = $?;
	stop($_) foreach @daemons;
	$? = $status;
}

as_loader($target, q{
	CREATE TABLE dw.base (id bigint PRIMARY KEY, v int);
	INSERT INTO dw.base VALUES (1, 1);
	CREATE VIEW dw.brittle AS SELECT id, 10 / v AS v FROM dw.base;
	SELECT incload_create_job('brittle', 'dw.brittle', 'dw.brittle_copy', 'full', NULL, '{id}')});

#
# certificates
#
my $folder = PostgreSQL::Test::Utils::tempdir();
my $has_tls = eval { require IO::Socket::SSL; 1 } && system("openssl version >$folder/version 2>&1") == 0;
SKIP:
{
	skip 'no IO::Socket::SSL or no openssl here', 8 if !$has_tls;
	# NAME, the name in it
	my $make = sub {
		my ($name, $subject) = @_;
		system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=$subject -keyout $folder/$name.key -out $folder/$name.crt >$folder/$name.log 2>&1") == 0
		  or die slurp_file("$folder/$name.log");
	};
	$make->('good', 'IP:127.0.0.1');
	$make->('other', 'DNS:elsewhere.example');
	my $good = AlertReceiver->new(cert => "$folder/good.crt", key => "$folder/good.key");
	my $other = AlertReceiver->new(cert => "$folder/other.crt", key => "$folder/other.key");

	foreach my $case ([ 'unknown', $good, '{}', 'self.signed certificate' ],
		[ 'wrong name', $other, qq({"ca_file": "$folder/other.crt"}), 'SSL: no alternative certificate subject name matches' ])
	{
		my ($name, $receiver, $options, $error) = @$case;

		sql("SELECT incload_add_channel('$name', '" . ($receiver->url('/tls') =~ s/http/https/r) . "', options => '$options')");
		sql("SELECT incload_test_channel('$name')");
		comes_to("SELECT state FROM incload.outbox WHERE channel = '$name' AND last_error ~ '$error'", 'pending', "a certificate of an $name authority or host: $error" =~ s/an wrong/a wrong/r);
		is(scalar(my @got = $receiver->got), 0, 'and nothing was sent');
	}
	sql(qq{SELECT incload_alter_channel('unknown', options => '{"ca_file": "$folder/good.crt"}')});
	comes_to(q{SELECT state FROM incload.outbox WHERE channel = 'unknown'}, 'delivered', 'with that authority named, it is');
	is(scalar(my @got = $good->got), 1, 'once');
	sql(q{SELECT incload_alter_channel('unknown', url => 'http://127.0.0.1:1/')});
	is(sql(q{SELECT origin FROM incload.channel WHERE channel = 'unknown'}), 'http://127.0.0.1:1', 'a channel gets another URL');
	sql(q{SELECT incload_drop_channel('unknown'), incload_drop_channel('wrong name')});
	is(sql(q{SELECT count(*) FROM incload.outbox}), '0', 'what a channel has not delivered goes with it');
}

#
# Alertmanager
#
my ($program) = grep { -x $_ } qw(/usr/bin/prometheus-alertmanager /usr/local/bin/alertmanager);
SKIP:
{
	skip 'no prometheus-alertmanager here', 14 if !$program;
	my $port = free_port();
	my $receiver = AlertReceiver->new;
	PostgreSQL::Test::Utils::append_to_file("$folder/alertmanager.yml", "route:\n  receiver: test\n  group_by: [code]\n  group_wait: 100ms\n  group_interval: 200ms\n" .
		"receivers:\n  - name: test\n    webhook_configs:\n      - url: " . $receiver->url('/from-alertmanager') . "\n");
	my @command = ($program, "--config.file=$folder/alertmanager.yml", "--storage.path=$folder/alertmanager",
		"--web.listen-address=127.0.0.1:$port", '--cluster.listen-address=');
	my $ready = sub { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) };
	# what it has: a line an alert
	my $alerts = sub {
		my $socket = $ready->() or return '';
		print $socket "GET /api/v2/alerts HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n";
		my $answer = do { local $/; <$socket> };
		$answer =~ s/.*?\r\n\r\n//s;
		my $list = eval { JSON::PP->new->utf8->decode($answer) } || [];
		return join("\n", sort map { my $a = $_; join('|', map { $a->{labels}{$_} // '' } qw(alertname job severity code database sqlstate team)) .
			"|$a->{status}{state}|" . ($a->{annotations}{runbook_url} // '') . '|' . ($a->{annotations}{summary} // '') } @$list);
	};
	my $has = sub {
		my ($wanted, $name) = @_;
		my $last = '';
		wait_for(60, sub { ($last = $alerts->()) eq $wanted });
		is($last, $wanted, $name) or diag(sql('SELECT * FROM incload.outbox ORDER BY outbox_id DESC LIMIT 10'), slurp_file("$folder/alertmanager.log"));
	};
	my $failed = 'incload_run_failed|brittle|ticket|run_failed|postgres|22012|data|active|https://runbooks.example/docs/runbooks/run_failed.md|a run of job brittle has failed: division by zero';

	# it is not there yet: what happens meanwhile is kept
	sql(qq{SELECT incload_add_channel('am', 'http://127.0.0.1:$port', 'alertmanager',
		options => '{"resend": "1 s", "labels": {"team": "data"}}')});
	as_loader($target, 'UPDATE dw.base SET v = 0');
	run('brittle');
	comes_to(q{SELECT state, last_error ~ '^Could(n''t| not) connect to server' FROM incload.outbox WHERE attempts > 0 AND last_error IS NOT NULL}, 'pending|t', 'an Alertmanager that is not there yet');
	my $pid = start("$folder/alertmanager.log", @command);
	$has->($failed, 'a failing job reaches Alertmanager, with job, severity, code and runbook');
	comes_to(q{SELECT kind, state FROM incload.outbox}, 'firing|delivered', 'it has taken it');

	# it forgets, and is reminded
	stop($pid);
	PostgreSQL::Test::Utils::system_or_bail('rm', '-rf', "$folder/alertmanager");
	$pid = start("$folder/alertmanager.log", @command);
	$has->($failed, 'one that has lost its memory is told again');

	as_loader($target, 'UPDATE dw.base SET v = 1');
	is(run('brittle'), 0, 'the job runs again');
	$has->('', 'and the alert is over');
	comes_to(q{SELECT string_agg(kind || ' ' || state, ', ' ORDER BY outbox_id) FROM incload.outbox}, 'firing delivered, resolved delivered', 'the outbox says so');
	my $resolved;
	ok(wait_for(60, sub { ($resolved) = grep { $_->{json}{status} eq 'resolved' } $receiver->got; $resolved }), 'Alertmanager tells its receiver that it is resolved');
	is($resolved->{json}{alerts}[0]{labels}{job}, 'brittle', 'for that job');

	# failed and mended while it was away: the end is not before the beginning
	stop($pid);
	as_loader($target, 'UPDATE dw.base SET v = 0');
	run('brittle');
	as_loader($target, 'UPDATE dw.base SET v = 1');
	run('brittle');
	as_loader($target, q{SELECT incload_create_job('second', 'dw.brittle', 'dw.second', 'full', NULL, '{id}'); UPDATE dw.base SET v = 0});
	run('second');
	$pid = start("$folder/alertmanager.log", @command);
	$has->($failed =~ s/brittle/second/gr, 'what is over by the time it is back does not fire; what is not, does');
	comes_to(q{SELECT count(*) FROM incload.outbox WHERE state <> 'delivered'}, '0', 'all of it is delivered');
	as_loader($target, q{SELECT incload_drop_job('second')});
	$has->('', 'an alert of a job ends when the job is dropped');

	sql(q{SELECT incload_test_channel('am')});
	$has->('incload_channel_test||info|channel_test|postgres||data|active|https://runbooks.example/docs/runbooks/channel_test.md|a test of channel am: nothing is wrong', 'a test');
	unlike(slurp_file("$folder/alertmanager.log"), qr/level=(error|warn).*(bad|invalid)/i, 'it has complained of nothing');
}

done_testing();
