"""What `python -m benchmarks.probe` probes of fastmcp; see its twin, `official.py`."""

from __future__ import annotations

import logging
import socket
import sys

import anyio
from fastmcp import Context, FastMCP  # type: ignore[import-not-found,unused-ignore]

server = FastMCP("fastmcp", version="1.0.0")
running: set[object] = set()


@server.tool  # type: ignore[untyped-decorator,unused-ignore]
async def slow(seconds: float) -> str:
    """Wait."""
    run = object()
    running.add(run)
    try:
        await anyio.sleep(seconds)
    finally:
        running.discard(run)
    return "waited"


@server.tool  # type: ignore[untyped-decorator,unused-ignore]
async def stream(seconds: float, ctx: Context) -> str:
    """Wait, and report progress."""
    run = object()
    running.add(run)
    try:
        for done in range(int(seconds * 10)):
            await ctx.report_progress(done)
            await anyio.sleep(0.1)
    finally:
        running.discard(run)
    return "waited"


@server.tool  # type: ignore[untyped-decorator,unused-ignore]
async def alive() -> int:
    """How many of these run."""
    return len(running)


def _serve_http() -> None:
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        app = server.http_app(json_response="--json" in sys.argv)
        uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    if "--http" in sys.argv:
        _serve_http()
    else:
        server.run(show_banner=False)
