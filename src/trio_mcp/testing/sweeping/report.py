"""What a sweep has found, as plain data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import attrs

from ..places import Place

__all__ = ["CancelSweepFailed", "Kind", "Problem", "SweepError", "SweepReport"]

Kind: TypeAlias = Literal[
    "clean-up skipped",
    "leaked",
    "swallowed",
    "late outcome",
    "unbounded",
    "spoke",
    "raised",
]
"""What a cancellation can find wrong; see :class:`Problem`."""


class SweepError(Exception):
    """A handler that cannot be swept: it has too many checkpoints, waits for threads or sockets, or
    fails, or fails the check, also if nobody cancels it; or a sweep within a Trio run."""


class CancelSweepFailed(AssertionError):
    """A sweep has found problems. ``report`` has them."""

    def __init__(self, report: SweepReport) -> None:
        super().__init__(report.describe())
        self.report = report


@attrs.frozen
class Problem:
    """One thing that was wrong in one run of the handler.

    ``kind`` is one of

    - ``"clean-up skipped"``: the check failed when it was over, or a ``ctx.cleanup`` block or the
      ``ctx.on_exit`` callbacks ran into their limit;
    - ``"leaked"``: a task, a file descriptor, an async generator, an unclosed resource, a request
      or a connection of the runtime was still there;
    - ``"swallowed"``: ``trio.Cancelled`` was raised in the handler, and it returned a result;
    - ``"late outcome"``: it had its outcome after the cancellation, which was not raised in it any
      more. The runtime drops such an outcome and records it: see ``SweepReport.late``;
    - ``"unbounded"``: after the cancellation it waited in a shield without a deadline, or with one
      that is too far away; or it did not end; or the cancellation never reached it;
    - ``"spoke"``: bytes about the request were written after the cancellation;
    - ``"raised"``: after the cancellation, something else than ``trio.Cancelled`` came out.

    ``checkpoint`` is the one at which the handler was cancelled, from 1 on, 0 if it was not;
    ``place`` is where that is, ``None`` for a place outside of its source. ``again`` says what
    happened during its clean-up, if something did.
    """

    kind: Kind
    checkpoint: int
    place: Place | None
    note: str
    again: str | None = None


@attrs.frozen
class SweepReport:
    """What became of a sweep.

    :param name: of what was swept.
    :param checkpoints: places in which it was cancelled, one after the other.
    :param runs: how often the handler ran.
    :param problems: what was wrong, in the order of the checkpoints.
    :param late: the outcomes that came after the cancellation and were dropped, if these are
        allowed. A cancellation that comes when the work is done cannot undo it.
    :param stopped: why the sweep ended before its last checkpoint, if it did.
    :param idle: it has no checkpoint of its own, those of its tasks included: nothing in it could
        be cancelled, and being clean means little.
    """

    name: str
    checkpoints: int
    runs: int
    problems: tuple[Problem, ...]
    late: tuple[Problem, ...] = ()
    stopped: str | None = None
    idle: bool = False

    def raise_for_problems(self) -> None:
        """Raises :class:`CancelSweepFailed`, an ``AssertionError`` with :meth:`describe` as its
        text, if there are problems or the sweep did not come to its end."""
        if self.problems or self.stopped is not None:
            raise CancelSweepFailed(self)

    def describe(self) -> str:
        """Some lines for people: one block for each problem, with the source around it."""
        blocks = [self._headline()]
        for number, (problem, checkpoints) in enumerate(_grouped(self.problems), start=1):
            blocks.append(f"{number}. {_block(problem, checkpoints)}")
        late = sorted({one.checkpoint for one in self.late if one.place is not None})
        if late:
            blocks.append(f"Late outcomes, which are dropped: at {_numbered(late)}")
        if self.stopped is not None:
            blocks.append(f"The sweep was stopped: {self.stopped}")
        return "\n\n".join(blocks)

    def _headline(self) -> str:
        found = _count(len(list(_grouped(self.problems))), "problem") if self.problems else "clean"
        if self.idle:
            found += "; it has no checkpoint of its own: there was nothing to cancel"
        return (
            f"{self.name}: cancelled at {_count(self.checkpoints, 'checkpoint')} "
            f"in {_count(self.runs, 'run')}: {found}"
        )


def _grouped(problems: Iterable[Problem]) -> Iterator[tuple[Problem, list[int]]]:
    """Problems that differ in their checkpoint alone (a line in a loop) are one."""
    found: dict[Problem, list[int]] = {}
    for problem in problems:
        found.setdefault(attrs.evolve(problem, checkpoint=0), []).append(problem.checkpoint)
    yield from found.items()


def _block(problem: Problem, checkpoints: list[int]) -> str:
    again = f", and then {problem.again}" if problem.again is not None else ""
    when = f"when cancelled at {_numbered(checkpoints)}{again}"
    if checkpoints == [0]:
        when, where = "even if nobody cancels it", ""
    elif problem.place is not None:
        where = problem.place.describe()
    else:
        where = "in the runtime: the handler itself had not begun, or was over"
    lines = [f"{problem.kind}, {when}", *where.splitlines(), *problem.note.splitlines()]
    return "\n   ".join(lines)


def _numbered(checkpoints: list[int]) -> str:
    plural = "s" if len(checkpoints) > 1 else ""
    return f"checkpoint{plural} {', '.join(map(str, checkpoints))}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
