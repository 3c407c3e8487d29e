# The watermark xmin: nothing is lost or doubled whatever order transactions
# commit in, on a primary and on a standby, across crashes, restarts and the
# wraparound of transaction numbers.
use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use IncloadTest;

my ($source, $target) = two_nodes(source => "max_prepared_transactions = 5\nwal_level = replica\nmax_wal_senders = 3\nrestart_after_crash = on\n");

$source->safe_psql('postgres', q{
	CREATE TABLE codes (code text PRIMARY KEY, v int);
	INSERT INTO codes SELECT 'c' || i, 0 FROM generate_series(1, 30000) i;
	ANALYZE codes;
});
foreign_table($target, 'codes');
like(as_loader($target, q{SELECT watermark || ' ' || strategy FROM incload_create_job('codes', 'src.codes', 'dw.codes')}),
	qr/^xmin upsert$/, 'a table with nothing else to track is tracked by xmin');

sub run_codes
{
	return as_loader($target, q{SELECT rows_read, rows_inserted, rows_updated, rows_unchanged FROM incload_run('codes')});
}

sub same
{
	my ($name) = @_;
	is(differences($source, $target, 'codes', 'dw.codes'), '0|0', "$name: the target is equal");
}

is(run_codes(), '30000|30000|0|0', 'the first run reads all');
is(run_codes(), '0|0|0|0', 'the second nothing');

# a transaction that is open while others commit and runs go by
my $late = session($source, 'postgres');
$late->query_safe(q{BEGIN; SAVEPOINT s; UPDATE codes SET v = 1 WHERE code = 'c1'; RELEASE s});
$source->safe_psql('postgres', q{UPDATE codes SET v = 2 WHERE code = 'c2'});
is(run_codes(), '1|0|1|0', 'what is committed arrives past an open transaction');
my $pid = $late->query_safe('SELECT pg_backend_pid()');
like(as_loader($target, q{SELECT held_back_by FROM incload.status WHERE job = 'codes'}), qr/^pid $pid \(.*\), since /,
	'the status names who holds the mark back');
is(run_codes(), '1|0|0|1', 'until it is over, what was written since is read again');
$late->query_safe(q{COMMIT});
is(run_codes(), '2|0|1|1', 'the late row arrives');
is(run_codes(), '0|0|0|0', 'and then there is nothing more');
is(as_loader($target, q{SELECT held_back_by IS NULL FROM incload.status WHERE job = 'codes'}), 't', 'nobody holds it any more');

# one that takes its number first and writes last, one in another database, one that is prepared
my $first = session($source, 'postgres');
$first->query_safe(q{BEGIN; SELECT txid_current()});
$source->safe_psql('postgres', q{INSERT INTO codes VALUES ('n1', 1)});
run_codes();
$first->query_safe(q{UPDATE codes SET v = 3 WHERE code = 'c3'});
is(run_codes(), '1|0|0|1', 'a number taken early is waited for');
$first->query_safe(q{COMMIT});
is(run_codes(), '2|0|1|1', 'its row arrives');
$first->quit;
$source->safe_psql('postgres', q{BEGIN; UPDATE codes SET v = 4 WHERE code = 'c4'; PREPARE TRANSACTION 'p'});
is(run_codes(), '0|0|0|0', 'a prepared row is not there yet');
like(as_loader($target, q{SELECT held_back_by FROM incload.status WHERE job = 'codes'}), qr/^prepared transaction 'p', since /,
	'the status names the prepared transaction');
$source->safe_psql('postgres', q{COMMIT PREPARED 'p'});
is(run_codes(), '1|0|1|0', 'it arrives when it is committed');

# a crash that keeps the server's start time: numbers that nobody saw are given out again
$late->quit;
my $victim = session($source, 'postgres');
my $vpid = $victim->query_safe('SELECT pg_backend_pid()');
kill 'KILL', $vpid;
eval { $victim->quit };
ok(is_back($source), 'the source is back');
$source->safe_psql('postgres', q{UPDATE codes SET v = 5 WHERE code = 'c5'});
is(run_codes(), '30001|0|1|30000', 'after a crash everything is read once more, and what differs is written');
is(run_codes(), '0|0|0|0', 'and only once');
same('after a crash');

# the mark belongs to what was read by it
as_loader($target, q{SELECT incload_alter_job('codes', options => '{"batch_rows": 7000, "statement_timeout": "1 minute"}')});
is(run_codes(), '0|0|0|0', 'options that change nothing of it leave it as it is');
as_loader($target, q{SELECT incload_alter_job('codes', options => '{"transforms": {"v": "v + 0"}}')});
is(run_codes(), '30001|0|0|30001', 'those that do take it away');
as_loader($target, q{SELECT incload_alter_job('codes', options => '{"transforms": null}')});

# killed between two batches: begins anew, and nothing is doubled
$source->safe_psql('postgres', q{UPDATE codes SET v = v + 10});
$target->safe_psql('postgres', q{
	CREATE FUNCTION dw.stop() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN IF NEW.code = 'c20000' THEN RAISE EXCEPTION 'enough'; END IF; RETURN NEW; END$$;
	CREATE TRIGGER stop BEFORE UPDATE ON dw.codes FOR EACH ROW EXECUTE FUNCTION dw.stop();
});
fails_with($target, 'loader', q{CALL incload_run_in_batches('codes')}, 'P0001', qr/enough/, 'a run fails in a later batch');
cmp_ok($target->safe_psql('postgres', 'SELECT count(*) FROM dw.codes WHERE v >= 10'), '>=', 7000, 'batches before it are committed');
$target->safe_psql('postgres', 'DROP TRIGGER stop ON dw.codes');
as_loader($target, q{CALL incload_run_in_batches('codes')});
same('after a run that failed between batches');
is(run_codes(), '0|0|0|0', 'its mark is that of the whole run');

