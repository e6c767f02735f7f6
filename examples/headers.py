"""An argument that is a header too, for proxies to route by: ``python examples/headers.py``."""

from functools import partial
from typing import Annotated

import trio

from trio_mcp import McpHeader, Principal, RequestHead, Server, connect

server = Server("reports", version="1.0.0")


@server.tool
async def query(sql: str, region: Annotated[str, McpHeader("Region")] = "eu") -> str:
    """Ask the database of a region."""
    return f"{sql} in {region}"


def proxy(request: RequestHead) -> Principal:
    """Stands for a proxy: sees heads, and not one byte of a body."""
    if request.get("mcp-method") == "tools/call":
        print("proxy:", request.get("mcp-name"), "to region", request.get("mcp-param-region"))
    return Principal("anyone")


async def main() -> None:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(server.serve_http, port=0, authenticate=proxy))
        async with connect(f"http://127.0.0.1:{port}/mcp") as client:
            async for tool in client.tools():  # from now on the client knows which ones to repeat
                print(tool.name, tool.input_schema["properties"]["region"]["x-mcp-header"])
            for arguments in ({"sql": "SELECT 1", "region": "us"}, {"sql": "SELECT 2"}):
                print((await client.call_tool("query", arguments)).text)
        nursery.cancel_scope.cancel("closing time")


if __name__ == "__main__":
    trio.run(main)
