"""``race``: the runtime holds in every order; each mistake is found, in the smallest order.

The mistakes are in handlers, and in the runtime: there a method is replaced by one that breaks an
invariant.
"""

from __future__ import annotations

import importlib.util
import random
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
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
from trio_mcp.transports.http.connection import HttpConnection
from trio_mcp.transports.serving import ServerConnection

ROOT = Path(__file__).parents[1]
Handler = Callable[[Context], Awaitable[str]]
CANCEL, COMPLETE, PROGRESS, DISCONNECT, DUPLICATE, SHUTDOWN = Action
AT_ONCE = Gap(quiet=False)

held: set[str] = set()


def race_of(handler: Handler, **options: Any) -> RaceReport:
    """As a tool of a server; without what takes long, unless it is asked for."""

    def make() -> Server:
        held.clear()
        server = Server("raced", version="1")
        server.tool(name="tool")(handler)
        return server

    return race(make, "tool", check=lambda: not held, **{"examples": 0, "ticks": 0, **options})


def order(*steps: Action | tuple[Action, Gap], turns: tuple[int, ...] = ()) -> Order:
    made = (Step(it) if isinstance(it, Action) else Step(*it) for it in steps)
    return Order(tuple(made), turns)


def found(report: RaceReport) -> dict[str, Order]:
    """Each kind of problem, with its order."""
    return {problem.kind: problem.order for problem in report.problems}


# The runtime --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clean() -> RaceReport:
    return race(examples=40, ticks=12)


def test_the_runtime_holds_in_every_order(clean: RaceReport) -> None:
    clean.raise_for_problems()
    assert clean.orders > 400
    assert clean.diagram == ""
    assert re.fullmatch(
        r"scripted: \d+ orders, all of up to 2 actions among them: clean", clean.describe()
    )


def test_all_orders_of_two_actions_are_played() -> None:
    report = race([CANCEL, DISCONNECT], examples=0, ticks=0)
    # nothing; 2 of one action; cancel and disconnect, each at once or not: one cannot cancel later
    assert (report.orders, report.exhausted) == (1 + 2 * 2 + 4, 2)
    assert race([COMPLETE], examples=0, ticks=0, exhaust=1).orders == 3
    assert race([PROGRESS], examples=0, ticks=0).orders == 1 + 2 + 4


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
    report = race_of(handler, exhaust=1, ticks=4, examples=10)
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
    report = race_of(handler, exhaust=1)
    assert found(report) == {kind: order(CANCEL)}
    assert report.diagram.count(f"✗ {kind}: ") == 1
    with pytest.raises(RaceFailed) as failed:
        report.raise_for_problems()
    assert failed.value.report is report


async def marked(ctx: Context) -> str:
    try:
        await trio.sleep(1)  # here
    except BaseException:
        return "done"
    return "done"


async def begins_a_task(ctx: Context) -> str:
    await trio.sleep(1)
    trio.lowlevel.spawn_system_task(trio.sleep_forever)  # here
    return "done"


async def leaves_a_generator(ctx: Context) -> str:
    async def numbers() -> AsyncIterator[int]:
        yield 1  # here
        yield 2

    async for _ in numbers():
        await trio.sleep(1)
        break
    return "done"


@pytest.mark.parametrize("wire", ["channel", "http"])
@pytest.mark.parametrize("handler", [marked, begins_a_task, leaves_a_generator])
def test_the_line_is_named(handler: Handler, wire: str) -> None:
    told = race_of(handler, wire=wire, exhaust=1).describe()
    assert "  # here" in told, told


def test_a_clean_up_that_runs_into_its_limit() -> None:
    assert found(race_of(takes_too_long, examples=0)) == {"clean-up": order()}


async def is_late_to_try(ctx: Context) -> str:
    """Good wherever it waits for long."""
    held.add("hold")
    await trio.lowlevel.checkpoint()
    try:
        await trio.sleep(1)
        return "done"
    finally:
        held.discard("hold")


def test_a_mistake_that_takes_one_tick_is_found() -> None:
    """No order of quiet moments has it."""
    assert race_of(is_late_to_try, actions=[CANCEL]).problems == ()
    assert found(race_of(is_late_to_try, actions=[CANCEL], ticks=10)) == {
        "clean-up": order((CANCEL, Gap(quiet=False, ticks=5)))
    }


async def is_late_to_try_again(ctx: Context) -> str:
    """The same, in the middle."""
    await trio.sleep(1)
    held.add("hold")
    await trio.lowlevel.checkpoint()
    held.discard("hold")
    return "done"


def test_a_mistake_between_two_waits() -> None:
    report = race_of(is_late_to_try_again, actions=[CANCEL], ticks=20)
    assert found(report) == {"clean-up": order((CANCEL, Gap(moves=1, ticks=1)))}


