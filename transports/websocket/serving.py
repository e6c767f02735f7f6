"""The server's side: who may come in, and the wire for who does."""

from __future__ import annotations

import logging
import ssl
from functools import partial
from http import HTTPStatus

import attrs
import httptools
import trio
from trio_websocket import WebSocketConnection, wrap_server_stream

from ...runtime.dispatch import Dispatcher
from ...runtime.errors import ErrorCode, ProtocolError
from ...runtime.groups import leaf_of
from ...runtime.principal import Principal
from ..http.authentication import Authentication
from ..http.endpoint import Endpoint, answer_error
from ..http.message import Answer, RequestHead
from ..listening import Listeners, label_of, open_listeners
from ..serving import serve_wire
from .pipe import CHUNK, linger
from .wire import GOING_AWAY, SUBPROTOCOL, WebSocketWire

__all__ = ["serve_websocket"]

logger = logging.getLogger("trio_mcp.connection")

_TLS_RECORD = 0x16
"""First byte of who begins with TLS, and waits for an answer to that."""


async def serve_websocket(
    core: Dispatcher,
    host: str,
    port: int,
    endpoint: Endpoint,
    authentication: Authentication | None,
    *,
    ssl_context: ssl.SSLContext | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen, report the bound port, and serve until cancelled or drained; then every connection
    drains."""
    core.enter_run()
    core.draining.check()
    listeners, bound = await open_listeners(host, port, ssl_context, https_compatible=True)
    doorkeeper = _Doorkeeper(core, endpoint, authentication)
    core.draining.enter(doorkeeper)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(doorkeeper.open, listeners, nursery)
            task_status.started(bound)
    except BaseExceptionGroup as group:
        raise leaf_of(group) from None
    finally:
        core.draining.leave(doorkeeper, drained=True)


class _Doorkeeper:
    """Lets in who may come in, up to ``Limits.http_connections``. A
    :class:`...runtime.draining.Serving`; so is each connection, once it is open."""

    def __init__(
        self, core: Dispatcher, endpoint: Endpoint, authentication: Authentication | None
    ) -> None:
        self._core = core
        self._endpoint = endpoint
        self._authentication = authentication
        self._inside = 0
        self._accepting = trio.CancelScope()
        self._openings: set[trio.CancelScope] = set()

    def drain(self, deadline: float) -> None:
        self._accepting.cancel("draining")
        if deadline <= trio.current_time():
            for opening in self._openings:
                opening.cancel("draining")

    async def open(self, listeners: Listeners, nursery: trio.Nursery) -> None:
        """Accept connections, and serve them in this nursery; until a drain, or cancelled."""
        with self._accepting:
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    accepting.start_soon(self._accept, listener, nursery)

    async def _accept(
        self,
        listener: trio.SocketListener | trio.SSLListener[trio.SocketStream],
        nursery: trio.Nursery,
    ) -> None:
        async with listener:
            await trio.serve_listeners(self.serve, [listener], handler_nursery=nursery)

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
        principal = None
        opening = trio.CancelScope(deadline=trio.current_time() + limits.http_head_time)
        self._openings.add(opening)
        try:
            async with trio.open_nursery() as nursery:
                with opening:
                    early, head = await self._read_head(stream, label)
                    verdict = head if isinstance(head, Answer) else await self._check(head, opening)
                    if isinstance(verdict, Answer):
                        logger.info("%s refused with status %d", label, verdict.status)
                        await stream.send_all(_response(verdict))
                        with trio.move_on_after(limits.drain):
                            await linger(stream)
                        return
                    principal = verdict
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
                    await serve_wire(core, wire, principal)
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None
        finally:
            self._openings.discard(opening)

    async def _read_head(
        self, stream: trio.abc.Stream, label: str
    ) -> tuple[bytes, RequestHead | Answer]:
        """The first bytes, with the head of a request in them; or the answer to what is none."""
        most = self._core.limits.http_head_bytes
        data = bytearray()
        while (end := data.find(b"\r\n\r\n")) < 0 and len(data) <= most:
            more = await stream.receive_some(CHUNK)
            if not more:
                raise trio.BrokenResourceError("it left before it had said what it wants")
            data += more
            if data[0] == _TLS_RECORD:
                return b"", _refuse(400, "this port does not speak TLS")
        if end < 0 or end > most:
            return b"", _refuse(431, f"its head is longer than http_head_bytes={most}")
        head = _Head(label)
        try:
            head.parse(bytes(data[: end + 4]))
        except httptools.HttpParserError as error:
            return b"", _refuse(400, str(error))
        return bytes(data), head.head

    async def _check(
        self, head: RequestHead, opening: trio.CancelScope
    ) -> Principal | Answer | None:
        """Who may come in, where somebody asks for that; or the answer to who may not. The time
        that this takes is not the client's."""
        refusal = self._check_head(head)
        if refusal is not None or self._authentication is None:
            return refusal
        began_at = trio.current_time()
        opening.deadline += self._core.limits.authentication
        verdict = await self._authentication.identify(head, self._core.limits)
        opening.deadline += trio.current_time() - began_at - self._core.limits.authentication
        return verdict

    def _check_head(self, head: RequestHead) -> Answer | None:
        refusal = self._endpoint.check_place(head)
        if refusal is not None:
            return refusal
        if self._core.draining.begun:
            return answer_error(self._core.shutting_down(), close=True)
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
