"""The invariants that the races do not cover, each by its number.

1 is in ``test_lifecycle``, 2 to 4, 7 and 11 are also in ``test_races``, 5 and 12 in
``test_architecture``.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.fixture_server import Fixtures
from tests.peers.raw import call, cancel, lines, raw_client, text_of, until
from tests.test_races import ScriptedWire

from trio_mcp import (
    CallTimeout,
    CancelSource,
    Context,
    ErrorCode,
    Limits,
    Server,
    ServerError,
    State,
    connect,
)


def by_id(fixtures: Fixtures) -> dict[Any, Any]:
    return {record.request_id: record for record in fixtures.server.journal}


async def test_invariant_2_an_answer_that_waits_in_the_writer_is_not_written_after_a_cancel() -> (
    None
):
    fixtures, wire = Fixtures(), ScriptedWire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fixtures.server.serve_wire, wire)
        wire.stop_taking()
        wire.feed(call(1, "echo", text="blocks the writer"))
        await until(lambda: "written" in dict(wire.log))
        wire.feed(call(2, "echo", text="waits behind it"))
        await trio.testing.wait_all_tasks_blocked()
        wire.feed(cancel(2, "changed my mind"))
        await trio.testing.wait_all_tasks_blocked()
        wire.take_again()
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    assert [m["id"] for what, m in wire.log if what == "written"] == [1]
    record = by_id(fixtures)[2]
    assert record.state is State.CANCELLED
    assert record.cause.reason == "changed my mind"
    assert [late.kind for late in record.late] == ["result"]


async def test_invariant_2_a_deadline_is_not_told_to_a_peer_that_has_cancelled_meanwhile(
    mock_clock: trio.testing.MockClock,
) -> None:
    server, wire = Server("late", version="1"), ScriptedWire()

    @server.tool(timeout=5)
    async def never() -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        wire.stop_taking()
        wire.feed(call("first", "nobody"))
        wire.feed(call("both", "never"), call("deadline only", "never"))
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(6)
        await trio.testing.wait_all_tasks_blocked()
        wire.feed(cancel("both"))
        await trio.testing.wait_all_tasks_blocked()
        wire.take_again()
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    written = {m["id"]: m["error"]["code"] for what, m in wire.log if what == "written"}
    assert written == {
        "first": ErrorCode.INVALID_PARAMS,
        "deadline only": ErrorCode.DEADLINE_EXCEEDED,
    }
    for record in server.journal:
        if record.request_id != "first":
            assert record.cause is not None
            assert record.cause.source is CancelSource.DEADLINE
            assert record.cause.received_at == record.received_at + 5


@pytest.fixture
def young_heap() -> Iterator[None]:
    """Keep what other tests have left behind out of the garbage collector's way."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("young_heap")
