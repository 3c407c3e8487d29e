# The clock of the server that loads was set back by hours: its jobs are not silent until it is
# where it was. As no clock can be set for background workers alone, what they have planned is
# put as far ahead as the clock would have gone back.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => "shared_preload_libraries = 'incload'\nincload.naptime = '100ms'\nmax_worker_processes = 16\n");

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO items SELECT i, 'v' || i FROM generate_series(1, 10) i;
});
foreign_table($target, 'items');

# create JOB SCHEDULE OPTIONS
sub create
{
	my ($job, $schedule, $options) = @_;
	as_loader($target, qq{SELECT incload_create_job('$job', 'src.items', 'dw.$job', 'upsert', 'updated_at', '{id}',
		schedule => '$schedule', options => '{"lookback": "0"}'::jsonb || '@{[ $options || '{}' ]}')});
	return;
}

sub runs { return as_loader($target, "SELECT count(*) FROM incload.run WHERE job = '$_[0]' AND status IN ('succeeded', 'failed')"); }
sub planned
{
	my ($job, $what) = @_;
	return $target->safe_psql('postgres', "SELECT $what FROM incload.schedule_store s JOIN incload.job_store j USING (job_id) WHERE job = '$job'");
}

# set_back BY JOBS: as if the clock had been by that much ahead when these were planned; a scheduler begins
sub set_back
{
	my ($by, @jobs) = @_;
	my $jobs = join(', ', map { "'$_'" } @jobs);
	my $before = runs('often');

	$target->safe_psql('postgres', qq{
		UPDATE incload.schedule_store SET planned_at = planned_at + '$by', next_run_at = next_run_at + '$by', last_run_at = last_run_at + '$by'
			WHERE job_id IN (SELECT job_id FROM incload.job_store WHERE job IN ($jobs));
		UPDATE incload.reconcile_schedule_store SET next_at = next_at + '$by'
			WHERE job_id IN (SELECT job_id FROM incload.job_store WHERE job IN ($jobs));
		SELECT pg_terminate_backend(pid) FROM incload.worker WHERE kind = 'scheduler'});
	return wait_for(60, sub { runs('often') >= $before + 2 });
}

create('often', '2 seconds');
create('daily', '1 day');
create('lines', 'CRON_TZ=UTC * * * * *');
create('yearly', 'CRON_TZ=UTC 0 3 1 1 *');
create('never', 'CRON_TZ=UTC 0 3 2 1 *');
create('compared', '1 day', '{"reconcile_schedule": "10 minutes"}');
# a fault that passes
as_loader($target, q{CREATE FUNCTION dw.not_now() RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE ''not now'' USING ERRCODE = ''40001''; END'});
create('retried', '1 day', '{"retry_delay": "10 minutes", "pre_sql": "SELECT dw.not_now()"}');
ok(wait_for(60, sub { runs('often') >= 2 && runs('daily') == 1 && runs('compared') == 1 && runs('retried') == 1 }), 'jobs run');
ok(wait_for(60, sub { planned('retried', 'attempt') eq '2' }), 'one is retried later');

my $daily = planned('daily', 'planned_at, next_run_at');
my $yearly = planned('yearly', 'planned_at, next_run_at');
ok(set_back('0 s', 'daily'), 'another scheduler, and the same clock');
is(planned('daily', 'planned_at, next_run_at'), $daily, 'all is planned as it was');
is(runs('retried'), 1, 'and tried again as late as it was to be');

ok(set_back('3 s', qw(daily lines compared retried)), 'set back by seconds, a job goes on');
is(planned('daily', q{planned_at - interval '3 s', next_run_at - interval '3 s'}), $daily, 'and no time of a schedule comes once more');

# beyond what comes after the next time of it
ok(set_back('3 years', 'never'), 'one that runs each year, and has not run yet');
is(planned('never', q{planned_at <= now() + interval '1 year 1 day', last_run_at IS NULL}), 't|t', 'comes within a year, and still has not run');

ok(set_back('7 days', qw(often daily lines compared retried)), 'set back by a week, a job goes on');
is(planned('daily', q{planned_at <= now() + interval '1 day', planned_at > now(), planned_at = next_run_at, last_run_at <= now()}), 't|t|t|t', 'what runs each day comes within a day');
is(planned('lines', q{planned_at <= now() + interval '1 minute', next_run_at - planned_at < interval '1 minute'}), 't|t', 'a cron line within a minute');
is(planned('yearly', 'planned_at, next_run_at'), $yearly, 'what runs each year is as it was');
is($target->safe_psql('postgres', q{SELECT next_at <= now() + interval '10 minutes' FROM incload.reconcile_schedule_store}), 't', 'a comparison comes at its time');
ok(wait_for(60, sub { runs('retried') == 2 && planned('retried', 'attempt') eq '3' }), 'what is retried is tried at once');
is(planned('retried', q{planned_at <= now(), next_run_at <= now() + interval '25 minutes'}), 't|t', 'and then later again, for the time that it was for');

done_testing();
