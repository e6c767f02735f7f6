"""``cancel_sweep``: good handlers pass; each mistake is found, at its checkpoint and its line.

The mistakes are in handlers, and in the runtime: there a method is replaced by one that breaks an
invariant.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib.util
import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
import trio.testing

from trio_mcp import Context, ResourceNotFound, Server, ToolError
from trio_mcp.demo import bookshop, showroom
from trio_mcp.runtime.dispatch import Dispatcher
from trio_mcp.runtime.exchange import Exchange
from trio_mcp.runtime.lifecycle import CancelCause, CancelSource, State
from trio_mcp.testing import CancelSweepFailed, Problem, SweepError, SweepReport, cancel_sweep
from trio_mcp.transports.serving import ServerConnection

ROOT = Path(__file__).parents[1]
Handler = Callable[[Context], Awaitable[str]]

held: set[str] = set()
kept: list[Any] = []
generators: list[Any] = []


def sweep(handler: Handler, **options: Any) -> SweepReport:
    """As a tool of a server, through the runtime."""

    def make() -> Server:
        held.clear()
        server = Server("swept", version="1")
        server.tool(name="tool")(handler)
        return server

    return cancel_sweep(make, "tool", check=lambda: not held, **options)


def found(report: SweepReport) -> list[tuple[str, int, str]]:
    """Kind, checkpoint, and the text of its line."""
    return [
        (problem.kind, problem.checkpoint, problem.place.source if problem.place else "")
        for problem in report.problems
    ]


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    yield
    for one in kept:
        one.close()
    kept.clear()
    generators.clear()


# Good handlers ------------------------------------------------------------------------------------


async def cleans_up(ctx: Context) -> str:
    held.add("hold")
    try:
        await trio.sleep(1)
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


async def gives_up_by_itself(ctx: Context) -> str:
    with trio.move_on_after(1):
        await trio.sleep_forever()
    return "gave up"


async def fails(ctx: Context) -> str:
    await trio.sleep(1)
    raise ToolError("as always")


async def is_endless(ctx: Context) -> str:
    ctx.on_exit(held.discard, "hold")
    held.add("hold")
    await trio.sleep_forever()
    raise AssertionError


async def speaks(ctx: Context) -> str:
    try:
        for step in range(3):
            ctx.progress(step)
            await trio.sleep(1)
    finally:
        ctx.progress(9)
    return "done"


@pytest.mark.parametrize(
    "handler", [cleans_up, has_children, gives_up_by_itself, fails, is_endless, speaks]
)
def test_a_good_handler_has_no_problems(handler: Handler) -> None:
    report = sweep(handler)
    assert report.problems == ()
    assert report.stopped is None
    assert report.checkpoints >= 1
    report.raise_for_problems()


def test_each_checkpoint_is_one_also_those_of_the_clean_up_and_of_the_waiting_answer() -> None:
    report = sweep(cleans_up)
    # sleep, checkpoint, the sleep of the clean-up, the nursery's end, the answer in its queue
    assert report.checkpoints == 5
    assert [one.checkpoint for one in report.late] == [3, 4, 5]
    assert "Late outcomes, which are dropped: at checkpoint 3" in report.describe()


def test_a_late_outcome_is_a_problem_if_it_is_not_allowed() -> None:
    assert found(sweep(cleans_up, allow_late=False)) == [
        ("late outcome", 3, "await trio.sleep(0.1)")
    ]


def test_a_sweep_is_the_same_each_time_and_leaves_chance_alone() -> None:
    chance = trio._core._run._r
    before = chance.getstate()
    random.seed(1)
    reports = [sweep(has_children, seed=7) for _ in range(2)]
    assert reports[0] == reports[1]
    assert chance.getstate() == before


# Mistakes of handlers -----------------------------------------------------------------------------


async def forgets_finally(ctx: Context) -> str:
    held.add("hold")
    await trio.sleep(1)  # here
    held.discard("hold")
    await trio.sleep(1)
    return "done"


async def does_not_shield(ctx: Context) -> str:
    held.add("hold")
    try:
        await trio.sleep(1)  # here
    finally:
        await trio.lowlevel.checkpoint()
        held.discard("hold")
    return "done"


async def takes_too_long(ctx: Context) -> str:
    await trio.sleep(1)
    try:
        await trio.sleep(1)  # here
        return "done"
    except trio.Cancelled:
        with ctx.cleanup(1):
            await trio.sleep(2)
        raise


async def swallows(ctx: Context) -> str:
    await trio.sleep(1)
    try:
        await trio.sleep(1)  # here
    except trio.Cancelled:
        pass
    return "done"


async def swallows_a_group(ctx: Context) -> str:
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)  # here
    except BaseException:
        pass
    return "done"


async def shields_for_ever(ctx: Context) -> str:
    try:
        await trio.sleep(1)  # here
        return "done"
    except trio.Cancelled:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.1)
        raise


async def shields_for_long(ctx: Context) -> str:
    try:
        await trio.sleep(1)  # here
        return "done"
    except trio.Cancelled:
        with trio.move_on_after(61, shield=True):
            await trio.sleep(0.1)
        raise


async def hangs(ctx: Context) -> str:
    try:
        await trio.sleep(1)  # here
        return "done"
    except trio.Cancelled:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()
        raise


async def never_stops(ctx: Context) -> str:
    while True:
        try:
            await trio.sleep(1)  # here
            return "done"
        except trio.Cancelled:
            pass


async def raises_something_else(ctx: Context) -> str:
    try:
        await trio.sleep(1)  # here
        return "done"
    except trio.Cancelled:
        raise ToolError("no time") from None


async def keeps_a_file_open(ctx: Context) -> str:
    file = open(__file__)  # noqa: ASYNC230, SIM115
    kept.append(file)
    await trio.sleep(1)  # here
    file.close()
    return "done"


async def drops_an_open_file(ctx: Context) -> str:
    file = open(__file__)  # noqa: ASYNC230, SIM115
    await trio.sleep(1)  # here
    file.close()
    return "done"


async def drops_a_generator(ctx: Context) -> str:
    numbers = count()
    await anext(numbers)
    await trio.sleep(1)  # here
    await numbers.aclose()
    return "done"


async def keeps_a_generator(ctx: Context) -> str:
    numbers = count()
    generators.append(numbers)
    await anext(numbers)
    await trio.sleep(1)  # here
    await numbers.aclose()
    return "done"


async def count() -> AsyncGenerator[int, None]:
    yield 1
    await trio.sleep(1)
    yield 2


@pytest.mark.parametrize(
    ("handler", "kind", "checkpoint"),
    [
        (forgets_finally, "clean-up skipped", 1),
        (does_not_shield, "clean-up skipped", 1),
        (takes_too_long, "clean-up skipped", 2),
        (swallows, "swallowed", 2),
        (shields_for_ever, "unbounded", 1),
        (shields_for_long, "unbounded", 1),
        (hangs, "unbounded", 1),
        (never_stops, "unbounded", 1),
        (raises_something_else, "raised", 1),
        (keeps_a_file_open, "leaked", 1),
        (drops_an_open_file, "leaked", 1),
    ],
)
def test_a_mistake_is_found_at_its_checkpoint_and_its_line(
    handler: Handler, kind: str, checkpoint: int
) -> None:
    report = sweep(handler, ignore=() if kind != "clean-up skipped" else ("late outcome",))
    (first, *rest) = report.problems
    assert (first.kind, first.checkpoint, first.again) == (kind, checkpoint, None)
    assert first.place is not None
    assert first.place.file == __file__
    assert first.place.function == handler.__name__
    assert first.place.source.endswith("# here")
    assert {one.kind for one in rest} <= {kind}
    with pytest.raises(CancelSweepFailed) as failed:
        report.raise_for_problems()
    assert failed.value.report is report


def test_a_nursery_around_which_a_cancellation_is_swallowed() -> None:
    assert "swallowed" in {problem.kind for problem in sweep(swallows_a_group).problems}


@pytest.mark.parametrize("handler", [drops_a_generator, keeps_a_generator])
def test_a_generator_that_was_not_closed(handler: Handler) -> None:
    report = sweep(handler)
    assert found(report)[0] == ("leaked", 1, "await trio.sleep(1)  # here")
    note = report.problems[0].note
    assert "async generator" in note.lower()
    line = count.__code__.co_firstlineno + 1
    assert f"test_cancel_sweep.py:{line}, in count: yield 1" in note


def test_a_task_that_outlives_its_request() -> None:
    async def spawns(ctx: Context) -> str:
        trio.lowlevel.spawn_system_task(trio.sleep_forever)
        await trio.sleep(1)
        return "done"

    report = sweep(spawns)
    assert [(one.kind, one.checkpoint) for one in report.problems] == [("leaked", 0)]
    assert "even if nobody cancels it" in report.describe()
    note = report.problems[0].note
    assert re.search(r"a task still runs: .*sleep_forever, begun at .*:\d+", note)
    assert sweep(spawns, ignore={"leaked"}).problems == ()


def test_a_task_that_is_left_is_told_with_its_line() -> None:
    async def waits() -> None:
        await trio.sleep_forever()  # here

    async def spawns(ctx: Context) -> str:
        trio.lowlevel.spawn_system_task(waits)
        await trio.sleep(1)
        return "done"

    (problem,) = sweep(spawns).problems
    line = waits.__code__.co_firstlineno + 1
    assert f"test_cancel_sweep.py:{line}, in " in problem.note
    assert problem.note.endswith("await trio.sleep_forever()  # here")


async def returns_before_its_child(ctx: Context) -> str:
    async def child() -> None:
        held.add("hold")
        await trio.sleep(1)  # child
        held.discard("hold")

    ctx.nursery.start_soon(child)
    return "done"


async def has_a_child_of_trios(ctx: Context) -> str:
    held.add("hold")
    async with trio.open_nursery() as nursery:  # here
        nursery.start_soon(trio.sleep, 1)
    held.discard("hold")
    return "done"


def test_a_child_is_named_while_the_handler_waits_for_it() -> None:
    report = sweep(returns_before_its_child, ignore={"late outcome"})
    assert found(report) == [
        ("clean-up skipped", 1, "async def child() -> None:"),  # it has not begun
        ("clean-up skipped", 2, "await trio.sleep(1)  # child"),
    ]
    assert "in the runtime" not in report.describe()


def test_a_child_without_source_is_in_its_nursery() -> None:
    report = sweep(has_a_child_of_trios)
    line = "async with trio.open_nursery() as nursery:  # here"
    assert found(report) == [("clean-up skipped", 1, line), ("clean-up skipped", 2, line)]


def test_a_child_without_source_in_the_requests_nursery_is_where_it_is() -> None:
    async def starts_trios(ctx: Context) -> str:
        held.add("hold")
        ctx.nursery.start_soon(trio.sleep, 1)
        ctx.on_exit(lambda: held.clear() if trio.current_time() >= 1 else None)
        return "done"

    places = [problem.place for problem in sweep(starts_trios).problems]
    assert [place.function if place else None for place in places] == ["sleep", "sleep"]


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


def test_invariant_2_a_reply_that_ignores_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(self: ServerConnection, exchange: Exchange) -> None:
        self._channel.put(Unguarded(exchange))

    monkeypatch.setattr(ServerConnection, "finish", finish)
    report = sweep(cleans_up)
    assert found(report) == [("spoke", 5, "")]  # where the answer waits to be written
    assert '"result"' in report.problems[0].note


def test_invariant_2_progress_after_the_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exchange, "speaking", property(lambda self: True))
    monkeypatch.setattr(Exchange, "report", _report_regardless)
    report = sweep(speaks)
    assert ("spoke", 2, "await trio.sleep(1)") in found(report)


def _report_regardless(self: Exchange, update: Any) -> None:
    from trio_mcp.runtime.progress import ProgressReporter

    if self.progress is None:
        self.progress = ProgressReporter(self)
    self.progress.report(update)


def test_a_scope_that_is_not_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    def cancel(self: Exchange, source: CancelSource, reason: str | None = None) -> bool:
        return self.begin_cancel(CancelCause(source, reason, trio.current_time()))

    monkeypatch.setattr(Exchange, "cancel", cancel)
    report = sweep(gives_up_by_itself)
    kind, checkpoint, source = found(report)[0]
    assert (kind, checkpoint, source) == ("unbounded", 1, "await trio.sleep_forever()")
    assert "has not reached it" in report.problems[0].note


def test_invariant_4_a_request_that_is_never_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dispatcher, "close", lambda self, exchange: None)
    report = sweep(gives_up_by_itself)
    assert {kind for kind, *_ in found(report)} == {"leaked"}
    assert "in flight" in report.problems[0].note


def test_invariant_7_a_second_cause_that_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a shutdown in the middle of clean-up shows it."""
    really = Exchange.cancel

    def cancel(self: Exchange, source: CancelSource, reason: str | None = None) -> bool:
        if self.state is State.CANCELLING:
            self.cause = CancelCause(source, reason, trio.current_time())
            self.silenced = False
        return really(self, source, reason)

    monkeypatch.setattr(Exchange, "cancel", cancel)
    report = sweep(cleans_up)
    assert ("spoke", 1, "await trio.sleep(1)") in found(report)
    assert {one.again for one in report.problems} == {
        "the server shuts down, its drain limit passed"
    }
    assert sweep(cleans_up, twice=False).problems == ()


