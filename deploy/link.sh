#!/usr/bin/env bash
# The linker of the image's program (`deploy/program.sh`). It links, has the program serve under valgrind, and links again with the
# functions in the order in which servers need them, so that a start and a request map few pages of the file.
#
#   deploy/link.sh ARGUMENT...      those of a C compiler that links
#
# Without valgrind, and with a linker that cannot order functions, the program is linked once. The reason goes to the file
# LINK_LOG, since rustc shows nothing that a successful linker says.
set -euo pipefail
folder="$(cd "$(dirname "$0")" && pwd)"
compiler="${CC:-cc}"
once() {
    echo "functions stay in the compiler's order, and a start maps more pages: $*" | tee -a "${LINK_LOG:-/dev/null}" >&2
    "$compiler" "${arguments[@]}"
    exit
}

arguments=("$@") output=""
while [ $# -gt 0 ]; do
    [ "$1" != -o ] || output=$2
    shift
done
work="$(mktemp --directory --tmpdir="$(dirname "$output")" order-XXXXXX)"
trap 'rm -rf "$work"' EXIT
order=("-Wl,--symbol-ordering-file=$work/order" "-Wl,--no-warn-symbol-ordering")

command -v valgrind > /dev/null || once "valgrind is missing"
named=()
for argument in "${arguments[@]}"; do
    case "$argument" in -Wl,--strip-all | -Wl,-s) ;; *) named+=("$argument") ;; esac
done
echo main > "$work/order"
"$compiler" "${named[@]}" "${order[@]}" || once "the linker cannot order them"

mv "$output" "$work/program"
# Files are named by the order in which the servers were started.
cat > "$work/observed" << SCRIPT
#!/bin/sh
exec valgrind --quiet --tool=callgrind --demangle=no --separate-recs=1 --callgrind-out-file=$work/\$(date +%s%N).callgrind $work/program "\$@"
SCRIPT
chmod +x "$work/observed"
REQUESTS=400 "$folder/train.sh" "$work/observed" || once "the program did not serve under valgrind"
"$folder/order.pl" "$work"/*.callgrind > "$work/order"
"$compiler" "${arguments[@]}" "${order[@]}"
