# A job does what its owner may do, whoever calls it; nobody gains a right.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

my ($source, $target) = two_nodes();

$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL);
	INSERT INTO items SELECT i, 'v' || i, '2024-01-01Z'::timestamptz + i * interval '1 s' FROM generate_series(1, 100) i;
});
$target->safe_psql('postgres', q{
	CREATE ROLE stranger LOGIN;
	CREATE ROLE member LOGIN IN ROLE loader;
	GRANT USAGE ON SCHEMA src, dw TO stranger;
});
foreign_table($target, 'items');

# the owner, with no more than usage of the server and two schemas of his own
is($target->safe_psql('postgres', "SELECT rolsuper OR rolcreatedb OR rolcreaterole FROM pg_roles WHERE rolname = 'loader'"),
	'f', 'the owner is nobody special');
as_loader($target, q{
	SELECT * FROM incload_suggest('src.items');
	SELECT incload_create_job('items', 'src.items', 'dw.items');
	SELECT * FROM incload_check('items');
	SELECT * FROM incload_explain('items');
	SELECT * FROM incload_preview('items');
	SELECT * FROM incload_run('items');
	CALL incload_run_in_batches('items');
	SELECT incload_refresh('items');
	SELECT incload_alter_job('items', options => '{"batch_rows": 10}');
	SELECT incload_accept_source('items');
	SELECT incload_pause('items'), incload_resume('items');
});
is(as_loader($target, "SELECT count(*) FROM incload.run WHERE status = 'succeeded'"), '3', 'he can do all of it');

# a stranger sees nothing and does nothing
foreach my $view (qw(job checkpoint run event status))
{
	is(as_role($target, 'stranger', "SELECT count(*) FROM incload.$view"), '0', "a stranger sees nothing in incload.$view");
}
foreach my $call ("incload_run('items')", "incload_refresh('items')", "incload_pause('items')", "incload_resume('items')",
	"incload_drop_job('items')", "incload_alter_job('items', options => '{}')", "incload_accept_source('items')",
	"incload_check('items')", "incload_explain('items')", "incload_preview('items')")
{
	fails_with($target, 'stranger', "SELECT $call", '42501', qr/permission denied for job "items".*HINT/s, "nor may he call $call");
}
fails_with($target, 'stranger', "CALL incload_run_in_batches('items')", '42501', qr/permission denied for job/, 'nor the procedure');
fails_with($target, 'stranger', "SELECT incload_create_job('mine', 'src.items', 'dw.mine')", '42501', qr/permission denied for source/,
	'nor make a job that reads what he may not');
foreach my $role ('stranger', 'loader')
{
	foreach my $table (qw(job_store checkpoint_store run_store event_store))
	{
		fails_with($target, $role, "SELECT * FROM incload.$table", '42501', qr/permission denied/, "$role cannot read incload.$table");
		fails_with($target, $role, "DELETE FROM incload.$table", '42501', qr/permission denied/, "$role cannot write incload.$table");
	}
	fails_with($target, $role, "UPDATE incload.job SET owner = '$role'", '42501', qr/permission denied/, "$role cannot write a view");
}
# not even with a function that leaks what a filter sees
as_role($target, 'stranger', q{
	CREATE FUNCTION pg_temp.leak(t text) RETURNS boolean COST 0.0000001 LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'leak %', t; RETURN true; END $$;
	SELECT * FROM incload.job WHERE pg_temp.leak(job);
});
my (undef, undef, $leak) = $target->psql('postgres', q{
	CREATE FUNCTION pg_temp.leak(t text) RETURNS boolean COST 0.0000001 LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'leak %', t; RETURN true; END $$;
	SELECT * FROM incload.job WHERE pg_temp.leak(job);}, extra_params => [ '-U', 'stranger' ]);
unlike($leak, qr/leak items/, 'the views are barriers');

# a member of the owner's role may
is(as_role($target, 'member', "SELECT status FROM incload_run('items')"), 'succeeded', 'a member of the role may run the job');

# who the owner's code runs as, when a superuser calls
$target->safe_psql('postgres', q{
	CREATE TABLE dw.who (place text, who name); GRANT ALL ON dw.who TO PUBLIC;
});
as_loader($target, q{
	CREATE FUNCTION dw.tell() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN INSERT INTO dw.who VALUES (TG_ARGV[0], current_user); RETURN NULL; END $$;
	CREATE TRIGGER t AFTER INSERT ON dw.items FOR EACH ROW EXECUTE FUNCTION dw.tell('trigger');
	CREATE CONSTRAINT TRIGGER d AFTER INSERT ON dw.items DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION dw.tell('deferred');
	SELECT incload_alter_job('items', options => '{"pre_sql": "INSERT INTO dw.who VALUES (''pre_sql'', current_user)"}');
});
my $id = 100;

