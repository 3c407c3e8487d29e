# Rows that are certain to be new go into a partitioned target as they are read, each into the partition where
# it belongs. All that an INSERT through the parent would do is done, and what a partition forbids is staged.
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
	CREATE TABLE log (v text, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO log SELECT chr(97 + i % 4) || i FROM generate_series(1, 3000) i;
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
foreign_table($target, 'items', 'log');
$target->safe_psql('postgres', 'CREATE EXTENSION pg_walinspect; CREATE EXTENSION amcheck');

# a default, a generated column, an identity, a check and an index more than the source has; partitions that
# have their columns in another order and had others before, one that is partitioned again, one for the rest
as_loader($target, q{
	CREATE TABLE dw.ranged (loaded_by text DEFAULT current_user, gap int, twice numeric GENERATED ALWAYS AS (n * 2) STORED, id bigint PRIMARY KEY,
		v text CONSTRAINT no_bad CHECK (v <> 'bad'), n numeric(8,2), updated_at timestamptz, serial bigint GENERATED ALWAYS AS IDENTITY) PARTITION BY RANGE (id);
	CREATE INDEX ranged_v ON dw.ranged (lower(v));
	ALTER TABLE dw.ranged DROP COLUMN gap;
	CREATE TABLE dw.ranged_1 (gone text, serial bigint NOT NULL, n numeric(8,2), gone_too int, updated_at timestamptz, v text CONSTRAINT no_bad CHECK (v <> 'bad'),
		id bigint NOT NULL, twice numeric GENERATED ALWAYS AS (n * 2) STORED, loaded_by text DEFAULT 'nobody');
	ALTER TABLE dw.ranged_1 DROP COLUMN gone, DROP COLUMN gone_too;
	ALTER TABLE dw.ranged ATTACH PARTITION dw.ranged_1 FOR VALUES FROM (MINVALUE) TO (2000);
	CREATE TABLE dw.ranged_2 (v text CONSTRAINT no_bad CHECK (v <> 'bad'), id bigint NOT NULL, gone text, loaded_by text, twice numeric GENERATED ALWAYS AS (n * 2) STORED, n numeric(8,2),
		updated_at timestamptz, serial bigint NOT NULL) PARTITION BY HASH (id);
	ALTER TABLE dw.ranged_2 DROP COLUMN gone;
	CREATE TABLE dw.ranged_2a PARTITION OF dw.ranged_2 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE dw.ranged_2b (id bigint NOT NULL, v text CONSTRAINT no_bad CHECK (v <> 'bad'), updated_at timestamptz, twice numeric GENERATED ALWAYS AS (n * 2) STORED, n numeric(8,2),
		loaded_by text, serial bigint NOT NULL);
	ALTER TABLE dw.ranged_2 ATTACH PARTITION dw.ranged_2b FOR VALUES WITH (MODULUS 2, REMAINDER 1);
	ALTER TABLE dw.ranged ATTACH PARTITION dw.ranged_2 FOR VALUES FROM (2000) TO (6000);
	CREATE TABLE dw.ranged_rest PARTITION OF dw.ranged DEFAULT;
	CREATE TABLE dw.hashed (id bigint PRIMARY KEY, v text, n numeric(8,2), updated_at timestamptz) PARTITION BY HASH (id);
	SELECT format('CREATE TABLE dw.hashed_%s PARTITION OF dw.hashed FOR VALUES WITH (MODULUS 100, REMAINDER %s)', i, i) FROM generate_series(0, 99) i \gexec
	-- a list of what a function of the owner's says
	CREATE FUNCTION dw.first(v text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
	BEGIN
		IF v = 'a666666' THEN RAISE EXCEPTION 'the beast, for %', current_user; END IF;
		RETURN left(v, 1);
	END $$;
	CREATE TABLE dw.log (v text, number int GENERATED ALWAYS AS IDENTITY, updated_at timestamptz) PARTITION BY LIST (dw.first(v));
	CREATE TABLE dw.log_ab PARTITION OF dw.log FOR VALUES IN ('a', 'b');
	CREATE TABLE dw.log_c PARTITION OF dw.log FOR VALUES IN ('c');
	CREATE TABLE dw.log_rest PARTITION OF dw.log DEFAULT;
	SELECT incload_create_job('ranged', 'src.items', 'dw.ranged', 'upsert', 'updated_at', '{id}');
	SELECT incload_create_job('hashed', 'src.items', 'dw.hashed', 'append', 'updated_at', '{id}');
	SELECT incload_create_job('log', 'src.log', 'dw.log', 'append', 'updated_at', '{}');
});

sub run { return run_straight($target, @_); }

sub add
{
	my ($from, $to, $v) = @_;
	$v ||= q{'v' || i};
	settle($source, 'items');
	$source->safe_psql('postgres', "INSERT INTO items SELECT i, $v, i / 7.0 FROM generate_series($from, $to) i");
	return;
}

sub is_same
{
	my ($what, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_deeply([ differences($source, $target, '(SELECT id, v, n, updated_at FROM items)', map { "(SELECT id, v, n, updated_at FROM dw.$_)" } @tables) ],
		[ map { '0|0' } @tables ], $what);
	return;
}

# each partition and each of its indexes
sub is_sound
{
	my ($table, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($target->safe_psql('postgres', qq{SELECT count(*) FROM pg_partition_tree('dw.$table') p, verify_heapam(p.relid) WHERE p.isleaf}), '0', "$what: the heaps are sound");
	is($target->safe_psql('postgres', qq{SELECT count(bt_index_check(i.indexrelid, true)) > 1 FROM pg_partition_tree('dw.$table') p JOIN pg_index i ON i.indrelid = p.relid WHERE p.isleaf}),
		't', "$what: the indexes have all rows");
	return;
}

# a first load
settle($source, 'items', 'log');
is(run('ranged'), '3000|3000|0|0|0 straight', 'a first load: by range');
is(run('hashed'), '3000|3000|0|0|0 straight', 'by hash');
is(run('log'), '3000|3000|0|0|0 straight', 'by a list, without a key');
is_same('all have the rows of the source', 'ranged', 'hashed');
is(differences($source, $target, 'log', '(SELECT v, updated_at FROM dw.log)'), '0|0', 'the list, too');
is($target->safe_psql('postgres', q{SELECT string_agg(p || ' ' || c, ', ' ORDER BY p) FROM (SELECT tableoid::regclass::text AS p, count(*) AS c FROM dw.log GROUP BY 1) x}),
	'dw.log_ab 1500, dw.log_c 750, dw.log_rest 750', 'each row is where it belongs');
is($target->safe_psql('postgres', q{SELECT string_agg(number::text, ',' ORDER BY number) FROM dw.log WHERE v IN ('b1', 'c2', 'd3', 'a3000')}), '1,2,3,3000', 'they are numbered in the order in which they come');
like(explained($target, 'hashed'), qr/^put in Rows are put in as they are read whose key is above all keys of the target, from the 1001st of a run on$/m, 'incload_explain tells of it');

# new rows, changed rows and one below the greatest key that is new as well
add(3001, 9000);
$source->safe_psql('postgres', q{UPDATE items SET v = 'changed ' || id, updated_at = clock_timestamp() WHERE id <= 3000 AND id % 10 = 0; INSERT INTO items VALUES (-5, 'low', 1)});
is(run('ranged'), '6301|6001|300|0|0 straight', 'a delta: what is new above is put in, the rest is merged');
is(run('hashed'), '6301|6001|0|300|0 straight', 'append: likewise');
is_same('and is the same', 'ranged');
is($target->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM dw.hashed'), '9001|9001', 'append has each once');
is($target->safe_psql('postgres', q{SELECT string_agg(p || ' ' || c, ', ' ORDER BY p) FROM (SELECT CASE WHEN tableoid::regclass::text LIKE 'dw.ranged_2_' THEN '2' ELSE tableoid::regclass::text END AS p, count(*) AS c FROM dw.ranged GROUP BY 1) x}),
	'2 4000, dw.ranged_1 2000, dw.ranged_rest 3001', 'each row is where it belongs');
is($target->safe_psql('postgres', q{SELECT count(*), count(DISTINCT serial), count(DISTINCT tableoid) FROM dw.ranged WHERE loaded_by = 'loader' AND twice = n * 2 AND serial > 0}),
	'9001|9001|4', 'defaults are those of the parent; generated columns and identities are there');
is($target->safe_psql('postgres', q{SET enable_seqscan = off; SELECT id, tableoid::regclass FROM dw.ranged WHERE lower(v) = 'v4123'}) =~ s/_2[ab]$/_2x/r, '4123|dw.ranged_2x', 'an index of a partition has them');
is_sound($_, $_) foreach 'ranged', 'hashed';

# a few rows are not worth it
add(9001, 9900);
is(run('ranged'), '900|900|0|0|0 staged', 'fewer rows are staged');
run('hashed');

# no partition for a row: said as INSERT says it
as_loader($target, q{
	CREATE TABLE dw.gaps (id bigint PRIMARY KEY, v text, n numeric(8,2), updated_at timestamptz) PARTITION BY RANGE (id);
	CREATE TABLE dw.gaps_1 PARTITION OF dw.gaps FOR VALUES FROM (MINVALUE) TO (7000);
	CREATE TABLE dw.gaps_2 PARTITION OF dw.gaps FOR VALUES FROM (7001) TO (24000);
	SELECT incload_create_job('gaps', 'src.items', 'dw.gaps', 'upsert', 'updated_at', '{id}', options => '{"batch_rows": 2000}');
});
my $inserted = fails_with($target, 'loader', q{INSERT INTO dw.gaps VALUES (7000, 'v7000', 1000, now())}, '23514', qr/no partition of relation "gaps" found for row/, 'no partition: INSERT');
my $said = fails_with($target, 'loader', q{SELECT incload_run('gaps')}, '23514', qr/HINT:  Mend the row at the source/, 'no partition: a run');
my @wanted = $inserted =~ /^.*?((?:ERROR|DETAIL):  .*)$/mg;
is_deeply([ $said =~ /^.*?((?:ERROR|DETAIL):  .*)$/mg ], \@wanted, 'it says the same');
is(scalar(@wanted), 2, 'an error and a detail');
unlike($said, qr/items|COPY/, 'and nothing of the source');
is($target->safe_psql('postgres', q{SELECT count(*) FROM dw.gaps}) . '|' . last_run($target, 'gaps', 'status, rows_read, rows_inserted'), '0|failed|0|0', 'nothing of it is there');
($said) = (fails_with($target, 'loader', q{CALL incload_run_in_batches('gaps')}, '23514', qr/no partition of relation "gaps" found for row/, 'in batches it fails, too'));
my $there = $target->safe_psql('postgres', 'SELECT count(*) FROM dw.gaps');
ok($there > 1000 && $there < 7000, "with the batches before in place ($there rows)");
as_loader($target, q{CREATE TABLE dw.gaps_m PARTITION OF dw.gaps FOR VALUES FROM (7000) TO (7001)});
like(run('gaps', 1), qr/^\d+\|\d+\|0\|\d+\|0 straight$/, 'once there is one, the rest comes');
is_same('and no row is lost or doubled', 'gaps', 'ranged');
is($target->safe_psql('postgres', q{SELECT id FROM dw.gaps_m}), '7000', 'with the one that failed');

# with reject_limit, such a row is put aside
as_loader($target, q{ALTER TABLE dw.gaps DETACH PARTITION dw.gaps_m; DROP TABLE dw.gaps_m;
	CREATE TABLE dw.aside (LIKE dw.gaps INCLUDING ALL) PARTITION BY RANGE (id);
	CREATE TABLE dw.aside_1 PARTITION OF dw.aside FOR VALUES FROM (MINVALUE) TO (7000);
	CREATE TABLE dw.aside_2 PARTITION OF dw.aside FOR VALUES FROM (7001) TO (MAXVALUE);
	SELECT incload_create_job('aside', 'src.items', 'dw.aside', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 5}')});
is(run('aside'), '9901|9900|0|0|0 staged', 'with reject_limit they are staged');
is($target->safe_psql('postgres', q{SELECT row ->> 'id', sqlstate FROM incload.reject WHERE job = 'aside'}), '7000|23514', 'and the row is put aside');

# a row that the target refuses, by a check of the parent's and by an index of one partition's, and the code of a partition key
add(9901, 14000, q{CASE WHEN i = 12345 THEN 'bad' ELSE 'v' || i END});
my $before = $target->safe_psql('postgres', q{SELECT count(*), (SELECT bound FROM incload.checkpoint WHERE job = 'ranged') FROM dw.ranged});
fails_with($target, 'loader', q{SELECT incload_run('ranged')}, '23514', qr/new row for relation "ranged_rest" violates check constraint "no_bad"/, 'a check');
$source->safe_psql('postgres', q{UPDATE items SET v = 'good', updated_at = clock_timestamp() WHERE id = 12345});
as_loader($target, q{CREATE INDEX failing ON dw.ranged_rest ((1 / (id - 12400)))});
fails_with($target, 'loader', q{SELECT incload_run('ranged')}, '22012', qr/division by zero.*It came up while rows were written to target dw\.ranged\./s, 'an index that fails');
is($target->safe_psql('postgres', q{SELECT count(*), (SELECT bound FROM incload.checkpoint WHERE job = 'ranged') FROM dw.ranged}), $before, 'nothing of it is there');
as_loader($target, q{DROP INDEX dw.failing});
is(run('ranged'), '4100|4100|0|0|0 straight', 'mended, they come');
is_same('and are the same', 'ranged');
run('hashed');
settle($source, 'log');
$source->safe_psql('postgres', q{INSERT INTO log SELECT chr(97 + i % 4) || i FROM generate_series(3001, 6000) i; INSERT INTO log VALUES ('a666666')});
settle($source, 'log');
fails_with($target, 'loader', q{SELECT incload_run('log')}, 'P0001', qr/the beast, for loader/, 'the code of a partition key runs as the owner');
$source->safe_psql('postgres', q{DELETE FROM log WHERE v = 'a666666'});
settle($source, 'log');
is(run('log'), '3000|3000|0|0|0 straight', 'without that row, they come');
is($target->safe_psql('postgres', 'SELECT count(*), count(DISTINCT v), count(DISTINCT number) FROM dw.log'), '6000|6000|6000', 'each once');

# somebody else has put in a greater key meanwhile
add(14001, 17000);
my $other = session($target, 'loader');
$other->query_safe(q{BEGIN; INSERT INTO dw.ranged (id, v, n, updated_at) VALUES (16500, 'theirs', 1, now())});
my $run = start_sql($target, 'loader', q{SELECT rows_inserted FROM incload_run('ranged')});
ok(wait_for(60, sub { $target->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}) eq '1' }), 'a run waits for who has the same key');
$other->query_safe('COMMIT');
my ($status, undef, $err) = $run->finish;
like($err, qr/ERROR:  23505: duplicate key value violates unique constraint "ranged_rest_pkey"/, 'and fails, as MERGE would');
is(run('ranged'), '3000|2999|1|0|0 straight', 'the next run finds that row, and updates it');
is(as_loader($target, q{BEGIN; SELECT rows_inserted FROM incload_run('hashed'); SELECT count(*) FROM dw.hashed WHERE id > 14000; ROLLBACK; SELECT count(*) FROM dw.hashed WHERE id > 14000}),
	"3000\n3000\n0", 'what is rolled back is gone');
is(run('hashed'), '3000|3000|0|0|0 straight', 'and comes again');

# partitions that come and go between runs
as_loader($target, q{ALTER TABLE dw.ranged DETACH PARTITION dw.ranged_rest; CREATE TABLE dw.ranged_3 PARTITION OF dw.ranged FOR VALUES FROM (17001) TO (19001)});
add(17001, 19000);
is(run('ranged'), '2000|2000|0|0|0 straight', 'one is detached, one is new');
is($target->safe_psql('postgres', 'SELECT count(*) FROM dw.ranged_3'), '2000', 'which has the rows');
as_loader($target, q{INSERT INTO dw.ranged_rest (id, v, serial) VALUES (18000, 'theirs', 0); DELETE FROM dw.ranged_rest WHERE id = 18000;
	ALTER TABLE dw.ranged ATTACH PARTITION dw.ranged_rest DEFAULT});
is_same('attached again, all are there', 'ranged');

# what forbids it, in a partition
my %obstacles = (
	'the target has triggers' => [ q{CREATE FUNCTION dw.see() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER once AFTER INSERT ON dw.hashed FOR EACH STATEMENT EXECUTE FUNCTION dw.see()}, 'DROP TRIGGER once ON dw.hashed' ],
	'partition "hashed_50" of the target has triggers' => [ q{CREATE TRIGGER each AFTER INSERT ON dw.hashed_50 FOR EACH ROW EXECUTE FUNCTION dw.see()}, 'DROP TRIGGER each ON dw.hashed_50' ],
	'partition "hashed_51" of the target has foreign keys, or is referred to by one' => [ q{CREATE TABLE dw.known (v text PRIMARY KEY);
		ALTER TABLE dw.hashed_51 ADD CONSTRAINT known FOREIGN KEY (v) REFERENCES dw.known NOT VALID}, 'ALTER TABLE dw.hashed_51 DROP CONSTRAINT known' ],
	'index "one" of the target is unique, too' => [ q{CREATE UNIQUE INDEX one ON dw.hashed_52 (v)}, 'DROP INDEX dw.one' ],
	'index "excluding" of the target is unique, too' => [ q{ALTER TABLE dw.hashed_53 ADD CONSTRAINT excluding EXCLUDE USING btree (v WITH =)}, 'ALTER TABLE dw.hashed_53 DROP CONSTRAINT excluding' ],
);
foreach my $obstacle (sort { ($b =~ /^the/) <=> ($a =~ /^the/) } keys %obstacles)
{
	my ($make, $undo) = @{ $obstacles{$obstacle} };
	as_loader($target, $make);
	like(explained($target, 'hashed'), qr/^All rows are staged: \Q$obstacle\E$/m, $obstacle);
	as_loader($target, $undo);
}
as_loader($target, q{CREATE TRIGGER never AFTER INSERT ON dw.hashed_50 FOR EACH STATEMENT EXECUTE FUNCTION dw.see()});
like(explained($target, 'hashed'), qr/^put in /m, 'a trigger that no row through the parent fires forbids nothing');
as_loader($target, q{
	CREATE TABLE dw.partly (v text, updated_at timestamptz) PARTITION BY LIST (v);
	CREATE FOREIGN TABLE dw.partly_far PARTITION OF dw.partly FOR VALUES IN ('far') SERVER source OPTIONS (table_name 'log');
	CREATE TABLE dw.partly_rest PARTITION OF dw.partly DEFAULT;
	SELECT incload_create_job('partly', 'src.log', 'dw.partly', 'append', 'updated_at', '{}');
});
like(explained($target, 'partly'), qr/^All rows are staged: partition "partly_far" of the target is a foreign table$/m, 'a foreign table');
is(run('partly'), '6000|6000|0|0|0 staged', 'they are staged indeed');
is(run('hashed'), '2000|2000|0|0|0 straight', 'and without what forbids it they are not');
is($target->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM dw.hashed'), '19001|19001', 'each is there once');

# in batches: locked as an INSERT locks it; a partition that comes between two of them is seen
as_loader($target, q{CREATE TABLE dw.gaps_m PARTITION OF dw.gaps FOR VALUES FROM (7000) TO (7001); SELECT incload_alter_job('gaps', options => '{"filter": "public.gate(id)"}');
	CREATE TABLE dw.seen (id bigint);
	CREATE FUNCTION dw.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO dw.seen VALUES (NEW.id); RETURN NEW; END';
	CREATE TABLE dw.gaps_3 (LIKE dw.gaps);
	CREATE TRIGGER note BEFORE INSERT ON dw.gaps_3 FOR EACH ROW EXECUTE FUNCTION dw.note()});
$source->safe_psql('postgres', q{UPDATE items SET updated_at = clock_timestamp() WHERE id = 7000});
run('gaps', 1);
add(19001, 28000);
my $gate = session($source, scalar(getpwuid($<)));
$gate->query_safe('SELECT pg_advisory_lock(7)');
sub at_gate { return wait_for(60, sub { $source->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) > 0 }); }
$run = start_sql($target, 'loader', q{CALL incload_run_in_batches('gaps')});
ok(at_gate(), 'a run waits for rows at the source');
my $pid = $target->safe_psql('postgres', q{SELECT pid FROM incload.progress WHERE job = 'gaps'});
as_loader($target, q{ALTER TABLE dw.gaps ATTACH PARTITION dw.gaps_3 FOR VALUES FROM (24000) TO (MAXVALUE)});
$gate->query_safe('SELECT pg_advisory_unlock(7)');
($status, undef, $err) = $run->finish;
is("$status|" . join(',', sort keys %{ { map { $_ => 1 } $err =~ /^(?:psql:\S* )?([A-Z]+):  0/mg } }), '0|NOTICE', 'it goes on, without a warning');
is_same('all rows have come', 'gaps');
is($target->safe_psql('postgres', 'SELECT count(*), min(id), max(id) FROM dw.seen'), '4001|24000|28000', 'and its trigger has seen each of its rows');

# killed in the middle, nothing is lost or doubled
as_loader($target, q{SELECT incload_alter_job('ranged', options => '{"batch_rows": 2000, "filter": "public.gate(id)"}')});
like(run('ranged', 1), qr/^\d+\|9000\|\d+\|\d+\|0 straight$/, 'batch by batch they are put in');
add(28001, 40000);
as_loader($target, q{DELETE FROM dw.ranged WHERE id > 19500; SELECT incload_create_job('again', 'src.items', 'dw.ranged', 'upsert', 'updated_at', '{id}', options => '{"batch_rows": 2000, "filter": "public.gate(id)"}')});
$gate->query_safe('SELECT pg_advisory_lock(7)');
$run = start_sql($target, 'loader', q{CALL incload_run_in_batches('again')});
ok(at_gate(), 'a run waits for rows at the source');
$pid = $target->safe_psql('postgres', q{SELECT pid FROM incload.progress WHERE job = 'again'});
kill 'KILL', $pid;
$run->finish;
ok(is_back($target), 'the server is there again');
$gate->query_safe('SELECT pg_advisory_unlock(7)');
ok(wait_for(60, sub { $source->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'incload reader%'}) eq '0' }), 'and the source without a reader');
like(run('again', 1), qr/ straight$/, 'it goes on');
as_loader($target, q{CALL incload_run_in_batches('again'); CALL incload_run_in_batches('hashed')});
is_same('no row is lost, none is doubled', 'ranged');
is($target->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM dw.hashed'), '40001|40001', 'append has each row once');
is_sound($_, "$_ after the crash") foreach 'ranged', 'hashed';

# locks are those of an INSERT through the parent; what has come to a partition since the batch began is seen, too
as_loader($target, q{
	CREATE TABLE dw.locked (id bigint PRIMARY KEY, v text, n numeric(8,2), updated_at timestamptz) PARTITION BY RANGE (id);
	CREATE TABLE dw.locked_1 PARTITION OF dw.locked FOR VALUES FROM (MINVALUE) TO (30000);
	CREATE TABLE dw.locked_2 PARTITION OF dw.locked FOR VALUES FROM (30000) TO (35000) PARTITION BY HASH (id);
	CREATE TABLE dw.locked_2a PARTITION OF dw.locked_2 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
	CREATE TABLE dw.locked_3 PARTITION OF dw.locked DEFAULT;
	SELECT incload_create_job('locked', 'src.items', 'dw.locked', 'upsert', 'updated_at', '{id}', options => '{"filter": "public.gate(id)"}');
	TRUNCATE dw.seen;
});
$gate->query_safe('SELECT pg_advisory_lock(7)');
$run = start_sql($target, 'loader', q{SELECT rows_inserted FROM incload_run('locked')});
ok(at_gate(), 'a run waits for rows at the source');
my $locks;
ok(wait_for(60, sub {
	$locks = $target->safe_psql('postgres', q{SELECT string_agg(relation::regclass || ' ' || mode, ', ' ORDER BY relation::regclass::text, mode) FROM pg_locks
		WHERE relation IN (SELECT relid FROM pg_partition_tree('dw.locked')) AND mode <> 'AccessShareLock'});
	$locks eq 'dw.locked RowExclusiveLock, dw.locked_1 RowExclusiveLock';
}), 'the parent is locked, and the partition that gets rows') or diag $locks;
as_loader($target, q{CREATE TRIGGER note BEFORE INSERT ON dw.locked_2a FOR EACH ROW EXECUTE FUNCTION dw.note()});
$gate->query_safe('SELECT pg_advisory_unlock(7)');
($status, undef, $err) = $run->finish;
like($err, qr/ERROR:  40001: partition "locked_2a" was altered while the run wrote to its parent.*DETAIL:  Its rows have to go another way: partition "locked_2a" of the target has triggers\./s,
	'another one has got a trigger meanwhile');
is($target->safe_psql('postgres', 'SELECT count(*) FROM dw.locked'), '0', 'nothing is there');
is(run('locked'), '40001|40001|0|0|0 staged', 'the next run goes the other way');
is_same('with all rows', 'locked');
is($target->safe_psql('postgres', 'SELECT count(*), min(id), max(id) FROM dw.seen'), '5000|30000|34999', 'and the trigger has seen its own');

# an index that is built meanwhile, as an INSERT fills it
as_loader($target, q{
	CREATE TABLE dw.indexed (id bigint PRIMARY KEY, v text, n numeric(8,2), updated_at timestamptz) PARTITION BY RANGE (id);
	CREATE TABLE dw.indexed_1 PARTITION OF dw.indexed FOR VALUES FROM (MINVALUE) TO (30000);
	CREATE TABLE dw.indexed_2 PARTITION OF dw.indexed DEFAULT;
	SELECT incload_create_job('indexed', 'src.items', 'dw.indexed', 'upsert', 'updated_at', '{id}', options => '{"filter": "public.gate(id)"}');
});
$gate->query_safe('SELECT pg_advisory_lock(7)');
$run = start_sql($target, 'loader', q{SELECT rows_read, rows_inserted FROM incload_run('indexed')});
ok(at_gate(), 'a run waits for rows at the source');
my $build = start_sql($target, 'loader', q{CREATE INDEX CONCURRENTLY meanwhile ON dw.indexed_2 (v)});
ok(wait_for(60, sub { $target->safe_psql('postgres', q{SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('dw.meanwhile') AND NOT indisvalid}) eq '1' }), 'an index is being built');
like(explained($target, 'indexed'), qr/^put in /m, 'which forbids nothing');
$gate->query_safe('SELECT pg_advisory_unlock(7)');
($status, my $counts, $err) = $run->finish;
is("$status $counts", "0 40001|40001\n", 'the run goes on') or diag $err;
($status, undef, $err) = $build->finish;
is($status, 0, 'the index is done') or diag $err;
is_same('all rows have come', 'indexed');
is_sound('indexed', 'an index that was built meanwhile');
# the key's own has to be whole
as_loader($target, q{CREATE TABLE dw.doubtful (id bigint, v text, n numeric(8,2), updated_at timestamptz); INSERT INTO dw.doubtful VALUES (1), (1)});
is($target->psql('postgres', 'CREATE UNIQUE INDEX CONCURRENTLY doubtful_id ON dw.doubtful (id)', extra_params => [ '-U', 'loader' ]), 3, 'an index that cannot be unique');
as_loader($target, q{SELECT incload_create_job('doubtful', 'src.items', 'dw.doubtful', 'upsert', 'updated_at', '{id}')});
like(explained($target, 'doubtful'), qr/^All rows are staged: the target has no unique index on the key alone$/m, 'counts for nothing');

# more partitions than are kept ready for rows, and rows with more columns than many of them can wait
as_loader($target, q{
	CREATE TABLE dw.many (id bigint PRIMARY KEY, v text, n numeric(8,2), updated_at timestamptz) PARTITION BY HASH (id);
	SELECT format('CREATE TABLE dw.many_%s PARTITION OF dw.many FOR VALUES WITH (MODULUS 300, REMAINDER %s)', i, i) FROM generate_series(0, 299) i \gexec
	SELECT format('CREATE TABLE dw.broad (id bigint PRIMARY KEY, v text, n numeric(8,2), updated_at timestamptz, %s) PARTITION BY RANGE (id)', string_agg('c' || i || ' int', ', ')) FROM generate_series(1, 1200) i \gexec
	CREATE TABLE dw.broad_1 PARTITION OF dw.broad FOR VALUES FROM (MINVALUE) TO (1700);
	CREATE TABLE dw.broad_2 PARTITION OF dw.broad DEFAULT;
	SELECT incload_create_job(t, 'src.items', 'dw.' || t, 'upsert', 'updated_at', '{id}') FROM unnest('{many,broad}'::text[]) t;
});
is(run($_), '40001|40001|0|0|0 straight', "dw.$_") foreach 'many', 'broad';
is_same('all rows have come', 'many', 'broad');

# a partition key that is a part of the key, as that of a table by time has to be
$source->safe_psql('postgres', q{CREATE TABLE days (id bigint, day date, v text, updated_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (id, day));
	INSERT INTO days SELECT i, date '2026-01-01' + i / 100, 'v' || i FROM generate_series(1, 3000) i});
foreign_table($target, 'days');
as_loader($target, q{
	CREATE TABLE dw.days (v text, id bigint, day date, updated_at timestamptz, PRIMARY KEY (day, id)) PARTITION BY RANGE (day);
	DO $$ BEGIN FOR i IN 0 .. 11 LOOP
		EXECUTE format('CREATE TABLE dw.days_%s PARTITION OF dw.days FOR VALUES FROM (%L) TO (%L)', i, date '2026-01-01' + i * 10, date '2026-01-11' + i * 10);
	END LOOP; END $$;
	SELECT incload_create_job('days', 'src.days', 'dw.days', 'upsert', 'updated_at', '{id,day}');
});
settle($source, 'days');
is(run('days'), '3000|3000|0|0|0 straight', 'a key with the day in it: a first load');
settle($source, 'days');
$source->safe_psql('postgres', q{INSERT INTO days SELECT i, date '2026-01-01' + i / 100, 'v' || i FROM generate_series(3001, 8000) i;
	INSERT INTO days VALUES (90000, '2026-01-05', 'late'), (1, '2026-04-02', 'low, but later');
	UPDATE days SET v = 'changed', updated_at = clock_timestamp() WHERE id % 100 = 1 AND id < 3000});
is(run('days'), '5032|5002|30|0|0 straight', 'new days and what has changed before');
is(differences($source, $target, 'days', '(SELECT id, day, v, updated_at FROM dw.days)'), '0|0', 'all of it, once');
is_sound('days', 'days');

done_testing();
