"""The client of FastMCP, the best known Python framework outside the official SDK.

    python-fastmcp.py MODE http URL
    python-fastmcp.py MODE stdio COMMAND...

MODE as for the official Python client, v2 line, which it stands on.
"""

import json
import sys

import anyio
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp_types import PromptReference


async def main(mode: str, kind: str, *target: str) -> None:
    server = target[0] if kind == "http" else StdioTransport(command=target[0], args=list(target[1:]))
    expected = "2025-11-25" if mode == "legacy" else "2026-07-28"
    reports, logged = [], []

    async def log(message):
        logged.append(message)

    async def sample(messages, params, context):
        return "Paris"

    async def elicit(message, response_type, params, context):
        return {"username": "Ada", "email": "ada@example.com"}

    async def progressed(progress, total, message):
        reports.append(progress)

    asked = {"sampling_handler": sample, "elicitation_handler": elicit, "roots": ["file:///project"]}
    asked["log_handler"] = log
    async with Client(server, mode=mode, **asked) as client:
        version = client.protocol_version
        assert version == expected, f"negotiated {version}, expected {expected}"

        names = [tool.name for tool in await client.list_tools()]
        assert {"echo", "test_error_handling"} <= set(names), f"listed: {names}"
        for message in ["hello", 'héllo "wörld"\n🦀']:
            result = await client.call_tool("echo", {"message": message}, raise_on_error=False)
            assert not result.is_error and result.content[0].text == message, result
        failed = await client.call_tool("test_error_handling", {}, raise_on_error=False)
        assert failed.is_error, "test_error_handling does not answer isError"
        contents = await client.read_resource("test://template/7/data")
        assert json.loads(contents[0].text)["id"] == "7", contents
        got = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert "arg1='a', arg2='b'" in got.messages[0].content.text, got
        await client.call_tool("test_tool_with_progress", {}, progress_handler=progressed)
        assert reports == [0, 50, 100], reports
        for tool, arguments, expected in [
            ("test_sampling", {"prompt": "Where?"}, "Paris"),
            ("test_elicitation", {"message": "Who?"}, "ada@example.com"),
            ("list_roots", {}, "file:///project"),
        ]:
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            assert expected in result.content[0].text, f"{tool}: {result}"
        ref = PromptReference(type="ref/prompt", name="introduce_colleague")
        completed = await client.complete(ref, {"name": "team", "value": "s"})
        assert completed.values == ["sales", "support"], completed
        did = [version, f"{len(names)} tools", "call", "read", "get", "complete", "progress"]
        did += ["sampling", "elicitation", "roots"]

        with anyio.move_on_after(1) as scope:
            await client.call_tool("long_operation", {"seconds": 30})
        assert scope.cancelled_caught, "the call was not cancelled"
        result = await client.call_tool("echo", {"message": "x"})
        assert result.content[0].text == "x"
        did.append("cancellation")
        if mode == "legacy":
            await client.set_logging_level("debug")
        # In the stateless era the client has each request ask for all messages.
        await client.call_tool("test_tool_with_logging", {})
        with anyio.fail_after(5):
            while len(logged) < 3:
                await anyio.sleep(0.05)
        did.append("logging")
        if mode == "legacy":
            assert await client.ping(), "no answer to ping"
            did.append("ping")
    print(", ".join(did))


anyio.run(main, *sys.argv[1:])
