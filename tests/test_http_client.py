"""The client over HTTP: against our own server, a scripted one, and the official SDK's."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import ssl
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import attrs
import msgspec
import pytest
import trio
import trustme
from tests.peers.scripted import DISCOVERED

from trio_mcp import (
    AuthorizationRequired,
    CallTimeout,
    Client,
    ConnectionLost,
    Context,
    IncompatibleServer,
    Limits,
    Overloaded,
    ProtocolViolation,
    Retry,
    Server,
    ServerError,
    connect,
    safe_to_repeat,
)
from trio_mcp.runtime.journal import Journal
from trio_mcp.runtime.lifecycle import CancelSource, State
from trio_mcp.runtime.mirrored import mirrored_parameters
from trio_mcp.transports.http.client import HttpClientConnection
from trio_mcp.transports.http.events import EventReader, EventTooLong
from trio_mcp.transports.http.parameters import MirroredTools, mirrored

# A scripted HTTP server --------------------------------------------------------------------------


@attrs.define(eq=False)
class Post:
    """A request that the scripted server has got, on its ``connection``-th connection."""

    headers: dict[str, str]
    body: dict[str, Any]
    connection: int
    stream: trio.SocketStream

    @property
    def method(self) -> str:
        method: str = self.body["method"]
        return method

    @property
    def tool(self) -> str:
        name: str = self.body["params"]["name"]
        return name

    def result(self, result: dict[str, Any]) -> bytes:
        return encode({"jsonrpc": "2.0", "id": self.body["id"], "result": result})

    def text(self, text: str) -> bytes:
        content = [{"type": "text", "text": text}]
        return self.result({"resultType": "complete", "content": content})

    def error(self, code: int, message: str = "no") -> bytes:
        error = {"code": code, "message": message}
        return encode({"jsonrpc": "2.0", "id": self.body["id"], "error": error})

    async def answer(
        self, body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = ""
    ) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}"
        head += f"Content-Type: {kind}\r\n\r\n" if kind else "\r\n"
        await self.stream.send_all(head.encode() + body)

    async def begin_events(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        await self.stream.send_all(head + b"Transfer-Encoding: chunked\r\n\r\n")

    async def send_chunk(self, data: bytes) -> None:
        await self.stream.send_all(b"%x\r\n%b\r\n" % (len(data), data))

    async def events(self, *events: bytes) -> None:
        await self.begin_events()
        for event in events:
            await self.send_chunk(event)
        await self.send_chunk(b"")

    async def closed_by_client(self) -> None:
        """Wait until the client has closed this connection."""
        with contextlib.suppress(trio.BrokenResourceError):
            assert await self.stream.receive_some(1) == b""


Script: TypeAlias = Callable[[Post], Awaitable[None]]
encode = msgspec.json.encode


@attrs.define
class Scripted:
    script: Script
    address: str = ""
    discover: bool = True
    posts: list[Post] = attrs.Factory(list)
    connections: itertools.count[int] = attrs.Factory(lambda: itertools.count(1))
    arrived: trio.Event = attrs.Factory(trio.Event)

    def calls(self) -> list[Post]:
        return [post for post in self.posts if post.method == "tools/call"]

    async def wait_for_calls(self, number: int) -> None:
        with trio.fail_after(5):
            while len(self.calls()) < number:
                self.arrived = trio.Event()
                await self.arrived.wait()

    async def serve(self, stream: trio.SocketStream) -> None:
        connection = next(self.connections)
        data = b""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                while b"\r\n\r\n" not in data:
                    more = await stream.receive_some()
                    if not more:
                        return
                    data += more
                head, _, data = data.partition(b"\r\n\r\n")
                line, *lines = head.decode("ascii").split("\r\n")
                assert line == "POST /mcp HTTP/1.1"
                pairs = [tuple(line.split(": ", 1)) for line in lines]
                headers = {name.lower(): value for name, value in pairs}
                assert len(headers) == len(pairs)
                while len(data) < int(headers["content-length"]):
                    more = await stream.receive_some()
                    if not more:
                        return
                    data += more
                size = int(headers["content-length"])
                post = Post(headers, msgspec.json.decode(data[:size]), connection, stream)
                data = data[size:]
                self.posts.append(post)
                self.arrived.set()
                if self.discover and post.method == "server/discover":
                    await post.answer(post.result(DISCOVERED))
                else:
                    await self.script(post)


@asynccontextmanager
async def serving(script: Script, *, discover: bool = True) -> AsyncGenerator[Scripted, None]:
    server = Scripted(script, discover=discover)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        server.address = f"http://127.0.0.1:{port}/mcp"
        with trio.fail_after(20):
            yield server
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def scripted(
    script: Script, limits: Limits | None = None, **options: Any
) -> AsyncGenerator[tuple[Client, Scripted], None]:
    async with serving(script) as server:
        async with connect(server.address, limits=limits, **options) as client:
            yield client, server


def drop(stream: trio.SocketStream) -> None:
    """Reset the connection."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that tells nobody when it happens."""
    with trio.fail_after(5):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


# Our own server ----------------------------------------------------------------------------------


class Bookshop:
    """Our server, with what its tools have seen."""

    def __init__(self) -> None:
        self.server = Server("bookshop", version="1")
        self.started = trio.Event()
        self.stopped = trio.Event()
        self.address = ""
        self.server.tool(self.echo)
        self.server.tool(self.sleep)
        self.server.tool(self.tick)
        self.server.tool(self.bug)

    async def echo(self, text: str) -> str:
        return text

    async def sleep(self) -> str:
        self.started.set()
        try:
            await trio.sleep_forever()
        finally:
            self.stopped.set()

    async def tick(self, n: int, ctx: Context) -> str:
        for done in range(n):
            ctx.progress(done + 1, n, "♫")
            await trio.sleep(0.03)
        return "done"

    async def bug(self) -> str:
        raise RuntimeError("secret")


