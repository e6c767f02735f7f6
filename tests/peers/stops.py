"""The ways in which a request that is being served comes to be cancelled.

Each serves a server over a wire that has it, calls the tool ``work`` by raw means, and strikes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec
import trio
import trio_websocket
from tests.peers.inspection import exchanges
from tests.peers.raw import RawPeer, call, cancel
from tests.peers.raw_http import HttpPeer, post

from trio_mcp import CancelSource, ErrorCode, Server

__all__ = ["STOPS", "Stop"]


class Stop:
    """``answer`` is the code of the error that the peer gets; ``None`` if it hears nothing."""

    name: ClassVar[str]
    source: ClassVar[CancelSource]
    answer: ClassVar[int | None] = None
    has_deadline: ClassVar[bool] = False

    def __init__(self, server: Server) -> None:
        self._server = server
        self.heard: list[Any] = []

    @asynccontextmanager
    async def called(self) -> AsyncIterator[None]:
        """The tool has been called. What has been heard by the end is in ``heard``."""
        yield

    async def strike(self) -> None:
        """Cancel the request."""


class OverTcp(Stop):
    """Served over TCP, one connection."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._serving = trio.CancelScope()
        self._listening = trio.CancelScope()

    @asynccontextmanager
    async def called(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            address = listener.socket.getsockname()
            nursery.start_soon(self._serve, listener)
            self._stream = await trio.open_tcp_stream(*address)
            self._peer = RawPeer(self._stream, self._stream)
            await self._peer.send(call(1, "work"))
            nursery.start_soon(self._listen)
            yield
            self._listening.cancel()
            await self._stream.aclose()

    async def _serve(self, listener: trio.SocketListener) -> None:
        async with listener:
            stream = await listener.accept()
        with self._serving:
            await self._server.serve_stream(stream)

    async def _listen(self) -> None:
        with self._listening:
            try:
                while True:
                    self.heard.append(await self._peer.receive(timeout=60))
            except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass


class Notification(OverTcp):
    name = "notification"
    source = CancelSource.NOTIFICATION

    async def strike(self) -> None:
        await self._peer.send(cancel(1))


class EndOfStream(OverTcp):
    name = "end of the stream"
    source = CancelSource.DISCONNECT

    async def strike(self) -> None:
        await self._stream.send_eof()


class Deadline(OverTcp):
    name = "deadline"
    source = CancelSource.DEADLINE
    answer = ErrorCode.DEADLINE_EXCEEDED
    has_deadline = True


class Operator(OverTcp):
    name = "operator"
    source = CancelSource.OPERATOR
    answer = ErrorCode.CANCELLED_BY_OPERATOR

    async def strike(self) -> None:
        (exchange,) = exchanges(self._server)
        assert exchange.key is not None
        assert self._server.cancel(exchange.key, "enough")


class Shutdown(OverTcp):
    name = "shutdown"
    source = CancelSource.SHUTDOWN
    answer = ErrorCode.SHUTTING_DOWN

    async def strike(self) -> None:
        self._serving.cancel()


class HttpDisconnect(Stop):
    name = "HTTP disconnect"
    source = CancelSource.DISCONNECT

    @asynccontextmanager
    async def called(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            port = await nursery.start(self._server.serve_http, "127.0.0.1", 0)
            self._peer = HttpPeer(await trio.open_tcp_stream("127.0.0.1", port))
            await self._peer.send(post(call(1, "work")))
            yield
            nursery.cancel_scope.cancel()

    async def strike(self) -> None:
        await self._peer.stream.aclose()


class WebSocketClose(Stop):
    name = "WebSocket close"
    source = CancelSource.DISCONNECT

    @asynccontextmanager
    async def called(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            port = await nursery.start(self._server.serve_websocket, "127.0.0.1", 0)
            url = f"ws://127.0.0.1:{port}/mcp"
            self._socket = await trio_websocket.connect_websocket_url(nursery, url)
            await self._socket.send_message(msgspec.json.encode(call(1, "work")).decode())
            yield
            nursery.cancel_scope.cancel()

    async def strike(self) -> None:
        await self._socket.aclose()


STOPS: list[type[Stop]] = [
    Notification,
    HttpDisconnect,
    WebSocketClose,
    EndOfStream,
    Deadline,
    Operator,
    Shutdown,
]
