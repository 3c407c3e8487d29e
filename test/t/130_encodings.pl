# Sources and targets in other encodings than each other's: characters are
# converted, and one that cannot be is an error that names it and loses nothing.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();

$ENV{PGCLIENTENCODING} = 'UTF8';
my %encodings = (latin1 => 'LATIN1', ascii => 'SQL_ASCII', japan => 'EUC_JP');

# SQL as a superuser, in a database; both ways in UTF8
sub sql { my ($node, $dbname, $sql) = @_; return $node->safe_psql($dbname, $sql); }

# the error of an SQL, with detail and hint
sub failure
{
	my ($dbname, $sql) = @_;

	my ($ret, $out, $err) = $target->psql($dbname, $sql, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	return $ret == 0 ? '' : $err;
}

sub create { my ($node, @names) = @_; sql($node, 'postgres', "CREATE DATABASE $_ TEMPLATE template0 ENCODING '$encodings{$_}' LOCALE 'C'") foreach @names; return; }
create($source, sort keys %encodings);
create($target, 'latin1', 'japan');

# a schema of the source database's name in a target database, with all its tables
sub import
{
	my ($dbname, @from) = @_;
	my $port = $source->port;

	sql($target, $dbname, 'CREATE EXTENSION IF NOT EXISTS postgres_fdw; CREATE EXTENSION IF NOT EXISTS incload;');
	sql($target, $dbname, qq{
		CREATE SERVER $_ FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '$port', dbname '$_');
		CREATE USER MAPPING FOR CURRENT_USER SERVER $_ OPTIONS (user 'reader', password 'reader''s secret');
		CREATE SCHEMA $_; IMPORT FOREIGN SCHEMA public FROM SERVER $_ INTO $_;}) foreach @from;
	return;
}

# what this file has is bytes of UTF8
my @latin = map { $_ < 0xc0 ? "\xc2" . chr : "\xc3" . chr($_ - 0x40) } 0xa0 .. 0xff;
sql($source, 'latin1', 'CREATE TABLE "größe" ("schlüssel" text PRIMARY KEY, "änderung" timestamptz NOT NULL DEFAULT now(), '
	. qq{"wörter" text[], j jsonb, v varchar(3), w text COLLATE "C");
	INSERT INTO "größe" VALUES ('é', now(), '{ä,"ö ü"}', '{"ß": "ÿ"}', 'äöü', 'é'), ('z', now(), NULL, NULL, NULL, 'z');
	CREATE TABLE every (c text PRIMARY KEY, v int NOT NULL);} . join('', map { "INSERT INTO every VALUES ('$latin[$_]', $_ + 160);" } 0 .. $#latin));
sql($source, 'japan', q{CREATE TABLE "日本" ("鍵" text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), w text COLLATE "C", n int NOT NULL);
	INSERT INTO "日本" VALUES ('東京', now(), '亜', 1), ('ｱｲｳ', now(), 'ん', 1), ('Ω', now(), 'a', 1), ('ё', now(), '龠', 1), ('a', now(), NULL, 1)});
# bytes that are no UTF8, and some that are
sql($source, 'ascii', q{CREATE TABLE raw (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), t text, m varchar(4));
	INSERT INTO raw VALUES (1, now(), E'\xc3\xa4', E'\xe2\x82\xac'), (2, now(), 'plain', 'p')});
sql($source, 'postgres', q{CREATE TABLE euro (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), t text);
	INSERT INTO euro VALUES (1, now(), 'ä')});
sql($source, $_, 'GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader') foreach ('postgres', sort keys %encodings);
import('postgres', sort keys %encodings);
import('latin1', 'postgres');
import('japan', 'postgres');

