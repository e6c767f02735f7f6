"""Cancellation: the faults from the field, on the level of bytes, without HTTP.

Each test is a case: what a peer sends, and what has to come of it. Every line of the server is held
against the official schema on the way. Numbers of invariants are those of the design.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import outcome
import pytest
import trio
import trio.testing
from tests.peers.checked import CheckedStream, WireCheck, checked_client, checked_process
from tests.peers.fixture_server import Fixtures
from tests.peers.inspection import about, answers, exchanges, live, offloaded, record_of, until_live
from tests.peers.raw import RawPeer, call, cancel, request, text_of, until
from tests.peers.stubborn import Blocker, Cleaners, Deadlines, Parents

from trio_mcp import (
    CallCancelled,
    CallTimeout,
    CallToolResult,
    CancelSource,
    Client,
    Context,
    ErrorCode,
    Limits,
    Server,
    State,
    TextContent,
    connect,
)

PEERS = Path(__file__).parent / "peers"
FIXTURE_SERVER = [sys.executable, str(PEERS / "fixture_server.py")]
BLOCKER_SERVER = [sys.executable, str(PEERS / "stubborn.py")]


async def sleeping(fixtures: Fixtures, count: int = 1) -> None:
    """Wait until so many handlers have begun."""
    await until(lambda: len(fixtures.begun) == count)


# One connection, one write ------------------------------------------------------------------------


async def test_invariants_2_8_call_cancel_and_probe_in_one_write(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(
            call(1, "sleep", token=1, s=60),
            cancel(1, "no longer wanted"),
            call("PROBE", "echo", text="probe"),
        )

        assert text_of(await peer.answer("PROBE", timeout=1)) == "probe"
        await peer.silence(120)

    assert about(peer.seen, 1) == []
    record = record_of(fixtures.server, 1)
    assert record.state is State.CANCELLED
    assert record.cause is not None
    assert record.cause.source is CancelSource.NOTIFICATION
    assert record.cause.reason == "no longer wanted"
    assert fixtures.live == 0


async def test_a_launched_server_takes_call_cancel_and_probe_in_one_write() -> None:
    async with checked_process(FIXTURE_SERVER) as peer:
        await peer.send(
            call(1, "sleep", token=1, s=60), cancel(1), call("PROBE", "echo", text="probe")
        )
        assert text_of(await peer.answer("PROBE", timeout=10)) == "probe"  # Python starts

        await peer.send(call(2, "stats"))
        assert text_of(await peer.answer(2, timeout=1)) == "0"
        await peer.silence(0.2)
        assert about(peer.seen, 1) == []


async def test_a_call_cancelled_before_its_handler_began_never_runs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=60), cancel(1))
        assert await peer.probe() == []

    assert fixtures.begun == []
    record = record_of(fixtures.server, 1)
    assert (record.state, record.started_at) == (State.CANCELLED, None)
    assert record.late == ()


async def test_a_cancel_before_its_call_is_one_for_an_unknown_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(cancel(1), call(1, "sleep", s=1))
        assert text_of(await peer.answer(1)) == "slept"


@pytest.mark.parametrize("progress", [True, False])
async def test_invariant_2_nothing_is_said_after_the_cancel(
    progress: bool, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures(Limits(progress_interval=0.5))
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "tick", token="t" if progress else None, n=1000, dt=0.1))
        if progress:
            assert (await peer.receive())["params"]["progressToken"] == "t"
        await trio.sleep(2.05)  # a report waits for its turn
        before = [m for m in await peer.probe() if "method" in m]
        assert bool(before) is progress
        await peer.send(cancel(1))

        assert await peer.probe() == []
        await peer.silence(200)

    assert record_of(fixtures.server, 1).state is State.CANCELLED


async def test_invariant_6_cancelling_one_request_leaves_the_others_alone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(*(call(n, "sleep", s=2, label=str(n)) for n in range(10)))
        await sleeping(fixtures, 10)
        await peer.send(*(cancel(n) for n in range(0, 10, 2)))

        for answer in await answers(peer, 1, 3, 5, 7, 9):
            assert text_of(answer) == "slept"
        await peer.silence(10)
        assert len(peer.seen) == 5
    assert fixtures.live == 0


async def test_invariant_6_clients_cancel_only_their_own_requests(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as one, checked_client(fixtures.server) as two:
        await one.send(call(1, "sleep", s=2))
        await sleeping(fixtures)
        await two.send(cancel(1))
        await two.send(call(1, "echo", text="mine"))

        assert text_of(await two.answer(1)) == "mine"
        assert text_of(await one.answer(1)) == "slept"


async def test_two_hundred_calls_cancelled_in_one_write(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(*(call(n, "sleep", token=n, s=60) for n in range(200)))
        await sleeping(fixtures, 200)
        await peer.send(*(cancel(n) for n in range(200)))

        assert await peer.probe() == []
        await peer.silence(100)
        assert exchanges(fixtures.server) == []

    assert fixtures.live == 0
    assert len(fixtures.released) == 200
    assert fixtures.server.journal.ended[State.CANCELLED] == 200


async def test_invariant_4_an_ended_connection_cancels_all_that_it_asked_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=60), call(2, "sleep", s=60))
        await sleeping(fixtures, 2)

    assert fixtures.live == 0
    for request_id in (1, 2):
        cause = record_of(fixtures.server, request_id).cause
        assert cause is not None
        assert cause.source is CancelSource.DISCONNECT
    assert fixtures.server.scopes().children == ()


# Which request is meant ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_id", "look_alikes"),
    [
        (0, ["0", "", False, None, 0.0, -0.0, [], [0], {}, {"requestId": 0}]),
        (1, ["1", "01", True, 1.0, 1.5, b"1e0", [1]]),
        ("", [0, None, False, " ", "\u0000", []]),
        (-1, ["-1", -1.0, 1, 18446744073709551615]),
        ("0", [0, False, "00", "0 ", 0.0]),
        ("7", [7, 7.0, "07", "\uff17"]),
        (2**53 + 1, [2**53, str(2**53 + 1), float(2**53 + 1)]),
        (10**30, [str(10**30), 1e30, 10**30 + 1]),
        ("é", ["e\u0301", "É", "e"]),
        ("x" * 4096, ["x" * 4095, "x" * 4097]),
    ],
    ids=lambda value: repr(value)[:12] if not isinstance(value, list) else "",
)
async def test_ids_are_compared_by_type_and_value(
    request_id: Any, look_alikes: list[Any], autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(request_id, "sleep", s=60))
        await sleeping(fixtures)

        for wrong in look_alikes:
            line: Any = cancel(wrong)
            if isinstance(wrong, bytes):  # JSON that no encoder would write
                line = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":'
                line += wrong + b"}}"
            await peer.send(line)
        assert await peer.probe() == []
        assert fixtures.live == 1

        await peer.send(cancel(request_id))
        assert await peer.probe() == []
        assert fixtures.live == 0
        await peer.silence(100)

    record = record_of(fixtures.server, request_id)
    assert record.state is State.CANCELLED
    assert record.extra_cancels == 0


async def test_a_launched_server_compares_ids_by_type_and_value() -> None:
    async with checked_process(FIXTURE_SERVER) as peer:
        ids: list[Any] = [0, "", -1, "7"]
        await peer.send(*(call(request_id, "sleep", s=60) for request_id in ids))
        await until_live(peer, 4)
        wrong: list[Any] = ["0", False, None, "-1", -1.0, [0], 7, "07"]
        await peer.send(*(cancel(request_id) for request_id in wrong))
        assert await live(peer) == 4
        for left, request_id in reversed([*enumerate(ids)]):
            await peer.send(cancel(request_id))
            await until_live(peer, left)
        assert {message["id"] for message in peer.seen} == {"stats", "PROBE"}


def malformed_cancels() -> Iterator[bytes]:
    """Notifications that name no request, in many ways; request 1 is in flight."""
    head = b'{"jsonrpc":"2.0","method":"notifications/cancelled"'
    yield head + b"}"
    for params in (b"null", b"[]", b"[1]", b"1", b'"1"', b"true", b"{}"):
        yield head + b',"params":' + params + b"}"
    wrong_ids = [b"null", b"{}", b"[]", b"[1]", b"true", b"false", b"1.0", b"1e0", b'"1"', b"-1"]
    wrong_ids += [b'{"requestId":1}', b"9" * 4000, b'"' + b"x" * 100_000 + b'"']
    for request_id in wrong_ids:
        yield head + b',"params":{"requestId":' + request_id + b"}}"
    yield head + b',"params":{"requestid":1}}'
    yield head + b',"params":{"id":1}}'
    yield head + b',"requestId":1}'
    yield b'{"jsonrpc":"2.0","method":"notifications/canceled","params":{"requestId":1}}'
    yield b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}'


@pytest.mark.parametrize("line", [*malformed_cancels()], ids=lambda line: line[27:80].decode())
async def test_invariant_7_malformed_cancels_are_silent(
    line: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=60))
        await sleeping(fixtures)
        await peer.send(line)
        assert await peer.probe() == []
        assert fixtures.live == 1


async def test_a_cancel_with_an_id_is_a_request_of_an_unknown_method(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=60))
        await sleeping(fixtures)
        await peer.send(request(2, "notifications/cancelled", {"requestId": 1}))
        assert (await peer.answer(2))["error"]["code"] == -32601
        assert fixtures.live == 1


@pytest.mark.parametrize("reason", [None, 5, True, [], {"why": "not"}])
async def test_a_reason_of_the_wrong_type_is_no_reason_to_go_on(
    reason: Any, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=60))
        await sleeping(fixtures)
        message = cancel(1)
        message["params"]["reason"] = reason
        await peer.send(message)
        assert await peer.probe() == []
    cause = record_of(fixtures.server, 1).cause
    assert cause is not None
    assert (cause.source, cause.reason) == (CancelSource.NOTIFICATION, None)


async def test_invariant_9_a_long_reason_is_cut(autojump_clock: trio.testing.MockClock) -> None:
    fixtures = Fixtures(Limits(text_length=10))
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=60))
        await sleeping(fixtures)
        await peer.send(cancel(1, "x" * 1_000_000))
        assert await peer.probe() == []
    cause = record_of(fixtures.server, 1).cause
    assert cause is not None
    assert cause.reason == "x" * 10


async def test_invariant_7_ten_thousand_unknown_cancels(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call("mine", "sleep", s=60))
        await sleeping(fixtures)
        await peer.send(*(cancel(n) for n in range(10_000)))
        assert await peer.probe() == []
        assert fixtures.live == 1
        assert len(fixtures.server.journal) == 1  # the probe's


async def test_invariant_7_ten_thousand_cancels_of_one_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=60))
        await sleeping(fixtures)
        await peer.send(*(cancel(1, f"no. {n}") for n in range(10_000)))
        assert await peer.probe() == []
    record = record_of(fixtures.server, 1)
    assert record.cause is not None
    assert record.cause.reason == "no. 0"
    assert fixtures.released == [""]


async def test_a_launched_server_takes_ten_thousand_cancels() -> None:
    async with checked_process(FIXTURE_SERVER) as peer:
        await peer.send(call(1, "sleep", s=60))
        await peer.send(*(cancel(n) for n in range(2, 10_002)), *malformed_cancels())
        await peer.send(call("live", "stats"))
        assert text_of(await peer.answer("live", timeout=10)) == "1"
        await peer.send(*(cancel(1) for _ in range(10_000)), call("live", "stats"))
        assert text_of(await peer.answer("live", timeout=10)) == "0"
        assert len(peer.seen) == 2


async def test_invariant_7_the_first_cancel_wins_and_the_next_is_counted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=60))
        await sleeping(fixtures)
        await peer.send(cancel(1, "first"), cancel(1, "second"))
        assert await peer.probe() == []
        await peer.send(cancel(1, "third"))  # it is over: unknown by now
        assert await peer.probe() == []
    record = record_of(fixtures.server, 1)
    assert record.cause is not None
    assert (record.cause.reason, record.extra_cancels) == ("first", 1)


async def test_invariant_7_a_cancel_after_the_answer_is_silent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "echo", text="done"))
        assert text_of(await peer.answer(1)) == "done"
        await peer.send(cancel(1), cancel(1))
        assert await peer.probe() == []
    assert record_of(fixtures.server, 1).state is State.COMPLETED


# An id twice --------------------------------------------------------------------------------------


async def test_a_duplicate_id_in_flight_is_refused_and_the_first_is_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=1, label="first"), call(1, "sleep", s=1, label="second"))
        refusal = await peer.receive()
        assert "id" not in refusal
        assert refusal["error"]["code"] == -32600
        assert refusal["error"]["data"] == {"requestId": 1}

        assert text_of(await peer.answer(1)) == "slept"
        assert fixtures.begun == ["first"]

        await peer.send(call(1, "echo", text="again"))
        assert text_of(await peer.answer(1)) == "again"


@pytest.mark.parametrize(
    "message",
    [
        {**call(1, "echo", text=""), "jsonrpc": "1.0"},
        {**call(1, "echo", text=""), "params": []},
        {**call(1, "echo", text=""), "method": 7},
        call(1, "no such tool"),
        request(1, "no/such/method"),
        {"jsonrpc": "2.0", "id": 1},
    ],
    ids=["jsonrpc", "params", "method", "tool", "unknown method", "no method"],
)
async def test_a_broken_duplicate_does_not_answer_for_the_first(
    message: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=1), message)
        refusal = await peer.receive()
        assert "id" not in refusal
        assert refusal["error"]["code"] == -32600
        assert refusal["error"]["data"] == {"requestId": 1}
        assert text_of(await peer.answer(1)) == "slept"


async def test_an_id_is_taken_until_its_cancelled_work_has_stopped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("slow to stop", version="1")

    @server.tool
    async def slow(ctx: Context) -> str:
        try:
            await trio.sleep_forever()
        finally:
            with ctx.cleanup(5):
                await trio.sleep(1)
        return "never"

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with checked_client(server) as peer:
        await peer.send(call(1, "slow"))
        assert await peer.probe() == []
        await peer.send(cancel(1), call(1, "echo", text="too early"))
        assert (await peer.receive())["error"]["data"] == {"requestId": 1}
        (scope,) = exchanges(server)
        assert scope.state == State.CANCELLING.value
        assert scope.cause is not None

        await trio.sleep(2)
        assert exchanges(server) == []
        await peer.send(call(1, "echo", text="now"))
        assert text_of(await peer.answer(1)) == "now"


# Claim at the write -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["result", "error"])
async def test_invariant_2_a_cancel_beats_an_answer_that_waits_for_the_writer(
    kind: str, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server, trio.testing.lockstep_stream_pair) as peer:
        await peer.send(call("first", "echo", text="x" * 1000))
        await trio.testing.wait_all_tasks_blocked()  # the writer waits for us to read
        if kind == "result":
            await peer.send(call(1, "echo", text="late"))
        else:
            await peer.send(call(1, "boom", kind="bug"))
        await trio.testing.wait_all_tasks_blocked()  # the handler has finished
        await peer.send(cancel(1))
        await trio.testing.wait_all_tasks_blocked()

        assert text_of(await peer.answer("first")) == "x" * 1000
        assert await peer.probe() == []
        await peer.silence(100)

    record = record_of(fixtures.server, 1)
    assert record.state is State.CANCELLED
    assert [late.kind for late in record.late] == [kind]


async def test_invariant_2_progress_that_waits_for_the_writer_is_dropped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server, trio.testing.lockstep_stream_pair) as peer:
        await peer.send(call("first", "echo", text="x"))
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(call(1, "tick", token=1, n=5, dt=60))
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(cancel(1))
        await trio.testing.wait_all_tasks_blocked()

        assert text_of(await peer.answer("first")) == "x"
        assert await peer.probe() == []
    assert record_of(fixtures.server, 1).progress_reported == 1
    assert record_of(fixtures.server, 1).progress_sent == 0


async def test_invariant_8_a_peer_that_stops_reading_is_cut_off(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures(Limits(stall=3))
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fixtures.server.serve_stream, theirs)
        peer = RawPeer(ours, ours)
        await peer.send(call(1, "sleep", s=600), call(2, "echo", text="never read"))
        await sleeping(fixtures)
        await until(lambda: fixtures.released, timeout=3.5)
        await ours.aclose()
    cause = record_of(fixtures.server, 1).cause
    assert cause is not None
    assert cause.source is CancelSource.STALLED
    record = record_of(fixtures.server, 2)
    assert (record.state, record.delivered) == (State.COMPLETED, False)


# Threads ------------------------------------------------------------------------------------------


@pytest.fixture
def blocker() -> Iterator[Blocker]:
    """Four threads, a clean-up window of 50 ms. In the end no thread is left waiting."""
    made = Blocker(Limits(threads=4, cleanup=0.05))
    yield made
    made.gate.set()


async def test_threads_that_outlive_their_cancellation_are_capped_and_visible(
    blocker: Blocker,
) -> None:
    server = blocker.server
    async with checked_client(server) as peer:
        await peer.send(*(call(n, "block", token=n, n=n) for n in range(100)))
        await until(lambda: len(blocker.begun) == 4)
        await peer.send(*(cancel(n) for n in range(100)))
        assert await peer.probe() == []
        await until(lambda: not exchanges(server))

        assert len(blocker.begun) == 4
        assert [scope.state for scope in offloaded(server)] == ["abandoned"] * 4
        assert {scope.label for scope in offloaded(server)} == {"block"}
        records = {n: record_of(server, n) for n in range(100)}
        assert {record.state for record in records.values()} == {State.CANCELLED}
        abandoned = [n for n, record in records.items() if record.cleanup == "abandoned"]
        assert sorted(abandoned) == sorted(blocker.begun)

        # Their slots are taken until they really end: one more call waits, and can be cancelled.
        await peer.send(call("waiting", "block"))
        assert await peer.probe() == []
        await peer.send(cancel("waiting"))
        assert await peer.probe() == []
        await until(lambda: not exchanges(server))
        assert len(blocker.begun) == 4

        blocker.gate.set()
        await until(lambda: not offloaded(server))
        for n in abandoned:
            assert [late.kind for late in records[n].late] == ["result"]
            assert records[n].late[0].after >= 0.05
        assert server.journal.late == 4
        await peer.send(call("free", "block"))
        assert text_of(await peer.answer("free")) == "blocked"
        assert [message["id"] for message in peer.seen] == ["PROBE", "PROBE", "PROBE", "free"]


async def test_a_launched_server_caps_threads_that_outlive_their_cancellation() -> None:
    async def begun() -> str:
        for _ in range(5):
            await peer.probe(timeout=10)
        await peer.send(call("count", "count"))
        return text_of(await peer.answer("count", timeout=10))

    async with checked_process(BLOCKER_SERVER) as peer:
        await peer.send(*(call(n, "block", token=n) for n in range(100)))
        with trio.fail_after(10):
            while await begun() != "4":  # noqa: ASYNC110 - nothing else tells of it
                await trio.sleep(0.005)
        await peer.send(*(cancel(n) for n in range(100)))
        assert await begun() == "4"

        await peer.send(call("gate", "open_gate"), call("after", "block"))
        gate, after = await answers(peer, "gate", "after")
        assert gate["result"]["content"] == []
        assert text_of(after) == "blocked"
        assert await begun() == "5"
        for n in range(100):
            assert about(peer.seen, n) == []


async def test_invariant_8_sync_tools_do_not_freeze_the_loop(blocker: Blocker) -> None:
    async with checked_client(blocker.server) as peer:
        await peer.send(*(call(n, "block") for n in range(3)))
        await until(lambda: len(blocker.begun) == 3)

        times = []
        for _ in range(20):
            start = time.perf_counter()
            assert await peer.probe() == []
            times.append(time.perf_counter() - start)

        assert statistics.median(times) < 0.05
        blocker.gate.set()
        for _ in range(3):
            assert text_of(await peer.receive()) == "blocked"


async def test_calls_that_wait_for_a_thread_can_be_cancelled(blocker: Blocker) -> None:
    server = blocker.server
    async with checked_client(server) as peer:
        await peer.send(*(call(n, "block", n=n) for n in range(4)))
        await until(lambda: len(blocker.begun) == 4)
        await peer.send(call("queued", "block", n=99), call("too", "block", n=98))
        assert await peer.probe() == []
        await peer.send(cancel("queued"))
        assert await peer.probe() == []
        await until(lambda: any(r.request_id == "queued" for r in server.journal))

        record = record_of(server, "queued")
        assert (record.state, record.cleanup, record.late) == (State.CANCELLED, "clean", ())
        blocker.gate.set()
        answered = [await peer.receive() for _ in range(5)]
        assert {message["id"] for message in answered} == {0, 1, 2, 3, "too"}
        assert 99 not in blocker.begun


async def test_a_thread_that_asks_stops_at_once(blocker: Blocker) -> None:
    async with checked_client(blocker.server) as peer:
        await peer.send(call(1, "asking", token="asking"))
        assert (await peer.receive())["params"]["progressToken"] == "asking"
        await peer.send(cancel(1))
        await peer.probe()
        await until(lambda: not offloaded(blocker.server))
        assert await peer.probe() == []

    record = record_of(blocker.server, 1)
    assert (record.state, record.cleanup, record.late) == (State.CANCELLED, "clean", ())
    assert not blocker.gate.is_set()


async def test_a_thread_that_ends_in_its_window_is_late_but_not_abandoned() -> None:
    blocker = Blocker(Limits(threads=1, cleanup=20))
    async with checked_client(blocker.server) as peer:
        await peer.send(call(1, "block"))
        await until(lambda: blocker.begun)
        await peer.send(cancel(1))
        assert await peer.probe() == []
        (scope,) = offloaded(blocker.server)
        assert scope.state == State.CANCELLING.value
        blocker.gate.set()
        await until(lambda: not exchanges(blocker.server))
        assert await peer.probe() == []

    record = record_of(blocker.server, 1)
    assert (record.state, record.cleanup) == (State.CANCELLED, "clean")
    assert [late.kind for late in record.late] == ["result"]


async def test_a_thread_past_its_deadline_is_answered_once_and_abandoned(
    blocker: Blocker,
) -> None:
    async with checked_client(blocker.server) as peer:
        await peer.send(call(1, "limited", token=1))
        answer = await peer.answer(1)
        assert answer["error"]["code"] == ErrorCode.DEADLINE_EXCEEDED
        assert [scope.state for scope in offloaded(blocker.server)] == ["abandoned"]
        blocker.gate.set()
        await until(lambda: not offloaded(blocker.server))
        assert await peer.probe() == []

    record = record_of(blocker.server, 1)
    assert (record.state, record.cleanup) == (State.CANCELLED, "abandoned")
    assert [late.kind for late in record.late] == ["result"]


async def test_a_call_that_waits_for_a_thread_past_its_deadline_never_runs(
    blocker: Blocker,
) -> None:
    async with checked_client(blocker.server) as peer:
        await peer.send(*(call(n, "block", n=n) for n in range(4)))
        await until(lambda: len(blocker.begun) == 4)
        await peer.send(call("queued", "limited"))
        error = (await peer.answer("queued"))["error"]
        assert error["code"] == ErrorCode.DEADLINE_EXCEEDED
        blocker.gate.set()
        await answers(peer, 0, 1, 2, 3)
    assert len(blocker.begun) == 4


# Cancellation swallowed, or leaked ----------------------------------------------------------------


async def test_invariant_10_a_handler_that_swallows_its_cancellation_is_silent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("swallower", version="1")

    @server.tool
    async def swallow() -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "swallowed"
        return "never"

    @server.tool
    async def crash() -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise RuntimeError("instead") from None
        return "never"

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with checked_client(server) as peer:
        await peer.send(call(1, "swallow"), call(2, "crash"))
        assert await peer.probe() == []
        await peer.send(cancel(1), cancel(2))
        assert await peer.probe() == []

    assert record_of(server, 1).state is State.CANCELLED
    assert [late.kind for late in record_of(server, 1).late] == ["result"]
    assert record_of(server, 2).state is State.CANCELLED
    assert [late.kind for late in record_of(server, 2).late] == ["error"]
    assert record_of(server, 2).cleanup == "error"


async def test_invariant_10_a_handlers_own_scopes_stay_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("scopes", version="1")

    @server.tool
    async def absorbs() -> str:
        with trio.move_on_after(1) as scope:
            await trio.sleep_forever()
        return f"absorbed: {scope.cancelled_caught}"

    @server.tool
    async def stops_children(ctx: Context) -> str:
        ctx.nursery.start_soon(trio.sleep_forever)
        await trio.sleep(1)
        ctx.nursery.cancel_scope.cancel()
        return "stopped them"

    @server.tool
    async def too_slow() -> str:
        with trio.fail_after(1):
            await trio.sleep_forever()
        return "never"

    async with checked_client(server) as peer:
        await peer.send(call(1, "absorbs"), call(2, "stops_children"), call(3, "too_slow"))
        absorbed, stopped, failed = await answers(peer, 1, 2, 3)
        assert text_of(absorbed) == "absorbed: True"
        assert text_of(stopped) == "stopped them"
        assert failed["error"]["code"] == -32603


async def test_invariants_6_10_a_stray_cancelled_is_the_handlers_own_failure(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A background task of the application was cancelled; the handler passes on its outcome."""
    server = Server("strayer", version="1")

    @server.tool
    async def result_of_a_cancelled_task() -> str:
        captured: list[outcome.Outcome[None]] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            captured.append(await outcome.acapture(trio.sleep, 1))
        captured[0].unwrap()
        return "never"

    @server.tool
    async def sleep(s: float) -> str:
        await trio.sleep(s)
        return "slept"

    async with checked_client(server) as peer:
        await peer.send(call(1, "sleep", s=1), call(2, "result_of_a_cancelled_task"))
        assert (await peer.answer(2))["error"]["code"] == -32603
        assert text_of(await peer.answer(1)) == "slept"


