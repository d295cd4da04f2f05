#!/usr/bin/env bash
# Runs the official MCP conformance suite against the built program with its everything
# toolset, which is the fixture that the suite asks for.
#
#   conformance/everything.sh [options] [SCENARIO...]
#
#   --server PATH    the program (default: target/debug/longshore, which is built first)
#   --host ADDRESS   what the server listens on, such as 0.0.0.0 (default: 127.0.0.1)
#
# Other options, output and exit status are those of run.sh. What is known to fail, and
# why, stands in everything.known.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
# Nothing that is set around here is to change the server that is tested.
while read -r name; do unset "$name"; done < <(compgen -e LONGSHORE_ || :; echo PORT)

server='' host=127.0.0.1 options=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"; exit 2 ;;
    --server)
      [ $# -ge 2 ] || { echo "everything.sh: --server needs a value" >&2; exit 2; }
      server=$2
      shift ;;
    --host)
      [ $# -ge 2 ] || { echo "everything.sh: --host needs a value" >&2; exit 2; }
      host=$2
      shift ;;
    --runs | --json)
      [ $# -ge 2 ] || { echo "everything.sh: $1 needs a value" >&2; exit 2; }
      options+=("$1" "$2")
      shift ;;
    *) options+=("$1") ;;
  esac
  shift
done
for tool in node npm; do
  command -v "$tool" >/dev/null || { echo "everything.sh: $tool is not installed" >&2; exit 2; }
done
if [ -z "$server" ]; then
  (cd "$root" && cargo build --locked --quiet --bin longshore) >&2
  server=${CARGO_TARGET_DIR:-$root/target}/debug/longshore
fi

log=$(mktemp)
# The log says which port was free.
NO_COLOR=1 LONGSHORE_LOG=info "$server" run --host "$host" --insecure --port 0 --toolset everything >"$log" 2>&1 </dev/null &
pid=$!
trap 'kill "$pid" 2>/dev/null || :; wait "$pid" 2>/dev/null || :; rm -f "$log"' EXIT
url=''
for _ in {1..100}; do
  url=$(grep -o 'http://[0-9.]*:[0-9]*/mcp' "$log" | head -n 1 || :)
  # Clients do not connect to the address that stands for all of them.
  url=${url/0.0.0.0/localhost}
  [ -z "$url" ] || break
  kill -0 "$pid" 2>/dev/null || break
  sleep 0.1
done
if [ -z "$url" ]; then
  cat "$log" >&2
  echo "everything.sh: the server does not listen" >&2
  exit 2
fi
status=0
"$here/run.sh" --known "$here/everything.known" "$url" ${options[@]+"${options[@]}"} || status=$?
exit "$status"
