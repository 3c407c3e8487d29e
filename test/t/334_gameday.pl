# demo/gameday: each step breaks something, is told as it should be, and ends with a sound job.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

my ($out, $err) = run_command([ 'env', 'BUILD=0', 'demo/gameday' ]);
my %steps = $out =~ /^=== ([a-z_]+)\n(.*?)(?=^=== |\z)/msg;

# what an operator sees in each
my %sees = (
	lost_source => qr/state +\| failing\n.*last_error +\| 08\d\d\d: /s,
	held_horizon => qr/held_back_by \| pid \d+ \(lunch\).*held_back_by \| *$/ms,
	full_reject_limit => qr/last_error \| 23514: .*reject_limit.*code +\| rows_rejected\n.*runbook +\| docs\/runbooks\/rows_rejected\.md\n.* 3 \| +0 \| +0$/ms,
	mass_delete => qr/severity \| page\ncode +\| prune_refused\n/,
	changed_schema => qr/code +\| schema_changed\n.*none yet \| +20\d\d$/ms,
	restored_backup => qr/code +\| new_timeline\n.*rows_pruned \| 20$/ms,
);
foreach my $step (sort keys %sees)
{
	like($steps{$step}, $sees{$step}, "$step: what is seen");
	like($steps{$step}, qr/^Sound: 20\d\d rows on both sides/m, "$step: and the end");
}
like($out, qr/^The game day took \d+ s, 6 steps\./m, 'it comes to its end') or diag($out, $err);
command_fails_like([ 'env', 'BUILD=0', 'demo/gameday', 'earthquake' ], qr/no step earthquake; there are: lost_source/, 'no other step is known');

done_testing();
