#!/bin/sh
# Fails when a request takes over 5 % more instructions or allocations than the baseline says, or when either depends on
# how many tools there are.
#
#   benches/check.sh [check | update] [PROGRAM]
#
# `update` writes the baseline: after a change that is worth its cost, or with another compiler. PROGRAM is a
# `longshore-counts` that is built already; otherwise the one of the profile `profiling` is built. One of a debug build has a
# baseline of its own, and counts the most frequent requests only. Needs valgrind.
set -eu
cd "$(dirname "$0")/.."
what=${1:-check}
[ $# -lt 2 ] || exec "$2" "$what"
exec cargo run --quiet --profile profiling --package longshore-benches --bin longshore-counts -- "$what"