# Functions without a server -----------------------------------------------------------------------


def test_an_async_function_on_its_own() -> None:
    async def good() -> None:
        held.add("hold")
        try:
            await trio.sleep(1)
        finally:
            with trio.move_on_after(5, shield=True):
                await trio.sleep(0.1)
            held.discard("hold")

    report = cancel_sweep(good, check=lambda: not held)
    assert report.problems == ()
    assert (report.name, report.checkpoints) == ("good", 2)


def test_a_function_that_makes_handler_and_check() -> None:
    def make() -> tuple[Callable[[], Awaitable[None]], Callable[[], bool]]:
        holds: set[str] = set()

        async def bad() -> None:
            holds.add("hold")
            await trio.sleep(1)  # here
            holds.clear()

        return bad, lambda: not holds

    report = cancel_sweep(make)
    assert found(report) == [("clean-up skipped", 1, "await trio.sleep(1)  # here")]
    assert report.stopped is None


def test_a_function_that_swallows_and_one_that_raises() -> None:
    async def swallower() -> str:
        with contextlib.suppress(trio.Cancelled):
            await trio.sleep(1)  # here
        return "done"

    async def raiser() -> None:
        try:
            await trio.sleep(1)  # here
        except trio.Cancelled:
            raise OSError("gone") from None

    assert found(cancel_sweep(swallower)) == [("swallowed", 1, "await trio.sleep(1)  # here")]
    report = cancel_sweep(raiser)
    assert found(report) == [("raised", 1, "await trio.sleep(1)  # here")]
    assert "OSError: gone" in report.problems[0].note