async def test_invariant_3_ten_thousand_in_flight_all_cancelled_and_a_probe_in_the_middle() -> None:
    fixtures, total = Fixtures(), 10_000
    async with raw_client(fixtures.server) as peer:
        await peer.send(*(call(i, "sleep", s=3600) for i in range(total // 2)))
        assert await peer.probe() == []
        await peer.send(*(call(i, "sleep", s=3600) for i in range(total // 2, total)))
        await until(lambda: fixtures.live == total, timeout=30)
        await peer.send(*(cancel(i) for i in range(total // 2)), call("PROBE", "echo", text="p"))
        await peer.send(*(cancel(i) for i in range(total // 2, total)))
        assert text_of(await peer.answer("PROBE", timeout=10)) == "p"
        await until(lambda: fixtures.live == 0, timeout=30)
        assert await peer.probe() == []
        scopes = [*fixtures.server.scopes().walk()]
        assert len(scopes) == 2  # the server and this connection
    assert len(fixtures.released) == total
    assert fixtures.server.journal.ended[State.CANCELLED] == total


async def test_invariant_6_one_exchange_never_touches_another_nor_the_app() -> None:
    fixtures = Fixtures()
    ticks = 0

    async def app() -> None:
        nonlocal ticks
        while True:
            await trio.sleep(0.001)
            ticks += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(app)
        async with raw_client(fixtures.server) as peer, raw_client(fixtures.server) as other:
            await other.send(call(1, "sleep", s=0.3))
            await peer.send(
                *(call(f"slow {i}", "sleep", s=0.2) for i in range(10)),
                *(call(f"bad {i}", "boom", kind=kind) for i, kind in enumerate(KINDS_OF_FAILURE)),
                *(call(f"cancelled {i}", "sleep", s=60) for i in range(10)),
            )
            await until(lambda: len(fixtures.begun) == 21)
            await peer.send(*(cancel(f"cancelled {i}") for i in range(10)))
            for i in range(10):
                assert text_of(await peer.answer(f"slow {i}")) == "slept"
            assert text_of(await other.answer(1)) == "slept"
        before = ticks
        await until(lambda: ticks > before)
        nursery.cancel_scope.cancel()


KINDS_OF_FAILURE = ["tool", "bug", "group", "exit", "nan"]


async def test_invariant_8_a_peer_that_reads_nothing_is_still_heard() -> None:
    """Its cancellations act at once, although nothing can be written to it."""
    fixtures, wire = Fixtures(), ScriptedWire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fixtures.server.serve_wire, wire)
        wire.stop_taking()
        for i in range(100):
            wire.feed(call(f"big {i}", "big", bytes=100_000))
        wire.feed(call("sleeper", "sleep", s=3600))
        await until(lambda: fixtures.live == 1)
        wire.feed(cancel("sleeper"))
        await until(lambda: fixtures.live == 0)
        wire.feed(call("another", "sleep", s=3600))
        await until(lambda: fixtures.live == 1)
        wire.hang_up()
        await until(lambda: fixtures.live == 0)
        wire.take_again()


async def test_invariant_8_a_peer_that_reads_nothing_is_stalled_and_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures, wire = Fixtures(Limits(stall=7)), ScriptedWire()
    wire.stop_taking()
    wire.feed(call(1, "echo", text="x"), call(2, "sleep", s=3600))
    began = trio.current_time()
    await fixtures.server.serve_wire(wire)
    assert 7 <= trio.current_time() - began <= 10
    assert by_id(fixtures)[2].cause.source is CancelSource.STALLED
    assert by_id(fixtures)[1].state is State.COMPLETED
    assert by_id(fixtures)[1].delivered is False


async def test_invariant_9_memory_is_bounded_whatever_the_peer_sends_and_never_reads() -> None:
    limits = Limits(bytes_per_connection=1_000_000, exchanges_per_connection=100)
    fixtures, wire = Fixtures(limits), ScriptedWire()
    ended = trio.Event()

    async def serve() -> None:
        await fixtures.server.serve_wire(wire)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        wire.stop_taking()
        for i in range(200):
            wire.feed(call(f"request {i}", "sleep", s=3600, label="x" * 1000))
        await until(lambda: fixtures.live == 100)
        (connection,) = fixtures.server.scopes().children
        assert len(connection.children) == 100
        for _ in range(200):
            if ended.is_set():
                break
            wire.log.clear()
            wire.feed(*({"garbage": True} for _ in range(500)))
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            await ended.wait()  # it sent garbage and read nothing: that is not endured
        assert fixtures.live == 0
    assert {r.cause.source for r in fixtures.server.journal if r.cause} == {CancelSource.STALLED}


async def test_invariant_9_requests_over_the_bound_are_refused_and_the_others_served() -> None:
    fixtures = Fixtures(Limits(exchanges_per_connection=3))
    async with raw_client(fixtures.server) as peer:
        await peer.send(*(call(i, "sleep", s=0.2) for i in range(5)))
        for i in (3, 4):
            error = (await peer.answer(i))["error"]
            assert error["code"] == ErrorCode.OVERLOADED
            assert error["data"] == {"retryAfterMs": 1000}
        for i in range(3):
            assert text_of(await peer.answer(i)) == "slept"


async def test_invariant_9_flat_memory_over_many_requests() -> None:
    fixtures = Fixtures(Limits(journal_records=10))
    async with raw_client(fixtures.server) as peer:

        async def some() -> None:
            await peer.send(*(call(i, "echo", text="x" * 100) for i in range(500)))
            for i in range(500):
                await peer.answer(i)
            peer.seen.clear()

        for _ in range(4):
            await some()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(16):
            await some()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 2_000, f"{grown} KiB more after 8,000 requests"


async def test_invariant_10_the_callers_scopes_get_what_is_theirs_and_no_more() -> None:
    fixtures = Fixtures()
    async with connect(fixtures.server) as client:
        with trio.move_on_after(3600) as outer:
            deadline = trio.current_effective_deadline()
            with trio.move_on_after(0.05) as inner:
                await client.call_tool("sleep", {"s": 3600})
            assert inner.cancelled_caught
            assert not outer.cancelled_caught
            with pytest.raises(CallTimeout):
                await client.call_tool("sleep", {"s": 3600}, timeout=0.05)
            with pytest.raises(ServerError):
                await client.call_tool("boom", {"kind": "bug"})
            assert trio.current_effective_deadline() == deadline
        assert not outer.cancel_called
        await until(lambda: fixtures.live == 0)


async def test_invariant_10_a_handler_that_swallows_its_cancellation_stops_nobody_elses() -> None:
    server = Server("swallower", version="1")
    finished = trio.Event()

    @server.tool
    async def swallow() -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            finished.set()
        return "I go on"

    async with raw_client(server) as peer:
        await peer.send(call(1, "swallow"))
        await until(lambda: len([*server.scopes().walk()]) == 3)
        await peer.send(cancel(1))
        await finished.wait()
        await peer.silence(0.05)
    (record,) = server.journal
    assert record.state is State.CANCELLED
    assert [late.kind for late in record.late] == ["result"]


async def test_invariant_11_a_shutdown_says_what_it_abandons(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thread that never asks: given its window, then listed, then recorded when it ends."""
    fixtures = Fixtures(Limits(drain=0.05, cleanup=0.05))
    with trio.CancelScope() as scope:
        async with raw_client(fixtures.server) as peer:
            await peer.send(call(1, "block", s=0.8))
            await until(lambda: fixtures.live == 1)
            scope.cancel()
            with trio.CancelScope(shield=True):
                answer = await peer.answer(1, timeout=0.7)
    assert answer["error"]["code"] == ErrorCode.SHUTTING_DOWN
    (record,) = fixtures.server.journal
    assert record.cleanup == "abandoned"
    (straggler,) = fixtures.server.scopes().children
    assert straggler.state == "abandoned"
    assert "abandoned" in caplog.text
    await until(lambda: fixtures.live == 0)
    await until(lambda: not fixtures.server.scopes().children)
    assert [late.kind for late in record.late] == ["result"]
    assert record.late[0].after > 0.3


async def test_invariant_12_everything_runs_on_a_mock_clock(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A day of sleeping, timeouts and progress, in no time."""
    server = Server("sleeper", version="1")

    @server.tool
    async def sleep(hours: float, ctx: Context) -> str:
        for hour in range(int(hours)):
            await trio.sleep(3600)
            ctx.progress(hour + 1, hours)
        return "morning"

    async with connect(server, max_timeout=100_000) as client:
        result = await client.call_tool("sleep", {"hours": 8}, timeout=3700)
        assert not result.is_error
        with pytest.raises(CallTimeout) as caught:
            await client.call_tool("sleep", {"hours": 8}, timeout=1800)
        assert (caught.value.limit, caught.value.elapsed) == ("timeout", 1800)
        with pytest.raises(CallTimeout) as caught:
            await client.call_tool("sleep", {"hours": 8}, timeout=3700, max_timeout=9000)
        assert (caught.value.limit, caught.value.elapsed) == ("max_timeout", 9000)
        assert caught.value.last_progress.progress == 2


def test_lines_are_what_they_say() -> None:
    assert lines({"a": 1}, b"x") == b'{"a":1}\nx\n'
