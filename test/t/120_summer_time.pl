# Times without zone, from a source in Berlin: the night in which an hour comes
# twice, and the one in which an hour is left out.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::Local qw(timegm);

use IncloadTest;

my ($lib) = grep { -e } glob('/usr/lib/*/faketime/libfaketime.so.1');
plan skip_all => 'needs libfaketime' if !$lib;

# the clock of both servers, as seconds that it differs from the machine's
my $clock = PostgreSQL::Test::Utils::tempdir() . '/clock';

sub set_clock
{
	my ($utc) = @_;
	my ($year, $month, $day, $hour, $minute, $second) = $utc =~ /^(\d+)-(\d+)-(\d+) (\d+):(\d+):(\d+)$/ or die $utc;

	# in one step: the servers' processes read it all the time
	open(my $out, '>', "$clock.new") or die $!;
	printf $out "%+d\n", timegm($second, $minute, $hour, $day, $month - 1, $year) - time();
	close($out);
	rename("$clock.new", $clock) or die $!;
	return;
}

my ($source, $target) = two_nodes(source => "timezone = 'Europe/Berlin'");
$_->stop foreach ($source, $target);
set_clock('2020-10-24 23:50:00');
{
	local $ENV{LD_PRELOAD} = $lib;
	local $ENV{FAKETIME_TIMESTAMP_FILE} = $clock;
	local $ENV{FAKETIME_NO_CACHE} = 1;
	local $ENV{FAKETIME_DONT_FAKE_MONOTONIC} = 1;
	$_->start foreach ($source, $target);
}

