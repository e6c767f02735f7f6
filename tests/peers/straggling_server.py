"""A server for ``trio-mcp run`` whose ``block`` never stops and never asks, in 200 threads."""

from __future__ import annotations

import threading

from trio_mcp import Limits, Server

server = Server(
    "straggling", version="1", limits=Limits(threads=200, cleanup=0.1, drain=0.1, longest_cleanup=5)
)
begun: list[int] = []


@server.tool
def block(n: int) -> None:
    """Wait for ever."""
    begun.append(n)
    threading.Event().wait()


@server.tool
async def count() -> int:
    """How many of them have begun."""
    return len(begun)
