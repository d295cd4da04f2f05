#!/usr/bin/env bash
# Builds the static image with buildah, without a base image and without a daemon, and checks what is in it: that the
# program is static, who it runs as, how large it is, and that it serves, is probed and stops as root file system.
#
#   deploy/image.sh [PROGRAM]
#
# Without PROGRAM it builds one first, by deploy/program.sh, as the Dockerfile does. Needs buildah, curl, root (or a user
# namespace of its own) and, for the build, what the README and that script name. Ends with `N passed, N failed`.
set -euo pipefail
cd "$(dirname "$0")/.."

# What it may grow to, in MiB, and what it should shrink to.
limit=28 goal=20
name=localhost/longshore:check
target="$(uname -m)-unknown-linux-gnu"
export STORAGE_DRIVER="${STORAGE_DRIVER:-vfs}" BUILDAH_ISOLATION="${BUILDAH_ISOLATION:-chroot}"

program="${1:-}"
sbom=""
if [ -z "$program" ]; then
    tools="$PWD/target/tools"
    for tool in cargo-auditable cargo-cyclonedx; do
        [ -x "$tools/bin/$tool" ] || cargo install --quiet --locked --root "$tools" "$tool"
    done
    # The list of dependencies goes into the program, for scanners, and beside the image.
    program="$(PATH="$tools/bin:$PATH" FEATURES=git,sql deploy/program.sh | tail -n 1)"
    PATH="$tools/bin:$PATH" cargo cyclonedx --format json --target "$target" --features git,sql --override-filename longshore.cdx
    mkdir -p target/sbom
    sbom=target/sbom/longshore.cdx.json
    mv longshore.cdx.json "$sbom"
    find macros loadtest benches -name longshore.cdx.json -delete
fi

deploy/rootfs.sh "$program" target/image
log="$(mktemp)"
buildah bud --quiet --format docker --build-arg FROM=prebuilt --target static --tag "$name" . > "$log" 2>&1 ||
    { cat "$log"; exit 1; }
container="$(buildah from "$name")"
root="$(buildah mount "$container")"
server=""
clean_up() {
    [ -z "$server" ] || kill -KILL "$server" 2> /dev/null || true
    for folder in proc dev; do
        ! mountpoint --quiet "$root/$folder" || umount "$root/$folder"
    done
    buildah rm "$container" > /dev/null
    rm -f "$log"
}
trap clean_up EXIT

passed=0 failed=0
holds() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok     $what"
    else
        failed=$((failed + 1))
        echo "FAILED $what"
    fi
}
config() { buildah inspect --type image --format "{{$1}}" "$name"; }
is() { [ "$1" = "$2" ] || { echo "       $1, not $2"; false; }; }

size="$(du --apparent-size --bytes --summarize "$root" | cut -f1)"
echo "       the image's files are $size bytes, the program $(stat -c %s "$root/longshore"), compressed $(gzip -c "$root/longshore" | wc -c)"
[ "$size" -lt $((goal << 20)) ] || echo "       that is $(((size >> 20) - goal)) MiB more than the goal of $goal MiB"
holds "it is smaller than $limit MiB" [ "$size" -lt $((limit << 20)) ]
holds "the program is static" bash -c '! ldd "$1" 2>&1 | grep -q "=>"' _ "$root/longshore"
if [ -n "$sbom" ]; then
    holds "the program names what it was built from" bash -c 'readelf --wide --sections "$1" | grep -q "[.]dep-v0"' _ "$root/longshore"
    for part in hyper rustls gix rusqlite; do
        holds "so does the list beside it: $part" grep --quiet "\"pkg:cargo/$part@" "$sbom"
    done
fi
holds "it runs as nobody in particular" is "$(config .OCIv1.Config.User)" 65532:65532
holds "it starts the program" is "$(config .OCIv1.Config.Entrypoint)" "[/longshore]"
holds "it names its licence" is "$(config 'index .OCIv1.Config.Labels "org.opencontainers.image.licenses"')" "MIT OR Apache-2.0"
holds "it has a health check" is "$(config .Docker.ContainerConfig.Healthcheck.Test)" "[CMD /longshore healthcheck]"
holds "it has nothing else" is "$(cd "$root" && find . -type f -not -path './proc/*' -not -path './sys/*' -not -path './dev/*' -not -path './run/*' | sort | tr '\n' ' ')" \
    "./etc/group ./etc/nsswitch.conf ./etc/passwd ./longshore "

# Every container has these.
for folder in proc dev; do
    mkdir -p "$root/$folder"
    mount --bind "/$folder" "$root/$folder"
done

port="${LONGSHORE_IMAGE_PORT:-}"
# A port without a server: responses must come from the image.
is_taken() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }
while [ -z "$port" ] || is_taken "$port"; do
    port=$((20000 + RANDOM % 12000))
done
entering() { # USER: what goes in front of a command
    enter=(env -i PATH="$PATH" PORT="$port" LONGSHORE_HTTP__INSECURE=true chroot --userspec="$1" "$root")
}
in_image() { # USER COMMAND...
    entering "$1"
    shift
    "${enter[@]}" "$@"
}
answers() { curl --silent --fail --max-time 5 "http://127.0.0.1:$port$1" > /dev/null; }
serves() { # USER
    entering "$1"
    "${enter[@]}" /longshore run > "$log" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        kill -0 "$server" 2> /dev/null || break
        answers /health && return 0
        sleep 0.1
    done
    cat "$log"
    return 1
}
calls() {
    curl --silent --fail --max-time 5 "http://127.0.0.1:$port/mcp" \
        --header 'content-type: application/json' --header 'accept: application/json, text/event-stream' \
        --data '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"check","version":"1"}}}' |
        grep --quiet '"serverInfo"'
}
stops() {
    local code=0
    kill -TERM "$server" || return 1
    wait "$server" || code=$?
    server=""
    is "$code" 0
}
for user in 65532:65532 1000730000:0; do
    holds "it serves as $user" serves "$user"
    holds "it answers a client as $user" calls
    holds "its health check holds as $user" in_image "$user" /longshore healthcheck
    holds "it stops when told as $user" stops
done
holds "its health check fails where nothing serves" bash -c '! "$@" 2> /dev/null' _ \
    env -i PATH="$PATH" PORT="$port" chroot --userspec=65532:65532 "$root" /longshore healthcheck

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
