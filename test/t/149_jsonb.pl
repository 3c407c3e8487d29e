# A jsonb that is loaded has the bytes that the server's own input function makes
# of its text: beside each value, the source has its text. Values of every form, by
# the thousand, into an empty table and in batches; from other encodings, too.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes(source => "log_statement = 'all'");

$ENV{PGCLIENTENCODING} = 'UTF8';
sub sql { my ($node, $dbname, $sql) = @_; return $node->safe_psql($dbname, $sql); }

# numbers: what numeric keeps, and how it pads what comes after a string
my @numbers = ('0', '-0', '-0.00', '0.00', '1', '-1', '1.5', '1.50', '-1.500', '0.000001', '1e-5', '1E+5', '1e400', '-1e-400', '9999', '10000', '10001', '99990000',
	'0.0001', '0.00010', '1234.56789', '123456789012345.6789', '12345678901234567.8', '1.23456789012345678', '0.00000000000000012345678901234567', '999999999999999999',
	'1000000000000000000', '-999999999999999999', '9223372036854775807', '-9223372036854775808', '9223372036854775808', '12345678901234567890', '0.' . '0' x 254 . '1', '0.' . '0' x 255 . '1',
	'0.' . '0' x 300, '1' . '0' x 17 . '.' . '0' x 20, '7' x 500 . '.' . '3' x 500, '3.141592653589793', '6.02214076e23', '5e-324', '1.7976931348623157e308');
my @strings = ('""', '"a"', '"\\""', '"\\\\"', '"\\/"', '"\\b\\f\\n\\r\\t"', '"' . join('', map { sprintf '\\u%04x', $_ } 1 .. 0x7f) . '"', "\"/\x7f\"", '"ä€😀"', '"\\ud83d\\ude00"',
	'"\\\\u0041"', '"x\\\\"', '"\\\\\\"\\\\"', '"ends with \\n"', '"\\n begins"', '"null"', '"{}"', '"], [\\", \\""');
my @values = (@numbers, @strings, 'null', 'true', 'false', '{}', '[]', '[[], {}, [{}], {"": []}]', '{"": ""}', '{"": 0, "a": 1, "b": 2, "aa": 3, "B": 4, "ä": 5, "\\n": 6, "\\u0001": 7, "zzz": 8}',
	'[null, true, false, "", 0]', '{"a\\"b": {"\\\\": {"\\t": [1]}}, "a": "\\"", "longer": "plain"}', '[' . join(', ', @strings) . ']',
	# of each length before it, a number is padded by another one
	(map { my $n = $_; '["' . 'x' x $n . '", 1, "' . 'y' x $n . '", 1.25, [], "z", {}, {"' . 'k' x $n . '": -7, "longer key": [' . join(', ', @numbers) . ']}, 0]' } 0 .. 5),
	(map { '[' . join(', ', map { "\"s$_\", " . $_ * 1.5 . ", null, [\"$_\"], {\"$_\": $_}" } 1 .. $_) . ']' } 5, 6, 7, 200),
	(map { my $n = $_; ('[' . join(', ', map { $_ % 3 ? $_ : '""' } 1 .. $n) . ']', '{' . join(', ', map { "\"k$_\": " . ($_ % 3 ? "\"v$_\"" : $_) } 1 .. $n) . '}') } 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1000),
	(map { ('[' x $_ . ']' x $_, '[' x $_ . '7' . ']' x $_, '{"a": ' x $_ . '[]' . '}' x $_, '[{"a": ' x $_ . '1.5' . '}]' x $_) } 1, 2, 31, 32, 33, 63, 64, 65, 66, 1000));
