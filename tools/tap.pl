# perl tools/tap.pl [-I DIR]… COUNTS FILE…
#
# Run TAP files as prove does, and write 'passed failed' to COUNTS: assertions,
# of which skipped ones are neither.  A file that dies, stops early or plans
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
my $counts = shift or die "usage: tap.pl [-I DIR]... COUNTS FILE...\n";

# In the foreground, so that whoever ends our process group ends the file too;
# then its END block stops its servers.
my @limit = ('timeout', '--foreground', '-k', 20, $ENV{FILE_TIMEOUT} || 600);

my $harness = TAP::Harness->new(
	{
		exec => [ @limit, $^X, map { "-I$_" } @lib ],
		jobs => $ENV{JOBS} || 1,
		timer => 1,
	});
my $all = $harness->runtests(@ARGV);

my ($passed, $failed) = (0, 0);
foreach my $file ($all->descriptions)
{
	my ($parser) = $all->parsers($file);
	my $bad = $parser->failed;
	$bad = 1 if !$bad && $parser->has_problems;
	$passed += $parser->passed - $parser->skipped;
	$failed += $bad;
	show_log($file) if $bad;
}

open(my $out, '>', $counts) or die "cannot write $counts: $!\n";
print $out "$passed $failed\n";
close($out) or die "cannot write $counts: $!\n";
exit($failed ? 1 : 0);

# What a test and its servers said last; PostgreSQL::Test keeps it in files.
sub show_log
{
	my ($file) = @_;
	my $name = basename($file, '.pl');
	foreach my $log (glob("'$ENV{TESTLOGDIR}/regress_log_$name' '$ENV{TESTLOGDIR}/${name}_*.log'"))
	{
		open(my $in, '<', $log) or next;
		my @lines = <$in>;
		close($in);
		splice(@lines, 0, @lines - 40) if @lines > 40;
		print "--- the end of ", basename($log), " (KEEP=1 keeps it all)\n", @lines;
	}
	return;
}
