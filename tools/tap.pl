# perl tools/tap.pl [-I DIR]… COUNTS FAILURES FILE…
#
# Run TAP files as prove does, and write 'passed failed' to COUNTS: assertions,
# of which skipped ones are neither; and what failed to FAILURES, a line each.  A file that dies, stops early or plans
# otherwise than it runs counts as one failure more.  JOBS says how many at once,
# FILE_TIMEOUT after how many seconds a file is stopped.

use strict;
use warnings;
use File::Basename qw(basename);
use TAP::Harness;

my @lib;
while (@ARGV && $ARGV[0] eq '-I')
{
	shift;
	push @lib, shift;
}
my $counts = shift;
my $failures = shift or die "usage: tap.pl [-I DIR]... COUNTS FAILURES FILE...\n";

# In the foreground, so that whoever ends our process group ends the file too;
# then its END block stops its servers.
my @limit = ('timeout', '--foreground', '-k', 20, $ENV{FILE_TIMEOUT} || 600);

my $harness = TAP::Harness->new(
	{
		exec => [ @limit, $^X, map { "-I$_" } @lib ],
		jobs => $ENV{JOBS} || 1,
		timer => 1,
	});
my %failures;
$harness->callback(
	made_parser => sub {
		my ($parser, $test) = @_;
		my $file = $test->[0];
		$parser->callback(
			test => sub {
				my ($result) = @_;
				push @{ $failures{$file} }, $result->number . ' ' . $result->description
				  unless $result->is_ok;
			});
	});
my $all = $harness->runtests(@ARGV);

my ($passed, $failed) = (0, 0);
my @failures;
foreach my $file ($all->descriptions)
{
	my ($parser) = $all->parsers($file);
	my $bad = $parser->failed;
	$bad = 1 if !$bad && $parser->has_problems;
	$passed += $parser->passed - $parser->skipped;
	$failed += $bad;
	next unless $bad;
	show_log($file);
	push @failures, map { "$file: $_\n" }
	  @{ $failures{$file} || [] }, $parser->failed ? () : 'ended early, with status ' . $parser->exit;
}

write_file($counts, "$passed $failed\n");
write_file($failures, @failures);
exit($failed ? 1 : 0);

sub write_file
{
	my ($name, @lines) = @_;
	open(my $out, '>', $name) or die "cannot write $name: $!\n";
	print $out @lines;
	close($out) or die "cannot write $name: $!\n";
	return;
}

# What a test and its servers said last; PostgreSQL::Test keeps it in files.
sub show_log
{
	my ($file) = @_;
	my $name = basename($file, '.pl');
	foreach my $log (glob("'$ENV{TESTLOGDIR}/regress_log_$name' '$ENV{TESTLOGDIR}/${name}_*.log'"))
	{
		open(my $in, '<', $log) or next;
		# of a test that asks again and again it can be gigabytes
		seek($in, -65536, 2) if -s $log > 65536;
		my @lines = <$in>;
		close($in);
		splice(@lines, 0, @lines - 40) if @lines > 40;
		print "--- the end of ", basename($log), " (KEEP=1 keeps it all)\n", @lines;
	}
	return;
}
