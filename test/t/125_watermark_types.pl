# Every type that a watermark can have, by every reader: values at both ends of
# the type, a tie that is larger than a batch, runs that die inside of it, and
# what the checkpoint says then, to the last digit.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use IncloadTest;

my ($source, $target) = two_nodes(
	source => "timezone = 'Europe/Berlin'",
	target => "timezone = 'Asia/Kathmandu'\nrestart_after_crash = on");

# Of each type: the extremes that are loaded with the rest; a value below the
# tie, the tie, and two above it; for a time, updates then take the clock's. And
# whether the source's open transactions are looked at, or values settle with time.
my %types = (
	'date' => {
		extremes => [ '-infinity', '4714-11-24 BC', '0001-12-31 BC', '9999-12-31', '5874897-12-31', 'infinity' ],
		values => [ '2020-02-28', '2020-02-29', '2020-03-01' ], is_time => 1, guarantee => 'exact' },
	'timestamp' => {
		extremes => [ '-infinity', '4714-11-24 00:00:00 BC', '0044-03-15 12:00:00.000001 BC', '9999-12-31 23:59:59.999999',
			'294276-12-31 23:59:59.999999', 'infinity' ],
		values => [ '2020-10-25 02:29:59.999999', '2020-10-25 02:30:00.000001', '2020-10-25 02:30:00.000002' ], is_time => 1,
		 guarantee => 'exact' },
	'timestamptz' => {
		extremes => [ '-infinity', '4714-11-24 00:00:00+00 BC', '0044-03-15 12:00:00.000001+00 BC', '9999-12-31 23:59:59.999999+00',
			'294276-12-31 23:59:59.999999+00', 'infinity' ],
		values => [ '2020-10-25 00:59:59.999999+00', '2020-10-25 12:00:00.999999+00', '2020-10-25 12:00:01+00' ], is_time => 1,
		 guarantee => 'exact' },
	'smallint' => {
		extremes => [ -32768, -1, 0 ], values => [ 1, 2, 3, 32767 ], guarantee => 'exact' },
	'int' => {
		extremes => [ -2147483648, 0 ], values => [ 1, 2147483645, 2147483646, 2147483647 ], guarantee => 'exact' },
	'bigint' => {
		extremes => [ '-9223372036854775808', 0 ],
		values => [ '9007199254740992', '9007199254740993', '9223372036854775806', '9223372036854775807' ], guarantee => 'exact' },
	'oid' => {
		extremes => [ 0 ], values => [ 1, '2147483648', '4294967294', '4294967295' ], guarantee => 'exact' },
	'numeric' => {
		extremes => [ '-Infinity', '-1e131071', '-0.' . '0' x 40 . '1', 'Infinity', 'NaN' ],
		values => [ '0.9999999999999999999999999', '1.0000000000000000000000001', '1e40', '10000000000000000000000000000000000000000.5' ],
		guarantee => 'exact' },
	'numeric(38,10)' => {
		extremes => [ '-9999999999999999999999999999.9999999999', '-0.0000000001', 'NaN' ],
		values => [ '0.0000000001', '1234567890123456789012345678.0123456788', '1234567890123456789012345678.0123456789',
			'9999999999999999999999999999.9999999999' ], guarantee => 'exact' },
	'numeric(3,-2)' => {
		extremes => [ -99900 ], values => [ 100, 200, 300, 99900 ], guarantee => 'exact' },
	# of version 7: the time comes first
	'uuid' => {
		extremes => [ '00000000-0000-0000-0000-000000000000' ],
		values => [ '01890a5d-ac96-774b-bcce-b302099a8057', '01890a5d-ac97-7000-8000-000000000000', '01890a5d-ac97-7000-8000-000000000001',
			'ffffffff-ffff-ffff-ffff-ffffffffffff' ], guarantee => 'settle' },
	'text COLLATE "C"' => {
		extremes => [ '', "\t", ' ' ], values => [ "A'\"\\", 'Z', 'a', "\x{c3}\x{a9}\x{e2}\x{82}\x{ac}" ], guarantee => 'settle' },
	'pg_lsn' => {
		extremes => [ '0/0' ], values => [ '0/FFFFFFFF', '1/0', '16/B374D848', 'FFFFFFFF/FFFFFFFF' ], guarantee => 'settle' },
	'xid8' => {
		extremes => [ 0 ], values => [ 3, '4294967296', '9223372036854775808', '18446744073709551615' ], guarantee => 'settle' },
	'bytea' => {
		extremes => [ '', '\x00' ], values => [ '\x7f', '\x8000', '\x800001', '\xffffff' ], guarantee => 'settle' },
);
my $TIE = 11;    # rows of one watermark
my $BATCH = 4;

