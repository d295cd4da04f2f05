#!/usr/bin/env python3
"""What bad upstreams do to their neighbours, whether anything is left of them, and what many upstreams cost.

  loadtest/neighbours/run.py [--server PATH] [--seconds N] [--rounds N] [--connections N] [--many N] [PART...]

  --server PATH     the longshore to start (default: target/dist/longshore)
  --seconds N       how long each measurement takes (default: 4)
  --rounds N        of how many the median is taken (default: 5)
  --connections N   connections at once (default: 8)
  --many N          upstreams in the last part, of which ten are used (default: 200)
  PART              only these of: neighbours processes many

neighbours: two servers with the same two upstreams, a program and a URL. The second has nine more: one that hangs, one that
crashes in a loop, one that writes garbage, one that writes an endless line, each from the start and when it is called, and
one that does not exist; all of them are called all the time. Calls to the first two are measured in turn on both servers. The p99
with bad neighbours may be the larger of twice the other and 50 ms more.

processes: a program is killed, a call of one that hangs is cancelled, a command with children is cancelled, the configuration is
reloaded, and at last the server is told to stop. Nothing may be left, and what was killed is there again for the next call.

many: start-up time and memory with many upstreams, first when nothing is known of them, then when it is remembered. Ten are
called then; no others may be connected.

Prints PASS or FAIL for each bound. Linux; needs Node 20.11 for the first part.
"""

import argparse
import http.client
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MARK = "NEIGHBOURS_MARK"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "neighbours", "version": "1"},
}
results = {"PASS": 0, "FAIL": 0, "SKIP": 0}


def report(ok, what, figures=""):
    word = {True: "PASS", False: "FAIL", None: "SKIP"}[ok]
    results[word] += 1
    print(f"{word} {what}{': ' + figures if figures else ''}", flush=True)


def until(condition, seconds=10.0):
    """Whether something has become true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


class Server:
    def __init__(self, program, folder, config):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.file = self.folder / "longshore.json"
        self.file.write_text(json.dumps(config))
        self.log = open(self.folder / "log", "w+")
        keep = {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_") and name != "PORT"}
        command = [program, "run", "--host", "127.0.0.1", "--port", "0", "--config", str(self.file)]
        begun = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=keep)
        self.port = None
        while self.port is None and self.process.poll() is None and time.monotonic() < begun + 120:
            found = re.search(r"127\.0\.0\.1:(\d+)", (self.folder / "log").read_text())
            self.port = int(found[1]) if found else None
            time.sleep(0.005)
        self.ready_after = time.monotonic() - begun
        if self.port is None:
            self.stop()
            raise SystemExit("run.py: the server does not start:\n" + (self.folder / "log").read_text()[-3000:])

    def memory(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def health(self):
        return json.loads(self.get("/health"))

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", path)
        text = connection.getresponse().read()
        connection.close()
        return text

    def ask(self, method, params, timeout=30.0):
        """The answer to a request on a connection of its own; none if there is none in time, which cancels it."""
        headers = {
            "content-type": "application/json", "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28", "mcp-method": method,
        }
        if "name" in params:
            headers["mcp-name"] = params["name"]
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", "/mcp", body, headers)
            text = connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        if text.startswith(("event:", "data:", ":", "id:", "retry:")):
            text = [line[6:] for line in text.splitlines() if line.startswith("data: ")][-1]
        return json.loads(text)

    def call(self, name, arguments=None, timeout=30.0):
        return self.ask("tools/call", {"name": name, "arguments": arguments or {}}, timeout)

    def echoes(self, name):
        answer = self.call(name, {"message": "hello"})
        return bool(answer) and not answer.get("result", {}).get("isError") and "hello" in json.dumps(answer.get("result"))

    def tools(self):
        names, cursor = [], None
        while True:
            result = self.ask("tools/list", {"cursor": cursor} if cursor else {})["result"]
            names += [tool["name"] for tool in result["tools"]]
            cursor = result.get("nextCursor")
            if not cursor:
                return names

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def marked(mark):
    """Processes that have a mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def zombies_of(parent):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if state[0] == "Z" and int(state[1]) == parent:
                found.append(int(entry.name))
    return found


def demo(program, mark, **more):
    return {"command": program, "args": ["run", "--transport", "stdio", "--toolset", "demo"], "env": {MARK: mark}, **more}


def bad(how, mark, *when):
    return {"command": sys.executable, "args": [str(HERE / "bad.py"), how, *when], "env": {MARK: mark}}