def test_the_check_may_be_async_and_assert() -> None:
    async def leaves() -> None:
        held.add("hold")
        await trio.sleep(1)
        held.discard("hold")

    async def nothing_held() -> None:
        await trio.lowlevel.checkpoint()
        assert not held, "something is held"

    report = cancel_sweep(leaves, check=nothing_held, reset=held.clear)
    assert [one.kind for one in report.problems] == ["clean-up skipped"]
    assert "something is held" in report.problems[0].note


def test_what_a_run_leaves_behind_stops_the_sweep() -> None:
    held.clear()

    async def leaves() -> None:
        held.add("hold")
        await trio.sleep(1)
        await trio.sleep(1)
        held.discard("hold")

    report = cancel_sweep(leaves, check=lambda: not held)
    assert [one.checkpoint for one in report.problems] == [1]
    assert report.stopped is not None
    assert "reset=" in report.stopped
    assert [
        one.checkpoint
        for one in cancel_sweep(leaves, check=lambda: not held, reset=held.clear).problems
    ] == [1, 2]


# What cannot be swept -----------------------------------------------------------------------------


def test_threads_are_refused() -> None:
    def plain(ctx: Context) -> str:
        return threading.current_thread().name

    async def in_a_thread() -> None:
        await trio.to_thread.run_sync(threading.get_ident)

    async def asks_a_thread(ctx: Context) -> str:
        return str(await ctx.run_sync(threading.get_ident))

    def place_of(function: Any, lines_below: int = 0) -> str:
        line = function.__code__.co_firstlineno + lines_below
        return re.escape(f"test_cancel_sweep.py:{line}, in {function.__qualname__}")

    with pytest.raises(SweepError, match=f"tool is a plain def, .*{place_of(plain)}"):
        sweep(plain)  # type: ignore[arg-type]
    partial = functools.partial(plain)
    with pytest.raises(SweepError, match=f"tool is a plain def, .*{place_of(plain)}"):
        sweep(partial)  # type: ignore[arg-type]
    with pytest.raises(
        SweepError, match=f"in_a_thread works in a thread .*{place_of(in_a_thread, 1)}"
    ):
        cancel_sweep(in_a_thread)
    with pytest.raises(SweepError, match=f"tool works in .*{place_of(asks_a_thread, 1)}"):
        sweep(asks_a_thread)


