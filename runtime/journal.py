"""What happened to each exchange and each call: a bounded ring, subscribers, one log line.

A :class:`Record` is written when a request has ended. It goes to the ring (``list(journal)``,
oldest first), to every subscriber, and, if the request was cancelled or failed, to the logger
``trio_mcp.journal`` at INFO. Python's logging writes to standard error by default, never to stdout.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Generic, Literal, TypeVar

import attrs
import trio

from .jsonrpc import RequestId
from .lifecycle import CancelCause, LateOutcome, State
from .offload.work import WorkRecord

__all__ = ["CallStatus", "Journal", "Record", "Subscription", "printable"]

T = TypeVar("T")

logger = logging.getLogger("trio_mcp.journal")


@attrs.define(eq=False, kw_only=True)
class Record:
    """One request, from its arrival to its end. Times are seconds on Trio's clock.

    ``role`` is ``"server"`` for an exchange, ``"client"`` for a call. ``target`` is what it is
    about, if that has a name: the tool's, or what a subscription is for. ``peer`` is what the
    client calls itself, ``principal`` the name of who it has proved to be, where the application
    asks for that. ``started_at`` is ``None`` if the request ended before its handler began (for a
    call: before it began to go out). ``cleanup`` is ``None`` for a request that was not cancelled
    and left nothing undone; else ``"clean"``; ``"error"``, clean-up raised; ``"timed out"``, a
    ``ctx.cleanup`` block or the callbacks of ``ctx.on_exit`` ran into their limit; ``"abandoned"``,
    a thread or process ran on after its window: the worst of them. ``late`` may grow after the end,
    when such work finishes. ``delivered`` is ``False`` for a claimed answer whose write failed,
    ``None`` where there was no answer. ``asked`` has the keys of the questions, if the answer asked
    the client for input. Changes are those of a subscription; one that was still to be told when it
    came again is coalesced. ``trace_id`` are the 32 hexadecimal digits of the trace it belongs to,
    if it belongs to one. ``work`` are the threads and processes of the request, the newest
    ``Limits.work_records`` of them. ``attempt`` counts the attempts of a call that is made again,
    from 1 on. ``queued`` are the seconds that it has waited for its turn: for a slot, and for a
    thread.
    """

    role: Literal["server", "client"]
    key: int
    request_id: RequestId
    method: str
    target: str | None
    connection: str
    peer: str | None
    principal: str | None
    protocol_version: str | None
    received_at: float
    started_at: float | None
    unwound_at: float | None
    ended_at: float
    state: State
    cause: CancelCause | None
    extra_cancels: int
    error: str | None
    is_error: bool
    asked: tuple[str, ...] = ()
    delivered: bool | None
    cleanup: str | None
    cleanups: int
    late: tuple[LateOutcome, ...]
    progress_reported: int
    progress_sent: int
    logs_sent: int = 0
    logs_dropped: int = 0
    trace_id: str | None = None
    work: tuple[WorkRecord, ...] = ()
    changes_sent: int = 0
    changes_coalesced: int = 0
    attempt: int = 1
    queued: float = 0.0

    @property
    def duration(self) -> float:
        """Seconds from arrival to end."""
        return self.ended_at - self.received_at

    @property
    def cleanup_duration(self) -> float | None:
        """Seconds from the cancellation until the work had unwound; ``None`` if not cancelled."""
        if self.cause is None or self.unwound_at is None:
            return None
        return self.unwound_at - self.cause.received_at

    def describe(self) -> str:
        """One line for a log."""
        name = printable(f"{self.method} {self.target}" if self.target else self.method)
        parts = [f"{self.role} #{self.key} id={self.request_id!r} {name}: {self.state.value}"]
        if self.attempt > 1:
            parts.append(f"attempt {self.attempt}")
        if self.principal is not None:
            parts.append(f"for {printable(self.principal)}")
        if self.cause is not None:
            parts.append(f"by {self.cause.source.value}")
            if self.cause.reason:
                parts.append(f"({self.cause.reason!r})")
        if self.asked:
            parts.append(f"asked for {', '.join(map(printable, self.asked))}")
        if self.error:
            parts.append(f"error {self.error!r}")
        if self.cleanup:
            taken = self.cleanup_duration
            parts.append(
                f"clean-up {self.cleanup}" + (f" in {taken:.3f} s" if taken is not None else "")
            )
        if self.late:
            parts.append(f"{len(self.late)} late outcome(s) dropped")
        if self.delivered is False:
            parts.append("not delivered")
        if self.queued > 0:
            parts.append(f"queued for {self.queued:.3f} s")
        parts += [f"({printable(work.describe())})" for work in self.work]
        parts.append(f"after {self.duration:.3f} s on {self.connection}")
        if self.trace_id is not None:
            parts.append(f"in trace {self.trace_id}")
        return " ".join(parts)


@attrs.frozen(eq=False, kw_only=True)
class CallStatus:
    """A call as it was at one moment, client side. Times are seconds on Trio's clock.

    Each round and each attempt of a call is a request of its own, with a ``key`` of its own;
    ``first_key`` is that of the first one. CANCELLING: the cancellation has been asked for, and the
    server is still to be told. ``sent`` says whether the request has begun to go out.
    """

    key: int
    first_key: int
    request_id: RequestId
    method: str
    target: str | None
    connection: str
    state: State
    cause: CancelCause | None
    sent: bool
    attempt: int
    began_at: float
    at: float

    @property
    def age(self) -> float:
        """Seconds since the request began, at that moment."""
        return self.at - self.began_at


def printable(text: str) -> str:
    """A peer's text for one line of a log: escaped if it could break out of the line."""
    return text if text.isprintable() else ascii(text)


