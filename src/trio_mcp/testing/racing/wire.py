"""The client's side of a raced exchange, and the wire: what is sent and read, as it is noted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from ...server import Server
from ...transports.framing import Frame
from .traces import BESIDE, EXCHANGE, is_answer

__all__ = ["ChannelWire"]


_STRANGE: Final[tuple[dict[str, object], ...]] = (
    {},
    {"requestId": None},
    {"requestId": [BESIDE]},
    {"requestId": BESIDE.upper(), "reason": 7},
    {"requestId": 7},
)


class ChannelWire:
    """A channel in the race's hands. Whatever the client has sent by then is taken in one read.

    :param note: is told of each message, as it is read or written.
    """

    label = "race"

    def __init__(self, note: Callable[..., None]) -> None:
        self._to_server, self._incoming = trio.open_memory_channel[bytes](math.inf)
        self._note = note
        self.closed_by_client = False
        self.closed_by_server = False
        self.delivered = False
        """Whether the answer to the raced request was sent to its end."""

    # The client -----------------------------------------------------------------------------------

    def ask(self, request: bytes) -> None:
        self._feed(request)

    def cancel(self) -> None:
        self._feed(_cancelled("race"))

    def cancel_twice(self) -> None:
        self._feed(_cancelled("race"))
        self._feed(_cancelled("race, again"))

    def cancel_others(self) -> None:
        """Cancellations of requests that are none."""
        for params in _STRANGE:
            message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            self._feed(msgspec.json.encode(message))

    def _feed(self, message: bytes) -> None:
        try:
            self._to_server.send_nowait(message)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the server has left

    def hang_up(self) -> None:
        self.closed_by_client = True
        self._to_server.close()

    # The server -----------------------------------------------------------------------------------

    async def serve(self, server: Server) -> None:
        """Until the client has left, or the server ends."""
        await server.serve_wire(self)

    async def receive(self) -> list[Frame] | None:
        try:
            frames: list[Frame] = [await self._incoming.receive()]
        except trio.EndOfChannel:
            self._note("eof")
            return None
        while self._incoming.statistics().current_buffer_used:
            frames.append(self._incoming.receive_nowait())
        for frame in frames:
            assert isinstance(frame, bytes)
            self._note("read", message=msgspec.json.decode(frame))
        return frames

    async def send(self, frames: list[bytes], moved: Callable[[], None]) -> None:
        messages = [msgspec.json.decode(frame) for frame in frames]
        for message in messages:
            self._note("written", message=message)
        await trio.lowlevel.checkpoint()
        self.delivered = self.delivered or any(map(is_answer, messages))

    async def aclose(self) -> None:
        self.closed_by_server = True
        self._to_server.close()
        self._incoming.close()
        await trio.lowlevel.checkpoint()


def _cancelled(reason: str) -> bytes:
    params = {"requestId": EXCHANGE, "reason": reason}
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    return msgspec.json.encode(message)