def test_sockets_are_refused() -> None:
    async def listens() -> bytes:
        ours, theirs = trio.socket.socketpair()
        with ours, theirs:
            return await ours.recv(1)  # here

    async def tool(ctx: Context) -> str:
        return str(await listens())

    line = listens.__code__.co_firstlineno + 3
    alone, asked = functools.partial(cancel_sweep, listens), functools.partial(sweep, tool)
    for refused in (alone, asked):
        with pytest.raises(SweepError, match=r"waits for a socket at .*# here.*Mock") as it:
            refused()
        assert f"test_cancel_sweep.py:{line}, in " in str(it.value)


def test_a_client_of_httpx2_is_refused_where_the_handler_awaits_it() -> None:
    async def asks(host: str, port: int) -> str:
        async with httpx2.AsyncClient() as client:
            return (await client.get(f"http://{host}:{port}/")).text  # here

    with socket.create_server(("127.0.0.1", 0)) as listener:
        for host in "127.0.0.1", "localhost":
            asked = functools.partial(asks, host, listener.getsockname()[1])
            with pytest.raises(SweepError, match=r"waits for a socket at .*test_cancel_.*# here"):
                cancel_sweep(asked)


def test_a_directory_is_read_in_a_thread_of_the_runtimes_own(tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text("hm")
    server = Server("files", version="1")
    server.add_directory(tmp_path, uri="files:///")
    with pytest.raises(SweepError, match="works in a thread or a process of the runtime's own"):
        cancel_sweep(server, resource="files:///page.txt")


def test_too_many_checkpoints_are_refused() -> None:
    async def long() -> None:
        for _ in range(20):
            await trio.lowlevel.checkpoint()

    assert cancel_sweep(long, max_checkpoints=20).checkpoints == 20
    with pytest.raises(SweepError, match="more than 19 checkpoints"):
        cancel_sweep(long, max_checkpoints=19)


def test_runs_that_differ_are_told() -> None:
    lengths = iter([5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1])

    async def shrinks() -> None:
        for _ in range(next(lengths)):
            await trio.lowlevel.checkpoint()

    report = cancel_sweep(shrinks, twice=False)
    assert report.stopped is not None
    assert "its runs differ" in report.stopped


def test_what_fails_though_nobody_cancels_it() -> None:
    async def wrong() -> None:
        await trio.sleep(1)
        raise KeyError("wrong")

    async def leaves() -> None:
        held.add("hold")
        await trio.sleep(1)

    with pytest.raises(KeyError, match="wrong"):
        cancel_sweep(wrong)
    with pytest.raises(SweepError, match="leaves fails though nobody cancels it"):
        cancel_sweep(leaves, check=lambda: not held, reset=held.clear)


def test_an_exception_that_is_no_outcome_though_nobody_cancels_it() -> None:
    async def breaks(ctx: Context) -> str:
        await trio.sleep(1)
        raise RuntimeError("upstream refused")

    line = breaks.__code__.co_firstlineno + 2
    with pytest.raises(SweepError, match="tool fails though nobody cancels it: RuntimeErr") as it:
        sweep(breaks)
    assert f"RuntimeError: upstream refused ({__file__}:{line})" in str(it.value)


def test_an_exception_is_said_with_the_handlers_own_line() -> None:
    async def asks_wrongly(ctx: Context) -> str:
        await trio.sleep(1)
        return str(int.from_bytes(base64.b64decode("x"), "big"))

    line = asks_wrongly.__code__.co_firstlineno + 2
    with pytest.raises(SweepError, match=f"Error: .*{re.escape(f'{__file__}:{line}')}"):
        sweep(asks_wrongly)


def test_a_sweep_within_a_trio_run() -> None:
    async def test() -> None:
        cancel_sweep(trio.lowlevel.checkpoint)

    with pytest.raises(SweepError, match="call it from a plain def test"):
        trio.run(test)


def test_what_is_no_async_function() -> None:
    def plain() -> str:
        return "done"

    async def takes(title: str) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match=r"plain is to be an async function, .* returned 'done'"):
        cancel_sweep(plain)
    with pytest.raises(TypeError, match="called without arguments; of takes: missing"):
        cancel_sweep(takes)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name what to ask the server for: a tool"):
        cancel_sweep(offering)


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

    with pytest.raises(SweepError, match=r"check is not true: .*block, or on_exit, ran into"):
        sweep(slow)


