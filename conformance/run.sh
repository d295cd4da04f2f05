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
# shellcheck source=conformance/install.sh
. "$here/install.sh"

exec node "$here/run.mjs" --install "$dir" "$@"
