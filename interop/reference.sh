#!/usr/bin/env bash
# The built-in toolsets beside the official reference servers: the same calls, and what both say of them.
#
#   interop/reference.sh [CARGO OPTION...]
#
# Installs the filesystem, memory, fetch, git and time servers (once, at pinned versions, below $LONGSHORE_INTEROP_CACHE; default:
# longshore-interop in the user's cache folder), and runs the tests that compare. Needs Node 20.11, Python 3.11 with venv,
# Git and cargo. The exit status is that of the tests.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
cache=${LONGSHORE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore-interop}
python=${PYTHON:-python3}
case ${1:-} in -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac

node_servers_install() {
  (cd "$1" && echo '{"private": true}' >package.json && npm install --ignore-scripts --no-audit --no-fund --loglevel=error \
    @modelcontextprotocol/server-filesystem@2026.8.31 @modelcontextprotocol/server-memory@2026.8.31 \
    @modelcontextprotocol/server-everything@2026.8.31)
}
python_servers_install() {
  "$python" -m venv "$1/venv" && "$1/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    mcp-server-fetch==2026.10.24 mcp-server-git==2026.10.19 mcp-server-time==2026.10.19
}
# The folders are those of upstreams.sh.
for name in node-servers-2026.8.31:node_servers_install python-servers-2026.10:python_servers_install; do
  folder=$cache/${name%%:*}
  [ ! -e "$folder/.complete" ] || continue
  echo "reference.sh: installing ${name%%:*} (once)" >&2
  rm -rf "$folder"
  mkdir -p "$folder"
  "${name##*:}" "$folder"
  : >"$folder/.complete"
done
node=$cache/node-servers-2026.8.31/node_modules/@modelcontextprotocol
venv=$cache/python-servers-2026.10/venv/bin
# By module: the scripts of an environment name the folder that it was made in, which is not where it is now.
programs=$(mktemp -d "${TMPDIR:-/tmp}/longshore-reference.XXXXXX")
trap 'rm -rf "$programs"' EXIT
for name in fetch git time; do
  printf '#!/bin/sh\nexec %q -m mcp_server_%s "$@"\n' "$venv/python" "$name" >"$programs/$name"
  chmod +x "$programs/$name"
done
cd "$root"
LONGSHORE_REFERENCE_FILESYSTEM=$node/server-filesystem/dist/index.js \
  LONGSHORE_REFERENCE_MEMORY=$node/server-memory/dist/index.js \
  LONGSHORE_REFERENCE_FETCH=$programs/fetch \
  LONGSHORE_REFERENCE_GIT=$programs/git \
  LONGSHORE_REFERENCE_TIME=$programs/time \
  cargo test --features git,sql "$@" --test it -- reference_server
