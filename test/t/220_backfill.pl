# A range of the source is read again, window by window, by several workers: each window
# once, whoever is killed, beside runs that load what is new.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => q{
	shared_preload_libraries = 'incload'
	incload.naptime = '100ms'
	incload.max_workers = 6
	max_worker_processes = 16
	restart_after_crash = on
});

sub comes_to
{
	my ($query, $wanted, $name, $seconds) = @_;
	return becomes(sub { try_query($target, $query, 'loader') }, $wanted, $name, $seconds || 90);
}

# 400 days of 50 rows
$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text NOT NULL, updated_at timestamptz NOT NULL);
	CREATE INDEX ON items (updated_at);
	INSERT INTO items SELECT i, 'v', '2020-01-01 00:00Z'::timestamptz + (i / 50) * interval '1 day' + (i % 50) * interval '1 min' FROM generate_series(0, 19999) i;
	CREATE TABLE numbers (id bigint PRIMARY KEY, v text NOT NULL);
	INSERT INTO numbers SELECT i, 'v' FROM generate_series(1, 1000) i;
	CREATE FUNCTION slow() RETURNS boolean LANGUAGE plpgsql VOLATILE AS 'BEGIN PERFORM pg_sleep(0.001); RETURN true; END';
	GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO reader});
foreign_table($target, 'items', 'numbers');
as_loader($target, q{
	SELECT incload_create_job('items', 'src.items', 'dw.items', 'upsert', 'updated_at', '{id}', options => '{"parallel": 3, "retry_delay": "100 ms"}');
	SELECT incload_create_job('numbers', 'src.numbers', 'dw.numbers', 'upsert', 'id', '{id}');
	SELECT incload_create_job('log', 'src.numbers', 'dw.log', 'append', 'id', '{}');
	SELECT incload_create_job('all', 'src.numbers', 'dw.all', 'full', key => '{id}');
	SELECT incload_run('items'), incload_run('numbers')});

# a backdated change, which no watermark tells of
$source->safe_psql('postgres', q{UPDATE items SET v = 'backdated' WHERE id % 100 = 7});
as_loader($target, q{SELECT incload_run('items')});
is(as_loader($target, q{SELECT count(*) FROM dw.items WHERE v = 'backdated'}), '0', 'a run does not see backdated changes');
my $checkpoint = as_loader($target, q{SELECT bound, bound_side, seen, mark, loaded_to FROM incload.checkpoint WHERE job = 'items'});
is(as_loader($target, q{SELECT incload_backfill('items', '2020-01-01Z', '2021-02-04Z', '1 month')}), '14', 'a range is cut into months');
is(as_loader($target, q{SELECT count(*) FROM dw.items WHERE v = 'backdated'}) < 201 ? 1 : 0, 1, 'the call returns at once');
comes_to(q{SELECT count(*) FROM incload.batch_window WHERE state = 'done'}, '14', 'all windows are loaded');
is_deeply([ differences($source, $target, 'items', 'dw.items') ], ['0|0'], 'and the target is equal to the source');
is(as_loader($target, q{SELECT min(low::timestamptz) = '2020-01-01Z', max(high::timestamptz) = '2021-02-04Z', sum(rows_read), count(DISTINCT run_id) FROM incload.batch_window}),
	't|t|20000|14', 'each row is read in one window');
is(as_loader($target, q{SELECT count(*), sum(rows_updated), sum(rows_unchanged), sum(rows_inserted) FROM incload.run WHERE kind = 'backfill' AND status = 'succeeded' AND trigger = 'backfill'}),
	'14|200|19800|0', 'each window is a run on record');
cmp_ok(as_loader($target, q{SELECT count(DISTINCT pid) FROM incload.run WHERE kind = 'backfill'}), '>', 1, 'several workers have loaded them');
is(as_loader($target, q{SELECT bound, bound_side, seen, mark, loaded_to FROM incload.checkpoint WHERE job = 'items'}), $checkpoint, 'the checkpoint has not moved');
is(as_loader($target, q{SELECT state, last_rows FROM incload.status WHERE job = 'items'}), 'ok|0', 'the status speaks of the last incremental run');
comes_to(q{SELECT severity, message FROM incload.event WHERE code = 'backfill_ended'}, 'info|a backfill of job items has ended: 14 windows are loaded, with 20000 rows, and 0 are not', 'an event tells the end, once');

