# Rows that are deleted at the source go from the target: marked there, or by
# tombstones; whoever commits late, whatever is read in which order, and whoever
# is killed.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => 'restart_after_crash = on');
my $rows = 3000;

$source->safe_psql('postgres', qq{
	CREATE TABLE items (id int PRIMARY KEY, v text, n numeric(20, 4), updated_at timestamptz NOT NULL);
	INSERT INTO items SELECT g, 'v' || g, g / 7.0, now() - interval '1 day' FROM generate_series(1, $rows) g;
	CREATE TABLE marked AS SELECT *, NULL::timestamptz AS deleted_at FROM items;
	ALTER TABLE marked ADD PRIMARY KEY (id), ALTER updated_at SET NOT NULL;
	UPDATE marked SET deleted_at = updated_at WHERE id % 10 = 0;
});
foreign_table($target, 'items', 'marked');

sub new_job
{
	my ($job, $table, $options) = @_;
	as_loader($target, "SELECT incload_create_job('$job', 'src.$table', 'dw.$job', 'upsert', 'updated_at', '{id}', options => '$options')");
	return;
}

sub run_job
{
	my ($job) = @_;
	return as_loader($target, "SELECT rows_inserted, rows_updated, rows_deleted FROM incload_run('$job')");
}

sub ids_of
{
	my ($table, $where) = @_;
	return $target->safe_psql('postgres', "SELECT string_agg(id::text, ',' ORDER BY id) FROM $table WHERE $where");
}

# every run so far: what was read is what was done
sub adds_up
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $target->safe_psql('postgres', q{
			SELECT count(*) FROM incload.run WHERE rows_read <> rows_inserted + rows_updated + rows_unchanged + rows_deleted
				+ rows_superseded + rows_suppressed + rows_rejected}), '0', "$what: all runs add up");
	return;
}

# 1. what incload_source_sql prints is run at the source, as it is, by its owner
new_job('items', 'items', '{}');
my $sql = as_loader($target, "SELECT incload_source_sql('items')");
my $file = PostgreSQL::Test::Utils::tempdir_short() . '/source.sql';
append_to_file($file, $sql);
$source->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $source->connstr('postgres'), '-f', $file ],
	'what is printed can be run');
$source->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $source->connstr('postgres'), '-f', $file ],
	'and once more');
is( $source->safe_psql('postgres', q{
		SELECT has_table_privilege('reader', 'items_deleted', 'SELECT'),
			(SELECT count(*) FROM pg_trigger WHERE tgrelid = 'items'::regclass),
			(SELECT count(*) FROM pg_index WHERE indrelid IN ('items'::regclass, 'items_deleted'::regclass))}),
	't|4|3', 'the reader may read the tombstones, and triggers and indexes are there once');
my ($import, $alter) = $sql =~ /^-- (IMPORT FOREIGN SCHEMA .*)\n-- (SELECT incload_alter_job.*)/m;
as_loader($target, $import);
as_loader($target, $alter);
is(as_loader($target, q{SELECT string_agg(code, ',') FROM incload_check('items') WHERE severity <> 'info'}), '',
	'then there is nothing to be said against the job');
is(as_loader($target, q{
		BEGIN;
		SET client_min_messages = warning;
		DO $$ BEGIN PERFORM incload_alter_job('items', options => '{"reader": "relation"}'); END $$;
		SELECT md5(string_agg(s, '')) FROM incload_source_sql('items') s;
		ROLLBACK}), as_loader($target, q{SELECT md5(string_agg(s, '')) FROM incload_source_sql('items') s}), 'whatever reads it');
unlike(as_loader($target, "SELECT incload_source_sql('items')"), qr/NEW\.updated_at|items_updated_at_idx/,
	'what is there is not printed again');

