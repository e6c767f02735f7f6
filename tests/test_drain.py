"""``server.drain()``: on every wire, bounded, from any task of the application; readiness."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.channel_wires import Memory, Tcp, WebSocket
from tests.peers.fixture_server import Fixtures
from tests.peers.http_wires import NativeHttp
from tests.peers.inspection import record_of
from tests.peers.raw import RawPeer, call, raw_process, text_of, until
from tests.peers.raw_http import post
from tests.peers.wires import InProcess, serving
from tests.test_asgi import site as hypercorn
from tests.test_http_server import serving as native

from trio_mcp import CancelSource, Context, DrainReport, ErrorCode, Limits, ScopeKind, Server, State


@asynccontextmanager
async def on_a_stream(server: Server) -> AsyncGenerator[tuple[RawPeer, trio.Event], None]:
    """A peer, and an event for the normal return of ``serve_stream``."""
    ours, theirs = trio.testing.memory_stream_pair()
    returned = trio.Event()

    async def serve() -> None:
        await server.serve_stream(theirs)
        returned.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await trio.testing.wait_all_tasks_blocked()
        yield RawPeer(ours, ours), returned


class Drain:
    """A drain in a task of its own."""

    def __init__(self) -> None:
        self.report: DrainReport | None = None
        self.scope = trio.CancelScope()
        self.ended_at: float | None = None

    async def run(self, drain: Callable[[], Awaitable[DrainReport]]) -> None:
        with self.scope:
            self.report = await drain()
        self.ended_at = trio.current_time()


# Every wire ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", [Tcp, Memory, WebSocket, NativeHttp], ids=lambda kind: kind.name)
async def test_a_drain_ends_every_wire_in_order(wire: type[InProcess]) -> None:
    async with serving(wire, drain=0.1) as site:
        assert isinstance(site, InProcess)
        server = site.server
        peer, other = await site.connect(), await site.connect()
        finishes = await peer.call("sleep", s=0.3, label="a")
        stays = await other.call("sleep", s=3600, label="b")
        await site.begun("a", "b")
        assert (server.ready, server.state) == (True, "ready")
        with trio.fail_after(5):
            report = await server.drain(0.8)
        assert text_of(await finishes.answer()) == "slept"
        assert (await stays.error())["code"] == ErrorCode.SHUTTING_DOWN
        if wire is NativeHttp:
            assert stays.status == 503
        assert (report.finished, report.cancelled, report.abandoned) == (1, 1, ())
        assert report.seconds >= 0.8
        assert (server.ready, server.state) == (False, "drained")
        if wire not in (Tcp, Memory):  # there the application listens
            with trio.fail_after(1):
                await site.ended.wait()  # returned, without an exception
        record = await site.record_of(stays)
        assert (record["source"], record["delivered"]) == ("SHUTDOWN", True)


async def test_nothing_in_flight_is_a_short_drain(autojump_clock: trio.testing.MockClock) -> None:
    server = Fixtures(Limits(drain=50)).server
    assert (server.ready, server.state) == (False, "idle")
    async with on_a_stream(server) as (peer, returned):
        report = await server.drain()
        await returned.wait()
        assert await peer.receive_stream.receive_some() == b""
    assert trio.current_time() < 1
    assert (report.finished, report.cancelled, report.abandoned) == (0, 0, ())
    assert report.describe() == "drained in 0.0 s: 0 finished, 0 cancelled, 0 abandoned"


async def test_new_requests_are_refused_in_the_very_step(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with on_a_stream(fixtures.server) as (peer, _), trio.open_nursery() as nursery:
        await peer.send(call(1, "sleep", s=3))
        await until(lambda: fixtures.live == 1)
        nursery.start_soon(fixtures.server.drain, 10)
        await trio.testing.wait_all_tasks_blocked()
        assert fixtures.server.state == "draining"
        assert fixtures.server.scopes().state == "draining"
        await peer.send(call(2, "echo", text="x"))
        assert (await peer.answer(2))["error"]["code"] == ErrorCode.SHUTTING_DOWN
        assert text_of(await peer.answer(1)) == "slept"


# Twice, cancelled, at odd times -------------------------------------------------------------------


async def test_a_second_call_waits_for_the_same_end_and_may_bring_it_forward(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    first, second = Drain(), Drain()
    async with on_a_stream(fixtures.server) as (peer, _), trio.open_nursery() as nursery:
        await peer.send(call(1, "sleep", s=3600))
        await until(lambda: fixtures.live == 1)
        began = trio.current_time()
        nursery.start_soon(first.run, lambda: fixtures.server.drain(100))
        await trio.sleep(3)
        nursery.start_soon(second.run, lambda: fixtures.server.drain(2))
        assert (await peer.answer(1))["error"]["code"] == ErrorCode.SHUTTING_DOWN
    for drain in (first, second):
        assert drain.ended_at is not None
        assert drain.ended_at - began == pytest.approx(5, abs=0.1)
        assert drain.report is not None
        assert drain.report.cancelled == 1
        assert drain.report.seconds == pytest.approx(5, abs=0.1)
    again = await fixtures.server.drain()
    assert (again.finished, again.cancelled) == (0, 1)


async def test_a_second_call_cannot_put_it_off(autojump_clock: trio.testing.MockClock) -> None:
    fixtures = Fixtures()
    async with on_a_stream(fixtures.server) as (peer, _), trio.open_nursery() as nursery:
        await peer.send(call(1, "sleep", s=3600))
        await until(lambda: fixtures.live == 1)
        began = trio.current_time()
        nursery.start_soon(fixtures.server.drain, 2)
        await trio.testing.wait_all_tasks_blocked()
        await fixtures.server.drain(100)
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)


async def test_cancelling_it_goes_on_as_an_immediate_shutdown(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with on_a_stream(fixtures.server) as (peer, returned):
        await peer.send(call(1, "sleep", s=3600))
        await until(lambda: fixtures.live == 1)
        began = trio.current_time()
        with trio.move_on_after(2) as scope:
            await fixtures.server.drain(100)
        assert scope.cancelled_caught
        assert trio.current_time() - began == pytest.approx(2, abs=0.01)
        assert (await peer.answer(1))["error"]["code"] == ErrorCode.SHUTTING_DOWN
        await returned.wait()
        assert trio.current_time() - began == pytest.approx(2, abs=0.01)


async def test_cancelling_the_scope_around_the_serving_shortens_a_long_drain() -> None:
    async with native(drain=0.1) as service, service.connect() as peer:
        await peer.send(post(call(1, "sleep", s=3600)))
        await until(lambda: service.fixtures.live == 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.fixtures.server.drain, 100)
            await trio.testing.wait_all_tasks_blocked(0.01)
            service.scope.cancel("now")
            with trio.fail_after(3):
                assert (await peer.response()).status == 503
                await service.ended.wait()


async def test_a_drained_server_serves_no_more_in_this_run(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Fixtures().server
    await server.drain()
    assert server.state == "drained"
    async with on_a_stream(server) as (peer, returned):
        await returned.wait()
        with pytest.raises(EOFError):
            await peer.receive()
    for serve in (server.serve_http, server.serve_websocket):
        with pytest.raises(RuntimeError, match="has been drained"):
            await serve(port=0)


def test_in_another_run_it_serves_again() -> None:
    server = Fixtures().server

    async def main() -> None:
        assert server.state in ("idle", "drained")  # nobody has begun to serve in this run yet
        async with on_a_stream(server) as (peer, _):
            await peer.send(call(1, "echo", text="x"))
            assert text_of(await peer.answer(1)) == "x"
            assert server.ready
            await server.drain()
            assert not server.ready

    trio.run(main)
    trio.run(main)


@pytest.mark.parametrize("limit", [-1, float("inf"), float("nan")])
async def test_a_limit_is_a_finite_number(limit: float) -> None:
    with pytest.raises(ValueError, match="limit is a finite number of seconds"):
        await Fixtures().server.drain(limit)


# Bounds, and what is left behind ------------------------------------------------------------------


async def test_invariant_11_a_thread_that_never_ends_is_in_the_report_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, gate = (
        Server("s", version="1", limits=Limits(drain=0.05, cleanup=0.05)),
        threading.Event(),
    )

    @server.tool
    def deaf() -> None:
        assert gate.wait(10)

    try:
        async with on_a_stream(server) as (peer, returned):
            await peer.send(call(1, "deaf"))
            await until(lambda: server.inflight() and server.inflight()[0].work)
            with trio.fail_after(3):
                report = await server.drain()
                await returned.wait()
            (left,) = report.abandoned
            assert (left.kind, left.label, left.state) == (ScopeKind.OFFLOAD, "deaf", "abandoned")
            assert report.cancelled == 1
            assert "1 abandoned\n  work 'deaf' of exchange " in report.describe()
        told = [r for r in caplog.records if r.name == "trio_mcp.server"]
        assert [record.levelno for record in told] == [logging.WARNING]
        assert "s: left behind: work 'deaf' of exchange" in told[0].getMessage()
    finally:
        gate.set()
    await until(lambda: not server.scopes().children)


@pytest.mark.parametrize("serve", ["stream", "http"])
async def test_a_serve_call_that_is_cancelled_says_what_it_leaves_behind(
    serve: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, gate = (
        Server("s", version="1", limits=Limits(drain=0.05, cleanup=0.05)),
        threading.Event(),
    )

    @server.tool
    def deaf() -> None:
        assert gate.wait(10)

    try:
        async with trio.open_nursery() as nursery:
            if serve == "http":
                port = await nursery.start(lambda **kw: server.serve_http(port=0, **kw))
                stream: Any = await trio.open_tcp_stream("127.0.0.1", port)
                await stream.send_all(post(call(1, "deaf")))
            else:
                stream, theirs = trio.testing.memory_stream_pair()
                nursery.start_soon(server.serve_stream, theirs)
                await RawPeer(stream, stream).send(call(1, "deaf"))
            await until(lambda: server.inflight() and server.inflight()[0].work)
            nursery.cancel_scope.cancel()
        await stream.aclose()
        told = [r.getMessage() for r in caplog.records if r.name == "trio_mcp.server"]
        assert len(told) == 1
        assert "left behind: work 'deaf' of exchange" in told[0]
        assert "abandoned, 0." in told[0]
    finally:
        gate.set()
    await until(lambda: not server.scopes().children)


async def test_invariant_11_a_handler_that_shields_itself_is_listed_and_waited_for_by_nobody(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(drain=1, cleanup=2, longest_cleanup=10)
    server, door = Server("s", version="1", limits=limits), trio.Event()

    @server.tool
    async def stubborn() -> None:
        with trio.CancelScope(shield=True):
            await door.wait()

    async with on_a_stream(server) as (peer, returned):
        await peer.send(call(1, "stubborn"))
        await trio.testing.wait_all_tasks_blocked()
        report = await server.drain(3)
        assert trio.current_time() == pytest.approx(3 + 10 + 2 + 2, abs=0.1)
        (left,) = report.abandoned
        assert (left.kind, left.label) == (ScopeKind.EXCHANGE, "tools/call stubborn")
        assert left.state == "cancelling"
        assert (report.finished, report.cancelled) == (0, 0)
        assert not returned.is_set()
        assert server.state == "draining"
        assert caplog.text.count("left behind: request 'tools/call stubborn'") == 1
        door.set()
        await returned.wait()
        assert (await server.drain()).cancelled == 1
    assert caplog.text.count("left behind") == 1


async def test_a_peer_that_reads_nothing_does_not_hold_it_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures(Limits(drain=1, stall=1000))
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fixtures.server.serve_stream, theirs)
        await RawPeer(ours, ours).send(call(1, "sleep", s=600), call(2, "echo", text="never read"))
        await until(lambda: fixtures.live == 1)
        await fixtures.server.drain(1)
    assert trio.current_time() < 6


async def test_a_handler_that_drains_its_own_server_is_cancelled_with_the_rest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("s", version="1")

    @server.tool
    async def stop(ctx: Context) -> None:
        await server.drain(2)

    async with on_a_stream(server) as (peer, returned):
        await peer.send(call(1, "stop"))
        assert (await peer.answer(1))["error"]["code"] == ErrorCode.SHUTTING_DOWN
        await returned.wait()
    record = record_of(server, 1)
    assert record.state is State.CANCELLED
    assert record.cause is not None
    assert record.cause.source is CancelSource.SHUTDOWN


# HTTP: health -------------------------------------------------------------------------------------


@pytest.mark.parametrize("carrier", ["native", "hypercorn"])
async def test_the_health_flips_at_once_and_stays_reachable_for_the_drain(carrier: str) -> None:
    made: Any = native(drain=0.3) if carrier == "native" else hypercorn(drain=0.3)
    async with made as service, service.connect() as peer:
        fixtures = service.fixtures
        ready = await service.ask(b"", path="/healthz", method="GET")
        assert (ready.status, ready.json) == (200, {"status": "ready"})
        assert fixtures.server.ready
        await peer.send(post(call(1, "sleep", s=3600)))
        await until(lambda: fixtures.live == 1)
        drain = Drain()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain.run, lambda: fixtures.server.drain(1.5))
            await trio.testing.wait_all_tasks_blocked(0.01)
            for _ in range(3):
                health = await service.ask(b"", path="/healthz", method="GET")
                assert (health.status, health.json) == (503, {"status": "draining"})
                assert fixtures.live == 1
            refused = await service.ask(call(2, "echo", text="x"))
            assert (refused.status, refused.code) == (503, ErrorCode.SHUTTING_DOWN)
            answer = await peer.response()
            assert (answer.status, answer.code) == (503, ErrorCode.SHUTTING_DOWN)
        assert drain.report is not None
        assert (drain.report.finished, drain.report.cancelled) == (0, 1)
        if carrier == "native":
            with trio.fail_after(1):
                await service.ended.wait()


async def test_a_cancelled_drain_cancels_what_an_application_of_others_serves() -> None:
    async with hypercorn(drain=0.3) as service, service.connect() as peer:
        await peer.send(post(call(1, "sleep", s=3600)))
        await until(lambda: service.fixtures.live == 1)
        with trio.move_on_after(0.05):
            await service.fixtures.server.drain(100)
        with trio.fail_after(2):
            assert (await peer.response()).status == 503


async def test_a_websocket_that_is_being_opened_is_refused_and_does_not_hold_it_up() -> None:
    fixtures = Fixtures(Limits(drain=0.2, http_head_time=100))
    ended = trio.Event()

    async def serve(task_status: trio.TaskStatus[int]) -> None:
        await fixtures.server.serve_websocket(port=0, task_status=task_status)
        ended.set()

    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve)
        late = await trio.open_tcp_stream("127.0.0.1", port)
        never = await trio.open_tcp_stream("127.0.0.1", port)
        await trio.testing.wait_all_tasks_blocked(0.02)
        async with trio.open_nursery() as draining:
            draining.start_soon(fixtures.server.drain, 0.5)
            await trio.testing.wait_all_tasks_blocked(0.02)
            await late.send_all(
                b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n\r\n"
            )
            assert (await late.receive_some()).startswith(b"HTTP/1.1 503 ")
            with trio.fail_after(3):
                await ended.wait()
        await late.aclose()
        await never.aclose()


# A process ----------------------------------------------------------------------------------------

SERVER = """
import sys, threading, trio
from trio_mcp import Limits, Server