def test_hypothesis_finds_and_shrinks_what_short_orders_do_not_have() -> None:
    async def progresses(ctx: Context) -> str:
        ctx.progress(1)
        await trio.sleep(1)
        ctx.progress(2)
        await trio.sleep(1)
        held.add("hold")
        await trio.sleep(1)
        held.discard("hold")
        return "done"

    options = {"actions": [CANCEL, PROGRESS], "exhaust": 1, "ticks": 0, "examples": 200}
    report = race_of(progresses, **options)
    assert found(report) == {"clean-up": order((CANCEL, Gap(moves=2, ticks=1)))}
    assert found(race_of(progresses, **options)) == found(report)


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
            with trio.move_on_after(1, shield=True):
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


def cancel_crashes_the_reader(patch: pytest.MonkeyPatch) -> None:
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


def last_report_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProgressReporter, "flush", lambda self: None)


def drain_gives_no_time(patch: pytest.MonkeyPatch) -> None:
    really = ServerConnection.drain
    patch.setattr(
        ServerConnection, "drain", lambda self, deadline: really(self, trio.current_time())
    )


def drain_takes_more(patch: pytest.MonkeyPatch) -> None:
    really = ServerConnection._refusal

    def refusal(self: ServerConnection, request: Any) -> Any:
        draining, self._draining = self._draining, False
        try:
            return really(self, request)
        finally:
            self._draining = draining

    patch.setattr(ServerConnection, "_refusal", refusal)


def on_cancelled(do: Callable[[ServerConnection], object]) -> Mutation:
    """Each cancellation that comes does this, too."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        def changed(self: ServerConnection, notification: Any) -> None:
            really(self, notification)
            do(self)

        really = ServerConnection._on_cancelled
        patch.setattr(ServerConnection, "_on_cancelled", changed)

    return mutate


def cancel_stops_others(patch: pytest.MonkeyPatch) -> None:
    on_cancelled(lambda self: self._cancel_all(CancelSource.NOTIFICATION))(patch)


def strange_cancel_is_answered(patch: pytest.MonkeyPatch) -> None:
    said = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"who?"}}'
    on_cancelled(lambda self: self._channel.put(Bare(said)))(patch)


def strange_cancel_stops_another(patch: pytest.MonkeyPatch) -> None:
    def changed(self: ServerConnection, notification: Any) -> None:
        really(self, notification)
        request_id = notification.params.get("requestId")
        for exchange in list(self._exchanges.values()):
            if str(request_id).lower() == exchange.request.id:
                exchange.cancel(CancelSource.NOTIFICATION, notification.params.get("reason"))

    really = ServerConnection._on_cancelled
    patch.setattr(ServerConnection, "_on_cancelled", changed)


def end_is_taken_for_a_stall(patch: pytest.MonkeyPatch) -> None:
    def cancel_all(self: ServerConnection, source: CancelSource | None) -> None:
        really(self, CancelSource.STALLED if source is CancelSource.DISCONNECT else source)

    really = ServerConnection._cancel_all
    patch.setattr(ServerConnection, "_cancel_all", cancel_all)


def bytes_are_counted_for_ever(patch: pytest.MonkeyPatch) -> None:
    def forget(self: ServerConnection, exchange: Exchange) -> None:
        really(self, exchange)
        self._request_bytes += 1

    really = ServerConnection.forget
    patch.setattr(ServerConnection, "forget", forget)


def slots_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Exchange, "_leave", lambda self: None)


def a_task_stays(patch: pytest.MonkeyPatch) -> None:
    def on_request(self: ServerConnection, request: Any, now: float) -> None:
        really(self, request, now)
        self._nursery.start_soon(trio.sleep_forever)

    really = ServerConnection._on_request
    patch.setattr(ServerConnection, "_on_request", on_request)


def a_system_task_stays(patch: pytest.MonkeyPatch) -> None:
    on_cancelled(lambda self: trio.lowlevel.spawn_system_task(trio.sleep_forever))(patch)


def wire_stays_open(patch: pytest.MonkeyPatch) -> None:
    async def close(wire: object) -> None:
        await trio.lowlevel.checkpoint()

    patch.setattr("trio_mcp.transports.serving.close_wire", close)


def time_is_of_another_clock(patch: pytest.MonkeyPatch) -> None:
    def take(self: Exchange) -> bytes | None:
        frame = really(self)
        if frame is not None and self.ended_at is not None:
            self.ended_at += 1
        return frame

    really = Exchange.take
    patch.setattr(Exchange, "take", take)


def cancels_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    def cancel(self: Exchange, *args: Any) -> bool:
        taken = really(self, *args)
        self.extra_cancels = 0
        return taken

    really = Exchange.cancel
    patch.setattr(Exchange, "cancel", cancel)


def after_the_handler(do: Callable[[Exchange, Any], object]) -> Mutation:
    """The raced handler has returned, and its children still run."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        async def handle(self: Dispatcher, exchange: Exchange) -> Any:
            result = await really(self, exchange)
            if exchange.request.method == "tools/call":
                do(exchange, result)
            return result

        really = Dispatcher.handle
        patch.setattr(Dispatcher, "handle", handle)

    return mutate


