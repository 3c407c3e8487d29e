# perl bench/torture.pl [-I DIR]… FOLDER FIRST N
#
# Run test/t/100_torture.pl with the seeds FIRST, FIRST+1, …, N of them, JOBS at
# once, each in a folder of its own in FOLDER. Prints a line a seed, for one that
# failed what failed, and last 'N passed, N failed'. SEED_TIMEOUT says after how
# many seconds a seed is stopped, which is a failure.

use strict;
use warnings;
use File::Path qw(make_path);

$| = 1;

my @lib;
while (@ARGV && $ARGV[0] eq '-I')
{
	push(@lib, shift . shift);
}
my ($folder, $first, $n) = @ARGV;
defined($n) or die "usage: torture.pl [-I DIR]... FOLDER FIRST N\n";

my @todo = map { $first + $_ } 0 .. $n - 1;
my %running;
my ($passed, $failed) = (0, 0);

while (@todo || %running)
{
	if (@todo && keys(%running) < ($ENV{JOBS} || 1))
	{
		my $seed = shift(@todo);
		$running{ start($seed) } = $seed;
		next;
	}
	my $pid = waitpid(-1, 0);
	my $status = $?;
	my $seed = delete($running{$pid});
	report($seed, $status) if defined($seed);
}
print "$passed passed, $failed failed\n";
exit($failed || !$passed ? 1 : 0);

sub start
{
	my ($seed) = @_;
	my $home = "$folder/$seed";
	my $pid;

	make_path("$home/tmp_check/log");
	defined($pid = fork()) or die "cannot fork: $!\n";
	return $pid if $pid;
	$ENV{TESTDIR} = $home;
	$ENV{TESTDATADIR} = "$home/tmp_check";
	$ENV{TESTLOGDIR} = "$home/tmp_check/log";
	$ENV{INCLOAD_TORTURE_SEED} = $seed;
	$ENV{INCLOAD_TORTURE_ROUNDS} = 1;
	open(STDOUT, '>', "$home/out") or die "cannot write $home/out: $!\n";
	open(STDERR, '>&', \*STDOUT);
	# in the foreground: see tools/tap.pl
	exec('timeout', '--foreground', '-k', 20, $ENV{SEED_TIMEOUT} || 1000,
		$^X, @lib, 'test/t/100_torture.pl');
	die "cannot run timeout: $!\n";
}

sub report
{
	my ($seed, $status) = @_;
	open(my $in, '<', "$folder/$seed/out") or die "cannot read $folder/$seed/out: $!\n";
	my @lines = <$in>;
	my ($figures) = map { /^# figures: (.*)/ ? $1 : () } @lines;
	my $ok = $status == 0 && defined($figures) && !grep { /^not ok/ } @lines;

	printf("%s: %s\n", $figures // "seed $seed, did not come to its end", $ok ? 'ok' : 'not ok');
	$ok ? $passed++ : $failed++;
	return if $ok;
	# the first failures tell most
	my @told = grep { /^not ok/ || /^#/ && !/^# (?:figures|[a-z_]+\||connection to)/ } @lines;
	print(map { '    ' . substr($_, 0, 500) =~ s/\n?\z/\n/r } splice(@told, 0, 60));
	print("    exit status ", $status >> 8, ", the end of it in $folder/$seed\n");
	return;
}
