#!/usr/bin/env bash
# Prints where the llvm-profdata of the compiler's LLVM is: of `rustup component add llvm-tools`, or of a package of the system.
set -euo pipefail
version="$(rustc --version --verbose | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')"
for found in "$(rustc --print target-libdir)/../bin/llvm-profdata" "$(command -v "llvm-profdata-$version" || true)"; do
    [ ! -x "$found" ] || { echo "$found"; exit; }
done
echo "there is no llvm-profdata of LLVM $version: rustup component add llvm-tools" >&2
exit 1