@asynccontextmanager
async def bookshop(**options: Any) -> AsyncGenerator[tuple[Client, Bookshop], None]:
    shop = Bookshop()
    async with trio.open_nursery() as nursery:
        port = await nursery.start(shop.server.serve_http, "127.0.0.1", 0)
        shop.address = f"http://127.0.0.1:{port}/mcp"
        with trio.fail_after(20):
            async with connect(shop.address, **options) as client:
                yield client, shop
        nursery.cancel_scope.cancel()


async def test_calls_lists_progress_and_errors_come_through() -> None:
    async with bookshop() as (client, _):
        assert client.server_info is not None
        assert client.server_info.name == "bookshop"
        assert [tool.name async for tool in client.tools()] == ["echo", "sleep", "tick", "bug"]
        assert text_of(await client.call_tool("echo", {"text": "é\u2028☃"})) == "é\u2028☃"
        updates: list[tuple[float, str | None]] = []
        ticked = await client.call_tool(
            "tick",
            {"n": 3},
            on_progress=lambda update: updates.append((update.progress, update.message)),
        )
        assert text_of(ticked) == "done"
        assert updates == [(1, "♫"), (2, "♫"), (3, "♫")]
        with pytest.raises(ServerError) as unknown:
            await client.call_tool("nothing")
        assert unknown.value.code == -32602
        with pytest.raises(ServerError) as bug:
            await client.call_tool("bug")
        assert bug.value.code == -32603
        assert client._connection.violations == 0


async def test_outcomes_of_concurrent_calls_are_each_their_own() -> None:
    outcomes: dict[int, str] = {}

    async def one(client: Client, number: int) -> None:
        try:
            if number % 4 == 0:
                await client.call_tool("bug")
            elif number % 4 == 1:
                await client.call_tool("sleep", timeout=0.2)
            else:
                outcomes[number] = text_of(await client.call_tool("echo", {"text": str(number)}))
        except (ServerError, CallTimeout) as error:
            outcomes[number] = type(error).__name__

    async with bookshop() as (client, _):
        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(one, client, number)
        assert outcomes == {
            number: ["InternalError", "CallTimeout", str(number), str(number)][number % 4]
            for number in range(40)
        }
        await until(lambda: client._connection.calls == ())


async def test_a_cancelled_scope_releases_its_caller_and_stops_the_servers_work_only() -> None:
    async with bookshop() as (client, shop), trio.open_nursery() as nursery:
        other: list[str] = []

        async def tick() -> None:
            other.append(text_of(await client.call_tool("tick", {"n": 10})))

        nursery.start_soon(tick)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(client.call_tool, "sleep")
                await shop.started.wait()
                scope.cancel()
        assert scope.cancelled_caught
        with trio.fail_after(2):
            await shop.stopped.wait()
        [record] = [record for record in client.journal if record.target == "sleep"]
        assert record.state is State.CANCELLED
        assert record.cause is not None
        assert record.cause.source is CancelSource.CALLER
        await until(lambda: bool(other))
        assert other == ["done"]
        [seen] = [record for record in shop.server.journal if record.target == "sleep"]
        assert seen.cause is not None
        assert seen.cause.source is CancelSource.DISCONNECT


async def test_cancelling_is_a_state_before_cancelled() -> None:
    async with bookshop() as (client, shop):
        async with client.start_tool("sleep") as call:
            await shop.started.wait()
            call.cancel("enough")
            assert call.state is State.CANCELLING
            record = await call.ended()
            assert record.state is State.CANCELLED
            assert record.started_at is not None
            assert record.cause is not None
            assert record.cause.reason == "enough"
            await shop.stopped.wait()


async def test_a_closed_client_leaves_nothing_waiting_and_nothing_open() -> None:
    async def silent(post: Post) -> None:
        await post.closed_by_client()
        closed.append(post)

    closed: list[Post] = []
    lost: list[ConnectionLost] = []

    async def call(client: Client) -> None:
        with pytest.raises(ConnectionLost) as caught:
            await client.call_tool("x")
        lost.append(caught.value)

    async with serving(silent) as server, trio.open_nursery() as nursery:
        async with connect(server.address) as client:
            for _ in range(20):
                nursery.start_soon(call, client)
            await server.wait_for_calls(20)
            began = trio.current_time()
        assert trio.current_time() - began < 1
        await until(lambda: len(closed) == len(lost) == 20)
        assert {str(error) for error in lost} == {"the client was closed"}
        assert all(error.sent for error in lost)
        with pytest.raises(ConnectionLost) as late:
            await client.call_tool("x")
        assert not late.value.sent


async def test_invariant_4_cancelled_calls_leave_no_task_and_no_descriptor() -> None:
    async def silent(post: Post) -> None:
        if post.tool == "stream":
            await post.begin_events()
        await post.closed_by_client()

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with scripted(silent) as (client, server):
        before = descriptors()
        tasks = trio.lowlevel.current_statistics().tasks_living
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(client.call_tool, ["mute", "stream"][number % 2])
                await server.wait_for_calls(100)
                assert descriptors() >= before + 190  # both ends are here
                scope.cancel()
        await until(lambda: descriptors() <= before)
        await until(lambda: trio.lowlevel.current_statistics().tasks_living <= tasks)
        assert client._connection.calls == ()
        assert client.journal.ended[State.CANCELLED] == 100


