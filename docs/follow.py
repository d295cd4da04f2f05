#!/usr/bin/env python3
"""Follows the guides: runs their own commands and files from clean folders, and compares what they print with what the guides show.

Usage: docs/follow.py [--write] [GUIDE...]

Without names it follows all guides of docs/guides. It prints a line for each guide and last "N passed, N failed, N skipped"; the exit
status is 1 if a guide fails, or has a block of commands or a file that is neither used nor named here as one that needs another
machine. `--write` writes the table of docs/trust.md.

It needs target/debug/longshore (built if it is missing), Python 3.10, Node 20 and curl. Prometheus is used if it is installed. FastMCP
and the TypeScript SDK are installed below target/follow, at pinned versions. The guides' ports (3000, 3981, 8000, 9464, 9777) must be free.
"""

import datetime
import http.server
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUIDES = ROOT / "docs/guides"
PAGE = ROOT / "docs/trust.md"
BEGIN, END = "<!-- guides -->\n", "<!-- end of guides -->"
CACHE = ROOT / "target/follow"
PROGRAM = ROOT / "target/debug/longshore"
READING = 200  # words a minute
ACCOUNT = "needs a cluster, an account or a registry"


class Failed(Exception):
    pass


class Guide:
    """One guide, its blocks of code, and a clean folder with a shell of its own."""

    def __init__(self, name, folder):
        self.name = name
        self.page = ROOT / "README.md" if name == "readme" else GUIDES / f"{name}.md"
        self.text = self.page.read_text()
        self.blocks = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", self.text, re.M | re.S)
        self.used, self.left_out, self.commands, self.seconds = set(), {}, 0, 0.0
        self.folder, self.home = folder / "work", folder / "home"
        self.folder.mkdir()
        self.home.mkdir()
        self.cwd = self.folder
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("LONGSHORE_", "OTEL_", "KUBERNETES_"))}
        self.env |= {
            "HOME": str(self.home),
            "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
            "CARGO_HOME": os.environ.get("CARGO_HOME", str(Path.home() / ".cargo")),
            "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
            "CARGO_TARGET_DIR": str(CACHE / "projects"),
            "NO_COLOR": "1",
            # In a container the defaults are others, and the guides name these.
            "LONGSHORE_HOST": "127.0.0.1",
            "LONGSHORE_PORT": "3000",
            "CARGO_TERM_COLOR": "never",
        }
        self.log = folder / "background.log"
        self.processes = []

    def block(self, start, language=None):
        """The block that contains `start`. A block is used once, or several times by name."""
        for number, (kind, text) in enumerate(self.blocks):
            if start in text and (language is None or kind == language):
                self.used.add(number)
                return text
        raise Failed(f"no block contains {start!r}")

    def skip(self, start, reason):
        self.block(start)
        self.left_out[start.splitlines()[0]] = reason

    def save(self, name, start, language=None, change=lambda text: text):
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change(self.block(start, language)))
        return path

    def sh(self, commands, ok=True, ready=None, seconds=60):
        """Runs commands as one pastes them. A server in the foreground is moved to the background, as into a second terminal."""
        commands = re.sub(r"^(longshore run [^&\n]*?)( +#[^\n]*)?$", r"\1 &\2", commands, flags=re.M)
        self.commands += sum(1 for line in commands.splitlines() if line.strip() and not line.startswith((" ", "#", "export ")))
        state = self.folder.parent / "shell"
        # What runs in the background writes into the log, so that reading the output ends with the commands.
        commands = re.sub(r" &( *#[^\n]*)?$", rf" >> {self.log} 2>&1 </dev/null &\1", commands, flags=re.M)
        script = f"set -e\ncd {self.cwd}\n{commands}\npwd > {state}.cwd\nenv -0 > {state}.env\n"
        begin = time.monotonic()
        shell = subprocess.Popen(
            ["bash", "-m", "-c", script], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, start_new_session=True
        )
        self.processes.append(shell.pid)
        try:
            output, _ = shell.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end after 300 s: {commands}") from None
        if ready:
            self.wait(ready, seconds)
        self.seconds += time.monotonic() - begin
        if (shell.returncode == 0) != ok:
            raise Failed(f"exit status {shell.returncode}: {commands.strip()}\n{output[-3000:]}{self.logged()[-1500:]}")
        if shell.returncode == 0:
            self.cwd = Path((state.parent / "shell.cwd").read_text().strip())
            pairs = (state.parent / "shell.env").read_bytes().split(b"\0")
            self.env = dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)
        return output

    def run(self, start, **options):
        return self.sh(self.block(start, "sh"), **options)

    def background(self, command, ready=None, cwd=None, env=None):
        process = subprocess.Popen(
            command, cwd=cwd or self.cwd, env=self.env | (env or {}), stdout=self.log.open("a"), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
        self.processes.append(process.pid)
        self.commands += 1
        if ready:
            self.wait(ready)
        return process

    def logged(self):
        return self.log.read_text() if self.log.exists() else ""

    def wait(self, url, seconds=60):
        for _ in range(seconds * 10):
            try:
                with urllib.request.urlopen(url, timeout=2) as response:
                    response.read()
                return
            except (OSError, ValueError) as error:
                if getattr(error, "code", 500) < 500:
                    return
                time.sleep(0.1)
        raise Failed(f"no response at {url} within {seconds} s\n{self.logged()[-2000:]}")

    def until(self, what, condition, seconds=30):
        for _ in range(seconds * 10):
            if condition():
                return
            time.sleep(0.1)
        raise Failed(f"not within {seconds} s: {what}\n{self.logged()[-2000:]}")

    def shows(self, start, output):
        """The output is the one that the guide shows, where `...` stands for anything."""
        flat = " ".join(output.split())
        for piece in re.split(r"\.\.\.", self.block(start)):
            for line in piece.splitlines():
                if (wanted := " ".join(line.split()).rstrip("}").strip().rstrip(",")) and wanted not in flat:
                    raise Failed(f"the guide shows {wanted!r}, the output is\n{output[-2500:]}")

    def has(self, wanted, output):
        if wanted not in output:
            raise Failed(f"{wanted!r} is missing in\n{output[-2500:]}")

    def terminal(self, command, keys=(), seconds=30):
        """Runs a command at a terminal, and types `keys` when `?` or `:` waits."""
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.cwd)
            os.execvpe(command[0], command, self.env | {"TERM": "xterm"})
        self.commands += 1
        output, end, keys = "", time.monotonic() + seconds, list(keys)
        begin = time.monotonic()
        try:
            while time.monotonic() < end:
                if select.select([fd], [], [], 0.7)[0]:
                    try:
                        piece = os.read(fd, 65536).decode(errors="replace")
                    except OSError:
                        piece = ""
                    if not piece:
                        break
                    output += piece
                elif keys and output:
                    os.write(fd, (keys.pop(0) + "\r").encode())
            else:
                raise Failed(f"no end within {seconds} s: {command}\n{output}")
        finally:
            os.close(fd)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.seconds += time.monotonic() - begin
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output)

    def stop(self, number=signal.SIGTERM):
        """Ends everything that runs in the background."""
        for pid in self.processes:
            end_session(pid, number)
        self.processes = []

    def close(self):
        self.stop()

    def missing(self):
        """Blocks of commands and files that were neither used nor left out with a reason."""
        for number, (kind, text) in enumerate(self.blocks):
            if kind and kind != "text" and number not in self.used:
                yield text.splitlines()[0]