def test_what_to_ask_the_server_for() -> None:
    server = Server("empty", version="1")
    with pytest.raises(TypeError, match="name what to ask"):
        cancel_sweep(server)
    with pytest.raises(TypeError, match="one tool, of one resource or of one prompt"):
        cancel_sweep(server, "tool", prompt="prompt")
    with pytest.raises(TypeError, match="has no arguments"):
        cancel_sweep(server, resource="shop://hours", arguments={})
    with pytest.raises(TypeError, match="named by a text, not 7"):
        cancel_sweep(server, 7)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="arguments are a mapping"):
        cancel_sweep(server, "tool", "x")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"the arguments for tool are no JSON: .*object"):
        cancel_sweep(server, "tool", {"of": object()})
    with pytest.raises(TypeError, match="takes a Server or what makes one"):
        cancel_sweep(lambda: 7, "tool")  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="async function"):
        cancel_sweep(7)  # type: ignore[call-overload]


def offering() -> Server:
    server = Server("shop", version="1")

    @server.tool
    async def order(title: str, count: int = 1) -> str:
        await trio.sleep(1)
        return "ordered"

    @server.tool
    async def refund(title: str) -> str:
        raise ToolError("no refunds")

    @server.tool
    async def breaks() -> str:
        raise ValueError("oops")

    @server.prompt
    async def recommend(liked: str) -> str:
        await trio.sleep(1)
        return "hm"

    @server.resource("stock://{title}")
    async def stock(title: str) -> str:
        if title == "nothing":
            raise ResourceNotFound
        await trio.sleep(1)
        return "7"

    return server


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"tool": "ordr"}, "no tool 'ordr'; did you mean 'order'? There is 'order', 'refund', "),
        ({"prompt": "order"}, "the server has no prompt 'order'; there is 'recommend'"),
        ({"resource": "stok://Dune"}, "no resource 'stok://Dune'; did you mean 'stock://{title}'?"),
        ({"resource": "stock://nothing"}, "has no resource 'stock://nothing'; "),
        (
            {"tool": "order", "arguments": {"titel": "Dune"}},
            'order, called with {"titel":"Dune"}, fails before it awaits: 2 problems:\n'
            "- unknown argument 'titel' (known: title, count)\n"
            "- missing required argument 'title' (string)",
        ),
        ({"prompt": "recommend"}, "missing required argument 'liked'"),
        ({"tool": "refund", "arguments": {"title": "Dune"}}, "before it awaits: no refunds"),
        ({"tool": "breaks"}, "before it awaits: ValueError: oops (" + __file__),
    ],
    ids=lambda it: next(iter(it.values())) if isinstance(it, dict) else "",
)
def test_a_request_that_is_refused_says_what_would_be_right(asked: Any, said: str) -> None:
    for target in (offering, offering()):
        with pytest.raises(SweepError) as refused:
            cancel_sweep(target, **asked)
        assert said in str(refused.value)
        assert "jsonrpc" not in str(refused.value)