async def test_a_connection_that_is_closed_before_it_runs_loses_its_calls() -> None:
    connection = HttpClientConnection("http://127.0.0.1:9/mcp", Limits(), Journal(9, 9))
    call = connection.open("tools/list", {})
    assert connection.calls == (call,)
    with trio.fail_after(1):
        await connection.close()
        await connection.run()
    with pytest.raises(ConnectionLost, match="the client was closed") as lost:
        call.result()
    assert not lost.value.sent
    assert len(connection.calls) == 0


async def test_tls_is_verified_unless_the_caller_trusts_the_server() -> None:
    authority = trustme.CA()
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(theirs)
    ours = ssl.create_default_context()
    authority.configure_trust(ours)
    shop = Bookshop()
    async with trio.open_nursery() as nursery:
        port = await nursery.start(
            partial(shop.server.serve_http, "127.0.0.1", 0, ssl_context=theirs)
        )
        address = f"https://localhost:{port}/mcp"
        with trio.fail_after(10):
            with pytest.raises(ConnectionLost) as refused:
                async with connect(address):
                    pass
            assert not refused.value.sent
            async with connect(address, ssl_context=ours) as client:
                assert text_of(await client.call_tool("echo", {"text": "hi"})) == "hi"
                with trio.move_on_after(0.1):
                    await client.call_tool("sleep")
                await shop.stopped.wait()
        nursery.cancel_scope.cancel()


# What goes out -----------------------------------------------------------------------------------


async def echo(post: Post) -> None:
    await post.answer(post.text(post.body["params"]["arguments"].get("text", "")))


async def test_each_request_is_a_post_with_its_metadata() -> None:
    async with scripted(echo, headers={"Authorization": "Bearer abc"}) as (client, server):
        await client.call_tool("käse", {"text": "x"})
        await client.call_tool("plain")
    first, second, third = server.posts
    assert first.headers["mcp-method"] == "server/discover"
    assert "mcp-name" not in first.headers
    for post in server.posts:
        assert post.headers["content-type"] == "application/json"
        assert post.headers["accept"] == "application/json, text/event-stream"
        assert post.headers["mcp-protocol-version"] == "2026-07-28"
        assert post.headers["authorization"] == "Bearer abc"
        assert "cookie" not in post.headers
        assert "transfer-encoding" not in post.headers
    assert second.headers["mcp-name"] == "=?base64?a8Okc2U=?="
    assert third.headers["mcp-name"] == "plain"
    assert third.headers["mcp-method"] == "tools/call"
    assert len({post.body["id"] for post in server.posts}) == 3
    assert {post.connection for post in server.posts} == {1}


@pytest.mark.parametrize(
    "headers",
    [
        {"Mcp-Name": "x"},
        {"content-type": "x"},
        {"X-A": "a\r\nX-B: b"},
        {"X A": "a"},
        {"": "a"},
        {"X-A": "ä"},
    ],
)
async def test_headers_that_http_forbids_or_that_are_ours_are_refused(
    headers: dict[str, str],
) -> None:
    with pytest.raises(ValueError, match="header"):
        async with connect("http://127.0.0.1:9/mcp", headers=headers):
            pass


@pytest.mark.parametrize("address", ["http://", "http://[::1/mcp", "http://:80/"])
async def test_an_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        async with connect(address):
            pass


@pytest.mark.parametrize("scheme", ["http", "https", "ws", "wss"])
@pytest.mark.parametrize("port", [0, 65536, 99999])
async def test_a_port_that_there_is_not_is_refused(scheme: str, port: int) -> None:
    """Sockets take it modulo 65536, and reach somebody else."""
    with pytest.raises(ValueError, match=r"[Pp]ort"):
        async with connect(f"{scheme}://127.0.0.1:{port}/mcp"):
            pass


async def test_a_string_that_is_no_address_is_told_apart_from_a_command() -> None:
    with pytest.raises(TypeError, match=r"\['python', 'server.py'\]"):
        async with connect("python server.py"):
            pass


async def test_cookies_are_not_kept() -> None:
    async def answer(post: Post) -> None:
        await post.answer(post.text(""), more="Set-Cookie: a=b; Path=/\r\n")

    async with scripted(answer) as (client, server):
        await client.call_tool("x")
        await client.call_tool("x")
    assert all("cookie" not in post.headers for post in server.posts)


# What comes back: event streams ------------------------------------------------------------------

EVENTS = (
    "\ufeffdata: zero\n\n: hello\n\nid: 7\nretry: 9\nevent: message\ndata: one\n\n"
    "data:two\r\ndata:  three\r\n\r\n"
    "event: ping\ndata: {}\n\ndata\n\ndata:\n\n:\r\r"
    "data: a\u2028b\u0085c\rdata: d\revent: message\r\r"
    "event:other\ndata:x\n\nunknown: y\ndata: last\n\ndata: never ended\n"
).encode()
PARSED = [b"zero", b"one", b"two\n three", "a\u2028b\u0085c\nd".encode(), b"last"]


def test_events_parse_however_the_stream_is_cut() -> None:
    assert EventReader(1000).feed(EVENTS) == PARSED
    bytewise = EventReader(1000)
    assert [event for byte in EVENTS for event in bytewise.feed(bytes((byte,)))] == PARSED
    for cut in range(len(EVENTS)):
        reader = EventReader(1000)
        assert reader.feed(EVENTS[:cut]) + reader.feed(b"") + reader.feed(EVENTS[cut:]) == PARSED


