#!/usr/bin/env bash
# Builds the program of the image: static, and by a profile. A first build counts what is run while `deploy/train.sh` has
# it serve. A second one is fast where that was often, and small everywhere else (`profile.image` in Cargo.toml).
#
#   deploy/program.sh                 builds, and prints where the program is, as its last line
#   deploy/program.sh dependencies    builds only what the first build depends on, for a layer of its own
#
# FEATURES says which features are added, `git,sql` unless it is set. Needs `cargo auditable`, what `deploy/train.sh`
# needs, and llvm-profdata of the compiler's LLVM: `rustup component add llvm-tools`, or Debian's package llvm-22. With valgrind
# its functions are also put in order (`deploy/link.sh`).
set -euo pipefail
cd "$(dirname "$0")/.."
what="${1:-all}"
features="${FEATURES-git,sql}"
target="$(uname -m)-unknown-linux-gnu"
output="$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")"
profile="$output/profile"
program="$target/image/longshore"
# A function of which some part was run that often is built for speed. The training makes most of its requests three thousand
# times, from several sides.
often=1000

# Unwinding takes less to describe where functions have frame pointers, and profilers see more.
flags="-C target-feature=+crt-static -C force-frame-pointers=yes"
arguments=(--locked --profile image --target "$target" --features "$features")

# Panics name files, whose paths on this machine would add 90 KB. They are known once all is unpacked.
cargo fetch --quiet --locked --target "$target"
for registry in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
    flags="$flags --remap-path-prefix=$registry="
done

# Nothing unwinds through C. The cryptographic library takes its own variable instead of the general one; .cargo/config.toml says
# what is in both otherwise.
export CFLAGS="${CFLAGS:--DMI_DEFAULT_ARENA_RESERVE=65536L -DMI_NO_GETENV=1} -fno-asynchronous-unwind-tables -fno-omit-frame-pointer"
export AWS_LC_SYS_CFLAGS="${AWS_LC_SYS_CFLAGS:--DMY_ASSEMBLER_IS_TOO_OLD_FOR_512AVX=1} $CFLAGS"

# Functions have to have the same names in both builds, and those of this package have other ones under `cargo auditable`.
# Compiling for size merges blocks before they are counted; those run often are not to be small in the second build, so none is
# in the first.
instrumented() {
    CARGO_TARGET_DIR="$output/instrumented" RUSTFLAGS="$flags -C profile-generate=$profile \
        -C llvm-args=-force-remove-attribute=optsize -C llvm-args=-force-remove-attribute=minsize" cargo auditable "$@"
}

if [ "$what" = dependencies ]; then
    instrumented build "${arguments[@]}"
    exit
fi

profdata="$(deploy/profdata.sh)"
# It is linked without being optimized once more. What is counted was compiled before that.
instrumented rustc "${arguments[@]}" --bin longshore -- -C opt-level=0
rm -rf "$profile"
LLVM_PROFILE_FILE="$profile/%p-%m.profraw" deploy/train.sh "$output/instrumented/$program"
"$profdata" merge --text "$profile"/*.profraw | deploy/versions.pl > "$profile/merged.proftext"
"$profdata" merge --output "$profile/merged.profdata" "$profile/merged.proftext"

# The functions whose blocks ran that often, and arguments to the compiler that free these from having to be small.
"$profdata" show --all-functions --counts "$profile/merged.profdata" | awk -v often="$often" '
    /^  [^ ]+:$/ {
        name = $1
        sub(/^.*;/, "", name)
        sub(/:$/, "", name)
    }
    /^    Block counts: / {
        while (match($0, /[0-9]+/)) {
            if (substr($0, RSTART, RLENGTH) + 0 >= often) found[name]
            $0 = substr($0, RSTART + RLENGTH)
        }
    }
    END { for (name in found) print name }' > "$profile/often"
awk '{ printf "-Cllvm-args=-force-remove-attribute=%s:optsize\n-Cllvm-args=-force-remove-attribute=%s:minsize\n", $0, $0 }' \
    "$profile/often" > "$profile/often.args"

# A function that has to be small may have other blocks than were counted, and its counts are worth nothing: no reason to warn. A few
# that are run often lose theirs, too (27 of some 3,000 when it was last looked at); they are built for speed all the same.
flags="$flags -C profile-use=$profile/merged.profdata -C llvm-args=-no-pgo-warn-mismatch @$profile/often.args"
# Nothing that is seldom run is copied into its callers.
flags="$flags -C llvm-args=-inlinecold-threshold=5 -C llvm-args=-inline-cold-callsite-threshold=5"
# What has been compiled for size is linked, as one, for speed where it may. The linker puts functions in the order in which servers
# need them.
export LINK_LOG="$profile/link.log"
: > "$LINK_LOG"
CARGO_TARGET_DIR="$output/profiled" RUSTFLAGS="$flags" cargo auditable rustc "${arguments[@]}" --bin longshore -- \
    -C opt-level=3 -C linker="$PWD/deploy/link.sh" -C linker-flavor=gcc
cat "$LINK_LOG" >&2
echo "$output/profiled/$program"
