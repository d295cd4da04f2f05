#!/usr/bin/env bash
# Runs the official MCP clients against the built server.
#
#   interop/run.sh [options] [CLIENT...]
#
#   CLIENT           only these clients (default: all; see --list)
#   --server PATH    the server to start (default: target/release/longshore,
#                    which is built first if it is missing)
#   --url URL        use the server that already runs there and start none; the
#                    rows over stdio are skipped unless --server is given too
#   --timeout N      seconds that one row may take (default: 30)
#   --trace FILE     write every byte between server and HTTP clients to FILE
#   --list           print the rows, one "CLIENT LIFECYCLE TRANSPORT" a line, and exit
#   --install CLIENT install a client, print what runs it, a word a line, and exit
#
# Prints one line per client, lifecycle and transport, and last "N passed, N failed,
# N skipped"; the exit status is 0 when nothing failed, 1 when something did,
# 2 when nothing could be run. LIFECYCLE is the option that the client has for it.
#
# The clients are installed on first use, at pinned versions, below
# $LONGSHORE_INTEROP_CACHE (default: longshore-interop in the user's cache
# folder). Needs Node 20.11, Python 3.11 and cargo for their clients; the rows of
# what is missing are skipped, and say so.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
cache=${LONGSHORE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/longshore-interop}
python=${PYTHON:-python3}
# Nothing that is set around here is to change the server that is tested.
while read -r name; do unset "$name"; done < <(compgen -e LONGSHORE_ || :; echo PORT)

rows() {
  cat <<'ROWS'
typescript-v1 2025-11-25 http
typescript-v1 2025-11-25 stdio
typescript-v2 default http
typescript-v2 auto http
typescript-v2 2026-07-28 http
typescript-v2 2025-06-18 http
typescript-v2 2025-03-26 http
typescript-v2 2024-11-05 http
typescript-v2 default stdio
typescript-v2 auto stdio
inspector default http
inspector auto http
inspector modern http
inspector default stdio
inspector auto stdio
python-v1 2025-11-25 http
python-v1 2025-11-25 stdio
python-v2 auto http
python-v2 legacy http
python-v2 2026-07-28 http
python-v2 auto stdio
python-v2 legacy stdio
python-fastmcp auto http
python-fastmcp legacy http
python-fastmcp auto stdio
rmcp default http
rmcp auto http
rmcp discover http
rmcp 2025-06-18 http
rmcp 2025-03-26 http
rmcp 2024-11-05 http
rmcp default stdio
rmcp auto stdio
replicas session http
replicas stateless http
ROWS
}

die() {
  echo "run.sh: $*" >&2
  exit 2
}

# --- Options ---------------------------------------------------------------------

server='' url='' seconds=30 trace='' only='' clients=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//;/^set /!p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --list) rows; exit 0 ;;
    --server | --url | --timeout | --trace | --install)
      [ $# -ge 2 ] || die "$1 needs a value"
      case $1 in
        --server) server=$2 ;;
        --url) url=$2 ;;
        --timeout) seconds=$2 ;;
        --trace) trace=$2 ;;
        --install) only=$2 ;;
      esac
      shift ;;
    -*) die "unknown option $1" ;;
    *)
      rows | grep -q "^$1 " || die "unknown client $1; see --list"
      clients+=("$1") ;;
  esac
  shift
done

# --- What was started is ended, however this ends ------------------------------------

scratch=$(mktemp -d "${TMPDIR:-/tmp}/longshore-interop.XXXXXX")
server_pid='' tap_pid='' row_pid=''

# Some clients put the server they start into a session of its own, out of reach
# of the row's process group: each such server writes its id down before it starts.
# True if they all had ended, or do within a second, as they should on end of input.
end_stdio_servers() {
  local pid left=0
  [ -s "$scratch/stdio.pids" ] || return 0
  while read -r pid; do
    for _ in 1 2 3 4 5; do
      kill -0 "$pid" 2>/dev/null || continue 2
      sleep 0.2
    done
    kill -KILL "$pid" 2>/dev/null && left=1
  done <"$scratch/stdio.pids"
  : >"$scratch/stdio.pids"
  return "$left"
}

