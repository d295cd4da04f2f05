"""The official Python client, v2 line.

    python-v2.py MODE http URL
    python-v2.py MODE stdio COMMAND...

MODE is the client's own word: `auto` (its default: probes with `server/discover`),
`legacy` (the session era) or `2026-07-28` (adopted without a probe).
"""

import sys
import warnings

import anyio
from mcp import Client, MCPDeprecationWarning, StdioServerParameters

# The client deprecates ping, which the session era still has.
warnings.simplefilter("ignore", MCPDeprecationWarning)


async def main(mode: str, kind: str, *target: str) -> None:
    server = target[0] if kind == "http" else StdioServerParameters(command=target[0], args=list(target[1:]))
    expected = "2025-11-25" if mode == "legacy" else "2026-07-28"
    async with Client(server, mode=mode) as client:
        version = client.protocol_version
        assert version == expected, f"negotiated {version}, expected {expected}"

        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"echo", "fail"} <= set(names), f"listed: {names}"
        for message in ["hello", 'héllo "wörld"\n🦀']:
            result = await client.call_tool("echo", {"message": message})
            assert not result.is_error and result.content[0].text == message, result
        assert (await client.call_tool("fail", {})).is_error, "fail does not answer isError"
        did = [version, f"{len(names)} tools", "echo", "fail"]
        if mode == "legacy":
            await client.send_ping()
            did.append("ping")
    print(", ".join(did))


anyio.run(main, *sys.argv[1:])
