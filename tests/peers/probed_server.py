"""A server of this library for `trio-mcp probe`, on any wire:

| tool | what it does |
| --- | --- |
| `slow(seconds)` | waits; says that it only reads |
| `stream(seconds)` | waits, and reports progress meanwhile |
| `stubborn(seconds)` | waits, whatever anybody says |
| `alive()` | how many of these run |

`python tests/peers/probed_server.py` serves stdio; with `--http`, `--websocket` or `--tcp` that, on
a port of 127.0.0.1 which is its first line.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from trio_mcp import Context, Limits, Server, ToolAnnotations

__all__ = ["server"]

server = Server("probed", version="1.0.0", limits=Limits(longest_cleanup=60))
_running: set[object] = set()


class _Run:
    def __enter__(self) -> None:
        _running.add(self)

    def __exit__(self, *_: object) -> None:
        _running.discard(self)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def slow(seconds: float) -> str:
    """Wait."""
    with _Run():
        await trio.sleep(seconds)
    return "waited"


@server.tool
async def stream(seconds: float, ctx: Context) -> str:
    """Wait, and report progress."""
    with _Run():
        for done in range(int(seconds * 10)):
            ctx.progress(done)
            await trio.sleep(0.1)
    return "waited"


@server.tool
async def stubborn(seconds: float, ctx: Context) -> str:
    """Wait, whatever anybody says."""
    with _Run():
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
    return "waited"


@server.tool
async def alive() -> int:
    """How many of these run."""
    return len(_running)


async def _serve() -> None:
    if "--http" in sys.argv:
        await _listen(partial(server.serve_http, "127.0.0.1", 0))
    elif "--websocket" in sys.argv:
        await _listen(partial(server.serve_websocket, "127.0.0.1", 0))
    elif "--tcp" in sys.argv:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        print(listener.socket.getsockname()[1], flush=True)
        await trio.serve_listeners(_serve_stream, [listener])
    else:
        await server.serve_stdio()


async def _listen(serve: Callable[..., Awaitable[object]]) -> None:
    async with trio.open_nursery() as nursery:
        print(await nursery.start(serve), flush=True)


async def _serve_stream(stream: trio.SocketStream) -> None:
    await server.serve_stream(stream)


if __name__ == "__main__":
    trio.run(_serve)
