"""A chain of three hops: a client, a server with a client, a server in a process, a command.

``python -m tests.peers.chain`` measures how long it takes from the cancellation at the head until
the command at the tail has ended.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from tests.peers.processes import alive
from tests.peers.raw import until

from trio_mcp import Client, Context, ProgressUpdate, Server, TraceContext, connect

__all__ = ["TRACE", "Chain", "chain"]

TAIL = Path(__file__).with_name("tail_server.py")
TRACE = TraceContext(f"00-{'5a' * 16}-{'b7' * 8}-01")


class Chain:
    """``head`` is a client of ``middle``, over HTTP; that has ``onward``, over stdio."""

    def __init__(self, head: Client, middle: Server, onward: Client, journal: Path) -> None:
        self.head = head
        self.middle = middle
        self.onward = onward
        self._journal = journal

    @property
    def tail_records(self) -> list[list[Any]]:
        """State, source, trace id, clean-up and work of the calls that the tail has ended."""
        return [json.loads(line) for line in self._journal.read_text().splitlines()]

    async def cancel(self) -> float:
        """Call, cancel once the command runs; seconds until all of its processes have ended."""
        pids: list[int] = []

        def on_progress(update: ProgressUpdate) -> None:
            pids.extend(map(int, (update.message or "").split()))

        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await self.head.call_tool("onward", trace=TRACE, on_progress=on_progress)

            nursery.start_soon(call)
            await until(lambda: pids)
            began = time.perf_counter()
            nursery.cancel_scope.cancel()
        await until(lambda: not any(map(alive, pids)))
        return time.perf_counter() - began


@asynccontextmanager
async def chain(folder: Path) -> AsyncIterator[Chain]:
    """The chain, with all that it needs."""
    journal = folder / "journal"
    journal.touch()
    command = [sys.executable, str(TAIL), str(journal)]
    async with connect(command) as onward:
        middle = Server("middle", version="1")

        @middle.tool(name="onward")
        async def go_on(ctx: Context) -> None:
            """Pass the call on, with its trace, and its progress back."""
            await onward.call_tool(
                "command",
                trace=ctx.trace,
                on_progress=lambda update: ctx.progress(update.progress, message=update.message),
            )

        async with trio.open_nursery() as nursery:
            port = await nursery.start(middle.serve_http, "127.0.0.1", 0)
            async with connect(f"http://127.0.0.1:{port}/mcp") as head:
                yield Chain(head, middle, onward, journal)
            nursery.cancel_scope.cancel()


async def measure(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with chain(Path(folder)) as made:
            times = sorted([await made.cancel() * 1000 for _ in range(runs)])
    print(f"{runs} runs: median {statistics.median(times):.1f} ms, longest {times[-1]:.1f} ms")


if __name__ == "__main__":
    trio.run(measure, 50)
