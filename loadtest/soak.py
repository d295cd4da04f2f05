#!/usr/bin/env python3
"""One hour of mixed load on three replicas that are reloaded, restarted and killed, and whose keys are rotated.

    loadtest/soak.py [--server PATH] [--minutes N] [--clients N] [--rate N] [--write]

Three replicas share a Redis server and the seal keys. Clients of both lifecycles do what loadtest/mixed.py does, at a bounded
rate, each step at a replica that is ready, as a load balancer would choose. Meanwhile:

- every minute the configuration of all replicas changes, and is reloaded
- every two minutes the clients get a new API key, and a minute later the old one is removed
- every four minutes the replicas restart one after the other, each with the next step of a rotation of the seal keys
  (add, move to the front, remove)
- every ten minutes one replica is killed (SIGKILL) and started again
- one request in a hundred is malformed

Prints calls, errors, resident memory, open files and latency. An error that no restart explains ends in exit status 1, and so does
growth of memory or open files between the end of the first quarter and the end. `--write` puts the table into docs/trust.md and the
plots into docs/images.

Needs Linux, `redis-server`, and nothing but Python.
"""

import argparse
import collections
import datetime
import http.client
import json
import os
import pathlib
import platform
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

# Imports leave nothing behind in the folder.
sys.dont_write_bytecode = True

import mixed

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1024 * 1024
REPLICAS = 3
COLORS = ("#0969da", "#1a7f37", "#bf8700")
DARK_COLORS = ("#58a6ff", "#3fb950", "#d29922")


def give_up(why):
    print(f"soak.py: {why}", file=sys.stderr)
    sys.exit(2)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Keys:
    """The seal keys and API keys in force. Both are rotated in steps."""

    def __init__(self):
        self.seal = [os.urandom(24).hex()]
        self.step = 0
        self.api = [os.urandom(24).hex()]
        self.rotations = collections.Counter()

    def next_seal(self):
        self.step += 1
        if self.step % 3 == 1:
            self.seal.append(os.urandom(24).hex())
        elif self.step % 3 == 2:
            self.seal.reverse()
        else:
            self.seal.pop()
            self.rotations["seal"] += 1


