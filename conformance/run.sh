#!/usr/bin/env bash
# Runs the official MCP conformance suite against a running server.
#
#   conformance/run.sh [options] URL [SCENARIO...]
#
#   URL                 endpoint of the server, e.g. http://127.0.0.1:3000/mcp
#   SCENARIO            only these scenarios (default: all)
#   --no-extensions     leave out the scenarios of optional extensions
#   --runs LIST         only these runs, comma separated (see --list-runs)
#   --known FILE        known failures, one "RUN SCENARIO" or "RUN SCENARIO CHECK"
#                       a line, # comments; such a scenario is reported as KNOWN
#                       and counted as skipped, such a check is marked with = and
#                       the rest of its scenario counts; what is listed and passes
#                       counts as failed
#   --json FILE         also write the results as JSON
#   --list-runs         print the runs and exit
#
# The suite is installed on first use into $MCP_CONFORMANCE_CACHE (default:
# mcp-conformance below the user's cache directory), one folder for each
# content of package.json. Needs Node 20 or later and npm.
# The last line is "N passed, N failed, N skipped"; the exit status is 0 when
# nothing failed, 1 when something did, 2 when nothing could be run.
set -euo pipefail

case ${1:---help} in -h | --help)
  sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"
  exit 2 ;;
esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for tool in node npm; do
  command -v "$tool" >/dev/null || { echo "run.sh: $tool is not installed" >&2; exit 2; }
done

base=${MCP_CONFORMANCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mcp-conformance}
key=$(cat "$here/package.json" "$here/package-lock.json" 2>/dev/null | cksum | tr ' ' '-')
dir=$base/$key
if [ ! -e "$dir/.complete" ]; then
  echo "run.sh: installing the conformance suite (once)" >&2
  mkdir -p "$base"
  # Install beside the final place and move it there: an interrupted or a
  # concurrent first run never leaves a half-installed folder behind.
  tmp=$(mktemp -d "$base/.new.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  cp "$here/package.json" "$tmp/"
  verb=install
  if [ -e "$here/package-lock.json" ]; then cp "$here/package-lock.json" "$tmp/"; verb=ci; fi
  if ! (cd "$tmp" && npm "$verb" --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1); then
    cat "$tmp/npm.log" >&2
    echo "run.sh: npm could not install the conformance suite" >&2
    exit 2
  fi
  : >"$tmp/.complete"
  mv -T "$tmp" "$dir" 2>/dev/null || [ -e "$dir/.complete" ] || { echo "run.sh: cannot write $dir" >&2; exit 2; }
  rm -rf "$tmp"
  trap - EXIT
fi

exec node "$here/run.mjs" --install "$dir" "$@"
