"""The ASGI carrier: what is special about it, on Hypercorn's Trio worker and by hand.

Over real sockets Hypercorn stands between; by hand a scripted server fixes the order of events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import msgspec
import pytest
import trio
import trio.testing
from hypercorn.config import Config
from hypercorn.middleware.dispatcher import TrioDispatcherMiddleware
from hypercorn.trio import serve
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.peers.inspection import exchanges, record_of
from tests.peers.raw import call, text_of, until
from tests.peers.raw_http import Head, HttpPeer, Response, post
from tests.test_http_server import (
    MEBIBYTE,
    Ending,
    HttpFixtures,
    Service,
    close,
    half_close,
    recorded,
    reset,
)

from trio_mcp import CancelSource, Limits, Principal, State
from trio_mcp.transports.http.asgi import AsgiApp
from trio_mcp.transports.http.hypercorn import serve_hypercorn

App = Callable[[Any, Any, Any], Awaitable[None]]
Message = MutableMapping[str, Any]


# A server -----------------------------------------------------------------------------------------


class H1Peer(HttpPeer):
    """Reads what ``h11`` writes: names of headers in any case."""

    async def head(self, timeout: float = 5) -> Head:
        head = await super().head(timeout)
        return Head(head.status, {name.lower(): value for name, value in head.headers.items()})


@attrs.define
class Site(Service):
    """An application on Hypercorn."""

    app: AsgiApp
    stop: trio.Event

    @asynccontextmanager
    async def connect(self, *, small: bool = False) -> AsyncGenerator[HttpPeer, None]:
        async with Service.connect(self, small=small) as peer:
            assert isinstance(peer.stream, trio.SocketStream)
            yield H1Peer(peer.stream)

    @asynccontextmanager
    async def connect_h2(self, **options: Any) -> AsyncGenerator[H2Peer, None]:
        async with trio.open_nursery() as nursery:
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                peer = H2Peer(stream, **options)
                await peer.begin()
                nursery.start_soon(peer.read)
                yield peer
            nursery.cancel_scope.cancel("the client has closed")


@asynccontextmanager
async def site(
    *,
    around: Callable[[AsgiApp], App] = lambda app: app,
    config: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **limits: Any,
) -> AsyncGenerator[Site, None]:
    """A fixture server on Hypercorn. In the end nothing of its requests may be left."""
    limits.setdefault("drain", 0.3)
    fixtures = HttpFixtures(Limits(**limits))
    core = fixtures.server._core
    app = fixtures.server.asgi(**(options or {}))
    settings = Config.from_mapping(
        {"bind": ["127.0.0.1:0"], "graceful_timeout": 0.2, **(config or {})}
    )
    stop, ended = trio.Event(), trio.Event()

    async def run(task_status: trio.TaskStatus[list[str]]) -> None:
        served: Any = around(app)
        await serve(
            served, settings, shutdown_trigger=stop.wait, task_status=task_status, mode="asgi"
        )
        ended.set()

    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(run)
        yield Site(
            fixtures, int(url.rpartition(":")[2]), nursery.cancel_scope, ended, app=app, stop=stop
        )
        if not stop.is_set():
            await until(lambda: not core.connections)
        stop.set()
        with trio.fail_after(5):
            await ended.wait()
    nothing_left(fixtures)


def nothing_left(fixtures: HttpFixtures) -> None:
    core = fixtures.server._core
    assert core.inflight == 0
    assert fixtures.live == 0
    assert core.connections == set()
    assert exchanges(fixtures.server) == []


# A client that speaks HTTP/2 ----------------------------------------------------------------------


@attrs.define
class Stream:
    """What came on one stream."""

    status: int | None = None
    headers: dict[str, str] = attrs.field(factory=dict)
    body: bytearray = attrs.field(factory=bytearray)
    begun: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)
    reset: bool = False


class H2Peer:
    """A connection; ``reads=False`` never opens a window again."""

    def __init__(self, stream: trio.SocketStream, *, reads: bool = True) -> None:
        self.stream = stream
        self.closed = trio.Event()
        self.streams: dict[int, Stream] = {}
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="latin-1")
        )
        self._reads = reads
        self._turn = trio.Lock()

    async def begin(self) -> None:
        self.h2.initiate_connection()
        await self.flush()

    async def flush(self) -> None:
        async with self._turn:
            data = self.h2.data_to_send()
            await self.stream.send_all(data)

    async def send(
        self, message: Any, *, end: bool = True, method: str = "POST", **changes: str | None
    ) -> int:
        """Send a request; the number of its stream."""
        body = message if isinstance(message, bytes) else msgspec.json.encode(message)
        headers: dict[str, str | None] = {
            ":method": method,
            ":scheme": "http",
            ":path": "/mcp",
            ":authority": "127.0.0.1",
            "content-type": "application/json",
            "mcp-protocol-version": "2026-07-28",
        }
        if isinstance(message, dict):
            headers["mcp-method"] = message["method"]
            headers["mcp-name"] = message.get("params", {}).get("name")
        headers |= {name.replace("_", "-"): value for name, value in changes.items()}
        number = self.h2.get_next_available_stream_id()
        self.streams[number] = Stream()
        pairs = [(name, value) for name, value in headers.items() if value is not None]
        self.h2.send_headers(number, pairs)
        self.h2.send_data(number, body, end_stream=end)
        await self.flush()
        return number

    async def more(self, number: int, data: bytes, *, end: bool = False) -> None:
        self.h2.send_data(number, data, end_stream=end)
        await self.flush()

    async def reset(self, number: int) -> None:
        self.h2.reset_stream(number, h2.errors.ErrorCodes.CANCEL)
        await self.flush()

    async def response(self, number: int, timeout: float = 5) -> Response:
        stream = self.streams[number]
        with trio.fail_after(timeout):
            await stream.ended.wait()
        assert not stream.reset
        assert stream.status is not None
        return Response(stream.status, stream.headers, bytes(stream.body))

    async def ask(self, message: Any, **options: Any) -> Response:
        return await self.response(await self.send(message, **options))

    async def read(self) -> None:
        try:
            while data := await self.stream.receive_some(65536):
                for event in self.h2.receive_data(data):
                    self._take(event)
                await self.flush()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.closed.set()

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            stream = self.streams[event.stream_id]
            headers = {str(name): str(value) for name, value in event.headers}
            stream.status = int(headers.pop(":status"))
            stream.headers = headers
            stream.begun.set()
        elif isinstance(event, h2.events.DataReceived):
            self.streams[event.stream_id].body += event.data
            if self._reads:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.streams[event.stream_id].ended.set()
        elif isinstance(event, h2.events.StreamReset):
            self.streams[event.stream_id].reset = True
            self.streams[event.stream_id].ended.set()


# A server by hand ---------------------------------------------------------------------------------


class ByHand:
    """What the application receives and sends, in an order that a test decides."""

    def __init__(self, message: Any = b"", *, body: bool = True, **scope: Any) -> None:
        data = message if isinstance(message, bytes) else msgspec.json.encode(message)
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        headers.append((b"mcp-protocol-version", b"2026-07-28"))
        if isinstance(message, dict):
            headers.append((b"mcp-method", message["method"].encode()))
            headers.append((b"mcp-name", message["params"]["name"].encode()))
        self.scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/mcp",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            **scope,
        }
        self.sent: list[Message] = []
        self.ended = trio.Event()
        self.error: BaseException | None = None
        self.cancelled = False
        self.stuck = False
        self.send_error: Exception | None = None
        self.scope_around = trio.CancelScope()
        self._in, self._out = trio.open_memory_channel[Any](float("inf"))
        if body:
            self.deliver({"type": "http.request", "body": data, "more_body": False})

    def deliver(self, message: Message | Exception) -> None:
        self._in.send_nowait(message)

    def disconnect(self) -> None:
        self.deliver({"type": "http.disconnect"})

    async def receive(self) -> Message:
        message = await self._out.receive()
        if isinstance(message, Exception):
            raise message
        received: Message = message
        return received

    async def send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        if self.send_error is not None:
            raise self.send_error
        if self.stuck:
            await trio.sleep_forever()
        self.sent.append(message)

    async def run(self, app: App) -> None:
        with self.scope_around:
            try:
                await app(self.scope, self.receive, self.send)
            except Exception as error:
                self.error = error
            except trio.Cancelled:
                self.cancelled = True
                raise
        self.ended.set()

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def json(self) -> Any:
        return msgspec.json.decode(b"".join(part.get("body", b"") for part in self.sent[1:]))

    async def answer(self, app: App) -> Any:
        """Run the application for this request alone."""
        with trio.fail_after(1000):
            await self.run(app)
        assert self.error is None
        return self.json


@asynccontextmanager
async def running(app: App, peer: ByHand) -> AsyncGenerator[ByHand, None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run, app)
        yield peer
        with trio.fail_after(1000):
            await peer.ended.wait()


def cause_of(fixtures: HttpFixtures, request_id: Any) -> CancelSource:
    cause = record_of(fixtures.server, request_id).cause
    assert cause is not None
    return cause.source


# HTTP/2: streams end one by one -------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["json", "events", "cleaning up"])
async def test_a_reset_stream_cancels_its_request_and_no_other(mode: str) -> None:
    async with site() as service, service.connect_h2() as peer:
        sibling = await peer.send(call("sibling", "late", s=0.5, bytes=3))
        tool = {"json": "sleep", "events": "speak", "cleaning up": "linger"}[mode]
        gone = await peer.send(call("gone", tool, token="t", s=0.3 if tool == "linger" else 3600))
        await until(lambda: service.fixtures.live == 1)
        if mode == "events":
            await peer.streams[gone].begun.wait()
        seen = len(peer.streams[gone].body)
        await peer.reset(gone)
        record = await recorded(service, "gone")
        assert record.state is State.CANCELLED
        assert cause_of(service.fixtures, "gone") is CancelSource.DISCONNECT
        assert text_of((await peer.response(sibling)).json) == "xxx"
        assert text_of((await peer.ask(call("next", "echo", text="next"))).json) == "next"
        assert (peer.streams[gone].status is None) == (mode != "events")
        assert len(peer.streams[gone].body) == seen
        assert record_of(service.fixtures.server, "sibling").state is State.COMPLETED


@pytest.mark.parametrize("how", ["goaway", "close"])
async def test_the_end_of_an_http2_connection_cancels_all_its_requests(how: str) -> None:
    async with site() as service:
        async with service.connect_h2() as peer:
            for number in range(5):
                await peer.send(call(number, "sleep", s=3600))
            await until(lambda: service.fixtures.live == 5)
            if how == "goaway":
                peer.h2.close_connection()
                await peer.flush()
                await until(lambda: service.fixtures.live == 0)
        await until(lambda: service.fixtures.live == 0)
        for number in range(5):
            await recorded(service, number)
            assert cause_of(service.fixtures, number) is CancelSource.DISCONNECT
        await service.probe()


@pytest.mark.parametrize(
    ("status", "changes"),
    [(415, {"content_type": "text/plain"}), (403, {":authority": "evil"}), (413, {})],
)
async def test_a_refused_upload_ends_neither_its_connection_nor_its_siblings(
    status: int, changes: dict[str, Any]
) -> None:
    async with site(message_bytes=20_000, http_body_time=0.1) as service:
        async with service.connect_h2() as peer:
            sibling = await peer.send(call("sibling", "late", s=0.5, bytes=3))
            refused = await peer.send(b"x" * 16_000, end=False, **changes)
            await peer.more(refused, b"x" * 16_000)
            with trio.fail_after(5):
                await peer.streams[refused].begun.wait()
            await trio.sleep(0.3)  # longer than a body may take
            for _ in range(20):
                await peer.more(refused, b"x" * 100)
            assert text_of((await peer.response(sibling)).json) == "xxx"
            assert not peer.streams[refused].ended.is_set()
            await peer.more(refused, b"", end=True)
            assert (await peer.response(refused)).status == status
            assert text_of((await peer.ask(call("next", "echo", text="next"))).json) == "next"
        await service.probe()


async def test_a_slow_upload_over_http2_is_answered_408_and_harms_nobody() -> None:
    async with site(http_body_time=0.1) as service, service.connect_h2() as peer:
        slow = await peer.send(b"{", end=False)
        with trio.fail_after(5):
            await peer.streams[slow].begun.wait()
        assert peer.streams[slow].status == 408
        await peer.more(slow, b"x")
        assert text_of((await peer.ask(call(1, "echo", text="x"))).json) == "x"
        await peer.reset(slow)
        await service.probe()


@pytest.mark.parametrize("reads", [True, False])
async def test_an_http2_answer_is_in_bounds_of_flow_control(reads: bool) -> None:
    async with site(stall=0.3) as service, service.connect_h2(reads=reads) as peer:
        number = await peer.send(call("big", "big", bytes=2 * MEBIBYTE))
        if reads:
            answer = await peer.response(number, timeout=20)
            assert len(text_of(answer.json)) == 2 * MEBIBYTE
        record = await recorded(service, "big")
        assert record.state is State.COMPLETED
        assert record.delivered is reads


async def test_an_http2_stream_that_is_not_read_is_stalled_in_bounds() -> None:
    """Hypercorn 0.18 takes all that a stream is given while its window is closed."""
    async with site(bytes_per_connection=300_000) as service:
        async with service.connect_h2(reads=False) as peer:
            await peer.send(call("loud", "shout", token="t", bytes=9000))
            await until(lambda: len(service.fixtures.server.journal), timeout=5)
            record = record_of(service.fixtures.server, "loud")
            assert cause_of(service.fixtures, "loud") is CancelSource.STALLED
            assert 20 < record.progress_sent < 40


async def test_an_answer_whose_stream_is_reset_half_way_was_not_delivered() -> None:
    async with site() as service, service.connect_h2(reads=False) as peer:
        number = await peer.send(call("big", "big", bytes=2 * MEBIBYTE))
        await until(lambda: len(peer.streams[number].body) >= 60_000)
        await peer.reset(number)
        assert (await recorded(service, "big")).delivered is False


# HTTP/1.1 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [close, reset, half_close])
@pytest.mark.parametrize("tool", ["sleep", "speak"])
async def test_an_http1_disconnect_cancels(tool: str, end: Ending) -> None:
    async with site() as service:
        async with service.connect() as peer:
            await peer.send(post(call(1, tool, token="t", s=3600)))
            await until(lambda: service.fixtures.live == 1)
            if tool == "speak":
                await peer.head()
                await peer.chunk()
            await end(peer)
            await until(lambda: service.fixtures.live == 0)
        assert (await recorded(service, 1)).state is State.CANCELLED
        assert cause_of(service.fixtures, 1) is CancelSource.DISCONNECT
        await service.probe()


@pytest.mark.parametrize("end", [close, reset, half_close])
async def test_who_leaves_within_the_body_leaves_no_trace(
    end: Ending, caplog: pytest.LogCaptureFixture
) -> None:
    async with site() as service:
        async with service.connect() as peer:
            await peer.send(post(call(1, "echo", text="x"))[:-5])
            await end(peer)
        await service.probe()
        await recorded(service, "PROBE")
        assert len(service.fixtures.server.journal) == 1
    assert [entry for entry in caplog.records if entry.levelno >= logging.WARNING] == []


async def test_a_slow_body_is_answered_408() -> None:
    async with site(http_body_time=0.1) as service, service.connect() as peer:
        await peer.send(post(call(1, "echo", text="x"))[:-5])
        answer = await peer.response()
        assert answer.status == 408
        assert answer.headers["connection"] == "close"
        assert await peer.rest() == b""


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_too_large_is_answered_and_its_connection_ends(chunked: bool) -> None:
    """Although much more comes than Hypercorn's queue to the application holds."""
    config = {"max_app_queue_size": 2}
    async with site(config=config, message_bytes=1000) as service, service.connect() as peer:
        start = post(b"", transfer_encoding="chunked", content_length=None)
        if not chunked:
            start = post(b"", content_length="100000000")

        async def upload() -> None:
            try:
                await peer.send(start)
                while True:
                    await peer.send(b"1\r\nx\r\n" * 10_000)
            except trio.BrokenResourceError:
                ended.set()

        ended = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(upload)
            with trio.fail_after(5):
                await ended.wait()
        assert b" 413 " in peer.buffer or await _status_if_kept(peer) in (413, None)
        await service.probe()


