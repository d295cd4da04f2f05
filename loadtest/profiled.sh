#!/usr/bin/env bash
# Compares the image's program with a bare hyper server that is built by a profile, too.
#
#   loadtest/profiled.sh PROGRAM [OPTION of compare, but for --workloads...]
#
# PROGRAM is what `deploy/program.sh` has built. Bare hyper is built twice, like it: what serves and drives in the second build was
# counted in the first one, while h2load asked it for responses of each size that the workloads have. It is built with the Cargo
# profile `dist`, for speed throughout. Needs h2load (Debian's nghttp2-client) and llvm-profdata (`deploy/profdata.sh`).
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: loadtest/profiled.sh PROGRAM [OPTION of compare...]" >&2; exit 2; }
command -v h2load > /dev/null || { echo "there is no h2load: install nghttp2-client" >&2; exit 1; }
program="$(realpath --canonicalize-existing "$1")"
shift
cd "$(dirname "$0")/.."
target="$(uname -m)-unknown-linux-gnu"
output="$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")/bare"
profile="$output/profile"
built="$target/dist/longshore-loadtest"
arguments=(--locked --profile dist --package longshore-loadtest --bin longshore-loadtest --target "$target")
profdata="$(deploy/profdata.sh)"
rm -rf "$profile"

# Optimized like the second build: what hyper is made of is compiled for this program, and has to come out alike.
CARGO_TARGET_DIR="$output/instrumented" RUSTFLAGS="-C profile-generate=$profile" cargo build "${arguments[@]}"

server=""
trap '[ -z "$server" ] || kill -KILL "$server" 2> /dev/null || true' EXIT
body="$output/call.json"
echo '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}' > "$body"
headers=(--header 'content-type: application/json' --header 'accept: application/json, text/event-stream'
    --header "mcp-session-id: $(printf 'a%.0s' $(seq 190))" --header 'mcp-protocol-version: 2025-06-18')
trains() { # BYTES BASELINE-OPTION... : serves responses of that size
    local bytes=$1 port said
    shift
    while port=$((20000 + RANDOM % 12000)) && (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do :; done
    LLVM_PROFILE_FILE="$profile/%p.profraw" "$output/instrumented/$built" baseline --port "$port" --body-size "$bytes" "$@" 2> /dev/null &
    server=$!
    until (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do
        kill -0 "$server" 2> /dev/null || { echo "bare hyper did not start" >&2; exit 1; }
        sleep 0.1
    done
    said="$(h2load "${way[@]}" --requests 5000 "${headers[@]}" --data "$body" "http://127.0.0.1:$port/mcp")"
    # What was counted is written when it ends.
    kill -TERM "$server"
    wait "$server" || true
    server=""
    [[ "$said" == *"status codes: 5000 2xx"* ]] || { echo "bare hyper did not answer: $said" >&2; exit 1; }
}
for bytes in 39 97 207 278 429 28136 65628 283286; do
    way=(--h1 --clients 16 --max-concurrent-streams 1)
    trains "$bytes"
    way=(--clients 2 --max-concurrent-streams 32)
    trains "$bytes" --http2
done
# So is the generator, while it compares bare hyper with itself. Listings are left out: the server for them is a part of this program
# that is not trained.
workloads=(--workloads "call,call-stateless,ping,discover,initialize,echo-64k,call-h2,call-stateless-h2")
LLVM_PROFILE_FILE="$profile/%p.profraw" "$output/instrumented/$built" compare --noise --rounds 3 --half-load-rounds 0 "${workloads[@]}"
"$profdata" merge --output "$profile/merged.profdata" "$profile"/*.profraw

CARGO_TARGET_DIR="$output/profiled" RUSTFLAGS="-C profile-use=$profile/merged.profdata" cargo build "${arguments[@]}"
"$output/profiled/$built" compare --server "$program" "${workloads[@]}" "$@"
