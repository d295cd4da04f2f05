#!/usr/bin/env python3
"""An MCP server over stdio that goes wrong.

  bad.py HOW [called]

HOW is hang, crash, garbage or endless. It does so from the start; with `called` it first says what it offers, like any other,
and goes wrong when its tool is called.
"""

import json
import os
import sys
import time

how, when_called = sys.argv[1], sys.argv[2:] == ["called"]


def go_wrong():
    out = sys.stdout.buffer
    if how == "crash":
        os._exit(1)
    if how == "garbage":
        out.write(b"Traceback (most recent call last):\n\xff\xfe{\n{\"jsonrpc\": \"1.0\"}\n[[[[\n\n{}\n")
        out.flush()
        return
    if how == "endless":
        try:
            while True:
                out.write(b"x" * 65536)
                out.flush()
        except BrokenPipeError:
            os._exit(0)
    while True:
        time.sleep(3600)


def answer(message, result):
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if not when_called and how != "garbage":
    go_wrong()
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if not when_called or method == "tools/call":
        go_wrong()
    elif method == "initialize":
        answer(message, {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": how, "version": "1"},
        })
    elif method == "tools/list":
        answer(message, {"tools": [{"name": "go", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]})
    elif "id" in message:
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
