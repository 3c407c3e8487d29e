# What a read must not miss although no transaction is late: a table that is
# rewritten just before it is read, watermarks and filters that depend on more
# than the row, rights on columns alone, ties that are cut by a key.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(source => 'max_prepared_transactions = 5');

sub has_all
{
	my ($job, $table, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(differences($source, $target, $table, "dw.$job"), '0|0', "$name: $job has every row");
	return;
}

sub waits_for_lock
{
	my ($node, $count) = @_;
	return wait_for(60, sub { $node->safe_psql('postgres', 'SELECT count(*) FROM pg_locks WHERE NOT granted') >= $count });
}

#
# a table that is rewritten after the run has looked and before it reads
#
$source->safe_psql('postgres', q{
	CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now(), w int);
	INSERT INTO orders (v) SELECT 'old' FROM generate_series(1, 500);
	GRANT SELECT ON SEQUENCE orders_id_seq TO reader;
	CREATE VIEW orders_seen AS SELECT id, v, updated_at FROM orders});
foreign_table($target, 'orders', 'orders_seen');
as_loader($target, q{
	CREATE TABLE dw.log (LIKE src.orders);
	SELECT incload_create_job('upserted', 'src.orders', 'dw.upserted', 'upsert', 'id', '{id}');
	SELECT incload_create_job('log', 'src.orders', 'dw.log', 'append', 'id', '{}');
	SELECT incload_create_job('seen', 'src.orders_seen', 'dw.seen', 'upsert', 'id', '{id}');
	SELECT incload_create_job('whole', 'src.orders', 'dw.whole', 'full', key => '{id}');
	SELECT incload_alter_job(job, options => '{"pre_sql": "SELECT pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1)"}') FROM incload.job});
as_loader($target, "SELECT incload_run('$_')") foreach qw(upserted log seen whole);

foreach my $job (qw(upserted log seen whole))
{
	my $gate = session($target, 'postgres');
	my $ddl = session($source, 'postgres');

	$source->safe_psql('postgres', q{INSERT INTO orders (v) SELECT 'new' FROM generate_series(1, 100)});
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	my $run = start_sql($target, 'loader', "SELECT incload_run('$job')");
	waits_for_lock($target, 1) or BAIL_OUT('the run does not come to the gate');
	$ddl->query_safe(q{BEGIN; ALTER TABLE orders ALTER w TYPE int USING w + 0});
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	waits_for_lock($source, 1) or BAIL_OUT('the reader does not wait for the ALTER');
	$ddl->query_safe('COMMIT');
	my ($status, undef, $said) = $run->finish;
	is($status, 0, "$job runs") or diag $said;
	is(as_loader($target, "SELECT count(*) FROM dw.$job"), $source->safe_psql('postgres', 'SELECT count(*) FROM orders'), "$job has the rows of a table that was rewritten before it was read");
	$gate->quit;
	$ddl->quit;
}

# the same by several readers: one that cannot have the lock at once does not read the new pages by the old table's places
$source->safe_psql('postgres', q{
	CREATE TABLE wide (id int PRIMARY KEY, v text); INSERT INTO wide SELECT n, repeat('w', 500) FROM generate_series(1, 20000) n;
	DELETE FROM wide WHERE id <= 10000;
	CREATE FUNCTION gate(id int) RETURNS bool LANGUAGE plpgsql AS $$
	BEGIN
		IF id = 10001 THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
		RETURN true;
	END $$;
	GRANT EXECUTE ON FUNCTION gate TO reader});