def test_an_event_ends_at_a_lone_cr_at_once() -> None:
    reader = EventReader(100)
    assert reader.feed(b"data: x\r\r") == [b"x"]
    assert reader.feed(b"\ndata: y\r\n\r\n") == [b"y"]


@pytest.mark.parametrize(
    "chunk", [b"data: 12345\n", b":2345678901", b"data\n", b"data:1234", b"xxxx"]
)
def test_invariant_9_an_event_is_bounded(chunk: bytes) -> None:
    reader = EventReader(100)

    def feed() -> None:
        for _ in range(101):
            assert reader.feed(chunk) == []

    with pytest.raises(EventTooLong):
        feed()


def test_invariant_9_only_what_is_kept_counts() -> None:
    reader = EventReader(100)
    for _ in range(1000):
        assert reader.feed(b": comment\nid: 7\n") == []
    for _ in range(1000):
        assert reader.feed(b"data: 7\n\n") == [b"7"]


@pytest.mark.parametrize("part", [b"ab", b"\ndata:abc"])
def test_invariant_9_what_comes_in_small_pieces_takes_no_more_room_than_it_counts(
    part: bytes,
) -> None:
    reader = EventReader(1_000_000)
    reader.feed(b"data:")
    tracemalloc.start()
    try:
        for _ in range(100_000):
            reader.feed(part)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * 100_000 * len(part)


async def test_a_message_of_progress_is_clipped() -> None:
    async def script(post: Post) -> None:
        token = {"progressToken": post.body["id"], "progress": 1, "message": "x" * 100_000}
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": token}
        await post.events(*(b"data: %b\n\n" % line for line in (encode(note), post.text("done"))))

    updates: list[Any] = []
    async with scripted(script, Limits(text_length=10)) as (client, _):
        await client.call_tool("x", on_progress=updates.append)
    assert [update.message for update in updates] == ["x" * 10]


async def test_a_stream_with_progress_noise_and_an_answer() -> None:
    async def answer(post: Post) -> None:
        token = post.body["params"]["_meta"]["progressToken"]
        progress = {"progressToken": token, "progress": 1}
        other = {"progressToken": 10**6, "progress": 99}
        notify: Callable[..., dict[str, Any]] = partial(
            dict, jsonrpc="2.0", method="notifications/progress"
        )
        await post.events(
            b": ping\n\nevent: endpoint\ndata: /x\n\ndata:\n\n",
            b"data: garbage\n\n",
            b"data: " + encode(notify(params=progress)) + b"\r\r",
            b"data: " + encode(notify(params=other)) + b"\r\r",
            b'data: {"jsonrpc": "2.0", "id": 1, "method": "ping"}\n\n',
            b'data: {"jsonrpc": "2.0", "id": "%d", "result": {}}\n\n' % post.body["id"],
            post.text("é\u2028ü\u0085").join((b"event: message\ndata: ", b"\n\n")),
        )

    updates: list[float] = []
    async with scripted(answer) as (client, server):
        result = await client.call_tool("x", on_progress=lambda u: updates.append(u.progress))
        assert text_of(result) == "é\u2028ü\u0085"
        assert updates == [1]
        assert client._connection.violations == 4
        await until(lambda: not client._connection._posts)  # type: ignore[attr-defined]
        await client.call_tool("x")
        assert server.posts[-1].connection == 1  # the stream was read to its end


async def test_an_answer_releases_its_caller_though_the_stream_stays_open() -> None:
    async def answer(post: Post) -> None:
        await post.begin_events()
        await post.send_chunk(b"data: " + post.text("x") + b"\n\n")
        answered = trio.current_time()
        await post.closed_by_client()
        open_for.append(trio.current_time() - answered)

    open_for: list[float] = []
    async with scripted(answer, Limits(http_trailing=0.3)) as (client, _):
        began = trio.current_time()
        await client.call_tool("x")
        assert trio.current_time() - began < 0.25
        await until(lambda: bool(open_for))
        assert 0.2 < open_for[0] < 2


@pytest.mark.parametrize("how", ["end", "close", "reset", "half an event", "half a chunk"])
async def test_a_stream_without_an_answer_is_lost_and_nothing_is_sent_again(how: str) -> None:
    async def answer(post: Post) -> None:
        await post.begin_events()
        await post.send_chunk(b"id: 7\ndata: {}\n\n")
        if how == "end":
            await post.send_chunk(b"")
        elif how == "half an event":
            await post.send_chunk(b"data: " + post.text("x") + b"\n")
            await post.send_chunk(b"")
        elif how == "half a chunk":
            await post.stream.send_all(b"ff\r\ndata")
            await post.stream.aclose()
        elif how == "close":
            await post.stream.aclose()
        else:
            drop(post.stream)

    async with scripted(answer) as (client, server):
        with pytest.raises(ConnectionLost) as lost:
            await client.call_tool("x")
        assert lost.value.sent
        assert "closed" not in lost.value.message or "peer closed" in lost.value.message
        assert len(server.calls()) == 1
        with pytest.raises(ConnectionLost):
            await client.call_tool("x")
        first, second = server.calls()
        assert first.body["id"] != second.body["id"]
        assert "last-event-id" not in second.headers


# What comes back: whole answers ------------------------------------------------------------------

PAGE = b"<html>sorry</html>"


