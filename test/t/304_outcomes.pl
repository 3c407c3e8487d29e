# What the figures of incload.slo are made of: outcomes of runs that are kept small beside the history. They are those of the
# history, whoever writes it at the same time, alters it or undoes what he wrote; and whoever may look sees them without writing anything.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IncloadTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $target = new_target("TimeZone = 'UTC'\nshared_preload_libraries = 'incload'\nincload.run_retention = 0\nincload.naptime = 100\nwal_level = replica\nmax_wal_senders = 4\n", allows_streaming => 1);

sub here { return $target->safe_psql('postgres', $_[0]) }

here(q{
	SELECT incload_worker_stop();
	CREATE TABLE dw.source (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now());
	ALTER TABLE dw.source OWNER TO loader;
	CREATE ROLE stranger LOGIN;
	-- so many runs, the first ended at a time, one every five minutes: each seventh failed, each eleventh a backfill
	CREATE PROCEDURE ran(of_job text, first_at timestamptz, n integer) AS $$
	BEGIN
		FOR i IN 0 .. n - 1 LOOP
			INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at, rows_read, bytes_read, sqlstate)
			SELECT nextval('incload.run_id_seq'), job_id, job, owner, CASE WHEN i % 11 = 5 THEN 'backfill' WHEN i % 13 = 1 THEN 'full' ELSE 'incremental' END,
				CASE WHEN i % 7 = 3 THEN 'failed' ELSE 'succeeded' END, 'manual', at - (1 + i * 7919 % 100) * interval '1 s', at, i, 8 * i, CASE WHEN i % 7 = 3 THEN '08006' END
			FROM incload.job_store, LATERAL (SELECT first_at + i * interval '5 minutes' AS at) a WHERE job = of_job;
			IF i % 10 = 9 THEN
				COMMIT;
			END IF;
		END LOOP;
	END $$ LANGUAGE plpgsql;
	-- the same from the history itself, in another way
	CREATE FUNCTION by_hand(of_job bigint, at timestamptz, length interval, OUT runs bigint, OUT failed bigint, OUT backfill_rows numeric, OUT backfill_bytes numeric, OUT observed interval) AS $$
		SELECT count(*) FILTER (WHERE kind <> 'backfill' AND finished_at > at - length), count(*) FILTER (WHERE kind <> 'backfill' AND status = 'failed' AND finished_at > at - length),
			coalesce(sum(rows_read) FILTER (WHERE kind = 'backfill' AND status = 'succeeded' AND finished_at > at - length), 0),
			coalesce(sum(bytes_read) FILTER (WHERE kind = 'backfill' AND status = 'succeeded' AND finished_at > at - length), 0),
			coalesce(at - greatest(min(finished_at) FILTER (WHERE kind <> 'backfill' AND status = 'succeeded'), at - length), '0')
		FROM incload.run_store WHERE job_id = of_job AND finished_at <= at AND status IN ('succeeded', 'failed') AND kind IN ('incremental', 'full', 'backfill')
	$$ LANGUAGE sql STABLE;
	CREATE FUNCTION parts_below(of_job bigint, at timestamptz, length interval, ages interval[]) RETURNS text AS $$
		WITH s AS (SELECT started_at AS a, finished_at AS b, lead(finished_at, 1, at) OVER (ORDER BY finished_at) AS c
			FROM incload.run_store WHERE job_id = of_job AND status = 'succeeded' AND kind IN ('incremental', 'full') AND finished_at <= at),
		d AS (SELECT greatest(b, at - length) - a AS low, c - a AS high FROM s WHERE c > at - length)
		SELECT string_agg(round(part, 6)::text, ' ' ORDER BY p) FROM (
			SELECT p, sum(greatest(extract(epoch FROM least(high, x) - low), 0)) / sum(extract(epoch FROM high - low)) AS part
			FROM d, unnest(ages) WITH ORDINALITY AS u (x, p) GROUP BY p) q
	$$ LANGUAGE sql STABLE;
	GRANT USAGE ON SCHEMA incload TO PUBLIC;
});
my %id = map { $_ => as_loader($target, qq{SELECT job_id FROM incload_create_job('$_', 'dw.source', 'dw.$_', strategy => 'upsert', watermark => 'updated_at', key => '{id}',
	options => '{"freshness_slo": "30 minutes", "success_slo": 0.9}')}) } ('much', 'mixed', 'old', 'gone');

