"""`python peer.py (mcp | fastmcp | chuk) PORT (session | stateless)`: an echo tool at `/mcp`, served by one of the Python frameworks.

With `stateless` there are no sessions, and responses are JSON, as the documentation of the first two recommends for production. The third
has one mode.
"""

import sys

NAME, PORT, MODE = sys.argv[1], int(sys.argv[2]), sys.argv[3]
STATELESS = {"stateless_http": MODE == "stateless", "json_response": MODE == "stateless"}


def serve(app) -> None:
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning", access_log=False, loop="uvloop", http="httptools")


if NAME == "mcp":
    from mcp.server import MCPServer

    server = MCPServer("peer", log_level="WARNING")

    @server.tool()
    async def echo(message: str) -> str:
        """Returns the message."""
        return message

    serve(server.streamable_http_app(**STATELESS))
elif NAME == "fastmcp":
    from fastmcp import FastMCP

    server = FastMCP("peer")

    @server.tool
    async def echo(message: str) -> str:
        """Returns the message."""
        return message

    serve(server.http_app(path="/mcp", **STATELESS))
else:
    from chuk_mcp_server import ChukMCPServer

    server = ChukMCPServer("peer")

    @server.tool
    async def echo(message: str) -> str:
        """Returns the message."""
        return message

    server.run(host="127.0.0.1", port=PORT)
