# The option deletes prune: what the source no longer has goes, where it may; and keys of
# every kind, with values that settings and types show in more than one way.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();

# reconcile JOB [MODE [REPAIR]]: what it says, by kind
sub reconcile
{
	my ($job, $mode, $repair) = @_;

	$mode ||= 'hash';
	$repair = $repair ? 'true' : 'false';
	return as_loader($target, qq{SELECT difference || ':' || count(*) || coalesce('/' || string_agg(DISTINCT action, ','), '') FROM incload_reconcile('$job', '$mode', $repair) GROUP BY difference ORDER BY difference});
}

# prune: after a run, what the source no longer has goes, and no more than may go
sub prune_job
{
	my ($name, $source_rows, $options, $filter) = @_;

	$source->safe_psql('postgres', qq{CREATE TABLE $name (id int PRIMARY KEY, region text NOT NULL, v text, updated_at timestamptz NOT NULL DEFAULT now());
		INSERT INTO $name (id, region) SELECT i, CASE WHEN i % 2 = 0 THEN 'eu' ELSE 'us' END FROM generate_series(1, $source_rows) i});
	foreign_table($target, $name);
	as_loader($target, qq{SELECT incload_create_job('$name', 'src.$name', 'dw.$name', 'upsert', 'updated_at', '{id}', options => '{"deletes": "prune"$options}');
		SELECT incload_run('$name')});
	return;
}

prune_job('pruned', 1000, '');
$source->safe_psql('postgres', q{DELETE FROM pruned WHERE id % 10 = 3; INSERT INTO pruned (id, region) VALUES (5000, 'eu')});
is(as_loader($target, q{SELECT rows_read, rows_inserted, rows_deleted, rows_pruned FROM incload_run('pruned')}), '1|1|0|100', 'keys that are gone are pruned');
is_deeply([ differences($source, $target, 'pruned', 'dw.pruned') ], ['0|0'], 'and nothing else');
is(as_loader($target, q{SELECT rows_read, rows_pruned FROM incload_run('pruned')}), '0|0', 'once');
$source->safe_psql('postgres', q{DELETE FROM pruned WHERE id = 7; INSERT INTO pruned (id, region) VALUES (7, 'us')});
is(as_loader($target, q{SELECT rows_read, rows_updated, rows_pruned FROM incload_run('pruned')}), '1|1|0', 'a key that came back is updated');
as_loader($target, q{CALL incload_run_in_batches('pruned')});
$source->safe_psql('postgres', q{DELETE FROM pruned WHERE id = 8});
as_loader($target, q{CALL incload_run_in_batches('pruned')});
is(as_loader($target, q{SELECT rows_pruned FROM incload.run WHERE job = 'pruned' ORDER BY run_id DESC LIMIT 1}), '1', 'in batches, too');

# over the fraction, an empty source: refused, and the target is whole
$source->safe_psql('postgres', q{DELETE FROM pruned WHERE id % 4 = 2});
fails_with($target, 'loader', q{SELECT incload_run('pruned')}, '55000', qr/job "pruned" would delete more rows of target dw.pruned than the option "max_delete_fraction" allows.*DETAIL:  More than 180 rows.*HINT:  .*max_delete_fraction/s, 'more than a fifth is refused');
is(as_loader($target, q{SELECT count(*) FROM dw.pruned}), '900', 'with everything as it was');
is(as_loader($target, q{SELECT severity, code FROM incload.event WHERE job = 'pruned' AND code = 'prune_refused'}), 'page|prune_refused', 'and somebody is told');
$source->safe_psql('postgres', q{TRUNCATE pruned});
fails_with($target, 'loader', q{SELECT incload_run('pruned')}, '55000', qr/.*(max_delete_fraction|backwards|behind)/s, 'an empty source is refused');
is(as_loader($target, q{SELECT count(*) FROM dw.pruned}), '900', 'and empties nothing');
as_loader($target, q{SELECT incload_alter_job('pruned', options => '{"max_delete_fraction": 1}'); SELECT incload_accept_source('pruned')});
is(as_loader($target, q{SELECT rows_pruned FROM incload_run('pruned')}), '900', 'but where that was allowed');

