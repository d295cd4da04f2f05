#!/usr/bin/env bash
# Runs the client leg of the official MCP conformance suite: the commands login, list, call,
# read and prompt of the built program against the suite's own servers.
#
#   conformance/client.sh [options] [SCENARIO...]
#
#   --program PATH   the program (default: target/debug/longshore, which is built first)
#   SCENARIO         only these scenarios (default: all)
#   --runs LIST      only these runs, comma separated (see --list-runs)
#   --jobs N         number of concurrent scenarios (default: 4)
#   --json FILE      also write the results as JSON
#   --verbose        print what the suite and the client wrote, of scenarios that failed
#   --list-runs      print the runs and exit
#
# What is known to fail, and why, stands in client.known: one "RUN SCENARIO" a line. It is
# counted as skipped; what is listed and passes counts as failed. A scenario fails if a check
# fails or warns, or if the client ends with an error where none is expected.
#
# The suite is installed as run.sh does it. The last line is "N passed, N failed, N skipped";
# the exit status is 0 when nothing failed, 1 when something did, 2 when nothing could be run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
# Nothing that is set around here is to change the program that is tested.
while read -r name; do unset "$name"; done < <(compgen -e LONGSHORE_ || :)

program='' options=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"; exit 2 ;;
    --program | --runs | --json | --jobs)
      [ $# -ge 2 ] || { echo "client.sh: $1 needs a value" >&2; exit 2; }
      if [ "$1" = --program ]; then program=$2; else options+=("$1" "$2"); fi
      shift ;;
    *) options+=("$1") ;;
  esac
  shift
done
# shellcheck source=conformance/install.sh
. "$here/install.sh"
if [ -z "$program" ]; then
  (cd "$root" && cargo build --locked --quiet --bin longshore) >&2
  program=${CARGO_TARGET_DIR:-$root/target}/debug/longshore
fi
program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")

exec node "$here/client.mjs" --install "$dir" --program "$program" --known "$here/client.known" ${options[@]+"${options[@]}"}