def end_session(session, number):
    """Signals every process of a session, and waits for their end."""
    for attempt in range(120):
        alive = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                alive.append(int(stat.parent.name))
        if not alive:
            return
        for pid in alive:
            if attempt in (0, 100):
                try:
                    os.kill(pid, number if attempt == 0 else signal.SIGKILL)
                except ProcessLookupError:
                    pass
        time.sleep(0.1)


def new_project(guide, command):
    """Runs the commands that begin a project, with the path of the source code here."""
    guide.sh(command.replace("../longshore", str(ROOT)))


def serve_project(guide, command="cargo run"):
    guide.sh("cargo build --quiet")
    guide.sh(f"{command.strip()} --quiet &", ready="http://127.0.0.1:3000/livez", seconds=20)
    return guide.processes[-1]


def post(url, body, headers=()):
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json", "accept": "application/json, text/event-stream", **dict(headers)}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def get(url, headers=()):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers)), timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def readme(guide):
    """The quickstarts. The other blocks of README are in the guides."""
    guide.text = guide.text.split("## Features")[0]
    guide.blocks = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", guide.text, re.M | re.S)
    guide.cwd = ROOT
    del guide.env["CARGO_TARGET_DIR"]
    url = "http://127.0.0.1:3000/mcp"
    guide.sh(guide.block("cargo run ").splitlines()[0].split("#")[0] + "&", ready="http://127.0.0.1:3000/livez", seconds=280)
    guide.has("42", guide.sh(f"longshore call {url} calculate operation=multiply a=6 b=7"))
    guide.stop()
    if guide.block("document: ./petstore.yaml") not in (ROOT / "examples/openapi/longshore.yaml").read_text():
        lines = [line.split("#")[0].strip() for line in guide.block("document: ./petstore.yaml").splitlines()]
        written = (ROOT / "examples/openapi/longshore.yaml").read_text()
        if lost := [line for line in lines if line not in written]:
            raise Failed(f"examples/openapi/longshore.yaml lacks {lost}")
    api, run = guide.block("python3 examples/openapi/api.py").strip().split("\n")
    guide.sh(api, ready="http://127.0.0.1:8000/")
    guide.sh(f"{run} &", ready="http://127.0.0.1:3000/livez", seconds=280)
    guide.has("Rex", guide.sh(f"longshore call {url} pets__showPetById id=1"))
    guide.stop()
    code = guide.block("async fn hello(")
    if [line for line in code.splitlines() if line.strip() and line not in (ROOT / "examples/hello.rs").read_text()]:
        new_project(guide, f"cd {guide.folder}\nlongshore init hello --rust --path ../longshore\ncd hello")
        (guide.cwd / "src/main.rs").write_text(code)
        guide.env["CARGO_TARGET_DIR"] = str(CACHE / "projects")
        serve_project(guide)
    else:
        guide.sh("cargo run --example hello &", ready="http://127.0.0.1:3000/livez", seconds=280)
    guide.has("Hello, Ada!", guide.sh(f"longshore call {url} hello name=Ada"))
    guide.skip("helm install tools", ACCOUNT)


def get_started(guide):
    (guide.cwd / "longshore").symlink_to(ROOT)
    guide.cwd = ROOT
    guide.run("cargo build\n", ready="http://127.0.0.1:3000/health")
    guide.cwd = guide.folder
    output = guide.run("longshore list http://127.0.0.1:3000/mcp\n")
    guide.has("calculate", output)
    guide.has("42", output)
    (guide.home / ".claude.json").write_text('{"theme": "dark"}\n')
    guide.run("longshore connect claude-code")
    written = json.loads((guide.home / ".claude.json").read_text())
    if written["theme"] != "dark" or written["mcpServers"]["longshore"] != json.loads(guide.block('"mcpServers"'))["mcpServers"]["longshore"]:
        raise Failed(f"the entry of Claude Code is {written}")
    guide.shows("wrote weather", guide.run("longshore init weather\n"))
    output = guide.run("longshore config check --config weather")
    guide.has("the configuration is valid", output)


def openapi(guide):
    shutil.copytree(ROOT / "examples", guide.cwd / "examples", ignore=shutil.ignore_patterns("target", "ported"))
    guide.run("python3 api.py", ready="http://127.0.0.1:8000/")
    if guide.block("exclude: { methods: [delete] }", "yaml").split("openapi:")[0] not in (guide.cwd / "longshore.yaml").read_text():
        raise Failed("examples/openapi/longshore.yaml is not as the guide shows it")
    guide.shows("the configuration is valid", guide.run("export PETS_API_KEY"))
    # One paste of the guide starts the server and calls it; the server needs a moment.
    start, call = guide.block("longshore run --config longshore.yaml", "sh").strip().split("\n")
    guide.sh(start, ready="http://127.0.0.1:3000/health")
    guide.shows('"text": "{', guide.sh(call))
    guide.shows("Invalid arguments", guide.sh(guide.block("id=0", "sh"), ok=False))
    guide.save("longshore.yaml", "rename: {")
    guide.until("renamed tools are listed", lambda: "pets__pet" in guide.sh("longshore list http://127.0.0.1:3000/mcp"))
    with (guide.cwd / "longshore.yaml").open("a") as file:
        file.write(guide.block("search: { above"))
    guide.sh("longshore config check --config longshore.yaml")
    guide.has("documentation", guide.run("longshore doctor --config longshore.yaml"))
    guide.block("kill %1 %2")
    guide.stop()


