"""What an operator can see and do: ``server.inflight()`` and ``server.cancel()``, on every wire."""

from __future__ import annotations

import functools
import math
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from tests.peers.channel_wires import Memory, Tcp, WebSocket
from tests.peers.fixture_server import Fixtures
from tests.peers.http_wires import HypercornHttp1, HypercornHttp2, NativeHttp
from tests.peers.inspection import record_of
from tests.peers.raw import call, cancel, raw_client, request, text_of, until
from tests.peers.raw_http import post
from tests.peers.wires import InProcess, serving
from tests.test_races import ScriptedWire

from trio_mcp import (
    CancelSource,
    Context,
    ErrorCode,
    InFlight,
    Limits,
    Principal,
    Server,
    State,
    connect,
)
from trio_mcp.transports.serving import serve_wire

WIRES: list[type[InProcess]] = [
    Tcp,
    Memory,
    WebSocket,
    NativeHttp,
    HypercornHttp1,
    HypercornHttp2,
]


@pytest.fixture(params=WIRES, ids=lambda kind: kind.name)
def wire(request: pytest.FixtureRequest) -> type[InProcess]:
    kind: type[InProcess] = request.param
    return kind


def in_flight(server: Server) -> dict[Any, InFlight]:
    return {one.request_id: one for one in server.inflight()}


# Every wire ---------------------------------------------------------------------------------------


async def test_an_operator_sees_and_cancels_one_request_on_every_wire(
    wire: type[InProcess],
) -> None:
    async with serving(wire) as site:
        assert isinstance(site, InProcess)
        server = site.server
        assert server.inflight() == ()
        peer = await site.connect()
        other = await site.connect()
        handle = await peer.call("gated", label="a")
        spared = await other.call("gated", label="b")
        await site.begun("a", "b")
        seen = in_flight(server)
        assert set(seen) == {handle.id, spared.id}
        one = seen[handle.id]
        assert (one.method, one.target, one.client) == ("tools/call", "gated", "raw 1")
        assert (one.state, one.phase, one.cause) == (State.RUNNING, "working", None)
        assert one.age >= 0
        assert one.connection

        assert server.cancel(one.key, "too expensive") is True
        assert server.cancel(one.key, "again") is False
        error = await handle.error()
        assert error["code"] == ErrorCode.CANCELLED_BY_OPERATOR
        assert error["message"] == "Cancelled by the server's operator: too expensive"
        if issubclass(wire, (NativeHttp, HypercornHttp1, HypercornHttp2)):
            assert handle.status == 200  # it has run: clients look into the body
        record = await site.record_of(handle)
        assert (record["state"], record["source"]) == ("CANCELLED", "OPERATOR")
        assert (record["cleanup"], record["delivered"]) == ("clean", True)
        assert not spared.answered
        assert server.cancel(one.key) is False  # it is over
        assert set(in_flight(server)) == {spared.id}
        await site.open_gate()
        assert text_of(await spared.answer()) == "b"


async def test_a_stream_that_is_open_already_ends_with_the_error(wire: type[InProcess]) -> None:
    async with serving(wire) as site:
        assert isinstance(site, InProcess)
        peer = await site.connect()
        handle = await peer.call("speak", token="t", label="a")
        await handle.notified()
        (one,) = site.server.inflight()
        assert site.server.cancel(one.key)
        assert (await handle.error())["message"] == "Cancelled by the server's operator"
        if handle.status is not None:
            await handle.over.wait()


async def test_a_subscription_can_be_cancelled_too() -> None:
    """An error, for it was not ended in order; on channels its end is told once more, as ever."""
    fixtures = Fixtures()
    async with raw_client(fixtures.server) as peer:
        wanted = {"notifications": {"toolsListChanged": True}}
        await peer.send(request("s", "subscriptions/listen", wanted))
        await peer.receive()
        (one,) = fixtures.server.inflight()
        assert (one.method, one.target) == ("subscriptions/listen", "tools")
        assert fixtures.server.cancel(one.key)
        assert (await peer.receive())["error"]["code"] == ErrorCode.CANCELLED_BY_OPERATOR
        assert (await peer.receive())["method"] == "notifications/cancelled"
        assert await peer.probe() == []