def test_a_server_without_any() -> None:
    server = Server("empty", version="1")
    for kind in ("tool", "prompt", "resource"):
        with pytest.raises(SweepError, match=f"the server has no {kind} 'x://y'; it has none"):
            cancel_sweep(server, **{kind: "x://y"})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"check": "x"}, "check is to be a function without parameters, not 'x'"),
        ({"check": lambda held: not held}, "check is called without arguments; of <lambda>: "),
        ({"reset": {}}, "reset is to be a function"),
        ({"bound": 0}, "bound is to be seconds, more than 0, not 0"),
        ({"longest": None}, "longest is to be seconds"),
        ({"twice": "no"}, "twice is to be True or False"),
        ({"allow_late": 1}, "allow_late is to be True or False"),
        ({"ignore": "leaked"}, "ignore is to be kinds"),
        ({"ignore": ["leakd"]}, "no kind 'leakd'; did you mean 'leaked'?"),
        ({"max_checkpoints": 0}, "max_checkpoints is to be a whole number from 1 on"),
        ({"seed": "x"}, "seed is to be a whole number"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_options_that_make_no_sense(options: Any, said: str) -> None:
    async def never() -> None:
        raise AssertionError

    with pytest.raises(TypeError) as refused:
        cancel_sweep(never, **options)
    assert said in str(refused.value)


def test_a_check_that_was_made_with_its_target_is_one() -> None:
    with pytest.raises(TypeError, match="the check that was made with it is to be a function"):
        cancel_sweep(lambda: (offering(), "x"), "order")  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="returns it, or it and its check"):
        cancel_sweep(lambda: (offering(), None, None))


# The report ---------------------------------------------------------------------------------------