# 2. by either reader, in one transaction or in batches
$target->safe_psql('postgres', "ALTER TABLE dw.items ALTER n TYPE numeric");
new_job('by_relation', 'items', '{"reader": "relation", "deletes": "tombstone", "tombstone_source": "src.items_deleted", "batch_rows": 1000}');
new_job('as_text', 'items', '{"deletes": "tombstone", "tombstone_source": "src.items_deleted", "transforms": {"v": "v::varchar(30)"}, "batch_rows": 1000}');
is(run_job($_), "$rows|0|0", "$_: a first load") foreach ('items', 'as_text');
as_loader($target, "CALL incload_run_in_batches('by_relation')");
$source->safe_psql('postgres', q{
	DELETE FROM items WHERE id BETWEEN 11 AND 20;
	UPDATE items SET id = 5000 WHERE id = 21;
	-- deleted and there again
	WITH gone AS (DELETE FROM items WHERE id = 22 RETURNING v, n) INSERT INTO items SELECT 5001, v, n FROM gone;
	INSERT INTO items VALUES (11, 'again', 1);
	DELETE FROM items WHERE id = 11;
	INSERT INTO items VALUES (12, 'again', 1);
	BEGIN;
	DELETE FROM items WHERE id = 23;
	ROLLBACK;
});
is(run_job('items'), '2|1|11', 'new, changed and deleted');
is(run_job('items'), '0|0|0', 'and nothing twice');
as_loader($target, "CALL incload_run_in_batches('$_')") foreach ('by_relation', 'as_text');
is(differences($source, $target, 'items', "(SELECT id, v, n, updated_at FROM dw.$_)"), '0|0', "$_: the target is what the source is")
  foreach ('items', 'by_relation', 'as_text');
like(as_loader($target, q{SELECT guarantee FROM incload.tombstone WHERE job = 'items'}), qr/^exact$/, 'by a horizon that is seen');

like(as_loader($target, "SELECT string_agg(what, ',' ORDER BY step) FROM incload_explain('$_->[0]')"), qr/$_->[1]/, "$_->[0]: explained")
  foreach ([ 'items', 'apply,read tombstones,delete$' ], [ 'by_relation', 'apply,read tombstones,ask for their keys,delete$' ]);
