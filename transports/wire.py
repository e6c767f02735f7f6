"""What a channel needs of a wire, and the wire that every byte stream is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

import trio
from trio.abc import ReceiveStream, SendStream, Stream

from .framing import Frame, LineReader, join_lines

__all__ = ["ExplainedWire", "StreamWire", "Wire"]

READ: Final = 8 * 1024
"""Bytes read at a time. So many requests begin, or are cancelled, in one turn of the loop; with
more of them others wait longer, and what they leave is cleared away later."""

CHUNK: Final = 64 * 1024
"""Bytes written between two signs of life, and read at a time of a long line."""


class Wire(Protocol):
    """A duplex stream of frames; a frame is the bytes of one JSON-RPC message.

    One task receives, one sends. Both raise ``trio.BrokenResourceError`` or
    ``trio.ClosedResourceError`` when the wire is gone, and are cancellable.
    """

    label: str

    async def receive(self) -> list[Frame] | None:
        """At least one frame, in order; ``None`` once the peer has closed its side."""

    async def send(self, frames: list[bytes], moved: Callable[[], None]) -> None:
        """Hand over all frames. Calls ``moved()`` whenever the peer has taken some bytes.

        If cancelled, a frame may be half written: the wire can only be closed then.
        """

    async def aclose(self) -> None:
        """Close both sides, at once, even if cancelled."""


@runtime_checkable
class ExplainedWire(Wire, Protocol):
    """A wire that may know more about its end than that it has ended."""

    why: str | None
    """How it was closed, and by whom, in one line. ``None`` while it is open, and where there is
    no more to say; set when :meth:`receive` returns ``None``."""


class StreamWire:
    """Newline-delimited JSON over any Trio byte stream, or a pair of one-way streams."""

    def __init__(
        self, receive: ReceiveStream, send: SendStream, label: str, message_bytes: int
    ) -> None:
        self.label = label
        self._receive_stream = receive
        self._send_stream = send
        self._lines = LineReader(message_bytes)
        self._ended = False

    @classmethod
    def over(cls, stream: Stream, message_bytes: int) -> StreamWire:
        return cls(stream, stream, _label_of(stream), message_bytes)

    async def receive(self) -> list[Frame] | None:
        while not self._ended:
            size = CHUNK if self._lines.in_a_long_line else READ
            data = await self._receive_stream.receive_some(size)
            if data:
                frames = self._lines.feed(data)
            else:
                self._ended = True
                frames = self._lines.end()
            if frames:
                return frames
        return None

    async def send(self, frames: list[bytes], moved: Callable[[], None]) -> None:
        data = join_lines(frames)
        if len(data) <= CHUNK:
            await self._send_stream.send_all(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), CHUNK):
            await self._send_stream.send_all(view[start : start + CHUNK])
            moved()

    async def aclose(self) -> None:
        try:
            await self._send_stream.aclose()
        finally:
            if self._receive_stream is not self._send_stream:  # type: ignore[comparison-overlap]
                await self._receive_stream.aclose()


def _label_of(stream: Stream) -> str:
    """A name for logs: the peer's address where the stream, or one that it wraps, has one; for
    streams in memory that."""
    kind, inner = "tcp", stream
    for _ in range(_MOST_WRAPPED):
        kind = "tls" if isinstance(inner, trio.SSLStream) else kind
        inner = getattr(inner, "transport_stream", inner)
    if isinstance(inner, trio.SocketStream):
        try:
            peer = inner.socket.getpeername()
        except OSError:
            peer = None
        if isinstance(peer, tuple) and len(peer) >= 2:
            return f"{kind} {peer[0]}:{peer[1]}"
        return "unix socket"
    half = getattr(inner, "send_stream", inner)
    return "memory" if type(half).__module__.startswith("trio.testing") else type(stream).__name__


_MOST_WRAPPED: Final = 4