async def _status_if_kept(peer: Any) -> int | None:
    """A reset may have taken the answer away."""
    try:
        return int((await peer.head()).status)
    except (trio.BrokenResourceError, EOFError):
        return None


async def test_a_close_that_pipelined_bytes_hide_is_noticed_within_its_bound() -> None:
    silence = keep_alive = 0.2
    async with site(http_silence=silence, http_keep_alive=keep_alive) as service:
        async with service.connect() as peer:
            await peer.send(post(call(1, "sleep", s=3600)) + post(call(2, "echo", text="x")))
            await until(lambda: service.fixtures.live == 1)
        await until(lambda: service.fixtures.live == 0, timeout=silence + 2 * keep_alive + 0.5)
        assert (await recorded(service, 1)).state is State.CANCELLED
        assert cause_of(service.fixtures, 1) is CancelSource.DISCONNECT


@pytest.mark.parametrize("tool", ["big", "shout"])
async def test_a_client_that_never_reads_does_not_hold_the_shutdown(tool: str) -> None:
    limits = Limits(stall=0.4, drain=0.2)
    fixtures = HttpFixtures(limits)
    async with trio.open_nursery() as nursery:
        start = partial(serve_hypercorn, fixtures.server.asgi(), "127.0.0.1", 0, limits)
        port = await nursery.start(start)
        service = Service(fixtures, port, nursery.cancel_scope, trio.Event())
        async with service.connect(small=True) as peer:
            await peer.send(
                post(call(1, tool, token="t", bytes=8 * MEBIBYTE if tool == "big" else 9000))
            )
            await until(lambda: exchanges(fixtures.server) or len(fixtures.server.journal))
            with trio.move_on_after(0.1):
                await trio.sleep_forever()
            nursery.cancel_scope.cancel("shut down")
            with trio.CancelScope(shield=True), trio.fail_after(8):
                await until(lambda: not fixtures.server._core.connections, timeout=8)
    assert nursery.cancel_scope.cancelled_caught
    nothing_left(fixtures)
    record = record_of(fixtures.server, 1)
    assert record.delivered is not True


