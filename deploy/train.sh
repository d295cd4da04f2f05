#!/usr/bin/env bash
# Has a server do what servers do, so that an instrumented build learns which of its code that is. What is not run here
# is built for size.
#
#   deploy/train.sh PROGRAM
#
# Needs curl, openssl, perl and h2load (Debian's nghttp2-client). It uses nothing but loopback addresses, and says what was
# not answered as it should be.
set -euo pipefail
program=$1
# How many of most messages.
requests="${REQUESTS:-3000}"
folder="$(mktemp -d)"
servers=() programs=()
clean_up() {
    [ ${#servers[@]} -eq 0 ] || kill -KILL "${servers[@]}" 2> /dev/null || true
    rm -rf "$folder"
}
trap clean_up EXIT
fails() {
    echo "training: $*" >&2
    tail -n 20 "$folder"/*.log >&2 || true
    exit 1
}

key=lsk_a-key-that-is-used-for-nothing-else
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
    -keyout "$folder/server.key" -out "$folder/server.crt" 2> /dev/null
chmod 600 "$folder/server.key"

# === Messages ===

message() { # NAME JSON: without the braces and the version
    printf '{"jsonrpc":"2.0",%s}' "$2" > "$folder/$1.json"
}
client='"clientInfo":{"name":"training","version":"1"}'
meta='"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"training","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}'
words="$(printf 'word %.0s' $(seq 13000))"
# Strings with many escapes, as they are in code and in JSON, and text that is not ASCII.
code="$(printf '    let value = map.get(\\"key\\").unwrap_or(&\\"none\\\\n\\");\\n%.0s' $(seq 120))"
prose="$(printf 'Caf\xc3\xa9 \xe2\x80\x94 na\\u00efve, and the line ends here.\\n%.0s' $(seq 150))"
message initialize "\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},$client}"
message initialized '"method":"notifications/initialized"'
message ping '"id":7,"method":"ping"'
message list '"id":7,"method":"tools/list"'
message call '"id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}'
message long "\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"message\":\"$words\"}}"
message code "\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"message\":\"$code\"}}"
message prose "\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"message\":\"$prose\"}}"
message number '"id":"a","method":"tools/call","params":{"name":"calculate","arguments":{"operation":"add","a":1,"b":2.5}}'
message resource '"id":7,"method":"resources/read","params":{"uri":"longshore://about"}'
message forms '"id":7,"method":"resources/read","params":{"uri":"verb://go"}'
message prompt '"id":7,"method":"prompts/get","params":{"name":"proofread","arguments":{"text":"A text.\nIt goes on."}}'
message complete '"id":7,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"proofread"},"argument":{"name":"depth","value":"s"}}'
message steps '"id":7,"method":"tools/call","params":{"name":"wait","arguments":{"seconds":0.02},"_meta":{"progressToken":1}}'
message http '"id":7,"method":"tools/call","params":{"name":"far_ping","arguments":{"who":"me"}}'
message rest '"id":7,"method":"tools/call","params":{"name":"rest__ping","arguments":{"who":"me","times":2}}'
message read "\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"read_text_file\",\"arguments\":{\"path\":\"$folder/files/a.txt\"}}"
message files "\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"list_directory\",\"arguments\":{\"path\":\"$folder/files\"}}"
message time '"id":7,"method":"tools/call","params":{"name":"convert_time","arguments":{"source_timezone":"Europe/Amsterdam","time":"12:30","target_timezone":"Asia/Tokyo"}}'
message upstream '"id":7,"method":"tools/call","params":{"name":"near__echo","arguments":{"message":"hello"}}'
message stateless "\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"message\":\"hello\"},$meta}"
message discover "\"id\":7,\"method\":\"server/discover\",\"params\":{$meta}"

# === An issuer of access tokens ===

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
token() { # Signed by the server's key, for there is one.
    local now head claims
    now="$(date +%s)"
    head="$(printf '{"alg":"RS256","typ":"at+jwt","kid":"training"}' | base64url)"
    claims="$(printf '{"iss":"%s","aud":"training","sub":"carol","client_id":"c","jti":"1","groups":["staff"],"iat":%d,"exp":%d}' \
        "$issuer" "$now" $((now + 3600)) | base64url)"
    printf '%s.%s.%s' "$head" "$claims" "$(printf '%s.%s' "$head" "$claims" | openssl dgst -sha256 -sign "$folder/server.key" | base64url)"
}
issues() { # PORT: its keys, whatever is asked for
    local modulus
    modulus="$(openssl rsa -in "$folder/server.key" -noout -modulus 2> /dev/null | sed 's/.*=//' | perl -ne 'chomp; print pack "H*", $_' | base64url)"
    printf '{"keys":[{"kty":"RSA","kid":"training","use":"sig","alg":"RS256","e":"AQAB","n":"%s"}]}' "$modulus" > "$folder/keys.json"
    perl -MIO::Socket::INET -e '
        my $listener = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$ARGV[0]", Listen => 9, ReuseAddr => 1) or die;
        my $keys = do { local (@ARGV, $/) = $ARGV[1]; <> };
        while (my $client = $listener->accept) {
            while (<$client>) { last if /^\r?$/ }
            print $client "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ", length $keys, "\r\n\r\n", $keys;
        }' "$1" "$folder/keys.json" 2> "$folder/issuer.log" &
    servers+=($!)
    disown
}

# === Servers ===

starts() { # NAME PORT ARGUMENT...
    local name=$1 port=$2
    shift 2
    env -i PATH="$PATH" HOME="$folder" LLVM_PROFILE_FILE="${LLVM_PROFILE_FILE:-}" "${settings[@]}" \
        "$program" run --host 127.0.0.1 --port "$port" "$@" > "$folder/$name.log" 2>&1 &
    servers+=($!) programs+=($!)
    for _ in $(seq 300); do
        kill -0 "${servers[-1]}" 2> /dev/null || fails "the server $name did not start"
        curl --silent --insecure --fail --output /dev/null "$scheme://127.0.0.1:$port/livez" && return
        sleep 0.1
    done
    fails "the server $name does not answer"
}
free_port() {
    local port
    while port=$((20000 + RANDOM % 12000)) && (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do :; done
    echo "$port"
}

# === Clients ===

json=(--header 'content-type: application/json' --header 'accept: application/json, text/event-stream')
opens() { # Sets `headers` for a session.
    local id
    id="$(curl --silent --insecure --dump-header - --output /dev/null "${json[@]}" "${proof[@]}" \
        --data-binary "@$folder/initialize.json" "$url" | tr -d '\r' | sed -n 's/^mcp-session-id: //Ip')"
    [ -n "$id" ] || fails "no session at $url"
    headers=(--header "mcp-session-id: $id" --header 'mcp-protocol-version: 2025-06-18')
    asks initialized
}
asks() { # NAME: once, and prints the answer
    curl --silent --insecure --max-time 20 "${json[@]}" "${proof[@]}" "${headers[@]}" --data-binary "@$folder/$1.json" "$url"
}
drives() { # NAME COUNT
    local name=$1 count=$2 said
    said="$(asks "$name")"
    case "$said" in *'"result"'*) ;; *) fails "$name at $url was answered: $said" ;; esac
    said="$(h2load "${way[@]}" --requests "$count" "${json[@]}" "${proof[@]}" "${headers[@]}" --data "$folder/$name.json" "$url" 2>&1)" ||
        fails "$name at $url: $said"
    case "$said" in *"status codes: $count 2xx"*) ;; *) fails "$name at $url: $said" ;; esac
}
connects() { # NAME: on new connections, each of which is closed behind it
    local way=("${way[@]}" --clients 100)
    for _ in $(seq $((requests / 200))); do drives "$1" 100; done
}
every_message() { # NAME...: also sent within a session
    opens
    for name in ping list call number resource forms prompt complete "$@"; do
        drives "$name" "$requests"
    done
    drives initialize "$requests"
    for name in long code prose; do
        drives "$name" $((requests / 20))
    done
    drives steps $((requests / 2))
    connects ping
    # A standing stream, and the end of the session.
    curl --silent --insecure --max-time 1 --header 'accept: text/event-stream' "${proof[@]}" "${headers[@]}" "$url" > /dev/null || true
    curl --silent --insecure --request DELETE "${proof[@]}" "${headers[@]}" "$url" > /dev/null
    headers=(--header 'mcp-protocol-version: 2026-07-28' --header 'mcp-method: tools/call' --header 'mcp-name: echo')
    drives stateless "$requests"
    headers=(--header 'mcp-protocol-version: 2026-07-28' --header 'mcp-method: server/discover')
    drives discover "$requests"
}

one=(--h1 --clients 16 --max-concurrent-streams 1)
two=(--clients 2 --max-concurrent-streams 32)

# One that is only started, and one that is called once as well: what runs here is what every start and every call needs.
scheme=http proof=() settings=() idle="$(free_port)"
starts idle "$idle" --toolset demo
first="$(free_port)"
starts first "$first" --toolset demo
url="http://127.0.0.1:$first/mcp"
opens
[[ "$(asks call)" == *'"result"'* ]] || fails "the first call had no result"
headers+=(--header "connection: close")
[[ "$(asks call)" == *'"result"'* ]] || fails "the call on a connection that closes had no result"

# One without authentication.
settings=(LONGSHORE_WORKERS=1 LONGSHORE_LIMITS__INITIALIZE_PER_MINUTE=0) near="$(free_port)"
starts near "$near" --toolset demo
url="http://127.0.0.1:$near/mcp"
for version in one two; do
    declare -n way=$version
    every_message
done

# One with much set.
issuer_port="$(free_port)"
issuer="http://127.0.0.1:$issuer_port"
issues "$issuer_port"
mkdir "$folder/files"
for name in a b c; do
    printf 'A line of %s.\n' "$name" "$name" > "$folder/files/$name.txt"
done
cat > "$folder/openapi.json" << DOCUMENT
{"openapi": "3.1.0", "info": {"title": "ping", "version": "1"}, "paths": {"/livez": {"get": {
  "operationId": "ping", "summary": "Whether it lives.",
  "parameters": [{"name": "who", "in": "query", "schema": {"type": "string"}}, {"name": "times", "in": "query", "schema": {"type": "integer", "minimum": 1}}],
  "responses": {"200": {"description": "It does."}}}}}}
DOCUMENT
cat > "$folder/longshore.yaml" << SETTINGS
toolsets: [demo, filesystem, time]
builtin:
  filesystem: { directories: [$folder/files] }
http:
  tls: { certificate: $folder/server.crt, key: $folder/server.key }
auth:
  api_keys: [{ name: alice, keys: [$key], groups: [staff] }]
  oauth: { issuer: "$issuer", audience: training, jwks_url: "$issuer/keys" }
policy:
  rules: [{ effect: allow, groups: [staff], tools: ["*"], resources: ["*"], prompts: ["*"] }]
limits:
  server: { per_second: 1000000 }
  address: { per_second: 1000000 }
  principal: { per_second: 1000000 }
telemetry:
  metrics: "on"
  endpoint: http://127.0.0.1:9
  sample: 0.01
upstreams:
  near: { url: "http://127.0.0.1:$near/mcp" }
sources:
  - name: far
    http:
      base_url: http://127.0.0.1:$near
      tools:
        - { name: far_ping, description: Whether it lives., url: "/livez?who={{ who }}", arguments: { who: { description: Who asks. } } }
  - name: rest
    openapi: { document: $folder/openapi.json, server: "http://127.0.0.1:$near" }
SETTINGS
scheme=https proof=(--header "authorization: Bearer $key") far="$(free_port)"
starts far "$far" --config "$folder/longshore.yaml"
url="https://127.0.0.1:$far/mcp"
for version in one two; do
    declare -n way=$version
    every_message http rest upstream read files time
done

proof=(--header "authorization: Bearer $(token)") headers=(--header 'mcp-protocol-version: 2026-07-28' --header 'mcp-method: tools/call' --header 'mcp-name: echo')
drives stateless "$requests"

# What was counted is written when a program ends.
for server in "${programs[@]}"; do
    kill -TERM "$server"
    wait "$server" || fails "a server ended with $?"
done