def answers_before_the_children_end(patch: pytest.MonkeyPatch) -> None:
    def once(name: str) -> None:
        def changed(self: Exchange, *outcome: Any) -> None:
            if self._frame is None and not self.answered:
                really(self, *outcome)

        really = getattr(Exchange, name)
        patch.setattr(Exchange, name, changed)

    once("_queue_outcome")
    once("_unwind")
    after_the_handler(lambda exchange, result: exchange._queue_outcome(result, None))(patch)


def children_are_cut_off(patch: pytest.MonkeyPatch) -> None:
    after_the_handler(lambda exchange, result: exchange.nursery.cancel_scope.cancel())(patch)


def children_belong_to_the_connection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Exchange, "nursery", property(lambda self: self.peer._nursery))


def an_error_is_completed(patch: pytest.MonkeyPatch) -> None:
    really = Lifecycle.claim
    patch.setattr(Lifecycle, "claim", lambda self, *, failed: really(self, failed=False))


def a_result_is_failed(patch: pytest.MonkeyPatch) -> None:
    really = Lifecycle.claim
    patch.setattr(Lifecycle, "claim", lambda self, *, failed: really(self, failed=True))


def error_text_is_lost(patch: pytest.MonkeyPatch) -> None:
    def finish(self: ServerConnection, exchange: Exchange) -> None:
        exchange.error_text = None
        really(self, exchange)

    really = ServerConnection.finish
    patch.setattr(ServerConnection, "finish", finish)


def cleanups_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Exchange, "note_cleanup", Exchange._keep_worst)


def exit_callbacks_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    async def exit_(self: Exchange, exits: ExitCallbacks) -> None:
        await really(self, exits)
        self.cleanups -= 1

    really = Exchange._exit
    patch.setattr(Exchange, "_exit", exit_)


def clean_up_is_worse(patch: pytest.MonkeyPatch) -> None:
    really = Exchange.note_cleanup
    patch.setattr(Exchange, "note_cleanup", lambda self, outcome: really(self, "error"))


Mutation = Callable[[pytest.MonkeyPatch], None]
IN_TICKS = {"exhaust": 1}
QUIET = {"ticks": 0}

GUARD = order(COMPLETE, (CANCEL, Gap(moves=1, ticks=6)))
"""The answer waits in the writer: of all ticks, that is the one."""