async def test_invariant_10_the_scope_around_the_server_gets_its_cancellation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures(Limits(drain=1))
    ours, theirs = trio.testing.memory_stream_pair()
    with trio.move_on_after(3) as outer:
        await fixtures.server.serve_stream(theirs)
    assert outer.cancelled_caught
    assert trio.current_time() < 6
    await ours.aclose()


async def test_invariant_10_a_client_inside_a_scope_is_cancelled_with_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    reached = False
    with trio.move_on_after(2) as outer:
        async with connect(fixtures.server) as client:
            with trio.move_on_after(1) as inner:
                await client.call_tool("sleep", {"s": 60, "label": "inner"})
            assert inner.cancelled_caught
            assert not outer.cancel_called
            await client.call_tool("sleep", {"s": 60, "label": "outer"})
            reached = True
    assert outer.cancelled_caught
    assert not reached
    assert fixtures.released == ["inner", "outer"]
    assert fixtures.live == 0


async def test_invariant_10_the_callers_deadline_is_never_changed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    seen: list[float] = []
    with trio.CancelScope(deadline=trio.current_time() + 1000) as outer:
        async with connect(fixtures.server) as client:
            seen.append(trio.current_effective_deadline())
            with trio.move_on_after(1):
                await client.call_tool("sleep", {"s": 60})
            seen.append(trio.current_effective_deadline())
            with pytest.raises(CallTimeout):
                await client.call_tool("sleep", {"s": 60}, timeout=1)
            seen.append(trio.current_effective_deadline())
            async with client.start_tool("sleep", {"s": 60}, timeout=5) as started:
                seen.append(trio.current_effective_deadline())
                started.cancel()
                with pytest.raises(CallCancelled):
                    await started.result()
            await client.call_tool(
                "tick",
                {"n": 3, "dt": 1},
                timeout=5,
                on_progress=lambda update: seen.append(trio.current_effective_deadline()),
            )
            async for _ in client.tools():
                seen.append(trio.current_effective_deadline())
        seen.append(trio.current_effective_deadline())
        assert set(seen) == {outer.deadline}
    assert len(seen) > 10
    assert not outer.cancelled_caught