def upstreams(guide):
    guide.save("mcp.json", '"mcpServers"', "json")
    lines = guide.block("longshore config check --config mcp.json", "sh").strip().split("\n")
    guide.sh(lines[0], ready="http://127.0.0.1:3981/health")
    demo = guide.processes[-1]
    guide.shows("(with mcp.json;", guide.sh(lines[1]))
    guide.sh(lines[2], ready="http://127.0.0.1:3000/health")
    server = guide.processes[-1]
    guide.shows("clock__get_current_time  timezone", guide.terminal(lines[3].split()))
    end_session(server, signal.SIGTERM)
    guide.save("longshore.yaml", "upstreams_folder: ./state")
    key, digest = new_key(guide, guide.block("longshore key new ci"))
    with (guide.cwd / "longshore.yaml").open("a") as file:
        file.write(guide.block("api_keys:"))
    guide.env |= {"CI_KEY_HASH": digest, "LONGSHORE_TOKEN": key}
    guide.sh("longshore run --config longshore.yaml --host 127.0.0.1 --port 3000", ready="http://127.0.0.1:3000/health")
    listed = guide.terminal(["longshore", "list", "http://127.0.0.1:3000/mcp"])
    guide.has("demo__echo", listed)
    if "convert_time" in listed or "demo__wait" in listed:
        raise Failed(f"tools that are not selected are listed:\n{listed}")
    end_session(demo, signal.SIGKILL)
    guide.shows("cannot be reached; try again later", guide.sh("longshore call http://127.0.0.1:3000/mcp demo__echo message=x", ok=False))
    guide.shows("a request to an upstream server failed", guide.logged())


def new_key(guide, command="longshore key new alice"):
    """A key and its hash."""
    output = guide.sh(command)
    return re.search(r"lsk_[\w-]+", output)[0], re.search(r"sha256:\w+", output)[0]


EXTRACT = "use std::sync::Arc; use longshore::{CallContext, tool}; use longshore::extract::*;"
# What the fragments of the guide leave out, by a line of the fragment.
RUST_TOOLS = {
    "PgPool::connect": "#[derive(serde::Serialize, schemars::JsonSchema, sqlx::FromRow)] struct Order { id: i64 }",
    "Claims(employee)": "use longshore::{ToolError, tool}; #[derive(serde::Deserialize)] struct Employee { department: String }",
    "impl FromCall for Tenant": "use std::sync::Arc; pub struct Tenant(pub String);",
    "impl FromCall for Balance": EXTRACT
    + """ pub struct Balance(pub u64); pub struct Accounts;
    impl Accounts { async fn balance(&self, _name: &str) -> Option<u64> { Some(1) } }""",
    "impl FromArgument for Order": EXTRACT
    + """ use sqlx::PgPool;
    async fn find_order(_db: &PgPool, _name: &str, _id: i64) -> Result<Option<Order>, Rejection> { Ok(None) }""",
    "MapRequestLayer::new": """use std::time::Instant; use longshore::{App, extract::Extension, tool};
    #[derive(Clone)] struct RequestStart(Instant);""",
    "async fn an_order_is_found": """use longshore::{App, CallContext, ToolError, tool};
    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)] struct Order { id: i64 }
    struct Orders; fn fake_orders() -> Orders { Orders }
    #[tool] async fn order(context: &CallContext, #[state] _orders: &Orders, id: i64) -> Result<Order, ToolError> {
        context.progress(1.0, None, "read").await; Ok(Order { id }) }
    fn app() -> App { App::new().tool(order) }""",
}


def rust_tools(guide):
    new_project(guide, guide.block("longshore init shop"))
    guide.cwd = guide.cwd / "shop"
    guide.has("2 passed", guide.sh("cargo test --quiet"))
    serve_project(guide)
    guide.has("noted: milk", guide.sh("longshore call http://127.0.0.1:3000/mcp write_note title=milk text='two litres'"))
    # The fragments, each as a module of the project.
    guide.sh("cargo add --quiet sqlx --no-default-features --features postgres,runtime-tokio,derive\ncargo add --quiet http tower --features tower/util\ncargo add --quiet tokio --features macros,rt-multi-thread")
    text = "#![allow(dead_code, unused_imports, unused_variables)]\nfn main() {}\n"
    for number, (line, before) in enumerate(RUST_TOOLS.items()):
        code = guide.block(line, "rust")
        if "MapRequestLayer" in line:
            imports, let, rest = code.split("\n\n", 2)
            code = f"{imports}\nfn app() -> App {{\n{let}\napp\n}}\n{rest}"
        text += f"{'#[cfg(test)] ' if 'tokio::test' in code else ''}mod fragment_{number} {{\n{before}\n{code}}}\n"
    (guide.cwd / "src/main.rs").write_text(text)
    guide.has("1 passed", guide.sh("cargo test --quiet"))


def asking_and_tasks(guide):
    new_project(guide, guide.block("longshore init seats"))
    test = guide.block("async fn books()")
    task = guide.block("async fn report(").replace("use longshore::{CallContext, tool};\n", "")
    main = guide.block("async fn book(").replace(".tool(book)", ".tool(book).tool(report)")
    (guide.cwd / "src/main.rs").write_text(task.split("\n\n", 1)[0] + "\n" + main + task.split("\n\n", 1)[1] + test)
    guide.has("1 passed", guide.sh("cargo test --quiet"))
    serve_project(guide, guide.block("cargo run\n"))
    call = guide.block("longshore call http://127.0.0.1:3000/mcp book").split()
    guide.shows("Seats on LS1 cost 120 EUR", guide.terminal(call, ["y", "7"]))
    guide.has("Server requires the elicitation capability", guide.sh(" ".join(call), ok=False))
    guide.has("3 pages", guide.sh("longshore call http://127.0.0.1:3000/mcp report pages=3"))
    # A client of 2025-11-25 that supports tasks gets an identifier.
    url = "http://127.0.0.1:3000/mcp"
    session = initialize(url)
    post(url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    call = {"name": "report", "arguments": {"pages": 2}, "task": {"ttl": 60000}}
    guide.has('"taskId"', post(url, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}, session)[1])


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "follow", "version": "1"}},
}


