"""The client of FastMCP, the best known Python framework outside the official SDK.

    python-fastmcp.py MODE http URL
    python-fastmcp.py MODE stdio COMMAND...

MODE as for the official Python client, v2 line, which it stands on.
"""

import sys

import anyio
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main(mode: str, kind: str, *target: str) -> None:
    server = target[0] if kind == "http" else StdioTransport(command=target[0], args=list(target[1:]))
    expected = "2025-11-25" if mode == "legacy" else "2026-07-28"
    async with Client(server, mode=mode) as client:
        version = client.protocol_version
        assert version == expected, f"negotiated {version}, expected {expected}"

        names = [tool.name for tool in await client.list_tools()]
        assert {"echo", "fail"} <= set(names), f"listed: {names}"
        for message in ["hello", 'héllo "wörld"\n🦀']:
            result = await client.call_tool("echo", {"message": message}, raise_on_error=False)
            assert not result.is_error and result.content[0].text == message, result
        failed = await client.call_tool("fail", {}, raise_on_error=False)
        assert failed.is_error, "fail does not answer isError"
        did = [version, f"{len(names)} tools", "echo", "fail"]
        if mode == "legacy":
            assert await client.ping(), "no answer to ping"
            did.append("ping")
    print(", ".join(did))


anyio.run(main, *sys.argv[1:])
