# Keys that are equal and look different, rows that a run has put aside, marks that are still
# to come, and ends of ranges that mean something in an array: nothing is lost or told for it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();

# differences of a job, by kind
sub kinds
{
	my ($job, $mode, $repair) = @_;

	$mode ||= 'hash';
	$repair = $repair ? 'true' : 'false';
	return as_loader($target, qq{SELECT difference || ':' || count(*) FROM incload_reconcile('$job', '$mode', $repair) GROUP BY difference ORDER BY difference});
}

# load NAME KEY OPTIONS: a job over the source's table of that name
sub load
{
	my ($name, $key, $options) = @_;

	foreign_table($target, $name);
	as_loader($target, qq{SELECT incload_create_job('$name', 'src.$name', 'dw.$name', 'upsert', 'updated_at', '{$key}', options => '$options'); SELECT incload_run('$name')});
	return;
}

# 50 and 50.00 are one key, and stand in ranges of their own by their hash, which are cut more and less finely
$source->safe_psql('postgres', q{
	CREATE TABLE scaled (id numeric PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT '2024-01-01Z');
	INSERT INTO scaled SELECT i, 'v' FROM generate_series(1, 5000) i});
load('scaled', 'id', '{"deletes": "prune"}');
$source->safe_psql('postgres', q{UPDATE scaled SET id = id::numeric(10,2) WHERE id % 50 = 0});
is(kinds('scaled'), 'changed:100', 'a key that looks different is not another one');
is(as_loader($target, q{SELECT rows_read, rows_pruned FROM incload_run('scaled')}), '0|0', 'and is not pruned');
is(as_loader($target, q{SELECT count(*) FROM dw.scaled}), '5000', 'every row is there');
is(kinds('scaled', 'hash', 1), 'changed:100', 'it is mended as what it is');
is(kinds('scaled'), '', 'and is as it is at the source then');

# a key that the source pads and the target does not
$source->safe_psql('postgres', q{
	CREATE TABLE padded (id char(10) PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT '2024-01-01Z');
	INSERT INTO padded SELECT 'k' || i, 'v' FROM generate_series(1, 5000) i});
as_loader($target, q{CREATE TABLE dw.padded (id text PRIMARY KEY, v text, updated_at timestamptz)});
load('padded', 'id', '{"deletes": "prune", "max_delete_fraction": 1}');
is(as_loader($target, q{SELECT rows_pruned FROM incload_run('padded'); SELECT count(*) FROM dw.padded}), "0\n5000", 'a key of another type is not pruned');
is(kinds('padded'), '', 'nor different');

# a row that was put aside has no key that could be read; one without watermark has
$source->safe_psql('postgres', q{
	CREATE TABLE nullable (id bigint, v text, updated_at timestamptz DEFAULT '2024-01-01Z');
	INSERT INTO nullable SELECT i, 'v' FROM generate_series(1, 1000) i; INSERT INTO nullable VALUES (NULL, 'v')});
as_loader($target, q{CREATE TABLE dw.nullable (id int PRIMARY KEY, v text, updated_at timestamptz)});
load('nullable', 'id', '{"deletes": "prune", "reject_limit": 10, "null_watermark": "error"}');
$source->safe_psql('postgres', q{DELETE FROM nullable WHERE id = 17; UPDATE nullable SET updated_at = NULL WHERE id = 18});
is(as_loader($target, q{SELECT rows_pruned FROM incload_run('nullable')}), '1', 'a prune beside rows that cannot be taken');
is(as_loader($target, q{SELECT count(*), count(*) FILTER (WHERE id IN (17, 18)) FROM dw.nullable}), '999|1', 'takes what is gone alone');

# a row that is marked as deleted since the last run may be here, and need not
$source->safe_psql('postgres', q{
	CREATE TABLE marked (id int PRIMARY KEY, gone boolean NOT NULL DEFAULT false, updated_at timestamptz NOT NULL DEFAULT '2024-01-01Z');
	INSERT INTO marked SELECT i FROM generate_series(1, 1000) i});
