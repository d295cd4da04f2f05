#!/usr/bin/env python3
"""Restarts three replicas behind nginx while the official client of each lifecycle calls them, and counts what is lost.

    interop/rolling/run.py [--server PATH] [--clients N] [--write]

Starts a Redis server, three replicas that share it and a sealing key, and nginx in front of them, round robin and
without affinity. While the clients call, each replica in turn is told to stop (SIGTERM) and started again; then one is
killed (`kill -9`) and started again. No call and no session may be lost by the first, no session by the second, and no
more calls than were under way at the replica that was killed.

Needs nginx, redis-server (or valkey-server) and what interop/run.sh needs for its Python clients. NGINX and REDIS name
other programs. `--write` puts the figures into docs/replicas.md.

Exit status: 0 as promised, 1 something was lost, 2 it could not be run.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DOCUMENT = ROOT / "docs" / "replicas.md"
BEGIN = "<!-- what follows is measured; interop/rolling/run.py --write -->\n"
END = "<!-- end of what is measured -->\n"
# Longer than nginx keeps an idle connection, so that none is closed while it sends a request on it.
DELAY_SECONDS = 3
MODES = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}


def give_up(why):
    print(f"run.py: {why}", file=sys.stderr)
    sys.exit(2)


def program(variable, *names):
    found = os.environ.get(variable) or next(filter(None, map(shutil.which, names)), None)
    return found or give_up(f"{names[0]} is not installed; {variable} names another program")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(port):
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


def wait_for(what, is_there, process):
    until = time.monotonic() + 30
    while not is_there():
        if process.poll() is not None or until < time.monotonic():
            give_up(f"{what} does not start")
        time.sleep(0.05)


class Replica:
    def __init__(self, server, port, environment, log):
        self.server, self.port, self.environment, self.log = server, port, environment, log
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [self.server, "run", "--host", "127.0.0.1", "--port", str(self.port), "--toolset", "demo"],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )
        wait_for(f"the replica on port {self.port}", self.is_ready, self.process)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def stop(self, how):
        """Seconds until it had ended, and its exit status."""
        begun = time.monotonic()
        self.process.send_signal(how)
        status = self.process.wait(timeout=60)
        return time.monotonic() - begun, status


class Load:
    """One process with clients of one lifecycle."""

    def __init__(self, command, mode, url, clients):
        self.mode, self.last = mode, {"calls": 0, "lost": 0}
        self.process = subprocess.Popen(
            [*command, str(HERE / "load.py"), mode, url, str(clients)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.last = json.loads(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.reader.join(timeout=5)
        if not self.last.get("done"):
            give_up(f"the clients of {self.mode} ended early")
        return self.last


def nginx_configuration(folder, port, replicas):
    upstreams = "\n".join(f"    server 127.0.0.1:{replica} max_fails=0;" for replica in replicas)
    return f"""
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream longshore {{
{upstreams}
    keepalive 32;
    keepalive_timeout 1s;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://longshore;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_buffering off;
      proxy_read_timeout 3600s;
      proxy_connect_timeout 2s;
    }}
  }}
}}
"""


def phase(command, url, clients, disturb):
    """What the clients of each lifecycle lost while something was done to the replicas."""
    loads = [Load(command, mode, url, clients) for mode in MODES]
    until = time.monotonic() + 30
    while any(load.last["calls"] < 10 * clients for load in loads):
        if until < time.monotonic() or any(load.process.poll() is not None for load in loads):
            give_up("the clients cannot call")
        time.sleep(0.1)
    done = disturb()
    time.sleep(2)
    return {load.mode: load.end() for load in loads}, done


def table(rows):
    lines = ["| What was done | Clients of | Calls | Lost | Sessions lost | Longest call |", "|---|---|---|---|---|---|"]
    for what, found in rows:
        for mode, one in found.items():
            lines.append(
                f"| {what} | {MODES[mode]} | {one['calls']} | {one['lost']} | {one['sessions_lost']} | {one['longest_s']} s |"
            )
    return "\n".join(lines)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    arguments.add_argument("--server", default=str(target / "release" / "longshore"), help="the program (default: the release build)")
    arguments.add_argument("--clients", type=int, default=16, help="clients of each lifecycle (default: 16)")
    arguments.add_argument("--write", action="store_true", help="put the figures into docs/replicas.md")
    told = arguments.parse_args()
    if not os.access(told.server, os.X_OK):
        give_up(f"there is no program {told.server}: cargo build --release, or --server")
    nginx, redis = program("NGINX", "nginx"), program("REDIS", "redis-server", "valkey-server")
    prepared = subprocess.run([HERE.parent / "run.sh", "--install", "python-v2"], stdout=subprocess.PIPE, text=True)
    if prepared.returncode != 0:
        give_up("the client could not be installed")
    command = [prepared.stdout.splitlines()[0]]

    running = []
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "log", "w+") as log:
        try:
            redis_port, front = free_port(), free_port()
            store = subprocess.Popen(
                [redis, "--port", str(redis_port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder],
                stdout=log, stderr=log,
            )
            running.append(store)
            wait_for("the store", lambda: listens(redis_port), store)
            environment = {
                "PATH": os.environ.get("PATH", ""),
                "LONGSHORE_STATE__URL": f"redis://127.0.0.1:{redis_port}",
                "LONGSHORE_SEAL__KEYS": secrets.token_hex(32),
                "LONGSHORE_DRAIN__DELAY_SECONDS": str(DELAY_SECONDS),
                "LONGSHORE_HTTP__ALLOWED_HOSTS": "127.0.0.1",
            }
            replicas = [Replica(told.server, free_port(), environment, log) for _ in range(3)]
            configuration = pathlib.Path(folder) / "nginx.conf"
            configuration.write_text(nginx_configuration(folder, front, [replica.port for replica in replicas]))
            balancer = subprocess.Popen([nginx, "-p", folder, "-c", str(configuration)], stdout=log, stderr=log)
            running.append(balancer)
            wait_for("nginx", lambda: listens(front), balancer)
            url = f"http://127.0.0.1:{front}/mcp"

            def rolling():
                ended = []
                for replica in replicas:
                    ended.append(replica.stop(signal.SIGTERM))
                    replica.start()
                return ended

            def killed():
                replicas[1].stop(signal.SIGKILL)
                time.sleep(1)
                replicas[1].start()

            gently, ended = phase(command, url, told.clients, rolling)
            hard, _ = phase(command, url, told.clients, killed)
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read()[-4000:])
            raise
        finally:
            for replica in locals().get("replicas", []):
                if replica.process.poll() is None:
                    replica.process.kill()
            for process in running:
                process.terminate()
            for process in running:
                process.wait(timeout=10)

    figures = table([("SIGTERM to each of three replicas in turn", gently), ("`kill -9` of one replica", hard)])
    print(figures)
    slowest = max(seconds for seconds, _ in ended)
    print(f"\nreplicas ended {slowest:.1f} s after SIGTERM at the latest, of which {DELAY_SECONDS} s are drain.delay_seconds")
    problems = []
    for mode, one in gently.items():
        if one["lost"] or one["sessions_lost"]:
            problems.append(f"SIGTERM: {mode} lost {one['lost']} calls, {one['sessions_lost']} sessions: {one['errors']}")
    for seconds, status in ended:
        if status != 0:
            problems.append(f"a replica ended with status {status}")
    for mode, one in hard.items():
        # No more than each client had under way.
        if one["sessions_lost"] or told.clients < one["lost"]:
            problems.append(f"kill -9: {mode} lost {one['lost']} calls, {one['sessions_lost']} sessions: {one['errors']}")
    if told.write:
        text = DOCUMENT.read_text()
        before, rest = text.split(BEGIN)
        _, after = rest.split(END)
        today = datetime.date.today().isoformat()
        note = (
            f"\nOn {platform.machine()} with {os.cpu_count()} cores, {today}; {told.clients} clients of each lifecycle, everything on one machine:\n\n"
        )
        DOCUMENT.write_text(before + BEGIN + note + figures + "\n\n" + END + after)
    for problem in problems:
        print(f"run.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


sys.exit(main())
