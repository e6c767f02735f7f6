"""Progress of one request: finite, strictly increasing, paced, newest wins.

Specification: *Progress*. A report never waits. It replaces the one before it that has not been
written yet, so memory is one report per request whatever the handler does and however slowly the
peer reads. The last report is always written before the answer.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["Pacer", "ProgressReporter", "ProgressUpdate", "check_progress"]


@attrs.frozen
class ProgressUpdate:
    """One report: how far, of how much (``None``: unknown), and a text for people."""

    progress: float
    total: float | None = None
    message: str | None = None


def check_progress(progress: float, total: float | None, message: str | None) -> ProgressUpdate:
    """A valid update, or ``ValueError``/``TypeError`` that says what is wrong."""
    return ProgressUpdate(
        _number("progress", progress),
        None if total is None else _number("total", total),
        None if message is None else _text(message),
    )


def _number(name: str, value: object) -> float:
    """A plain number: a subclass, ``numpy.float64`` for one, is made into what it stands for."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    plain = int.__int__(value) if isinstance(value, int) else float.__float__(value)
    try:
        finite = math.isfinite(plain)
    except OverflowError:
        raise ValueError(f"{name} is too large a number") from None
    if not finite:
        raise ValueError(f"{name} must be finite, not {plain}")
    return plain


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"message must be a string, not {type(value).__name__}")
    try:
        return value.encode().decode()
    except UnicodeEncodeError as error:  # a file name with undecodable bytes, for example
        raise ValueError(f"message is no Unicode text: {error}") from None


class ProgressReporter:
    """Reports of one exchange on their way to its reply. An :class:`~.exchange.Outgoing`."""

    __slots__ = ("_exchange", "_last", "_next_at", "_pending", "_scheduled", "reported", "sent")

    size = 0

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._pending: ProgressUpdate | None = None
        self._scheduled = False  # in the reply's queue, or with the pacer
        self._last = -math.inf
        self._next_at = -math.inf
        self.reported = 0
        self.sent = 0

    def report(self, update: ProgressUpdate) -> None:
        """Take a report. One that does not increase is dropped, as the specification demands."""
        self.reported += 1
        exchange = self._exchange
        if exchange.progress_token is None:
            return
        newest = self._pending.progress if self._pending is not None else self._last
        if update.progress <= newest:
            return
        self._pending = update
        if not self._scheduled:
            self._scheduled = True
            if trio.current_time() >= self._next_at:
                exchange.reply.notify(self)
            else:
                exchange.reply.pacer.schedule(self._next_at, self)

    def flush(self) -> None:
        """The answer is about to be queued: what is pending goes before it."""
        if self._pending is not None:
            self._exchange.reply.notify(self)

    def due(self) -> None:
        """The pacer's call: the interval has passed."""
        if self._pending is not None and self._exchange.speaking:
            self._exchange.reply.notify(self)
        else:
            self._scheduled = False

    def take(self) -> bytes | None:
        update, self._pending = self._pending, None
        self._scheduled = False
        exchange = self._exchange
        if update is None or not exchange.speaking:
            return None
        limits = exchange.core.limits
        frame = exchange.encode_progress(update)
        if len(frame) > limits.message_bytes:
            return None
        self._last = update.progress
        self._next_at = trio.current_time() + limits.progress_interval
        self.sent += 1
        return frame

    def written(self, delivered: bool) -> None:
        pass


class _Due(Protocol):
    def due(self) -> None: ...


class Pacer:
    """Wakes reporters when their interval has passed. Its task lives only while there are any."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._queue: deque[tuple[float, _Due]] = deque()
        self._running = False

    def schedule(self, at: float, reporter: _Due) -> None:
        """Call ``reporter.due()`` at ``at``. All intervals are alike, so the queue is in order."""
        self._queue.append((at, reporter))
        if not self._running:
            self._running = True
            self._nursery.start_soon(self._run, name="trio-mcp progress pacer")

    async def _run(self) -> None:
        try:
            while self._queue:
                await trio.sleep_until(self._queue[0][0])
                self._queue.popleft()[1].due()
        finally:
            self._running = False
