# Rows of a batch that work_mem does not hold are read back from a file, and are the same.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => "work_mem = '64kB'");

# a key comes twice, and the source has no index that would say it does not
$source->safe_psql('postgres', q{
	CREATE TABLE twice (a text NOT NULL, b text NOT NULL, v text, n int, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO twice SELECT 'a' || i % 10, 'b' || i, repeat(md5(i::text), 1 + i % 5), i FROM generate_series(1, 5000) i;
	INSERT INTO twice SELECT 'a' || i % 10, 'b' || i, repeat(md5(i::text), 1 + i % 3) || 'newer', i FROM generate_series(1, 5000, 3) i;
});
foreign_table($target, 'twice');
settle($source, 'twice');
as_loader($target, q{
	CREATE TABLE dw.twice (a text, b text, v text, n int, updated_at timestamptz, PRIMARY KEY (a, b));
	SELECT incload_create_job('twice', 'src.twice', 'dw.twice', 'upsert', 'updated_at', '{a,b}', options => '{"lookback": "0", "full_refresh_mode": "swap"}');
	CREATE TABLE dw.barred (a text, b text, v text, n int CHECK (n % 100 <> 7), updated_at timestamptz, PRIMARY KEY (a, b));
	SELECT incload_create_job('barred', 'src.twice', 'dw.barred', 'upsert', 'updated_at', '{a,b}', options => '{"lookback": "0", "reject_limit": 100}');
});
my $newest = '(SELECT DISTINCT ON (a, b) * FROM twice ORDER BY a, b, updated_at DESC)';
my $loaded = '(SELECT a, b, v, n, updated_at FROM dw.twice)';

foreach my $call ('run', 'refresh')
{
	is(as_loader($target, "SELECT rows_read, rows_superseded FROM incload_$call('twice')"), '6667|1667', "$call: of each key the newest");
	is(differences($source, $target, $newest, $loaded), '0|0', "$call: as it is at the source");
}

# rows that were put aside are found again among those that have come
is(as_loader($target, q{SELECT rows_read, rows_rejected FROM incload_run('barred')}), '6667|50', 'some are refused');
$source->safe_psql('postgres', 'UPDATE twice SET updated_at = clock_timestamp(), n = n + 1000000 WHERE n % 100 IN (7, 8, 9, 10)');
settle($source, 'twice');
is(as_loader($target, q{SELECT count(*), count(DISTINCT key) FROM incload.reject WHERE job = 'barred'}), '50|50', 'and put aside');
$target->safe_psql('postgres', 'ALTER TABLE dw.barred DROP CONSTRAINT barred_n_check');
like(as_loader($target, q{SELECT rows_read, rows_rejected FROM incload_run('barred')}), qr/^\d+\|0$/, 'once they are good');
is(as_loader($target, q{SELECT count(*) FROM incload.reject WHERE job = 'barred'}), '0', 'none is put aside any more');
is(differences($source, $target, $newest, '(SELECT a, b, v, n, updated_at FROM dw.barred)'), '0|0', 'and all are loaded');

# a few rows that are large: those that are refused are found one by one
$source->safe_psql('postgres', q{
	CREATE TABLE large (id int PRIMARY KEY, n int, v text, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	ALTER TABLE large ALTER v SET STORAGE EXTERNAL;
	INSERT INTO large SELECT i, i, repeat(md5(i::text), 1000) FROM generate_series(1, 20) i;
});
foreign_table($target, 'large');
settle($source, 'large');
as_loader($target, q{
	CREATE TABLE dw.large (id int PRIMARY KEY, n int CHECK (n <> 7), v text, updated_at timestamptz);
	SELECT incload_create_job('large', 'src.large', 'dw.large', 'upsert', 'updated_at', '{id}', options => '{"lookback": "0", "reject_limit": 2}');
});
is(as_loader($target, q{SELECT rows_read, rows_inserted, rows_rejected FROM incload_run('large')}), '20|19|1', 'of large rows, one is refused');
is(differences($source, $target, '(SELECT * FROM large WHERE n <> 7)', '(SELECT id, n, v, updated_at FROM dw.large)'), '0|0', 'and the others are loaded');

$target->stop;
$source->stop;
done_testing();
