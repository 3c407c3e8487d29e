# A scheduler among troubles: a schedule that this server cannot read, a
# database that nobody can connect to, settings of the server that are not its own.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target =>
	"shared_preload_libraries = 'incload'\nincload.naptime = '50ms'\nmax_worker_processes = 16\nmax_prepared_transactions = 2\ndefault_transaction_isolation = 'serializable'\n");

sub runs { return as_loader($target, qq{SELECT count(*) FROM incload.run WHERE job = '$_[0]' AND status <> 'running'}); }

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO items SELECT i, 'v' || i FROM generate_series(1, 10) i;
});
foreign_table($target, 'items');

foreach my $job ([ 'items', '1 second' ], [ 'odd', '1 hour' ])
{
	as_loader($target, qq{SELECT incload_create_job('$job->[0]', 'src.items', 'dw.$job->[0]', 'upsert', 'updated_at', '{id}',
		schedule => '$job->[1]', options => '{"lookback": "0", "retry_limit": 0}')});
}
ok(wait_for(60, sub { runs('odd') eq '1' }), 'a job has run');

# as a restored dump brings it to a server with other time zones
$target->safe_psql('postgres', q{
	UPDATE incload.job_store SET schedule = 'CRON_TZ=No/Where * * * * *' WHERE job = 'odd';
	UPDATE incload.schedule_store SET next_run_at = now() WHERE job_id = (SELECT job_id FROM incload.job_store WHERE job = 'odd')});
ok(wait_for(60, sub { as_loader($target, q{SELECT enabled FROM incload.job WHERE job = 'odd'}) eq 'f' }),
	'one whose schedule cannot be read pauses');
is(as_loader($target, q{SELECT severity, count(*), bool_and(message LIKE '%CRON_TZ=No/Where * * * * *%cannot be read%')
	FROM incload.event WHERE job = 'odd' AND code = 'job_paused_itself' GROUP BY 1}), 'page|1|t', 'and says so, once');
like(slurp_file($target->logfile), qr/"No\/Where" is not a time zone/, 'the log says why');
my $before = runs('items');
ok(wait_for(60, sub { runs('items') >= $before + 3 }), 'the others go on');
is(runs('odd'), '1', 'while it was not run over and over again');
as_loader($target, q{SELECT incload_alter_job('odd', schedule => '1 hour'); SELECT incload_resume('odd')});
ok(wait_for(60, sub { runs('odd') eq '2' }), 'with a schedule that can be read it runs again');
unlike(slurp_file($target->logfile), qr/could not serialize/, 'what the server has for isolation is not the scheduler\'s');

# runs that a crash has cut off, when somebody has the rows of one of these jobs locked
as_loader($target, qq{SELECT incload_create_job('$_', 'src.items', 'dw.$_', 'upsert', 'updated_at', '{id}',
	schedule => '1 hour', options => '{"lookback": "0", "retry_delay": "10 minutes"}')}) foreach qw(locked cut unreadable);
ok(wait_for(60, sub { runs('locked') + runs('cut') + runs('unreadable') == 3 }), 'three more jobs have run');
my $locker = session($target, scalar(getpwuid($<)));
$locker->query_safe(q{BEGIN ISOLATION LEVEL READ COMMITTED; SELECT 1 FROM incload.schedule_store JOIN incload.job_store USING (job_id) WHERE job = 'locked' FOR UPDATE});
# as a server that has crashed leaves them, and later than their next time, so that nothing runs meanwhile
$target->safe_psql('postgres', q{
	INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, attempt)
		SELECT -job_id, job_id, job, owner, 'incremental', 'running', 'schedule', now() + interval '1 hour', 1
		FROM incload.job_store WHERE job IN ('locked', 'cut', 'unreadable');
	UPDATE incload.job_store SET schedule = 'CRON_TZ=No/Where * * * * *' WHERE job = 'unreadable'});
