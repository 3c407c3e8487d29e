# Settings of a job's owner and of its database: what a worker puts on record does not
# depend on them.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => "shared_preload_libraries = 'incload'\nincload.naptime = '50ms'\nmax_worker_processes = 16\n");

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO items SELECT i, 'v' || i FROM generate_series(1, 10) i;
});
foreign_table($target, 'items');

# paused, until the settings are there
foreach my $job ([ 'good', '{}' ], [ 'bad', '{"pre_sql": "SELECT 1/0"}' ])
{
	as_loader($target, qq{BEGIN; SELECT incload_create_job('$job->[0]', 'src.items', 'dw.$job->[0]', 'upsert', 'updated_at', '{id}',
		schedule => '1 hour', options => '{"lookback": "0"}'::jsonb || '$job->[1]'); SELECT incload_pause('$job->[0]'); COMMIT});
}

my $major = pg_major($target);
my %settings = (
	exit_on_error => 'on',
	default_transaction_isolation => 'serializable',
	default_transaction_read_only => 'on',
	session_replication_role => 'replica',
	lock_timeout => '1ms',
	statement_timeout => '200ms',
	idle_in_transaction_session_timeout => '200ms',
	search_path => 'pg_temp',
	DateStyle => 'SQL, DMY',
	TimeZone => 'Asia/Kolkata',
	IntervalStyle => 'sql_standard',
	extra_float_digits => '-15',
	bytea_output => 'escape',
	standard_conforming_strings => 'off',
	array_nulls => 'off',
	transform_null_equals => 'on',
	row_security => 'off',
	client_encoding => 'LATIN1',
	enable_indexscan => 'off',
	$major >= 17 ? (transaction_timeout => '1ms') : ());

# settings OF GIVE: gives them all to a role or a database, or takes them away
sub settings
{
	my ($of, $give) = @_;
	$target->safe_psql('postgres', join(' ', map { $give ? "ALTER $of SET $_ = '$settings{$_}';" : "ALTER $of RESET $_;" } sort keys %settings));
	return;
}

# whoever asks has settings of his own
$ENV{PGOPTIONS} = join(' ', map { "-c $_" } qw(default_transaction_read_only=off search_path=public statement_timeout=0 lock_timeout=0
	idle_in_transaction_session_timeout=0 standard_conforming_strings=on session_replication_role=origin client_encoding=UTF8 DateStyle=ISO
	exit_on_error=off role=none), $major >= 17 ? 'transaction_timeout=0' : ());
sub ask { return $target->safe_psql('postgres', $_[0]) }

foreach my $of ('ROLE loader', 'DATABASE postgres')
{
	my $before = $target->safe_psql('postgres', 'SELECT coalesce(max(run_id), 0) FROM incload.run');

	settings($of, 1);
	# who is the database's workers at large, without a role of their own
	ask(q{ALTER DATABASE postgres SET role = 'loader'}) if $of =~ /DATABASE/;
	# workers that begin anew have them
	ask(q{SELECT pg_terminate_backend(pid) FROM incload.worker WHERE kind <> 'launcher'});
	ask(q{SELECT incload_resume('good'), incload_resume('bad');
		UPDATE incload.schedule_store SET next_run_at = now(), planned_at = now() - interval '1 ms'});
	ok(wait_for(60, sub { ask(qq{SELECT count(*) FROM incload.run WHERE status IN ('succeeded', 'failed') AND run_id > $before}) eq '2' }), "with settings of $of, jobs run")
	  or diag(ask("SELECT * FROM incload.run WHERE run_id > $before; SELECT * FROM incload.worker"));
	is(ask(qq{SELECT status, trigger, attempt, sqlstate FROM incload.run WHERE run_id > $before AND job = 'good'}), 'succeeded|schedule|1|', 'one succeeds');
	is(ask(qq{SELECT status, trigger, attempt, sqlstate, split_part(error, chr(10), 1) FROM incload.run WHERE run_id > $before AND job = 'bad'}), 'failed|schedule|1|22012|division by zero',
		'one fails, and the record says why');
	ok(wait_for(60, sub { ask(q{SELECT count(*) FROM incload.schedule_store WHERE next_run_at > now()}) eq '2' }), 'the next times are planned');
	is(ask(q{SELECT job, attempt, failures, last_status, planned_at = next_run_at AND next_run_at <= now() + interval '1 h'
		FROM incload.schedule_store JOIN incload.job_store USING (job_id) ORDER BY job}), "bad|1|1|failed|t\ngood|1|0|succeeded|t", 'and the outcome is counted');
	# by a session, which has another worker record it
	my $max = ask('SELECT max(run_id) FROM incload.run');
	(undef, undef, my $error) = $target->psql('postgres', q{SELECT incload_run('bad')});
	like($error, qr/division by zero/, 'a session has its error');
	is(ask("SELECT status, trigger, sqlstate FROM incload.run WHERE run_id > $max"), 'failed|manual|22012', 'which is on record');
	ask(q{SELECT incload_pause('good'), incload_pause('bad')});
	ask(q{ALTER DATABASE postgres RESET role});
	settings($of, 0);
}
$target->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM incload.worker WHERE kind <> 'launcher'});

# what depends on a job goes with it, whatever the session's triggers do
$target->safe_psql('postgres', q{SET session_replication_role = 'replica'; SELECT incload_drop_job('good'), incload_drop_job('bad')});
is($target->safe_psql('postgres', q{SELECT (SELECT count(*) FROM incload.schedule_store), (SELECT count(*) FROM incload.checkpoint_store)}), '0|0',
	'a job that is dropped leaves nothing behind');

done_testing();
