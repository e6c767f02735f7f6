"""The HTTP server under measurement: this library's, twin of ``http_official.py``.

``python http_ours.py native PORT`` or ``… hypercorn PORT``. Tools: ``stock(title)`` returns a small
JSON object, ``sleep(seconds, label)`` waits, ``calls()`` returns how often ``stock`` was called,
``alive()`` how many ``sleep`` handlers are alive, ``ended(label)`` when that one's ``finally`` ran,
in seconds of the machine's monotonic clock, 0 if it has not.
"""

from __future__ import annotations

import sys
import time
from typing import TypedDict

import trio

from trio_mcp import Server

server = Server("benchmark", version="1.0.0")
stocked = 0
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
    global stocked
    stocked += 1
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
async def calls() -> int:
    """How often ``stock`` was called."""
    return stocked


@server.tool
async def alive() -> int:
    """The number of live ``sleep`` handlers."""
    return live


@server.tool
async def ended(label: str) -> float:
    """When the ``sleep`` handler of that label ended; 0 if it has not."""
    return ends.get(label, 0.0)


async def _serve_native(port: int) -> None:
    await server.serve_http(port=port)


async def _serve_on_hypercorn(port: int) -> None:
    from hypercorn.config import Config
    from hypercorn.trio import serve

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    await serve(server.asgi(), config)  # type: ignore[arg-type]  # ours is typed more widely


if __name__ == "__main__":
    trio.run(
        {"native": _serve_native, "hypercorn": _serve_on_hypercorn}[sys.argv[1]], int(sys.argv[2])
    )
