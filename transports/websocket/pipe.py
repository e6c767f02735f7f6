"""The stream that ``trio-websocket`` is given in place of the real one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import trio

from ..wire import READ
from .parts import Parts

__all__ = ["CHUNK", "CONTROL_BYTES", "Pipe", "linger"]

CHUNK: Final = 64 * 1024
"""Bytes written between two signs of life, and read at a time of a long message."""

CONTROL_BYTES: Final = 64 * 1024
"""Pongs that may wait for a peer that pings and does not read; with more, it is cut off."""

SPARE: Final = 1024 * 1024
"""Bytes that a message may take up beyond twice its longest size, before it is complete."""

_END_OF_HEAD: Final = re.compile(rb"\n\r?\n")  # as h11 sees it
_SWITCH: Final = re.compile(rb"GET |HTTP/\d\.\d 101")


class Pipe(trio.abc.Stream):
    """A stream that takes what is to be written at once, and writes it in a task of its own.

    What is read it lets through in two steps: first the head of the opening handshake, and when
    that is over, frames. So it knows where the first frame begins, and counts what the library
    keeps of them.
    """

    def __init__(self, stream: trio.abc.Stream, early: bytes, message_bytes: int) -> None:
        self.on_end: Callable[[], object] | None = None
        self.fault: str | None = None
        """Why we broke it off."""
        self._stream = stream
        self._early = early
        self._parts = Parts()
        self._uncounted = 0  # by parts: the opening, and what comes while we close
        self._most = 2 * message_bytes + SPARE
        self._head: bytearray | None = bytearray()  # while it is not complete
        self._switching = False
        self._switched = trio.Event()
        self._closing = False
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
        if self._switching:
            await self._switched.wait()
        data = await self._read()
        if not self._switched.is_set():
            data = self._until_the_end_of_the_head(data)
        if self._switched.is_set() and not self._closing:
            self._parts.feed(data)
        else:
            self._uncounted += len(data)
        if self._parts.kept + self._uncounted > self._most:
            self._end()
            raise self._fail("a message in too many parts")
        return data

    async def _read(self) -> bytes | bytearray:
        if self._early:
            await trio.lowlevel.checkpoint()
            early, self._early = self._early, b""
            return early
        try:
            data = await self._stream.receive_some(CHUNK if self._parts.kept > READ else READ)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self._end()
            raise trio.BrokenResourceError("the stream is broken") from error
        if not data:
            self._end()
        return data

    def _until_the_end_of_the_head(self, data: bytes | bytearray) -> bytes | bytearray:
        """What follows the head of a handshake is kept back until the library has taken it for one.
        A refusal is let through as it is."""
        if self._head is None:
            return data
        seen = len(self._head)
        self._head += data
        end = _END_OF_HEAD.search(self._head, max(0, seen - 2))
        if end is None:
            return data
        self._switching = _SWITCH.match(self._head) is not None
        self._head = None
        if not self._switching:
            return data
        more = end.end() - seen
        self._early = bytes(data[more:])
        return data[:more]

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self._broken:
            raise trio.BrokenResourceError("the stream is broken")
        if not self._gathering:
            self._control += len(data)
            if self._control > CONTROL_BYTES:
                self.break_off()
                raise self._fail("it pings and does not read")
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

    def _fail(self, fault: str) -> trio.BrokenResourceError:
        self.fault = fault
        return trio.BrokenResourceError(fault)

    # For the wire -------------------------------------------------------------------------------

    @property
    def closed_by_peer(self) -> bool:
        """Whether the peer has sent a close frame."""
        return self._parts.closed

    def switch(self) -> None:
        """The opening handshake is over: what comes from now on are frames. Raises
        ``ConnectionAbortedError`` where it cannot be told where the first one begins."""
        if not self._switching:
            raise ConnectionAbortedError("the peer's handshake is none that we know")
        self._uncounted = 0
        self._switched.set()

    def closing(self) -> None:
        """From now on all that comes counts: the library may have stopped to look at it."""
        self._closing = True

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
