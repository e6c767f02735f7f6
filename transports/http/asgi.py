"""The ASGI carrier: the endpoint as an ASGI 3 application, for Hypercorn's Trio worker.

A carrier of this kind shows no connections: each request is served by itself, inside the server's
own call for it. So it works mounted below another application, with or without lifespan events.

What goes by time is shared by all requests where there is a lifespan to live in, else a request has
it for itself.

A request is shielded from the server's cancellation, which is how Hypercorn ends: that becomes
cause SHUTDOWN, as everywhere, and ``trio.Cancelled`` goes on behind it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import trio

from ...runtime.errors import ProtocolError
from ...runtime.exchange import Exchange
from ...runtime.groups import leaf_of
from ...runtime.lifecycle import CancelSource
from ...runtime.principal import Principal
from ...runtime.scopes import Scope, ScopeKind
from .authentication import Authentication
from .clockwork import Clockwork
from .connection import CHUNK
from .endpoint import answer_error, head_too_large, retry_after, status_of, too_large, too_slow
from .message import Answer, RequestHead
from .reply import HttpReply
from .service import HttpService

__all__ = ["AsgiApp"]

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


_BODY: Final = "http.response.body"


class AsgiApp:
    """What :meth:`~trio_mcp.Server.asgi` returns."""

    def __init__(self, service: HttpService) -> None:
        self.service = service
        self._run: trio.lowlevel.TrioToken | None = None
        self._clockwork: Clockwork | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if not trio.lowlevel.in_trio_task():
            raise RuntimeError(
                "this application runs on Trio: serve it with Hypercorn's Trio worker "
                "(hypercorn.trio.serve, or hypercorn --worker-class trio)"
            )
        self._enter_run()
        kind = scope["type"]
        if kind == "http":
            await _Request(self.service, self._clockwork, scope, receive, send).serve()
        elif kind == "lifespan":
            await self._live(receive, send)
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close"})  # not accepted: status 403
        else:
            raise ValueError(f"an ASGI application for http and lifespan, not for {kind!r}")

    def _enter_run(self) -> None:
        """In a new run nothing is draining, whether or not its server tells of a lifespan."""
        run = trio.lowlevel.current_trio_token()
        if run is not self._run:
            self._run = run
            self.service.reset()
            self.service.core.enter_run()
            self.service.core.draining.mount(self.service)
            self._clockwork = None

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self.service.reset()
        try:
            async with trio.open_nursery() as nursery:
                clockwork = Clockwork(nursery, self.service.core.limits)
                self._clockwork = clockwork
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await self.drain()
                nursery.cancel_scope.cancel("the lifespan has ended")
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None
        finally:
            self._clockwork = None
        await send({"type": "lifespan.shutdown.complete"})

    async def drain(self) -> None:
        """Refuse new requests with status 503, let those in flight finish within ``Limits.drain``
        seconds, cancel the rest with cause SHUTDOWN; bounded. May be called again.

        Call it before the server is stopped, so that clients get answers. The end of the lifespan
        calls it too, but with Hypercorn that comes after its connections have ended.
        """
        self._enter_run()
        self.service.drain(trio.current_time() + self.service.core.limits.drain)
        await self.drained()

    async def drained(self) -> None:
        """After the service has been told to drain: until it has ended, bounded."""
        await self.service.drained()
        await self.service.shut_down()
        self.service.core.draining.tell_stragglers()


class _Request:
    """One request. A :class:`~.service.Served`, and the :class:`~.reply.Sink` of its stream."""

    def __init__(
        self,
        service: HttpService,
        clockwork: Clockwork | None,
        scope: Message,
        receive: Receive,
        send: Send,
    ) -> None:
        self._multiplexed = not scope["http_version"].startswith("1")
        self.label = _label_of(scope)
        self.client: Hashable = _address_of(scope)
        self._service = service
        self._limits = service.core.limits
        self._head = _head_of(scope, self.label)
        self._receive_message = receive
        self._send_message = send
        self._nursery: trio.Nursery
        self._clockwork = clockwork
        self._identifying: trio.CancelScope | None = None
        self._sending: trio.CancelScope | None = None
        self._exchange: Exchange | None = None
        self._lost: CancelSource | None = None
        self._draining = False
        self._finishing = False
        self._streamed = 0
        self._answered = False
        self._stopped = False
        self._began_at = trio.current_time()

    async def serve(self) -> None:
        try:
            await self._serve()
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None

    async def _serve(self) -> None:
        body: bytearray | Answer | None = self._check_head()
        if body is None:
            body = await self._read_body()
        if isinstance(body, Answer):
            await self._refuse(body)
        elif body is not None:
            self._service.enter(self)
            try:
                await self._serve_watched(body)
            finally:
                self._service.leave(self)

    # The request ----------------------------------------------------------------------------------

    def _check_head(self) -> Answer | None:
        size = sum(len(name) + len(value) + 4 for name, value in self._head.headers)
        if size + len(self._head.path) > self._limits.http_head_bytes:
            return head_too_large(self._limits)
        return self._service.check_head(self._head)

    async def _read_body(self) -> bytearray | Answer | None:
        """The body, an answer to what is none, or ``None``: the client has left."""
        limits = self._limits
        body = bytearray()
        with trio.CancelScope(deadline=self._began_at + limits.http_body_time):
            while True:
                message = await self._receive_message()
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                if len(body) > limits.message_bytes:
                    return too_large(limits)
                if not message.get("more_body", False):
                    return body
        return too_slow("body")

    async def _refuse(self, answer: Answer) -> None:
        """Answer a request whose body has not been read to its end.

        What comes of it meanwhile is read, to nowhere: while Hypercorn's queue to us is full it can
        neither end the connection nor see it end. Over HTTP/2 the answer ends after the body: a
        part of a body that comes for a stream that has ended takes down all of Hypercorn (0.18). So
        a sender that does not end keeps its stream, and nothing else, for as long as it stays.
        """
        async with trio.open_nursery() as nursery:
            whole = trio.Event()
            nursery.start_soon(self._read_on, whole)
            if self._multiplexed:
                body = b"" if answer.bare else answer.body
                await self.begin(HTTPStatus(answer.status), tuple(answer.head()))
                await self.send(body)
                await whole.wait()
                await self.end()
            else:
                await self._answer(answer)
            nursery.cancel_scope.cancel("refused")

    async def _read_on(self, whole: trio.Event) -> None:
        """Read the rest of a body, to nowhere; then hear that the client has left."""
        while True:
            message = await self._receive_message()
            if message["type"] != "http.request":
                self._end(CancelSource.DISCONNECT)
                whole.set()
                return
            if not message.get("more_body", False):
                whole.set()

    # The watch ------------------------------------------------------------------------------------

    async def _serve_watched(self, body: bytearray) -> None:
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._watch)
            clockwork = self._clockwork
            if clockwork is None:
                clockwork = Clockwork(self._nursery, self._limits)
            with trio.CancelScope(shield=True):  # as long as a shutdown may take
                await self._serve_request(body, clockwork)
            self._answered = True
            if not self._stopped:  # else that is on its way, and is not to be taken for this
                self._nursery.cancel_scope.cancel("answered")

    async def _watch(self) -> None:
        """Hear that the client has left, or feel that the server is being stopped."""
        try:
            message = await self._receive_message()
        except Exception:
            self._end(CancelSource.DISCONNECT)
            raise
        except BaseException:
            if not self._answered:
                self._stopped = True
                self.drain()
                if self._exchange is None or not self._exchange.endless:  # which ends by itself
                    self.shut_down()
            raise
        self._end(CancelSource.DISCONNECT)
        if message["type"] != "http.disconnect":
            raise RuntimeError(
                f"{message['type']!r} instead of 'http.disconnect' after the whole body: something "
                "between this application and its server hides when clients leave"
            )

    def _end(self, source: CancelSource) -> None:
        """The client is gone, or as good as gone; or it has all it is to have, which is the same
        to Hypercorn."""
        if self._finishing and source is CancelSource.DISCONNECT:
            return
        if self._lost is None:
            self._lost = source
        for scope in (self._identifying, self._sending):
            if scope is not None:
                scope.cancel(source.value)
        if self._exchange is not None:
            self._exchange.cancel(source)

    def drain(self) -> None:
        self._draining = True
        if self._exchange is not None:
            self._exchange.drain()
        if self._sending is not None:
            soon = trio.current_time() + self._limits.drain
            self._sending.deadline = min(self._sending.deadline, soon)

    def shut_down(self) -> None:
        if self._identifying is not None:
            self._identifying.cancel("shutting down")
        if self._exchange is not None:
            self._exchange.cancel(CancelSource.SHUTDOWN)

    # The answer -----------------------------------------------------------------------------------

    async def _serve_request(self, body: bytearray, clockwork: Clockwork) -> None:
        service = self._service
        if not clockwork.turns.begin():
            await clockwork.turns.wait(self.client)
        principal = None
        if service.authentication is not None:
            verdict = await self._identify(service.authentication)
            if isinstance(verdict, Answer):
                await self._answer(verdict)
                return
            principal = verdict
        request = service.read(self._head, body, self, principal)
        if isinstance(request, Answer):
            await self._answer(request)
            return
        now = trio.current_time()
        reply = HttpReply(clockwork.pacer, self._open_stream, now)
        exchange = self._exchange = service.core.open(request, self, reply, now, principal)
        clockwork.replies.add(reply)
        try:
            await exchange.run()
        finally:
            clockwork.replies.discard(reply)  # from here on it is never silent
        if self._lost is not None:
            reply.fall_silent()
        if reply.streamed is not None:
            await reply.streamed.wait()
        else:
            await self._answer_with(exchange, reply)

    async def _identify(self, authentication: Authentication) -> Principal | Answer:
        with trio.CancelScope() as scope:
            self._identifying = scope
            verdict = await authentication.identify(self._head, self._limits)
            if not scope.cancel_called:  # it may have been too late to be felt
                return verdict
        return answer_error(self._service.core.shutting_down())  # if anybody is there to hear it

    async def _answer_with(self, exchange: Exchange, reply: HttpReply) -> None:
        frame = reply.take()
        if frame is None:
            return  # cancelled: nothing more is said
        headers = (
            ("content-type", "application/json"),
            ("content-length", str(len(frame))),
            *retry_after(exchange.error_data),
        )
        delivered = False
        try:
            delivered = await self._respond(status_of(exchange.error_code), headers, frame)
        finally:
            exchange.written(delivered)

    async def _answer(self, answer: Answer) -> None:
        headers = answer.head()
        if answer.close and not self._multiplexed:
            headers = (*headers, ("connection", "close"))
        await self._respond(answer.status, headers, b"" if answer.bare else answer.body)

    async def _respond(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> bool:
        """A short body goes with the head; Hypercorn holds it until it is taken."""
        if len(body) > CHUNK:
            await self.begin(HTTPStatus(status), tuple(headers))
            return await self.send(body) and await self._finish()
        self._finishing = self._lost is None
        return await self._send(_start(status, headers), {"type": _BODY, "body": body})

    # An event stream ------------------------------------------------------------------------------

    def _open_stream(self, reply: HttpReply) -> None:
        self._nursery.start_soon(self._stream_events, reply)

    async def _stream_events(self, reply: HttpReply) -> None:
        try:
            with trio.CancelScope(shield=True):  # as the rest of the request
                await reply.stream(self)
        finally:
            assert reply.streamed is not None
            reply.streamed.set()

    async def begin(self, status: HTTPStatus, headers: tuple[tuple[str, str], ...]) -> None:
        await self._send(_start(status, headers))

    async def send(self, data: bytes) -> bool:
        """In parts that have ``Limits.stall`` each; Hypercorn holds what it has been given."""
        self._streamed += len(data)
        if self._multiplexed and self._streamed > self._limits.bytes_per_connection:
            self._end(CancelSource.STALLED)  # Hypercorn (0.18) holds them all, read or not
        for start in range(0, len(data), CHUNK):
            part = data[start : start + CHUNK]
            if not await self._send({"type": _BODY, "body": part, "more_body": True}):
                return False
        return self._lost is None

    async def end(self) -> None:
        await self._finish()

    async def _finish(self) -> bool:
        self._finishing = self._lost is None
        return await self._send({"type": _BODY, "body": b""})

    async def _send(self, *messages: Message) -> bool:
        """Whether the server has taken them, in time."""
        if self._lost is not None:
            return False
        limit = self._limits.drain if self._draining else self._limits.stall
        with trio.CancelScope(deadline=trio.current_time() + limit) as scope:
            self._sending = scope
            try:
                for message in messages:
                    await self._send_message(message)
            except OSError:
                self._end(CancelSource.DISCONNECT)
                return False
        if scope.cancelled_caught:
            self._end(CancelSource.STALLED)  # unless it is gone
        return self._lost is None

    # What the exchange and the scope tree ask (Peer, Connection) ----------------------------------

    def hold(self, size: int) -> ProtocolError | None:
        return None  # one request at a time, which has bounds of its own

    def forget(self, exchange: Exchange) -> None:
        self._service.core.close(exchange)

    def exchanges(self) -> Iterable[Exchange]:
        return () if self._exchange is None else (self._exchange,)

    def scope(self) -> Scope:
        exchange = self._exchange
        return Scope(
            kind=ScopeKind.CONNECTION,
            label=self.label,
            state="draining" if self._draining else "serving",
            age=trio.current_time() - self._began_at,
            children=() if exchange is None or exchange.ended else (exchange.scope(),),
        )


def _start(status: int, headers: Iterable[tuple[str, str]]) -> Message:
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": int(status), "headers": encoded}


def _label_of(scope: Message) -> str:
    version = scope["http_version"]
    kind = "http" if version.startswith("1") else f"http/{version}"
    client = scope.get("client")
    return kind if client is None else f"{kind} {client[0]}:{client[1]}"


def _address_of(scope: Message) -> str:
    client = scope.get("client")
    return "" if client is None else str(client[0])


def _head_of(scope: Message, peer: str) -> RequestHead:
    return RequestHead(
        scope["method"],
        _path_of(scope),
        tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t"))
            for name, value in scope["headers"]
        ),
        peer,
    )


def _path_of(scope: Message) -> str:
    """The path below the place where the application is mounted.

    Some frameworks leave the mount point in ``path``, as the ASGI specification asks, others take
    it out; ``raw_path`` is what came in either case.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    raw: bytes | None = scope.get("raw_path")
    mounted = root and path.startswith(root)
    if mounted and (raw is None or unquote(raw.partition(b"?")[0].decode("latin-1")) == path):
        return path[len(root) :] or "/"
    return path
