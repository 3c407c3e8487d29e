# Rows that are put in as they are read meet the target's own rules as an INSERT's rows do: what its
# constraints, defaults and indexes ask is answered as of now, errors show the row, order is kept.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();

$source->safe_psql('postgres', q{
	CREATE TABLE items (id bigint PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO items SELECT i, 'a' || i FROM generate_series(1, 50) i;
	CREATE TABLE log (v int, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	CREATE INDEX ON log (updated_at);
	INSERT INTO log SELECT i FROM generate_series(1, 50) i;
});
foreign_table($target, 'items', 'log');
as_loader($target, q{
	CREATE TABLE dw.known (letter text PRIMARY KEY);
	INSERT INTO dw.known VALUES ('a');
	CREATE FUNCTION dw.is_known(v text) RETURNS boolean STABLE LANGUAGE sql AS 'SELECT EXISTS (SELECT FROM dw.known WHERE letter = left(v, 1))';
	CREATE TABLE dw.up (id bigint PRIMARY KEY, v text CHECK (dw.is_known(v)), updated_at timestamptz);
	CREATE TABLE dw.first (id bigint PRIMARY KEY, v text CHECK (dw.is_known(v)), updated_at timestamptz);
	CREATE TABLE dw.log (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int, updated_at timestamptz);
	CREATE TABLE dw.nulls (id bigint, v text, updated_at timestamptz);
	CREATE UNIQUE INDEX nulls_key ON dw.nulls (id NULLS FIRST);
	SELECT incload_create_job('up', 'src.items', 'dw.up', 'upsert', 'updated_at', '{id}');
	SELECT incload_create_job('log', 'src.log', 'dw.log', 'append', 'updated_at', '{}');
	SELECT incload_create_job('nulls', 'src.items', 'dw.nulls', 'upsert', 'updated_at', '{id}');
});
settle($source, 'items', 'log');
as_loader($target, "SELECT incload_run('$_')") foreach 'up', 'log', 'nulls';

my $put_in = qr/^put in Rows are put in as they are read/m;

# what pre_sql has done is there for a constraint that asks for it
like(explained($target, 'up'), $put_in, 'rows are put in');
settle($source, 'items');
$source->safe_psql('postgres', q{INSERT INTO items SELECT i, CASE WHEN i > 1500 THEN 'b' ELSE 'a' END || i FROM generate_series(51, 5000) i});
as_loader($target, q{SELECT incload_alter_job('up', options => '{"pre_sql": "INSERT INTO dw.known VALUES (''b'') ON CONFLICT DO NOTHING"}')});
is(as_loader($target, q{SELECT rows_read, rows_inserted FROM incload_run('up')}), '4950|4950', 'a constraint sees what pre_sql has done');

# as does one that is asked while a new heap is filled
as_loader($target, q{
	DELETE FROM dw.known WHERE letter = 'b';
	SELECT incload_create_job('first', 'src.items', 'dw.first', 'upsert', 'updated_at', '{id}',
		options => '{"pre_sql": "INSERT INTO dw.known VALUES (''b'') ON CONFLICT DO NOTHING"}');
});
is(as_loader($target, q{SELECT rows_read, rows_inserted FROM incload_run('first')}), '5000|5000', 'in a first load, too');

# and an error of its own code is told to come from there
as_loader($target, q{
	CREATE TABLE dw.failing (id bigint PRIMARY KEY, v text CHECK (1 / (id - 2000) IS NOT NULL), updated_at timestamptz);
	SELECT incload_create_job('failing', 'src.items', 'dw.failing', 'upsert', 'updated_at', '{id}');
});
fails_with($target, 'loader', q{SELECT incload_run('failing')}, '22012', qr/DETAIL:  It came up while rows were written to target dw\.failing\..*HINT:  Mend the row/s, 'an error in a first load comes from the target');
as_loader($target, q{SELECT incload_alter_job('failing', options => '{"first_load": "batches"}')});
fails_with($target, 'loader', q{SELECT incload_run('failing')}, '22012', qr/DETAIL:  It came up while rows were written to target dw\.failing\..*HINT:  Mend the row/s, 'as where rows are put in');

# what another job has loaded earlier in the same statement
as_loader($target, q{
	SELECT incload_alter_job('up', options => '{"pre_sql": null}');
	CREATE TABLE dw.letters (letter text PRIMARY KEY, updated_at timestamptz DEFAULT clock_timestamp());
	INSERT INTO dw.letters VALUES ('c');
	SELECT incload_create_job('letters', 'dw.letters', 'dw.known', 'upsert', 'updated_at', '{letter}', options => '{"columns": ["letter"]}');
});
settle($source, 'items');
$source->safe_psql('postgres', q{INSERT INTO items SELECT i, CASE WHEN i > 6500 THEN 'c' ELSE 'a' END || i FROM generate_series(5001, 9000) i});
is(as_loader($target, q{SELECT string_agg(r.rows_inserted::text, ' ' ORDER BY j) FROM unnest('{letters,up}'::text[]) WITH ORDINALITY AS j(job, j), incload_run(job) r}),
	'1 4000', 'one statement runs two jobs, and the second sees the rows of the first');
is($target->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM dw.up'), '9000|9000', 'all are there');

# an owner who may not read the target sees which of his rows is refused
$target->safe_psql('postgres', q{
	CREATE TABLE dw.blind (v int CHECK (v <> 4321), updated_at timestamptz, secret text DEFAULT 'hidden');
	GRANT INSERT ON dw.blind TO loader;
});
as_loader($target, q{SELECT incload_create_job('blind', 'src.log', 'dw.blind', 'append', 'updated_at', '{}', options => '{"first_load": "batches"}')});
$source->safe_psql('postgres', q{INSERT INTO log SELECT i FROM generate_series(51, 5000) i});
settle($source, 'log');
my $said = fails_with($target, 'loader', q{SELECT incload_run('blind')}, '23514', qr/DETAIL:  Failing row contains \(v, updated_at\) = \(4321, /, 'the row is shown, as an INSERT shows it');
unlike($said, qr/hidden/, 'and no more of it than what he has brought');

# without a key, rows are numbered in the order in which they come
like(explained($target, 'log'), $put_in, 'rows without a key are put in');
is(as_loader($target, q{SELECT rows_read, rows_inserted FROM incload_run('log')}), '4950|4950', 'all of them');
is($target->safe_psql('postgres', 'SELECT count(*) FILTER (WHERE v <> id), count(*) FROM dw.log'), '0|5000', 'in their order');
$source->safe_psql('postgres', q{INSERT INTO log SELECT i FROM generate_series(5001, 12000) i});
settle($source, 'log');
as_loader($target, q{SELECT incload_alter_job('log', options => '{"batch_rows": 2500}')});
as_loader($target, q{CALL incload_run_in_batches('log')});
is($target->safe_psql('postgres', 'SELECT count(*) FILTER (WHERE v <> id), count(*) FROM dw.log'), '0|12000', 'batch by batch, too');
is(last_run($target, 'log'), 'succeeded|7000|7000|0|0', 'and each is counted once');

# the key's own index can be the obstacle
like(explained($target, 'nulls'), qr/^All rows are staged: index "nulls_key" of the target has the key in another order$/m, 'incload_explain tells an index of another order from one of another column');

done_testing();
