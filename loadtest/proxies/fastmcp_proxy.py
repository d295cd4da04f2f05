"""A FastMCP proxy, over streamable HTTP: fastmcp_proxy.py PORT http URL, or PORT stdio COMMAND..."""

import sys

from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.server.server import create_proxy

port, kind, *rest = sys.argv[1:]
transport = StreamableHttpTransport(rest[0]) if kind == "http" else StdioTransport(rest[0], rest[1:])
create_proxy(transport, name="proxy").run(
    transport="http", host="127.0.0.1", port=int(port), path="/mcp", show_banner=False
)