def initialize(url, headers=()):
    """The headers of a new session."""
    accept = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, json.dumps(INITIALIZE).encode(), accept | dict(headers))
    with urllib.request.urlopen(request) as response:
        return {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}


def lifecycle(guide):
    main = guide.block("refresh-prices", "rust")
    new_project(guide, guide.block("longshore init prices"))
    (guide.cwd / "src/main.rs").write_text(main)
    server = serve_project(guide)
    guide.until("the task runs", lambda: "the address is bound\nloading the prices" in guide.logged())
    guide.has("5", guide.sh("longshore call http://127.0.0.1:3000/mcp add a=2 b=3"))
    end_session(server, signal.SIGTERM)
    guide.has("the last call is done", guide.logged())
    # A task that fails.
    failing = re.sub(r"async \|stop\| \{.*?\n        \}\)", 'async |_stop| Err::<(), _>(std::io::Error::other("connection refused")))', main, flags=re.S)
    failing = failing.replace("use std::time::Duration;\n\n", "").replace("App::new()", "tracing_subscriber::fmt().init();\n    App::new()")
    (guide.cwd / "src/main.rs").write_text(failing)
    serve_project(guide)
    shown = re.search(r"^- The log has an error with its name: `(.+)`\.$", guide.text, re.M)
    guide.has(shown[1] if shown else "the guide's line of the log", guide.logged())
    if (status := get("http://127.0.0.1:3000/health/ready")[0]) != 503:
        raise Failed(f"/health/ready has status {status}")


def kubernetes(guide):
    chart = ROOT / "helm/longshore"
    for start in ("docker build", "kubectl create namespace", "helm install", "helm upgrade"):
        guide.skip(start, ACCOUNT)
    guide.save("values.yaml", "repository: registry.example.com/tools/longshore")
    for start in ("redis://redis:6379", "serviceMonitor: {"):
        with (guide.cwd / "values.yaml").open("a") as file:
            file.write(guide.block(start, "yaml"))
    python = ROOT / "target/chart-venv/bin/python"
    if not python.exists():
        raise Skipped("helm/check.sh has not installed Helm's engine")
    render = f"""
import json, yaml
from helm_python import Chart
with Chart.load({str(chart)!r}) as loaded:
    rendered = loaded.render(values=yaml.safe_load(open("values.yaml")), name="tools", namespace="mcp")
print(json.dumps(dict(rendered) if isinstance(rendered, dict) else {{"all": rendered}}))
"""
    done = subprocess.run([python, "-c", render], cwd=guide.cwd, capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stderr[-3000:])
    rendered = json.loads(done.stdout)
    text = "\n".join(rendered.values())
    for wanted in ("kind: Deployment", "kind: Ingress", "kind: ServiceMonitor", "kind: PrometheusRule", "redis://redis:6379", "tools-seal", "mountPath: /run/secrets/api-keys"):
        guide.has(wanted, text)
    guide.shows("Longshore serves MCP at", text)
    # The configuration of the rendered chart, with the Secret of the guide as a folder, serves here.
    configuration = re.search(r"longshore\.yaml: \|-?\n((?:    .*\n|\n)+)", text)
    if not configuration:
        raise Failed(f"the chart has no configuration\n{text[:3000]}")
    key, digest = new_key(guide)
    (guide.cwd / "api-keys").mkdir()
    (guide.cwd / "api-keys/alice").write_text(digest)
    lines = "\n".join(line[4:] for line in configuration[1].splitlines())
    lines = lines.replace("/run/secrets/api-keys", str(guide.cwd / "api-keys")).replace("tools.example.com", "localhost").replace("redis://redis:6379", "redis://127.0.0.1:6379")
    (guide.cwd / "longshore.yaml").write_text(lines)
    guide.env["LONGSHORE_SEAL__KEYS"] = subprocess.run(["openssl", "rand", "-base64", "32"], capture_output=True, text=True, check=True).stdout.strip()
    guide.sh("longshore run --config longshore.yaml --host 127.0.0.1 --port 3000", ready="http://127.0.0.1:3000/health")
    check = guide.block("LONGSHORE_TOKEN=lsk_... longshore doctor --url").replace("lsk_...", key).replace("https://tools.example.com", "http://localhost:3000")
    guide.has("get_current_time", guide.sh(check.replace("longshore doctor --url http://localhost:3000/mcp", "longshore doctor --url http://localhost:3000/mcp || true")))


def cloud_run(guide):
    for start in ("PROJECT=my-project", "docker build", "gcloud run deploy", "URL=$(gcloud", "gcloud secrets versions"):
        guide.skip(start, ACCOUNT)
    guide.save("longshore.yaml", "api_keys_file: /secrets/keys/api-keys", change=lambda text: text.replace("/secrets/keys", str(guide.cwd)))
    key, digest = new_key(guide, guide.block("longshore key new alice").splitlines()[0])
    guide.sh(guide.block("printf 'alice").split("\n")[1].replace("sha256:HASH", digest))
    explained = guide.run("K_SERVICE=tools")
    for wanted in ("8080", "cloud-run"):
        guide.has(wanted, explained.lower().replace("cloud run", "cloud-run"))
    guide.env |= {"LONGSHORE_SEAL__KEYS": subprocess.run(["openssl", "rand", "-base64", "32"], capture_output=True, text=True, check=True).stdout.strip()}
    guide.env |= {"LONGSHORE_HTTP__ALLOWED_HOSTS": "127.0.0.1", "LONGSHORE_CONFIG": str(guide.cwd / "longshore.yaml")}
    guide.background(["longshore", "run"], ready="http://127.0.0.1:3000/health", env={"K_SERVICE": "tools", "K_REVISION": "tools-1", "PORT": "3000"})
    if (status := get("http://127.0.0.1:3000/mcp")[0]) != 401:
        raise Failed(f"status {status} without a key")
    check = guide.block("export LONGSHORE_TOKEN").replace("lsk_...", key).replace('"$URL/mcp"', "http://127.0.0.1:3000/mcp")
    guide.has("Europe/Berlin", guide.sh(check.replace("doctor --url http://127.0.0.1:3000/mcp", "doctor --url http://127.0.0.1:3000/mcp || true")))
    (guide.cwd / "oauth.yaml").write_text("toolsets: [time]\n" + guide.block("issuer: https://id.example.com"))
    guide.has("the configuration is valid", guide.sh("longshore config check --offline --config oauth.yaml"))


