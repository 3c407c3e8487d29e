# A first load and a refresh by several readers at once: the source is cut into
# parts that are read as of one snapshot, and each row is in exactly one.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(source => "log_statement = all\nmax_prepared_transactions = 5");

# what the readers of a job have sent since the last call
my $looked_at = 0;

sub readers_log
{
	my ($job) = @_;
	my $log = slurp_file($source->logfile, $looked_at);

	$looked_at = -s $source->logfile;
	return grep { /incload reader: $job LOG:  statement: / } split /\n/, $log;
}

# how many readers there were, and how many of them took the first one's snapshot
sub readers
{
	my @log = readers_log(@_);
	return join ' ', scalar(grep { /COPY \(/ } @log), scalar(grep { /SET TRANSACTION SNAPSHOT/ } @log);
}

sub create_job
{
	my ($job, $source_name, $strategy, $watermark, $key, $options) = @_;

	foreign_table($target, $source_name) if as_loader($target, "SELECT to_regclass('src.$source_name') IS NULL") eq 't';
	as_loader($target, qq{SELECT incload_create_job('$job', 'src.$source_name', 'dw.$job', '$strategy', } . ($watermark ? "'$watermark'" : 'NULL')
		. qq{, '$key', options => '{"parallel": 4}'::jsonb || '$options')});
	readers_log($job);
	return;
}

#
# a table, by its pages
#
$source->safe_psql('postgres', q{
	CREATE TABLE items (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text, big text, updated_at timestamptz);
	INSERT INTO items (v, big, updated_at) SELECT repeat('v', 60), CASE WHEN n % 1000 = 0 THEN repeat(md5(n::text), 2000) END,
		CASE WHEN n % 7 > 0 THEN now() - n * interval '1 second' END FROM generate_series(1, 60000) n;
	DELETE FROM items WHERE id % 11 = 0;
	VACUUM items;
	CREATE TABLE few (id int PRIMARY KEY, updated_at timestamptz);
	INSERT INTO few SELECT n, now() FROM generate_series(1, 100) n});
create_job('items', 'items', 'upsert', 'updated_at', '{id}', '{"lookback": "0"}');
my $explained = as_loader($target, q{SELECT string_agg(what, '|' ORDER BY step) FROM incload_explain('items') WHERE side = 'source'});
is($explained, join('|', map { "read (part $_ of 4, side by side)" } 1 .. 4), 'the parts are explained');
is(as_loader($target, q{SELECT bool_and(plan ~ 'Tid Range Scan') FROM incload_explain('items') WHERE side = 'source'}), 't', 'each reads its pages and no others');
readers_log('items');
as_loader($target, q{SELECT incload_run('items')});
is(readers('items'), '4 3', 'four readers, with one snapshot');
is(differences($source, $target, 'items', 'dw.items'), '0|0', 'every row is there, and once');
is(last_run($target, 'items', 'rows_read, rows_inserted'), '54546|54546', 'and is counted');
cmp_ok(last_run($target, 'items', 'bytes_read'), '>', 54546 * 60, 'the bytes of all of them, too');
is($source->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'incload reader: items'}), '0', 'no session is left')
  or diag $source->safe_psql('postgres', 'SELECT pid, state, query FROM pg_stat_activity');

$source->safe_psql('postgres', q{UPDATE items SET v = 'changed', updated_at = clock_timestamp() WHERE id % 100 = 0; INSERT INTO items (v) VALUES ('new')});
as_loader($target, q{SELECT incload_run('items')});
is(readers('items'), '1 0', 'what is new is read by one');
is(differences($source, $target, 'items', 'dw.items'), '0|0', 'and is there');
as_loader($target, q{SELECT incload_refresh('items')});
is(readers('items'), '4 3', 'a refresh by four');
is(differences($source, $target, 'items', 'dw.items'), '0|0', 'and all is there');

create_job('few', 'few', 'upsert', 'updated_at', '{id}', '{}');
as_loader($target, q{SELECT incload_run('few')});
is(readers('few'), '1 0', 'a small table is not worth it');
is(differences($source, $target, 'few', 'dw.few'), '0|0', 'and is there');

# without a key, as far as the rows are settled
$source->safe_psql('postgres', q{UPDATE items SET updated_at = now() - interval '1 hour' WHERE updated_at IS NULL});
create_job('items_log', 'items', 'append', 'updated_at', '{}', '{}');
settle($source, 'items');
as_loader($target, q{SELECT incload_run('items_log')});
is(readers('items_log'), '4 3', 'without a key');
is(differences($source, $target, 'items', 'dw.items_log'), '0|0', 'each row is there once');

#
# rows that move between the parts meanwhile: the parts show one moment
#
$source->safe_psql('postgres', q{
	CREATE TABLE moving (id int PRIMARY KEY, v int NOT NULL, pad text) WITH (fillfactor = 100);
	INSERT INTO moving SELECT n, 0, repeat('p', 200) FROM generate_series(1, 40000) n;
	CREATE FUNCTION gate(id int) RETURNS bool LANGUAGE plpgsql AS $$
	BEGIN
		IF id % 10000 = 1 THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
		RETURN true;
	END $$;
	GRANT EXECUTE ON FUNCTION gate TO reader});
