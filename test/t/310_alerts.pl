# Events reach those who want to be told: once more if need be, never lost, grouped by cause,
# resolved when over, silenced when asked, whatever the receiver does; and no run waits for that.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use AlertReceiver;
use IncloadTest;

my $token = 'tOkEn-4711-sEcReT';
my ($source, $target) = two_nodes(
	target => "shared_preload_libraries = 'incload'\nincload.naptime = '100ms'\nmax_worker_processes = 24\nrestart_after_crash = on\nlog_statement = none\nincload.runbook_url = 'https://runbooks.example/'\n");
my $receiver = AlertReceiver->new;

sub sql { return $target->safe_psql('postgres', $_[0]) }

# a query until it gives that; what it gave last if it does not
sub comes_to
{
	my ($query, $wanted, $name) = @_;
	return becomes(sub { try_query($target, $query) }, $wanted, $name)
	  || diag(sql('SELECT * FROM incload.outbox ORDER BY outbox_id DESC LIMIT 10'));
}

# the receiver's requests on a path, once there are so many
sub requests
{
	my ($path, $n, $name) = @_;
	my @got;

	wait_for(60, sub { @got = grep { $_->{path} eq $path } $receiver->got; @got >= $n });
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(scalar(@got), $n, $name) if $name;
	return @got;
}

# a run of a job, which may fail
sub run
{
	my ($job) = @_;
	return ($target->psql('postgres', "SELECT incload_run('$job')", extra_params => [ '-U', 'loader' ]))[0];
}

sub break_source { sql(q{ALTER USER MAPPING FOR loader SERVER source OPTIONS (SET password 'wrong')}); return }
sub mend_source { sql(q{ALTER USER MAPPING FOR loader SERVER source OPTIONS (SET password 'reader''s secret')}); return }

$source->safe_psql('postgres', q{CREATE TABLE items (id serial PRIMARY KEY, v int, updated_at timestamptz NOT NULL DEFAULT now())});
foreign_table($target, 'items');
as_loader($target, q{
	CREATE TABLE dw.base (id bigint PRIMARY KEY, v int);
	INSERT INTO dw.base VALUES (1, 1);
	CREATE VIEW dw.brittle AS SELECT id, 10 / v AS v FROM dw.base;
	SELECT incload_create_job('items', 'src.items', 'dw.items', 'upsert', 'updated_at', '{id}');
	SELECT incload_create_job('brittle', 'dw.brittle', 'dw.brittle_copy', 'full', NULL, '{id}');
	SELECT incload_create_job('steady', 'dw.base', 'dw.steady', 'full', NULL, '{id}', schedule => '1 second')});

#
# who may, and what is refused
#
my $anywhere = $receiver->url('/any');
fails_with($target, 'loader', qq{SELECT incload_add_channel('mine', '$anywhere')}, '42501', qr/permission denied for function incload_add_channel/, 'not everybody may add a channel');
fails_with($target, 'loader', q{SELECT * FROM incload.channel}, '42501', qr/permission denied for view channel/, 'or see those that there are');
sql(q{CREATE ROLE pager LOGIN; GRANT EXECUTE ON FUNCTION incload_add_channel, incload_drop_channel TO pager; GRANT SELECT ON incload.channel TO pager});
my $me = scalar(getpwuid($<));
foreach my $case (
	[ q{'x', 'ftp://host/'}, qr/the URL cannot be used/ ], [ q{'x', 'file:///etc/passwd'}, qr/the URL cannot be used/ ],
	[ q{'x', 'nonsense'}, qr/the URL cannot be used/ ], [ qq{'x', '$anywhere', 'mail'}, qr/"mail" is no format of a channel/ ],
	[ qq{'x', '$anywhere', min_severity => 'loud'}, qr/"loud" is no severity/ ],
	[ qq{'x', '$anywhere', options => '{"tokn": "$token"}'}, qr/there is no channel option "tokn".*Perhaps you meant "token"/s ],
	[ qq{'x', '$anywhere', options => '{"timeout": "0"}'}, qr/an interval above zero/ ],
	[ qq{'x', '$anywhere', options => '{"resend": "1 min"}'}, qr/option "resend" means nothing to format webhook/ ],
	[ qq{'x', '$anywhere', 'alertmanager', options => '{"group_wait": "1 s"}'}, qr/option "group_wait" means nothing to format alertmanager/ ],
	[ qq{'x', '$anywhere', 'alertmanager', options => '{"labels": {"job": "x"}}'}, qr/come from the event/ ],
	[ qq{'x', '$anywhere', 'pagerduty', options => '{"token": "$token"}'}, qr/needs the option "routing_key"/ ],
	[ qq{'x', '$anywhere', options => '{"token": "$token", "user": "u"}'}, qr/has a token, or a user/ ],
	[ qq{'x', '$anywhere', options => '{"headers": {"X-A": "a\\r\\nEvil: $token"}}'}, qr/without control characters/ ],
	[ qq{'x', '$anywhere', options => '{"headers": {"X A": "$token"}}'}, qr/only letters, digits and hyphens/ ],
	[ qq{'x', '$anywhere', options => '{"ca_file": "/no/such/file"}'}, qr/The server cannot read that file/ ])
{
	fails_with($target, $me, "SELECT incload_add_channel($case->[0])", '22023', $case->[1], "refused: $case->[0]" =~ s/\Q$token\E/…/gr);
}
fails_with($target, 'pager', qq{SELECT incload_add_channel('x', '$anywhere', options => '{"ca_file": "/etc/passwd"}')}, '42501', qr/pg_read_server_files/, 'a file of the server takes rights of its own');
fails_with($target, $me, q{SELECT incload_test_channel('hok')}, '42704', qr/there is no channel "hok"/, 'an unknown channel');
is(sql(q{SELECT count(*) FROM incload.channel}), '0', 'none of them is there');