load('marked', 'id', '{"deletes": "soft", "deleted_column": "gone"}');
$source->safe_psql('postgres', q{UPDATE marked SET gone = true, updated_at = now() WHERE id = 5});
is(kinds('marked', 'count'), '', 'a mark that is to be loaded is no difference in counts');
as_loader($target, q{SELECT incload_run('marked')});
is(kinds('marked', 'count'), '', 'nor one that is');
as_loader($target, q{INSERT INTO dw.marked VALUES (5, false, '2024-01-01Z'), (-5, false, '2024-01-01Z')});
is(kinds('marked'), 'extra:2', 'what is here for all that is one');

# ends of ranges that an array's text has to quote
$source->safe_psql('postgres', q{
	CREATE TABLE lettered (id "char" PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT '2024-01-01Z');
	INSERT INTO lettered SELECT chr(i)::"char", 'v' FROM generate_series(27, 126) i});
load('lettered', 'id', '{}');
is(kinds('lettered'), '', 'a quote may be the end of a range');
$source->safe_psql('postgres', q{DELETE FROM lettered WHERE id < chr(37)::"char"});
as_loader($target, q{DELETE FROM dw.lettered WHERE id < '%'; UPDATE dw.lettered SET v = 'x' WHERE id = E'\\\\'});
is(kinds('lettered'), 'changed:1', 'so may a backslash');

# what a trigger keeps from being mended is told as kept
$source->safe_psql('postgres', q{CREATE TABLE kept (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT '2024-01-01Z'); INSERT INTO kept SELECT i, 'v' FROM generate_series(1, 100) i});
load('kept', 'id', '{"deletes": "prune"}');
as_loader($target, q{UPDATE dw.kept SET v = 'x' WHERE id IN (1, 2, 3); DELETE FROM dw.kept WHERE id IN (4, 5); INSERT INTO dw.kept VALUES (500, 'x', now()), (501, 'x', now());
	CREATE FUNCTION dw.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF TG_OP = 'DELETE' THEN IF OLD.id = 500 THEN RETURN NULL; END IF; RETURN OLD; END IF;
		IF NEW.id IN (1, 4) THEN RETURN NULL; END IF; RETURN NEW; END $$;
	CREATE TRIGGER keep BEFORE INSERT OR UPDATE OR DELETE ON dw.kept FOR EACH ROW EXECUTE FUNCTION dw.keep()});
is(as_loader($target, q{SELECT string_agg(concat_ws(' ', difference, key->>'id', action), ', ' ORDER BY (key->>'id')::int) FROM incload_reconcile('kept', repair => true)}),
	'changed 1 kept, changed 2 updated, changed 3 updated, missing 4 kept, missing 5 inserted, extra 500 kept, extra 501 deleted', 'what is told is what was done');
is(as_loader($target, q{SELECT rows_read, rows_inserted, rows_updated, rows_suppressed, rows_pruned FROM incload.run WHERE job = 'kept' AND kind = 'reconcile'}) =~ /^\d+\|1\|2\|2\|1$/ ? 1 : 0, 1, 'and counted');

# rows that are put aside: unreadable ones are not compared, refused ones stay
$source->safe_psql('postgres', q{CREATE TABLE aside (id bigint, v text, n bigint, updated_at timestamptz NOT NULL DEFAULT '2024-01-01Z');
	INSERT INTO aside SELECT i, 'v', i FROM generate_series(1, 1000) i; INSERT INTO aside VALUES (NULL, 'no key', 1), (5000000000, 'v', 1), (2000, 'v', 5000000000), (2001, 'refused', 1), (2002, 'too long a text', 1)});
as_loader($target, q{CREATE TABLE dw.aside (id int PRIMARY KEY, v varchar(8) CHECK (v <> 'refused'), n int, updated_at timestamptz)});
load('aside', 'id', '{"reject_limit": 10, "deletes": "prune"}');
is(as_loader($target, q{SELECT count(*) FROM incload.reject WHERE job = 'aside'}), '5', 'five rows are put aside');
is(as_loader($target, q{SELECT rows_pruned FROM incload_run('aside')}), '0', 'a prune goes past them');
is(kinds('aside'), 'missing:1', 'so does a comparison, but for what the target refuses');
as_loader($target, q{DELETE FROM dw.aside WHERE id IN (7, 8)});
is(as_loader($target, q{SELECT string_agg(concat_ws(' ', difference, key->>'id', action), ', ' ORDER BY (key->>'id')::int) FROM incload_reconcile('aside', repair => true)}),
	'missing 7 inserted, missing 8 inserted, missing 2001 kept', 'a repair mends the others');