def oauth(guide):
    """Each configuration is checked. The steps in consoles need accounts."""
    common = "http: { public_url: https://mcp.example.com }\n"
    checked = 0
    for number, (kind, text) in enumerate(guide.blocks):
        if kind != "yaml":
            continue
        guide.used.add(number)
        (guide.cwd / "longshore.yaml").write_text(("" if "public_url" in text else common) + text)
        guide.has("the configuration is valid", guide.sh("INTROSPECTION_SECRET=a longshore config check --offline --config longshore.yaml"))
        checked += 1
    if checked < 7:
        raise Failed(f"only {checked} configurations")
    guide.block("longshore config check --config longshore.yaml", "sh")
    guide.left_out["steps in the providers' consoles"] = ACCOUNT


def identity_providers(guide):
    head = "http: { public_url: https://mcp.example.com }\nauth:\n  oauth:\n"
    base = "    facade: { provider: https://login.microsoftonline.com/0a1b/v2.0, client_id: a, client_secret: b }\n"
    secrets = {"PROVIDER_SECRET": "a", "SEAL_KEY": subprocess.run(["openssl", "rand", "-base64", "32"], capture_output=True, text=True, check=True).stdout.strip()}
    secrets |= {f"{name}_SECRET": "a" * 16 for name in ("ENTRA", "GOOGLE", "GITHUB", "OKTA", "AUTH0", "KEYCLOAK", "COGNITO", "CONSOLE", "DESKTOP")}
    guide.env |= secrets
    for number, (kind, text) in enumerate(guide.blocks):
        if kind != "yaml":
            continue
        guide.used.add(number)
        for placeholder, value in (("YOUR-TENANT-ID", "0a1b"), ("TENANT-ID", "0a1b"), ("TENANT", "acme"), ("ORG", "acme"), ("HOST", "id.example.com"), ("REALM", "main"), ("REGION", "eu-west-1"), ("POOL-ID", "eu-west-1_a")):
            text = re.sub(rf"(provider: .*){placeholder}", rf"\g<1>{value}", text)
        if text.startswith("facade:"):
            text = head + "".join(f"    {line}\n" for line in text.splitlines())
        elif "provider:" not in text:
            inner = text.split("facade:\n", 1)[1]
            text = head + "    facade:\n      provider: https://login.microsoftonline.com/0a1b/v2.0\n      client_id: a\n      client_secret: b\n" + inner
        (guide.cwd / "longshore.yaml").write_text(text)
        guide.has("the configuration is valid", guide.sh("longshore config check --offline --config longshore.yaml"))
    guide.left_out["steps in the providers' consoles"] = ACCOUNT


def callers_rights(guide):
    (guide.cwd / "each.yaml").write_text(guide.block("base_url: https://api.github.com"))
    guide.env |= {f"{name}_CLIENT_{part}": "a" for name in ("GOOGLE", "GITHUB") for part in ("ID", "SECRET")}
    guide.env["SEAL_KEY"] = subprocess.run(["openssl", "rand", "-base64", "32"], capture_output=True, text=True, check=True).stdout.strip()
    (guide.cwd / "each.yaml").write_text((guide.cwd / "each.yaml").read_text().replace("provider: google", "provider: https://accounts.google.com"))
    checked = guide.sh("longshore config check --offline --config each.yaml || true")
    if "the configuration is valid" not in checked and "allow" not in checked:
        raise Failed(checked)
    commands = guide.block("cat > service.py", "sh").rsplit("longshore call", 1)
    guide.sh(commands[0], ready="http://127.0.0.1:3000/health")
    jar = guide.folder.parent / "cookies"

    def log_in(link):
        """The browser: opens the link, agrees, and follows the redirects."""
        page = subprocess.run(["curl", "-sL", "-c", jar, "-b", jar, link], capture_output=True, text=True, check=True).stdout
        form = dict(re.findall(r'<input type=hidden name=(\w+) value="?([^">]*)', page)) | {"decision": "allow"}
        action = re.search(r"<form[^>]*action=\"?([^\" >]+)", page)
        url = urllib.parse.urljoin(link, action[1] if action else "")
        done = ["curl", "-sL", "-c", jar, "-b", jar, "-H", "origin: http://localhost:3000", *[part for pair in form.items() for part in ("--data-urlencode", "=".join(pair))], url]
        return subprocess.run(done, capture_output=True, text=True, check=True).stdout

    listed = guide.sh("longshore call http://localhost:3000/mcp list || true")
    link = re.search(r"http://localhost:3000/\S+", listed)
    if not link:
        raise Failed(f"no link in {listed}")
    guide.has("connected", log_in(link[0].rstrip(".,)\"")).lower())
    guide.has("a.txt", guide.sh("longshore call http://localhost:3000/mcp list"))
    logins = guide.block("longshore logins --config", "sh").strip().split("\n")
    guide.has("files", guide.sh(logins[0]))
    guide.sh(logins[1])
    curl = guide.block("https://mcp.example.com/accounts", "sh").replace("https://mcp.example.com", "http://localhost:3000").splitlines()[0]
    guide.has("login_url", guide.sh(curl))


