# incload.metrics, and what is in monitoring/: with the real prometheus and prometheus-postgres-exporter, where they are.
use strict;
use warnings;

use HTTP::Tiny;
use IPC::Run;
use JSON::PP qw(decode_json);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(target => q{
	shared_preload_libraries = 'incload'
	incload.naptime = '100ms'
	max_worker_processes = 16
});
my $dir = PostgreSQL::Test::Utils::tempdir();

sub sample
{
	my ($name, $job, $label, $value) = @_;
	my $labels = join(' ', qq{"job": "$job"}, $label ? (qq{, "$label": "$value"}) : ());
	return $target->safe_psql('postgres', qq{SELECT value FROM incload.metrics WHERE name = '$name' AND labels = '{$labels}'});
}

sub run_fails
{
	my ($job, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails_with($target, 'loader', "SELECT incload_run('$job')", '23514', qr/small/, $name);
}

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v int, updated_at timestamptz NOT NULL DEFAULT now());
	CREATE TABLE "od""d\ name" (id int PRIMARY KEY);
	INSERT INTO items (id, v) SELECT i, i FROM generate_series(1, 1000) i});
foreign_table($target, 'items', '"od""d\ name"');
as_loader($target, q{
	CREATE TABLE dw.items (id int PRIMARY KEY, v int CONSTRAINT small CHECK (v < 10000), updated_at timestamptz);
	SELECT incload_create_job('items', 'src.items', 'dw.items', 'upsert', 'updated_at', '{id}', options => '{"lookback": "0", "batch_rows": 400}');
	SELECT incload_create_job('odd', 'src."od""d\ name"', 'dw.odd', 'full', key => '{id}')});

note 'counters';
as_loader($target, q{CALL incload_run_in_batches('items')});
is(sample('incload_job_read_rows_total', 'items'), '1000', 'rows of a run in batches are counted once');
is(sample('incload_job_batches_total', 'items'), '3', 'and its batches');
is(sample('incload_runs_total', 'items', 'status', 'succeeded'), '1', 'and the run');
is(sample('incload_rows_total', 'items', 'outcome', 'inserted'), '1000', 'by what became of them');
is(sample('incload_runs_total', 'odd', 'status', 'succeeded'), '0', 'a counter is there before it counts');
settle($source, 'items');
$source->safe_psql('postgres', q{UPDATE items SET v = v + 1, updated_at = now() WHERE id <= 10});
as_loader($target, q{BEGIN; SELECT incload_run('items'); ROLLBACK});
is(sample('incload_job_read_rows_total', 'items'), '1000', 'what is rolled back is not counted');
as_loader($target, q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT incload_run('items'); COMMIT});
is(sample('incload_rows_total', 'items', 'outcome', 'updated'), '10', 'a run under one snapshot is');
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.tally_store t JOIN incload.job j USING (job_id) WHERE job = 'items'}), '2', 'in a row of its own');
as_loader($target, q{SELECT incload_run('items')});
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.tally_store t JOIN incload.job j USING (job_id) WHERE job = 'items'}), '1', 'which the next one puts together with the other');
is(sample('incload_runs_total', 'items', 'status', 'succeeded'), '3', 'without losing anything');
is($target->safe_psql('postgres', q{SELECT count(*) FROM (SELECT sum(rows_read) AS n, sum(bytes_read) AS b FROM incload.run WHERE job = 'items') r
	JOIN incload.metrics m ON (m.name, m.value) IN (('incload_job_read_rows_total', n), ('incload_job_read_bytes_total', b)) AND labels->>'job' = 'items'}), '2', 'they are what the history adds up to');

# the record of a failure is written by another session, while this one's transaction holds the counter
$source->safe_psql('postgres', q{INSERT INTO items (id, v) VALUES (2000, 1)});
my $session = session($target, 'loader');
$session->query(q{BEGIN; SELECT status FROM incload_run('items'); SAVEPOINT s});
$source->safe_psql('postgres', q{INSERT INTO items (id, v) VALUES (2001, 20000)});
$session->query(q{SELECT incload_run('items')});
like($session->{stderr}, qr/small/, 'a run that fails beside an open one says so');
unlike($session->{stderr}, qr/could not record/, 'and is on record');
$session->{stderr} = '';
$session->query(q{ROLLBACK TO s; COMMIT});
$session->quit;
is(sample('incload_runs_total', 'items', 'status', 'failed'), '1', 'it is counted');
is(sample('incload_runs_total', 'items', 'status', 'succeeded'), '4', 'and so is the other');
is(sample('incload_job_failing', 'items'), '1', 'the last one has failed');
run_fails('items', 'and fails again');
is(sample('incload_job_last_run_rows', 'items'), '0', 'with nothing loaded');

