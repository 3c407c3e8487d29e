# A source whose columns change: the job follows, goes on without, or stops, and says so each time.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();

sub there { return $source->safe_psql('postgres', $_[0]); }
sub here { return as_loader($target, $_[0]); }

# events of a job that were not looked at yet: severity|column|change|sql, a line each
my %looked_at;
sub news
{
	my ($job) = @_;
	my $since = $looked_at{$job} || 0;
	my $rows = here(qq{SELECT severity, details->>'column', details->>'change', coalesce(details->>'sql', '-')
		FROM incload.event WHERE job = '$job' AND code = 'schema_changed' AND event_id > $since ORDER BY event_id});

	$looked_at{$job} = here(q{SELECT max(event_id) FROM incload.event});
	return $rows;
}

# table NAME (COLUMNS): at the source, with three rows, and a foreign table for it
sub new_table
{
	my ($name, $columns, $values) = @_;
	there("CREATE TABLE $name (id int PRIMARY KEY, $columns, updated_at timestamptz NOT NULL DEFAULT now());"
		. "INSERT INTO $name SELECT i, $values, now() - interval '1 h' FROM generate_series(1, 3) i");
	foreign_table($target, $name);
	return;
}

sub new_job
{
	my ($name, $mode) = @_;
	here("SELECT incload_create_job('$name', 'src.$name', 'dw.$name', 'upsert', 'updated_at', '{id}', options => '{\"schema_change\": \"$mode\"}'); SELECT incload_run('$name')");
	return;
}

# row I of the copy, as JSON without its time
sub copy
{
	my ($name, $id) = @_;
	return here("SELECT to_jsonb(copied) - 'updated_at' FROM dw.$name copied WHERE id = $id");
}

sub columns
{
	my ($relation) = @_;
	return here("SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' not null' ELSE '' END, ', ' ORDER BY attnum)"
		. " FROM pg_attribute WHERE attrelid = '$relation'::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('id', 'updated_at')");
}

#
# evolve
#
new_table('e', 'small int2, short varchar(10), number numeric(6,2)', q{i, 'v' || i, i});
new_job('e', 'evolve');
is(news('e'), '', 'evolve: nothing to follow, nothing told');
there(q{
	CREATE TYPE mood AS ENUM ('sad', 'happy');
	ALTER TABLE e ADD "Note; text" text COLLATE "C", ADD needed int NOT NULL DEFAULT 7, ADD feeling mood DEFAULT 'happy';
	UPDATE e SET "Note; text" = 'changed', updated_at = now() WHERE id = 2});
here(q{SELECT incload_run('e')});
is(copy('e', 2), '{"id": 2, "short": "v2", "small": 2, "needed": 7, "number": 2.00, "Note; text": "changed"}', 'new columns are added, and loaded by the same run');
is(columns('dw.e'), 'small smallint, short character varying(10), number numeric(6,2), Note; text text, needed integer', 'to the target, nullable');
is(columns('src.e'), 'small smallint, short character varying(10), number numeric(6,2), Note; text text, needed integer', 'and to the foreign table');
is(here(q{SELECT collname FROM pg_attribute a JOIN pg_collation c ON c.oid = attcollation WHERE attrelid = 'dw.e'::regclass AND attname = 'Note; text'}), 'C', 'with their collation');
is(news('e'), q{info|Note; text|new|ALTER FOREIGN TABLE src.e ADD COLUMN "Note; text" pg_catalog.text COLLATE pg_catalog."C"; ALTER TABLE dw.e ADD COLUMN "Note; text" pg_catalog.text COLLATE pg_catalog."C"
ticket|feeling|new|-
info|needed|new|ALTER FOREIGN TABLE src.e ADD COLUMN needed integer; ALTER TABLE dw.e ADD COLUMN needed integer},
	'each is an event with its SQL; a type that is not known here is told');