@pytest.mark.parametrize("version", ["1.1", "2"])
async def test_answers_that_arrived_are_recorded_as_delivered(version: str) -> None:
    async with site() as service:
        messages = [call(1, "echo", text="x"), call(2, "tick", token="t", n=2, dt=0.01)]
        messages.append(call(3, "late", s=0, bytes=MEBIBYTE))
        if version == "2":
            async with service.connect_h2() as peer:
                for message in messages:
                    await peer.ask(message)
        else:
            for message in messages:
                await service.ask(message)
        for number in (1, 2, 3):
            record = await recorded(service, number)
            assert (record.state, record.delivered) == (State.COMPLETED, True)


# Heads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        (403, {"host": "evil.example"}),
        (403, {"origin": "https://evil.example"}),
        (200, {"origin": "http://localhost:3000"}),
        (431, {"x_long": "x" * 3000}),
        (400, {"content_length": "-1"}),
        (403, {"host": None, "version": "1.0"}),
    ],
)
async def test_heads_over_http1(status: int, changes: dict[str, Any]) -> None:
    async with site(http_head_bytes=2000) as service:
        assert (await service.ask(call(1, "echo", text="x"), **changes)).status == status
        await service.probe()


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        (403, {":authority": "evil.example"}),
        (200, {":authority": None, "host": "localhost"}),
        (403, {"origin": "https://evil.example"}),
        (431, {"x_long": "x" * 3000}),
    ],
)
async def test_heads_over_http2(status: int, changes: dict[str, Any]) -> None:
    async with site(http_head_bytes=2000) as service, service.connect_h2() as peer:
        assert (await peer.ask(call(1, "echo", text="x"), **changes)).status == status
        assert (await peer.ask(call(2, "echo", text="x"))).status == 200


