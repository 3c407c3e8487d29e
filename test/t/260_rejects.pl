# Rows that cannot be taken are put aside, in whatever way they are refused and
# by either reader, without loss, doubling or orphans; and are loaded once they can be.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use IncloadTest;

my ($source, $target) = two_nodes(source => "max_wal_size = '2GB'", target => "restart_after_crash = on\nmax_wal_size = '2GB'\ntimezone = 'UTC'");
$ENV{PGCLIENTENCODING} = 'UTF8';

my $adds_up = 'rows_read = rows_inserted + rows_updated + rows_unchanged + rows_deleted + rows_superseded + rows_suppressed + rows_rejected';
my $counts = "status, rows_read, rows_inserted, rows_updated, rows_unchanged, rows_rejected, $adds_up";
my $told = q{SELECT string_agg(concat_ws(' ', key->>'id', sqlstate), ', ' ORDER BY (key->>'id')::int) FROM incload.reject WHERE job = '%s'};

# what is refused before it is staged: by its type, a domain, a length, the key
$source->safe_psql('postgres', q{
	CREATE TABLE typed (id int, updated_at timestamptz NOT NULL DEFAULT now(), n bigint, t text, d int, at text);
	INSERT INTO typed (id, n, t, d) VALUES (1, 1, 'good', 1), (2, 3000000000, 'range', 1), (3, 3, 'much too long', 1), (4, 4, 'domain', -1),
		(NULL, 5, 'nokey', 1), (6, 6, E'\t\n\\\\N', 6), (7, NULL, NULL, NULL);
});
foreign_table($target, 'typed');
as_loader($target, q{CREATE DOMAIN dw.positive AS int CHECK (VALUE > 0)});
foreach my $reader ('copy', 'relation')
{
	as_loader($target, qq{
		CREATE TABLE dw.typed_$reader (id int PRIMARY KEY, updated_at timestamptz, n int, t varchar(8), d dw.positive, at text);
		SELECT incload_create_job('typed_$reader', 'src.typed', 'dw.typed_$reader', 'upsert', 'updated_at', '{id}', options => '{"reader": "$reader", "reject_limit": 4}');
		SELECT incload_run('typed_$reader')});
	is(last_run($target, "typed_$reader", $counts), 'succeeded|7|3|0|0|4|t', "$reader: bad values are counted");
	is(as_loader($target, qq{SELECT string_agg(key->>'id' || ' ' || sqlstate, ', ' ORDER BY key->>'id') FROM incload.reject WHERE job = 'typed_$reader' AND key->>'id' IS NOT NULL}),
		'2 22003, 3 22001, 4 23514', "$reader: and told apart");
	is(as_loader($target, qq{SELECT "row"->>'t', sqlstate, error FROM incload.reject WHERE job = 'typed_$reader' AND key->>'id' IS NULL}) =~ s/\n.*//sr,
		'nokey|23502|null value in key column "id" of source src.typed', "$reader: a row without a key is one of them");
	is(as_loader($target, "SELECT id, n, t, d FROM dw.typed_$reader ORDER BY id"), "1|1|good|1\n6|6|\t\n\\N|6\n7|||", "$reader: the others are there");
}
$source->safe_psql('postgres', q{UPDATE typed SET n = 2 WHERE id = 2; UPDATE typed SET t = 'short', updated_at = now() + interval '1 s' WHERE id = 3});
foreach my $reader ('copy', 'relation')
{
	is(as_loader($target, "SELECT * FROM incload_retry_rejects('typed_$reader')"), '2|2|0', "$reader: what was mended at the source is loaded");
	is(as_loader($target, "SELECT id, n, t FROM dw.typed_$reader WHERE id IN (2, 3) ORDER BY id"), "2|2|range\n3|3|short", "$reader: as it is there now");
}

