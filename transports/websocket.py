"""A channel over WebSocket: one JSON-RPC message per text frame. Both sides.

``trio-websocket`` speaks the protocol: a task of its own reads, and from there also answers pings
and closes. So that this task never waits for a peer that does not read, the library writes to a
:class:`_Pipe`, which takes everything at once and has a task of its own that writes it out. What
the library is given to hold is bounded here too.

Imported when it is first used: ``trio_websocket`` is no part of a plain ``import trio_mcp``.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import attrs
import httptools
import trio
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    WebSocketConnection,
    wrap_client_stream,
    wrap_server_stream,
)
from wsproto.utilities import ProtocolError as WebSocketError

from ..runtime.dispatch import Dispatcher
from ..runtime.errors import ErrorCode, ProtocolError
from ..runtime.groups import leaf_of
from ..runtime.limits import Limits
from .framing import Frame
from .http.endpoint import Endpoint, answer_error
from .http.message import Answer, RequestHead
from .listening import label_of, open_listeners
from .serving import serve_wire

__all__ = ["SUBPROTOCOL", "WebSocketWire", "open_websocket", "serve_websocket"]

logger = logging.getLogger("trio_mcp.connection")

SUBPROTOCOL: Final = "mcp"

CHUNK: Final = 64 * 1024
"""Bytes read, and bytes written between two signs of life, at a time."""

CONTROL_BYTES: Final = 64 * 1024
"""Pongs that may wait for a peer that pings and does not read; with more, it is cut off."""

GOING_AWAY: Final = 1001
UNSUPPORTED_DATA: Final = 1003
TOO_BIG: Final = 1009
NORMAL: Final = 1000

Shake: TypeAlias = Callable[[trio.Nursery, trio.abc.Stream], Awaitable[WebSocketConnection]]
"""The opening handshake of one side; leaves the library's reader in the nursery."""


