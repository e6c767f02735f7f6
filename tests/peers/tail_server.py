"""The last server of a chain: ``python tail_server.py JOURNAL`` serves stdio, and runs a command.

Writes a line of JSON to the file JOURNAL for each call that has ended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import trio

from trio_mcp import Context, Server

server = Server("tail", version="1")


@server.tool
async def command(ctx: Context) -> None:
    """Two processes that last; their numbers are the progress."""
    pids: list[int] = []

    def on_stdout(data: bytes) -> None:
        pids.extend(map(int, data.split()))
        if len(pids) == 2:
            ctx.progress(1, message=f"{pids[0]} {pids[1]}")

    await ctx.run_process(["sh", "-c", "sleep 600 & echo $! $$; wait"], on_stdout=on_stdout)


async def write_down(journal: Path) -> None:
    with server.journal.subscribe() as records, journal.open("a") as file:
        async for record in records:
            if record.method == "tools/call":
                source = record.cause.source.value if record.cause is not None else None
                work = [work.describe() for work in record.work]
                facts = [record.state.value, source, record.trace_id, record.cleanup, work]
                file.write(json.dumps(facts) + "\n")
                file.flush()


async def main(journal: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_down, journal)
        await server.serve_stdio()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