# a caller's snapshot that is older than the rows: they come with the next run
my $old = session($target, 'loader');
$source->safe_psql('postgres', q{INSERT INTO codes VALUES ('n2', 2)});
$old->query_safe(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1});
$source->safe_psql('postgres', q{INSERT INTO codes VALUES ('n3', 3)});
$old->query_safe(q{SELECT incload_run('codes'); COMMIT});
$old->quit;
run_codes();
same('after a run under REPEATABLE READ');

# the same with the table on this server, where the caller's own writes count
$target->safe_psql('postgres', q{
	CREATE TABLE dw.here (code text PRIMARY KEY, v int);
	INSERT INTO dw.here SELECT 'h' || i, 0 FROM generate_series(1, 100) i;
	ALTER TABLE dw.here OWNER TO loader;
});
as_loader($target, q{SELECT incload_create_job('here', 'dw.here', 'dw.there', 'upsert', 'xmin', '{code}'); SELECT incload_run('here')});
my $reader = session($target, 'loader');
$reader->query_safe(q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM dw.here});
as_loader($target, q{INSERT INTO dw.here VALUES ('unseen', 1)});
$reader->query_safe(q{INSERT INTO dw.here VALUES ('own', 1)});
is($reader->query_safe(q{SELECT rows_inserted FROM incload_run('here')}), '1', 'the caller sees his own row');
$reader->query_safe('COMMIT');
$reader->quit;
is(as_loader($target, q{SELECT rows_inserted FROM incload_run('here')}), '1', 'the row that his snapshot did not show comes next');
is($target->safe_psql('postgres', 'SELECT count(*) FROM (TABLE dw.here EXCEPT TABLE dw.there) x'), '0', 'none is lost');

# wraparound: the source's counter is moved on, and crosses 2^32
sub move_xids
{
	my ($to) = @_;

	$source->stop;
	command_ok([ 'pg_resetwal', '-D', $source->data_dir, '-x', $to ], "the next transaction is $to");
	$source->start;
	$source->safe_psql('postgres', 'ALTER DATABASE template0 ALLOW_CONNECTIONS true');
	$source->command_ok([ 'vacuumdb', '--all', '--freeze', '--quiet' ], 'vacuumed');
}
# a frozen row keeps its number, and no two of these are 2^32 apart
move_xids(1 << 29);
$source->safe_psql('postgres', 'UPDATE codes SET v = v');
run_codes();
foreach my $to (1 << 30, 1 << 31, 3 << 30, (1 << 32) - 32768)
{
	move_xids($to);
	$source->safe_psql('postgres', q{UPDATE codes SET v = v + 1 WHERE code = 'c1'});
	my ($read, $ins, $upd) = split /\|/, run_codes();
	is("$ins $upd", '0 1', 'a row that changed arrives');
	is(run_codes(), '0|0|0|0', 'and nothing is read again');
}
same('before the wraparound');
$source->safe_psql('postgres', q{UPDATE codes SET v = -1 WHERE code = 'c6'});
# 40,000 transaction numbers: by subtransactions, which are the quickest
$source->safe_psql('postgres', q{
	CREATE TABLE used (x int);
	DO $$ BEGIN FOR i IN 1 .. 40 LOOP
		FOR j IN 1 .. 1000 LOOP BEGIN INSERT INTO used VALUES (j); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP;
		COMMIT;
	END LOOP; END $$;
	UPDATE codes SET v = -2 WHERE code IN ('c7', 'c8');
});
cmp_ok($source->safe_psql('postgres', 'SELECT txid_current()'), '>', 2**32, 'the counter has gone round');
is(run_codes(), '3|0|3|0', 'rows from before and after it arrive, and no others');
cmp_ok(as_loader($target, q{SELECT mark FROM incload.checkpoint WHERE job = 'codes'}), '>', 2**32, 'the mark counts on');
is(run_codes(), '0|0|0|0', 'nothing is read again');
$source->safe_psql('postgres', 'VACUUM FREEZE codes');
is(run_codes(), '0|0|0|0', 'nor after they were frozen');
same('after the wraparound');

# a standby
$source->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($source, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'\nport = " . $standby->port . "\n");
$standby->start;
my $port = $standby->port;
$target->safe_psql('postgres', "ALTER SERVER source OPTIONS (SET port '$port')");
as_loader($target, q{SELECT incload_run('codes')});
my $open = session($source, 'postgres');
$open->query_safe(q{BEGIN; UPDATE codes SET v = 100 WHERE code = 'c9'});
$source->safe_psql('postgres', q{UPDATE codes SET v = 100 WHERE code = 'c10'});
$source->wait_for_catchup($standby);
is(run_codes(), '1|0|1|0', 'a standby tells what is committed');
$open->query_safe('COMMIT');
$open->quit;
$source->wait_for_catchup($standby);
is(run_codes(), '2|0|1|1', 'and what is late');
is(as_loader($target, q{SELECT guarantee FROM incload.status WHERE job = 'codes'}), 'exact', 'and it is exact there, too');
same('from a standby');

$standby->stop;
$source->stop;
$target->stop;
done_testing();
