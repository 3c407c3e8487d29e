# A scheduler that computes the figures of many jobs takes the memory of one job's history at a time, not of all of them together.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

plan skip_all => 'needs /proc' if !-e '/proc/self/status';

my ($jobs, $pages) = (40, 60);

# what of the server's memory a process has touched counts as its own
my $target = new_target("shared_preload_libraries = 'incload'\nincload.naptime = 100\nincload.run_retention = 0\nshared_buffers = 1MB\njit = off\n");

sub here { return $target->safe_psql('postgres', $_[0]) }

sub scheduler { return here("SELECT pid FROM incload.worker WHERE kind = 'scheduler'") }

# the most memory, in kB, that a process has had
sub peak
{
	my ($pid) = @_;
	my ($peak) = slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+) kB/m;
	return $peak;
}

# all figures are of a time after this one
sub computed_after
{
	my ($at) = @_;
	return $target->poll_query_until('postgres', "SELECT count(*) = $jobs FROM incload.slo_store WHERE as_of > '$at'");
}

my $began = here('SELECT clock_timestamp()');
here('CREATE TABLE dw.source (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now()); ALTER TABLE dw.source OWNER TO loader');
as_loader($target, qq{SELECT count(incload_create_job('j' || i, 'dw.source', 'dw.t' || i, 'upsert', 'updated_at', '{id}', options => '{"freshness_slo": "1 day"}')) FROM generate_series(1, $jobs) i});
ok(computed_after($began), 'a scheduler has been through all jobs, while there is nothing to compute');
my $pid = scheduler();
my $before = peak($pid);
cmp_ok($before, '>', 1000, 'memory was measured');

# yesterday, each has had as many runs as fill so many pages; those of one of them are written, and copied
here(q{
	DO $$
	BEGIN
		FOR i IN 1 .. 400 LOOP
			INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at, rows_read)
			SELECT nextval('incload.run_id_seq'), job_id, job, owner, 'incremental', 'succeeded', 'manual', at - interval '1 s', at, 100
			FROM incload.job_store, LATERAL (SELECT date_trunc('day', now()) - interval '1 day' + i * interval '1 min' AS at) a WHERE job = 'j1';
			COMMIT;
		END LOOP;
	END $$
});
is(here(qq{
	WITH page AS (SELECT ended_by, outcomes FROM incload.outcome_store ORDER BY length(outcomes) DESC LIMIT 1),
	copy AS (INSERT INTO incload.outcome_store (job_id, ended_by, outcomes)
		SELECT j.job_id, page.ended_by - i * interval '1 s', page.outcomes FROM page, incload.job_store j, generate_series(1, $pages) i RETURNING outcomes)
	SELECT count(*), min(length(outcomes)) FROM copy
}), $jobs * $pages . '|7680', 'each job has a long past');

# and a run now, whose volume is compared with all of them
my $filled = here('SELECT clock_timestamp()');
here(q{
	BEGIN;
	INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at, rows_read)
	SELECT nextval('incload.run_id_seq'), job_id, job, owner, 'incremental', 'succeeded', 'manual', now() - interval '1 s', now(), 100 FROM incload.job_store;
	UPDATE incload.slo_store SET as_of = as_of - interval '11 minutes';
	COMMIT;
});
ok(computed_after($filled), 'a scheduler has been through all jobs again');
cmp_ok(here('SELECT min((figures[3]).runs) FROM incload.slo_store'), '>', 320 * $pages, 'it has read all that they have');
is(scheduler(), $pid, 'it is the same one');
my $grown = peak($pid) - $before;
note "the most memory was $before kB, and $grown kB more";
# kept until all jobs are done, it would be 38 MB
cmp_ok($grown, '<', 16 * 1024, 'that takes the memory of few jobs');

done_testing();
