#!/usr/bin/env bash
# The official reference servers behind Longshore, driven by the official TypeScript clients in both lifecycles, and compared
# with the same calls made directly.
#
#   interop/upstreams.sh [--server PATH] [SERVER...]
#
#   --server PATH   the longshore to start (default: target/release/longshore, which is built if it is missing)
#   SERVER          only these of: filesystem memory everything fetch git time
#
# Prints a line for each server and lifecycle, and last "N passed, N failed, N skipped"; the exit status is 0 when nothing
# failed. Needs Node 20.11 and Python 3.11 with venv; what is missing is skipped, and said. Everything is installed once, at
# pinned versions, below $LONGSHORE_INTEROP_CACHE (default: longshore-interop in the user's cache folder).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
cache=${LONGSHORE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore-interop}
python=${PYTHON:-python3}
server=${CARGO_TARGET_DIR:-$root/target}/release/longshore
while read -r name; do unset "$name"; done < <(compgen -e LONGSHORE_ || :; echo PORT)

chosen=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --server) [ $# -ge 2 ] || { echo "upstreams.sh: --server needs a value" >&2; exit 2; }; server=$2; shift ;;
    filesystem | memory | everything | fetch | git | time) chosen+=("$1") ;;
    *) echo "upstreams.sh: unknown option or server $1" >&2; exit 2 ;;
  esac
  shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=(filesystem memory everything fetch git time)
if [ ! -e "$server" ]; then
  echo "upstreams.sh: building the server" >&2
  (cd "$root" && cargo build --locked --quiet --release --bin longshore) >&2
fi
[ -x "$server" ] || { echo "upstreams.sh: cannot run $server; build it, or name another with --server" >&2; exit 2; }

