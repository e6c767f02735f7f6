"""A stdio server on the official SDK, for interoperability tests.

Run it as `python tests/peers/official_server.py`.

| tool | what it does |
| --- | --- |
| `echo(text)` | returns the text |
| `add(a, b)` | returns the sum: the number as text, and `{"result": sum}` as structured content |
| `sleep(seconds)` | notes "sleep started", waits, returns "slept"; always notes "sleep released" |
| `tick(n, dt)` | reports progress 1/n to n/n, `dt` seconds apart, then returns "done" |
| `boom()` | raises: the answer is a tool result with `isError` |

Notes are lines appended to the file that the environment variable `PEER_LOG` names; without it
there are none. A test reads that file to see that work really started and stopped.
"""

import os

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

__all__ = ["server"]

server = MCPServer("official-peer", version="1.0.0")


def _note(line: str) -> None:
    path = os.environ.get("PEER_LOG")
    if path:
        with open(path, "a", encoding="utf-8") as log:
            log.write(line + "\n")


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Return the sum of two numbers."""
    return a + b


@server.tool()
async def sleep(seconds: float) -> str:
    """Wait for some seconds."""
    _note("sleep started")
    try:
        await anyio.sleep(seconds)
    finally:
        _note("sleep released")
    return "slept"


@server.tool()
async def tick(n: int, dt: float, ctx: Context) -> str:
    """Report progress n times, dt seconds apart."""
    for done in range(1, n + 1):
        await anyio.sleep(dt)
        await ctx.report_progress(done, n, f"tick {done}")
    return "done"


@server.tool()
async def boom() -> str:
    """Fail."""
    raise RuntimeError("boom")


if __name__ == "__main__":
    server.run()
