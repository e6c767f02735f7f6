"""``race``: the runtime holds in every order; each mistake is found, in the smallest order.

The mistakes are in handlers, and in the runtime: there a method is replaced by one that breaks an
invariant.
"""

from __future__ import annotations

import importlib.util
import random
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_mcp import Context, Server, ToolError
from trio_mcp.demo import bookshop, showroom
from trio_mcp.runtime.dispatch import Dispatcher
from trio_mcp.runtime.exchange import Exchange
from trio_mcp.runtime.exits import ExitCallbacks
from trio_mcp.runtime.lifecycle import CancelCause, CancelSource, Lifecycle, State
from trio_mcp.runtime.progress import ProgressReporter
from trio_mcp.testing import (
    Action,
    Gap,
    Order,
    RaceError,
    RaceFailed,
    RaceReport,
    Step,
    race,
)
from trio_mcp.testing.scheduling import Turns
from trio_mcp.transports.channel import Bare
from trio_mcp.transports.serving import ServerConnection

ROOT = Path(__file__).parents[1]
Handler = Callable[[Context], Awaitable[str]]
CANCEL, COMPLETE, PROGRESS, DISCONNECT, DUPLICATE, SHUTDOWN = Action
AT_ONCE = Gap(quiet=False)

held: set[str] = set()


def race_of(handler: Handler, **options: Any) -> RaceReport:
    """As a tool of a server."""

    def make() -> Server:
        held.clear()
        server = Server("raced", version="1")
        server.tool(name="tool")(handler)
        return server

    return race(make, "tool", check=lambda: not held, **{"examples": 60, **options})


def order(*steps: Action | tuple[Action, Gap], turns: tuple[int, ...] = ()) -> Order:
    made = (Step(it) if isinstance(it, Action) else Step(*it) for it in steps)
    return Order(tuple(made), turns)


def found(report: RaceReport) -> dict[str, Order]:
    """Each kind of problem, with its order."""
    return {problem.kind: problem.order for problem in report.problems}


# The runtime --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clean() -> RaceReport:
    return race(examples=600)


def test_the_runtime_holds_in_every_order(clean: RaceReport) -> None:
    clean.raise_for_problems()
    assert clean.orders > 500
    assert clean.diagram == ""
    assert re.fullmatch(
        r"scripted: \d+ orders, all of up to 2 actions among them: clean", clean.describe()
    )


def test_all_orders_of_two_actions_are_played() -> None:
    report = race([CANCEL, DISCONNECT], examples=0)
    # nothing; 2 of one action; cancel and disconnect, each at once or not: one cannot cancel later
    assert (report.orders, report.exhausted) == (1 + 2 * 2 + 4, 2)
    assert race([COMPLETE], examples=0, exhaust=1).orders == 3
    assert race([PROGRESS], examples=0).orders == 1 + 2 + 4


# Good handlers ------------------------------------------------------------------------------------


async def cleans_up(ctx: Context) -> str:
    held.add("hold")
    try:
        await trio.sleep(1)
        ctx.progress(1)
        await trio.lowlevel.checkpoint()
        return "done"
    finally:
        with ctx.cleanup(5):
            await trio.sleep(0.1)
            held.discard("hold")


async def has_children(ctx: Context) -> str:
    async def child() -> None:
        held.add("child")
        try:
            await trio.sleep(2)
        finally:
            held.discard("child")

    ctx.nursery.start_soon(child)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        await trio.sleep(1)
    return "done"


async def fails(ctx: Context) -> str:
    await trio.sleep(1)
    raise ToolError("as always")


async def is_endless(ctx: Context) -> str:
    ctx.on_exit(held.discard, "hold")
    held.add("hold")
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize("handler", [cleans_up, has_children, fails, is_endless])
def test_a_good_handler_has_no_problems(handler: Handler) -> None:
    report = race_of(handler)
    report.raise_for_problems()
    assert report.stopped is None


def test_an_outcome_that_comes_too_late_is_no_problem() -> None:
    late = order(COMPLETE, (CANCEL, AT_ONCE))
    report = race_of(cleans_up, orders=[late])
    report.raise_for_problems()


# Mistakes of handlers -----------------------------------------------------------------------------


async def forgets_finally(ctx: Context) -> str:
    held.add("hold")
    await trio.sleep(1)
    held.discard("hold")
    return "done"


async def swallows(ctx: Context) -> str:
    try:
        await trio.sleep(1)
    except trio.Cancelled:
        pass
    return "done"


async def shields_for_ever(ctx: Context) -> str:
    try:
        await trio.sleep(1)
        return "done"
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.1)


async def hangs(ctx: Context) -> str:
    try:
        await trio.sleep(1)
        return "done"
    except trio.Cancelled:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()
        raise


async def raises_something_else(ctx: Context) -> str:
    try:
        await trio.sleep(1)
        return "done"
    except trio.Cancelled:
        raise OSError("gone") from None


async def takes_too_long(ctx: Context) -> str:
    try:
        await trio.sleep(1)
        return "done"
    finally:
        with ctx.cleanup(1):
            await trio.sleep(2)


