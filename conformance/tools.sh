#!/usr/bin/env bash
# Runs the scenarios of the conformance suite that need none of its own fixture, against
# a running server that has the demo toolset and nothing else:
#
#   conformance/tools.sh http://127.0.0.1:3000/mcp
#
# Options and output are those of run.sh. The scenarios left out call tools,
# resources or prompts of the suite's own fixture; the checks left out of a scenario
# stand in tools.known.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1:---help} in -h | --help)
  sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"
  exit 2 ;;
esac

# A scenario runs at every revision that has it.
exec "$here/run.sh" --no-extensions --known "$here/tools.known" "$@" \
  server-initialize \
  server-session-lifecycle \
  ping \
  tools-list \
  resources-list \
  prompts-list \
  sep-2164-resource-not-found \
  server-sse-multiple-streams \
  dns-rebinding-protection \
  server-stateless \
  caching \
  http-header-validation \
  input-required-result-unsupported-methods
