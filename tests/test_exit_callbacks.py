"""``ctx.on_exit``: called once, the last first, whatever happens, before the answer leaves."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.peers.inspection import offloaded
from tests.peers.raw import RawPeer, call, cancel, raw_client, text_of, until
from tests.peers.raw_http import HttpPeer, post
from tests.test_races import ScriptedWire

from trio_mcp import (
    CancelSource,
    Context,
    ErrorCode,
    Limits,
    Record,
    Server,
    State,
    ToolError,
)


class Site:
    """A server whose tools undo what they did in exit callbacks."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.server = Server("exits", version="1", limits=limits or Limits(cleanup=5, drain=1))
        self.undone: list[Any] = []
        self.gate = threading.Event()
        for tool in (self.returns, self.fails, self.asks, self.never, self.parent, self.thread):
            self.server.tool(tool)
        self.server.tool(timeout=2)(self.limited)

    def undo(self, what: str) -> None:
        self.undone.append(what)

    async def undo_slowly(self, what: str, seconds: float = 1) -> None:
        await trio.sleep(seconds)
        self.undone.append(what)

    def register(self, ctx: Context) -> None:
        ctx.on_exit(self.undo, "first")
        ctx.on_exit(self.undo_slowly, "second")

    async def returns(self, ctx: Context) -> str:
        self.register(ctx)
        return "done"

    async def fails(self, ctx: Context) -> str:
        self.register(ctx)
        raise ToolError("closed")

    async def asks(self, ctx: Context) -> str:
        self.register(ctx)
        return (await ctx.elicit("name", "Who?", {"type": "object", "properties": {}})).action

    async def never(self, ctx: Context) -> None:
        self.register(ctx)
        await trio.sleep_forever()

    async def limited(self, ctx: Context) -> None:
        await self.never(ctx)

    async def parent(self, ctx: Context) -> str:
        async def child() -> None:
            try:
                await trio.sleep(3)
            finally:
                self.undone.append("child")

        self.register(ctx)
        ctx.nursery.start_soon(child)
        return "done"

    def thread(self, ctx: Context) -> str:
        self.register(ctx)
        assert self.gate.wait(10)
        return "done"

    @property
    def record(self) -> Record:
        return list(self.server.journal)[-1]


def with_tool(site: Site, tool: Callable[..., Any]) -> Site:
    site.server.tool(name="tool")(tool)
    return site


@asynccontextmanager
async def served(site: Site) -> AsyncGenerator[RawPeer, None]:
    """A peer of it; in the end each request has a record, and nothing is left."""
    async with raw_client(site.server) as peer:
        yield peer
    assert site.server._core.inflight == 0


# However it ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["returns", "fails", "asks"])
async def test_the_answer_leaves_when_all_has_been_undone(
    tool: str, autojump_clock: trio.testing.MockClock
) -> None:
    site = Site()
    async with served(site) as peer:
        message = call(1, tool)
        capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
        message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities
        await peer.send(message)
        answer = await peer.answer(1)
        assert trio.current_time() == pytest.approx(1, abs=0.1)
        assert site.undone == ["second", "first"]
        if tool == "asks":
            assert answer["result"]["resultType"] == "input_required"
        else:
            assert text_of(answer) == {"returns": "done", "fails": "closed"}[tool]
    assert site.record.cleanup is None
    assert site.record.cleanups == 1


@pytest.mark.parametrize("how", ["peer", "deadline", "drain", "hang up"])
async def test_whoever_cancels_stopped_means_undone(
    how: str, autojump_clock: trio.testing.MockClock
) -> None:
    site = Site()
    ours, theirs = trio.testing.memory_stream_pair()
    peer, scope = RawPeer(ours, ours), trio.CancelScope()

    async def serve() -> None:
        with scope:
            await site.server.serve_stream(theirs)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await peer.send(call(1, "limited" if how == "deadline" else "never"))
        await trio.testing.wait_all_tasks_blocked()
        if how == "peer":
            await peer.send(cancel(1))
            await until(lambda: len(site.server.journal))
        elif how == "drain":
            scope.cancel()
        if how in ("deadline", "drain"):
            assert "error" in await peer.answer(1)
            assert site.undone == ["second", "first"]
        await ours.aclose()
    assert site.undone == ["second", "first"]
    record = site.record
    assert record.state is State.CANCELLED
    assert record.cleanup == "clean"
    assert record.cleanup_duration == pytest.approx(1, abs=0.01)


