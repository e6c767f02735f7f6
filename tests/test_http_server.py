"""Streamable HTTP, the server's side, over real sockets: bytes in, bytes out, nothing left.

Every test runs in :func:`serving`, which looks in the end for what a request may have left behind.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import ssl
import struct
import subprocess
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

import attrs
import mcp
import msgspec
import pytest
import trio
import trio.testing
import trustme
from tests.peers import official_client as official
from tests.peers.fixture_server import Fixtures
from tests.peers.inspection import record_of
from tests.peers.raw import call, cancel, request, text_of, until
from tests.peers.raw_http import HttpPeer, Response, event_in, post

from trio_mcp import CancelSource, Context, ErrorCode, Limits, Record, State
from trio_mcp.transports.http.direct import DirectSocket
from trio_mcp.transports.http.incoming import Incoming

MEBIBYTE = 1024 * 1024


class HttpFixtures(Fixtures):
    """The fixture tools, and some that say something first."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        for tool in (self.speak, self.shout, self.linger, self.late):
            self.server.tool(tool)

    async def speak(self, s: float, ctx: Context) -> str:
        """Report once, then sleep."""
        self.live += 1
        try:
            ctx.progress(1)
            await trio.sleep(s)
            return "spoken"
        finally:
            self.live -= 1

    async def shout(self, bytes: int, ctx: Context) -> str:
        """Report with long texts, for ever."""
        self.live += 1
        try:
            for n in range(10**9):
                ctx.progress(n, message="x" * bytes)
                await trio.sleep(0.001)
            return "never"
        finally:
            self.live -= 1

    async def linger(self, s: float, ctx: Context) -> str:
        """Take a while to clean up."""
        self.live += 1
        try:
            await trio.sleep_forever()
            return "never"
        finally:
            with ctx.cleanup(30):
                await trio.sleep(s)
            self.live -= 1

    async def late(self, s: float, bytes: int) -> str:
        """Be silent, then say much."""
        await trio.sleep(s)
        return "x" * bytes


@attrs.define
class Service:
    """A server that listens."""

    fixtures: HttpFixtures
    port: int
    scope: trio.CancelScope
    ended: trio.Event

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @asynccontextmanager
    async def connect(self, *, small: bool = False) -> AsyncIterator[HttpPeer]:
        """A connection; ``small``: with hardly any room for what is not read."""
        sock = trio.socket.socket()
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with sock:
            await sock.connect(("127.0.0.1", self.port))
            async with trio.SocketStream(sock) as stream:
                yield HttpPeer(stream)

    async def ask(self, message: Any, **options: Any) -> Response:
        """One request on a connection of its own."""
        async with self.connect() as peer:
            return await peer.ask(message, **options)

    async def probe(self) -> None:
        """A following request is answered within a second."""
        with trio.fail_after(1):
            answer = await self.ask(call("PROBE", "echo", text="probe"))
        assert text_of(answer.json) == "probe"


@asynccontextmanager
async def serving(
    *, tls: ssl.SSLContext | None = None, origins: Sequence[str] = (), **limits: Any
) -> AsyncGenerator[Service, None]:
    """A server with these limits. In the end nothing of its requests may be left."""
    limits.setdefault("drain", 0.3)
    fixtures = HttpFixtures(Limits(**limits))
    core = fixtures.server._core
    descriptors = open_descriptors()
    tasks = trio.lowlevel.current_statistics().tasks_living
    ended = trio.Event()

    async def serve(task_status: trio.TaskStatus[tuple[int, trio.CancelScope]]) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                start = partial(fixtures.server.serve_http, port=0, origins=origins)
                port = await inner.start(partial(start, ssl_context=tls))
                task_status.started((port, scope))
        ended.set()

    async with trio.open_nursery() as nursery:
        port, scope = await nursery.start(serve)
        yield Service(fixtures, port, scope, ended)
        if not scope.cancel_called:
            await until(lambda: not core.connections)
        assert core.inflight == 0
        assert fixtures.live == 0
        scope.cancel("the test is over")
    assert core.connections == set()
    assert [*fixtures.server.scopes().walk()][1:] == []
    await until(lambda: open_descriptors() == descriptors)
    assert trio.lowlevel.current_statistics().tasks_living == tasks


async def recorded(service: Service, request_id: Any) -> Record:
    """The record of this request, which comes after its handler has ended."""
    journal = service.fixtures.server.journal
    await until(lambda: request_id in [record.request_id for record in journal])
    return record_of(service.fixtures.server, request_id)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# Answers ------------------------------------------------------------------------------------------


async def test_an_answer_is_one_json_body_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as service, service.connect() as peer:
        writes: list[bytes] = []
        write_now = DirectSocket.write

        def record(socket: DirectSocket, data: bytes) -> int:
            writes.append(data)
            return write_now(socket, data)

        monkeypatch.setattr(DirectSocket, "write", record)
        answer = await peer.ask(call(7, "echo", text="é\u2028"))
        assert answer.status == 200
        assert answer.json["id"] == 7
        assert text_of(answer.json) == "é\u2028"
        assert "date" in answer.headers
        assert "connection" not in answer.headers
        (write,) = writes
        assert write.endswith(answer.body)


async def test_an_event_stream_opens_when_the_handler_speaks() -> None:
    async with serving() as service, service.connect() as peer:
        await peer.send(post(call("c", "speak", token=0, s=0.2)))
        head = await peer.head()
        assert head.status == 200
        assert head.headers["content-type"] == "text/event-stream"
        assert head.headers["cache-control"] == "no-cache"
        assert head.headers["x-accel-buffering"] == "no"
        assert "content-length" not in head.headers
        event = event_in((await peer.chunk()).removesuffix(b"\n\n"))
        assert event["method"] == "notifications/progress"
        assert event["params"]["progressToken"] == 0
        assert service.fixtures.live == 1  # it is not over: the event did not wait
        final = event_in((await peer.chunk()).removesuffix(b"\n\n"))
        assert (final["id"], text_of(final)) == ("c", "spoken")
        assert await peer.chunk() == b""
        assert text_of((await peer.ask(call(2, "echo", text="next"))).json) == "next"