async def leaves_a_task(ctx: Context) -> str:
    try:
        await trio.sleep(1)
        return "done"
    except trio.Cancelled:
        trio.lowlevel.spawn_system_task(trio.sleep_forever)
        raise


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (forgets_finally, "clean-up"),
        (swallows, "swallowed"),
        (shields_for_ever, "unbounded"),
        (hangs, "unbounded"),
        (raises_something_else, "raised"),
        (leaves_a_task, "leaked"),
    ],
)
def test_a_mistake_is_found_in_the_smallest_order(handler: Handler, kind: str) -> None:
    report = race_of(handler)
    assert found(report) == {kind: order(CANCEL)}
    assert report.diagram.count(f"✗ {kind}: ") == 1
    with pytest.raises(RaceFailed) as failed:
        report.raise_for_problems()
    assert failed.value.report is report


def test_a_clean_up_that_runs_into_its_limit() -> None:
    assert found(race_of(takes_too_long))["clean-up"] == order(COMPLETE)


async def is_late_to_try(ctx: Context) -> str:
    """Good wherever it waits for long."""
    held.add("hold")
    await trio.lowlevel.checkpoint()
    try:
        await trio.sleep(1)
        return "done"
    finally:
        held.discard("hold")


def test_a_mistake_that_takes_one_tick_is_found_and_shrunk() -> None:
    """No order of the short ones has it: Hypothesis does."""
    assert race_of(is_late_to_try, examples=0).problems == ()
    report = race_of(is_late_to_try, examples=200)
    ((kind, smallest),) = found(report).items()
    assert kind == "clean-up"
    assert len(smallest.steps) == 1
    assert smallest.steps[0].gap.ticks > 0
    assert smallest.turns == ()
    assert found(race_of(is_late_to_try, examples=200)) == found(report)


async def is_late_to_try_again(ctx: Context) -> str:
    """The same, in the middle."""
    await trio.sleep(1)
    held.add("hold")
    await trio.lowlevel.checkpoint()
    held.discard("hold")
    return "done"


def test_a_mistake_between_two_waits() -> None:
    report = race_of(is_late_to_try_again, actions=[CANCEL, SHUTDOWN], examples=300)
    (smallest,) = found(report).values()
    assert smallest.steps[0].gap.moves == 1
    assert len(smallest.steps) == 1


# Mistakes of the runtime --------------------------------------------------------------------------


class Unguarded:
    """A reply that is written whatever became of its request."""

    size = 0

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._frame = exchange._frame

    def take(self) -> bytes | None:
        self._exchange.take()
        return self._frame

    def written(self, delivered: bool) -> None:
        if self._exchange.answered:
            self._exchange.written(delivered)


def reply_ignores_the_guard(patch: pytest.MonkeyPatch) -> None:
    def finish(self: ServerConnection, exchange: Exchange) -> None:
        self._channel.put(Unguarded(exchange))

    patch.setattr(ServerConnection, "finish", finish)


def answers_twice(patch: pytest.MonkeyPatch) -> None:
    really = ServerConnection.finish

    def finish(self: ServerConnection, exchange: Exchange) -> None:
        assert exchange._frame is not None
        copy = exchange._frame
        really(self, exchange)
        self._channel.put(Bare(copy))

    patch.setattr(ServerConnection, "finish", finish)


def answers_a_cancellation(patch: pytest.MonkeyPatch) -> None:
    def drop(self: Exchange) -> None:
        self.peer._channel.put(Bare(self.core.encode_error(self, self.core.shutting_down())))  # type: ignore[attr-defined]
        really(self)

    really = Exchange._drop_answer
    patch.setattr(Exchange, "_drop_answer", drop)


def forgets_the_answer(patch: pytest.MonkeyPatch) -> None:
    def take(self: Exchange) -> None:
        really(self)

    really = Exchange.take
    patch.setattr(Exchange, "take", take)


def progress_after_the_end(patch: pytest.MonkeyPatch) -> None:
    def written(self: Exchange, delivered: bool) -> None:
        really(self, delivered)
        if self.progress is not None and self.progress_token is not None:
            self.progress._last += 1
            update = _update(self.progress._last)
            self.peer._channel.put(Bare(self.encode_progress(update)))  # type: ignore[attr-defined]

    really = Exchange.written
    patch.setattr(Exchange, "written", written)


def _update(progress: float) -> Any:
    from trio_mcp.runtime.progress import ProgressUpdate

    return ProgressUpdate(progress)


def progress_after_a_cancel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Exchange, "speaking", property(lambda self: True))


def progress_goes_back(patch: pytest.MonkeyPatch) -> None:
    def take(self: ProgressReporter) -> bytes | None:
        if self._pending is not None:
            self._pending = _update(-self._pending.progress)
        return really(self)

    really = ProgressReporter.take
    patch.setattr(ProgressReporter, "take", take)


def scope_is_not_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "close", lambda self, exchange: None)


