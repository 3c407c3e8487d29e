# Jobs run by their schedules, in background workers: what is retried, what is
# paused, what waits for what, and what a run that somebody starts leaves behind.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my $preload = "shared_preload_libraries = 'incload'\nincload.naptime = '100ms'\nmax_worker_processes = 16\n";
my ($source, $target) = two_nodes(target => $preload);

# until a query of loader's gives that; what it gave last if it does not
sub comes_to
{
	my ($query, $wanted, $name) = @_;
	return becomes(sub { as_loader($target, $query) }, $wanted, $name);
}

sub create_job
{
	my ($name, $schedule, $options, $source_name) = @_;
	$source_name ||= 'items';

	as_loader($target, qq{SELECT incload_create_job('$name', 'src.$source_name', 'dw.$name', 'upsert', 'updated_at', '{id}',
		schedule => '$schedule', options => '{"lookback": "0"${\($options ? ", $options" : '')}}')});
	return;
}

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO items SELECT i, 'v' || i FROM generate_series(1, 1000) i;
	CREATE TABLE slow (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO slow VALUES (1, 'v');
});
foreign_table($target, 'items', 'slow');

# by an interval
create_job('items', '1 second');
comes_to(q{SELECT count(*) FROM dw.items}, '1000', 'a job with a schedule runs by itself');
$source->safe_psql('postgres', q{UPDATE items SET v = 'new', updated_at = now() WHERE id = 5; INSERT INTO items VALUES (2000, 'new')});
comes_to(q{SELECT count(*) FROM dw.items WHERE v = 'new'}, '2', 'and again, and brings what is new');
is(as_loader($target, q{SELECT DISTINCT status, trigger, attempt FROM incload.run WHERE job = 'items' AND status <> 'running'}),
	'succeeded|schedule|1', 'its runs are on record');
is(as_loader($target, q{SELECT count(DISTINCT pid) FROM incload.run WHERE job = 'items'}), '1', 'one process has run them all');
is(as_loader($target, q{SELECT schedule FROM incload.job WHERE job = 'items'}), '1 second', 'the schedule can be read');
# the status rounds to seconds
is(as_loader($target, q{SELECT next_run BETWEEN now() - interval '5 s' AND now() + interval '2 s' FROM incload.status WHERE job = 'items'}), 't', 'and when it is next');
is(as_loader($target, q{SELECT string_agg(kind, ' ' ORDER BY kind) FROM incload.worker}), 'launcher runner scheduler', 'incload.worker shows who works');


# paused, resumed, altered, taken away
as_loader($target, q{SELECT incload_pause('items')});
$source->safe_psql('postgres', q{INSERT INTO items VALUES (2001, 'while paused')});
create_job('other', '1 second');
comes_to(q{SELECT count(*) FROM dw.other}, '1002', 'other jobs go on');
is(as_loader($target, q{SELECT count(*) FROM dw.items WHERE id = 2001}), '0', 'a paused one does not run');
is(as_loader($target, q{SELECT state, next_run IS NULL FROM incload.status WHERE job = 'items'}), 'paused|t', 'and says so');
as_loader($target, q{SELECT incload_resume('items')});
comes_to(q{SELECT count(*) FROM dw.items WHERE id = 2001}, '1', 'until it is resumed');
as_loader($target, q{SELECT incload_alter_job('items', schedule => 'none')});
is(as_loader($target, q{SELECT schedule IS NULL FROM incload.job WHERE job = 'items'}), 't', 'a schedule can be taken away');
$source->safe_psql('postgres', q{INSERT INTO items VALUES (2002, 'without a schedule')});
comes_to(q{SELECT count(*) FROM dw.other WHERE id = 2002}, '1', 'others go on');
is(as_loader($target, q{SELECT count(*) FROM dw.items WHERE id = 2002}), '0', 'then it does not run');

# a cron line is kept with the zone of who has set it
as_loader($target, q{SET TimeZone = 'Europe/Berlin'; SELECT incload_alter_job('items', schedule => '0 3 * * 1-5')});
is(as_loader($target, q{SELECT schedule FROM incload.job WHERE job = 'items'}), 'CRON_TZ=Europe/Berlin 0 3 * * 1-5', 'a cron line is kept with its zone');
is(as_loader($target, q{SELECT to_char(next_run AT TIME ZONE 'Europe/Berlin', 'HH24:MI') FROM incload.status WHERE job = 'items'}), '03:00', 'and is next at its time');
fails_with($target, 'loader', q{SELECT incload_alter_job('items', schedule => '61 * * * *')}, '22023', qr/invalid schedule.*HINT/s, 'one that makes no sense is refused');