async def test_a_handler_that_reports_without_a_token_is_answered_with_json() -> None:
    async with serving() as service:
        assert text_of((await service.ask(call(1, "tick", n=3, dt=0))).json) == "ticked"


async def test_a_bug_ends_its_connection_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    feed = Incoming.feed

    def broken(incoming: Incoming, data: bytes) -> None:
        if b"x-bug" in data:
            raise RuntimeError("a bug")
        feed(incoming, data)

    monkeypatch.setattr(Incoming, "feed", broken)
    async with serving() as service, service.connect() as other:
        await other.send(post(call(1, "sleep", s=0.2)))
        await until(lambda: service.fixtures.live == 1)
        async with service.connect() as peer:
            await peer.send(post(call(2, "echo", text="x"), x_bug="1"))
            assert await peer.rest() == b""
        assert text_of((await other.response()).json) == "slept"
        await service.probe()
    assert "ended by a bug" in caplog.text


async def test_a_failure_after_the_stream_has_opened_is_its_last_event() -> None:
    async with serving(http_silence=0.05, http_keep_alive=0.05) as service:
        answer = await service.ask(call(1, "tick", token="t", n=1, dt=0, extra=1))
        assert answer.json["result"]["isError"] is True
        asked = service.ask(call(1, "big", token="t", bytes=17 * MEBIBYTE))
        assert (await asked).code == ErrorCode.INTERNAL_ERROR


async def test_silence_opens_a_stream_and_comments_keep_it_alive() -> None:
    async with serving(http_silence=0.1, http_keep_alive=0.1) as service:
        *comments, final = (await service.ask(call(1, "sleep", s=0.6))).events
        assert len(comments) >= 3
        assert set(comments) == {None}
        assert text_of(final) == "slept"


async def test_comments_get_a_call_through_a_proxy_that_cuts_silent_streams() -> None:
    async with serving(http_silence=0.2, http_keep_alive=0.2) as service:
        async with service.connect() as peer:
            await peer.send(post(call(1, "sleep", s=1.5)))
            data = b""
            while b"slept" not in data:
                with trio.fail_after(0.6):  # the proxy's patience
                    assert await peer.more()
                data, peer.buffer = data + peer.buffer, b""


async def test_no_comment_within_an_event_nor_after_the_response() -> None:
    async with serving(http_silence=0.04, http_keep_alive=0.04) as service:
        async with service.connect(small=True) as peer:
            await peer.send(post(call(1, "late", s=0.2, bytes=6 * MEBIBYTE)))
            await peer.head()
            await trio.sleep(0.5)  # the answer is stuck half way, and the clock goes on
            body = b""
            while data := await peer.chunk():
                body += data
            *comments, final = Response(200, {"content-type": "text/event-stream"}, body).events
            assert set(comments) == {None}
            assert len(text_of(final)) == 6 * MEBIBYTE
            assert text_of((await peer.ask(call(2, "echo", text="next"))).json) == "next"


async def test_a_json_answer_that_is_read_slowly_does_not_become_a_stream() -> None:
    async with serving(http_silence=0.04, http_keep_alive=0.04) as service:
        async with service.connect(small=True) as peer:
            await peer.send(post(call(1, "big", bytes=6 * MEBIBYTE)))
            head = await peer.head()
            await trio.sleep(0.5)
            body = await peer.exactly(int(head.headers["content-length"]))
            assert len(text_of(msgspec.json.decode(body))) == 6 * MEBIBYTE
            assert text_of((await peer.ask(call(2, "echo", text="next"))).json) == "next"


# Disconnects --------------------------------------------------------------------------------------


async def close(peer: HttpPeer) -> None:
    await peer.stream.aclose()


async def reset(peer: HttpPeer) -> None:
    assert isinstance(peer.stream, trio.SocketStream)
    peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await peer.stream.aclose()


async def half_close(peer: HttpPeer) -> None:
    assert isinstance(peer.stream, trio.SocketStream)
    await peer.stream.send_eof()
    rest = await peer.rest()
    assert b"result" not in rest
    assert b"error" not in rest
    assert b"0\r\n\r\n" not in rest  # no stream that looks complete


Ending = Callable[[HttpPeer], Awaitable[None]]


@pytest.mark.parametrize("behind", [b"", post(call(2, "echo", text="x")), post(b"x" * 500)[:-1]])
@pytest.mark.parametrize("end", [close, reset, half_close])
@pytest.mark.parametrize("mode", ["json", "events", "silent"])
async def test_a_disconnect_cancels_at_once(mode: str, end: Ending, behind: bytes) -> None:
    """Before and after the headers are out, with and without bytes behind the request."""
    limits: dict[str, Any] = {"http_silence": 0.05} if mode == "silent" else {}
    async with serving(**limits) as service:
        async with service.connect() as peer:
            tool = "speak" if mode == "events" else "sleep"
            await peer.send(post(call(1, tool, token="t", s=3600)) + behind)
            await until(lambda: service.fixtures.live == 1)
            if mode != "json":
                await peer.head()
                await peer.chunk()
            began = trio.current_time()
            await end(peer)
            await until(lambda: service.fixtures.live == 0)
            assert trio.current_time() - began < 0.25
            record = await recorded(service, 1)
            assert record.state is State.CANCELLED
            assert record.cause is not None
            assert record.cause.source is CancelSource.DISCONNECT
        await service.probe()


@pytest.mark.parametrize("mode", ["json", "events"])
async def test_invariant_2_nothing_is_written_while_a_cancelled_request_cleans_up(
    mode: str,
) -> None:
    async with serving(http_silence=0.04, http_keep_alive=0.04) as service:
        async with service.connect() as peer:
            await peer.send(post(call(1, "linger", s=0.5)))
            await until(lambda: service.fixtures.live == 1)
            if mode == "events":
                await peer.head()
            assert isinstance(peer.stream, trio.SocketStream)
            await peer.stream.send_eof()
            await until(lambda: service.fixtures.server.scopes().children[0].children[0].cause)
            while True:  # what was written before
                with trio.move_on_after(0.05) as scope:
                    await peer.more()
                if scope.cancelled_caught:
                    break
            seen = peer.buffer
            assert (seen == b"") == (mode == "json")
            assert service.fixtures.live == 1
            peer.buffer = b""
            assert await peer.rest() == b""


