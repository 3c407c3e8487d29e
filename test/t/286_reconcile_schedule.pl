# The options reconcile_schedule and reconcile_repair: a worker compares, and mends if it is to.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => q{
	shared_preload_libraries = 'incload'
	incload.naptime = '100ms'
	max_worker_processes = 16
});

sub comes_to
{
	my ($query, $wanted, $name) = @_;
	return becomes(sub { try_query($target, $query, 'loader') }, $wanted, $name);
}

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO items (id, v) SELECT i, 'v' FROM generate_series(1, 1000) i});
foreign_table($target, 'items');
as_loader($target, q{
	SELECT incload_create_job('watched', 'src.items', 'dw.watched', 'upsert', 'updated_at', '{id}', options => '{"reconcile_schedule": "1 second"}');
	SELECT incload_create_job('mended', 'src.items', 'dw.mended', 'upsert', 'updated_at', '{id}', options => '{"reconcile_schedule": "1 second", "reconcile_repair": true}');
	SELECT incload_run('watched'), incload_run('mended');
	UPDATE dw.watched SET v = 'by hand' WHERE id = 7; DELETE FROM dw.mended WHERE id = 9});

comes_to(q{SELECT count(*) > 0 FROM incload.reconcile WHERE job = 'watched' AND rows_changed = 1 AND rows_repaired = 0}, 't', 'what differs is found by itself');
comes_to(q{SELECT count(*) > 0, min(severity) FROM incload.event WHERE job = 'watched' AND code = 'reconcile_mismatch'}, 't|ticket', 'and told');
is(as_loader($target, q{SELECT v FROM dw.watched WHERE id = 7}), 'by hand', 'and nothing more');
comes_to(q{SELECT rows_missing, rows_repaired FROM incload.reconcile WHERE job = 'mended' AND rows_missing > 0}, '1|1', 'or mended');
is(as_loader($target, q{SELECT v FROM dw.mended WHERE id = 9}), 'v', 'indeed');
is(as_loader($target, q{SELECT string_agg(DISTINCT trigger, ','), string_agg(DISTINCT status, ',') FROM incload.run WHERE kind = 'reconcile'}), 'schedule|succeeded', 'each is on record');
is(as_loader($target, q{SELECT job, next_reconcile IS NOT NULL, next_run IS NULL FROM incload.status ORDER BY job}), "mended|t|t\nwatched|t|t", 'and the status says when the next one is');

# beside a schedule of runs, and after a failure
as_loader($target, q{SELECT incload_alter_job('mended', schedule => '1 second')});
$source->safe_psql('postgres', q{INSERT INTO items (id, v) VALUES (2000, 'new')});
comes_to(q{SELECT count(*) FROM dw.mended}, '1001', 'runs go on beside it');
$source->stop('immediate');
comes_to(q{SELECT count(*) > 0 FROM incload.event WHERE job = 'watched' AND code = 'reconcile_failed' AND severity = 'ticket'}, 't', 'one that fails is told');
$source->start;
as_loader($target, q{DELETE FROM dw.mended WHERE id = 10});
comes_to(q{SELECT count(*) FROM dw.mended}, '1001', 'and the next one mends');

# it goes when the option goes, and a paused job rests
as_loader($target, q{SELECT incload_alter_job('watched', options => '{"reconcile_schedule": null}'), incload_pause('mended')});
comes_to(q{SELECT count(*) FROM incload.worker WHERE state = 'running'}, '0', 'what is under way ends');
my $last = as_loader($target, q{SELECT max(run_id) FROM incload.run WHERE kind = 'reconcile'});
is(as_loader($target, q{SELECT pg_sleep(2.5); SELECT max(run_id) FROM incload.run WHERE kind = 'reconcile'}), "\n$last", 'without the option, or paused, nothing is compared');
is(as_loader($target, q{SELECT next_reconcile FROM incload.status WHERE job = 'watched'}), '', 'nor planned');

# it survives a restart, and goes with the dump
fails_with($target, 'loader', q{SELECT incload_alter_job('watched', options => '{"reconcile_schedule": "soon"}')}, '22023', qr/soon/, 'a schedule that is none is refused');
fails_with($target, 'loader', q{SELECT incload_alter_job('watched', options => '{"reconcile_repair": true}')}, '22023', qr/reconcile_repair.*reconcile_schedule/s, 'so is a repair that never comes');
as_loader($target, q{SELECT incload_resume('mended'); DELETE FROM dw.mended WHERE id = 11});
$target->restart;
comes_to(q{SELECT count(*) FROM dw.mended}, '1001', 'it goes on after a restart');
$target->command_ok([ 'pg_dump', '-d', $target->connstr('postgres'), '-f', $target->basedir . '/dump.sql' ], 'it is dumped');
like(slurp_file($target->basedir . '/dump.sql'), qr/COPY incload\.reconcile_schedule_store .*\n\d+\t/, 'with its agenda');

done_testing();