as_loader($target, q{SELECT incload_alter_job('items', options => '{"reject_limit": 5}'); SELECT incload_run('items')});
is(sample('incload_job_rejects', 'items') . sample('incload_rows_total', 'items', 'outcome', 'rejected'), '11', 'rows that are put aside are counted, and wait');
is(sample('incload_events_total', 'items', 'severity', 'ticket'), as_loader($target, q{SELECT count(*) FROM incload.event WHERE job = 'items' AND severity = 'ticket'}), 'events are counted');
cmp_ok(sample('incload_events_total', 'items', 'severity', 'ticket'), '>', 0, 'a ticket tells of them');
is(sample('incload_job_failing', 'items'), '0', 'it works again');
my $before = $target->safe_psql('postgres', q{SELECT string_agg(name || labels || value, E'\n' ORDER BY name, labels) FROM incload.metrics WHERE type = 'counter'});
$target->safe_psql('postgres', q{DELETE FROM incload.run_store; DELETE FROM incload.event_store});
is($target->safe_psql('postgres', q{SELECT string_agg(name || labels || value, E'\n' ORDER BY name, labels) FROM incload.metrics WHERE type = 'counter'}), $before, 'counters do not go down with the history');
as_loader($target, q{SELECT incload_run('items'), incload_run('odd')});

note 'gauges';
is($target->safe_psql('postgres', q{SELECT (SELECT extract(epoch FROM bound::timestamptz)::float8 FROM incload.checkpoint WHERE job = 'items') = value FROM incload.metrics
	WHERE name = 'incload_job_checkpoint_timestamp_seconds' AND labels->>'job' = 'items'}), 't', 'the checkpoint as a time');
is(sample('incload_job_checkpoint_timestamp_seconds', 'odd'), '', 'where it is one');
cmp_ok(sample('incload_job_freshness_seconds', 'items'), '<', 60, 'freshness');
as_loader($target, q{DELETE FROM dw.items WHERE id <= 3; SELECT count(*) FROM incload_reconcile('items', 'rows')});
is(sample('incload_reconcile_differing_rows', 'items', 'difference', 'missing'), '4', 'what a comparison finds: those and the one that was rejected');
as_loader($target, q{SELECT incload_pause('odd')});
is(sample('incload_job_enabled', 'odd') . sample('incload_job_enabled', 'items'), '01', 'a paused job');
is($target->safe_psql('postgres', q{BEGIN; UPDATE incload.job_store SET options = '{"freshness_slo": "90 minutes", "success_slo": 0.95}' WHERE job = 'items';
	SELECT name, value FROM incload.metrics WHERE name ~ 'objective' ORDER BY 1; ROLLBACK}), "incload_job_freshness_objective_seconds|5400\nincload_job_success_objective_ratio|0.95", 'objectives');
$session = session($target, 'loader');
$session->query(q{BEGIN; SELECT status FROM incload_run('items')});
is(sample('incload_job_running', 'items'), '1', 'a run under way');
$session->query(q{COMMIT});
$session->quit;

note 'who sees them';
$target->safe_psql('postgres', q{CREATE ROLE monitor LOGIN; GRANT pg_monitor TO monitor; CREATE ROLE outsider LOGIN});
is(as_role($target, 'monitor', q{SELECT count(DISTINCT labels->>'job') FROM incload.metrics}), '2', 'who may read statistics sees all jobs');
is(as_role($target, 'monitor', q{SELECT count(*) FROM incload.job}), '0', 'as numbers');
is(as_role($target, 'outsider', q{SELECT string_agg(name, ' ' ORDER BY name) FROM incload.metrics}), 'incload_build_info incload_scheduler_up', 'others do not');
is(as_role($target, 'outsider', q{SELECT value FROM incload.metrics WHERE name = 'incload_scheduler_up'}), '1', 'the scheduler is up');

note 'names';
is($target->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE name !~ '^incload_[a-z_]+$' OR (type = 'counter') <> (name ~ '_total$') OR help !~ '\.$' OR value IS NULL OR labels IS NULL),
	count(DISTINCT (name, type, help)) - count(DISTINCT name), count(*) - count(DISTINCT (name, labels)), count(*) > 60 FROM incload.metrics}), '0|0|0|t', 'by the conventions, each with one type and help, and each sample once');
