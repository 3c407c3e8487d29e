# Values of a hundred megabytes, in binary and as text, by either reader: they
# arrive as they are, in a few times their size of memory.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();
my $size = 100 * 1024 * 1024;

# not compressed, which would take longer than all else; the enum makes it text
my $storage = 'ALTER TABLE %s ALTER b SET STORAGE EXTERNAL, ALTER t SET STORAGE EXTERNAL;';
my $columns = 'id int PRIMARY KEY, at timestamptz NOT NULL, b bytea, t text';
$source->safe_psql('postgres', qq{
	CREATE TYPE mood AS ENUM ('fine');
	CREATE TABLE big ($columns); CREATE TABLE big_text ($columns, m mood);}
	. sprintf($storage, 'big') . sprintf($storage, 'big_text') . qq{
	INSERT INTO big VALUES (1, '2024-01-01Z', decode(repeat('00ff5c0a', $size / 4), 'hex'), 'x'), (2, '2024-01-02Z', '', NULL);
	INSERT INTO big_text VALUES (1, '2024-01-01Z', NULL, repeat(E'\\t\\\\N\\n\x{e2}\x{82}\x{ac}"', $size / 8), 'fine'), (2, '2024-01-02Z', NULL, '', NULL);
});
as_loader($target, "CREATE TYPE dw.mood AS ENUM ('fine');"
	. "CREATE FOREIGN TABLE src.big_text (id int, at timestamptz, b bytea, t text, m dw.mood) SERVER source OPTIONS (schema_name 'public');"
	. join('', map { sprintf($storage, "dw.$_") =~ s/^/CREATE TABLE dw.$_ ($columns); /r } ('big', 'by_fdw')) . "CREATE TABLE dw.big_text ($columns, m dw.mood);" . sprintf($storage, 'dw.big_text'));
foreign_table($target, 'big');
as_loader($target, q{
	SELECT incload_create_job('big', 'src.big', 'dw.big', 'upsert', 'at', '{id}');
	SELECT incload_create_job('big_text', 'src.big_text', 'dw.big_text', 'upsert', 'at', '{id}', options => '{"first_load": "batches"}');
	SELECT incload_create_job('by_fdw', 'src.big', 'dw.by_fdw', 'upsert', 'at', '{id}', options => '{"reader": "relation", "filter": "id = 1"}');
});
my $digests = q{SELECT id, length(b), md5(b), length(t), md5(t) FROM %s ORDER BY id};
my %there = map { $_ => $source->safe_psql('postgres', sprintf($digests, $_)) } ('big', 'big_text');
like($there{big}, qr/^1\|$size\|/, 'the value is as large as that');

# in a session of its own, called by one who may look how much memory it took
sub run
{
	my ($sql) = @_;
	my $peak = $target->safe_psql('postgres', "$sql; SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s+(\\d+)')") =~ s/.*\n//sr;

	note "$sql: $peak kB";
	cmp_ok($peak, '<', 10 * $size / 1024, "$sql: the memory is not more than ten times the value");
	return;
}
run(q{SELECT incload_run('big')});
is($target->safe_psql('postgres', sprintf($digests, 'dw.big')), $there{big}, 'bytea, in binary, into an empty target');
run(q{CALL incload_run_in_batches('big_text')});
is($target->safe_psql('postgres', sprintf($digests, 'dw.big_text')), $there{big_text}, 'text, as text, in a batch');
run(q{SELECT incload_run('by_fdw')});
is($target->safe_psql('postgres', sprintf($digests, 'dw.by_fdw')), (split(/\n/, $there{big}))[0], 'bytea, through the executor');

# the least difference is one
$source->safe_psql('postgres', q{UPDATE big SET b = set_byte(b, length(b) - 1, 11), at = now() WHERE id = 1});
as_loader($target, q{SELECT incload_run('big')});
is(last_run($target, 'big', 'rows_updated'), '1', 'its last byte makes it an update');
is($target->safe_psql('postgres', sprintf($digests, 'dw.big')), $source->safe_psql('postgres', sprintf($digests, 'big')), 'which arrives');

$target->stop;
$source->stop;
done_testing();