like(here(q{SELECT message FROM incload.event WHERE details->>'column' = 'feeling'}), qr/there is no type (public\.)?mood here/, 'and why');
like(here(q{SELECT details->>'hint' FROM incload.event WHERE details->>'column' = 'needed'}), qr/incload_fill_columns\('e', ARRAY\['needed'\]\)/, 'the event says how old rows get their values');
is(here(q{SELECT run_id = (SELECT max(run_id) FROM incload.run WHERE job = 'e') FROM incload.event WHERE details->>'column' = 'needed'}), 't', 'and which run it was');
is(copy('e', 1), '{"id": 1, "short": "v1", "small": 1, "needed": null, "number": 1.00, "Note; text": null}', 'old rows have no value yet');
is(here(q{SELECT kind, status, rows_read, rows_inserted, rows_updated, rows_unchanged FROM incload_fill_columns('e', '{needed}')}), 'backfill|succeeded|3|0|2|1', 'until they are filled');
is(copy('e', 1), '{"id": 1, "short": "v1", "small": 1, "needed": 7, "number": 1.00, "Note; text": null}', 'in that column alone');
here(q{SELECT incload_run('e')});
is(news('e'), '', 'nothing is told twice');

# wider types
there(q{ALTER TABLE e ALTER small TYPE bigint, ALTER short TYPE text, ALTER number TYPE numeric(12,4);
	INSERT INTO e VALUES (4, 3000000000, repeat('x', 20), 12345678.1234, now())});
here(q{SELECT incload_run('e')});
is(columns('dw.e'), 'small bigint, short text, number numeric(12,4), Note; text text, needed integer', 'types that lose nothing are widened');
is(columns('src.e'), columns('dw.e'), 'in the foreign table, too');
is(copy('e', 4), '{"id": 4, "short": "' . ('x' x 20) . '", "small": 3000000000, "needed": 7, "number": 12345678.1234, "Note; text": null}', 'and the wide row is loaded by the same run');
is(news('e'), q{info|number|retyped|ALTER FOREIGN TABLE src.e ALTER COLUMN number TYPE numeric(12,4); ALTER TABLE dw.e ALTER COLUMN number TYPE numeric(12,4)
info|short|retyped|ALTER FOREIGN TABLE src.e ALTER COLUMN short TYPE pg_catalog.text; ALTER TABLE dw.e ALTER COLUMN short TYPE pg_catalog.text
info|small|retyped|ALTER FOREIGN TABLE src.e ALTER COLUMN small TYPE bigint; ALTER TABLE dw.e ALTER COLUMN small TYPE bigint}, 'with an event each');

# a narrower type, a dropped column, a renamed one
there(q{ALTER TABLE e ALTER small TYPE int USING 5, DROP COLUMN short; ALTER TABLE e RENAME number TO quantity;
	UPDATE e SET quantity = 1, updated_at = now() WHERE id = 1});
here(q{SELECT incload_run('e')});
is(columns('dw.e'), 'small bigint, short text, number numeric(12,4), Note; text text, needed integer, quantity numeric(12,4)', 'nothing is dropped or narrowed here; a renamed column is a new one');
is(copy('e', 1), '{"id": 1, "short": "v1", "small": 5, "needed": 7, "number": 1.0000, "quantity": 1.0000, "Note; text": null}', 'what is gone keeps its values, and the rest is loaded');
is(news('e'), q{info|quantity|new|ALTER FOREIGN TABLE src.e ADD COLUMN quantity numeric(12,4); ALTER TABLE dw.e ADD COLUMN quantity numeric(12,4)
info|small|retyped|-
ticket|number|gone|-
ticket|short|gone|-}, 'all of that is told');
here(q{SELECT incload_run('e')});
is(news('e'), '', 'once');
here(q{SELECT * FROM incload_preview('e'); SELECT * FROM incload_explain('e')});
is(here(q{SELECT string_agg(code || ' ' || severity, ', ' ORDER BY code, message) FROM incload_check('e') WHERE code LIKE 'column%'}),
	'column_gone warning, column_gone warning, column_new info', 'a check shows what is left');

# in one transaction with the rows
there(q{ALTER TABLE e ADD back int DEFAULT 1});
here(q{BEGIN; SELECT incload_run('e'); ROLLBACK});
is(columns('dw.e') =~ /back/ ? 1 : 0, 0, 'a rollback takes the columns back');
is(news('e'), '', 'and the event');
my $reader = session($target, 'loader');
$reader->query_safe(q{BEGIN; SELECT count(*) FROM dw.e});
here(q{SELECT incload_alter_job('e', options => '{"lock_timeout": "100 ms"}')});
fails_with($target, 'loader', q{SELECT incload_run('e')}, '55P03', qr/lock timeout/, 'lock_timeout holds for it');
$reader->query_safe(q{COMMIT});
here(q{CALL incload_run_in_batches('e')});
is(columns('dw.e') =~ /back integer/ ? 1 : 0, 1, 'and it is followed later');

