"""What peers and handlers did to break it, and may not again."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from tests.peers.fixture_server import Fixtures
from tests.peers.raw import call, cancel, raw_client, text_of, until
from tests.test_races import ScriptedWire

from trio_mcp import (
    CancelSource,
    Context,
    ErrorCode,
    Limits,
    ProtocolError,
    Server,
    ServerError,
    State,
    ToolError,
    connect,
)


class Half(float):
    """A number like numpy's, whose own conversions are another matter."""

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")


class Label(str):
    __slots__ = ()


class BrokenError(ProtocolError):
    def __init__(self) -> None:  # does not make its base
        pass


class BottomlessError(ProtocolError):
    def __init__(self) -> None:
        super().__init__(-1, "data that is no JSON", {"it": object()})


async def test_invariant_6_progress_with_numbers_of_a_subclass_is_sent_as_plain_ones() -> None:
    server = Server("s", version="1")

    @server.tool
    async def report(ctx: Context) -> str:
        ctx.progress(Half(0.5), Half(2.0), Label("half"))
        await trio.lowlevel.checkpoint()
        return "reported"

    async with raw_client(server) as peer:
        await peer.send(call(1, "report", token="t"))
        assert text_of(await peer.answer(1)) == "reported"
        assert peer.seen[0]["params"] == {
            "progressToken": "t",
            "progress": 0.5,
            "total": 2.0,
            "message": "half",
        }


@pytest.mark.parametrize("error", [BrokenError, BottomlessError, GeneratorExit, SystemExit])
async def test_invariant_6_whatever_a_handler_raises_is_its_own_failure(
    error: type[BaseException],
) -> None:
    fixtures = Fixtures()

    @fixtures.server.tool
    async def fail() -> str:
        raise error()

    @fixtures.server.tool
    def fail_in_a_thread() -> str:
        raise error()

    async with raw_client(fixtures.server) as peer:
        await peer.send(call("sibling", "sleep", s=0.1), call(1, "fail"))
        await peer.send(call(2, "fail_in_a_thread"))
        for request_id in (1, 2):
            answer = await peer.answer(request_id)
            assert answer["error"]["code"] == ErrorCode.INTERNAL_ERROR
        assert text_of(await peer.answer("sibling")) == "slept"
    assert fixtures.server._core.inflight == 0


async def test_a_tool_error_of_a_child_is_the_tools_failure() -> None:
    server = Server("s", version="1")

    async def child() -> None:
        raise ToolError("a child failed: caf\udce9")

    @server.tool
    async def parent(ctx: Context) -> str:
        ctx.nursery.start_soon(child)
        await trio.sleep_forever()
        return "never"

    async with connect(server) as client:
        result = await client.call_tool("parent")
    assert result.is_error
    assert result.text == r"a child failed: caf\udce9"


async def test_invariant_9_what_was_dropped_unwritten_is_not_held_against_the_peer() -> None:
    fixtures, wire = Fixtures(Limits(bytes_per_connection=100_000)), ScriptedWire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fixtures.server.serve_wire, wire)
        for number in range(10):
            wire.stop_taking()
            wire.feed(call(f"blocks {number}", "echo", text="x"))
            await trio.testing.wait_all_tasks_blocked()
            wire.feed(call(number, "big", bytes=50_000))
            await trio.testing.wait_all_tasks_blocked()
            wire.feed(cancel(number))
            await trio.testing.wait_all_tasks_blocked()
            wire.take_again()
            await trio.testing.wait_all_tasks_blocked()
        wire.feed(call("after", "echo", text="still served"))
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    answers = {m["id"]: m for what, m in wire.log if what == "written"}
    assert text_of(answers["after"]) == "still served"


async def test_invariant_9_no_thread_begins_while_too_many_answers_wait() -> None:
    """All are taken at once, before there is any answer that could wait."""
    limits = Limits(bytes_per_connection=1_000_000, threads=1)
    server, wire = Server("s", version="1", limits=limits), ScriptedWire()
    ran: list[int] = []
    all_taken = threading.Event()

    @server.tool
    def big(number: int) -> str:
        all_taken.wait(20)
        ran.append(number)
        return "x" * 300_000

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        wire.stop_taking()
        for number in range(50):
            wire.feed(call(number, "big", number=number))
        await until(lambda: server._core.inflight == 50)
        all_taken.set()
        await until(lambda: not server._core.pools.threads().busy and len(ran) > 3)
        wire.take_again()
        await until(lambda: server._core.inflight == 0)
        wire.hang_up()
    answers = [m for what, m in wire.log if what == "written"]
    refused = [m for m in answers if "error" in m]
    assert len(answers) == 50
    assert {m["error"]["code"] for m in refused} == {ErrorCode.OVERLOADED}
    assert {m["id"] for m in refused}.isdisjoint(ran)


async def test_invariant_9_no_request_is_taken_while_too_many_answers_wait() -> None:
    fixtures, wire = Fixtures(Limits(bytes_per_connection=1_000_000)), ScriptedWire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fixtures.server.serve_wire, wire)
        wire.stop_taking()
        for number in range(50):
            wire.feed(call(number, "big", bytes=300_000))
            await trio.testing.wait_all_tasks_blocked()
        (connection,) = fixtures.server._core.connections
        assert connection._channel.queued_bytes < 1_400_000  # type: ignore[attr-defined]
        wire.take_again()
        await trio.testing.wait_all_tasks_blocked()
        wire.feed(call("after", "echo", text="served again"))
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    answers = [m for what, m in wire.log if what == "written"]
    codes = {m["error"]["code"] for m in answers if "error" in m}
    assert codes == {ErrorCode.OVERLOADED}
    assert len(answers) == 51
    assert text_of(answers[-1]) == "served again"


