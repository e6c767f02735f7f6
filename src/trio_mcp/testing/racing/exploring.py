"""A race under way: which orders are played, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import attrs
import trio
import trio.testing

from ...server import Server
from ..checks import Check, failed, with_limit
from ..leaks import Leaks
from ..requests import Request
from ..scheduling import Turns, taking_turns
from ..sweeping.runs import divided
from ..watching import GivenUp, tasks_below
from .actions import AT_ONCE, Action, Gap, Order, Step
from .breach import Breach, RaceKind
from .diagram import diagram_of
from .http import HttpWire
from .orders import pairs, smallest_failing
from .playing import Play
from .raced import Script
from .report import RaceError, RaceProblem, RaceReport
from .rules import breaches
from .traces import Trace, is_answer
from .wire import ChannelWire

__all__ = ["Explorer", "Settings"]


@attrs.frozen
class Settings:
    """The options of a race; see :func:`race`."""

    request: Request
    actions: tuple[Action, ...]
    check: Check | None
    reset: Callable[[], object] | None
    bound: float | None
    ignore: frozenset[RaceKind]
    max_steps: int
    longest: float
    wire: Literal["channel", "http"]


@attrs.define(eq=False)
class _Played:
    """An order that was played. ``dirty`` is why the check failed before it had begun."""

    play: Play
    dirty: str | None = None
    check_failed: str | None = None
    leaks: list[str] = attrs.Factory(list)


@attrs.frozen
class _Found:
    """What is wrong in one order."""

    breaches: tuple[Breach, ...] = ()
    trace: Trace = attrs.Factory(Trace)
    was_quiet: bool = False
    waits_for_ever: bool = False
    failing: _Found | None = None
    """The same order with a tool that fails, for the tool of the library's own."""

    def both(self) -> Iterator[_Found]:
        yield self
        if self.failing is not None:
            yield self.failing


class Explorer:
    """A race under way. ``target``: ``None`` for the tool of the library's own."""

    def __init__(self, target: Any, settings: Settings) -> None:
        self._target = target
        self._settings = settings
        self._usual: str | None = None
        self._check_holds_before = False
        self._is_idle = True
        self._known: dict[Order, _Found] = {}
        self._problems: dict[RaceKind, RaceProblem] = {}
        self._stopped: str | None = None

    def report(self, exhausted: int) -> RaceReport:
        problems = tuple(self._problems.values())
        name, orders = self._settings.request.name, len(self._known)
        idle = self._target is not None and self._is_idle
        return RaceReport(name, orders, exhausted, problems, self._stopped, idle)

    # Exploring ------------------------------------------------------------------------------------

    def play_quiet(self) -> None:
        """The order in which nothing happens. Raises :class:`RaceError` if it is of no use to go
        on."""
        played = self._play(Order())
        play, name = played.play, self._settings.request.name
        self._check_holds_before = played.dirty is None
        outcome, settled = play.trace.first("outcome"), play.trace.first("settled")
        if outcome is not None and settled is not None and outcome < settled:
            failed = any(one.error is not None or one.is_error for one in play.records)
            self._usual = "error" if failed else "result"
            if failed and not play.watch.has_run:
                raise RaceError(play.refusal())
            if failed and play.failures.last is not None:
                why = play.failures.describe()
                raise RaceError(f"{name} fails though nothing happens to it: {why}")
            if played.check_failed is not None:
                raise RaceError(f"{name} fails though nothing happens to it: {played.check_failed}")
        found = self._known[Order()] = self._judge(played, self._usual)
        self._keep(Order(), found)

    def play_all(self, orders: Iterable[Order], longest: int) -> int:
        """Each of them, in turn. Returns ``longest``, or 0 if it was stopped."""
        for order in orders:
            found = self._look_at(order)
            if self._stopped is not None:
                return 0
            self._keep(order, found)
        return longest

    def scan(self, most: int) -> None:
        """Each action in each tick after the request, and after each other action, until all is
        quiet and no time changes that; not in more than ``most`` ticks."""
        for before, action in pairs(self._settings.actions):
            gap = AT_ONCE
            for _ in range(most):
                order = Order((*before.steps, Step(action, gap)))
                found = self._look_at(order)
                if self._stopped is not None:
                    return
                self._keep(order, found)
                if gap.moves and found.waits_for_ever:
                    break
                if found.was_quiet:
                    gap = Gap(moves=gap.moves + 1)
                else:
                    gap = attrs.evolve(gap, ticks=gap.ticks + 1)

    def search(self, examples: int, seed: int, database: Any) -> None:
        """Hypothesis looks for further kinds of problems, one after the other."""
        while examples > 0 and self._stopped is None:
            hunt = _Hunt(self._look_at, frozenset(self._problems))
            order = smallest_failing(
                self._settings.actions,
                hunt.fails,
                examples=examples,
                seed=seed,
                database=database,
            )
            if order is None:
                return
            self._keep(order, self._look_at(order))

    def _keep(self, order: Order, found: _Found) -> None:
        for one in found.both():
            for breach in one.breaches:
                if breach.kind not in self._problems:
                    diagram = diagram_of(one.trace, one.breaches)
                    self._problems[breach.kind] = RaceProblem(
                        breach.kind, breach.note, order, diagram, breach.struck_at
                    )

    def _look_at(self, order: Order) -> _Found:
        """Play an order, unless that was done before."""
        found = self._known.get(order)
        if found is None:
            if self._stopped is not None:
                return _Found()
            played = self._play(order)
            if played.dirty is not None and self._check_holds_before:
                self._stopped = (
                    "an order has left something that makes the check fail before the next one. "
                    "Pass reset=…, or a function that makes everything anew."
                )
                return _Found()
            found = self._judge(played, self._usual)
            if self._target is None and any(one.action is Action.COMPLETE for one in order.steps):
                failing = self._judge(self._play(order, fails=True), "error")
                found = attrs.evolve(found, failing=failing)
            self._known[order] = found
        return found

    def _judge(self, played: _Played, usual: str | None) -> _Found:
        play = played.play
        all_of_it = breaches(play, usual, played.leaks, played.check_failed)
        wrong = tuple(one for one in all_of_it if one.kind not in self._settings.ignore)
        # What an order has shown is kept, but for its trace if nothing is wrong.
        trace = play.trace if wrong else Trace()
        return _Found(wrong, trace, play.was_quiet, play.waits_for_ever)

    # Playing --------------------------------------------------------------------------------------

    def _play(self, order: Order, fails: bool = False) -> _Played:
        settings = self._settings
        if settings.reset is not None:
            settings.reset()
        play, check = self._make(order, fails)
        played = _Played(play)
        clock = trio.testing.MockClock()
        with taking_turns(Turns(order.turns)):
            trio.run(_play, played, check, clock, clock=clock, instruments=[play.watch])
        watch, name = play.watch, settings.request.name
        self._is_idle = self._is_idle and not watch.has_waited
        if watch.failure is not None:
            raise watch.failure
        if watch.too_many:
            raise RaceError(
                f"{name} is always busy: it has taken {settings.max_steps} steps, and has not "
                "ended; let it do less, or raise max_steps"
            )
        if watch.elsewhere is not None:
            raise RaceError(f"{name} {watch.elsewhere}")
        return played

    def _make(self, order: Order, fails: bool) -> tuple[Play, Check | None]:
        settings, made = self._settings, self._target
        check, script = settings.check, None
        if made is None:
            script = Script(fails)
            made, check = script.server, script.is_clean
        elif not isinstance(made, Server):
            made, check = divided(made(), check)
        if not isinstance(made, Server):
            raise TypeError(f"a race takes a Server or what makes one, not {made!r:.80}")
        bound = settings.bound if settings.bound is not None else made.limits.longest_cleanup
        play = Play(
            made,
            settings.request,
            script,
            order,
            bound,
            settings.longest,
            settings.max_steps,
            HttpWire if settings.wire == "http" else ChannelWire,
        )
        return play, check


