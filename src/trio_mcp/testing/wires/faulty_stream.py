"""A Trio stream with faults: what is sent through it and received from it follows two schedules."""

from __future__ import annotations

import math
import socket
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import attrs
import trio
from trio.abc import HalfCloseableStream, Stream

from ..transcripts.recorded_stream import RecordedStream
from .course import Course, LineMeter, Meter
from .faults import Break, Delay, Fault, HalfClose, Hold, Stall, check_schedule
from .http_reader import HttpMeter

__all__ = ["Direction", "FaultsMissed", "FaultyStream", "Happened", "reset"]

Direction: TypeAlias = Literal["sending", "receiving"]


class FaultsMissed(AssertionError):
    """Faults of a schedule did not happen: the test did not test what it was to test."""


@attrs.frozen
class Happened:
    """A fault that has happened: before which byte of its direction, and when (Trio's time)."""

    fault: Fault
    direction: Direction
    byte: int
    time: float
    request: int | None = None
    """The number of the request whose answer it was, of an :func:`.http_stub`."""


class FaultyStream(HalfCloseableStream):
    """Around any Trio stream, at either end of it; without faults it is that stream.

    :param stream: closed with this one. For a process ``trio.StapledStream(process.stdin,
        process.stdout)``.
    :param sending: the faults of what is sent through this object.
    :param receiving: of what is received from it.
    :param http: whether it carries HTTP/1.1, so that :class:`.Body` and :class:`.Chunk` are
        positions, in the first message of each direction.

    Time is Trio's. Whoever waits in a delay or a stall can be cancelled; what was received
    meanwhile is kept, and a delay is not begun again. ``happened`` has what did happen, in order,
    ``pending`` what did not. Raises ``TypeError`` for what is no schedule, and for a
    :class:`.HalfClose` of what cannot be half-closed.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        sending: Iterable[Fault] = (),
        receiving: Iterable[Fault] = (),
        http: bool = False,
    ) -> None:
        self.transport_stream = stream
        self.happened: list[Happened] = []
        self._send_lock = _Alone("another task is sending on this stream")
        self._receive_lock = _Alone("another task is receiving from this stream")
        sends, receives = (check_schedule(faults, http=http) for faults in (sending, receiving))
        _check_can_half_close(stream, sends)
        meters = [HttpMeter(), HttpMeter()] if http else [LineMeter(), LineMeter()]
        self._sending = self._course("sending", sends, meters[0])
        self._receiving = self._course("receiving", receives, meters[1])
        self._ready: deque[bytes] = deque()
        self._held: _Pause | None = None
        self._pauses: set[trio.CancelScope] = set()
        self._sends_nothing = False
        self._receives_nothing = False
        self._sent_eof = False
        self._closed = False
        self._broken = False

    def _course(
        self,
        direction: Direction,
        faults: tuple[Fault, ...],
        meter: Meter,
        request: int | None = None,
    ) -> Course:
        def note(fault: Fault, byte: int) -> None:
            now = trio.current_time()
            self.happened.append(Happened(fault, direction, byte, now, request))

        return Course(faults, meter, note)

    @property
    def pending(self) -> tuple[Fault, ...]:
        """Faults that have not happened: those of sending, then those of receiving."""
        return (*self._sending.pending, *self._receiving.pending)

    @property
    def closed(self) -> bool:
        """Whether :meth:`aclose` was called."""
        return self._closed

    def check_happened(self) -> None:
        """Raises :class:`FaultsMissed`, an ``AssertionError``, if some have not."""
        if self.pending:
            missed = ", ".join(map(repr, self.pending))
            raise FaultsMissed(f"did not happen: {missed}")

    def reschedule(self, sending: Iterable[Fault], meter: Meter, request: int) -> None:
        """What is sent from now on is another message: its positions count from here."""
        faults = check_schedule(sending, http=True)
        _check_can_half_close(self.transport_stream, faults)
        self._sending = self._course("sending", faults, meter, request)

    async def end_schedule(self) -> None:
        """The message has been sent: what is still at work ends with it."""
        with self._send_lock:
            self._check_usable()
            self._sending.finish()
            await self._send_steps()

    # Sending --------------------------------------------------------------------------------------

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As that of the stream. If cancelled, as much has gone as the schedule let go."""
        with self._send_lock:
            self._check_usable()
            await trio.lowlevel.checkpoint()
            self._check_usable()
            if self._sent_eof:
                raise trio.ClosedResourceError("nothing can be sent after send_eof")
            self._sending.feed(bytes(data))
            await self._send_steps()

    async def wait_send_all_might_not_block(self) -> None:
        """As that of the stream; it knows nothing of the schedule."""
        with self._send_lock:
            self._check_usable()
            with self._as_broken():
                await self.transport_stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """As that of the stream. A delay or a stall that is due comes first. Raises ``TypeError``
        if that stream cannot be half-closed."""
        with self._send_lock:
            self._check_usable()
            await trio.lowlevel.checkpoint()
            self._check_usable()
            stream = self.transport_stream
            if not isinstance(stream, HalfCloseableStream):
                raise TypeError(f"a {type(stream).__name__} cannot be half-closed")
            if self._sent_eof:
                return
            self._sending.finish()
            await self._send_steps()
            self._sent_eof = True
            if not self._sends_nothing:
                self._sends_nothing = True
                with self._as_broken():
                    await stream.send_eof()

    async def _send_steps(self) -> None:
        course = self._sending
        try:
            while (step := course.step()) is not None:
                if isinstance(step, bytes):
                    await self._send(step)
                elif isinstance(step, HalfClose):
                    await self._end_sending()
                elif isinstance(step, Break):
                    await self._break()
                else:
                    await self._wait(_Pause.of(step))
        finally:
            course.discard()

    async def _send(self, data: bytes) -> None:
        if not self._sends_nothing:
            with self._as_broken():
                await self.transport_stream.send_all(data)

    async def _end_sending(self) -> None:
        if not self._sends_nothing:
            self._sends_nothing = True
            stream = self.transport_stream
            assert isinstance(stream, HalfCloseableStream)  # as was checked
            with self._as_broken():
                await stream.send_eof()

    # Receiving ------------------------------------------------------------------------------------

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """As that of the stream. If cancelled, nothing is lost."""
        if max_bytes is not None and max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        with self._receive_lock:
            self._check_usable()
            await trio.lowlevel.checkpoint()
            while True:
                self._check_usable()
                if self._held is not None:
                    await self._wait(self._held)
                    self._held = None
                if self._ready:
                    return self._next_ready(max_bytes)
                step = self._receiving.step()
                if step is not None:
                    await self._take(step)
                elif self._receives_nothing:
                    return b""
                else:
                    await self._receive(max_bytes)

    async def _take(self, step: bytes | Hold) -> None:
        if isinstance(step, bytes):
            self._ready.append(step)
        elif isinstance(step, HalfClose):
            self._receiving.discard()
            self._receives_nothing = True
        elif isinstance(step, Break):
            await self._break()
        else:
            self._held = _Pause.of(step)

    async def _receive(self, max_bytes: int | None) -> None:
        with self._as_broken():
            data = await self.transport_stream.receive_some(max_bytes)
        if data:
            self._receiving.feed(bytes(data))
        else:
            self._receiving.finish()
            self._receives_nothing = True

    def _next_ready(self, max_bytes: int | None) -> bytes:
        piece = self._ready.popleft()
        if max_bytes is not None and len(piece) > max_bytes:
            self._ready.appendleft(piece[max_bytes:])
            piece = piece[:max_bytes]
        return piece

    # Waiting and ending ---------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close the stream. Whoever waits here gets ``trio.ClosedResourceError``."""
        self._closed = True
        for pause in self._pauses:
            pause.cancel("the stream was closed")
        await self.transport_stream.aclose()

    async def _wait(self, pause: _Pause) -> None:
        with trio.CancelScope(deadline=pause.deadline) as scope:
            self._pauses.add(scope)
            try:
                await pause.event.wait()
            finally:
                self._pauses.discard(scope)
        self._check_usable()

    async def _break(self) -> None:
        self._broken = True
        for pause in self._pauses:
            pause.cancel("the connection broke")
        await reset(self.transport_stream)
        self._check_usable()

    def _check_usable(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this stream was closed")
        if self._broken:
            raise trio.BrokenResourceError("the connection broke, as was scheduled")

    @contextmanager
    def _as_broken(self) -> Iterator[None]:
        """That the stream below was closed is our own doing, and no news."""
        try:
            yield
        except trio.ClosedResourceError:
            self._check_usable()
            raise


@attrs.frozen
class _Pause:
    """Ends with an event or at a time, whatever comes first."""

    event: trio.Event
    deadline: float

    @classmethod
    def of(cls, fault: Hold) -> _Pause:
        until: trio.Event | float | None = 0
        if isinstance(fault, Delay):
            until = fault.seconds
        elif isinstance(fault, Stall):
            until = fault.until
        if isinstance(until, trio.Event):
            return cls(until, math.inf)
        return cls(trio.Event(), math.inf if until is None else trio.current_time() + until)


class _Alone:
    """Something that one task does at a time; another one that tries is told so."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._held = False

    def __enter__(self) -> None:
        if self._held:
            raise trio.BusyResourceError(self._message)
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False


def _check_can_half_close(stream: Stream, sending: tuple[Fault, ...]) -> None:
    if isinstance(stream, HalfCloseableStream):
        return
    if any(isinstance(fault, HalfClose) for fault in sending):
        raise TypeError(f"a {type(stream).__name__} cannot be half-closed")


async def reset(stream: Stream) -> None:
    """Close it at once; a TCP connection below is reset. Never waits, is not cancelled."""
    below: Any = stream
    while below is not None and not isinstance(below, trio.SocketStream):
        if isinstance(below, RecordedStream):
            below.note_break()
        below = getattr(below, "transport_stream", None)
    if below is not None and below.socket.family in (socket.AF_INET, socket.AF_INET6):
        try:
            below.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (OSError, trio.ClosedResourceError):
            pass
    with trio.CancelScope(shield=True):
        await trio.aclose_forcefully(stream)
