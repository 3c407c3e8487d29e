# Rows that come below the checkpoint: a lookback finds them, for each type that
# has one and to the last digit of it. And rows that come there because their
# time was rounded when it was stored: no lookback is needed for those.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(source => "timezone = 'America/New_York'");

# Of each type: the lookback, what it takes off a value, the smallest step, and
# values for two first rows; a time's checkpoint comes from the clock.
my %types = (
	'date' => [ '2 days', q{- 2}, q{- 1} ],
	'date ' => [ '3', q{- 3}, q{- 1} ],
	'timestamp' => [ '90 minutes', q{- interval '90 minutes'}, q{- interval '0.000001 s'} ],
	'timestamptz' => [ '1 hour 0.000001 seconds', q{- interval '1 hour 0.000001 s'}, q{- interval '0.000001 s'} ],
	'smallint' => [ '100', '- 100', '- 1' ],
	'int' => [ '7', '- 7', '- 1' ],
	'bigint' => [ '1', '- 1', '- 1' ],
	'numeric' => [ '0.5', '- 0.5', '- 0.000000000000000000001' ],
	'numeric(38,10)' => [ '0.0000000001', '- 0.0000000001', '- 0.0000000001' ],
	'oid' => [ '10', '::bigint - 10', '::bigint - 1' ],
);
my (%jobs, @there, $there_sql, $here_sql, $create_sql);
foreach my $type (sort keys %types)
{
	my ($lookback, $less, $step) = @{ $types{$type} };
	(my $name = $type) =~ s/\W/_/g;
	my $values = $type =~ /^(date|time)/ ? [ "'2020-01-01'", "'2020-01-02'" ] : [ 1000, 2000 ];

	foreach my $reader ('copy', 'relation', 'here')
	{
		my $job = "${name}_$reader";
		my $sql = "CREATE TABLE %s.$job (id int PRIMARY KEY, w $type NOT NULL); INSERT INTO %s.$job VALUES (1, $values->[0]), (2, $values->[1]);\n";
		my $zone = $type =~ /^(date|timestamp)/ ? q{, "source_timezone": "America/New_York"} : '';
		my $how = $reader eq 'relation' ? q{, "reader": "relation"} : '';

		$jobs{$job} = { type => $type, less => $less, step => $step, where => $reader eq 'here' ? 'src' : 'public' };
		$here_sql .= sprintf($sql, 'src', 'src') if $reader eq 'here';
		$there_sql .= sprintf($sql, 'public', 'public') if $reader ne 'here';
		push(@there, $job) if $reader ne 'here';
		$create_sql .= qq{SELECT incload_create_job('$job', 'src.$job', 'dw.$job', 'upsert', 'w', '{id}',
			options => '{"lookback": "$lookback", "settle": "1 ms"$zone$how}');\n};
	}
}
$source->safe_psql('postgres', $there_sql);
as_loader($target, $here_sql);
foreign_table($target, @there);
as_loader($target, $create_sql);

my $run_all = join('', map { "SELECT incload_run('$_');\n" } sort keys %jobs);
as_loader($target, $run_all . $run_all);
my %bound = map { split(/\|/, $_, 2) } split(/\n/, as_loader($target, 'SELECT job, bound FROM incload.checkpoint'));
is(join(' ', map { "$_=$bound{$_}" } grep { !/^(date|time)/ } sort keys %bound),
	join(' ', map { "$_=" . (/38/ ? '2000.0000000000' : '2000') } grep { !/^(date|time)/ } sort keys %jobs), 'the checkpoints of numbers are at the newest');

# one at the lower end of the lookback, one just below it, and one far below
my %late = (public => '', src => '');
foreach my $job (sort keys %jobs)
{
	my $j = $jobs{$job};
	my $low = "('$bound{$job}'::$j->{type} $j->{less})";
	$late{ $j->{where} } .= "INSERT INTO $j->{where}.$job VALUES (10, $low), (11, ($low)::$j->{type} $j->{step}), (12, " . ($j->{type} =~ /^(date|time)/ ? "'2020-01-01'" : 500) . ");\n";
}
$source->safe_psql('postgres', $late{public});
as_loader($target, $late{src} . $run_all);
# (a parallel plan gives the parts of UNION ALL in any order)
is(join("\n", sort split(/\n/, as_loader($target, join(' UNION ALL ', map { "SELECT '$_', string_agg(id::text, ' ' ORDER BY id) FROM dw.$_" } sort keys %jobs)))),
	join("\n", sort map { "$_|1 2 10" } keys %jobs), 'what is within the lookback arrives, and nothing below');
# a refresh finds the rest
as_loader($target, join('', map { "SELECT incload_refresh('$_');" } sort keys %jobs));
is(as_loader($target, join(' UNION ALL ', map { "SELECT '$_' FROM dw.$_ HAVING count(*) <> 5" } sort keys %jobs)), '', 'a refresh brings what is older');

