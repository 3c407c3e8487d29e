# A dump carries jobs and checkpoints, and a restored job goes on without loss
# and without reading everything again.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL);
	INSERT INTO items SELECT i, 'v' || i, '2024-01-01Z'::timestamptz + i * interval '1 s' FROM generate_series(1, 1000) i;
	CREATE TABLE log (id bigserial PRIMARY KEY, v text);
	INSERT INTO log (v) SELECT 'v' FROM generate_series(1, 500);
});
foreign_table($target, 'items', 'log');
as_loader($target, q{
	SELECT incload_create_job('items', 'src.items', 'dw.items', options => '{"filter": "id <> 3"}');
	CREATE TABLE dw.log (id bigint, v text);
	SELECT incload_create_job('log', 'src.log', 'dw.log', 'append', 'id', '{}');
	SELECT incload_run('items'), incload_run('log');
	SELECT incload_create_job('paused', 'src.items', 'dw.paused', schedule => '5 minutes'), incload_pause('paused');
});
$target->safe_psql('postgres', 'CREATE ROLE dumper LOGIN IN ROLE pg_read_all_data');
as_loader($target, q{
	CREATE TABLE dw.here_log (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
	INSERT INTO dw.here_log (v) SELECT 'v' FROM generate_series(1, 50);
	SELECT incload_create_job('here', 'dw.here_log', 'dw.here', 'upsert', 'id', '{id}');
	SELECT incload_create_job('here_log', 'dw.here_log', 'dw.here_log_copy', 'append', 'id', '{}')});
as_loader($target, "SELECT incload_run('$_')") foreach qw(here here_log);
as_loader($target, q{INSERT INTO dw.here_log (v) VALUES ('not loaded yet')});
my $state = q{SELECT job, owner, source, target, strategy, watermark, key, schedule, (SELECT next_run_at FROM incload.schedule_store s WHERE s.job_id = job.job_id), options, enabled, bound, bound_side, loaded_to
	FROM incload.job JOIN incload.checkpoint USING (job_id, job) ORDER BY job};
my $before = $target->safe_psql('postgres', $state);

my $dump = $target->backup_dir . '.sql';
command_ok([ 'pg_dump', '-h', $target->host, '-p', $target->port, '-U', 'dumper', '-f', $dump, 'postgres' ],
	'a role that may read all data can dump');
$target->safe_psql('postgres', 'CREATE DATABASE restored TEMPLATE template0');
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-h', $target->host, '-p', $target->port, '-d', 'restored', '-f', $dump ],
	'the dump is restored into another database');
is($target->safe_psql('restored', $state), $before, 'with every job and checkpoint');
is($target->safe_psql('restored', 'SELECT count(*) FROM incload.run'), '0', 'history is not dumped');

# the restored job goes on
# (a password is dumped only for those who may see it)
$target->safe_psql('restored', q{
	DROP USER MAPPING FOR loader SERVER source;
	CREATE USER MAPPING FOR loader SERVER source OPTIONS (user 'reader', password 'reader''s secret');
});
$source->safe_psql('postgres', q{
	UPDATE items SET v = 'changed', updated_at = now() WHERE id = 5;
	INSERT INTO items VALUES (2000, 'new', now());
	INSERT INTO log (v) VALUES ('new');
});
my (undef, undef, $refusal) = $target->psql('restored', q{SELECT incload_alter_job('log', watermark => '(id + 0)')}, extra_params => [ '-U', 'loader' ]);
like($refusal, qr/job "log" has loaded rows that would be loaded a second time/, 'rows that were restored are not loaded a second time');
is(as_role($target, 'loader', "SELECT status, rows_read, rows_inserted, rows_updated FROM incload_run('items')", 'restored'),
	'succeeded|2|1|1', 'a restored job reads what came since');
is(as_role($target, 'loader', "SELECT status, rows_read, rows_inserted FROM incload_run('log')", 'restored'),
	'succeeded|1|1', 'one without a key doubles nothing');
is(as_role($target, 'loader', q{SELECT count(*), count(DISTINCT id) FROM dw.log}, 'restored'), '501|501', 'and loses nothing');
is(as_role($target, 'loader', q{SELECT count(*) FROM (SELECT * FROM src.items WHERE id <> 3 EXCEPT SELECT * FROM dw.items) d}, 'restored'),
	'0', 'the target is equal to the source');
is(as_role($target, 'loader', "SELECT job_id FROM incload_create_job('another', 'src.items', 'dw.another')", 'restored') > 3, 1,
	'a new job gets a number of its own');
is(as_role($target, 'loader', "SELECT status FROM incload_run('paused')", 'restored'), 'skipped', 'a paused job is paused there');
is(as_role($target, 'loader', "SELECT status, rows_read FROM incload_run('items')"), 'succeeded|2', 'the original goes on, too');

# a source in the job's own database: a dump may bring the job before the rows, and does not tell
is(as_role($target, 'loader', "SELECT status, rows_read, rows_inserted FROM incload_run('here')", 'restored'), 'succeeded|51|1', 'a source that was restored beside its target is read from the beginning');
my ($ret, undef, $err) = $target->psql('restored', q{SELECT incload_run('here_log')}, extra_params => [ '-U', 'loader' ]);
like($err, qr/source dw.here_log of job "here_log" is another table than before.*incload_accept_source/s, 'without a key it has to be accepted');
as_role($target, 'loader', q{SELECT incload_accept_source('here_log')}, 'restored');
is(as_role($target, 'loader', "SELECT status, rows_read, rows_inserted FROM incload_run('here_log')", 'restored'), 'succeeded|1|1', 'and then the job goes on');
# a copy of the database has everything as of one moment
$target->safe_psql('template1', 'CREATE DATABASE copied TEMPLATE postgres');
is(as_role($target, 'loader', "SELECT status, rows_read, rows_inserted FROM incload_run('$_')", 'copied'), 'succeeded|1|1', "in a copied database $_ goes on by itself") foreach qw(here here_log);
$target->safe_psql('template1', 'CREATE DATABASE copied_late TEMPLATE postgres');
as_role($target, 'loader', q{ALTER TABLE dw.here_log RENAME TO gone; CREATE TABLE dw.here_log (LIKE dw.gone INCLUDING ALL)}, 'copied_late');
($ret, undef, $err) = $target->psql('copied_late', q{SELECT incload_run('here_log')}, extra_params => [ '-U', 'loader' ]);
like($err, qr/source dw.here_log of job "here_log" is another table than before/, 'but not with another table of that name');

done_testing();
