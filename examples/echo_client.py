"""A client that hears one echo out, and stops another: ``python examples/echo_client.py``."""

import sys
from pathlib import Path

import trio

from trio_mcp import connect

SERVER = [sys.executable, str(Path(__file__).with_name("echo_server.py"))]


async def main() -> None:
    async with connect(SERVER) as client:
        result = await client.call_tool("echo", {"text": "ahoy", "times": 3}, on_progress=print)
        print(result.content)
        with trio.move_on_after(0.5) as scope:  # however a scope is cancelled: the server is told
            await client.call_tool("echo", {"text": "ahoy", "times": 1000}, on_progress=print)
        print("stopped" if scope.cancelled_caught else "answered")


if __name__ == "__main__":
    trio.run(main)
