#!/usr/bin/env bash
# Builds the packages of this machine's platform from a program, installs each into a clean folder as a user would, and
# calls a tool with it. The seconds are those from the first command of a user to the result of the tool.
#
#   packaging/test.sh PROGRAM
#
# Needs Python 3.11; npm, dpkg and unzip for what they install, otherwise those steps are skipped and say so.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# = 1 ] && [ -x "$1" ] || { sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
program=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 skipped=0
machine=$(uname -m)
version=$(sed -n '/workspace.package/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml")

result() {
    if [ "$1" = 0 ]; then
        passed=$((passed + 1)) && echo "PASS  $2"
    else
        failed=$((failed + 1)) && echo "FAIL  $2"
    fi
}
skip() { skipped=$((skipped + 1)) && echo "SKIP  $1"; }

# Runs a way to install as a function in a folder of its own, with a home of its own, and checks what it says.
way() {
    local name=$1 began folder=$scratch/way-$2
    mkdir -p "$folder/home" && began=$(date +%s.%N)
    if (cd "$folder" && HOME=$folder/home "$2") >"$folder/log" 2>&1; then
        result 0 "$name ($(awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $began }") s)"
    else
        result 1 "$name" && tail -n 20 "$folder/log"
    fi
}

# Calls a tool of a server that is started by the command, over standard input and output.
answers() {
    printf '%s\n' \
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}' \
        '{"jsonrpc":"2.0","method":"notifications/initialized"}' \
        '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"message":"it works"}}}' \
        | timeout 60 "$@" run --transport stdio --toolset demo | grep -q '"id":2,.*it works'
}

python3 "$here/build.py" --out "$scratch/out" "$machine-linux=$program" >"$scratch/build.log" 2>&1
result $? "build.py makes every package" || cat "$scratch/build.log"
out=$scratch/out
python3 "$here/build.py" --out "$scratch/again" "$machine-linux=$program" >/dev/null 2>&1
diff -r "$out" "$scratch/again" >/dev/null
result $? "the same program gives the same bytes"
! grep -q OWNER "$here/owner.json" || ! python3 "$here/build.py" --release --out "$scratch/release" "$machine-linux=$program" 2>/dev/null
result $? "--release refuses placeholders"
(cd "$out" && find . -type f \( -name '*.tgz' -o -name '*.whl' -o -name '*.gz' -o -name '*.deb' -o -name '*.mcpb' \) -exec cp -t "$scratch/" {} + \
    && cd "$scratch" && sha256sum --check --quiet "$out/SHA256SUMS")
result $? "SHA256SUMS holds"

