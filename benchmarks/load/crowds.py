"""Crowds of requests in flight that wait, and another caller who asks meanwhile.

On a channel all of them share one connection, and are cancelled by notifications; over HTTP each
has a connection of its own, and is cancelled by its end. Who asks has another connection, but for
standard streams, where there is one.
"""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ..contenders import Contender
from .channel import Channel
from .posting import Line
from .process import STEP_LIMIT, LoadError, ServerProcess
from .requests import SLEEP_SECONDS, call, cancel, post

__all__ = ["Crowd", "Storm", "Unmoved", "crowd"]

#: Seconds between two questions to the server: while it answers them it does nothing else.
POLL_INTERVAL = 0.005
#: Seconds before the first question after a cancellation.
CANCEL_PAUSE = 0.003


class Unmoved(Exception):
    """A request that was cancelled runs on."""


@dataclass
class Storm:
    """What followed when all were cancelled at once; seconds from the first byte.

    `sent`: the last byte was out. `answered`: so was the next question. `ended`: no handler was
    alive; `None` if some run on for good. `idle`: nor was a connection open. `left`: handlers that
    run on.
    """

    sent: float
    answered: float
    ended: float | None = None
    idle: float | None = None
    left: int = 0


class Crowd(ABC):
    """Requests in flight on one server. `size` is how many; `rest` the seconds after which a
    cancelled one runs on for good."""

    def __init__(self, server: ServerProcess, contender: Contender, rest: float) -> None:
        self.server = server
        self._rest = rest
        self._contender = contender
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    @property
    @abstractmethod
    def late(self) -> int:
        """Answers to requests after their cancellation."""

    @abstractmethod
    def ask(self, tool: str, label: str = "") -> float:
        """Call a tool whose text is a number; `label` is its argument if it is given."""

    @abstractmethod
    def probe(self) -> None:
        """Call `stock`, and look at the answer."""

    @abstractmethod
    def _send(self, count: int) -> None: ...

    @abstractmethod
    def _cancel_all(self) -> None: ...

    @abstractmethod
    def _cancel_one(self, label: str) -> float: ...

    @abstractmethod
    def _close(self) -> None: ...

    #: Requests that are sent before the server is asked whether all have arrived.
    batch = 1_000_000

    def grow(self, size: int) -> float:
        """Let it be of that size; return the seconds until all handlers run."""
        began = time.perf_counter()
        while self.size < size:
            count = min(self.batch, size - self.size)
            self._send(count)
            self.size += count
            self.await_alive(self.size)
        return time.perf_counter() - began

    def await_alive(self, handlers: int) -> None:
        """Ask until exactly so many `sleep` handlers are alive."""
        deadline = time.monotonic() + STEP_LIMIT
        while (alive := self.ask("alive")) != handlers:
            if time.monotonic() > deadline:
                raise LoadError(f"{alive:.0f} handlers are alive instead of {handlers}")
            time.sleep(POLL_INTERVAL)

    def time_cancel(self, label: str) -> float:
        """Put one more in flight and cancel it; return the seconds until its `finally` ran: both
        processes read the same clock. Raises `Unmoved` when it runs on."""
        cancelled = self._cancel_one(label)
        time.sleep(CANCEL_PAUSE)
        while not (ended := self.ask("ended", label)):
            if time.monotonic() > cancelled + self._rest:
                raise Unmoved
            time.sleep(POLL_INTERVAL)
        return ended - cancelled

    def storm(self, descriptors: int) -> Storm:
        """Cancel all at once, and wait until the server has no handlers and no more open
        descriptors than these; or until nothing more happens."""
        began = time.perf_counter()
        self._cancel_all()
        sent = time.perf_counter()
        self.size = 0
        alive = self.ask("alive")
        storm = Storm(sent - began, time.perf_counter() - began)
        storm.left = int(self._rest_of(alive, lambda: self.ask("alive"), 0))
        if not storm.left:
            storm.ended = time.perf_counter() - began
            opened = self.server.descriptors
            if self._rest_of(opened(), opened, descriptors) <= descriptors:
                storm.idle = time.perf_counter() - began
        return storm

    def _rest_of(self, count: float, look: Callable[[], float], enough: int) -> float:
        """Look until a number is no more than that, or does not change any more; return it."""
        moved = time.perf_counter()
        while count > enough and time.perf_counter() < moved + self._rest:
            time.sleep(POLL_INTERVAL)
            before, count = count, look()
            if count != before:
                moved = time.perf_counter()
        return count


def crowd(server: ServerProcess, contender: Contender, rest: float) -> Crowd:
    """An empty one, for what the server speaks."""
    if contender.over_http:
        return _HttpCrowd(server, contender, rest)
    return _ChannelCrowd(server, contender, rest)


class _ChannelCrowd(Crowd):
    def __init__(self, server: ServerProcess, contender: Contender, rest: float) -> None:
        super().__init__(server, contender, rest)
        self._channel = self._asking = Channel.to(server, contender)
        if contender.wire != "stdio":
            self._asking = Channel.to(server, contender)
        self._held: list[range] = []
        self._asking.ask_stock()

    @property
    def late(self) -> int:
        return self._channel.late

    def ask(self, tool: str, label: str = "") -> float:
        arguments = {"label": label} if label else {}
        return float(self._asking.ask(tool, **arguments))

    def probe(self) -> None:
        self._asking.ask_stock()

    def _send(self, count: int) -> None:
        ids = self._channel.new_ids(count)
        self._held.append(ids)
        arguments = {"seconds": SLEEP_SECONDS}
        self._channel.send(*[call(number, "sleep", arguments) for number in ids])
        self._channel.flush()

    def _cancel_one(self, label: str) -> float:
        number = self._channel.new_id()
        arguments = {"seconds": SLEEP_SECONDS, "label": label}
        self._channel.send(call(number, "sleep", arguments))
        self.await_alive(self.size + 1)
        self._channel.give_up(range(number, number + 1))
        cancelled = time.monotonic()
        self._channel.send(cancel(number))
        return cancelled

    def _cancel_all(self) -> None:
        held, self._held = self._held, []
        self._channel.give_up(range(held[0].start, held[-1].stop))
        self._channel.send(*[cancel(number) for ids in held for number in ids])
        self._channel.flush()

    def _close(self) -> None:
        self._channel.close()
        self._asking.close()


class _HttpCrowd(Crowd):
    batch = 100  # no more than any server's backlog

    def __init__(self, server: ServerProcess, contender: Contender, rest: float) -> None:
        super().__init__(server, contender, rest)
        self._held: list[socket.socket] = []
        self._line = Line(server)
        self._line.ask_stock()

    @property
    def late(self) -> int:
        return 0  # nobody is there to hear one

    def ask(self, tool: str, label: str = "") -> float:
        arguments = {"label": label} if label else {}
        return float(self._line.ask(tool, **arguments))

    def probe(self) -> None:
        self._line.ask_stock()

    def _send(self, count: int) -> None:
        self._held += [self._open() for _ in range(count)]

    def _open(self, label: str = "") -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self.server.port), timeout=STEP_LIMIT)
        arguments = {"seconds": SLEEP_SECONDS, "label": label}
        line.sendall(post(call(1, "sleep", arguments), "sleep", self.server.port))
        return line

    def _cancel_one(self, label: str) -> float:
        line = self._open(label)
        self.await_alive(self.size + 1)
        cancelled = time.monotonic()
        line.close()
        return cancelled

    def _cancel_all(self) -> None:
        held, self._held = self._held, []
        for line in held:
            line.close()

    def _close(self) -> None:
        self._cancel_all()
        self._line.close()
