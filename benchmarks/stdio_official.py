"""The benchmark's server on the official SDK; its twin is `stdio_ours.py`.

`add(a, b)` returns the sum, `sleep(seconds)` waits, `stats()` returns how many `sleep` handlers are
alive at this moment. Each result's text is the plain value.
"""

import logging

import anyio
from mcp.server import MCPServer

server = MCPServer("benchmark", version="1.0.0", log_level="WARNING")
alive = 0


@server.tool()
async def add(a: int, b: int) -> int:
    """Return the sum of two numbers."""
    return a + b


@server.tool()
async def sleep(seconds: float) -> str:
    """Wait for some seconds."""
    global alive
    alive += 1
    try:
        await anyio.sleep(seconds)
    finally:
        alive -= 1
    return "slept"


@server.tool()
async def stats() -> int:
    """Return the number of `sleep` handlers that are alive."""
    return alive


if __name__ == "__main__":
    logging.disable(logging.INFO)
    server.run()