install_script() {
    LONGSHORE_INSTALL_DIR=$PWD/bin sh "$out/install.sh" --from "$out" && answers "$PWD/bin/longshore"
}
changed_archive() {
    mkdir there && cp "$out"/*.tar.gz "$out/SHA256SUMS" there/ && printf x >>there/*.tar.gz
    ! LONGSHORE_INSTALL_DIR=$PWD/bin sh "$out/install.sh" --from "$PWD/there" && [ ! -e bin/longshore ]
}
npx_longshore() {
    # The platform's package is known to npm by its name only once it is published; so it is installed beside the main one.
    npm install --silent --no-audit --no-fund "$out"/npm/example-owner-*.tgz "$out/npm/longshore-$version.tgz" \
        && answers npx --no-install longshore
}
npx_without_platform() {
    npm install --silent --no-audit --no-fund --omit=optional "$out/npm/longshore-$version.tgz" || return 1
    npx --no-install longshore --version 2>said && return 1
    grep -q 'is not installed' said
}
npx_is_stopped() {
    npm install --silent --no-audit --no-fund "$out"/npm/example-owner-*.tgz "$out/npm/longshore-$version.tgz" || return 1
    node node_modules/longshore/bin/longshore.js run --host 127.0.0.1 --port 0 2>log &
    local pid=$!
    for _ in $(seq 100); do grep -q serving log && break; sleep 0.1; done
    kill -TERM $pid && wait $pid
}
wheel() {
    python3 -m venv venv && venv/bin/pip install --quiet --no-index --no-deps "$out"/pypi/*.whl && answers venv/bin/longshore
}
uvx_longshore() { uvx --offline --from "$out"/pypi/*.whl longshore --version && answers uvx --offline --from "$out"/pypi/*.whl longshore; }
debian() {
    dpkg-deb --control "$out"/*.deb control || return 1
    for script in postinst prerm postrm; do sh -n "control/$script" || return 1; done
    grep -q 'rm -f /etc/longshore/seal.key' control/postrm || return 1
    dpkg-deb --info "$out"/*.deb && dpkg-deb --extract "$out"/*.deb root && answers "$PWD/root/usr/bin/longshore" \
        && "$PWD/root/usr/bin/longshore" config check --config root/etc/longshore/longshore.yaml \
        && grep -q 'ExecStart=/usr/bin/longshore' root/usr/lib/systemd/system/longshore.service \
        && grep -q longshore root/usr/share/bash-completion/completions/longshore
}
bundle() {
    unzip -q "$out"/*.mcpb && python3 - <<'PYTHON' && answers "$PWD/server/longshore"
import json
manifest = json.load(open("manifest.json"))
command = manifest["server"]["mcp_config"]["command"]
assert command == "${__dirname}/" + manifest["server"]["entry_point"], command
PYTHON
}
bundle_is_valid() { unzip -q -o "$out"/*.mcpb && npx --yes @anthropic-ai/mcpb@2.1.2 validate manifest.json; }
registry_entry() {
    python3 - "$out" <<'PYTHON'
import hashlib, json, pathlib, re, sys
out = pathlib.Path(sys.argv[1])
entry = json.loads((out / "server.json").read_text())
# The limits of the registry's schema of 2025-12-11.
assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"]), entry["name"]
assert 1 <= len(entry["description"]) <= 100, entry["description"]
for package in entry["packages"]:
    assert {"registryType", "identifier", "transport"} <= package.keys(), package
    for argument in package.get("packageArguments", []):
        assert argument["type"] == "named" or "value" in argument or "valueHint" in argument, argument
    if package["registryType"] == "mcpb":
        bundle = out / package["identifier"].rsplit("/", 1)[1]
        assert package["fileSha256"] == hashlib.sha256(bundle.read_bytes()).hexdigest(), bundle
PYTHON
    tar -xzOf "$out/npm/longshore-$version.tgz" package/package.json | grep -q "\"mcpName\": $(python3 -c "import json; print(json.dumps(json.load(open('$out/server.json'))['name']))")"
}
formula() { ruby -c "$out/longshore.rb"; }

way "server.json is one that the MCP registry takes" registry_entry
way "install.sh" install_script
way "install.sh refuses an archive that was changed" changed_archive
if command -v npm >/dev/null; then
    way "npx longshore" npx_longshore
    way "npx longshore says what is missing without the platform's package" npx_without_platform
    way "npx longshore hands on SIGTERM, and waits for the server to end" npx_is_stopped
    way "the bundle's manifest is valid for @anthropic-ai/mcpb" bundle_is_valid
else
    skip "npx longshore: npm is not installed"
fi
way "pip install longshore" wheel
if command -v uvx >/dev/null; then way "uvx longshore" uvx_longshore; else skip "uvx longshore: uv is not installed"; fi
if command -v dpkg-deb >/dev/null; then way "Debian package" debian; else skip "Debian package: dpkg is not installed"; fi
if command -v unzip >/dev/null; then way "MCP bundle" bundle; else skip "MCP bundle: unzip is not installed"; fi
if command -v ruby >/dev/null; then way "Homebrew formula parses" formula; else skip "Homebrew formula: ruby is not installed"; fi

echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