# an older version never comes back: what is put aside is not what is loaded
$source->safe_psql('postgres', q{UPDATE typed SET d = 44, t = 'newer', updated_at = now() + interval '2 s' WHERE id = 4});
as_loader($target, q{INSERT INTO dw.typed_copy VALUES (4, now() + interval '1 hour', 1, 'newest', 1)});
is(as_loader($target, q{SELECT * FROM incload_retry_rejects('typed_copy')}), '1|1|0', 'a retry reads by the key');
is(as_loader($target, q{SELECT t, d FROM dw.typed_copy WHERE id = 4}), 'newer|44', 'and writes what the source has');
$source->safe_psql('postgres', q{DELETE FROM typed WHERE id = 4});
is(as_loader($target, q{SELECT * FROM incload_retry_rejects('typed_relation')}), '0|1|1', 'a row that the source has no more is done with');
is(as_loader($target, q{SELECT count(*) FROM dw.typed_relation WHERE id = 4}), '0', 'and not loaded');

# one member of a role sees and retries what belongs to it, and nobody else
$target->safe_psql('postgres', 'CREATE ROLE stranger LOGIN; CREATE ROLE member LOGIN IN ROLE loader');
is(as_role($target, 'stranger', 'SELECT count(*) FROM incload.reject'), '0', 'a stranger sees no rejects');
fails_with($target, 'stranger', q{SELECT incload_retry_rejects('typed_copy')}, '42501', qr/permission denied for job/, 'nor retries them');
is(as_role($target, 'member', q{SELECT count(*) FROM incload.reject WHERE job = 'typed_copy'}), '1', 'a member of the owner sees them');
is(as_role($target, 'member', q{SELECT * FROM incload_retry_rejects('typed_copy')}), '0|1|0', 'and retries them');

# keys of other types on both sides, and several columns
$source->safe_psql('postgres', q{
	CREATE TABLE keyed (a numeric(10,2) NOT NULL, b text NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(), n int, PRIMARY KEY (a, b));
	INSERT INTO keyed VALUES (1.50, 'x''y\\', now(), 1), (2.00, '', now(), -1), (3, E'two\nlines', now(), -2)});
foreign_table($target, 'keyed');
as_loader($target, q{CREATE TABLE dw.keyed (a numeric, b varchar(20), updated_at timestamptz, n int CHECK (n > 0), PRIMARY KEY (b, a));
	SELECT incload_create_job('keyed', 'src.keyed', 'dw.keyed', 'upsert', 'updated_at', options => '{"reject_limit": 2}');
	SELECT incload_run('keyed')});
is(as_loader($target, q{SELECT key FROM incload.reject WHERE job = 'keyed' ORDER BY key->>'a'}), qq({"a": 2.00, "b": ""}\n{"a": 3.00, "b": "two\\\\nlines"}) =~ s/\\\\n/\\n/r, 'a key of two columns');
as_loader($target, q{ALTER TABLE dw.keyed DROP CONSTRAINT keyed_n_check});
is(as_loader($target, q{SELECT * FROM incload_retry_rejects('keyed')}), '2|0|0', 'by which they are found again');
is(differences($source, $target, '(SELECT a, b, updated_at, n FROM keyed)', 'dw.keyed'), '0|0', 'both sides are equal');