async def test_a_request_whose_sender_is_gone_already_does_not_run() -> None:
    async with serving() as service:
        async with service.connect() as peer:
            await peer.send(post(call(1, "sleep", s=3600, label="first")))
            await until(lambda: service.fixtures.live == 1)
            await peer.send(post(call(2, "sleep", s=3600, label="second")))
            await close(peer)
            await until(lambda: service.fixtures.live == 0)
        await until(lambda: not service.fixtures.server._core.connections)
        assert service.fixtures.begun == ["first"]


async def test_a_disconnect_stops_a_thread_that_asks() -> None:
    async with serving() as service:
        async with service.connect() as peer:
            await peer.send(post(call(1, "patient", s=60)))
            await until(lambda: service.fixtures.live == 1)
        await until(lambda: service.fixtures.live == 0, timeout=1)


async def test_leaving_a_hundred_streams_leaves_nothing() -> None:
    async with serving() as service:
        async with trio.open_nursery() as nursery:

            async def leave(number: int) -> None:
                async with service.connect() as peer:
                    await peer.send(post(call(number, "speak", token=number, s=3600)))
                    await peer.head()

            for number in range(100):
                nursery.start_soon(leave, number)
        ended = service.fixtures.server.journal.ended
        await until(lambda: ended[State.CANCELLED] == 100)


# Bytes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
async def test_one_byte_per_write(chunked: bool) -> None:
    async with serving() as service, service.connect() as peer:
        for number, text in enumerate(("é\u2028“\U0001f4d6”", "second")):
            for byte in post(call(number, "echo", text=text), chunked=chunked):
                await peer.send(bytes([byte]))
            answer = await peer.response()
            assert (answer.json["id"], text_of(answer.json)) == (number, text)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as service, service.connect() as peer:
        calls = [call(0, "sleep", s=0.1), call(1, "speak", token=1, s=0.05)]
        calls += [call(n, "echo", text=str(n)) for n in range(2, 10)]
        await peer.send(b"".join(map(post, calls)))
        assert (await peer.response()).json["id"] == 0
        assert (await peer.response()).events[-1]["id"] == 1
        for number in range(2, 10):
            assert (await peer.response()).json["id"] == number
        assert len(service.fixtures.begun) == 1


async def test_too_many_pipelined_requests_are_refused_and_those_before_them_are_answered() -> None:
    async with serving(http_pipeline=4) as service, service.connect() as peer:
        await peer.send(post(call(0, "sleep", s=0.2)))
        await until(lambda: service.fixtures.live == 1)
        await peer.send(b"".join(post(call(n, "echo", text="x")) for n in range(1, 50)))
        for number in range(6):
            answer = await peer.response()
            assert (answer.status, answer.json["id"]) == (200, number)
        answer = await peer.response()
        assert (answer.status, answer.code) == (503, ErrorCode.OVERLOADED)
        assert answer.headers["connection"] == "close"
        assert int(answer.headers["retry-after"]) >= 1
        assert await peer.rest() == b""


async def endless(peer: HttpPeer, start: bytes, more: bytes) -> Response:
    """Send for ever, until an answer comes."""
    answers: list[Response] = []

    async def send() -> None:
        await peer.send(start)
        try:
            while True:
                await peer.send(more)
                await trio.sleep(0.0005)
        except trio.BrokenResourceError:
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        answers.append(await peer.response())
        nursery.cancel_scope.cancel("answered")
    return answers[0]


@pytest.mark.parametrize(
    ("start", "more", "status"),
    [
        (b"POST /mcp HTTP/1.1\r\n", b"x: y\r\n" * 10, 431),
        (b"POST /mcp HTTP/1.1\r\nx: ", b"y" * 1000, 431),
        (b"POST /", b"y" * 1000, 431),
        (post(b"", chunked=True)[:-2], b"x: y\r\n" * 10, 431),
        (post(b"", chunked=True)[:-5], b"400\r\n" + b"x" * 1024 + b"\r\n", 413),
    ],
    ids=["headers", "header", "target", "trailers", "chunks"],
)
async def test_endless_requests_are_refused(start: bytes, more: bytes, status: int) -> None:
    async with serving(http_head_bytes=4096, message_bytes=65536) as service:
        async with service.connect() as peer:
            answer = await endless(peer, start, more)
            assert answer.status == status
            assert answer.headers["connection"] == "close"
        await service.probe()


async def test_a_declared_length_over_the_limit_is_413_before_the_body_is_read() -> None:
    async with serving(message_bytes=65536) as service, service.connect() as peer:
        await peer.send(post(b"", content_length=str(10**12)))
        answer = await peer.response()
        assert answer.status == 413
        assert "message_bytes=65536" in answer.json["error"]["message"]
        assert await peer.rest() == b""


async def test_a_refusal_arrives_although_the_body_is_still_being_sent() -> None:
    async with serving(message_bytes=65536, drain=1) as service:
        for _ in range(10):
            async with service.connect() as peer:
                await peer.send(post(b"x" * 4 * MEBIBYTE))
                assert (await peer.response()).status == 413


async def test_fifteen_aborted_bodies_then_a_probe() -> None:
    async with serving() as service:
        data = post(call(1, "echo", text="x" * 1000))
        for number, end in enumerate([close, reset, half_close] * 5):
            async with service.connect() as peer:
                await peer.send(data[: -1 - number * 60])
                await end(peer)
        await service.probe()
        assert len([*service.fixtures.server.journal]) == 1


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"hello\r\n\r\n", 400),
        (post(b"{}", version="2.0"), 505),
        (post(b"{}", transfer_encoding="chunked"), 400),
    ],
)
async def test_what_is_no_http_1_1_is_refused(data: bytes, status: int) -> None:
    async with serving() as service:
        async with service.connect() as peer:
            await peer.send(data)
            answer = await peer.response()
            assert answer.status == status
            assert answer.headers["connection"] == "close"
            assert await peer.rest() == b""
        await service.probe()