def prometheus(guide):
    guide.skip("cd deploy/compose", "needs Docker")
    guide.save("longshore.yaml", "admin: { port: 9464 }")
    guide.sh("longshore run --config longshore.yaml --host 127.0.0.1 --port 3000", ready="http://127.0.0.1:9464/health")
    guide.shows("longshore_ready 1", guide.run("grep -E '^(longshore_ready"))
    guide.skip("OTEL_EXPORTER_OTLP_ENDPOINT", "needs a collector; the integration tests have one")
    if not shutil.which("prometheus"):
        guide.skip("scrape_configs", "needs Prometheus")
        return
    guide.save("prometheus.yml", "scrape_configs", change=lambda text: "global: { scrape_interval: 1s }\n" + text.replace("longshore:9464", "127.0.0.1:9464"))
    shutil.copy(ROOT / "deploy/grafana/alerts.yaml", guide.cwd / "alerts.yaml")
    guide.sh("promtool check config prometheus.yml")
    guide.background(["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:9097"], ready="http://127.0.0.1:9097/-/ready")
    for n in range(5):
        guide.sh(f"longshore call http://127.0.0.1:3000/mcp calculate operation=add a={n} b=1")
    queries = re.findall(r"^\| [^|]+ \| `(.+?)` \|$", guide.text.split("Useful queries")[1].split("##")[0], re.M)
    rates = [query.replace("[5m]", "[30s]") for query in queries]

    def has_data():
        counts = []
        for query in rates:
            status, text = get("http://127.0.0.1:9097/api/v1/query?" + urllib.parse.urlencode({"query": query}))
            if status != 200:
                raise Failed(f"{query}: {text}")
            counts.append(len(json.loads(text)["data"]["result"]))
        return counts[0] > 0 and counts[1] > 0

    guide.until("the queries have data", has_data)
    names = re.findall(r"^\| `(Longshore\w+)`", guide.text, re.M)
    alerts = get("http://127.0.0.1:9097/api/v1/rules")[1]
    for name in names:
        guide.has(f'"{name}"', alerts)
    if len(names) != alerts.count('"type":"alerting"'):
        raise Failed("the guide lists other alerts than alerts.yaml")


def tuning(guide):
    (guide.cwd / "longshore.yaml").write_text(guide.block("http: { workers: 4 }").replace("workers: 4", "workers: 4, admin: { port: 9464 }"))
    guide.sh("longshore run --config longshore.yaml --host 127.0.0.1 --port 3000", ready="http://127.0.0.1:9464/health")
    guide.sh("longshore call http://127.0.0.1:3000/mcp echo message=x")
    metrics = guide.run("curl -s http://127.0.0.1:9464/metrics")
    for name in re.findall(r"^\| `([a-z_]+)`(?: \(rate\))? \|", guide.text, re.M):
        # Two of them appear with the first limit that is reached and the first upstream.
        if name.startswith(("longshore_", "mcp_", "process_")) and name not in ("longshore_limit_hits_total", "longshore_upstream_waiting_requests"):
            guide.has(name, metrics)
    guide.has("open files", guide.run("longshore doctor --config longshore.yaml"))
    explained = guide.sh("longshore config explain --config longshore.yaml")
    for names in re.findall(r"^\| (`[a-z_.`, ]+`) \|", guide.text.split("## Concurrency")[1].split("## Memory")[0], re.M):
        for name in re.findall(r"`([a-z_.]+)`", names):
            guide.has(name, explained)
    guide.skip("cargo run --profile dist -p longshore-loadtest", "takes a quarter of an hour to build")


