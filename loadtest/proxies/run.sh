#!/usr/bin/env bash
# What a hop through Longshore costs, beside calling the same server directly, and beside other proxies.
#
#   loadtest/proxies/run.sh [--server PATH] [--seconds N] [--rounds N] [--connections N]
#
#   --server PATH     the longshore to measure (default: target/dist/longshore)
#   --seconds N       how long each measurement takes (default: 5)
#   --rounds N        number of rounds, of which the median is printed (default: 5)
#   --connections N   concurrent connections, in the second table (default: 16; the first has one)
#
# Measured are calls of `echo` of one server that is reached over HTTP and of one over stdio, both of them a Longshore with its
# demo toolset, so that the server itself costs as little as can be:
#
#   direct            the HTTP server itself
#   longshore http    the HTTP server behind Longshore
#   longshore stdio   the program behind Longshore
#   mcp-proxy stdio   the program behind mcp-proxy 0.13.0
#   fastmcp http      the HTTP server behind a FastMCP proxy
#   fastmcp stdio     the program behind a FastMCP proxy
#
# Prints calls a second, p50 and p99 in milliseconds, medians over the rounds, which take turns, as Markdown. Peers that cannot be
# installed are left out, and said. Needs Node 20.11; run it on a machine that does nothing else.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
cache=${LONGSHORE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore-interop}
python=${PYTHON:-python3}
server=${CARGO_TARGET_DIR:-$root/target}/dist/longshore
seconds=5 rounds=5 connections=16
while read -r name; do unset "$name"; done < <(compgen -e LONGSHORE_ || :; echo PORT)
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --server | --seconds | --rounds | --connections)
      [ $# -ge 2 ] || { echo "run.sh: $1 needs a value" >&2; exit 2; }
      declare "${1#--}=$2"; shift ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
[ -x "$server" ] || { echo "run.sh: cannot run $server; build it, or name another with --server" >&2; exit 2; }
command -v node >/dev/null || { echo "run.sh: Node is not installed" >&2; exit 2; }

scratch=$(mktemp -d "${TMPDIR:-/tmp}/longshore-proxies.XXXXXX")
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || :; done
  sleep 1
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || :; done
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

peers_install() {
  "$python" -m venv "$1/venv" && "$1/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    mcp-proxy==0.13.0 && "$python" -m venv "$1/fastmcp" && "$1/fastmcp/bin/python" -m pip install --quiet \
    --disable-pip-version-check --requirement "$root/interop/python/python-fastmcp.txt"
}
peers=$cache/proxy-peers-2
if [ ! -e "$peers/.complete" ]; then
  echo "run.sh: installing the peers (once)" >&2
  rm -rf "$peers"
  mkdir -p "$peers"
  if peers_install "$peers" >"$scratch/peers.log" 2>&1; then : >"$peers/.complete"; else
    tail -n 5 "$scratch/peers.log" >&2
    echo "run.sh: the peers could not be installed; they are left out" >&2
    peers=''
  fi
fi

listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
free_port() {
  local port
  for _ in {1..50}; do port=$((20000 + RANDOM % 12000)); listens "$port" || { echo "$port"; return; }; done
}

names=() urls=()
# serve NAME PORT COMMAND...: starts a server, and waits until it listens.
serve() {
  local name=$1 port=$2
  shift 2
  "$@" >"$scratch/$port.log" 2>&1 </dev/null &
  pids+=($!)
  for _ in {1..300}; do
    if listens "$port"; then
      # One call, so that an error is reported here.
      if node "$here/drive.mjs" "http://127.0.0.1:$port/mcp" 1 0.2 >/dev/null 2>"$scratch/$port.err"; then
        names+=("$name") urls+=("http://127.0.0.1:$port/mcp")
      else
        echo "run.sh: $name does not answer, and is left out:" >&2
        tail -n 5 "$scratch/$port.err" "$scratch/$port.log" >&2
      fi
      return
    fi
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  echo "run.sh: $name does not start, and is left out:" >&2
  tail -n 5 "$scratch/$port.log" >&2
}

demo=("$server" run --transport stdio --toolset demo)
direct=$(free_port)
serve direct "$direct" "$server" run --host 127.0.0.1 --port "$direct" --toolset demo
behind() {
  node -e 'console.log(JSON.stringify({ toolsets: [], upstreams: { up: { prefix: "", ...JSON.parse(process.argv[1]) } } }))' "$1"
}
behind "{\"url\": \"http://127.0.0.1:$direct/mcp\"}" >"$scratch/http.json"
behind "{\"command\": \"$server\", \"args\": [\"run\", \"--transport\", \"stdio\", \"--toolset\", \"demo\"]}" >"$scratch/stdio.json"
for kind in http stdio; do
  port=$(free_port)
  serve "longshore $kind" "$port" "$server" run --host 127.0.0.1 --port "$port" --config "$scratch/$kind.json"
done
if [ -n "$peers" ]; then
  port=$(free_port)
  serve "mcp-proxy stdio" "$port" "$peers/venv/bin/python" -m mcp_proxy --host 127.0.0.1 --port "$port" -- "${demo[@]}"
  port=$(free_port)
  serve "fastmcp http" "$port" "$peers/fastmcp/bin/python" "$here/fastmcp_proxy.py" "$port" http "http://127.0.0.1:$direct/mcp"
  port=$(free_port)
  serve "fastmcp stdio" "$port" "$peers/fastmcp/bin/python" "$here/fastmcp_proxy.py" "$port" stdio "${demo[@]}"
fi

for at_once in 1 "$connections"; do
  for ((round = 0; round < rounds; round++)); do
    for i in "${!names[@]}"; do
      node "$here/drive.mjs" "${urls[$i]}" "$at_once" "$seconds" >>"$scratch/$at_once.$i" || echo "run.sh: ${names[$i]} failed" >&2
    done
  done
  echo
  echo "| $at_once at once | calls/s | p50 ms | p99 ms |"
  echo "|---|---|---|---|"
  for i in "${!names[@]}"; do
    node -e '
      const rounds = require("fs").readFileSync(process.argv[1], "utf8").trim().split("\n").map((line) => JSON.parse(line));
      const middle = (of) => rounds.map((round) => round[of]).sort((a, b) => a - b)[(rounds.length - 1) >> 1];
      console.log(`| ${process.argv[2]} | ${middle("rate").toFixed(0)} | ${middle("p50").toFixed(3)} | ${middle("p99").toFixed(3)} |`);
    ' "$scratch/$at_once.$i" "${names[$i]}"
  done
done
