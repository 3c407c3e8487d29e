# The pages of rows that have come are asked for ahead of the MERGE, those that are in no buffer.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => "shared_buffers = 128MB\nautovacuum = off");

# one row a page, or nearly; a key of two columns; rows that are marked; a key that is text
$source->safe_psql('postgres', q{
	CREATE TABLE wide (id int PRIMARY KEY, v int NOT NULL DEFAULT 0, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	CREATE TABLE pairs (a int, b text, v int NOT NULL DEFAULT 0, updated_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (a, b));
	CREATE TABLE marked (id int PRIMARY KEY, gone boolean NOT NULL DEFAULT false, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO wide SELECT i FROM generate_series(1, 3000) i;
	INSERT INTO pairs SELECT i % 10, 'b' || i FROM generate_series(1, 3000) i;
	INSERT INTO marked SELECT i FROM generate_series(1, 3000) i;
});
foreign_table($target, 'wide', 'pairs', 'marked');
as_loader($target, q{
	CREATE TABLE dw.wide (filler char(6000) DEFAULT 'x', id int PRIMARY KEY, v int, updated_at timestamptz);
	ALTER TABLE dw.wide ALTER filler SET STORAGE PLAIN;
	-- its columns in the index are in another order than the key's
	CREATE TABLE dw.pairs (filler char(6000) DEFAULT 'x', v int, a int, b text, updated_at timestamptz, UNIQUE (b, a), CHECK (a IS NOT NULL AND b IS NOT NULL));
	ALTER TABLE dw.pairs ALTER filler SET STORAGE PLAIN, ALTER a SET NOT NULL, ALTER b SET NOT NULL;
	CREATE TABLE dw.marked (filler char(6000) DEFAULT 'x', id int PRIMARY KEY, updated_at timestamptz);
	ALTER TABLE dw.marked ALTER filler SET STORAGE PLAIN;
	-- partitions of each kind, one below the other, with their columns in other orders
	CREATE TABLE dw.parts (id int PRIMARY KEY, v int, updated_at timestamptz, filler char(6000) DEFAULT 'x') PARTITION BY RANGE (id);
	CREATE TABLE dw.parts_1 (filler char(6000) DEFAULT 'x', gone int, v int, updated_at timestamptz, id int NOT NULL) PARTITION BY HASH (id);
	ALTER TABLE dw.parts_1 DROP COLUMN gone;
	ALTER TABLE dw.parts ATTACH PARTITION dw.parts_1 FOR VALUES FROM (MINVALUE) TO (1500);
	CREATE TABLE dw.parts_1a PARTITION OF dw.parts_1 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE dw.parts_1b PARTITION OF dw.parts_1 FOR VALUES WITH (MODULUS 4, REMAINDER 1);
	CREATE TABLE dw.parts_1c PARTITION OF dw.parts_1 FOR VALUES WITH (MODULUS 4, REMAINDER 3);
	CREATE TABLE dw.parts_2 PARTITION OF dw.parts FOR VALUES FROM (1500) TO (2000);
	CREATE TABLE dw.parts_3 PARTITION OF dw.parts DEFAULT;
	CREATE TABLE dw.lists (a int NOT NULL, b text NOT NULL, v int, updated_at timestamptz, filler char(6000) DEFAULT 'x') PARTITION BY LIST (a);
	DO $$ BEGIN FOR i IN 0 .. 8 LOOP
		EXECUTE format('CREATE TABLE dw.lists_%s (filler char(6000) DEFAULT %L, b text NOT NULL, a int NOT NULL, v int, updated_at timestamptz); ALTER TABLE dw.lists ATTACH PARTITION dw.lists_%1$s FOR VALUES IN (%1$s)', i, 'x');
	END LOOP; END $$;
	CREATE TABLE dw.lists_all PARTITION OF dw.lists DEFAULT PARTITION BY RANGE (b);
	CREATE TABLE dw.lists_b PARTITION OF dw.lists_all FOR VALUES FROM ('b') TO ('c');
	ALTER TABLE dw.lists ADD UNIQUE (b, a);
	ALTER TABLE dw.lists ALTER filler SET STORAGE PLAIN;
	ALTER TABLE dw.parts ALTER filler SET STORAGE PLAIN;
	SELECT incload_create_job('wide', 'src.wide', 'dw.wide', 'upsert', 'updated_at', '{id}', options => '{"lookback": "0"}');
	SELECT incload_create_job('pairs', 'src.pairs', 'dw.pairs', 'upsert', 'updated_at', '{a,b}', options => '{"lookback": "0"}');
	SELECT incload_create_job('marked', 'src.marked', 'dw.marked', 'upsert', 'updated_at', '{id}', options =>
		'{"lookback": "0", "deletes": "soft", "deleted_column": "gone", "exclude": ["gone"]}');
	SELECT incload_create_job('parts', 'src.wide', 'dw.parts', 'upsert', 'updated_at', '{id}', options => '{"lookback": "0"}');
	SELECT incload_create_job('lists', 'src.pairs', 'dw.lists', 'upsert', 'updated_at', '{a,b}', options => '{"lookback": "0"}');
});
settle($source, $_) foreach qw(wide pairs marked);
as_loader($target, "SELECT incload_run(job) FROM incload.job");
$target->safe_psql('postgres', 'VACUUM (ANALYZE) dw.wide, dw.pairs, dw.marked, dw.parts, dw.lists');

# run JOB SETTING…: what it counts, and the pages it says it has asked for, added up; 'none' where it says nothing
sub run
{
	my ($job, @settings) = @_;
	my ($ret, $out, $err) = $target->psql('postgres', join('; ', (map { "SET $_" } @settings), 'SET client_min_messages = debug1',
		"SELECT rows_read, rows_inserted, rows_updated, rows_unchanged, rows_deleted FROM incload_run('$job')"), extra_params => [ '-U', 'loader' ]);
	my $pages = 'none';

	is($ret, 0, "job $job runs") or diag($err);
	$pages = ($pages eq 'none' ? 0 : $pages) + $1 while $err =~ /DEBUG:  asked for (\d+) pages of dw\.$job ahead of the rows/g;
	return "$out: $pages";
}

sub pages_of
{
	my ($table, $rows) = @_;
	return $target->safe_psql('postgres', "SELECT count(DISTINCT (ctid::text::point)[0]) FROM $table WHERE $rows");
}

# change TABLE ROWS: 300 rows or so; what the buffers hold is gone
sub change
{
	my ($table, $rows, $set) = @_;
	$source->safe_psql('postgres', "UPDATE $table SET updated_at = clock_timestamp(), $set WHERE $rows");
	settle($source, $table);
	$target->restart;
	return;
}

my $wanted = pages_of('dw.wide', 'id % 10 = 0');
is($wanted, 300, 'each row has a page of its own');
change('wide', 'id % 10 = 0', 'v = v + 1');
is(run('wide', 'incload.read_ahead = on'), '300|0|300|0|0: 300', 'all of them are asked for');
is(differences($source, $target, '(SELECT * FROM wide)', '(SELECT id, v, updated_at FROM dw.wide)'), '0|0', 'and the target is equal');

change('wide', 'id % 10 = 1', 'v = v + 1');
$target->safe_psql('postgres', 'SELECT sum(v) FROM dw.wide');
is(run('wide', 'incload.read_ahead = on'), '300|0|300|0|0: 0', 'none that is in a buffer');
change('wide', 'id % 10 = 2', 'v = v + 1');
is(run('wide', 'incload.read_ahead = off'), '300|0|300|0|0: none', 'none at all where that is set');
change('wide', 'id % 10 = 3', 'v = v + 1');
is(run('wide', 'incload.read_ahead = on', 'effective_io_concurrency = 0'), '300|0|300|0|0: none',
	'nor where the server is not to ask ahead');
change('wide', 'id % 100 = 4', 'v = v + 1');
is(run('wide', 'incload.read_ahead = on'), '30|0|30|0|0: none', 'nor for a handful of rows');
change('wide', 'id % 10 = 5', 'v = v + 1');
like(run('wide'), qr/^300\|0\|300\|0\|0: (none|300)$/, 'by itself it is done or not, as pages are fast or slow to read');
like(as_loader($target, q{SELECT FROM incload_run('wide'); SHOW incload.read_ahead}), qr/^auto$/m, 'the default');
fails_with($target, 'loader', q{SELECT FROM incload_run('wide'); SET incload.read_ahead = perhaps}, '22023', qr/Available values: auto, on, off/, 'no other value');

$wanted = pages_of('dw.pairs', "a = 3");
change('pairs', 'a = 3', 'v = v + 1');
is(run('pairs', 'incload.read_ahead = on'), "300|0|300|0|0: $wanted", 'a key of several columns, in whatever order');
is(differences($source, $target, '(SELECT * FROM pairs)', '(SELECT a, b, v, updated_at FROM dw.pairs)'), '0|0', 'and the target is equal');

# as many are deleted as are updated
$wanted = pages_of('dw.marked', 'id % 10 IN (6, 7)');
change('marked', 'id % 10 IN (6, 7)', 'gone = (id % 10 = 6)');
is(run('marked', 'incload.read_ahead = on'), "600|0|300|0|300: $wanted", 'those of rows that are deleted, too');
is($target->safe_psql('postgres', 'SELECT count(*), count(*) FILTER (WHERE id % 10 = 6) FROM dw.marked'), '2700|0', 'and they are');

# a page of a row that was updated before is asked for where an index still leads to it, and more than once at most
change('wide', 'id % 10 = 0', 'v = v + 1');
like(run('wide', 'incload.read_ahead = on'), qr/^300\|0\|300\|0\|0: [3-6]\d\d$/, 'rows that were updated before');

run('parts');
$target->safe_psql('postgres', 'VACUUM (FULL, ANALYZE) dw.parts');
change('wide', 'id % 10 = 7', 'v = v + 1');
is(run('parts', 'incload.read_ahead = on'), "300|0|300|0|0: 300", 'in partitions, of all kinds');
is(differences($source, $target, '(SELECT * FROM wide)', '(SELECT id, v, updated_at FROM dw.parts)'), '0|0', 'and they are equal');
run('lists');
$target->safe_psql('postgres', 'VACUUM (FULL, ANALYZE) dw.lists');
change('pairs', 'a IN (4, 9)', 'v = v + 1');
is(run('lists', 'incload.read_ahead = on'), "600|0|600|0|0: 600", 'by a list, a default partition below it by another column');
is(differences($source, $target, '(SELECT * FROM pairs)', '(SELECT a, b, v, updated_at FROM dw.lists)'), '0|0', 'equal again');

# more partitions than are looked into at once, and keys that have no partition
$source->safe_psql('postgres', q{CREATE TABLE many (id int PRIMARY KEY, gone boolean NOT NULL DEFAULT false, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO many SELECT i, i > 3000 FROM generate_series(1, 3100) i});
foreign_table($target, 'many');
as_loader($target, q{
	CREATE TABLE dw.many (id int PRIMARY KEY, updated_at timestamptz) PARTITION BY RANGE (id);
	DO $$ BEGIN FOR i IN 0 .. 149 LOOP
		EXECUTE format('CREATE TABLE dw.many_%s PARTITION OF dw.many FOR VALUES FROM (%s) TO (%s)', i, i * 20 + 1, i * 20 + 21);
	END LOOP; END $$;
	SELECT incload_create_job('many', 'src.many', 'dw.many', 'upsert', 'updated_at', '{id}',
		options => '{"lookback": "0", "deletes": "soft", "deleted_column": "gone", "exclude": ["gone"]}');
});
settle($source, 'many');
is(run('many', 'incload.read_ahead = on'), '3100|3000|0|100|0: 0', 'rows that are deleted and never were, and have no partition');
change('many', 'id % 10 = 5', 'gone = gone');
is(run('many', 'incload.read_ahead = on'), '310|0|300|10|0: 150', 'a page of each partition');

done_testing();