create_job('moving', 'moving', 'full', undef, '{id}', '{"filter": "public.gate(id)", "full_refresh_mode": "swap"}');
my $gate = session($source, 'postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
my $run = start_sql($target, 'loader', q{SELECT incload_run('moving')});
ok( wait_for(60, sub { $source->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) >= 3 }), 'several wait at the gate');
$source->safe_psql('postgres', 'UPDATE moving SET v = 1');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
my ($status, undef, $words) = $run->finish;
is($status, 0, 'the load ends well') or diag $words;
is(as_loader($target, 'SELECT count(*), count(DISTINCT id), sum(v) FROM dw.moving'), '40000|40000|0', 'every row is there once, as it was before all of them moved');
$gate->quit;

#
# a partitioned table and a view, by values: NULL, infinity, a few far away
#
$source->safe_psql('postgres', q{
	CREATE TABLE parts (id int, at timestamp, v text) PARTITION BY RANGE (id);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (1000) TO (100000);
	INSERT INTO parts SELECT n, CASE WHEN n % 5 = 0 THEN NULL WHEN n = 1 THEN 'infinity' WHEN n = 2 THEN '-infinity' WHEN n = 3 THEN '4713-01-01 BC'
		ELSE timestamp '2024-01-01' + n * interval '1 hour' END, 'x' FROM generate_series(1, 5000) n;
	ALTER TABLE parts ADD PRIMARY KEY (id);
	CREATE TABLE numbered (n numeric PRIMARY KEY, v text);
	INSERT INTO numbered SELECT x, 'x' FROM generate_series(-500, 500) x UNION ALL VALUES ('NaN', 'no'), ('Infinity', 'no'), (1.5e40, 'far');
	CREATE VIEW numbers AS SELECT * FROM numbered;
	CREATE TABLE words (w text PRIMARY KEY); INSERT INTO words SELECT md5(n::text) FROM generate_series(1, 500) n;
	CREATE VIEW words_view AS SELECT * FROM words;
	CREATE TABLE same (id int PRIMARY KEY, d date); INSERT INTO same SELECT n, '2024-05-05' FROM generate_series(1, 500) n;
	CREATE VIEW same_view AS SELECT * FROM same});
# a view has no index that tells keys apart; without a key none is needed
foreach my $case ([ 'parts', 'upsert', 'at', '{id}', '{}', '4 3' ], [ 'numbers', 'append', 'n', '{}', '{}', '4 3' ],
	[ 'words_view', 'full', undef, '{}', '{}', '1 0' ], [ 'same_view', 'append', 'd', '{}', '{}', '1 0' ])
{
	my ($name, $strategy, $watermark, $key, $options, $expected) = @$case;

	create_job($name, $name, $strategy, $watermark, $key, $options);
	as_loader($target, "SELECT incload_run('$name')");
	is(readers($name), $expected, "$name: readers");
	# without a key, numbers that no number comes after stay where they are
	is(differences($source, $target, $name eq 'numbers' ? q{(SELECT * FROM numbers WHERE n < 'Infinity')} : $name, "dw.$name"), '0|0', "$name: every row is there, and once");
}

#
# a reader that fails, or is lost, and one more than the source lets in
#
create_job('broken', 'items', 'upsert', 'updated_at', '{id}', '{"transforms": {"v": "(1 / (id - 59999))::text"}}');
fails_with($target, 'loader', q{SELECT incload_run('broken')}, '22012', qr/source server "source": division by zero/, 'an error of one reader ends the run');
is(as_loader($target, 'SELECT count(*) FROM dw.broken'), '0', 'and nothing is left');
ok( wait_for(30, sub { $source->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'incload reader: broken'}) eq '0' }),
	'of readers neither');

$gate = session($source, 'postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
create_job('lost', 'moving', 'full', undef, '{id}', '{"filter": "public.gate(id)", "full_refresh_mode": "swap"}');
$run = start_sql($target, 'loader', q{SELECT incload_run('lost')});
ok(wait_for(60, sub { $source->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) >= 2 }), 'two wait again');
$source->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted ORDER BY pid DESC LIMIT 1});
my (undef, undef, $said) = $run->finish;
like($said, qr/terminating connection due to administrator command|lost the connection/, 'a reader that is ended ends the run');
is(as_loader($target, 'SELECT count(*) FROM dw.lost'), '0', 'and nothing is left of it');
$gate->quit;
as_loader($target, q{SELECT incload_run('lost')});
is(as_loader($target, 'SELECT count(*) FROM dw.lost'), '40000', 'the next run loads all');

$source->safe_psql('postgres', 'ALTER ROLE reader CONNECTION LIMIT 2');
create_job('crowded', 'moving', 'full', undef, '{id}', '{}');
fails_with($target, 'loader', q{SELECT incload_run('crowded')}, '08001', qr/too many connections for role "reader"/, 'a limit on connections is told');
as_loader($target, q{SELECT incload_alter_job('crowded', options => '{"parallel": 2}'); SELECT incload_run('crowded')});
is(differences($source, $target, 'moving', 'dw.crowded'), '0|0', 'with fewer it loads');

# a run that is cancelled while it waits for all of them
$gate = session($source, 'postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
$source->safe_psql('postgres', 'ALTER ROLE reader CONNECTION LIMIT -1');
$run = start_sql($target, 'loader', q{SELECT incload_refresh('lost')});
ok(wait_for(60, sub { $source->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) >= 2 }), 'two wait once more');
$target->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%incload_refresh%' AND pid <> pg_backend_pid()});
(undef, undef, $said) = $run->finish;
like($said, qr/canceling statement due to user request/, 'a cancel is heard');
ok( wait_for(30, sub { $source->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'incload reader: lost' AND state = 'active'}) eq '0' }),
	'and nobody goes on reading');
$gate->quit;

done_testing();