# what is in the way of a wider type
new_table('viewed', 'n int', 'i');
new_job('viewed', 'evolve');
here(q{CREATE VIEW dw.viewed_v AS SELECT n FROM dw.viewed});
there(q{ALTER TABLE viewed ALTER n TYPE bigint; INSERT INTO viewed VALUES (4, 4)});
here(q{SELECT incload_run('viewed')});
is(columns('dw.viewed') . '|' . columns('src.viewed'), 'n integer|n integer', 'a view in the way keeps the type, on both sides');
is(here(q{SELECT count(*) FROM dw.viewed}), '4', 'and no row from being loaded');
is(here(q{SELECT severity, message ~ 'cannot alter type of a column used by a view' FROM incload.event WHERE job = 'viewed' AND code = 'schema_changed'}), 'ticket|t', 'it is told');
there(q{INSERT INTO viewed VALUES (5, 5000000000)});
fails_with($target, 'loader', q{SELECT incload_run('viewed')}, '22003', qr/out of range/, 'a value that does not fit fails the run');
here(q{DROP VIEW dw.viewed_v; ALTER TABLE dw.viewed ALTER n TYPE bigint; SELECT incload_run('viewed')});
is_deeply([ differences($source, $target, 'viewed', 'dw.viewed') ], ['0|0'], 'and is loaded when there is room for it');

# which columns are wanted
new_table('part', 'a int, b int', 'i, i');
here(q{SELECT incload_create_job('part', 'src.part', 'dw.part', 'upsert', 'updated_at', '{id}', options => '{"schema_change": "evolve", "columns": ["id", "a", "updated_at"]}');
	SELECT incload_create_job('but', 'src.part', 'dw.but', 'upsert', 'updated_at', '{id}', options => '{"schema_change": "evolve", "exclude": ["b"]}')});
there(q{ALTER TABLE part ADD c int});
$target->safe_psql('postgres', q{SELECT incload_run('part')});
is(columns('dw.part') . '|' . columns('src.part') . '|' . news('part'), 'a integer|a integer, b integer|', 'with columns, nothing is added');
$target->safe_psql('postgres', q{SELECT incload_run('but')});
is(here(q{SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'dw.but'::regclass}), 'loader', 'a superuser runs it as the owner');
is(columns('dw.but') . '|' . columns('src.part'), 'a integer, c integer|a integer, b integer, c integer', 'with exclude, all but those');

# a foreign table that several jobs share, and that has fewer columns than its source from the beginning
there(q{CREATE TABLE shared (id int PRIMARY KEY, a int, aside int, updated_at timestamptz NOT NULL DEFAULT now()); INSERT INTO shared VALUES (1, 1, 1)});
here(q{CREATE FOREIGN TABLE src.shared (id int NOT NULL, a int, updated_at timestamptz) SERVER source OPTIONS (schema_name 'public')});
here(q{SELECT incload_create_job('shared_i', 'src.shared', 'dw.shared_i', 'upsert', 'updated_at', '{id}');
	SELECT incload_create_job('shared_e', 'src.shared', 'dw.shared_e', 'upsert', 'updated_at', '{id}');
	SELECT incload_run('shared_i'); SELECT incload_run('shared_e')});
is(news('shared_i') . columns('src.shared'), 'a integer', 'columns that were left out from the beginning are no news');
there(q{ALTER TABLE shared ADD b int});
here(q{SELECT incload_run('shared_i'); SELECT incload_run('shared_i')});
is(news('shared_i'), 'ticket|b|new|ALTER FOREIGN TABLE src.shared ADD COLUMN b integer; ALTER TABLE dw.shared_i ADD COLUMN b integer', 'a new one is');
here(q{SELECT incload_alter_job('shared_e', options => '{"schema_change": "evolve"}'); SELECT incload_run('shared_e')});
is(columns('dw.shared_e') . '|' . columns('src.shared'), 'a integer, aside integer, b integer|a integer, aside integer, b integer', 'evolve adds all that lacks');
here(q{SELECT * FROM incload_preview('shared_i')});
here(q{SELECT incload_run('shared_i'); SELECT incload_run('shared_i')});
is(columns('dw.shared_i') . "\n" . news('shared_i'), "a integer\nticket|aside|new|ALTER TABLE dw.shared_i ADD COLUMN aside integer\nticket|b|new|ALTER TABLE dw.shared_i ADD COLUMN b integer", 'another job goes on without, and says so');

