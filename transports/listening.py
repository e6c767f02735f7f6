"""Sockets that a server listens on, and the names of who comes in."""

from __future__ import annotations

import errno
import ssl
from typing import Final, TypeAlias

import trio

__all__ = ["Listeners", "address_of", "label_of", "listen", "open_listeners"]

Listeners: TypeAlias = list[trio.SocketListener] | list[trio.SSLListener[trio.SocketStream]]

_TRIES: Final = 16
"""Free ports that are tried, until one is found that is free on all addresses of the host."""


async def open_listeners(
    host: str, port: int, ssl_context: ssl.SSLContext | None, *, https_compatible: bool = False
) -> tuple[Listeners, int]:
    """Listen on all addresses of ``host``, with TLS if there is a context; and the port, the same
    on all of them. Raises ``OSError`` if that is not possible.

    ``https_compatible`` is that of :class:`trio.SSLStream`: whether TLS may end without a goodbye.
    """
    listeners, bound = await listen(host, port)
    if ssl_context is None:
        return listeners, bound
    return [
        trio.SSLListener(listener, ssl_context, https_compatible=https_compatible)
        for listener in listeners
    ], bound


async def listen(host: str, port: int) -> tuple[list[trio.SocketListener], int]:
    """The same without TLS."""
    listeners = await _listen(host, port)
    return listeners, listeners[0].socket.getsockname()[1]


async def _listen(host: str, port: int) -> list[trio.SocketListener]:
    for _ in range(_TRIES if port == 0 else 1):
        listeners = await trio.open_tcp_listeners(port, host=host)
        ports = {listener.socket.getsockname()[1] for listener in listeners}
        if len(ports) == 1:
            return listeners
        # ``localhost`` may be two addresses, and each of them got a free port of its own.
        for listener in listeners:
            await listener.aclose()
        try:
            return await trio.open_tcp_listeners(min(ports), host=host)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"no port is free on all addresses of {host}")


def label_of(stream: trio.abc.Stream, kind: str) -> str:
    """How records and the scope tree name a connection: ``http 127.0.0.1:51234``."""
    name = _peer_name(stream)
    return kind if name is None else f"{kind} {name[0]}:{name[1]}"


def address_of(stream: trio.abc.Stream) -> str:
    """The host that a connection comes from, the same for all of its connections; empty if it has
    no name."""
    name = _peer_name(stream)
    return "" if name is None else name[0]


def _peer_name(stream: trio.abc.Stream) -> tuple[str, int] | None:
    inner = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    if not isinstance(inner, trio.SocketStream):
        return None
    try:
        host, port, *_ = inner.socket.getpeername()
    except (OSError, ValueError):
        return None
    return host, port
