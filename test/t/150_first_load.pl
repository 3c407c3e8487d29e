# A first load goes into a new heap that takes the old one's place, and so does
# a full refresh by swap: what others see of it, and what a crash leaves.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(
	target => "restart_after_crash = on\nwal_level = logical\nmax_wal_senders = 5\nmax_replication_slots = 5\n"
	  . "max_prepared_transactions = 2");
my $rows = 20000;

$source->safe_psql('postgres', qq{
	CREATE TABLE items (id int PRIMARY KEY, v text, d jsonb, updated_at timestamptz NOT NULL);
	INSERT INTO items SELECT i, 'v' || i, jsonb_build_object('i', i), '2024-01-01Z'::timestamptz + i * 7 % 5000 * interval '1 s' FROM generate_series(1, $rows) i;
	-- a value out of line
	UPDATE items SET v = (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 400) g) WHERE id = 77;
	CREATE TABLE dups AS TABLE items;
	-- who reads a row beyond 1000 waits while somebody has lock 7
	CREATE FUNCTION gate(id int) RETURNS boolean LANGUAGE plpgsql AS \$\$
	BEGIN
		IF id > 1000 THEN
			PERFORM pg_advisory_lock_shared(7);
			PERFORM pg_advisory_unlock_shared(7);
		END IF;
		RETURN true;
	END \$\$;
});
foreign_table($target, 'items', 'dups');
$target->safe_psql('postgres', 'CREATE EXTENSION amcheck');