def neighbours(options, scratch):
    if shutil.which("node") is None:
        return report(None, "neighbours", "Node is not installed")
    direct = Server(options.server, scratch / "direct", {"toolsets": ["demo"]})
    good = {
        "program": demo(options.server, "neighbours", prefix=""),
        "url": {"url": f"http://127.0.0.1:{direct.port}/mcp"},
    }
    wrong = {"missing": {"command": "/nonexistent/program"}}
    for how in ("hang", "crash", "garbage", "endless"):
        wrong[how] = bad(how, "neighbours")
        wrong[f"{how}_called"] = bad(how, "neighbours", "called")
    for upstream in wrong.values():
        upstream |= {"timeout_seconds": 2, "connect_seconds": 2}
    quiet = Server(options.server, scratch / "quiet", {"toolsets": [], "upstreams": good})
    crowded = Server(options.server, scratch / "crowded", {"toolsets": [], "upstreams": {**good, **wrong}})
    print(f"ready after {quiet.ready_after:.2f} s alone, {crowded.ready_after:.2f} s with bad neighbours")
    names = crowded.tools()
    callable_ones = [f"{name}__go" for name in wrong if f"{name}__go" in names]
    report(len(callable_ones) == 4 and "echo" in names, "what can be listed is", ", ".join(callable_ones))
    over, calls = threading.Event(), [0]

    def pester(name):
        while not over.is_set():
            crowded.call(name, timeout=3)
            calls[0] += 1
            time.sleep(0.02)

    figures = {}
    try:
        for _ in range(options.rounds):
            for label, server in (("quiet", quiet), ("crowded", crowded)):
                over.clear()
                pests = [threading.Thread(target=pester, args=(name,)) for name in callable_ones] if label == "crowded" else []
                for pest in pests:
                    pest.start()
                drive = ["node", str(ROOT / "loadtest/proxies/drive.mjs"), f"http://127.0.0.1:{server.port}/mcp"]
                drive += [str(options.connections), str(options.seconds)]
                text = subprocess.run(drive, capture_output=True, text=True, check=True).stdout
                over.set()
                for pest in pests:
                    pest.join()
                figures.setdefault(label, []).append(json.loads(text))
        of = lambda label, what: statistics.median(figure[what] for figure in figures[label])
        calm, disturbed = of("quiet", "p99"), of("crowded", "p99")
        bound = max(2 * calm, calm + 50)
        report(
            disturbed <= bound, "calls to good neighbours keep their p99",
            f"{disturbed:.2f} ms beside bad ones, {calm:.2f} ms alone, at most {bound:.2f} ms; p50 {of('crowded', 'p50'):.2f} and "
            f"{of('quiet', 'p50'):.2f} ms; {of('crowded', 'rate'):.0f} and {of('quiet', 'rate'):.0f} calls/s; {calls[0]} calls of bad ones",
        )
        report(crowded.echoes("url__echo"), "the upstream that is a URL answers too")
        print(f"memory: {quiet.memory():.0f} MiB alone, {crowded.memory():.0f} MiB with bad neighbours")
    finally:
        over.set()
        for server in (quiet, crowded, direct):
            server.stop()
    report(until(lambda: not marked("neighbours"), 5), "nothing is left of any upstream after SIGTERM", str(marked("neighbours") or ""))


