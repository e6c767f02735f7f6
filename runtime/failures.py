"""What it means that the nursery of an exchange raised, or that the exchange was cancelled."""

from __future__ import annotations

from typing import Any, Final

import trio

from .errors import ErrorCode, ProtocolError
from .groups import leaf_of
from .lifecycle import CancelCause, CancelSource
from .rounds import InputRequired, outcome_of

__all__ = ["ANNOUNCED", "failure_of", "part_passing_on", "passes_on", "refusal_of"]

ANNOUNCED: Final = "announced by the client"
"""The reason of a deadline that is not the server's own."""

_PASSING_ON: Final = (trio.Cancelled, KeyboardInterrupt)


def passes_on(raised: BaseException) -> bool:
    """Whether it belongs to a scope around the exchange. All else is the handler's failure."""
    if isinstance(raised, BaseExceptionGroup):
        return raised.subgroup(_PASSING_ON) is not None
    if isinstance(raised, GeneratorExit):
        return not trio.lowlevel.in_trio_task()  # the coroutine is being closed, after the run
    return isinstance(raised, _PASSING_ON)


def part_passing_on(raised: BaseException) -> BaseException | None:
    """What of it belongs to a scope around the exchange, if anything does."""
    if not passes_on(raised):
        return None
    part = raised.subgroup(_PASSING_ON) if isinstance(raised, BaseExceptionGroup) else raised
    assert part is not None
    return leaf_of(part)


def failure_of(group: BaseExceptionGroup[Any], error: BaseException | None) -> BaseException:
    """Why a nursery raised: its children failed, unless the handler itself did."""
    rest = group.subgroup(_PASSING_ON)
    if rest is not None:
        raise leaf_of(rest)
    if error is None:
        return leaf_of(outcome_of(group))
    if isinstance(outcome_of(error), InputRequired):
        return BaseExceptionGroup("asked, beside what the children did", [error, group])
    return error


def refusal_of(cause: CancelCause, received_at: float) -> ProtocolError:
    """The error that tells the peer of a cancellation it did not ask for."""
    source, reason = cause.source, cause.reason
    if source is CancelSource.DEADLINE:
        limit = f"time limit of {cause.received_at - received_at:g} s"
        whose = f"the {limit} {reason}" if reason is not None else f"the server's {limit}"
        return ProtocolError(ErrorCode.DEADLINE_EXCEEDED, f"Cancelled by {whose}")
    if source is CancelSource.SHUTDOWN:
        return ProtocolError(ErrorCode.SHUTTING_DOWN, "Cancelled: the server is shutting down")
    text = "Cancelled by the server's operator"
    return ProtocolError(ErrorCode.CANCELLED_BY_OPERATOR, f"{text}: {reason}" if reason else text)
