#!/usr/bin/env bash
# WebAssembly components: the lints and tests of what is behind the feature `wasm`, and the component of examples/component, made of
# JavaScript, served and called.
#
#   interop/wasm.sh [--example-only]
#
# Installs componentize-js (once, at a pinned version, below $LONGSHORE_INTEROP_CACHE; default: longshore-interop in the user's
# cache folder). Needs Node 20.11 and cargo. The feature has a compiler among its dependencies: the first run takes minutes. Prints a
# line for each check; the exit status is 0 when all hold.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
cache=${LONGSHORE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore-interop}
case ${1:-} in -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
while read -r name; do unset "$name"; done < <(compgen -e LONGSHORE_ || :; echo PORT)

cd "$root"
if [ "${1:-}" != --example-only ]; then
  cargo clippy --locked --all-targets --features wasm -- -D warnings
  cargo test --locked -p longshore-sources --features wasm wasm::
  cargo test --locked --features wasm --test it -- components:: reload:: sources:: docs::
fi
cargo build --locked --features wasm --bin longshore
target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
longshore=$target/debug/longshore

tools=$cache/componentize-js-0.23.0
if [ ! -e "$tools/.complete" ]; then
  echo "wasm.sh: installing componentize-js (once)" >&2
  rm -rf "$tools"
  mkdir -p "$tools"
  cp examples/component/package.json "$tools"
  (cd "$tools" && npm install --no-audit --no-fund --loglevel=error)
  : >"$tools/.complete"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/longshore-wasm.XXXXXX")
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || :
  rm -rf "$work"
}
trap cleanup EXIT
cp -r examples/component/. "$work"
ln -s "$tools/node_modules" "$work/node_modules"
(cd "$work" && node build.mjs)
cd "$work"

failed=0
check() { # NAME EXPECTED ACTUAL
  if [ "$2" = "$3" ]; then echo "PASS $1"; else echo "FAIL $1: expected $2, got $3"; failed=1; fi
}
"$longshore" config check --config longshore.yaml
port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')
"$longshore" run --config longshore.yaml --host 127.0.0.1 --port "$port" 2>log &
server=$!
for _ in $(seq 600); do
  ! grep -q "127.0.0.1:$port" log || break
  kill -0 "$server" 2>/dev/null || { cat log >&2; exit 1; }
  sleep 0.2
done
call() { "$longshore" call "http://127.0.0.1:$port/mcp" "$@" --json 2>/dev/null || :; }
text() { node -e 'const r = JSON.parse(require("fs").readFileSync(0)); console.log(r.content[0].text, r.isError ?? false)'; }
structured() { node -e 'console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0)).structuredContent))'; }
check "a record" '{"characters":11,"words":3,"lines":2}' "$(call text__count '{"text": "one two\nthr"}' | structured)"
check "a result that is good" "ready-steady-go false" "$(call text__slug '{"text": "Ready, steady, go!"}' | text)"
check "an option" "ready false" "$(call text__slug '{"text": "Ready, steady, go!", "longest": 6}' | text)"
check "a result that is bad" "there is no letter or digit in it true" "$(call text__slug '{"text": "?!"}' | text)"
exit "$failed"