$source->safe_psql('postgres', q{
	CREATE TABLE parts (region text, id bigint, v int NOT NULL, updated_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (region, id));
	CREATE TABLE parts_gone (region text, id bigint, v int, at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO parts SELECT CASE g % 2 WHEN 0 THEN 'e''u' ELSE 'us' END, g, g FROM generate_series(1, 3000) g});
foreign_table($target, 'parts', 'parts_gone');
as_loader($target, q{SELECT incload_create_job('parts', 'src.parts', 'dw.parts', 'upsert', 'updated_at', '{region,id}', options => '{"reader": "relation",
	"filter": "v > 10", "transforms": {"id": "id * 2"}, "deletes": "tombstone", "tombstone_source": "src.parts_gone", "tombstone_watermark": "at"}')});
is(run_job('parts'), '2990|0|0', 'a key of two columns, one of them by a transform');
$source->safe_psql('postgres', q{
	WITH gone AS (DELETE FROM parts WHERE id <= 1300 RETURNING region, id) INSERT INTO parts_gone SELECT * FROM gone;
	-- there again, and in the job's part of the source or not
	INSERT INTO parts SELECT CASE g % 2 WHEN 0 THEN 'e''u' ELSE 'us' END, g, CASE WHEN g <= 50 THEN 1 ELSE g END FROM generate_series(41, 60) g});
is(run_job('parts'), '0|10|1280', 'the source is asked for many keys');
is(differences($source, $target, '(SELECT region, id * 2, v, updated_at FROM parts WHERE v > 10)',
	'(SELECT region, id, v, updated_at FROM dw.parts)'), '0|0', 'and has the last word on each');

# 3. who commits late is waited for, and a tombstone that comes below another is not missed
new_job('by_xmin', 'items', '{"deletes": "tombstone", "tombstone_source": "src.items_deleted", "tombstone_watermark": "xmin"}');
run_job('by_xmin');
new_job('no_lookback', 'items', '{"deletes": "tombstone", "tombstone_source": "src.items_deleted", "lookback": "0"}');
run_job('no_lookback');
my $late = session($source, scalar(getpwuid($<)));
$late->query_safe(q{BEGIN});
$late->query_safe(q{DELETE FROM items WHERE id = 31});
$source->safe_psql('postgres', 'DELETE FROM items WHERE id = 32');
is(run_job('no_lookback'), '0|0|1', 'one is deleted');
is(run_job('no_lookback'), '0|0|0', 'the other is not, yet');
is(ids_of('dw.no_lookback', 'id IN (31, 32)'), '31', 'it is there');
ok(wait_for(60, sub {
		run_job('no_lookback');
		as_loader($target, q{SELECT held_back_by FROM incload.tombstone WHERE job = 'no_lookback'}) =~ /^pid \d+ .*since/;
	}), 'and holds the tombstones');
$source->safe_psql('postgres', 'DELETE FROM items WHERE id = 33');
is(run_job('no_lookback'), '0|0|1', 'others go on');
$late->query_safe('COMMIT');
is(run_job('no_lookback'), '0|0|1', 'until it commits');
is(run_job('items'), '0|0|3', 'as it is with a lookback');
$late->quit;

# 4. deleted while a run has read the row and not written it yet: a trigger waits for lock 7
as_loader($target, q{
	CREATE FUNCTION dw.gate() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF coalesce(new.v, old.v) LIKE 'gate%' THEN
			PERFORM pg_advisory_lock_shared(7);
			PERFORM pg_advisory_unlock_shared(7);
		END IF;
		RETURN coalesce(new, old);
	END $$;
	CREATE TRIGGER gate BEFORE INSERT OR DELETE ON dw.items FOR EACH ROW EXECUTE FUNCTION dw.gate();
});
my $gate = session($target, scalar(getpwuid($<)));

sub wait_at_gate
{
	ok(wait_for(60, sub { $target->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'") }),
		'it waits where it should') or die;
	return $target->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory'");
}

$gate->query_safe('SELECT pg_advisory_lock(7)');
$source->safe_psql('postgres', q{INSERT INTO items SELECT g, 'gate ' || g, 0 FROM generate_series(6001, 6003) g});
my $run = start_sql($target, 'loader', q{SELECT rows_inserted, rows_updated, rows_deleted FROM incload_run('items')});
wait_at_gate();
$source->safe_psql('postgres', q{
	DELETE FROM items WHERE id IN (6001, 6002, 41);
	INSERT INTO items VALUES (6002, 'again', 1)});
$gate->query_safe('SELECT pg_advisory_unlock(7)');
is(($run->finish)[1], "3|0|2\n", 'what the run has written itself goes again, and what is there again stays');
is(ids_of('dw.items', 'id IN (6001, 6002, 6003, 41)'), '6002,6003', 'so it is');
is(run_job('items'), '0|1|0', 'it comes by its own watermark');
is(differences($source, $target, 'items', 'dw.items'), '0|0', 'nothing is lost, nothing is left');

# 5. killed while it deletes: rows and both checkpoints are those of before
$source->safe_psql('postgres', q{
	DELETE FROM items WHERE id BETWEEN 51 AND 60 OR id = 6003;
	UPDATE items SET v = 'changed' WHERE id BETWEEN 61 AND 70});
my $state = q{SELECT c.bound, t.bound, t.seen, t.mark FROM incload.checkpoint c JOIN incload.tombstone t USING (job) WHERE job = 'items'};
my $before = $target->safe_psql('postgres', $state);
$gate->query_safe('SELECT pg_advisory_lock(7)');
$run = start_sql($target, 'loader', q{CALL incload_run_in_batches('items')});
my $pid = wait_at_gate();
my $other = $gate->query_safe('SELECT pg_backend_pid()');
kill 'KILL', $pid;
wait_for(60, sub { !kill(0, $other) }) or die 'the server has not noticed';
$_->{run}->finish foreach ($run, $gate);
wait_for(60, sub { system($target->installed_command('pg_isready'), '-q', '-h', $target->host, '-p', $target->port) == 0 })
  or die 'the target does not come back';
is($target->safe_psql('postgres', $state), $before, 'no checkpoint has moved');
is(ids_of('dw.items', 'id BETWEEN 51 AND 60 OR id = 6003'), join(',', 51 .. 60, 6003), 'and no row is gone');
is(run_job('items'), '0|10|11', 'the next run does all of it');
is(differences($source, $target, 'items', 'dw.items'), '0|0', 'nothing is lost, nothing is left');

# 6. TRUNCATE, and a tombstone of another table than it was
$source->safe_psql('postgres', q{
	CREATE TABLE kept AS SELECT id, v, n FROM items WHERE id <= 100;
	TRUNCATE items;
	INSERT INTO items SELECT * FROM kept});
like(run_job('items'), qr/^0\|\d+\|\d{4}$/, 'rows that were truncated go');
is(differences($source, $target, 'items', 'dw.items'), '0|0', 'and those that were not stay');
fails_with($target, 'loader', q{SELECT incload_alter_job('items', options => '{"tombstone_source": "dw.items"}')},
	'22023', qr/tombstones dw\.items are not where source src\.items is/, 'tombstones of another server are refused');

as_loader($target, 'ALTER FOREIGN TABLE src.items_deleted RENAME TO elsewhere');
$source->safe_psql('postgres', q{UPDATE items SET v = 'not now' WHERE id = 71});
fails_with($target, 'loader', q{CALL incload_run_in_batches('items')}, '42P01', qr/source "src\.items_deleted" does not exist/, 'tombstones that are gone are missed');
is(ids_of('dw.items', q{v = 'not now'}), '', 'before a row is written');
like(as_loader($target, q{SELECT message FROM incload_check('items') WHERE code = 'job_cannot_run'}), qr/^42P01: source "src\.items_deleted" does not exist/, 'and incload_check tells');
as_loader($target, 'ALTER FOREIGN TABLE src.elsewhere RENAME TO items_deleted');
as_loader($target, q{SELECT incload_run('items')});

# 7. marked rows, by COPY in both formats, by several readers, and in batches
new_job('marked', 'marked', '{"deletes": "soft", "deleted_column": "deleted_at", "exclude": ["deleted_at"], "parallel": 2}');
new_job('marked_text', 'marked', '{"deletes": "soft", "deleted_column": "(deleted_at IS NOT NULL)", "exclude": ["deleted_at"], "transforms": {"v": "v::varchar(30)"}}');
new_job('marked_batches', 'marked', '{"deletes": "soft", "deleted_column": "deleted_at", "exclude": ["deleted_at"], "batch_rows": 500}');
new_job('marked_relation', 'marked', '{"deletes": "soft", "deleted_column": "deleted_at", "exclude": ["deleted_at"], "batch_rows": 500, "reader": "relation"}');
my @marked = map { "marked$_" } ('', '_text', '_batches', '_relation');

sub run_marked
{
	as_loader($target, $_ =~ /batches|relation/ ? "CALL incload_run_in_batches('$_')" : "SELECT incload_run('$_')") foreach @marked;
	return;
}

sub differ_marked
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(differences($source, $target, '(SELECT id, v, n, updated_at FROM marked WHERE deleted_at IS NULL)',
		"(SELECT id, v, n, updated_at FROM dw.$_)"), '0|0', "$_: $what") foreach @marked;
	return;
}

run_marked();
differ_marked('a first load');
is( $target->safe_psql('postgres', q{SELECT string_agg(DISTINCT concat_ws(' ', rows_read, rows_inserted, rows_unchanged), ',')
	FROM incload.run WHERE job LIKE 'marked%'}), '3000 2700 300', 'by each of them the same');
$source->safe_psql('postgres', q{
	UPDATE marked SET deleted_at = now(), updated_at = now() WHERE id % 7 = 0;
	UPDATE marked SET deleted_at = NULL, updated_at = now(), v = 'back' WHERE id % 20 = 0;
	INSERT INTO marked VALUES (4000, 'new', 1, now(), now()), (4001, 'new', 1, now(), NULL)});
run_marked();
differ_marked('deleted, undeleted and new');
as_loader($target, "SELECT incload_refresh('$_')") foreach @marked;
differ_marked('and after a refresh');

# 8. sessions that insert, change, delete and insert again, beside the runs: it ends equal
$source->safe_psql('postgres', q{
	-- filled when as many runs as are wanted have come in between
	CREATE TABLE enough ();
	CREATE PROCEDURE churn(seed float8, n int) LANGUAGE plpgsql AS $$
	DECLARE
		k int;
		i int := 0;
	BEGIN
		PERFORM setseed(seed);
		WHILE i < n OR NOT EXISTS (SELECT FROM enough) LOOP
			i := i + 1;
			FOR j IN 1 .. 1 + random() * 5 LOOP
				k := 10000 + (random() * 60)::int;
				CASE (random() * 3)::int
					WHEN 0 THEN DELETE FROM items WHERE id = k;
					WHEN 1 THEN INSERT INTO items VALUES (k, 'w' || i, seed) ON CONFLICT DO NOTHING;
					WHEN 2 THEN UPDATE items SET v = 'u' || i WHERE id = k;
					ELSE
						DELETE FROM items WHERE id = k;
						INSERT INTO items VALUES (k, 'r' || i, seed) ON CONFLICT DO NOTHING;
				END CASE;
			END LOOP;
			PERFORM pg_sleep(random() * 0.03);
			IF random() < 0.2 THEN ROLLBACK; ELSE COMMIT; END IF;
		END LOOP;
	END $$;
});
as_loader($target, 'DROP TRIGGER gate ON dw.items');
my @writers = map { start_sql($source, scalar(getpwuid($<)), 'SET deadlock_timeout = 20', 'SET client_min_messages = error',
	"DO \$\$ BEGIN NULL; END \$\$", "CALL churn(0.$_, 150)") } 1 .. 3;
my $runs = 0;
while (grep { $_->{run}->pumpable } @writers)
{
	as_loader($target, "SELECT incload_run('items')");
	as_loader($target, "SELECT incload_run('no_lookback'), incload_run('by_xmin')");
	as_loader($target, "CALL incload_run_in_batches('by_relation')");
	$_->{run}->pump_nb foreach grep { $_->{run}->pumpable } @writers;
	$source->safe_psql('postgres', 'INSERT INTO enough DEFAULT VALUES') if ++$runs == 4;
}
$_->finish foreach @writers;
as_loader($target, "SELECT incload_run('$_')") foreach ('items', 'by_relation', 'by_xmin', 'no_lookback');
cmp_ok($runs, '>', 3, 'runs came in between');
cmp_ok($target->safe_psql('postgres', q{SELECT sum(rows_deleted) FROM incload.run WHERE job = 'items'}), '>', 20, 'and deleted');
is(differences($source, $target, 'items', "dw.$_"), '0|0', "$_: it ends equal") foreach ('items', 'by_relation', 'by_xmin', 'no_lookback');
adds_up('in the end');

# 9. a dump has the tombstones' checkpoint
$target->safe_psql('postgres', 'CREATE DATABASE restored');
my $dump = PostgreSQL::Test::Utils::tempdir_short() . '/dump.sql';
$target->command_ok([ 'pg_dump', '-f', $dump, '-d', $target->connstr('postgres') ], 'dumped');
$target->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $target->connstr('restored') ], 'restored');
$state =~ s/, t\.mark//;
is($target->safe_psql('restored', $state), $target->safe_psql('postgres', $state), 'with both checkpoints');

done_testing();