# a swap and a wider type in one run
there(q{CREATE TABLE swapped (id int PRIMARY KEY, a int); INSERT INTO swapped SELECT i, i FROM generate_series(1, 100) i});
foreign_table($target, 'swapped');
here(q{SELECT incload_create_job('swapped', 'src.swapped', 'dw.swapped', 'full', key => '{id}', options => '{"schema_change": "evolve", "full_refresh_mode": "swap"}');
	SELECT incload_run('swapped')});
there(q{ALTER TABLE swapped ALTER a TYPE bigint, ADD b text DEFAULT 'b'; UPDATE swapped SET a = 5000000000 WHERE id = 1});
here(q{SELECT incload_run('swapped')});
is_deeply([ differences($source, $target, 'swapped', 'dw.swapped') ], ['0|0'], 'a swap follows, too');

# of another type in the target
new_table('taken', 'a int', 'i');
new_job('taken', 'evolve');
here(q{ALTER TABLE dw.taken ADD t timestamptz DEFAULT '2020-01-01Z'});
there(q{ALTER TABLE taken ADD t int; UPDATE taken SET a = 9, updated_at = now()});
here(q{SELECT incload_run('taken')});
is(columns('src.taken') . '|' . here(q{SELECT string_agg(DISTINCT a || ' ' || (t = '2020-01-01Z')::text, ',') FROM dw.taken}), 'a integer|9 true', 'a column that the target has under another type is left alone');
is(news('taken'), 'ticket|t|new|-', 'and told');

# who may
$target->safe_psql('postgres', q{CREATE TABLE dw.foreign_owner (id int PRIMARY KEY, a int, updated_at timestamptz); GRANT ALL ON dw.foreign_owner TO loader});
fails_with($target, 'loader', q{SELECT incload_create_job('fo', 'src.taken', 'dw.foreign_owner', 'upsert', 'updated_at', '{id}', options => '{"schema_change": "evolve"}')},
	'42501', qr/"schema_change" cannot be "evolve".*HINT:.*ALTER TABLE dw.foreign_owner OWNER TO loader/s, 'evolve is refused to who does not own the target');
new_table('lost', 'a int', 'i');
new_job('lost', 'evolve');
$target->safe_psql('postgres', 'ALTER TABLE dw.lost OWNER TO CURRENT_USER; GRANT ALL ON dw.lost TO loader');
there(q{ALTER TABLE lost ADD b int; UPDATE lost SET a = 8, updated_at = now()});
here(q{SELECT incload_run('lost')});
is(here(q{SELECT string_agg(DISTINCT a::text, ',') FROM dw.lost}) . '|' . columns('src.lost') . '|' . here(q{SELECT message ~ 'must be owner of table lost' FROM incload.event WHERE job = 'lost' AND code = 'schema_changed'}), '8|a integer|t', 'one who owns it no more loads what is known, and is told');

