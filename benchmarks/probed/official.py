"""What `python -m benchmarks.probe` probes of the official Python SDK; its twins stand beside it.

    python official.py                 standard input and output
    python official.py --http          Streamable HTTP; the port is the first line
    python official.py --http --json   with one JSON body for an answer

| tool | what it does |
| --- | --- |
| `slow(seconds)` | waits |
| `stream(seconds)` | waits, and reports progress ten times a second |
| `alive()` | how many of these run |
"""

from __future__ import annotations

import logging
import socket
import sys

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("official-python", version="1.0.0", log_level="ERROR")
running: set[object] = set()


@server.tool()
async def slow(seconds: float) -> str:
    """Wait."""
    run = object()
    running.add(run)
    try:
        await anyio.sleep(seconds)
    finally:
        running.discard(run)
    return "waited"


@server.tool()
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


@server.tool()
async def alive() -> int:
    """How many of these run."""
    return len(running)


def _serve_http() -> None:
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        app = server.streamable_http_app(json_response="--json" in sys.argv)
        uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    if "--http" in sys.argv:
        _serve_http()
    else:
        server.run()