@pytest.mark.parametrize(
    ("status", "kind", "body", "error", "says"),
    [
        ("200 OK", "text/html", PAGE, ProtocolViolation, "text/html.*sorry"),
        ("200 OK", "", b"", ProtocolViolation, "without a type"),
        ("200 OK", "application/json", PAGE, ProtocolViolation, "sorry"),
        ("200 OK", "application/json", b"", ProtocolViolation, "without a body"),
        ("202 Accepted", "", b"", ProtocolViolation, "HTTP 202 Accepted"),
        ("204 No Content", "", None, ProtocolViolation, "HTTP 204"),
        ("200 OK", "application/json", b"[]", ProtocolViolation, "JSON object"),
        (
            "200 OK",
            "application/json",
            b'{"jsonrpc":"2.0","id":0,"result":{}}',
            ProtocolViolation,
            "its id is '0'",
        ),
        (
            "200 OK",
            "application/json",
            b'{"jsonrpc":"2.0","method":"x"}',
            ProtocolViolation,
            "no response",
        ),
        (
            "401 Unauthorized",
            "text/plain",
            b"who?",
            AuthorizationRequired,
            "HTTP 401 Unauthorized: 'who\\?'",
        ),
        ("404 Not Found", "text/html", PAGE, ProtocolViolation, "HTTP 404 Not Found: .*sorry"),
        ("429 Too Many Requests", "", b"", Overloaded, "HTTP 429"),
        ("499 Odd", "text/event-stream", b"data: x\n\n", ProtocolViolation, "HTTP 499"),
        ("502 Bad Gateway", "text/html", PAGE, ConnectionLost, "HTTP 502 Bad Gateway: .*sorry"),
        ("503 Service Unavailable", "", b"\xff\x00", ConnectionLost, "HTTP 503"),
    ],
)
async def test_what_is_no_answer_fails_at_once_with_status_and_body(
    status: str, kind: str, body: bytes | None, error: type[Exception], says: str
) -> None:
    async def answer(post: Post) -> None:
        if body is None:
            await post.stream.send_all(f"HTTP/1.1 {status}\r\n\r\n".encode())
        else:
            await post.answer(body, status, kind)

    async with scripted(answer) as (client, server):
        with pytest.raises(error, match=says):
            await client.call_tool("x", timeout=5)
        assert len(server.calls()) == 1
        assert server.calls()[0].connection == 1


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "404 Not Found", "500 Oops"])
@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
async def test_a_json_rpc_error_is_one_whatever_its_status(status: str, kind: str) -> None:
    async def answer(post: Post) -> None:
        await post.answer(post.error(-31999, "no books"), status, kind)

    async with scripted(answer) as (client, _):
        with pytest.raises(ServerError, match="no books") as refused:
            await client.call_tool("x")
        assert refused.value.code == -31999


@pytest.mark.parametrize(
    ("told", "seconds"), [("Retry-After: 7\r\n", 7), ("Retry-After: soon\r\n", None), ("", None)]
)
@pytest.mark.parametrize("with_body", [False, True])
async def test_429_has_refused_the_request_and_says_when_to_come_again(
    told: str, seconds: float | None, with_body: bool
) -> None:
    async def answer(post: Post) -> None:
        body = post.error(-32000, "slow down") if with_body else b"slow down"
        await post.answer(body, "429 Too Many Requests", more=told)

    async with scripted(answer) as (client, _):
        with pytest.raises(Overloaded, match="slow down") as refused:
            await client.call_tool("x")
        assert client._connection.violations == 0
    assert refused.value.refused
    assert refused.value.retry_after == seconds
    assert refused.value.code == (-32000 if with_body else -31004)
    assert safe_to_repeat(refused.value) == (seconds or True)


@pytest.mark.parametrize("status", ["503 Service Unavailable", "502 Bad Gateway"])
async def test_what_a_gateway_has_lost_may_have_run(status: str) -> None:
    async def answer(post: Post) -> None:
        await post.answer(PAGE, status, "text/html", more="Retry-After: 7\r\n")

    async with scripted(answer, retry=Retry(wait_max=10)) as (client, server):
        with pytest.raises(ConnectionLost) as lost:
            await client.call_tool("x")
        assert len(server.calls()) == 1
    assert lost.value.sent
    assert lost.value.retry_after == 7
    assert safe_to_repeat(lost.value) is False


async def test_after_429_a_call_is_made_again_if_that_was_asked_for() -> None:
    async def answer(post: Post) -> None:
        if len(server.calls()) == 1:
            await post.answer(b"", "429 Too Many Requests", more="Retry-After: 0\r\n")
        else:
            await echo(post)

    retry = Retry(wait_initial=0, wait_jitter=0)
    async with scripted(answer, retry=retry) as (client, server):
        assert text_of(await client.call_tool("x", {"text": "y"})) == "y"
        assert len(server.calls()) == 2


@pytest.mark.parametrize("method", ["server/discover", "initialize"])
async def test_429_while_connecting_says_nothing_about_revisions(method: str) -> None:
    async def answer(post: Post) -> None:
        if post.method == method:
            await post.answer(post.error(-32000), "429 x", more="Retry-After: 7\r\n")
        else:
            await post.answer(b"", "404 Not Found")

    async with serving(answer, discover=False) as server:
        with pytest.raises(Overloaded) as refused:
            async with connect(server.address):
                pass
        assert refused.value.retry_after == 7


@pytest.mark.parametrize("body", [b'"id":null,', b""])
async def test_an_error_may_come_without_an_id(body: bytes) -> None:
    async def answer(post: Post) -> None:
        error = b'{"jsonrpc":"2.0",%b"error":{"code":-32700,"message":"what?"}}' % body
        await post.answer(error, "400 Bad Request")

    async with scripted(answer) as (client, _):
        with pytest.raises(ServerError) as refused:
            await client.call_tool("x")
        assert refused.value.code == -32700


