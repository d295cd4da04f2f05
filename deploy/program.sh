#!/usr/bin/env bash
# Builds the program of the image: static, and by a profile. A first build counts what is run while `deploy/train.sh` has
# it serve; a second one is fast where that was, and small everywhere else.
#
#   deploy/program.sh                 builds, and prints where the program is, as its last line
#   deploy/program.sh dependencies    builds only what the first build depends on, for a layer of its own
#
# FEATURES says which features are added, `git,sql` unless it is set. Needs `cargo auditable`, what `deploy/train.sh`
# needs, and llvm-profdata of the compiler's LLVM: `rustup component add llvm-tools`, or Debian's package llvm-22.
set -euo pipefail
cd "$(dirname "$0")/.."
what="${1:-all}"
features="${FEATURES-git,sql}"
target="$(uname -m)-unknown-linux-gnu"
output="$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")"
profile="$output/profile"
program="$target/release/longshore"

# Unwinding takes less to describe where functions have frame pointers, and profilers see more.
flags="-C target-feature=+crt-static -C force-frame-pointers=yes"
arguments=(--locked --release --target "$target" --features "$features")

find_profdata() {
    local version found
    version="$(rustc --version --verbose | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')"
    for found in "$(rustc --print target-libdir)/../bin/llvm-profdata" "$(command -v "llvm-profdata-$version")"; do
        [ ! -x "$found" ] || { echo "$found"; return; }
    done
    echo "there is no llvm-profdata of LLVM $version: rustup component add llvm-tools" >&2
    return 1
}

# Functions have to have the same names in both builds, and those of this package have other ones under `cargo auditable`.
instrumented() {
    CARGO_TARGET_DIR="$output/instrumented" RUSTFLAGS="$flags -C profile-generate=$profile" cargo auditable "$@"
}

if [ "$what" = dependencies ]; then
    instrumented build "${arguments[@]}"
    exit
fi

profdata="$(find_profdata)"
# It is linked without being optimized once more. What is counted was compiled before that.
instrumented rustc "${arguments[@]}" --bin longshore -- -C opt-level=0
rm -rf "$profile"
LLVM_PROFILE_FILE="$profile/%p-%m.profraw" deploy/train.sh "$output/instrumented/$program"
"$profdata" merge --output "$profile/merged.profdata" "$profile"/*.profraw

# What is seldom run is not copied into its callers either.
flags="$flags -C profile-use=$profile/merged.profdata"
flags="$flags -C llvm-args=-inlinecold-threshold=5 -C llvm-args=-inline-cold-callsite-threshold=5"
CARGO_TARGET_DIR="$output/profiled" RUSTFLAGS="$flags" cargo auditable rustc "${arguments[@]}" --bin longshore
echo "$output/profiled/$program"