cleanup() {
  # A row leads a process group of its own.
  if [ -n "$row_pid" ]; then
    kill -KILL -- "-$row_pid" 2>/dev/null || :
    wait "$row_pid" 2>/dev/null || :
  fi
  end_stdio_servers || :
  [ -z "$tap_pid" ] || kill -KILL "$tap_pid" 2>/dev/null || :
  if [ -n "$server_pid" ]; then
    kill "$server_pid" 2>/dev/null || :
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      kill -0 "$server_pid" 2>/dev/null || break
      sleep 0.2
    done
    kill -KILL "$server_pid" 2>/dev/null || :
  fi
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# --- The server ----------------------------------------------------------------------

listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_port() {
  local port
  for _ in {1..50}; do
    port=$((20000 + RANDOM % 12000)) # below those that the system gives to connections
    listens "$port" || { echo "$port"; return; }
  done
  die "found no free port"
}

# Waits until a port is listened on, as long as process $1 lives.
wait_for() {
  for _ in {1..100}; do
    if listens "$2"; then return 0; fi
    kill -0 "$1" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

if [ -z "$server" ] && [ -z "$url" ] && [ -z "$only" ]; then
  server=${CARGO_TARGET_DIR:-$root/target}/release/longshore
  if [ ! -e "$server" ]; then
    command -v cargo >/dev/null || die "$server is missing, and so is cargo, which would build it"
    echo "run.sh: building the server" >&2
    (cd "$root" && cargo build --release --bin longshore) >&2 || die "the server does not build"
  elif newer=$(find "$root/Cargo.lock" "$root/src" "$root/crates" "$root/macros/src" -type f -newer "$server" -print -quit) && [ -n "$newer" ]; then
    echo "run.sh: note: $server is older than ${newer#"$root"/}" >&2
  fi
fi
if [ -n "$server" ]; then
  [ -x "$server" ] || die "cannot run $server"
  server=$(cd "$(dirname "$server")" && pwd)/$(basename "$server")
  {
    echo '#!/bin/sh'
    printf "echo \$\$ >>'%s'\n" "$scratch/stdio.pids"
    printf "exec '%s' run --transport stdio --toolset everything\n" "$server"
  } >"$scratch/longshore-stdio"
  chmod +x "$scratch/longshore-stdio"
fi

if [ -z "$url" ] && [ -z "$only" ]; then
  port=$(free_port)
  "$server" run --host 127.0.0.1 --port "$port" --toolset everything >"$scratch/server.log" 2>&1 </dev/null &
  server_pid=$!
  disown
  if ! wait_for "$server_pid" "$port"; then
    cat "$scratch/server.log" >&2
    die "the server does not listen on port $port"
  fi
  url=http://127.0.0.1:$port/mcp
fi

# --- The clients, each installed once ----------------------------------------------------

# Prints the reason why the clients of kind $1 cannot run here, if there is one.
missing() {
  case $1 in
    node)
      if ! { command -v node && command -v npm; } >/dev/null; then echo "Node and npm are not installed"; return; fi
      node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 11) ? 0 : 1)' ||
        echo "Node $(node --version) is older than 20.11" ;;
    python)
      command -v "$python" >/dev/null || { echo "$python is not installed"; return; }
      "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$("$python" --version) is older than 3.11"; return; }
      "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "$python has no venv module" ;;
    rust) command -v cargo >/dev/null || echo "cargo is not installed" ;;
    replicas)
      missing node
      [ -n "$redis" ] || echo "neither redis-server nor valkey-server is installed"
      [ -n "$server" ] || echo "no --server to start twice" ;;
  esac
}

redis=$(command -v redis-server || command -v valkey-server || :)

# install FOLDER COMMAND...: runs COMMAND with a new folder as its last argument,
# beside the final place, and moves it there: an interrupted or a concurrent first
# run never leaves a half-installed folder behind.
install() {
  local folder=$cache/$1 new
  shift
  if [ ! -e "$folder/.complete" ]; then
    echo "run.sh: installing $(basename "$folder") (once)" >&2
    mkdir -p "$cache"
    new=$(mktemp -d "$cache/.new.XXXXXX")
    if ! "$@" "$new" >"$new.log" 2>&1; then
      tail -n 20 "$new.log" >&2
      rm -rf "$new" "$new.log"
      return 1
    fi
    : >"$new/.complete"
    mv -T "$new" "$folder" 2>/dev/null || [ -e "$folder/.complete" ] || return 1
    rm -rf "$new" "$new.log"
  fi
  echo "$folder"
}

key() { cat "$@" | cksum | cut -d ' ' -f 1; }