my $values = join(', ', map { "'" . s/'/''/gr . "'" } @values);

$source->safe_psql('postgres', <<'SQL');
SET standard_conforming_strings = on;
CREATE TABLE docs (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), t text NOT NULL, j jsonb, many jsonb[], k json, other jsonb);
-- a string that is short, or not, of what is hard to read
CREATE FUNCTION word() RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT coalesce(string_agg((ARRAY['a', 'b', 'c', 'z', ' ', '/', '"', '\', '", "', ': ', '[', '}', E'\n', E'\x01', E'\x1f', E'\x7f', 'ä', '€', '😀', repeat('x', 40)])[1 + floor(random() * 20)], ''), '')
	FROM generate_series(1, floor(random() * random() * 9)::int) $$;
CREATE FUNCTION number() RETURNS numeric LANGUAGE sql VOLATILE AS $$
	SELECT CASE floor(random() * 6) WHEN 0 THEN floor(random() * 10) WHEN 1 THEN random() WHEN 2 THEN round((random() * 1e6)::numeric, floor(random() * 20)::int)
		WHEN 3 THEN -floor((random() * 1e18)::numeric) WHEN 4 THEN (random() - 0.5)::numeric * 10::numeric ^ floor(random() * 60 - 30)::int ELSE floor(random() * 100000) END $$;
CREATE FUNCTION document(depth int) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	n int := floor(random() * random() * CASE WHEN random() < 0.03 THEN 80 ELSE 8 END);
	result jsonb;
BEGIN
	CASE floor(random() * CASE WHEN depth > 0 THEN 10 ELSE 5 END)
		WHEN 0 THEN RETURN (ARRAY['null', 'true', 'false'])[1 + floor(random() * 3)]::jsonb;
		WHEN 1, 2 THEN RETURN to_jsonb(word());
		WHEN 3, 4 THEN RETURN to_jsonb(number());
		WHEN 5, 6 THEN SELECT jsonb_agg(document(depth - 1)) INTO result FROM generate_series(1, n); RETURN coalesce(result, '[]');
		ELSE SELECT jsonb_object_agg(word(), document(depth - 1)) INTO result FROM generate_series(1, n); RETURN coalesce(result, '{}');
	END CASE;
END $$;
SQL
$source->safe_psql('postgres', "SET standard_conforming_strings = on; INSERT INTO docs (id, t, j) SELECT n, j::text, j FROM unnest(ARRAY[$values]::jsonb[]) WITH ORDINALITY AS v(j, n)");
$source->safe_psql('postgres', <<'SQL');
SELECT setseed(0.149);
INSERT INTO docs (id, t, j) SELECT 10000 + n, j::text, j FROM (SELECT n, document(4) FROM generate_series(1, 3000) n OFFSET 0) AS v(n, j);
-- of 1 MB
INSERT INTO docs (id, t, j) SELECT 20000 + n, j::text, j FROM unnest(ARRAY[
	to_jsonb(repeat(E'a "word" and a\nline. ', 50000)),
	(SELECT jsonb_agg(n * 1.25) FROM generate_series(1, 100000) n),
	(SELECT jsonb_object_agg(md5(n::text), n) FROM generate_series(1, 20000) n),
	(SELECT jsonb_agg(jsonb_build_object('id', n, 'name', 'name ' || n, 'of', jsonb_build_array(n, NULL, 'x'))) FROM generate_series(1, 15000) n)]) WITH ORDINALITY AS v(j, n);
-- types that have jsonb in them, several columns, NULL
UPDATE docs SET many = ARRAY[j, NULL, '{"b": [1.50]}'], k = t::json, other = jsonb_build_array(j) WHERE id % 7 = 0 AND id < 20000;
INSERT INTO docs (id, t) VALUES (30000, 'null');
-- more than is read in one pass
CREATE TABLE long (id int PRIMARY KEY, j jsonb);
INSERT INTO long VALUES (1, jsonb_build_object('a', repeat('x', 17 * 1024 * 1024), 'b', 1));
SQL

foreign_table($target, 'docs', 'long');
as_loader($target, q{
	SELECT incload_create_job('docs', 'src.docs', 'dw.docs', 'upsert', 'id', '{id}');
	SELECT incload_create_job('batches', 'src.docs', 'dw.batches', 'upsert', 'at', '{id}', options => '{"first_load": "batches", "batch_rows": 1500}');
});

# counts of rows, of those whose values are not the same bytes, and of those that have other sizes
sub differing
{
	my ($table) = @_;
	return sql($target, 'postgres', qq{
		SELECT count(*), count(*) FILTER (WHERE NOT record_image_eq(ROW(j, many, k::text, other), ROW(s.j_of_t, s.many_of_t, s.k_of_t, s.other_of_t))),
			count(*) FILTER (WHERE pg_column_size(j || '[]') <> pg_column_size(j_of_t || '[]'))
		FROM (SELECT *, CASE WHEN id <> 30000 THEN t::jsonb END AS j_of_t, CASE WHEN is_seventh THEN ARRAY[t::jsonb, NULL, '{"b": [1.50]}'] END AS many_of_t,
				CASE WHEN is_seventh THEN t END AS k_of_t, CASE WHEN is_seventh THEN jsonb_build_array(t::jsonb) END AS other_of_t
			FROM (SELECT *, id % 7 = 0 AND id < 20000 AS is_seventh FROM $table) f) s});
}

my $count = 3000 + 4 + 1 + @values;
as_loader($target, q{SELECT incload_run('docs')});
is(differing('dw.docs'), "$count|0|0", 'into an empty table: the bytes are those that the server makes of the texts');
as_loader($target, q{CALL incload_run_in_batches('batches')});
is(differing('dw.batches'), "$count|0|0", 'in batches');
like(slurp_file($source->logfile), qr/COPY \(SELECT .* TO STDOUT \(FORMAT binary\)/s, 'they have come in binary');
is(scalar differences($source, $target, 'docs', 'dw.docs'), '0|0', 'and print as at the source');
# a path, an element, a key of each value: all of it can be found
is(sql($target, 'postgres', q{SELECT count(*) FROM dw.docs d, jsonb_each(CASE WHEN jsonb_typeof(d.j) = 'object' THEN d.j ELSE '{}' END) e WHERE d.id < 20000 AND (d.j -> e.key IS DISTINCT FROM e.value OR NOT d.j ? e.key)}), '0', 'every key is found');

as_loader($target, q{SELECT incload_create_job('long', 'src.long', 'dw.long', 'upsert', 'id', '{id}'); SELECT incload_run('long')});
is(sql($target, 'postgres', q{SELECT record_image_eq(ROW(j), ROW(jsonb_build_object('a', repeat('x', 17 * 1024 * 1024), 'b', 1))) FROM dw.long}), 't', 'a value of 17 MB');

# a later change of a number's scale, of nothing but its bytes
$source->safe_psql('postgres', q{UPDATE docs SET j = '[1.5]', t = '[1.5]', at = now() WHERE id = 1; UPDATE docs SET j = '{"a": [2.50]}', t = '{"a": [2.50]}', at = now() WHERE id = 2});
as_loader($target, q{CALL incload_run_in_batches('batches')});
is(sql($target, 'postgres', 'SELECT j FROM dw.batches WHERE id < 3 ORDER BY id'), qq([1.5]\n{"a": [2.50]}), 'an update');
is(differing('dw.batches'), "$count|0|0", 'has the bytes, too');

# Other encodings. Keys are in the order of their lengths at the source: 2 and 3 bytes there are 4 and 3 here.
sub create { my ($node, $dbname, $encoding) = @_; sql($node, 'postgres', "CREATE DATABASE $dbname TEMPLATE template0 ENCODING '$encoding' LOCALE 'C'"); return; }
sub import
{
	my ($dbname, $from, $table) = @_;
	my $port = $source->port;

	sql($target, $dbname, qq{CREATE EXTENSION IF NOT EXISTS postgres_fdw; CREATE EXTENSION IF NOT EXISTS incload;
		CREATE SERVER $from FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '$port', dbname '$from');
		CREATE USER MAPPING FOR CURRENT_USER SERVER $from OPTIONS (user 'reader', password 'reader''s secret');
		CREATE SCHEMA $from; IMPORT FOREIGN SCHEMA public LIMIT TO ($table) FROM SERVER $from INTO $from;
		SELECT incload_create_job('$from', '$from.$table', '${from}_$table', 'upsert', 'id', '{id}')});
	return;
}
sub failure
{
	my ($dbname, $sql) = @_;
	my ($ret, $out, $err) = $target->psql($dbname, $sql, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	return $ret == 0 ? '' : $err;
}
create($source, 'latin1', 'LATIN1');
create($source, 'ascii', 'SQL_ASCII');
create($source, 'utf8', 'UTF8');
create($target, 'latin1', 'LATIN1');
my $table = 'CREATE TABLE words (id int PRIMARY KEY, j jsonb); GRANT SELECT ON words TO reader;';
sql($source, 'latin1', $table . q{INSERT INTO words VALUES (1, '{"éé": 1, "abc": 2, "é": "ÿ\n", "ab": ["ß"]}'), (2, '"ä"')});
sql($source, 'ascii', $table . q{INSERT INTO words VALUES (1, '{"éé": 1, "abc": 2}')});
sql($source, 'utf8', $table . q{INSERT INTO words VALUES (1, '{"abc": 2, "éé": "ß", "xyz": 3, "abcd": 4}')});
import('postgres', 'latin1', 'words');
import('postgres', 'ascii', 'words');
import('latin1', 'utf8', 'words');
sql($target, 'postgres', q{SELECT incload_run('latin1')});
is(sql($target, 'postgres', q{SELECT j, record_image_eq(ROW(j), ROW(j::text::jsonb)), j -> 'éé' FROM latin1_words ORDER BY id}), qq({"ab": ["ß"], "é": "ÿ\\n", "abc": 2, "éé": 1}|t|1\n"ä"|t|), 'LATIN1 to UTF8: keys in the order that they have here');
sql($target, 'postgres', q{SELECT incload_run('ascii')});
is(sql($target, 'postgres', q{SELECT j, record_image_eq(ROW(j), ROW(j::text::jsonb)) FROM ascii_words}), '{"abc": 2, "éé": 1}|t', 'SQL_ASCII to UTF8');
sql($target, 'latin1', q{SELECT incload_run('utf8')});
is(sql($target, 'latin1', q{SELECT j, record_image_eq(ROW(j), ROW(j::text::jsonb)), j -> 'éé' FROM utf8_words}), '{"éé": "ß", "abc": 2, "xyz": 3, "abcd": 4}|t|"ß"', 'UTF8 to LATIN1: likewise');

# what cannot be here is the server's error
sql($source, 'ascii', q{INSERT INTO words VALUES (2, E'{"a": "\xe4"}')});
like(failure('postgres', q{SELECT incload_run('ascii')}), qr/ERROR:  22021: .*invalid byte sequence for encoding "UTF8": 0xe4/s, 'bytes that are no character');
is(sql($target, 'postgres', 'SELECT count(*) FROM ascii_words'), '1', 'nothing of that is here');
sql($source, 'utf8', q{INSERT INTO words VALUES (2, '{"€": 1}')});
like(failure('latin1', q{SELECT incload_run('utf8')}), qr/ERROR:  22P05: .*has no equivalent in encoding "LATIN1"/s, 'a character that LATIN1 lacks');

$target->stop;
$source->stop;
done_testing();
