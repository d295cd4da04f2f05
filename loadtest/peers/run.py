#!/usr/bin/env python3
"""Longshore beside other MCP servers and gateways, one after the other, in one run.

    loadtest/peers/run.py [--rounds N] [--seconds S] [--only TEXT] [--throughput] [--json FILE] [--write]

Servers: calls for each CPU-second, time to the first response, resident memory, memory of 10,000 idle streams, and a good client beside
1,000 bad ones. Gateways: calls for each CPU-second of the gateway, in front of the same server.

Each server has one tool, `echo`, and one core (`taskset`); the generator has another. They take turns, so what else the machine does
falls on all of them. Every response is checked: a server that responds with anything but the result has no figure. CPU time is that of
the server's or gateway's process alone, so the figure does not depend on how busy the generator is.

Servers are those that their authors publish, at pinned versions, in the form that their documentation gives for production; where it
gives two, both are measured. `--write` puts the tables into docs/performance.md, and the chart into docs/images.

Needs two cores, cargo, Node 22, Python 3.11 with venv, and `taskset`. What cannot be installed is left out, and named. Everything is
installed once, below $LONGSHORE_INTEROP_CACHE (default: longshore-interop in the user's cache folder).
"""

import argparse
import html
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.dont_write_bytecode = True

from clients import beside_bad_clients, idle_streams

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = Path(os.environ.get("LONGSHORE_INTEROP_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longshore-interop")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
WORKLOADS = {"call": "2025-06-18", "call-stateless": "2026-07-28"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "peers", "version": "1"}},
}


def version(file, name):
    """The pinned version of a package in one of the files beside this one."""
    found = re.search(rf'(?m)^\s*"?{re.escape(name)}"?\s*(?:==|: "|= (?:\{{ version = )?"=?)([\d.]+)', (HERE / file).read_text())
    return found[1]


def run(*command, **options):
    subprocess.run([str(part) for part in command], check=True, **options)


def installed(is_built):
    """Builds and installs all servers, but for Longshore if it is built; returns (name, version, mode, command) for each, where the command lacks the port."""
    profile = TARGET / "dist"
    if not is_built:
        run("cargo", "build", "--locked", "--quiet", "--profile", "dist", "-p", "longshore", "-p", "longshore-loadtest", cwd=ROOT)
    own = re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    servers = [("Longshore", own, "", lambda port: [profile / "longshore", "run", "--toolset", "demo", "--host", "127.0.0.1", "--port", port])]

    target = CACHE / "peers-rust"
    run("cargo", "build", "--locked", "--quiet", "--release", "--target-dir", target, cwd=HERE / "rust")
    rust = target / "release"
    servers += [
        ("rmcp", version("rust/Cargo.toml", "rmcp"), mode, lambda port, mode=mode: [rust / "rmcp", port, mode]) for mode in ("session", "stateless")
    ]
    servers += [(name, version("rust/Cargo.toml", name), "", lambda port, name=name: [rust / name, port]) for name in ("turbomcp", "tower-mcp")]

    if shutil.which("npm"):
        folder = CACHE / "peers-npm"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json", "server.mjs"):
            shutil.copy(HERE / "npm" / name, folder)
        run("npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
        name = "@modelcontextprotocol/server"
        servers.append(("TypeScript SDK", version("npm/package.json", name), "", lambda port: ["node", folder / "server.mjs", port]))
    else:
        print("SKIPPED: the TypeScript SDK needs Node and npm", file=sys.stderr)

    python = CACHE / "peers-python" / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", python.parent.parent)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", HERE / "python/requirements.txt")
    for name, package, modes in (("mcp", "mcp", ("session", "stateless")), ("fastmcp", "fastmcp", ("session", "stateless")), ("chuk", "chuk-mcp-server", ("session",))):
        for mode in modes:
            shown = "Python SDK" if package == "mcp" else package
            label = mode if len(modes) > 1 else ""
            servers.append(
                (shown, version("python/requirements.txt", package), label, lambda port, name=name, mode=mode: [python, "-W", "ignore", HERE / "python/peer.py", name, port, mode])
            )
    return servers