async def test_redirects_are_named_and_not_followed() -> None:
    async def answer(post: Post) -> None:
        await post.answer(b"", "307 Temporary Redirect", more="Location: http://evil.example/\r\n")

    async with scripted(answer) as (client, server):
        with pytest.raises(ProtocolViolation, match=r"307 to 'http://evil.example/'"):
            await client.call_tool("x")
        assert len(server.calls()) == 1


@pytest.mark.parametrize("shape", ["body", "chunks", "error", "event", "endless line"])
async def test_invariant_9_a_huge_answer_is_refused_and_the_client_lives(shape: str) -> None:
    async def answer(post: Post) -> None:
        if post.tool == "small":
            await post.answer(post.text("ok"))
            return
        chunk = b"x" * 65536
        head = "500 Oops" if shape == "error" else "200 OK"
        kind = "application/json" if shape in ("body", "error", "chunks") else "text/event-stream"
        framing = "Content-Length: 9999999999" if shape == "body" else "Transfer-Encoding: chunked"
        await post.stream.send_all(
            f"HTTP/1.1 {head}\r\nContent-Type: {kind}\r\n{framing}\r\n\r\n".encode()
        )
        with contextlib.suppress(trio.BrokenResourceError):
            for number in itertools.count():
                prefix = b"data: " if shape == "event" or number == 0 else b""
                data = prefix + chunk + (b"\n" if shape == "event" else b"")
                if shape == "body":
                    await post.stream.send_all(data)
                else:
                    await post.send_chunk(data)
        left.set()
        raise trio.BrokenResourceError

    left = trio.Event()
    async with scripted(answer, Limits(message_bytes=500_000)) as (client, _):
        with pytest.raises(ProtocolViolation, match="500000"):
            await client.call_tool("big", timeout=5)
        with trio.fail_after(5):
            await left.wait()
        assert text_of(await client.call_tool("small")) == "ok"


async def test_a_compressed_answer_is_refused() -> None:
    async def answer(post: Post) -> None:
        assert post.headers["accept-encoding"] == "identity"
        await post.answer(b"\x1f\x8b", more="Content-Encoding: gzip\r\n")

    async with scripted(answer) as (client, _):
        with pytest.raises(ProtocolViolation, match="Content-Encoding"):
            await client.call_tool("x")


# Connections -------------------------------------------------------------------------------------


async def test_a_server_that_is_not_there_has_run_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        with pytest.raises(ConnectionLost) as lost:
            async with connect(address):
                pass
    assert not lost.value.sent


async def test_a_stale_connection_of_the_pool_is_not_noticed_by_the_caller() -> None:
    async def answer_and_close(post: Post) -> None:
        await post.answer(post.text(post.tool))
        await post.stream.aclose()
        closed.set()

    closed = trio.Event()
    async with scripted(answer_and_close) as (client, server):
        for number in range(5):
            closed = trio.Event()
            assert text_of(await client.call_tool(f"t{number}")) == f"t{number}"
            await closed.wait()
    assert [post.tool for post in server.calls()] == ["t0", "t1", "t2", "t3", "t4"]


async def test_a_connection_that_closes_as_the_request_comes_is_lost_and_not_sent_again() -> None:
    async def close(post: Post) -> None:
        await post.stream.aclose()

    async with scripted(close) as (client, server):
        with pytest.raises(ConnectionLost) as lost:
            await client.call_tool("pay")
        assert lost.value.sent  # it may have been run
        assert len(server.calls()) == 1


async def test_a_silent_server_and_a_timeout_close_the_stream() -> None:
    async def silent(post: Post) -> None:
        if post.tool == "echo":
            await echo(post)
        elif post.tool == "stream":
            await post.begin_events()
        await post.closed_by_client()
        closed.append(post.tool)

    closed: list[str] = []
    async with scripted(silent) as (client, server):
        for tool in ("mute", "stream"):
            with pytest.raises(CallTimeout) as late:
                await client.call_tool(tool, timeout=0.2)
            assert late.value.outcome == "unknown"
        await until(lambda: closed == ["mute", "stream"])
        assert text_of(await client.call_tool("echo", {"text": "on"})) == "on"
        assert [record.state for record in client.journal][1:3] == [State.CANCELLED] * 2
        assert len(server.calls()) == 3


async def test_a_large_request_that_nobody_reads_ends_with_its_timeout() -> None:
    async def deaf(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with serving(echo) as server:
        async with connect(server.address) as client, trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, deaf, 0, host="127.0.0.1"))
            port = listeners[0].socket.getsockname()[1]
            client._connection._url = client._connection._url.copy_with(port=port)  # type: ignore[attr-defined]
            began = trio.current_time()
            with pytest.raises(CallTimeout):
                await client.call_tool("x", {"text": "y" * 12_000_000}, timeout=0.3)
            assert trio.current_time() - began < 2
            nursery.cancel_scope.cancel()


async def test_what_was_cancelled_before_it_went_out_never_goes_out() -> None:
    async def hold(post: Post) -> None:
        await post.closed_by_client() if post.tool == "hold" else await echo(post)

    async with scripted(hold, Limits(http_pool=1)) as (client, server):
        async with client.start_tool("hold") as holding:
            await server.wait_for_calls(1)
            with pytest.raises(CallTimeout) as late:
                await client.call_tool("waits", timeout=0.1)
            assert late.value.outcome == "not sent"
            async with client.start_tool("never") as never:
                never.cancel()
                assert never.state is State.CANCELLED
                record = await never.ended()
                assert record.started_at is None
            holding.cancel()
            await holding.ended()
        assert text_of(await client.call_tool("echo", {"text": "after"})) == "after"
    assert [post.tool for post in server.calls()] == ["hold", "echo"]