# those figures of a job that do not depend on an objective, and the parts of the time at which its percentiles are
sub figures
{
	my ($job, $at, $period, $node) = @_;
	my $columns = 'runs, failed, backfill_rows, backfill_bytes, observed';

	return ($node || $target)->safe_psql('postgres', "SELECT $columns, parts_below($id{$job}, '$at', period, ARRAY[freshness_p50, freshness_p95, freshness_p99])
		FROM incload.slo_of($id{$job}, '$at') WHERE period = '$period'");
}

# is what it says of a job what the history says?
sub agrees
{
	my ($job, $at, $name) = @_;
	my @periods = ('1 hour', '1 day', '30 days');

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(join("\n", map { figures($job, $at, $_) } @periods),
		join("\n", map { here("SELECT h.*, '0.500000 0.950000 0.990000' FROM by_hand($id{$job}, '$at', '$_') h") } @periods), $name);
	return;
}

# how many outcomes are kept, and in how many rows
sub kept
{
	my ($job) = @_;
	return here("SELECT (SELECT sum(octet_length(outcomes)) / 24 FROM incload.outcome_store WHERE job_id = $id{$job}),
		(SELECT count(*) FROM incload.outcome_store WHERE job_id = $id{$job}), (SELECT sum(octet_length(recent)) / 24 FROM incload.tally_store WHERE job_id = $id{$job})");
}

# ---------------------------------------------------------------------------
# many runs take few rows
# ---------------------------------------------------------------------------

here(q{CALL ran('much', '2026-03-20 10:00', 1000)});
# of 1000 runs, each 77th is a window of a backfill that failed: 13, which are no outcomes
is(here("SELECT count(*) FROM incload.run_store WHERE job_id = $id{much} AND kind = 'backfill' AND status = 'failed'"), '13', '987 outcomes');
is(kept('much'), '960|3|27', 'of which all but the last few are condensed');
is(here('SELECT pg_table_size(reltoastrelid) FROM pg_class WHERE oid = $$incload.outcome_store$$::regclass'), '0', 'into rows that fit a page');
agrees('much', $_, "the figures as of $_ are those of the history") foreach ('2026-03-20 10:02', '2026-03-21 00:00', '2026-03-23 21:15:00.000001', '2026-04-01', '2026-04-22 11:00');

# ---------------------------------------------------------------------------
# others who write at the same time
# ---------------------------------------------------------------------------

here(q{CALL ran('mixed', '2026-03-20 10:00', 15)});
my $slow = session($target, scalar(getpwuid($<)));
my $repeatable = session($target, scalar(getpwuid($<)));
$slow->query_safe(q{BEGIN; INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at)
	SELECT nextval('incload.run_id_seq'), job_id, job, owner, 'incremental', 'succeeded', 'manual', '2026-03-20 12:00', '2026-03-20 12:07' FROM incload.job_store WHERE job = 'mixed'});
$repeatable->query_safe(q{BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at)
	SELECT nextval('incload.run_id_seq'), job_id, job, owner, 'incremental', 'failed', 'manual', '2026-03-20 12:00', '2026-03-20 12:08' FROM incload.job_store WHERE job = 'mixed'});
here(q{CALL ran('mixed', '2026-03-20 11:16:30', 60)});
agrees('mixed', '2026-03-20 17:00', 'what is not committed is not there');
is($slow->query_safe("SELECT runs FROM incload.slo_of($id{mixed}, '2026-03-20 17:00') WHERE period = '1 day'"),
	here("SELECT runs + 1 FROM by_hand($id{mixed}, '2026-03-20 17:00', '1 day')"), 'but to whoever wrote it');
$slow->query_safe('COMMIT');
agrees('mixed', '2026-03-20 17:00', 'it comes when it is committed, behind others that came later');
$repeatable->query_safe('COMMIT');
agrees('mixed', '2026-03-20 17:00', 'likewise from a transaction with one snapshot');
$slow->query_safe(q{BEGIN; SAVEPOINT s; INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at)
	SELECT nextval('incload.run_id_seq'), job_id, job, owner, 'incremental', 'failed', 'manual', '2026-03-20 13:00', '2026-03-20 13:07' FROM incload.job_store, generate_series(1, 100) WHERE job = 'mixed';
	ROLLBACK TO s; COMMIT});
agrees('mixed', '2026-03-20 17:00', 'what is rolled back never was');
# one that looks while outcomes move sees each of them once
$repeatable->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
my $before = $repeatable->query_safe("SELECT f FROM incload.slo_of($id{mixed}, '2026-03-21') f");
here(q{CALL ran('mixed', '2026-03-20 20:00', 45)});
is($repeatable->query_safe("SELECT f FROM incload.slo_of($id{mixed}, '2026-03-21') f"), $before, 'a snapshot is a snapshot');
$repeatable->query_safe('COMMIT');
agrees('mixed', '2026-03-21', 'later it sees them, too');
$_->quit foreach ($slow, $repeatable);

# ---------------------------------------------------------------------------
# a history that is altered
# ---------------------------------------------------------------------------

