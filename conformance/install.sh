# Installs the conformance suite on first use; for run.sh and client.sh, which source it. Sets
# `dir` to the folder, one for each content of package.json. `here` is this folder.

for tool in node npm; do
  command -v "$tool" >/dev/null || { echo "${0##*/}: $tool is not installed" >&2; exit 2; }
done

base=${MCP_CONFORMANCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mcp-conformance}
key=$(cat "$here/package.json" "$here/package-lock.json" 2>/dev/null | cksum | tr ' ' '-')
dir=$base/$key
if [ ! -e "$dir/.complete" ]; then
  echo "${0##*/}: installing the conformance suite (once)" >&2
  mkdir -p "$base"
  # Install beside the final place and move it there: an interrupted or a
  # concurrent first run never leaves a half-installed folder behind.
  tmp=$(mktemp -d "$base/.new.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  cp "$here/package.json" "$tmp/"
  verb=install
  if [ -e "$here/package-lock.json" ]; then cp "$here/package-lock.json" "$tmp/"; verb=ci; fi
  if ! (cd "$tmp" && npm "$verb" --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1); then
    cat "$tmp/npm.log" >&2
    echo "${0##*/}: npm could not install the conformance suite" >&2
    exit 2
  fi
  : >"$tmp/.complete"
  mv -T "$tmp" "$dir" 2>/dev/null || [ -e "$dir/.complete" ] || { echo "${0##*/}: cannot write $dir" >&2; exit 2; }
  rm -rf "$tmp"
  trap - EXIT
fi
