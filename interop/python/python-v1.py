"""The official Python client, v1 line: the session era only; it offers 2025-11-25
and cannot be told another revision.

    python-v1.py 2025-11-25 http URL
    python-v1.py 2025-11-25 stdio COMMAND...
"""

import json
import sys
from contextlib import asynccontextmanager

import anyio
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def streams(kind: str, target: list[str]):
    if kind == "http":
        async with streamable_http_client(target[0]) as (read, write, session_id):
            yield read, write, session_id
    else:
        async with stdio_client(StdioServerParameters(command=target[0], args=target[1:])) as (read, write):
            yield read, write, None


async def sample(context, params):
    return types.CreateMessageResult(role="assistant", model="none", content=types.TextContent(type="text", text="Paris"))


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"username": "Ada", "email": "ada@example.com"})


async def roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///project", name="work")])


async def main(revision: str, kind: str, *target: str) -> None:
    logged, updated = [], []

    async def log(params):
        logged.append(params)

    async def heard(message):
        if isinstance(message, types.ServerNotification) and isinstance(message.root, types.ResourceUpdatedNotification):
            updated.append(message)

    async def until(done):
        with anyio.fail_after(5):
            while not done():
                await anyio.sleep(0.05)

    asked = {"sampling_callback": sample, "elicitation_callback": elicit, "list_roots_callback": roots}
    asked |= {"logging_callback": log, "message_handler": heard}
    async with streams(kind, list(target)) as (read, write, session_id), ClientSession(read, write, **asked) as client:
        version = (await client.initialize()).protocolVersion
        assert version == revision, f"negotiated {version}, expected {revision}"
        assert session_id is None or session_id(), "the server opened no session"

        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"echo", "test_error_handling"} <= set(names), f"listed: {names}"
        for message in ["hello", 'héllo "wörld"\n🦀']:
            result = await client.call_tool("echo", {"message": message})
            assert not result.isError and result.content[0].text == message, result
        assert (await client.call_tool("test_error_handling", {})).isError, "test_error_handling does not answer isError"

        contents = (await client.read_resource("test://template/7/data")).contents
        assert json.loads(contents[0].text)["id"] == "7", contents
        got = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert "arg1='a', arg2='b'" in got.messages[0].content.text, got
        ref = types.PromptReference(type="ref/prompt", name="introduce_colleague")
        completed = await client.complete(ref, {"name": "team", "value": "s"})
        assert completed.completion.values == ["sales", "support"], completed

        reports = []

        async def progressed(progress, total, message):
            reports.append(progress)

        await client.call_tool("test_tool_with_progress", {}, progress_callback=progressed)
        assert reports == [0, 50, 100], reports
        await client.set_logging_level("debug")
        await client.call_tool("test_tool_with_logging", {})
        await until(lambda: len(logged) >= 3)

        text = (await client.call_tool("test_sampling", {"prompt": "Where?"})).content[0].text
        assert text == "LLM response: Paris", text
        text = (await client.call_tool("test_elicitation", {"message": "Who?"})).content[0].text
        assert "action=accept" in text and "ada@example.com" in text, text
        text = (await client.call_tool("list_roots", {})).content[0].text
        assert "file:///project" in text, text

        await client.subscribe_resource("test://watched-resource")
        await client.call_tool("touch_watched_resource", {})
        await until(lambda: updated)
        await client.unsubscribe_resource("test://watched-resource")
        with anyio.move_on_after(1) as scope:
            await client.call_tool("long_operation", {"seconds": 30})
        assert scope.cancelled_caught, "the call was not cancelled"
        assert (await client.call_tool("echo", {"message": "x"})).content[0].text == "x"

        arguments = {"seconds": 0.1, "label": "x"}
        begun = await client.experimental.call_tool_as_task("slow_compute", arguments, ttl=60000)
        async for status in client.experimental.poll_task(begun.task.taskId):
            pass
        assert status.status == "completed", status
        result = await client.experimental.get_task_result(begun.task.taskId, types.CallToolResult)
        assert result.content[0].text == "x: computed for 0.1 s", result
        await client.send_ping()
    did = "call, read, get, complete, progress, logging, sampling, elicitation, roots, subscription, cancellation, task, ping"
    print(f"{version}, {len(names)} tools, {did}")


anyio.run(main, *sys.argv[1:])
