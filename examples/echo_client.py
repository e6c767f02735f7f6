"""A client that hears one echo out, and stops another: ``python examples/echo_client.py``."""

import sys
from pathlib import Path

import trio

from trio_mcp import connect

SERVER = [sys.executable, Path(__file__).with_name("echo_server.py")]


async def main() -> None:
    async with connect(SERVER) as client:
        result = await client.call_tool("echo", {"text": "ahoy", "times": 3}, on_progress=print)
        print(result.content)
        async with client.start_tool("echo", {"text": "ahoy", "times": 1000}) as call:
            async for update in call.progress:
                print(update)
                if update.progress == 3:
                    call.cancel("heard enough")  # the server stops its work, and says no more
        print(call.state, call.cause)


if __name__ == "__main__":
    trio.run(main)
