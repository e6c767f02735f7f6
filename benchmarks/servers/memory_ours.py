"""Client and server of this library in one process.

``… benchmarks.servers.memory_ours SECONDS WARMUP IN_FLIGHT…`` prints a line of JSON for each number
of callers.
"""

from __future__ import annotations

import sys

import trio

from trio_mcp import connect

from .callers import ARGUMENTS, Callers
from .ours import server


async def main(seconds: float, warmup: float, sizes: list[int]) -> None:
    async with connect(server) as client:

        async def call() -> object:
            return (await client.call_tool("stock", ARGUMENTS)).structured_content

        callers = Callers(call)
        await run(callers, 32, warmup)
        for size in sizes:
            await run(callers, size, seconds)
            callers.end()


async def run(callers: Callers, size: int, seconds: float) -> None:
    callers.begin(seconds)
    async with trio.open_nursery() as nursery:
        for _ in range(size):
            nursery.start_soon(callers.run)


if __name__ == "__main__":
    trio.run(main, float(sys.argv[1]), float(sys.argv[2]), [int(size) for size in sys.argv[3:]])
