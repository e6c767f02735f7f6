"""Explore the orders in which things can happen around one exchange."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal, get_args, overload

import trio

from ...server import Server
from ..checks import Check
from ..requests import Request, requested
from ..sweeping.options import NAME_IT, check_callable, checked_kinds
from ..sweeping.sweep import MakeServer
from .actions import ALL, Action, Order, Step
from .breach import RaceKind
from .exploring import Explorer, Settings
from .orders import short_orders
from .raced import Script
from .report import RaceError, RaceReport

__all__ = ["race"]

_DAY = 86400.0
_WIRES: Final = ("channel", "http")


@overload
def race(
    target: Collection[Action] = ALL,
    *,
    wire: Literal["channel", "http"] = "channel",
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
    wire: Literal["channel", "http"] = "channel",
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
    wire: Literal["channel", "http"] = "channel",
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
    told, and one that fails where that would return; and so test the runtime. Each order is a Trio
    run of its own, on a ``MockClock``, in which nothing is left to chance: call it from plain code,
    not from an async test.

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
    :param wire: ``"channel"``: a wire in memory, with the rules of stdio and sockets; ``"http"``: a
        connection in memory for each request, with those of Streamable HTTP, where closing it is
        the cancellation.
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
    cannot be raced: a handler that waits for threads, processes or sockets (a mock clock knows
    nothing of them), one that is always busy, one that fails with what is neither a ``ToolError``
    nor another error that the client is told, or whose check fails, if nothing happens to it, a
    request that is refused; within a Trio run; or if Hypothesis is not installed and ``examples``
    is not 0. Raises ``TypeError`` for options that make no sense.
    """
    if trio.lowlevel.in_trio_run():
        raise RaceError(
            "race makes Trio runs of its own, and this is within one: call it from a plain def "
            "test, not from an async one"
        )
    if isinstance(target, tuple) or not (isinstance(target, Server) or callable(target)):
        target, actions = None, _checked(target)
    if _are_actions(arguments):
        raise TypeError("the actions around a tool's call are given by their name: actions=[…]")
    request = requested("a race", tool, arguments, resource, prompt)
    if target is None and request is not None:
        raise TypeError("a race of a tool, a resource or a prompt takes a Server or what makes one")
    if target is not None and request is None:
        raise TypeError(NAME_IT)
    for name, function in (("check", check), ("reset", reset)):
        if function is not None:
            check_callable(name, function)
    if wire not in _WIRES:
        raise TypeError(f"wire is 'channel' or 'http', not {wire!r:.80}")
    if orders is not None:
        orders = _orders(orders)
    settings = Settings(
        request=request or Request(Script.tool, "tools/call", {"name": Script.tool}),
        actions=ALL if actions is None else _actions(actions),
        check=check,
        reset=reset,
        bound=bound,
        ignore=checked_kinds(ignore, get_args(RaceKind)),
        max_steps=max_steps,
        longest=longest,
        wire=wire,
    )
    explorer = Explorer(target, settings)
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


def _checked(target: Any) -> tuple[Action, ...]:
    """The actions that are raced without a server."""
    if not _are_actions(target):
        raise TypeError(f"a race takes a Server, what makes one, or some Actions, not {target!r}")
    return _actions(target)


def _actions(actions: Any) -> tuple[Action, ...]:
    if not _are_actions(actions):
        raise TypeError(f"actions is to be some Actions, as [Action.CANCEL], not {actions!r:.80}")
    return tuple(one for one in Action if one in actions)


def _are_actions(given: Any) -> bool:
    if isinstance(given, str) or not isinstance(given, Collection) or not given:
        return False
    return all(isinstance(one, Action) for one in given)


def _orders(given: Any) -> list[Order]:
    like = "such as [Order((Step(Action.CANCEL),))]"
    wanted: list[Any] = list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(one, Order) for one in wanted):
        raise TypeError(f"orders is to be Orders, {like}, not {given!r:.80}")
    return [_order(one) for one in wanted]


def _order(given: Order) -> Order:
    """One that can be played, and looked up."""
    steps: Any = given.steps
    turns: Any = given.turns
    if not isinstance(steps, tuple | list) or not all(isinstance(one, Step) for one in steps):
        raise TypeError(
            "the steps of an order are to be Steps, such as Order((Step(Action.CANCEL),)), not "
            f"{steps!r:.80}"
        )
    if not isinstance(turns, tuple | list) or not all(isinstance(one, int) for one in turns):
        raise TypeError(f"the turns of an order are to be whole numbers, not {turns!r:.80}")
    return Order(tuple(steps), tuple(turns))
