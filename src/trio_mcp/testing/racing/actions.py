"""What can happen around one exchange, and orders of it: plain data."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

import attrs

__all__ = ["ALL", "AT_ONCE", "SETTLED", "Action", "Gap", "Order", "Step"]


class Action(Enum):
    """One thing that happens around an exchange."""

    CANCEL = "cancel"
    """The client sends ``notifications/cancelled``."""
    COMPLETE = "complete"
    """The handler is let run, in virtual time, until it returns or raises, or waits for what no
    time brings; its answer may still wait to be written. The tool of the library's own is told to
    return, and has yet to do so."""
    PROGRESS = "progress"
    """The handler is let run in the same way until it next reports progress, if it does; the tool
    of the library's own is told to report."""
    DISCONNECT = "disconnect"
    """The client closes the connection."""
    DUPLICATE_CANCEL = "duplicate cancel"
    """The client sends ``notifications/cancelled`` twice, one right after the other."""
    SHUTDOWN = "shutdown"
    """The scope around the server is cancelled: it drains, and ends."""

    def __repr__(self) -> str:
        return f"Action.{self.name}"


ALL: Final = tuple(Action)


@attrs.frozen
class Gap:
    """What lies before an action.

    :param quiet: all tasks wait for something that has not happened. If not, and without ticks, the
        action happens in the same step as the one before it, or as the request: at once.
    :param moves: so many times, after all is quiet, virtual time moves to the next deadline or the
        end of the next sleep. Whom the last of them wakes has not had its turn yet.
    :param ticks: then, each task that is ready has its turn, so many times.
    """

    quiet: bool = True
    moves: int = 0
    ticks: int = 0

    def made_plain(self) -> Gap:
        """The same, in the one way in which it is written here."""
        return attrs.evolve(self, quiet=bool(self.moves) or self.quiet)

    def __str__(self) -> str:
        parts = []
        if self.moves:
            times = f" {self.moves} times" if self.moves > 1 else ""
            parts.append(f"as time moves on{times}")
        elif self.quiet:
            parts.append("when all is quiet")
        if self.ticks:
            parts.append(f"{self.ticks} tick{'s' * (self.ticks > 1)} later")
        return ", ".join(parts) or "at once"


SETTLED: Final = Gap()
AT_ONCE: Final = Gap(quiet=False)


@attrs.frozen
class Step:
    """An action, and what lies before it."""

    action: Action
    gap: Gap = SETTLED

    def __str__(self) -> str:
        return f"{self.action.value}, {self.gap}"


@attrs.frozen
class Order:
    """What happens around an exchange, after its request was sent.

    ``turns``: where several tasks are ready at the same time, one number each time, which names one
    of their possible orders; 0, as where they are used up, is that in which they were made. The
    ``repr`` is Python, to keep an order in a test.
    """

    steps: tuple[Step, ...] = ()
    turns: tuple[int, ...] = ()

    def __str__(self) -> str:
        steps = "; ".join(map(str, self.steps)) or "nothing"
        return steps + (f" (turns {', '.join(map(str, self.turns))})" if self.turns else "")

    def made_possible(self, actions: Collection[Action]) -> Order:
        """Without what cannot happen, or would change nothing: of two alike the second (but for
        PROGRESS), what a client says when it has left, PROGRESS of what was told to complete."""
        kept: list[Step] = []
        gone: set[Action] = set()
        for step in self.steps:
            if step.action in actions and step.action not in gone:
                kept.append(Step(step.action, step.gap.made_plain()))
                gone |= _EXCLUDES.get(step.action, {step.action})
        turns = list(self.turns)
        while turns and not turns[-1]:
            turns.pop()
        return Order(tuple(kept), tuple(turns))


_EXCLUDES: Final[dict[Action, set[Action]]] = {
    Action.PROGRESS: set(),
    Action.COMPLETE: {Action.COMPLETE, Action.PROGRESS},
    Action.DISCONNECT: {Action.DISCONNECT, Action.CANCEL, Action.DUPLICATE_CANCEL},
}
