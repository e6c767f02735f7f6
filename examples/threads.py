"""Functions in threads: one asks whether to stop, one does not: ``python examples/threads.py``."""

import logging
import sys
import time

import trio

from trio_mcp import Context, Limits, Server, connect

server = Server("threads", version="1.0.0", limits=Limits(cleanup=0.2))


@server.tool
def asks(ctx: Context) -> str:
    """Works in pieces, and asks between two of them."""
    try:
        for piece in range(1000):
            ctx.check_cancelled()  # raises trio.Cancelled once the request is cancelled
            ctx.progress(piece, 1000)
            time.sleep(0.01)
        return "1000 pieces"
    finally:
        print("asks: cleaned up")


@server.tool
def never_asks() -> str:
    """Cannot be stopped: it has 0.2 s after a cancellation, then it is abandoned."""
    time.sleep(0.8)
    return "too late"


async def main() -> None:
    with server.journal.subscribe() as records:
        async with connect(server) as client:
            for tool in ("asks", "never_asks"):
                with trio.move_on_after(0.1):
                    await client.call_tool(tool)
                print(f"client: gave {tool} up")
                async for record in records:
                    if record.target == tool:
                        break
                print("server:", tool, record.state.name, "clean-up", record.cleanup)
        print("server:", [f"{left.label} {left.state}" for left in server.scopes().children])
        record = await anext(records)  # once more, now with what it returned
        print("server: dropped a", record.late[0].kind, f"{record.late[0].after:.1f} s late")
        print("server:", [*server.scopes().children])


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="log: %(message)s")
    trio.run(main)
