# What was seen is not sent again: of the strip that a lookback covers, the
# source sends the rows that were written since the last run, and all of it only
# after what makes the mark void.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(source => "restart_after_crash = on\nautovacuum_freeze_max_age = 2000000000");
my $page = 32768;    # transactions of which pg_xact keeps the state on one page

# move_xids TO: the source's next transaction, at the begin of a page, is TO
sub move_xids
{
	my ($to) = @_;

	$source->stop;
	command_ok([ 'pg_resetwal', '-D', $source->data_dir, '-x', $to ], "the next transaction is $to");
	$source->start;
	freeze();
	return;
}

# before anything is written with a number that would seem to be of the past
sub freeze
{
	$source->command_ok([ 'vacuumdb', '--all', '--freeze', '--quiet' ], 'frozen');
	return;
}

# one page before the numbers of 32 bits begin again
$source->safe_psql('postgres', 'ALTER DATABASE template0 ALLOW_CONNECTIONS true');
freeze();
move_xids(2**32 - $page);

# rows of the last five hours, and some without a time
$source->safe_psql('postgres', q{
	CREATE TABLE strip (id int PRIMARY KEY, v int, note text, updated_at timestamptz);
	INSERT INTO strip SELECT i, 0, 'n', CASE WHEN i > 20 THEN now() - i * interval '15 s' END FROM generate_series(1, 1000) i;
	CREATE INDEX ON strip (updated_at);
	CREATE TABLE probe (id int PRIMARY KEY, updated_at timestamptz NOT NULL);
	CREATE TABLE tie (id int PRIMARY KEY, v int, updated_at timestamptz NOT NULL);
	INSERT INTO tie SELECT i, 0, now() - interval '1 hour' FROM generate_series(1, 30) i;
	CREATE TABLE parts (id int, updated_at timestamptz NOT NULL) PARTITION BY RANGE (id);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (101);
	INSERT INTO parts SELECT i, now() - i * interval '1 minute' FROM generate_series(1, 100) i;
	CREATE TABLE parts_2 (id int NOT NULL, updated_at timestamptz NOT NULL);
	INSERT INTO parts_2 SELECT i, now() - i * interval '1 minute' FROM generate_series(101, 150) i;
});
foreign_table($target, qw(strip probe parts tie));
as_loader($target, q{
	SELECT incload_create_job('strip', 'src.strip', 'dw.strip', 'upsert', 'updated_at', '{id}', options => '{"lookback": "1 day"}');
	SELECT incload_create_job('probe', 'src.probe', 'dw.probe', 'upsert', 'updated_at', '{id}');
	SELECT incload_create_job('tie', 'src.tie', 'dw.tie', 'upsert', 'updated_at', '{id}', options => '{"lookback": "1 day", "batch_rows": 10}');
	SELECT incload_create_job('parts', 'src.parts', 'dw.parts', 'upsert', 'updated_at', '{id}', options => '{"lookback": "1 day"}');
});

# what a run reads, and does
sub run_job
{
	my ($job) = @_;
	return as_loader($target, "SELECT rows_read, rows_inserted, rows_updated, rows_unchanged FROM incload_run('@{[ $job || 'strip' ]}')");
}

# nothing is read, and not a byte of a row is sent: what there is frames a COPY
sub reads_nothing
{
	my ($name, $job) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(run_job($job), '0|0|0|0', "$name: nothing is read");
	cmp_ok(last_run($target, $job || 'strip', 'bytes_read'), '<', 30, "$name: nor sent");
	return;
}

is(run_job(), '1000|1000|0|0', 'the first run reads all');
reads_nothing('then');

# what was written since, wherever its watermark lies
$source->safe_psql('postgres', q{
	UPDATE strip SET v = 1 WHERE id IN (5, 500);
	UPDATE strip SET v = 1, updated_at = now() WHERE id = 501;
	INSERT INTO strip VALUES (1001, 1, 'late', now() - interval '3 hours'), (1002, 1, 'untimed', NULL);
});
is(run_job(), '5|2|3|0', 'rows of the strip, and without a watermark, are sent if they were written since');
reads_nothing('and only once');