sub state_of { return $target->safe_psql('postgres', "SELECT status FROM incload.run_store WHERE job = '$_[0]' AND run_id < 0") }
$before = runs('items');
$target->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM incload.worker WHERE kind = 'scheduler'});
ok(wait_for(60, sub { runs('items') >= $before + 3 }), 'a job whose rows are locked does not keep others from their schedules');
is(state_of('cut'), 'failed', 'and their runs are on record');
is(state_of('unreadable'), 'failed', 'that of one whose schedule cannot be read, too');
is($target->safe_psql('postgres', q{SELECT attempt, last_status FROM incload.schedule_store JOIN incload.job_store USING (job_id) WHERE job = 'cut'}), '2|failed',
	'it is retried');
is(state_of('locked'), 'running', 'that of the locked one is not on record yet');
$locker->query_safe('COMMIT');
ok(wait_for(60, sub { state_of('locked') eq 'failed' }), 'but once the lock is given back');
$locker->quit;

# a schedule that is altered while the outcome of a run is put down counts from its own first time on
as_loader($target, q{SELECT incload_create_job('yearly', 'src.items', 'dw.yearly', 'upsert', 'updated_at', '{id}',
	schedule => '1 second', options => '{"lookback": "0"}')});
my $altering = session($target, scalar(getpwuid($<)));
my $altering_pid = $altering->query_safe('SELECT pg_backend_pid()');
$altering->query_safe(q{BEGIN ISOLATION LEVEL READ COMMITTED; SELECT 1 FROM incload.schedule_store JOIN incload.job_store USING (job_id) WHERE job = 'yearly' FOR UPDATE OF schedule_store});
ok(wait_for(60, sub { $target->safe_psql('postgres', qq{SELECT count(*) FROM pg_stat_activity
	WHERE backend_type = 'incload runner' AND pg_blocking_pids(pid) @> '{$altering_pid}'}) eq '1' }), 'a run has ended, and its outcome waits');
$altering->query_safe(q{SELECT incload_alter_job('yearly', schedule => 'CRON_TZ=UTC 0 3 1 1 *'); COMMIT});
$altering->quit;
ok(wait_for(60, sub { $target->safe_psql('postgres', q{SELECT count(*) FROM incload.worker WHERE kind = 'runner' AND state = 'running'}) eq '0' }), 'it is put down');
is($target->safe_psql('postgres', q{SELECT planned_at = (SELECT t FROM incload_next_runs('CRON_TZ=UTC 0 3 1 1 *', 1, now()) t), last_status
	FROM incload.schedule_store JOIN incload.job_store USING (job_id) WHERE job = 'yearly'}), 't|succeeded', 'and skips no time of the new schedule');

# what a scheduler with a long nap has read is old when it is due
as_loader($target, qq{SELECT incload_create_job('$_', 'src.items', 'dw.$_', 'upsert', 'updated_at', '{id}',
	schedule => '1 hour', options => '{"lookback": "0"}')}) foreach qw(moved kept);
ok(wait_for(60, sub { runs('moved') + runs('kept') == 2 }), 'two jobs');
$target->safe_psql('postgres', q{ALTER SYSTEM SET incload.naptime = '1 h'});
$target->reload;
my $scheduler = $target->safe_psql('postgres', q{
	UPDATE incload.schedule_store s SET planned_at = at, next_run_at = at FROM (SELECT job_id, now() + CASE job WHEN 'moved' THEN interval '5 s' ELSE '5.2 s' END AS at
		FROM incload.job_store WHERE job IN ('moved', 'kept')) j WHERE j.job_id = s.job_id;
	SELECT pid FROM incload.worker WHERE kind = 'scheduler' AND pg_terminate_backend(pid)});
ok(wait_for(60, sub { $target->safe_psql('postgres', qq{SELECT count(*) FROM pg_stat_activity
	WHERE backend_type = 'incload scheduler' AND pid <> $scheduler AND state = 'idle'}) eq '1' }), 'a scheduler has read what is due within its nap');