@pytest.mark.parametrize(
    ("lengths", "status"), [([b"5", b"6"], 400), ([b"five"], 400), ([b"99999999999"], 413)]
)
async def test_lengths_that_cannot_be(lengths: list[bytes], status: int) -> None:
    fixtures = HttpFixtures()
    peer = ByHand(call(1, "echo", text="x"))
    peer.scope["headers"] += [(b"Content-Length", length) for length in lengths]
    await peer.answer(fixtures.server.asgi())
    assert peer.status == status
    nothing_left(fixtures)


# Mounted ------------------------------------------------------------------------------------------


async def hello(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def dispatched(app: AsgiApp) -> App:
    mounts: Any = {"/ai": app, "/other": hello}
    return TrioDispatcherMiddleware(mounts)


def mounted(app: AsgiApp) -> App:
    """A mount without lifespan events, as Starlette does it."""

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("no lifespan here")
        if scope["path"].startswith("/ai/"):
            await app({**scope, "root_path": scope.get("root_path", "") + "/ai"}, receive, send)
        else:
            await hello(scope, receive, send)

    return outer


@pytest.mark.parametrize("around", [dispatched, mounted])
async def test_mounted_next_to_another_application(around: Callable[[AsgiApp], App]) -> None:
    async with site(around=around, config={"errorlog": None}) as service:
        answer = await service.ask(call(1, "echo", text="x"), path="/ai/mcp")
        assert text_of(answer.json) == "x"
        assert (await service.ask(call(2, "echo", text="x"), path="/ai/mpc")).status == 404
        assert (await service.ask(b"", path="/other/mcp")).body == b"hello"
        assert (await service.ask(b"", path="/ai/healthz", method="GET")).json["status"] == "ready"
        async with service.connect() as peer:
            await peer.send(post(call(3, "sleep", s=3600), path="/ai/mcp"))
            await until(lambda: service.fixtures.live == 1)
        await until(lambda: service.fixtures.live == 0)


async def test_a_path_that_is_not_ours_is_our_404() -> None:
    async with site() as service:
        answer = await service.ask(call(1, "echo", text="x"), path="/")
        assert answer.status == 404
        assert "/mcp" in answer.json["error"]["message"]


# Lifespans and runs -------------------------------------------------------------------------------


async def test_a_lifespan_and_another() -> None:
    fixtures = HttpFixtures()
    app = fixtures.server.asgi()
    for _ in range(2):
        life = ByHand(body=False, type="lifespan")
        async with running(app, life):
            life.deliver({"type": "lifespan.startup"})
            await until(partial(len, life.sent))
            assert life.sent == [{"type": "lifespan.startup.complete"}]
            peer = ByHand(call(1, "echo", text="x"))
            assert text_of(await peer.answer(app)) == "x"
            life.deliver({"type": "lifespan.shutdown"})
        assert life.sent[1:] == [{"type": "lifespan.shutdown.complete"}]
        assert (await ByHand(call(2, "echo", text="x")).answer(app))["error"]["code"]


def test_one_application_in_two_runs_without_a_lifespan() -> None:
    fixtures = HttpFixtures()
    app = fixtures.server.asgi()

    async def main() -> None:
        assert text_of(await ByHand(call(1, "echo", text="x")).answer(app)) == "x"
        await app.drain()
        refused = ByHand(call(2, "echo", text="x"))
        await refused.answer(app)
        assert refused.status == 503

    trio.run(main)
    trio.run(main)


def test_under_asyncio_it_says_what_to_do() -> None:
    app = HttpFixtures().server.asgi()
    with pytest.raises(RuntimeError, match="worker-class trio"):
        asyncio.run(app({"type": "http"}, None, None))  # type: ignore[arg-type]


# Drain and shutdown -------------------------------------------------------------------------------


async def test_a_drain_refuses_lets_finish_and_cancels() -> None:
    async with site(drain=0.5) as service:
        async with service.connect_h2() as peer, service.connect() as other:
            short = await peer.send(call("short", "late", s=0.2, bytes=3))
            long = await peer.send(call("long", "sleep", s=3600))
            speaking = await peer.send(call("speaking", "speak", token="t", s=3600))
            await other.send(post(call("other", "sleep", s=3600)))
            await until(lambda: service.fixtures.live == 3)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(service.app.drain)
                await trio.testing.wait_all_tasks_blocked(0.01)
                refused = await peer.ask(call("new", "echo", text="x"))
                assert refused.status == 503
                assert int(refused.headers["retry-after"]) >= 1
                health = await service.ask(b"", path="/healthz", method="GET")
                assert (health.status, health.json["status"]) == (503, "draining")
            assert text_of((await peer.response(short)).json) == "xxx"
            answers = [await peer.response(long), await other.response()]
            assert [answer.status for answer in answers] == [503, 503]
            assert all("shutting down" in answer.json["error"]["message"] for answer in answers)
            *_, final = (await peer.response(speaking)).events
            assert "shutting down" in final["error"]["message"]
            for request_id in ("long", "other", "speaking"):
                assert cause_of(service.fixtures, request_id) is CancelSource.SHUTDOWN
                assert (await recorded(service, request_id)).delivered is True
            assert record_of(service.fixtures.server, "short").state is State.COMPLETED
            assert len(service.fixtures.released) == 2


async def test_hypercorn_that_ends_without_a_drain_cancels_with_cause_shutdown() -> None:
    async with site() as service, service.connect() as peer:
        await peer.send(post(call(1, "sleep", s=3600, label="x")))
        await until(lambda: service.fixtures.live == 1)
        service.stop.set()
        with trio.fail_after(5):
            await service.ended.wait()
        assert cause_of(service.fixtures, 1) is CancelSource.SHUTDOWN
        assert service.fixtures.released == ["x"]


async def test_a_cancelled_application_answers_and_lets_the_cancellation_pass(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = HttpFixtures()
    app = fixtures.server.asgi()
    async with running(app, ByHand(call(1, "linger", s=3))) as peer:
        await until(lambda: fixtures.live == 1)
        peer.scope_around.cancel()
        began = trio.current_time()
    assert peer.cancelled
    assert trio.current_time() - began < 4
    assert peer.status == 503
    assert cause_of(fixtures, 1) is CancelSource.SHUTDOWN
    assert record_of(fixtures.server, 1).cleanup == "clean"
    nothing_left(fixtures)


# Orders -------------------------------------------------------------------------------------------


async def test_a_hidden_disconnect_is_told_loudly(autojump_clock: trio.testing.MockClock) -> None:
    fixtures = HttpFixtures()
    async with running(fixtures.server.asgi(), ByHand(call(1, "sleep", s=3600))) as peer:
        await until(lambda: fixtures.live == 1)
        peer.deliver({"type": "http.request", "body": b"", "more_body": False})
    assert isinstance(peer.error, RuntimeError)
    assert "hides when clients leave" in str(peer.error)
    assert cause_of(fixtures, 1) is CancelSource.DISCONNECT
    assert peer.sent == []
    nothing_left(fixtures)


@pytest.mark.parametrize("body", [True, False])
async def test_a_receive_that_fails(body: bool, autojump_clock: trio.testing.MockClock) -> None:
    fixtures = HttpFixtures()
    peer = ByHand(call(1, "sleep", s=3600), body=body)
    async with running(fixtures.server.asgi(), peer):
        if body:
            await until(lambda: fixtures.live == 1)
        peer.deliver(OSError("gone"))
    assert isinstance(peer.error, OSError)
    assert peer.sent == []
    if body:
        assert cause_of(fixtures, 1) is CancelSource.DISCONNECT
    nothing_left(fixtures)


@pytest.mark.parametrize("tool", ["echo", "shout"])
@pytest.mark.parametrize("how", ["fails", "blocks"])
async def test_a_send_that_fails_or_blocks(
    how: str, tool: str, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = HttpFixtures(Limits(stall=3))
    arguments = {"text": "x"} if tool == "echo" else {"bytes": 10}
    peer = ByHand(call(1, tool, token="t", **arguments))
    peer.stuck = how == "blocks"
    peer.send_error = OSError("gone") if how == "fails" else None
    async with running(fixtures.server.asgi(), peer):
        pass
    assert peer.error is None
    record = record_of(fixtures.server, 1)
    if tool == "echo":
        assert (record.state, record.delivered) == (State.COMPLETED, False)
    else:
        expected = CancelSource.STALLED if how == "blocks" else CancelSource.DISCONNECT
        assert cause_of(fixtures, 1) is expected
    nothing_left(fixtures)


async def test_a_long_answer_has_the_write_limit_for_each_part_of_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = HttpFixtures(Limits(stall=3))
    peer = ByHand(call(1, "big", bytes=MEBIBYTE))
    send = peer.send

    async def slowly(message: Message) -> None:
        assert len(message.get("body", b"")) <= 64 * 1024
        await trio.sleep(2)
        await send(message)

    peer.send = slowly  # type: ignore[method-assign]
    assert len(text_of(await peer.answer(fixtures.server.asgi()))) == MEBIBYTE
    assert record_of(fixtures.server, 1).delivered is True


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["disconnect", "drain", "cancel", "wait"]),
        st.sampled_from([0, 0.004, 0.01, 0.02, 0.05, 0.1, 1]),
    ),
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.sampled_from(["late", "speak", "linger", "tick"]), st.booleans())
def test_any_order_of_events_ends_well(
    actions: list[tuple[str, float]], tool: str, stuck: bool
) -> None:
    fixtures = HttpFixtures(Limits(stall=0.5, drain=0.3, http_silence=0.05, http_keep_alive=0.05))
    app = fixtures.server.asgi()
    arguments: dict[str, Any] = {"s": 0.06}
    if tool == "late":
        arguments["bytes"] = 100_000
    elif tool == "tick":
        arguments = {"n": 5, "dt": 0.01}

    async def main() -> None:
        peer = ByHand(call(1, tool, token="t", **arguments))
        peer.stuck = stuck
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.run, app)
            for action, delay in actions:
                await trio.sleep(delay)
                if action == "disconnect":
                    peer.disconnect()
                elif action == "drain":
                    nursery.start_soon(app.drain)
                elif action == "cancel":
                    peer.scope_around.cancel()
            await trio.sleep(1)
            peer.disconnect()
            with trio.fail_after(100):
                await peer.ended.wait()
        assert peer.error is None
        check(peer)

    def check(peer: ByHand) -> None:
        finals = [m for m in peer.sent if m["type"].endswith("body") and not m.get("more_body")]
        starts = [m for m in peer.sent if m["type"] == "http.response.start"]
        assert len(starts) <= 1
        assert len(finals) <= len(starts)
        assert peer.sent[:1] == starts
        assert finals in ([], peer.sent[-1:])
        nothing_left(fixtures)
        records = list(fixtures.server.journal)
        assert len(records) <= 1
        for record in records:
            if record.cause is not None and record.cause.source is CancelSource.DISCONNECT:
                assert finals == []

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


