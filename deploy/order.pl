#!/usr/bin/env perl
# Prints the functions that servers ran, in the order in which they should lie in the program.
#
#   deploy/order.pl IDLE FIRST MANY OTHER... > ORDER
#
# Each file is of callgrind, for one server: one that was only started, one that was called once as well, one that served many
# requests, and those with other settings. What the first call needs comes first, then what a server with the same settings goes on to
# run, then the rest of a start, and then what else was run; of each, the most frequent ahead. So a start, and a server that serves the
# same requests again and again, need few pages of the file.
use strict;
use warnings;

my @runs;
for my $file (@ARGV) {
    open my $lines, '<', $file or die "$file: $!\n";
    my (%name, %instructions, $function, $is_of_call);
    while (<$lines>) {
        if (/^fn=\((\d+)\)(?: (.*))?$/) {
            $name{$1} = $2 if defined $2;
            $function = $name{$1};
        } elsif (/^cfn=\((\d+)\) (.*)$/) {
            $name{$1} = $2;
        } elsif (/^calls=/) {
            # The next line is what the called function took.
            $is_of_call = 1;
        } elsif (/^[\d+*-]/) {
            $instructions{$function} += (split)[-1] unless $is_of_call;
            $is_of_call = 0;
        }
    }
    # A function that calls itself is named by its depth as well.
    my %run;
    $run{s/'\d+$//r} += $instructions{$_} for keys %instructions;
    push @runs, \%run;
}

my ($idle, $first, $many) = @runs;
my (%group, %weight);
for my $run (@runs) {
    for my $function (keys %$run) {
        $weight{$function} += $run->{$function};
        my ($start, $call, $more) = map { $_->{$function} // 0 } $idle, $first, $many;
        $group{$function} = $call > $start ? 0 : $start ? ($more > $start ? 1 : 2) : $more ? 3 : 4;
    }
}
print "$_\n" for sort { $group{$a} <=> $group{$b} || $weight{$b} <=> $weight{$a} || $a cmp $b } keys %group;
