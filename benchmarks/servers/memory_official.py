"""Client and server of the official Python SDK in one process, as ``memory_ours.py``.

Its client hands a server of the same process objects, without JSON and without a stream between.
"""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec

import anyio
from mcp.client import Client

from .callers import ARGUMENTS, Callers
from .official import server


async def main(seconds: float, warmup: float, sizes: list[int]) -> None:
    async with Client(server) as client:

        async def call() -> object:
            return (await client.call_tool("stock", ARGUMENTS)).structured_content

        callers = Callers(call)
        await run(callers, 32, warmup)
        for size in sizes:
            await run(callers, size, seconds)
            callers.end()


async def run(callers: Callers, size: int, seconds: float) -> None:
    callers.begin(seconds)
    async with anyio.create_task_group() as group:
        for _ in range(size):
            group.start_soon(callers.run)


if __name__ == "__main__":
    logging.disable(logging.INFO)
    anyio.run(
        main,
        float(sys.argv[1]),
        float(sys.argv[2]),
        [int(size) for size in sys.argv[3:]],
        backend_options={"use_uvloop": find_spec("uvloop") is not None},
    )
