# perl bench/report.pl SAMPLES RESULTS
#
# Make the table, bench.json and bench.svg in the folder RESULTS from what
# bench/run has left in the folder SAMPLES: rows.tsv (name, goal, kind, work,
# against), samples.tsv (name, side, round, value, WAL bytes, note), about.tsv.
# The ratio of a row is that of the medians; its spread is the smallest and the
# largest ratio of one round.

use strict;
use warnings;
use List::Util qw(min max);

my ($from, $to) = @ARGV;
die "usage: report.pl SAMPLES RESULTS\n" if !defined $to;

sub lines
{
	my ($name) = @_;
	open(my $in, '<', "$from/$name") or die "cannot read $from/$name: $!\n";
	chomp(my @lines = <$in>);
	close($in);
	return map { [ split(/\t/, $_, -1) ] } @lines;
}

sub write_file
{
	my ($name, $text) = @_;
	open(my $out, '>', "$to/$name") or die "cannot write $to/$name: $!\n";
	print $out $text;
	close($out) or die "cannot write $to/$name: $!\n";
	return;
}

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	return ($sorted[ $#sorted / 2 ] + $sorted[ @sorted / 2 ]) / 2;
}

# three digits that count
sub short
{
	my ($value) = @_;
	return sprintf($value >= 100 ? '%.0f' : $value >= 10 ? '%.1f' : $value >= 0.1 || $value == 0 ? '%.2f' : '%.4f', $value);
}

my @about = lines('about.tsv');
my %samples;
push @{ $samples{ $_->[0] }{ $_->[1] } },
  { round => $_->[2], value => $_->[3], wal => $_->[4], note => $_->[5] }
  foreach grep { $_->[2] > 0 } lines('samples.tsv');

# a row that failed may have no round that counts
my @rows = map { judge(@$_) } grep { keys %{ $samples{ measured($_->[0]) } || {} } == 2 } lines('rows.tsv');

# the row whose samples this one is of
sub measured { my ($name) = @_; return $name =~ s/-(?:updated|wal|sent)$//r; }

# what a row's samples come to
sub judge
{
	my ($name, $goal, $kind, $work, $against) = @_;
	my ($ours, $theirs) = @{ $samples{ measured($name) } }{qw(incload reference)};
	my %row = (name => $name, kind => $kind, work => $work, against => $against, rounds => scalar @$ours);

	$row{goal} = $goal + 0 if $goal ne '-';
	if ($kind eq 'count')
	{
		$row{incload} = max(map { $_->{note} =~ /(\d+) updated/ ? $1 : die "$name: no count\n" } @$ours);
	}
	elsif ($kind eq 'mb')
	{
		$row{incload} = median(map { $_->{wal} / 1e6 } @$ours);
		$row{reference} = median(map { $_->{wal} / 1e6 } @$theirs);
	}
	else
	{
		my %round = map { $_->{round} => $_->{value} } @$theirs;
		my @each = map { $kind eq 'ratio' ? $_->{value} / $round{ $_->{round} } : $_->{value} - $round{ $_->{round} } }
		  grep { defined $round{ $_->{round} } } @$ours;

		$row{incload} = median(map { $_->{value} } @$ours);
		$row{reference} = median(map { $_->{value} } @$theirs);
		@row{qw(least most)} = (min(@each), max(@each));
		$row{incload_samples} = [ map { $_->{value} + 0 } @$ours ];
		$row{reference_samples} = [ map { $_->{value} + 0 } @$theirs ];
		if ($ours->[0]{wal} > 0)
		{
			$row{incload_wal_mb} = median(map { $_->{wal} / 1e6 } @$ours);
			$row{reference_wal_mb} = median(map { $_->{wal} / 1e6 } @$theirs);
		}
	}
	$row{result} =
	    $kind eq 'ratio' ? $row{incload} / $row{reference}
	  : $kind eq 'difference' ? $row{incload} - $row{reference}
	  : $row{incload};
	$row{met} = $row{result} <= $row{goal} ? 1 : 0 if defined $row{goal};
	return \%row;
}

sub met { my ($row) = @_; return !defined $row->{goal} ? '' : $row->{met} ? 'met' : 'MISSED'; }

sub spread { my ($row) = @_; return defined $row->{least} ? short($row->{least}) . '-' . short($row->{most}) : ''; }

# a value with its unit
sub value
{
	my ($row, $value) = @_;
	return '' if !defined $value;
	return $row->{kind} eq 'count' ? $value
	  : $row->{kind} ne 'ratio' ? short($value) . ' MB'
	  : $value < 1 ? short($value * 1000) . ' ms'
	  : short($value) . ' s';
}

sub table
{
	my $format = "%-26s %10s %10s %7s %12s %6s %-6s  %14s\n";
	my $text = join('', map { sprintf("%-18s %s\n", @$_) } @about);

	$text .= "\n" . sprintf($format, 'row', 'incload', 'reference', 'ratio', 'spread', 'goal', '', 'WAL, MB');
	foreach my $row (@rows)
	{
		$text .= sprintf($format, $row->{name}, value($row, $row->{incload}), value($row, $row->{reference}),
			$row->{kind} eq 'ratio' ? sprintf('%.2f', $row->{result}) : short($row->{result}),
			spread($row), $row->{goal} // '', met($row),
			defined $row->{incload_wal_mb} ? short($row->{incload_wal_mb}) . ' / ' . short($row->{reference_wal_mb}) : '');
	}
	$text .= "\n" . join('', map { "$_->[0]\n" } lines('skipped'));
	return $text;
}

sub json
{
	my ($value) = @_;
	if (ref $value eq 'HASH')
	{
		return '{' . join(', ', map { json_string($_) . ': ' . json($value->{$_}) } sort keys %$value) . '}';
	}
	return '[' . join(', ', map { json($_) } @$value) . ']' if ref $value eq 'ARRAY';
	return $value =~ /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[-+]?\d+)?$/ ? $value : json_string($value);
}

sub json_string
{
	my ($text) = @_;
	$text =~ s/(["\\])/\\$1/g;
	$text =~ s/([\x00-\x1f])/sprintf('\\u%04x', ord $1)/ge;
	return "\"$text\"";
}

sub whole_json
{
	my %about = map { $_->[0] => $_->[1] } @about;
	my @text = map { my %row = %$_; $row{met} = $row{met} ? 'yes' : 'no' if defined $row{met}; '    ' . json(\%row) } @rows;
	return "{\n  \"about\": " . json(\%about) . ",\n  \"rows\": [\n" . join(",\n", @text) . "\n  ]\n}\n";
}

# The picture: a line a row, the ratio as a dot between its spread, the goal as
# a mark, on an axis where twice as fast and twice as slow are equally far away.
sub svg
{
	my @shown = grep { $_->{kind} eq 'ratio' } @rows;
	my ($left, $width, $step, $top) = (470, 480, 22, 70);
	my ($low, $high) = (0.1, max(10, 1.1 * max(map { $_->{most} } @shown)));
	my $height = $top + $step * @shown + 50;
	my $x = sub { my ($ratio) = @_; return sprintf('%.1f', $left + $width * log(max($ratio, $low) / $low) / log($high / $low)); };
	my @out;

	push @out, sprintf('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">',
		$left + $width + 110, $height);
	push @out, '<rect width="100%" height="100%" fill="white"/>';
	push @out, '<text x="10" y="24" font-size="16">incload: time relative to the reference, less is better</text>';
	push @out, sprintf('<text x="10" y="44" fill="#555">%s</text>', escape(join('; ', map { "$_->[0] $_->[1]" } @about[ 0 .. 2 ], grep { $_->[0] =~ /^(?:rows|date)$/ } @about)));
	foreach my $mark (grep { $_ <= $high } 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
	{
		push @out, sprintf('<line x1="%s" x2="%s" y1="%d" y2="%d" stroke="%s"/>', $x->($mark), $x->($mark), $top - 6, $height - 40, $mark == 1 ? '#888' : '#ddd');
		push @out, sprintf('<text x="%s" y="%d" text-anchor="middle" fill="#555">%s</text>', $x->($mark), $height - 24, $mark);
	}
	for my $n (0 .. $#shown)
	{
		my $row = $shown[$n];
		my $y = $top + $step * $n + 8;
		my $color = !defined $row->{goal} ? '#555' : $row->{met} ? '#1a7f37' : '#c62828';

		push @out, sprintf('<text x="10" y="%d"><title>%s, against %s</title>%s</text>', $y + 4, escape($row->{work}), escape($row->{against}), escape($row->{name}));
		push @out, sprintf('<text x="%d" y="%d" text-anchor="end" fill="#555">%s</text>', $left - 10, $y + 4, value($row, $row->{incload}) . ' / ' . value($row, $row->{reference}));
		push @out, sprintf('<line x1="%s" x2="%s" y1="%d" y2="%d" stroke="%s" stroke-width="3" opacity="0.4"/>', $x->($row->{least}), $x->($row->{most}), $y, $y, $color);
		push @out, sprintf('<line x1="%s" x2="%s" y1="%d" y2="%d" stroke="#1f4e9c" stroke-width="2"/>', $x->($row->{goal}), $x->($row->{goal}), $y - 8, $y + 8) if $row->{goal};
		push @out, sprintf('<circle cx="%s" cy="%d" r="5" fill="%s"/>', $x->($row->{result}), $y, $color);
		push @out, sprintf('<text x="%d" y="%d" fill="%s">%.2f %s</text>', $left + $width + 12, $y + 4, $color, $row->{result}, met($row));
	}
	push @out, sprintf('<text x="10" y="%d" fill="#555">dot: ratio of the medians; bar: smallest and largest ratio of a round; blue: goal</text>', $height - 8);
	push @out, '</svg>';
	return join("\n", @out) . "\n";
}

sub escape
{
	my ($text) = @_;
	$text =~ s/&/&amp;/g;
	$text =~ s/</&lt;/g;
	$text =~ s/>/&gt;/g;
	return $text;
}

my $table = table();
print "\n", $table;
write_file('bench.txt', $table);
write_file('bench.json', whole_json());
write_file('bench.svg', svg()) if grep { $_->{kind} eq 'ratio' } @rows;
print "\nwritten: $to/bench.txt, bench.json, bench.svg\n";
