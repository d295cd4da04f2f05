#!/usr/bin/env bash
# Runs every fuzz target for a bounded time: fuzz/run.sh [SECONDS for each, 60 unless said].
#
# It needs a nightly toolchain and cargo-fuzz (`cargo install cargo-fuzz`). It begins with the corpus that is checked
# in, and puts what it finds beside it into fuzz/found, which is not; an input that breaks a target goes to
# fuzz/artifacts. Add those, under a name that says what they are, to fuzz/corpus: `cargo test` replays it.
set -euo pipefail
cd "$(dirname "$0")"

seconds="${1:-60}"
for target in envelope headers framing request_framing template; do
    printf '\n== %s\n' "$target"
    mkdir -p "found/$target"
    cargo +nightly fuzz run --fuzz-dir . "$target" "found/$target" "corpus/$target" -- \
        -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1
done
