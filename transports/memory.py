"""A wire in memory: a server and its client in one process. Same bytes, no kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from .framing import Frame, Oversize

__all__ = ["MemoryWire", "memory_wire_pair"]

BATCHES: Final = 16
"""Batches of frames that wait in one direction; the writer waits for room, like on a pipe."""


class MemoryWire:
    """One end of a pair; see :class:`.wire.Wire`."""

    label = "memory"

    def __init__(
        self,
        receive: trio.MemoryReceiveChannel[list[bytes]],
        send: trio.MemorySendChannel[list[bytes]],
        message_bytes: int,
    ) -> None:
        self._receive_channel = receive
        self._send_channel = send
        self._limit = message_bytes

    async def receive(self) -> list[Frame] | None:
        try:
            batch = await self._receive_channel.receive()
        except trio.EndOfChannel:
            return None
        if all(len(frame) <= self._limit for frame in batch):
            return list(batch)
        return [frame if len(frame) <= self._limit else Oversize(self._limit) for frame in batch]

    async def send(self, frames: list[bytes], moved: Callable[[], None]) -> None:
        await self._send_channel.send(frames)

    async def aclose(self) -> None:
        self._send_channel.close()
        self._receive_channel.close()


def memory_wire_pair(message_bytes: int) -> tuple[MemoryWire, MemoryWire]:
    """Two ends; what one sends, the other receives."""
    to_left, from_right = trio.open_memory_channel[list[bytes]](BATCHES)
    to_right, from_left = trio.open_memory_channel[list[bytes]](BATCHES)
    left = MemoryWire(from_right, to_right, message_bytes)
    right = MemoryWire(from_left, to_left, message_bytes)
    return left, right
