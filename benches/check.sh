#!/bin/sh
# Fails when a request takes over 5 % more instructions or allocations than baseline.json says, or when either
# depends on how many tools there are. Needs valgrind. After a change that is worth its cost, or with another
# compiler: `benches/check.sh update`.
set -eu
cd "$(dirname "$0")/.."
exec cargo run --quiet --profile profiling --package longshore-benches --bin longshore-counts -- "${1:-check}"