async def test_expect_100_continue() -> None:
    async with serving() as service, service.connect() as peer:
        for number in range(2):
            data = post(call(number, "echo", text="x"), expect="100-continue")
            head, body = data.split(b"\r\n\r\n")
            await peer.send(head + b"\r\n\r\n")
            assert await peer.response() == Response(100, {}, b"")
            await peer.send(body)
            assert text_of((await peer.response()).json) == "x"


async def test_who_would_be_refused_is_not_told_to_continue() -> None:
    async with serving() as service, service.connect() as peer:
        await peer.send(post(b"", expect="100-continue", content_length="9", content_type="x/y"))
        assert (await peer.response()).status == 415
        assert await peer.rest() == b""


async def test_http_1_0_gets_an_end_instead_of_a_length() -> None:
    async with serving() as service:
        async with service.connect() as peer:
            answer = await peer.ask(call(1, "echo", text="x"), version="1.0")
            assert text_of(answer.json) == "x"
            assert answer.headers["connection"] == "close"
            assert await peer.rest() == b""
        answer = await service.ask(call(1, "speak", token=1, s=0.01), version="1.0")
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert text_of(answer.events[-1]) == "spoken"


@pytest.mark.parametrize("tool", ["echo", "speak"])
async def test_connection_close(tool: str) -> None:
    arguments: dict[str, Any] = {"text": "x"} if tool == "echo" else {"s": 0.01}
    async with serving() as service, service.connect() as peer:
        answer = await peer.ask(call(1, tool, token=1, **arguments), connection="close")
        assert answer.status == 200
        assert answer.headers["connection"] == "close"
        assert await peer.rest() == b""


async def test_an_offer_of_http_2_is_ignored() -> None:
    async with serving() as service, service.connect() as peer:
        offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AA"}
        for number in range(2):
            answer = await peer.ask(call(number, "echo", text="x"), **offer)
            assert (answer.status, text_of(answer.json)) == (200, "x")


# Time ---------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Time jumps when for a moment nothing happens, on the sockets either."""
    return trio.testing.MockClock(autojump_threshold=0.01)


async def drip(peer: HttpPeer, data: bytes, every: float) -> None:
    try:
        for byte in data:
            await peer.send(bytes([byte]))
            await trio.sleep(every)
    except trio.BrokenResourceError:
        pass


@pytest.mark.parametrize(
    ("at_once", "every", "limit"),
    [(0, 1.0, 10.0), (3, 4.0, 10.0), (-400, 5.0, 30.0), (-400, 20.0, 30.0)],
    ids=["head", "slower head", "body", "slower body"],
)
async def test_a_slow_request_is_408(
    at_once: int, every: float, limit: float, clock: trio.testing.MockClock
) -> None:
    data = post(call(1, "echo", text="x" * 500))
    async with serving() as service, service.connect() as peer:
        began = trio.current_time()
        await peer.send(data[:at_once])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, peer, data[at_once:], every)
            answer = await peer.response(timeout=100)
            assert limit <= trio.current_time() - began < limit + 2
            nursery.cancel_scope.cancel("answered")
        assert answer.status == 408
        assert answer.headers["connection"] == "close"


async def test_a_connection_without_requests_is_closed_without_a_word(
    clock: trio.testing.MockClock,
) -> None:
    async with serving() as service, service.connect() as peer:
        began = trio.current_time()
        assert await peer.rest(timeout=200) == b""
        assert 75 <= trio.current_time() - began < 77
    async with serving() as service, service.connect() as peer:
        await trio.sleep(60)
        await peer.ask(call(1, "echo", text="x"))
        began = trio.current_time()
        assert await peer.rest(timeout=200) == b""
        assert 75 <= trio.current_time() - began < 77


@asynccontextmanager
async def peer_of(carrier: str) -> AsyncIterator[HttpPeer]:
    """Of a server of its own."""
    ours, theirs = trustme_contexts() if carrier == "TLS" else (None, None)
    async with serving(tls=ours) as service:
        connected = service.connect() if theirs is None else tls_peer(service, theirs)
        async with connected as peer:
            yield peer


@pytest.mark.parametrize("carrier", ["plain", "TLS"])
async def test_empty_lines_are_no_sign_of_life(carrier: str, clock: trio.testing.MockClock) -> None:
    """They may be in front of a request; who sends nothing else is idle."""
    async with peer_of(carrier) as peer:
        await peer.ask(call(1, "echo", text="x"))
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, peer, b"\r\n" * 100, 7)
            assert await peer.rest(timeout=200) == b""
            assert 75 <= trio.current_time() - began < 77
            nursery.cancel_scope.cancel("closed")


@pytest.mark.parametrize("carrier", ["plain", "TLS"])
async def test_the_time_between_requests_begins_with_an_answer(
    carrier: str, clock: trio.testing.MockClock
) -> None:
    async with peer_of(carrier) as peer:
        for seconds in (3, 50, 100):
            await peer.send(post(call(seconds, "sleep", s=seconds)))
            await peer.response(timeout=200)
            await trio.sleep(60)
        began = trio.current_time()
        assert await peer.rest(timeout=200) == b""
        assert 15 <= trio.current_time() - began < 17


async def test_a_long_call_is_not_an_idle_connection(clock: trio.testing.MockClock) -> None:
    async with serving() as service, service.connect() as peer:
        await peer.send(post(call(1, "sleep", s=500)))
        *comments, final = (await peer.response(timeout=600)).events
        assert text_of(final) == "slept"
        assert 30 <= len(comments) <= 34  # one after 5 s, then one each 15 s


async def test_a_slow_request_behind_another_one_does_not_disturb_that(
    clock: trio.testing.MockClock,
) -> None:
    async with serving() as service, service.connect() as peer:
        await peer.send(post(call(1, "sleep", s=20)) + b"POST /mc")
        assert text_of((await peer.response(timeout=30)).events[-1]) == "slept"
        assert (await peer.response()).status == 408


