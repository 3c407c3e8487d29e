# pg_cron runs a job; what it does and how it fails shows on both sides.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my $source = new_source();
my $probe = PostgreSQL::Test::Cluster->new('probe');

plan skip_all => 'pg_cron is not installed'
  if !-e $probe->config_data('--pkglibdir') . '/pg_cron.so';

my $target = new_target("shared_preload_libraries = 'pg_cron'\ncron.database_name = 'postgres'\ncron.use_background_workers = on");
connect_target($target, $source);
$source->safe_psql('postgres', q{
	CREATE TABLE orders (id int PRIMARY KEY, updated_at timestamptz NOT NULL);
	INSERT INTO orders SELECT i, '2024-01-01Z' FROM generate_series(1, 10) i;
	CREATE TABLE broken (id int PRIMARY KEY, updated_at timestamptz NOT NULL);
});
foreign_table($target, 'orders', 'broken');
as_loader($target, q{
	SELECT incload_create_job('orders', 'src.orders', 'dw.orders');
	SELECT incload_create_job('broken', 'src.broken', 'dw.broken');
	ALTER TABLE dw.broken ADD CHECK (id > 100);
});
$source->safe_psql('postgres', "INSERT INTO broken VALUES (1, '2024-01-01Z')");

$target->safe_psql('postgres', 'CREATE EXTENSION pg_cron; GRANT USAGE ON SCHEMA cron TO loader');
my $version = $target->safe_psql('postgres', "SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'");
# before 1.5, a minute is the shortest
($version) = $version =~ /^(\d+\.\d+)/;
my $schedule = $version >= 1.5 ? '2 seconds' : '* * * * *';
note "pg_cron $version, schedule '$schedule'";
as_loader($target, qq{
	SELECT cron.schedule('load orders', '$schedule', \$\$SELECT incload_run('orders')\$\$);
	SELECT cron.schedule('load broken', '$schedule', \$\$SELECT incload_run('broken')\$\$);
});

ok(wait_for(90, sub { $target->safe_psql('postgres', "SELECT count(*) >= 2 FROM cron.job_run_details WHERE status IN ('succeeded', 'failed')") eq 't' }),
	'pg_cron has run both');
is($target->safe_psql('postgres', q{SELECT DISTINCT ON (command) command, status FROM cron.job_run_details WHERE status IN ('succeeded', 'failed') ORDER BY command, runid}),
	"SELECT incload_run('broken')|failed\nSELECT incload_run('orders')|succeeded", 'cron.job_run_details has the success and the failure');
like($target->safe_psql('postgres', q{SELECT return_message FROM cron.job_run_details WHERE status = 'failed' ORDER BY runid LIMIT 1}),
	qr/check constraint/, 'with the reason');
is($target->safe_psql('postgres', q{SELECT DISTINCT ON (job) job, status, sqlstate, rows_inserted FROM incload.run ORDER BY job, run_id}),
	"broken|failed|23514|0\norders|succeeded||10", 'so has incload.run');
is(differences($source, $target, 'orders', 'dw.orders'), '0|0', 'and the rows are there');

done_testing();