#
# ignore, the default
#
new_table('i', 'a int, gone text', q{i, 'kept'});
here(q{SELECT incload_create_job('i', 'src.i', 'dw.i', 'upsert', 'updated_at', '{id}'); SELECT incload_run('i')});
there(q{ALTER TABLE i ADD b int, DROP COLUMN gone, ALTER a TYPE bigint; UPDATE i SET a = 5, updated_at = now() WHERE id = 1; INSERT INTO i VALUES (4, 4)});
here(q{SELECT incload_run('i')});
is(columns('dw.i') . '|' . columns('src.i'), 'a integer, gone text|a integer, gone text', 'ignore alters nothing');
is(copy('i', 1) . copy('i', 4), '{"a": 5, "id": 1, "gone": "kept"}{"a": 4, "id": 4, "gone": null}', 'and goes on with what is known');
is(news('i'), q{ticket|a|retyped|ALTER FOREIGN TABLE src.i ALTER COLUMN a TYPE bigint; ALTER TABLE dw.i ALTER COLUMN a TYPE bigint
ticket|b|new|ALTER FOREIGN TABLE src.i ADD COLUMN b integer; ALTER TABLE dw.i ADD COLUMN b integer
ticket|gone|gone|-}, 'each change is told, with the SQL that would follow it');
here(q{SELECT incload_run('i'); CALL incload_run_in_batches('i'); SELECT incload_alter_job('i', options => '{"retry_limit": 4}'); SELECT incload_run('i')});
is(news('i'), '', 'once');
is(here(q{SELECT code, severity, sql FROM incload_check('i') WHERE code LIKE 'column%' OR code = 'type_loses_digits' ORDER BY 1}), q{column_gone|warning|ALTER FOREIGN TABLE src.i DROP COLUMN gone;
column_new|info|ALTER FOREIGN TABLE src.i ADD COLUMN b integer; ALTER TABLE dw.i ADD COLUMN b integer;
column_retyped|info|ALTER FOREIGN TABLE src.i ALTER COLUMN a TYPE bigint;
type_loses_digits|warning|ALTER TABLE dw.i ALTER COLUMN a TYPE bigint;}, 'a check has the SQL');
here(q{ALTER FOREIGN TABLE src.i ADD COLUMN b integer; ALTER TABLE dw.i ADD COLUMN b integer});
there(q{UPDATE i SET b = 1, updated_at = now() WHERE id = 2});
here(q{SELECT incload_run('i')});
is(copy('i', 2) . news('i'), '{"a": 2, "b": 1, "id": 2, "gone": "kept"}', 'what was added by hand is loaded');
here(q{SELECT incload_alter_job('i', options => '{"schema_change": "evolve"}'); SELECT incload_run('i')});
is(columns('dw.i'), 'a bigint, gone text, b integer', 'evolve, set later, follows what was left');
here(q{ALTER TABLE dw.i DROP COLUMN b; SELECT incload_alter_job('i', options => '{"schema_change": null, "exclude": ["b"]}')});
news('i');
fails_with($target, 'loader', q{SELECT incload_alter_job('i', options => '{"exclude": null}')}, '42703', qr/target dw.i has no column "b"/, 'a column that the target has lost is an error');

# a target column that would get no value
here(q{ALTER TABLE dw.i ADD COLUMN b integer; SELECT incload_alter_job('i', options => '{"exclude": null}'); SELECT incload_run('i'); UPDATE dw.i SET gone = '', b = 0; ALTER TABLE dw.i ALTER b SET NOT NULL});
there(q{ALTER TABLE i DROP COLUMN b; INSERT INTO i VALUES (5, 5)});
fails_with($target, 'loader', q{SELECT incload_run('i')}, '23502', qr/column "b" of target dw.i would get no value.*HINT:/s, 'a NOT NULL column without a default needs a value');
here(q{ALTER TABLE dw.i ALTER b SET DEFAULT -1; SELECT incload_run('i')});
is(copy('i', 5), '{"a": 5, "b": -1, "id": 5, "gone": null}', 'and goes on with a default');

