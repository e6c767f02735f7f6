"""What a sweep can run: the protocol of its two kinds, and what they share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias

import attrs
import trio

from .report import Kind
from .stepping import Stepper, Struck

__all__ = ["Finding", "Outcome", "Subject", "closes", "late_finding", "until"]

Outcome: TypeAlias = Literal["result", "error"]


@attrs.frozen
class Finding:
    """A problem of a run that was cancelled."""

    kind: Kind
    note: str


class Subject(Struck, Protocol):
    """A handler that can be run once. ``further`` are the things that can happen during its
    clean-up, in words."""

    name: str
    further: tuple[str, ...]

    async def run(self, stepper: Stepper) -> None:
        """Run it, in a Trio run of its own, until nothing of it is left."""

    def outcome(self) -> Outcome | None:
        """What it has ended with; ``None`` for neither a result nor an error."""

    def failure(self) -> str | None:
        """The exception that was none of its outcomes, and its line; ``None`` if there is none."""

    def ran_into_limit(self) -> bool:
        """Whether a clean-up block has."""

    def findings(self, stepper: Stepper, usual: Outcome | None) -> Iterator[Finding]:
        """What is wrong after it was cancelled. ``usual`` is its outcome if nobody cancels it."""


async def until(ended: trio.Event, stepper: Stepper, longest: float) -> None:
    """Wait until it has ended; not longer than ``longest`` seconds, nor than the stepper allows
    after the cancellation: then it is given up."""
    stepper.deadline.deadline = min(stepper.deadline.deadline, trio.current_time() + longest)
    with stepper.deadline:
        await ended.wait()
        return
    if stepper.struck:
        stepper.note_endless()
    stepper.give_up()


async def closes(closed: trio.Event, stepper: Stepper) -> None:
    """Wait until what it ran on has closed, too; not for ever."""
    with trio.move_on_after(stepper.bound):
        await closed.wait()
        return
    if stepper.unbounded is None:
        stepper.unbounded = (None, "its connection does not end, though the client has left")
    stepper.give_up()


def late_finding(
    what: Outcome, error: str | None, stepper: Stepper, usual: Outcome | None
) -> Finding:
    """What it means that a handler had an outcome after it was cancelled."""
    if what == "error" and (stepper.delivered or usual != "error"):
        return Finding("raised", f"out came {error}")
    if what == "result" and stepper.delivered:
        return Finding("swallowed", "trio.Cancelled was raised in it, and it returned a result")
    return Finding("late outcome", f"its {what} came after the cancellation")
