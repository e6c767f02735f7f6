"""The servers on the official Python SDK: ``… benchmarks.servers.official WIRE [PORT]``.

The tools are those of ``ours.py``. Set up for speed: stateless, on uvicorn with httptools and, if
it is installed, uvloop; no access log. ``http-json`` answers with one body, ``http-sse`` with an
event stream.
"""

from __future__ import annotations

import logging
import sys
import time
from importlib.util import find_spec
from typing import TypedDict

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("benchmark", version="1.0.0", log_level="WARNING")
called = 0
live = 0
ends: dict[str, float] = {}


class Stock(TypedDict):
    """What is in stock of a book."""

    title: str
    copies: int
    price: float


@server.tool()
async def stock(title: str) -> Stock:
    """What is in stock of a book."""
    global called
    called += 1
    return {"title": title, "copies": 3, "price": 12.5}


@server.tool()
async def search(title: str, ctx: Context) -> Stock:
    """What is in stock of a book, with progress on the way."""
    global called
    called += 1
    for done in range(1, 4):
        await ctx.report_progress(done, 3)
    return {"title": title, "copies": 3, "price": 12.5}


@server.tool()
async def sleep(seconds: float, label: str = "") -> str:
    """Sleep, and count as live meanwhile."""
    global live
    live += 1
    try:
        await anyio.sleep(seconds)
    finally:
        live -= 1
        if label:
            ends[label] = time.monotonic()
    return "slept"


@server.tool()
async def alive() -> int:
    """The number of live ``sleep`` handlers."""
    return live


@server.tool()
async def ended(label: str) -> float:
    """When the ``sleep`` handler of that label ended; 0 if it has not."""
    return ends.get(label, 0.0)


@server.tool()
async def calls() -> int:
    """How often ``stock`` and ``search`` were called."""
    return called


def _serve_http(port: int, *, json: bool) -> None:
    import uvicorn

    uvicorn.run(
        server.streamable_http_app(stateless_http=True, json_response=json),
        port=port,
        loop="uvloop" if find_spec("uvloop") else "asyncio",
        http="httptools",
        log_level="warning",
        access_log=False,
    )


def main(wire: str, *port: str) -> None:
    logging.disable(logging.INFO)
    if wire == "stdio":
        anyio.run(
            server.run_stdio_async, backend_options={"use_uvloop": find_spec("uvloop") is not None}
        )
    else:
        _serve_http(int(port[0]), json=wire == "http-json")


if __name__ == "__main__":
    main(*sys.argv[1:])