async def test_invariant_10_a_handler_sees_no_deadline_but_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("deadlines", version="1")
    seen: dict[str, tuple[float, float]] = {}

    @server.tool(timeout=7)
    async def limited(ctx: Context) -> None:
        seen["limited"] = (trio.current_effective_deadline(), ctx.deadline)

    @server.tool
    async def unlimited(ctx: Context) -> None:
        seen["unlimited"] = (trio.current_effective_deadline(), ctx.deadline)

    await trio.sleep(100)
    async with checked_client(server) as peer:
        await peer.send(call(1, "limited"), call(2, "unlimited"))
        await answers(peer, 1, 2)
    assert seen["limited"] == pytest.approx((107, 107))
    assert seen["unlimited"] == (float("inf"), float("inf"))


# Deadlines of the server --------------------------------------------------------------------------


async def test_invariant_3_a_deadline_is_answered_with_an_error_once_the_work_has_stopped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deadlines = Deadlines()
    async with checked_client(deadlines.server) as peer:
        start = trio.current_time()
        await peer.send(call(1, "hold"))
        await trio.sleep(2)
        (scope,) = exchanges(deadlines.server)
        assert scope.state == State.CANCELLING.value

        answer = await peer.answer(1)

        assert answer["error"]["code"] == ErrorCode.DEADLINE_EXCEEDED
        assert not -32768 <= answer["error"]["code"] <= -32000
        assert deadlines.released == [pytest.approx(start + 4)]
        assert trio.current_time() == pytest.approx(start + 4)
        await peer.silence(10)

    record = record_of(deadlines.server, 1)
    assert record.state is State.CANCELLED
    assert record.cause is not None
    assert record.cause.source is CancelSource.DEADLINE
    assert record.cause.received_at == pytest.approx(start + 1)
    assert record.cleanup_duration == pytest.approx(3)
    assert record.delivered is True


