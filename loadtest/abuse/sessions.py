#!/usr/bin/env python3
"""What sessions that subscribe to as much as they may, and then end or are abandoned, make the server hold in memory.

    loadtest/abuse/sessions.py [--server PATH] [--sessions N] [--memory BYTES] [--port N]

Starts the program with `state.memory_bytes` (16 MiB unless told otherwise). Each session subscribes to 63 KB of URIs; half of
them end with DELETE, and half are abandoned. The case passes if every subscription is taken, those of a second client at the
end too, if what the state is counted with stays within the setting, and if resident memory grows by at most a quarter
more than the setting. Loopback addresses only. Needs Linux and nothing but Python.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOLERANCE = 1.25
URIS = [f"test://{n}/" + "x" * 7_900 for n in range(8)]


def give_up(why):
    print(f"sessions.py: {why}", file=sys.stderr)
    sys.exit(2)


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    give_up("the server has ended")


def send(connection, method, message=None, session=None):
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if session:
        headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    connection.request(method, "/mcp", json.dumps(message) if message else None, headers)
    response = connection.getresponse()
    return response, response.read()


def begin(connection):
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "filler", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    response, text = send(connection, "POST", message)
    if response.status != 200:
        give_up(f"a session does not begin: {response.status} {text[:200]!r}")
    return response.headers["mcp-session-id"]


def subscribe(connection, session, uri):
    message = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": uri}}
    _, text = send(connection, "POST", message, session)
    return json.loads(text).get("error")


def counted(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    return sum(float(value) for value in re.findall(r"^longshore_state_memory_bytes\{[^}]*\} (\S+)", page, re.M))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    arguments.add_argument("--server", default=str(target / "debug" / "longshore"), help="the program (default: the debug build)")
    arguments.add_argument("--sessions", type=int, default=600)
    arguments.add_argument("--memory", type=int, default=16 * 2**20, help="state.memory_bytes")
    arguments.add_argument("--port", type=int, default=0, help="the first of two ports (default: free ones)")
    told = arguments.parse_args()
    if not os.access(told.server, os.X_OK):
        give_up(f"there is no program {told.server}: cargo build, or --server")
    with socket.socket() as one, socket.socket() as other:
        # Connections of an earlier run may linger there.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", told.port))
        other.bind(("127.0.0.1", told.port and told.port + 1))
        port, admin = one.getsockname()[1], other.getsockname()[1]
    server = subprocess.Popen(
        [told.server, "run", "--host", "127.0.0.1", "--port", str(port), "--toolset", "everything", "--workers", "2"],
        env={
            "PATH": os.environ.get("PATH", ""), "LONGSHORE_LOG": "error", "LONGSHORE_HTTP__ADMIN__PORT": str(admin),
            "LONGSHORE_STATE__MEMORY_BYTES": str(told.memory),
        },
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    problems = []
    try:
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                if server.poll() is not None or until < time.monotonic():
                    give_up("the server does not start")
                time.sleep(0.05)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        subscribe(connection, begin(connection), "test://warm-up")
        before, peak, most, refused = resident(server.pid), 0, 0, 0
        for number in range(told.sessions):
            session = begin(connection)
            refused += sum(subscribe(connection, session, uri) is not None for uri in URIS)
            if number % 2:
                send(connection, "DELETE", session=session)
            if number % 20 == 0:
                peak, most = max(peak, resident(server.pid)), max(most, counted(admin))
        error = subscribe(connection, begin(connection), "test://watched-resource")
        peak = max(peak, resident(server.pid))
    finally:
        server.kill()
        server.wait()
    growth = peak - before
    print(
        f"{told.sessions} sessions: {refused} subscriptions refused; counted at most {most / 2**20:.1f} of {told.memory / 2**20:.1f} MiB, "
        f"resident memory grew by {growth / 2**20:.1f} MiB (may be {told.memory * TOLERANCE / 2**20:.1f})"
    )
    if refused or error:
        problems.append(f"subscriptions were refused: {error or refused}")
    if told.memory < most:
        problems.append("the state is counted with more than its setting")
    if told.memory * TOLERANCE < growth:
        problems.append("resident memory grew by too much")
    for problem in problems:
        print(f"sessions.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


sys.exit(main())