is(as_loader($target, q{SELECT count(*) FROM incload.reject WHERE job = 'aside'}), '5', 'and no row is put aside twice');

# a run that locks readers out waits, and nobody is a victim
$source->safe_psql('postgres', q{CREATE TABLE waits (id int PRIMARY KEY, v text); INSERT INTO waits SELECT i, 'v' FROM generate_series(1, 100) i});
foreign_table($target, 'waits');
as_loader($target, q{SELECT incload_create_job('waits', 'src.waits', 'dw.waits', 'full', key => '{id}', options => '{"full_refresh_mode": "truncate"}'); SELECT incload_run('waits')});
my $lock = $source->background_psql('postgres');
$lock->query_safe('BEGIN; LOCK TABLE waits IN ACCESS EXCLUSIVE MODE');
my $compares = start_sql($target, 'loader', q{SELECT count(*) FROM incload_reconcile('waits')});
wait_for(30, sub { $source->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE NOT granted}) > 0 });
fails_with($target, 'loader', q{SELECT incload_run('waits')}, '55P03', qr/already running/, 'a run sees that the job is busy');
$lock->query_safe('COMMIT');
$lock->quit;
my ($status, $said, $error) = $compares->finish;
is($said, "0\n", 'and the comparison comes to its end') or diag($error);

# a filter's texts mean what they mean at the source, whatever the caller's time zone
foreach my $mode (qw(soft tombstone))
{
	my $options = $mode eq 'soft' ? '"deletes": "soft", "deleted_column": "gone"' : '"deletes": "tombstone", "tombstone_source": "src.dated_gone"';

	$source->safe_psql('postgres', qq{
		DROP TABLE IF EXISTS dated, dated_gone;
		CREATE TABLE dated (id int PRIMARY KEY, created_at timestamptz, gone boolean DEFAULT false, updated_at timestamptz NOT NULL DEFAULT now());
		CREATE TABLE dated_gone (id int, deleted_at timestamptz NOT NULL DEFAULT now());
		INSERT INTO dated (id, created_at) SELECT i, '2024-01-01 00:00Z'::timestamptz + (i - 50) * interval '10 min' FROM generate_series(1, 100) i});
	as_loader($target, q{DROP FOREIGN TABLE IF EXISTS src.dated, src.dated_gone});
	foreign_table($target, 'dated', 'dated_gone');
	as_loader($target, qq{SELECT incload_create_job('dated_$mode', 'src.dated', 'dw.dated_$mode', 'upsert', 'updated_at', '{id}', options => '{$options, "filter": "created_at >= ''2024-01-01''"}');
		SELECT incload_run('dated_$mode'); INSERT INTO dw.dated_$mode (id, created_at) VALUES (45, '2023-12-31 23:10Z')});
	$source->safe_psql('postgres', $mode eq 'soft' ? q{UPDATE dated SET gone = true, updated_at = now() WHERE id BETWEEN 50 AND 55}
		: q{WITH d AS (DELETE FROM dated WHERE id BETWEEN 50 AND 55 RETURNING id) INSERT INTO dated_gone SELECT id FROM d});
	is(as_loader($target, qq{SET TimeZone = 'America/New_York'; SELECT rows_deleted FROM incload_run('dated_$mode')}), '6', "$mode: what is inside the filter there is deleted");
	$source->safe_psql('postgres', $mode eq 'soft' ? q{UPDATE dated SET gone = true, updated_at = now() WHERE id = 45}
		: q{INSERT INTO dated_gone VALUES (45); DELETE FROM dated WHERE id = 45});
	is(as_loader($target, qq{SET TimeZone = 'Asia/Kolkata'; SELECT rows_deleted FROM incload_run('dated_$mode'); SELECT count(*) FROM dw.dated_$mode WHERE id = 45}), "0\n1", "$mode: and what is outside is not");
}

done_testing();