# what is due while somebody else runs it is skipped, not doubled
my $holder = session($target, 'loader');
$holder->query_safe(q{BEGIN; SELECT incload_run('other')});
comes_to(q{SELECT count(*) > 1 FROM incload.run WHERE job = 'other' AND status = 'skipped' AND error ~ 'already running'}, 't', 'a run beside another one is skipped');
$holder->query_safe('COMMIT');
$source->safe_psql('postgres', q{INSERT INTO items VALUES (2003, 'later')});
comes_to(q{SELECT count(*) FROM dw.other WHERE id = 2003}, '1', 'and the next one is not');
$holder->quit;

# lasting faults: not retried, and paused after some in a row; the others go on
create_job('broken', '1 second', '"pause_after": 3, "retry_delay": "100 ms"');
comes_to(q{SELECT count(*) FROM dw.broken}, '1004', 'a job that works');
as_loader($target, 'ALTER TABLE dw.broken ADD CHECK (id < 3000)');
$source->safe_psql('postgres', q{INSERT INTO items VALUES (3000, 'bad')});
comes_to(q{SELECT state FROM incload.status WHERE job = 'broken'}, 'paused', 'a job that fails by a lasting fault pauses itself');
is(as_loader($target, q{SELECT count(*), min(sqlstate), max(attempt) FROM incload.run WHERE job = 'broken' AND status = 'failed'}), '3|23514|1', 'after as many failures as it may have, none of them retried');
is(as_loader($target, q{SELECT severity, message ~ 'failed 3 times in a row.*incload_resume\(''broken''\).*check constraint' FROM incload.event WHERE code = 'job_paused_itself'}), 'page|t', 'and says so');
comes_to(q{SELECT count(*) FROM dw.other WHERE id = 3000}, '1', 'the others go on');
as_loader($target, 'ALTER TABLE dw.broken DROP CONSTRAINT broken_id_check');
as_loader($target, q{SELECT incload_resume('broken')});
comes_to(q{SELECT count(*) FROM dw.broken WHERE id = 3000}, '1', 'once it is mended and resumed, it goes on');
is($target->safe_psql('postgres', q{SELECT failures FROM incload.schedule_store s JOIN incload.job_store j USING (job_id) WHERE job = 'broken'}), '0', 'and nothing is held against it');
as_loader($target, q{SELECT incload_drop_job('broken')});

# passing faults: the source is away for a while
as_loader($target, q{SELECT incload_alter_job('other', options => '{"retry_delay": "200 ms", "retry_limit": 2, "pause_after": 1}')});
$source->stop('immediate');
comes_to(q{SELECT count(*) > 6 FROM incload.run WHERE job = 'other' AND status = 'failed'}, 't', 'while the source is down, runs fail');
is(as_loader($target, q{SELECT max(attempt), bool_and(sqlstate ~ '^08|^57') FROM incload.run WHERE job = 'other' AND status = 'failed'}), '3|t', 'each is tried again twice');
is(as_loader($target, q{SELECT state FROM incload.status WHERE job = 'other'}), 'failing', 'but what passes by itself pauses no job');
$source->start;
$source->safe_psql('postgres', q{INSERT INTO items VALUES (4000, 'back')});
comes_to(q{SELECT count(*) FROM dw.other WHERE id = 4000}, '1', 'and when the source is back, it goes on by itself');