sub runs_as_owner
{
	my ($call, $what) = @_;

	$id++;
	$source->safe_psql('postgres', "INSERT INTO items VALUES ($id, 'new', now())");
	$target->safe_psql('postgres', 'TRUNCATE dw.who');
	$target->safe_psql('postgres', $call);
	is($target->safe_psql('postgres', q{SELECT string_agg(place || ' ' || who, ', ' ORDER BY place) FROM dw.who}),
		'deferred loader, pre_sql loader, trigger loader', "$what: triggers, deferred ones and pre_sql run as the owner");
	is($target->safe_psql('postgres', 'SELECT count(*) FROM dw.items'), $id, "$what: and the row is there");
	return;
}
runs_as_owner("SELECT incload_run('items')", 'incload_run by a superuser');
runs_as_owner("CALL incload_run_in_batches('items')", 'incload_run_in_batches by a superuser');

# what the superuser has pending stays his own
is($target->safe_psql('postgres', q{
	CREATE TABLE public.own (i int);
	CREATE FUNCTION public.own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO dw.who VALUES ('own', current_user); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER d AFTER INSERT ON public.own DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.own();
	TRUNCATE dw.who;
	BEGIN;
	INSERT INTO public.own VALUES (1);
	SELECT count(*) FROM incload_run('items');
	COMMIT;
	SELECT DISTINCT who = current_user FROM dw.who WHERE place = 'own';
}), "1\nt", 'deferred triggers of the caller fire as the caller');

# the owner's SQL cannot become somebody else, nor leave anything behind
foreach my $evil ('RESET ROLE', 'SET SESSION AUTHORIZATION DEFAULT', 'SET ROLE postgres', 'CREATE TEMP TABLE pg_class (i int)',
	"CREATE ROLE evil SUPERUSER", 'PREPARE p AS SELECT 1', 'ALTER ROLE loader SUPERUSER')
{
	as_loader($target, "SELECT incload_alter_job('items', options => jsonb_build_object('pre_sql', '$evil'))");
	my ($ret) = $target->psql('postgres', "SELECT incload_run('items')");
	isnt($ret, 0, "pre_sql of the owner, called by a superuser, cannot $evil");
}
as_loader($target, "SELECT incload_alter_job('items', options => '{\"pre_sql\": \"RESET ROLE\"}')");
fails_with($target, scalar(getpwuid($<)), "SET ROLE loader; SELECT incload_run('items')", '42501', qr/cannot set parameter "role"/,
	'nor go back to the superuser who has taken his role');
as_loader($target, q{SELECT incload_alter_job('items', options => '{"pre_sql": "SET work_mem = ''77MB''; SET search_path = dw"}')});
is($target->safe_psql('postgres', "SHOW work_mem; SELECT count(*) FROM incload_run('items'); SHOW work_mem; SHOW search_path"),
	"4MB\n1\n4MB\n\"\$user\", public", 'a setting of pre_sql ends with the run');
as_loader($target, q{SELECT incload_alter_job('items', options => '{"pre_sql": null}')});

# what is embedded is one expression
foreach my $filter ('true) TO STDOUT; DROP TABLE items; --', 'true; DROP TABLE items', 'true) OR (true', 'true UNION SELECT 1')
{
	fails_with($target, 'loader', "SELECT incload_alter_job('items', options => jsonb_build_object('filter', '$filter'))",
		'42601', qr/HINT/, "a filter like \"$filter\" is refused");
}
is(as_loader($target, q{SELECT options->>'filter' FROM incload_alter_job('items', options => '{"filter": "id > 0 -- all"}')}),
	'id > 0 -- all', 'a comment at the end of one does no harm');
is(as_loader($target, "SELECT status FROM incload_run('items')"), 'succeeded', 'and it runs');

# nor put something off until the superuser commits
as_loader($target, q{SELECT incload_alter_job('items', options => '{"pre_sql": "SET CONSTRAINTS ALL DEFERRED"}')});
$source->safe_psql('postgres', "INSERT INTO items VALUES (1000, 'new', now())");
$target->safe_psql('postgres', 'TRUNCATE dw.who');
$target->psql('postgres', "SELECT incload_run('items')");
is($target->safe_psql('postgres', "SELECT count(*) FROM dw.who WHERE who <> 'loader'"), '0', 'a trigger that is deferred by pre_sql does not fire as the superuser');
as_loader($target, q{SELECT incload_alter_job('items', options => '{"pre_sql": null}'); SELECT incload_run('items')});
is(as_loader($target, 'SELECT count(*) FROM dw.items WHERE id = 1000'), '1', 'and the row is not lost');