here("UPDATE incload.run_store SET status = 'failed', sqlstate = '57014' WHERE job_id = $id{mixed} AND finished_at = '2026-03-20 12:07'");
agrees('mixed', '2026-03-21', 'a run that is said to have failed after all');
is(here("SELECT errors->'57' FROM incload.slo_of($id{mixed}, '2026-03-21') WHERE period = '1 day'"), '1', 'and why');
here("UPDATE incload.run_store SET hint = 'none' WHERE job_id = $id{mixed}");
agrees('mixed', '2026-03-21', 'what does not matter changes nothing');
here("DELETE FROM incload.run_store WHERE job_id = $id{mixed} AND run_id % 3 = 0");
agrees('mixed', '2026-03-21', 'runs that are deleted');
here("DELETE FROM incload.run_store WHERE job_id = $id{mixed} AND finished_at < '2026-03-20 15:00' AND status = 'succeeded'");
agrees('mixed', '2026-03-20 15:30', 'the last success among them');
here(q{CALL ran('mixed', '2026-03-22', 3)});
agrees('mixed', '2026-03-22 12:00', 'and others that come then');
here(q{INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at)
	SELECT nextval('incload.run_id_seq'), job_id, job, owner, 'incremental', 'running', 'manual', '2026-03-22 06:00' FROM incload.job_store WHERE job = 'mixed'});
agrees('mixed', '2026-03-22 12:00', 'a run that is under way has not come to anything');
here("UPDATE incload.run_store SET status = 'failed', finished_at = '2026-03-22 06:05', sqlstate = '57P01' WHERE job_id = $id{mixed} AND status = 'running'");
agrees('mixed', '2026-03-22 12:00', 'and then it has');

# ---------------------------------------------------------------------------
# whoever looks
# ---------------------------------------------------------------------------

here(q{CALL ran('gone', date_trunc('second', now()) - interval '20 hours', 230)});
my $mine = 'SELECT count(*), max(runs) FILTER (WHERE period = $$1 day$$) FROM incload.slo WHERE job = $$gone$$';
my $seen = as_loader($target, "BEGIN READ ONLY; $mine");
is($seen, '3|' . here("SELECT runs FROM by_hand($id{gone}, now(), '1 day')"), 'in a transaction that may not write');
is(as_role($target, 'stranger', $mine), '0|', 'whoever may not see the job sees no figures');
fails_with($target, 'loader', 'SELECT FROM incload.outcome_store', '42501', qr/outcome_store/, 'the outcomes themselves are not for users');
$target->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($target, 'base', has_streaming => 1);
$standby->start;
is(as_loader($standby, $mine), $seen, 'on a standby');
here(q{CALL ran('gone', date_trunc('second', now()) - interval '10 minutes', 1)});
$target->wait_for_catchup($standby);
is(as_loader($standby, $mine), as_loader($target, $mine), 'as new as it is itself');
isnt(as_loader($standby, $mine), $seen, 'and that is not as it was');
$standby->stop;

# ---------------------------------------------------------------------------
# what is over
# ---------------------------------------------------------------------------

is(as_loader($target, q{SELECT incload_drop_job('gone')}) . here("SELECT count(*) FROM incload.outcome_store WHERE job_id = $id{gone}"), '0', 'a job that is dropped leaves no outcomes');
here("DELETE FROM incload.run_store WHERE job_id = $id{gone}");
is(here("SELECT count(*) FROM incload.tally_store WHERE job_id = $id{gone}"), '0', 'nor do its runs, when they go later');
here(q{CALL ran('old', '2026-01-01', 200)});
is(kept('old') =~ s/\|\d+$//r, '160|1', 'a history of which most is too old');
here(q{CALL ran('old', date_trunc('minute', now()) - interval '19 hours', 200)});
$target->append_conf('postgresql.conf', "incload.run_retention = '1d'");
$target->restart;
here('SELECT incload_worker_start()');
ok(wait_for(60, sub { here("SELECT count(*) FROM incload.run_store WHERE job_id = $id{old}") eq '200' }), 'is pruned');
ok(wait_for(60, sub { here("SELECT count(*) FROM incload.outcome_store WHERE job_id = $id{much}") eq '0' }), 'and so is what is condensed, where all of it is too old');
is(here("SELECT runs FROM incload.slo_of($id{old}, now()) WHERE period = '30 days'"), here("SELECT runs FROM by_hand($id{old}, now(), '1 day')"), 'what is left are the figures of the day');
is(here("SELECT freshness_p50 > now() - interval '1 day' - timestamptz '2026-03-23 21:15', observed FROM incload.slo_of($id{much}, now()) WHERE period = '30 days'"), 't|1 day', 'a job without news has its last success');
here('SELECT incload_worker_stop()');
here('TRUNCATE incload.run_store');
is(here("SELECT count(*) FROM incload.outcome_store") . here("SELECT sum(runs), count(freshness_p50) FROM incload.slo_of($id{old}, now())"), '00|0', 'a history that is emptied');
here(q{CALL ran('old', date_trunc('minute', now()) - interval '2 hours', 20)});
is(here("SELECT runs FROM incload.slo_of($id{old}, now()) WHERE period = '1 day'"), here("SELECT runs FROM by_hand($id{old}, now(), '1 day')"), 'fills again');
unlike(slurp_file($target->logfile) =~ s/ERROR:  permission denied for table outcome_store//r, qr/(ERROR|WARNING|PANIC):/, 'and the log is clean');

done_testing();