# Who asks -----------------------------------------------------------------------------------------


def whose(head: Any) -> Principal | None:
    token = head.get("authorization")
    return None if token is None else Principal(token.removeprefix("Bearer "))


@pytest.mark.parametrize("version", ["1.1", "2"])
async def test_who_asks_is_known_or_challenged(version: str) -> None:
    async with site(options={"authenticate": whose, "challenge": "Bearer realm=x"}) as service:
        async with service.connect() as one, service.connect_h2() as two:
            peer: Any = one if version == "1.1" else two
            assert (await peer.ask(call(1, "echo", text="x"), authorization="Bearer ann")).json
            refused = await peer.ask(call(2, "echo", text="x"))
            assert refused.status == 401
            assert refused.headers["www-authenticate"] == "Bearer realm=x"
            assert (await recorded(service, 1)).principal == "ann"
            assert len(service.fixtures.server.journal) == 1


class Asking:
    """A hook that takes its time, and notes how it ended."""

    def __init__(self) -> None:
        self.begun = trio.Event()
        self.go = trio.Event()
        self.cancelled = False

    async def __call__(self, head: Any) -> Principal:
        self.begun.set()
        try:
            await self.go.wait()
        except trio.Cancelled:
            self.cancelled = True
            raise
        return Principal("ann")