async def test_invariant_2_a_peer_that_cancels_after_the_deadline_hears_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deadlines = Deadlines()
    async with checked_client(deadlines.server) as peer:
        await peer.send(call(1, "hold"))
        await trio.sleep(2)
        await peer.send(cancel(1))
        assert await peer.probe() == []
        await peer.silence(10)

    record = record_of(deadlines.server, 1)
    assert record.cause is not None
    assert record.cause.source is CancelSource.DEADLINE  # the first cause wins
    assert (record.state, record.extra_cancels) == (State.CANCELLED, 1)
    assert record.delivered is None


async def test_invariant_2_a_deadline_error_that_waits_for_the_writer_is_dropped_by_a_cancel(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deadlines = Deadlines()
    async with checked_client(deadlines.server, trio.testing.lockstep_stream_pair) as peer:
        await peer.send(call("first", "echo", text="x"), call(1, "hold"))
        await trio.sleep(5)  # the writer waits for us to read; the work has stopped
        assert len(deadlines.released) == 1
        await peer.send(cancel(1))
        await trio.testing.wait_all_tasks_blocked()

        assert text_of(await peer.answer("first")) == "x"
        assert await peer.probe() == []
        await peer.silence(10)


async def test_a_call_within_its_deadline_is_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deadlines = Deadlines()
    async with checked_client(deadlines.server) as peer:
        await peer.send(call(1, "brief"))
        assert text_of(await peer.answer(1)) == "in time"
        await peer.silence(10)
    assert record_of(deadlines.server, 1).cause is None


# What comes late, and how clean-up went -----------------------------------------------------------


async def test_a_late_outcome_is_recorded_and_never_sent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cleaners = Cleaners()
    async with checked_client(cleaners.server) as peer:
        await peer.send(call(1, "late"))
        await trio.sleep(1)
        await peer.send(cancel(1))
        assert await peer.probe() == []
        await peer.silence(100)
    record = record_of(cleaners.server, 1)
    assert record.state is State.CANCELLED
    assert [(late.kind, round(late.after, 1)) for late in record.late] == [("result", 2.0)]
    assert cleaners.server.journal.late == 1


@pytest.mark.parametrize(
    ("tool", "outcome_of_cleanup", "seconds"),
    [
        ("clean", "clean", 2),
        ("timed_out", "timed out", 2),
        ("raises", "error", 1),
        ("twice", "timed out", 2),
    ],
)
async def test_the_record_tells_how_clean_up_went(
    tool: str,
    outcome_of_cleanup: str,
    seconds: float,
    autojump_clock: trio.testing.MockClock,
) -> None:
    cleaners = Cleaners()
    async with checked_client(cleaners.server) as peer:
        await peer.send(call(1, tool))
        await trio.sleep(1)
        await peer.send(cancel(1))
        assert await peer.probe() == []
        await peer.silence(10)
    record = record_of(cleaners.server, 1)
    assert record.state is State.CANCELLED
    assert record.cleanup == outcome_of_cleanup
    assert record.cleanup_duration == pytest.approx(seconds)
    if tool in ("clean", "timed_out"):
        assert cleaners.after == [outcome_of_cleanup]  # execution goes on after the block
        assert record.cleanups == 1


async def test_no_clean_up_without_a_bound(autojump_clock: trio.testing.MockClock) -> None:
    cleaners = Cleaners()
    async with checked_client(cleaners.server) as peer:
        await peer.send(call(1, "refuses"))
        refused = (await peer.answer(1))["result"]["structuredContent"]
        assert len(refused) == 5
        assert all("longest_cleanup" in message for message in refused)


async def test_clean_up_without_a_cancellation_is_no_news(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=1))
        assert text_of(await peer.answer(1)) == "slept"
    record = record_of(fixtures.server, 1)
    assert (record.state, record.cleanup, record.cleanups) == (State.COMPLETED, None, 1)