class WebSocketWire:
    """One end of a WebSocket; see :class:`.wire.Wire`.

    :meth:`run` must be running, and ends with :meth:`aclose`: it is the library's reader and our
    writer. ``why`` tells, once the wire is closed, how the peer or we have put it.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        shake: Shake,
        *,
        label: str,
        message_bytes: int,
        close_code: int,
        close_time: float,
        early: bytes = b"",
    ) -> None:
        self.label = label
        self.why: str | None = None
        self._stream = stream
        self._shake = shake
        self._limit = message_bytes
        self._close_code = close_code
        self._close_time = close_time
        self._pipe = _Pipe(stream, early, 2 * message_bytes + CONTROL_BYTES)
        self._connection: WebSocketConnection | None = None
        self._life = trio.CancelScope()
        self._nursery: trio.Nursery
        self._reading: trio.Nursery
        self._running = False
        self._opened = trio.Event()
        self._closing = False
        self._torn = False
        self._ended = trio.Event()

    # The life of the connection -----------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the WebSocket, and move its bytes until it is closed; shielded from then on.

        Raises ``OSError`` before ``task_status.started()`` if there is no WebSocket to be had, and
        nothing after it.
        """
        self._running = True
        try:
            with self._life:
                await self._run(task_status)
        except BaseExceptionGroup as group:
            self._judge(leaf_of(group))
        finally:
            self._pipe.break_off()
            self._opened.set()
            try:
                await trio.aclose_forcefully(self._stream)
            finally:
                self._ended.set()

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._pipe.pump)
            async with trio.open_nursery() as self._reading:
                with trio.CancelScope() as opening:
                    # The library waits for a handshake also where none can come any more.
                    self._pipe.on_end = opening.cancel
                    self._connection = await self._shake(self._reading, self._pipe)
                self._pipe.on_end = None
                if self._connection is None:
                    raise ConnectionResetError("the peer left during the opening handshake")
                self._life.shield = True
                self._opened.set()
                task_status.started()
                await trio.sleep_forever()

    def _judge(self, error: BaseException) -> None:
        """What came out of the library, or of its opening handshake."""
        if isinstance(error, ConnectionRejected):
            raise ConnectionRefusedError(
                f"the server refused the WebSocket with HTTP status {error.status_code}"
                + (f": {_text(error.body)}" if error.body else "")
            ) from None
        if not isinstance(error, Exception):
            raise error from None
        if self._connection is None:
            if isinstance(error, OSError):
                raise error from None
            raise ConnectionAbortedError(f"no WebSocket handshake came about: {error}") from error
        # Bytes that it can make nothing of, or that came at the wrong moment: for one, a ping
        # after our own close frame.
        logger.debug("%s broke: %r", self.label, error)
        self.why = self.why or f"it broke: {error!r}"

    def _close_soon(self, code: int, reason: str | None = None) -> None:
        """Begin the closing handshake, if it has not begun; it ends ``run`` in bounded time."""
        if not self._closing and not self._ended.is_set():
            self._closing = True
            self._nursery.start_soon(self._close, code, reason)

    async def _close(self, code: int, reason: str | None) -> None:
        assert self._connection is not None
        with trio.move_on_after(self._close_time):
            try:
                await self._connection.aclose(code, reason)
            except WebSocketError:
                pass  # it is closing already
            self._reading.cancel_scope.cancel("closing")
            await self._pipe.linger()
        self._life.cancel("closed")

    async def aclose(self) -> None:
        """Close it with a closing handshake, in bounded time; at once if it is broken."""
        if not self._running:
            await trio.aclose_forcefully(self._stream)
            return
        with trio.CancelScope(shield=True):
            if self._torn or self._connection is None:
                self._life.cancel("closed")
            else:
                self._close_soon(self._close_code)
            await self._ended.wait()

    # Frames -------------------------------------------------------------------------------------

    async def receive(self) -> list[Frame] | None:
        await self._opened.wait()
        connection = self._connection
        if connection is None or self._closing:
            return None
        try:
            message = await connection.get_message()
        except ConnectionClosed as closed:
            if closed.reason is not None:
                self._note(closed.reason.code, closed.reason.reason)
            self._close_soon(self._close_code)
            return None
        self._pipe.unframed = 0
        if not isinstance(message, str):
            self._reject(UNSUPPORTED_DATA, "messages are text frames, not binary ones")
            return None
        frame = message.encode()
        if len(frame) > self._limit:
            self._reject(TOO_BIG, f"Exceeded maximum message size: {self._limit} bytes")
            return None
        return [frame]

    def _reject(self, code: int, reason: str) -> None:
        self._note(code, reason)
        self._close_soon(code, reason)

    def _note(self, code: int, reason: str | None) -> None:
        self.why = f"closed with code {code}" + (f": {reason}" if reason else "")
        level = logging.DEBUG if code in (NORMAL, GOING_AWAY, 1005, 1006) else logging.WARNING
        logger.log(level, "%s %s", self.label, self.why)

    async def send(self, frames: list[bytes], moved: Callable[[], None]) -> None:
        await self._opened.wait()
        connection = self._connection
        if connection is None:
            raise trio.BrokenResourceError("there is no WebSocket")
        self._torn = True  # until all of it is written
        with self._pipe.gathering():
            for frame in frames:
                try:
                    await connection.send_message(frame.decode())
                except (ConnectionClosed, WebSocketError) as error:
                    self._torn = False
                    raise trio.BrokenResourceError("the WebSocket is closed") from error
        await self._pipe.flush(moved)
        self._torn = False


