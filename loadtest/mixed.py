#!/usr/bin/env python3
"""Resident memory of one replica under a mixed load.

    loadtest/mixed.py [--server PATH] [--seconds N] [--clients N] [--port N]

Starts the program with the toolset `everything` and its state in memory, and has clients do everything that leaves
something behind: calls of both lifecycles, elicitations, progress, streams that break and are resumed, tasks of both kinds,
subscriptions, sessions that are ended or abandoned, and clients that leave in the middle of a call. Prints calls, errors
and resident memory over time. The exit status is 1 if there was an error, or if resident memory after the first quarter
moved by more than --within MiB. Needs Linux and nothing but Python.

Tasks live for 20 seconds, and streams can be resumed for 30 seconds (--replay-seconds), so that a run of a few minutes
shows what stays: what is still within its lifetime is no leak.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOTH = "application/json, text/event-stream"
WATCHED = "test://watched-resource"
EXTENSION = "io.modelcontextprotocol/tasks"
META = "io.modelcontextprotocol/"
MIB = 1024 * 1024
# No step of a client may take longer.
PATIENCE = 60


def give_up(why):
    print(f"mixed.py: {why}", file=sys.stderr)
    sys.exit(2)


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("the server has ended")


class Unexpected(Exception):
    """A response that is not the expected one."""


class Events:
    """The events of one response, read as they come."""

    def __init__(self, response):
        self.response = response
        self.last_id = None

    def __iter__(self):
        data = []
        while line := self.response.readline():
            line = line.rstrip(b"\r\n").decode()
            if not line:
                if data:
                    text, data = "\n".join(data), []
                    if text:
                        yield json.loads(text)
                    else:
                        yield None
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "id":
                self.last_id = value


class Client:
    """One client: a connection, and now and then a session."""

    def __init__(self, port, seed, counts):
        self.port = port
        self.counts = counts
        self.random = random.Random(seed)
        self.connections = []
        self.session = None
        self.left = 0
        self.number = 0

    def close(self):
        while self.connections:
            self.connections.pop().close()

    def take(self):
        if self.connections:
            return self.connections.pop()
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def next_id(self):
        self.number += 1
        return self.number

    def send(self, method, message=None, headers=()):
        """Sends a request. A connection that the server closed while it was idle is replaced once."""
        body = None if message is None else json.dumps(message).encode()
        headers = dict(headers) | {"accept": BOTH}
        if body is not None:
            headers["content-type"] = "application/json"
        for again in (True, False):
            connection = self.take()
            try:
                connection.request(method, "/mcp", body, headers)
                return connection, connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError, http.client.BadStatusLine):
                connection.close()
                self.close()
                if not again:
                    raise

    def give_back(self, connection, response):
        if response.isclosed() or not response.read(1):
            self.connections.append(connection)
        else:
            connection.close()

    def request(self, message, headers, hear=None):
        """Sends a request and returns its result. `hear` is told each message that comes before."""
        connection, response = self.send("POST", message, headers)
        self.counts["calls"] += 1
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            answer = json.loads(response.read() or b"null")
            self.connections.append(connection)
            return result_of(answer, message)
        for event in Events(response):
            if event is None:
                continue
            if event.get("id") == message["id"] and "method" not in event:
                response.read()
                self.give_back(connection, response)
                return result_of(event, message)
            if hear:
                hear(event)
        connection.close()
        raise Unexpected(f"a stream without an answer: {message['method']}")

    # Sessions of 2025-11-25.

    def in_session(self):
        return {"mcp-session-id": self.session, "mcp-protocol-version": "2025-11-25"}

    def begin(self):
        message = self.message("initialize", {
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "mixed", "version": "1"},
        })
        connection, response = self.send("POST", message)
        self.counts["calls"] += 1
        result_of(json.loads(response.read()), message)
        self.connections.append(connection)
        self.session = response.headers["mcp-session-id"]
        self.left = self.random.randint(5, 60)
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tell(self, message):
        connection, response = self.send("POST", message, self.in_session())
        self.counts["calls"] += 1
        text = response.read()
        self.connections.append(connection)
        if response.status != 202:
            raise Unexpected(f"{response.status} for a message without an answer: {text[:200]!r}")

    def end(self):
        # Half of them are abandoned.
        if self.random.random() < 0.5:
            connection, response = self.send("DELETE", None, self.in_session())
            self.counts["calls"] += 1
            response.read()
            self.connections.append(connection)
            if response.status != 204:
                raise Unexpected(f"{response.status} for the end of a session")
        self.session = None
        if self.random.random() < 0.3:
            self.close()

    def message(self, method, params):
        return {"jsonrpc": "2.0", "id": self.next_id(), "method": method, "params": params}

    def call(self, tool, arguments, hear=None, **more):
        message = self.message("tools/call", {"name": tool, "arguments": arguments, **more})
        return self.request(message, self.in_session(), hear)

    # 2026-07-28.

    def stateless(self, method, params, name=None, hear=None):
        message, headers = self.without_session(method, params, name)
        return self.request(message, headers, hear)

    def without_session(self, method, params, name=None):
        able = {"elicitation": {}, "extensions": {EXTENSION: {}}}
        params = dict(params)
        params["_meta"] = params.get("_meta", {}) | {
            META + "protocolVersion": "2026-07-28", META + "clientCapabilities": able,
            META + "clientInfo": {"name": "mixed", "version": "1"},
        }
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
        if name:
            headers["mcp-name"] = name
        return self.message(method, params), headers

    # What clients do.

    def plain_calls(self):
        for at in range(10):
            expect(text(self.call("echo", {"message": f"hello {at}"})), f"hello {at}")

    def stateless_calls(self):
        for at in range(10):
            params = {"name": "echo", "arguments": {"message": f"hello {at}"}}
            expect(text(self.stateless("tools/call", params, "echo")), f"hello {at}")

    def lists(self):
        for method in ("tools/list", "resources/list", "prompts/list"):
            self.request(self.message(method, {}), self.in_session())
        self.request(self.message("resources/read", {"uri": WATCHED}), self.in_session())

    def progress(self):
        heard = []
        meta = {"progressToken": self.next_id()}
        self.call("test_tool_with_progress", {}, heard.append, _meta=meta)
        expect(len([one for one in heard if one["method"] == "notifications/progress"]), 3)

    def logs(self):
        self.request(self.message("logging/setLevel", {"level": "info"}), self.in_session())
        heard = []
        self.call("test_tool_with_logging", {}, heard.append)
        expect(len(heard), 3)

    def elicitation(self):
        def answer(event):
            if event.get("method") != "elicitation/create":
                return
            content = {"username": "ada", "email": "ada@example.com"}
            self.tell({"jsonrpc": "2.0", "id": event["id"], "result": {"action": "accept", "content": content}})

        result = self.call("test_elicitation", {"message": "Who are you?"}, answer)
        if "action=accept" not in text(result):
            raise Unexpected(f"an elicitation: {result}")

    def elicitation_in_rounds(self):
        params = {"name": "test_input_required_result_elicitation", "arguments": {}}
        first = self.stateless("tools/call", params, params["name"])
        expect(first["resultType"], "input_required")
        answers = {name: {"action": "accept", "content": {"name": "Ada"}} for name in first["inputRequests"]}
        params |= {"inputResponses": answers}
        if "requestState" in first:
            params["requestState"] = first["requestState"]
        expect(text(self.stateless("tools/call", params, params["name"])), "Hello, Ada!")

    def broken_stream(self):
        """Breaks a call's stream after its first event, and resumes it."""
        tool = self.random.choice(["test_tool_with_progress", "long_operation"])
        arguments = {"seconds": 0.3, "steps": 3} if tool == "long_operation" else {}
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": self.next_id()}}
        message = self.message("tools/call", params)
        connection, response = self.send("POST", message, self.in_session())
        self.counts["calls"] += 1
        events = Events(response)
        for event in events:
            if events.last_id:
                break
        connection.close()
        self.resume(events.last_id, message)

    def release_connection(self):
        """Resumes a stream that the tool itself lets go of."""
        message = self.message("tools/call", {"name": "test_reconnection", "arguments": {}})
        connection, response = self.send("POST", message, self.in_session())
        self.counts["calls"] += 1
        events = Events(response)
        for event in events:
            if event and event.get("id") == message["id"]:
                raise Unexpected("a stream that was to end early")
        self.give_back(connection, response)
        self.resume(events.last_id, message)

    def resume(self, last, message):
        connection, response = self.send("GET", None, self.in_session() | {"last-event-id": last})
        self.counts["calls"] += 1
        if response.status != 200:
            raise Unexpected(f"{response.status} for a stream that was to be resumed: {response.read()[:200]!r}")
        for event in Events(response):
            if event and event.get("id") == message["id"] and "method" not in event:
                result_of(event, message)
                connection.close()
                return
        raise Unexpected("a resumed stream without an answer")

    def core_task(self):
        created = self.call("slow_compute", {"seconds": 0.05}, task={"ttl": 20_000})
        task = created["task"]["taskId"]
        result = self.request(self.message("tasks/result", {"taskId": task}), self.in_session())
        if "computed" not in text(result):
            raise Unexpected(f"a task: {result}")

    def begin_task(self, tool, arguments):
        created = self.stateless("tools/call", {"name": tool, "arguments": arguments}, tool)
        expect(created["resultType"], "task")
        return created["taskId"]

    def wait(self, task, status):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            shown = self.stateless("tasks/get", {"taskId": task}, task)
            if shown["status"] == status:
                return shown
            time.sleep(0.02)
        raise Unexpected(f"a task that stays {shown['status']}")

    def task(self):
        self.wait(self.begin_task("slow_compute", {"seconds": 0.05}), "completed")

    def task_that_fails(self):
        self.wait(self.begin_task("protocol_error_job", {}), "failed")

    def task_that_asks(self):
        task = self.begin_task("confirm_delete", {"filename": "notes.txt"})
        shown = self.wait(task, "input_required")
        answers = {name: {"action": "accept", "content": {"confirm": True}} for name in shown["inputRequests"]}
        self.stateless("tasks/update", {"taskId": task, "inputResponses": answers}, task)
        self.wait(task, "completed")

    def task_that_is_cancelled(self):
        task = self.begin_task("slow_compute", {"seconds": 30})
        self.stateless("tasks/cancel", {"taskId": task}, task)
        self.wait(task, "cancelled")

    def task_that_is_left(self):
        self.begin_task("slow_compute", {"seconds": 0.2})

    def subscription(self):
        """Subscribes in the session, and unsubscribes half of the time."""
        uris = [WATCHED] + [f"test://document/report/{self.random.randrange(10**9)}" for _ in range(3)]
        for uri in uris:
            self.request(self.message("resources/subscribe", {"uri": uri}), self.in_session())
        if self.random.random() < 0.5:
            for uri in uris:
                self.request(self.message("resources/unsubscribe", {"uri": uri}), self.in_session())

    def listen(self):
        """Opens `subscriptions/listen`, has the resource touched, and leaves."""
        wishes = {"toolsListChanged": True, "resourceSubscriptions": [WATCHED]}
        self.stand(*self.without_session("subscriptions/listen", {"notifications": wishes}))

    def standing(self):
        """The standing stream of a session that has subscribed."""
        self.request(self.message("resources/subscribe", {"uri": WATCHED}), self.in_session())
        self.stand(None, self.in_session())

    def stand(self, message, headers):
        method = "GET" if message is None else "POST"
        connection, response = self.send(method, message, headers)
        self.counts["calls"] += 1
        if response.status != 200:
            raise Unexpected(f"{response.status} for a standing stream: {response.read()[:200]!r}")
        touched = message is None
        if touched:
            self.call("touch_watched_resource", {})
        for event in Events(response):
            if not event:
                continue
            if not touched:
                params = {"name": "touch_watched_resource", "arguments": {}}
                self.stateless("tools/call", params, params["name"])
                touched = True
            if event.get("method") == "notifications/resources/updated":
                break
        else:
            raise Unexpected("a standing stream that ended")
        connection.close()

    def leave(self):
        """Leaves in the middle of a call, which runs on in a session and is cancelled without one."""
        params = {
            "name": "long_operation", "arguments": {"seconds": 1, "steps": 5},
            "_meta": {"progressToken": self.next_id()},
        }
        if self.random.random() < 0.5:
            message, headers = self.message("tools/call", params), self.in_session()
        else:
            message, headers = self.without_session("tools/call", params, params["name"])
        connection, response = self.send("POST", message, headers)
        self.counts["calls"] += 1
        for _ in Events(response):
            break
        connection.close()

    def leave_a_question(self):
        """Leaves while an elicitation waits for its answer, and cancels the call."""
        message = self.message("tools/call", {"name": "test_elicitation", "arguments": {"message": "Who?"}})
        connection, response = self.send("POST", message, self.in_session())
        self.counts["calls"] += 1
        for event in Events(response):
            if event and event.get("method") == "elicitation/create":
                break
        connection.close()
        params = {"requestId": message["id"], "reason": "the user left"}
        self.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    STEPS = [
        (12, plain_calls), (8, stateless_calls), (2, lists), (8, progress), (2, logs), (8, elicitation),
        (4, elicitation_in_rounds), (6, broken_stream), (3, release_connection), (8, core_task), (6, task), (1, task_that_fails),
        (3, task_that_asks), (2, task_that_is_cancelled), (2, task_that_is_left), (4, subscription), (3, listen),
        (3, standing), (3, leave), (2, leave_a_question),
    ]

    def step(self):
        if self.session is None:
            self.begin()
        weights, steps = zip(*self.STEPS)
        step = self.random.choices(steps, weights)[0]
        self.counts[step.__name__] += 1
        try:
            step(self)
        except (OSError, ValueError, KeyError, http.client.HTTPException, Unexpected) as error:
            self.close()
            self.session = None
            raise Unexpected(f"{step.__name__}: {type(error).__name__}: {error}") from error
        self.left -= 1
        if self.left <= 0:
            self.end()