# by a transaction that was open, in subtransactions that are over
my $late = session($source, scalar(getpwuid($<)));
$late->query_safe(q{BEGIN; SAVEPOINT a; UPDATE strip SET v = 2 WHERE id = 600; RELEASE a});
$source->safe_psql('postgres', q{UPDATE strip SET v = 2 WHERE id = 601});
is(run_job(), '1|0|1|0', 'who is open keeps nobody else back');
is(run_job(), '1|0|0|1', 'what was written since he began is sent again');
$late->query_safe(q{SAVEPOINT b; UPDATE strip SET v = 2 WHERE id = 602; RELEASE b; SAVEPOINT c; UPDATE strip SET v = 3 WHERE id = 603; ROLLBACK TO c});
$late->query_safe(q{SELECT count(*) FROM strip});
$late->query_safe('COMMIT');
$late->quit;
is(run_job(), '3|0|2|1', 'his own rows come when he is over');
reads_nothing('after him');

# a reader who stays in his transaction writes nothing, and nothing is sent for him
my $reader = session($source, scalar(getpwuid($<)));
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM strip');
foreach my $n (1 .. 3)
{
	$source->safe_psql('postgres', "UPDATE strip SET v = $n, updated_at = now() WHERE id = 700");
	is(run_job(), '1|0|1|0', "run $n beside a reader: what was committed a moment ago, and no more");
}
$reader->query_safe('COMMIT');
$reader->quit;

# the numbers of transactions begin again; subtransactions use them up the fastest
$source->safe_psql('postgres', q{UPDATE strip SET v = 10 WHERE id = 100});
$source->safe_psql('postgres', q{
	CREATE TABLE used (x int);
	DO $$ BEGIN FOR i IN 1 .. 34 LOOP
		FOR j IN 1 .. 1000 LOOP BEGIN INSERT INTO used VALUES (j); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP;
		COMMIT;
	END LOOP; END $$;
	UPDATE strip SET v = 11 WHERE id IN (101, 102);
});
is(as_loader($target, q{SELECT mark < '4294967296'::xid8 FROM incload.checkpoint WHERE job = 'strip'}), 't', 'the mark is from before the numbers begin again');
cmp_ok($source->safe_psql('postgres', 'SELECT min(xmin::text::bigint) FROM strip'), '<', $page, 'and some rows are from after it');
is(run_job(), '3|0|3|0', 'rows from before and after it are sent, and no others');
is(as_loader($target, q{SELECT mark > '4294967296'::xid8 FROM incload.checkpoint WHERE job = 'strip'}), 't', 'the mark counts on');
reads_nothing('after that');

# reads_again NAME WHAT [ROWS]: WHAT makes the mark void; what is written meanwhile arrives. ROWS: which there are to be read.
my $round = 2000;
sub reads_again
{
	my ($name, $what, $rows) = @_;
	my ($read, $expected);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	reads_nothing("before $name");
	$what->();
	$round++;
	$source->safe_psql('postgres', qq{
		INSERT INTO strip VALUES ($round, 1, 'meanwhile', now() - interval '2 hours');
		UPDATE strip SET v = $round, note = 'meanwhile' WHERE id = 800});
	$expected = $source->safe_psql('postgres', 'SELECT count(*) FROM strip WHERE ' . ($rows || 'true'));
	is(run_job(), "$expected|1|1|" . ($expected - 2), "$name: the strip is read again, and what was written meanwhile arrives");
	reads_nothing("after $name");
	return;
}

sub alter
{
	my ($options) = @_;
	return sub { as_loader($target, "SELECT incload_alter_job('strip', options => '$options')") };
}

