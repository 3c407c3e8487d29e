# incload.slo: figures from histories that were computed by hand, those that a scheduler keeps ready, and the events
# that come of them: error_budget_25, error_budget_75, volume_unusual.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IncloadTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $target = new_target("shared_preload_libraries = 'incload'\nincload.naptime = 100\nTimeZone = 'UTC'\n");
my %id;

sub here { return $target->safe_psql('postgres', $_[0]) }

$target->safe_psql('postgres', q{
	SELECT incload_worker_stop();
	CREATE TABLE dw.source (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now());
	ALTER TABLE dw.source OWNER TO loader;
	-- minutes of 2026-03-31, as started_at, finished_at
	CREATE FUNCTION ran(of_job bigint, a timestamptz, b timestamptz, outcome text, error text DEFAULT NULL, what text DEFAULT 'incremental',
		n bigint DEFAULT 0, bytes bigint DEFAULT 0) RETURNS void AS $$
		INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at, rows_read, bytes_read, sqlstate, error)
		SELECT nextval('incload.run_id_seq'), job_id, job, owner, what, outcome, 'manual', a, b, n, bytes, error, error FROM incload.job_store WHERE job_id = of_job
	$$ LANGUAGE sql;
});

# job NAME, OPTIONS: of loader, without a run
sub job
{
	my ($name, $options) = @_;

	$id{$name} = as_loader($target, qq{SELECT job_id FROM incload_create_job('$name', 'dw.source', 'dw.$name', strategy => 'upsert', watermark => 'updated_at',
		key => '{id}', options => '$options')});
	return;
}

# ran JOB, TIME OF DAY, TIME OF DAY, OUTCOME, …
sub ran
{
	my ($job, $from, $to, @more) = @_;

	here("SELECT ran($id{$job}, '2026-03-31 $from', '2026-03-31 $to', " . join(', ', map { "'$_'" } @more) . ')');
	return;
}

sub figures
{
	my ($job, $columns, $period, $at) = @_;

	$at ||= '2026-03-31 12:00';
	return here("SELECT $columns FROM incload.slo_of($id{$job}, '$at') WHERE period = '$period'");
}

# ---------------------------------------------------------------------------
# by hand
# ---------------------------------------------------------------------------

job('hand', '{"freshness_slo": "30 minutes", "success_slo": 0.9}');
is(figures('hand', 'count(*), min(observed), count(freshness_p50), count(success_rate), count(budget_left), min(errors::text)', '30 days'),
	'1|00:00:00|0|0|0|{}', 'without a run nothing is known');
ran('hand', '10:58', '11:00', 'succeeded');
ran('hand', '11:20', '11:22', 'succeeded');
ran('hand', '11:30', '11:31', 'failed', '08006');
ran('hand', '11:35', '11:36', 'cancelled', '57014');
ran('hand', '11:40', '11:41', 'failed', '23505');
ran('hand', '11:45', '11:45', 'skipped');
ran('hand', '11:50', '11:51', 'succeeded');
# what is no load, is not over, or is not yet
ran('hand', '11:10', '11:11', 'succeeded', '', 'backfill', 500, 4000);
ran('hand', '11:12', '11:13', 'failed', '23505', 'backfill', 700, 9000);
ran('hand', '11:14', '11:15', 'succeeded', '', 'retry', 5);
ran('hand', '12:10', '12:20', 'succeeded');
here("SELECT ran($id{hand}, '2026-03-31 11:59', NULL, 'running')");