def gateways():
    """(name, version, what is behind it, command) of each gateway; the command lacks the port and the URL of the server behind it."""
    longshore = TARGET / "dist" / "longshore"
    demo = [longshore, "run", "--transport", "stdio", "--toolset", "demo"]
    own = re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    folder = CACHE / "peers-gateways"
    folder.mkdir(parents=True, exist_ok=True)

    def config(kind, upstream):
        file = folder / f"{kind}.json"
        file.write_text(json.dumps({"toolsets": [], "upstreams": {"up": {"prefix": ""} | upstream}}))
        return file

    def behind(kind, upstream):
        return lambda port, url: [longshore, "run", "--host", "127.0.0.1", "--port", port, "--config", config(kind, upstream(url))]

    rows = [
        ("Longshore", own, "HTTP", behind("http", lambda url: {"url": url})),
        ("Longshore", own, "program", behind("stdio", lambda url: {"command": str(demo[0]), "args": demo[1:]})),
    ]
    python = CACHE / "peers-python" / "bin" / "python"
    proxy = ROOT / "loadtest/proxies/fastmcp_proxy.py"
    fastmcp = version("python/requirements.txt", "fastmcp")
    rows += [
        ("FastMCP proxy", fastmcp, "HTTP", lambda port, url: [python, "-W", "ignore", proxy, port, "http", url]),
        ("FastMCP proxy", fastmcp, "program", lambda port, url: [python, "-W", "ignore", proxy, port, "stdio", *demo]),
    ]
    bridge = CACHE / "peers-mcp-proxy" / "bin" / "python"
    if not bridge.exists():
        run(sys.executable, "-m", "venv", bridge.parent.parent)
    run(bridge, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", HERE / "python/mcp-proxy.txt")
    rows.append(("mcp-proxy", version("python/mcp-proxy.txt", "mcp-proxy"), "program", lambda port, url: [bridge, "-W", "ignore", "-m", "mcp_proxy", "--host", "127.0.0.1", "--port", port, "--", *demo]))
    if shutil.which("npm"):
        script = CACHE / "peers-npm" / "node_modules/supergateway/dist/index.js"
        command = " ".join(map(str, demo))
        rows.append(("supergateway", version("npm/package.json", "supergateway"), "program", lambda port, url: ["node", script, "--stdio", command, "--outputTransport", "streamableHttp", "--stateful", "--port", port, "--streamableHttpPath", "/mcp", "--logLevel", "none"]))
    return rows


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def first_response(url, until):
    """Waits until a server responds to `initialize`."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    while True:
        try:
            request = urllib.request.Request(url, json.dumps(INITIALIZE).encode(), headers)
            with urllib.request.urlopen(request, timeout=5) as response:
                if response.status == 200 and response.read(1):
                    return
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.002)


def resident(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


class Server:
    def __init__(self, name, version, mode, command):
        self.name, self.version, self.mode = name, version, mode
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.command = command
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("LONGSHORE_", "PORT"))}
        # All clients have one address, whose rate is not measured here.
        environment |= {"LONGSHORE_WORKERS": "1", "LONGSHORE_LIMITS__INITIALIZE_PER_MINUTE": "0"}
        begin = time.monotonic()
        command = ["taskset", "-c", "0", *map(str, command(str(self.port)))]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        first_response(self.url, begin + 60)
        self.start_ms = (time.monotonic() - begin) * 1000
        self.rates = {workload: [] for workload in WORKLOADS}
        self.p99 = {workload: [] for workload in WORKLOADS}
        self.failed = {}
        self.resident = 0
        self.idle = self.bad = None

    def stop(self):
        self.process.kill()
        self.process.wait()

    def measure(self, workload, seconds):
        if workload in self.failed:
            return
        command = ["taskset", "-c", "1", TARGET / "dist" / "longshore-loadtest", "drive", "--url", self.url, "--workload", workload]
        command += ["--seconds", seconds, "--pid", self.process.pid]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            self.failed[workload] = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no output"
            return
        figure = lambda name: float(re.search(rf"^{name}\s+([\d.]+)", done.stdout, re.M)[1])
        if figure("responses/CPU-s") == 0 and seconds < 10:
            # No response within the time: slow, not broken.
            self.measure(workload, 10)
            return
        self.rates[workload].append(figure("responses/CPU-s"))
        self.p99[workload].append(figure("p99 us"))

    def rate(self, workload):
        return statistics.median(self.rates[workload]) if self.rates[workload] and workload not in self.failed else None


def table(servers):
    text = "| Server | Mode | Calls for each CPU-second, 2025-06-18 | 2026-07-28 | Start to first response | Resident after the run |\n|---|---|---:|---:|---:|---:|\n"
    for server in servers:
        cells = []
        for workload in WORKLOADS:
            rate, own = server.rate(workload), servers[0].rate(workload)
            if rate is None:
                cells.append("not served")
            else:
                cells.append(f"{rate:,.0f}" + ("" if server is servers[0] else f" ({rate / own:.3f})"))
        text += f"| {server.name} {server.version} | {server.mode or 'default'} | {' | '.join(cells)} | {server.start_ms:.0f} ms | {server.resident:.0f} MiB |\n"
    return text


def endurance_table(servers):
    text = "| Server | Mode | Each of 10,000 idle streams | p99 of a good client, alone | beside 1,000 bad ones | Its failures | Bad ones disconnected within 20 s |\n|---|---|---:|---:|---:|---:|---:|\n"
    for server in servers:
        if isinstance(server.idle, tuple):
            each, count = server.idle
            idle = f"{each:.1f} KiB" + ("" if count >= 10_000 else f" (of {count:,})")
        else:
            idle = f"none: {server.idle}"
        alone, beside, failures, ended = server.bad
        ms = lambda value: "no response" if value is None else f"{value:.1f} ms"
        text += f"| {server.name} {server.version} | {server.mode or 'default'} | {idle} | {ms(alone)} | {ms(beside)} | {failures} | {ended} |\n"
    return text


def gateway_table(rows):
    text = "| Gateway | Behind it | Calls for each CPU-second of the gateway | Start to first response | Resident after the run |\n|---|---|---:|---:|---:|\n"
    first = {}
    for server in rows:
        rate = server.rate("call")
        own = first.setdefault(server.mode, rate)
        shown = "not served" if rate is None else f"{rate:,.0f}" + ("" if rate == own else f" ({rate / own:.3f})")
        text += f"| {server.name} {server.version} | {server.mode} | {shown} | {server.start_ms:.0f} ms | {server.resident:.0f} MiB |\n"
    return text


def measure_gateways(arguments):
    backend = Server("demo", "", "", lambda port: [TARGET / "dist" / "longshore", "run", "--toolset", "demo", "--host", "127.0.0.1", "--port", port])
    rows = []
    try:
        for name, version, mode, command in gateways():
            try:
                rows.append(Server(name, version, mode, lambda port, command=command: command(port, backend.url)))
                print(f"started {name} {version} {mode}", file=sys.stderr)
            except OSError as error:
                print(f"{name} {version} {mode} does not start: {error}", file=sys.stderr)
        for _ in range(arguments.rounds):
            for server in rows:
                server.measure("call", arguments.seconds)
        for server in rows:
            server.resident = resident(server.process.pid)
            for workload, reason in server.failed.items():
                print(f"{server.name} {server.mode}: {workload}: {reason[:300]}", file=sys.stderr)
    finally:
        for server in [backend, *rows]:
            server.stop()
    return sorted(rows, key=lambda server: server.mode)


def measure_endurance(server):
    """Starts the server anew, so that what the load left behind does not count."""
    for what in ("idle", "bad"):
        fresh = Server(server.name, server.version, server.mode, server.command)
        try:
            if what == "idle":
                server.idle = idle_streams(fresh.port, 10_000, 60, lambda: resident(fresh.process.pid))
            else:
                server.bad = beside_bad_clients(fresh.port, 1_000, 20)
        finally:
            fresh.stop()
    print(f"{server.name} {server.mode}: {server.idle}, {server.bad}", file=sys.stderr)


def chart(servers, dark):
    """Bars of the faster mode of each server."""
    best = {}
    for server in servers:
        rate = server.rate("call")
        if rate and rate > best.get(server.name, (0, ""))[0]:
            best[server.name] = (rate, server.version)
    rows = sorted(best.items(), key=lambda row: -row[1][0])
    ink, faint, own, other = ("#e6edf3", "#8b949e", "#3fb950", "#58a6ff") if dark else ("#1f2328", "#59636e", "#1a7f37", "#0969da")
    width, left, bar, gap, top = 760, 230, 22, 12, 56
    height = top + len(rows) * (bar + gap) + 24
    largest = rows[0][1][0]
    text = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
    text += 'font-family="system-ui, sans-serif" font-size="14" aria-label="Calls for each CPU-second, by server">\n'
    text += f'<text x="0" y="18" fill="{ink}" font-size="16" font-weight="600">Calls of one tool for each CPU-second</text>\n'
    text += f'<text x="0" y="38" fill="{faint}" font-size="12">one core each, in turns, every response checked; loadtest/peers/run.py</text>\n'
    for i, (name, (rate, version)) in enumerate(rows):
        y = top + i * (bar + gap)
        length = max(2, (width - left - 90) * rate / largest)
        text += f'<text x="{left - 10}" y="{y + 16}" fill="{ink}" text-anchor="end">{html.escape(name)} {version}</text>\n'
        text += f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar}" rx="3" fill="{own if name == "Longshore" else other}"/>\n'
        text += f'<text x="{left + length + 8:.1f}" y="{y + 16}" fill="{ink}">{rate:,.0f}</text>\n'
    return text + "</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--built", action="store_true", help="use the programs in the folder of the profile dist as they are")
    parser.add_argument("--throughput", action="store_true", help="only throughput of servers, not idle streams, bad clients and gateways")
    parser.add_argument("--json")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    servers = []
    try:
        for name, version, mode, command in installed(arguments.built):
            if name == "Longshore" or arguments.only in f"{name} {mode}":
                servers.append(Server(name, version, mode, command))
                print(f"started {name} {version} {mode}", file=sys.stderr)
        for round in range(arguments.rounds):
            for workload in WORKLOADS:
                for server in servers:
                    server.measure(workload, arguments.seconds)
            print(f"round {round + 1} of {arguments.rounds}", file=sys.stderr)
        for server in servers:
            server.resident = resident(server.process.pid)
    finally:
        for server in servers:
            server.stop()
    fronts = []
    if not arguments.throughput:
        for server in servers:
            measure_endurance(server)
        fronts = [] if arguments.only else measure_gateways(arguments)
    for server in servers:
        for workload, reason in server.failed.items():
            print(f"{server.name} {server.mode}: {workload}: {reason[:300]}", file=sys.stderr)
    tables = {"peers": table(servers)}
    if not arguments.throughput:
        tables |= {"endurance": endurance_table(servers), "gateways": gateway_table(fronts)}
    print("\n".join(tables.values()))
    if arguments.json:
        keys = ("name", "version", "mode", "rates", "p99", "failed", "idle", "bad", "start_ms", "resident")
        rows = [{key: getattr(server, key) for key in keys} for server in servers + fronts]
        Path(arguments.json).write_text(json.dumps(rows, indent=1))
    if arguments.write:
        page = ROOT / "docs/performance.md"
        text = page.read_text()
        for name, made in tables.items():
            begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
            text = text[: text.index(begin) + len(begin)] + "\n" + made + "\n" + text[text.index(end) :]
        page.write_text(text)
        for name, dark in (("peers-light.svg", False), ("peers-dark.svg", True)):
            (ROOT / "docs/images" / name).write_text(chart(servers, dark))


main()
