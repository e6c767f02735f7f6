"""Log messages for the client of a request: ``python examples/log_messages.py``.

The specification deprecates them. A new server logs to its standard error with ``ctx.logger``, or
traces.
"""

import trio

from trio_mcp import Context, LogMessage, Server, connect

server = Server("stocktaking", version="1.0.0")


@server.tool
async def count(shelves: int, ctx: Context) -> int:
    """Count the books."""
    for shelf in range(shelves):
        ctx.log("debug", {"shelf": shelf})  # never waits; goes nowhere unless it was asked for
        if shelf == 2:
            ctx.log("warning", {"shelf": shelf, "missing": 1}, logger="shelves")
    ctx.log("notice", "done", logger="shelves")
    return shelves * 30


def show(message: LogMessage) -> None:
    """Called by the task that reads the connection: it must not block."""
    print(message.level, message.data, message.logger)


async def main() -> None:
    async with connect(server, on_log=show, log_level="notice") as client:
        print("asked for notices:", (await client.call_tool("count", {"shelves": 4})).text)
    async with connect(server) as client:
        print("asked for nothing:", (await client.call_tool("count", {"shelves": 4})).text)
    asked, silent = (record for record in server.journal if record.target == "count")
    print("sent:", asked.logs_sent, "and", silent.logs_sent)


if __name__ == "__main__":
    trio.run(main)