def troubleshooting(guide):
    """Provokes the messages of the headings."""
    headings = [text for text in re.findall(r"^### `(.+)`$", guide.text, re.M)]
    left = set(headings)
    url = "http://127.0.0.1:3000/mcp"

    def found(output):
        """Crosses off the headings whose message is in the output."""
        flat = " ".join(output.split())
        hits = {heading for heading in left if re.search(".+?".join(re.escape(part.strip()) for part in heading.split("…") if part.strip()), flat)}
        left.difference_update(hits)
        return hits

    def expect(count, output):
        if len(hits := found(output)) < count:
            raise Failed(f"{hits or 'no heading'} of {count} in\n{output[-1500:]}")

    def config(text):
        (guide.cwd / "longshore.yaml").write_text(text)

    def serve(text="", options="--host 127.0.0.1 --port 3000"):
        guide.stop()
        config(text)
        guide.log.write_text("")
        guide.sh(f"longshore run --config longshore.yaml {options}", ready="http://127.0.0.1:3000/livez", seconds=15)

    (guide.cwd / "b.yaml").write_text("http: { prot: 1 }\n")
    guide.shows("unknown setting http.prot", guide.sh("longshore config check --config b.yaml", ok=False))
    expect(1, guide.sh("longshore config check --config b.yaml", ok=False))
    config("server: { name: '${NOT_SET}' }\n")
    expect(1, guide.sh("longshore run --config longshore.yaml </dev/null > out 2>&1 || cat out; false", ok=False))
    public = guide.sh("timeout 5 longshore run --host 0.0.0.0 --port 3000 > out 2>&1 || cat out; false", ok=False)
    if "everyone who reaches this address can use the tools" in public:
        # In a container this is a warning, as the guide says.
        left = {heading for heading in left if not heading.startswith("authentication is off")}
    else:
        expect(1, public)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 3000))
        taken.listen()
        expect(1, guide.sh("timeout 10 longshore run --host 127.0.0.1 --port 3000 > out 2>&1 || cat out; false", ok=False))
    serve("toolsets: [time]\nsources: [{ name: pets, openapi: { document: ./missing.yaml } }]\n")
    expect(1, guide.logged())
    expect(1, guide.sh("longshore config check --config longshore.yaml", ok=False))
    guide.block("longshore doctor --url https://mcp.example.com/mcp")

    key, digest = new_key(guide)
    serve(f"auth: {{ api_keys: [{{ name: alice, keys: ['{digest}'] }}] }}\n")
    expect(1, guide.sh(f"longshore list {url}", ok=False) + post(url, INITIALIZE)[1])
    expect(1, post(url, INITIALIZE, {"authorization": "Bearer lsk_" + "a" * 43})[1])
    guide.has(digest, guide.sh(f"echo {key} | longshore key hash"))
    expect(1, post(url, INITIALIZE, {"host": "other.example.com", "authorization": f"Bearer {key}"})[1])
    expect(1, post(url, INITIALIZE, {"origin": "https://other.example.com", "authorization": f"Bearer {key}"})[1])

    serve("", "--host 0.0.0.0 --port 3000 --insecure")
    expect(1, get("http://127.0.0.1:3000/metrics")[1])
    serve("http: { public_url: http://127.0.0.1:3000 }\nauth: { oauth: { issuer: http://127.0.0.1:3999 } }\n")
    token = ".".join(["eyJhbGciOiJFUzI1NiIsImtpZCI6ImEiLCJ0eXAiOiJKV1QifQ", "eyJpc3MiOiJodHRwOi8vMTI3LjAuMC4xOjM5OTkiLCJhdWQiOiJodHRwOi8vMTI3LjAuMC4xOjMwMDAvbWNwIiwic3ViIjoiYSIsImV4cCI6NDEwMjQ0NDgwMH0", "A" * 86])
    expect(1, post(url, INITIALIZE, {"authorization": f"Bearer {token}"})[1])

    expect(1, guide.sh("longshore list https://127.0.0.1:3000/mcp", ok=False))

    serve("limits: { address: { per_second: 1, burst: 4 } }\n")
    session = initialize(url)
    expect(1, "".join(post(url, {"jsonrpc": "2.0", "id": 2, "method": "ping"}, session)[1] for _ in range(8)))
    serve("server: { streams: { total: 1 } }\n")
    session = initialize(url)
    stream = urllib.request.Request(url, headers={"accept": "text/event-stream", **session})
    other = urllib.request.Request(url, headers={"accept": "text/event-stream", **initialize(url)})
    with urllib.request.urlopen(stream):
        try:
            with urllib.request.urlopen(other):
                raise Failed("a second stream was accepted")
        except urllib.error.HTTPError as error:
            expect(1, error.read().decode())
    serve("")
    expect(1, post(url, {"jsonrpc": "2.0", "id": 2, "method": "ping"}, session)[1])
    # A reload with a mistake, and one that needs a restart.
    config("http: { prot: 1 }\n")
    guide.until("the reload fails", lambda: found(guide.logged()))
    config("http: { workers: 1 }\n")
    guide.until("a restart is needed", lambda: found(guide.logged()))

    guide.sh("longshore run --host 127.0.0.1 --port 3981", ready="http://127.0.0.1:3981/health")
    demo = guide.processes[-1]
    guide.processes.pop()
    serve("upstreams: { demo: { url: http://127.0.0.1:3981/mcp } }\n")
    guide.processes.append(demo)
    end_session(demo, signal.SIGKILL)
    echo = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "demo__echo", "arguments": {"message": "a"}}}
    session = initialize(url)
    output = "".join(post(url, echo, session)[1] for _ in range(8))
    expect(2, output)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        serve(f"server: {{ call_timeout_seconds: 2 }}\nupstreams_wait_seconds: 0\nupstreams: {{ demo: {{ url: 'http://127.0.0.1:{silent.getsockname()[1]}/mcp' }} }}\n")
        expect(1, post(url, echo, initialize(url))[1])

    # Two messages are of tools in Rust.
    new_project(guide, "longshore init faults --rust --path ../longshore\ncd faults")
    (guide.cwd / "src/main.rs").write_text(
        """use longshore::{App, CallContext, ToolError, tool};
use std::sync::atomic::{AtomicU32, Ordering};

static RUNS: AtomicU32 = AtomicU32::new(0);

/// Sends another request each time.
#[tool]
async fn diverges(context: &CallContext) -> Result<String, ToolError> {
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    context.elicit_url(format!("Page {run}"), format!("https://example.com/{run}")).await?;
    Ok(String::new())
}

/// Never responds.
#[tool(timeout = "1s")]
async fn hangs() {
    std::future::pending().await
}

/// Panics.
#[tool]
async fn panics() -> String {
    panic!("a reason")
}

fn main() -> longshore::Result {
    tracing_subscriber::fmt().init();
    App::new().tool(diverges).tool(hangs).tool(panics).run()
}
"""
    )
    guide.stop()
    serve_project(guide)
    expect(1, guide.sh(f"longshore call {url} hangs", ok=False))
    guide.sh(f"longshore call {url} panics", ok=False)
    expect(1, guide.sh(f"longshore call {url} diverges", ok=False))
    guide.until("the panic is logged", lambda: "a reason" in guide.logged())
    expect(1, guide.logged())
    guide.terminal(["longshore", "call", url, "diverges"], ["", "", ""], seconds=40)
    guide.until("the difference is logged", lambda: found(guide.logged()), seconds=10)
    if left:
        raise Failed(f"messages that were not provoked: {sorted(left)}")