#
# a failing job, and its end
#
my $secret_url = $receiver->url("/hook/$token");
is(as_role($target, 'pager', qq{SELECT channel, origin, format, min_severity, options, secrets FROM
	incload_add_channel('hook', '$secret_url', options => '{"token": "$token", "headers": {"X-Extra": "$token"}, "group_wait": "0", "group_interval": "0", "timeout": "600 ms"}')}),
	'hook|http://127.0.0.1:' . $receiver->{port} . '|webhook|ticket|{"timeout": "600 ms", "group_wait": "0", "group_interval": "0"}|{headers,token}',
	'a role that was granted it adds a channel, and sees no secret');
fails_with($target, 'pager', qq{SELECT incload_add_channel('hook', '$secret_url')}, '42710', qr/there is a channel "hook" already/, 'not twice');
run('brittle');
as_loader($target, 'UPDATE dw.base SET v = 0');
run('brittle') for 1 .. 3;
my @got = requests("/hook/$token", 1, 'a job that fails is told');
is(join('|', map { $_ // '' } @{$got[0]{json}}{qw(status severity code runbook database)}), 'firing|ticket|run_failed|https://runbooks.example/docs/runbooks/run_failed.md|postgres', 'what');
is(join('|', map { $_ // '' } @{$got[0]{json}{events}[0]}{qw(job severity code message)}, $got[0]{json}{events}[0]{details}{sqlstate}),
	'brittle|ticket|run_failed|a run of job brittle has failed: division by zero|22012', 'of which job, and why');
is($got[0]{headers}{authorization}, "Bearer $token", 'with the token');
is($got[0]{headers}{'x-extra'}, $token, 'and headers');
like($got[0]{headers}{'idempotency-key'}, qr{^incload-\d+/\d+-\d+$}, 'and a key');
is($got[0]{headers}{'idempotency-key'}, $got[0]{json}{key}, 'which is in the body, too');
comes_to(q{SELECT kind, job, severity, code, state, attempts, last_error IS NULL FROM incload.outbox}, 'firing|brittle|ticket|run_failed|delivered|1|t', 'the outbox says that it is delivered, once for three failures');
as_loader($target, 'UPDATE dw.base SET v = 5');
is(run('brittle'), 0, 'the job is mended');
@got = requests("/hook/$token", 2, 'which is told');
is(join('|', @{$got[1]{json}}{qw(status code group)}, @{$got[1]{json}{events}[0]}{qw(job code about)}), 'resolved|run_failed|run_failed/22012/job 2|brittle|run_recovered|run_failed', 'as the end of it');
is(run('brittle'), 0, 'and again');
is(sql(q{SELECT string_agg(code, ',' ORDER BY event_id) FROM incload.event WHERE job = 'brittle' AND code LIKE 'run%'}), 'run_failed,run_recovered', 'both are events');
comes_to(q{SELECT string_agg(kind || ' ' || state, ',' ORDER BY outbox_id) FROM incload.outbox}, 'firing delivered,resolved delivered', 'both are delivered');

# rolled back with what made it
sql(q{BEGIN; SELECT incload_test_channel('hook'); ROLLBACK});
my $outbox_id = sql(q{SELECT incload_test_channel('hook')});
@got = requests("/hook/$token", 3, 'a test is sent, and one that is rolled back is not');
is(join('|', @{$got[2]{json}}{qw(status code title)}), 'test|channel_test|a test of channel hook: nothing is wrong', 'as a test');
comes_to("SELECT state FROM incload.outbox WHERE outbox_id = $outbox_id", 'delivered', 'the outbox has what became of it');

#
# receivers that are not well: nothing is lost, and no run is slowed
#
my $sent = 3;
foreach my $case ([ 'status 500', 'HTTP 500' ], [ 'status 503 Retry-After: 1', 'HTTP 503' ], [ 'status 429 Retry-After: 1', 'HTTP 429' ], [ 'status 404', 'HTTP 404' ],
	[ 'stall', 'Timeout was reached' ], [ 'drip', 'Timeout was reached' ], [ 'reset', '' ],
	[ 'status 302 Location: ' . $receiver->url('/elsewhere'), 'HTTP 302: redirects are not followed' ])
{
	my ($how, $error) = @$case;
	my $is_like = $error || 'Couldn\'t connect|Failure when receiving data|Server returned nothing';
	my $runs = sql(q{SELECT count(*) FROM incload.run WHERE job = 'steady' AND status = 'succeeded'});

	$receiver->behave($how);
	$outbox_id = sql(q{SELECT incload_test_channel('hook')});
	$is_like =~ s/'/''/g;
	comes_to("SELECT state, attempts > 0 FROM incload.outbox WHERE outbox_id = $outbox_id AND last_error ~ '^($is_like)'", 'pending|t', "$how: it is kept, with the error");
	comes_to("SELECT count(*) >= $runs + 1 FROM incload.run WHERE job = 'steady' AND status = 'succeeded'", 't', 'jobs run meanwhile');
	$receiver->behave('ok');
	comes_to("SELECT state, attempts > 1, last_error IS NULL FROM incload.outbox WHERE outbox_id = $outbox_id", 'delivered|t|t', 'and it is sent again');
	my @all = grep { $_->{path} eq "/hook/$token" } $receiver->got;
	my @these = @all[$sent .. $#all];
	is(scalar(keys %{{ map { $_->{headers}{'idempotency-key'} => 1 } @these }}), 1, 'each time with the same key');
	$sent = @all;
}
is(scalar(grep { $_->{path} eq '/elsewhere' } $receiver->got), 0, 'a redirect was not followed');
$receiver->behave('flood');
$outbox_id = sql(q{SELECT incload_test_channel('hook')});
comes_to("SELECT state FROM incload.outbox WHERE outbox_id = $outbox_id", 'delivered', 'an answer that is too long is not read to its end');
$receiver->behave('ok');

# somebody has the channel locked, and the scheduler does not wait
my $locker = session($target, $me);
$locker->query_safe(q{BEGIN; LOCK incload.outbox_store});
my $runs = sql(q{SELECT count(*) FROM incload.run WHERE job = 'steady' AND status = 'succeeded'});
comes_to("SELECT count(*) >= $runs + 2 FROM incload.run WHERE job = 'steady' AND status = 'succeeded'", 't', 'with the outbox locked, jobs run');
$locker->query_safe('COMMIT');
$locker->quit;

# many events while it is down, none lost
$receiver->behave('reset');
sql(q{SELECT incload_test_channel('hook') FROM generate_series(1, 20)});
comes_to(q{SELECT count(*) > 0 FROM incload.outbox WHERE state = 'pending' AND last_error IS NOT NULL}, 't', 'the receiver is down');
$receiver->behave('ok');
comes_to(q{SELECT count(*) FROM incload.outbox WHERE state <> 'delivered'}, '0', 'once it is up, all are delivered');
like(slurp_file($target->logfile), qr/WARNING:  alerts cannot be delivered by channel "hook": HTTP 500/, 'the log has told of it');
like(slurp_file($target->logfile), qr/LOG:  alerts are delivered by channel "hook" again/, 'and of its end');

#
# the scheduler is killed when the receiver has it, and it is not yet marked
#
my $before = requests("/hook/$token", 0);
$receiver->behave('hold');
$outbox_id = sql(q{SELECT incload_test_channel('hook')});
requests("/hook/$token", $before + 1, 'the receiver has a message');
my $pid = sql(q{SELECT pid FROM incload.worker WHERE kind = 'scheduler' AND database = 'postgres'});
kill 'KILL', $pid;
$receiver->behave('ok');
comes_to("SELECT state FROM incload.outbox WHERE outbox_id = $outbox_id", 'delivered', 'the scheduler is killed before it knows: it is sent again');
@got = requests("/hook/$token", $before + 2, 'so it came twice');
is($got[-1]{headers}{'idempotency-key'}, $got[-2]{headers}{'idempotency-key'}, 'with the same key');
is($got[-1]{body}, $got[-2]{body}, 'and the same words');

#
# 200 jobs of one server fail: one page
#
sql(q{SELECT incload_drop_channel('hook')});
sql(qq{SELECT incload_add_channel('page', '} . $receiver->url('/v2/enqueue') . qq{', 'pagerduty',
	options => '{"routing_key": "$token", "group_wait": "1 s"}')});
sql(qq{SELECT incload_add_channel('chat', '} . ($receiver->url("/services/$token") =~ s/127\.0\.0\.1/localhost/r) . qq{', 'slack', options => '{"group_wait": "1 s"}')});
as_loader($target, q{SELECT incload_create_job('many ' || n, 'src.items', 'dw.many_' || n, 'upsert', 'updated_at', '{id}') FROM generate_series(1, 200) n});
sql('SELECT incload_worker_stop()');
break_source();
as_loader($target, q{DO $$ BEGIN FOR n IN 1 .. 200 LOOP
	BEGIN PERFORM incload_run('many ' || n); EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$});
is(sql(q{SELECT count(*), count(DISTINCT group_key) FROM incload.outbox WHERE kind = 'firing' AND state = 'pending'}), '400|1', '200 jobs fail, of one cause, to be told by two channels');
sql('SELECT incload_worker_start()');
comes_to(q{SELECT count(*) FROM incload.outbox WHERE state <> 'delivered'}, '0', 'all are told');
my @pages = requests('/v2/enqueue', 1, 'in one page');
is(join('|', @{$pages[0]{json}}{qw(event_action routing_key)}, @{$pages[0]{json}{payload}}{qw(severity source class)}), "trigger|$token|warning|postgres|run_failed", 'as PagerDuty has them');
like($pages[0]{json}{payload}{summary}, qr/^200 jobs, run_failed: many 1, many 10, .* and 180 more; the first: a run of job many \d+ has failed: could not connect to server "source"/, 'which says how many, and why');
is($pages[0]{json}{links}[0]{href}, 'https://runbooks.example/docs/runbooks/run_failed.md', 'and what to do');
my @chats = requests("/services/$token", 1, 'and one line of chat');
like($chats[0]{json}{text}, qr/^TICKET postgres: 200 jobs, run_failed: .*\nhttps:\/\/runbooks\.example\/docs\/runbooks\/run_failed\.md$/s, 'likewise');
mend_source();
as_loader($target, q{SELECT count(*) FROM (SELECT incload_run('many ' || n) FROM generate_series(1, 199) n) r});
comes_to(q{SELECT count(*) FROM incload.outbox WHERE kind = 'resolved' AND state = 'pending'}, '398', '199 run again');
is(sql(q{SELECT count(*) FROM incload.outbox WHERE kind = 'resolved' AND state = 'delivered'}), '0', 'as long as one does not, it is not over');
run('many 200');
comes_to(q{SELECT count(*) FROM incload.outbox WHERE state <> 'delivered'}, '0', 'when the last one does');
@pages = requests('/v2/enqueue', 2, 'the page is resolved, once');
is(join('|', @{$pages[1]{json}}{qw(event_action dedup_key)}), "resolve|$pages[0]{json}{dedup_key}", 'by its key');
requests("/services/$token", 2, 'in the chat, too');
as_loader($target, q{SELECT count(*) FROM (SELECT incload_drop_job('many ' || n) FROM generate_series(1, 200) n) r});

#
# maintenance
#
fails_with($target, 'loader', q{SELECT incload_silence(NULL, '1 hour')}, '42501', qr/permission denied to silence all jobs/, 'an owner silences his jobs alone');
fails_with($target, 'pager', q{SELECT incload_silence('brittle', '1 hour')}, '42501', qr/permission denied/, 'and nobody another\'s');
as_loader($target, q{SELECT incload_silence('brittle', '1 hour', 'a new disk')});
is(as_loader($target, q{SELECT job, active, reason, created_by FROM incload.silence}), 'brittle|t|a new disk|loader', 'a job is silenced');
as_loader($target, 'UPDATE dw.base SET v = 0');
run('brittle');
as_loader($target, 'UPDATE dw.base SET v = 2');
is(run('brittle'), 0, 'it fails, and runs again');
comes_to(q{SELECT string_agg(DISTINCT kind || ' ' || state, ', ') FROM incload.outbox WHERE job = 'brittle' AND outbox_id > (SELECT max(outbox_id) FROM incload.outbox WHERE job LIKE 'many%')},
	'firing silenced, resolved silenced', 'which nobody is told, and that is on record');
as_loader($target, 'UPDATE dw.base SET v = 0');
run('brittle');
break_source();
run('items');
comes_to(q{SELECT string_agg(DISTINCT channel || ' ' || state, ', ') FROM incload.outbox WHERE job = 'items'}, 'chat delivered, page delivered', 'of others, one is told');
is(sql(q{SELECT count(*) FROM incload.outbox WHERE job = 'brittle' AND state = 'pending'}), '2', 'a silenced trouble that lasts waits');
as_loader($target, q{SELECT incload_silence('brittle', '0')});
comes_to(q{SELECT count(*) FROM incload.outbox WHERE job = 'brittle' AND state = 'pending'}, '0', 'until the silence is over');
is(sql(q{SELECT string_agg(kind || ' ' || state, ', ') FROM (SELECT * FROM incload.outbox WHERE job = 'brittle' ORDER BY outbox_id DESC LIMIT 2) o}), 'firing delivered, firing delivered', 'and is told then');
mend_source();
sql(q{UPDATE dw.base SET v = 1});
run('items');
run('brittle');
comes_to(q{SELECT count(*) FROM incload.outbox WHERE state = 'pending'}, '0', 'and so is its end');

# an alert of a scheduled job comes when retries have not helped
as_loader($target, q{SELECT incload_alter_job('items', schedule => '1 hour', options => '{"retry_limit": 2, "retry_delay": "300 ms"}')});
comes_to(q{SELECT last_status FROM incload.schedule_store JOIN incload.job USING (job_id) WHERE job = 'items'}, 'succeeded', 'a job with retries');
break_source();
sql(q{UPDATE incload.schedule_store SET next_run_at = now() WHERE job_id = (SELECT job_id FROM incload.job WHERE job = 'items')});
comes_to(q{SELECT run.attempt, run.sqlstate FROM incload.event JOIN incload.run USING (run_id) WHERE event.job = 'items' AND event.code = 'run_failed' ORDER BY event_id DESC LIMIT 1}, '3|08001', 'a fault that may pass is told at the last attempt');
mend_source();
run('items');

#
# what a channel is asked for
#
sql(qq{SELECT incload_drop_channel('chat'), incload_add_channel('never', 'http://127.0.0.1:1/', options => '{"give_up_after": "100 ms"}'),
	incload_add_channel('calm', '} . $receiver->url('/calm') . qq{', options => '{"group_wait": "0", "group_interval": "1 hour"}'),
	incload_add_channel('urgent', '} . $receiver->url('/urgent') . qq{', min_severity => 'page', options => '{"group_wait": "0"}')});
$outbox_id = sql(q{SELECT incload_test_channel('never')});
# libcurl has changed its words
comes_to("SELECT state, last_error ~ '^Could(n''t| not) connect to server' FROM incload.outbox WHERE outbox_id = $outbox_id", 'failed|t', 'what cannot be delivered for long is given up');
sql(q{SELECT incload_drop_channel('never')});
as_loader($target, q{SELECT incload_alter_job('items', options => '{"retry_limit": 0}');
	SELECT incload_create_job('others', 'src.items', 'dw.others', 'upsert', 'updated_at', '{id}')});
break_source();
run('items');
requests('/calm', 1, 'a first failure is told');
run('others');
# what comes later in the outbox is sent, and this is not
$outbox_id = sql(q{SELECT incload_test_channel('urgent')});
comes_to("SELECT state FROM incload.outbox WHERE outbox_id = $outbox_id", 'delivered', 'a second one of that cause');
is(sql(q{SELECT state FROM incload.outbox WHERE job = 'others' AND channel = 'calm'}), 'pending', 'waits for the interval');
sql(q{SELECT incload_alter_channel('calm', options => '{"group_interval": "0"}'), incload_alter_channel('page', options => '{"group_interval": "0"}')});
@got = requests('/calm', 2, 'and is told then');
is(join('|', map { "$_->{kind} $_->{job}" } @{$got[1]{json}{events}}), 'firing others', 'alone');
mend_source();
run('items');
run('others');
@got = requests('/calm', 3, 'the end of both');
is(join('|', sort map { "$_->{kind} $_->{job}" } @{$got[2]{json}{events}}), 'resolved items|resolved others', 'is told once');
is(scalar(my @urgent = grep { $_->{path} eq '/urgent' } $receiver->got), 1, 'a channel for pages is sent its test, and no tickets');
as_loader($target, q{UPDATE dw.base SET v = 0; SELECT incload_alter_job('brittle', schedule => '1 second', options => '{"pause_after": 1}')});
@got = requests('/urgent', 2, 'but a page');
is($got[1]{json}{code}, 'job_paused_itself', 'of the job that has paused itself');
as_loader($target, q{UPDATE dw.base SET v = 1; SELECT incload_resume('brittle')});
@got = requests('/urgent', 3, 'and its end');
is(join('|', @{$got[2]{json}}{qw(status code)}), 'resolved|job_paused_itself', 'when it has run again');

# a comparison that finds differences, until they are mended
$source->safe_psql('postgres', 'INSERT INTO items (v) SELECT n FROM generate_series(1, 10) n');
run('others');
as_loader($target, 'DELETE FROM dw.others WHERE v > 7');
my $compared = q{SELECT string_agg(kind || ' ' || code || ' ' || state, ', ' ORDER BY outbox_id) FROM incload.outbox WHERE channel = 'calm' AND code LIKE 'reconcile%'};
is(as_loader($target, q{SELECT count(*) FROM incload_reconcile('others', mode => 'rows')}), '3', 'source and target differ');
comes_to($compared, 'firing reconcile_mismatch delivered', 'which is told');
as_loader($target, q{SELECT count(*) FROM incload_reconcile('others', mode => 'rows', repair => true)});
comes_to($compared, 'firing reconcile_mismatch delivered, notice reconcile_mismatch delivered, resolved reconcile_recovered delivered', 'until a comparison mends it');

#
# restored: channels, with what is secret; not what was to be sent
#
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$target->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $target->connstr('postgres') ], 'pg_dump');
$target->safe_psql('postgres', 'CREATE DATABASE restored');
sql(q{ALTER SYSTEM SET incload.databases = 'postgres'; SELECT pg_reload_conf()});
$target->command_ok([ 'pg_restore', '-d', $target->connstr('restored'), $dump ], 'pg_restore');
is($target->safe_psql('restored', q{SELECT c.channel, s.url LIKE '%/' || c.channel_id || '%', c.secrets FROM incload.channel c JOIN incload.channel_store s USING (channel_id) WHERE c.channel = 'page'}) =~ s/\|[tf]\|/|/r,
	'page|{routing_key}', 'channels come with a dump');
is($target->safe_psql('restored', q{SELECT secrets->>'routing_key' FROM incload.channel_store WHERE channel = 'page'}), $token, 'and their secrets');
is($target->safe_psql('restored', q{SELECT count(*) FROM incload.outbox_store}), '0', 'and not the outbox');

#
# nothing secret
#
foreach my $view (qw(channel outbox event silence run status job worker))
{
	unlike(sql("SELECT * FROM incload.$view"), qr/\Q$token\E/, "no secret in incload.$view");
}
unlike(slurp_file($target->logfile), qr/\Q$token\E/, 'nor in the log');
unlike(sql('SELECT * FROM pg_stat_activity'), qr/\Q$token\E/, 'nor in pg_stat_activity');
my $session = session($target, $me);
$session->query_safe(qq{SELECT incload_alter_channel('page', options => '{"routing_key": "$token"}')});
unlike(sql('SELECT * FROM pg_stat_activity'), qr/\Q$token\E/, 'nor of the session that has set it');
$session->quit;

done_testing();
