"""Counts the checkpoints of a handler, and cancels it at one of them.

A checkpoint is counted when one of the handler's tasks gives control to Trio. In that moment, after
the step of the task and before any other, it is cancelled: the cancellation finds it there.
"""

from __future__ import annotations

from typing import Protocol

import attrs
import trio

from ..places import Place, place_of
from ..watching import GivenUp, Watch

__all__ = ["GivenUp", "Plan", "Stepper", "Struck"]


@attrs.frozen
class Plan:
    """When to cancel: at which checkpoint, and at which one after that something else happens."""

    at: int | None = None
    again_at: int | None = None
    again: str | None = None


class Struck(Protocol):
    """What is run and cancelled; a :class:`.watching.Watched`.

    ``answers``: when its task has ended, there is something left that can be cancelled.
    """

    root: str
    reason: str
    answers: bool

    def strike(self) -> None:
        """Cancel it. Never waits."""

    def strike_again(self, how: str) -> None:
        """While it unwinds: one of the further things that can happen. Never waits."""


class Stepper(Watch):
    """Steps through one run, as a :class:`Plan` says.

    :param limit: checkpoints after which a run has too many.
    :param bound: seconds that it may take after it was cancelled.
    """

    def __init__(self, subject: Struck, plan: Plan, limit: int, bound: float) -> None:
        super().__init__(subject, bound)
        self.checkpoints = 0
        self.after = 0
        self.has_run = False  # up to a checkpoint of its own, in a run that nobody cancels
        self.struck_again = False
        self.place: Place | None = None
        self.too_many = False
        self.deadline = trio.CancelScope()
        self._subject = subject
        self._plan = plan
        self._limit = limit

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        super().task_exited(task)
        if task is self.root and self._subject.answers and not (self.struck or self.given_up):
            self.call(self._count, None)

    def stepped(self, task: trio.lowlevel.Task) -> None:
        self._count(task)

    def _count(self, task: trio.lowlevel.Task | None) -> None:
        plan = self._plan
        if not self.struck:
            self.checkpoints += 1
            if plan.at is None and task is not None and not self.has_run:
                self.has_run = place_of(task) is not None
            if self.checkpoints == plan.at:
                self.place = self.place_in(task)
                self._strike()
            elif self.checkpoints > self._limit:
                self._have_too_many()
            return
        self.after += 1
        if self.after == plan.again_at and plan.again is not None:
            self.struck_again = True
            self._subject.strike_again(plan.again)
        elif self.after > self._limit:
            self.note_unbounded(task, f"it is still busy after {self._limit} more checkpoints")
            self.give_up()

    def _strike(self) -> None:
        self.begin()
        self.deadline.deadline = self.latest + 1  # what ends at the bound is in time
        self._subject.strike()
        self.look_whom_it_reached()

    def _have_too_many(self) -> None:
        self.too_many = True
        self.give_up()
