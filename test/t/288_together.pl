# What deletes, rejects and reconcile do to one another, and what a repair needs of the bracket
# that a run works in.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => "timezone = 'Europe/Berlin'");

# a row without a key is put aside, and a prune that comes upon it goes on
foreach my $type (qw(int text))
{
	$source->safe_psql('postgres', qq{CREATE TABLE nokey_$type (id $type, updated_at timestamptz NOT NULL DEFAULT now(), v text);
		INSERT INTO nokey_$type (id, v) SELECT i, 'v' FROM generate_series(1, 6) i; INSERT INTO nokey_$type (v) VALUES ('nokey')});
	foreign_table($target, "nokey_$type");
	foreach my $reader (qw(copy relation))
	{
		my $job = "nokey_${type}_$reader";

		is(as_loader($target, qq{CREATE TABLE dw.$job (id $type PRIMARY KEY, updated_at timestamptz, v text);
			SELECT FROM incload_create_job('$job', 'src.nokey_$type', 'dw.$job', 'upsert', 'updated_at', '{id}', options => '{"deletes": "prune", "reject_limit": 1, "reader": "$reader"}');
			SELECT rows_inserted, rows_rejected FROM incload_run('$job')}) =~ s/^\n//r, '6|1', "$reader, $type: a row without a key is put aside");
		as_loader($target, "INSERT INTO dw.$job VALUES ('99')");
		is(as_loader($target, "SELECT rows_pruned FROM incload_run('$job')"), '1', 'and does not stop a prune');
		is(as_loader($target, "SELECT count(*) FROM dw.$job"), '6', 'that takes what is gone');
	}
}

# nor does a row without a watermark, whose key the source has
$source->safe_psql('postgres', q{CREATE TABLE nomark (id int PRIMARY KEY, updated_at timestamptz, v text); INSERT INTO nomark SELECT i, now(), 'v' FROM generate_series(1, 6) i});
foreign_table($target, 'nomark');
as_loader($target, q{CREATE TABLE dw.nomark (id int PRIMARY KEY, v text);
	SELECT incload_create_job('nomark', 'src.nomark', 'dw.nomark', 'upsert', 'updated_at', '{id}', options => '{"deletes": "prune", "max_delete_fraction": 0.5, "reject_limit": 10, "null_watermark": "error", "exclude": ["updated_at"]}');
	SELECT incload_run('nomark')});
$source->safe_psql('postgres', q{UPDATE nomark SET updated_at = NULL WHERE id = 3; DELETE FROM nomark WHERE id = 4});
is(as_loader($target, q{SELECT rows_pruned, rows_rejected FROM incload_run('nomark')}), '1|1', 'a row that has lost its watermark is put aside');
is(as_loader($target, q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM dw.nomark}), '1 2 3 5 6', 'and its older version is not pruned');

# nor does a key that is out of range here
$source->safe_psql('postgres', q{CREATE TABLE wide (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now()); INSERT INTO wide (id) VALUES (1), (2), (3), (4), (5), (3000000000)});
foreign_table($target, 'wide');
as_loader($target, q{CREATE TABLE dw.wide (id int PRIMARY KEY, updated_at timestamptz);
	SELECT incload_create_job('wide', 'src.wide', 'dw.wide', 'upsert', 'updated_at', '{id}', options => '{"deletes": "prune", "reject_limit": 1}');
	SELECT incload_run('wide')});
$source->safe_psql('postgres', q{DELETE FROM wide WHERE id = 4});
is(as_loader($target, q{SELECT rows_pruned, rows_rejected FROM incload_run('wide')}), '1|0', 'a key that is out of range is put aside once');
is(as_loader($target, q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM dw.wide}), '1 2 3 5', 'and does not stop a prune');

# a repair puts aside what the target refuses, as a run does, and what it mends is no longer put aside
$source->safe_psql('postgres', q{CREATE TABLE mended (id timestamptz PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now() - interval '1 day', n int);
	INSERT INTO mended (id, n) SELECT '2024-01-01Z'::timestamptz + i * interval '1 h', i FROM generate_series(1, 20) i; UPDATE mended SET n = -n WHERE n IN (5, 6)});
foreign_table($target, 'mended');
as_loader($target, q{CREATE TABLE dw.mended (id timestamptz PRIMARY KEY, updated_at timestamptz, n int CHECK (n > 0));
	SELECT incload_create_job('mended', 'src.mended', 'dw.mended', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 4}');
	SELECT incload_run('mended'); DELETE FROM dw.mended WHERE n = 7});