# From 11:00 to 11:22 the freshness grows from 2 to 24 minutes, to 11:51 from 2 to 31, to 12:00 from 1 to 10. One state has ages of 1 to 2 minutes,
# three have 2 to 10, two 10 to 24, one 24 to 31: 1, 25, 53 and 60 minutes of 60 are at or below their ends. P50 is at 30 minutes of the
# hour: 10 + 5/2; P95 at 57: 24 + 4; P99 at 59.4: 24 + 6.4.
is(figures('hand', 'observed, freshness_p50, freshness_p95, freshness_p99', '1 hour'), '01:00:00|00:12:30|00:28:00|00:30:24', 'freshness weighed by time');
is(figures('hand', 'freshness_slo, round(fresh_fraction::numeric, 6), success_slo', '1 hour'), '00:30:00|0.983333|0.9', 'a minute of 60 was too old');
is(figures('hand', 'runs, failed, success_rate, errors', '1 hour'), '4|2|0.5|{"08": 1, "23": 1}', 'runs that ended in the hour');
is(figures('hand', 'runs, failed, success_rate, observed', '1 day'), '5|2|0.6|01:00:00', 'and in the day');
is(figures('hand', 'recoveries, time_to_recover', '1 hour'), '1|00:20:00', 'from the end of the first failure to that of the success');
is(figures('hand', 'backfill_rows, backfill_bytes', '1 hour'), '500|4000', 'what a backfill has loaded');
# an hour: stale 1/60, failed 2/4; six hours: stale 1 of the 60 minutes that are known, failed 2/5; a tenth may be
is(figures('hand', 'round(burn_rate_1h::numeric, 6), round(burn_rate_6h::numeric, 6)', '30 days'), '5.000000|4.000000', 'burn rates, by the worse objective');
# the budget is 4320 minutes of 43200: a stale one spends 1/4320; 2 failures of 5 in the 62 minutes since the first run count for 2/5 × 62/4320
is(figures('hand', 'round(budget_left::numeric, 9), budget_by', '1 hour'), '0.994259259|success', 'the budget of 30 days, in each row');
as_loader($target, q{SELECT incload_alter_job('hand', options => '{"success_slo": null}')});
is(figures('hand', 'round(budget_left::numeric, 9), budget_by, round(burn_rate_1h::numeric, 6), success_slo', '30 days'), '0.997685185|freshness|1.666667|0.99',
	'freshness_slo alone: 99% of the time');
as_loader($target, q{SELECT incload_alter_job('hand', options => '{"success_slo": 0.9, "freshness_slo": null}')});
is(figures('hand', 'budget_by, round(burn_rate_6h::numeric, 6), fresh_fraction, freshness_p50', '1 hour'), 'success|4.000000||00:12:30', 'success_slo alone');
as_loader($target, q{SELECT incload_alter_job('hand', options => '{"success_slo": null}')});
is(figures('hand', 'budget_left, budget_by, burn_rate_1h, success_slo, success_rate', '1 hour'), '||||0.5', 'no objective, no budget');

# later, and before
is(figures('hand', 'runs, freshness_p50, recoveries', '1 hour', '2026-03-31 12:10'), '4|00:15:00|1', 'ten minutes later');
is(figures('hand', 'runs, observed', '1 day', '2026-03-31 10:59'), '0|00:00:00', 'before the first run');
is(figures('hand', 'runs, observed, freshness_p50, recoveries', '1 hour', '2026-05-15 12:00'), '0|01:00:00|44 days 23:20:00|0', 'weeks after the last one');

# comparisons
here(qq{INSERT INTO incload.reconcile_store (run_id, job_id, job, owner, at, mode, source_rows, target_rows, ranges, ranges_differing, rows_missing, rows_extra, rows_changed, rows_conflicting, rows_repaired, rows_duplicate)
	SELECT 100000 + n, $id{hand}, 'hand', 'loader', at, 'hash', 1000, rows, 1, 0, missing, extra, 7, 0, 0, extra / 10
	FROM (VALUES (1, timestamptz '2026-03-30 11:30', 1000, 50, 50), (2, '2026-03-31 09:00', 1000, 0, 0), (3, '2026-03-31 11:30', 990, 20, 10), (4, '2026-03-31 12:30', 1, 1, 1)) AS c (n, at, rows, missing, extra)});
