"""A server of this library for `trio-mcp probe`, on any wire:

| tool | what it does |
| --- | --- |
| `slow(seconds)` | waits; says that it only reads |
| `stream(seconds)` | waits, and reports progress meanwhile |
| `stubborn(seconds)` | waits, whatever anybody says |
| `alive()` | how many of these run |

`python tests/peers/probed_server.py` serves stdio; `trio-mcp run tests/peers/probed_server.py` any
network but TCP, which is `--tcp`: the port is its first line.
"""

from __future__ import annotations

import sys

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


async def _serve_tcp() -> None:
    async with trio.open_nursery() as nursery:

        async def serve(stream: trio.SocketStream) -> None:
            await server.serve_stream(stream)

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        print(listener.socket.getsockname()[1], flush=True)
        nursery.start_soon(trio.serve_listeners, serve, [listener])


if __name__ == "__main__":
    trio.run(_serve_tcp if "--tcp" in sys.argv else server.serve_stdio)