# Children -----------------------------------------------------------------------------------------


async def test_an_answer_leaves_when_the_children_have_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parents = Parents()
    async with checked_client(parents.server) as peer:
        await peer.send(call(1, "leaves_child", token=1, s=5))
        await peer.silence(4.9)
        assert text_of(await peer.answer(1)) == "the handler is done"
        assert [message.get("method") for message in peer.seen] == ["notifications/progress", None]
    assert parents.ended == ["child"]


async def test_invariant_4_children_are_cancelled_with_their_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parents = Parents()
    async with checked_client(parents.server) as peer:
        await peer.send(call(1, "leaves_child", token=1, s=60))
        await trio.sleep(1)  # the handler returned long ago
        await peer.send(cancel(1))
        assert await peer.probe() == []
        assert parents.ended == ["child"]
        await peer.silence(100)
    record = record_of(parents.server, 1)
    assert record.state is State.CANCELLED
    assert [late.kind for late in record.late] == ["result"]


async def test_invariant_3_a_child_that_fails_fails_its_request_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parents = Parents()
    async with checked_client(parents.server) as peer:
        await peer.send(call(1, "leaves_child", s=1, fails=True), call(2, "leaves_child", s=2))
        error = (await peer.answer(1))["error"]
        assert error["code"] == -32603
        assert "secret" not in str(error)
        assert text_of(await peer.answer(2)) == "the handler is done"


