"""The server that is overloaded: ``python overloaded.py PORT HTTP_PORT`` serves TCP and HTTP.

With ``tuned`` behind it, Python's collector is told to look at all objects less often.

``work(seconds)`` waits; 100 requests run at once, 200 are in flight at most. ``echo(text)`` answers
at once. ``idle()`` is the number of requests in flight, itself included.
"""

from __future__ import annotations

import gc
import sys
from functools import partial

import trio

from trio_mcp import Limits, Server

LIMITS = Limits(
    handlers=100,
    handlers_per_client=90,
    exchanges=200,
    exchanges_per_connection=200,
    retry_after=0.1,
)
server = Server("overloaded", version="1.0.0", limits=LIMITS)


@server.tool
async def work(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "done"


@server.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool
async def idle() -> int:
    """Requests in flight."""
    return len(server.inflight())


async def main(port: int, http_port: int) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_tcp, server.serve_stream, port, host="127.0.0.1"))
        nursery.start_soon(server.serve_http, "127.0.0.1", http_port)


if __name__ == "__main__":
    if sys.argv[3:] == ["tuned"]:
        gc.freeze()
        gc.set_threshold(10_000, 20, 1_000)
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]))