# by either reader, with names, values, filter, batch cuts and a transform that are not ASCII
foreach my $reader ('copy', 'relation')
{
	sql($target, 'postgres', qq{
		SELECT incload_create_job('größe $reader', 'latin1."größe"', 'dw."Größe $reader"', 'upsert', 'änderung', '{schlüssel}',
			options => '{"reader": "$reader", "first_load": "batches", "batch_rows": 1, "filter": "\\"schlüssel\\" <> ''ø''", "transforms": {"j": "jsonb_build_object(''ä'', j)"}}')});
	sql($target, 'postgres', "CALL incload_run_in_batches('größe $reader')");
	is(sql($target, 'postgres', qq{SELECT string_agg(t::text, ' ' ORDER BY "schlüssel" DESC) FROM (SELECT "schlüssel", "wörter", j, v, w FROM dw."Größe $reader") t}),
		q[(é,"{ä,""ö ü""}","{""ä"": {""ß"": ""ÿ""}}",äöü,é) (z,,"{""ä"": null}",,z)], "LATIN1 to UTF8, $reader: names and values");
	sql($target, 'postgres', qq{SELECT incload_create_job('every $reader', 'latin1.every', 'dw.every_$reader', 'upsert', 'v', '{c}', options => '{"reader": "$reader", "first_load": "batches", "batch_rows": 7}')});
	sql($target, 'postgres', "CALL incload_run_in_batches('every $reader')");
	is(sql($target, 'postgres', "SELECT string_agg(c, '' ORDER BY v) FROM dw.every_$reader"), join('', @latin), "LATIN1 to UTF8, $reader: every character");

	sql($target, 'postgres', qq{SELECT incload_create_job('日本 $reader', 'japan."日本"', 'dw."日本 $reader"', 'upsert', 'n', '{鍵}', options => '{"reader": "$reader", "first_load": "batches", "batch_rows": 2}')});
	sql($target, 'postgres', "CALL incload_run_in_batches('日本 $reader')");
	is(sql($target, 'postgres', qq{SELECT string_agg(concat_ws('=', "鍵", w), ' ' ORDER BY "鍵" COLLATE "C") FROM dw."日本 $reader"}),
		'a Ω=a ё=龠 東京=亜 ｱｲｳ=ん', "EUC_JP to UTF8, $reader: a tie that is cut by a key in the source's order");
	# checksums are of the same characters
	is(sql($target, 'postgres', "SELECT count(*) FROM incload_reconcile('$_ $reader')"), '0', "$_, $reader: no difference") foreach ('größe', 'every', '日本');
	# by the other one, every row is read, and such new ones come with the next run anyway
	if ($reader eq 'copy')
	{
		is(sql($target, 'postgres', "SELECT sum(rows_read) FROM incload.run WHERE kind = 'reconcile'"), '0', 'no row was read for that');
		sql($target, 'postgres', qq{UPDATE dw."Größe copy" SET v = 'aou' WHERE "schlüssel" = 'é'});
		is(sql($target, 'postgres', qq{SELECT difference, key, columns, action FROM incload_reconcile('größe copy', repair => true)}), 'changed|{"schlüssel": "é"}|{v}|updated', 'one that is');
	}

	sql($target, 'postgres', qq{SELECT incload_create_job('raw $reader', 'ascii.raw', 'dw.raw_$reader', 'upsert', 'at', '{id}', options => '{"reader": "$reader", "lookback": "0"}')});
	sql($target, 'postgres', "SELECT incload_run('raw $reader')");
	is(sql($target, 'postgres', "SELECT string_agg(concat(id, t, m), ' ' ORDER BY id) FROM dw.raw_$reader"), '1ä€ 2plainp', "SQL_ASCII to UTF8, $reader: bytes that are UTF8");
}

# the order of texts: that of LATIN1 is that of UTF8, that of EUC_JP is another
sql($target, 'postgres', q{SELECT incload_create_job('by text', 'latin1."größe"', 'dw.by_text', 'upsert', 'w', '{schlüssel}')});
is(sql($target, 'postgres', q{SELECT watermark_to FROM incload_run('by text')}), 'é', 'a text of LATIN1 can be a watermark');
like(failure('postgres', q{SELECT incload_create_job('by text 2', 'japan."日本"', 'dw.by_text_2', 'upsert', 'w', '{鍵}')}),
	qr/ERROR:  42804: text in encoding EUC_JP cannot be a watermark here.*DETAIL:  .*UTF8.*HINT:  /s, 'one of EUC_JP cannot');

# bytes that mean nothing here: an error, in either format of COPY, and what was loaded stays
sql($source, 'ascii', q{INSERT INTO raw VALUES (3, now(), E'\xe4', 'y'), (4, now(), 'after', 'z')});
foreach my $reader ('copy', 'relation')
{
	like(failure('postgres', "SELECT incload_run('raw $reader')"),
		qr/ERROR:  22021: .*invalid byte sequence for encoding "UTF8": 0xe4.*DETAIL:  It came up while source ascii\.raw was read.*HINT:  Mend the row/s,
		"SQL_ASCII to UTF8, $reader: bytes that are none are an error");
	is(sql($target, 'postgres', "SELECT status, sqlstate, hint LIKE 'Mend the row%' FROM incload.run WHERE job = 'raw $reader' ORDER BY run_id DESC LIMIT 1"),
		'failed|22021|t', 'and on record');
	is(sql($target, 'postgres', "SELECT count(*) FROM dw.raw_$reader"), 2, 'nothing of the run is there');
}
sql($target, 'postgres', q{ALTER TABLE dw.raw_copy ALTER m TYPE text});
like(failure('postgres', q{SELECT incload_run('raw copy')}), qr/ERROR:  22021: .*0xe4/s, 'the same as text');
sql($source, 'ascii', q{UPDATE raw SET t = 'mended' WHERE id = 3});
foreach my $reader ('copy', 'relation')
{
	sql($target, 'postgres', "SELECT incload_run('raw $reader')");
	is(sql($target, 'postgres', "SELECT string_agg(concat(id, t, m), ' ' ORDER BY id) FROM dw.raw_$reader"), '1ä€ 2plainp 3mendedy 4afterz',
		"SQL_ASCII to UTF8, $reader: once mended at the source, all is there");
}

