"""Explore the orders in which things can happen around one exchange."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, overload

import attrs
import trio
import trio.testing

from ..server import Server
from .actions import ALL, AT_ONCE, Action, Gap, Order, Step
from .checks import Check, failed
from .diagram import diagram_of
from .leaks import Leaks
from .orders import pairs, short_orders, smallest_failing
from .playing import Play
from .race_report import RaceError, RaceProblem, RaceReport
from .raced import Script
from .requests import Request
from .rules import Breach, RaceKind, breaches
from .scheduling import Turns, taking_turns
from .sweep import MakeServer
from .traces import Trace, is_answer
from .watching import GivenUp

__all__ = ["race"]

_DAY = 86400.0


@overload
def race(
    target: Collection[Action] = ALL,
    *,
    ignore: Collection[RaceKind] = (),
    orders: Iterable[Order] | None = None,
    exhaust: int = 2,
    ticks: int = 40,
    examples: int = 200,
    seed: int = 0,
    database: Any = None,
) -> RaceReport: ...


@overload
def race(
    target: Server | MakeServer,
    tool: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    resource: str | None = None,
    prompt: str | None = None,
    actions: Collection[Action] = ALL,
    check: Check | None = None,
    reset: Callable[[], object] | None = None,
    bound: float | None = None,
    ignore: Collection[RaceKind] = (),
    orders: Iterable[Order] | None = None,
    exhaust: int = 2,
    ticks: int = 40,
    examples: int = 200,
    seed: int = 0,
    database: Any = None,
    max_steps: int = 1000,
    longest: float = _DAY,
) -> RaceReport: ...


def race(
    target: Any = ALL,
    tool: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    resource: str | None = None,
    prompt: str | None = None,
    actions: Collection[Action] | None = None,
    check: Check | None = None,
    reset: Callable[[], object] | None = None,
    bound: float | None = None,
    ignore: Collection[RaceKind] = (),
    orders: Iterable[Order] | None = None,
    exhaust: int = 2,
    ticks: int = 40,
    examples: int = 200,
    seed: int = 0,
    database: Any = None,
    max_steps: int = 1000,
    longest: float = _DAY,
) -> RaceReport:
    """Run a request again and again: each time its client cancels it, once or twice, or leaves, the
    handler reports progress or completes, the server shuts down, in another order.

    ``race(make_server, "order_book", {"title": "Dune"}, check=lambda: not holds)`` races a tool of
    a server, through the real runtime, over a wire in memory. ``race()`` and
    ``race([Action.CANCEL, Action.COMPLETE])`` race a tool of the library's own, which does as it is
    told, and so test the runtime. Each order is a Trio run of its own, on a ``MockClock``, in which
    nothing is left to chance: call it from plain code, not from an async test.

    All short orders are played first, the smallest before the others; then each action in each
    tick of the scheduler after the request, and after each other action; then Hypothesis looks for
    longer orders, and for other turns of the tasks, and shrinks what it finds.

    :param target: a server, or a function that makes one for each order, or a pair: that, and the
        check. Or the actions, for the tool of the library's own.
    :param tool: the name of a tool. ``resource=`` takes a URI and ``prompt=`` a name instead.
    :param arguments: of the tool or the prompt.
    :param actions: those that happen.
    :param check: called, and awaited if it is async, when an order is over: what must be true
        whatever happened. It fails if it returns something false other than ``None``, or raises
        ``AssertionError``.
    :param reset: called before each order.
    :param bound: virtual seconds for the end once the request is to stop,
        ``Limits.longest_cleanup`` of the server without.
    :param ignore: kinds of problems that are none here.
    :param orders: play these and no others.
    :param exhaust: play all orders of up to so many actions, each when all is quiet or at once.
    :param ticks: most ticks after the request, or after another action, in which an action is
        tried; 0 for none.
    :param examples: orders that Hypothesis tries beyond these; 0 for none.
    :param seed: another one has Hypothesis try other orders.
    :param database: a Hypothesis database, which remembers the orders that failed.
    :param max_steps: most steps of the handler's tasks in one order; with half as many, and if
        nothing stops it, it is taken to be endless.
    :param longest: virtual seconds after which a handler is taken to be endless.

    Returns what was found; ``raise_for_problems()`` raises it. Raises :class:`RaceError` for what
    cannot be raced: a handler that waits for threads or processes (a mock clock knows nothing of
    them), one that is always busy, one whose check fails if nothing happens to it, a request that
    is refused; or if Hypothesis is not installed and ``examples`` is not 0.
    """
    if isinstance(target, tuple) or not (isinstance(target, Server) or callable(target)):
        target, actions = None, _checked(target)
    request = _request(tool, arguments, resource, prompt)
    if target is None and request is not None:
        raise TypeError("a race of a tool, a resource or a prompt takes a Server or what makes one")
    if target is not None and request is None:
        raise TypeError("name what to ask the server for: a tool, resource=… or prompt=…")
    settings = _Settings(
        request=request or Request(Script.tool, "tools/call", {"name": Script.tool}),
        actions=_checked(ALL if actions is None else actions),
        check=check,
        reset=reset,
        bound=bound,
        ignore=frozenset(ignore),
        max_steps=max_steps,
        longest=longest,
    )
    explorer = _Explorer(target, settings)
    explorer.play_quiet()
    if orders is not None:
        return explorer.report(explorer.play_all(orders, 0))
    if examples and importlib.util.find_spec("hypothesis") is None:
        raise RaceError(
            "a race needs Hypothesis to look for long orders: install trio-mcp[testing], or let it "
            "play the short ones alone with examples=0"
        )
    exhausted = explorer.play_all(short_orders(settings.actions, exhaust), exhaust)
    explorer.scan(ticks)
    explorer.search(examples, seed, database)
    return explorer.report(exhausted)


def _checked(actions: Any) -> tuple[Action, ...]:
    wanted = list(actions)
    if not wanted or not all(isinstance(one, Action) for one in wanted):
        raise TypeError(f"a race takes a Server, what makes one, or some Actions, not {actions!r}")
    return tuple(one for one in Action if one in wanted)


def _request(
    tool: str | None,
    arguments: Mapping[str, Any] | None,
    resource: str | None,
    prompt: str | None,
) -> Request | None:
    named = [one for one in (tool, resource, prompt) if one is not None]
    if len(named) > 1:
        raise TypeError("a race is of one tool, of one resource or of one prompt")
    if resource is not None:
        if arguments is not None:
            raise TypeError("a resource has no arguments: its URI says it all")
        return Request(resource, "resources/read", {"uri": resource})
    if not named:
        if arguments is not None:
            raise TypeError("arguments are for a tool or a prompt")
        return None
    method = "tools/call" if tool is not None else "prompts/get"
    return Request(named[0], method, {"name": named[0], "arguments": dict(arguments or {})})


@attrs.frozen
class _Settings:
    """The options of a race; see :func:`race`."""

    request: Request
    actions: tuple[Action, ...]
    check: Check | None
    reset: Callable[[], object] | None
    bound: float | None
    ignore: frozenset[RaceKind]
    max_steps: int
    longest: float


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


class _Explorer:
    """A race under way. ``target``: ``None`` for the tool of the library's own."""

    def __init__(self, target: Any, settings: _Settings) -> None:
        self._target = target
        self._settings = settings
        self._usual: str | None = None
        self._check_holds_before = False
        self._known: dict[Order, _Found] = {}
        self._problems: dict[RaceKind, RaceProblem] = {}
        self._stopped: str | None = None

    def report(self, exhausted: int) -> RaceReport:
        problems = tuple(self._problems.values())
        name, orders = self._settings.request.name, len(self._known)
        return RaceReport(name, orders, exhausted, problems, self._stopped)

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
                raise RaceError(f"{name} fails before it awaits: {_answer(play.trace)}")
            if played.check_failed is not None:
                raise RaceError(f"{name} fails though nothing happens to it: {played.check_failed}")
        self._keep(Order(), self._judge(played))

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
        for breach in found.breaches:
            if breach.kind not in self._problems:
                diagram = diagram_of(found.trace, found.breaches)
                self._problems[breach.kind] = RaceProblem(breach.kind, breach.note, order, diagram)

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
            found = self._judge(played)
        return found

    def _judge(self, played: _Played) -> _Found:
        play = played.play
        all_of_it = breaches(play, self._usual, played.leaks, played.check_failed)
        wrong = tuple(one for one in all_of_it if one.kind not in self._settings.ignore)
        # What an order has shown is kept, but for its trace if nothing is wrong.
        found = self._known[play.order] = _Found(
            wrong, play.trace if wrong else Trace(), play.was_quiet, play.waits_for_ever
        )
        return found

    # Playing --------------------------------------------------------------------------------------

    def _play(self, order: Order) -> _Played:
        settings = self._settings
        if settings.reset is not None:
            settings.reset()
        play, check = self._make(order)
        played = _Played(play)
        clock = trio.testing.MockClock()
        with taking_turns(Turns(order.turns)):
            trio.run(_play, played, check, clock, clock=clock, instruments=[play.watch])
        watch, name = play.watch, settings.request.name
        if watch.failure is not None:
            raise watch.failure
        if watch.too_many:
            raise RaceError(
                f"{name} is always busy: it has taken {settings.max_steps} steps, and has not "
                "ended; let it do less, or raise max_steps"
            )
        if watch.elsewhere is not None:
            raise RaceError(
                f"{name} works in a thread or a process, and no mock clock waits for these: "
                f"{watch.elsewhere}"
            )
        return played

    def _make(self, order: Order) -> tuple[Play, Check | None]:
        settings, made = self._settings, self._target
        check, script = settings.check, None
        if made is None:
            script = Script()
            made, check = script.server, script.is_clean
        elif not isinstance(made, Server):
            made = made()
            if isinstance(made, tuple):
                made, check = made
        if not isinstance(made, Server):
            raise TypeError(f"a race takes a Server or what makes one, not {made!r:.80}")
        bound = settings.bound if settings.bound is not None else made.limits.longest_cleanup
        play = Play(
            made, settings.request, script, order, bound, settings.longest, settings.max_steps
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
        kinds = [one.kind for one in self._look_at(order).breaches if one.kind not in self._known]
        if self._kind is None and kinds:
            self._kind = kinds[0]
        return self._kind is not None and self._kind in kinds


async def _play(played: _Played, check: Check | None, clock: trio.testing.MockClock) -> None:
    """One order, within Trio."""
    play = played.play
    watch = play.watch
    leaks = Leaks(watch.runs_now)
    played.dirty = await failed(check)
    try:
        with leaks.watching():
            await play.run(clock)
    except (Exception, GivenUp, BaseExceptionGroup):
        if not watch.given_up:
            raise
    played.leaks = [f"a task still runs: {task.name}" for task in watch.tasks | watch.outsiders]
    played.leaks += leaks.found
    played.check_failed = await failed(check)


def _answer(trace: Trace) -> Any:
    """What the client has got."""
    for event in trace:
        if event.what == "written" and is_answer(event.message):
            return event.message
    return None
