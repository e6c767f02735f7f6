"""The client's side: a URL, and the wire to what listens there."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import partial
from urllib.parse import urlsplit

import attrs
import trio
from trio_websocket import WebSocketConnection, wrap_client_stream

from ...runtime.errors import ConnectionLost
from ...runtime.limits import Limits
from ..failures import cannot_connect
from ..hosts import check_host, check_port
from .pipe import CHUNK
from .wire import NORMAL, SUBPROTOCOL, WebSocketWire

__all__ = ["open_websocket"]


async def open_websocket(
    url: str,
    limits: Limits,
    ssl_context: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
) -> WebSocketWire:
    """Connect to a ``ws:`` or ``wss:`` URL. The opening handshake is the beginning of the wire's
    :meth:`~WebSocketWire.run`, which should follow at once: both have the same ``Limits.connect``
    seconds, counted from here.

    Raises ``ValueError`` for what is no such URL or a header of the handshake's own, and
    :class:`ConnectionLost` if there is no connection to be had, or not in time.
    """
    deadline = trio.current_time() + limits.connect
    place, more = _with_host(_Place.of(url), headers or {})
    stream: trio.abc.Stream
    with trio.move_on_at(deadline) as waiting:
        try:
            tcp = await trio.open_tcp_stream(place.host, place.port)
            if not place.tls:
                stream = tcp
            else:
                stream = await _secure(tcp, ssl_context, place.host)
        except OSError as error:
            raise ConnectionLost(cannot_connect(place.host, place.port, error)) from error
    if waiting.cancelled_caught:
        raise ConnectionLost(f"no connection to {url} within connect={limits.connect:g} s")
    return WebSocketWire(
        stream,
        partial(_request, place, limits, deadline, more),
        label=f"websocket {place.host}:{place.port}",
        message_bytes=limits.message_bytes,
        close_code=NORMAL,
        close_time=limits.exit_wait,
    )


def _with_host(
    place: _Place, headers: Mapping[str, str]
) -> tuple[_Place, list[tuple[bytes, bytes]]]:
    """The place under the name that a ``Host`` among the headers gives it, and the others."""
    more = []
    for name, value in headers.items():
        lower = name.lower()
        if lower in ("connection", "upgrade") or lower.startswith("sec-websocket-"):
            raise ValueError(f"the header {name} is set by the transport")
        if lower == "host":
            place = attrs.evolve(place, authority=value)
        else:
            more.append((name.encode("latin-1"), value.encode("latin-1")))
    return place, more


async def _secure(
    tcp: trio.SocketStream, context: ssl.SSLContext | None, host: str
) -> trio.SSLStream[trio.SocketStream]:
    context = context if context is not None else ssl.create_default_context()
    secured = trio.SSLStream(tcp, context, server_hostname=host, https_compatible=True)
    try:
        await secured.do_handshake()
    except BaseException as error:
        await trio.aclose_forcefully(tcp)
        if isinstance(error, trio.BrokenResourceError):
            cause = error.__cause__
            raise (cause if isinstance(cause, OSError) else OSError(str(error))) from None
        raise
    return secured


async def _request(
    place: _Place,
    limits: Limits,
    deadline: float,
    headers: list[tuple[bytes, bytes]],
    nursery: trio.Nursery,
    stream: trio.abc.Stream,
) -> WebSocketConnection:
    with trio.move_on_at(deadline):
        return await wrap_client_stream(
            nursery,
            stream,  # type: ignore[arg-type]  # any stream will do
            place.authority,
            place.resource,
            subprotocols=[SUBPROTOCOL],
            extra_headers=headers,
            max_message_size=limits.message_bytes,
            receive_buffer_size=CHUNK,
        )
    raise TimeoutError(f"no answer to the opening handshake within connect={limits.connect:g} s")


@attrs.frozen
class _Place:
    """What a URL names."""

    tls: bool
    host: str
    port: int
    authority: str
    resource: str

    @classmethod
    def of(cls, url: str) -> _Place:
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise ValueError(f"not a ws: or wss: URL with a host: {url!r}")
        check_host(parts.hostname)
        check_port(parts.port)
        if parts.username is not None or parts.fragment:
            raise ValueError(f"a WebSocket URL has no user and no fragment: {url!r}")
        tls = parts.scheme == "wss"
        default = 443 if tls else 80
        port = parts.port if parts.port is not None else default
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        authority = name if port == default else f"{name}:{port}"
        resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(tls, parts.hostname, port, authority, resource)