def test_a_report_shows_the_source_and_marks_the_line() -> None:
    lines = sweep(forgets_finally).describe().splitlines()
    assert lines[0].startswith("tool: cancelled at 4 checkpoints in ")
    assert lines[0].endswith(" runs: 1 problem")
    assert lines[2] == "1. clean-up skipped, when cancelled at checkpoint 1"
    assert "test_cancel_sweep.py:" in lines[3]
    (marked,) = [line for line in lines if line.startswith("   > ")]
    assert marked.endswith("await trio.sleep(1)  # here")
    assert "the check is not true: " in lines[-1]


def test_a_handler_without_a_checkpoint_had_nothing_to_cancel() -> None:
    async def at_once(ctx: Context) -> str:
        return "done"

    async def alone() -> None:
        pass

    async def starts_trios(ctx: Context) -> str:
        ctx.nursery.start_soon(trio.sleep, 1)
        return "done"

    for report in sweep(at_once), cancel_sweep(alone):
        assert report.idle
        assert report.describe().endswith(
            ": clean; it has no checkpoint of its own: there was nothing to cancel"
        )
    for report in sweep(starts_trios), cancel_sweep(trio.lowlevel.checkpoint), sweep(cleans_up):
        assert not report.idle
        assert "nothing to cancel" not in report.describe()


def test_a_line_in_a_loop_is_one_block() -> None:
    async def loops(ctx: Context) -> str:
        held.add("hold")
        for _ in range(3):
            await trio.sleep(1)
        held.discard("hold")
        return "done"

    report = sweep(loops)
    assert [one.checkpoint for one in report.problems] == [1, 2, 3]
    assert "1. clean-up skipped, when cancelled at checkpoints 1, 2, 3\n" in report.describe()
    assert "2. " not in report.describe()


def test_problems_are_plain_data() -> None:
    (problem,) = sweep(forgets_finally).problems
    assert problem == Problem(
        problem.kind, problem.checkpoint, problem.place, problem.note, problem.again
    )
    assert hash(problem) == hash(problem)


# Our own handlers ---------------------------------------------------------------------------------


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"swept_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("order_book", {"title": "Dune"}),
        ("order_book", {"title": "Dune", "pay_by": "transfer"}),
        ("ship_order", {"title": "Dune"}),
        ("refund", {"title": "Dune"}),
        ("refund", {"title": "Dune", "receipt": "7"}),
        ("audit", {}),
    ],
)
def test_the_bookshop(tool: str, arguments: dict[str, str]) -> None:
    report = cancel_sweep(
        bookshop.server, tool, arguments, check=lambda: not bookshop.holds.total()
    )
    report.raise_for_problems()
    assert report.checkpoints >= 2


@pytest.mark.parametrize(
    "asked",
    [
        {"resource": "stock://Dune"},
        {"resource": "catalogue://1900"},
        {"resource": "shop://cellar"},
        {"prompt": "recommend", "arguments": {"liked": "Dune"}},
        {"tool": "order", "arguments": {"title": "Ulysses"}},
        {"tool": "look_up", "arguments": {"target": "nothing"}},
    ],
    ids=lambda asked: next(iter(asked.values())),
)
def test_the_showroom(asked: dict[str, Any]) -> None:
    stock = dict(showroom.copies)
    report = cancel_sweep(
        showroom.server,
        **asked,
        check=lambda: not showroom.lights,
        reset=lambda: showroom.copies.update(stock),
    )
    report.raise_for_problems()


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("echo_server", {"tool": "echo", "arguments": {"text": "ahoy", "times": 3}}),
        ("admission", {"tool": "bake", "arguments": {"name": "guest"}}),
        ("asking_server", {"tool": "order_book", "arguments": {"title": "Dune"}}),
        ("cancellation", {"tool": "tool"}),
        ("cancellation", {"resource": "slow://resource"}),
        ("cancellation", {"prompt": "prompt", "arguments": {"word": "hm"}}),
        ("cancellation", {"tool": "question"}),
        ("embedded", {"tool": "brew", "arguments": {"seconds": 2}}),
        ("headers", {"tool": "query", "arguments": {"sql": "SELECT 1"}}),
        ("log_messages", {"tool": "count", "arguments": {"shelves": 3}}),
        ("paying", {"tool": "buy", "arguments": {"title": "Dune"}}),
        ("prompts_server", {"prompt": "recommend", "arguments": {"genre": "crime"}}),
        ("resources_server", {"resource": "report://year"}),
        ("resources_server", {"resource": "stock://all"}),
    ],
    ids=lambda it: it if isinstance(it, str) else next(iter(it.values())),
)
def test_the_examples(name: str, asked: dict[str, Any]) -> None:
    cancel_sweep(example(name).server, **asked).raise_for_problems()


