# One query message holds several transactions, and now() is the message's
# arrival in each: a reader that cannot see when sessions began follows the
# session, and not the transaction that it had open when it was looked at.
use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);
use IncloadTest;

my ($source, $target) = two_nodes();

$source->safe_psql('postgres', q{
	REVOKE pg_read_all_stats FROM reader;
	CREATE TABLE noted (id serial PRIMARY KEY, who text, updated_at timestamptz NOT NULL DEFAULT now(), n bigint);
	INSERT INTO noted (who) VALUES ('first');
});
foreign_table($target, 'noted');
# a time, and a number that is taken from the same clock without anybody saying so
as_loader($target, q{
	SELECT incload_create_job('by_time', 'src.noted', 'dw.by_time', 'upsert', 'updated_at', '{id}', options => '{"lookback": "0"}');
	SELECT incload_create_job('by_number', 'src.noted', 'dw.by_number', 'upsert', 'n', '{id}', options => '{"null_watermark": "skip"}');
});

sub run_both
{
	as_loader($target, "SELECT incload_run('$_')") foreach qw(by_time by_number);
}

my $gate = session($source, 'postgres');
$gate->query_safe('SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
my $row = q{INSERT INTO noted (who, n) VALUES ('%s', extract(epoch FROM now()) * 1000000)};
my $writer = start_sql($source, 'postgres', 'BEGIN; SELECT pg_advisory_lock(1); COMMIT; BEGIN; SELECT pg_advisory_lock(2); '
	  . sprintf($row, 'late') . '; COMMIT');
my $waits = q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = %d};
ok(wait_for(30, sub { $source->safe_psql('postgres', sprintf($waits, 1)) == 1 }), 'the first transaction of the message is open');
sleep(2.5);
$source->safe_psql('postgres', sprintf($row, 'meanwhile'));
run_both();
my $arrived = $source->safe_psql('postgres', q{SELECT query_start FROM pg_stat_activity WHERE query LIKE '%pg_advisory_lock(1)%' AND pid <> pg_backend_pid() AND state = 'active'});

$gate->query_safe('SELECT pg_advisory_unlock(1)');
ok(wait_for(30, sub { $source->safe_psql('postgres', sprintf($waits, 2)) == 1 }), 'then the second');
run_both();
is(as_loader($target, "SELECT bound IS NULL OR bound::timestamptz <= '$arrived' FROM incload.checkpoint WHERE job = 'by_time'"), 't',
	'the checkpoint stays below the arrival of the message');
like(as_loader($target, q{SELECT held_back_by FROM incload.status WHERE job = 'by_time'}), qr/^pid \d+ /, 'the status names the session');

$gate->query_safe('SELECT pg_advisory_unlock(2)');
is(($writer->finish)[0], 0, 'the message is over');
run_both();
foreach my $job (qw(by_time by_number))
{
	is(as_loader($target, "SELECT count(*) FROM dw.$job WHERE who = 'late'"), '1', "$job: the row of its second transaction has arrived");
}
is(as_loader($target, "SELECT bound::timestamptz > '$arrived' FROM incload.checkpoint WHERE job = 'by_time'"), 't',
	'and the checkpoint goes on');
$gate->quit;
$source->stop;
$target->stop;
done_testing();
