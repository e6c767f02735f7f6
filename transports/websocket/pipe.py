"""The stream that ``trio-websocket`` is given in place of the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

__all__ = ["CHUNK", "CONTROL_BYTES", "Pipe", "linger"]

CHUNK: Final = 64 * 1024
"""Bytes read, and bytes written between two signs of life, at a time."""

CONTROL_BYTES: Final = 64 * 1024
"""Pongs that may wait for a peer that pings and does not read; with more, it is cut off."""


class Pipe(trio.abc.Stream):
    """A stream that takes what is to be written at once, and writes it in a task of its own."""

    def __init__(self, stream: trio.abc.Stream, early: bytes, most_unframed: int) -> None:
        self.on_end: Callable[[], object] | None = None
        self.unframed = 0
        """Bytes read since the last message: the library keeps parts of a message, even empty ones,
        without a bound of their own."""
        self._stream = stream
        self._early = early
        self._most_unframed = most_unframed
        self._waiting = bytearray()
        self._in_flight = 0
        self._control = 0
        self._gathering = False
        self._work = trio.Event()
        self._progress = trio.Event()
        self._broken = False
        self._over = False

    # For the library ----------------------------------------------------------------------------

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._early:
            await trio.lowlevel.checkpoint()
            early, self._early = self._early, b""
            return early
        try:
            data = await self._stream.receive_some(CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self._end()
            raise trio.BrokenResourceError("the stream is broken") from error
        if not data:
            self._end()
        self.unframed += len(data)
        if self.unframed > self._most_unframed:
            if self.on_end is not None:
                self.on_end()
            raise trio.BrokenResourceError("a message in too many parts")
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self._broken:
            raise trio.BrokenResourceError("the stream is broken")
        if not self._gathering:
            self._control += len(data)
            if self._control > CONTROL_BYTES:
                self.break_off()
                raise trio.BrokenResourceError("the peer pings and does not read")
        self._waiting += data
        self._wake()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self._end()
        try:
            await self.flush()
        except trio.BrokenResourceError:
            pass
        finally:
            await self._stream.aclose()

    # For the wire -------------------------------------------------------------------------------

    def gathering(self) -> _Gathering:
        """While several messages are handed over: they go out together."""
        return _Gathering(self)

    async def pump(self) -> None:
        """Write what waits, as it comes."""
        while not self._broken:
            if self._gathering or not self._waiting:
                self._control = 0 if not self._waiting else self._control
                self._work = trio.Event()
                await self._work.wait()
                continue
            chunk = bytes(self._waiting[:CHUNK])
            del self._waiting[:CHUNK]
            self._in_flight = len(chunk)
            try:
                await self._stream.send_all(chunk)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                self.break_off()
            self._in_flight = 0
            self._progress.set()
            self._progress = trio.Event()

    async def flush(self, moved: Callable[[], None] | None = None) -> None:
        """Until all is written. ``moved`` is called whenever the peer has taken some of it."""
        while self._waiting or self._in_flight:
            if self._broken:
                break
            await self._progress.wait()
            if moved is not None:
                moved()
        if self._broken:
            raise trio.BrokenResourceError("the stream is broken")

    async def linger(self) -> None:
        """Let the peer read the last that we have said, although it may still be sending."""
        if self._over:
            return
        try:
            await self.flush()
            await linger(self._stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass

    def break_off(self) -> None:
        """Nothing more can be written."""
        self._broken = True
        self._end()
        self._wake()
        self._progress.set()

    def _end(self) -> None:
        self._over = True
        if self.on_end is not None:
            self.on_end()

    def _wake(self) -> None:
        if not self._gathering or self._broken:
            self._work.set()


class _Gathering:
    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def __enter__(self) -> None:
        self._pipe._gathering = True

    def __exit__(self, *_: object) -> None:
        self._pipe._gathering = False
        self._pipe._wake()


async def linger(stream: trio.abc.Stream) -> None:
    """Read to the end, to nowhere. To close a socket with unread bytes in it would be a reset, and
    a reset may overtake what we have said."""
    if isinstance(stream, trio.SocketStream):
        await stream.send_eof()
    while await stream.receive_some(CHUNK):
        pass