# the owner's expressions are the owner's, whoever looks at the job; the copy
# reader is not the only one that connects as he does
as_loader($target, q{
	CREATE FUNCTION dw.see(t text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN INSERT INTO dw.who VALUES ('expression', current_user); RETURN t; END $$;
	CREATE DOMAIN dw.word AS text;
	CREATE FUNCTION dw.check_word(t text) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN INSERT INTO dw.who VALUES ('domain', current_user); RETURN true; END $$;
	ALTER DOMAIN dw.word ADD CHECK (dw.check_word(VALUE));
	CREATE TABLE dw.seen (id int PRIMARY KEY, v dw.word, updated_at timestamptz);
	SELECT incload_create_job('seen', 'src.items', 'dw.seen', options => '{"reader": "relation", "transforms": {"v": "dw.see(v)"}, "filter": "dw.see(v) IS NOT NULL"}');
});
$target->safe_psql('postgres', 'TRUNCATE dw.who');
foreach my $call ("SELECT * FROM incload_preview('seen')", "SELECT * FROM incload_check('seen')", "SELECT * FROM incload_explain('seen')",
	"SELECT incload_alter_job('seen', options => '{\"batch_rows\": 7}')", "SELECT incload_run('seen')", "CALL incload_run_in_batches('seen')",
	"SELECT incload_refresh('seen')")
{
	my ($ret, $out, $err) = $target->psql('postgres', $call);
	is($ret, 0, "a superuser calls: $call") or diag($err);
}
is($target->safe_psql('postgres', q{SELECT string_agg(DISTINCT place || ' ' || who, ', ') FROM dw.who}),
	'domain loader, expression loader', 'and the expressions run as the owner, each time');
is(as_loader($target, 'SELECT count(*) FROM dw.seen'), as_loader($target, 'SELECT count(*) FROM src.items'), 'and do their work');

# row security of the target holds for the owner
$target->safe_psql('postgres', q{
	CREATE TABLE dw.guarded (id int PRIMARY KEY, v text, updated_at timestamptz);
	ALTER TABLE dw.guarded ENABLE ROW LEVEL SECURITY;
	CREATE POLICY p ON dw.guarded USING (id <> 7);
	GRANT SELECT, INSERT, UPDATE ON dw.guarded TO loader;
});
as_loader($target, q{SELECT incload_create_job('guarded', 'src.items', 'dw.guarded')});
fails_with($target, 'loader', "SELECT incload_run('guarded')", '42501', qr/row-level security/, 'a policy of the target is kept');
fails_with($target, scalar(getpwuid($<)), "SELECT incload_run('guarded')", '42501', qr/row-level security/,
	'also when a superuser calls');

# rights on the target are asked for when the job is made
$target->safe_psql('postgres', 'REVOKE UPDATE ON dw.guarded FROM loader');
fails_with($target, 'loader', "SELECT incload_create_job('g2', 'src.items', 'dw.guarded', 'upsert', 'updated_at', '{id}')", '42501',
	qr/needs UPDATE.*HINT:  GRANT UPDATE ON dw.guarded TO loader/s, 'a right on the target that lacks is named');

# postgres_fdw's rules on passwords
$target->safe_psql('postgres', 'ALTER USER MAPPING FOR loader SERVER source OPTIONS (DROP password)');
fails_with($target, 'loader', "SELECT incload_run('items')", '2F003', qr/password is required.*HINT:.*ADD password/s,
	'no password in the mapping');
$target->safe_psql('postgres', q{ALTER USER MAPPING FOR loader SERVER source OPTIONS (ADD password 'reader''s secret')});
listen_with_password($source, 'trust');
$source->reload;
fails_with($target, 'loader', "SELECT incload_run('items')", '2F003', qr/did not ask for the password/s, 'a source that does not ask for it');
$target->safe_psql('postgres', "ALTER USER MAPPING FOR loader SERVER source OPTIONS (ADD password_required 'false')");
is(as_loader($target, "SELECT status FROM incload_run('items')"), 'succeeded', 'a superuser may waive it');
fails_with($target, 'loader', q{ALTER USER MAPPING FOR loader SERVER source OPTIONS (SET password_required 'false')}, '42501',
	qr/superuser/, 'and nobody else');

# an owner who is gone
$target->safe_psql('postgres', q{
	CREATE ROLE heir LOGIN;
	GRANT USAGE ON FOREIGN SERVER source TO heir;
	CREATE USER MAPPING FOR heir SERVER source OPTIONS (user 'reader', password 'reader''s secret', password_required 'false');
	REASSIGN OWNED BY loader TO heir; DROP OWNED BY loader; DROP ROLE loader;
});
fails_with($target, scalar(getpwuid($<)), "SELECT incload_run('items')", '42704', qr/owner "loader".*does not exist.*incload_alter_job.*owner =>/s,
	'a job whose owner is gone says how to go on');
is($target->safe_psql('postgres', "SELECT owner FROM incload_alter_job('items', owner => 'heir')"), 'heir', 'a superuser gives it to another');
is(as_role($target, 'heir', "SELECT status FROM incload_run('items')"), 'succeeded', 'who goes on with it');

done_testing();