as_loader($target, q{SELECT incload_alter_job('moved', schedule => 'CRON_TZ=UTC 0 3 1 1 *')});
ok(wait_for(60, sub { runs('kept') eq '2' }), 'one of them runs at its time');
is(as_loader($target, q{SELECT count(*) FROM incload.run WHERE job = 'moved'}), '1', 'the other one not at the time that it had before');
is($target->safe_psql('postgres', q{SELECT planned_at = (SELECT t FROM incload_next_runs('CRON_TZ=UTC 0 3 1 1 *', 1, now()) t)
	FROM incload.schedule_store JOIN incload.job_store USING (job_id) WHERE job = 'moved'}), 't', 'but at its new one');
$target->safe_psql('postgres', q{ALTER SYSTEM RESET incload.naptime});
$target->reload;

# a DROP DATABASE that was interrupted leaves one that nobody can connect to
$target->safe_psql('postgres', q{CREATE DATABASE wreck; UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'wreck'});
# the scheduler that CREATE DATABASE brought may still try
$target->stop;
my $offset = -s $target->logfile;
$target->start;
$before = runs('items');
ok(wait_for(60, sub { runs('items') >= $before + 3 }), 'after a restart');
unlike(slurp_file($target->logfile, $offset), qr/cannot connect to invalid database/, 'nobody tries to enter a database that is invalid');

# databases come and go: nobody enters again those that have been seen to be without the extension
$target->safe_psql('postgres', 'ALTER SYSTEM SET log_min_messages = debug1');
$target->reload;
$offset = -s $target->logfile;
sub starts { my $log = slurp_file($target->logfile, $offset); return scalar(() = $log =~ /starting background worker process "incload scheduler"/g) }
$target->safe_psql('postgres', "CREATE DATABASE bare$_") foreach 1 .. 4;
ok(wait_for(60, sub { starts() >= 4 }), 'databases without the extension are looked at');
ok(wait_for(60, sub { $target->safe_psql('postgres', q{SELECT count(*) FROM incload.worker WHERE kind = 'scheduler'}) eq '1' }), 'and left');
$offset = -s $target->logfile;
$target->safe_psql('postgres', 'CREATE DATABASE fresh');
ok(wait_for(60, sub { starts() > 0 }), 'another one is looked at');
$target->safe_psql('fresh', 'CREATE EXTENSION incload');
ok(wait_for(60, sub { $target->safe_psql('postgres', q{SELECT count(*) FROM incload.worker WHERE kind = 'scheduler' AND database = 'fresh'}) eq '1' }),
	'created there, the extension has a scheduler');
cmp_ok(starts(), '<=', 2, 'and nobody has looked at the others again');

# whoever commits a prepared transaction does not know what was done in it
$offset = -s $target->logfile;
$target->safe_psql('bare1', "BEGIN; CREATE TABLE t (); PREPARE TRANSACTION 'table'");
$target->safe_psql('bare1', "COMMIT PREPARED 'table'");
$target->safe_psql('bare2', "BEGIN; CREATE EXTENSION incload; PREPARE TRANSACTION 'extension'");
$target->safe_psql('bare2', "COMMIT PREPARED 'extension'");
ok(wait_for(60, sub { $target->safe_psql('postgres', q{SELECT count(*) FROM incload.worker WHERE kind = 'scheduler' AND database = 'bare2'}) eq '1' }),
	'created in a prepared transaction, it has one, too');
is(starts(), 1, 'a database where a prepared transaction has brought something else is not looked at');
# nothing is waited for once it has committed: a timeout would say that it has not
$target->safe_psql('bare1', "BEGIN; LOCK pg_extension; PREPARE TRANSACTION 'lock'");
$target->safe_psql('bare1', "BEGIN; CREATE TABLE u (); PREPARE TRANSACTION 'more'");
is($target->psql('bare1', "SET lock_timeout = '200ms'; COMMIT PREPARED 'more'"), 0, 'a prepared transaction is committed while the extensions are locked');
is($target->safe_psql('bare1', q{SELECT count(*) FROM pg_class WHERE relname = 'u'}), '1', 'and has been');
$target->safe_psql('bare1', "COMMIT PREPARED 'lock'");

done_testing();