is(figures('hand', 'comparisons, missing_rate, round(extra_rate::numeric, 6), round(duplicate_rate::numeric, 6)', '1 hour'), '1|0.02|0.010101|0.001010', 'rows that were missing, and that were too many');
is(figures('hand', 'comparisons, missing_rate, round(extra_rate::numeric, 6)', '1 day'), '2|0.01|0.005025', 'all comparisons of a day together');
is(figures('hand', 'comparisons, round(missing_rate::numeric, 6)', '30 days'), '3|0.023333', 'and of 30');

# a longer row of failures that began before the hour, and none that is over
job('down', '{}');
ran('down', '09:00', '09:01', 'succeeded');
ran('down', "10:0$_", "10:0$_", 'failed', '57P01') foreach 2 .. 6;
ran('down', '11:20', '11:22', 'succeeded');
ran('down', '11:40', '11:42', 'failed', '57014');
is(figures('down', 'recoveries, time_to_recover, runs, failed, errors', '1 hour'), '1|01:20:00|2|1|{"57": 1}', 'a row of failures counts from its beginning');
is(figures('down', 'recoveries, runs, errors', '1 hour', '2026-03-31 11:00'), '0|5|{"57": 5}', 'not before it is over');

# any history: the time at or below each percentile is what it has to be, counted another way
job('many', '{}');
here(qq{SELECT ran($id{many}, a, a + (1 + (i * 7919) % 40) * interval '1 s', CASE WHEN i % 7 = 3 THEN 'failed' ELSE 'succeeded' END)
	FROM (SELECT i, timestamptz '2026-03-01' + (i * 13 + (i * 104729) % 11) * interval '1 minute' AS a FROM generate_series(1, 3300) i) r});
foreach my $period ('1 hour', '1 day', '30 days')
{
	is(here(qq{
		WITH s AS (SELECT started_at AS a, finished_at AS b, lead(finished_at, 1, '2026-03-31 02:03:04.567891') OVER (ORDER BY finished_at) AS c
			FROM incload.run_store WHERE job_id = $id{many} AND status = 'succeeded' AND finished_at <= '2026-03-31 02:03:04.567891'),
		d AS (SELECT greatest(b, '2026-03-31 02:03:04.567891'::timestamptz - interval '$period') - a AS low, c - a AS high FROM s
			WHERE c > '2026-03-31 02:03:04.567891'::timestamptz - interval '$period')
		SELECT string_agg(round(part, 6)::text, ' ' ORDER BY p) FROM (
			SELECT p, sum(greatest(extract(epoch FROM least(high, x) - low), 0)) / sum(extract(epoch FROM high - low)) AS part
			FROM d, incload.slo_of($id{many}, '2026-03-31 02:03:04.567891') f, LATERAL (VALUES (50, freshness_p50), (95, freshness_p95), (99, freshness_p99)) AS v (p, x)
			WHERE f.period = '$period' GROUP BY p) q}), '0.500000 0.950000 0.990000', "percentiles of any history: $period");
}

# less history than a period: it is as long as that
job('short', '{"freshness_slo": "30 minutes", "success_slo": 0.9}');
ran('short', @$_) foreach ['08:00', '08:05', 'failed', '08006'], ['10:58', '11:00', 'succeeded'], ['11:20', '11:22', 'succeeded'], ['11:30', '11:31', 'failed', '08006'],
  ['11:50', '11:51', 'succeeded'];
is(figures('short', 'runs, round(budget_left::numeric, 6)', '30 days'), '5|' . sprintf('%.6f', 1 - 2 / 5 * 240 / 4320), 'all that is on record');
$target->append_conf('postgresql.conf', "incload.run_retention = '2h'");
$target->reload;
ok(wait_for(60, sub { figures('short', 'runs', '30 days') eq '4' }), 'what is older than incload.run_retention does not count');
# of 120 minutes, 12 may be bad: 1 of 4 runs in 120 minutes is as good as 30
is(figures('short', 'runs, round(budget_left::numeric, 6), budget_by, observed', '30 days'), '4|' . '-1.500000|success|01:00:00',
	'and the budget is that of the time for which it is kept');