@pytest.mark.parametrize("how", ["disconnect", "cancel", "drain"])
async def test_a_pending_hook_is_cancelled(
    how: str, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures, hook = HttpFixtures(), Asking()
    app = fixtures.server.asgi(authenticate=hook)
    async with running(app, ByHand(call(1, "sleep", s=3600))) as peer:
        await hook.begun.wait()
        if how == "disconnect":
            peer.disconnect()
        elif how == "cancel":
            peer.scope_around.cancel()
        else:
            await app.drain()
    assert hook.cancelled
    assert [message["status"] for message in peer.sent[:1]] == (
        [] if how == "disconnect" else [503]
    )
    assert fixtures.begun == []
    nothing_left(fixtures)


@pytest.mark.parametrize("how", ["disconnect", "cancel"])
async def test_a_hook_that_returns_as_the_client_leaves_starts_nothing(
    how: str, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = HttpFixtures()
    for _ in range(30):  # Trio decides which task is first
        hook = Asking()
        app = fixtures.server.asgi(authenticate=hook)
        async with running(app, ByHand(call(1, "sleep", s=3600))) as peer:
            await hook.begun.wait()
            await trio.testing.wait_all_tasks_blocked()
            hook.go.set()
            if how == "disconnect":
                peer.disconnect()
            else:
                peer.scope_around.cancel()
            began = trio.current_time()
        assert trio.current_time() - began < 10
    nothing_left(fixtures)