def late_outcome_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lifecycle, "note_late", lambda self, kind, after: None)


def second_cancel_cleans_up_again(patch: pytest.MonkeyPatch) -> None:
    async def exit_(self: Exchange, exits: ExitCallbacks) -> None:
        callbacks = list(exits._callbacks)
        await really(self, exits)
        if self.extra_cancels:
            for fn, args in callbacks:
                await fn(*args)  # type: ignore[misc]

    really = Exchange._exit
    patch.setattr(Exchange, "_exit", exit_)


def second_cancel_ends_it_again(patch: pytest.MonkeyPatch) -> None:
    def cancel(self: Exchange, source: CancelSource, reason: str | None = None) -> bool:
        taken = really(self, source, reason)
        if not taken and self.ended_at is None:
            self.ended_at = trio.current_time()
            self._write_record()
        return taken

    really = Exchange.cancel
    patch.setattr(Exchange, "cancel", cancel)


def second_cause_wins(patch: pytest.MonkeyPatch) -> None:
    def cancel(self: Exchange, source: CancelSource, reason: str | None = None) -> bool:
        if self.state is State.CANCELLING:
            self.cause = CancelCause(source, reason, trio.current_time())
        return really(self, source, reason)

    really = Exchange.cancel
    patch.setattr(Exchange, "cancel", cancel)


def disconnect_cancels_nothing(patch: pytest.MonkeyPatch) -> None:
    def cancel_all(self: ServerConnection, source: CancelSource | None) -> None:
        if source is not CancelSource.DISCONNECT:
            really(self, source)

    really = ServerConnection._cancel_all
    patch.setattr(ServerConnection, "_cancel_all", cancel_all)


def shutdown_cancels_nothing(patch: pytest.MonkeyPatch) -> None:
    def cancel_all(self: ServerConnection, source: CancelSource | None) -> None:
        if source is not CancelSource.SHUTDOWN:
            really(self, source)

    really = ServerConnection._cancel_all
    patch.setattr(ServerConnection, "_cancel_all", cancel_all)


def cancel_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ServerConnection, "_on_cancelled", lambda self, notification: None)


def cancel_does_not_reach_the_tasks(patch: pytest.MonkeyPatch) -> None:
    def cancel(self: Exchange, source: CancelSource, reason: str | None = None) -> bool:
        return self.begin_cancel(CancelCause(source, reason, trio.current_time()))

    patch.setattr(Exchange, "cancel", cancel)


def cancel_ends_the_connection(patch: pytest.MonkeyPatch) -> None:
    def on_cancelled(self: ServerConnection, notification: Any) -> None:
        really(self, notification)
        self._draining = True

    really = ServerConnection._on_cancelled
    patch.setattr(ServerConnection, "_on_cancelled", on_cancelled)


def late_cancel_is_an_error(patch: pytest.MonkeyPatch) -> None:
    def on_cancelled(self: ServerConnection, notification: Any) -> None:
        del self._exchanges[f's"{notification.params["requestId"]}"']
        really(self, notification)

    really = ServerConnection._on_cancelled
    patch.setattr(ServerConnection, "_on_cancelled", on_cancelled)


def reason_is_lost(patch: pytest.MonkeyPatch) -> None:
    def cancel(self: Exchange, source: CancelSource, reason: str | None = None) -> bool:
        return really(self, source)

    really = Exchange.cancel
    patch.setattr(Exchange, "cancel", cancel)


def delivery_is_not_noted(patch: pytest.MonkeyPatch) -> None:
    def written(self: Exchange, delivered: bool) -> None:
        really(self, None)  # type: ignore[arg-type]

    really = Exchange.written
    patch.setattr(Exchange, "written", written)


MUTATIONS: list[tuple[Callable[[pytest.MonkeyPatch], None], dict[str, Order]]] = [
    (reply_ignores_the_guard, {}),
    (answers_twice, {}),
    (answers_a_cancellation, {}),
    (forgets_the_answer, {}),
    (progress_after_the_end, {}),
    (progress_after_a_cancel, {}),
    (progress_goes_back, {}),
    (scope_is_not_removed, {}),
    (late_outcome_is_lost, {}),
    (second_cancel_cleans_up_again, {}),
    (second_cancel_ends_it_again, {}),
    (second_cause_wins, {}),
    (disconnect_cancels_nothing, {}),
    (shutdown_cancels_nothing, {}),
    (cancel_is_ignored, {}),
    (cancel_does_not_reach_the_tasks, {}),
    (cancel_ends_the_connection, {}),
    (late_cancel_is_an_error, {}),
    (reason_is_lost, {}),
    (delivery_is_not_noted, {}),
]


@pytest.mark.parametrize(("mutate", "expected"), MUTATIONS, ids=lambda it: getattr(it, "__name__", ""))
def test_a_runtime_that_breaks_an_invariant_is_caught(
    mutate: Callable[[pytest.MonkeyPatch], None],
    expected: dict[str, Order],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutate(monkeypatch)
    report = race(examples=60)
    print(report.describe())
    assert found(report) == expected