# rounds
as_loader($target, q{SELECT incload_pause('other')});
create_job('parent', '1 second', '"pause_after": 0');
create_job('child', '1 second', '"depends_on": ["parent"]');
create_job('grandchild', '1 second', '"depends_on": ["child", "other"]');
comes_to(q{SELECT count(*) FROM dw.child}, '1006', 'a job runs after the one that it depends on');
comes_to(q{SELECT count(*) > 1 FROM incload.run WHERE job = 'grandchild' AND status = 'skipped' AND error = 'the run was left out: job "other" is paused'}, 't', 'one whose parent is paused is skipped, and says so');
is(as_loader($target, q{SELECT count(*) FROM dw.grandchild}), '0', 'and does not run');
as_loader($target, q{SELECT incload_resume('other')});
comes_to(q{SELECT count(*) FROM dw.grandchild}, '1006', 'until it is not');
as_loader($target, 'ALTER TABLE dw.parent ADD CHECK (id < 5000)');
# the row may come between the parent's last good run and the child's of the same round: not while the child rests
as_loader($target, q{SELECT incload_pause('child')});
$source->safe_psql('postgres', q{INSERT INTO items VALUES (5000, 'bad for the parent')});
comes_to(q{SELECT count(*) > 0 FROM incload.run WHERE job = 'parent' AND status = 'failed'}, 't', 'the parent fails');
as_loader($target, q{SELECT incload_resume('child')});
comes_to(q{SELECT count(*) > 1 FROM incload.run WHERE job = 'child' AND status = 'skipped' AND error = 'the run was left out: job "parent" has failed'}, 't', 'one whose parent has failed is skipped');
comes_to(q{SELECT count(*) > 1 FROM incload.run WHERE job = 'grandchild' AND status = 'skipped' AND error = 'the run was left out: job "child" was skipped'}, 't', 'and so is its own child');
is(as_loader($target, q{SELECT count(*) FROM dw.child WHERE id = 5000}), '0', 'what the parent has not, they have not');
fails_with($target, 'loader', q{SELECT incload_alter_job('parent', options => '{"depends_on": ["grandchild"]}')}, '22023',
	qr/"parent" would depend on itself.*DETAIL:  Each depends on the next: parent, grandchild, child, parent\./s, 'a circle is refused');
fails_with($target, 'loader', q{SELECT incload_alter_job('parent', options => '{"depends_on": ["nobody"]}')}, '42704', qr/"nobody".*does not exist.*HINT/s, 'a parent that does not exist is refused');
as_loader($target, q{SELECT incload_drop_job(j) FROM unnest('{grandchild,child,parent,other,items}'::text[]) j});

# a worker, once
as_loader($target, q{SELECT incload_create_job('once', 'src.items', 'dw.once', 'upsert', 'updated_at', '{id}')});
my $run_id = as_loader($target, q{SELECT incload_start('once')});
comes_to(qq{SELECT status, trigger, rows_inserted FROM incload.run WHERE run_id = $run_id}, 'succeeded|start|1007', 'a run in a worker has the number that was promised');
my $before = as_loader($target, 'SELECT count(*) FROM incload.run');
my $caller = session($target, 'loader');
$caller->query_safe('SET client_min_messages = warning');
$caller->query_safe(q{BEGIN; SELECT incload_start('once'); ROLLBACK});
$caller->query_safe(q{BEGIN; SELECT incload_create_job('late', 'src.items', 'dw.late', 'upsert', 'updated_at', '{id}'); SELECT incload_start('late')});
comes_to(q{SELECT count(*) FROM incload.worker WHERE kind = 'runner'}, '1', 'it waits for the transaction of its caller');
is(as_loader($target, 'SELECT count(*) FROM incload.run'), $before, 'which, rolled back, has started nothing');
$caller->query_safe('COMMIT');
comes_to(q{SELECT status, rows_inserted FROM incload.run WHERE job = 'late'}, 'succeeded|1007', 'and, committed, has');
fails_with($target, 'loader', q{SELECT incload_start('nobody')}, '42704', qr/HINT/, 'a job that does not exist');

# cancelled
as_loader($target, q{SELECT incload_create_job('slow', 'src.slow', 'dw.slow', 'upsert', 'updated_at', '{id}', options => '{"pre_sql": "SELECT pg_sleep(600)"}')});
is(as_loader($target, q{SELECT incload_cancel('slow')}), 'f', 'nothing to cancel');
$run_id = as_loader($target, q{SELECT incload_start('slow')});
comes_to(q{SELECT state FROM incload.status WHERE job = 'slow'}, 'running', 'a long run');
fails_with($target, 'loader', q{SELECT incload_start('slow')}, '55P03', qr/already running/, 'is not started twice');
is(as_loader($target, q{SELECT incload_cancel('slow')}), 't', 'can be cancelled');
comes_to(qq{SELECT status, sqlstate FROM incload.run WHERE run_id = $run_id}, 'cancelled|57014', 'and is on record as such');
my $started = start_sql($target, 'loader', q{SELECT incload_run('slow')});
comes_to(q{SELECT state FROM incload.status WHERE job = 'slow'}, 'running', 'a run in a session');
is(as_loader($target, q{SELECT incload_cancel('slow')}), 't', 'can be cancelled, too');
my ($status, $out, $err) = $started->finish;
like($err, qr/57014/, 'by its statement');
$caller->query_safe(q{BEGIN; SELECT incload_start('once')});
comes_to(q{SELECT count(*) FROM incload.worker WHERE kind = 'runner' AND job = 'once'}, '1', 'one that waits for its caller');
is(as_loader($target, q{SELECT incload_cancel('once')}), 't', 'can be cancelled');
$caller->query_safe('COMMIT');
comes_to(q{SELECT status, error FROM incload.run WHERE job = 'once' ORDER BY run_id DESC LIMIT 1}, 'cancelled|the run was cancelled before it began', 'and that is on record, too');
$target->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
fails_with($target, 'stranger', q{SELECT incload_cancel('slow')}, '42501', qr/permission denied for job "slow"/, 'not by a stranger');
is(as_role($target, 'stranger', q{SELECT count(job) FROM incload.worker}), '0', 'who does not see whose job is run, either');
fails_with($target, 'stranger', q{SELECT incload_worker_stop()}, '42501', qr/permission denied for function incload_worker_stop/, 'nor may stop the scheduler');
$caller->quit;

