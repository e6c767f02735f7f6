"""Follows a handler through one order, tick by tick."""

from __future__ import annotations

import math
from typing import Protocol

import trio

from ..places import Place, place_of
from ..watching import Watch, Watched

__all__ = ["RaceWatch"]


class Observed(Watched, Protocol):
    """What is played."""

    def look(self) -> None:
        """A task has made a step."""

    def let_time_pass(self) -> None:
        """It is given up."""


class RaceWatch(Watch):
    """Follows the handler, and looks at the exchange after each step of any task.

    :param limit: steps after which a handler is taken to be busy for ever.
    """

    def __init__(self, play: Observed, bound: float, limit: int) -> None:
        super().__init__(play, bound)
        self.driver: trio.lowlevel.Task | None = None
        self.ticks = 0
        self.steps = 0  # of all tasks but the driver
        self.handler_steps = 0
        self.has_run = False  # up to an await in the handler's own source
        self.too_many = False
        self.place: Place | None = None  # where its cancellation found the handler
        self._play = play
        self._limit = limit

    @property
    def has_done_much(self) -> bool:
        """Without being stopped: half of what it may."""
        return not self.struck and self.handler_steps > self._limit // 2

    def has_deadline(self) -> bool:
        """Whether there is a time that ends what one of the handler's tasks waits for."""
        return any(task._cancel_status.effective_deadline() < math.inf for task in self.tasks)

    def after_io_wait(self, timeout: float) -> None:
        self.ticks += 1

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.call(self._play.look)  # first: the task may be the handler's no more
        super().after_task_step(task)
        if task is not self.driver:
            self.steps += 1

    def give_up(self) -> None:
        super().give_up()
        self._play.let_time_pass()

    def stepped(self, task: trio.lowlevel.Task) -> None:
        self.handler_steps += 1
        if not self.has_run:
            self.has_run = place_of(task) is not None
        if self.handler_steps > self._limit:
            self.too_many = not self.struck
            self.note_unbounded(task, f"it is still busy after {self._limit} steps")
            self.give_up()
