"""Cancel a handler at each of its checkpoints, one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeAlias, overload

import trio

from ...server import Server
from ..checks import Check
from ..requests import Request, RequestSubject, requested
from .functions import FunctionSubject
from .options import NAME_IT, Settings
from .report import Kind, Problem, SweepError, SweepReport
from .runs import Run, Runs
from .stepping import Plan
from .subjects import Outcome

__all__ = ["Make", "MakeServer", "cancel_sweep"]

Make: TypeAlias = Callable[[], Any]
MakeServer: TypeAlias = Callable[[], Server | tuple[Server, Check]]

_DAY = 86400.0


@overload
def cancel_sweep(
    target: Server | MakeServer,
    tool: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    resource: str | None = None,
    prompt: str | None = None,
    check: Check | None = None,
    reset: Callable[[], object] | None = None,
    bound: float | None = None,
    twice: bool = True,
    allow_late: bool = True,
    ignore: Collection[Kind] = (),
    max_checkpoints: int = 200,
    longest: float = _DAY,
    seed: int = 0,
) -> SweepReport: ...


@overload
def cancel_sweep(
    target: Callable[[], Awaitable[object]] | Make,
    *,
    check: Check | None = None,
    reset: Callable[[], object] | None = None,
    bound: float | None = None,
    twice: bool = True,
    allow_late: bool = True,
    ignore: Collection[Kind] = (),
    max_checkpoints: int = 200,
    longest: float = _DAY,
    seed: int = 0,
) -> SweepReport: ...


def cancel_sweep(
    target: Any,
    tool: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    resource: str | None = None,
    prompt: str | None = None,
    check: Check | None = None,
    reset: Callable[[], object] | None = None,
    bound: float | None = None,
    twice: bool = True,
    allow_late: bool = True,
    ignore: Collection[Kind] = (),
    max_checkpoints: int = 200,
    longest: float = _DAY,
    seed: int = 0,
) -> SweepReport:
    """Run a handler again and again: cancel it at its first checkpoint, at its second, … until it
    finishes before it is cancelled.

    ``cancel_sweep(server, "order_book", {"title": "Dune"}, check=lambda: not holds)`` calls a tool
    of a server, through the real runtime, over a wire in memory; the cancellation is the client's
    ``notifications/cancelled``. ``cancel_sweep(handler)`` runs an async function without arguments,
    in a cancel scope. Each run is a Trio run of its own, on a ``MockClock`` that jumps, with a
    scheduler that leaves nothing to chance: call it from plain code, not from an async test.

    A checkpoint is each place in which one of the handler's tasks gives control to Trio, those in
    clean-up included; with a server also the moment in which the answer waits to be written.

    :param target: a server, or a function that makes one for each run; or an async function, or a
        plain one that returns one. What makes may return a pair: that, and the check for this run.
    :param tool: the name of a tool. ``resource=`` takes a URI and ``prompt=`` a name instead.
    :param arguments: of the tool or the prompt.
    :param check: called without arguments, and awaited if it is async, when a run has ended: what
        must be true however it ended. It fails if it returns something false other than ``None``,
        or raises ``AssertionError``.
    :param reset: called before each run.
    :param bound: virtual seconds for the end after a cancellation, ``Limits.longest_cleanup`` of
        the server without.
    :param twice: whatever happens is to happen during clean-up, too: run again for each checkpoint
        that follows the cancellation, and close the connection there, or shut the server down
        without a drain; of a function: cancel a scope around it.
    :param allow_late: list results that come when it is too late, and that the runtime drops, under
        ``SweepReport.late`` rather than among the problems. Those of a cancellation that came when
        the handler had returned, and its tasks had ended, are no problem in any case.
    :param ignore: kinds of problems that are none here.
    :param max_checkpoints: most checkpoints of a run.
    :param longest: virtual seconds after which a run that nobody cancels is taken to be endless;
        its checkpoints so far are swept.
    :param seed: another one has tasks that are ready take their turns in another order.

    Returns what was found; ``raise_for_problems()`` raises it. What a function raises in a run that
    nobody cancels is raised here. A ``ToolError`` of a server's handler, and any other error that
    the client is told, is an outcome as good as any. Raises :class:`SweepError` for what cannot be
    swept: a handler that waits for threads, processes or sockets (a mock clock knows nothing of
    them), one with more than ``max_checkpoints``, one that fails with an exception of another kind
    or whose check fails if nobody cancels it, a request that is refused; or within a Trio run; and
    ``TypeError`` for options that make no sense.
    """
    if trio.lowlevel.in_trio_run():
        raise SweepError(
            "cancel_sweep makes Trio runs of its own, and this is within one: call it from a plain "
            "def test, not from an async one"
        )
    settings = Settings(
        check, reset, bound, twice, allow_late, ignore, max_checkpoints, longest, seed
    )
    request = requested("a sweep", tool, arguments, resource, prompt)
    if request is None and isinstance(target, Server):
        raise TypeError(NAME_IT)
    return _Sweep(target, request, settings).run()


class _Sweep:
    """A sweep under way."""

    def __init__(self, target: Any, request: Request | None, settings: Settings) -> None:
        self._settings = settings
        self._runs = Runs(target, request, settings)
        self._usual: Outcome | None = None
        self._problems: list[Problem] = []
        self._late: list[Problem] = []
        self._check_holds_before = False
        self._is_idle = True

    def run(self) -> SweepReport:
        dry = self._runs.run(Plan())
        self._usual = dry.subject.outcome()
        self._refuse(dry)
        if not dry.stepper.given_up and "leaked" not in self._settings.ignore:
            self._problems += [Problem("leaked", 0, None, leak) for leak in dry.leaks]
        self._check_holds_before = dry.dirty is None
        at, expected = 0, dry.stepper.checkpoints
        stopped: str | None = None
        while stopped is None:
            at += 1
            run = self._runs.run(Plan(at))
            if not run.stepper.struck:
                at -= 1
                stopped = _way(expected, at) if at != expected else None
                break
            self._is_idle = self._is_idle and run.stepper.place is None
            stopped = self._is_dirty(run)
            if stopped is None:
                self._collect(run)
                stopped = self._sweep_cleanup(run, at)
        found, late = tuple(self._problems), tuple(self._late)
        # A function that is not written here, trio.sleep for one, has checkpoints without a place.
        idle = self._is_idle and stopped is None and (dry.subject.answers or not at)
        return SweepReport(dry.subject.name, at, self._runs.count, found, late, stopped, idle)

    def _sweep_cleanup(self, first: Run, at: int) -> str | None:
        if not self._settings.twice or first.stepper.given_up:
            return None
        for how in first.subject.further:
            again_at = 0
            while True:
                again_at += 1
                run = self._runs.run(Plan(at, again_at, how))
                stopped = self._is_dirty(run)
                if stopped is not None:
                    return stopped
                if not run.stepper.struck_again:
                    break
                self._collect(run)
        return None

    def _collect(self, run: Run) -> None:
        known = {(one.kind, one.checkpoint, one.again) for one in self._problems + self._late}
        usual = {(one.kind, one.note) for one in self._problems if not one.checkpoint}
        for problem in run.problems(self._usual):
            alone = (problem.kind, problem.checkpoint, None)
            here = (problem.kind, problem.checkpoint, problem.again)
            always = (problem.kind, problem.note) in usual
            if always or problem.kind in self._settings.ignore or alone in known or here in known:
                continue
            (self._late if self._is_allowed(problem) else self._problems).append(problem)

    def _is_allowed(self, problem: Problem) -> bool:
        """Whether it is no problem: an outcome that was late, and had been ready before."""
        allowed = self._settings.allow_late or problem.place is None
        return problem.kind == "late outcome" and allowed

    def _is_dirty(self, run: Run) -> str | None:
        """Whether what an earlier run has left makes the check fail before this one."""
        if run.dirty is None or not self._check_holds_before:
            return None
        return (
            "a run has left something that makes the check fail before the next one. To sweep the "
            "rest, pass reset=…, or a function that makes everything anew."
        )

    # The run that nobody cancels ------------------------------------------------------------------

    def _refuse(self, dry: Run) -> None:
        """Raises if it is of no use to go on."""
        subject = dry.subject
        if dry.stepper.given_up:
            return  # it has no end of its own
        if isinstance(subject, FunctionSubject) and subject.error is not None:
            raise subject.error
        idle = self._usual == "error" and not dry.stepper.has_run
        if isinstance(subject, RequestSubject) and idle:
            raise SweepError(subject.refusal())
        why = subject.failure() if self._usual == "error" else None
        if why is not None or dry.check_failed is not None:
            why = why or dry.why_check_failed
            raise SweepError(f"{subject.name} fails though nobody cancels it: {why}")


def _way(expected: int, found: int) -> str:
    return (
        f"its runs differ: nobody cancelled the first one, which had {expected} checkpoints, and "
        f"now there are {found}. What a run changes must be set back: pass reset=…, or a function "
        "that makes everything anew."
    )