$source->safe_psql('postgres', q{
	CREATE TABLE t (id int PRIMARY KEY, at timestamp NOT NULL DEFAULT localtimestamp);
	CREATE TABLE z (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
});
foreign_table($target, 't', 'z');
my %jobs = (
	plain => [ 't', 'upsert', 'at', '{id}', '{"lookback": "0"}' ],
	log => [ 't', 'append', 'at', '{}', '{}' ],
	named => [ 't', 'upsert', 'at', '{id}', '{"lookback": "0", "source_timezone": "Europe/Berlin"}' ],
	late => [ 't', 'upsert', 'at', '{id}', '{"lookback": "15 minutes"}' ],
	# an expression's local time is the one of the zone that is named
	# here nobody tells who is open at the source, and what its zone is has to be said
	far => [ 't', 'upsert', 'at', '{id}', '{"lookback": "1 hour", "settle": "1 ms", "reader": "relation", "source_timezone": "Europe/Berlin"}' ],
	far_plain => [ 't', 'upsert', 'at', '{id}', '{"lookback": "0", "settle": "1 ms", "reader": "relation"}' ],
	cast => [ 'z', 'upsert', '(at::timestamp)', '{id}', '{"lookback": "0", "source_timezone": "Europe/Berlin"}' ],
);
as_loader($target, "SELECT incload_create_job('$_', 'src.$jobs{$_}[0]', 'dw.$_', '$jobs{$_}[1]', '$jobs{$_}[2]', '$jobs{$_}[3]', options => '$jobs{$_}[4]')")
	foreach sort keys %jobs;

sub insert { my ($id) = @_; $source->safe_psql('postgres', "INSERT INTO t VALUES ($id); INSERT INTO z VALUES ($id)"); return; }
sub run_all { as_loader($target, join('', map { "SELECT incload_run('$_');" } sort keys %jobs)); return; }

# after all have run: the ids that each has, but for the log, which must not have
# what is not settled, and the range in which the checkpoints have to be
sub check
{
	my ($when, $ids, $log, $from, $to) = @_;

	run_all();
	my @found = split(/\n/, as_loader($target, join('',
		map { "SELECT '$_', string_agg(id::text, ' ' ORDER BY id) FROM dw.$_;" } sort keys %jobs)
		. "SELECT job, bound FROM incload.checkpoint WHERE (bound >= '$from' AND bound <= '$to') IS NOT TRUE AND job !~ '^far'"));
	my @wanted = map { "$_|" . ($_ eq 'log' ? $log : $ids) } sort keys %jobs;

	is(join("\n", @found), join("\n", @wanted), "$when: the rows, and a checkpoint from $from to $to");
	return;
}

# 01:50, before all that
insert(1);
set_clock('2020-10-24 23:55:00');
check('01:55', '1', '1', '2020-10-25 01:54:50', '2020-10-25 01:59:00');

# 02:10, for the first time: two o'clock will come again
set_clock('2020-10-25 00:10:00');
insert(2);
set_clock('2020-10-25 00:15:00');
check('02:15, first', '1 2', '1', '2020-10-25 01:54:50', '2020-10-25 02:00:00');
set_clock('2020-10-25 00:55:00');
insert(3);
check('02:55, first', '1 2 3', '1', '2020-10-25 02:00:00', '2020-10-25 02:00:00');

# 02:05, for the second time: below rows that were read long ago
set_clock('2020-10-25 01:05:00');
insert(4);
set_clock('2020-10-25 01:09:00');
check('02:09, second', '1 2 3 4', '1 4', '2020-10-25 02:08:50', '2020-10-25 02:09:59');

# a transaction that began when it was 02:20 for the second time holds all back
set_clock('2020-10-25 01:20:00');
my $writer = $source->background_psql('postgres');
$writer->query_safe('BEGIN; INSERT INTO t VALUES (5); INSERT INTO z VALUES (5)');
set_clock('2020-10-25 01:55:00');
insert(6);
check('02:55, second', '1 2 3 4 6', '1 2 4', '2020-10-25 02:19:59', '2020-10-25 02:21:00');
$writer->query_safe('COMMIT');
$writer->quit;
set_clock('2020-10-25 02:30:00');
check('03:30', '1 2 3 4 5 6', '1 2 3 4 5 6', '2020-10-25 03:29:50', '2020-10-25 03:35:00');

# one that began when it was 02:40 for the first time, and ends when it is 02:10
# again, a year later
set_clock('2021-10-31 00:40:00');
$writer = $source->background_psql('postgres');
$writer->query_safe('BEGIN; INSERT INTO t VALUES (7); INSERT INTO z VALUES (7)');
set_clock('2021-10-31 01:10:00');
insert(8);
check('2021, 02:10, second', '1 2 3 4 5 6 8', '1 2 3 4 5 6', '2021-10-31 02:00:00', '2021-10-31 02:00:00');
$writer->query_safe('COMMIT');
$writer->quit;
set_clock('2021-10-31 01:15:00');
check('2021, 02:15, second', '1 2 3 4 5 6 7 8', '1 2 3 4 5 6 8', '2021-10-31 02:14:50', '2021-10-31 02:20:00');
set_clock('2021-10-31 02:01:00');
check('2021, 03:01', '1 2 3 4 5 6 7 8', '1 2 3 4 5 6 7 8', '2021-10-31 03:00:50', '2021-10-31 03:05:00');

# the night without an hour: two o'clock is three
set_clock('2022-03-27 00:50:00');
insert(9);
set_clock('2022-03-27 00:55:00');
check('01:55', '1 2 3 4 5 6 7 8 9', '1 2 3 4 5 6 7 8 9', '2022-03-27 01:54:50', '2022-03-27 01:59:00');
set_clock('2022-03-27 01:00:10');
insert(10);
set_clock('2022-03-27 01:04:00');
check('03:04', '1 2 3 4 5 6 7 8 9 10', '1 2 3 4 5 6 7 8 9 10', '2022-03-27 03:03:50', '2022-03-27 03:08:00');
# rows that come late: of nine minutes before, by the clock, and of twenty-four
$source->safe_psql('postgres', q{INSERT INTO t VALUES (11, '2022-03-27 01:55:00'), (12, '2022-03-27 01:40:00')});
run_all();
is(as_loader($target, q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM dw.late}), '1 2 3 4 5 6 7 8 9 10 11',
	'a lookback is as long as ever when an hour is left out');
is(as_loader($target, q{SELECT watermark_from BETWEEN '2022-03-27 01:48:50' AND '2022-03-27 01:53:00'
	FROM incload.run WHERE job = 'late' ORDER BY run_id DESC LIMIT 1}), 't', 'and no longer');

# where nothing tells, it might be the zone that is the furthest behind
is(as_loader($target, q{SELECT bound BETWEEN '2022-03-26 13:03:50' AND '2022-03-26 13:08:00' FROM incload.checkpoint WHERE job = 'far_plain'}), 't',
	'without the name of a zone, the checkpoint of a time through the executor stays twelve hours behind');
fails_with($target, 'loader', q{SELECT incload_create_job('nowhere', 'src.t', 'dw.nowhere', 'upsert', 'at', '{id}', options => '{"source_timezone": "Europe/Atlantis"}')},
	'22023', qr/"Europe\/Atlantis".*DETAIL.*HINT/s, 'a zone that is none is refused');

$target->stop;
$source->stop;
done_testing();