def processes(options, scratch):
    mark = f"processes-{os.getpid()}"
    sleep = f"{90000 + os.getpid()}.25"
    config = {
        "toolsets": [],
        "upstreams": {
            "good": demo(options.server, mark),
            "hang": bad("hang", mark, "called"),
            "wrapped": {"command": "sh", "args": ["-c", f'"{options.server}" run --transport stdio --toolset demo; :'], "env": {MARK: mark}},
        },
        "sources": [{
            "name": "commands",
            "command": {"tools": [{
                "name": "family", "description": "Has children and grandchildren.", "arguments": {},
                "argv": ["sh", "-c", f"(setsid sleep {sleep} & sleep {sleep} & sh -c 'sleep {sleep}; :'); wait"],
            }]},
        }],
    }
    server = Server(options.server, scratch / "processes", config)

    def sleepers():
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if (entry / "cmdline").read_bytes() == f"sleep\0{sleep}\0".encode():
                        found.append(int(entry.name))
                except OSError:
                    pass
        return found

    try:
        report(server.echoes("good__echo") and server.echoes("wrapped__echo"), "both upstreams answer")
        before = marked(mark)
        child = next(pid for pid in before if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(options.server.encode()) and
                     int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == server.process.pid)
        os.kill(child, signal.SIGKILL)
        report(until(lambda: not is_alive(child)) and until(lambda: server.echoes("good__echo"), 20), "kill -9 of a child: the next call is answered")
        report(until(lambda: not zombies_of(server.process.pid)), "kill -9 of a child: no zombie stays", str(zombies_of(server.process.pid) or ""))
        shell = next((pid for pid in marked(mark) if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sh\0")), None)
        grandchildren = [pid for pid in marked(mark) if shell and int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == shell]
        if shell:
            os.kill(shell, signal.SIGKILL)
        report(
            bool(grandchildren) and until(lambda: not any(map(is_alive, grandchildren)), 15) and until(lambda: server.echoes("wrapped__echo"), 20),
            "kill -9 of a shell around an upstream: its child goes too, and the next call is answered",
        )
        server.call("hang__go", timeout=1)
        report(server.echoes("good__echo"), "a call that hangs is cancelled: others are answered")
        waiting = threading.Thread(target=server.call, args=("family", {}, 3))
        waiting.start()
        started = until(lambda: 2 <= len(sleepers()), 3)
        waiting.join()
        report(started and until(lambda: not sleepers(), 5), "a command that is cancelled leaves no child", str(sleepers() or ""))
        before = sorted(marked(mark))
        config["sources"][0]["command"]["tools"][0]["description"] = "Has children and grandchildren, as before."
        server.file.write_text(json.dumps(config))
        server.process.send_signal(signal.SIGHUP)
        taken = until(lambda: "as before" in json.dumps(server.ask("tools/list", {})), 20)
        report(
            taken and server.echoes("good__echo") and server.echoes("wrapped__echo") and sorted(marked(mark)) == before,
            "a reload neither starts nor leaves programs", f"{len(before)} before, {len(marked(mark))} after",
        )
        waiting = threading.Thread(target=server.call, args=("family", {}, 60))
        waiting.start()
        until(lambda: 2 <= len(sleepers()), 3)
    finally:
        begun = time.monotonic()
        server.stop()
    report(server.process.returncode == 0, "SIGTERM: it ends by itself", f"after {time.monotonic() - begun:.1f} s with a command under way")
    report(until(lambda: not marked(mark) and not sleepers(), 3), "SIGTERM: nothing is left", str((marked(mark) + sleepers()) or ""))


def many(options, scratch):
    mark = f"many-{os.getpid()}"
    folder = scratch / "listings"
    folder.mkdir()
    upstreams = {f"up{number:03}": demo(options.server, mark) for number in range(options.many)}
    config = {"toolsets": [], "upstreams": upstreams, "upstreams_folder": str(folder)}
    alone = Server(options.server, scratch / "alone", {"toolsets": ["demo"]})
    nothing = alone.memory(), alone.ready_after
    alone.stop()
    first = Server(options.server, scratch / "first", config)
    known = lambda: len(list(folder.iterdir()))
    until(lambda: options.many <= known(), 120)
    tools = len(first.tools())
    print(f"{options.many} upstreams, nothing known: ready after {first.ready_after:.1f} s, {first.memory():.0f} MiB, {known()} remembered, {tools} tools")
    first.stop()
    report(until(lambda: not marked(mark), 10), "nothing is left of them after SIGTERM", str(len(marked(mark)) or ""))
    again = Server(options.server, scratch / "again", config)
    try:
        at_start = again.memory()
        tools = len(again.tools())
        time.sleep(2)
        report(not marked(mark), "remembered: listing them connects none", f"{len(marked(mark))} programs run")
        for number in range(10):
            if not again.echoes(f"up{number * 17:03}__echo"):
                report(False, f"up{number * 17:03} is called")
        report(len(marked(mark)) == 10, "remembered: ten are called, and no others connected", f"{len(marked(mark))} programs run")
        print(
            f"{options.many} upstreams, remembered: ready after {again.ready_after * 1000:.0f} ms ({nothing[1] * 1000:.0f} ms with none), {at_start:.0f} MiB "
            f"({nothing[0]:.0f} MiB with none), {again.memory():.0f} MiB after ten were called, {tools} tools"
        )
    finally:
        again.stop()
    report(until(lambda: not marked(mark), 5), "nothing is left of the ten")


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--help", "-h", action="store_true")
    target = os.environ.get("CARGO_TARGET_DIR") or str(ROOT / "target")
    parser.add_argument("--server", default=os.path.join(target, "dist", "longshore"))
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--many", type=int, default=200)
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    if options.help:
        print(__doc__.strip())
        return 0
    parts = {"neighbours": neighbours, "processes": processes, "many": many}
    unknown = [part for part in options.parts if part not in parts]
    if unknown or not os.access(options.server, os.X_OK) or options.many < 160:
        what = f"no part {unknown[0]}" if unknown else f"cannot run {options.server}; build it, or name another with --server"
        print(f"run.py: {what if options.many >= 160 else '--many is at least 160'}", file=sys.stderr)
        return 2
    options.server = str(Path(options.server).resolve())
    with tempfile.TemporaryDirectory(prefix="longshore-neighbours.") as scratch:
        for name, part in parts.items():
            if not options.parts or name in options.parts:
                part(options, Path(scratch))
    print(f"{results['PASS']} passed, {results['FAIL']} failed, {results['SKIP']} skipped")
    return 1 if results["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