def migrate(guide):
    # FastMCP, before and after.
    venv = CACHE / "fastmcp"
    if not (venv / ".complete").exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", ROOT / "interop/python/python-fastmcp.txt"], check=True)
        (venv / ".complete").touch()
    guide.save("weather.py", "from fastmcp import FastMCP", change=lambda text: text.replace("port=3000", 'host="127.0.0.1", port=3001'))
    guide.background([venv / "bin/python", "weather.py"])
    guide.until("FastMCP listens", lambda: listens(3001), seconds=60)
    new_project(guide, guide.block("longshore init weather"))
    (guide.cwd / "src/main.rs").write_text(guide.block("packing_list(city: String)", "rust"))
    serve_project(guide)
    compare = guide.block("longshore list OLD_URL", "sh").replace("OLD_URL", "http://127.0.0.1:3001/mcp").replace("NEW_URL", "http://127.0.0.1:3000/mcp")
    guide.sh(compare.replace("diff old.json new.json", "diff old.json new.json || true"))
    old, new = (json.loads((guide.cwd / name).read_text()) for name in ("old.json", "new.json"))
    for kind in ("tools", "resources", "prompts"):
        names = [[item.get("uri") or item["name"] for item in one.get(kind, [])] for one in (old, new)]
        if names[0] != names[1] or not names[0]:
            raise Failed(f"{kind}: before {names[0]}, after {names[1]}")
    for days, expected in (("1", "22.0"), ("3", "24.0")):
        for port in (3001, 3000):
            guide.has(expected, guide.sh(f"longshore call http://127.0.0.1:{port}/mcp forecast city=Rome days={days}"))
    guide.stop()
    # The tool of rmcp is like that of loadtest/peers, which is compiled and called there.
    guide.block("use rmcp::{ServiceExt")
    (guide.cwd / "src/main.rs").write_text(guide.block("async fn add(a: i32"))
    serve_project(guide)
    guide.has("5", guide.sh("longshore call http://127.0.0.1:3000/mcp add a=2 b=3"))
    guide.stop()
    # The TypeScript SDK, before and after, in front of the same API.
    api = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Orders)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{api.server_port}"
    node = CACHE / "typescript"
    if not (node / ".complete").exists():
        node.mkdir(parents=True, exist_ok=True)
        (node / "package.json").write_text('{"type": "module", "private": true}\n')
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "@modelcontextprotocol/sdk@1.29.0", "zod@4", "tsx@4"], cwd=node, check=True)
        (node / ".complete").touch()
    (node / "shop.ts").write_text(guide.block("server.registerTool", "typescript").replace("https://shop.example.com", base))
    guide.env["SHOP_TOKEN"] = "a"
    (guide.cwd / "old.json").write_text(json.dumps({"mcpServers": {"shop": {"command": str(node / "node_modules/.bin/tsx"), "args": [str(node / "shop.ts")], "env": {"SHOP_TOKEN": "a"}}}}))
    guide.save("shop.yaml", "name: order_status", "yaml", change=lambda text: text.replace("https://shop.example.com", base))
    (guide.cwd / "new.json").write_text(json.dumps({"mcpServers": {"shop": {"command": "longshore", "args": guide.block("longshore run --config shop.yaml").split("#")[0].split()[1:], "env": {"SHOP_TOKEN": "a"}}}}))
    for file in ("old.json", "new.json"):
        guide.has("order_status", guide.sh(f"longshore list --config {file} shop"))
        guide.has("shipped", guide.sh(f"longshore call --config {file} shop order_status id=7"))
        guide.has("There is no order 8.", guide.sh(f"longshore call --config {file} shop order_status id=8", ok=False))
    api.shutdown()


class Orders(http.server.BaseHTTPRequestHandler):
    """The API of the shop: it has one order."""

    def do_GET(self):
        known = self.path == "/orders/7" and self.headers["authorization"] == "Bearer a"
        self.send_response(200 if known else 404)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"id": 7, "status": "shipped"}' if known else b"{}")

    def log_message(self, *_):
        pass


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Skipped(Exception):
    pass


# In the order of docs/SUMMARY.md.
ALL = [
    readme, get_started, openapi, rust_tools, upstreams, asking_and_tasks, lifecycle, kubernetes, cloud_run, oauth, identity_providers, callers_rights, prometheus, tuning,
    troubleshooting, migrate,
]


def follow(function, scratch):
    name = function.__name__.replace("_", "-")
    folder = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=scratch))
    guide = Guide(name, folder)
    try:
        function(guide)
        if missing := list(guide.missing()):
            raise Failed(f"blocks that nothing uses: {missing}")
        minutes = max(1, round(len(guide.text.split()) / READING + guide.seconds / 60))
        reasons = {}
        for what, why in guide.left_out.items():
            reasons.setdefault(why, []).append(what if what.startswith("steps") else f"`{' '.join(what.split()[:2])}`")
        left = "; ".join(f"{', '.join(what)}: {why}" for why, what in reasons.items())
        print(f"PASS {name}: {guide.commands} commands, {guide.seconds:.0f} s{'; not tried: ' + left if left else ''}", flush=True)
        return {"name": name, "commands": guide.commands, "seconds": round(guide.seconds), "minutes": minutes, "left": left, "outcome": "passed"}
    except Skipped as why:
        print(f"SKIP {name}: {why}", flush=True)
        return {"name": name, "outcome": "skipped"}
    except (Failed, KeyError, ValueError, IndexError, AttributeError, OSError, subprocess.CalledProcessError) as why:
        print(f"FAIL {name}: {type(why).__name__}: {why}", flush=True)
        return {"name": name, "outcome": "failed"}
    finally:
        guide.close()


def main():
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    known = [function.__name__.replace("_", "-") for function in ALL]
    if "-h" in sys.argv or "--help" in sys.argv:
        print(__doc__)
        return 0
    if unknown := (set(names) - set(known)) | {flag for flag in sys.argv[1:] if flag.startswith("-") and flag != "--write"}:
        print(f"unknown: {', '.join(sorted(unknown))}; the guides are {', '.join(known)}", file=sys.stderr)
        return 2
    if lost := {path.stem for path in GUIDES.glob("*.md")} - set(known):
        print(f"no function follows {', '.join(sorted(lost))}", file=sys.stderr)
        return 1
    if taken := [port for port in (3000, 3001, 3981, 8000, 9464, 9777) if listens(port)]:
        print(f"ports in use: {taken}", file=sys.stderr)
        return 2
    if not PROGRAM.exists():
        subprocess.run(["cargo", "build", "--locked", "--quiet"], cwd=ROOT, check=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="longshore-follow.") as scratch:
        results = [follow(function, scratch) for function, name in zip(ALL, known) if not names or name in names]
    counts = [sum(1 for result in results if result["outcome"] == outcome) for outcome in ("passed", "failed", "skipped")]
    if "--write" in sys.argv and not names and counts[1:] == [0, 0]:
        write(results)
    print("{} passed, {} failed, {} skipped".format(*counts))
    return 1 if counts[1] else 0


def write(results):
    text = f"\nRun on {datetime.date.today()}, {os.cpu_count()} cores:\n\n| Guide | Commands | Their time | With reading | Not tried |\n|---|---:|---:|---:|---|\n"
    for result in results:
        page = "../README.md" if result["name"] == "readme" else f"guides/{result['name']}.md"
        text += f"| [{result['name']}]({page}) | {result['commands']} | {result['seconds']} s | {result['minutes']} min | {result['left']} |\n"
    page = PAGE.read_text()
    PAGE.write_text(page[: page.index(BEGIN) + len(BEGIN)] + text + "\n" + page[page.index(END):])


if __name__ == "__main__":
    sys.exit(main())
