# A run's memory does not grow with the rows that it loads.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

plan skip_all => 'needs /proc' if !-e '/proc/self/status';

my ($source, $target) = two_nodes(target => 'jit = off');

$source->safe_psql('postgres', q{
	CREATE TABLE big (id int PRIMARY KEY, v text, d jsonb, updated_at timestamptz NOT NULL);
	INSERT INTO big SELECT i, md5(i::text), jsonb_build_object('i', i), '2024-01-01Z'::timestamptz + i * interval '1 ms' FROM generate_series(1, 400000) i;
	CREATE INDEX ON big (updated_at, id);
});
foreign_table($target, 'big');

# the highest private memory, in kB, of a session that runs this
sub peak
{
	my ($sql) = @_;
	# a run of few rows is over before anybody has looked
	my $run = start_sql($target, 'loader', $sql, 'SELECT pg_sleep(1)');
	my $pid = wait_for(30, sub { $target->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE usename = 'loader' AND backend_type = 'client backend'") });
	my $peak = 0;

	while (open(my $status, '<', "/proc/$pid/status"))
	{
		my ($now) = join('', <$status>) =~ /^RssAnon:\s+(\d+) kB/m;
		last if !defined $now;
		$peak = $now if $now > $peak;
		close($status);
		select(undef, undef, undef, 0.02);
	}
	my ($ret, $out, $err) = $run->finish;
	is($ret, 0, 'the run succeeds') or diag $err;
	return $peak;
}

foreach my $how ("SELECT incload_run('%s')", "CALL incload_run_in_batches('%s')")
{
	my %peak;

	foreach my $rows (8000, 400000)
	{
		as_loader($target, qq{SELECT incload_create_job('j$rows', 'src.big', 'dw.j$rows', options => '{"filter": "id <= $rows", "batch_rows": 50000}')});
		$peak{$rows} = peak(sprintf($how, "j$rows"));
		is($target->safe_psql('postgres', "SELECT count(*) FROM dw.j$rows"), $rows, "$rows rows");
		as_loader($target, "SELECT incload_drop_job('j$rows'); DROP TABLE dw.j$rows");
	}
	note "$how: peak $peak{8000} kB for 8000 rows, $peak{400000} kB for 400000";
	cmp_ok($peak{8000}, '>', 1000, 'memory was measured');
	cmp_ok($peak{400000} - $peak{8000}, '<', 32 * 1024, 'fifty times the rows take less than 32 MB more');
}

done_testing();
