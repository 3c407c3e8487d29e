# What is told of runs that are under way: incload.progress, of rows that are not committed too, and NOTICEs that
# one can read.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IncloadTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $target = new_target();

# until a query gives that; what it gave last if it does not
sub comes_to
{
	my ($query, $wanted, $name) = @_;
	return becomes(sub { as_loader($target, $query) }, $wanted, $name);
}

# A row of dw.source is read where gate() lets it pass: at the id in dw.closed, who reads waits for the lock 42.
as_loader($target, q{
	CREATE TABLE dw.source (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL);
	CREATE TABLE dw.closed (id bigint);
	CREATE FUNCTION dw.gate(at bigint) RETURNS boolean AS $$
	BEGIN
		IF at IN (SELECT id FROM dw.closed) THEN
			PERFORM pg_advisory_xact_lock(42);
		END IF;
		RETURN true;
	END $$ LANGUAGE plpgsql VOLATILE;
	INSERT INTO dw.source SELECT i, '2026-01-01' FROM generate_series(1, 3000) i;
	CREATE TABLE dw.copy (id bigint PRIMARY KEY, updated_at timestamptz);
	SELECT incload_create_job('gated', 'dw.source', 'dw.copy', 'upsert', 'updated_at', '{id}', options => '{"first_load": "batches", "filter": "dw.gate(id)"}');
	SELECT incload_create_job('whole', 'dw.source', 'dw.whole', 'full', key => '{id}', options => '{"filter": "dw.gate(id)"}');
	INSERT INTO dw.closed VALUES (1000);
});
my $gate = session($target, 'loader');
my $columns = 'job, kind, phase, rows_read, rows_per_second > 0, bytes_read, done, total, unit, time_left IS NULL';

# ---------------------------------------------------------------------------
# a run of which nothing is committed
# ---------------------------------------------------------------------------

is(as_loader($target, 'SELECT count(*) FROM incload.progress'), '0', 'nobody runs');
$gate->query_safe('SELECT pg_advisory_lock(42)');
my $run = start_sql($target, 'loader', q{SELECT incload_run('gated')});
# each 64th row tells; a row has 16 bytes
comes_to("SELECT $columns FROM incload.progress", 'gated|incremental|reading|960|t|' . 960 * 16 . '|0||batches|t', 'incload.progress counts rows that are not committed');
is(as_loader($target, q{SELECT p.pid = s.pid, p.started_at > now() - interval '1 minute', p.run_id > (SELECT coalesce(max(run_id), 0) FROM incload.run), s.state
	FROM incload.progress p JOIN incload.status s USING (job)}), 't|t|t|running', 'by whom, and since when');
is($target->safe_psql('postgres', 'CREATE ROLE stranger; SET ROLE stranger; SELECT count(*) FROM incload.progress'), '0', 'not to everybody');
as_loader($target, 'DELETE FROM dw.closed');
$gate->query_safe('SELECT pg_advisory_unlock(42)');
is(($run->finish)[0], 0, 'it goes on to its end');
is(as_loader($target, 'SELECT count(*) FROM incload.progress'), '0', 'and is shown no more');

# ---------------------------------------------------------------------------
# a full run knows what the last one had; one that is terminated, or fails, leaves nothing behind
# ---------------------------------------------------------------------------

as_loader($target, q{SELECT incload_run('whole'); INSERT INTO dw.closed VALUES (1000)});
foreach my $how ('pg_terminate_backend', 'pg_cancel_backend')
{
	$gate->query_safe('SELECT pg_advisory_lock(42)');
	$run = start_sql($target, 'loader', q{SELECT incload_run('whole')});
	comes_to("SELECT kind, phase, rows_read, done, total, unit, time_left >= '0 s' FROM incload.progress", 'full|reading|960|960|3000|rows|t', 'done of total, as the last full run had it');
	is(as_loader($target, "SELECT $how(pid) FROM incload.progress"), 't', $how);
	isnt(($run->finish)[0], 0, 'it ends');
	is(as_loader($target, 'SELECT count(*) FROM incload.progress'), '0', 'and leaves nothing behind');
	$gate->query_safe('SELECT pg_advisory_unlock(42)');
}
as_loader($target, 'DELETE FROM dw.closed');

# a run that the SQL of another one calls
as_loader($target, q{SELECT incload_alter_job('gated', options => '{"post_sql": "SELECT incload_run(''whole'')"}'); INSERT INTO dw.closed VALUES (1000)});
as_loader($target, q{UPDATE dw.source SET updated_at = now() WHERE id <= 10});
$gate->query_safe('SELECT pg_advisory_lock(42)');
$run = start_sql($target, 'loader', q{SELECT incload_run('gated')});
comes_to('SELECT job, phase, rows_read FROM incload.progress ORDER BY job', "gated|finishing|10\nwhole|reading|960", 'a run whose SQL runs another job');
$gate->query_safe('SELECT pg_advisory_unlock(42)');
is(($run->finish)[0], 0, 'both end');
is(as_loader($target, q{SELECT string_agg(job || ' ' || rows_read, ', ' ORDER BY run_id) FROM (SELECT * FROM incload.run ORDER BY run_id DESC LIMIT 2) r}), 'gated 10, whole 3000', 'each has its own count');
is(as_loader($target, 'SELECT count(*) FROM incload.progress'), '0', 'both are over');
as_loader($target, q{SELECT incload_alter_job('gated', options => '{"post_sql": null}'); DELETE FROM dw.closed});

# ---------------------------------------------------------------------------
# NOTICEs
# ---------------------------------------------------------------------------

# 300 batches, quickly: ten lines and one for the rest, or a few more where it takes long; they add up
as_loader($target, q{SELECT incload_alter_job('gated', options => '{"batch_rows": 10}'); UPDATE dw.source SET updated_at = now()});
my ($ret, undef, $err) = $target->psql('postgres', q{CALL incload_run_in_batches('gated')}, extra_params => [ '-U', 'loader' ]);
my @told = $err =~ /NOTICE:  gated: (batch(?:es)? [\d to]+: \d+) rows read/g;
is($ret, 0, 'a run in small batches');
is(join("\n", @told[ 0 .. 9 ]), join("\n", map { "batch $_: 10" } 1 .. 10), 'the first batches are told one by one');
like($told[10], qr/^batches 11 to \d+: \d+$/, 'then many at once');
cmp_ok(scalar(@told), '<', 40, 'so that one can read it');
my $sum = 0;
$sum += $_ foreach map { /: (\d+)$/ } @told;
is($sum, 3000, 'and no row is left out');
like($told[-1], qr/ to 300: /, 'up to the last batch');

# a long read tells how far it is, in a client's encoding and without COPY's context
as_loader($target, q{SELECT incload_alter_job('whole', options => '{"max_rate": 400}')});
($ret, undef, $err) = $target->psql('postgres', q{SELECT incload_run('whole')}, extra_params => [ '-U', 'loader' ]);
is($ret, 0, 'a run of some seconds');
like($err, qr/^psql:<stdin>:1: NOTICE:  whole: \d{4} rows read so far, [34]\d\d a second$/m, 'tells its session how far it is');
unlike($err, qr/NOTICE.*NOTICE/s, 'and not all the time');

done_testing();