$target->append_conf('postgresql.conf', "incload.run_retention = 0");
$target->reload;

# ---------------------------------------------------------------------------
# volumes
# ---------------------------------------------------------------------------

# one run a day at 11:05 with 990 to 1010 rows, and one at 03:05 with 5 rows
sub volumes
{
	my ($job, $days, $hours, $rows, $spread) = @_;

	here(qq{SELECT ran($id{$job}, a, a + interval '1 minute', 'succeeded', n => CASE WHEN h = 11 THEN $rows + (d % 5 - 2) * $spread ELSE 5 END)
		FROM (SELECT d, h, timestamptz '2026-03-31' - d * interval '1 day' + h * interval '1 hour' + interval '5 minutes' AS a
			FROM generate_series($days, 1, -1) d, unnest('{$hours}'::int[]) h) r});
	return;
}

sub surprises
{
	my ($job, $rows, $from, $columns, $catches_up) = @_;
	my $found;

	$catches_up ||= '';
	# the one before it is at its time
	here("SELECT ran($id{$job}, '2026-03-31 03:04', '2026-03-31 03:04:30', 'succeeded', n => 5)") if $catches_up ne 'catches up' && $from gt '04';
	here("SELECT ran($id{$job}, '2026-03-31 $from', '2026-03-31 $from'::timestamptz + interval '1 minute', 'succeeded', n => $rows)");
	$found = here(qq{SELECT coalesce(string_agg(concat_ws(' ', $columns), ','), 'none') FROM incload.unusual_volumes($id{$job}, '2026-03-31 00:00', '2026-03-31 12:00')});
	here("DELETE FROM incload.run_store WHERE job_id = $id{$job} AND started_at > '2026-03-31'");
	return $found;
}