async def test_a_tls_handshake_has_a_limit(clock: trio.testing.MockClock) -> None:
    async with serving(tls=trustme_contexts()[0]) as service, service.connect() as peer:
        began = trio.current_time()
        assert await peer.rest(timeout=100) == b""
        assert 10 <= trio.current_time() - began < 12


# Heads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "PUT"])
async def test_other_methods_are_405(method: str) -> None:
    async with serving() as service, service.connect() as peer:
        session: dict[str, Any] = {"mcp_session_id": "s", "last_event_id": "7"}
        await peer.send(post(b"", method=method, **session))
        answer = await peer.response(bare=method == "HEAD")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert "mcp-session-id" not in answer.headers
        assert int(answer.headers["content-length"]) > 0
        assert await peer.rest() == b""


async def test_options_says_what_there_is() -> None:
    async with serving() as service, service.connect() as peer:
        await peer.send(post(b"", method="OPTIONS"))
        answer = await peer.response()
        assert (answer.status, answer.headers["allow"]) == (204, "POST")
        assert "content-length" not in answer.headers
        assert await peer.rest() == b""


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": None}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": None}, 415),
        ({"path": "/"}, 404),
        ({"path": "/mcp/"}, 404),
    ],
)
async def test_what_the_head_has_wrong_is_refused_before_the_body_is_read(
    changes: dict[str, Any], status: int
) -> None:
    async with serving() as service, service.connect() as peer:
        await peer.send(post(b"", content_length="100", **changes))
        answer = await peer.response()
        assert answer.status == status
        assert "id" not in answer.json
        assert await peer.rest() == b""


@pytest.mark.parametrize(
    "changes",
    [
        {"origin": "http://localhost:3000"},
        {"origin": "https://app.example"},
        {"host": "LOCALHOST:1234"},
        {"accept": None},
        {"accept": "*/*"},
        {"accept": "TEXT/EVENT-STREAM, Application/Json"},
        {"content_type": "Application/JSON; Charset=UTF-8"},
        {"mcp_session_id": "s", "last_event_id": "7"},
        {"mcp_name": "=?base64?ZWNobw==?="},
        {"mcp_name": " echo "},
    ],
)
async def test_what_the_head_may_have(changes: dict[str, Any]) -> None:
    async with serving(origins=["https://app.example"]) as service:
        answer = await service.ask(call(1, "echo", text="x"), **changes)
        assert (answer.status, text_of(answer.json)) == (200, "x")
        assert "mcp-session-id" not in answer.headers


async def test_health() -> None:
    async with serving() as service:
        async with service.connect() as peer:
            await peer.send(post(b"", method="GET", path="/healthz", host="balancer"))
            answer = await peer.response()
            assert (answer.status, answer.json) == (200, {"status": "ready"})
        async with service.connect() as peer:
            await peer.send(post(b"", method="HEAD", path="/healthz"))
            answer = await peer.response(bare=True)
            assert (answer.status, await peer.rest()) == (200, b"")


# Messages -----------------------------------------------------------------------------------------

CALL = call("id 7", "echo", text="x")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"mcp_protocol_version": None}, -32020),
        ({"mcp_method": None}, -32020),
        ({"mcp_name": None}, -32020),
        ({"mcp_name": "sleep"}, -32020),
        ({"mcp_name": "=?base64?c2xlZXA=?="}, -32020),
        ({"mcp_name": "=?base64?***?="}, -32020),
        ({"mcp_method": "tools/list"}, -32020),
        ({"mcp_protocol_version": "2025-11-25"}, -32020),
    ],
)
async def test_metadata_that_disagrees_is_400_and_the_connection_goes_on(
    changes: dict[str, Any], code: int
) -> None:
    async with serving() as service, service.connect() as peer:
        answer = await peer.ask(CALL, **changes)
        assert (answer.status, answer.code, answer.json["id"]) == (400, code, "id 7")
        assert (await peer.ask(CALL)).status == 200


VERSION = "io.modelcontextprotocol/protocolVersion"