class Replica:
    def __init__(self, number, soak):
        self.number, self.soak = number, soak
        self.port, self.admin = free_port(), free_port()
        self.folder = soak.folder / f"replica-{number}"
        self.folder.mkdir()
        self.generation = 0
        self.process = None
        self.ready = False
        # Times between which an error at this replica has an explanation.
        self.outages = []

    def write(self):
        """The configuration. Each generation has another tool, so that a reload changes what is listed."""
        self.generation += 1
        text = json.dumps({
            "http": {"host": "127.0.0.1", "port": self.port, "workers": 1, "admin": {"port": self.admin}},
            "auth": {"api_keys_file": str(self.soak.keys_file)},
            "seal": {"keys": self.soak.keys.seal},
            "state": {"url": self.soak.redis, "timeout_ms": 2000},
            "limits": {"initialize_per_minute": 0},
            "server": {
                "tasks": {"ttl_seconds": 20, "per_principal": 1000},
                "streams": {"replay_seconds": 30},
            },
            "drain": {"delay_seconds": 1, "grace_seconds": 20},
            "sources": [{"name": "soak", "http": {"base_url": "https://api.example.com", "tools": [
                {"name": f"generation_{self.generation}", "description": "A tool that comes and goes.", "url": "/"},
            ]}}],
        })
        file = self.folder / "longshore.json"
        temporary = file.with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(file)
        return file

    def start(self):
        file = self.write()
        log = open(self.folder / "log", "ab")
        environment = {"PATH": os.environ.get("PATH", ""), "LONGSHORE_LOG": "warn"}
        command = [self.soak.server, "run", "--config", str(file), "--toolset", "everything"]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.process.poll() is not None:
                give_up(f"replica {self.number} does not start: {(self.folder / 'log').read_text()[-800:]}")
            if self.answers("/readyz"):
                self.ready = True
                return
            time.sleep(0.05)
        give_up(f"replica {self.number} is not ready after a minute")

    def answers(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def restart(self, how):
        begin = time.monotonic()
        self.ready = False
        if how == signal.SIGTERM:
            # As a load balancer that needs a moment to learn of it. Steps that have begun end meanwhile.
            time.sleep(0.5)
        self.process.send_signal(how)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.soak.problems.append(f"replica {self.number} did not end within a minute of SIGTERM")
            self.process.kill()
            code = self.process.wait()
        if how == signal.SIGTERM and code != 0:
            self.soak.problems.append(f"replica {self.number} ended with status {code} after SIGTERM")
        self.start()
        self.outages.append((begin, time.monotonic(), how))

    def sample(self):
        try:
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
            rss = next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
            files = len(os.listdir(f"/proc/{self.process.pid}/fd"))
            return rss, files
        except (OSError, StopIteration):
            return None


class Client(mixed.Client):
    """A client that uses a ready replica for each step, and the newest API key."""

    def __init__(self, soak, seed, counts):
        super().__init__(0, seed, counts)
        self.soak, self.seed = soak, seed
        self.replica = None

    def choose(self):
        ready = [replica for replica in self.soak.replicas if replica.ready]
        replica = self.random.choice(ready or self.soak.replicas)
        if replica is not self.replica:
            self.close()
            self.replica, self.port = replica, replica.port

    def send(self, method, message=None, headers=()):
        headers = dict(headers) | {"authorization": f"Bearer {self.soak.keys.api[-1]}-{self.seed}"}
        begin = time.perf_counter()
        sent = super().send(method, message, headers)
        params = (message or {}).get("params") or {}
        if params.get("name") == "echo":
            self.soak.latencies.append((time.perf_counter() - begin) * 1000)
        return sent


class Soak:
    def __init__(self, told, folder):
        self.folder = pathlib.Path(folder)
        self.server = told.server
        self.clients = told.clients
        self.keys = Keys()
        self.keys_file = self.folder / "keys"
        self.write_keys()
        self.latencies = []
        self.problems = []
        self.events = []
        self.counts = collections.Counter()
        self.errors, self.explained = [], collections.Counter()
        port = free_port()
        self.redis = f"redis://127.0.0.1:{port}"
        command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        self.store = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.replicas = [Replica(number, self) for number in range(REPLICAS)]

    def write_keys(self):
        temporary = self.keys_file.with_suffix(".new")
        # Each client is a principal.
        lines = [f"client-{seed} {key}-{seed}\n" for seed in range(self.clients) for key in self.keys.api]
        temporary.write_text("".join(lines))
        temporary.chmod(0o600)
        temporary.replace(self.keys_file)

    def note(self, begin, what):
        self.events.append((time.monotonic() - begin, what))

    def explains(self, replica, start, end):
        """The restart during which a step at a replica ran, if there was one."""
        now = [(0, time.monotonic(), None)] if replica is not None and not replica.ready else []
        for begin, until, how in (replica.outages if replica else []) + now:
            if start <= until + 1 and begin - 1 <= end:
                return {signal.SIGKILL: "at a replica that was killed", signal.SIGTERM: "at a replica that was stopped"}.get(how, "at a replica that was restarting")
        return None

    def run(self, client, stop, pause):
        while not stop.is_set():
            client.choose()
            start = time.monotonic()
            try:
                client.step()
            except mixed.Unexpected as error:
                if stop.is_set():
                    return
                # A kill is known a moment later than its effect.
                time.sleep(1)
                explanation = self.explains(client.replica, start, time.monotonic())
                # What waits for a message of another replica fails if that one was killed.
                if explanation is None and any(
                    how == signal.SIGKILL and start <= until + 2 and begin - 1 <= time.monotonic()
                    for replica in self.replicas for begin, until, how in replica.outages
                ):
                    explanation = "while another replica was killed"
                if explanation:
                    self.explained[explanation] += 1
                else:
                    self.errors.append((time.monotonic(), client.replica.number, str(error)))
            stop.wait(pause * client.random.uniform(0.5, 1.5))


HOSTILE = [
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 40\r\n\r\n{",
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n" + b"[" * 9,
    b"GET /mcp HTTP/1.1\r\nhost: evil.example\r\norigin: https://evil.example\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    bytes(range(256)),
    b"",
]


def be_hostile(soak, stop, rate):
    """Malformed requests, each on a connection of its own, at a rate per second."""
    chooser = random.Random(7)
    while not stop.wait(1 / rate):
        replica = chooser.choice(soak.replicas)
        try:
            with socket.create_connection(("127.0.0.1", replica.port), timeout=2) as connection:
                connection.sendall(chooser.choice(HOSTILE))
                connection.settimeout(0.2)
                connection.recv(4096)
        except OSError:
            pass
        soak.counts["malformed"] += 1


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else None


def plot(title, unit, series, events, minutes, dark):
    """One line chart: series are (label, [(minute, value)])."""
    ink, faint, grid = ("#e6edf3", "#8b949e", "#30363d") if dark else ("#1f2328", "#59636e", "#d1d9e0")
    colors = DARK_COLORS if dark else COLORS
    width, height, left, right, top, bottom = 760, 200, 56, 16, 34, 24
    values = [value for _, points in series for _, value in points if value is not None]
    largest = max(values, default=1) * 1.1
    x = lambda minute: left + (width - left - right) * minute / minutes
    y = lambda value: height - bottom - (height - top - bottom) * value / largest
    text = f'<text x="0" y="16" fill="{ink}" font-weight="600">{title}</text>\n'
    for step in range(5):
        value = largest * step / 4
        text += f'<line x1="{left}" x2="{width - right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{grid}"/>'
        text += f'<text x="{left - 6}" y="{y(value) + 4:.1f}" fill="{faint}" font-size="11" text-anchor="end">{value:.3g}{unit if step == 4 else ""}</text>\n'
    for minute in range(0, int(minutes) + 1, max(1, int(minutes) // 6)):
        text += f'<text x="{x(minute):.1f}" y="{height - 6}" fill="{faint}" font-size="11" text-anchor="middle">{minute} min</text>\n'
    for at, what in events:
        if what == "kill":
            text += f'<line x1="{x(at / 60):.1f}" x2="{x(at / 60):.1f}" y1="{top}" y2="{height - bottom}" stroke="{faint}" stroke-dasharray="2 3"/>\n'
    for index, (label, points) in enumerate(series):
        path, is_open = "", False
        for minute, value in points:
            if value is None:
                is_open = False
                continue
            path += f'{"L" if is_open else "M"}{x(minute):.1f} {y(value):.1f}'
            is_open = True
        text += f'<path d="{path}" fill="none" stroke="{colors[index]}" stroke-width="1.5"/>\n'
        text += f'<text x="{width - right - 110 * (len(series) - index)}" y="16" fill="{colors[index]}" font-size="12">{label}</text>\n'
    return text, height


def chart(samples, latency, soak, minutes, dark):
    memory = [(f"replica {n + 1}", [(at / 60, one[n][0] if one[n] else None) for at, one in samples]) for n in range(REPLICAS)]
    files = [(f"replica {n + 1}", [(at / 60, one[n][1] if one[n] else None) for at, one in samples]) for n in range(REPLICAS)]
    times = [("p50", [(at / 60, p50) for at, p50, _ in latency]), ("p99", [(at / 60, p99) for at, _, p99 in latency])]
    parts, total = "", 0
    for title, unit, series in (("Resident memory", " MiB", memory), ("Open files", "", files), ("Latency of echo, for each minute", " ms", times)):
        text, height = plot(title, unit, series, soak.events, minutes, dark)
        parts += f'<g transform="translate(0 {total})">\n{text}</g>\n'
        total += height + 16
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="784" height="{total}" viewBox="0 0 784 {total}" role="img" font-family="system-ui, sans-serif" font-size="14" '
    return head + 'aria-label="Memory, open files and latency during the soak">\n' + parts + "</svg>\n"


def drive(told, soak, begin, length):
    """Changes, restarts and kills until the time is over; takes samples meanwhile."""
    samples, latency, stop = [], [], threading.Event()
    clients = [Client(soak, seed, soak.counts) for seed in range(told.clients)]
    # A step is about ten calls.
    pause = told.clients * 8 / told.rate
    threads = [threading.Thread(target=soak.run, args=(client, stop, pause), daemon=True) for client in clients]
    for thread in threads:
        thread.start()

    def operate():
        minute, chooser = 0, random.Random(1)
        while not stop.wait(max(0.0, begin + (minute + 1) * 60 - time.monotonic())):
            minute += 1
            if minute * 60 >= length - 30:
                return
            for replica in soak.replicas:
                replica.write()
            soak.note(begin, "reload")
            if minute % 2 == 0:
                # Clients use the last key, so the new one becomes the last once the replicas have read it.
                soak.keys.api.insert(0, os.urandom(24).hex())
                soak.write_keys()
                time.sleep(12)
                soak.keys.api.append(soak.keys.api.pop(0))
            elif len(soak.keys.api) > 1:
                soak.keys.api.pop(0)
                soak.write_keys()
                soak.keys.rotations["api"] += 1
            if minute % 4 == 3:
                soak.keys.next_seal()
                for replica in soak.replicas:
                    replica.restart(signal.SIGTERM)
                soak.note(begin, "restart")
            if minute % 10 == 5:
                chooser.choice(soak.replicas).restart(signal.SIGKILL)
                soak.note(begin, "kill")

    threading.Thread(target=be_hostile, args=(soak, stop, told.rate / 100), daemon=True).start()
    operator = threading.Thread(target=operate, daemon=True)
    operator.start()
    minute, shown = [], 0
    print(f"{'minute':>7} {'calls':>9} {'errors':>7} {'explained':>10} {'MiB':>18} {'files':>14} {'p50 ms':>7} {'p99 ms':>7}")
    while time.monotonic() - begin < length:
        time.sleep(5)
        at = time.monotonic() - begin
        samples.append((at, [replica.sample() for replica in soak.replicas]))
        taken, soak.latencies = soak.latencies, []
        minute += taken
        if at // 60 > shown:
            shown = at // 60
            latency.append((at, percentile(minute, 0.5), percentile(minute, 0.99)))
            minute = []
            last = [one or (0, 0) for one in samples[-1][1]]
            print(
                f"{at / 60:7.1f} {soak.counts['calls']:9} {len(soak.errors):7} {sum(soak.explained.values()):10} "
                f"{' '.join(f'{rss:5.1f}' for rss, _ in last):>18} {' '.join(f'{files:4}' for _, files in last):>14} "
                f"{latency[-1][1] or 0:7.2f} {latency[-1][2] or 0:7.2f}", flush=True,
            )
    stop.set()
    for thread in threads:
        thread.join(mixed.PATIENCE)
    operator.join(90)
    return samples, latency


def growth(samples, index, length):
    """The median over the replicas of each sample; its median in the second quarter, and in the last."""
    def median(low, high):
        values = [statistics.median([one[index] for one in row if one]) for at, row in samples if low <= at < high and any(row)]
        return statistics.median(values) if values else 0
    return median(length / 4, length / 2), median(length * 3 / 4, length + 60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--server", default=str(target / "dist" / "longshore"), help="the program (default: the build with --profile dist)")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--rate", type=float, default=400, help="requests per second, about")
    parser.add_argument("--within-mib", type=float, default=10, help="how much the median of resident memory may grow")
    parser.add_argument("--within-files", type=float, default=20, help="by how many the median of open files may grow")
    parser.add_argument("--write", action="store_true", help="put the table into docs/trust.md and the plots into docs/images")
    told = parser.parse_args()
    if not os.access(told.server, os.X_OK):
        give_up(f"there is no program {told.server}: cargo build --profile dist, or --server")
    if not shutil.which("redis-server"):
        give_up("there is no redis-server: apt-get install redis-server")
    length = told.minutes * 60
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(told, folder)
        try:
            for replica in soak.replicas:
                replica.start()
            begin = time.monotonic()
            samples, latency = drive(told, soak, begin, length)
            warnings = collections.Counter()
            for replica in soak.replicas:
                for line in (replica.folder / "log").read_text(errors="replace").splitlines():
                    if "panicked" in line:
                        soak.problems.append(f"replica {replica.number}: {line[:300]}")
                    if '"ERROR"' in line and "on purpose" not in line:
                        warnings[line[:160].split(" ", 1)[-1]] += 1
        finally:
            for replica in soak.replicas:
                if replica.process and replica.process.poll() is None:
                    replica.process.kill()
                    replica.process.wait()
            soak.store.kill()
            soak.store.wait()
    what = collections.Counter(what for _, what in soak.events)
    memory, files = growth(samples, 0, length), growth(samples, 1, length)
    p50 = statistics.median(one[1] for one in latency if one[1])
    p99 = statistics.median(one[2] for one in latency if one[2])
    done = collections.Counter(soak.counts)
    rows = [
        ("Length, replicas, clients", f"{told.minutes:g} min, {REPLICAS}, {told.clients}"),
        ("Requests; malformed requests besides", f"{done['calls']:,}; {done['malformed']:,}"),
        ("Errors without an explanation", f"{len(soak.errors)}"),
        ("Errors at a replica that was stopped, killed or restarting", ", ".join(f"{count} {name}" for name, count in sorted(soak.explained.items())) or "0"),
        ("Reloads; rolling restarts; kills", f"{what['reload']} of each replica; {what['restart']}; {what['kill']}"),
        ("Rotations of seal keys; of API keys", f"{soak.keys.rotations['seal']}; {soak.keys.rotations['api']}"),
        ("Resident memory, median of the replicas: second quarter, last quarter", f"{memory[0]:.1f} MiB, {memory[1]:.1f} MiB"),
        ("Open files, likewise", f"{files[0]:.0f}, {files[1]:.0f}"),
        ("Latency of `echo`, median of the minutes: p50, p99", f"{p50:.2f} ms, {p99:.2f} ms (clients, Redis and replicas share the machine)"),
    ]
    table = "| What | Figure |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows)
    print(table)
    for (_, number, error), in [(one,) for one in soak.errors[:10]]:
        print(f"error at replica {number}: {error}", file=sys.stderr)
    for line, times in warnings.most_common(5):
        print(f"{times} times in the log: {line}")
    if soak.errors:
        soak.problems.append(f"{len(soak.errors)} errors that no restart explains")
    if memory[1] - memory[0] > told.within_mib:
        soak.problems.append(f"resident memory grew by {memory[1] - memory[0]:.1f} MiB; {told.within_mib:g} are allowed")
    if files[1] - files[0] > told.within_files:
        soak.problems.append(f"open files grew by {files[1] - files[0]:.0f}; {told.within_files:g} are allowed")
    for problem in soak.problems:
        print(f"soak.py: {problem}", file=sys.stderr)
    if told.write and not soak.problems:
        day = datetime.date.today().isoformat()
        page = ROOT / "docs/trust.md"
        text = page.read_text()
        head, tail = "<!-- soak -->\n", "<!-- end of soak -->"
        made = f"\nRun on {day}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}:\n\n{table}\n"
        page.write_text(text[: text.index(head) + len(head)] + made + text[text.index(tail):])
        for name, dark in (("soak-light.svg", False), ("soak-dark.svg", True)):
            (ROOT / "docs/images" / name).write_text(chart(samples, latency, soak, told.minutes, dark))
    return 1 if soak.problems else 0


if __name__ == "__main__":
    sys.exit(main())
