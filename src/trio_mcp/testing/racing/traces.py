"""What happened in one order, event by event, as seen on the wire, and by taps on the runtime."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

from ...runtime.lifecycle import CancelCause, State
from ..places import Place

__all__ = ["BESIDE", "EXCHANGE", "LATE", "PROBE", "Event", "Trace", "What", "is_about", "is_answer"]

EXCHANGE = "race"
"""The id of the request that is raced, and its progress token."""
BESIDE = "beside"
"""The id of one that is in flight beside it."""
LATE = "late"
"""The id of one that comes while the server drains."""
PROBE = "probe"
"""The id of the one that comes after it."""

What: TypeAlias = Literal[
    "action",  # of the order; ``text``
    "read",  # a message of the client, by the server; ``message``
    "eof",  # the server has read that the client has closed
    "opened",  # an exchange was made
    "began",  # its handler
    "reported",  # progress, by the handler
    "outcome",  # of the handler; ``text`` is "result", "error" or "cancelled"
    "state",  # of the exchange; ``states``, ``cause``
    "written",  # a message of the server; ``message``
    "bytes",  # the server writes to a connection that has ended; ``text``
    "late",  # an outcome was noted to be late; ``text`` is its kind
    "recorded",  # in the journal
    "settled",  # the order has been played, and the exchange has ended or will not by itself
    "closed",  # the connection has ended
]


@attrs.frozen
class Event:
    """One thing that happened. ``at`` is in seconds of Trio's clock; in one ``tick``, each task
    that was ready has its turn."""

    what: What
    at: float
    tick: int = 0
    text: str = ""
    message: Any = None
    states: tuple[State, State] | None = None
    cause: CancelCause | None = None
    place: Place | None = None  # of an outcome: where a cancellation has found the handler


class Trace(list[Event]):
    """All of them, in the order in which they happened."""

    def first(self, *whats: What, start: int = 0) -> int | None:
        """The index of the first event of these kinds."""
        for index in range(start, len(self)):
            if self[index].what in whats:
                return index
        return None

    def indices(self, what: What) -> list[int]:
        return [index for index, event in enumerate(self) if event.what == what]


def is_answer(message: Any) -> bool:
    """Whether it is a response to the request."""
    return "method" not in message and message.get("id") == EXCHANGE


def is_about(message: Any) -> bool:
    """Whether it says anything about the request."""
    if message.get("method") == "notifications/message":
        return True  # only its handler logs
    params = message.get("params") or {}
    named = (message.get("id"), params.get("progressToken"), params.get("requestId"))
    return EXCHANGE in named
