# A scheduler among troubles: a schedule that this server cannot read, a
# database that nobody can connect to, settings of the server that are not its own.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target =>
	"shared_preload_libraries = 'incload'\nincload.naptime = '50ms'\nmax_worker_processes = 16\ndefault_transaction_isolation = 'serializable'\n");

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
	schedule => '1 hour', options => '{"lookback": "0"}')}) foreach qw(locked cut unreadable);
ok(wait_for(60, sub { runs('locked') + runs('cut') + runs('unreadable') == 3 }), 'three more jobs have run');
$target->safe_psql('postgres', q{
	INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, attempt)
		SELECT nextval('incload.run_id_seq'), job_id, job, owner, 'incremental', 'running', 'schedule', now(), 1
		FROM incload.job_store WHERE job IN ('locked', 'cut', 'unreadable') ORDER BY job = 'cut';
	UPDATE incload.job_store SET schedule = 'CRON_TZ=No/Where * * * * *' WHERE job = 'unreadable';
	UPDATE incload.schedule_store SET next_run_at = now() + interval '1 hour', planned_at = now() + interval '1 hour'
		WHERE job_id IN (SELECT job_id FROM incload.job_store WHERE job IN ('locked', 'cut', 'unreadable'))});
sub state_of { return $target->safe_psql('postgres', "SELECT status FROM incload.run WHERE job = '$_[0]' ORDER BY run_id DESC LIMIT 1") }
my $locker = session($target, scalar(getpwuid($<)));
$locker->query_safe(q{BEGIN; SELECT 1 FROM incload.schedule_store JOIN incload.job_store USING (job_id) WHERE job = 'locked' FOR UPDATE});
$before = runs('items');
$target->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM incload.worker WHERE kind = 'scheduler'});
ok(wait_for(60, sub { runs('items') >= $before + 3 }), 'a job whose rows are locked does not keep others from their schedules');
is(state_of('cut'), 'failed', 'and their runs are on record');
is(state_of('unreadable'), 'failed', 'that of one whose schedule cannot be read, too');
is(state_of('locked'), 'running', 'its own is not yet');
$locker->query_safe('COMMIT');
ok(wait_for(60, sub { state_of('locked') eq 'failed' }), 'but once the lock is given back');
is($target->safe_psql('postgres', q{SELECT attempt, last_status FROM incload.schedule_store JOIN incload.job_store USING (job_id) WHERE job = 'locked'}), '2|failed',
	'and it is retried');
$locker->quit;

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

done_testing();