async def test_three_open_streams_and_200_calls_share_a_pool_of_five() -> None:
    async def answer(post: Post) -> None:
        if post.tool == "listen":
            await post.begin_events()
            await post.closed_by_client()
        else:
            await echo(post)

    answers: list[str] = []

    async def call(client: Client, text: str) -> None:
        answers.append(text_of(await client.call_tool("echo", {"text": text})))

    async with scripted(answer, Limits(http_pool=5)) as (client, server):
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(client.start_tool("listen"))
            await server.wait_for_calls(3)
            async with trio.open_nursery() as nursery:
                for number in range(200):
                    nursery.start_soon(call, client, str(number))
            assert sorted(answers, key=int) == [str(number) for number in range(200)]
        assert len({post.connection for post in server.posts}) <= 5


# Servers of other kinds --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("400 Bad Request", b"Bad Request: no session"),
        ("404 Not Found", PAGE),
        ("405 Method Not Allowed", b""),
        ("415 Unsupported Media Type", b""),
        (
            "400 Bad Request",
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}',
        ),
    ],
)
async def test_an_address_without_an_endpoint_is_named_as_such(status: str, body: bytes) -> None:
    async def answer(post: Post) -> None:
        await post.answer(body, status)

    async with serving(answer, discover=False) as server:
        with pytest.raises(IncompatibleServer, match=r"refused.*initialize"):
            async with connect(server.address):
                pass
        assert len(server.posts) == 2


async def test_a_server_that_wants_to_know_who_asks_is_no_incompatible_one() -> None:
    async def answer(post: Post) -> None:
        await post.answer(b"", "401 Unauthorized")

    async with serving(answer, discover=False) as server:
        with pytest.raises(AuthorizationRequired, match="HTTP 401 Unauthorized") as unknown:
            async with connect(server.address):
                pass
        assert (unknown.value.code, unknown.value.challenge) == (-31005, "")


async def test_who_is_not_let_in_is_told_so_whatever_the_code() -> None:
    """Another server's code for it may be any; the challenge is in a header."""

    async def answer(post: Post) -> None:
        body = post.error(-32001, "who are you?")
        head = 'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer scope="a"\r\n'
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        await post.stream.send_all(head.encode() + body)

    async with serving(answer, discover=False) as server:
        with pytest.raises(AuthorizationRequired, match="who are you") as unknown:
            async with connect(server.address):
                pass
        assert (unknown.value.code, unknown.value.challenge) == (-32001, 'Bearer scope="a"')