# numbers, one window, the ends
is(as_loader($target, q{SELECT incload_backfill('numbers', '1', '10', '4')}), '3', 'numbers');
is(as_loader($target, q{SELECT string_agg(low || '-' || high, ' ' ORDER BY window_id) FROM incload.batch_window WHERE job = 'numbers'}), '1-5 5-9 9-10', 'the last window ends with the range');
comes_to(q{SELECT sum(rows_read) FROM incload.batch_window WHERE job = 'numbers' AND state = 'done'}, '9', 'the low end belongs to the range, the high end does not');
is(as_loader($target, q{SELECT incload_backfill('numbers', '1', '1001')}), '1', 'without a step it is one window');
comes_to(q{SELECT max(rows_read) FROM incload.batch_window WHERE job = 'numbers' AND state = 'done'}, '1000', 'of all rows');

# what makes no sense
foreach my $bad (
	[ q{'log', '1', '10', '1'}, '55000', qr/cannot be backfilled.*Without a key.*HINT/s ],
	[ q{'all', '1', '10', '1'}, '55000', qr/Strategy full/ ],
	[ q{'items', '2021-01-01', '2020-01-01', '1 day'}, '22023', qr/range of the backfill is empty/ ],
	[ q{'items', 'yesterdy', '2020-01-01', '1 day'}, '22007', qr/DETAIL:  from_value is a value of the watermark.*HINT/s ],
	[ q{'items', '2020-01-01', NULL, '1 day'}, '22004', qr/both ends/ ],
	[ q{'items', '2020-01-01', '2021-01-01', '0'}, '22023', qr/step size cannot equal zero/ ],
	[ q{'items', '2020-01-01', '2021-01-01', '1 second'}, '22023', qr/step is too small/ ],
	[ q{'numbers'}, '55000', qr/no backfill that was left unfinished/ ],
	[ q{'nobody', '1', '2'}, '42704', qr/nobody/ ])
{
	fails_with($target, 'loader', "SELECT incload_backfill($bad->[0])", $bad->[1], $bad->[2], "refused: $bad->[0]");
}
is(as_loader($target, q{SELECT count(*) FROM incload.batch_window WHERE state = 'pending'}), '0', 'and nothing of it is in the ledger');

# slow windows: progress, runs beside them, everybody killed
as_loader($target, q{SELECT incload_alter_job('items', options => '{"filter": "public.slow()", "lookback": "0"}')});
$source->safe_psql('postgres', q{UPDATE items SET v = 'backdated again' WHERE id % 100 = 8});
is(as_loader($target, q{SELECT incload_backfill('items', '2020-01-01Z', '2021-02-04Z', '4 days')}), '100', 'a hundred windows');
comes_to(q{SELECT done BETWEEN 3 AND 90 AND total = 100 AND rows_per_second > 0 AND time_left > '0 s' FROM incload.progress WHERE job = 'items'}, 't', 'incload.progress tells how far it is');
$source->safe_psql('postgres', q{INSERT INTO items VALUES (30000, 'new', now())});
as_loader($target, q{SELECT incload_run('items')});
is(as_loader($target, q{SELECT v FROM dw.items WHERE id = 30000}), 'new', 'a run waits for the windows under way, and no longer');
is(as_loader($target, q{SELECT count(*) FROM incload.progress WHERE job = 'items'}), '1', 'the backfill goes on meanwhile');
kill 'KILL', $target->safe_psql('postgres', q{SELECT min(pid) FROM incload.worker WHERE kind = 'runner' AND state = 'running'});
comes_to(q{SELECT count(*) > 0 FROM incload.worker WHERE job = 'items'}, 't', 'after a crash of the server it goes on by itself');
$source->stop('immediate');
$source->start;
comes_to(q{SELECT count(*) FROM incload.batch_window WHERE state = 'pending'}, '0', 'and after one of the source');
is_deeply([ differences($source, $target, 'items', 'dw.items') ], ['0|0'], 'the target is equal to the source');
is(as_loader($target, q{SELECT state, count(*) FROM incload.batch_window WHERE job = 'items' AND created_at = (SELECT max(created_at) FROM incload.batch_window WHERE job = 'items') GROUP BY 1}), 'done|100', 'every window is loaded');
is(as_loader($target, q{SELECT count(*) FROM (SELECT low FROM incload.batch_window w JOIN incload.run u USING (run_id) WHERE w.job = 'items' AND u.status = 'succeeded' GROUP BY low, w.created_at HAVING count(*) > 1) d}), '0', 'once');