# the extremes that sort below all others, of 8 rows that two batches have
sub below { my ($t) = @_; return scalar(grep { !/^(9999|5874897|294276|infinity|Infinity|NaN)/ } @{ $t->{extremes} }); }

sub literal { my ($value) = @_; $value =~ s/'/''/g; return "'$value'"; }

# what an update takes as watermark
sub next_value { my ($t, $n) = @_; return $t->{is_time} ? 'now()' : literal($t->{values}[$n]); }

# A statement that brings a target beyond a number of rows, or of changed rows,
# fails and is rolled back; the batches before it stay.
as_loader($target, q{
	CREATE TABLE dw.stops (relation regclass PRIMARY KEY, rows int, changed int);
	CREATE FUNCTION dw.stop() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE n int; m int; at dw.stops;
	BEGIN
		SELECT * INTO at FROM dw.stops WHERE relation = TG_RELID;
		EXECUTE format('SELECT count(*), count(*) FILTER (WHERE x > 0) FROM %s', TG_RELID::regclass) INTO n, m;
		IF n > at.rows OR m > at.changed THEN
			RAISE EXCEPTION 'stop';
		END IF;
		RETURN NULL;
	END $$;
	CREATE FUNCTION dw.differing(one regclass, other regclass) RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE n bigint;
	BEGIN
		EXECUTE format('SELECT count(*) FROM ((SELECT a::text FROM %1$s a EXCEPT ALL SELECT b::text FROM %2$s b)'
			' UNION ALL (SELECT b::text FROM %2$s b EXCEPT ALL SELECT a::text FROM %1$s a)) d', one, other) INTO n;
		RETURN n;
	END $$;
	-- what a job has done last, and whether its target is as its source
	CREATE FUNCTION dw.look() RETURNS TABLE (job text, found text) LANGUAGE sql AS $$
		SELECT j.job, concat_ws(' ', r.status, 'read', r.rows_read, 'inserted', r.rows_inserted, 'updated', r.rows_updated,
			'differing', CASE j.strategy WHEN 'upsert' THEN dw.differing(j.source::regclass, j.target::regclass) END)
		FROM incload.job j, LATERAL (SELECT * FROM incload.run r WHERE r.job = j.job ORDER BY run_id DESC LIMIT 1) r
	$$;
	-- is a text this very value of a type?
	CREATE FUNCTION dw.same(value text, wanted text, type text) RETURNS boolean LANGUAGE plpgsql AS $$
	DECLARE is_same boolean;
	BEGIN
		EXECUTE format('SELECT %L::%s = %L::%2$s', value, type, wanted) INTO is_same;
		RETURN is_same;
	END $$;
});

# For each type and reader a job that upserts; of the readers that know what is
# settled, one that appends without a key. The tables are there, or, for "here",
# in the target. Through the executor one type is like another: some will do.
my (%jobs, @there, $there_sql, $here_sql, $create_sql);
foreach my $type (sort keys %types)
{
	my $t = $types{$type};
	(my $name = lc($type)) =~ s/\W+/_/g;
	my $id = 0;
	my $rows = join(', ',
		(map { '(' . ++$id . ', ' . literal($_) . ')' } @{ $t->{extremes} }),
		'(100, ' . literal($t->{values}[0]) . ')',
		(map { "($_, " . literal($t->{values}[1]) . ')' } 101 .. 100 + $TIE),
		'(150, ' . literal($t->{values}[2]) . ')');

	foreach my $reader ('copy', 'relation', 'here')
	{
		next if $reader eq 'relation' && $type !~ /^(date|timestamp|bigint|numeric|uuid|text.*)$/;
		my $job = "${name}_$reader";
		my $table = $reader eq 'here' ? "src.$job" : "public.$job";
		my $sql = "CREATE TABLE $table (id int PRIMARY KEY, w $type, x int NOT NULL DEFAULT 0); INSERT INTO $table VALUES $rows;\n";

		$jobs{$job} = { type => $type, reader => $reader, table => $table, total => $id + 2 + $TIE, %$t,
			# rows that were seen are not sent again
			seen => $reader ne 'relation' && $t->{guarantee} eq 'exact' };
		$here_sql .= $sql if $reader eq 'here';
		$there_sql .= $sql if $reader ne 'here';
		push(@there, $job) if $reader ne 'here';
		my $options = $reader eq 'relation' ? ', "reader": "relation"' : '';
		$create_sql .= qq{
			SELECT incload_create_job('$job', 'src.$job', 'dw.$job', 'upsert', 'w', '{id}',
				options => '{"batch_rows": $BATCH, "settle": "1 ms"$options}');
			CREATE TRIGGER stop AFTER INSERT OR UPDATE ON dw.$job FOR EACH STATEMENT EXECUTE FUNCTION dw.stop();
			INSERT INTO dw.stops VALUES ('dw.$job', 2 * $BATCH, 0);};
		next if $reader eq 'relation';
		$create_sql .= qq{
			CREATE TABLE dw.${job}_log (id int, w $type, x int);
			SELECT incload_create_job('${job}_log', 'src.$job', 'dw.${job}_log', 'append', 'w', '{}',
				options => '{"batch_rows": $BATCH, "settle": "1 ms", "filter": "id >= 100"}');
			CREATE TRIGGER stop AFTER INSERT OR UPDATE ON dw.${job}_log FOR EACH STATEMENT EXECUTE FUNCTION dw.stop();
			INSERT INTO dw.stops VALUES ('dw.${job}_log', $TIE + 1, 0);};
	}
}
$source->safe_psql('postgres', $there_sql);
as_loader($target, $here_sql);
foreign_table($target, @there);
as_loader($target, $create_sql);
my @logs = grep { $jobs{$_}{reader} ne 'relation' } sort keys %jobs;

# the same change at each table, wherever it is
sub change
{
	my ($code) = @_;
	my ($there, $here) = ('', '');

	foreach my $job (sort keys %jobs)
	{
		my $sql = $code->($jobs{$job}) . ";\n";
		$here .= $sql if $jobs{$job}{reader} eq 'here';
		$there .= $sql if $jobs{$job}{reader} ne 'here';
	}
	$source->safe_psql('postgres', $there);
	as_loader($target, $here);
	return;
}

# calls jobs, whatever becomes of each, and compares what they say of themselves
sub call_all
{
	my ($suffix, $names, $what, $expected) = @_;
	my $calls = join('', map { "CALL incload_run_in_batches('$_$suffix');\n" } @$names);

	$target->psql('postgres', $calls, on_error_stop => 0, on_error_die => 0, extra_params => [ '-U', 'loader' ]);
	my %found = map { split(/\|/, $_, 2) } split(/\n/, as_loader($target, 'SELECT * FROM dw.look()'));
	foreach my $job (@$names)
	{
		my $wanted = $expected->($jobs{$job});

		like($found{"$job$suffix"}, qr/^$wanted$/, "$job$suffix: $what");
	}
	return;
}

# how many rows a run reads that finds so many new ones
sub reads { my ($j, $n) = @_; return $j->{seen} ? $n : '\d+'; }

my @all = sort keys %jobs;

# the third batch fails, in the tie or at its end
call_all('', \@all, 'two batches are there', sub { my ($j) = @_;
	return 'failed read ' . 2 * $BATCH . ' inserted ' . 2 * $BATCH . ' updated 0 differing ' . ($j->{total} - 2 * $BATCH) });
is(as_loader($target, join(' UNION ALL ', map { "SELECT '$_' FROM incload.checkpoint WHERE job = '$_'"
		. " AND (seen_tie_key = '{" . (100 + 2 * $BATCH - 1 - below($jobs{$_})) . "}' AND dw.same(seen, "
		. literal($jobs{$_}{values}[1]) . ", '$jobs{$_}{type}')) IS NOT TRUE" } grep { $jobs{$_}{seen} } @all)), '',
	'the place in the tie is kept to the last digit');
as_loader($target, 'UPDATE dw.stops SET rows = 1000 WHERE rows = 2 * ' . $BATCH);
call_all('', \@all, 'the rest follows, and nothing twice', sub { my ($j) = @_; my $rest = $j->{total} - 2 * $BATCH;
	return 'succeeded read ' . reads($j, $rest) . " inserted $rest updated 0 differing 0" });

# Without a key, rows of one watermark stay together: the batch of the tie, then
# one that fails. What settles with time has only been looked at by the first call.
call_all('_log', \@logs, 'the tie is there whole', sub { my ($j) = @_;
	return $j->{guarantee} eq 'exact' ? 'failed read ' . ($TIE + 1) . ' inserted ' . ($TIE + 1) . ' updated 0 differing'
		: 'succeeded read 0 inserted 0 updated 0 differing' });
call_all('_log', \@logs, 'and nothing beyond it', sub { my ($j) = @_;
	return $j->{guarantee} eq 'exact' ? 'failed read 0 inserted 0 updated 0 differing'
		: 'failed read ' . ($TIE + 1) . ' inserted ' . ($TIE + 1) . ' updated 0 differing' });
as_loader($target, 'UPDATE dw.stops SET rows = 1000');
call_all('_log', \@logs, 'the rest follows', sub { return 'succeeded read 1 inserted 1 updated 0 differing' });
call_all('_log', \@logs, 'and nothing comes twice', sub { return 'succeeded read 0 inserted 0 updated 0 differing' });
is(as_loader($target, join(' UNION ALL ', map { "SELECT '$_' FROM dw.${_}_log"
		. " HAVING string_agg(id::text, ' ' ORDER BY id) IS DISTINCT FROM '" . join(' ', 100 .. 100 + $TIE, 150) . "'" } @logs)), '',
	'each row is there once');

# a bulk update gives the tie one new watermark; the second batch of it fails
change(sub { my ($j) = @_; return "UPDATE $j->{table} SET x = 1, w = " . next_value($j, 2) . ' WHERE id BETWEEN 101 AND 149' });
as_loader($target, "UPDATE dw.stops SET changed = $BATCH");
call_all('', \@all, 'a batch of updates is there', sub { my ($j) = @_;
	return "failed read \\d+ inserted 0 updated $BATCH differing " . 2 * ($TIE - $BATCH) });
as_loader($target, 'UPDATE dw.stops SET changed = 1000');
# Below what an earlier run saw, infinity that is, its mark holds until the run is
# over. Of a number, row 150 has the watermark that the others got.
call_all('', \@all, 'the rest of it follows', sub { my ($j) = @_;
	return 'succeeded read ' . reads($j, $j->{extremes}[-1] =~ /^(NaN|infinity)$/ ? $TIE : $TIE - $BATCH + 1)
		. ' inserted 0 updated ' . ($TIE - $BATCH) . ' differing 0' });

# one more with the newest watermark, and one above it
change(sub { my ($j) = @_; return "INSERT INTO $j->{table} SELECT 200, w FROM $j->{table} WHERE id = 101; "
	. "INSERT INTO $j->{table} VALUES (201, " . next_value($j, 3) . ')' });
call_all('', \@all, 'a row that ties with the newest arrives, and one above', sub { my ($j) = @_;
	return 'succeeded read ' . reads($j, 2) . ' inserted 2 updated 0 differing 0' });
as_loader($target, join('', map { "SELECT incload_run('$_');" } @all));
is(as_loader($target, join(' UNION ALL ', map { "SELECT job, bound, bound_side, guarantee FROM incload.checkpoint WHERE job = '$_'"
		. " AND (dw.same(bound, " . literal($jobs{$_}{values}[3]) . ", '$jobs{$_}{type}') AND bound_side = 'before' AND noted_bounds = '[]') IS NOT TRUE" }
		grep { $jobs{$_}{seen} && !$jobs{$_}{is_time} } @all)), '',
	'the checkpoint is at the newest number, where another row may still come');
is(as_loader($target, join(' UNION ALL ', map { "SELECT job, guarantee FROM incload.checkpoint WHERE job = '$_' AND guarantee IS DISTINCT FROM '"
	. ($jobs{$_}{reader} eq 'relation' ? 'settle' : $jobs{$_}{guarantee}) . "'" } @all)), '', 'each has the guarantee that it can have');

$target->stop;
$source->stop;
done_testing();