MUTATIONS: list[tuple[Mutation, dict[str, int], list[Action], dict[str, Order]]] = [
    (reply_ignores_the_guard, IN_TICKS, [CANCEL, COMPLETE], {"spoke": GUARD, "disagrees": GUARD}),
    (
        progress_after_a_cancel,
        IN_TICKS,
        [CANCEL, PROGRESS],
        {"spoke": order(PROGRESS, (CANCEL, Gap(quiet=False, ticks=1)))},
    ),
    (
        progress_after_the_end,
        QUIET,
        [COMPLETE, PROGRESS],
        {kind: order(PROGRESS, COMPLETE) for kind in ("spoke", "disagrees")},
    ),
    (progress_goes_back, QUIET, [COMPLETE, PROGRESS], {"progress": order(PROGRESS, COMPLETE)}),
    (
        answers_twice,
        QUIET,
        [CANCEL, COMPLETE],
        {"connection": order(), "answers": order(COMPLETE)},
    ),
    (answers_a_cancellation, QUIET, [CANCEL, COMPLETE], {"spoke": order(), "disagrees": order()}),
    (
        forgets_the_answer,
        QUIET,
        [CANCEL, COMPLETE],
        {"connection": order(), "terminal state": order(COMPLETE), "answers": order(COMPLETE)},
    ),
    (scope_is_not_removed, QUIET, [CANCEL, COMPLETE], {"leaked": order()}),
    (
        late_outcome_is_lost,
        QUIET,
        [CANCEL, COMPLETE],
        {kind: order(COMPLETE, CANCEL) for kind in ("late outcome", "raised")},
    ),
    (
        second_cancel_cleans_up_again,
        QUIET,
        [CANCEL, DUPLICATE],
        {kind: order(DUPLICATE) for kind in ("clean-up", "disagrees", "leaked")},
    ),
    (
        second_cancel_ends_it_again,
        QUIET,
        [CANCEL, DUPLICATE],
        {kind: order(DUPLICATE) for kind in ("crashed", "terminal state", "connection", "leaked")},
    ),
    (second_cause_wins, QUIET, [CANCEL, DISCONNECT], {"disagrees": order(CANCEL, DISCONNECT)}),
    (
        disconnect_cancels_nothing,
        QUIET,
        [COMPLETE, DISCONNECT],
        {
            "unbounded": order(),
            "spoke": order(COMPLETE, DISCONNECT),
            "disagrees": order(COMPLETE, DISCONNECT),
        },
    ),
    (shutdown_cancels_nothing, QUIET, [COMPLETE, SHUTDOWN], {"unbounded": order(SHUTDOWN)}),
    (
        cancel_is_ignored,
        QUIET,
        [CANCEL, COMPLETE],
        {
            "unbounded": order(CANCEL),
            "disagrees": order((CANCEL, AT_ONCE)),
            "spoke": order(CANCEL, COMPLETE),
        },
    ),
    (cancel_does_not_reach_the_tasks, QUIET, [CANCEL, COMPLETE], {"unbounded": order()}),
    (cancel_ends_the_connection, QUIET, [CANCEL, COMPLETE], {"connection": order()}),
    (
        cancel_crashes_the_reader,
        QUIET,
        [CANCEL, COMPLETE],
        {
            **{kind: order() for kind in ("crashed", "disagrees", "connection")},
            "late outcome": order(COMPLETE, CANCEL),
        },
    ),
    (reason_is_lost, QUIET, [CANCEL, COMPLETE], {"disagrees": order(CANCEL)}),
    (delivery_is_not_noted, QUIET, [CANCEL, COMPLETE], {"disagrees": order(COMPLETE)}),
    (last_report_is_lost, QUIET, [COMPLETE, PROGRESS], {"progress": order(PROGRESS, COMPLETE)}),
    (drain_gives_no_time, QUIET, [SHUTDOWN], {"disagrees": order(SHUTDOWN)}),
    (drain_takes_more, QUIET, [SHUTDOWN], {"connection": order(SHUTDOWN)}),
    (cancel_stops_others, QUIET, [CANCEL], {"connection": order()}),
    (strange_cancel_is_answered, QUIET, [CANCEL], {"spoke": order()}),
    (strange_cancel_stops_another, QUIET, [CANCEL], {"connection": order()}),
    (end_is_taken_for_a_stall, QUIET, [DISCONNECT], {"disagrees": order()}),
    (bytes_are_counted_for_ever, QUIET, [COMPLETE], {"leaked": order(COMPLETE)}),
    (slots_are_kept, QUIET, [COMPLETE], {"leaked": order()}),
    (a_task_stays, QUIET, [COMPLETE], {"leaked": order(COMPLETE)}),
    (a_system_task_stays, QUIET, [CANCEL], {"leaked": order()}),
    (wire_stays_open, QUIET, [COMPLETE], {"leaked": order()}),
    (time_is_of_another_clock, QUIET, [COMPLETE], {"disagrees": order(COMPLETE)}),
    (
        answers_before_the_children_end,
        QUIET,
        [COMPLETE],
        {kind: order(COMPLETE) for kind in ("leaked", "disagrees")},
    ),
    (children_are_cut_off, QUIET, [COMPLETE], {"disagrees": order(COMPLETE)}),
    (
        children_belong_to_the_connection,
        QUIET,
        [CANCEL, COMPLETE],
        {"leaked": order(), "disagrees": order()},
    ),
    (an_error_is_completed, QUIET, [COMPLETE], {"disagrees": order(COMPLETE)}),
    (
        a_result_is_failed,
        QUIET,
        [COMPLETE],
        {"connection": order(), "disagrees": order(COMPLETE)},
    ),
    (error_text_is_lost, QUIET, [COMPLETE], {"disagrees": order(COMPLETE)}),
    (cleanups_are_not_counted, QUIET, [COMPLETE], {"disagrees": order()}),
    (exit_callbacks_are_not_counted, QUIET, [COMPLETE], {"disagrees": order()}),
    (clean_up_is_worse, QUIET, [COMPLETE], {"raised": order(), "disagrees": order()}),
    (cancels_are_not_counted, QUIET, [CANCEL, DUPLICATE], {"disagrees": order(DUPLICATE)}),
]