@pytest.mark.parametrize(
    ("message", "changes", "status", "code"),
    [
        (request(0, "no/such"), {}, 404, -32601),
        (call(0, "no_such"), {}, 400, -32602),
        (request(0, "tools/list", {"cursor": "forged"}), {}, 400, -32602),
        ({"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": {}}, {}, 400, -32602),
        (
            request(0, "tools/list", {"_meta": {VERSION: "2099-01-01"}}),
            {"mcp_protocol_version": "2099-01-01"},
            400,
            -32022,
        ),
        (b"{", {}, 400, -32700),
        (b"\xff", {}, 400, -32700),
        (b"[]", {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":0,"result":{}}', {}, 400, -32600),
        (call(0, "boom", kind="bug"), {}, 200, -32603),
    ],
)
async def test_errors_and_their_statuses(
    message: Any, changes: dict[str, Any], status: int, code: int
) -> None:
    async with serving() as service, service.connect() as peer:
        answer = await peer.ask(message, **changes)
        assert (answer.status, answer.code) == (status, code)
        assert answer.json.get("id") == (0 if isinstance(message, dict) else None)
        assert (await peer.ask(CALL)).status == 200


async def test_a_tool_error_is_a_result() -> None:
    async with serving() as service:
        answer = await service.ask(call(1, "boom", kind="tool"))
        assert answer.status == 200
        assert answer.json["result"]["isError"] is True


async def test_overload_is_503_with_retry_after() -> None:
    async with serving(exchanges=1, retry_after=2.5) as service:
        async with service.connect() as peer:
            await peer.send(post(call(1, "sleep", s=3600)))
            await until(lambda: service.fixtures.live == 1)
            answer = await service.ask(CALL)
            assert (answer.status, answer.code) == (503, ErrorCode.OVERLOADED)
            assert answer.json["id"] == "id 7"
            assert answer.json["error"]["data"] == {"retryAfterMs": 2500}
            assert answer.headers["retry-after"] == "3"
        await until(lambda: service.fixtures.live == 0)
        await service.probe()


async def test_the_time_limit_of_a_tool_is_504() -> None:
    async with serving() as service:

        @service.fixtures.server.tool(timeout=0.05)
        async def never() -> None:
            await trio.sleep_forever()

        answer = await service.ask(call(1, "never"))
        assert (answer.status, answer.code) == (200, ErrorCode.DEADLINE_EXCEEDED)


async def test_one_connection_too_many_is_closed() -> None:
    async with serving(http_connections=1) as service:
        async with service.connect() as first:
            await first.ask(CALL)
            async with service.connect() as second:
                try:
                    assert await second.rest() == b""
                except trio.BrokenResourceError:
                    pass
            assert (await first.ask(CALL)).status == 200


async def test_notifications_are_202_and_never_act_on_another_exchange() -> None:
    async with serving() as service:
        async with service.connect() as first, service.connect() as second:
            await first.send(post(call(1, "sleep", s=0.3)))
            await until(lambda: service.fixtures.live == 1)
            for message in (cancel(1, "evil"), cancel("1"), {"jsonrpc": "2.0", "method": "x/y"}):
                answer = await second.ask(message)
                assert (answer.status, answer.body) == (202, b"")
                assert answer.headers["content-length"] == "0"
            assert text_of((await first.response()).json) == "slept"
        assert (await recorded(service, 1)).extra_cancels == 0


async def test_two_clients_with_one_id_get_their_own_answers() -> None:
    async with serving() as service:
        async with service.connect() as first, service.connect() as second:
            await first.send(post(call(1, "late", s=0.2, bytes=1)))
            await second.send(post(call(1, "late", s=0.1, bytes=2)))
            assert text_of((await second.response()).json) == "xx"
            assert text_of((await first.response()).json) == "x"


async def test_ids_keep_their_type() -> None:
    async with serving() as service, service.connect() as peer:
        for request_id in (0, "", "0", -1, 2**53 + 1, "é", "x" * 4096):
            answer = await peer.ask(call(request_id, "echo", text="x"))
            assert answer.json["id"] == request_id
            assert type(answer.json["id"]) is type(request_id)


async def test_invariant_6_twenty_outcomes_on_twenty_connections_are_each_their_own() -> None:
    async with serving() as service:
        found: dict[int, int] = {}

        async def ask(number: int) -> None:
            tools: list[tuple[str, dict[str, Any]]] = [
                ("echo", {"text": "x"}),
                ("boom", {"kind": "bug"}),
                ("sleep", {"s": 0.1}),
            ]
            tool, arguments = tools[number % 3]
            async with service.connect() as peer:
                if number % 4 == 3:
                    await peer.send(post(call(number, "sleep", s=3600)))
                    return
                found[number] = "error" in (await peer.ask(call(number, tool, **arguments))).json

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, number)
        await until(lambda: service.fixtures.live == 0)
        assert found == {n: n % 3 == 1 for n in range(20) if n % 4 != 3}


# Peers that do not read ---------------------------------------------------------------------------


async def test_a_peer_that_does_not_read_a_stream_is_stalled() -> None:
    async with serving(stall=0.3) as service, service.connect(small=True) as peer:
        await peer.send(post(call(1, "shout", token=1, bytes=MEBIBYTE)))
        await until(lambda: service.fixtures.live == 1)
        await until(lambda: service.fixtures.live == 0)
        record = await recorded(service, 1)
        assert record.cause is not None
        assert record.cause.source is CancelSource.STALLED
        await until(lambda: not service.fixtures.server._core.connections)
        await service.probe()


async def test_a_peer_that_does_not_read_an_answer_is_left() -> None:
    async with serving(stall=0.3) as service, service.connect(small=True) as peer:
        await peer.send(post(call(1, "big", bytes=8 * MEBIBYTE)))
        record = await recorded(service, 1)
        assert record.state is State.COMPLETED
        assert record.delivered is False
        await until(lambda: not service.fixtures.server._core.connections)


async def test_ten_thousand_ticks_for_a_peer_that_does_not_read() -> None:
    async with serving() as service:
        async with service.connect(small=True) as peer:
            await peer.send(post(call(1, "tick", token=1, n=10_000, dt=0)))
            await service.probe()
            *ticks, final = (await peer.response()).events
            assert text_of(final) == "ticked"
            progress = [tick["params"]["progress"] for tick in ticks]
            assert progress == sorted(set(progress))
            assert progress[-1] == 10_000


async def test_a_peer_that_leaves_while_its_answer_is_written_is_not_waited_for() -> None:
    async with serving(stall=30) as service:
        async with service.connect(small=True) as peer:
            await peer.send(post(call(1, "big", bytes=8 * MEBIBYTE)))
            await peer.head()
            assert isinstance(peer.stream, trio.SocketStream)
            await peer.stream.send_eof()
            await until(lambda: not service.fixtures.server._core.connections, timeout=2)
            assert (await recorded(service, 1)).delivered is False


# Draining -----------------------------------------------------------------------------------------


async def test_a_request_in_flight_may_finish_and_new_ones_are_told_to_come_back() -> None:
    async with serving(drain=2) as service:
        async with service.connect() as peer, service.connect() as idle, service.connect() as half:
            await idle.ask(CALL)
            await half.send(post(CALL)[:-5])
            await peer.send(post(call(1, "sleep", s=0.4)))
            await until(lambda: service.fixtures.live == 1)
            service.scope.cancel("stop")
            assert await idle.rest() == b""

            async with service.connect() as balancer:
                await balancer.send(post(b"", method="GET", path="/healthz"))
                health = await balancer.response()
                assert (health.status, health.json) == (503, {"status": "draining"})
            answer = await service.ask(CALL)
            assert (answer.status, answer.code) == (503, ErrorCode.SHUTTING_DOWN)
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.headers["connection"] == "close"

            await half.send(post(CALL)[-5:])
            assert (await half.response()).code == ErrorCode.SHUTTING_DOWN
            answer = await peer.response()
            assert text_of(answer.json) == "slept"
            assert answer.headers["connection"] == "close"
            assert await peer.rest() == b""
            assert await half.rest() == b""
        with trio.fail_after(1):
            await service.ended.wait()
        with pytest.raises(OSError):  # noqa: PT011
            await service.ask(CALL)


@pytest.mark.parametrize("tool", ["sleep", "speak"])
async def test_what_does_not_finish_is_told_of_the_shutdown(tool: str) -> None:
    async with serving(drain=0.2) as service, service.connect() as peer:
        await peer.send(post(call("c", tool, token=1, s=3600)))
        await until(lambda: service.fixtures.live == 1)
        service.scope.cancel("stop")
        began = trio.current_time()
        answer = await peer.response()
        assert 0.2 <= trio.current_time() - began < 0.5
        if tool == "sleep":
            assert answer.status == 503
            message = answer.json
        else:
            assert answer.status == 200
            message = answer.events[-1]
        assert message["id"] == "c"
        assert message["error"]["code"] == ErrorCode.SHUTTING_DOWN
        assert await peer.rest() == b""
        await service.ended.wait()
        record = await recorded(service, "c")
        assert record.cause is not None
        assert record.cause.source is CancelSource.SHUTDOWN


@pytest.mark.parametrize("when", ["idle", "silent", "in a head", "in a body", "in an answer"])
async def test_invariant_11_a_drain_is_bounded_whatever_the_peer_does(when: str) -> None:
    async with serving(drain=0.2) as service, service.connect(small=True) as peer:
        if when == "idle":
            await peer.ask(CALL)
        elif when == "in a head":
            await peer.send(post(CALL)[:10])
        elif when == "in a body":
            await peer.send(post(CALL)[:-10])
        elif when == "in an answer":
            await peer.send(post(call(1, "big", bytes=8 * MEBIBYTE)))
            await peer.head()
        await until(lambda: service.fixtures.server._core.connections)
        await trio.testing.wait_all_tasks_blocked(0.01)
        began = trio.current_time()
        service.scope.cancel("stop")
        await service.ended.wait()
        assert trio.current_time() - began < 1
    if when == "in an answer":
        assert (await recorded(service, 1)).delivered is False


async def test_a_drain_waits_for_clean_up_and_a_second_cancel_changes_nothing() -> None:
    async with serving(drain=0.1) as service, service.connect() as peer:
        await peer.send(post(call(1, "linger", s=0.4)))
        await until(lambda: service.fixtures.live == 1)
        service.scope.cancel("stop")
        service.scope.cancel("stop!")
        answer = await peer.response()
        assert (answer.status, answer.code) == (503, ErrorCode.SHUTTING_DOWN)
        await service.ended.wait()
    assert (await recorded(service, 1)).cleanup == "clean"


# TLS ----------------------------------------------------------------------------------------------


def trustme_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server on 127.0.0.1 and for its clients."""
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


@asynccontextmanager
async def tls_peer(service: Service, context: ssl.SSLContext) -> AsyncIterator[HttpPeer]:
    async with service.connect() as plain:
        assert isinstance(plain.stream, trio.SocketStream)
        yield HttpPeer(trio.SSLStream(plain.stream, context, server_hostname="127.0.0.1"))


async def test_tls() -> None:
    ours, theirs = trustme_contexts()
    async with serving(tls=ours, message_bytes=65536, drain=1) as service:
        async with tls_peer(service, theirs) as peer:
            assert text_of((await peer.ask(call(1, "echo", text="x"))).json) == "x"
            assert (await peer.ask(call(2, "speak", token=2, s=0.05))).events[-1]["id"] == 2
            answer = await peer.ask(CALL, connection="close")
            assert answer.headers["connection"] == "close"
            began = trio.current_time()
            assert await peer.rest() == b""  # a proper end, or this raises
            assert trio.current_time() - began < 0.5
        async with service.connect() as plain:
            await plain.send(post(CALL))
            assert b"200 OK" not in await plain.rest()


async def test_tls_a_refusal_arrives_although_the_body_is_still_being_sent() -> None:
    ours, theirs = trustme_contexts()
    async with serving(tls=ours, message_bytes=65536, drain=1) as service:
        for _ in range(5):
            async with tls_peer(service, theirs) as peer:
                await peer.send(post(b"x" * 2 * MEBIBYTE))
                assert (await peer.response()).status == 413


@pytest.mark.parametrize("end", [close, reset])
@pytest.mark.parametrize("tool", ["sleep", "speak"])
async def test_tls_a_disconnect_cancels_at_once(tool: str, end: Ending) -> None:
    ours, theirs = trustme_contexts()
    async with serving(tls=ours) as service:
        async with tls_peer(service, theirs) as peer:
            await peer.send(post(call(1, tool, token=1, s=3600)))
            await until(lambda: service.fixtures.live == 1)
            assert isinstance(peer.stream, trio.SSLStream)
            await end(HttpPeer(peer.stream.transport_stream))
            await until(lambda: service.fixtures.live == 0, timeout=0.5)
        record = await recorded(service, 1)
        assert record.cause is not None
        assert record.cause.source is CancelSource.DISCONNECT


# curl ---------------------------------------------------------------------------------------------


async def curl(service: Service, message: Any, *options: str) -> bytes:
    """What ``curl`` prints."""
    process = await trio.run_process(
        curl_command(service, message, *options), capture_stdout=True, stdin=body_of(message)
    )
    output: bytes = process.stdout
    return output


def body_of(message: Any) -> bytes:
    return msgspec.json.encode(message)


def curl_command(service: Service, message: Any, *options: str) -> list[str]:
    headers = [f"Mcp-Method: {message['method']}", f"Mcp-Name: {message['params']['name']}"]
    headers += ["MCP-Protocol-Version: 2026-07-28", "Content-Type: application/json"]
    flags = [flag for header in headers for flag in ("-H", header)]
    return ["curl", "-sS", "--max-time", "10", *flags, *options, "--data-binary", "@-", service.url]


@pytest.mark.parametrize("options", [[], ["--http1.0"], ["--http2"], ["-H", "Expect:"]])
async def test_curl(options: list[str]) -> None:
    async with serving() as service:
        message = call(1, "echo", text="é" * 1_000_000)  # it asks before it sends so much
        answer = msgspec.json.decode(await curl(service, message, *options))
        assert text_of(answer) == "é" * 1_000_000
        events = await curl(service, call(2, "speak", token="t", s=0.05), "-N", *options)
        *_, final = Response(200, {"content-type": "text/event-stream"}, events).events
        assert text_of(final) == "spoken"


async def test_curl_reuses_its_connection() -> None:
    async with serving() as service:
        message = call(1, "echo", text="x")
        output = await curl(service, message, "-w", "%{num_connects} ", service.url)
        assert output.count(b'"result"') == 2
        assert output.endswith(b"0 ")


@pytest.mark.parametrize("tool", ["sleep", "speak"])
async def test_killing_curl_cancels_its_call(tool: str) -> None:
    async with serving() as service:
        message = call(1, tool, token=1, s=3600)
        process = await trio.lowlevel.open_process(
            curl_command(service, message), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        assert process.stdin is not None
        async with process.stdin:
            await process.stdin.send_all(body_of(message))
        await until(lambda: service.fixtures.live == 1)
        process.send_signal(signal.SIGKILL)
        await until(lambda: service.fixtures.live == 0, timeout=1)
        await process.wait()


# The official SDK's client ------------------------------------------------------------------------


@asynccontextmanager
async def official_client(service: Service, mode: str = "auto") -> AsyncIterator[mcp.Client]:
    """The SDK's client. It leaves its readers of streams to the garbage collector."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Async generator", ResourceWarning)
        async with mcp.Client(service.url, mode=mode) as client:
            yield client
        gc.collect()


REGION = msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})
SIZE = msgspec.Meta(extra_json_schema={"x-mcp-header": "Size"})


