"""One run of what is swept, in a Trio run of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Iterator
from typing import Any

import attrs
import trio
import trio.testing

from ...runtime.limits import Limits
from ...server import Server
from ..checks import Check, failed
from ..leaks import Leaks
from ..requests import Request, RequestSubject
from ..scheduling import seeded_scheduler
from .functions import FunctionSubject
from .options import Settings, check_callable
from .report import Kind, Problem, SweepError
from .stepping import GivenUp, Plan, Stepper
from .subjects import Outcome, Subject

__all__ = ["Run", "Runs"]


@attrs.define(eq=False)
class Run:
    """One run that has ended.

    ``dirty`` is why the check failed before it had begun, ``check_failed`` why afterwards.
    """

    subject: Subject
    stepper: Stepper
    plan: Plan
    dirty: str | None = None
    check_failed: str | None = None
    leaks: list[str] = attrs.Factory(list)

    def problems(self, usual: Outcome | None) -> Iterator[Problem]:
        """What was wrong, cancelled as it was."""
        stepper = self.stepper
        if stepper.unbounded is not None:
            place, note = stepper.unbounded
            if place is not None and place != stepper.place:
                note += f", at {place}: {place.source}"
            yield self._problem("unbounded", note)
        if stepper.given_up:
            return  # the rest is the sweep's own doing
        for finding in self.subject.findings(stepper, usual):
            yield self._problem(finding.kind, finding.note)
        for leak in self.leaks:
            yield self._problem("leaked", leak)
        if self.check_failed is not None:
            yield self._problem("clean-up skipped", self.check_failed)

    def _problem(self, kind: Kind, note: str) -> Problem:
        again = self.plan.again if self.stepper.struck_again else None
        return Problem(kind, self.plan.at or 0, self.stepper.place, note, again)


class Runs:
    """Makes runs, each with a target of its own if there is something that makes them."""

    def __init__(self, target: Any, request: Request | None, settings: Settings) -> None:
        self.count = 0
        self._target = target
        self._request = request
        self._settings = settings

    def run(self, plan: Plan) -> Run:
        """Raises :class:`SweepError` for one that cannot be stepped through."""
        settings = self._settings
        self.count += 1
        if settings.reset is not None:
            settings.reset()
        subject, check, bound = self._make()
        stepper = Stepper(subject, plan, settings.max_checkpoints, bound)
        run = Run(subject, stepper, plan)
        with seeded_scheduler(settings.seed):
            trio.run(
                _play,
                run,
                check,
                clock=trio.testing.MockClock(autojump_threshold=0),
                instruments=[stepper],
            )
        if stepper.failure is not None:
            raise stepper.failure
        if stepper.too_many:
            raise SweepError(
                f"{subject.name} has more than {settings.max_checkpoints} checkpoints: let it do "
                "less, or raise max_checkpoints"
            )
        if stepper.elsewhere is not None:
            raise SweepError(
                f"{subject.name} {stepper.elsewhere}. No sweep can step through that, and no mock "
                "clock waits for it: split off what blocks, and give the sweep something in its "
                "place that stays in the loop"
            )
        return run

    def _make(self) -> tuple[Subject, Check | None, float]:
        if self._request is None:
            return self._make_function()
        settings, made = self._settings, self._target
        if not isinstance(made, Server) and callable(made):
            made = made()
        made, check = _divided(made, settings.check)
        if not isinstance(made, Server):
            raise TypeError(
                f"a sweep of a request takes a Server or what makes one, not {made!r:.80}"
            )
        bound = settings.bound if settings.bound is not None else made.limits.longest_cleanup
        return RequestSubject(made, self._request, settings.longest), check, bound

    def _make_function(self) -> tuple[Subject, Check | None, float]:
        settings, start = self._settings, self._target
        check = settings.check
        name = getattr(start, "__name__", None) or repr(start)
        if not callable(start):
            raise TypeError(f"a sweep takes a Server or an async function, not {start!r:.80}")
        if not inspect.iscoroutinefunction(start):
            start, check = _divided(start(), check)
        if inspect.isawaitable(start):
            start = functools.partial(_same, start)
        bound = settings.bound if settings.bound is not None else Limits().longest_cleanup
        return FunctionSubject(name, start, settings.longest), check, bound


def _divided(made: Any, check: Check | None) -> tuple[Any, Check | None]:
    """What was made, and its check: one that is made with it goes before the option."""
    if not isinstance(made, tuple):
        return made, check
    if len(made) != 2:
        raise TypeError(f"what makes a target returns it, or it and its check: {made!r:.80}")
    check_callable("the check that was made with it", made[1])
    return made


def _same(awaitable: Awaitable[object]) -> Awaitable[object]:
    return awaitable


async def _play(run: Run, check: Check | None) -> None:
    """One run, within Trio."""
    stepper = run.stepper
    leaks = Leaks(stepper.runs_now)
    run.dirty = await failed(check)
    try:
        with leaks.watching():
            await run.subject.run(stepper)
    except (Exception, GivenUp, BaseExceptionGroup):
        if not stepper.given_up:
            raise
    run.leaks = stepper.still_running()
    run.leaks += leaks.found
    run.check_failed = await failed(check)