@pytest.mark.parametrize(
    ("mutate", "options", "actions", "expected"),
    MUTATIONS,
    ids=lambda it: getattr(it, "__name__", ""),
)
def test_a_runtime_that_breaks_an_invariant_is_caught(
    mutate: Mutation,
    options: dict[str, Any],
    actions: list[Action],
    expected: dict[str, Order],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutate(monkeypatch)
    report = race(actions, examples=0, **options)
    assert found(report) == expected
    for problem in report.problems:
        assert f"✗ {problem.kind}: " in problem.diagram


def test_an_answer_before_the_children_of_any_handler_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def leaves_work(ctx: Context) -> str:
        ctx.nursery.start_soon(trio.sleep, 2)
        await trio.sleep(1)
        return "done"

    assert not race_of(leaves_work, actions=[COMPLETE], exhaust=1).problems
    answers_before_the_children_end(monkeypatch)
    report = race_of(leaves_work, actions=[COMPLETE], exhaust=1)
    assert "leaked" in found(report)
    assert "work of 1 task still runs" in report.describe()


def test_an_error_of_a_tool_is_one_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(self: ServerConnection, exchange: Exchange) -> None:
        exchange.is_error = False
        really(self, exchange)

    really = ServerConnection.finish
    monkeypatch.setattr(ServerConnection, "finish", finish)
    assert found(race_of(fails, actions=[COMPLETE], exhaust=1)) == {"disagrees": order()}


# HTTP ---------------------------------------------------------------------------------------------


def test_the_runtime_holds_over_http() -> None:
    report = race(wire="http", examples=20, ticks=3)
    report.raise_for_problems()
    assert report.orders > 150


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
def test_a_mistake_is_found_over_http_where_closing_is_the_cancellation(
    handler: Handler, kind: str
) -> None:
    report = race_of(handler, wire="http", exhaust=1)
    assert found(report) == {kind: order(CANCEL)}
    assert "C-xW: closes" in report.diagram
    assert "running → cancelling (disconnect)" in report.diagram


@pytest.mark.parametrize("handler", [cleans_up, has_children, fails, is_endless])
def test_a_good_handler_has_no_problems_over_http(handler: Handler) -> None:
    race_of(handler, wire="http", exhaust=1, examples=20).raise_for_problems()


def http_end_cancels_nothing(patch: pytest.MonkeyPatch) -> None:
    def end(self: HttpConnection, source: CancelSource) -> None:
        current, self._current = self._current, None
        really(self, source)
        self._current = current

    really = HttpConnection._end
    patch.setattr(HttpConnection, "_end", end)


def http_answers_twice(patch: pytest.MonkeyPatch) -> None:
    async def send(self: HttpConnection, data: bytes) -> bool:
        return await really(self, data) and await really(self, data)

    really = HttpConnection._send
    patch.setattr(HttpConnection, "_send", send)


def http_stream_has_no_end(patch: pytest.MonkeyPatch) -> None:
    async def end(self: HttpConnection) -> None:
        pass

    patch.setattr(HttpConnection, "end", end)


def http_speaks_to_nobody(patch: pytest.MonkeyPatch) -> None:
    async def linger(self: HttpConnection) -> None:
        await trio.sleep(0.1)
        await self._stream.send_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n")

    patch.setattr(HttpConnection, "_linger", linger)


def test_an_http_answer_without_an_end_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    http_stream_has_no_end(monkeypatch)
    report = race([PROGRESS, COMPLETE], wire="http", examples=0, ticks=0)
    assert found(report) == {"answers": order(PROGRESS, COMPLETE)}


def test_bytes_after_the_client_has_left_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    http_speaks_to_nobody(monkeypatch)
    report = race([DISCONNECT], wire="http", examples=0, ticks=0)
    assert "spoke" in found(report)


def test_an_answer_over_http_may_be_long() -> None:
    async def is_long(ctx: Context) -> str:
        await trio.sleep(1)
        return "x" * 300_000

    race_of(is_long, wire="http", exhaust=1, ticks=5).raise_for_problems()


@pytest.mark.parametrize(
    ("mutate", "expected"),
    [
        (http_end_cancels_nothing, {"unbounded": order(), "disagrees": order(CANCEL, COMPLETE)}),
        (http_answers_twice, {"connection": order(), "answers": order(COMPLETE)}),
        (children_are_cut_off, {"disagrees": order(COMPLETE)}),
        (an_error_is_completed, {"disagrees": order(COMPLETE)}),
        (cleanups_are_not_counted, {"disagrees": order()}),
    ],
)
def test_an_http_server_that_breaks_an_invariant_is_caught(
    mutate: Mutation, expected: dict[str, Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    report = race([CANCEL, COMPLETE], wire="http", examples=0, ticks=0)
    assert found(report) == expected


# Orders and turns ---------------------------------------------------------------------------------


def test_an_order_is_plain_data_that_a_test_can_keep() -> None:
    kept = order(COMPLETE, (CANCEL, Gap(moves=1, ticks=3)), turns=(0, 1))
    assert eval(repr(kept)) == kept
    assert str(kept) == (
        "complete, when all is quiet; cancel, as time moves on, 3 ticks later (turns 0, 1)"
    )
    assert [str(gap) for gap in (AT_ONCE, Gap(), Gap(quiet=False, ticks=1), Gap(moves=2))] == [
        "at once",
        "when all is quiet",
        "1 tick later",
        "as time moves on 2 times",
    ]


def test_what_cannot_happen_is_left_out() -> None:
    wild = order(PROGRESS, PROGRESS, COMPLETE, PROGRESS, DISCONNECT, CANCEL, DISCONNECT, turns=(0,))
    assert wild.made_possible(list(Action)) == order(PROGRESS, PROGRESS, COMPLETE, DISCONNECT)
    assert wild.made_possible([PROGRESS, CANCEL]) == order(*[PROGRESS] * 3, CANCEL)


def test_turns_are_permutations_and_the_first_is_the_order_of_age() -> None:
    def taken(number: int) -> str:
        tasks = list("abc")
        Turns([number]).shuffle(tasks)
        return "".join(reversed(tasks))  # Trio takes the last one first

    assert taken(0) == "abc"
    assert len({taken(number) for number in range(6)}) == 6
    turns = Turns([1])
    for tasks in ["a"], ["a", "b"], ["a", "b"]:
        turns.shuffle(tasks)
    assert turns.asked == 2


def test_turns_make_a_difference() -> None:
    """The handler's two tasks wake at the same time: who is first?"""
    first: list[str] = []

    async def two(ctx: Context) -> str:
        async def child(name: str) -> None:
            await trio.sleep(1)
            first.append(name)

        first.clear()
        async with trio.open_nursery() as nursery:
            for name in "ab":
                nursery.start_soon(child, name)
        return first[0]

    seen = set()
    for turns in [(), *((0,) * before + (2,) for before in range(8))]:
        race_of(two, orders=[order(COMPLETE, turns=turns)])
        seen.add("".join(first))
    assert seen == {"ab", "ba"}


def test_a_race_is_the_same_each_time_and_leaves_chance_alone() -> None:
    chance = trio._core._run._r
    before = chance.getstate()
    random.seed(1)
    reports = [race([CANCEL, SHUTDOWN], examples=20, ticks=3, seed=7) for _ in range(2)]
    assert reports[0] == reports[1]
    assert chance.getstate() == before
    assert trio._core._run._r is chance


def test_what_was_left_is_told_alike_each_time() -> None:
    kept: list[socket.socket] = []

    async def leaves_a_socket(ctx: Context) -> str:
        kept.append(socket.socket())
        await trio.sleep(1)
        kept.pop().close()
        return "done"

    def close() -> None:
        while kept:
            kept.pop().close()

    options: dict[str, Any] = {"reset": close, "exhaust": 1, "actions": [CANCEL]}
    reports = [race_of(leaves_a_socket, **options) for _ in range(2)]
    close()
    assert found(reports[0]) == {"leaked": order(CANCEL)}
    assert reports[0] == reports[1]


# The report ---------------------------------------------------------------------------------------

PARTICIPANTS = ["C as Client", "W as Connection", "E as Exchange", "H as Handler"]
LINE = re.compile(
    r"(Note over [CWEH](,[CWEH])?: [^;#]+|[CWEH](-->>|->>|-x|--x)[CWEH]: [^;#]+"
    r"|rect rgb\(255, 214, 214\)|end)"
)


def test_a_diagram_is_a_sequence_of_lines_that_mermaid_knows() -> None:
    report = race_of(forgets_finally)
    head, *rest = report.diagram.splitlines()
    lines = [line.strip() for line in rest]
    assert head == "sequenceDiagram"
    assert lines[:4] == [f"participant {one}" for one in PARTICIPANTS]
    for line in lines[4:]:
        assert LINE.fullmatch(re.sub(r"#35;|#59;", "", line)), line
    assert lines.count("end") == sum(line.startswith("rect") for line in lines)
    shown = "\n".join(lines)
    for part in (
        "C->>W: tools/call (tool)\nW->>E: begins\nE->>H: runs",
        "Note over C: 1. cancel, when all is quiet\nC->>W: notifications/cancelled (race)",
        "Note over E: running → cancelling (notification)\nH-->>E: trio.Cancelled",
        "Note over E: cancelling → cancelled (notification)\nNote over E: in the journal",
        "rect rgb(255, 214, 214)\nNote over C,H: ✗ clean-up: the check is not true: ",
    ):
        assert part in shown


def test_the_diagram_of_the_documentation_is_a_real_one() -> None:
    module = example("race")
    asked = "hasty", {"title": "Dune"}
    kept = order((CANCEL, Gap(moves=1, ticks=1)))
    report = race(module.make_server, *asked, check=module.is_released, orders=[kept])
    text = (ROOT / "docs" / "racing.md").read_text(encoding="utf-8")
    shown = text.partition("```mermaid\n")[2].partition("```")[0]
    assert _without_place(shown) == _without_place(report.diagram)


def _without_place(diagram: str) -> str:
    return re.sub(r"\(\S*race\.py:\d+\)", "", diagram)


def test_a_report_has_each_order_once() -> None:
    async def bad_twice(ctx: Context) -> str:
        held.add("hold")
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            pass
        else:
            held.discard("hold")
        return "done; #1"

    report = race_of(bad_twice, exhaust=1)
    assert found(report) == {"swallowed": order(CANCEL), "clean-up": order(CANCEL)}
    text = report.describe()
    assert text.splitlines()[0].startswith("tool: ")
    assert text.splitlines()[0].endswith(", all of up to 1 action among them: 2 problems")
    assert text.count("sequenceDiagram") == 1
    assert "2. clean-up: the check is not true" in text
    assert "diagram: that of 1." in text


@pytest.mark.parametrize(
    ("handler", "kind"), [(forgets_finally, "clean-up"), (swallows, "swallowed")]
)
@pytest.mark.parametrize("wire", ["channel", "http"])
def test_where_a_cancellation_has_found_the_handler(handler: Handler, kind: str, wire: Any) -> None:
    report = race_of(handler, exhaust=1, wire=wire)
    (problem,) = report.problems
    assert problem.kind == kind
    assert problem.place is not None
    assert problem.place.source == "await trio.sleep(1)"
    assert problem.place.function == handler.__name__
    where = f"test_race_explorer.py:{problem.place.line}"
    assert re.search(rf"H-->>E: .*trio.Cancelled \(\S*{where}\)\n", report.diagram)
    assert re.search(rf"found it here:\n +\S*{where}, in {handler.__name__}\n", report.describe())


def test_a_long_check_is_clipped_in_the_diagram() -> None:
    def make() -> Server:
        held.clear()
        server = Server("raced", version="1")
        server.tool(name="tool")(forgets_finally)
        return server

    # fmt: off
    report = race(make, "tool", check=lambda: not held and "a long one, which has no end" and "as it says" and True, examples=0, ticks=0)  # noqa: E501
    # fmt: on
    (note,) = re.findall(r"✗ clean-up: (.*)", report.diagram)
    text, _, where = note.partition("…")
    assert len(text) == 100
    assert re.fullmatch(r" \(\S*test_race_explorer\.py:\d+\)", where)
    assert "as it says" in report.describe()


def test_a_limit_that_ran_out_is_said_with_the_check_that_fails() -> None:
    async def slow(ctx: Context) -> str:
        held.add("hold")
        try:
            await trio.sleep(1)
            return "done"
        finally:
            with ctx.cleanup(1):
                await trio.sleep(2)
                held.discard("hold")

    with pytest.raises(RaceError, match=r"check is not true: .*block, or on_exit, ran into"):
        race_of(slow)


def test_a_handler_without_a_checkpoint_had_nothing_to_cancel() -> None:
    async def at_once(ctx: Context) -> str:
        return "done"

    said = ": clean; it has no checkpoint of its own: there was nothing to cancel"
    assert race_of(at_once, exhaust=1).describe().endswith(said)
    for report in race_of(cleans_up, exhaust=1), race([CANCEL], examples=0, ticks=0):
        assert not report.idle


def test_ignored_kinds_are_no_problems() -> None:
    assert race_of(forgets_finally, ignore={"clean-up"}).problems == ()


# What cannot be raced -----------------------------------------------------------------------------


def test_threads_are_refused() -> None:
    def plain(ctx: Context) -> str:
        return threading.current_thread().name

    async def in_a_thread(ctx: Context) -> str:
        return str(await ctx.run_sync(threading.get_ident))

    with pytest.raises(RaceError, match="tool is a plain def, which runs in a thread"):
        race_of(plain)  # type: ignore[arg-type]
    with pytest.raises(RaceError, match=r"tool works in a thread or a process: .*No mock clock"):
        race_of(in_a_thread)


@pytest.mark.parametrize("wire", ["channel", "http"])
def test_sockets_are_refused(wire: Any) -> None:
    async def listens(ctx: Context) -> str:
        ours, theirs = trio.socket.socketpair()
        with ours, theirs:
            return str(await ours.recv(1))  # here

    with pytest.raises(RaceError, match=r"tool waits for a socket at .*# here.*Mock") as it:
        race_of(listens, wire=wire)
    assert f"test_race_explorer.py:{listens.__code__.co_firstlineno + 3}, in " in str(it.value)


def test_a_handler_that_is_always_busy_is_refused() -> None:
    async def busy(ctx: Context) -> str:
        while True:
            await trio.lowlevel.checkpoint()

    with pytest.raises(RaceError, match="always busy: it has taken 100 steps"):
        race_of(busy, max_steps=100)


def test_what_fails_though_nothing_happens() -> None:
    async def leaves(ctx: Context) -> str:
        held.add("hold")
        return "done"

    with pytest.raises(RaceError, match="tool fails though nothing happens to it: the check"):
        race_of(leaves)


def test_an_exception_though_nothing_happens() -> None:
    async def breaks(ctx: Context) -> str:
        await trio.sleep(1)
        raise RuntimeError("upstream refused")

    line = breaks.__code__.co_firstlineno + 2
    with pytest.raises(RaceError, match="fails though nothing happens to it: RuntimeError: ") as it:
        race_of(breaks)
    assert f"upstream refused ({__file__}:{line})" in str(it.value)


def test_a_tool_that_raises_at_once() -> None:
    async def breaks(ctx: Context) -> str:
        raise RuntimeError("oops")

    with pytest.raises(RaceError, match=r"fails before it awaits: RuntimeError: oops \(.*py:\d+"):
        race_of(breaks)


def test_what_an_order_leaves_behind_stops_the_race() -> None:
    server = Server("raced", version="1")
    server.tool(name="tool")(forgets_finally)
    held.clear()
    report = race(server, "tool", check=lambda: not held, examples=20)
    assert found(report) == {"clean-up": order(CANCEL)}
    assert report.stopped is not None
    assert "reset=" in report.stopped
    with pytest.raises(RaceFailed, match="The race was stopped"):
        report.raise_for_problems()
    held.clear()
    again = race(server, "tool", check=lambda: not held, reset=held.clear, examples=0, ticks=3)
    assert again.stopped is None


def test_what_to_race() -> None:
    server = Server("empty", version="1")
    with pytest.raises(TypeError, match="name what to ask"):
        race(server)
    with pytest.raises(TypeError, match="one tool, of one resource or of one prompt"):
        race(server, "tool", prompt="prompt")
    with pytest.raises(TypeError, match="has no arguments"):
        race(server, resource="shop://hours", arguments={})
    with pytest.raises(RaceError, match=r"the server has no tool 'nothing'; it has none"):
        race(server, "nothing")
    with pytest.raises(TypeError, match=r"by their name: actions=\[…\]"):
        race(server, "tool", list(Action))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="arguments are a mapping"):
        race(server, "tool", ["x"])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="takes a Server or what makes one"):
        race(lambda: 7, "tool")  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="some Actions"):
        race(["cancel"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="takes a Server or what makes one"):
        race([CANCEL], "tool")  # type: ignore[call-overload]


def test_a_name_that_the_server_does_not_have() -> None:
    server = Server("raced", version="1")
    server.tool(name="book")(cleans_up)
    for wire in "channel", "http":
        asked: Any = {"wire": wire}
        with pytest.raises(RaceError, match=r"no tool 'bok'; did you mean 'book'\?"):
            race(server, "bok", **asked)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wire": "HTTP"}, "wire is 'channel' or 'http', not 'HTTP'"),
        ({"wire": ["http"]}, "wire is 'channel' or 'http'"),
        ({"ignore": "clean-up"}, "ignore is to be kinds"),
        ({"ignore": ["clean up"]}, "no kind 'clean up'; did you mean 'clean-up'?"),
        ({"actions": ["cancel"]}, "actions is to be some Actions, as [Action.CANCEL], not ['can"),
        ({"actions": CANCEL}, "actions is to be some Actions"),
        ({"orders": ["cancel"]}, "orders is to be Orders, such as [Order((Step(Action.CANCEL),))]"),
        ({"orders": order(CANCEL)}, "orders is to be Orders"),
        ({"orders": [Order((CANCEL,))]}, "the steps of an order are to be Steps"),  # type: ignore[arg-type]
        ({"orders": [Order((), ("x",))]}, "the turns of an order are to be whole numbers"),  # type: ignore[arg-type]
        ({"check": lambda held: not held}, "check is called without arguments; of <lambda>: "),
        ({"reset": "x"}, "reset is to be a function"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_options_that_make_no_sense(options: Any, said: str) -> None:
    def never() -> Server:
        raise AssertionError

    with pytest.raises(TypeError) as refused:
        race(never, "tool", **options)
    assert said in str(refused.value)


def test_an_order_may_have_a_list_of_steps() -> None:
    kept = Order([Step(CANCEL)])  # type: ignore[arg-type]
    assert found(race_of(forgets_finally, orders=[kept])) == {"clean-up": order(CANCEL)}


def test_a_race_within_a_trio_run() -> None:
    async def test() -> None:
        race([CANCEL])

    with pytest.raises(RaceError, match="call it from a plain def test"):
        trio.run(test)


def test_without_hypothesis_short_orders_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RaceError, match=r"install trio-mcp\[testing\]"):
        race([CANCEL])
    race([CANCEL], examples=0).raise_for_problems()


# Our own handlers ---------------------------------------------------------------------------------


@pytest.fixture
def _stock() -> Iterator[None]:
    before = dict(showroom.copies)
    yield
    showroom.copies.update(before)


SHORT: dict[str, Any] = {"examples": 30, "exhaust": 1, "ticks": 0}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("order_book", {"title": "Dune"}),
        ("ship_order", {"title": "Dune"}),
        ("refund", {"title": "Dune"}),
        ("audit", {}),
    ],
)
def test_the_bookshop(tool: str, arguments: dict[str, str]) -> None:
    race(
        bookshop.server, tool, arguments, check=lambda: not bookshop.holds.total(), **SHORT
    ).raise_for_problems()


