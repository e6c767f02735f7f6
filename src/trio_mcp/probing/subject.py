"""The server that is probed, and how conversations with it are opened."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import attrs
import trio

from ..runtime.limits import Limits
from ..transports.process import ServerProcess
from ..transports.wire import StreamWire
from .asked import ConversationLost
from .channel import Channel
from .pace import Pace
from .posting import Posts
from .speech import InSession, Stateless

__all__ = ["Command", "HttpAddress", "SocketAddress", "Subject", "WebSocketAddress"]


@attrs.frozen
class Command:
    """A server that is launched, for each conversation anew."""

    command: Sequence[str | os.PathLike[str]]
    env: Mapping[str, str] | None = None
    transport: ClassVar[str] = "stdio"
    shared: ClassVar[bool] = False

    async def open(
        self, speech: Stateless | InSession, pace: Pace, tools: Sequence[Mapping[str, Any]]
    ) -> Channel:
        # It has all the time to exit that there is before its end is judged.
        limits = Limits(exit_wait=pace.exit, terminate_wait=pace.exit)
        process = await ServerProcess.launch(self.command, limits, env=self.env)
        return Channel(process.wire, speech, pace, process)


@attrs.frozen
class SocketAddress:
    """A server behind TCP, with TLS if there is an ``ssl_context``; or behind a Unix socket if
    ``port`` is ``None``."""

    host: str
    port: int | None
    ssl_context: ssl.SSLContext | None = None
    shared: ClassVar[bool] = True

    @property
    def transport(self) -> str:
        if self.port is None:
            return "unix"
        return "tcp" if self.ssl_context is None else "tls"

    async def connect(self, seconds: float) -> trio.abc.Stream:
        """Raises ``OSError``, also if it takes longer than ``seconds``."""
        with trio.move_on_after(seconds):
            if self.port is None:
                return await trio.open_unix_socket(self.host)
            tcp = await trio.open_tcp_stream(self.host, self.port)
            return tcp if self.ssl_context is None else await self._secured(tcp, self.ssl_context)
        raise TimeoutError(f"no connection within {seconds:g} s")

    async def _secured(self, tcp: trio.SocketStream, context: ssl.SSLContext) -> trio.abc.Stream:
        stream = trio.SSLStream(tcp, context, server_hostname=self.host)
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(tcp)
            raise ConnectionError(f"no TLS: {error.__cause__ or error}") from None
        except BaseException:
            await trio.aclose_forcefully(tcp)
            raise
        return stream

    async def open(
        self, speech: Stateless | InSession, pace: Pace, tools: Sequence[Mapping[str, Any]]
    ) -> Channel:
        stream = await self.connect(pace.open)
        return Channel(StreamWire.over(stream, Limits().message_bytes), speech, pace)


@attrs.frozen
class WebSocketAddress:
    """A server behind a WebSocket."""

    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict)
    ssl_context: ssl.SSLContext | None = None
    transport: ClassVar[str] = "websocket"
    shared: ClassVar[bool] = True

    async def open(
        self, speech: Stateless | InSession, pace: Pace, tools: Sequence[Mapping[str, Any]]
    ) -> Channel:
        from ..transports.websocket.opening import open_websocket  # which takes long to import

        limits = Limits(connect=pace.open)
        try:
            wire = await open_websocket(self.url, limits, self.ssl_context, self.headers)
        except ValueError as error:
            raise ConversationLost(str(error)) from None
        return Channel(wire, speech, pace, serve=wire.run)


@attrs.frozen
class HttpAddress:
    """A server behind Streamable HTTP."""

    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict)
    ssl_context: ssl.SSLContext | None = None
    transport: ClassVar[str] = "http"
    shared: ClassVar[bool] = True

    async def open(
        self, speech: Stateless | InSession, pace: Pace, tools: Sequence[Mapping[str, Any]]
    ) -> Posts:
        await trio.lowlevel.checkpoint()
        return Posts(self.url, speech, pace, Limits(), tools, self.headers, self.ssl_context)


Subject: TypeAlias = Command | SocketAddress | WebSocketAddress | HttpAddress
"""A server, in one of the ways that it can be spoken to.

Each has its ``transport``; ``shared``, whether another conversation is with the same process; and
``open``, a conversation that is not yet running, which raises ``OSError`` or
:class:`ConversationLost`.
"""
