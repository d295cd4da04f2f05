"""The official Python client, v1 line: the session era only; it offers 2025-11-25
and cannot be told another revision.

    python-v1.py 2025-11-25 http URL
    python-v1.py 2025-11-25 stdio COMMAND...
"""

import sys
from contextlib import asynccontextmanager

import anyio
from mcp import ClientSession, StdioServerParameters
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


async def main(revision: str, kind: str, *target: str) -> None:
    async with streams(kind, list(target)) as (read, write, session_id), ClientSession(read, write) as client:
        version = (await client.initialize()).protocolVersion
        assert version == revision, f"negotiated {version}, expected {revision}"
        assert session_id is None or session_id(), "the server opened no session"

        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"echo", "fail"} <= set(names), f"listed: {names}"
        for message in ["hello", 'héllo "wörld"\n🦀']:
            result = await client.call_tool("echo", {"message": message})
            assert not result.isError and result.content[0].text == message, result
        assert (await client.call_tool("fail", {})).isError, "fail does not answer isError"
        await client.send_ping()
    print(f"{version}, {len(names)} tools, echo, fail, ping")


anyio.run(main, *sys.argv[1:])