# encodings: bytes that are no text here, and characters that there are none for here
$source->safe_psql('postgres', q{CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'});
$source->safe_psql('ascii', q{CREATE TABLE raw (id int PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now(), t text);
	INSERT INTO raw VALUES (1, now(), E'\xc3\xa4'), (2, now(), E'a\xe4b\\\\c\td'), (3, now(), 'plain'); GRANT SELECT ON raw TO reader;
	CREATE TABLE raw_log (id int, t text); INSERT INTO raw_log VALUES (1, 'ok'), (2, E'\xff'), (3, 'ok'); GRANT SELECT ON raw_log TO reader});
$source->safe_psql('postgres', q{CREATE TABLE euro (id int PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now(), t text);
	INSERT INTO euro VALUES (1, now(), U&'\00e4'), (2, now(), U&'\20ac \00e4'), (3, now(), 'plain'); GRANT SELECT ON euro TO reader});
my $port = $source->port;
$target->safe_psql('postgres', qq{CREATE SERVER ascii FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '$port', dbname 'ascii');
	GRANT USAGE ON FOREIGN SERVER ascii TO loader; CREATE USER MAPPING FOR loader SERVER ascii OPTIONS (user 'reader', password 'reader''s secret')});
as_loader($target, q{IMPORT FOREIGN SCHEMA public FROM SERVER ascii INTO src;
	SELECT incload_create_job('raw', 'src.raw', 'dw.raw', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 1}');
	SELECT incload_run('raw');
	CREATE TABLE dw.raw_log (id int, t text);
	SELECT incload_create_job('raw_log', 'src.raw_log', 'dw.raw_log', 'full', key => '{}', options => '{"reject_limit": 1}');
	SELECT incload_run('raw_log')});
is(last_run($target, 'raw', $counts), 'succeeded|3|2|0|0|1|t', 'SQL_ASCII to UTF8: bytes that are none');
is(as_loader($target, q{SELECT key->>'id', "row"->>'t', is_exact, sqlstate, error FROM incload.reject WHERE job = 'raw'}),
	"2|a\\xe4b\\c\td|f|22021|invalid byte sequence for encoding \"UTF8\": 0xe4 0x62 0x5c", 'are shown, and what they are');
is(as_loader($target, q{SELECT string_agg(t, ' ' ORDER BY id) FROM dw.raw}), "\xc3\xa4 plain", 'the others are loaded');
$source->safe_psql('ascii', q{UPDATE raw SET t = 'mended' WHERE id = 2});
is(as_loader($target, q{SELECT * FROM incload_retry_rejects('raw')}), '1|0|0', 'mended at the source, it is loaded');
is(as_loader($target, q{SELECT t FROM dw.raw WHERE id = 2}), 'mended', 'as it is');
is(as_loader($target, q{SELECT * FROM incload_retry_rejects('raw_log')}), '0|1|0', 'without a key, what is not exact is not loaded');
is(as_loader($target, q{SELECT count(*) FROM dw.raw_log}), '2', 'nor doubled');
as_loader($target, q{SELECT incload_create_job('raw_fdw', 'src.raw', 'dw.raw_fdw', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 1, "reader": "relation"}')});
$source->safe_psql('ascii', q{UPDATE raw SET t = E'\xe4' WHERE id = 2});
fails_with($target, 'loader', q{SELECT incload_run('raw_fdw')}, '22021', qr/invalid byte sequence/, 'by the wrapper, the source itself fails, and the run with it');
$target->safe_psql('postgres', q{CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'});
$target->safe_psql('latin1', qq{CREATE EXTENSION postgres_fdw; CREATE EXTENSION incload;
	CREATE SERVER source FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '$port', dbname 'postgres');
	CREATE USER MAPPING FOR CURRENT_USER SERVER source OPTIONS (user 'reader', password 'reader''s secret');
	IMPORT FOREIGN SCHEMA public LIMIT TO (euro) FROM SERVER source INTO public;
	SELECT incload_create_job('euro', 'euro', 'euro_copy', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 1}')});
$target->safe_psql('latin1', q{SELECT incload_run('euro')});
is($target->safe_psql('latin1', q{SELECT string_agg(t, ' ' ORDER BY id) FROM euro_copy}), "\xc3\xa4 plain", 'UTF8 to LATIN1: a character that there is none for');
is($target->safe_psql('latin1', q{SELECT key->>'id', "row"->>'t', is_exact, sqlstate FROM incload.reject}), '2|\xe2\x82\xac \xc3\xa4|f|22P05', 'is put aside');

# several readers at once, each with bad rows
$source->safe_psql('postgres', q{
	CREATE TABLE wide (id int PRIMARY KEY, updated_at timestamptz NOT NULL, n bigint);
	INSERT INTO wide SELECT g, '2024-01-01Z'::timestamptz + g * interval '1 s', CASE WHEN g % 1000 = 7 THEN 3000000000 ELSE g END FROM generate_series(1, 20000) g});
foreign_table($target, 'wide');
as_loader($target, q{CREATE TABLE dw.wide (id int PRIMARY KEY, updated_at timestamptz, n int);
	SELECT incload_create_job('wide', 'src.wide', 'dw.wide', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 20, "parallel": 3}');
	SELECT incload_run('wide')});
is(last_run($target, 'wide', $counts), 'succeeded|20000|19980|0|0|20|t', 'three readers');
is(as_loader($target, q{SELECT count(*) FROM incload.reject WHERE job = 'wide' AND (key->>'id')::int % 1000 = 7}), '20', 'each bad row is told');

# in a worker, and in windows of a backfill
as_loader($target, q{CREATE TABLE dw.later (id int PRIMARY KEY, updated_at timestamptz, n int CHECK (n % 1000 <> 3));
	SELECT incload_create_job('later', 'src.wide', 'dw.later', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 40, "batch_rows": 3000}')});
my $run = as_loader($target, q{SELECT incload_start('later')});
wait_for(60, sub { as_loader($target, "SELECT status FROM incload.run WHERE run_id = $run") ne 'running' });
is(last_run($target, 'later', $counts), 'succeeded|20000|19960|0|0|40|t', 'in a background worker');
is(as_loader($target, q{SELECT message LIKE '40 rows could not be taken%', severity FROM incload.event WHERE code = 'rows_rejected' AND run_id = } . $run), 't|ticket', 'one event for all its batches');
as_loader($target, q{ALTER TABLE dw.later DROP CONSTRAINT later_n_check});
is(as_loader($target, q{SELECT * FROM incload_retry_rejects('later')}), '20|20|0', 'those that the target takes by now');
as_loader($target, q{DELETE FROM dw.later WHERE id BETWEEN 1001 AND 3000; ALTER TABLE dw.later ADD CHECK (n % 1000 <> 5) NOT VALID});
$target->safe_psql('postgres', 'SELECT incload_worker_start()');
as_loader($target, q{SELECT incload_backfill('later', '2024-01-01 00:16:41Z', '2024-01-01 00:50:01Z', '500 seconds')});
wait_for(60, sub { as_loader($target, q{SELECT bool_and(state <> 'pending') FROM incload.batch_window}) eq 't' });
is(as_loader($target, q{SELECT sum(rows_read), sum(rows_rejected), bool_and(} . $adds_up . q{) FROM incload.run WHERE job = 'later' AND kind = 'backfill'}), '2000|4|t', 'windows of a backfill');
is(as_loader($target, q{SELECT count(*), count(DISTINCT key) FROM incload.reject WHERE job = 'later'}), '22|22', 'what was bad before is not there twice');
$target->safe_psql('postgres', 'SELECT incload_worker_stop()');

# what is nobody's fault is not put aside: a lock, a time that is up
as_loader($target, q{
	CREATE TABLE dw.slow (id int PRIMARY KEY, updated_at timestamptz, n bigint);
	CREATE TABLE dw.gate (i int);
	CREATE FUNCTION dw.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 5 THEN LOCK dw.gate; END IF; RETURN NEW; END $$;
	CREATE TRIGGER wait BEFORE INSERT ON dw.slow FOR EACH ROW EXECUTE FUNCTION dw.wait();
	SELECT incload_create_job('slow', 'src.wide', 'dw.slow', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 1000, "filter": "id < 10", "lock_timeout": "100 ms"}')});
my $holder = session($target, 'loader');
$holder->query_safe('BEGIN; LOCK dw.gate');
fails_with($target, 'loader', q{SELECT incload_run('slow')}, '55P03', qr/lock timeout/, 'a lock that is not to be had');
as_loader($target, q{SELECT incload_alter_job('slow', options => '{"lock_timeout": null, "statement_timeout": "300 ms"}')});
fails_with($target, 'loader', q{SELECT incload_run('slow')}, '57014', qr/canceling statement/, 'a time that is up');
$holder->query_safe('ROLLBACK');
$holder->quit;
is(as_loader($target, q{SELECT count(*) FROM incload.reject WHERE job = 'slow'}), '0', 'no row is to blame');

# killed in the middle: what is committed has its rejects, and nothing else has
$source->safe_psql('postgres', q{CREATE TABLE killed (id int PRIMARY KEY, updated_at timestamptz NOT NULL, n int);
	INSERT INTO killed SELECT g, '2024-01-01Z'::timestamptz + g * interval '1 s', CASE WHEN g % 100 = 50 THEN -g ELSE g END FROM generate_series(1, 20000) g});
foreign_table($target, 'killed');
as_loader($target, q{CREATE TABLE dw.killed (id int PRIMARY KEY, updated_at timestamptz, n int CHECK (n > 0));
	SELECT incload_create_job('killed', 'src.killed', 'dw.killed', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 200, "batch_rows": 1000, "max_rate": 10000, "lookback": "0"}')});
my $running = start_sql($target, 'loader', q{CALL incload_run_in_batches('killed')});
wait_for(60, sub { as_loader($target, q{SELECT coalesce(max(batches), 0) FROM incload.run WHERE job = 'killed'}) >= 3 });
my $pid = as_loader($target, q{SELECT pid FROM incload.run WHERE job = 'killed' AND status = 'running'});
kill 'KILL', $pid;
$running->finish;
wait_for(60, sub { system($target->installed_command('pg_isready'), '-q', '-h', $target->host, '-p', $target->port) == 0 });
my $state = q{SELECT (SELECT count(*) FROM incload.reject WHERE job = 'killed') + (SELECT count(*) FROM dw.killed) - max(rows_read), max(rows_rejected) - (SELECT count(*) FROM incload.reject WHERE job = 'killed'), max(batches) BETWEEN 3 AND 19 FROM incload.run WHERE job = 'killed'};
is(as_loader($target, $state), '0|0|t', 'a server that is killed leaves no orphan, and no row without a place');
as_loader($target, q{CALL incload_run_in_batches('killed')});
is(as_loader($target, q{SELECT count(*), count(DISTINCT key) FROM incload.reject WHERE job = 'killed'}), '200|200', 'the next run goes on');
is(as_loader($target, q{SELECT count(*) FROM dw.killed}), '19800', 'to the end');
as_loader($target, q{ALTER TABLE dw.killed DROP CONSTRAINT killed_n_check});
is(as_loader($target, q{SELECT * FROM incload_retry_rejects('killed')}), '200|0|0', 'all that was put aside is loaded');
is(differences($source, $target, 'killed', 'dw.killed'), '0|0', 'both sides are equal');

# a dump carries what is put aside, and the restored job loads it
my $dump = $target->backup_dir . '.sql';
my $kept = q{SELECT job, key, "row", sqlstate, error, at, is_exact FROM incload.reject ORDER BY reject_id};
my $before = $target->safe_psql('postgres', $kept);
cmp_ok(scalar(split(/\n/, $before)), '>', 20, 'there is something to dump');
command_ok([ 'pg_dump', '-h', $target->host, '-p', $target->port, '-f', $dump, 'postgres' ], 'dumped');
$target->safe_psql('postgres', 'CREATE DATABASE restored TEMPLATE template0');
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-h', $target->host, '-p', $target->port, '-d', 'restored', '-f', $dump ], 'restored');
is($target->safe_psql('restored', $kept), $before, 'with each row that was put aside');
$target->safe_psql('restored', 'ALTER TABLE dw.later ALTER n TYPE bigint');
is(as_role($target, 'loader', q{SELECT * FROM incload_retry_rejects('later')}, 'restored'), '20|2|0', 'which is loaded there');

# a million rows with ten bad ones, of two kinds, cost little more than a million good ones
$source->safe_psql('postgres', q{CREATE TABLE million (id int PRIMARY KEY, updated_at timestamptz NOT NULL, n bigint, t text);
	INSERT INTO million SELECT g, '2024-01-01Z'::timestamptz + g * interval '1 ms', CASE WHEN g % 200000 = 77777 THEN 3000000000 ELSE g END,
		CASE WHEN g % 200000 = 123456 THEN 'bad' ELSE 'row ' || g END FROM generate_series(1, 1000000) g});
foreign_table($target, 'million');
my $started = time();
as_loader($target, q{CREATE TABLE dw.million (id int PRIMARY KEY, updated_at timestamptz, n int, t text CHECK (t <> 'bad'));
	SELECT incload_create_job('million', 'src.million', 'dw.million', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 10}');
	SELECT incload_run('million')});
note sprintf('%.1f s', time() - $started);
is(last_run($target, 'million', $counts), 'succeeded|1000000|999990|0|0|10|t', 'a million rows, ten of them bad');
is(as_loader($target, sprintf($told, 'million')),
	'77777 22003, 123456 23514, 277777 22003, 323456 23514, 477777 22003, 523456 23514, 677777 22003, 723456 23514, 877777 22003, 923456 23514', 'which are found, each');
is(as_loader($target, q{SELECT count(*), sum(id) FROM dw.million}), '999990|' . (1000000 * 1000001 / 2 - 5 * (77777 + 123456) - 2 * 10 * 200000), 'and the others are loaded');

$target->stop;
$source->stop;
done_testing();
