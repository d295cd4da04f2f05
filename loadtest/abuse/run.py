#!/usr/bin/env python3
"""What clients that misbehave make the server hold in memory.

    loadtest/abuse/run.py [--server PATH] [--memory BYTES] [--port N] [CASE ...]

Starts the program with `limits.memory_bytes` (512 MiB unless told otherwise), runs each case against a fresh server, and
prints the peak of its resident memory beside the setting. A case passes if the peak is at most a quarter above the setting
and a well-behaved client still gets answers. Without a case it runs all of them; the exit status is 1 if one fails.

Cases are the functions below that have the decorator `case`; to add one, write one. Loopback addresses only. Needs Linux.
"""

import argparse
import json
import os
import pathlib
import resource
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CASES = {}
# How far above the setting the peak may be.
TOLERANCE = 1.25
# How long a case lasts. Clients that read nothing are let be for longer, since a debug build takes its time.
SECONDS = 60
LARGE_FILE = 9_000_000


def case(function):
    """Registers a case under the name of its function, with hyphens."""
    CASES[function.__name__.replace("_", "-")] = function
    return function


class Server:
    """A running server, whose resident memory is watched."""

    def __init__(self, program, memory, port, folder, settings="", toolsets=("filesystem",)):
        self.port = port or free_port()
        self.peak = 0
        configuration = folder / "abuse.yaml"
        configuration.write_text(
            f"http: {{ host: 127.0.0.1, port: {self.port}, limits: {{ write_stall_seconds: 600 }} }}\n"
            f"toolsets: [{', '.join(toolsets)}]\n"
            f"builtin: {{ filesystem: {{ directories: ['{folder}'] }} }}\n"
            f"limits: {{ memory_bytes: {memory} }}\n" + settings
        )
        self.log = open(folder / "server.log", "wb")
        self.process = subprocess.Popen(
            [program, "run", "--config", str(configuration), "--workers", "2"],
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(folder)},
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            except OSError:
                if self.process.poll() is not None or until < time.monotonic():
                    give_up("the server does not start; its log:\n" + (folder / "server.log").read_text())
                time.sleep(0.05)
        self.begun = self.resident()
        self.watching = True
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def resident(self):
        try:
            text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0
        return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS:")), 0)

    def watch(self):
        while self.watching:
            self.peak = max(self.peak, self.resident())
            time.sleep(0.01)

    def close(self):
        self.watching = False
        self.process.kill()
        self.process.wait()
        self.log.close()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def ask(self, timeout=10):
        """The status of a well-behaved client's small request; `None` if there is no answer in time."""
        try:
            with self.connect() as one:
                one.settimeout(timeout)
                one.sendall(call(self.port, "list_allowed_directories", {}))
                return int(one.recv(4096).split(b" ", 2)[1])
        except (OSError, IndexError, ValueError):
            return None


