"""The lifecycle of one request, and its terminal-state guard.

Theory of operation
===================

An :class:`~.exchange.Exchange` (a request we serve) and a :class:`~.call.Call` (a request we make)
live through the same few states. Every rule about them is in the table ``TRANSITIONS`` below, and
only this file assigns a state. The picture in ``docs/lifecycle.svg`` is drawn from the table.

* ``RUNNING``: nobody has asked for a stop, no outcome has begun to leave.
* ``CANCELLING``: a stop was asked for; clean-up is running. *Cancel requested.*
* ``CANCELLED``: the work has unwound. *Stopped.* The two are separate states on purpose: a user
  interface must be able to show both.
* ``COMPLETED``, ``FAILED``: an outcome (a result, an error) was claimed.

**Claim at the write.** An outcome is claimed in the same synchronous step in which its bytes start
to go out, not when the handler returns. Between the two a cancellation can still be processed, and
then it wins: the claim is refused and the outcome is *late*. So the order in which this process
handles events is the order that everybody sees, and after a peer's cancellation has been processed
no byte about that request is written. If the write of a claimed outcome then fails, the request
stays COMPLETED or FAILED: its work was done; that it was not delivered is a fact beside the state.

**First cause wins.** A cancellation of a request that is no longer RUNNING changes nothing. It is
counted, and if it came from the peer it also *silences* the request: a request that was cancelled
for a reason the peer should hear about (its deadline, a shutdown) is answered with an error, unless
the peer itself has cancelled in the meantime.

**Late is recorded, never sent.** An outcome that arrives when the state is not RUNNING is handed to
:meth:`Lifecycle.note_late`: what kind it was, and how long after the cancellation.

Nothing here awaits, reads a clock or does I/O; times are passed in, in seconds of Trio's clock.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

__all__ = [
    "ANSWERED",
    "TRANSITIONS",
    "CancelCause",
    "CancelSource",
    "Event",
    "LateOutcome",
    "Lifecycle",
    "LifecycleError",
    "State",
]


class State(Enum):
    """Of an exchange or a call; :data:`TRANSITIONS` has the steps between them.

    COMPLETED and FAILED: a result, or an error, has begun to leave (or, on the client's side, has
    come). CANCELLING: a stop was asked for, clean-up runs. CANCELLED: it has stopped.
    """

    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    __hash__ = object.__hash__  # of enum's, which Python computes from the name, there is too much


class Event(Enum):
    CANCEL = "cancel(cause)"
    COMPLETE = "claim a result"
    FAIL = "claim an error"
    UNWOUND = "unwound"

    __hash__ = object.__hash__


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.RUNNING: {
        Event.CANCEL: State.CANCELLING,
        Event.COMPLETE: State.COMPLETED,
        Event.FAIL: State.FAILED,
    },
    State.CANCELLING: {Event.UNWOUND: State.CANCELLED},
    State.COMPLETED: {},
    State.FAILED: {},
    State.CANCELLED: {},
}


class CancelSource(Enum):
    """Who said that a request should stop."""

    NOTIFICATION = "notification"
    """The peer's ``notifications/cancelled`` on the same channel."""
    DISCONNECT = "disconnect"
    """The peer's stream or connection ended, or it closed an HTTP response stream."""
    STALLED = "stalled"
    """The peer stopped reading for longer than the write limit."""
    DEADLINE = "deadline"
    """The server's own limit for this request passed."""
    SHUTDOWN = "shutdown"
    """The server is draining and the drain limit passed."""
    OPERATOR = "operator"
    """The embedding application asked."""
    CALLER = "caller"
    """Client side: the awaiting task was cancelled, or ``call.cancel()``."""
    TIMEOUT = "timeout"
    """Client side: the idle or the total timeout passed."""


ANSWERED: Final = frozenset({CancelSource.DEADLINE, CancelSource.SHUTDOWN, CancelSource.OPERATOR})
"""Sources that the peer does not know of: the request is answered with an error."""


@attrs.frozen
class CancelCause:
    """Why a request was cancelled. ``received_at`` is in seconds of Trio's clock."""

    source: CancelSource
    reason: str | None
    received_at: float


@attrs.frozen
class LateOutcome:
    """An outcome that came after the cancellation, and was dropped.

    ``kind`` is ``"result"``, ``"error"`` or ``"answer"`` (client side); ``after`` is the number of
    seconds since the cancellation, or since the end if there was none.
    """

    kind: str
    after: float


class LifecycleError(RuntimeError):
    """A transition that the table does not have: a bug in the runtime, never a peer's doing."""


class Lifecycle:
    """One request's state. Exchanges and calls inherit from it: one object per request."""

    __slots__ = ("_state", "cause", "extra_cancels", "late", "silenced")

    def __init__(self) -> None:
        self._state = State.RUNNING
        self.cause: CancelCause | None = None
        self.extra_cancels = 0
        self.silenced = False
        self.late: tuple[LateOutcome, ...] = ()

    @property
    def state(self) -> State:
        return self._state

    @property
    def ended(self) -> bool:
        """Whether the state is terminal."""
        return not TRANSITIONS[self._state]

    def begin_cancel(self, cause: CancelCause) -> bool:
        """Move to CANCELLING. False, and nothing but a count, if it is not RUNNING."""
        if cause.source not in ANSWERED:
            self.silenced = True
        if self._state is not State.RUNNING:
            self.extra_cancels += 1
            return False
        self.cause = cause
        self._move(Event.CANCEL)
        return True

    def claim(self, *, failed: bool) -> bool:
        """Claim the outcome, in the step in which its bytes start to go out. False: it is late."""
        if self._state is not State.RUNNING:
            return False
        self._move(Event.FAIL if failed else Event.COMPLETE)
        return True

    def note_unwound(self) -> None:
        """The cancelled work has stopped, or the last of it was abandoned."""
        self._move(Event.UNWOUND)

    def note_late(self, kind: str, after: float) -> LateOutcome:
        """Keep the fact that an outcome came too late. Only the first few are kept."""
        late = LateOutcome(kind, after)
        if len(self.late) < 8:
            self.late += (late,)
        return late

    def _move(self, event: Event) -> None:
        try:
            self._state = TRANSITIONS[self._state][event]
        except KeyError:
            raise LifecycleError(f"{event.name} in state {self._state.name}") from None