@pytest.mark.parametrize("mode", ["auto", "2026-07-28"])
async def test_the_official_client_lists_calls_and_hears_of_failures(mode: str) -> None:
    async with serving() as service:
        async with official_client(service, mode) as client:
            assert {"echo", "add", "sleep", "boom"} <= {*await official.tool_names(client)}
            said = await client.call_tool("echo", {"text": "é\u2028"})
            assert official.text_of(said) == "é\u2028"
            added = await client.call_tool("add", {"a": 2**53, "b": 1})
            assert added.structured_content == 2**53 + 1
            failed = await client.call_tool("boom", {"kind": "tool"})
            assert failed.is_error
            with pytest.raises(mcp.MCPError) as crashed:
                await client.call_tool("boom", {"kind": "bug"})
            assert crashed.value.error.code == -32603
            with pytest.raises(mcp.MCPError, match="Unknown tool") as unknown:
                await client.call_tool("no_such", {})
            assert unknown.value.error.code == -32602
        methods = [record.method for record in service.fixtures.server.journal]
        assert "initialize" not in methods


async def test_the_official_client_gets_progress() -> None:
    async with serving() as service, official_client(service) as client:
        result, updates = await official.call_with_progress(client, "tick", {"n": 5, "dt": 0.05})
        assert official.text_of(result) == "ticked"
        assert updates[-1] == (5, 5, "tick 5")
        assert [update.progress for update in updates] == sorted({u.progress for u in updates})


