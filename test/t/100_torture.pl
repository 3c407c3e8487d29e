# Loses no row and doubles none: writers whose transactions overlap, commit
# late, roll back and prepare, while jobs run and clients and servers are killed.
#
# INCLOAD_TORTURE_ROUNDS (3) rounds, each of INCLOAD_TORTURE_SECONDS (45) with
# pauses of writers up to INCLOAD_TORTURE_SLEEP (3000) milliseconds. Each has
# a fresh seed, which it prints; with INCLOAD_TORTURE_SEED there is one round
# of that seed. With INCLOAD_TORTURE_NAIVE=1 a reader that trusts
# max(watermark) runs beside, and must lose rows. bench/torture is the longer form.
use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Utils;
use Test::More;
use IncloadTorture;

my $given = $ENV{INCLOAD_TORTURE_SEED};
my $rounds = $ENV{INCLOAD_TORTURE_ROUNDS} // (defined($given) ? 1 : 3);
my @seeds = map { defined($given) ? $given + $_ : int(rand(1_000_000)) } 0 .. $rounds - 1;

foreach my $seed (@seeds)
{
	my %arg = (
		seed => $seed,
		seconds => $ENV{INCLOAD_TORTURE_SECONDS} // 45,
		sleep => $ENV{INCLOAD_TORTURE_SLEEP} // 3000,
		naive => $ENV{INCLOAD_TORTURE_NAIVE} // 0);
	note("seed $seed, $arg{seconds} s, pauses up to $arg{sleep} ms");
	my $figures = torture(%arg);
	my $rows = $figures->{rows};
	note(sprintf('figures: seed %s, %s runs, %s failed, %s crashes, %s lesser hits, rows %s, %s came late%s',
			$seed, @$figures{qw(runs failed crashes hits)}, join(' ', map { "$_ $rows->{$_}" } sort(keys(%$rows))),
			$figures->{danger}, @{ $figures->{naive} } ? ', max() lost ' . join(' and ', @{ $figures->{naive} }) : ''));
	# with KEEP=1 its servers are left to be looked at
	last if !Test::More->builder->is_passing;
}

done_testing();
