"""What a race has found, as plain data, as text and as a diagram."""

from __future__ import annotations

import attrs

from ..places import Place
from .actions import Order
from .breach import RaceKind

__all__ = ["RaceError", "RaceFailed", "RaceProblem", "RaceReport"]


class RaceError(Exception):
    """What cannot be raced: a handler that waits for threads or sockets, that is always busy, that
    fails, or fails the check, also if nothing happens to it; or a race within a Trio run; or
    Hypothesis is not installed."""


class RaceFailed(AssertionError):
    """A race has found problems. ``report`` has them."""

    def __init__(self, report: RaceReport) -> None:
        super().__init__(report.describe())
        self.report = report


@attrs.frozen
class RaceProblem:
    """One thing that was wrong, and the smallest order that was found in which it is.

    ``kind`` is one of

    - ``"terminal state"``: the request has not ended in one state, with one record in the journal;
    - ``"answers"``: it was answered twice, or not at all though the client waits, or without the
      end of its HTTP response;
    - ``"spoke"``: a message about it after the client had cancelled it or left, or after its
      answer; or one that belongs to no request;
    - ``"progress"``: progress that does not increase, or an answer before the last report;
    - ``"disagrees"``: the journal says something else than the client and the clock have seen, or
      names another cause than the first; or a drain was cut short;
    - ``"late outcome"``: an outcome was dropped, and is not in the record, or one is that was none;
    - ``"connection"``: a second request on the connection was not answered, one beside it was
      touched, or one was served that came during a drain;
    - ``"crashed"``: the server has raised;
    - ``"unbounded"``: it did not end in time, or waited in a shield without a deadline, or with one
      that is too far away; or the server did not end;
    - ``"leaked"``: a task, a file descriptor, an async generator, an unclosed resource, something
      in the scope tree, a slot, counted bytes, an open wire was left, or what the handler has
      started still ran as it was answered, or the cancellation of the scope around the server was
      swallowed;
    - ``"swallowed"``: ``trio.Cancelled`` was raised in the handler, and it returned a result;
    - ``"raised"``: after the cancellation, something else than ``trio.Cancelled`` came out;
    - ``"clean-up"``: the check failed when all was over, or a ``ctx.cleanup`` block or the
      ``ctx.on_exit`` callbacks ran into their limit.

    The first eight are faults of the runtime, the others mostly of handlers. ``diagram`` is the
    order as a Mermaid ``sequenceDiagram``, with all that is wrong in it. ``place``, of
    ``"swallowed"`` and ``"clean-up"``, is where the handler was when the first cancellation found
    it; ``None`` for a place outside of its source, or if there was none.
    """

    kind: RaceKind
    note: str
    order: Order
    diagram: str = attrs.field(repr=False, default="")
    place: Place | None = None


@attrs.frozen
class RaceReport:
    """What became of a race.

    :param name: of what was raced.
    :param orders: how many different ones were played.
    :param exhausted: all orders of up to that many actions were among them, each action at once or
        when all is quiet.
    :param problems: what was wrong: of each kind the first, in the smallest order.
    :param stopped: why the race ended before it was through, if it did.
    :param idle: the handler never waited: nothing in it could be cancelled.
    """

    name: str
    orders: int
    exhausted: int
    problems: tuple[RaceProblem, ...]
    stopped: str | None = None
    idle: bool = False

    @property
    def diagram(self) -> str:
        """Of the first problem; empty if there is none."""
        return self.problems[0].diagram if self.problems else ""

    def raise_for_problems(self) -> None:
        """Raises :class:`RaceFailed`, an ``AssertionError`` with :meth:`describe` as its text, if
        there are problems or the race did not come to its end."""
        if self.problems or self.stopped is not None:
            raise RaceFailed(self)

    def describe(self) -> str:
        """Some lines for people: a block for each problem, and the diagrams of their orders."""
        blocks = [self._headline()]
        shown: dict[Order, int] = {}
        for number, problem in enumerate(self.problems, start=1):
            lines = [f"{number}. {problem.kind}: {problem.note}", f"order: {problem.order}"]
            if problem.place is not None:
                lines.append("the cancellation found it here:")
                lines += problem.place.describe().splitlines()
            if problem.order in shown:
                lines.append(f"diagram: that of {shown[problem.order]}.")
            else:
                shown[problem.order] = number
                lines += problem.diagram.splitlines()
            blocks.append("\n   ".join(lines))
        if self.stopped is not None:
            blocks.append(f"The race was stopped: {self.stopped}")
        return "\n\n".join(blocks)

    def _headline(self) -> str:
        found = _count(len(self.problems), "problem") if self.problems else "clean"
        if self.idle:
            found += "; it has no checkpoint of its own: there was nothing to cancel"
        short = f", all of up to {_count(self.exhausted, 'action')} among them"
        return (
            f"{self.name}: {_count(self.orders, 'order')}{short if self.exhausted else ''}: {found}"
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