@pytest.mark.usefixtures("_stock")
@pytest.mark.parametrize(
    "asked",
    [
        {"resource": "stock://Dune"},
        {"prompt": "recommend", "arguments": {"liked": "Dune"}},
        {"tool": "order", "arguments": {"title": "Ulysses"}},
    ],
    ids=lambda asked: next(iter(asked.values())),
)
def test_the_showroom(asked: dict[str, Any]) -> None:
    stock = dict(showroom.copies)
    race(
        showroom.server,
        **asked,
        check=lambda: not showroom.lights,
        reset=lambda: showroom.copies.update(stock),
        **SHORT,
    ).raise_for_problems()


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"raced_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("echo_server", {"tool": "echo", "arguments": {"text": "ahoy", "times": 3}}),
        ("admission", {"tool": "bake", "arguments": {"name": "guest"}}),
        ("asking_server", {"tool": "order_book", "arguments": {"title": "Dune"}}),
        ("embedded", {"tool": "brew", "arguments": {"seconds": 2}}),
        ("log_messages", {"tool": "count", "arguments": {"shelves": 3}}),
        ("resources_server", {"resource": "stock://all"}),
    ],
    ids=lambda it: it if isinstance(it, str) else next(iter(it.values())),
)
def test_the_examples(name: str, asked: dict[str, Any]) -> None:
    race(example(name).server, **asked, **SHORT).raise_for_problems()