my $all = 'rows_read, median, deviation, round(low::numeric, 2), round(high::numeric, 2), samples';
job('steady', '{}');
volumes('steady', 20, '3,11', 1000, 5);
# median 1000, median distance 5: a tenth of the median is more, six times that is far
is(surprises('steady', 1600, '11:05', $all), 'none', '600 from 1000 is not far');
is(surprises('steady', 1601, '11:05', $all), '1601 1000 5 400.00 1600.00 20', '601 is');
is(surprises('steady', 399, '11:05', $all), '399 1000 5 400.00 1600.00 20', 'likewise below');
is(surprises('steady', 0, '11:59', $all), '0 1000 5 400.00 1600.00 20', 'nothing at all, within the same hour');
is(surprises('steady', 1000, '03:05', $all), '1000 5 0 0.00 65.00 20', 'another hour has its own history: ten rows are the least that counts as a distance');
is(surprises('steady', 65, '03:05', $all), 'none', 'six times that is not far');
is(surprises('steady', 100000, '07:05', $all), 'none', 'an hour without a history');
job('noisy', '{}');
volumes('noisy', 20, '3,11', 1000, 100);
is(surprises('noisy', 1889, '11:05', $all), 'none', 'median distance 100: 889.56 from the median is far');
is(surprises('noisy', 1890, '11:05', $all), '1890 1000 100 110.44 1889.56 20', 'and no less');
job('young', '{}');
volumes('young', 7, '3,11', 1000, 5);
is(surprises('young', 9000, '11:05', $all), 'none', 'too few samples');
here(qq{SELECT ran($id{young}, '2026-03-23 11:05', '2026-03-23 11:06', 'succeeded', n => 1000, what => 'full')});
is(surprises('young', 9000, '11:05', $all), 'none', 'a full run is no sample of an incremental one');
here("DELETE FROM incload.run_store WHERE job_id = $id{young} AND kind = 'full'");
here(qq{SELECT ran($id{young}, '2026-03-2$_ 11:05', '2026-03-2$_ 11:06', 'succeeded', n => 1000)}) foreach 3 .. 3;
# the runs of before come after them by their numbers: the order is that of their ends
is(surprises('young', 9000, '11:05', $all), '9000 1000 5 400.00 1600.00 8', 'eight are enough');
# many runs say little as long as they are of few days: 12 in that hour on each of six days, and today
job('quick', '{}');
sub quick
{
	my ($day, $from, $to) = @_;

	here(qq{SELECT ran($id{quick}, a, a + interval '1 minute', 'succeeded', n => 1000) FROM generate_series(timestamptz '2026-03-$day $from', '2026-03-$day $to', '5 minutes') a});
	return;
}
quick($_, '10:00', '12:00') foreach 26 .. 30;
sub after_minutes
{
	my $found;

	quick('31', '10:30', '11:25');
	here(qq{SELECT ran($id{quick}, '2026-03-31 11:30', '2026-03-31 11:31', 'succeeded', n => 9000)});
	$found = here(qq{SELECT coalesce(string_agg(concat_ws(' ', $all), ','), 'none') FROM incload.unusual_volumes($id{quick}, '2026-03-31 00:00', '2026-03-31 12:00')});
	here("DELETE FROM incload.run_store WHERE job_id = $id{quick} AND started_at > '2026-03-31'");
	return $found;
}
is(after_minutes(), 'none', 'runs of five days and this one, however many, do not tell what is usual');
quick('25', '11:50', '11:55');
is(after_minutes(), '9000 1000 0 400.00 1600.00 68', 'those of seven days do');
here("DELETE FROM incload.run_store WHERE job_id = $id{quick} AND started_at < '2026-03-30'");
is(after_minutes(), 'none', 'a job that is new says nothing');
here("DELETE FROM incload.run_store WHERE job_id = $id{steady} AND started_at > '2026-03-29'");
is(surprises('steady', 3000, '11:05', $all, 'catches up'), 'none', 'who catches up on days without a run is not judged');

# ---------------------------------------------------------------------------
# what a scheduler keeps, and tells
# ---------------------------------------------------------------------------

is(as_loader($target, q{SELECT count(*), count(*) FILTER (WHERE as_of > now() - interval '1 minute') FROM incload.slo WHERE job = 'hand'}), '3|3', 'without a scheduler, incload.slo is computed at once');
here('DELETE FROM incload.run_store');
job('quiet', '{"success_slo": 0.5}');
job('burning', '{"success_slo": 0.9}');
job('surprising', '{}');
# a day of 30: 6 of 10 failed are 0.6/0.1/30 = 20% of the budget
sub burn
{
	my ($n, $outcome) = @_;

	here(qq{SELECT ran($id{$_}, now() - interval '1 day' + i * interval '1 minute', now() - interval '1 day' + i * interval '1 minute', '$outcome', '08006')
		FROM generate_series(1, $n) i}) foreach ('quiet', 'burning');
	return;
}
here(qq{SELECT ran($id{burning}, now() - interval '30 days', now() - interval '29 days 23 hours', 'succeeded'), ran($id{quiet}, now() - interval '30 days', now() - interval '29 days 23 hours', 'succeeded')});
burn(197, 'succeeded');
burn(2, 'failed');
here(qq{SELECT ran($id{surprising}, a, a, 'succeeded', n => CASE WHEN d = 0 THEN 7000 ELSE 1000 END)
	FROM (SELECT d, now() - d * interval '1 day' AS a FROM generate_series(20, 0, -1) d) r});
my $surprise = here("SELECT max(run_id) FROM incload.run_store WHERE job_id = $id{surprising}");

# events of a job, oldest first
sub events
{
	my ($job) = @_;
	return here("SELECT coalesce(string_agg(code || ' ' || severity, ', ' ORDER BY event_id), 'none') FROM incload.event WHERE job = '$job' AND code ~ 'budget|volume'");
}