async def test_invariant_8_cancels_of_an_id_that_was_refused_often_cost_nothing() -> None:
    """Each refusal is dropped once: the second cancel finds nothing."""
    fixtures, wire = Fixtures(), ScriptedWire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fixtures.server.serve_wire, wire)
        wire.stop_taking()
        wire.feed(*({"jsonrpc": "2.0", "id": 1, "method": 7} for _ in range(1000)))
        await trio.testing.wait_all_tasks_blocked()
        (connection,) = fixtures.server._core.connections
        wire.feed(cancel(1))
        await trio.testing.wait_all_tasks_blocked()
        assert connection._refusals == {}  # type: ignore[attr-defined]
        wire.take_again()
        wire.feed(call(1, "echo", text="the id is free"))
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    answers = [m for what, m in wire.log if what == "written"]
    assert text_of(answers[-1]) == "the id is free"


async def test_invariant_8_ids_that_would_collide_in_a_table_of_integers_do_not() -> None:
    from trio_mcp.runtime.jsonrpc import id_key

    colliding = [number * (2**61 - 1) for number in range(1000)]
    assert len({hash(number) for number in colliding}) == 1
    assert len({hash(id_key(number)) for number in colliding}) == 1000
    assert id_key(7) != id_key("7") != id_key("i7")


async def test_invariant_8_others_have_their_turn_while_one_peer_floods() -> None:
    fixtures, wire = Fixtures(), ScriptedWire()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fixtures.server.serve_wire, wire)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(other)
        wire.feed(*({"garbage": True} for _ in range(10_000)))
        await until(lambda: "written" in dict(wire.log))
        before = turns
        await until(lambda: len(wire.log) >= 20_000)
        assert turns - before >= 20
        nursery.cancel_scope.cancel()


async def test_invariant_11_a_slow_reader_does_not_prolong_a_shutdown(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = Limits(drain=1, stall=30)
    server = Server("s", version="1", limits=limits)

    @server.tool
    async def big() -> str:
        return "x" * 4_000_000

    ours, theirs = trio.testing.lockstep_stream_pair()

    async def read_slowly() -> None:
        try:
            while await ours.receive_some(64 * 1024):  # noqa: ASYNC110 - it is slow
                await trio.sleep(0.9)
        except trio.BrokenResourceError:
            pass

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(read_slowly)
            async with trio.open_nursery() as serving:
                serving.start_soon(server.serve_stream, theirs)
                for number in range(3):
                    await ours.send_all(_line(call(number, "big")))
                await trio.sleep(0.5)
                began = trio.current_time()
                scope.cancel()
        assert trio.current_time() - began <= 2 * limits.drain + 2
        nursery.cancel_scope.cancel()


def _line(message: Any) -> bytes:
    from tests.peers.raw import lines

    return lines(message)


async def test_a_reason_that_is_no_text_is_told_escaped() -> None:
    fixtures = Fixtures()
    async with connect(fixtures.server) as client:
        async with client.start_tool("sleep", {"s": 60}) as handle:
            await until(lambda: fixtures.live == 1)
            handle.cancel("caf\udce9")
            record = await handle.ended()
        assert record.state is State.CANCELLED
        await until(lambda: fixtures.live == 0)
    (cancelled,) = [r for r in fixtures.server.journal if r.cause is not None]
    assert cancelled.cause is not None
    assert cancelled.cause.source is CancelSource.NOTIFICATION
    assert cancelled.cause.reason == r"caf\udce9"


async def test_invariant_9_errors_in_records_are_clipped() -> None:
    server = Server("s", version="1")

    @server.tool
    async def fail() -> str:
        raise ProtocolError(-5, "e" * 100_000)

    async with connect(server) as client:
        with pytest.raises(ServerError):
            await client.call_tool("fail")
        texts = [r.error for journal in (client.journal, server.journal) for r in journal]
    assert [len(text) for text in texts if text is not None] == [1000, 1000]


async def test_two_may_listen_to_the_progress_of_one_call() -> None:
    fixtures = Fixtures()
    heard: list[float] = []
    async with connect(fixtures.server) as client:
        async with client.start_tool("tick", {"n": 20, "dt": 0.03}) as handle:

            async def listen() -> None:
                async for update in handle.progress:
                    heard.append(update.progress)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen)
                nursery.start_soon(listen)
            assert (await handle.result()).text == "ticked"
    assert sorted(heard) == [float(number) for number in range(1, 21)]


def test_invariant_4_a_server_that_is_used_in_a_second_run_has_all_its_threads() -> None:
    fixtures = Fixtures(Limits(threads=1, cleanup=0.05))

    async def abandon() -> None:
        async with connect(fixtures.server) as client:
            with trio.move_on_after(0.05):
                await client.call_tool("block", {"s": 0.5})
            await until(lambda: fixtures.server.scopes().children[-1].state == "abandoned")

    async def use() -> None:
        async with connect(fixtures.server, timeout=5) as client:
            assert (await client.call_tool("block", {"s": 0.0})).text == "blocked"
        assert fixtures.server.scopes().children == ()

    trio.run(abandon)
    trio.run(use)