# Times with fewer digits than the clock: one that is stored as 12:00:00 may have
# been taken by a transaction that began at 12:00:00.4. It commits when all others
# are long over.
$source->safe_psql('postgres', q{
	CREATE TABLE s0 (id int PRIMARY KEY, at timestamptz(0) NOT NULL DEFAULT now());
	CREATE TABLE s3 (id int PRIMARY KEY, at timestamp(3) NOT NULL DEFAULT localtimestamp);
	CREATE TABLE s6 (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), other timestamptz(0));
	CREATE DOMAIN moment AS timestamptz(1);
	CREATE TABLE sd (id int PRIMARY KEY, at moment NOT NULL DEFAULT now());
});
# a view tells no digits where what it reads has several
$source->safe_psql('postgres', 'CREATE VIEW seen AS SELECT id, at FROM s0 UNION ALL SELECT id, at FROM s6 WHERE false');
my %rounded = (
	seen => [ 'seen', 'at' ],
	s0 => [ 's0', 'at' ], s3 => [ 's3', 'at' ], sd => [ 'sd', 'at' ],
	cast0 => [ 's6', '(at::timestamptz(0))' ], unknown => [ 's6', '(coalesce(other, at))' ],
);
foreign_table($target, 's0', 's3', 's6', 'seen');
# what is behind a domain, the source tells
as_loader($target, q{CREATE FOREIGN TABLE src.sd (id int, at timestamptz) SERVER source OPTIONS (schema_name 'public')});
foreach my $job (sort keys %rounded)
{
	as_loader($target, qq{
		SELECT incload_create_job('$job', 'src.$rounded{$job}[0]', 'dw.$job', 'upsert', '$rounded{$job}[1]', '{id}', options => '{"lookback": "0"}');
		SELECT incload_create_job('${job}_log', 'src.$rounded{$job}[0]', 'dw.${job}_log', 'append', '$rounded{$job}[1]', '{}');});
}
# it has to begin after a whole second and before the next half: other digits are rounded up
my $insert = q{INSERT INTO s0 VALUES (1); INSERT INTO s3 VALUES (1); INSERT INTO s6 VALUES (1, now(), now()); INSERT INTO sd VALUES (1)};
my $writer = $source->background_psql('postgres');
for (;;)
{
	$writer->query_safe("BEGIN; $insert");
	last if $writer->query_safe(q{SELECT bool_and(at < now()) FROM (SELECT at FROM s0 UNION ALL SELECT at::timestamptz FROM s3 UNION ALL SELECT other FROM s6 UNION ALL SELECT at FROM sd) r}) =~ /t/;
	$writer->query_safe('ROLLBACK');
}
# until the margin behind the clock is past it, that alone keeps the checkpoint below
$source->poll_query_until('postgres', q{SELECT clock_timestamp() > xact_start + interval '3 s' FROM pg_stat_activity WHERE state = 'idle in transaction'}) or die;
my $rounded_all = join('', map { "SELECT incload_run('$_'); SELECT incload_run('${_}_log');\n" } sort keys %rounded);
as_loader($target, $rounded_all);
is(as_loader($target, q{SELECT count(*), count(*) FILTER (WHERE guarantee = 'exact' AND bound::timestamptz < now() - interval '1 ms') FROM incload.checkpoint WHERE job ~ '^(s|cast|unknown)' AND job !~ '^small'}),
	'12|12', 'the checkpoints are there');
$writer->query_safe('COMMIT');
$writer->quit;
$source->poll_query_until('postgres', q{SELECT clock_timestamp() > max(at) + interval '3.5 s' FROM s6}) or die;
as_loader($target, $rounded_all);
is(as_loader($target, join(' UNION ALL ', map { "SELECT '$_', count(*) FROM dw.$_ HAVING count(*) <> 1" } map { ($_, "${_}_log") } sort keys %rounded)), '',
	'a row that is stored with an earlier time than its transaction began arrives, once');

# a number that only grew with the rows, beside ids that it cannot hold
$source->safe_psql('postgres', q{
	CREATE TABLE small (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, w smallint NOT NULL);
	SELECT setval(pg_get_serial_sequence('small', 'id'), 5000000);
	INSERT INTO small (w) VALUES (1), (2), (3); GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO reader});
foreign_table($target, 'small');
as_loader($target, q{SELECT incload_create_job('small', 'src.small', 'dw.small', 'upsert', 'w', '{id}'); SELECT incload_run('small')});
$source->safe_psql('postgres', 'DELETE FROM small WHERE w = 3; INSERT INTO small (w) VALUES (2)');
as_loader($target, q{SELECT incload_run('small')});
is(as_loader($target, q{SELECT bound FROM incload.checkpoint WHERE job = 'small'}), '3', 'a sequence beyond a smallint is no error');

$target->stop;
$source->stop;
done_testing();