scratch=$(mktemp -d "${TMPDIR:-/tmp}/longshore-upstreams.XXXXXX")
longshore='' pages=''
cleanup() {
  for pid in $longshore $pages; do
    kill "$pid" 2>/dev/null || :
    for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" 2>/dev/null || break; sleep 0.2; done
    kill -KILL "$pid" 2>/dev/null || :
  done
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# install FOLDER COMMAND...: COMMAND gets a new folder, which is then moved into its place.
install() {
  local folder=$cache/$1 new
  shift
  if [ ! -e "$folder/.complete" ]; then
    echo "upstreams.sh: installing $(basename "$folder") (once)" >&2
    mkdir -p "$cache"
    new=$(mktemp -d "$cache/.new.XXXXXX")
    if ! "$@" "$new" >"$new.log" 2>&1; then tail -n 20 "$new.log" >&2; rm -rf "$new" "$new.log"; return 1; fi
    : >"$new/.complete"
    mv -T "$new" "$folder" 2>/dev/null || [ -e "$folder/.complete" ] || return 1
    rm -rf "$new" "$new.log"
  fi
  echo "$folder"
}
clients_install() {
  cp "$here/npm/package.json" "$here/npm/package-lock.json" "$1/"
  (cd "$1" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
}
node_servers_install() {
  (cd "$1" && echo '{"private": true}' >package.json && npm install --ignore-scripts --no-audit --no-fund --loglevel=error \
    @modelcontextprotocol/server-filesystem@2026.8.31 @modelcontextprotocol/server-memory@2026.8.31 \
    @modelcontextprotocol/server-everything@2026.8.31)
}
python_servers_install() {
  "$python" -m venv "$1/venv" && "$1/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    mcp-server-fetch==2026.10.24 mcp-server-git==2026.10.19 mcp-server-time==2026.10.19
}
key() { cat "$@" | cksum | cut -d ' ' -f 1; }

command -v node >/dev/null && command -v npm >/dev/null || { echo "upstreams.sh: Node and npm are not installed" >&2; exit 2; }
clients=$(install "npm-$(key "$here/npm/package-lock.json")" clients_install)
cp "$here"/npm/*.mjs "$clients/"

passed=0 failed=0 skipped=0
report() {
  printf '%s %s (%s)\n' "$1" "$2" "$3"
  case $1 in PASS) passed=$((passed + 1)) ;; FAIL) failed=$((failed + 1)) ;; SKIP) skipped=$((skipped + 1)) ;; esac
}

# What each server has to work on, the same for a direct and for a relayed call.
mkdir -p "$scratch/files" "$scratch/repository" "$scratch/pages"
echo 'hello' >"$scratch/files/one.txt"
echo '<html><head><title>T</title></head><body><h1>Title</h1><p>Some text.</p></body></html>' >"$scratch/pages/page.html"
printf 'User-agent: *\nAllow: /\n' >"$scratch/pages/robots.txt"
git -C "$scratch/repository" init -q -b main
echo 'first' >"$scratch/repository/file"
git -C "$scratch/repository" add file
GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z' git -C "$scratch/repository" \
  -c user.name=Test -c user.email=test@example.com commit -qm 'The first one.'
listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
free_port() {
  local port
  for _ in {1..50}; do port=$((20000 + RANDOM % 12000)); listens "$port" || { echo "$port"; return; }; done
}
pages_port=$(free_port)
(cd "$scratch/pages" && exec "$python" -m http.server --bind 127.0.0.1 "$pages_port") >/dev/null 2>&1 </dev/null &
pages=$!

# command_of SERVER: sets `command`, or returns 1.
command_of() {
  local folder
  case $1 in
    filesystem | memory | everything) folder=$(install node-servers-2026.8.31 node_servers_install) || return 1 ;;
    *) folder=$(install python-servers-2026.10 python_servers_install) || return 1 ;;
  esac
  local script=$folder/node_modules/@modelcontextprotocol/server-$1/dist/index.js
  case $1 in
    filesystem) command=(node "$script" "$scratch/files") ;;
    memory) command=(env "MEMORY_FILE_PATH=$scratch/memory.jsonl" node "$script") ;;
    everything) command=(node "$script") ;;
    fetch) command=("$folder/venv/bin/python" -m mcp_server_fetch) ;;
    git) command=("$folder/venv/bin/python" -m mcp_server_git --repository "$scratch/repository") ;;
    time) command=("$folder/venv/bin/python" -m mcp_server_time --local-timezone UTC) ;;
  esac
}

for name in "${chosen[@]}"; do
  command=()
  if ! command_of "$name"; then report SKIP "$name" "it could not be installed"; continue; fi
  port=$(free_port)
  CONFIG=$scratch/$name.json NAME=$name node -e '
    const [command, ...args] = process.argv.slice(1);
    require("fs").writeFileSync(process.env.CONFIG, JSON.stringify({ toolsets: [], mcpServers: { [process.env.NAME]: { command, args } } }));
  ' -- "${command[@]}"
  "$server" run --host 127.0.0.1 --port "$port" --config "$scratch/$name.json" >"$scratch/$name.log" 2>&1 </dev/null &
  longshore=$!
  for _ in {1..300}; do listens "$port" && break; kill -0 "$longshore" 2>/dev/null || break; sleep 0.1; done
  for revision in 2025-11-25 2026-07-28; do
    status=0
    rm -f "$scratch/memory.jsonl"
    timeout 120 node "$clients/upstreams.mjs" "$revision" "$name" "http://127.0.0.1:$port/mcp" "$scratch" "$pages_port" \
      "${command[@]}" >"$scratch/out" 2>"$scratch/err" </dev/null || status=$?
    if [ "$status" = 0 ]; then
      report PASS "$name $revision" "$(tail -n 1 "$scratch/out")"
    else
      report FAIL "$name $revision" "exit status $status"
      tail -n 30 "$scratch/err" | sed 's/^/      | /'
    fi
  done
  kill "$longshore" 2>/dev/null || :
  wait "$longshore" 2>/dev/null || :
  longshore=''
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