npm_install() {
  cp "$here/npm/package.json" "$here/npm/package-lock.json" "$1/"
  (cd "$1" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
}

pip_install() {
  "$python" -m venv "$2/venv"
  "$2/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$1"
}

# Sets `command` to what runs client $1, installing it if need be.
prepare() {
  local folder file
  case $1 in
    typescript-* | inspector | replicas)
      folder=$(install "npm-$(key "$here/npm/package-lock.json")" npm_install) || return 1
      # Node looks for packages beside the script that asks for them.
      cp "$here"/npm/*.mjs "$folder/"
      command=(node "$folder/$1.mjs") ;;
    python-*)
      file=$here/python/$1.txt
      folder=$(install "$1-$(key "$file" <("$python" -VV))" pip_install "$file") || return 1
      command=("$folder/venv/bin/python" "$here/python/$1.py") ;;
    rmcp)
      cargo build --quiet --locked --manifest-path "$here/rmcp-client/Cargo.toml" --target-dir "$cache/rmcp" >&2 || return 1
      # A failure is reported by its causes, without the backtrace of the client.
      command=(env RUST_LIB_BACKTRACE=0 "$cache/rmcp/debug/rmcp-client") ;;
  esac
}

kind_of() {
  case $1 in
    typescript-* | inspector) echo node ;;
    replicas) echo replicas ;;
    python-*) echo python ;;
    rmcp) echo rust ;;
  esac
}

if [ -n "$only" ]; then
  reason=$(missing "$(kind_of "$only")")
  [ -z "$reason" ] || die "$only: $reason"
  prepare "$only" || die "$only could not be installed"
  printf '%s\n' "${command[@]}"
  exit 0
fi

if [ -n "$trace" ]; then
  reason=$(missing node)
  [ -z "$reason" ] || die "--trace: $reason"
  port=$(free_port)
  node "$here/npm/tap.mjs" "$port" "$url" "$trace" &
  tap_pid=$!
  disown
  wait_for "$tap_pid" "$port" || die "the tap does not listen on port $port"
  url=$(sed -E "s|^(http://)[^/]+|\1127.0.0.1:$port|" <<<"$url")
fi

# --- The rows ------------------------------------------------------------------------

passed=0 failed=0 skipped=0

# report VERDICT ROW TEXT
report() {
  printf '%s %s (%s)\n' "$1" "$2" "$3"
  case $1 in
    PASS) passed=$((passed + 1)) ;;
    FAIL) failed=$((failed + 1)) ;;
    SKIP) skipped=$((skipped + 1)) ;;
  esac
}

# run_row CLIENT LIFECYCLE TRANSPORT: uses `command`
run_row() {
  local target=("$url") status=0 left=''
  if [ "$3" = stdio ]; then target=("$scratch/longshore-stdio"); fi
  INTEROP_SERVER=$server INTEROP_REDIS=$redis TMPDIR=$scratch timeout --kill-after=2 "$seconds" "${command[@]}" "$2" "$3" "${target[@]}" \
    >"$scratch/out" 2>"$scratch/err" </dev/null &
  row_pid=$!
  wait "$row_pid" || status=$?
  kill -KILL -- "-$row_pid" 2>/dev/null || :
  row_pid=''
  end_stdio_servers || left=', and its server does not end on end of input'
  case $status$left in
    0) report PASS "$1 $2 $3" "$(tail -n 1 "$scratch/out")"; return ;;
    0*) report FAIL "$1 $2 $3" "$(tail -n 1 "$scratch/out")$left"; return ;;
    124* | 137*) report FAIL "$1 $2 $3" "not done after $seconds s$left" ;;
    *) report FAIL "$1 $2 $3" "exit status $status$left" ;;
  esac
  tail -n 30 "$scratch/err" | sed 's/^/      | /'
}

ready='' reason='' command=()
while read -r client lifecycle transport; do
  if [ ${#clients[@]} -gt 0 ] && [[ " ${clients[*]} " != *" $client "* ]]; then continue; fi
  if [ "$client" != "$ready" ]; then
    ready=$client
    reason=$(missing "$(kind_of "$client")")
    broken=''
    if [ -z "$reason" ]; then prepare "$client" || broken="could not be installed"; fi
  fi
  if [ -n "$reason" ]; then
    report SKIP "$client $lifecycle $transport" "$reason"
  elif [ -n "$broken" ]; then
    report FAIL "$client $lifecycle $transport" "$broken"
  elif [ "$transport" = stdio ] && [ -z "$server" ]; then
    report SKIP "$client $lifecycle $transport" "no --server to start"
  else
    run_row "$client" "$lifecycle" "$transport"
  fi
done < <(rows)

if [ -n "$server_pid" ] && ! kill -0 "$server_pid" 2>/dev/null; then
  report FAIL "server" "it has ended by itself"
fi
if [ "$failed" -gt 0 ] && [ -s "$scratch/server.log" ]; then
  echo "run.sh: the server's last lines:" >&2
  tail -n 20 "$scratch/server.log" >&2
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "$passed" -gt 0 ] || exit 2
