"""Follows the tasks of a handler through one run: what becomes of them once it is cancelled.

Whoever watches says when a cancellation strikes, with :meth:`Watch.begin`; whether it reaches the
tasks, how long they shield themselves from it, and whether they end, is seen here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol

import outcome
import trio

from .places import Place, entry_of, place_now, place_of, works_elsewhere

__all__ = ["GivenUp", "Watch", "Watched", "tasks_below"]

_PATIENCE = 100
"""Steps of a task that has been told to give up, before it is taken off the loop."""


class GivenUp(BaseException):
    """Raised in a handler that does not end by itself; its run has been judged already."""


class Watched(Protocol):
    """What is run and cancelled: ``root`` is the name of the task it begins with, ``reason`` what
    its ``trio.Cancelled`` says."""

    @property
    def root(self) -> str: ...

    @property
    def reason(self) -> str: ...


class Watch(trio.abc.Instrument):
    """Watches one run.

    :param bound: seconds that it may take after it was cancelled.
    """

    def __init__(self, subject: Watched, bound: float) -> None:
        self.nursery: trio.Nursery  # what runs it opens that, and tells
        self.tasks: set[trio.lowlevel.Task] = set()
        self.outsiders: set[trio.lowlevel.Task] = set()
        self.struck = False
        self.delivered = False  # to the task that the handler began in
        self.unbounded: tuple[Place | None, str] | None = None
        self.elsewhere: str | None = None
        self.given_up = False
        self.failure: Exception | None = None
        self.bound = bound
        self.latest = math.inf
        self.root: trio.lowlevel.Task | None = None
        self._watched = subject
        self._told: dict[trio.lowlevel.Task, int] = {}
        self._others: set[trio.Nursery] = set()
        self._origins: dict[trio.lowlevel.Task, Place | None] = {}

    # What Trio tells ------------------------------------------------------------------------------

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        nursery = task.parent_nursery
        if self.root is None and task.name == self._watched.root:
            self.root = task
            self.tasks.add(task)
        elif nursery is not None and nursery.parent_task in self.tasks:
            if nursery not in self._others:
                self.tasks.add(task)
        elif self.runs_now():
            self.outsiders.add(task)
            self._origins[task] = place_now()

    def adopt(self, task: trio.lowlevel.Task, nursery: trio.Nursery | None) -> None:
        """For a handler without a task of its own: ``task`` is its, from ``nursery`` on, until it
        is let go."""
        self.root = task
        self.tasks.add(task)
        self._others = {one for one in task.child_nurseries if one is not nursery}

    def let_go(self) -> None:
        """The handler is over, and its task does something else."""
        if self.root is not None:
            self.tasks.discard(self.root)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.tasks.discard(task)
        self.outsiders.discard(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task not in self.tasks:
            return
        if self.given_up:
            self._throw(task)
        elif self.struck and task is self.root:
            # Trio has no public word for what a task is about to be woken with.
            woken: Any = task._next_send
            error = woken.error if isinstance(woken, outcome.Error) else None
            if isinstance(error, trio.Cancelled) and error.reason == self._watched.reason:
                self.delivered = True

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task in self.tasks and not self.given_up:
            self.call(self._after_step, task)

    def _after_step(self, task: trio.lowlevel.Task) -> None:
        if self.elsewhere is None:
            self.elsewhere = works_elsewhere(task)
        self.stepped(task)
        if self.struck:
            self._look_at_bound(task)
            self._look_at_nursery()

    def stepped(self, task: trio.lowlevel.Task) -> None:
        """One of the tasks has given control to Trio, or has ended."""

    def runs_now(self) -> bool:
        """Whether the step at this moment is one of the handler's."""
        try:
            return trio.lowlevel.current_task() in self.tasks
        except RuntimeError:
            return False

    def call(self, do: Any, *args: Any) -> None:
        """For what Trio calls: it would log an error, and go on without us."""
        try:
            do(*args)
        except Exception as raised:
            self.failure = self.failure or raised

    # After the cancellation -----------------------------------------------------------------------

    def begin(self) -> None:
        """It is about to be cancelled."""
        self.struck = True
        self.latest = trio.current_time() + self.bound

    def look_whom_it_reached(self) -> None:
        """It has been."""
        for task in self.tasks:
            if not task._cancel_status.effectively_cancelled and not self._is_shielded(task):
                self.note_unbounded(task, "the cancellation has not reached it")

    def note_unbounded(self, task: trio.lowlevel.Task | None, note: str) -> None:
        if self.unbounded is None:
            self.unbounded = (self.place_in(task), note)

    def place_in(self, task: trio.lowlevel.Task | None) -> Place | None:
        """Where a checkpoint is. A task without source of its own (``trio.sleep``) is where those
        wait that have it in a nursery; a handler that has returned, where its children are.
        ``None`` if nothing of the handler has begun, or all of it has ended."""
        if task is None:
            return None
        if task is self.root:
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

    def left(self) -> Iterator[str]:
        """The tasks that still run when all is over, in words: where they are, or were begun."""
        for task in sorted(self.tasks | self.outsiders, key=lambda one: one._counter):
            yield f"a task still runs: {task.name}{self._whereabouts(task)}"

    def _whereabouts(self, task: trio.lowlevel.Task) -> str:
        place, verb = place_of(task), "at"
        if place is None:
            place, verb = self._origins.get(task), "begun at"
        if place is None:
            place, verb = entry_of(task), "at"
        return "" if place is None else f", {verb} {place}: {place.source}"

    def note_endless(self) -> None:
        """The bound has passed, and it has not ended."""
        if self.unbounded is None:
            place = next(filter(None, map(place_of, self.tasks)), None)
            self.unbounded = (place, f"it has not ended {self.bound:g} s after the cancellation")

    def _is_shielded(self, task: trio.lowlevel.Task) -> bool:
        """By a scope of the handler's own."""
        assert self.root is not None
        around = self.root.parent_nursery
        for scope in self._scopes(task):
            if around is not None and scope is around.cancel_scope:
                break
            if scope.shield:
                return True
        return False

    def _look_at_bound(self, task: trio.lowlevel.Task) -> None:
        ends = _ends_at(task)
        if ends == math.inf:
            self.note_unbounded(task, "it waits in a shield without a deadline")
        elif ends > self.latest:
            late = ends - self.latest + self.bound
            self.note_unbounded(
                task, f"it waits in a shield for up to {late:g} s, longer than {self.bound:g} s"
            )

    def _look_at_nursery(self) -> None:
        """The end of a nursery keeps a cancellation until its children have ended."""
        root = self.root
        if root in self.tasks and root._cancel_status.effectively_cancelled:
            names = {frame.f_code.co_name for frame, _ in root.iter_await_frames()}
            waits = {"_nested_child_finished", "wait_task_rescheduled"} <= names
            if waits and place_of(root) is not None:
                self.delivered = True

    # Giving up ------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """End by force all that runs in :attr:`nursery`. What follows in this run means nothing."""
        self.given_up = True
        for task in list(tasks_below(self.nursery)):
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


def tasks_below(nursery: trio.Nursery) -> Iterator[trio.lowlevel.Task]:
    """All that run in it, and in the nurseries of these."""
    for task in nursery.child_tasks:
        yield task
        for below in task.child_nurseries:
            yield from tasks_below(below)


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