# Drain --------------------------------------------------------------------------------------------


class Drain:
    """A served connection, and the scope around it, which the embedding application cancels."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.scope = trio.CancelScope()
        self.ended_at: float | None = None

    async def serve(self, stream: trio.abc.Stream) -> None:
        with self.scope:
            await self.server.serve_stream(stream)
        assert self.scope.cancelled_caught
        self.ended_at = trio.current_time()


@asynccontextmanager
async def draining(server: Server) -> AsyncGenerator[tuple[RawPeer, Drain], None]:
    ours, theirs = trio.testing.memory_stream_pair()
    drain = Drain(server)
    stream = CheckedStream(ours, ours, WireCheck())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain.serve, theirs)
        yield RawPeer(stream, stream), drain
        with trio.fail_after(100):
            await stream.read_to_end()
        await ours.aclose()


@pytest.mark.parametrize("chatty", [False, True], ids=["quiet", "chatty"])
async def test_invariants_3_11_a_drain_lets_finish_and_then_says_why_not(
    chatty: bool, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures(Limits(drain=2))
    async with draining(fixtures.server) as (peer, drain):
        await peer.send(call("long", "sleep", s=600))
        if chatty:
            await peer.send(call("short", "sleep", s=6))
        await sleeping(fixtures, 2 if chatty else 1)
        await trio.sleep(5)
        drain.scope.cancel()

        if chatty:
            assert text_of(await peer.answer("short")) == "slept"
        error = (await peer.answer("long"))["error"]
        assert error["code"] == ErrorCode.SHUTTING_DOWN
        assert trio.current_time() == pytest.approx(7, abs=0.1)

    assert drain.ended_at == pytest.approx(7, abs=0.1)
    record = record_of(fixtures.server, "long")
    assert record.cause is not None
    assert (record.state, record.cause.source) == (State.CANCELLED, CancelSource.SHUTDOWN)
    assert record.delivered is True
    assert fixtures.live == 0


async def test_a_drain_refuses_new_requests(autojump_clock: trio.testing.MockClock) -> None:
    fixtures = Fixtures(Limits(drain=2))
    async with draining(fixtures.server) as (peer, drain):
        await peer.send(call(1, "sleep", s=1))
        await sleeping(fixtures)
        drain.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert {scope.state for scope in fixtures.server.scopes().children} == {"draining"}

        await peer.send(call(2, "echo", text="no"), call("3", "sleep", s=0))
        for refusal in await answers(peer, 2, "3"):
            assert refusal["error"]["code"] == ErrorCode.SHUTTING_DOWN
        assert text_of(await peer.answer(1)) == "slept"
    assert len(fixtures.begun) == 1


async def test_an_idle_connection_drains_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with draining(Fixtures(Limits(drain=5)).server) as (peer, drain):
        assert await peer.probe() == []
        drain.scope.cancel()
        with pytest.raises(EOFError):
            await peer.receive()
    assert drain.ended_at == pytest.approx(0, abs=0.1)


async def test_cancels_still_work_in_a_drain(autojump_clock: trio.testing.MockClock) -> None:
    fixtures = Fixtures(Limits(drain=5))
    async with draining(fixtures.server) as (peer, drain):
        await peer.send(call(1, "sleep", s=60))
        await sleeping(fixtures)
        drain.scope.cancel()
        await trio.sleep(1)
        await peer.send(cancel(1))
        with pytest.raises(EOFError):
            await peer.receive()
    assert drain.ended_at == pytest.approx(1, abs=0.1)
    cause = record_of(fixtures.server, 1).cause
    assert cause is not None
    assert cause.source is CancelSource.NOTIFICATION


async def test_invariant_11_a_peer_that_reads_nothing_does_not_hold_up_a_drain(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures(Limits(drain=1, stall=1000))
    ours, theirs = trio.testing.lockstep_stream_pair()
    drain = Drain(fixtures.server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain.serve, theirs)
        peer = RawPeer(ours, ours)
        await peer.send(call(1, "sleep", s=600), call(2, "echo", text="never read"))
        await sleeping(fixtures)
        await trio.sleep(1)
        drain.scope.cancel()
    assert drain.ended_at is not None
    assert drain.ended_at < 6
    assert fixtures.live == 0


# The client's side --------------------------------------------------------------------------------


@asynccontextmanager
async def checked_pair(
    server: Server, **options: Any
) -> AsyncGenerator[tuple[Client, WireCheck], None]:
    """Our client and a server in one process, with a witness between them."""
    ours, theirs = trio.testing.memory_stream_pair()
    check = WireCheck(strict_client=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_stream, theirs)
        async with connect(CheckedStream(ours, ours, check), **options) as client:
            yield client, check


def text_in(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def cancels_in(check: WireCheck) -> list[Any]:
    sent = [m for m in check.sent if m["method"] == "notifications/cancelled"]
    return [message["params"]["requestId"] for message in sent]


def calls_in(check: WireCheck) -> list[Any]:
    return [message["id"] for message in check.sent if message["method"] == "tools/call"]


@pytest.mark.parametrize("how", ["scope", "timeout", "handle"])
async def test_two_hundred_calls_given_up_are_two_hundred_cancels(
    how: str, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    given_up = 0
    async with checked_pair(fixtures.server) as (client, check):

        async def give_up() -> None:
            nonlocal given_up
            if how == "scope":
                with trio.move_on_after(5):
                    await client.call_tool("sleep", {"s": 60})
            elif how == "timeout":
                with pytest.raises(CallTimeout):
                    await client.call_tool("sleep", {"s": 60}, timeout=5)
            else:
                async with client.start_tool("sleep", {"s": 60}) as started:
                    await trio.sleep(5)
                    started.cancel("enough")
            given_up += 1

        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(give_up)
        assert given_up == 200
        assert trio.current_time() == pytest.approx(start + 5)
        await until(lambda: fixtures.live == 0)

        assert text_in(await client.call_tool("echo", {"text": "still here"})) == "still here"
        assert len(calls_in(check)) == 201
        assert sorted(cancels_in(check)) == sorted(calls_in(check))[:200]
        assert {type(request_id) for request_id in cancels_in(check)} == {int}
        assert [about(check.received, request_id) for request_id in cancels_in(check)] == [[]] * 200
        assert exchanges(fixtures.server) == []
        assert client.journal.ended[State.CANCELLED] == 200
    assert len(fixtures.released) == 200


async def test_the_caller_is_released_at_once_although_nobody_answers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A server that takes a second to stop must not hold up the one who cancelled."""
    deadlines = Deadlines()
    async with checked_pair(deadlines.server) as (client, check):
        start = trio.current_time()
        with trio.move_on_after(0.5) as scope:
            await client.call_tool("hold")
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(start + 0.5)
        async with client.start_tool("hold") as started:
            await trio.sleep(0.25)
            started.cancel("stop")
            assert started.state is State.CANCELLING
            with pytest.raises(CallCancelled, match="stop"):
                await started.result()
        assert trio.current_time() == pytest.approx(start + 0.75)
        await until(lambda: started.state is State.CANCELLED)
        assert trio.current_time() == pytest.approx(start + 0.75, abs=0.01)
        assert deadlines.released == []  # both clean up for three seconds
        await trio.sleep(5)
        assert len(deadlines.released) == 2
        assert cancels_in(check) == calls_in(check)


