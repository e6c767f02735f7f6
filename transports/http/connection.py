"""One connection of the native carrier: its queue, and the exchange being served.

It is always read, also while one of its requests is being served, see :mod:`.reader`. Requests that
come early wait in a bounded queue.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from http import HTTPStatus
from typing import Final

import trio

from ...runtime.errors import ProtocolError
from ...runtime.exchange import Exchange
from ...runtime.lifecycle import CancelSource
from ...runtime.principal import Principal
from ...runtime.scopes import Scope, ScopeKind
from ..listening import address_of, label_of
from .authentication import Authentication
from .clockwork import Clockwork
from .direct import DirectSocket
from .endpoint import answer_error, retry_after, status_of
from .incoming import Continue, Incoming, Whole
from .message import Answer, RequestHead
from .reader import Reader, Readers, SocketReader, StreamReader
from .reply import HttpReply
from .service import HttpService

__all__ = ["HttpConnection"]

CHUNK: Final = 64 * 1024


class HttpConnection:
    """See the module. A :class:`~.service.Served`, and the :class:`~.reply.Sink` of its stream."""

    def __init__(
        self,
        service: HttpService,
        clockwork: Clockwork,
        readers: Readers,
        stream: trio.abc.Stream,
    ) -> None:
        self.label = label_of(stream, "http")
        self.client: Hashable = address_of(stream)
        self._service = service
        self._clockwork = clockwork
        self._limits = service.core.limits
        self._stream = stream
        self._direct = DirectSocket(stream) if isinstance(stream, trio.SocketStream) else None
        self._incoming = Incoming(
            service.check_head, self._limits, self.label, service.known_heads()
        )
        self._reader = _reader_of(stream, self._direct, self._incoming, readers, self._hung_up)
        self._identifying: trio.CancelScope | None = None
        self._sending: trio.CancelScope | None = None
        self._shutting_down = False
        self._keep = True
        self._chunked = True
        self._lost: CancelSource | None = None
        self._draining = service.draining
        self._expecting = service.draining  # it came to hear that, or to ask for our health
        self._current: Exchange | None = None
        self._began_at = trio.current_time()
        self._nursery: trio.Nursery

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if await self._shake_hands():
                    self._reader.start(nursery)
                    try:
                        await self._serve()
                        await self._linger()
                    finally:
                        self._reader.close()
                if nursery.child_tasks:
                    nursery.cancel_scope.cancel("the connection has ended")
        finally:
            await self._close()

    async def _close(self) -> None:
        if isinstance(self._stream, trio.SocketStream):
            self._stream.socket.close()
            return
        with trio.CancelScope(shield=True, deadline=trio.current_time() + self._limits.drain):
            try:
                await self._stream.aclose()
            except (trio.BrokenResourceError, OSError):
                pass

    # Ending ---------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Serve what is being served, nothing more; a request that is just coming is refused."""
        self._draining = True
        self._expecting = self._incoming.stage is not None
        if self._current is not None:
            self._current.drain()
        if self._sending is not None:
            soon = trio.current_time() + self._limits.drain
            self._sending.deadline = min(self._sending.deadline, soon)
        self._reader.wake()

    def shut_down(self) -> None:
        """The drain limit has passed."""
        self._shutting_down = True
        self._expecting = False
        self._reader.wake()
        if self._identifying is not None:
            self._identifying.cancel("shutting down")
        if self._current is not None:
            self._current.cancel(CancelSource.SHUTDOWN)

    def _hung_up(self) -> None:
        self._end(CancelSource.DISCONNECT)

    def _end(self, source: CancelSource) -> None:
        """The peer is gone, or as good as gone."""
        if self._lost is None:
            self._lost = source
        self._reader.wake()
        for scope in (self._identifying, self._sending):
            if scope is not None:
                scope.cancel(source.value)
        if self._current is not None:
            self._current.cancel(source)

    async def _linger(self) -> None:
        """Let the peer read our last answer, although it may still be sending."""
        if self._lost is not None:
            return
        with trio.move_on_after(self._limits.drain):
            try:
                if isinstance(self._stream, trio.SSLStream):
                    await self._linger_with_tls(self._stream)
                elif isinstance(self._stream, trio.SocketStream):
                    await self._stream.send_eof()
                    await self._reader.until_gone()
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                pass

    async def _linger_with_tls(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        transport = stream.transport_stream
        assert isinstance(self._reader, StreamReader)
        await self._reader.stop()
        try:
            await stream.unwrap()
        except trio.BrokenResourceError:  # the peer still sends; but our goodbye is out
            while await transport.receive_some(CHUNK):
                pass

    async def _shake_hands(self) -> bool:
        """With TLS; whether that went well."""
        if isinstance(self._stream, trio.SSLStream):
            with trio.move_on_after(self._limits.http_head_time) as scope:
                try:
                    await self._stream.do_handshake()
                except (trio.BrokenResourceError, OSError):
                    return False
            return not scope.cancelled_caught
        return True

    # Serving --------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        incoming = self._incoming
        while self._lost is None:
            if not incoming:
                if self._draining and not self._expecting:
                    return
                await self._reader.more()
                continue
            item = incoming.take()
            if isinstance(item, Whole):
                if not await self._serve_request(item):
                    return
            elif isinstance(item, Continue):
                await self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
            else:
                await self._answer(item, keep=not item.close)
                if item.close:
                    return

    async def _serve_request(self, item: Whole) -> bool:
        """Serve one request; whether the connection may go on."""
        service, clockwork = self._service, self._clockwork
        if not clockwork.turns.begin():
            await clockwork.turns.wait(self.client)
            if self._lost is not None:
                return False
        replies = clockwork.replies
        principal = None
        if service.authentication is not None and not self._shutting_down:
            verdict = await self._identify(service.authentication, item.head)
            if isinstance(verdict, Answer):
                del item.head, item.body  # the connection may be idle for long
                keep = item.keep_alive and not self._draining
                await self._answer(verdict, keep=keep)
                return keep and self._lost is None
            principal = verdict
        keep = item.keep_alive and not self._draining
        request = service.read(item.head, item.body, self, principal)
        del item.head, item.body  # nobody needs them while it runs
        if isinstance(request, Answer):
            await self._answer(request, keep=keep)
            return keep
        now = trio.current_time()
        reply = HttpReply(clockwork.pacer, self._open_stream, now)
        exchange = self._current = service.core.open(request, self, reply, now, principal)
        self._keep, self._chunked = keep and item.chunked, item.chunked
        replies.add(reply)
        try:
            await exchange.run()
            replies.discard(reply)  # from here on it is never silent
            if self._lost is not None:
                reply.fall_silent()
            if reply.streamed is not None:
                await reply.streamed.wait()
                keep = self._keep
            else:
                keep = await self._answer_with(exchange, reply, keep=keep and not self._draining)
        finally:
            replies.discard(reply)
            self._current = None
        return keep and self._lost is None

    async def _identify(
        self, authentication: Authentication, head: RequestHead
    ) -> Principal | Answer:
        """Who asks, or what to say to nobody."""
        with trio.CancelScope() as scope:
            self._identifying = scope
            try:
                verdict = await authentication.identify(head, self._limits)
            finally:
                self._identifying = None
            if not scope.cancel_called:  # it may have been too late to be felt
                return verdict
        return answer_error(self._service.core.shutting_down())  # if anybody is there to hear it

    async def _answer_with(self, exchange: Exchange, reply: HttpReply, *, keep: bool) -> bool:
        frame = reply.take()
        if frame is None:
            return False  # cancelled: nothing more is said, and the connection is over
        opening = self._clockwork.opening(
            status_of(exchange.error_code), exchange.ended_at or trio.current_time()
        )
        close = b"" if keep else b"connection: close\r\n"
        if exchange.error_data is not None:
            for name, value in retry_after(exchange.error_data):
                close += f"{name}: {value}\r\n".encode("latin-1")
        head = b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n" % (
            opening,
            len(frame),
            close,
        )
        delivered = False
        try:
            delivered = await self._send(head + frame)
        finally:
            exchange.written(delivered)
        return keep and delivered

    async def _answer(self, answer: Answer, *, keep: bool) -> None:
        body = b"" if answer.bare else answer.body
        await self._send(self._head(answer.status, answer.head(), keep=keep) + body)

    # An event stream (a Sink) ---------------------------------------------------------------------

    def _open_stream(self, reply: HttpReply) -> None:
        self._nursery.start_soon(self._stream_events, reply)

    async def _stream_events(self, reply: HttpReply) -> None:
        try:
            await reply.stream(self)
        finally:
            assert reply.streamed is not None
            reply.streamed.set()

    async def begin(self, status: HTTPStatus, headers: tuple[tuple[str, str], ...]) -> None:
        framing = (("transfer-encoding", "chunked"),) if self._chunked else ()
        await self._send(self._head(status, (*headers, *framing), keep=self._keep))

    async def send(self, data: bytes) -> bool:
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        return await self._send(data)

    async def end(self) -> None:
        if self._chunked and self._lost is None:
            await self._send(b"0\r\n\r\n")

    # Writing --------------------------------------------------------------------------------------

    def _head(self, status: int, headers: Iterable[tuple[str, str]], *, keep: bool) -> bytes:
        lines = [f"{name}: {value}\r\n" for name, value in headers]
        if not keep:
            lines.append("connection: close\r\n")
        opening = self._clockwork.opening(status, trio.current_time())
        return opening + ("".join(lines) + "\r\n").encode("latin-1")

    async def _send(self, data: bytes) -> bool:
        """Whether all of it was taken by the peer's side, in time."""
        if self._lost is not None:
            return False
        taken = 0
        if self._direct is not None:
            try:
                taken = self._direct.write(data)
            except OSError:
                self._end(CancelSource.DISCONNECT)
                return False
        return taken == len(data) or await self._send_slowly(memoryview(data)[taken:])

    async def _send_slowly(self, data: memoryview) -> bool:
        for start in range(0, len(data), CHUNK):
            if self._lost is not None:
                return False
            limit = self._limits.drain if self._draining else self._limits.stall
            with trio.move_on_after(limit) as scope:
                self._sending = scope
                try:
                    await self._stream.send_all(data[start : start + CHUNK])
                except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                    self._end(CancelSource.DISCONNECT)
                    return False
            if scope.cancelled_caught:
                self._end(CancelSource.STALLED)  # unless it is gone
                return False
        return True

    # What the exchange and the scope tree ask (Peer, Connection) ----------------------------------

    def hold(self, size: int) -> ProtocolError | None:
        return None  # one request at a time, which has bounds of its own

    def forget(self, exchange: Exchange) -> None:
        self._service.core.close(exchange)

    def exchanges(self) -> Iterable[Exchange]:
        return () if self._current is None else (self._current,)

    def scope(self) -> Scope:
        current = self._current
        below = () if current is None or current.ended else (current.scope(),)
        return Scope(
            kind=ScopeKind.CONNECTION,
            label=self.label,
            state="draining" if self._draining else "serving",
            age=trio.current_time() - self._began_at,
            children=below,
        )


def _reader_of(
    stream: trio.abc.Stream,
    direct: DirectSocket | None,
    incoming: Incoming,
    readers: Readers,
    lost: Callable[[], None],
) -> Reader:
    if direct is not None:
        return SocketReader(direct, incoming, readers, lost)
    return StreamReader(stream, incoming, readers, lost)