async def test_invariant_10_also_when_the_connection_is_torn_down_from_outside() -> None:
    """The task of the exchange itself is cancelled, as no transport does it."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    site = Site()

    async def main() -> None:
        wire = ScriptedWire()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(site.server.serve_wire, wire)
            wire.feed(call(1, "never"))
            await trio.testing.wait_all_tasks_blocked()
            (connection,) = site.server._core.connections
            connection._nursery.cancel_scope.cancel()  # type: ignore[attr-defined]
        assert trio.current_time() == pytest.approx(1, abs=0.1)

    await trio.to_thread.run_sync(lambda: trio.run(main, clock=clock))
    assert site.undone == ["second", "first"]
    assert site.record.cleanup == "clean"
    assert site.record.state is State.CANCELLED


async def test_children_have_ended_before(autojump_clock: trio.testing.MockClock) -> None:
    site = Site()
    async with served(site) as peer:
        await peer.send(call(1, "parent"))
        assert text_of(await peer.answer(1)) == "done"
    assert site.undone == ["child", "second", "first"]


@pytest.mark.parametrize("tool", ["returns", "never"])
async def test_over_http_nothing_is_said_before_and_a_client_that_leaves_changes_nothing(
    tool: str,
) -> None:
    site = Site()
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(site.server.serve_http, port=0))
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(post(call(1, tool)))
        if tool == "returns":
            response = await HttpPeer(stream).response()
            assert text_of(response.json) == "done"
            assert site.undone == ["second", "first"]
        else:
            await until(lambda: len(site.server.inflight()) == 1)
            await until(lambda: site.server.inflight()[0].phase == "working")
        await stream.aclose()
        await until(lambda: len(site.server.journal))
        assert site.undone == ["second", "first"]
        nursery.cancel_scope.cancel()
    assert site.record.state is (State.COMPLETED if tool == "returns" else State.CANCELLED)


# Cancelled while they run -------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["peer", "operator"])
async def test_a_cancellation_while_they_run_wins_and_they_run_on(
    how: str, autojump_clock: trio.testing.MockClock
) -> None:
    site = Site()
    async with served(site) as peer:
        await peer.send(call(1, "returns"))
        await trio.sleep(0.5)
        if how == "peer":
            await peer.send(cancel(1))
            await until(lambda: len(site.server.journal))
        else:
            (exchange,) = site.server._core.connections.copy().pop()._exchanges.values()  # type: ignore[attr-defined]
            assert exchange.cancel(CancelSource.OPERATOR)
            answer = await peer.answer(1)
            assert answer["error"]["code"] == ErrorCode.CANCELLED_BY_OPERATOR
        assert site.undone == ["second", "first"]
    record = site.record
    assert record.state is State.CANCELLED
    assert [late.kind for late in record.late] == ["result"]
    assert record.cleanup == "clean"


@pytest.mark.parametrize("after", range(8))
async def test_invariants_2_4_a_cancel_at_any_step(after: int) -> None:
    """After so many turns of the scheduler: nothing is said, and all is undone once."""
    site, wire = Site(), ScriptedWire()

    async def turns(ctx: Context) -> str:
        ctx.on_exit(site.undo, "a")
        ctx.on_exit(trio.lowlevel.checkpoint)
        ctx.on_exit(site.undo, "b")
        await trio.lowlevel.checkpoint()
        return "done"

    with_tool(site, turns)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.server.serve_wire, wire)
        await trio.testing.wait_all_tasks_blocked()
        wire.feed(call(1, "tool"))
        for _ in range(after):
            await trio.lowlevel.checkpoint()
        wire.feed(cancel(1))
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    assert site.undone in ([], ["b", "a"])
    read = [what for what, message in wire.log]
    if "written" in read:
        assert site.record.state is State.COMPLETED
    else:
        assert site.record.state is State.CANCELLED
    assert site.undone or site.record.started_at is None


# Failures and bounds ------------------------------------------------------------------------------


async def test_one_that_fails_keeps_none_from_running_and_changes_no_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()

    def breaks(error: BaseException) -> None:
        raise error

    async def failing(ctx: Context) -> str:
        ctx.on_exit(site.undo, "first")
        ctx.on_exit(breaks, OSError("the disk is full"))
        ctx.on_exit(breaks, SystemExit(3))
        ctx.on_exit(site.undo, "last")
        return "done"

    async with served(with_tool(site, failing)) as peer:
        await peer.send(call(1, "tool"))
        assert text_of(await peer.answer(1)) == "done"
    assert site.undone == ["last", "first"]
    assert site.record.state is State.COMPLETED
    assert site.record.cleanup == "error"
    assert "clean-up error" in site.record.describe()
    assert " in 0" not in site.record.describe()
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == 2
    assert "the disk is full" in caplog.text


async def test_they_have_one_bound_together_and_all_are_called(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(Limits(cleanup=2))

    async def slow(ctx: Context) -> str:
        ctx.on_exit(site.undo_slowly, "too late", 1)
        ctx.on_exit(site.undo, "plain")
        ctx.on_exit(trio.sleep, 100)
        ctx.on_exit(site.undo_slowly, "in time", 1.5)
        return "done"

    async with served(with_tool(site, slow)) as peer:
        await peer.send(call(1, "tool"))
        assert text_of(await peer.answer(1)) == "done"
        assert trio.current_time() == pytest.approx(2, abs=0.1)
    assert site.undone == ["in time", "plain"]
    assert site.record.cleanup == "timed out"
    assert caplog.text.count("was stopped: all of them have 2 s") == 2


async def test_the_worst_of_them_is_recorded(autojump_clock: trio.testing.MockClock) -> None:
    site = Site(Limits(cleanup=2))

    def breaks() -> None:
        raise OSError

    async def work(ctx: Context) -> str:
        ctx.on_exit(breaks)
        ctx.on_exit(trio.sleep, 100)
        ctx.on_exit(breaks)
        return "done"

    async with served(with_tool(site, work)) as peer:
        await peer.send(call(1, "tool"))
        await peer.answer(1)
    assert site.record.cleanup == "timed out"


async def test_a_keyboard_interrupt_in_one_goes_on_after_all_have_run() -> None:
    site, wire = Site(), ScriptedWire()

    def interrupted() -> None:
        raise KeyboardInterrupt

    async def work(ctx: Context) -> str:
        ctx.on_exit(site.undo, "first")
        ctx.on_exit(interrupted)
        ctx.on_exit(site.undo, "last")
        return "done"

    wire.feed(call(1, "tool"))
    with pytest.raises(KeyboardInterrupt), trio.fail_after(5):
        await with_tool(site, work).server.serve_wire(wire)
    assert site.undone == ["last", "first"]
    assert "written" not in [what for what, _ in wire.log]


async def test_what_is_added_by_one_of_them_runs_next() -> None:
    site = Site()

    async def nested(ctx: Context) -> str:
        ctx.on_exit(site.undo, "last")
        ctx.on_exit(ctx.on_exit, site.undo, "added")
        return "done"

    async with served(with_tool(site, nested)) as peer:
        await peer.send(call(1, "tool"))
        await peer.answer(1)
    assert site.undone == ["added", "last"]


@pytest.mark.parametrize("had_some", [True, False])
async def test_afterwards_it_is_too_late(had_some: bool) -> None:
    site = Site()
    kept: list[Context] = []

    async def keeps(ctx: Context) -> str:
        kept.append(ctx)
        if had_some:
            ctx.on_exit(site.undo, "x")
        with pytest.raises(TypeError, match="takes a function"):
            ctx.on_exit("x")  # type: ignore[arg-type]
        return "done"

    async with served(with_tool(site, keeps)) as peer:
        await peer.send(call(1, "tool"))
        assert text_of(await peer.answer(1)) == "done"
        with pytest.raises(RuntimeError, match="this request is over"):
            kept[0].on_exit(site.undo, "never")
    assert site.undone == (["x"] if had_some else [])


# Threads ------------------------------------------------------------------------------------------


async def test_a_thread_registers_and_the_loop_calls() -> None:
    site = Site()
    called_in: list[int] = []

    def plain(ctx: Context) -> str:
        ctx.on_exit(lambda: called_in.append(threading.get_ident()))
        return "done"

    async with served(with_tool(site, plain)) as peer:
        await peer.send(call(1, "tool"))
        assert text_of(await peer.answer(1)) == "done"
    assert called_in == [threading.get_ident()]


@pytest.mark.parametrize("registers", ["before", "never"])
async def test_an_abandoned_thread_is_told_that_it_is_too_late(registers: str) -> None:
    site = Site(Limits(cleanup=0.05))
    begun, told = threading.Event(), threading.Event()

    def deaf(ctx: Context) -> None:
        if registers == "before":
            ctx.on_exit(site.undo, "before")
        begun.set()
        assert site.gate.wait(10)
        with pytest.raises(RuntimeError, match="this request is over"):
            ctx.on_exit(site.undo, "never")
        told.set()

    async with served(with_tool(site, deaf)) as peer:
        await peer.send(call(1, "tool"))
        await until(begun.is_set)
        await peer.send(cancel(1))
        await until(lambda: len(site.server.journal))
        assert site.undone == (["before"] if registers == "before" else [])
        assert site.record.cleanup == "abandoned"
        site.gate.set()
        await until(told.is_set)
        await until(lambda: not site.server.scopes().children[1:])


async def test_a_slot_is_kept_until_all_have_run_though_an_abandoned_thread_ends_before(
    mock_clock: trio.testing.MockClock,
) -> None:
    site, door, runs = Site(Limits(cleanup=5)), trio.Event(), 0

    async def limited(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        ctx.on_exit(door.wait)
        if runs == 1:
            with trio.move_on_after(1):
                await ctx.run_sync(site.gate.wait)
        return "done"

    async def pass_by(seconds: float) -> None:
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(seconds)
        await trio.testing.wait_all_tasks_blocked()

    site.server.tool(name="tool", limit=1)(limited)
    async with served(site) as peer:
        await peer.send(call(1, "tool"))
        await pass_by(1)
        await pass_by(5)
        assert [work.state for work in offloaded(site.server)] == ["abandoned"]
        await peer.send(call(2, "tool"))
        site.gate.set()
        while offloaded(site.server):
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        runs_before = runs
        door.set()
        await peer.answer(1)
        await peer.answer(2)
    assert runs_before == 1
    assert runs == 2


# Clean-up blocks ----------------------------------------------------------------------------------


async def test_a_block_inside_of_another_one_ends_with_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    site = Site()

    async def nested(ctx: Context) -> str:
        try:
            await trio.sleep_forever()
        finally:
            with ctx.cleanup(2):
                with ctx.cleanup(10):
                    await trio.sleep(100)
                site.undone.append("between")
                await trio.sleep(100)
            site.undone.append("after")
            with ctx.cleanup(3):
                await trio.sleep(2)
        return "never"

    async with served(with_tool(site, nested)) as peer:
        await peer.send(call(1, "tool"))
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(cancel(1))
        await until(lambda: len(site.server.journal))
    assert site.undone == ["between", "after"]
    assert site.record.cleanup == "timed out"  # the worst, not the last
    assert site.record.cleanups == 3
    assert site.record.cleanup_duration == pytest.approx(4, abs=0.01)


async def test_blocks_of_several_tasks_are_no_concern_of_each_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    site = Site()

    async def several(ctx: Context) -> str:
        async def child() -> None:
            with ctx.cleanup(5):
                await site.undo_slowly("child", 4)

        with ctx.cleanup(1):
            ctx.nursery.start_soon(child)  # it inherits the context, and not the block
            await trio.sleep(0.5)
        return "done"

    async with served(with_tool(site, several)) as peer:
        await peer.send(call(1, "tool"))
        assert text_of(await peer.answer(1)) == "done"
    assert site.undone == ["child"]
    assert site.record.cleanup is None


async def test_clean_up_that_goes_wrong_is_recorded_of_a_request_that_goes_well(
    autojump_clock: trio.testing.MockClock,
) -> None:
    site = Site()

    async def overruns(ctx: Context) -> str:
        with ctx.cleanup(1):
            await trio.sleep(100)
        return "done"

    async with served(with_tool(site, overruns)) as peer:
        await peer.send(call(1, "tool"))
        assert text_of(await peer.answer(1)) == "done"
    assert site.record.state is State.COMPLETED
    assert site.record.cleanup == "timed out"
    assert site.record.cleanup_duration is None


# Races --------------------------------------------------------------------------------------------

EVENTS = ["cancel", "open", "time", "hang up", "drain"]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(["plain", "slow", "fails", "endless"]), max_size=4),
    st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 4)), max_size=6),
)
def test_invariants_2_3_4_hold_in_every_order(
    kinds: list[str], events: list[tuple[str, int]]
) -> None:
    clock = trio.testing.MockClock()
    trio.run(play, kinds, events, clock, clock=clock)


async def play(
    kinds: list[str], events: list[tuple[str, int]], clock: trio.testing.MockClock
) -> None:
    site, wire, door = Site(Limits(cleanup=3, drain=2)), ScriptedWire(), trio.Event()
    called: list[int] = []
    scope = trio.CancelScope()

    async def undo(number: int, kind: str) -> None:
        called.append(number)
        if kind == "slow":
            await trio.sleep(1)
        elif kind == "endless":
            await trio.sleep_forever()
        elif kind == "fails":
            raise OSError("the disk is full")

    async def work(ctx: Context) -> str:
        for number, kind in enumerate(kinds):
            ctx.on_exit(undo, number, kind)
        await door.wait()
        return "done"

    async def serve() -> None:
        with scope:
            await with_tool(site, work).server.serve_wire(wire)

    logging.getLogger("trio_mcp.exchange").disabled = True
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            wire.feed(call(1, "tool"))
            for event, turns in events:
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                if event == "cancel":
                    with suppress(trio.ClosedResourceError):  # it is over, by hand or by drain
                        wire.feed(cancel(1))
                elif event == "open":
                    door.set()
                elif event == "time":
                    clock.jump(1.5)
                elif event == "hang up":
                    wire.hang_up()
                else:
                    scope.cancel()
            clock.autojump_threshold = 0
            await trio.sleep(10)
            door.set()
            await trio.sleep(10)
            wire.hang_up()
    finally:
        logging.getLogger("trio_mcp.exchange").disabled = False
    records = list(site.server.journal)
    assert len(records) <= 1  # none of a request that the drain has refused
    assert records or not called
    for record in records:
        if record.started_at is not None:
            assert called == list(reversed(range(len(kinds))))
        else:
            assert called == []
        answers = [m for what, m in wire.log if what == "written"]
        assert len(answers) <= 1
        said = [(what, m.get("method")) for what, m in wire.log]
        cancelled = ("read", "notifications/cancelled")
        if cancelled in said:
            assert "written" not in [what for what, _ in said[said.index(cancelled) :]]
        if record.state is State.COMPLETED and record.cleanup is not None:
            assert kinds  # nothing can go wrong without
    assert site.server._core.inflight == 0