foreign_table($target, 'wide');
as_loader($target, q{SELECT incload_create_job('wide', 'src.wide', 'dw.wide', 'full', key => '{id}', options => '{"parallel": 2, "filter": "public.gate(id)", "full_refresh_mode": "swap"}')});
my $gate = session($source, 'postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
my $run = start_sql($target, 'loader', q{SELECT incload_run('wide')});
waits_for_lock($source, 1) or BAIL_OUT('no reader comes to the gate');
my $vacuum = start_sql($source, 'postgres', 'VACUUM FULL wide');
ok(waits_for_lock($source, 2), 'VACUUM FULL waits for the readers');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
is(($run->finish)[0], 0, 'they end');
$vacuum->finish;
is(as_loader($target, 'SELECT count(*) FROM dw.wide'), '10000', 'and have all rows');
$gate->quit;

#
# a watermark, or a filter, that depends on another table
#
$source->safe_psql('postgres', q{
	CREATE TABLE heads (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now());
	CREATE TABLE items (head int, at timestamptz NOT NULL DEFAULT now());
	INSERT INTO heads SELECT n, 'x', now() - interval '1 day' FROM generate_series(1, 5) n;
	GRANT SELECT ON heads, items TO reader});
foreign_table($target, 'heads');
as_loader($target, q{
	SELECT incload_create_job('heads', 'src.heads', 'dw.heads', 'upsert', '(greatest(updated_at, (SELECT max(i.at) FROM public.items i WHERE i.head = source.id)))', '{id}',
		options => '{"transforms": {"v": "(SELECT count(*)::text FROM public.items i WHERE i.head = source.id)"}}');
	SELECT incload_run('heads'); SELECT incload_run('heads')});
is(as_loader($target, q{SELECT guarantee FROM incload.status WHERE job = 'heads'}), 'settle', 'a watermark from another table is not called exact');
my $late = session($source, 'postgres');
$late->query_safe('BEGIN; INSERT INTO items VALUES (1)');
$source->safe_psql('postgres', q{SELECT pg_sleep(0.1); UPDATE heads SET updated_at = clock_timestamp() WHERE id = 2});
as_loader($target, q{SELECT incload_run('heads')});
$late->query_safe('COMMIT');
as_loader($target, q{SELECT incload_run('heads')});
is(as_loader($target, 'SELECT v FROM dw.heads WHERE id = 1'), '1', 'and what was late there arrives');
$late->quit;

# row security that changes its mind
$source->safe_psql('postgres', q{
	CREATE TABLE notes (id int PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now());
	CREATE TABLE shown (id int);
	INSERT INTO notes SELECT n FROM generate_series(1, 3) n; INSERT INTO shown VALUES (1), (3);
	ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
	CREATE POLICY shown ON notes TO reader USING (EXISTS (SELECT FROM shown s WHERE s.id = notes.id));
	GRANT SELECT ON notes, shown TO reader});
foreign_table($target, 'notes');
as_loader($target, q{SELECT incload_create_job('notes', 'src.notes', 'dw.notes', 'upsert', 'updated_at', '{id}'); SELECT incload_run('notes'); SELECT incload_run('notes')});
$source->safe_psql('postgres', 'INSERT INTO shown VALUES (2)');
as_loader($target, q{SELECT incload_run('notes')});
is(as_loader($target, q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM dw.notes}), '1 2 3', 'a row that a policy shows within the lookback arrives');

