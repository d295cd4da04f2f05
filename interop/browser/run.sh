#!/usr/bin/env bash
# Tests the playground in a real Chromium: every check on a desktop and at 390 px, where it matters in two revisions of
# the protocol, in light and dark, with axe.
#
#   interop/browser/run.sh [options] [WORD...]
#
#   --server PATH        the program (default: target/debug/longshore, which is built first)
#   --page FILE          serve this file as the page, to try a change without building
#   --quick              two circumstances of each check: desktop, light, the newest revision; and the opposite
#   --screenshots FOLDER write images of what was looked at
#   --accept             replace the images in interop/browser/images, with which what is seen is compared
#   WORD                 only checks whose names contain one of these words
#
# It needs Node 20 and Chromium (Debian: apt-get install chromium; CHROMIUM names another one). What it drives Chromium
# with is installed once, below interop/.cache. It ends with "N passed, N failed, N skipped"; the status is 1 if something
# failed and 2 if nothing could be run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${LONGSHORE_INTEROP_CACHE:-$root/interop/.cache}
while read -r name; do unset "$name"; done < <(compgen -e LONGSHORE_ || :; echo PORT)

die() {
  echo "run.sh: $*" >&2
  exit 2
}

server='' options=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --server | --page | --screenshots)
      [ $# -ge 2 ] || die "$1 needs a value"
      if [ "$1" = --server ]; then server=$2; else options+=("$1" "$(realpath -m "$2")"); fi
      shift ;;
    --quick | --accept) options+=("$1") ;;
    -*) die "unknown option $1" ;;
    *) options+=("$1") ;;
  esac
  shift
done

for tool in node npm; do
  command -v "$tool" >/dev/null || die "SKIPPED: $tool is not installed"
done
chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)}
[ -n "$chromium" ] || die "SKIPPED: Chromium is not installed (apt-get install chromium)"

if [ -z "$server" ]; then
  (cd "$root" && cargo build --locked --quiet --bin longshore) >&2
  server=${CARGO_TARGET_DIR:-$root/target}/debug/longshore
fi
[ -x "$server" ] || die "cannot run $server"

folder=$cache/browser-$(cksum <"$here/package-lock.json" | cut -d ' ' -f 1)
if [ ! -e "$folder/.complete" ]; then
  mkdir -p "$cache"
  new=$(mktemp -d "$cache/.new.XXXXXX")
  cp "$here/package.json" "$here/package-lock.json" "$new/"
  if ! (cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >"$new.log" 2>&1; then
    tail -n 20 "$new.log" >&2
    rm -rf "$new" "$new.log"
    die "SKIPPED: what Chromium is driven with could not be installed"
  fi
  rm -f "$new.log"
  : >"$new/.complete"
  mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new"
fi
# Node looks for packages beside the script that asks for them.
cp "$here"/*.mjs "$folder/"
program=(--server "$(realpath "$server")" --chromium "$chromium" --images "$here/images")
pages=(playground)
# The page of operators is not that of --page.
[[ " ${options[*]-} " == *" --page "* ]] || pages+=(dashboard)
ran=2
for page in "${pages[@]}"; do
  status=0
  node "$folder/$page.mjs" "${program[@]}" ${options[@]+"${options[@]}"} || status=$?
  # One failure counts, and so does one page of which something was run.
  case $status-$ran in
    1-*) ran=1 ;;
    0-2) ran=0 ;;
  esac
done
exit "$ran"
