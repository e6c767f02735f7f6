"""How an exchange answers over HTTP: one JSON body, or an event stream once it has to speak first.

The answer stays undecided until the handler sends a notification or has been silent for a while;
a handler that just returns is answered with one write.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol

import trio

from ...runtime.exchange import Exchange, Outgoing
from ...runtime.progress import Pacer
from .sse import COMMENT, encode_event

__all__ = ["HttpReply", "Sink"]

STREAM_HEADERS: Final = (
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
)


BATCH: Final = 64 * 1024
"""Bytes after which a batch of events goes out."""


class Sink(Protocol):
    """A carrier's side of one event stream."""

    async def begin(self, status: HTTPStatus, headers: tuple[tuple[str, str], ...]) -> None: ...

    async def send(self, data: bytes) -> bool:
        """Send part of the stream; ``False`` if it did not arrive."""

    async def end(self) -> None: ...


class HttpReply:
    """The :class:`~...runtime.exchange.Reply` of one exchange."""

    __slots__ = (
        "_heard_at",
        "_open_stream",
        "_over",
        "_queue",
        "_waiting",
        "pacer",
        "streamed",
        "streaming",
    )

    def __init__(self, pacer: Pacer, open_stream: Callable[[HttpReply], None], now: float) -> None:
        self.pacer = pacer
        self.streaming = False
        self.streamed: trio.Event | None = None
        self._open_stream = open_stream
        # Progress or a subscription, a comment, the outcome; and the log messages that wait.
        self._queue: list[Outgoing] = []
        self._waiting: trio.lowlevel.Task | None = None
        self._heard_at = now
        self._over = False

    # What the exchange asks for

    def notify(self, message: Outgoing) -> None:
        self._queue.append(message)
        self._speak()

    def finish(self, exchange: Exchange) -> None:
        self._queue.append(exchange)
        if self.streaming:
            self._wake()

    # What the carrier asks for

    def break_silence(self, now: float, silence: float, keep_alive: float) -> None:
        """Called now and then: open the stream, or send a comment, if it has been silent."""
        if now - self._heard_at >= (keep_alive if self.streaming else silence):
            self._heard_at = now
            if not self._queue:
                self._queue.append(_Comment())
                self._speak()

    def fall_silent(self) -> None:
        """The peer is gone: an open stream ends, without a final event if that has not come."""
        self._over = True
        self._wake()

    def take(self) -> bytes | None:
        """The one body of an answer that is no stream; ``None`` if nothing may be said."""
        return self._queue.pop(0).take() if self._queue else None

    async def stream(self, sink: Sink) -> None:
        """Write events as they come, until the outcome has been written or may not be."""
        await sink.begin(HTTPStatus.OK, STREAM_HEADERS)
        final = False
        while not final:
            while not self._queue:
                if self._over:
                    return
                await self._park()
            batch, events, size = [], [], 0
            while self._queue and size < BATCH:  # what waits has not been said yet
                item = self._queue.pop(0)
                final = final or isinstance(item, Exchange)
                frame = item.take()
                if frame is not None:
                    batch.append(item)
                    events.append(frame if isinstance(item, _Comment) else encode_event(frame))
                    size += len(frame)
            if events:
                self._heard_at = trio.current_time()
                delivered = False
                try:
                    delivered = await sink.send(b"".join(events))
                finally:
                    for item in batch:
                        item.written(delivered)
        await sink.end()

    def _speak(self) -> None:
        if self.streaming:
            self._wake()
        else:
            self.streaming = True
            self.streamed = trio.Event()
            self._open_stream(self)

    def _wake(self) -> None:
        if self._waiting is not None:
            trio.lowlevel.reschedule(self._waiting)
            self._waiting = None

    async def _park(self) -> None:
        self._waiting = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiting = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


class _Comment:
    """A sign of life: an :class:`Outgoing`."""

    size = 0

    def take(self) -> bytes | None:
        return COMMENT

    def written(self, delivered: bool) -> None:
        pass