#
# a role with rights on columns alone
#
$source->safe_psql('postgres', q{
	CREATE TABLE parted (id int PRIMARY KEY, v text, secret text, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO parted SELECT n, 'v', 's' FROM generate_series(1, 10) n;
	REVOKE SELECT ON parted FROM reader; GRANT SELECT (id, v, updated_at) ON parted TO reader});
as_loader($target, q{
	CREATE FOREIGN TABLE src.parted (id int, v text, updated_at timestamptz) SERVER source OPTIONS (schema_name 'public');
	SELECT incload_create_job('parted', 'src.parted', 'dw.parted', 'upsert', 'updated_at', '{id}', options => '{"parallel": 2}');
	SELECT incload_run('parted'); SELECT incload_run('parted')});
$source->safe_psql('postgres', q{UPDATE parted SET v = 'w', updated_at = now() WHERE id = 5});
as_loader($target, q{SELECT incload_run('parted')});
is(as_loader($target, q{SELECT string_agg(v, '' ORDER BY id) FROM dw.parted}), 'vvvvwvvvvv', 'rights on columns are enough, run after run');
fails_with($target, 'loader', q{SELECT incload_create_job('parted_xmin', 'src.parted', 'dw.parted', 'upsert', 'xmin', '{id}'); SELECT incload_run('parted_xmin')},
	'42501', qr/permission denied for (xmin of source src.parted|table parted)/, 'but not for xmin');

#
# ties that are cut by a key which the target rounds
#
$source->safe_psql('postgres', q{
	CREATE TABLE readings (at timestamptz, sensor int, v int, PRIMARY KEY (at, sensor));
	INSERT INTO readings SELECT '2024-01-01 12:00:00.6+00', n, n FROM generate_series(1, 7) n});
foreign_table($target, 'readings');
foreach my $reader (qw(copy relation))
{
	as_loader($target, qq{
		CREATE TABLE dw.readings_$reader (at timestamptz(0), sensor int, v int, PRIMARY KEY (at, sensor));
		SELECT incload_create_job('readings_$reader', 'src.readings', 'dw.readings_$reader', 'upsert', 'at', '{at,sensor}', options => '{"reader": "$reader", "batch_rows": 2}');
		CALL incload_run_in_batches('readings_$reader')});
	is(as_loader($target, "SELECT sum(v) FROM dw.readings_$reader"), '28', "$reader: a tie that ends a batch is whole");
}

# versions of one key in a tie: the last one wins, wherever a batch would end
$source->safe_psql('postgres', q{
	CREATE TABLE versions (n int, id int, v text, w int NOT NULL);
	INSERT INTO versions VALUES (1, 1, 'a', 1), (2, 2, 'a', 1), (3, 2, 'd', 1), (4, 2, 'b', 1), (5, 3, 'a', 1)});
foreign_table($target, 'versions');
foreach my $reader (qw(copy relation))
{
	as_loader($target, qq{
		CREATE TABLE dw.versions_$reader (id int PRIMARY KEY, v text, w int);
		SELECT incload_create_job('versions_$reader', 'src.versions', 'dw.versions_$reader', 'upsert', 'w', '{id}',
			options => '{"exclude": ["n"], "only_newer": true, "reader": "$reader", "batch_rows": 2}');
		CALL incload_run_in_batches('versions_$reader')});
	is(as_loader($target, "SELECT v FROM dw.versions_$reader WHERE id = 2"), 'd', "$reader: the version that sorts last wins");
}

# a partition that a prepared transaction attaches, with rows from before
$source->safe_psql('postgres', q{
	CREATE TABLE months (id int, updated_at timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (id);
	CREATE TABLE months_1 PARTITION OF months FOR VALUES FROM (0) TO (100);
	INSERT INTO months VALUES (1)});
foreign_table($target, 'months');
as_loader($target, q{CREATE TABLE dw.months (id int, updated_at timestamptz); SELECT incload_create_job('months', 'src.months', 'dw.months', 'append', 'updated_at', '{}')});
settle($source, 'months');
as_loader($target, q{SELECT incload_run('months')});
$source->safe_psql('postgres', q{
	BEGIN; CREATE TABLE months_2 (LIKE months INCLUDING ALL); INSERT INTO months_2 VALUES (101);
	ALTER TABLE months ATTACH PARTITION months_2 FOR VALUES FROM (100) TO (200); PREPARE TRANSACTION 'attach'});
$source->safe_psql('postgres', 'INSERT INTO months VALUES (2)');
settle($source, 'months');
as_loader($target, q{SELECT incload_run('months')});
like(as_loader($target, q{SELECT held_back_by FROM incload.checkpoint WHERE job = 'months'}), qr/prepared transaction 'attach'/, 'a prepared ATTACH holds the checkpoint');
$source->safe_psql('postgres', q{COMMIT PREPARED 'attach'});
as_loader($target, q{SELECT incload_run('months')});
is(as_loader($target, q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM dw.months}), '1 2 101', 'and its rows arrive');

done_testing();