# What is seen -------------------------------------------------------------------------------------


async def test_queued_working_answering_and_deadlines(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures, wire = Fixtures(), ScriptedWire()
    server = fixtures.server

    @server.tool(timeout=30)
    async def limited() -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        await trio.testing.wait_all_tasks_blocked()
        wire.stop_taking()
        wire.feed(call("first", "echo", text="blocks the writer"))
        await trio.testing.wait_all_tasks_blocked()
        wire.feed(call("answered", "echo", text="x"), call("limited", "limited"))
        await trio.testing.wait_all_tasks_blocked()
        seen = in_flight(server)
        assert set(seen) == {"answered", "limited"}
        assert seen["answered"].phase == "answering"
        assert seen["limited"].phase == "working"
        assert seen["limited"].deadline == 30
        assert seen["answered"].deadline == math.inf
        await trio.sleep(5)
        assert in_flight(server)["limited"].age == 5
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            seen["limited"].key = 3  # type: ignore[misc]

        connection = server._core.connections.copy().pop()
        connection._on_request(  # type: ignore[attr-defined]
            attrs.evolve(next(iter(connection.exchanges())).request, id="new"), 5
        )
        assert in_flight(server)["new"].phase == "queued"  # its task has not run yet
        assert server.cancel(in_flight(server)["new"].key)
        wire.take_again()
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    record = record_of(server, "new")
    assert (record.state, record.started_at) == (State.CANCELLED, None)
    assert server.inflight() == ()


async def test_threads_are_seen_with_their_request() -> None:
    server = Server("threads", version="1")
    gate = trio.Event()

    @server.tool
    def waits(ctx: Context) -> str:
        trio.from_thread.run(gate.wait)
        return "done"

    async with raw_client(server) as peer:
        await peer.send(call(1, "waits"))
        await until(lambda: server.inflight() and server.inflight()[0].work)
        (work,) = server.inflight()[0].work
        assert (work.label, work.state) == ("waits", "running")
        gate.set()
        await peer.answer(1)


async def test_a_request_whose_answer_is_going_out_is_in_flight_no_more() -> None:
    """There is nothing left to cancel, though its client does not read."""
    server = Server("big", version="1")

    @server.tool
    async def big() -> str:
        return "x" * 8_000_000

    def going_out() -> bool:
        connections = tuple(server._core.connections)
        return any(one.ended_at for connection in connections for one in connection.exchanges())

    async with trio.open_nursery() as nursery:
        port = await nursery.start(functools.partial(server.serve_http, port=0))
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(post(call(1, "big")))
            await until(going_out)
            assert server.inflight() == ()
        nursery.cancel_scope.cancel()


async def test_texts_of_a_peer_are_clipped() -> None:
    fixtures = Fixtures(Limits(text_length=4))
    async with raw_client(fixtures.server) as peer:
        await peer.send(call(3, "sleep", s=60))
        await until(lambda: fixtures.live == 1)
        (one,) = fixtures.server.inflight()
        assert (one.method, one.target, one.client) == ("tool", "slee", "raw ")
        assert fixtures.server.cancel(one.key, "r" * 100 + "\ud800")
        error = (await peer.answer(3))["error"]
        assert error["message"] == "Cancelled by the server's operator: rrrr"


async def test_a_principals_name_is_clipped_too() -> None:
    fixtures, wire = Fixtures(Limits(text_length=4)), ScriptedWire()
    async with trio.open_nursery() as nursery:
        principal = Principal("somebody")
        nursery.start_soon(serve_wire, fixtures.server._core, wire, principal)
        wire.feed(call(1, "sleep", s=60))
        await until(lambda: fixtures.live == 1)
        assert [one.principal for one in fixtures.server.inflight()] == ["some"]
        wire.hang_up()


# What is done -------------------------------------------------------------------------------------


async def test_a_reason_that_no_wire_can_hold_is_told_in_other_words() -> None:
    fixtures = Fixtures()
    async with raw_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", s=60))
        await until(lambda: fixtures.live == 1)
        (one,) = fixtures.server.inflight()
        with pytest.raises(TypeError, match="reason is a text, not 3"):
            fixtures.server.cancel(one.key, 3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"key is a whole number, not '3'"):
            fixtures.server.cancel("3")  # type: ignore[arg-type]
        assert fixtures.server.cancel(one.key, "half a \ud800 pair")
        assert "half a \\ud800 pair" in (await peer.answer(1))["error"]["message"]


async def test_nobody_and_never_served() -> None:
    assert Fixtures().server.cancel(1) is False
    assert Fixtures().server.inflight() == ()


async def test_the_first_cause_wins_and_a_peer_that_cancels_too_hears_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server, released = Server("slow", version="1"), []

    @server.tool
    async def slow(ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with ctx.cleanup(5):
                await trio.sleep(1)
            released.append(trio.current_time())

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with raw_client(server) as peer:
        for number, first in ((1, "operator"), (2, "peer")):
            await peer.send(call(number, "slow"))
            await trio.testing.wait_all_tasks_blocked()
            key = in_flight(server)[number].key
            if first == "operator":
                assert server.cancel(key, "stop") is True
                assert in_flight(server)[number].state is State.CANCELLING  # it never waits
                await peer.send(cancel(number))
            else:
                await peer.send(cancel(number))
                await trio.testing.wait_all_tasks_blocked()
                assert server.cancel(key, "stop") is False
            await until(lambda n=number: len(released) == n)  # type: ignore[misc]
            assert await peer.probe() == []
    causes = [record_of(server, number).cause for number in (1, 2)]
    assert [cause and cause.source for cause in causes] == [
        CancelSource.OPERATOR,
        CancelSource.NOTIFICATION,
    ]


async def test_invariant_3_an_answer_that_waits_in_the_writer_is_replaced_and_said_once() -> None:
    fixtures, wire = Fixtures(), ScriptedWire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fixtures.server.serve_wire, wire)
        wire.stop_taking()
        wire.feed(call(1, "echo", text="blocks the writer"))
        await until(lambda: "written" in dict(wire.log))
        wire.feed(call(2, "echo", text="waits behind it"))
        await trio.testing.wait_all_tasks_blocked()
        (one,) = fixtures.server.inflight()
        assert fixtures.server.cancel(one.key, "no")
        assert in_flight(fixtures.server)[2].state is State.CANCELLED  # and not told yet
        (connection,) = fixtures.server._core.connections
        assert len(connection._channel._queue) == 1  # type: ignore[attr-defined]
        wire.take_again()
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    written = [message for what, message in wire.log if what == "written"]
    assert [message["id"] for message in written] == [1, 2]
    assert written[1]["error"]["code"] == ErrorCode.CANCELLED_BY_OPERATOR
    record = record_of(fixtures.server, 2)
    assert [late.kind for late in record.late] == ["result"]
    assert record.cause is not None
    assert record.cause.source is CancelSource.OPERATOR


async def test_a_client_is_told_by_an_exception_of_its_own_and_from_a_thread_too() -> None:
    from trio_mcp import CancelledByOperator

    fixtures = Fixtures()
    async with connect(fixtures.server) as client, trio.open_nursery() as nursery:

        async def operate() -> None:
            await until(lambda: fixtures.live == 1)
            (one,) = fixtures.server.inflight()
            assert await trio.to_thread.run_sync(
                lambda: trio.from_thread.run_sync(fixtures.server.cancel, one.key, "stop")
            )

        nursery.start_soon(operate)
        with pytest.raises(CancelledByOperator, match="stop"):
            await client.call_tool("sleep", {"s": 60})