# Parameters in headers ---------------------------------------------------------------------------


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def header(name: Any, kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


def test_values_are_mirrored_at_their_path_and_encoded() -> None:
    headers = mirrored_parameters(
        schema(
            region=header("Region"),
            deep=schema(count=header("Count", "integer"), on=header("On", "boolean")),
            plain={"type": "string", "default": {"x-mcp-header": "data, no schema"}},
            **{"x-mcp-header": {"type": "string"}},
        )
    )
    assert sorted(mirrored(headers, {"region": " Zürich", "deep": {"count": -7, "on": True}})) == [
        ("Mcp-Param-Count", "-7"),
        ("Mcp-Param-On", "true"),
        ("Mcp-Param-Region", "=?base64?IFrDvHJpY2g=?="),
    ]
    assert mirrored(headers, {"region": None, "deep": 5}) == []
    assert mirrored(headers, {"deep": {"count": 42.0}}) == [("Mcp-Param-Count", "42")]
    with pytest.raises(ValueError, match="count"):
        mirrored(headers, {"deep": {"count": 2**53}})


def test_invariant_9_only_so_many_tools_are_remembered() -> None:
    tools = MirroredTools("x", Limits(http_mirrored=2))
    names = ["a", "b", "c"]
    tools.learn({"tools": [{"name": n, "inputSchema": schema(p=header("P"))} for n in names]})
    known = [
        n for n in names if tools.headers_for("tools/call", {"name": n, "arguments": {"p": "x"}})
    ]
    assert known == ["b", "c"]


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = header("X")
    for _ in range(depth):
        inner = {"items": inner}
    return inner


BAD = [
    schema(a=header("")),
    schema(a=header("A B")),
    schema(a=header("A\r\nB")),
    schema(a=header("Ä")),
    schema(a=header(5)),
    schema(a=header("A", "number")),
    schema(a=header("A", "object")),
    schema(a=header("A", ["string", "null"])),
    schema(a={"x-mcp-header": "A"}),
    schema(a=header("A"), b=header("a")),
    schema(a={"type": "array", "items": header("A")}),
    schema(a={"anyOf": [header("A")]}),
    schema(a={"if": schema(b=header("A"))}),
    {"type": "object", "x-mcp-header": "A"},
    {"type": "object", "$defs": {"a": header("A")}},
    schema(a=nested(5000)),
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_annotations_that_the_specification_forbids(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="x-mcp-header"):
        mirrored_parameters(bad)


class Region:
    """A tool whose ``region`` goes into a header; which header, the test decides."""

    def __init__(self, name: str) -> None:
        self.header = name
        self.strict = True
        self.annotated = True

    async def answer(self, post: Post) -> None:
        if post.method == "tools/list":
            second = "cursor" in post.body["params"]
            region = header(self.header) if self.annotated else {"type": "string"}
            tools = [
                {"name": "query", "inputSchema": schema(region=region)},
                {"name": "broken\n", "inputSchema": schema(a=header("A B"))},
            ]
            page = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            if second:
                await post.answer(post.result({**page, "tools": tools}))
            else:
                await post.answer(post.result({**page, "tools": [], "nextCursor": ""}))
        elif self.strict and f"mcp-param-{self.header.lower()}" not in post.headers:
            await post.answer(post.error(-32020), "400 Bad Request")
        else:
            value = post.headers.get(f"mcp-param-{self.header.lower()}", "no header")
            await post.answer(post.text(value))


async def test_listed_tools_get_their_headers_and_invalid_ones_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tool = Region("Region")
    async with scripted(tool.answer) as (client, server):
        with caplog.at_level(logging.WARNING):
            assert [tool.name async for tool in client.tools()] == ["query"]
        [warning] = [record.getMessage() for record in caplog.records]
        assert r"left out: 'broken\n', because" in warning
        assert "no name of a header" in warning
        assert text_of(await client.call_tool("query", {"region": "eu"})) == "eu"
        assert len(server.calls()) == 1
        with pytest.raises(ServerError):  # without a value there is no header
            await client.call_tool("query", {})
        assert "mcp-param-region" not in server.calls()[-1].headers
        tool.annotated = tool.strict = False
        assert [tool.name async for tool in client.tools()] == ["query"]
        assert text_of(await client.call_tool("query", {"region": "eu"})) == "no header"


async def test_a_page_full_of_invalid_tools_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(post: Post) -> None:
        tools = [{"name": f"t{n}", "inputSchema": schema(a=header(""))} for n in range(1000)]
        page = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools}
        await post.answer(post.result(page))

    async with scripted(answer) as (client, _):
        with caplog.at_level(logging.WARNING):
            assert [tool async for tool in client.tools()] == []
    assert len(caplog.records) == 21
    assert "1000 tools are left out" in caplog.records[-1].getMessage()


async def test_a_header_mismatch_is_answered_with_one_look_at_the_tools_and_one_retry() -> None:
    tool = Region("Region")
    async with scripted(tool.answer) as (client, server):
        assert (
            text_of(await client.call_tool("query", {"region": "ü", "n": 2**70}))
            == "=?base64?w7w=?="
        )
        assert [post.method for post in server.posts[1:]] == [
            "tools/call",
            "tools/list",
            "tools/list",
            "tools/call",
        ]
        first, second = server.calls()
        assert first.body["id"] != second.body["id"]
        assert first.body["params"] == second.body["params"]
        assert second.headers["content-length"] == first.headers["content-length"]
        tool.header = "Zone"
        assert text_of(await client.call_tool("query", {"region": "eu"})) == "eu"
        assert "mcp-param-region" not in server.calls()[-1].headers
        states = [record.state for record in client.journal if record.method == "tools/call"]
        assert states == [State.COMPLETED] * 2


async def test_a_mismatch_that_the_tools_do_not_explain_is_the_callers() -> None:
    tool = Region("Region")
    async with scripted(tool.answer) as (client, server):
        with pytest.raises(ServerError) as refused:
            await client.call_tool("query", {"text": "no region"})
        assert refused.value.code == -32020
        assert len(server.calls()) == 1  # the same headers would be refused again


async def test_a_second_mismatch_is_the_callers() -> None:
    async def answer(post: Post) -> None:
        if post.method == "tools/list":
            await Region("Region").answer(post)
        else:
            await post.answer(post.error(-32020), "400 Bad Request")

    async with scripted(answer) as (client, server):
        with pytest.raises(ServerError) as refused:
            await client.call_tool("query", {"region": "eu"})
        assert refused.value.code == -32020
        assert len(server.calls()) == 2


async def test_a_call_cancelled_while_its_tools_are_listed_goes_out_no_more() -> None:
    async def answer(post: Post) -> None:
        if post.method == "tools/list":
            listing.set()
            await post.closed_by_client()
            closed.set()
        else:
            await post.answer(post.error(-32020), "400 Bad Request")

    listing, closed = trio.Event(), trio.Event()
    async with scripted(answer) as (client, server):
        async with client.start_tool("query", {"region": "eu"}) as call:
            await listing.wait()
            call.cancel()
            await call.ended()
        await closed.wait()
        assert len(server.calls()) == 1
        assert client._connection.calls == ()


# The whole ---------------------------------------------------------------------------------------


def test_the_http_library_is_imported_only_for_an_address() -> None:
    program = (
        "import sys, trio_mcp; print([m for m in sys.modules if m.startswith('http') and '2' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "[]\n"


# Why there is no connection -----------------------------------------------------------------------


async def test_no_connection_is_told_in_the_words_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    words = f"^cannot connect to 127.0.0.1:{port}: Connection refused$"
    with pytest.raises(ConnectionLost, match=words) as refused:
        async with connect(f"http://127.0.0.1:{port}/mcp"):
            pass
    assert refused.value.sent is False


async def test_tls_that_is_none_is_told_as_such() -> None:
    async with trio.open_nursery() as nursery:
        server = Server("plain", version="1.0.0")
        port = await nursery.start(partial(server.serve_http, port=0))
        with pytest.raises(ConnectionLost, match="WRONG_VERSION_NUMBER"):
            async with connect(f"https://127.0.0.1:{port}/mcp"):
                pass
        nursery.cancel_scope.cancel("the test is over")


@pytest.mark.parametrize("scheme", ["http", "https", "ws", "wss"])
@pytest.mark.parametrize("host", ["a..b", "x" * 64])
async def test_a_host_that_can_be_none_is_a_value_error(scheme: str, host: str) -> None:
    with pytest.raises(ValueError, match="no name of a host"):
        async with connect(f"{scheme}://{host}/mcp"):
            pass