class Journal:
    """The newest records, oldest first. Iterate over it, or subscribe.

    ``ended`` counts the records ever written, by state; ``late`` the outcomes that came late.
    """

    def __init__(self, records: int, backlog: int) -> None:
        self._ring: deque[Record] = deque(maxlen=records)
        self._backlog = backlog
        self._subscriptions: set[Subscription[Record]] = set()
        self._watchers: set[Subscription[CallStatus]] = set()
        self._along: tuple[Collection[object], Callable[[CallStatus], None]] = (), _nobody
        self._watching_ended = False
        self.ended: dict[State, int] = {State.COMPLETED: 0, State.FAILED: 0, State.CANCELLED: 0}
        self.late = 0

    def __iter__(self) -> Iterator[Record]:
        return iter(tuple(self._ring))

    def __len__(self) -> int:
        return len(self._ring)

    def subscribe(self) -> Subscription[Record]:
        """Records as they are written: ``with journal.subscribe() as records: async for …``.

        A record comes again if a late outcome was added to it. A subscriber that is slow loses the
        oldest records, which ``records.missed`` counts; it never slows the runtime.
        """
        return Subscription(self._subscriptions, self._backlog)

    def watch(self) -> Subscription[CallStatus]:
        """What becomes of each call, state by state, in the same way as :meth:`subscribe`."""
        watcher = Subscription(self._watchers, self._backlog)
        if self._watching_ended:
            watcher.end()
        return watcher

    @property
    def watched(self) -> bool:
        """Whether anybody is told of the states of calls."""
        return bool(self._watchers or self._along[0])

    def watch_along(self, watchers: Collection[object], tell: Callable[[CallStatus], None]) -> None:
        """Have ``tell`` told the same, as long as there is anybody in ``watchers``."""
        self._along = watchers, tell

    def tell(self, status: CallStatus) -> None:
        """A call has come to another state."""
        for watcher in self._watchers:
            watcher.deliver(status)
        watchers, tell = self._along
        if watchers:
            tell(status)

    def end_watching(self) -> None:
        """No call will come to another state any more: who watches, now or later, is done."""
        self._watching_ended = True
        for watcher in self._watchers:
            watcher.end()

    def add(self, record: Record) -> None:
        self._ring.append(record)
        self.ended[record.state] += 1
        self.late += len(record.late)
        if record.state is not State.COMPLETED and logger.isEnabledFor(logging.INFO):
            logger.info("%s", record.describe())
        if self._subscriptions:
            self._publish(record)

    def add_late(
        self, record: Record, late: LateOutcome, all_late: tuple[LateOutcome, ...]
    ) -> None:
        """An outcome of a request that has a record already."""
        record.late = all_late
        self.late += 1
        if logger.isEnabledFor(logging.INFO):
            logger.info(
                "%s #%d: late %s dropped, %.3f s after", record.role, record.key, *_pair(late)
            )
        if self._subscriptions:
            self._publish(record)

    def _publish(self, record: Record) -> None:
        for subscription in self._subscriptions:
            subscription.deliver(record)


def _nobody(_: CallStatus) -> None:
    """Who is told where nobody watches along."""


def _pair(late: LateOutcome) -> tuple[str, float]:
    return late.kind, late.after


class Subscription(Generic[T]):
    """Records, or what else is told, for one subscriber: a context manager and an async iterator.

    ``missed`` counts what was dropped, the oldest first, because more than the backlog waited.
    """

    def __init__(self, registry: set[Subscription[T]], backlog: int) -> None:
        self._registry = registry
        self._waiting: deque[T] = deque(maxlen=backlog)
        self._arrived = trio.Event()
        self._over = False
        self.missed = 0

    def __enter__(self) -> Subscription[T]:
        self._registry.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._registry.discard(self)

    def deliver(self, record: T) -> None:
        if len(self._waiting) == self._waiting.maxlen:
            self.missed += 1
        self._waiting.append(record)
        self._arrived.set()

    def end(self) -> None:
        """Nothing more will come: the loop ends when all has been taken."""
        self._over = True
        self._arrived.set()

    def __aiter__(self) -> Subscription[T]:
        return self

    async def __anext__(self) -> T:
        """The next record. A checkpoint; if cancelled, no record is lost."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._over:
                raise StopAsyncIteration
            if self._arrived.is_set():
                self._arrived = trio.Event()
            await self._arrived.wait()
        return self._waiting.popleft()
