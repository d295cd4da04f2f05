#!/usr/bin/env python3
"""How much memory abandoned sessions and idle streams take.

    loadtest/memory.py [--server PATH] [--sessions N] [--streams N]

Opens a million sessions and abandons them; then opens ten thousand streams (`subscriptions/listen`) that nothing is said
on. Prints by how much the server's resident memory grows. The first figure has to be below 5 MiB, the second below 20 KiB
for each stream; else the exit status is 1. Needs Linux, and as many open files as there are streams on both sides.
"""

import argparse
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GROWTH_MAX = 5 * 1024 * 1024
STREAM_MAX = 20 * 1024
# Concurrent requests on one connection, and the number after which the server closes it.
AT_ONCE, A_CONNECTION = 50, 9_000
# What the allocator and the caches of the server settle at is no growth.
WARM_UP = 50_000


def give_up(why):
    print(f"memory.py: {why}", file=sys.stderr)
    sys.exit(2)


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    give_up("the server has ended")


def connect(port):
    one = socket.create_connection(("127.0.0.1", port), timeout=30)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one


def post(message, *headers):
    body = json.dumps(message)
    lines = [
        "POST /mcp HTTP/1.1", "host: localhost", "content-type: application/json",
        "accept: application/json, text/event-stream", f"content-length: {len(body)}", *headers, "", body,
    ]
    return "\r\n".join(lines).encode()


INITIALIZE = post({
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "abandoner", "version": "1"}},
})
LISTEN = post({
    "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
    "params": {
        "notifications": {"toolsListChanged": True},
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}},
    },
}, "mcp-protocol-version: 2026-07-28", "mcp-method: subscriptions/listen")


def abandon(port, sessions):
    opened = 0
    while opened < sessions:
        with connect(port) as one:
            on_this = 0
            while opened < sessions and on_this < A_CONNECTION:
                count = min(AT_ONCE, sessions - opened)
                one.sendall(INITIALIZE * count)
                seen, tail = 0, b""
                while seen < count:
                    part = one.recv(1 << 16)
                    if not part:
                        give_up("a connection was closed early")
                    text = tail + part
                    seen += text.count(b"mcp-session-id:")
                    # One that is cut in two is counted when it is whole.
                    tail = text[-len(b"mcp-session-id:") + 1:]
                opened += count
                on_this += count


def hold(port, streams):
    held = []
    for _ in range(streams):
        one = connect(port)
        one.sendall(LISTEN)
        held.append(one)
    for one in held:
        text = b""
        while b"acknowledged" not in text:
            part = one.recv(4096)
            if not part:
                give_up(f"a stream was refused: {text[:200]!r}")
            text += part
    return held


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    arguments.add_argument("--server", default=str(target / "dist" / "longshore"), help="the program (default: the build with --profile dist)")
    arguments.add_argument("--sessions", type=int, default=1_000_000)
    arguments.add_argument("--streams", type=int, default=10_000)
    told = arguments.parse_args()
    if not os.access(told.server, os.X_OK):
        give_up(f"there is no program {told.server}: cargo build --profile dist, or --server")
    wanted = told.streams + 600
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        give_up(f"{wanted} files have to be open at once: ulimit -n {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    server = subprocess.Popen(
        [told.server, "run", "--host", "127.0.0.1", "--port", str(port), "--toolset", "demo", "--workers", "2"],
        env={"PATH": os.environ.get("PATH", ""), "LONGSHORE_LOG": "error", "LONGSHORE_LIMITS__INITIALIZE_PER_MINUTE": "0"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 30
        while True:
            try:
                connect(port).close()
                break
            except OSError:
                if server.poll() is not None or until < time.monotonic():
                    give_up("the server does not start")
                time.sleep(0.05)
        problems = []
        abandon(port, min(WARM_UP, told.sessions))
        time.sleep(2)
        before, begun = resident(server.pid), time.monotonic()
        abandon(port, told.sessions)
        took = time.monotonic() - begun
        time.sleep(2)
        growth = resident(server.pid) - before
        print(f"{told.sessions} abandoned sessions: {growth / 2**20:+.2f} MiB (from {before / 2**20:.1f} MiB, in {took:.0f} s)")
        if GROWTH_MAX <= growth:
            problems.append(f"sessions took {growth / 2**20:.1f} MiB")

        before = resident(server.pid)
        held = hold(port, told.streams)
        time.sleep(2)
        each = (resident(server.pid) - before) / told.streams
        print(f"{told.streams} idle streams: {each / 1024:.2f} KiB each")
        if STREAM_MAX < each:
            problems.append(f"a stream took {each / 1024:.1f} KiB")
        for one in held:
            one.close()
    finally:
        server.kill()
        server.wait()
    for problem in problems:
        print(f"memory.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


sys.exit(main())
