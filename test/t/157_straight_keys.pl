# Which keys are above all others, for types with an order of their own, in plain and in partitioned targets:
# whatever goes straight and whatever is merged, each key is there once, and all indexes have it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();
$target->safe_psql('postgres', 'CREATE EXTENSION pg_walinspect; CREATE EXTENSION amcheck');
$_->safe_psql('postgres', 'CREATE DOMAIN amount AS numeric CHECK (VALUE >= 0)') foreach $source, $target;

# a type of the key's first column, and its value in row i, which goes up and down; the second one is a number
my @keys = (
	[ 'float8', q{(ARRAY['NaN', '-0', '0', 'Infinity', '-Infinity', '1e300', '3.5'])[1 + i % 7]::float8} ],
	[ 'numeric', q{(ARRAY['1.0', '1.00', '2', 'NaN', '-5.5', '100.000', '1e20'])[1 + i % 7]::numeric + i % 3} ],
	[ 'amount', '(i % 90) / 4.0' ],
	[ 'char(6)', q{(ARRAY['a', 'b ', ' c', 'dd'])[1 + i % 4]} ],
	[ 'text COLLATE "und-x-icu"', q{(ARRAY['a', 'A', 'ä', 'Z', 'z', '_', ' '])[1 + i % 7]} ],
	[ 'timestamptz', q{CASE i % 9 WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' ELSE timestamptz '2026-01-01' + i % 40 * interval '1 day' END} ],
	[ 'int4range', 'int4range(i % 20, 20 + i % 7)' ],
	[ 'int[]', 'ARRAY[i % 20, i % 3]' ],
	[ 'interval', q{(ARRAY['1 mon', '30 days', '29 days', '720:00:01'])[1 + i % 4]::interval} ],
);
# unlike the job's key; where the first column decides, few are above all
my @orders = ('b, a', 'a, b', 'b DESC, a DESC', 'a DESC, b DESC');

for my $k (0 .. $#keys)
{
	my $type = $keys[$k][0];
	my $order = $orders[ $k % 4 ];

	$source->safe_psql('postgres', "CREATE TABLE k$k (a $type, b bigint, v int, updated_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (a, b))");
	foreign_table($target, "k$k");
	as_loader($target, qq{
		CREATE TABLE dw.k$k (gap int, v int, b bigint, updated_at timestamptz, a $type);
		ALTER TABLE dw.k$k DROP gap;
		CREATE UNIQUE INDEX ON dw.k$k ($order) INCLUDE (v);
		CREATE TABLE dw.p$k (b bigint, v int, a $type, updated_at timestamptz) PARTITION BY RANGE (b);
		CREATE UNIQUE INDEX ON dw.p$k ($order);
		CREATE TABLE dw.p${k}_1 (v int, gap int, a $type, updated_at timestamptz, b bigint);
		ALTER TABLE dw.p${k}_1 DROP gap;
		ALTER TABLE dw.p$k ATTACH PARTITION dw.p${k}_1 FOR VALUES FROM (0) TO (2000);
		CREATE TABLE dw.p${k}_2 PARTITION OF dw.p$k DEFAULT PARTITION BY HASH (b);
		CREATE TABLE dw.p${k}_2a PARTITION OF dw.p${k}_2 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE dw.p${k}_2b PARTITION OF dw.p${k}_2 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		SELECT incload_create_job(t || $k, 'src.k$k', 'dw.' || t || $k, 'upsert', 'updated_at', '{a,b}', options => '{"batch_rows": 1300}') FROM unnest('{k,p}'::text[]) t;
		-- keys with a NULL are no rows of the source's
		INSERT INTO dw.k$k (b) VALUES (99999);
		INSERT INTO dw.p$k (v) VALUES (0);
	});
}

my %straight;
for my $round (0 .. 2)
{
	for my $k (0 .. $#keys)
	{
		# rows that were there, with another image of the same key; new ones above and between
		$source->safe_psql('postgres', qq{
			UPDATE k$k SET v = v + 1, updated_at = clock_timestamp() WHERE b % 10 = 1;
			INSERT INTO k$k (a, b, v) SELECT DISTINCT ON (1, 2) $keys[$k][1], (i / 7) + $round * 300 + (i % 2) * 1800, i FROM generate_series(0, 4999) i
				ON CONFLICT (a, b) DO UPDATE SET v = EXCLUDED.v, updated_at = clock_timestamp()});
	}
	for my $job (map { ("k$_", "p$_") } 0 .. $#keys)
	{
		my $from = $target->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');

		as_loader($target, $round == 1 ? "CALL incload_run_in_batches('$job')" : "SELECT incload_run('$job')");
		$straight{$job} += $target->safe_psql('postgres', qq{SELECT coalesce(sum(count), 0) FROM pg_get_wal_stats('$from', pg_current_wal_flush_lsn(), true)
			WHERE "resource_manager/record_type" LIKE '%MULTI_INSERT%'});
	}
}
for my $k (0 .. $#keys)
{
	my $what = "$keys[$k][0] in the order $orders[ $k % 4 ]";

	is_deeply([ differences($source, $target, "k$k", map { "(SELECT a, b, v, updated_at FROM dw.$_ WHERE a IS NOT NULL)" } "k$k", "p$k") ],
		[ ('0|0') x 2 ], "$what: all rows are there, once");
	ok($straight{"k$k"} > 0, "$what: some have gone straight");
	ok($straight{"p$k"} > 0, "$what: into partitions, too");
	is($target->safe_psql('postgres', qq{SELECT count(bt_index_check(indexrelid, true)) FROM pg_index
		WHERE indrelid IN (SELECT relid FROM pg_partition_tree('dw.p$k') WHERE isleaf UNION ALL SELECT 'dw.k$k'::regclass)}), '4', "$what: the indexes have them");
}
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.run WHERE status <> 'succeeded'
	OR rows_read <> rows_inserted + rows_updated + rows_unchanged}), '0', 'all runs add up');

# several keys of the source that become one here
$source->safe_psql('postgres', q{CREATE TABLE narrowed (a timestamptz, b int, v int, updated_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (a, b));
	INSERT INTO narrowed SELECT timestamptz '2026-01-01' + i * interval '0.4 s', 1, i FROM generate_series(1, 3000) i});
foreign_table($target, 'narrowed');
as_loader($target, q{CREATE TABLE dw.narrowed (a timestamptz(0), b int, v int, updated_at timestamptz, PRIMARY KEY (a, b)) PARTITION BY RANGE (a);
	CREATE TABLE dw.narrowed_1 PARTITION OF dw.narrowed DEFAULT;
	SELECT incload_create_job('narrowed', 'src.narrowed', 'dw.narrowed', 'upsert', 'updated_at', '{a,b}')});
like(as_loader($target, q{SELECT string_agg(concat_ws(' ', what, plan), E'\n') FROM incload_explain('narrowed')}),
	qr/^All rows are staged: nothing tells that the source has each key once$/m, 'rounded keys are not certain to be new');
is(as_loader($target, q{SELECT rows_read, rows_inserted, rows_superseded FROM incload_run('narrowed')}), '3000|1201|1799', 'the last of each is loaded');

# an error that is caught leaves nothing behind, and the session goes on
as_loader($target, q{ALTER TABLE dw.p0_2b ADD CONSTRAINT few CHECK (v <> -1)});
settle($source, 'k0');
$source->safe_psql('postgres', q{INSERT INTO k0 SELECT 1, 10000 + i, CASE WHEN i > 2990 THEN -1 ELSE i END FROM generate_series(1, 3000) i});
is(as_loader($target, q{
	DO $$
	BEGIN
		FOR i IN 1 .. 3 LOOP
			BEGIN
				PERFORM incload_run('p0');
				RAISE 'no error';
			EXCEPTION WHEN check_violation THEN NULL;
			END;
		END LOOP;
	END $$;
	SELECT count(*) FROM dw.p0 WHERE b > 10000;
	ALTER TABLE dw.p0_2b DROP CONSTRAINT few;
	SELECT rows_inserted FROM incload_run('p0');
	SELECT count(*) FROM dw.p0 WHERE b > 10000;
}), "0\n3000\n3000", 'caught three times, and then it goes');
is(differences($source, $target, 'k0', '(SELECT a, b, v, updated_at FROM dw.p0 WHERE a IS NOT NULL)'), '0|0', 'all rows are there');

done_testing();