$source->safe_psql('postgres', q{UPDATE mended SET n = 6 WHERE n = -6});
as_loader($target, q{SET TimeZone = 'Asia/Tokyo'; SELECT count(*) FROM incload_reconcile('mended', repair => true)});
is(as_loader($target, q{SELECT string_agg(n::text, ' ' ORDER BY n) FROM dw.mended WHERE n BETWEEN 4 AND 8}), '4 6 7 8', 'a repair goes on past a row that the target refuses');
is(last_run($target, 'mended', 'kind, rows_inserted, rows_rejected, rows_read = rows_inserted + rows_unchanged + rows_rejected'), 'reconcile|2|1|t', 'which is counted');
is(as_loader($target, q{SELECT "row"->>'n', run_id = (SELECT max(run_id) FROM incload.run WHERE job = 'mended') FROM incload.reject WHERE job = 'mended'}), '-5|t', 'and put aside once, while what was mended is no more, in whatever zone');
$source->safe_psql('postgres', q{UPDATE mended SET n = 5, updated_at = clock_timestamp() WHERE n = -5});
as_loader($target, q{SET TimeZone = 'America/New_York'; SELECT incload_run('mended')});
is(as_loader($target, q{SELECT count(*) FROM incload.reject WHERE job = 'mended'}), '0', 'nor what a run has brought');

# the bracket: constraints that are deferred, for a caller who is not the owner; the zone of the source
$source->safe_psql('postgres', q{CREATE TABLE tree (id int PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now() - interval '1 day', parent int); INSERT INTO tree (id, parent) SELECT i, 1 FROM generate_series(1, 9) i;
	CREATE TABLE zoned (id int PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now() - interval '1 day', at timestamp); INSERT INTO zoned (id, at) VALUES (1, '2024-01-01 12:00')});
foreign_table($target, 'tree', 'zoned');
as_loader($target, q{CREATE TABLE dw.tree (id int PRIMARY KEY, updated_at timestamptz, parent int REFERENCES dw.tree DEFERRABLE INITIALLY DEFERRED);
	SELECT incload_create_job('tree', 'src.tree', 'dw.tree', 'upsert', 'updated_at', '{id}');
	SELECT incload_run('tree'); DELETE FROM dw.tree WHERE id = 7;
	CREATE TABLE dw.zoned (id int PRIMARY KEY, updated_at timestamptz, at timestamptz);
	SELECT incload_create_job('zoned', 'src.zoned', 'dw.zoned', 'upsert', 'updated_at', '{id}', options => '{"reader": "relation", "source_timezone": "America/New_York", "transforms": {"at": "at::timestamptz"}}');
	SELECT incload_run('zoned')});
is($target->safe_psql('postgres', q{SELECT difference, action FROM incload_reconcile('tree', repair => true)}), 'missing|inserted', 'a member or superuser mends a target with deferred constraints');
is(as_loader($target, q{SELECT count(*) FROM incload_reconcile('zoned')}), '0', 'a time without zone is compared in the zone in which it is read');

# a key whose text an array has to escape
$source->safe_psql('postgres', q{CREATE TABLE chars (id "char" PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now(), v int); INSERT INTO chars (id, v) SELECT chr(i)::"char", i FROM generate_series(37, 126) i});
foreign_table($target, 'chars');
as_loader($target, q{SELECT incload_create_job('chars', 'src.chars', 'dw.chars', 'upsert', 'updated_at', '{id}'); SELECT incload_run('chars')});
is(as_loader($target, q{SELECT count(*) FROM incload_reconcile('chars')}), '0', 'keys that an array has to escape');

# a comparison that waits for a run has nothing that the run will want
$source->safe_psql('postgres', q{CREATE TABLE emptied (id int PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now(), v int); INSERT INTO emptied (id, v) SELECT i, i FROM generate_series(1, 100) i});
foreign_table($target, 'emptied');
as_loader($target, q{SELECT incload_create_job('emptied', 'src.emptied', 'dw.emptied', 'upsert', 'updated_at', '{id}', options => '{"full_refresh_mode": "truncate"}'); SELECT incload_run('emptied');
	SELECT incload_alter_job('emptied', options => '{"pre_sql": "SELECT pg_advisory_xact_lock(7)"}')});
foreach my $mode (qw(rows count hash))
{
	my $gate = session($target, 'loader');

	$gate->query_safe('SELECT pg_advisory_lock(7)');
	my $refresh = start_sql($target, 'loader', q{SELECT rows_inserted FROM incload_refresh('emptied')});
	$target->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted}) or die 'no refresh';
	my $compare = start_sql($target, 'loader', qq{SELECT count(*) FROM incload_reconcile('emptied', '$mode')});
	$target->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 73 AND NOT granted}) or die 'no comparison';
	$gate->query_safe('SELECT pg_advisory_unlock(7)');
	my @ended = ($refresh->finish, $compare->finish);
	is($ended[0], 0, "$mode: the refresh that was under way ends") or diag($ended[2]);
	is($ended[4], 0, 'and so does what has waited for it') or diag($ended[6]);
	$gate->quit;
}

done_testing();