# makes the scheduler compute a job's figures again, and waits for them
sub sweep
{
	here("UPDATE incload.slo_store SET as_of = as_of - interval '11 minutes' WHERE job_id IN ($id{quiet}, $id{burning}, $id{surprising})");
	return $target->poll_query_until('postgres', "SELECT count(*) = 3 FROM incload.slo_store WHERE job_id IN ($id{quiet}, $id{burning}, $id{surprising}) AND as_of > now() - interval '1 minute'");
}

here('SELECT incload_worker_start()');
ok(sweep(), 'a scheduler computes the figures of all jobs');
is(here(q{SELECT count(*), count(DISTINCT as_of) FROM incload.slo WHERE job = 'burning'}), '3|1', 'incload.slo shows them');
is(here(q{SELECT count(*) FROM incload.job j JOIN incload.slo_store c USING (job_id), LATERAL (SELECT array_agg(f ORDER BY period) AS figures FROM incload.slo_of(j.job_id, c.as_of) f) f
	WHERE c.figures IS DISTINCT FROM f.figures}), '0', 'they are those of that time');
is(here(q{SELECT s.budget_left = f.budget_left FROM incload.status s JOIN incload.slo f USING (job) WHERE job = 'burning' AND period = '1 day'}), 't', 'incload.status has the budget');
# 2 of 200 failed, of a tenth: 10%
is(events('burning') . '; ' . events('quiet'), 'none; none', 'a tenth of the budget is no event');
is(events('surprising'), 'volume_unusual ticket', 'an unusual volume is one');
is(here(q{SELECT run_id, message, details FROM incload.event WHERE code = 'volume_unusual'}),
	"$surprise|run $surprise of job surprising has read 7000 rows: at that hour it is 400 to 1600, going by 20 runs|" . '{"median": 1000.0, "samples": 20, "deviation": 0.0, "rows_read": 7000}',
	'with the run, and what would have been usual');
burn(4, 'failed');
ok(sweep(), 'six of 204');
is(events('burning') . '; ' . events('quiet'), 'error_budget_25 ticket; none', 'a quarter of the budget is a ticket');
ok(sweep(), 'once more');
is(events('burning') . '; ' . events('surprising'), 'error_budget_25 ticket; volume_unusual ticket', 'each is told once');
burn(60, 'failed');
ok(sweep(), 'and 66 of 264');
is(events('burning') . '; ' . events('quiet'), 'error_budget_25 ticket, error_budget_75 page; error_budget_25 ticket', 'three quarters are a page');
like(here(q{SELECT message, details FROM incload.event WHERE code = 'error_budget_75'}),
	qr/^job burning has spent 75% of its error budget of 30 days: 2[45]\d\.\d%, by its success\|\{"by": "success", "spent": 2\.[45]\d+\}$/, 'how much, and by what');
here("DELETE FROM incload.run_store WHERE job_id = $id{burning} AND status = 'failed'");
ok(sweep() && sweep(), 'they leave the 30 days');
burn(100, 'failed');
ok(sweep(), 'and others come');
is(events('burning'), 'error_budget_25 ticket, error_budget_75 page, error_budget_25 ticket, error_budget_75 page', 'then it is told anew');

# an altered job is not shown what was
as_loader($target, q{SELECT incload_alter_job('burning', options => '{"success_slo": 0.5}')});
is(here(q{SELECT DISTINCT success_slo FROM incload.slo WHERE job = 'burning'}), '0.5', 'a new objective holds at once');
is(as_loader($target, q{SELECT count(incload_drop_job(job)) FROM incload.job}) . here(' SELECT count(*) FROM incload.slo_store'), '110', 'a job that is dropped leaves no figures');
unlike(slurp_file($target->logfile), qr/(ERROR|WARNING|PANIC):/, 'and the log is clean');

done_testing();