def give_up(why):
    print(f"abuse: {why}", file=sys.stderr)
    sys.exit(2)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def call(port, tool, arguments):
    body = json.dumps(arguments)
    return (
        f"POST /tools/{tool} HTTP/1.1\r\nhost: localhost:{port}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()


def literal(name, value):
    """A header field of HPACK that needs no table and no Huffman code."""
    name, value = name.encode(), value.encode()
    return b"\x00" + bytes([len(name)]) + name + length(len(value)) + value


def length(number):
    if number < 127:
        return bytes([number])
    number, out = number - 127, [127]
    while 128 <= number:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def http2_request(port, stream, path, body):
    head = b"".join(
        literal(name, value)
        for name, value in [
            (":method", "POST"), (":scheme", "http"), (":authority", f"localhost:{port}"), (":path", path),
            ("content-type", "application/json"),
        ]
    )
    return frame(1, 4, stream, head) + frame(0, 1, stream, body.encode())


def large_file(folder):
    path = folder / "large.txt"
    path.write_text("x" * LARGE_FILE)
    return str(path)


def hold(server, sockets, seconds, reads):
    """Waits, while a well-behaved client asks once a second; `reads` says whether what comes on the sockets is read."""
    statuses = []
    until = time.monotonic() + seconds

    def polite():
        while time.monotonic() < until:
            statuses.append(server.ask())
            time.sleep(0.5)

    client = threading.Thread(target=polite)
    client.start()
    while time.monotonic() < until:
        if not reads:
            time.sleep(0.1)
            continue
        ready, _, _ = select.select(sockets, [], [], 0.1)
        for one in ready:
            try:
                if not one.recv(65536):
                    sockets.remove(one)
            except OSError:
                sockets.remove(one)
    client.join()
    good = sum(status == 200 for status in statuses)
    return good, len(statuses)


@case
def unread_http1(start, folder):
    """100 connections ask for 18 MB each over HTTP/1.1 and read nothing."""
    server = start()
    path = large_file(folder)
    sockets = []
    for _ in range(100):
        one = socket.socket()
        # The kernel buffers little of a response that is not read.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", server.port))
        one.sendall(call(server.port, "read_text_file", {"path": path}))
        sockets.append(one)
    return server, hold(server, sockets, SECONDS, reads=False)


@case
def unread_http2(start, folder):
    """100 streams of one HTTP/2 connection ask for 18 MB each and grant no window."""
    server = start()
    path = large_file(folder)
    one = server.connect()
    one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + frame(4, 1, 0))
    body = json.dumps({"path": path})
    for number in range(100):
        one.sendall(http2_request(server.port, 2 * number + 1, "/tools/read_text_file", body))
    one.setblocking(False)
    return server, hold(server, [one], SECONDS, reads=True)


@case
def unread_small(start, folder):
    """200 HTTP/2 connections with 100 streams each ask for 60 KB each, too little to be counted, and grant no window."""
    server = start()
    path = folder / "small.txt"
    path.write_text("x" * 30_000)
    body = json.dumps({"path": str(path)})
    sockets = []
    for _ in range(200):
        one = server.connect()
        requests = [http2_request(server.port, 2 * number + 1, "/tools/read_text_file", body) for number in range(100)]
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + frame(4, 1, 0)
        try:
            one.sendall(preface + b"".join(requests))
        except OSError:
            # A server that is short of memory closes what it likes.
            continue
        one.setblocking(False)
        sockets.append(one)
    return server, hold(server, sockets, SECONDS, reads=True)


def run(name, told, port):
    with tempfile.TemporaryDirectory(prefix="abuse-") as folder:
        folder = pathlib.Path(folder)
        servers = []

        def start(**settings):
            servers.append(Server(told.server, told.memory, port, folder, **settings))
            return servers[-1]

        try:
            server, (good, asked) = CASES[name](start, folder)
            most = told.memory * TOLERANCE
            fits, lives = server.peak <= most, server.process.poll() is None
            answers = 0 < good
            print(
                f"{'PASS' if fits and lives and answers else 'FAIL'} {name}: from {server.begun / 2**20:.0f} to at most "
                f"{server.peak / 2**20:.0f} MiB, limits.memory_bytes {told.memory / 2**20:.0f} MiB (may be "
                f"{most / 2**20:.0f}); a good client got {good} of {asked} responses",
                flush=True,
            )
            return fits and lives and answers
        finally:
            for server in servers:
                server.close()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    arguments.add_argument("--server", default=str(target / "debug" / "longshore"), help="the program (default: the debug build)")
    arguments.add_argument("--memory", type=int, default=536_870_912, help="limits.memory_bytes")
    arguments.add_argument("--port", type=int, default=0, help="the first port (default: free ones)")
    arguments.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    told = arguments.parse_args()
    if not os.access(told.server, os.X_OK):
        give_up(f"there is no program {told.server}: cargo build, or --server")
    unknown = [name for name in told.cases if name not in CASES]
    if unknown:
        give_up(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    results = [run(name, told, told.port and told.port + at) for at, name in enumerate(told.cases or CASES)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