# an unreachable source, out of scope
prune_job('scoped', 100, q{, "filter": "region = ''eu''"});
as_loader($target, q{INSERT INTO dw.scoped (id, region, v, updated_at) SELECT i, 'us', 'of another job', now() FROM generate_series(1001, 1100) i});
is(as_loader($target, q{SELECT rows_pruned FROM incload_run('scoped')}), '0', 'rows that do not match the filter are not touched');
is(as_loader($target, q{SELECT count(*) FROM incload_reconcile('scoped')}), '0', 'and are no difference');
$source->safe_psql('postgres', q{DELETE FROM scoped WHERE id <= 10});
is(as_loader($target, q{SELECT rows_pruned FROM incload_run('scoped')}), '5', 'those that do are');
is(as_loader($target, q{SELECT count(*), count(*) FILTER (WHERE v IS NOT NULL) FROM dw.scoped}), '145|100', 'and no other');
$source->stop('immediate');
fails_with($target, 'loader', q{SELECT incload_run('scoped')}, '08001', qr/source/, 'an unreachable source is an error');
is(as_loader($target, q{SELECT count(*) FROM dw.scoped}), '145', 'and deletes nothing');
$source->start;
fails_with($target, 'loader', q{SELECT incload_create_job('unscoped', 'src.scoped', 'dw.unscoped', 'upsert', 'updated_at', '{id}', options => '{"deletes": "prune", "exclude": ["region"], "filter": "region = ''eu''"}')}, '0A000', qr/a prune cannot tell which rows of target .* job "unscoped" is about.*HINT:  Load the columns/s, 'a filter that the target cannot tell of is refused');

# a full refresh of an empty source, by each way that there is
$source->safe_psql('postgres', q{CREATE TABLE whole (id int PRIMARY KEY, v text); INSERT INTO whole SELECT i, 'v' FROM generate_series(1, 500) i});
foreign_table($target, 'whole');
foreach my $mode (qw(merge truncate swap))
{
	as_loader($target, qq{SELECT incload_create_job('whole_$mode', 'src.whole', 'dw.whole_$mode', 'full', key => '{id}', options => '{"full_refresh_mode": "$mode"}'); SELECT incload_run('whole_$mode')});
}
as_loader($target, q{SELECT incload_create_job('whole_some', 'src.whole', 'dw.whole_some', 'full', key => '{id}', options => '{"max_delete_fraction": 0.1}'); SELECT incload_run('whole_some')});
$source->safe_psql('postgres', q{DELETE FROM whole WHERE id <= 100});
is(as_loader($target, q{SELECT rows_pruned FROM incload_run('whole_merge')}), '100', 'a refresh follows a source that shrinks');
fails_with($target, 'loader', q{SELECT incload_run('whole_some')}, '55000', qr/max_delete_fraction/, 'but where the option says otherwise');
$source->safe_psql('postgres', q{DELETE FROM whole});
foreach my $mode (qw(merge truncate swap))
{
	fails_with($target, 'loader', qq{SELECT incload_run('whole_$mode')}, '55000', qr/job "whole_$mode" would delete more rows.*HINT:  See that the source/s, "$mode: a source without a row is refused");
}
fails_with($target, 'loader', q{SELECT incload_refresh('scoped')}, '55000', qr/max_delete/, 'so it is by incload_refresh') if $source->safe_psql('postgres', q{DELETE FROM scoped RETURNING 1}) ne '';
is(as_loader($target, q{SELECT (SELECT count(*) FROM dw.whole_merge), (SELECT count(*) FROM dw.whole_truncate), (SELECT count(*) FROM dw.whole_swap), (SELECT count(*) FROM dw.whole_some)}), '400|500|500|500', 'every target is whole');
as_loader($target, q{SELECT incload_alter_job('whole_swap', options => '{"max_delete_fraction": 1}')});
is(as_loader($target, q{SELECT rows_pruned FROM incload_run('whole_swap')}), '500', 'and is emptied where that is allowed');

# other keys: several columns, text, numeric; other types on each side; a partitioned target
$source->safe_psql('postgres', q{
	CREATE TABLE keyed (tenant int, code text, n numeric, f real, d timestamp, ts timestamptz, j json, b bytea, arr int[], updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (tenant, code));
	INSERT INTO keyed SELECT i % 7, 'Ä' || i, i / 3.0, i / 3.0, '2024-01-01'::timestamp + i * interval '1 s', '2024-01-01Z'::timestamptz + i * interval '1.001 s', '{"a" : 1}', decode(md5(i::text), 'hex'), ARRAY[i, NULL]
	FROM generate_series(1, 20000) i});
