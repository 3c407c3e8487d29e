# docs/runbooks: a page for each code of an event and for each alert, and SQL in them that runs.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadTest;

# which argument is the code, where a function makes an event
my %makers = (catalog_event => 1, catalog_event_once => 1, catalog_page => 1, catalog_ticket => 2, catalog_note_once => 2,
	own_event => 0, recover => 2, tell => 3);
my %codes;

# the arguments of a call, or the items of a list, from a place behind its "(" on
sub split_list
{
	my ($text) = @_;
	my ($depth, $quote, @items) = (0, '', '');

	foreach my $char (split(//, $text))
	{
		$quote = $quote eq $char ? '' : $quote || $char if $char eq '"' || $char eq q{'};
		if (!$quote)
		{
			$depth++ if $char eq '(';
			return @items if $char eq ')' && $depth-- == 0;
			push @items, '' and next if $char eq ',' && $depth == 0;
		}
		$items[-1] .= $char;
	}
	return @items;
}

sub add_codes
{
	my ($file, $text) = @_;
	return unless defined $text;
	# a number in it is a step: those that there are stand beside it
	if ($text =~ /psprintf\("([a-z_]+)%d"/)
	{
		my $prefix = $1;
		my ($steps) = slurp_file($file) =~ /steps\[\] = \{([\d, ]+)\}/;
		$codes{"$prefix$_"} = $file foreach split(/, */, $steps);
		return;
	}
	$codes{$_} = $file foreach $text =~ /"([a-z_0-9]+)"/g;
	return;
}

foreach my $file (glob('src/*.c'))
{
	my $text = slurp_file($file);
	next if $file eq 'src/catalog.c';
	$text =~ s{/\*.*?\*/}{}gs;
	while ($text =~ /\b(@{[ join('|', keys %makers) ]})\s*\(/g)
	{
		add_codes($file, (split_list(substr($text, pos($text))))[ $makers{$1} ]);
	}
	add_codes($file, $1) while $text =~ /stop(?:->|\.)code = ("[a-z_]+");/g;
	# SQL: the item that stands where "code" does
	(my $sql = $text) =~ s/"\s*\n\s*"//g;
	while ($sql =~ /INSERT INTO incload\.event_store \(([a-z_, ]+)\)\s*(?:VALUES \(|SELECT )/g)
	{
		my @columns = split(/, */, $1);
		my ($place) = grep { $columns[$_] eq 'code' } 0 .. $#columns;
		my $item = (split_list(substr($sql, pos($sql))))[$place];
		$codes{$1} = $file if defined $item && $item =~ /^\s*'([a-z_]+)'\s*$/;
	}
}
cmp_ok(scalar(keys %codes), '>=', 31, 'codes are found in the sources');
ok($codes{$_}, "that of $_ among them") foreach qw(job_resumed source_changed prune_refused schema_changed rows_rejected horizon_held backfill_ended reconcile_mismatch);

my $rules = slurp_file('monitoring/incload_rules.yml');
my %alerts = map { $_ => 1 } $rules =~ /alert: (\w+)/g;
cmp_ok(scalar(keys %alerts), '>=', 16, 'and alerts in the rules');
my %advice = map { $_ => 1 } map { slurp_file($_) =~ /check_add\([^;]*?"([a-z_]+)",\s*\n?\s*(?:psprintf|pstrdup|one_line)/g } glob('src/check*.c');
ok($advice{source_without_tls}, 'and findings of incload_check');

my %pages = map { m{([^/]+)\.md$} => $_ } glob('docs/runbooks/*.md');
my $index = slurp_file(delete $pages{README});
is(join(' ', grep { !$pages{$_} } sort keys %codes, keys %alerts), '', 'each has a page');
is(join(' ', grep { !$codes{$_} && !$alerts{$_} && !$advice{$_} } sort keys %pages), '', 'each page is of one');
is(join(' ', grep { $index !~ /\[$_\]\($_\.md\)/ } sort keys %pages), '', 'the index has them all');

my $everything = $index . join('', map { slurp_file($_) } values %pages);
my $reference = slurp_file('docs/reference.md');
is(join(' ', grep { $reference !~ /`\Q$_\E`/ } sort keys %codes), '', 'and the reference each code');
is(join(' ', grep { !-e "docs/runbooks/$_" } $everything =~ /\]\(([^)#]+\.(?:md|yml))/g), '', 'links lead somewhere');
my %anchors = map {
	my $file = $_;
	map { (my $anchor = lc($_)) =~ s/[^\w\- ]//g; $anchor =~ tr/ /-/; ("$file#$anchor" => 1) } slurp_file("docs/$file") =~ /^#+ +(.+)$/mg
} qw(guide.md reference.md checklists.md);
is(join(' ', grep { !$anchors{$_} } $everything =~ m{\]\(\.\./([a-z]+\.md#[^)]+)\)}g), '', 'to places that there are');
foreach my $name (sort keys %pages)
{
	like(slurp_file($pages{$name}), qr/^# $name\n.*\*\*Symptom\.\*\*.*\*\*Likely causes\.\*\*.*\n## Look\n.*```sql.*\n## Mend\n/s, "$name says what to see, look at and run");
}

# A set-up in which something has happened: rejects, a backfill with a failed window, comparisons.
my ($source, $target) = two_nodes(target => q{
	shared_preload_libraries = 'incload'
	incload.naptime = '100ms'
	max_worker_processes = 16
});
$source->safe_psql('postgres', q{
	CREATE TABLE orders (id serial PRIMARY KEY, amount numeric, updated_at timestamptz NOT NULL DEFAULT now());
	GRANT SELECT ON SEQUENCE orders_id_seq TO reader;
	INSERT INTO orders (amount, updated_at) SELECT i, '2024-01-01'::timestamptz + i * interval '1 hour' FROM generate_series(1, 1000) i});
foreign_table($target, 'orders');
as_loader($target, q{
	CREATE TABLE dw.orders (id int PRIMARY KEY, amount numeric CONSTRAINT small CHECK (amount < 100000), updated_at timestamptz);
	SELECT incload_create_job('orders', 'src.orders', 'dw.orders', 'upsert', 'updated_at', '{id}', options => '{"reject_limit": 1}');
	SELECT incload_run('orders')});
$source->safe_psql('postgres', q{INSERT INTO orders (amount) VALUES (100000)});
as_loader($target, q{SELECT incload_run('orders')});
$source->safe_psql('postgres', q{UPDATE orders SET amount = 200000 WHERE id IN (10, 11)});
as_loader($target, q{SELECT incload_backfill('orders', '2024-01-01', '2024-02-01', '1 week')});
ok($target->poll_query_until('postgres', q{SELECT count(*) FILTER (WHERE state = 'failed') = 1 AND count(*) FILTER (WHERE state = 'pending') = 0 FROM incload.batch_window}), 'a window of a backfill has failed');
$source->safe_psql('postgres', q{UPDATE orders SET amount = id});

sub runs
{
	my ($node, $sql, $name) = @_;
	# as the job's owner, but for what takes a superuser
	my @as = $node->name eq 'target' && $sql !~ /incload_worker_start/ ? ('-U', 'loader') : ();
	my ($ret, $out, $err) = $node->psql('postgres', $sql, extra_params => [ @as, map { ('-v', $_) } qw(job=orders table=public.orders watermark=updated_at pid=0) ]);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($ret == 0 && $err !~ /ERROR/, $name) or diag($sql, $err);
	return;
}

# each page by itself, and undone
foreach my $name ('README', sort keys %pages)
{
	my $text = slurp_file("docs/runbooks/$name.md");
	my @blocks = $text =~ /^```sql\n(.*?)^```$/msg;
	foreach my $side (0, 1)
	{
		my @sql = grep { (/^-- at the source/ ? 1 : 0) == $side } @blocks;
		next unless @sql;
		runs($side ? $source : $target, join('', map { /^BEGIN;/m ? $_ : "BEGIN;\n${_}ROLLBACK;\n" } @sql),
			"$name: its SQL runs" . ($side ? ' at the source' : ''));
	}
}
my @again = as_loader($target, q{SELECT incload_run('orders'); SELECT count(*) FROM incload_reconcile('orders', 'rows', repair => true); SELECT rejected FROM incload_retry_rejects('orders')});
is((split(/\n/, $again[0]))[-1], '0', 'and the set-up is as sound as before');

done_testing();
