"""A server inside of an application that has a nursery and tasks of its own.

Whatever fails in the server, or is cancelled in it, is never the application's failure and never
cancels its tasks; and the application's own scopes mean what they always do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import trio
from tests.peers.raw import RawPeer, call, until
from tests.peers.stopping import stop
from tests.peers.stops import STOPS, Stop
from tests.peers.work import AskingThread, Async, Command, DeafThread, Work

from trio_mcp import (
    Client,
    ConnectionLost,
    Context,
    Limits,
    Server,
    ServerError,
    State,
    ToolError,
    connect,
)


class Application:
    """Its tasks count up for as long as nothing cancels them."""

    def __init__(self) -> None:
        self.beats = [0, 0]
        self.ended = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        """Its nursery. In the end each task has gone on all the time, and been cancelled once."""
        async with trio.open_nursery() as nursery:
            for task in range(len(self.beats)):
                nursery.start_soon(self._beat, task)
            await trio.testing.wait_all_tasks_blocked()
            with trio.CancelScope() as ours:
                yield nursery
            assert not ours.cancelled_caught
            assert self.ended == 0
            before = list(self.beats)
            await until(lambda: all(map(int.__lt__, before, self.beats)))
            assert not nursery.cancel_scope.cancel_called
            nursery.cancel_scope.cancel()
        assert self.ended == len(self.beats)

    async def _beat(self, task: int) -> None:
        try:
            while True:
                self.beats[task] += 1
                await trio.sleep(0.001)
        finally:
            self.ended += 1


def failing_server() -> Server:
    server = Server("failing", version="1", limits=Limits(cleanup=0.1, drain=0.1))

    @server.tool
    async def raises(kind: str, ctx: Context) -> None:
        match kind:
            case "error":
                raise ZeroDivisionError
            case "tool error":
                raise ToolError("no")
            case "group":
                raise ExceptionGroup("several", [ValueError(), TypeError()])
            case "child":
                ctx.nursery.start_soon(fail)
                await trio.sleep_forever()
            case "own cancellation":
                ctx.nursery.cancel_scope.cancel()
                await trio.sleep_forever()
            case "cleanup":
                try:
                    ctx.nursery.cancel_scope.cancel()
                    await trio.sleep_forever()
                finally:
                    raise ValueError
            case "recursion":
                await raises(kind, ctx)
            case "memory":
                raise MemoryError

    async def fail() -> None:
        raise OSError

    @server.tool
    async def fine() -> str:
        return "fine"

    return server


KINDS = [
    "error",
    "tool error",
    "group",
    "child",
    "own cancellation",
    "cleanup",
    "recursion",
    "memory",
]


async def try_all(client: Client) -> None:
    for kind in KINDS:
        try:
            result = await client.call_tool("raises", {"kind": kind})
            assert result.is_error or kind == "own cancellation"
        except ServerError:
            pass
    assert not (await client.call_tool("fine")).is_error


async def test_failures_of_handlers_are_not_the_applications() -> None:
    app, server = Application(), failing_server()
    async with app.running() as nursery:
        http = await nursery.start(server.serve_http, "127.0.0.1", 0)
        websocket = await nursery.start(server.serve_websocket, "127.0.0.1", 0)
        for target in (server, f"http://127.0.0.1:{http}/mcp", f"ws://127.0.0.1:{websocket}/mcp"):
            async with connect(target) as client:
                await try_all(client)


@pytest.mark.parametrize("way", STOPS, ids=lambda way: way.name)
@pytest.mark.parametrize("kind", [Async, AskingThread, DeafThread, Command])
async def test_cancellations_of_requests_are_not_the_applications(
    kind: type[Work], way: type[Stop]
) -> None:
    app = Application()
    async with app.running():
        await stop(kind, way)


async def test_a_connection_that_breaks_is_not_the_applications() -> None:
    app, server = Application(), failing_server()
    async with app.running() as nursery:
        port = await nursery.start(server.serve_http, "127.0.0.1", 0)
        for data in (b"\x00" * 100, b"GET", b"POST /mcp HTTP/1.1\r\nContent-Length: 10\r\n\r\n{"):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(data)
            await stream.aclose()
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(server.serve_stream, theirs)
        await RawPeer(ours, ours).send(b"garbage", call(1, "fine"))
        await ours.aclose()
        async with httpx2.AsyncClient() as http:
            assert (await http.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200


async def test_a_client_that_loses_its_server_is_not_the_applications() -> None:
    app = Application()
    async with app.running():
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            serving = trio.CancelScope()

            async def serve() -> None:
                with serving:
                    await failing_server().serve_stream(theirs)

            nursery.start_soon(serve)
            async with connect(ours) as client:
                assert not (await client.call_tool("fine")).is_error
                serving.cancel()
                with pytest.raises((ConnectionLost, ServerError)):
                    await client.call_tool("fine")


async def test_the_applications_scope_around_the_serving_means_what_it_says() -> None:
    """The deadline of the application ends its serving, and nothing else of it."""
    app, server = Application(), failing_server()
    async with app.running() as nursery:
        ports: list[Any] = []
        with trio.move_on_after(0.2) as scope:
            async with trio.open_nursery() as inner:
                ports.append(await inner.start(server.serve_http, "127.0.0.1", 0))
        assert scope.cancelled_caught
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
            await trio.open_tcp_stream("127.0.0.1", ports[0])
        port = await nursery.start(server.serve_http, "127.0.0.1", 0)  # and it may serve again
        async with connect(f"http://127.0.0.1:{port}/mcp") as client:
            await try_all(client)


async def test_a_callers_deadline_is_never_changed() -> None:
    app, server = Application(), failing_server()
    seen: list[float] = []

    @server.tool
    async def slow() -> None:
        await trio.sleep_forever()

    def effective(note: Callable[[float], None]) -> None:
        note(trio.current_effective_deadline())

    async with app.running(), connect(server) as client:
        with trio.move_on_after(60):
            effective(seen.append)
            with trio.move_on_after(0.05):
                await client.call_tool("slow", timeout=30, max_timeout=50)
            effective(seen.append)
            await try_all(client)
            effective(seen.append)
    assert len(set(seen)) == 1
    assert server.journal.ended[State.CANCELLED] == 1