# who builds an index with it waits while somebody has lock 7
as_loader($target, q{
	CREATE FUNCTION dw.hold(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock_shared(7);
		RETURN i;
	END $$;
});

sub file_of { return $target->safe_psql('postgres', "SELECT pg_relation_filenode('$_[0]')"); }

sub rows_of { return $target->safe_psql('postgres', "SELECT count(*) FROM $_[0]"); }

sub new_job
{
	my ($job, $options) = @_;
	as_loader($target, "SELECT incload_create_job('$job', 'src.items', 'dw.$job', 'upsert', 'updated_at', '{id}', options => '{$options}')");
	return;
}

# heap, toast and indexes agree, and so do source and target
sub is_whole
{
	my ($table, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is( $target->safe_psql('postgres', qq{
			SELECT count(*) FROM verify_heapam('$table', check_toast => true);
			SELECT bt_index_check(indexrelid, true) FROM pg_index WHERE indrelid = '$table'::regclass;
			SELECT count(*) FROM pg_class WHERE relname LIKE 'pg\\_temp\\_%';}) =~ s/\n+/ /gr,
		'0 0', "$what: heap and indexes are whole, and nothing is left over");
	is(differences($source, $target, 'items', $table), '0|0', "$what: nothing is missing or doubled");
	return;
}

sub waiting
{
	my ($node) = @_;
	my $pid = wait_for(60, sub { $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory'") });
	ok($pid, 'it waits where it should') or die;
	return $pid;
}

# the locks that a session has on a table, or waits for
sub locks
{
	my ($table, $where) = @_;
	return $target->safe_psql('postgres', "SELECT string_agg(DISTINCT mode, ',' ORDER BY mode) FROM pg_locks WHERE relation = '$table'::regclass AND $where");
}

sub gate
{
	my ($node, $role) = @_;
	my $gate = session($node, $role);
	$gate->query_safe('SELECT pg_advisory_lock(7)');
	return $gate;
}

# 1. the first load, by the owner and by somebody else, and its indexes by several workers
new_job('items', '');
as_loader($target, 'CREATE INDEX ON dw.items (updated_at)');
my $old_file = file_of('dw.items');
my ($ret, $out, $err) = $target->psql('postgres', q{
	SET max_parallel_maintenance_workers = 2; SET min_parallel_table_scan_size = 0; SET maintenance_work_mem = '128MB';
	SET client_min_messages = debug1;
	SELECT rows_read, rows_inserted, batches FROM incload_run('items')});
is("$ret|$out", "0|$rows|$rows|1", 'a first load, called by a superuser') or diag $err;
like($err, qr/building index "items_updated_at_idx" on table "items" with request for [12] parallel worker/, 'its indexes are built by several');
isnt(file_of('dw.items'), $old_file, 'the table has another file');
is_whole('dw.items', 'first load');
is( $target->safe_psql('postgres', q{
		SELECT DISTINCT relowner::regrole FROM pg_class
		WHERE oid = 'dw.items'::regclass OR oid = (SELECT reltoastrelid FROM pg_class WHERE oid = 'dw.items'::regclass)
			OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'dw.items'::regclass)}),
	'loader', 'and the owner it had');
is( $target->safe_psql('postgres', q{
		VACUUM (FREEZE) dw.items;
		SELECT count(*) FROM verify_heapam('dw.items');
		SELECT age(relfrozenxid) >= 0 FROM pg_class WHERE oid = 'dw.items'::regclass}),
	"0\nt", 'vacuum finds it in order');

# 2. what is locked, and how long: while rows come, readers read and writers wait
new_job('locked', '"filter": "public.gate(id)"');
as_loader($target, 'CREATE INDEX ON dw.locked (dw.hold(id))');
my $there = gate($source, scalar(getpwuid($<)));
my $here = gate($target, 'loader');
my $run = start_sql($target, 'loader', "SELECT rows_inserted FROM incload_run('locked')");
waiting($source);
is(locks('dw.locked', 'granted'), 'RowExclusiveLock,ShareRowExclusiveLock', 'while rows come, SHARE ROW EXCLUSIVE');
is(rows_of('dw.locked'), 0, 'so that others can read');
my $writer = start_sql($target, 'loader', 'INSERT INTO dw.locked VALUES (-1)');
ok(wait_for(30, sub { locks('dw.locked', 'NOT granted') eq 'RowExclusiveLock' }), 'and who writes waits');
$there->query_safe('SELECT pg_advisory_unlock(7)');
waiting($target);
like(locks('dw.locked', 'granted'), qr/AccessExclusiveLock/, 'while indexes are built, ACCESS EXCLUSIVE');
$here->query_safe('SELECT pg_advisory_unlock(7)');
($ret, $out, $err) = $run->finish;
is("$ret|$out", "0|$rows\n", 'then it is done') or diag $err;
($ret, $out, $err) = $writer->finish;
is($ret, 0, 'and the writer goes on') or diag $err;
is(as_loader($target, 'SELECT count(*), min(id) FROM dw.locked'), ($rows + 1) . '|-1', 'both have written');

# 3. killed between the rows and the indexes, in each way
my %end = (
	kill => sub { kill 'KILL', $_[0]; return; },
	terminate => sub { $target->safe_psql('postgres', "SELECT pg_terminate_backend($_[0])"); return; },
	cancel => sub { $target->safe_psql('postgres', "SELECT pg_cancel_backend($_[0])"); return; },
	stop => sub { $target->stop('immediate'); $target->start; return; });
foreach my $how (sort keys %end)
{
	foreach my $call ("SELECT incload_run('%s')", 'CALL incload_run_in_batches(\'%s\')')
	{
		my $job = $how . ($call =~ /CALL/ ? '_call' : '');
		my $untouched = "SELECT bound, loaded_to, mark FROM incload.checkpoint WHERE job = '$job'";

		new_job($job, '');
		as_loader($target, "CREATE INDEX ON dw.$job (dw.hold(id))");
		my $before = file_of("dw.$job") . as_loader($target, $untouched);
		my $gate = gate($target, 'loader');
		my $killed = start_sql($target, 'loader', sprintf($call, $job));
		my $pid = waiting($target);
		like(locks("dw.$job", "granted AND pid = $pid"), qr/AccessExclusiveLock/, "$job: the rows are in");
		$end{$how}->($pid);
		($ret, $out, $err) = $killed->finish;
		isnt($ret, 0, "$job: the session notices");
		is_back($target) or die 'the target is gone';
		$gate->{run}->kill_kill;
		$target->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'}) or die;
		is(file_of("dw.$job") . as_loader($target, $untouched), $before, "$job: file and checkpoint are as before");
		is(rows_of("dw.$job"), 0, "$job: and it is empty");
		as_loader($target, sprintf($call, $job));
		is(last_run($target, $job, 'status, rows_read, rows_inserted, batches'), "succeeded|$rows|$rows|1", "$job: the next run loads everything");
		is_whole("dw.$job", $job);
		as_loader($target, sprintf($call, $job));
		is(last_run($target, $job, 'status, rows_inserted'), 'succeeded|0', "$job: once");
	}
}

# 4. a reader who stays is waited for as long as the option says
new_job('timed', '"lock_timeout": "200 ms"');
my $reader = session($target, 'loader');
$reader->query_safe('BEGIN; SELECT count(*) FROM dw.timed');
fails_with($target, 'loader', "SELECT incload_run('timed')", '55P03', qr/lock timeout/, 'lock_timeout ends the wait for readers');
is(rows_of('dw.timed'), 0, 'and nothing has happened');
$reader->query_safe('COMMIT');
is(as_loader($target, "SELECT rows_inserted FROM incload_run('timed')"), $rows, 'then it goes');

# 5. somebody writes at the time: by the ordinary way, at once
new_job('shared', '');
$old_file = file_of('dw.shared');
$reader->query_safe("BEGIN; INSERT INTO dw.shared (id, v) VALUES (-1, 'mine')");
is(as_loader($target, "SELECT rows_inserted FROM incload_run('shared')"), $rows, 'a writer is not waited for');
$reader->query_safe('COMMIT');
is(file_of('dw.shared'), $old_file, 'his rows are in the file that stays');
is(rows_of('dw.shared'), $rows + 1, 'and all others');

# two jobs that fill one table at a time
as_loader($target, q{
	CREATE TABLE dw.two (id int PRIMARY KEY, v text, d jsonb, updated_at timestamptz NOT NULL);
	SELECT incload_create_job('two_a', 'src.items', 'dw.two', 'upsert', 'updated_at', options => '{"filter": "id < 2000 AND public.gate(id)"}');
	SELECT incload_create_job('two_b', 'src.items', 'dw.two', 'upsert', 'updated_at', options => '{"filter": "id >= 2000"}');
});
$there->query_safe('SELECT pg_advisory_lock(7)');
$run = start_sql($target, 'loader', "SELECT rows_inserted FROM incload_run('two_a')");
waiting($source);
my $second = start_sql($target, 'loader', "SELECT rows_inserted FROM incload_run('two_b')");
ok(wait_for(30, sub { locks('dw.two', 'NOT granted') eq 'RowExclusiveLock' }), 'the second job waits for the first');
$there->query_safe('SELECT pg_advisory_unlock(7)');
is(join('|', map { $_->finish } $run)  =~ s/\n.*//sr, '0|1999', 'which ends');
is(join('|', map { $_->finish } $second) =~ s/\n.*//sr, '0|' . ($rows - 1999), 'and adds its own');
is_whole('dw.two', 'two jobs');

# who has read and then wants to write, and a run that wants to swap
new_job('crossed', '"filter": "public.gate(id)"');
$there->query_safe('SELECT pg_advisory_lock(7)');
$run = start_sql($target, 'loader', "SELECT incload_run('crossed')");
waiting($source);
$writer = start_sql($target, 'loader', 'BEGIN; SELECT count(*) FROM dw.crossed; INSERT INTO dw.crossed (id) VALUES (-1); COMMIT');
ok(wait_for(30, sub { locks('dw.crossed', 'NOT granted') eq 'RowExclusiveLock' }), 'who has read the table waits to write');
$there->query_safe('SELECT pg_advisory_unlock(7)');
my @said = map { ($_->finish)[2] } $run, $writer;
is(scalar(grep { /ERROR:  40P01/ } @said), 1, 'one of both is told of the deadlock') or diag @said;
as_loader($target, "SELECT incload_run('crossed')");
is($target->safe_psql('postgres', 'SELECT count(*) FROM dw.crossed WHERE id > 0'), $rows, 'and the next run puts it right');

# 6. what older snapshots see: of a first load nothing, and of a swap the new rows
new_job('seen', '"full_refresh_mode": "swap"');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM incload.run');
as_loader($target, "SELECT incload_run('seen')");
is($reader->query_safe('SELECT count(*) FROM dw.seen'), '0', 'an older snapshot sees the table that was empty');
is($reader->query_safe(q{SELECT count(*) FROM incload.checkpoint WHERE job = 'seen' AND loaded_to IS NULL}), '1', 'and the checkpoint that goes with it');
$reader->query_safe('COMMIT');
$source->safe_psql('postgres', "UPDATE items SET v = 'swapped', updated_at = now() WHERE id <= 10");
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM incload.run');
$old_file = file_of('dw.seen');
is(as_loader($target, "SELECT rows_inserted, rows_pruned FROM incload_refresh('seen')"), "$rows|$rows", 'a refresh by swap');
isnt(file_of('dw.seen'), $old_file, 'has another file');
is($reader->query_safe(q{SELECT count(*), count(*) FILTER (WHERE v = 'swapped') FROM dw.seen}), "$rows|10", 'an older snapshot sees the new rows, and not none');
$reader->query_safe('COMMIT');
is_whole('dw.seen', 'swap');
# (pages that have no row yet are not)
is( $target->safe_psql('postgres', q{
		CREATE EXTENSION pg_visibility;
		SELECT count(*) FROM dw.seen s JOIN pg_visibility_map('dw.seen') v ON v.blkno = (s.ctid::text::point)[0] WHERE NOT all_frozen}),
	'0', 'which are frozen');

# a swap that is killed leaves the old rows
as_loader($target, 'CREATE INDEX ON dw.seen (dw.hold(id))');
$source->safe_psql('postgres', 'DELETE FROM items WHERE id > 19990');
$here->{run}->kill_kill;
$here = gate($target, 'loader');
$run = start_sql($target, 'loader', "SELECT incload_refresh('seen')");
kill 'KILL', waiting($target);
$run->finish;
is_back($target) or die 'the target is gone';
$here->{run}->kill_kill;
$reader->{run}->kill_kill;
is(rows_of('dw.seen'), $rows, 'a swap that is killed leaves the old rows');
is(as_loader($target, "SELECT rows_inserted, rows_pruned FROM incload_refresh('seen')"), ($rows - 10) . "|$rows", 'the next one does it');
is_whole('dw.seen', 'swap after a crash');

# a swap waits for writers, from the beginning
as_loader($target, q{SELECT incload_alter_job('seen', options => '{"lock_timeout": "200 ms"}')});
$reader = session($target, 'loader');
$reader->query_safe('BEGIN; DELETE FROM dw.seen WHERE id = 1');
fails_with($target, 'loader', "SELECT incload_refresh('seen')", '55P03', qr/lock timeout/, 'a swap waits for who writes');
$reader->query_safe('ROLLBACK');

# 7. a transaction that is prepared, and a crash before its end
new_job('prepared', '');
as_loader($target, "BEGIN; SELECT incload_run('prepared'); PREPARE TRANSACTION 'load'");
$target->stop('immediate');
$target->start;
as_loader($target, "COMMIT PREPARED 'load'");
is_whole('dw.prepared', 'prepared');

# 8. who decodes
new_job('decoded', '');
my $says = "SELECT what FROM incload_explain('decoded') WHERE what ~ '^(first load|apply)'";
$target->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('ours', 'pgoutput')");
is(as_loader($target, $says), 'first load', 'pgoutput decodes what is published, and nothing else');
$target->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('other', 'test_decoding')");
is(as_loader($target, $says), 'apply (no first load: a logical replication slot of this database may decode the target)',
	'another plugin may decode everything');
as_loader($target, "SELECT incload_run('decoded')");
is($target->safe_psql('postgres', "SELECT count(*) FROM pg_logical_slot_get_changes('other', NULL, NULL) WHERE data LIKE 'table dw.decoded: INSERT%'"),
	$rows - 10, 'and does');
$target->safe_psql('postgres', "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots");

# 9. a standby gets it all
$target->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($target, 'base', has_streaming => 1);
$standby->start;
new_job('streamed', '');
as_loader($target, "CREATE INDEX ON dw.streamed (updated_at); SELECT incload_run('streamed')");
$target->wait_for_catchup($standby, 'replay', $target->lsn('insert'));
is( $standby->safe_psql('postgres', q{
		SET enable_seqscan = off;
		SELECT count(*) FROM dw.streamed WHERE id > 0; SELECT count(*) FROM dw.streamed WHERE updated_at > '2000-01-01';
		SELECT length(v) FROM dw.streamed WHERE id = 77}),
	join("\n", $rows - 10, $rows - 10, 12800), 'a standby has the rows and the indexes');
$standby->stop;

# 10. without WAL of the rows
$target->append_conf('postgresql.conf', "wal_level = minimal\nmax_wal_senders = 0\nwal_skip_threshold = 0");
$target->restart;
new_job('minimal', '');
$target->safe_psql('postgres', 'CHECKPOINT');
my $lsn = $target->lsn('insert');
as_loader($target, "SELECT incload_run('minimal')");
my ($written, $size) = split /\|/, $target->safe_psql('postgres', "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$lsn'), pg_total_relation_size('dw.minimal')");
cmp_ok($written, '<', $size / 2, 'under wal_level minimal the rows are not logged');
$target->stop('immediate');
$target->start;
is_whole('dw.minimal', 'minimal, after a crash');

done_testing();
