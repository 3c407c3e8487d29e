# The target's own code runs while rows are read: what it says is of the target, not of the COPY that brings the rows.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
	INSERT INTO items SELECT i, 'v' FROM generate_series(1, 10) i});
foreign_table($target, 'items');
as_loader($target, q{
	CREATE FUNCTION dw.judge(v text) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		IF v = 'said' THEN RAISE WARNING 'caf%', chr(233); END IF;
		IF v = 'bad' THEN RAISE EXCEPTION 'not caf%', chr(233); END IF;
		RETURN true;
	END $$;
	CREATE TABLE dw.items (id int PRIMARY KEY, v text CHECK (dw.judge(v)), updated_at timestamptz);
	SELECT incload_create_job('items', 'src.items', 'dw.items', 'upsert', 'updated_at', '{id}');
});

# what a client with another encoding reads of a run
sub run_says
{
	local $ENV{PGCLIENTENCODING} = 'LATIN1';
	local $ENV{PGPASSWORD} = 'loader';
	my ($out, $err);
	$target->psql('postgres', q{\set VERBOSITY verbose
		SELECT incload_run('items')}, extra_params => ['-U', 'loader'], stdout => \$out, stderr => \$err);
	return $err;
}

foreach my $way ('into a new heap', 'straight into the target')
{
	my $first = $way =~ /new/ ? 1 : 100;
	settle($source, 'items');
	$source->safe_psql('postgres', qq{UPDATE items SET v = 'v'; INSERT INTO items SELECT i, 'v' FROM generate_series($first + 10, $first + 3010) i;
		UPDATE items SET v = 'said', updated_at = clock_timestamp() WHERE id = $first + 3010}) if $first > 1;
	$source->safe_psql('postgres', q{UPDATE items SET v = 'said' WHERE id = 5}) if $first == 1;
	like(run_says(), qr/WARNING:  01000: caf\xe9$/m, "$way: a warning comes in the client's encoding");
}
is($target->safe_psql('postgres', 'SELECT count(*) FROM dw.items'), '3011', 'and the rows are there');

settle($source, 'items');
$source->safe_psql('postgres', q{INSERT INTO items SELECT i, 'v' FROM generate_series(10001, 13000) i;
	INSERT INTO items VALUES (13001, 'bad')});
my $said = run_says();
like($said, qr/ERROR:  P0001: not caf\xe9$/m, 'an error as well');
like($said, qr/^CONTEXT: .*judge/m, 'with the place where it was raised');
unlike($said, qr/COPY/, 'which is no line of a COPY');
is($target->safe_psql('postgres', 'SELECT count(*) FROM dw.items'), '3011', 'and nothing is loaded');

# a value that the parser refuses is one of a line
$source->safe_psql('postgres', q{DELETE FROM items WHERE id > 10000; ALTER TABLE items ALTER v TYPE varchar(20);
	INSERT INTO items VALUES (20000, 'v')});
as_loader($target, q{ALTER TABLE dw.items DROP CONSTRAINT items_v_check; ALTER TABLE dw.items ALTER v TYPE varchar(4)});
$source->safe_psql('postgres', q{INSERT INTO items VALUES (20001, 'longer')});
like(run_says(), qr/22001.*^CONTEXT:  COPY items, line \d+, column v/ms, 'a value that is too long is shown by line and column');

done_testing();