# stopped, and gone on with
$source->safe_psql('postgres', q{UPDATE items SET v = 'third' WHERE id % 100 = 9});
as_loader($target, q{SELECT incload_backfill('items', '2020-01-01Z', '2021-02-04Z', '4 days')});
comes_to(q{SELECT done > 3 FROM incload.progress WHERE job = 'items'}, 't', 'another one');
is(as_loader($target, q{SELECT incload_cancel('items')}), 't', 'is cancelled');
comes_to(q{SELECT count(*) FROM incload.worker WHERE job = 'items'}, '0', 'and nobody works at it any more');
my $left = as_loader($target, q{SELECT count(*) FROM incload.batch_window WHERE state IN ('stopped')});
cmp_ok($left, '>', 3, 'the rest is left');
as_loader($target, q{SELECT incload_alter_job('items', options => '{"filter": null}')});
is(as_loader($target, q{SELECT incload_backfill('items')}), $left, 'until somebody goes on with it');
comes_to(q{SELECT count(*) FROM incload.batch_window WHERE state <> 'done'}, '0', 'to the end');
is_deeply([ differences($source, $target, 'items', 'dw.items') ], ['0|0'], 'and the target is equal to the source');

# windows that cannot be loaded
as_loader($target, q{ALTER TABLE dw.items ADD CHECK (v <> 'bad'); SELECT incload_alter_job('items', options => '{"pause_after": 3, "parallel": 1}')});
$source->safe_psql('postgres', q{UPDATE items SET v = 'bad' WHERE id % 1000 = 10});
as_loader($target, q{SELECT incload_backfill('items', '2020-01-01Z', '2021-02-04Z', '10 days')});
comes_to(q{SELECT count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'pending') FROM incload.batch_window}, '3|0', 'a backfill that fails and fails ends');
like(as_loader($target, q{SELECT severity || ' ' || message FROM incload.event WHERE code = 'backfill_stopped'}), qr/^page 3 windows of the backfill of job items have failed.*check constraint/s, 'and says why');
is(as_loader($target, q{SELECT enabled FROM incload.job WHERE job = 'items'}), 't', 'its job is not paused by that');
$source->safe_psql('postgres', q{UPDATE items SET v = 'good' WHERE v = 'bad'});
as_loader($target, q{SELECT incload_backfill('items')});
comes_to(q{SELECT count(*) FROM incload.batch_window WHERE state <> 'done'}, '0', 'mended, it goes on');
is_deeply([ differences($source, $target, 'items', 'dw.items') ], ['0|0'], 'to the end');

# rows that are there get what a changed job would have loaded
as_loader($target, q{SELECT incload_alter_job('numbers', options => '{"transforms": {"v": "upper(v)"}}'); SELECT incload_run('numbers')});
is(as_loader($target, q{SELECT count(*) FROM dw.numbers WHERE v = 'V'}), '0', 'a new transform does not change rows that are loaded');
as_loader($target, q{SELECT incload_backfill('numbers', '1', '11', '4')});
comes_to(q{SELECT count(*), min(id), max(id) FROM dw.numbers WHERE v = 'V'}, '10|1|10', 'a backfill does, in its range');

# a brake
as_loader($target, q{SELECT incload_create_job('braked', 'src.numbers', 'dw.braked', 'upsert', 'id', '{id}', options => '{"max_rate": 500}')});
my $braked = as_loader($target, q{SELECT rows_read, finished_at - started_at > '1.9 s' FROM incload_run('braked')});
is($braked, '1000|t', 'max_rate brakes');

# without a scheduler, the call starts the workers
$target->safe_psql('postgres', 'SELECT incload_worker_stop()');
is(as_loader($target, q{SELECT incload_backfill('numbers', '1', '1001', '100')}), '10', 'without a scheduler');
comes_to(q{SELECT count(*) FROM incload.batch_window WHERE state <> 'done'}, '0', 'a backfill is loaded, too');

$target->stop;
$source->stop;
done_testing();
