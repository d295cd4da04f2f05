#!/usr/bin/env bash
# Has MCP clients log in, call, refresh and be stepped up, with an identity provider from npm: with tokens of the provider, with tokens of
# the server in front of providers of several shapes (auth.oauth.facade), and with tokens that are bound to a key (DPoP), by
# openid-client. Then many logins at three replicas that are killed in turn.
#
#   interop/oauth/run.sh [--server PATH] [--write]
#
#   --server PATH    the server to start (default: target/release/longshore, which is built if it is missing)
#   --write          put the table of clients, providers and lifecycles into interop/README.md
#
# Takes about eight minutes. The exit status is 0 if every step went as it should. All packages are installed on first
# use, at pinned versions, below $LONGSHORE_INTEROP_CACHE (default: longshore-interop in the user's cache folder). Needs
# Node 20.11.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${LONGSHORE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore-interop}/oauth
root=$(dirname "$(dirname "$here")")
server=${CARGO_TARGET_DIR:-$root/target}/release/longshore
write=()
while [ $# -gt 0 ]; do
  case $1 in
    --server) server=$(realpath "$2"); shift 2 ;;
    --write) write=(--write "$(dirname "$here")/README.md"); shift ;;
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "run.sh: unknown option $1; the options are --server PATH and --write" >&2; exit 2 ;;
  esac
done
if [ ! -e "$server" ]; then
  echo "run.sh: building the server" >&2
  (cd "$root" && cargo build --locked --quiet --release --bin longshore) >&2
fi
[ -x "$server" ] || { echo "run.sh: there is no $server; name one with --server" >&2; exit 2; }
# Nothing that is set around here is to change the server that is tested.
while read -r name; do unset "$name"; done < <(compgen -e LONGSHORE_ || :; echo PORT)

mkdir -p "$cache"
cp --preserve=timestamps --update "$here"/package.json "$here"/package-lock.json "$here"/*.mjs "$here"/drive.py "$cache"
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

url="http://127.0.0.1:$server_port"
provider="http://127.0.0.1:$issuer_port"

echo "== clients, providers and lifecycles"
python=()
[ ! -x "$cache/venv/bin/python" ] || python=(--python "$cache/venv/bin/python")
node "$cache/matrix.mjs" "$server" "${python[@]}" "${write[@]}"

cat >"$scratch/longshore.yaml" <<YAML
toolsets: [demo]
http: { host: 127.0.0.1, port: $server_port, public_url: "$url" }
auth:
  oauth:
    scopes: [mcp]
    leeway_seconds: 0
    dpop: { required: true, nonces: true }
    facade: { provider: "$provider", client_id: longshore, client_secret: only for this run, access_seconds: 60 }
YAML
echo "== the server issues tokens that are bound to a key (DPoP), with nonces"
node "$cache/provider.mjs" "$issuer_port" 60 "$url/oauth/callback" >"$scratch/provider.log" 2>&1 &
pids+=($!)
"$server" run --config "$scratch/longshore.yaml" >"$scratch/server.log" 2>&1 &
pids+=($!)
for _ in $(seq 100); do
  curl --silent --fail "$url/readyz" >/dev/null && curl --silent "$provider" >/dev/null && break
  sleep 0.2
done
timeout 60 node "$cache/dpop.mjs" "$url/mcp" || { cat "$scratch/server.log" >&2; exit 1; }

echo "== the official conformance suite's scenarios for authorization servers"
suite=$(here=$root/conformance; . "$here/install.sh" >&2; echo "$dir")
timeout 120 node "$cache/authorization.mjs" "$server" "$suite" "$root/conformance/node20.mjs"

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