# without key or watermark there is no job
there(q{ALTER TABLE i RENAME updated_at TO changed_at});
fails_with($target, 'loader', q{SELECT incload_run('i')}, '42703', qr/source src.i no longer has column "updated_at".*watermark/s, 'a watermark that is gone is an error');
there(q{ALTER TABLE i RENAME changed_at TO updated_at; ALTER TABLE i RENAME id TO ident});
fails_with($target, 'loader', q{SELECT incload_run('i')}, '42703', qr/source src.i no longer has column "id".*key.*OPTIONS \(SET column_name/s, 'and so is a key');
here(q{ALTER FOREIGN TABLE src.i ALTER COLUMN id OPTIONS (SET column_name 'ident'); SELECT incload_run('i')});
is(here(q{SELECT status FROM incload.run WHERE job = 'i' ORDER BY run_id DESC LIMIT 1}), 'succeeded', 'until the foreign table knows its name');

#
# fail
#
new_table('f', 'a int, b text', q{i, 'b'});
here(q{SELECT incload_create_job('f', 'src.f', 'dw.f', 'upsert', 'updated_at', '{id}', options => '{"schema_change": "fail"}')});
there(q{ALTER TABLE f ADD c int, DROP COLUMN b, ALTER a TYPE bigint});
fails_with($target, 'loader', q{SELECT incload_run('f')}, '55000',
	qr/columns of source src.f are not what they were.*column "a" of source src.f is of type bigint, and was integer.*has a column "c".*no longer has column "b".*HINT:.*incload_accept_source\('f'\)/s, 'fail names each difference, before the first run, too');
is(here(q{SELECT severity, message ~ 'no longer has column "b"' FROM incload.event WHERE job = 'f' AND code = 'schema_changed'}), 'page|t', 'somebody is called');
is(here(q{SELECT count(*) FROM dw.f}), '0', 'and nothing is loaded');
here(q{SELECT incload_alter_job('f', options => '{"schema_change": "ignore"}'); SELECT incload_run('f')});
is(here(q{SELECT count(*) FROM dw.f}), '3', 'with ignore it goes on');
here(q{ALTER FOREIGN TABLE src.f DROP COLUMN b; SELECT incload_alter_job('f', options => '{"schema_change": "fail"}'); SELECT incload_run('f')});
there(q{ALTER TABLE f ADD d int});
fails_with($target, 'loader', q{SELECT incload_run('f')}, '55000', qr/has a column "d"/, 'what is known by then does not stop it, and what is new does');
here(q{SELECT incload_accept_source('f'); SELECT incload_run('f')});
is(here(q{SELECT status FROM incload.run WHERE job = 'f' ORDER BY run_id DESC LIMIT 1}), 'succeeded', 'until it is accepted');

#
# a change in the middle of a run
#
new_table('mid', 'a int, b int', 'i, i');
here(q{SELECT incload_create_job('mid', 'src.mid', 'dw.mid', 'upsert', 'updated_at', '{id}', options => '{"schema_change": "evolve", "pre_sql": "SELECT pg_advisory_xact_lock(1)"}'); SELECT incload_run('mid')});
my $gate = session($target, 'loader');
sub meanwhile
{
	my ($ddl) = @_;
	my $run;

	$gate->query_safe('SELECT pg_advisory_lock(1)');
	$run = start_sql($target, 'loader', q{SELECT incload_run('mid')});
	$target->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted});
	there($ddl);
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	my ($status, $out, $err) = $run->finish;
	return $status == 0 ? 'ok' : ($err =~ /ERROR:  (\w{5})/)[0];
}
there(q{UPDATE mid SET a = 10, updated_at = now()});
is(meanwhile(q{ALTER TABLE mid DROP COLUMN b}), '40001', 'a column that goes in the middle of a run fails it, by what passes');
is(here(q{SELECT string_agg(a::text, ',' ORDER BY id) FROM dw.mid}), '1,2,3', 'with nothing loaded');
is(meanwhile(q{ALTER TABLE mid ALTER a TYPE real}), '40001', 'a type of the same length, too');
here(q{SELECT incload_alter_job('mid', options => '{"pre_sql": null}'); SELECT incload_run('mid')});
is(here(q{SELECT string_agg(a || ' ' || b, ',' ORDER BY id) FROM dw.mid}), '10 1,10 2,10 3', 'and the next run sees what there is');