server = Server("s", version="1", limits=Limits(drain=0.1, cleanup=0.1))

@server.tool
def deaf() -> None:
    print("begun", file=sys.stderr, flush=True)
    threading.Event().wait(60)

@server.tool
async def leave() -> str:
    trio.lowlevel.spawn_system_task(server.drain, 0.1)
    return "leaving"
"""


@pytest.mark.parametrize("how", ["run", "serve_stdio"])
async def test_a_process_over_stdio_drains_itself_says_what_it_leaves_and_exits(
    how: str, tmp_path: Path
) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER + ("" if how == "run" else "\ntrio.run(server.serve_stdio)\n"))
    command = ["-m", "trio_mcp", "run"] if how == "run" else []
    async with raw_process([sys.executable, *command, str(file)]) as peer:
        await peer.send(call(1, "deaf"))
        await until(lambda: b"begun" in peer.stderr, timeout=20)
        await peer.send(call(2, "leave"))
        assert text_of(await peer.answer(2)) == "leaving"
        assert (await peer.answer(1))["error"]["code"] == ErrorCode.SHUTTING_DOWN
        with trio.fail_after(10):
            await peer.process.wait()
        assert peer.process.returncode == 0
        await until(lambda: b"left behind: work 'deaf' of exchange" in peer.stderr)


@pytest.mark.parametrize("serve", ["serve_http", "serve_websocket"])
def test_a_server_that_was_drained_serves_in_the_next_run(serve: str) -> None:
    server = Server("again", version="1.0.0", limits=Limits(drain=0.1))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(
                lambda task_status: getattr(server, serve)(port=0, task_status=task_status)
            )
            await server.drain()
            nursery.cancel_scope.cancel()

    trio.run(main)
    trio.run(main)
