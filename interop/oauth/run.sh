#!/usr/bin/env bash
# Drives the official TypeScript client, FastMCP's on the official Python SDK, mcp-remote and Inspector through everything that OAuth demands, with an identity
# provider from npm: with tokens of the provider, with tokens of the server in front of it (auth.oauth.facade), and with tokens that are
# bound to a key (DPoP), by openid-client.
#
#   interop/oauth/run.sh [--server PATH]
#
#   --server PATH    the server to start (default: target/release/longshore)
#
# Takes about three minutes. The exit status is 0 if every step went as it should. Both packages are installed on first
# use, at pinned versions, below $LONGSHORE_INTEROP_CACHE (default: longshore-interop in the user's cache folder). Needs
# Node 20.11.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LONGSHORE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore-interop}/oauth
server=$(dirname "$(dirname "$here")")/target/release/longshore
[ "${1:-}" != --server ] || server=$(realpath "$2")
[ -x "$server" ] || { echo "run.sh: there is no $server; name one with --server" >&2; exit 2; }
# Nothing that is set around here is to change the server that is tested.
while read -r name; do unset "$name"; done < <(compgen -e LONGSHORE_ || :; echo PORT)

mkdir -p "$cache"
cp --preserve=timestamps --update "$here"/package.json "$here"/package-lock.json "$here"/*.mjs "$cache"
[ "$cache/node_modules/.package-lock.json" -nt "$cache/package-lock.json" ] || (cd "$cache" && npm ci --silent --no-audit --no-fund)

if [ ! -x "$cache/venv/bin/python" ]; then
  { python3 -m venv "$cache/venv" && "$cache/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$here/fastmcp.txt"; } ||
    { rm -rf "$cache/venv"; echo '!! SKIPPED: the Python client needs Python 3.11 with venv, and a registry' >&2; }
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/longshore-oauth.XXXXXX")
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || :; wait; rm -rf "$scratch"' EXIT

free_port() { node -e 's = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })'; }
issuer_port=$(free_port)
server_port=$(free_port)
seconds=5

url="http://127.0.0.1:$server_port"
provider="http://127.0.0.1:$issuer_port"

# run MODE ISSUER PROVIDER_ARGUMENTS: the whole drive with the settings of $scratch/longshore.yaml.
run() {
  local mode=$1 issuer=$2 own=()
  shift 2
  node "$cache/provider.mjs" "$issuer_port" "$seconds" "$@" >"$scratch/provider.log" 2>&1 &
  own+=($!)
  "$server" run --config "$scratch/longshore.yaml" >"$scratch/server.log" 2>&1 &
  own+=($!)
  pids+=("${own[@]}")
  for _ in $(seq 100); do
    curl --silent --fail "$url/readyz" >/dev/null && curl --silent "$provider" >/dev/null && break
    sleep 0.2
  done
  if [ "$mode" != dpop ] && ! timeout 120 node "$cache/drive.mjs" "$url/mcp" "$issuer" "$seconds"; then
    cat "$scratch/provider.log" "$scratch/server.log" >&2
    exit 1
  fi
  if [ "$mode" = facade ] && [ -x "$cache/venv/bin/python" ]; then
    echo "FastMCP's client, on the official Python SDK:"
    timeout 120 "$cache/venv/bin/python" -W ignore "$here/drive.py" "$url/mcp" || { cat "$scratch/server.log" >&2; exit 1; }
  fi
  if [ "$mode" = facade ]; then
    echo "mcp-remote, with which clients of stdio reach remote servers:"
    timeout 90 node "$cache/remote.mjs" "$url/mcp" || { cat "$scratch/server.log" >&2; exit 1; }
    echo "Inspector's command line:"
    timeout 90 node "$cache/inspector.mjs" "$url/mcp" || { cat "$scratch/server.log" >&2; exit 1; }
  fi
  if [ "$mode" = dpop ]; then
    timeout 60 node "$cache/dpop.mjs" "$url/mcp" || { cat "$scratch/server.log" >&2; exit 1; }
  fi
  kill "${own[@]}" && wait "${own[@]}" 2>/dev/null || :
}

settings() {
  cat >"$scratch/longshore.yaml" <<YAML
toolsets: [demo]
http: { host: 127.0.0.1, port: $server_port, public_url: "$url" }
auth:
  oauth: $1
policy:
  rules:
    - { effect: allow }
    - { effect: allow, tools: [calculate], requires: [math] }
YAML
}

settings "{ issuer: \"$provider\", scopes: [mcp], leeway_seconds: 0 }"
echo "== the provider issues the tokens"
run direct "$provider"

settings "{ scopes: [mcp], leeway_seconds: 0, facade: { provider: \"$provider\", client_id: longshore, client_secret: only for this run, scopes: [math], access_seconds: 60 } }"
seconds=60
echo "== the server issues the tokens, in front of a provider where clients cannot register"
run facade "$url" "$url/oauth/callback"

settings "{ scopes: [mcp], leeway_seconds: 0, dpop: { required: true, nonces: true }, facade: { provider: \"$provider\", client_id: longshore, client_secret: only for this run, access_seconds: 60 } }"
echo "== the server issues tokens that are bound to a key (DPoP), with nonces"
run dpop "$url" "$url/oauth/callback"

# Three replicas, each request to another one, while they are killed in turn: at most the login whose code was being redeemed is lost,
# and with a shared state nothing counts twice.
# A release build is too fast for fewer: no replica would be killed in between.
case $server in */debug/*) logins=1000 ;; *) logins=10000 ;; esac
echo "== $logins logins at three replicas"
timeout 300 node "$cache/replicas.mjs" "$server" "$logins"
redis=$(command -v redis-server || command -v valkey-server || :)
if [ -n "$redis" ]; then
  redis_port=$(free_port)
  "$redis" --port "$redis_port" --save "" --appendonly no >"$scratch/redis.log" 2>&1 &
  pids+=($!)
  timeout 300 node "$cache/replicas.mjs" "$server" "$logins" "redis://127.0.0.1:$redis_port"
else
  echo "!! SKIPPED: with a shared state, that needs redis-server" >&2
fi
