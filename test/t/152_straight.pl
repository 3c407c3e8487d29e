# Rows whose key is above all keys of the target are put in as they are read, many at a time. All that
# an INSERT would do to them is done, and what is not certain to be new is staged and merged as ever.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => 'restart_after_crash = on');

$source->safe_psql('postgres', q{
	CREATE TABLE items (id bigint PRIMARY KEY, v text, n numeric(8,2), updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	CREATE INDEX ON items (updated_at);
	INSERT INTO items SELECT i, 'v' || i, i / 7.0 FROM generate_series(1, 3000) i;
	CREATE TABLE words (w text PRIMARY KEY, v int, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO words SELECT 'm' || i, i FROM generate_series(1, 100) i;
	CREATE TABLE log (v text, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO log SELECT 'l' || i FROM generate_series(1, 100) i;
	-- who reads a row beyond that waits while somebody has lock 7
	CREATE FUNCTION gate(id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		IF id > 20000 THEN
			PERFORM pg_advisory_lock_shared(7);
			PERFORM pg_advisory_unlock_shared(7);
		END IF;
		RETURN true;
	END $$;
});
$source->safe_psql('postgres', q{
	CREATE TABLE pairs (a int, b int, updated_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (a, b));
	INSERT INTO pairs SELECT i, i FROM generate_series(1, 10) i;
	CREATE TABLE marked (id int PRIMARY KEY, gone boolean NOT NULL DEFAULT false, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO marked SELECT i FROM generate_series(1, 10) i;
});
foreign_table($target, 'items', 'words', 'log', 'pairs', 'marked');
$target->safe_psql('postgres', 'CREATE EXTENSION pg_walinspect; CREATE EXTENSION amcheck');

# a default, a generated column, a check and an index more than the source has
as_loader($target, q{
	CREATE TABLE dw.up (loaded_by text DEFAULT current_user, twice numeric GENERATED ALWAYS AS (n * 2) STORED, gap int, id bigint PRIMARY KEY,
		v text CHECK (v <> 'bad'), n numeric(8,2), updated_at timestamptz, serial bigint GENERATED ALWAYS AS IDENTITY);
	ALTER TABLE dw.up DROP COLUMN gap;
	CREATE INDEX up_v ON dw.up (lower(v));
	CREATE TABLE dw.unique_too (id bigint PRIMARY KEY, v text UNIQUE, n numeric(8,2), updated_at timestamptz);
	CREATE TABLE dw.triggered (id bigint PRIMARY KEY, v text, n numeric(8,2), updated_at timestamptz);
	CREATE TABLE dw.seen (id bigint);
	CREATE FUNCTION dw.see() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO dw.seen VALUES (NEW.id); RETURN NEW; END';
	CREATE TRIGGER see BEFORE INSERT ON dw.triggered FOR EACH ROW EXECUTE FUNCTION dw.see();
	CREATE TABLE dw.words (w text COLLATE "und-x-icu" PRIMARY KEY, v int, updated_at timestamptz);
	CREATE TABLE dw.log (v text, updated_at timestamptz);
	-- by b, then a, downwards; with rows that have no key
	CREATE TABLE dw.swapped (b int, updated_at timestamptz, a int);
	CREATE UNIQUE INDEX ON dw.swapped (b DESC, a DESC) INCLUDE (updated_at);
	INSERT INTO dw.swapped VALUES (NULL, NULL, 99999), (99999, NULL, NULL), (NULL, NULL, NULL);
	CREATE TABLE dw.mixed (a int, b int, updated_at timestamptz);
	CREATE UNIQUE INDEX mixed_a_b_key ON dw.mixed (a, b DESC);
	CREATE TABLE dw.narrow (a int, b int PRIMARY KEY, updated_at timestamptz);
	CREATE UNIQUE INDEX ON dw.narrow (a, b);
	SELECT incload_create_job('up', 'src.items', 'dw.up', 'upsert', 'updated_at', '{id}');
	SELECT incload_create_job('app', 'src.items', 'dw.app', 'append', 'updated_at', '{id}');
	SELECT incload_create_job('unique_too', 'src.items', 'dw.unique_too', 'upsert', 'updated_at', '{id}');
	SELECT incload_create_job('triggered', 'src.items', 'dw.triggered', 'upsert', 'updated_at', '{id}');
	SELECT incload_create_job('words', 'src.words', 'dw.words', 'upsert', 'updated_at', '{w}');
	SELECT incload_create_job('log', 'src.log', 'dw.log', 'append', 'updated_at', '{}');
	SELECT incload_create_job('pairs', 'src.pairs', 'dw.pairs', 'upsert', 'updated_at', '{a,b}');
	SELECT incload_create_job('swapped', 'src.pairs', 'dw.swapped', 'upsert', 'updated_at', '{a,b}');
	SELECT incload_create_job('mixed', 'src.pairs', 'dw.mixed', 'upsert', 'updated_at', '{a,b}');
	SELECT incload_create_job('narrow', 'src.pairs', 'dw.narrow', 'upsert', 'updated_at', '{a,b}');
	SELECT incload_create_job('marked', 'src.marked', 'dw.marked', 'upsert', 'updated_at', '{id}', options => '{"deletes": "soft", "deleted_column": "gone"}');
});
my @jobs = ('up', 'app', 'unique_too', 'triggered', 'words', 'log', 'pairs', 'swapped', 'mixed', 'narrow', 'marked');
settle($source, 'log');
as_loader($target, "SELECT incload_run('$_')") foreach @jobs;

sub run { return run_straight($target, @_); }

my $same = 'SELECT id, v, n, updated_at FROM items';

sub is_same
{
	my ($what, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_deeply([ differences($source, $target, "($same)", map { "(SELECT id, v, n, updated_at FROM dw.$_)" } @tables) ],
		[ map { '0|0' } @tables ], $what);
	return;
}

sub is_sound
{
	my ($table, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($target->safe_psql('postgres', "SELECT count(*) FROM verify_heapam('dw.$table')"), '0', "$what: the heap is sound");
	is($target->safe_psql('postgres', "SELECT count(bt_index_check(indexrelid, true)) > 0 FROM pg_index WHERE indrelid = 'dw.$table'::regclass"),
		't', "$what: its indexes have all rows");
	return;
}

settle($source, 'items');
$source->safe_psql('postgres', q{
	UPDATE items SET v = 'changed ' || id, updated_at = clock_timestamp() WHERE id % 10 = 0;
	INSERT INTO items SELECT i, 'v' || i, i / 7.0 FROM generate_series(3001, 9000) i;
});
# keys below the greatest that are new as well
$source->safe_psql('postgres', q{INSERT INTO items VALUES (-5, 'low', 1)});
is(run('up'), '6301|6001|300|0|0 straight', 'upsert: what is new above is put in, the rest is merged');
is(run('app'), '6301|6001|0|300|0 straight', 'append: likewise');
is(run('unique_too'), '6301|6001|300|0|0 staged', 'not where another index is unique');
is(run('triggered'), '6301|6001|300|0|0 staged', 'nor where a trigger wants to see the rows');
is_same('all have the rows of the source', 'up', 'unique_too', 'triggered');
is($target->safe_psql('postgres', 'SELECT count(*) FROM dw.app'), '9001', 'append has them, too');
is($target->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM dw.seen WHERE id > 3000'), '6000|6000', 'the trigger has seen each');
is($target->safe_psql('postgres', q{SELECT count(*) FROM dw.up WHERE loaded_by = 'loader' AND twice = n * 2 AND serial > 0}), '9001',
	'defaults, generated columns and identities are there');
is($target->safe_psql('postgres', 'SELECT count(DISTINCT serial) FROM dw.up'), '9001', 'each has its own');
is($target->safe_psql('postgres', q{SET enable_seqscan = off; SELECT id FROM dw.up WHERE lower(v) = 'v8123'}), '8123', 'an index on an expression has them');
is_sound($_, $_) foreach ('up', 'app');

# incload_explain says so
like(explained($target, 'up'), qr/^put in Rows are put in as they are read whose key is above all keys of the target, from the 1001st of a run on$/m, 'incload_explain tells of it');
like(explained($target, 'log'), qr/^put in Rows are put in as they are read, from the 1001st of a run on$/m, 'and of rows without a key');
like(explained($target, 'unique_too'), qr/^All rows are staged: index "unique_too_v_key" of the target is unique, too$/m, 'and of what is in the way: an index');
like(explained($target, 'triggered'), qr/^All rows are staged: the target has triggers$/m, 'a trigger');
like(explained($target, 'pairs'), qr/^put in Rows are put in as they are read whose key is above all keys of the target, from the 1001st of a run on$/m, 'a key of several columns is none');
like(explained($target, 'mixed'), qr/^All rows are staged: index "mixed_a_b_key" of the target has the key in another order$/m, 'but one that is read up and down is');
like(explained($target, 'narrow'), qr/^All rows are staged: index "narrow_pkey" of the target is unique, too$/m, 'one that is unique by fewer columns is');

# a handful is not worth it
settle($source, 'items');
$source->safe_psql('postgres', 'INSERT INTO items SELECT i, \'v\' || i, 1 FROM generate_series(9001, 9900) i');
is(run('up'), '900|900|0|0|0 staged', 'fewer rows are staged');
run('app');

# a row that the target refuses
$source->safe_psql('postgres', q{INSERT INTO items SELECT i, CASE WHEN i = 12345 THEN 'bad' ELSE 'v' || i END, 1 FROM generate_series(9901, 14000) i});
my $before = $target->safe_psql('postgres', q{SELECT count(*), (SELECT bound FROM incload.checkpoint WHERE job = 'up') FROM dw.up});
my $said = fails_with($target, 'loader', q{SELECT incload_run('up')}, '23514', qr/new row for relation "up" violates check constraint "up_v_check"/, 'a check');
like($said, qr/HINT:  Mend the row at the source/, 'says what to do');
is($target->safe_psql('postgres', q{SELECT count(*), (SELECT bound FROM incload.checkpoint WHERE job = 'up') FROM dw.up}), $before, 'nothing of it is there');
is(last_run($target, 'up', 'status, rows_read, rows_inserted'), 'failed|0|0', 'the run is on record');
$source->safe_psql('postgres', q{UPDATE items SET v = 'good', updated_at = clock_timestamp() WHERE id = 12345});
is(run('up'), '4100|4100|0|0|0 straight', 'mended, they come');
is_same('and are the same', 'up');
run('app');

# rolled back, in a savepoint and as a whole
$source->safe_psql('postgres', q{INSERT INTO items SELECT i, 'v' || i, 1 FROM generate_series(14001, 17000) i});
is(as_loader($target, q{
	BEGIN;
	SAVEPOINT s;
	SELECT rows_inserted FROM incload_run('up');
	SELECT count(*) FROM dw.up WHERE id > 14000;
	ROLLBACK TO s;
	SELECT count(*) FROM dw.up WHERE id > 14000;
	SELECT rows_inserted FROM incload_run('up');
	SELECT count(*) FROM dw.up WHERE id > 14000;
	ROLLBACK;
	SELECT count(*) FROM dw.up WHERE id > 14000;
}), "3000\n3000\n0\n3000\n3000\n0", 'what is rolled back is gone, and comes again');
is(run('up'), '3000|3000|0|0|0 straight', 'for good in the end');

# somebody else has put in a greater key meanwhile
$source->safe_psql('postgres', q{INSERT INTO items SELECT i, 'v' || i, 1 FROM generate_series(17001, 19500) i});
my $other = session($target, 'loader');
$other->query_safe(q{BEGIN; INSERT INTO dw.up (id, v, n, updated_at) VALUES (18500, 'theirs', 1, now())});
my $run = start_sql($target, 'loader', q{SELECT rows_inserted FROM incload_run('up')});
ok(wait_for(60, sub { $target->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}) eq '1' }), 'a run waits for who has the same key');
$other->query_safe('COMMIT');
my ($status, undef, $err) = $run->finish;
like($err, qr/ERROR:  23505: duplicate key value violates unique constraint "up_pkey"/, 'and fails, as MERGE would');
like($err, qr/HINT:  If another session has put that key in meanwhile, run the job again\. Otherwise: Mend the row/, 'with a hint');
is(run('up'), '2500|2499|1|0|0 straight', 'the next run finds that row, and updates it');
run('app');
is_same('they are the same', 'up');

# in batches: killed in the middle, nothing is lost or doubled
$source->safe_psql('postgres', q{INSERT INTO items SELECT i, 'v' || i, 1, clock_timestamp() FROM generate_series(19501, 30000) i});
as_loader($target, q{SELECT incload_alter_job('up', options => '{"batch_rows": 2000, "filter": "public.gate(id)"}')});
my $gate = session($source, scalar(getpwuid($<)));
$gate->query_safe('SELECT pg_advisory_lock(7)');
$run = start_sql($target, 'loader', q{CALL incload_run_in_batches('up')});
ok(wait_for(60, sub { $source->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) > 0 }), 'it waits for rows at the source');
my $pid = $target->safe_psql('postgres', q{SELECT pid FROM incload.progress WHERE job = 'up'});
kill 'KILL', $pid;
$run->finish;
ok(is_back($target), 'the server is there again');
$gate->query_safe('SELECT pg_advisory_unlock(7)');
ok(wait_for(60, sub { $source->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'incload reader%'}) eq '0' }), 'and the source without a reader');
as_loader($target, q{CALL incload_run_in_batches('up'); CALL incload_run_in_batches('up')});
is_same('no row is lost, none is doubled', 'up');
is(last_run($target, 'up', 'status'), 'succeeded', 'the run is on record');
as_loader($target, q{CALL incload_run_in_batches('app')});
is($target->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM dw.app'), '30001|30001', 'append has each row once');
is_sound($_, "$_ after the crash") foreach ('up', 'app');

# an order that is not that of bytes
settle($source, 'words');
$source->safe_psql('postgres', q{INSERT INTO words SELECT c || i, i FROM generate_series(1, 900) i, unnest(ARRAY['a', 'M', 'n', 'Z', 'ä']) c});
is(run('words'), '4500|4500|0|0|0 straight', 'words: some are above all, some are not');
is(differences($source, $target, 'words', '(SELECT w COLLATE "C" AS w, v, updated_at FROM dw.words)'), '0|0', 'all are there');
is_sound('words', 'words');

# without a key
settle($source, 'log');
$source->safe_psql('postgres', q{INSERT INTO log SELECT 'n' || i FROM generate_series(1, 5000) i});
# all of them, however long it took to write them
settle($source, 'log');
my $counts;
ok(wait_for(30, sub { $counts = run('log'); $counts !~ /^0/ }), 'rows without a key are settled');
is($counts, '5000|5000|0|0|0 straight', 'and put in');
is(differences($source, $target, 'log', 'dw.log'), '0|0', 'all are there, once');

# a key of several columns: the target's rows are pairs (i, i) up to 10; above them is (10, 11), but not (9, 99999)
settle($source, 'pairs');
$source->safe_psql('postgres', q{
	INSERT INTO pairs SELECT 10, i FROM generate_series(11, 3010) i;
	INSERT INTO pairs SELECT i, 3 FROM generate_series(11, 3010) i;
	INSERT INTO pairs VALUES (9, 99998), (-1, 99997), (5, 6);
	UPDATE pairs SET updated_at = clock_timestamp() WHERE a = 4 AND b = 4;
});
is(run('pairs'), '6004|6003|1|0|0 straight', 'pairs: in the order of their index');
is(run('swapped'), '6004|6003|1|0|0 straight', 'in another order, downwards');
is(run('mixed'), '6004|6003|1|0|0 staged', 'not where there is no one order');
is_deeply([ differences($source, $target, 'pairs', '(SELECT a, b, updated_at FROM dw.pairs)', '(SELECT a, b, updated_at FROM dw.swapped WHERE updated_at IS NOT NULL)',
	'(SELECT a, b, updated_at FROM dw.mixed)') ], [ ('0|0') x 3 ], 'all are there, once');
is_sound('pairs', 'pairs');
is_sound('swapped', 'pairs in the other order');
# once more, between and above what is there
settle($source, 'pairs');
$source->safe_psql('postgres', q{INSERT INTO pairs SELECT i % 2000 * 2, 200000 + i FROM generate_series(1, 4000) i});
is(run('pairs'), '4000|4000|0|0|0 straight', 'pairs: some are above all, some are not');
is(run('swapped'), '4000|4000|0|0|0 straight', 'above all, as the first column is greater');
is_deeply([ differences($source, $target, 'pairs', '(SELECT a, b, updated_at FROM dw.pairs)', '(SELECT a, b, updated_at FROM dw.swapped WHERE updated_at IS NOT NULL)') ],
	[ ('0|0') x 2 ], 'all are there');

# rows that are marked as deleted do not go in
settle($source, 'marked');
$source->safe_psql('postgres', q{INSERT INTO marked SELECT i, i % 3 = 0 FROM generate_series(11, 4010) i; UPDATE marked SET gone = true, updated_at = clock_timestamp() WHERE id = 3});
is(run('marked'), '4001|2667|0|1333|1 straight', 'marked rows are left out, and one goes');
is($target->safe_psql('postgres', 'SELECT count(*), count(*) FILTER (WHERE gone) FROM dw.marked'), '2676|0', 'the others are there');

# what was put aside comes again: it is looked for among the staged rows
as_loader($target, q{ALTER TABLE dw.app ADD CHECK (v <> 'worse'); SELECT incload_alter_job('app', options => '{"reject_limit": 10}')});
settle($source, 'items');
$source->safe_psql('postgres', q{INSERT INTO items SELECT i, CASE WHEN i = 32000 THEN 'worse' ELSE 'v' || i END, 1 FROM generate_series(30001, 32000) i});
like(run('app'), qr/^\d+\|1999\|0\|\d+\|0 staged$/, 'a row is put aside');
as_loader($target, q{SELECT incload_alter_job('app', options => '{"reject_limit": null}')});
$source->safe_psql('postgres', q{UPDATE items SET v = 'better', updated_at = clock_timestamp() WHERE id = 32000; INSERT INTO items SELECT i, 'v' || i, 1 FROM generate_series(32001, 34000) i});
like(run('app'), qr/^\d+\|2001\|0\|\d+\|0 staged$/, 'it comes again');
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.reject WHERE job = 'app'}), '0', 'and is put aside no more');
settle($source, 'items');
$source->safe_psql('postgres', q{INSERT INTO items SELECT i, 'v' || i, 1 FROM generate_series(34001, 36000) i});
is(run('app'), '2000|2000|0|0|0 straight', 'after that, rows are put in again');

# a target that is altered after the run has looked at it: pre_sql makes columns anew, under other numbers
as_loader($target, q{SELECT incload_alter_job('app', options => '{"pre_sql": "ALTER TABLE dw.app DROP v, DROP n, ADD n numeric(8,2), ADD v text"}')});
settle($source, 'items');
$source->safe_psql('postgres', q{INSERT INTO items SELECT i, 'v' || i, 1 FROM generate_series(36001, 38000) i});
like(run('app'), qr/^2000\|2000\|0\|0\|0 /, 'columns that are made anew in between');
is($target->safe_psql('postgres', q{SELECT count(*), count(v), min(n) FROM dw.app WHERE id > 36000}), '2000|2000|1.00', 'get what is theirs');
as_loader($target, q{SELECT incload_alter_job('app', options => '{"pre_sql": null}')});

# a source of the same database, through the executor
as_loader($target, q{
	CREATE TABLE dw.here (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO dw.here SELECT i, 'h' || i FROM generate_series(1, 50) i;
	SELECT incload_create_job('here', 'dw.here', 'dw.there', 'upsert', 'updated_at', '{id}');
	SELECT incload_run('here');
	INSERT INTO dw.here SELECT i, 'h' || i FROM generate_series(51, 5000) i;
});
is(run('here'), '4950|4950|0|0|0 straight', 'rows of this database are put in, too');
is($target->safe_psql('postgres', 'SELECT count(*) FROM (TABLE dw.here EXCEPT TABLE dw.there) x'), '0', 'all of them');

# batches that are smaller than what a run stages in any case
as_loader($target, q{SELECT incload_alter_job('here', options => '{"batch_rows": 400}'); INSERT INTO dw.here SELECT i, 'h' || i FROM generate_series(5001, 8000) i});
is(run('here', 1), '3000|3000|0|0|0 straight', 'of small batches, too, rows are put in');
is($target->safe_psql('postgres', q{SELECT batches, (SELECT count(*) FROM (TABLE dw.here EXCEPT TABLE dw.there) x) FROM incload.run WHERE job = 'here' ORDER BY run_id DESC LIMIT 1}), '8|0', 'batch by batch');

done_testing();
