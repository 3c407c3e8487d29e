# A channel whose message cannot even be made keeps no other channel's back; and one of which no
# message can be made keeps no other of its channel's back, and is given up in the end.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use AlertReceiver;
use IncloadTest;

my ($source, $target) = two_nodes(target => "shared_preload_libraries = 'incload'\nincload.naptime = '100ms'\nmax_worker_processes = 16\n");
my $receiver = AlertReceiver->new;

sub sql { return $target->safe_psql('postgres', $_[0]) }

sql(qq{SELECT incload_add_channel('bad', '${\($receiver->url('/bad'))}', options => '{"group_wait": "0"}');
	SELECT incload_add_channel('good', '${\($receiver->url('/good'))}', options => '{"group_wait": "0"}');
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''this one cannot be told''; END';
	CREATE TRIGGER refuse BEFORE UPDATE ON incload.outbox_store FOR EACH ROW
		WHEN (NEW.channel_id = 1 AND NEW.attempts > OLD.attempts) EXECUTE FUNCTION refuse()});
is(sql(q{SELECT channel_id FROM incload.channel_store WHERE channel = 'bad'}), '1', 'the first channel looked after is the one in trouble');
sql(q{SELECT incload_test_channel('bad'); SELECT incload_test_channel('good')});
ok(wait_for(60, sub { sql(q{SELECT state FROM incload.outbox WHERE channel = 'good'}) eq 'delivered' }), 'the other one delivers');
is(sql(q{SELECT state FROM incload.outbox WHERE channel = 'bad'}), 'pending', 'and that one does not');
sql('DROP TRIGGER refuse ON incload.outbox_store');
ok(wait_for(60, sub { sql(q{SELECT state FROM incload.outbox WHERE channel = 'bad'}) eq 'delivered' }), 'until its trouble is over');

# texts that no message can be made of, as the pages of one kind of event cannot be named
sub url { return $receiver->url($_[0]) }
sql(qq{SELECT incload_drop_channel('bad'); SELECT incload_drop_channel('good');
	CREATE OR REPLACE FUNCTION incload.runbook(code text) RETURNS text LANGUAGE plpgsql STABLE
		AS 'BEGIN IF code = ''unspeakable'' THEN RAISE ''no page for this one''; END IF; RETURN code; END';
	SELECT incload_add_channel('hook', '${\url('/hook')}', options => '{"group_wait": "0", "group_interval": "0", "give_up_after": "3 seconds"}');
	SELECT incload_add_channel('am', '${\url('/am')}', 'alertmanager', options => '{"give_up_after": "3 seconds"}')});
sql(q{BEGIN; INSERT INTO incload.event_store (owner, severity, code, message) VALUES ('postgres', 'page', 'unspeakable', 'one');
	INSERT INTO incload.event_store (owner, severity, code, message) VALUES ('postgres', 'page', 'common', 'two'); COMMIT});
foreach my $channel (qw(am hook))
{
	ok(wait_for(60, sub { sql(qq{SELECT state FROM incload.outbox WHERE channel = '$channel' AND code = 'common'}) eq 'delivered' }),
		"$channel: what can be told is told");
	ok(wait_for(60, sub { sql(qq{SELECT state FROM incload.outbox WHERE channel = '$channel' AND code = 'unspeakable'}) eq 'failed' }),
		'and the other one is given up')
	  or diag(sql('SELECT * FROM incload.outbox'));
	is(sql(qq{SELECT attempts > 1, last_error FROM incload.outbox WHERE channel = '$channel' AND code = 'unspeakable'}),
		't|no page for this one', 'after some attempts, and it says why');
}

done_testing();
