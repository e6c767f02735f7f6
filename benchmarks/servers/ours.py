"""The servers on this library: ``python -m benchmarks.servers.ours WIRE [PORT]``.

All servers have the same tools:

| tool | what it does |
| --- | --- |
| ``stock(title)`` | returns a small JSON object, which its schema describes |
| ``search(title)`` | reports progress three times, and returns the same |
| ``sleep(seconds, label)`` | waits |
| ``alive()`` | how many ``sleep`` handlers are alive |
| ``ended(label)`` | when that one's ``finally`` ran: seconds of the monotonic clock, or 0 |
| ``calls()`` | how often ``stock`` and ``search`` were called |

Three limits are not the default: 12,000 connections of HTTP, since 10,000 are measured; no pause
between two reports of progress, which are sent one by one to be counted; and the time after which a
silent answer becomes an event stream: one second on the wire ``http-sse``, where crowds are to be
streams, and an hour on ``http-json``.
"""

from __future__ import annotations

import sys
import time
from typing import TypedDict

import trio

from trio_mcp import Context, Limits, Server

#: Turns of the event loop in which a report has gone out, so that the next one does not replace it.
TURNS = 3

EVENT_STREAMS = sys.argv[1:2] == ["http-sse"]

server = Server(
    "benchmark",
    version="1.0.0",
    limits=Limits(
        http_connections=12_000,
        progress_interval=1e-9,
        http_silence=1.0 if EVENT_STREAMS else 3600.0,
    ),
)
called = 0
live = 0
ends: dict[str, float] = {}


class Stock(TypedDict):
    """What is in stock of a book."""

    title: str
    copies: int
    price: float


@server.tool
async def stock(title: str) -> Stock:
    """What is in stock of a book."""
    global called
    called += 1
    return {"title": title, "copies": 3, "price": 12.5}


@server.tool
async def search(title: str, ctx: Context) -> Stock:
    """What is in stock of a book, with progress on the way."""
    global called
    called += 1
    for done in range(1, 4):
        ctx.progress(done, 3)
        for _ in range(TURNS):
            await trio.lowlevel.checkpoint()
    return {"title": title, "copies": 3, "price": 12.5}


@server.tool
async def sleep(seconds: float, label: str = "") -> str:
    """Sleep, and count as live meanwhile."""
    global live
    live += 1
    try:
        await trio.sleep(seconds)
    finally:
        live -= 1
        if label:
            ends[label] = time.monotonic()
    return "slept"


@server.tool
async def alive() -> int:
    """The number of live ``sleep`` handlers."""
    return live


@server.tool
async def ended(label: str) -> float:
    """When the ``sleep`` handler of that label ended; 0 if it has not."""
    return ends.get(label, 0.0)


@server.tool
async def calls() -> int:
    """How often ``stock`` and ``search`` were called."""
    return called


async def serve(wire: str, port: int = 0) -> None:
    if wire == "stdio":
        await server.serve_stdio()
    elif wire == "tcp":
        await trio.serve_tcp(server.serve_stream, port, host="127.0.0.1")
    elif wire == "websocket":
        await server.serve_websocket(port=port)
    else:
        await server.serve_http(port=port)


if __name__ == "__main__":
    trio.run(serve, sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