class _Hunt:
    """What Hypothesis asks about each order: whether it has a problem of a new kind. Once there is
    one, only that kind counts, so that shrinking does not slip to another."""

    def __init__(self, look_at: Callable[[Order], _Found], known: frozenset[RaceKind]) -> None:
        self._look_at = look_at
        self._known = known
        self._kind: RaceKind | None = None

    def fails(self, order: Order) -> bool:
        breaches = [breach for one in self._look_at(order).both() for breach in one.breaches]
        kinds = [breach.kind for breach in breaches if breach.kind not in self._known]
        if self._kind is None and kinds:
            self._kind = kinds[0]
        return self._kind is not None and self._kind in kinds


async def _play(played: _Played, check: Check | None, clock: trio.testing.MockClock) -> None:
    """One order, within Trio."""
    play = played.play
    watch = play.watch
    leaks = Leaks(watch.runs_now)
    played.dirty = await failed(check)
    before = _all_tasks()
    try:
        with leaks.watching():
            await play.run(clock)
    except (Exception, GivenUp, BaseExceptionGroup):
        if not watch.given_up:
            raise
    played.leaks = [*watch.left()]
    others = _all_tasks() - before - watch.tasks - watch.outsiders
    played.leaks += sorted(f"a task outside of the server still runs: {one.name}" for one in others)
    played.leaks += leaks.found
    ran_into_limit = any(record.cleanup == "timed out" for record in play.records)
    played.check_failed = with_limit(await failed(check), ran_into_limit)


def _all_tasks() -> set[trio.lowlevel.Task]:
    root = trio.lowlevel.current_root_task()
    below = root.child_nurseries if root is not None else []
    return {task for nursery in below for task in tasks_below(nursery)}


def _answer(trace: Trace) -> Any:
    """What the client has got."""
    for event in trace:
        if event.what == "written" and is_answer(event.message):
            return event.message
    return None
