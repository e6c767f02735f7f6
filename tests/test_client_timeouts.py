"""A caller always gets control back in time, wherever the server leaves it waiting."""

from __future__ import annotations

import itertools
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing
from tests.peers.raw import until
from tests.peers.scripted import scripted
from tests.test_client_pages import progress
from tests.test_http_client import Post
from tests.test_http_client import scripted as scripted_http

from trio_mcp import CallTimeout, Client, Context, Limits, Server, connect
from trio_mcp.transports.http.client import HttpClientConnection

Peer: TypeAlias = Callable[[trio.SocketStream], Awaitable[None]]

LIMIT = 0.15
LARGE = {"text": "y" * 12_000_000}


async def echo(post: Post) -> None:
    await post.answer(post.result({"resultType": "complete", "content": []}))


def lead_to(client: Client, port: int) -> HttpClientConnection:
    """From now on, requests go to this port."""
    connection = client._connection
    assert isinstance(connection, HttpClientConnection)
    connection._url = connection._url.copy_with(port=port)
    return connection


async def times_out(
    client: Client, connection: HttpClientConnection, limit: str, outcome: str, **arguments: Any
) -> None:
    other = "timeout" if limit == "max_timeout" else "max_timeout"
    limits = {limit: LIMIT, other: 60.0}
    with trio.fail_after(5), pytest.raises(CallTimeout) as late:
        await client.call_tool("x", arguments, **limits)  # type: ignore[arg-type]
    assert (late.value.limit, late.value.seconds) == (limit, LIMIT)
    assert late.value.outcome == outcome
    assert late.value.elapsed >= LIMIT
    assert late.value.last_progress is None
    await until(lambda: not connection._posts)
    assert connection.calls == ()


async def reads_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def stops_in_the_body(stream: trio.SocketStream) -> None:
    await stream.receive_some(64 * 1024)
    await trio.sleep_forever()


async def says(words: bytes, stream: trio.SocketStream) -> None:
    while b"\r\n\r\n" not in await stream.receive_some(64 * 1024):
        pass
    await stream.send_all(words)
    await trio.sleep_forever()


OK = b"HTTP/1.1 200 OK\r\n"
JSON = OK + b"Content-Type: application/json\r\n"
EVENTS = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def diverted(peer: Peer) -> AsyncGenerator[tuple[Client, HttpClientConnection], None]:
    """A client whose calls go to ``peer`` once it is connected."""
    async with scripted_http(echo) as (client, _), trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, peer, 0, host="127.0.0.1"))
        yield client, lead_to(client, listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("limit", ["timeout", "max_timeout"])
@pytest.mark.parametrize(
    "peer",
    [
        reads_nothing,
        stops_in_the_body,
        partial(says, b""),
        partial(says, OK),
        partial(says, JSON + b"Content-Length: 100\r\n\r\n"),
        partial(says, JSON + b'Content-Length: 100\r\n\r\n{"jsonrpc":"2.0",'),
        partial(says, EVENTS),
        partial(says, EVENTS + b'8\r\ndata: {"\r\n'),
    ],
    ids=[
        "reads nothing",
        "stops in the body",
        "no headers",
        "half of the headers",
        "no body",
        "half of the body",
        "no event",
        "half of an event",
    ],
)
async def test_a_timeout_covers_writing_and_reading(limit: str, peer: Peer) -> None:
    large = LARGE if peer in (reads_nothing, stops_in_the_body) else {}
    async with diverted(peer) as (client, connection):
        await times_out(client, connection, limit, "unknown", **large)


@pytest.mark.parametrize("limit", ["timeout", "max_timeout"])
async def test_a_timeout_covers_connecting(limit: str) -> None:
    """The queue of a socket that accepts nothing is full: the next connection is never made."""
    async with scripted_http(echo) as (client, _):
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            waiting = []
            for _ in range(4):
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(deaf.getsockname())
                waiting.append(one)
            connection = lead_to(client, deaf.getsockname()[1])
            await times_out(client, connection, limit, "not sent")
            for one in waiting:
                one.close()


@pytest.mark.parametrize("limit", ["timeout", "max_timeout"])
async def test_a_timeout_covers_the_wait_for_the_pool(limit: str) -> None:
    async def hold(post: Post) -> None:
        await (post.closed_by_client() if post.tool == "hold" else echo(post))

    async with scripted_http(hold, Limits(http_pool=1)) as (client, server):
        async with client.start_tool("hold"):
            await server.wait_for_calls(1)
            limits: dict[str, Any] = {"timeout": 60.0, "max_timeout": 60.0, limit: LIMIT}
            with trio.fail_after(5), pytest.raises(CallTimeout) as late:
                await client.call_tool("waits", **limits)
            assert (late.value.limit, late.value.outcome) == (limit, "not sent")
        await client.call_tool("echo", timeout=5)
        assert [post.tool for post in server.calls()] == ["hold", "echo"]


@pytest.mark.parametrize("everywhere", [True, False])
async def test_progress_is_no_sign_of_life_where_that_is_not_wanted(
    everywhere: bool, autojump_clock: trio.testing.MockClock
) -> None:
    options = {"reset_on_progress": False} if everywhere else {}
    async with scripted(lambda request: None, **options) as (client, script):

        async def work_for_ever() -> None:
            await until(lambda: script.sent("tools/call"))
            for minute in itertools.count():
                await trio.sleep(60)
                await script.say(progress(2, str(minute).encode()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work_for_ever)
            call = partial(client.call_tool, "any", timeout=90)
            with pytest.raises(CallTimeout) as timeout:
                await (call() if everywhere else call(reset_on_progress=False))
            nursery.cancel_scope.cancel()
        assert timeout.value.limit == "timeout"
        assert timeout.value.elapsed == pytest.approx(90)
        assert timeout.value.last_progress is not None
        assert timeout.value.last_progress.progress == 0


async def test_a_call_may_want_progress_to_count_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(lambda request: None, reset_on_progress=False) as (client, script):

        async def work_for_a_while() -> None:
            await until(lambda: script.sent("tools/call"))
            await trio.sleep(60)
            await script.say(progress(2, b"1"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work_for_a_while)
            with pytest.raises(CallTimeout) as timeout:
                await client.call_tool("any", timeout=90, reset_on_progress=True)
        assert timeout.value.elapsed == pytest.approx(150, abs=0.1)


@pytest.mark.parametrize("reset_on_progress", [True, False])
async def test_a_slow_callback_is_no_silence_of_the_server(
    reset_on_progress: bool, autojump_clock: trio.testing.MockClock
) -> None:
    server = Server("slow", version="1")

    @server.tool
    async def work(ctx: Context) -> str:
        ctx.progress(1)
        await trio.sleep(1.3)
        return "done"

    async def show(_: object) -> None:
        await trio.sleep(1.2)

    async with connect(server, timeout=1, reset_on_progress=reset_on_progress) as client:
        assert (await client.call_tool("work", on_progress=show)).text == "done"
        with pytest.raises(CallTimeout) as timed_out:
            await client.call_tool("work")
        assert timed_out.value.elapsed == pytest.approx(1)


async def test_policies_that_are_none_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"retry= takes a Retry, .* not 3"):
        connect(Server("s", version="1"), retry=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="restart= takes a Restart, not True"):
        connect(["server"], restart=True)  # type: ignore[arg-type]
