"""The server under measurement: this library's, twin of ``stdio_official.py``."""

from __future__ import annotations

import trio

from trio_mcp import Server

server = Server("benchmark", version="1.0.0")
live = 0


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def sleep(seconds: float) -> str:
    """Sleep, and count as live meanwhile."""
    global live
    live += 1
    try:
        await trio.sleep(seconds)
    finally:
        live -= 1
    return "slept"


@server.tool
async def stats() -> int:
    """The number of live ``sleep`` handlers."""
    return live


if __name__ == "__main__":
    trio.run(server.serve_stdio)