#
# sources that are here, and other wrappers: they are compared with the target alone
#
here(q{CREATE TABLE src.local (id int PRIMARY KEY, a int, v int, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO src.local VALUES (1, 1, 1);
	SELECT incload_create_job('local', 'src.local', 'dw.local', 'upsert', 'updated_at', '{id}', options => '{"schema_change": "evolve"}');
	SELECT incload_create_job('local_i', 'src.local', 'dw.local_i', 'upsert', 'updated_at', '{id}');
	SELECT incload_create_job('local_f', 'src.local', 'dw.local_f', 'upsert', 'updated_at', '{id}', options => '{"schema_change": "fail"}');
	SELECT incload_run(job) FROM unnest('{local,local_i,local_f}'::text[]) job;
	ALTER TABLE dw.local_i ADD t timestamptz;
	ALTER TABLE src.local ADD b int, ADD t text, ALTER a TYPE bigint;
	INSERT INTO src.local VALUES (2, 2, 2, now(), 2, 't')});
here(q{SELECT incload_run(job) FROM unnest('{local,local_i}'::text[]) job});
is(copy('local', 2) . copy('local_i', 2), '{"a": 2, "b": 2, "t": "t", "v": 2, "id": 2}{"a": 2, "t": null, "v": 2, "id": 2}', 'a local table is followed, or not');
is(news('local'), q{info|a|retyped|ALTER TABLE dw.local ALTER COLUMN a TYPE bigint
info|b|new|ALTER TABLE dw.local ADD COLUMN b integer
info|t|new|ALTER TABLE dw.local ADD COLUMN t pg_catalog.text}, 'with the SQL for the target alone');
like(news('local_i'), qr/^ticket\|a\|retyped.*\nticket\|b\|new.*\nticket\|t\|new\|-$/, 'ignore tells it');
here(q{SELECT incload_run('local_i')});
is(news('local_i'), '', 'once');
here(q{SELECT * FROM incload_preview('local_i')});
fails_with($target, 'loader', q{SELECT incload_run('local_f')}, '55000', qr/column "a".*column "b".*column "t"/s, 'fail stops');
is(here(q{SELECT string_agg(code, ',') FROM incload_check('local_f') WHERE code IN ('job_cannot_run', 'column_new')}), 'column_new,column_new', 'a check names what lacks');
news('local_f');
here(q{SELECT incload_accept_source('local_f'); SELECT incload_run('local_f'); SELECT incload_run('local_f')});
is(copy('local_f', 2) . news('local_f'), '{"a": 2, "v": 2, "id": 2}ticket|b|new|ALTER TABLE dw.local_f ADD COLUMN b integer
ticket|t|new|ALTER TABLE dw.local_f ADD COLUMN t pg_catalog.text', 'until it is accepted, and then tells what it goes without');
here(q{ALTER TABLE src.local DROP COLUMN v; UPDATE src.local SET a = 7, updated_at = clock_timestamp();
	SELECT incload_run(job) FROM unnest('{local,local_i}'::text[]) job});
is(here(q{SELECT string_agg(a || ' ' || v, ',' ORDER BY id) FROM dw.local}) . '|' . news('local'), '7 1,7 2|ticket|v|gone|-', 'a column that is dropped here is told, and kept in the target');

here(q{CREATE VIEW src.local_v AS SELECT id, a, updated_at FROM src.local;
	SELECT incload_create_job('local_v', 'src.local_v', 'dw.local_v', 'upsert', 'updated_at', '{id}', options => '{"schema_change": "evolve"}');
	SELECT incload_run('local_v');
	CREATE OR REPLACE VIEW src.local_v AS SELECT id, a, updated_at, a * 2 AS twice FROM src.local;
	UPDATE src.local SET a = 8, updated_at = clock_timestamp();
	SELECT incload_run('local_v')});
is(copy('local_v', 1) . news('local_v'), '{"a": 8, "id": 1, "twice": 16}info|twice|new|ALTER TABLE dw.local_v ADD COLUMN twice bigint', 'a view likewise');

new_table('exec', 'a int', 'i');
here(q{SELECT incload_create_job('exec', 'src.exec', 'dw.exec', 'upsert', 'updated_at', '{id}', options => '{"schema_change": "evolve", "reader": "relation"}'); SELECT incload_run('exec')});
there(q{ALTER TABLE exec ADD b int; UPDATE exec SET b = 1, updated_at = now()});
here(q{SELECT incload_run('exec')});
is(columns('dw.exec') . news('exec'), 'a integer', 'the relation reader knows the foreign table alone');
here(q{ALTER FOREIGN TABLE src.exec ADD COLUMN b int; SELECT incload_run('exec'); SELECT incload_fill_columns('exec', '{b}')});
is(copy('exec', 1) . news('exec'), '{"a": 1, "b": 1, "id": 1}info|b|new|ALTER TABLE dw.exec ADD COLUMN b integer', 'and follows that');

# between two batches, here
here(q{CREATE TABLE src.cut (id int PRIMARY KEY, a int, v int, updated_at timestamptz NOT NULL);
	INSERT INTO src.cut SELECT i, i, i, '2020-01-01Z'::timestamptz + i * interval '1 s' FROM generate_series(1, 4) i;
	CREATE TABLE dw.cut (LIKE src.cut, PRIMARY KEY (id));
	CREATE FUNCTION dw.cut() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.id = 2 THEN ALTER TABLE src.cut DROP COLUMN v, ALTER a TYPE bigint; END IF; RETURN NEW; END';
	CREATE TRIGGER cut BEFORE INSERT ON dw.cut FOR EACH ROW EXECUTE FUNCTION dw.cut();
	SELECT incload_create_job('cut', 'src.cut', 'dw.cut', 'upsert', 'updated_at', '{id}', options => '{"schema_change": "evolve", "batch_rows": 1}')});
fails_with($target, 'loader', q{CALL incload_run_in_batches('cut')}, '42703', qr/column "v" does not exist/, 'a column that goes between two batches fails the next one');
is(here(q{SELECT string_agg(id || ' ' || v, ',' ORDER BY id) FROM dw.cut}), '1 1,2 2', 'and no other');
here(q{CALL incload_run_in_batches('cut')});
is(here(q{SELECT string_agg(id || ' ' || coalesce(v, 0), ',' ORDER BY id) FROM dw.cut}) . '|' . columns('dw.cut'), '1 1,2 2,3 0,4 0|a bigint, v integer', 'the next run sees what there is');

# full, with a target that is partitioned; append without a key
there(q{CREATE TABLE whole (id int PRIMARY KEY, a int); INSERT INTO whole VALUES (1, 1), (2, 2)});
foreign_table($target, 'whole');
here(q{CREATE TABLE dw.whole (id int PRIMARY KEY, a int) PARTITION BY RANGE (id);
	CREATE TABLE dw.whole_1 PARTITION OF dw.whole FOR VALUES FROM (0) TO (2); CREATE TABLE dw.whole_2 PARTITION OF dw.whole DEFAULT;
	SELECT incload_create_job('whole', 'src.whole', 'dw.whole', 'full', key => '{id}', options => '{"schema_change": "evolve"}');
	SELECT incload_create_job('log', 'src.whole', 'dw.log', 'append', 'id', '{}', options => '{"schema_change": "evolve"}');
	SELECT incload_run('whole'); CALL incload_run_in_batches('log')});
fails_with($target, 'loader', q{SELECT incload_create_job('p', 'src.whole', 'dw.whole_1', 'full', key => '{id}', options => '{"schema_change": "evolve"}')}, '42809', qr/is a partition/, 'a partition alone cannot evolve');
there(q{ALTER TABLE whole ADD b text DEFAULT 'b'; INSERT INTO whole VALUES (3, 3, 'c')});
here(q{SELECT incload_run('whole'); CALL incload_run_in_batches('log')});
is(here(q{SELECT string_agg(id || coalesce(b, '-'), ' ' ORDER BY id) FROM dw.whole}) . '|' . here(q{SELECT string_agg(id || coalesce(b, '-'), ' ' ORDER BY id) FROM dw.log}), '1b 2b 3c|1- 2- 3c', 'a full load and an append follow, too');
like(here(q{SELECT details->>'hint' FROM incload.event WHERE job = 'log' AND code = 'schema_changed'}), qr/incload_refresh\('log'\)/, 'without a key, old rows need a refresh');

# kept in a dump: what was known then is known, and what has come since is told
is(here(q{SELECT count(*) FROM incload.job j WHERE NOT EXISTS (SELECT FROM incload.event e WHERE e.job = j.job AND e.code = 'schema_changed') AND job <> 'part'}), '0', 'every change above was told');

#
# what is asked rides with what was asked before
#
new_table('quiet', 'a int', 'i');
new_job('quiet', 'ignore');
my $log = -s $source->logfile;
here(q{SELECT incload_run('quiet'); SELECT incload_run('quiet'); SELECT incload_run('quiet'); SELECT incload_run('quiet')});
my @questions = slurp_file($source->logfile, $log) =~ /incload reader: quiet LOG:  execute \S+: SELECT a\.attname/g;
is(scalar(@questions), 4, 'the columns are asked for once a run, by the question that was there before');

$_->quit foreach ($reader, $gate);
$target->stop;
$source->stop;
done_testing();
