"""Counts the checkpoints of a handler, and cancels it at one of them.

A checkpoint is counted when one of the handler's tasks gives control to Trio. In that moment, after
the step of the task and before any other, it is cancelled: the cancellation finds it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol

import attrs
import outcome
import trio

from .places import Place, entry_of, place_of, works_elsewhere

__all__ = ["GivenUp", "Plan", "Stepper", "Struck"]

_PATIENCE = 100
"""Steps of a task that has been told to give up, before it is taken off the loop."""


class GivenUp(BaseException):
    """Raised in a handler that does not end by itself; its run has been judged already."""


@attrs.frozen
class Plan:
    """When to cancel: at which checkpoint, and at which one after that something else happens."""

    at: int | None = None
    again_at: int | None = None
    again: str | None = None


class Struck(Protocol):
    """What is run and cancelled.

    ``root`` is the name of the task it begins with, ``reason`` what its ``trio.Cancelled`` says.
    ``answers``: when its task has ended, there is something left that can be cancelled.
    """

    root: str
    reason: str
    answers: bool

    def strike(self) -> None:
        """Cancel it. Never waits."""

    def strike_again(self, how: str) -> None:
        """While it unwinds: one of the further things that can happen. Never waits."""


class Stepper(trio.abc.Instrument):
    """Steps through one run, as a :class:`Plan` says.

    :param limit: checkpoints after which a run has too many.
    :param bound: seconds that it may take after it was cancelled.
    """

    def __init__(self, subject: Struck, plan: Plan, limit: int, bound: float) -> None:
        self.nursery: trio.Nursery  # what runs it opens that, and tells
        self.tasks: set[trio.lowlevel.Task] = set()
        self.outsiders: set[trio.lowlevel.Task] = set()
        self.checkpoints = 0
        self.after = 0
        self.has_run = False  # up to a checkpoint of its own, in a run that nobody cancels
        self.struck = False
        self.struck_again = False
        self.place: Place | None = None
        self.delivered = False  # to the task that the handler began in
        self.unbounded: tuple[Place | None, str] | None = None
        self.too_many = False
        self.elsewhere: str | None = None
        self.given_up = False
        self.deadline = trio.CancelScope()
        self.failure: Exception | None = None
        self.bound = bound
        self._subject = subject
        self._plan = plan
        self._limit = limit
        self._latest = math.inf
        self._root: trio.lowlevel.Task | None = None
        self._told: dict[trio.lowlevel.Task, int] = {}

    # What Trio tells ------------------------------------------------------------------------------

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        nursery = task.parent_nursery
        if self._root is None and task.name == self._subject.root:
            self._root = task
            self.tasks.add(task)
        elif nursery is not None and nursery.parent_task in self.tasks:
            self.tasks.add(task)
        elif self.runs_now():
            self.outsiders.add(task)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.tasks.discard(task)
        self.outsiders.discard(task)
        if task is self._root and self._subject.answers and not (self.struck or self.given_up):
            self._call(self._count, None)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task not in self.tasks:
            return
        if self.given_up:
            self._throw(task)
        elif self.struck and task is self._root:
            # Trio has no public word for what a task is about to be woken with.
            woken: Any = task._next_send
            error = woken.error if isinstance(woken, outcome.Error) else None
            if isinstance(error, trio.Cancelled) and error.reason == self._subject.reason:
                self.delivered = True

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task in self.tasks and not self.given_up:
            self._call(self._after_step, task)

    def _after_step(self, task: trio.lowlevel.Task) -> None:
        if self.elsewhere is None:
            self.elsewhere = works_elsewhere(task)
        self._count(task)
        if self.struck:
            self._look_at_bound(task)
            self._look_at_nursery()

    # Counting and cancelling ----------------------------------------------------------------------

    def runs_now(self) -> bool:
        """Whether the step at this moment is one of the handler's."""
        try:
            return trio.lowlevel.current_task() in self.tasks
        except RuntimeError:
            return False

    def _count(self, task: trio.lowlevel.Task | None) -> None:
        plan = self._plan
        if not self.struck:
            self.checkpoints += 1
            if plan.at is None and task is not None and not self.has_run:
                self.has_run = place_of(task) is not None
            if self.checkpoints == plan.at:
                self.place = self._place(task)
                self._strike()
            elif self.checkpoints > self._limit:
                self._have_too_many()
            return
        self.after += 1
        if self.after == plan.again_at and plan.again is not None:
            self.struck_again = True
            self._subject.strike_again(plan.again)
        elif self.after > self._limit:
            self._note_unbounded(task, f"it is still busy after {self._limit} more checkpoints")
            self.give_up()

    def _strike(self) -> None:
        self.struck = True
        self._latest = trio.current_time() + self.bound
        self.deadline.deadline = self._latest + 1  # what ends at the bound is in time
        self._subject.strike()
        for task in self.tasks:
            if not task._cancel_status.effectively_cancelled and not self._is_shielded(task):
                self._note_unbounded(task, "the cancellation has not reached it")

    def _is_shielded(self, task: trio.lowlevel.Task) -> bool:
        """By a scope of the handler's own."""
        assert self._root is not None
        around = self._root.parent_nursery
        for scope in self._scopes(task):
            if around is not None and scope is around.cancel_scope:
                break
            if scope.shield:
                return True
        return False

    def _have_too_many(self) -> None:
        self.too_many = True
        self.give_up()

    def _call(self, do: Any, *args: Any) -> None:
        try:
            do(*args)
        except Exception as raised:  # Trio would log it, and go on without us
            self.failure = self.failure or raised

    def _look_at_bound(self, task: trio.lowlevel.Task) -> None:
        ends = _ends_at(task)
        if ends == math.inf:
            self._note_unbounded(task, "it waits in a shield without a deadline")
        elif ends > self._latest:
            late = ends - self._latest + self.bound
            self._note_unbounded(
                task, f"it waits in a shield for up to {late:g} s, longer than {self.bound:g} s"
            )

    def _look_at_nursery(self) -> None:
        """The end of a nursery keeps a cancellation until its children have ended."""
        root = self._root
        if root in self.tasks and root._cancel_status.effectively_cancelled:
            names = {frame.f_code.co_name for frame, _ in root.iter_await_frames()}
            waits = {"_nested_child_finished", "wait_task_rescheduled"} <= names
            if waits and place_of(root) is not None:
                self.delivered = True

    def _note_unbounded(self, task: trio.lowlevel.Task | None, note: str) -> None:
        if self.unbounded is None:
            self.unbounded = (self._place(task), note)

    def _place(self, task: trio.lowlevel.Task | None) -> Place | None:
        """Where a checkpoint is. A task without source of its own (``trio.sleep``) is where those
        wait that have it in a nursery; a handler that has returned, where its children are.
        ``None`` if nothing of the handler has begun, or all of it has ended."""
        if task is None:
            return None
        if task is self._root:
            children = sorted(self.tasks - {task}, key=lambda child: child._counter)
            return place_of(task) or next(filter(None, map(self._place_of_child, children)), None)
        return self._place_of_child(task)

    def _place_of_child(self, task: trio.lowlevel.Task) -> Place | None:
        ancestor: trio.lowlevel.Task | None = task
        while ancestor in self.tasks:
            found = place_of(ancestor)
            if found is not None:
                return found
            nursery = ancestor.parent_nursery
            ancestor = nursery.parent_task if nursery is not None else None
        return entry_of(task)

    # Giving up ------------------------------------------------------------------------------------

    def note_endless(self) -> None:
        """The bound has passed, and it has not ended."""
        if self.unbounded is None:
            place = next(filter(None, map(place_of, self.tasks)), None)
            self.unbounded = (place, f"it has not ended {self.bound:g} s after the cancellation")

    def give_up(self) -> None:
        """End by force all that runs in :attr:`nursery`. What follows in this run means nothing."""
        self.given_up = True
        for task in list(_tasks_below(self.nursery)):
            for scope in self._scopes(task):
                scope.shield = False
                scope.cancel("given up")
        self.nursery.cancel_scope.cancel("given up")

    def _scopes(self, task: trio.lowlevel.Task) -> list[trio.CancelScope]:
        """Those around a task, the innermost first, up to :attr:`nursery`."""
        found: list[trio.CancelScope] = []
        status: Any = task._cancel_status
        while status is not None and status._scope is not self.nursery.cancel_scope:
            found.append(status._scope)
            status = status._parent
        return found

    def _throw(self, task: trio.lowlevel.Task) -> None:
        """Wake it with :class:`GivenUp`; what catches that again and again has no further turn."""
        told = self._told[task] = self._told.get(task, 0) + 1
        woken: Any = task
        if told > _PATIENCE:
            woken._next_send_fn = _raise_given_up
        elif told > 1:
            woken._next_send_fn = task.coro.throw
            woken._next_send = GivenUp()


def _tasks_below(nursery: trio.Nursery) -> Iterator[trio.lowlevel.Task]:
    for task in nursery.child_tasks:
        yield task
        for below in task.child_nurseries:
            yield from _tasks_below(below)


def _ends_at(task: trio.lowlevel.Task) -> float:
    """When the shields around a task let a cancellation through, at the latest; ``-inf``: they do
    already. That a sleep ends by itself does not count: it stands for something that may not.
    """
    status: Any = task._cancel_status
    if status.effectively_cancelled:
        return -math.inf
    if any(frame.f_code is trio.sleep_until.__code__ for frame, _ in task.iter_await_frames()):
        status = status._parent
    ends: float = status.effective_deadline()
    return ends


def _raise_given_up(_: object) -> NoReturn:
    raise GivenUp