def test_the_example_of_the_operator() -> None:
    operating = example("operating")
    report = cancel_sweep(
        operating.server,
        "scan",
        {"room": "attic", "seconds": 2},
        check=lambda: not operating.rooms,
    )
    report.raise_for_problems()


# pytest -------------------------------------------------------------------------------------------

MARKED = """
import pytest
import trio


@pytest.fixture
def holds():
    return set()


@pytest.fixture
async def alive():
    yield 1


@pytest.mark.cancel_sweep(check=lambda holds: not holds)
async def test_good(holds):
    holds.add(1)
    try:
        await trio.sleep(1)
    finally:
        holds.clear()


@pytest.mark.cancel_sweep(check=lambda holds: not holds, reset=lambda holds: holds.clear())
async def test_bad(holds):
    holds.add(1)
    await trio.sleep(1)  # here
    holds.clear()


@pytest.mark.cancel_sweep
@pytest.mark.trio
async def test_wrong():
    await trio.sleep(1)
    assert 1 == 2


@pytest.mark.cancel_sweep
async def test_skipped():
    await trio.sleep(1)
    pytest.skip("not today")


@pytest.mark.cancel_sweep
async def test_one_run(alive):
    await trio.sleep(1)


@pytest.mark.cancel_sweep
async def test_clock(autojump_clock):
    await trio.sleep(1)


@pytest.mark.cancel_sweep
def test_plain():
    pass


@pytest.mark.cancel_sweep(chekc=1)
async def test_misspelt():
    await trio.sleep(1)


@pytest.mark.cancel_sweep(check="x")
async def test_no_check():
    await trio.sleep(1)


@pytest.mark.cancel_sweep(check=lambda nothing: True)
async def test_no_fixture():
    await trio.sleep(1)


@pytest.mark.cancel_sweep(check=lambda: True)
async def test_type_error():
    await trio.sleep("x")


class TestMethods:
    @pytest.mark.cancel_sweep
    @pytest.mark.parametrize("seconds", [1, 2])
    async def test_method(self, seconds):
        await trio.sleep(seconds)


async def test_without_a_mark(autojump_clock):
    await trio.sleep(1000)
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_trio_mcp"),
            *("-p", "pytest_trio.plugin", "--strict-markers", "-W", "error", "-rA", *options),
        ],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("-p", "xdist.plugin", "-n", "2")], ids=["alone", "xdist"])
def test_the_mark_of_pytest(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    (tmp_path / "test_marked.py").write_text(MARKED)
    ran = run_pytest(tmp_path, *options)
    assert "9 failed, 4 passed, 1 skipped" in ran.stdout, ran.stdout
    for passed in ("good", "method[1]", "method[2]", "without_a_mark"):
        assert (
            f"PASSED test_marked.py::{'TestMethods::' * ('[' in passed)}test_{passed}" in ran.stdout
        )
    assert "test_bad: cancelled at 1 checkpoint in" in ran.stdout
    assert re.search(r"> +\d+      await trio.sleep\(1\)  # here\n", ran.stdout)
    assert "lambda holds: not holds" in ran.stdout
    assert "assert 1 == 2" in ran.stdout
    assert "'alive' lives in one Trio run" in ran.stdout
    assert "'autojump_clock' is a clock" in ran.stdout
    assert "cancel_sweep is for an async test function" in ran.stdout
    assert "there is no option 'chekc'; did you mean 'check'?" in ran.stdout
    assert "check is to be a function without parameters, not 'x'" in ran.stdout
    assert "check wants nothing: no fixture of this test" in ran.stdout
    assert "options.py" not in ran.stdout
    assert "TypeError" in ran.stdout  # that of the test itself


def test_who_does_not_use_the_mark_does_not_pay_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_other():\n"
        "    assert 'trio_mcp' not in sys.modules\n    assert 'pytest_trio_mcp' in sys.modules\n"
    )
    ran = run_pytest(tmp_path)
    assert "1 passed" in ran.stdout, ran.stdout


def test_nothing_for_tests_is_imported_by_the_library_itself() -> None:
    code = (
        "import sys, trio_mcp\n"
        "assert not [name for name in sys.modules if name.startswith('trio_mcp.testing')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