foreign_table($target, 'keyed');
as_loader($target, q{
	CREATE TABLE dw.keyed (code varchar(40), tenant bigint, n numeric(20,4), f double precision, d timestamp(0), ts timestamptz, j json, b bytea, arr int[], updated_at timestamptz, PRIMARY KEY (tenant, code)) PARTITION BY LIST (tenant);
	CREATE TABLE dw.keyed_1 PARTITION OF dw.keyed FOR VALUES IN (0, 1, 2); CREATE TABLE dw.keyed_2 PARTITION OF dw.keyed DEFAULT;
	SELECT incload_create_job('keyed', 'src.keyed', 'dw.keyed', 'upsert', 'updated_at', options => '{"deletes": "prune"}');
	SELECT incload_run('keyed');
	SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'German'; SET extra_float_digits = 0; SET bytea_output = 'escape';
	SELECT count(*) FROM incload_reconcile('keyed')});
is(as_loader($target, q{SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'German'; SET extra_float_digits = -3; SET bytea_output = 'escape';
	SELECT count(*) FROM incload_reconcile('keyed')}), '0', 'the checksum is the same under any setting, and of what is loaded');
is(as_loader($target, q{SELECT max(rows_read) FROM incload.run WHERE job = 'keyed' AND kind = 'reconcile'}), '0', 'no row is read for that');
as_loader($target, q{UPDATE dw.keyed SET n = n + 0.0001 WHERE code = 'Ä77'; UPDATE dw.keyed SET arr = NULL WHERE code = 'Ä78'; DELETE FROM dw.keyed WHERE code = 'Ä79'; INSERT INTO dw.keyed (tenant, code) VALUES (99, 'new')});
is(as_loader($target, q{SELECT string_agg(concat_ws(' ', difference, key->>'tenant', key->>'code', columns), ', ' ORDER BY difference, key->>'code') FROM incload_reconcile('keyed')}),
	'changed 0 Ä77 {n}, changed 1 Ä78 {arr}, extra 99 new, missing 2 Ä79', 'keys of several columns');
cmp_ok(as_loader($target, q{SELECT max(rows_read) FROM incload.run WHERE job = 'keyed' AND kind = 'reconcile'}), '<', 100, 'of which few are read');
$source->safe_psql('postgres', q{DELETE FROM keyed WHERE code = 'Ä80'});
is(as_loader($target, q{SELECT rows_pruned FROM incload_run('keyed')}), '2', 'and pruned');
is(reconcile('keyed', 'hash', 1), "changed:2/updated\nmissing:1/inserted", 'and mended');
is(reconcile('keyed'), '', 'all of it');

# a target that nothing keeps from having a key twice, and one that has nothing but one key
$source->safe_psql('postgres', q{CREATE TABLE doubled (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now()); INSERT INTO doubled SELECT i, 'v' FROM generate_series(1, 1000) i});
foreign_table($target, 'doubled');
as_loader($target, q{CREATE TABLE dw.doubled (id int, v text, updated_at timestamptz);
	SELECT incload_create_job('doubled', 'src.doubled', 'dw.doubled', 'upsert', 'updated_at', '{id}');
	SELECT incload_run('doubled'); INSERT INTO dw.doubled SELECT * FROM dw.doubled WHERE id IN (5, 500); INSERT INTO dw.doubled SELECT * FROM dw.doubled WHERE id = 500});
is(as_loader($target, q{SELECT string_agg(concat_ws(' ', difference, key->>'id', target_rows, action), ', ' ORDER BY key->>'id') FROM incload_reconcile('doubled')}), 'duplicate 5 2 none, duplicate 500 4 none', 'keys that are there twice');
is(as_loader($target, q{SELECT rows_duplicate, rows_extra FROM incload.reconcile WHERE job = 'doubled'}), '2|0', 'and on record');
as_loader($target, q{TRUNCATE dw.doubled; INSERT INTO dw.doubled SELECT 77, 'x', now() FROM generate_series(1, 3000)});
is(as_loader($target, q{SELECT difference, count(*) FROM incload_reconcile('doubled') GROUP BY 1 ORDER BY 1}), "changed|3000\nduplicate|1\nmissing|999", 'a range that cannot be cut is looked at as it is');

$source->safe_psql('postgres', q{CREATE TABLE log (id bigint GENERATED ALWAYS AS IDENTITY, v text)});
foreign_table($target, 'log');
fails_with($target, 'loader', q{SELECT incload_create_job('log', 'src.log', 'dw.log', 'append', 'id', '{}', options => '{"deletes": "prune"}')}, '22023', qr/option "deletes" cannot be "prune" with strategy append/, 'prune wants upsert');
as_loader($target, q{SELECT incload_create_job('log', 'src.log', 'dw.log', 'append', 'id', '{}')});
fails_with($target, 'loader', q{SELECT * FROM incload_reconcile('log')}, '55000', qr/job "log" cannot be reconciled.*HINT:  SELECT incload_refresh\('log'\)/s, 'without a key');

done_testing();