my $text = $target->safe_psql('postgres', q{SELECT incload_metrics_text()});
like($text, qr/^# HELP incload_rows_total What .*\n# TYPE incload_rows_total counter\n(?:incload_rows_total\{.*\n)*incload_rows_total\{job="items",outcome="inserted"\} 1001$/m, 'as text');
like($text, qr/source="src\.\\"od\\"\\"d\\\\ name\\""/, 'with names escaped');
is(scalar(() = $text =~ /^# TYPE /mg), $target->safe_psql('postgres', 'SELECT count(DISTINCT name) FROM incload.metrics'), 'each name once');

note 'what it costs';
$target->safe_psql('postgres', q{
	BEGIN;
	INSERT INTO incload.job_store (job, owner, owner_oid, source, source_oid, target, target_oid, database, strategy, search_path)
		SELECT 'many ' || i, 'loader', 1, 's', 1, 't', 1, '', 'full', '' FROM generate_series(1, 200) i;
	INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at)
		SELECT 1000000 + i, job_id, job, owner, 'full', CASE WHEN i > 6000 THEN 'failed' ELSE 'succeeded' END, 'manual', now(), now()
		FROM incload.job_store j JOIN generate_series(1, 20000) i ON job = 'many ' || (i % 200 + 1);
	COMMIT;
	ANALYZE incload.run_store, incload.job_store, incload.tally_store});
my $plan = $target->safe_psql('postgres', 'EXPLAIN SELECT * FROM incload.metrics');
unlike($plan, qr/Seq Scan on run_store|Seq Scan on event_store|Seq Scan on reconcile_store/, 'no history is read from end to end');
like($plan, qr/run_store_success_idx/, 'the last success is looked up');
cmp_ok($plan =~ /^\w.*?\(cost=[\d.]+\.\.([\d.]+)/ && $1, '<', 50000, 'JIT has no cause to start: it would take longer than all the rest');
like($target->safe_psql('postgres', q{EXPLAIN (ANALYZE, COSTS off, TIMING off) SELECT * FROM incload.metrics WHERE name = 'incload_scheduler_up'}),
	qr/run_store_success_idx on run_store \w+ \(never executed\)/, 'one metric costs what it takes');
is($target->safe_psql('postgres', q{SELECT sum(value) FROM incload.metrics WHERE name = 'incload_runs_total' AND labels->>'job' ^@ 'many '}), '20000', 'each was counted');
$target->safe_psql('postgres', q{DELETE FROM incload.run_store WHERE job ^@ 'many '; DELETE FROM incload.job_store WHERE job ^@ 'many '});

as_loader($target, q{SELECT incload_create_job('brief', 'src.items', 'dw.brief', 'upsert', 'updated_at', '{id}'); SELECT incload_run('brief'); SELECT incload_drop_job('brief')});
is($target->safe_psql('postgres', q{SELECT count(*) FROM incload.tally_store t WHERE NOT EXISTS (SELECT FROM incload.job_store j WHERE j.job_id = t.job_id) AND t.job_id = (SELECT max(job_id) FROM incload.event_store WHERE job = 'brief')}), '0', 'a tally goes with its job');

note 'runbooks';
is(as_loader($target, q{SELECT DISTINCT runbook FROM incload.event WHERE code = 'job_paused'}), 'docs/runbooks/job_paused.md', 'an event names its page');
$target->append_conf('postgresql.conf', q{incload.runbook_url = 'https://git.example.org/incload/'});
$target->reload;
ok($target->poll_query_until('postgres', q{SELECT incload.runbook('x') = 'https://git.example.org/incload/docs/runbooks/x.md'}), 'below a place that can be set');

note 'dashboards';
my %known = map { $_ => 1 } split(/\n/, $target->safe_psql('postgres', q{SELECT DISTINCT name FROM incload.metrics}));
# these are there once something has happened
$known{$_} = 1 foreach qw(incload_page_open incload_job_next_run_timestamp_seconds incload_backfill_windows incload_job_freshness_objective_seconds incload_job_success_objective_ratio incload_job_error_budget_left_ratio);
my $definition = $target->safe_psql('postgres', q{SELECT pg_get_viewdef('incload.metrics')});
like($definition, qr/'$_'/, "the view has $_") foreach sort keys %known;
my $rules = slurp_file('monitoring/incload_rules.yml');
my %recorded = map { $_ => 1 } $rules =~ /record: (\S+)/g;
my $queries = slurp_file('monitoring/postgres_exporter.yml');

sub unknown_metrics
{
	my ($expression) = @_;
	return grep { !$known{$_} && !$recorded{$_} } $expression =~ /(?<!["'\w])(incload[_:][a-z_:0-9]+)(?!\.yml)\b/g;
}
(my $expressions = $rules) =~ s/^\s*(?:- record:|- name:|#|code:|runbook_url:|summary:|description:).*$//mg;
$expressions =~ s/\{__name__=~"[^"]*"/{/g;
is(join(' ', unknown_metrics($expressions)), '', 'each rule names metrics that exist');
foreach my $name (sort keys %known)
{
	like($queries, qr/'$name'|\^\@ 'incload_job_'/, "the exporter asks for $name");
}
my @dashboards = glob('monitoring/grafana/*.json');
is(scalar(@dashboards), 3, 'three dashboards');
foreach my $file (@dashboards)
{
	my $dashboard = decode_json(slurp_file($file));
	my @panels = @{ $dashboard->{panels} };
	my @targets = map { @{ $_->{targets} } } @panels;
	my %places;

	cmp_ok(scalar(@targets), '>', 8, "$file: $dashboard->{title} has panels");
	is(join(' ', map { unknown_metrics($_->{expr}) } @targets), '', "$file: each query names metrics that exist");
	is(scalar(grep { $_->{expr} !~ /incload|ALERTS/ } @targets), 0, "$file: and one at least");
	is(scalar(grep { $_->{datasource}{uid} ne '${datasource}' } @targets, @panels), 0, "$file: of the data source that is chosen");
	is(scalar(grep { my $p = $_->{gridPos}; $p->{x} + $p->{w} > 24 || $places{"$p->{x}/$p->{y}"}++ } @panels), 0, "$file: panels stand beside each other");
	my %variables = map { $_->{name} => 1 } @{ $dashboard->{templating}{list} };
	my @used = map { grep { !/^__/ } $_->{expr} =~ /\$(\w+)/g } @targets;
	is(join(' ', grep { !$variables{$_} } @used), '', "$file: variables are defined");
	ok((grep { $_ eq 'price' } @used) > 0, "$file: has a price per GB") if $file =~ /executive/;
}

foreach my $program (qw(prometheus promtool prometheus-postgres-exporter))
{
	next if grep { -x "$_/$program" } split(/:/, $ENV{PATH});
	note "no $program here";
	done_testing();
	exit;
}

note 'promtool';
command_ok([ 'promtool', 'check', 'rules', 'monitoring/incload_rules.yml' ], 'the rules are valid');
command_ok([ 'promtool', 'check', 'config', 'monitoring/prometheus.yml' ], 'and the example of a configuration');
command_ok([ 'promtool', 'test', 'rules', 'monitoring/incload_rules_test.yml' ], 'and do what they say');
my ($out, $err) = ('', '');
IPC::Run::run([ 'promtool', 'check', 'metrics' ], '<', \"$text\n", '>', \$out, '2>', \$err);
is($out . $err, '', 'promtool has nothing to say of the text format');

note 'prometheus and its exporter';
my ($exporter_port, $prometheus_port) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
my @started;
END { $_->kill_kill foreach @started }

sub start_program
{
	my ($name, $environment, @command) = @_;
	my $log = "$dir/$name.log";
	push @started, IPC::Run::start(\@command, '<', \undef, '>', $log, '2>&1', init => sub { %ENV = (%ENV, %$environment) });
	return;
}
my ($host, $port) = ($target->host, $target->port);
# what a version of the exporter sends by itself is not wanted here
my $help = join('', run_command([ 'prometheus-postgres-exporter', '--help' ]));
if ($help !~ /--extend\.query-path/)
{
	note 'this exporter takes no queries';
	done_testing();
	exit;
}
my @quiet = map { "--no-collector.$_" } $help =~ /--(?:\[no-\])?collector\.(\w+) /g;
push @quiet, grep { $help =~ /\Q$_\E(?=\s)/ } qw(--disable-default-metrics --disable-settings-metrics);
start_program('exporter', { DATA_SOURCE_NAME => "host=$host port=$port user=monitor dbname=postgres sslmode=disable" },
	'prometheus-postgres-exporter', "--web.listen-address=127.0.0.1:$exporter_port", @quiet, '--extend.query-path=monitoring/postgres_exporter.yml');
(my $config = slurp_file('monitoring/prometheus.yml')) =~ s/127\.0\.0\.1:9187/127.0.0.1:$exporter_port/;
$config =~ s/(scrape_interval: )30s/${1}4s/;
$config =~ s/30s/1s/g;
$config =~ s/^alerting:.*//ms;
append_to_file("$dir/prometheus.yml", $config);
append_to_file("$dir/incload_rules.yml", $rules);
start_program('prometheus', {}, 'prometheus', "--config.file=$dir/prometheus.yml", "--storage.tsdb.path=$dir/tsdb", "--web.listen-address=127.0.0.1:$prometheus_port", '--log.level=warn');

my $http = HTTP::Tiny->new(timeout => 10);

sub ask
{
	my ($path, %parameters) = @_;
	my $url = "http://127.0.0.1:$prometheus_port/api/v1/$path";
	$url .= '?' . $http->www_form_urlencode(\%parameters) if %parameters;
	my $answer = $http->get($url);
	return $answer->{success} ? decode_json($answer->{content})->{data} : undef;
}

# the values of a query by job
sub query
{
	my ($expression) = @_;
	my $data = ask('query', query => $expression) or return {};
	return { map { ($_->{metric}{job} || '') => $_->{value}[1] } @{ $data->{result} } };
}

# as the source has been replaced by another server, as far as the job knows
$target->safe_psql('postgres', q{UPDATE incload.checkpoint_store SET epoch = regexp_replace(epoch, '\d{10,}', '1234567890') WHERE job_id = (SELECT job_id FROM incload.job_store WHERE job = 'items')});
fails_with($target, 'loader', q{SELECT incload_run('items')}, '55000', qr/another server/, 'the source is another server');

ok(wait_for(60, sub { (query('incload_page_open{code="source_changed"}')->{items} || 0) == 1 }), 'a page is scraped')
  or diag(slurp_file("$dir/exporter.log"), slurp_file("$dir/prometheus.log"));
my $scraped = $http->get("http://127.0.0.1:$exporter_port/metrics")->{content};
foreach my $name (sort keys %known)
{
	next if $name eq 'incload_backfill_windows';
	my $type = $name =~ /_total$/ ? 'counter' : 'gauge';
	like($scraped, qr/^# TYPE $name $type$/m, "the exporter has $name");
}
is_deeply([ grep { !$known{$_} } $scraped =~ /^# TYPE (incload_\w+)/mg ], [], 'and nothing else by another name');
unlike($scraped, qr/pg_exporter_user_queries_load_error\{.*\} 1|pg_exporter_last_scrape_error 1/, 'without an error');
is(query('incload_job_read_rows_total')->{items}, sample('incload_job_read_rows_total', 'items'), 'Prometheus has what the view says');
is(query('incload_rows_total{outcome="rejected"}')->{items}, '1', 'by labels');
is(query('incload_job_enabled == 0')->{odd}, '0', 'of each job');

my $rule_groups = ask('rules');
my @all = map { @{ $_->{rules} } } @{ $rule_groups->{groups} };
cmp_ok(scalar(@all), '>', 30, 'the rules are loaded');
is(join(' ', map { "$_->{name}: $_->{lastError}" } grep { $_->{lastError} } @all), '', 'and evaluated without an error');

my $firing;
ok(wait_for(60, sub {
		($firing) = grep { $_->{labels}{alertname} eq 'IncloadSourceChanged' && $_->{state} eq 'firing' } @{ (ask('alerts') || {})->{alerts} || [] };
		$firing }), 'the alert fires');
is_deeply([ @{ $firing->{labels} }{qw(job severity code)} ], [qw(items page source_changed)], 'with job, severity and code');
is($firing->{annotations}{runbook_url}, 'https://git.example.org/incload/blob/main/docs/runbooks/source_changed.md', 'and the page that says what to do');
is($firing->{annotations}{summary}, 'Job items has stopped: source_changed', 'and a line to wake up by');
ok(wait_for(60, sub { grep { $_->{labels}{alertname} eq 'IncloadReconcileMismatch' && $_->{labels}{job} eq 'items' } @{ (ask('alerts') || {})->{alerts} || [] } }), 'so does that of the comparison');

as_loader($target, q{SELECT incload_accept_source('items'); SELECT incload_run('items')});
ok(wait_for(60, sub { my $alerts = ask('alerts') or return 0; !grep { $_->{labels}{alertname} eq 'IncloadSourceChanged' } @{ $alerts->{alerts} } }), 'and is over once the job runs again');

done_testing();