@pytest.mark.parametrize("tool", ["sleep", "speak"])
async def test_the_official_client_cancels(tool: str) -> None:
    async with serving() as service:
        async with official_client(service) as client:
            result = await official.call_and_cancel(
                client, tool, {"s": 3600}, when=lambda: until(lambda: service.fixtures.live == 1)
            )
            assert result is None
            await until(lambda: service.fixtures.live == 0, timeout=1)
            await until(lambda: service.fixtures.server.journal.ended[State.CANCELLED])
            (record,) = [r for r in service.fixtures.server.journal if r.target == tool]
            assert record.cause is not None
            assert record.cause.source is CancelSource.DISCONNECT
            probe = await client.call_tool("echo", {"text": "next"})
            assert official.text_of(probe) == "next"


async def test_the_official_client_mirrors_arguments_and_we_check_them() -> None:
    async with serving() as service:
        server = service.fixtures.server
        methods, mirrored = server._core.methods, server._tools.mirrored
        methods["tools/call"] = attrs.evolve(methods["tools/call"], mirrored=mirrored)

        @server.tool
        async def buy(region: Annotated[str, REGION], size: Annotated[int, SIZE] = 1) -> str:
            return f"{size} in {region!r}"

        async with official_client(service) as client:
            await official.tool_names(client)
            for name in ("eu", "Zürich ", "", "=?base64?x?="):
                bought = await client.call_tool("buy", {"region": name, "size": -3})
                assert official.text_of(bought) == f"-3 in {name!r}"
            assert official.text_of(await client.call_tool("buy", {"region": "eu"})) == "1 in 'eu'"

        message = call(1, "buy", region="eu", size=42)
        both = {"mcp_param_region": "eu", "mcp_param_size": "42.0"}
        assert (await service.ask(message, **both)).status == 200
        wrong: list[dict[str, str | None]] = [
            {"mcp_param_region": None},
            {"mcp_param_region": "us"},
            {"mcp_param_size": "43"},
        ]
        for change in wrong:
            headers: dict[str, Any] = {**both, **change}
            answer = await service.ask(message, **headers)
            assert (answer.status, answer.code, answer.json["id"]) == (400, -32020, 1)


# Leaks --------------------------------------------------------------------------------------------


async def test_two_thousand_requests_on_four_connections_leave_nothing() -> None:
    async with serving(journal_records=10_000) as service:

        async def ask_many() -> None:
            async with service.connect() as peer:
                for number in range(500):
                    assert (await peer.ask(call(number, "echo", text="x"))).status == 200

        began = time.monotonic()
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask_many)
        assert time.monotonic() - began < 20
        assert service.fixtures.server.journal.ended[State.COMPLETED] == 2000
