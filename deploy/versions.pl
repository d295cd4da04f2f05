#!/usr/bin/env perl
# Completes a recorded profile in text form: the versions of a function for other processors get the counts of the one that ran.
#
#   deploy/versions.pl < PROFILE > COMPLETED
#
# The crate multiversion compiles a function once for each of several sets of instructions, and one of these runs on the
# machine that records. Without counts the others would be built for size: not vectorized, and many times as slow.
use strict;
use warnings;

# Records are separated by empty lines: the function's name, a hash of its blocks, and their counts.
$/ = "";
my (@records, %version, %counted);
while (my $record = <STDIN>) {
    push @records, $record;
    # "14plain_long_run27plain_long_run_avx2_version": the name of the function, and that of the version within it.
    next unless $record =~ m/^(\S*?\d+([a-z_]\w*?))\d+\2_\w+_version(?:17h[0-9a-f]{16}E)?\n(.*)/s;
    my ($function, $blocks) = ($1, $3);
    my ($hash) = $blocks =~ m/^(\d+)$/m;
    $version{$#records} = "$function $hash";
    $counted{"$function $hash"} = $blocks if $blocks =~ m/^# Counter Values:\n(?:0\n)*[1-9]/m;
}
while (my ($at, $function) = each %version) {
    my $blocks = $counted{$function} or next;
    $records[$at] =~ s/\n.*/\n$blocks/s;
}
print @records;
