"""What threads, workers and processes of a request have in common: their place in the scope tree,
and what is written down of them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import attrs
import trio

from ..scopes import Scope, ScopeKind

if TYPE_CHECKING:
    from ..exchange import Exchange

__all__ = ["Work", "WorkKind", "WorkRecord"]


class WorkKind(Enum):
    """Where a piece of work runs."""

    THREAD = "thread"
    """A plain function in a thread of this process."""
    WORKER = "worker"
    """A plain function in a worker process."""
    PROCESS = "process"
    """A command, in a process group of its own."""


@attrs.define(eq=False, kw_only=True)
class WorkRecord:
    """A piece of work, as the record of its request tells of it. Times are seconds on Trio's clock.

    ``label`` is the function's name, or the command's. ``queued`` is how long it waited for its
    place; ``started_at`` is ``None`` if it never got one, ``ended_at`` while it runs. ``outcome``
    is ``"result"`` or ``"error"``; ``"stopped"`` for work that ended because it was told to;
    ``None`` for none. ``abandoned``: it ran on after its clean-up window, and nobody waits for it;
    its end is written down all the same. ``interrupts`` counts the calls of ``interrupt``. The rest
    is for processes: ``exit_status`` is negative for a signal, ``signals`` are those sent to its
    group.
    """

    kind: WorkKind
    label: str
    queued: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    outcome: str | None = None
    abandoned: bool = False
    interrupts: int = 0
    pid: int | None = None
    exit_status: int | None = None
    signals: tuple[str, ...] = ()

    def describe(self) -> str:
        """For a line of a log."""
        parts = [f"{self.kind.value} {self.label}"]
        if self.started_at is None:
            return f"{parts[0]} not started"
        if self.interrupts:
            parts.append(f"interrupted {self.interrupts} time(s)")
        parts += self.signals
        if self.abandoned:
            parts.append("abandoned")
        if self.exit_status is not None:
            parts.append(f"exit status {self.exit_status}")
        elif self.outcome is not None:
            parts.append(self.outcome)
        return " ".join(parts)


class Work:
    """One piece of work of one exchange, from the wait for its place to its end."""

    def __init__(self, exchange: Exchange, kind: WorkKind, label: str) -> None:
        self.exchange = exchange
        self.record = WorkRecord(kind=kind, label=label[: exchange.core.limits.text_length])
        self._asked_at = trio.current_time()
        exchange.begin_work(self)

    def start(self) -> None:
        """It has got its place."""
        now = trio.current_time()
        self.record.queued = now - self._asked_at
        self.record.started_at = now

    def end(self, outcome: str | None) -> None:
        """It has ended."""
        self.record.ended_at = trio.current_time()
        self.record.outcome = outcome

    @property
    def running(self) -> bool:
        """Whether it has begun and not ended, abandoned or not."""
        return self.record.started_at is not None and self.record.ended_at is None

    def scope(self) -> Scope:
        record, exchange = self.record, self.exchange
        if record.abandoned:
            state = "abandoned"
        else:
            state = exchange.state.value if self.running else "waiting"
        since = record.started_at if record.started_at is not None else self._asked_at
        return Scope(
            kind=ScopeKind.OFFLOAD,
            label=record.label,
            state=state,
            age=trio.current_time() - since,
            cause=exchange.cause,
            key=exchange.key,
        )
