"""Log messages of one request, for its client. Specification: *Logging* (deprecated there).

A message is encoded when it is logged, and waits for its turn to be written. What waits is bounded,
for each request and with all else that its connection holds: the oldest message makes room for a
new one, and is counted. What goes out to a client that reads fast is bounded, too: in a second.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from .errors import ProtocolError
from .jsonrpc import encode
from .models.base import LoggingLevel

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["LEVELS", "LogReporter", "check_level"]

LEVELS: Final[tuple[LoggingLevel, ...]] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""From the least severe to the most."""

_SHOWN: Final = 40
"""Characters of what is no level that an error shows: a peer may have sent it."""

_OVERHEAD: Final = 160
"""Bytes that a message takes up besides its frame, about: here and in the reply's queue."""


def check_level(level: object) -> LoggingLevel:
    """Raises ``ValueError`` for what is no level."""
    if level not in LEVELS:
        shown = repr(level[:_SHOWN]) if isinstance(level, str) else type(level).__name__
        raise ValueError(f"a log level is one of {', '.join(LEVELS)}; {shown} is none")
    return level


class LogReporter:
    """Log messages of one exchange on their way to its reply. An :class:`~.exchange.Outgoing`,
    which has one place in the reply's queue for each message that waits."""

    __slots__ = (
        "_allowance",
        "_allowed_at",
        "_bytes",
        "_exchange",
        "_held",
        "_least",
        "_lock",
        "_pending",
        "_places",
        "dropped",
        "sent",
    )

    size = 0

    def __init__(self, exchange: Exchange, least: LoggingLevel) -> None:
        self._exchange = exchange
        self._least = LEVELS.index(least)
        self._lock = threading.Lock()  # handlers log from threads too
        self._pending: deque[bytes] = deque()
        self._bytes = 0
        self._held = 0
        self._places = 0
        self._allowance = float(exchange.core.limits.logs_per_second)
        self._allowed_at = trio.current_time()
        self.sent = 0
        self.dropped = 0

    def log(self, level: LoggingLevel, data: Any, logger: str | None) -> None:
        """Take a message, in any thread. One below the level that was asked for is no message."""
        exchange = self._exchange
        if LEVELS.index(level) < self._least or not exchange.speaking:
            return
        bound = exchange.core.limits.log_bytes
        assert exchange.era is not None
        if logger is not None:
            logger = _unicode(str(logger)[: exchange.core.limits.text_length])
        frame = exchange.era.encode_log(level, _json(data, bound), logger)
        with self._lock:
            self._pending.append(frame)
            self._bytes += len(frame) + _OVERHEAD
            while self._bytes > bound and len(self._pending) > 1:
                self._drop_oldest()
        if threading.get_ident() == exchange.core.thread:
            self._queue_up()
        else:
            exchange.core.call_soon(self._queue_up)

    def _drop_oldest(self) -> None:
        self._bytes -= len(self._pending.popleft()) + _OVERHEAD
        self.dropped += 1

    def _queue_up(self) -> None:
        if not self._exchange.speaking:
            return  # a thread's last words: what was held is counted no more
        with self._lock:
            self._hold()
        while self._places < len(self._pending):
            self._places += 1
            self._exchange.reply.notify(self)

    def _hold(self) -> None:
        """Count what waits against the connection: the most that it ever was, until the request
        ends. If that is too much for the connection, the oldest is dropped here, too."""
        if self._bytes <= self._held:
            return
        try:
            self._exchange.hold(self._bytes - self._held)
            self._held = self._bytes
        except ProtocolError:
            while self._bytes > self._held and self._pending:
                self._drop_oldest()

    def take(self) -> bytes | None:
        self._places -= 1
        if not self._exchange.speaking:
            return None
        with self._lock:
            if not self._pending:
                return None
            if not self._in_time():
                self._drop_oldest()
                return None
            frame = self._pending.popleft()
            self._bytes -= len(frame) + _OVERHEAD
        self.sent += 1
        return frame

    def _in_time(self) -> bool:
        """Whether one more may go out now. A second's worth may go at once."""
        now, rate = trio.current_time(), self._exchange.core.limits.logs_per_second
        self._allowance = min(rate, self._allowance + (now - self._allowed_at) * rate)
        self._allowed_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def written(self, delivered: bool) -> None:
        pass


def _json(data: Any, bound: int) -> msgspec.Raw:
    """A remark is no reason to fail: what JSON cannot hold is sent as its ``repr``, and of what is
    too long the beginning."""
    try:
        value = encode(data)
    except Exception:
        value = _text(_repr(data))
    if len(value) > bound // 2:
        value = _text(value[: bound // 16].decode(errors="ignore") + "…")
    return msgspec.Raw(value)


def _text(text: str) -> bytes:
    return encode(_unicode(text))


def _unicode(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _repr(data: Any) -> str:
    try:
        return repr(data)
    except Exception:
        return f"<{type(data).__name__} without a repr>"
