"""Servers whose tools are named after faults, and have them: one for each wire.

    async with faulty("HTTP SSE") as peer, connect(peer.target) as client:
        await client.call_tool("answers twice")

All of them have two more tools. ``hold()`` is answered once ``release()`` is called, and so is what
is left to say of the faults that take their time. The text of ``release()`` is a JSON list of the
tools whose calls the server has been told to give up: by a notification, or, over HTTP, by the end
of the response's connection. The one for stdio is a process, ``stubs/misbehaving.py``.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio
import wsproto
from tests.peers.scripted import DISCOVERED
from wsproto.events import AcceptConnection, CloseConnection, Event, Ping, Request, TextMessage

from trio_mcp import Client

__all__ = ["FAULTS", "WIRES", "Peer", "faulty"]

WIRES = ["stdio", "WebSocket", "HTTP JSON", "HTTP SSE"]

FAULTS = [
    "silent",
    "slow",
    "killed",
    "half an answer",
    "closes",
    "floods",
    "answers twice",
    "answers late",
    "wrong id",
    "garbage",
]

STUB = Path(__file__).parent / "stubs" / "misbehaving.py"
GONE = (trio.BrokenResourceError, trio.ClosedResourceError)
DRIP = 0.02
"""Seconds between two bytes of a slow answer of more than a thousand."""

encode = msgspec.json.encode


@attrs.define(eq=False)
class Peer:
    """A server to connect to; ``done`` says whether its fault has been committed."""

    target: Any
    done: Callable[[Client, str], bool]


@asynccontextmanager
async def faulty(wire: str) -> AsyncGenerator[Peer, None]:
    """A server, for the time of the block; the one for stdio is launched by the client."""
    if wire == "stdio":
        command = [sys.executable, "-I", "-S", str(STUB), "faulty"]
        yield Peer(command, lambda client, fault: f"done: {fault}" in client.stderr_tail)
        return
    server: InProcess
    if wire == "WebSocket":
        server = WebSocketServer()
    else:
        server = JsonServer() if wire == "HTTP JSON" else EventServer()
    async with trio.open_nursery() as server.nursery:
        serve = partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1")
        (listener,) = await server.nursery.start(serve)
        host = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        target = f"{server.scheme}://{host}/mcp"
        yield Peer(target, lambda _, fault: fault in server.done)
        server.nursery.cancel_scope.cancel()


def result(request_id: Any, text: str) -> bytes:
    content = [{"type": "text", "text": text}]
    message = {"resultType": "complete", "content": content}
    return encode({"jsonrpc": "2.0", "id": request_id, "result": message})


NOISE = encode({"jsonrpc": "2.0", "method": "notifications/unheard", "params": {"x": "x" * 1000}})


class InProcess:
    """What the servers in this process have in common: they can be killed."""

    scheme: str
    nursery: trio.Nursery

    def __init__(self) -> None:
        self.done: list[str] = []
        self.told: list[str] = []
        self.released = trio.Event()
        self.streams: list[trio.SocketStream] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        self.streams.append(stream)
        with suppress(*GONE):
            await self.talk(stream)

    async def talk(self, stream: trio.SocketStream) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        """All connections are reset, and nobody listens any more."""
        for stream in self.streams:
            if stream.socket.fileno() != -1:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                stream.socket.close()
        self.nursery.cancel_scope.cancel("killed")


# WebSocket ----------------------------------------------------------------------------------------


class WebSocketServer(InProcess):
    """Of one connection."""

    scheme = "ws"

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[Any, str] = {}
        self.held: list[Any] = []
        self._ws = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        self._writing = trio.Lock()

    async def talk(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        async with trio.open_nursery() as self._tasks:
            with suppress(*GONE):
                await self._listen()
            self._tasks.cancel_scope.cancel("the client has hung up")

    async def _listen(self) -> None:
        while data := await self._stream.receive_some():
            self._ws.receive_data(data)
            for event in self._ws.events():
                await self._on_event(event)

    async def _send(self, *events: Event) -> None:
        async with self._writing:
            await self._stream.send_all(b"".join(self._ws.send(event) for event in events))

    async def _say(self, *messages: bytes) -> None:
        await self._send(*(TextMessage(message.decode()) for message in messages))

    async def _on_event(self, event: Event) -> None:
        if isinstance(event, Request):
            await self._send(AcceptConnection(subprotocol="mcp"))
        elif isinstance(event, Ping):
            await self._send(event.response())
        elif isinstance(event, CloseConnection):
            if self._ws.state is wsproto.connection.ConnectionState.REMOTE_CLOSING:
                await self._send(event.response())
            await self._stream.aclose()
        elif isinstance(event, TextMessage):
            assert event.message_finished
            await self._on_message(msgspec.json.decode(event.data))

    async def _on_message(self, message: dict[str, Any]) -> None:
        method, request_id = message["method"], message.get("id")
        if method == "server/discover":
            await self._say(encode({"jsonrpc": "2.0", "id": request_id, "result": DISCOVERED}))
        elif method == "notifications/cancelled":
            cancelled = message["params"]["requestId"]
            self.told.append(self.names[cancelled])
            if self.names[cancelled] == "answers late":
                await self._say(result(cancelled, "late"))
        elif message["params"]["name"] == "hold":
            self.held.append(request_id)
        elif message["params"]["name"] == "release":
            await self._release(request_id)
        else:
            name = self.names[request_id] = message["params"]["name"]
            await getattr(self, name.replace(" ", "_"))(request_id)
            self.done.append(name)

    async def _release(self, request_id: Any) -> None:
        self.released.set()
        if "half an answer" in self.done:
            await self._send(TextMessage("", message_finished=True))
        await self._say(*(result(held, "held") for held in self.held))
        await self._say(result(request_id, encode(self.told).decode()))

    async def silent(self, request_id: Any) -> None:
        pass

    answers_late = silent

    async def slow(self, request_id: Any) -> None:
        await self._tasks.start(self._trickle, result(request_id, "x" * 1000))

    async def _trickle(self, message: bytes, *, task_status: trio.TaskStatus[None]) -> None:
        async with self._writing:  # until the frame is whole
            task_status.started()
            rest = self._ws.send(TextMessage(message.decode()))
            while rest and not self.released.is_set():
                await self._stream.send_all(rest[:1])
                rest = rest[1:]
                with trio.move_on_after(DRIP):
                    await self.released.wait()
            await self._stream.send_all(rest)

    async def killed(self, request_id: Any) -> None:
        self.kill()

    async def half_an_answer(self, request_id: Any) -> None:
        half = result(request_id, "half")[:60].decode()
        await self._send(TextMessage(half, message_finished=False))

    async def closes(self, request_id: Any) -> None:
        await self._send(CloseConnection(1000))

    async def floods(self, request_id: Any) -> None:
        self._tasks.start_soon(self._flood)

    async def _flood(self) -> None:
        with suppress(*GONE, wsproto.utilities.LocalProtocolError):  # we are closing
            while True:
                await self._say(*[NOISE, b"no message"] * 20)

    async def answers_twice(self, request_id: Any) -> None:
        await self._say(result(request_id, "first"), result(request_id, "second"))

    async def wrong_id(self, request_id: Any) -> None:
        await self._say(result(request_id + 10**6, "whose?"))

    async def garbage(self, request_id: Any) -> None:
        await self._say(b"no message")


# HTTP ---------------------------------------------------------------------------------------------


@attrs.frozen
class Deed:
    """What is sent as a fault: at once; then byte by byte, or again and again, or nothing until
    the client hangs up, where it ``waits`` for that; then ``at_last``."""

    at_once: bytes = b""
    drops: tuple[bytes, ...] = ()
    again: bytes = b""
    at_last: bytes = b""
    waits: bool = True


class HttpServer(InProcess):
    """Each request of one connection is answered before the next one is read."""

    scheme = "http"

    async def talk(self, stream: trio.SocketStream) -> None:
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                if not (more := await stream.receive_some()):
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            (length,) = [
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ]
            while len(data) < length:
                if not (more := await stream.receive_some()):
                    return
                data += more
            message = msgspec.json.decode(data[:length])
            data = data[length:]
            await self._on_request(message, stream)

    async def _on_request(self, message: dict[str, Any], stream: trio.SocketStream) -> None:
        request_id = message["id"]
        if message["method"] == "server/discover":
            body = encode({"jsonrpc": "2.0", "id": request_id, "result": DISCOVERED})
            await stream.send_all(self.whole(body))
        elif message["params"]["name"] == "hold":
            await self.released.wait()
            await stream.send_all(self.whole(result(request_id, "held")))
        elif message["params"]["name"] == "release":
            self.released.set()
            told = encode(self.told).decode()
            await stream.send_all(self.whole(result(request_id, told)))
        else:
            await self._commit(message["params"]["name"], request_id, stream)

    async def _commit(self, fault: str, request_id: Any, stream: trio.SocketStream) -> None:
        deed: Deed = getattr(self, fault.replace(" ", "_"))(request_id)
        await stream.send_all(deed.at_once)
        self.done.append(fault)
        if fault == "killed":
            self.kill()
            await trio.lowlevel.checkpoint()
        if deed.waits:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._go_on, deed, stream)
                await self._hung_up(stream)
                nursery.cancel_scope.cancel("the client has hung up")
            self.told.append(fault)
            await stream.send_all(deed.at_last)
            await stream.aclose()
        elif fault == "closes" and not deed.at_once:
            await stream.aclose()

    async def _go_on(self, deed: Deed, stream: trio.SocketStream) -> None:
        with suppress(*GONE):
            for drop in deed.drops:
                await stream.send_all(drop)
                await trio.sleep(DRIP)
            while deed.again:
                await stream.send_all(deed.again)

    async def _hung_up(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            assert await stream.receive_some(1) == b""

    def whole(self, body: bytes) -> bytes:
        """A response that is right."""
        raise NotImplementedError


OK = b"HTTP/1.1 200 OK\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class JsonServer(HttpServer):
    HEAD = OK + b"Content-Type: application/json\r\n"

    def whole(self, body: bytes) -> bytes:
        return self.HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    def silent(self, request_id: Any) -> Deed:
        return Deed()

    killed = silent

    def slow(self, request_id: Any) -> Deed:
        whole = self.whole(result(request_id, "x" * 1000))
        return Deed(drops=tuple(b"%c" % byte for byte in whole))

    def half_an_answer(self, request_id: Any) -> Deed:
        return Deed(self.whole(result(request_id, "half"))[:-40])

    def closes(self, request_id: Any) -> Deed:
        return Deed(waits=False)

    def floods(self, request_id: Any) -> Deed:
        head = self.HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        return Deed(head, again=chunk(b" " * 10_000))

    def answers_twice(self, request_id: Any) -> Deed:
        first, second = result(request_id, "first"), result(request_id, "second")
        return Deed(self.whole(first) + self.whole(second), waits=False)

    def answers_late(self, request_id: Any) -> Deed:
        return Deed(at_last=self.whole(result(request_id, "late")))

    def wrong_id(self, request_id: Any) -> Deed:
        return Deed(self.whole(result(request_id + 10**6, "whose?")), waits=False)

    def garbage(self, request_id: Any) -> Deed:
        return Deed(self.whole(b"no message"), waits=False)


class EventServer(HttpServer):
    HEAD = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    def whole(self, *bodies: bytes) -> bytes:
        return b"".join([self.HEAD, *map(self.event, bodies), chunk(b"")])

    def event(self, message: bytes) -> bytes:
        return chunk(b"data: " + message + b"\n\n")

    def silent(self, request_id: Any) -> Deed:
        return Deed(self.HEAD)

    killed = silent

    def slow(self, request_id: Any) -> Deed:
        event = b"data: " + result(request_id, "x" * 1000) + b"\n\n"
        return Deed(self.HEAD, drops=tuple(chunk(b"%c" % byte) for byte in event))

    def half_an_answer(self, request_id: Any) -> Deed:
        return Deed(self.HEAD + chunk(b"data: " + result(request_id, "half")[:60]))

    def closes(self, request_id: Any) -> Deed:
        return Deed(self.whole(), waits=False)

    def floods(self, request_id: Any) -> Deed:
        return Deed(self.HEAD, again=(self.event(NOISE) + self.event(b"no message")) * 20)

    def answers_twice(self, request_id: Any) -> Deed:
        first, second = result(request_id, "first"), result(request_id, "second")
        return Deed(self.whole(first, second), waits=False)

    def answers_late(self, request_id: Any) -> Deed:
        return Deed(self.HEAD, at_last=self.event(result(request_id, "late")))

    def wrong_id(self, request_id: Any) -> Deed:
        return Deed(self.HEAD + self.event(result(request_id + 10**6, "whose?")))

    def garbage(self, request_id: Any) -> Deed:
        return Deed(self.HEAD + self.event(b"no message"))
