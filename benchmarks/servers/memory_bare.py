"""The raw limit in memory: two tasks and two channels, with JSON between them."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import trio

from .bare import answer, decode, encode
from .callers import ARGUMENTS, Callers


class Answer(msgspec.Struct):
    id: int
    result: dict[str, Any]


read = msgspec.json.Decoder(Answer).decode


class Peers:
    """A client and a server."""

    def __init__(self) -> None:
        self._to_server, self._requests = trio.open_memory_channel[bytes](1024)
        self._to_client, self._answers = trio.open_memory_channel[bytes](1024)
        self._waiting: dict[int, trio.Event] = {}
        self._said: dict[int, dict[str, Any]] = {}
        self._number = 0

    async def serve(self) -> None:
        async for line in self._requests:
            said = answer(decode(line))
            assert said is not None
            await self._to_client.send(said)

    async def listen(self) -> None:
        async for line in self._answers:
            said = read(line)
            self._said[said.id] = said.result
            self._waiting.pop(said.id).set()

    async def call(self) -> object:
        self._number = number = self._number + 1
        self._waiting[number] = came = trio.Event()
        params = {"name": "stock", "arguments": ARGUMENTS}
        request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        await self._to_server.send(encode(request))
        await came.wait()
        return self._said.pop(number)["structuredContent"]


async def main(seconds: float, warmup: float, sizes: list[int]) -> None:
    peers = Peers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peers.serve)
        nursery.start_soon(peers.listen)
        callers = Callers(peers.call)
        await run(callers, 32, warmup)
        for size in sizes:
            await run(callers, size, seconds)
            callers.end()
        nursery.cancel_scope.cancel()


async def run(callers: Callers, size: int, seconds: float) -> None:
    callers.begin(seconds)
    async with trio.open_nursery() as nursery:
        for _ in range(size):
            nursery.start_soon(callers.run)


if __name__ == "__main__":
    trio.run(main, float(sys.argv[1]), float(sys.argv[2]), [int(size) for size in sys.argv[3:]])