async def test_a_call_cancelled_before_it_was_sent_is_never_heard_of(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_pair(fixtures.server) as (client, check):
        async with client.start_tool("sleep", {"s": 60}) as started:
            started.cancel()
            assert started.state is State.CANCELLED
        assert text_in(await client.call_tool("echo", {"text": "x"})) == "x"
        assert len(calls_in(check)) == 1
        assert cancels_in(check) == []
    assert fixtures.begun == []


async def test_a_call_is_cancelled_once_and_not_after_its_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_pair(fixtures.server) as (client, check):
        async with client.start_tool("sleep", {"s": 60}) as started:
            await sleeping(fixtures)
            started.cancel("first")
            started.cancel("second")
        async with client.start_tool("echo", {"text": "x"}) as done:
            await done.result()
            done.cancel("too late")
            assert done.state is State.COMPLETED
        await until(lambda: started.record is not None)
        await client.call_tool("echo", {"text": "y"})
        assert cancels_in(check) == [calls_in(check)[0]]
        (sent,) = [m for m in check.sent if m["method"] == "notifications/cancelled"]
        assert sent["params"]["reason"] == "first"
        assert started.record is not None
        assert started.record.extra_cancels == 1


async def test_leaving_the_block_of_a_call_cancels_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_pair(fixtures.server) as (client, check):

        async def in_trouble() -> None:
            async with client.start_tool("sleep", {"s": 60}):
                await sleeping(fixtures)
                raise KeyError("the caller's own trouble")

        with pytest.raises(KeyError):
            await in_trouble()
        await until(lambda: fixtures.live == 0)
        assert cancels_in(check) == calls_in(check)