reads_again('a restart of the source', sub { $source->restart });
reads_again('a crash that keeps its start time', sub {
	my $started = $source->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
	crash_backend($source);
	is($source->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'it is the same server process');
});
reads_again('incload_accept_source', sub { as_loader($target, q{SELECT incload_accept_source('strip')}) });
reads_again('another lookback', alter('{"lookback": "2 days"}'));
reads_again('a filter', alter('{"filter": "id % 2 = 0 OR id > 2000"}'), 'id % 2 = 0 OR id > 2000');
$source->safe_psql('postgres', q{UPDATE strip SET v = -1 WHERE id = 301});
reads_nothing('a row that the filter leaves out');
is(as_loader($target, q{SELECT v FROM dw.strip WHERE id = 301}), '0', 'is not loaded');
alter('{"filter": null}')->();
is(run_job(), $source->safe_psql('postgres', q{SELECT count(*) || '|0|1|' || count(*) - 1 FROM strip}), 'without the filter it arrives');
reads_again('columns left out', alter('{"exclude": ["note"]}'));
$source->safe_psql('postgres', q{UPDATE strip SET note = 'changed' WHERE id IN (302, 303)});
is(run_job(), '2|0|0|2', 'a column that is left out changes');
alter('{"exclude": null}')->();
like(run_job(), qr/^\d+\|0\|3\|\d+$/, 'and arrives when it is not left out any more');
reads_again('a list of columns', alter('{"columns": ["id", "v", "note"]}'));
alter('{"columns": null}')->();
like(run_job(), qr/^\d+\|0\|\d+\|\d+$/, 'all columns');
is(as_loader($target, 'SELECT count(*) FROM (TABLE src.strip EXCEPT TABLE dw.strip) d'), '0', 'and all rows are equal');
alter('{"transforms": {"note": "upper(note)"}}')->();
is(run_job(), $source->safe_psql('postgres', q{SELECT count(*) || '|0|' || count(*) || '|0' FROM strip}), 'a transform changes all of the strip');
reads_nothing('after a transform');
alter('{"transforms": null}')->();
run_job();
as_loader($target, 'ALTER TABLE dw.strip ALTER v TYPE bigint');
is(run_job(), $source->safe_psql('postgres', q{SELECT count(*) || '|0|0|' || count(*) FROM strip}), 'another type in the target: the strip is read again');
as_loader($target, q{SELECT incload_alter_job('strip', target => 'dw.another')});
is(run_job(), $source->safe_psql('postgres', q{SELECT count(*) || '|' || count(*) || '|0|0' FROM strip}), 'another target: it gets everything');
as_loader($target, q{DROP TABLE dw.another; CREATE TABLE dw.another (LIKE src.strip); ALTER TABLE dw.another ADD PRIMARY KEY (id)});
fails_with($target, 'loader', q{SELECT incload_run('strip')}, '55000', qr/not the table it was/, 'a target that was created again');
as_loader($target, q{SELECT incload_alter_job('strip', target => 'dw.another')});
is(run_job(), $source->safe_psql('postgres', q{SELECT count(*) || '|' || count(*) || '|0|0' FROM strip}), 'which is said to be right gets everything, too');
reads_nothing('after that');

# a partition that is attached has rows of the strip that are older than the mark
run_job('parts');
reads_nothing('partitions', 'parts');
$source->safe_psql('postgres', 'ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (101) TO (201)');
is(run_job('parts'), '150|50|0|100', 'a partition that is attached is read');
reads_nothing('partitions', 'parts');

# a batch ends within a tie: what is above the place is not seen yet, however old it is
as_loader($target, 'ALTER TABLE dw.tie ADD CONSTRAINT enough CHECK (id < 15)');
fails_with($target, 'loader', q{CALL incload_run_in_batches('tie')}, '23514', qr/enough/, 'a run that fails in its second batch');
is(as_loader($target, q{SELECT seen = loaded_to, seen_tie_key, bound_side, tie_key FROM incload.checkpoint WHERE job = 'tie'}), 't|{10}|after|{10}', 'has seen the tie up to a key');
$source->safe_psql('postgres', 'UPDATE tie SET v = 1 WHERE id IN (4, 20)');
as_loader($target, 'ALTER TABLE dw.tie DROP CONSTRAINT enough');
is(run_job('tie'), '21|20|1|0', 'the rest is read, and below the key what was written since');
is(as_loader($target, q{SELECT seen_tie_key IS NULL, tie_key IS NULL FROM incload.checkpoint WHERE job = 'tie'}), 't|t', 'then the tie is seen');
reads_nothing('after the tie', 'tie');

# More than 2^30 transactions, of which the order could be mistaken. A restart goes with them here,
# which is made forgotten: the mark is taken for one of the server as it runs now.
sub forget_restart
{
	run_job('probe');
	$target->safe_psql('postgres', q{UPDATE incload.checkpoint_store c SET epoch = regexp_replace(p.epoch, '[^/]*$', substring(c.epoch FROM '[^/]*$')) FROM incload.checkpoint_store p, incload.job_store j, incload.job_store k
		WHERE c.job_id = j.job_id AND j.job = 'strip' AND p.job_id = k.job_id AND k.job = 'probe'});
	return;
}
move_xids(2**29);
forget_restart();
$source->safe_psql('postgres', q{UPDATE strip SET v = 20 WHERE id = 400});
is(run_job(), '1|0|1|0', 'after 2^29 transactions the mark holds');
reads_again('more than 2^30 transactions', sub { move_xids(2**29 + 2**30 + $page); forget_restart() });
is(differences($source, $target, 'strip', 'dw.another'), '0|0', 'no row was lost');

done_testing();
