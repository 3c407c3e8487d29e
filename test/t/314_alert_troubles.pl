# A channel whose message cannot even be made keeps no other channel's back.
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

done_testing();
