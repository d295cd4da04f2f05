"""The official Python client, v2 line.

    python-v2.py MODE http URL
    python-v2.py MODE stdio COMMAND...

MODE is the client's own word: `auto` (its default: probes with `server/discover`),
`legacy` (the session era) or `2026-07-28` (adopted without a probe).
"""

import json
import sys
import warnings

import anyio
import mcp_types as types
from mcp import Client, MCPDeprecationWarning, StdioServerParameters

# The client deprecates ping, which the session era still has, and what it can be asked.
warnings.simplefilter("ignore", MCPDeprecationWarning)


async def sample(context, params):
    return types.CreateMessageResult(role="assistant", model="none", content=types.TextContent(type="text", text="Paris"))


async def elicit(context, params):
    return types.ElicitResult(action="accept", content={"username": "Ada", "email": "ada@example.com"})


async def roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///project", name="work")])


async def main(mode: str, kind: str, *target: str) -> None:
    server = target[0] if kind == "http" else StdioServerParameters(command=target[0], args=list(target[1:]))
    expected = "2025-11-25" if mode == "legacy" else "2026-07-28"
    logged, updated = [], []

    async def log(params):
        logged.append(params)

    async def heard(message):
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.append(message)

    asked = {"sampling_callback": sample, "elicitation_callback": elicit, "list_roots_callback": roots}
    asked |= {"logging_callback": log, "message_handler": heard}
    if mode != "legacy":
        # A session stores its log level; here each request has one.
        asked["log_level"] = "debug"
    async with Client(server, mode=mode, **asked) as client:
        version = client.protocol_version
        assert version == expected, f"negotiated {version}, expected {expected}"

        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"echo", "test_error_handling"} <= set(names), f"listed: {names}"
        for message in ["hello", 'héllo "wörld"\n🦀']:
            result = await client.call_tool("echo", {"message": message})
            assert not result.is_error and result.content[0].text == message, result
        assert (await client.call_tool("test_error_handling", {})).is_error, "test_error_handling does not answer isError"
        did = [version, f"{len(names)} tools", "call"]

        read = await client.read_resource("test://template/7/data")
        assert json.loads(read.contents[0].text)["id"] == "7", read
        got = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert "arg1='a', arg2='b'" in got.messages[0].content.text, got
        ref = types.PromptReference(type="ref/prompt", name="introduce_colleague")
        completed = await client.complete(ref, {"name": "team", "value": "s"})
        assert completed.completion.values == ["sales", "support"], completed
        did += ["read", "get", "complete"]

        reports = []

        async def progressed(progress, total, message):
            reports.append(progress)

        await client.call_tool("test_tool_with_progress", {}, progress_callback=progressed)
        assert reports == [0, 50, 100], reports
        did.append("progress")

        if mode == "legacy":
            await client.set_logging_level("debug")
        await client.call_tool("test_tool_with_logging", {})
        with anyio.fail_after(5):
            while len(logged) < 3:
                await anyio.sleep(0.05)
        did.append("logging")

        text = (await client.call_tool("test_sampling", {"prompt": "Where?"})).content[0].text
        assert text == "LLM response: Paris", text
        text = (await client.call_tool("test_elicitation", {"message": "Who?"})).content[0].text
        assert "action=accept" in text and "ada@example.com" in text, text
        text = (await client.call_tool("list_roots", {})).content[0].text
        assert "file:///project" in text, text
        did += ["sampling", "elicitation", "roots"]

        watched = "test://watched-resource"
        if mode == "legacy":
            await client.subscribe_resource(watched)
            await client.call_tool("touch_watched_resource", {})
            with anyio.fail_after(5):
                while not updated:
                    await anyio.sleep(0.05)
            await client.unsubscribe_resource(watched)
        else:
            async with client.listen(resource_subscriptions=[watched]) as subscription:
                await client.call_tool("touch_watched_resource", {})
                with anyio.fail_after(5):
                    async for event in subscription:
                        break
        did.append("subscription")

        with anyio.move_on_after(1) as scope:
            await client.call_tool("long_operation", {"seconds": 30})
        assert scope.cancelled_caught, "the call was not cancelled"
        assert (await client.call_tool("echo", {"message": "x"})).content[0].text == "x"
        did.append("cancellation")

        if mode == "legacy":
            await client.send_ping()
            did.append("ping")
    print(", ".join(did))


anyio.run(main, *sys.argv[1:])