# a target that lacks a character
foreach my $reader ('copy', 'relation')
{
	sql($target, 'latin1', qq{SELECT incload_create_job('euro $reader', 'postgres.euro', 'euro_$reader', 'upsert', 'at', '{id}', options => '{"reader": "$reader", "lookback": "0"}')});
	sql($target, 'latin1', "SELECT incload_run('euro $reader')");
	is(sql($target, 'latin1', "SELECT t FROM euro_$reader"), 'ä', "UTF8 to LATIN1, $reader: a character that both have");
}
sql($source, 'postgres', q{INSERT INTO euro VALUES (2, now(), '€'), (3, now(), 'é')});
foreach my $reader ('copy', 'relation')
{
	my $bound = sql($target, 'latin1', "SELECT bound FROM incload.checkpoint WHERE job = 'euro $reader'");
	like(failure('latin1', $_),
		qr/ERROR:  22P05: .*character with byte sequence 0xe2 0x82 0xac in encoding "UTF8" has no equivalent in encoding "LATIN1".*DETAIL:  .*HINT:  Mend the row/s,
		"UTF8 to LATIN1, $reader: one that it lacks is an error")
	  foreach ("SELECT incload_run('euro $reader')", "CALL incload_run_in_batches('euro $reader')");
	is(sql($target, 'latin1', "SELECT string_agg(id::text, ' ') FROM euro_$reader"), '1', 'nothing of the run is there');
	is(sql($target, 'latin1', "SELECT bound FROM incload.checkpoint WHERE job = 'euro $reader'"), $bound, 'and the checkpoint has not moved');
}
# a way out that the hint names: a transform is done at the source
sql($target, 'latin1', q{SELECT incload_alter_job('euro copy', options => '{"transforms": {"t": "regexp_replace(t, ''[^\\\\x01-\\\\xff]'', ''?'', ''g'')"}}')});
sql($target, 'latin1', q{SELECT incload_run('euro copy')});
is(sql($target, 'latin1', q{SELECT string_agg(concat(id, t), ' ' ORDER BY id) FROM euro_copy}), '1ä 2? 3é', 'UTF8 to LATIN1, copy: a transform mends it');
sql($source, 'postgres', q{UPDATE euro SET t = 'EUR' WHERE id = 2});
sql($target, 'latin1', q{SELECT incload_run('euro relation')});
is(sql($target, 'latin1', q{SELECT string_agg(concat(id, t), ' ' ORDER BY id) FROM euro_relation}), '1ä 2EUR 3é', 'UTF8 to LATIN1, relation: so does the source');

# UTF8 to EUC_JP, with messages that any encoding has
sql($source, 'postgres', q{INSERT INTO euro VALUES (10, now(), '東京 ｱｲｳ Ω ё')});
sql($target, 'japan', q{SELECT incload_create_job('東京', 'postgres.euro', '"東京"', 'upsert', 'at', '{id}', options => '{"filter": "id >= 10 OR t = ''東京''"}')});
sql($target, 'japan', q{SELECT incload_run('東京')});
is(sql($target, 'japan', q{SELECT t FROM "東京"}), '東京 ｱｲｳ Ω ё', 'UTF8 to EUC_JP: characters that both have');
sql($source, 'postgres', q{INSERT INTO euro VALUES (11, now(), U&'\+01F600')});
like(failure('japan', q{SELECT incload_run('東京')}), qr/ERROR:  22P05: .*0xf0 0x9f 0x98 0x80 in encoding "UTF8" has no equivalent in encoding "EUC_JP"/s,
	'UTF8 to EUC_JP: one that it lacks');
sql($target, 'japan', q{SELECT incload_alter_job('東京', options => '{"filter": "id = 10", "post_sql": "SELECT 1 / 0"}')});
like(failure('japan', q{SELECT incload_run('東京')}), qr/ERROR:  22012: .*HINT:  Change it/s, 'a hint can be shown there');
is(sql($target, 'japan', q{SELECT string_agg(left(hint, 12), ' ' ORDER BY run_id) FROM incload.run WHERE status = 'failed'}), 'Mend the row Change it: S', 'and kept');
is(sql($target, 'japan', q{CREATE TABLE nothing (a text); SELECT reason ~ '^no column' FROM incload_suggest('nothing') WHERE chosen}), 't', 'and a reason');
# two encodings that no conversion leads from one to the other
sql($target, 'japan', 'CREATE SERVER latin1 FOREIGN DATA WRAPPER postgres_fdw OPTIONS (' . "host '127.0.0.1', port '" . $source->port . "', dbname 'latin1'); "
	. q{CREATE USER MAPPING FOR CURRENT_USER SERVER latin1 OPTIONS (user 'reader', password 'reader''s secret');
	CREATE FOREIGN TABLE every (c text, v int) SERVER latin1});
like(failure('japan', q{SELECT incload_create_job('none', 'every', 'every_copy', 'upsert', 'v', '{c}')}),
	qr/ERROR:  08001: could not connect to server "latin1".*DETAIL:  .*conversion between EUC_JP and LATIN1 is not supported.*HINT:  /s, 'LATIN1 to EUC_JP: refused');

$target->stop;
$source->stop;
done_testing();
