"""WebSocket: the faults from the field, on the level of frames, and calls through our own client.

Each test is a case: what a peer sends, and what has to come of it. Numbers of invariants are those
of the design.
"""

from __future__ import annotations

import gc
import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
import trustme
import wsproto
from tests.peers.checked import WireCheck
from tests.peers.fixture_server import Fixtures
from tests.peers.inspection import exchanges, record_of
from tests.peers.raw import call, cancel, same_id, text_of, until
from trio_websocket import ConnectionClosed, WebSocketRequest
from trio_websocket import serve_websocket as serve_by_the_library
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason

from trio_mcp import (
    CallTimeout,
    CancelSource,
    Client,
    ConnectionLost,
    ErrorCode,
    Limits,
    ScopeKind,
    Server,
    State,
    connect,
)
from trio_mcp.transports.websocket.parts import PART_BYTES, Parts

CLOSE_WAIT = 1.0
"""Seconds in which a well-behaved peer must have its pong, its close, its refusal."""


class RawSocket:
    """A client that speaks frames, and reads only when told to."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.seen: list[dict[str, Any]] = []
        self._ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._events: list[Event] = []
        self._check = WireCheck()

    @classmethod
    async def dial(cls, port: int, *, receive_buffer: int | None = None) -> RawSocket:
        sock = trio.socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await sock.connect(("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        return cls(trio.SocketStream(sock))

    async def upgrade(
        self,
        port: int,
        path: str = "/mcp",
        host: str | None = None,
        origin: str | None = None,
        offered: tuple[str, ...] = (),
    ) -> tuple[int, str | None, bytes]:
        """The status of the answer, the subprotocol, the body."""
        headers = [(b"Origin", origin.encode())] if origin is not None else []
        await self.send(
            Request(
                host=host or f"127.0.0.1:{port}",
                target=path,
                extra_headers=headers,
                subprotocols=list(offered),
            )
        )
        event = await self.event()
        if isinstance(event, AcceptConnection):
            return 101, event.subprotocol, b""
        assert isinstance(event, RejectConnection)
        body = bytearray()
        while event.has_body:
            data = await self.event()
            assert isinstance(data, RejectData)
            body += data.data
            if data.body_finished:
                break
        return event.status_code, None, bytes(body)

    async def send(self, *events: Event) -> None:
        """Events as one write."""
        await self.stream.send_all(b"".join(self._ws.send(event) for event in events))

    async def say(self, *messages: Any) -> None:
        await self.send(*(self.text(message) for message in messages))

    def text(self, message: Any) -> TextMessage:
        encoded = msgspec.json.encode(message)
        self._check.client_line(encoded)
        return TextMessage(encoded.decode())

    async def event(self, timeout: float = 5) -> Event:
        """The next event. Raises ``EOFError`` at the end."""
        with trio.fail_after(timeout):
            while not self._events:
                data = await self.stream.receive_some(65536)
                if not data:
                    raise EOFError
                self._ws.receive_data(data)
                self._events += self._ws.events()
        return self._events.pop(0)

    async def message(self, timeout: float = 5) -> dict[str, Any]:
        parts = ""
        while True:
            event = await self.event(timeout)
            assert isinstance(event, TextMessage), event
            parts += event.data
            if event.message_finished:
                self._check.server_line(parts.encode())
                message: dict[str, Any] = msgspec.json.decode(parts)
                self.seen.append(message)
                return message

    async def answer(self, request_id: Any, timeout: float = 5) -> dict[str, Any]:
        while True:
            message = await self.message(timeout)
            if "method" not in message and same_id(message.get("id"), request_id):
                return message

    async def probe(self) -> None:
        """It is alive, and answers."""
        await self.say(call("PROBE", "echo", text="probe"))
        assert text_of(await self.answer("PROBE", 1)) == "probe"

    async def closed(self, timeout: float = CLOSE_WAIT) -> CloseConnection:
        """The server's close frame, whatever comes before it; then the end of the stream."""
        with trio.fail_after(timeout):
            while True:
                event = await self.event(timeout)
                if isinstance(event, CloseConnection):
                    break
            if self._ws.state is wsproto.connection.ConnectionState.REMOTE_CLOSING:
                try:
                    await self.send(event.response())
                except trio.BrokenResourceError:
                    pass
            await self.gone(timeout)
        return event

    async def gone(self, timeout: float = CLOSE_WAIT) -> None:
        """Read to the end of the stream, however it ends; then close our side."""
        try:
            with trio.fail_after(timeout):
                while await self.stream.receive_some(65536):
                    pass
        except trio.BrokenResourceError:
            pass
        finally:
            await trio.aclose_forcefully(self.stream)

    async def flood(self, data: bytes) -> int:
        """Send the same again and again, and read nothing, until the connection is gone."""
        sent = 0
        try:
            while True:
                await self.stream.send_all(data)
                sent += len(data)
        except trio.BrokenResourceError:
            return sent

    async def reset(self) -> None:
        """An abrupt close: RST instead of FIN."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.stream.aclose()


def connections(server: Server) -> list[str]:
    return [scope.label for scope in server.scopes().walk() if scope.kind is ScopeKind.CONNECTION]


@asynccontextmanager
async def serving(
    server: Server, *, within: float = 10, **options: Any
) -> AsyncGenerator[int, None]:
    """The port of a served server; on leaving it drains, which takes ``within`` at most."""
    async with trio.open_nursery() as nursery:

        async def serve(*, task_status: trio.TaskStatus[int]) -> None:
            await server.serve_websocket("127.0.0.1", 0, task_status=task_status, **options)

        yield await nursery.start(serve)
        nursery.cancel_scope.cancel("that was all")
        nursery.cancel_scope.shield = True  # a hanging drain is seen below, not cancelled from out
        began = trio.current_time()
    assert trio.current_time() - began < within
    assert not connections(server)
    assert not exchanges(server)


@asynccontextmanager
async def raw(port: int, **options: Any) -> AsyncGenerator[RawSocket, None]:
    peer = await RawSocket.dial(port, **options)
    try:
        assert (await peer.upgrade(port))[0] == 101
        yield peer
    finally:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(peer.stream)


async def sleeping(fixtures: Fixtures, count: int = 1) -> None:
    await until(lambda: len(fixtures.begun) == count)


# Nothing keeps a ping or a close from being seen --------------------------------------------------


async def test_invariant_8_messages_ping_and_close_in_one_write() -> None:
    """Three messages that nobody waits for, a ping, a close [trio-websocket#82]."""
    fixtures = Fixtures()
    async with serving(fixtures.server) as port, raw(port) as peer:
        calls = [peer.text(call(i, "sleep", s=60)) for i in range(3)]
        began = trio.current_time()
        await peer.send(*calls, Ping(b"are you there"), CloseConnection(1000))
        pong = await peer.event(CLOSE_WAIT)
        assert isinstance(pong, Pong)
        assert pong.payload == b"are you there"
        assert (await peer.closed()).code == 1000
        assert trio.current_time() - began < 1
        await until(lambda: not connections(fixtures.server), 1)
        for i in range(3):
            record = record_of(fixtures.server, i)
            assert record.state is State.CANCELLED
            assert record.cause is not None
            assert record.cause.source is CancelSource.DISCONNECT
    assert fixtures.live == 0


async def test_invariant_8_while_handlers_are_slow_pings_are_answered() -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port, raw(port) as peer:
        await peer.say(*(call(i, "sleep", s=60) for i in range(100)))
        await sleeping(fixtures, 100)
        await peer.send(Ping(b"1"))
        assert isinstance(await peer.event(1), Pong)
        await peer.probe()


async def test_invariant_8_a_stalled_writer_hides_neither_cancel_nor_close() -> None:
    """The peer reads nothing; its ping cannot be answered, but what comes after it is seen."""
    fixtures = Fixtures()
    async with serving(fixtures.server) as port, raw(port, receive_buffer=4096) as peer:
        await peer.say(call("big", "big", bytes=12_000_000), call(1, "sleep", s=60))
        await peer.say(call(2, "sleep", s=60))
        await sleeping(fixtures, 2)
        await until(lambda: len(exchanges(fixtures.server)) == 2)  # the big one is being written
        await peer.send(Ping(b"blocked"))
        await peer.say(cancel(1, "enough"))
        await until(lambda: fixtures.live == 1, 1)
        await peer.send(CloseConnection(1000))
        await until(lambda: fixtures.live == 0, 1)
        await until(lambda: not connections(fixtures.server), 3)
        causes = [record_of(fixtures.server, i).cause for i in (1, 2)]
        sources = [cause.source for cause in causes if cause is not None]
        assert sources == [CancelSource.NOTIFICATION, CancelSource.DISCONNECT]


async def test_invariant_9_a_peer_that_pings_and_never_reads_is_cut_off() -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port, raw(port, receive_buffer=4096) as peer:
        await peer.say(call("big", "big", bytes=12_000_000), call(1, "sleep", s=60))
        await sleeping(fixtures)
        with trio.fail_after(10):
            sent = await peer.flood(peer._ws.send(Ping(b"x" * 125)) * 100)
        assert sent < 20_000_000  # what the kernel holds, and 64 KiB
        await until(lambda: not connections(fixtures.server))
        cause = record_of(fixtures.server, 1).cause
        assert cause is not None
        assert cause.source is CancelSource.DISCONNECT


async def test_invariant_9_endless_parts_of_a_message_end_the_connection() -> None:
    """Parts may be empty: bytes that count for no size."""
    fixtures = Fixtures(Limits(message_bytes=10_000))
    async with serving(fixtures.server) as port, raw(port) as peer, raw(port) as other:
        await peer.send(TextMessage("{", message_finished=False))
        with trio.fail_after(10):
            await peer.flood(peer._ws.send(TextMessage("", message_finished=False)) * 1000)
        await until(lambda: len(connections(fixtures.server)) == 1)
        await other.probe()


async def test_invariant_9_pings_between_endless_parts_change_nothing() -> None:
    fixtures = Fixtures(Limits(message_bytes=10_000))
    async with serving(fixtures.server) as port, raw(port) as peer, raw(port) as other:
        await peer.send(TextMessage("{", message_finished=False))
        part = peer._ws.send(TextMessage("", message_finished=False))
        with trio.fail_after(10):
            await peer.flood((part + peer._ws.send(Pong(b""))) * 1000)
        await until(lambda: len(connections(fixtures.server)) == 1)
        await other.probe()


LIVELY = Limits(message_bytes=1000)
"""A connection with these may keep 1 MiB and 2000 bytes of a message that is not complete."""

PINGS = 18_000
"""So many that with 125 bytes in each they have twice as many bytes as that."""


async def ping_on(peer: RawSocket, count: int = PINGS) -> None:
    """Send pings, and read the pongs."""
    for _ in range(count // 100):
        await peer.send(*(Ping(b"x" * 125) for _ in range(100)))
        for _ in range(100):
            assert isinstance(await peer.event(), Pong)


async def test_a_connection_that_is_kept_alive_with_pings_lives_for_ever() -> None:
    fixtures = Fixtures(LIVELY)
    async with serving(fixtures.server) as port, raw(port) as peer:
        await ping_on(peer)
        await peer.probe()


async def test_a_connection_that_is_kept_alive_with_pongs_lives_for_ever() -> None:
    """Unasked for: the heartbeat of a peer that wants no answer (RFC 6455, section 5.5.3)."""
    fixtures = Fixtures(LIVELY)
    async with serving(fixtures.server) as port, raw(port) as peer:
        for _ in range(PINGS // 100):
            await peer.send(*(Pong(b"x" * 125) for _ in range(100)))
        await peer.probe()


async def test_pings_in_the_middle_of_a_message_do_not_count_for_it() -> None:
    fixtures = Fixtures(LIVELY)
    async with serving(fixtures.server) as port, raw(port) as peer:
        text = peer.text(call(1, "echo", text="é in parts")).data
        await peer.send(TextMessage(text[:20], message_finished=False))
        await ping_on(peer)
        await peer.send(TextMessage(text[20:]))
        assert text_of(await peer.answer(1)) == "é in parts"


async def test_pings_of_a_server_keep_the_connection_too() -> None:
    """They begin in the same write as the end of the handshake."""
    fixtures = Fixtures()
    ponged = 0

    async def ping_first(stream: trio.SocketStream) -> None:
        nonlocal ponged
        ws = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        batch = 0
        while data := await stream.receive_some(65536):
            ws.receive_data(data)
            for event in ws.events():
                if isinstance(event, Request):
                    accept = ws.send(AcceptConnection())
                    await stream.send_all(accept + ws.send(Ping(b"x" * 125)) * 100)
                elif isinstance(event, Pong):
                    ponged += 1
                    batch += 1
                    if batch == 100 and ponged < PINGS:
                        await stream.send_all(ws.send(Ping(b"x" * 125)) * 100)
                        batch = 0
                elif isinstance(event, TextMessage) and event.message_finished:
                    request = msgspec.json.decode(event.data)
                    answer = {"jsonrpc": "2.0", "id": request["id"], "result": DISCOVERED}
                    await stream.send_all(
                        ws.send(TextMessage(msgspec.json.encode(answer).decode()))
                    )

    async with plain_server(ping_first) as port:
        async with connect(f"ws://127.0.0.1:{port}/mcp", limits=LIVELY) as client:
            await until(lambda: ponged >= PINGS, 10)
            await client.discover()
    assert not fixtures.begun


async def test_what_is_said_together_with_the_request_for_a_websocket_is_heard() -> None:
    """Bold, but no reason to lose it."""
    fixtures = Fixtures()
    async with serving(fixtures.server) as port:
        peer = await RawSocket.dial(port)
        text = peer.text(call(1, "echo", text="early")).data.encode()
        frame = b"\x81\xfe" + struct.pack("!H", len(text)) + bytes(4) + text
        head = peer._ws.send(Request(host=f"127.0.0.1:{port}", target="/mcp"))
        await peer.stream.send_all(head + frame)
        assert isinstance(await peer.event(), AcceptConnection)
        assert text_of(await peer.answer(1)) == "early"
        await peer.probe()
        await trio.aclose_forcefully(peer.stream)


async def test_a_body_of_the_request_is_no_place_to_hide_parts_in() -> None:
    """What follows the head are frames, whatever a Content-Length says."""
    fixtures = Fixtures(Limits(message_bytes=10_000))
    async with serving(fixtures.server) as port:
        peer = await RawSocket.dial(port)
        head = peer._ws.send(Request(host=f"127.0.0.1:{port}", target="/mcp"))
        await peer.stream.send_all(head.replace(b"\r\n", b"\r\nContent-Length: 5\r\n", 1))
        assert isinstance(await peer.event(), AcceptConnection)
        await peer.probe()
        await trio.aclose_forcefully(peer.stream)


def kept(frames: bytes, size: int) -> int:
    """The most that is kept at a time, if the frames come in pieces of this size."""
    parts, most = Parts(), 0
    for start in range(0, len(frames), size):
        parts.feed(frames[start : start + size])
        most = max(most, parts.kept)
    return most


@pytest.mark.parametrize("client", [False, True])
@pytest.mark.parametrize("payload", [0, 1, 125, 126, 65_535, 65_536])
def test_parts_are_counted_with_what_they_take_up(client: bool, payload: int) -> None:
    kind = wsproto.ConnectionType.CLIENT if client else wsproto.ConnectionType.SERVER
    ws = wsproto.connection.Connection(kind)
    part = ws.send(BytesMessage(b"\x88" * payload, message_finished=False))
    part += ws.send(Ping(b"p" * 125)) + ws.send(Pong(b""))
    last = ws.send(BytesMessage(b"\x88" * payload))
    parts = Parts()
    for byte in part:
        parts.feed(bytes([byte]))  # the library makes a part of each byte
    assert parts.kept == payload * (PART_BYTES + 1) if payload else PART_BYTES
    parts.feed(last)
    assert parts.kept == 0
    assert kept(part * 3, 10_000_000) == 3 * (PART_BYTES + payload)
    assert not parts.closed
    parts.feed(ws.send(CloseConnection(1000)))
    assert parts.closed


async def test_a_peer_that_never_reads_is_cut_off_as_stalled() -> None:
    """And at once: no closing handshake is tried with it."""
    fixtures = Fixtures(Limits(stall=0.2, drain=5))
    async with serving(fixtures.server) as port, raw(port, receive_buffer=4096) as peer:
        await peer.say(call("big", "big", bytes=12_000_000), call(1, "sleep", s=60))
        await until(lambda: fixtures.begun and not connections(fixtures.server), 3)
        cause = record_of(fixtures.server, 1).cause
        assert cause is not None
        assert cause.source is CancelSource.STALLED
        with trio.fail_after(2):
            await peer.flood(peer._ws.send(peer.text(cancel("unknown"))) * 100)


async def test_a_peer_that_reads_slowly_is_not_taken_for_one_that_has_stalled() -> None:
    fixtures = Fixtures(Limits(stall=0.4))
    async with serving(fixtures.server) as port, raw(port) as peer:
        await peer.say(call(1, "big", bytes=15_000_000))
        began = trio.current_time()
        received = 0
        while received < 15_000_000:
            data = await peer.stream.receive_some(256 * 1024)
            assert data, "taken for one that has stalled"
            received += len(data)
            await trio.sleep(0.02)
        assert trio.current_time() - began > 2 * 0.4
        assert record_of(fixtures.server, 1).state is State.COMPLETED


# Ends ---------------------------------------------------------------------------------------------


async def test_invariant_6_an_abrupt_close_leaves_the_others_alone() -> None:
    """RST before, in and after the handshake, and in a request [trio-websocket#134]."""
    fixtures = Fixtures()
    async with serving(fixtures.server) as port, raw(port) as other:
        await other.say(call("kept", "sleep", s=0.5))
        for started in ("", "GET /mcp HTTP/1.1\r\nHost: x", "upgraded", "called"):
            peer = await RawSocket.dial(port)
            if started in ("upgraded", "called"):
                assert (await peer.upgrade(port))[0] == 101
            else:
                await peer.stream.send_all(started.encode())
            if started == "called":
                await peer.say(call(1, "sleep", s=60))
                await sleeping(fixtures, 2)
            await peer.reset()
        await until(lambda: len(connections(fixtures.server)) == 1)
        cause = record_of(fixtures.server, 1).cause
        assert cause is not None
        assert cause.source is CancelSource.DISCONNECT
        assert text_of(await other.answer("kept")) == "slept"
        await other.probe()


async def test_invariant_11_unread_messages_do_not_hold_the_end() -> None:
    """The peer goes on sending and never answers our close frame [trio-websocket#74]."""
    fixtures = Fixtures(Limits(drain=0.3))
    hung_up = trio.Event()

    async def talk_on(peer: RawSocket) -> None:
        await peer.flood(peer._ws.send(peer.text(cancel("unknown"))) * 100)
        hung_up.set()

    async with trio.open_nursery() as nursery, raw_outside() as (peer, port_is):
        async with serving(fixtures.server, within=2) as port:
            await port_is(port)
            await peer().say(*(call(i, "sleep", s=60) for i in range(50)))
            await sleeping(fixtures, 50)
            nursery.start_soon(talk_on, peer())
        with trio.fail_after(2):
            await hung_up.wait()
    assert fixtures.live == 0


@asynccontextmanager
async def raw_outside() -> AsyncGenerator[
    tuple[Callable[[], RawSocket], Callable[[int], Awaitable[None]]], None
]:
    """A peer that outlives the server."""
    peers: list[RawSocket] = []

    async def dial(port: int) -> None:
        peer = await RawSocket.dial(port)
        peers.append(peer)
        assert (await peer.upgrade(port))[0] == 101

    try:
        yield lambda: peers[0], dial
    finally:
        with trio.CancelScope(shield=True):
            for peer in peers:
                await trio.aclose_forcefully(peer.stream)


async def test_invariant_11_a_drain_is_bounded_for_a_peer_that_never_reads() -> None:
    fixtures = Fixtures(Limits(drain=0.3))
    async with raw_outside() as (peer, port_is), serving(fixtures.server, within=2) as port:
        await port_is(port)
        for i in range(3):
            await peer().say(call(i, "big", bytes=12_000_000))
        await peer().say(call("last", "sleep", s=60))
        await sleeping(fixtures)
    cause = record_of(fixtures.server, "last").cause
    assert cause is not None
    assert cause.source in (CancelSource.SHUTDOWN, CancelSource.STALLED)


async def test_invariant_11_a_drain_answers_and_says_that_it_goes() -> None:
    fixtures = Fixtures(Limits(drain=0.5))
    closes: list[CloseConnection] = []
    answers: dict[Any, dict[str, Any]] = {}

    async def listen(peer: RawSocket) -> None:
        while len(answers) < 2:
            message = await peer.message()
            answers[message["id"]] = message
        closes.append(await peer.closed())

    async with trio.open_nursery() as nursery, raw_outside() as (peer, port_is):
        async with serving(fixtures.server, within=2) as port:
            await port_is(port)
            await peer().say(call("short", "sleep", s=0.2), call("long", "sleep", s=60))
            await sleeping(fixtures, 2)
            nursery.start_soon(listen, peer())
        await until(lambda: closes)
    assert text_of(answers["short"]) == "slept"
    assert answers["long"]["error"]["code"] == ErrorCode.SHUTTING_DOWN
    assert closes[0].code == 1001


async def test_a_ping_after_our_close_frame_harms_nobody() -> None:
    """The library's reader stumbles over it."""
    fixtures = Fixtures(Limits(drain=0.3))
    async with raw_outside() as (peer, port_is):
        async with serving(fixtures.server, within=2) as port:
            await port_is(port)
            await peer().send(BytesMessage(b"{}"))
            event = await peer().event()
            assert isinstance(event, CloseConnection)
            await peer().stream.send_all(b"\x89\x80\x00\x00\x00\x00")  # a ping, not a close
            await peer().gone()
            await until(lambda: not connections(fixtures.server))
            async with raw(port) as other:
                await other.probe()


async def test_during_a_drain_nobody_new_comes_in() -> None:
    fixtures = Fixtures(Limits(drain=0.5))
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def serve(*, task_status: trio.TaskStatus[int]) -> None:
            with scope:
                await fixtures.server.serve_websocket(port=0, task_status=task_status)

        port = await nursery.start(serve)
        async with raw(port) as peer:
            await peer.say(call(1, "sleep", s=0.3))
            await sleeping(fixtures)
            scope.cancel()
            with trio.fail_after(1):
                while True:
                    try:
                        await (await RawSocket.dial(port)).gone(0.2)
                    except OSError:
                        break
            assert text_of(await peer.answer(1)) == "slept"


async def test_invariant_4_connections_that_come_and_go_leave_nothing() -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port:
        async with raw(port) as peer:
            await peer.probe()
        await until(lambda: not connections(fixtures.server))
        gc.collect()
        tasks, descriptors = trio.lowlevel.current_statistics().tasks_living, open_descriptors()

        async def come_and_go(number: int) -> None:
            async with raw(port) as peer:
                await peer.say(call(number, "sleep", s=60))
                if number % 3 == 0:
                    await peer.probe()
                    await peer.send(CloseConnection(1000))
                    await peer.closed(5)
                elif number % 3 == 1:
                    await peer.reset()

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(come_and_go, number)
        await until(lambda: trio.lowlevel.current_statistics().tasks_living == tasks)
        assert not connections(fixtures.server)
        assert open_descriptors() == descriptors
        assert fixtures.live == 0


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# Frames -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x" * 3000, "é" * 900])
async def test_an_over_size_message_closes_with_1009_and_names_the_limit(text: str) -> None:
    """The limit counts bytes; the other connections live."""
    fixtures = Fixtures(Limits(message_bytes=1500))
    async with serving(fixtures.server) as port, raw(port) as peer, raw(port) as other:
        await peer.say(call(1, "sleep", s=60))
        await sleeping(fixtures)
        await peer.say(call(2, "echo", text=text))
        close = await peer.closed()
        assert close.code == 1009
        assert close.reason is not None
        assert "1500" in close.reason
        await until(lambda: len(connections(fixtures.server)) == 1)
        cause = record_of(fixtures.server, 1).cause
        assert cause is not None
        assert cause.source is CancelSource.DISCONNECT
        assert [r.request_id for r in fixtures.server.journal] == [1]  # it did not run
        await other.probe()


async def test_an_endless_message_is_told_1009_while_it_is_being_sent() -> None:
    """What is still on its way does not reset the connection under the close frame."""
    fixtures = Fixtures(Limits(message_bytes=1000, drain=1))
    async with serving(fixtures.server) as port, raw(port) as peer:
        await peer.send(TextMessage("x" * 4_000_000))
        assert (await peer.closed(3)).code == 1009
        await until(lambda: not connections(fixtures.server))


async def test_a_message_of_the_limit_passes_and_one_byte_more_does_not() -> None:
    fixtures = Fixtures(Limits(message_bytes=1000))
    bare = len(msgspec.json.encode(call(1, "echo", text="")))
    async with serving(fixtures.server) as port, raw(port) as peer:
        await peer.say(call(1, "echo", text="x" * (1000 - bare)))
        assert text_of(await peer.answer(1))
        await peer.say(call(2, "echo", text="x" * (1001 - bare)))
        assert (await peer.closed()).code == 1009


async def test_a_binary_message_closes_with_1003() -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port, raw(port) as peer, raw(port) as other:
        await peer.say(call(1, "sleep", s=60))
        await sleeping(fixtures)
        await peer.send(BytesMessage(msgspec.json.encode(call(2, "echo", text="x"))))
        assert (await peer.closed()).code == 1003
        await until(lambda: len(connections(fixtures.server)) == 1)
        assert [r.request_id for r in fixtures.server.journal] == [1]
        await other.probe()


async def test_text_that_is_no_message_is_answered_and_the_connection_goes_on() -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port, raw(port) as peer:
        await peer.send(TextMessage("{no json"), TextMessage("[]"), TextMessage(""))
        codes = [(await peer.message())["error"]["code"] for _ in range(3)]
        assert codes == [ErrorCode.PARSE_ERROR, ErrorCode.INVALID_REQUEST, ErrorCode.PARSE_ERROR]
        await peer.probe()


async def test_a_message_in_parts_with_a_ping_between_them_is_one_message() -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port, raw(port) as peer:
        text = peer.text(call(1, "echo", text="é in parts")).data
        await peer.send(
            TextMessage(text[:20], message_finished=False),
            Ping(b"between"),
            TextMessage(text[20:]),
        )
        assert isinstance(await peer.event(), Pong)
        assert text_of(await peer.answer(1)) == "é in parts"


@pytest.mark.parametrize(
    "frame",
    [
        b"\x81\x82\x00\x00\x00\x00\xff\xff",  # no UTF-8
        b"\x81\x02hi",  # not masked
        b"\x83\x80\x00\x00\x00\x00",  # no opcode
        b"\xc1\x80\x00\x00\x00\x00",  # an extension that was not agreed on
        b"\x88\x81\x00\x00\x00\x00x",  # half a close code
    ],
)
async def test_what_is_no_websocket_ends_the_connection_and_no_other(frame: bytes) -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port, raw(port) as peer, raw(port) as other:
        await peer.say(call(1, "sleep", s=60))
        await sleeping(fixtures)
        await peer.stream.send_all(frame)
        await peer.gone()
        await until(lambda: len(connections(fixtures.server)) == 1)
        cause = record_of(fixtures.server, 1).cause
        assert cause is not None
        assert cause.source is CancelSource.DISCONNECT
        await other.probe()


async def test_invariant_2_a_cancelled_request_is_silent_and_the_others_are_answered() -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port, raw(port) as peer:
        await peer.say(call(1, "sleep", token=1, s=60), call(2, "sleep", s=0.05))
        await sleeping(fixtures, 2)
        await peer.say(cancel(1, "enough"))
        assert text_of(await peer.answer(2)) == "slept"
        await peer.probe()
        assert [message["id"] for message in peer.seen] == [2, "PROBE"]
        cause = record_of(fixtures.server, 1).cause
        assert cause is not None
        assert (cause.source, cause.reason) == (CancelSource.NOTIFICATION, "enough")


# Who may come in ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "options"),
    [
        (101, {}),
        (101, {"origin": "http://localhost:3000"}),
        (101, {"origin": "https://shop.example"}),
        (101, {"host": "localhost:1"}),
        (101, {"host": "mcp.example"}),
        (403, {"origin": "http://evil.example"}),
        (403, {"origin": "null"}),
        (403, {"origin": "http://localhost.evil.example"}),
        (403, {"host": "evil.example"}),
        (403, {"host": "localhost.evil.example:80"}),
        (404, {"path": "/other"}),
        (404, {"path": "/"}),
    ],
)
async def test_who_may_come_in_is_decided_before_the_upgrade(
    status: int, options: dict[str, Any]
) -> None:
    fixtures = Fixtures()
    names: dict[str, Any] = {"hosts": ["mcp.example"], "origins": ["https://shop.example"]}
    async with serving(fixtures.server, **names) as port:
        peer = await RawSocket.dial(port)
        answer, _, body = await peer.upgrade(port, **options)
        assert answer == status
        if status == 101:
            await peer.probe()
        else:
            error = msgspec.json.decode(body)["error"]
            assert error["code"] == ErrorCode.INVALID_REQUEST
            await peer.gone()
            assert not connections(fixtures.server)
        await trio.aclose_forcefully(peer.stream)


@pytest.mark.parametrize(
    ("status", "head"),
    [
        (426, b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (426, b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
        (400, b"nonsense\r\n\r\n"),
        (400, b"GET /mcp HTTP/1.1\r\nBad Name: x\r\n\r\n"),
        (403, b"GET /mcp HTTP/1.1\r\n\r\n"),
        (403, b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"),
        (431, b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000 + b"\r\n\r\n"),
        (
            400,  # no key
            b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
        ),
        (
            426,  # no version of ours
            b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 8\r\n\r\n",
        ),
    ],
)
async def test_what_asks_for_no_websocket_is_refused(status: int, head: bytes) -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        answer = b""
        with trio.fail_after(3):
            await stream.send_all(head)
            while data := await stream.receive_some(65536):
                answer += data
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        await stream.aclose()
        async with raw(port) as other:
            await other.probe()


async def test_a_handshake_that_does_not_end_is_bounded() -> None:
    fixtures = Fixtures(Limits(http_head_time=0.2))
    async with serving(fixtures.server) as port:
        peer = await RawSocket.dial(port)
        await peer.stream.send_all(b"GET /mcp HTTP/1.1\r\n")
        await peer.gone(2)
        await trio.aclose_forcefully(peer.stream)


async def test_a_handshake_is_cut_off_by_a_drain() -> None:
    fixtures = Fixtures()
    async with raw_outside():
        async with serving(fixtures.server, within=1) as port:
            peer = await RawSocket.dial(port)
            await peer.stream.send_all(b"GET /mcp HTTP/1.1\r\n")
        await peer.gone()
        await trio.aclose_forcefully(peer.stream)


async def test_one_connection_more_than_http_connections_is_closed_at_once() -> None:
    fixtures = Fixtures(Limits(http_connections=1))
    async with serving(fixtures.server) as port:
        async with raw(port) as peer:
            await (await RawSocket.dial(port)).gone()
            await peer.probe()
        await until(lambda: not connections(fixtures.server))
        served = False
        with trio.fail_after(5):
            while not served:
                try:
                    async with raw(port) as next_one:
                        await next_one.probe()
                        served = True
                except* (trio.BrokenResourceError, EOFError, AssertionError):
                    await trio.sleep(0.01)  # the place is free a moment after the connection


@pytest.mark.parametrize(
    ("offered", "chosen"), [((), None), (("mcp",), "mcp"), (("a", "mcp"), "mcp"), (("a",), None)]
)
async def test_the_subprotocol_mcp_is_accepted_if_offered(
    offered: tuple[str, ...], chosen: str | None
) -> None:
    async with serving(Fixtures().server) as port:
        peer = await RawSocket.dial(port)
        assert (await peer.upgrade(port, offered=offered))[:2] == (101, chosen)
        await trio.aclose_forcefully(peer.stream)


# Our client ---------------------------------------------------------------------------------------


@asynccontextmanager
async def client_of(fixtures: Fixtures, **options: Any) -> AsyncGenerator[tuple[Client, int], None]:
    async with (
        serving(fixtures.server) as port,
        connect(f"ws://127.0.0.1:{port}/mcp", **options) as client,
    ):
        yield client, port


async def test_calls_progress_and_pages() -> None:
    fixtures = Fixtures()
    async with client_of(fixtures) as (client, _):
        assert client.server_info is not None
        assert client.server_info.name == "fixtures"
        heard: list[float] = []
        result = await client.call_tool(
            "tick",
            {"n": 3, "dt": 0.05},
            on_progress=lambda update: heard.append(update.progress),
        )
        assert text_of_result(result) == "ticked"
        assert heard
        assert heard[-1] == 3
        assert "echo" in [tool.name async for tool in client.tools()]
        big = await client.call_tool("big", {"bytes": 3_000_000})
        assert len(text_of_result(big)) == 3_000_000
        (label,) = connections(fixtures.server)
        assert label.startswith("websocket 127.0.0.1:")


def text_of_result(result: Any) -> str:
    (block,) = result.content
    text: str = block.text
    return text


async def test_many_calls_at_once_get_their_own_answers() -> None:
    fixtures = Fixtures()
    answers: dict[int, str] = {}
    async with client_of(fixtures) as (client, _):

        async def ask(number: int) -> None:
            result = await client.call_tool("echo", {"text": f"n° {number}"})
            answers[number] = text_of_result(result)

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(ask, number)
    assert answers == {number: f"n° {number}" for number in range(200)}


async def test_invariant_10_cancelling_a_call_tells_the_server() -> None:
    fixtures = Fixtures()
    async with client_of(fixtures) as (client, _):
        with trio.move_on_after(5) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "sleep", {"s": 60})
                await sleeping(fixtures)
                nursery.cancel_scope.cancel()
        assert not scope.cancelled_caught
        await until(lambda: fixtures.live == 0)
        causes = [record.cause for record in fixtures.server.journal if record.cause is not None]
        assert [cause.source for cause in causes] == [CancelSource.NOTIFICATION]
        assert text_of_result(await client.call_tool("echo", {"text": "x"})) == "x"


async def test_a_timeout_tells_the_server() -> None:
    fixtures = Fixtures()
    async with client_of(fixtures) as (client, _):
        with pytest.raises(CallTimeout):
            await client.call_tool("sleep", {"s": 60}, timeout=0.1)
        await until(lambda: fixtures.live == 0)
        causes = [record.cause for record in fixtures.server.journal if record.cause is not None]
        assert [cause.source for cause in causes] == [CancelSource.NOTIFICATION]


async def test_a_cancelled_client_still_says_what_it_has_to_say() -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port:
        with trio.CancelScope() as scope:
            async with connect(f"ws://127.0.0.1:{port}/mcp") as client:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.call_tool, "sleep", {"s": 60})
                    await sleeping(fixtures)
                    scope.cancel()
        assert scope.cancelled_caught
        await until(lambda: fixtures.live == 0 and not connections(fixtures.server))
        causes = [record.cause for record in fixtures.server.journal if record.cause is not None]
        assert [cause.source for cause in causes] == [CancelSource.NOTIFICATION]


async def test_leaving_the_client_is_a_close_that_cancels_at_the_server() -> None:
    fixtures = Fixtures()
    async with serving(fixtures.server) as port:
        async with connect(f"ws://127.0.0.1:{port}/mcp") as client:
            pending = client._open_tool("sleep", {"s": 60}, client._timeouts)
            await sleeping(fixtures)
        with pytest.raises(ConnectionLost):
            await pending.finish()
        await until(lambda: not connections(fixtures.server))
        causes = [record.cause for record in fixtures.server.journal if record.cause is not None]
        assert [cause.source for cause in causes] == [CancelSource.DISCONNECT]


async def test_when_the_server_drains_calls_end_with_its_error_or_the_connection() -> None:
    fixtures = Fixtures(Limits(drain=0.2))
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def serve(*, task_status: trio.TaskStatus[int]) -> None:
            with scope:
                await fixtures.server.serve_websocket(port=0, task_status=task_status)

        port = await nursery.start(serve)
        async with connect(f"ws://127.0.0.1:{port}/mcp") as client:
            errors: list[int] = []

            async def ask() -> None:
                try:
                    await client.call_tool("sleep", {"s": 60})
                except Exception as error:
                    errors.append(getattr(error, "code", 0))

            async with trio.open_nursery() as asking:
                asking.start_soon(ask)
                await sleeping(fixtures)
                scope.cancel()
            assert errors == [ErrorCode.SHUTTING_DOWN]
            await until(lambda: client._connection._lost is not None)  # type: ignore[attr-defined]
            with pytest.raises(ConnectionLost):
                await client.call_tool("echo", {"text": "x"})


async def test_an_over_size_request_fails_once_and_is_not_sent_again() -> None:
    """The server closes with 1009; nobody connects or asks again [cube#10246]."""
    fixtures = Fixtures(Limits(message_bytes=5000))
    served: list[str] = []
    async with client_of(fixtures) as (client, _):
        said = r"the peer closed the WebSocket with code 1009: Exceeded .* 5000 bytes"
        with pytest.raises(ConnectionLost, match=said), trio.fail_after(3):
            await client.call_tool("echo", {"text": "x" * 10_000})
        with pytest.raises(ConnectionLost, match=said):
            await client.call_tool("echo", {"text": "x"})
        await until(lambda: not connections(fixtures.server))
        served = [record.method for record in fixtures.server.journal]
    assert served == ["server/discover"]


async def test_an_over_size_answer_ends_the_connection_with_1009(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixtures = Fixtures()
    async with client_of(fixtures, limits=Limits(message_bytes=5000)) as (client, _):
        said = r"we closed the WebSocket with code 1009: Exceeded .* 5000 bytes"
        with pytest.raises(ConnectionLost, match=said), trio.fail_after(3):
            await client.call_tool("big", {"bytes": 100_000})
        await until(lambda: not connections(fixtures.server))
    assert "1009" in caplog.text
    assert "5000" in caplog.text


# Our client and strange servers -------------------------------------------------------------------


@asynccontextmanager
async def strange_server(
    handler: Callable[[WebSocketRequest], Awaitable[None]],
) -> AsyncGenerator[str, None]:
    async with trio.open_nursery() as nursery:

        async def serve(*, task_status: trio.TaskStatus[Any]) -> None:
            await serve_by_the_library(
                handler, "127.0.0.1", 0, None, disconnect_timeout=0.1, task_status=task_status
            )

        server = await nursery.start(serve)
        yield f"ws://127.0.0.1:{server.port}/mcp"
        nursery.cancel_scope.cancel()


DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {},
    "ttlMs": 0,
    "cacheScope": "private",
}


async def answer_discovery(ws: Any) -> None:
    request = msgspec.json.decode(await ws.get_message())
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": DISCOVERED}
    await ws.send_message(msgspec.json.encode(answer).decode())


async def test_invariant_11_leaving_is_bounded_if_the_server_talks_and_never_closes() -> None:
    async def talk(request: WebSocketRequest) -> None:
        ws = await request.accept()
        await answer_discovery(ws)
        try:
            while True:
                await ws.send_message('{"jsonrpc":"2.0","method":"notifications/whatever"}')
        except ConnectionClosed:
            pass

    async with strange_server(talk) as url:
        async with connect(url, limits=Limits(exit_wait=0.2)):
            began = trio.current_time()
        assert trio.current_time() - began < 1.5


async def test_invariant_11_leaving_is_bounded_if_the_server_does_not_read() -> None:
    """Its answer to our close frame never comes."""
    stop = trio.Event()

    async def deaf(stream: trio.SocketStream) -> None:
        ws = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        request = None
        while True:
            ws.receive_data(await stream.receive_some(65536))
            for event in ws.events():
                if isinstance(event, Request):
                    await stream.send_all(ws.send(AcceptConnection()))
                elif isinstance(event, TextMessage):
                    request = msgspec.json.decode(event.data)
            if request is not None:
                break
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": DISCOVERED}
        await stream.send_all(ws.send(TextMessage(msgspec.json.encode(answer).decode())))
        await stop.wait()
        await stream.aclose()

    async with plain_server(deaf) as port:
        async with connect(f"ws://127.0.0.1:{port}/mcp", limits=Limits(exit_wait=0.2)) as client:
            call = client._open_tool("x", {"data": "x" * 12_000_000}, client._timeouts)
            began = trio.current_time()
        assert trio.current_time() - began < 1.5
        with pytest.raises(ConnectionLost):
            await call.finish()
        stop.set()


async def say_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


@asynccontextmanager
async def plain_server(
    handler: Callable[[trio.SocketStream], Awaitable[None]],
) -> AsyncGenerator[int, None]:
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(serve_plain, handler)
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def serve_plain(
    handler: Callable[[trio.SocketStream], Awaitable[None]], *, task_status: Any
) -> None:
    await trio.serve_tcp(handler, 0, host="127.0.0.1", task_status=task_status)


async def test_a_server_that_dies_fails_the_calls() -> None:
    async def die(request: WebSocketRequest) -> None:
        ws = await request.accept()
        await answer_discovery(ws)
        await ws.get_message()
        stream = ws._stream
        assert isinstance(stream, trio.SocketStream)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(stream)

    async with strange_server(die) as url, connect(url) as client:
        said = "the WebSocket ended without a close frame"
        with trio.fail_after(3), pytest.raises(ConnectionLost, match=said):
            await client.call_tool("echo", {"text": "x"})


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        (1011, "out of memory", "the peer closed the WebSocket with code 1011: out of memory"),
        (1001, None, "the peer closed the WebSocket with code 1001"),
        (1000, "enough", "the peer closed the WebSocket with code 1000: enough"),
        (CloseReason.NO_STATUS_RCVD, None, "the peer closed the WebSocket without a code"),
        (1002, "not you", "the peer closed the WebSocket with code 1002: not you"),
        (4321, "\x1b[2J\nlog", r"the peer closed the WebSocket with code 4321: '\x1b[2J\nlog'"),
    ],
)
async def test_a_caller_is_told_how_the_server_closed(
    code: int, reason: str | None, said: str
) -> None:
    async def close(request: WebSocketRequest) -> None:
        ws = await request.accept()
        await answer_discovery(ws)
        await ws.get_message()
        await ws.aclose(
            wsproto.frame_protocol.CloseReason.NO_STATUS_RCVD if code == 1005 else code, reason
        )

    async with strange_server(close) as url, connect(url) as client:
        for sent in (True, False):
            with trio.fail_after(3), pytest.raises(ConnectionLost) as lost:
                await client.call_tool("echo", {"text": "x"})
            assert (str(lost.value), lost.value.sent) == (said, sent)


async def test_a_server_of_binary_frames_is_told_1003() -> None:
    codes: list[int] = []

    async def binary(request: WebSocketRequest) -> None:
        ws = await request.accept()
        await answer_discovery(ws)
        await ws.send_message(b"{}")
        with pytest.raises(ConnectionClosed) as closed:
            await ws.get_message()
        assert closed.value.reason is not None
        codes.append(closed.value.reason.code)

    async with strange_server(binary) as url, connect(url) as client:
        await until(lambda: codes)
        said = "we closed the WebSocket with code 1003: messages are text frames"
        with pytest.raises(ConnectionLost, match=said):
            await client.call_tool("echo", {"text": "x"})
    assert codes == [1003]


async def test_a_server_that_speaks_no_websocket_is_hung_up_on_at_once() -> None:
    """Not only when the caller leaves."""
    hung_up = trio.Event()

    async def babble(request: WebSocketRequest) -> None:
        ws = await request.accept()
        await answer_discovery(ws)
        await ws._stream.send_all(b"\x83\x00")  # no opcode
        with pytest.raises(ConnectionClosed):
            await ws.get_message()
        hung_up.set()

    async with strange_server(babble) as url, connect(url) as client:
        with trio.fail_after(2):
            await hung_up.wait()
        said = "what the peer sent is no WebSocket: Invalid opcode"
        with pytest.raises(ConnectionLost, match=said):
            await client.call_tool("echo", {"text": "x"})


async def test_connect_says_why_it_was_refused() -> None:
    async with serving(Fixtures().server) as port:
        with pytest.raises(ConnectionLost, match=r"404.*the MCP endpoint is /mcp") as lost:
            async with connect(f"ws://127.0.0.1:{port}/elsewhere"):
                pass
        assert isinstance(lost.value.__cause__, ConnectionRefusedError)
        with pytest.raises(ConnectionLost, match="403"):
            async with connect(
                f"ws://127.0.0.1:{port}/mcp", headers={"Origin": "http://evil.example"}
            ):
                pass


async def test_connect_fails_if_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        words = f"^cannot connect to 127.0.0.1:{port}: Connection refused$"
        for scheme in ("ws", "wss", "http", "https"):
            with pytest.raises(ConnectionLost, match=words) as lost:
                async with connect(f"{scheme}://127.0.0.1:{port}/mcp"):
                    pass
            assert lost.value.sent is False


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 101 Switch", b"SSH-2.0-OpenSSH\r\n\r\n"])
async def test_connect_fails_at_once_if_the_server_hangs_up_in_the_handshake(answer: bytes) -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.receive_some(65536)
        if answer:
            await stream.send_all(answer)
        await stream.aclose()

    async with plain_server(hang_up) as port:
        with trio.fail_after(2), pytest.raises(ConnectionLost, match="cannot open websocket"):
            async with connect(f"ws://127.0.0.1:{port}/mcp"):
                pass


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_connect_is_bounded_if_the_server_says_nothing(scheme: str) -> None:
    async with plain_server(say_nothing) as port:
        began = trio.current_time()
        with pytest.raises(ConnectionLost, match=r"connect=0\.2"):
            async with connect(f"{scheme}://127.0.0.1:{port}/mcp", limits=Limits(connect=0.2)):
                pass
        assert trio.current_time() - began < 1


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Time jumps when for a moment nothing happens, on the sockets either."""
    return trio.testing.MockClock(autojump_threshold=0.01)


async def test_connecting_tls_and_the_handshake_share_one_limit(
    authority: trustme.CA, clock: trio.testing.MockClock
) -> None:
    """A server that takes its time in each step is not given ``Limits.connect`` for each."""
    ours, theirs = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(ours)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    asked = trio.Event()

    async def dawdle(stream: trio.SocketStream) -> None:
        await trio.sleep(6)
        secured = trio.SSLStream(stream, theirs, server_side=True)
        await secured.do_handshake()
        await secured.receive_some(65536)
        asked.set()
        await trio.sleep_forever()

    async with plain_server(dawdle) as port:
        began = trio.current_time()
        with pytest.raises(ConnectionLost, match="opening handshake within connect=10 s"):
            async with connect(f"wss://127.0.0.1:{port}/mcp", ssl_context=ours):
                pass
        assert asked.is_set()
        assert 10 <= trio.current_time() - began < 11


async def test_the_answer_to_discovery_has_a_limit_of_its_own(
    clock: trio.testing.MockClock,
) -> None:
    async def answer_late(request: WebSocketRequest) -> None:
        await trio.sleep(6)
        ws = await request.accept()
        await trio.sleep(6)
        await answer_discovery(ws)
        assert '"initialize"' in await ws.get_message()  # which the silence has led to
        with pytest.raises(ConnectionClosed):
            await ws.get_message()

    async with strange_server(answer_late) as url:
        began = trio.current_time()
        async with connect(url):
            assert 12 <= trio.current_time() - began < 13


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_cancelling_connect_in_the_handshake_ends_everything(scheme: str) -> None:
    async with plain_server(say_nothing) as port:
        tasks, descriptors = trio.lowlevel.current_statistics().tasks_living, open_descriptors()
        with trio.move_on_after(0.1) as scope:
            async with connect(f"{scheme}://127.0.0.1:{port}/mcp"):
                pass
        assert scope.cancelled_caught
        assert trio.current_time() - scope.deadline < 0.5
        # The server's own end of it: a task and a socket.
        assert trio.lowlevel.current_statistics().tasks_living == tasks + 1
        assert open_descriptors() == descriptors + 1


@pytest.mark.parametrize(
    "url", ["ws://", "ws:///mcp", "ws://127.0.0.1:x/", "ws://u:p@127.0.0.1/", "ws://127.0.0.1/#x"]
)
async def test_what_is_no_websocket_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        async with connect(url):
            pass


# TLS, imports -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


async def test_over_tls(authority: trustme.CA) -> None:
    ours, theirs = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(ours)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    fixtures = Fixtures()
    async with serving(fixtures.server, ssl_context=theirs) as port:
        async with connect(f"wss://127.0.0.1:{port}/mcp", ssl_context=ours) as client:
            big = await client.call_tool("big", {"bytes": 1_000_000})
            assert len(text_of_result(big)) == 1_000_000
            began = trio.current_time()
        assert trio.current_time() - began < 1
        await until(lambda: not connections(fixtures.server))
        with pytest.raises(ConnectionLost, match="certificate verify failed"):
            async with connect(f"wss://127.0.0.1:{port}/mcp"):
                pass


def test_the_library_is_imported_when_it_is_used() -> None:
    code = "import sys, trio_mcp; print('trio_websocket' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