# owners: each in turn, and one who is gone keeps nobody else from running
$target->safe_psql('postgres', q{
	CREATE ROLE second LOGIN; GRANT USAGE ON SCHEMA src TO second; GRANT USAGE ON FOREIGN SERVER source TO second;
	GRANT SELECT ON src.items TO second; CREATE SCHEMA dw2 AUTHORIZATION second;
	CREATE USER MAPPING FOR second SERVER source OPTIONS (user 'reader', password 'reader''s secret')});
create_job('mine', '1 second', '"pause_after": 2');
as_role($target, 'second', q{SELECT incload_create_job('theirs', 'src.items', 'dw2.theirs', 'upsert', 'updated_at', '{id}', schedule => '1 second')});
comes_to(q{SELECT count(*) FROM dw.mine}, '1007', 'two owners have jobs');
wait_for(60, sub { as_role($target, 'second', 'SELECT count(*) FROM dw2.theirs') eq '1007' });
is(as_role($target, 'second', 'SELECT count(*) FROM dw2.theirs'), '1007', 'and each is run as its owner');
$target->safe_psql('postgres', q{ALTER ROLE second RENAME TO renamed; GRANT renamed TO loader});
wait_for(60, sub { $target->safe_psql('postgres', q{SELECT error FROM incload.run WHERE job = 'theirs' ORDER BY run_id DESC LIMIT 1}) =~ /does not exist/ });
is($target->safe_psql('postgres', q{SELECT status, error, hint FROM incload.run WHERE job = 'theirs' ORDER BY run_id DESC LIMIT 1}),
	q{failed|role "second", which owns the job, does not exist|SELECT incload_alter_job('theirs', owner => '...') gives it to another role.}, 'a job whose owner is gone says so');
$source->safe_psql('postgres', q{INSERT INTO items VALUES (6000, 'later')});
comes_to(q{SELECT count(*) FROM dw.mine WHERE id = 6000}, '1', 'the others go on');
$target->safe_psql('postgres', q{SELECT incload_alter_job('theirs', owner => 'renamed'), incload_resume('theirs')});
wait_for(60, sub { $target->safe_psql('postgres', 'SELECT count(*) FROM dw2.theirs') eq '1008' });
is($target->safe_psql('postgres', 'SELECT count(*) FROM dw2.theirs'), '1008', 'and it goes on once it has an owner again');
if (pg_major($target) < 17)
{
	$target->safe_psql('postgres', 'ALTER ROLE renamed NOLOGIN');
	fails_with($target, 'loader', q{SET ROLE renamed; SELECT incload_create_job('nologin', 'src.items', 'dw2.nologin', 'upsert', 'updated_at', '{id}', schedule => '1 hour')},
		'55000', qr/cannot run as role "renamed".*HINT:  [0-9A-Z: ]*ALTER ROLE renamed LOGIN/s, 'an owner who may not log in has no worker');
	wait_for(60, sub { $target->safe_psql('postgres', q{SELECT error FROM incload.run WHERE job = 'theirs' ORDER BY run_id DESC LIMIT 1}) =~ /may not log in/ });
	like($target->safe_psql('postgres', q{SELECT error FROM incload.run WHERE job = 'theirs' ORDER BY run_id DESC LIMIT 1}),
		qr/role "renamed", which owns the job, may not log in/, 'and one who no longer may is told of');
}
# a job whose source or target was dropped fails alone
$target->safe_psql('postgres', q{DROP TABLE dw.mine});
comes_to(q{SELECT state FROM incload.status WHERE job = 'mine'}, 'paused', 'a job without a target pauses itself');
is(as_loader($target, q{SELECT DISTINCT sqlstate FROM incload.run WHERE job = 'mine' AND status = 'failed'}), '42P01', 'and says why');

$target->stop;
$source->stop;
done_testing();
