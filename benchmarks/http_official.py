"""The benchmark's HTTP server on the official SDK; its twin is ``http_ours.py``.

``python http_official.py uvicorn PORT`` (uvloop and httptools) or ``… hypercorn PORT`` (its Trio
worker). Stateless, one JSON body per answer. The tools are those of the twin.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, TypedDict

import anyio
from mcp.server import MCPServer

server = MCPServer("benchmark", version="1.0.0", log_level="WARNING")
stocked = 0
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
    global stocked
    stocked += 1
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
async def calls() -> int:
    """How often ``stock`` was called."""
    return stocked


@server.tool()
async def alive() -> int:
    """The number of live ``sleep`` handlers."""
    return live


@server.tool()
async def ended(label: str) -> float:
    """When the ``sleep`` handler of that label ended; 0 if it has not."""
    return ends.get(label, 0.0)


def _serve_on_uvicorn(port: int) -> None:
    import uvicorn

    app = server.streamable_http_app(stateless_http=True, json_response=True)
    uvicorn.run(
        app, port=port, loop="uvloop", http="httptools", log_level="warning", access_log=False
    )


def _serve_on_hypercorn(port: int) -> None:
    import trio
    from hypercorn.config import Config
    from hypercorn.trio import serve

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    app: Any = server.streamable_http_app(stateless_http=True, json_response=True)
    trio.run(serve, app, config)


if __name__ == "__main__":
    logging.disable(logging.INFO)
    {"uvicorn": _serve_on_uvicorn, "hypercorn": _serve_on_hypercorn}[sys.argv[1]](int(sys.argv[2]))