class _Pipe(trio.abc.Stream):
    """A stream that takes what is to be written at once, and writes it in a task of its own."""

    def __init__(self, stream: trio.abc.Stream, early: bytes, most_unframed: int) -> None:
        self.on_end: Callable[[], object] | None = None
        self.unframed = 0
        """Bytes read since the last message: the library keeps parts of a message, even empty ones,
        without a bound of their own."""
        self._stream = stream
        self._early = early
        self._most_unframed = most_unframed
        self._waiting = bytearray()
        self._in_flight = 0
        self._control = 0
        self._gathering = False
        self._work = trio.Event()
        self._progress = trio.Event()
        self._broken = False
        self._over = False

    # For the library ----------------------------------------------------------------------------

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._early:
            await trio.lowlevel.checkpoint()
            early, self._early = self._early, b""
            return early
        try:
            data = await self._stream.receive_some(CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self._end()
            raise trio.BrokenResourceError("the stream is broken") from error
        if not data:
            self._end()
        self.unframed += len(data)
        if self.unframed > self._most_unframed:
            if self.on_end is not None:
                self.on_end()
            raise trio.BrokenResourceError("a message in too many parts")
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self._broken:
            raise trio.BrokenResourceError("the stream is broken")
        if not self._gathering:
            self._control += len(data)
            if self._control > CONTROL_BYTES:
                self.break_off()
                raise trio.BrokenResourceError("the peer pings and does not read")
        self._waiting += data
        self._wake()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self._end()
        try:
            await self.flush()
        except trio.BrokenResourceError:
            pass
        finally:
            await self._stream.aclose()

    # For the wire -------------------------------------------------------------------------------

    def gathering(self) -> _Gathering:
        """While several messages are handed over: they go out together."""
        return _Gathering(self)

    async def pump(self) -> None:
        """Write what waits, as it comes."""
        while not self._broken:
            if self._gathering or not self._waiting:
                self._control = 0 if not self._waiting else self._control
                self._work = trio.Event()
                await self._work.wait()
                continue
            chunk = bytes(self._waiting[:CHUNK])
            del self._waiting[:CHUNK]
            self._in_flight = len(chunk)
            try:
                await self._stream.send_all(chunk)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                self.break_off()
            self._in_flight = 0
            self._progress.set()
            self._progress = trio.Event()

    async def flush(self, moved: Callable[[], None] | None = None) -> None:
        """Until all is written. ``moved`` is called whenever the peer has taken some of it."""
        while self._waiting or self._in_flight:
            if self._broken:
                break
            await self._progress.wait()
            if moved is not None:
                moved()
        if self._broken:
            raise trio.BrokenResourceError("the stream is broken")

    async def linger(self) -> None:
        """Let the peer read the last that we have said, although it may still be sending."""
        if self._over:
            return
        try:
            await self.flush()
            await _linger(self._stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass

    def break_off(self) -> None:
        """Nothing more can be written."""
        self._broken = True
        self._end()
        self._wake()
        self._progress.set()

    def _end(self) -> None:
        self._over = True
        if self.on_end is not None:
            self.on_end()

    def _wake(self) -> None:
        if not self._gathering or self._broken:
            self._work.set()


class _Gathering:
    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    def __enter__(self) -> None:
        self._pipe._gathering = True

    def __exit__(self, *_: object) -> None:
        self._pipe._gathering = False
        self._pipe._wake()


async def _linger(stream: trio.abc.Stream) -> None:
    """Read to the end, to nowhere. To close a socket with unread bytes in it would be a reset, and
    a reset may overtake what we have said."""
    if isinstance(stream, trio.SocketStream):
        await stream.send_eof()
    while await stream.receive_some(CHUNK):
        pass


# The server's side --------------------------------------------------------------------------------


async def serve_websocket(
    core: Dispatcher,
    host: str,
    port: int,
    endpoint: Endpoint,
    *,
    ssl_context: ssl.SSLContext | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen, report the bound port, and serve until cancelled; then every connection drains."""
    listeners, bound = await open_listeners(host, port, ssl_context, https_compatible=True)
    core.enter_run()
    try:
        async with trio.open_nursery() as nursery:
            serve = _Doorkeeper(core, endpoint).serve
            for listener in listeners:
                nursery.start_soon(trio.serve_listeners, serve, [listener])
            task_status.started(bound)
    except BaseExceptionGroup as group:
        raise leaf_of(group) from None


class _Doorkeeper:
    """Lets in who may come in, up to ``Limits.http_connections``."""

    def __init__(self, core: Dispatcher, endpoint: Endpoint) -> None:
        self._core = core
        self._endpoint = endpoint
        self._inside = 0

    async def serve(self, stream: trio.abc.Stream) -> None:
        """One connection, from its first byte to its last. What goes wrong stays in here."""
        if self._inside >= self._core.limits.http_connections:
            await trio.aclose_forcefully(stream)
            return
        self._inside += 1
        label = label_of(stream, "websocket")
        try:
            await self._serve(stream, label)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            logger.debug("%s left: %r", label, error)
        except Exception:
            logger.exception("%s ended by a bug", label)
        finally:
            self._inside -= 1
            await trio.aclose_forcefully(stream)

    async def _serve(self, stream: trio.abc.Stream, label: str) -> None:
        core, limits = self._core, self._core.limits
        try:
            async with trio.open_nursery() as nursery:
                with trio.move_on_after(limits.http_head_time) as opening:
                    early, refusal = await self._read_head(stream, label)
                    if refusal is not None:
                        logger.info("%s refused with status %d", label, refusal.status)
                        await stream.send_all(_response(refusal))
                        with trio.move_on_after(limits.drain):
                            await _linger(stream)
                        return
                    wire = WebSocketWire(
                        stream,
                        partial(_accept, limits.message_bytes),
                        label=label,
                        message_bytes=limits.message_bytes,
                        close_code=GOING_AWAY,
                        close_time=limits.drain,
                        early=early,
                    )
                    await nursery.start(wire.run)
                if not opening.cancelled_caught:
                    await serve_wire(core, wire)
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None

    async def _read_head(self, stream: trio.abc.Stream, label: str) -> tuple[bytes, Answer | None]:
        """The head of the first request, as bytes, and the answer to what may not come in."""
        most = self._core.limits.http_head_bytes
        data = bytearray()
        while (end := data.find(b"\r\n\r\n")) < 0 and len(data) <= most:
            more = await stream.receive_some(CHUNK)
            if not more:
                raise trio.BrokenResourceError("it left before it had said what it wants")
            data += more
        if end < 0 or end > most:
            return b"", _refuse(431, f"its head is longer than http_head_bytes={most}")
        head = _Head(label)
        try:
            head.parse(bytes(data[: end + 4]))
        except httptools.HttpParserError as error:
            return b"", _refuse(400, str(error))
        return bytes(data), self._check(head.head)

    def _check(self, head: RequestHead) -> Answer | None:
        refusal = self._endpoint.check_place(head)
        if refusal is not None:
            return refusal
        if head.method != "GET" or (head.get("upgrade") or "").lower() != "websocket":
            return attrs.evolve(
                _refuse(426, "this endpoint is a WebSocket"), headers=(("upgrade", "websocket"),)
            )
        return None


class _Head:
    """What ``httptools`` finds in the head of a request."""

    def __init__(self, peer: str) -> None:
        self.head: RequestHead
        self._peer = peer
        self._url = b""
        self._headers: list[tuple[str, str]] = []

    def parse(self, data: bytes) -> None:
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # as it should be
        path = httptools.parse_url(self._url).path or b"/"
        self.head = RequestHead(
            parser.get_method().decode("latin-1"),
            path.decode("latin-1"),
            tuple(self._headers),
            self._peer,
        )

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))


async def _accept(
    message_bytes: int, nursery: trio.Nursery, stream: trio.abc.Stream
) -> WebSocketConnection:
    request = await wrap_server_stream(
        nursery, stream, max_message_size=message_bytes, receive_buffer_size=CHUNK
    )
    offered = SUBPROTOCOL in request.proposed_subprotocols
    return await request.accept(subprotocol=SUBPROTOCOL if offered else None)


def _refuse(status: int, why: str) -> Answer:
    error = ProtocolError(ErrorCode.INVALID_REQUEST, f"Invalid request: {why}")
    return answer_error(error, status=status, close=True)


def _response(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.head()]
    lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + answer.body


# The client's side --------------------------------------------------------------------------------


async def open_websocket(
    url: str,
    limits: Limits,
    ssl_context: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
) -> WebSocketWire:
    """Connect to a ``ws:`` or ``wss:`` URL. The opening handshake is the beginning of the wire's
    :meth:`~WebSocketWire.run`.

    Raises ``ValueError`` for what is no such URL, and ``OSError`` if there is no connection to be
    had, or not within ``Limits.connect``.
    """
    place = _Place.of(url)
    stream: trio.abc.Stream
    with trio.move_on_after(limits.connect) as waiting:
        tcp = await trio.open_tcp_stream(place.host, place.port)
        if not place.tls:
            stream = tcp
        else:
            context = ssl_context if ssl_context is not None else ssl.create_default_context()
            secured = trio.SSLStream(
                tcp, context, server_hostname=place.host, https_compatible=True
            )
            try:
                await secured.do_handshake()
            except BaseException as error:
                await trio.aclose_forcefully(tcp)
                if isinstance(error, trio.BrokenResourceError):
                    cause = error.__cause__
                    raise (cause if isinstance(cause, OSError) else OSError(str(error))) from None
                raise
            stream = secured
    if waiting.cancelled_caught:
        raise TimeoutError(f"no connection to {url} within connect={limits.connect:g} s")
    return WebSocketWire(
        stream,
        partial(_request, place, limits, headers or {}),
        label=f"websocket {place.host}:{place.port}",
        message_bytes=limits.message_bytes,
        close_code=NORMAL,
        close_time=limits.exit_wait,
    )


async def _request(
    place: _Place,
    limits: Limits,
    headers: Mapping[str, str],
    nursery: trio.Nursery,
    stream: trio.abc.Stream,
) -> WebSocketConnection:
    with trio.move_on_after(limits.connect):
        return await wrap_client_stream(
            nursery,
            stream,  # type: ignore[arg-type]  # any stream will do
            place.authority,
            place.resource,
            subprotocols=[SUBPROTOCOL],
            extra_headers=[(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()],
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
        if parts.username is not None or parts.fragment:
            raise ValueError(f"a WebSocket URL has no user and no fragment: {url!r}")
        tls = parts.scheme == "wss"
        default = 443 if tls else 80
        port = parts.port if parts.port is not None else default
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        authority = name if port == default else f"{name}:{port}"
        resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(tls, parts.hostname, port, authority, resource)


def _text(body: bytes) -> str:
    return repr(body[:500].decode("utf-8", "replace"))