def result_of(answer, message):
    if not isinstance(answer, dict) or "result" not in answer:
        raise Unexpected(f"{message['method']}: {json.dumps(answer)[:300]}")
    return answer["result"]


def text(result):
    return result["content"][0]["text"]


def expect(found, wanted):
    if found != wanted:
        raise Unexpected(f"{found!r} in place of {wanted!r}")


def gauges(admin):
    """What the server says of what it keeps."""
    connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=10)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    wanted = re.compile(r"^(longshore_(?:state_|streams|tasks|subscriptions|connections)\w*(?:\{[^}]*\})?) (\S+)", re.M)
    return {name: float(value) for name, value in wanted.findall(page)}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    arguments.add_argument("--server", default=str(target / "dist" / "longshore"), help="the program (default: the build with --profile dist)")
    arguments.add_argument("--seconds", type=int, default=600)
    arguments.add_argument("--clients", type=int, default=16)
    arguments.add_argument("--port", type=int, default=0, help="where the server listens, and at the next port its metrics (default: any)")
    arguments.add_argument("--within", type=float, default=15, help="how many MiB resident memory may move by after the first quarter")
    arguments.add_argument("--replay-seconds", type=int, default=30)
    arguments.add_argument("--redis", help="address of a Redis server, in place of the state in memory")
    arguments.add_argument("--pause", type=float, default=0, help="seconds that a client rests after each step")
    told = arguments.parse_args()
    if not os.access(told.server, os.X_OK):
        give_up(f"there is no program {told.server}: cargo build --profile dist, or --server")
    port, admin = told.port, told.port and told.port + 1
    with socket.socket() as one, socket.socket() as other:
        # Connections of an earlier run may linger there.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", port))
        other.bind(("127.0.0.1", admin))
        port, admin = one.getsockname()[1], other.getsockname()[1]
    environment = {
        "PATH": os.environ.get("PATH", ""), "LONGSHORE_LOG": "error",
        "LONGSHORE_HTTP__ADMIN__PORT": str(admin),
        "LONGSHORE_LIMITS__INITIALIZE_PER_MINUTE": "0",
        "LONGSHORE_SERVER__TASKS__TTL_SECONDS": "20",
        "LONGSHORE_SERVER__TASKS__PER_PRINCIPAL": "1000",
        "LONGSHORE_SERVER__STREAMS__REPLAY_SECONDS": str(told.replay_seconds),
    }
    if told.redis:
        # The machine may be busy.
        environment |= {"LONGSHORE_STATE__URL": told.redis, "LONGSHORE_STATE__TIMEOUT_MS": "2000"}
    log = tempfile.TemporaryFile()
    server = subprocess.Popen(
        [told.server, "run", "--host", "127.0.0.1", "--port", str(port), "--toolset", "everything", "--workers", "2"],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
    )
    counts, errors, problems = collections.Counter(), [], []
    stop = threading.Event()

    def run(seed):
        client = Client(port, seed, counts)
        while not stop.is_set():
            try:
                client.step()
            except Unexpected as error:
                if not stop.is_set():
                    errors.append(str(error))
                    time.sleep(0.1)
            if told.pause:
                time.sleep(told.pause)
        client.close()

    clients = [threading.Thread(target=run, args=(seed,), daemon=True) for seed in range(told.clients)]
    try:
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                if server.poll() is not None or until < time.monotonic():
                    log.seek(0)
                    give_up(f"the server does not start: {log.read()[-500:]!r}")
                time.sleep(0.05)
        begun = time.monotonic()
        samples = [(0.0, resident(server.pid))]
        print(f"{'seconds':>8} {'calls':>9} {'errors':>7} {'MiB':>8}")
        for client in clients:
            client.start()
        every = max(told.seconds / 40, 1)
        while (passed := time.monotonic() - begun) < told.seconds:
            time.sleep(min(every, told.seconds - passed))
            samples.append((time.monotonic() - begun, resident(server.pid)))
            print(f"{samples[-1][0]:8.0f} {counts['calls']:9} {len(errors):7} {samples[-1][1] / MIB:8.1f}", flush=True)
        stop.set()
        for client in clients:
            client.join(PATIENCE)
        for name, value in sorted(gauges(admin).items()):
            print(f"{name} {value:.0f}")
        time.sleep(max(20, told.replay_seconds) + 35)
        print(f"at rest: {resident(server.pid) / MIB:.1f} MiB")
        for name, value in sorted(gauges(admin).items()):
            print(f"{name} {value:.0f}")
    except OSError as error:
        problems.append(str(error))
    finally:
        stop.set()
        server.kill()
        server.wait()
        log.seek(0)
        lines = log.read().decode(errors="replace").splitlines()
        words = "\n".join(line for line in lines if "on purpose" not in line)
    steps = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if name != "calls")
    print(f"{counts['calls']} calls, {len(errors)} errors; {steps}")
    for error, times in collections.Counter(errors).most_common(5):
        problems.append(f"{times} times: {error}")
    if words:
        print(f"the server's log ends with: {words[-600:]}")
    later = [memory for at, memory in samples if told.seconds / 4 <= at]
    moved = (max(later) - min(later)) / MIB
    print(f"after the first quarter resident memory moved by {moved:.1f} MiB, from {later[0] / MIB:.1f} to {later[-1] / MIB:.1f}")
    if told.within < moved:
        problems.append(f"resident memory moved by {moved:.1f} MiB, {told.within:g} are allowed")
    for problem in problems:
        print(f"mixed.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
