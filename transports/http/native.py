"""The native carrier: HTTP/1.1 on Trio streams, parsed by ``httptools``.

A connection is always read, also while one of its requests is being served: so a close is seen at
once, whatever waits in front of it. Requests that come early wait in a bounded queue.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import attrs
import trio

from ...runtime.dispatch import Dispatcher
from ...runtime.exchange import Exchange
from ...runtime.groups import leaf_of
from ...runtime.lifecycle import CancelSource
from ...runtime.progress import Pacer
from ...runtime.scopes import Scope, ScopeKind
from ..listening import Listeners, label_of, open_listeners
from .endpoint import HEALTH, Endpoint, answer_error, health, status_of
from .incoming import Continue, Incoming, Whole
from .message import Answer, RequestHead
from .reply import HttpReply

__all__ = ["HttpServer", "serve_http"]

CHUNK: Final = 64 * 1024


class HttpServer:
    """All connections of one HTTP endpoint."""

    def __init__(self, core: Dispatcher, endpoint: Endpoint) -> None:
        self.core = core
        self.endpoint = endpoint
        self.draining = False
        self.pacer: Pacer
        self.replies: set[HttpReply] = set()
        self._connections: set[HttpConnection] = set()
        self._emptied = trio.Event()
        self._accepting = trio.CancelScope()
        self._drain_asked = trio.Event()
        self._nursery: trio.Nursery
        self._date = ""
        self._dated_at = -1.0

    async def serve(
        self,
        listeners: Listeners,
        port: int,
        task_status: trio.TaskStatus[int],
    ) -> None:
        """Serve until the scope around this call is cancelled; then drain, in bounded time."""
        self.core.enter_run()
        try:
            async with trio.open_nursery() as outer:
                await outer.start(self._run_shielded, listeners)
                task_status.started(port)
                try:
                    await trio.sleep_forever()
                finally:
                    self._drain_asked.set()
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None

    async def _run_shielded(
        self,
        listeners: Listeners,
        task_status: trio.TaskStatus[None],
    ) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.pacer = Pacer(nursery)
                nursery.start_soon(self._break_silences)
                nursery.start_soon(self._accept_all, listeners)
                task_status.started()
                await self._drain_asked.wait()
                await self._drain()
                self._accepting.cancel("drained")
                await self._shut_down()
                nursery.cancel_scope.cancel("shut down")

    async def _accept_all(self, listeners: Listeners) -> None:
        with self._accepting:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener)

    async def _accept(
        self, listener: trio.SocketListener | trio.SSLListener[trio.SocketStream]
    ) -> None:
        async with listener:
            await trio.serve_listeners(
                self._serve_connection, [listener], handler_nursery=self._nursery
            )

    async def _serve_connection(self, stream: trio.abc.Stream) -> None:
        if len(self._connections) >= self.core.limits.http_connections:
            await trio.aclose_forcefully(stream)
            return
        connection = HttpConnection(self, stream)
        self._connections.add(connection)
        self.core.connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self.core.connections.discard(connection)
            if not self._connections:
                self._emptied.set()

    async def _drain(self) -> None:
        """Until nothing is being served any more, or for so long: new requests are answered 503."""
        self.draining = True
        for connection in list(self._connections):
            connection.drain()
        with trio.move_on_after(self.core.limits.drain):
            await self._until_empty()

    async def _shut_down(self) -> None:
        limits = self.core.limits
        for connection in list(self._connections):
            connection.shut_down()
        with trio.move_on_after(limits.drain + limits.longest_cleanup):
            await self._until_empty()

    async def _until_empty(self) -> None:
        while self._connections:
            self._emptied = trio.Event()
            await self._emptied.wait()

    async def _break_silences(self) -> None:
        limits = self.core.limits
        while True:
            await trio.sleep(min(limits.http_silence, limits.http_keep_alive) / 4)
            now = trio.current_time()
            for reply in list(self.replies):
                reply.break_silence(now, limits.http_silence, limits.http_keep_alive)

    def check_head(self, head: RequestHead) -> Answer | None:
        """The answer to a request that needs no body; ``None`` for the others."""
        if head.path == HEALTH and head.method in ("GET", "HEAD"):
            answer: Answer | None = health(draining=self.draining)
        else:
            answer = self.endpoint.check_head(head, self.core.limits)
        if answer is not None and head.method == "HEAD":
            return attrs.evolve(answer, bare=True)
        return answer

    def date(self) -> str:
        """The ``Date`` header, made once a second."""
        now = trio.current_time()
        if now - self._dated_at >= 1:
            self._dated_at = now
            self._date = formatdate(usegmt=True)
        return self._date


class HttpConnection:
    """One connection: its reader, its queue, and the exchange that is being served."""

    def __init__(self, server: HttpServer, stream: trio.abc.Stream) -> None:
        self.label = label_of(stream, "http")
        self._server = server
        self._limits = server.core.limits
        self._stream = stream
        self._incoming = Incoming(server.check_head, self._limits, self.label)
        self._reading = trio.CancelScope()
        self._patience = trio.CancelScope()
        self._sending = trio.CancelScope()
        self._arrived = trio.Event()
        self._gone = trio.Event()
        self._keep = True
        self._chunked = True
        self._lost: CancelSource | None = None
        self._draining = server.draining
        self._expecting = server.draining  # it came to hear that, or to ask for our health
        self._current: Exchange | None = None
        self._began_at = self._idle_since = self._stage_since = trio.current_time()
        self._stages = 0
        self._nursery: trio.Nursery

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if await self._shake_hands():
                    nursery.start_soon(self._read)
                    await self._serve()
                    await self._linger()
                nursery.cancel_scope.cancel("the connection has ended")
        finally:
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
        self._sending.deadline = min(
            self._sending.deadline, trio.current_time() + self._limits.drain
        )
        self._arrived.set()

    def shut_down(self) -> None:
        """The drain limit has passed."""
        self._expecting = False
        self._arrived.set()
        if self._current is not None:
            self._current.cancel(CancelSource.SHUTDOWN)

    def _end(self, source: CancelSource) -> None:
        """The peer is gone, or as good as gone."""
        if self._lost is None:
            self._lost = source
        self._arrived.set()
        self._sending.cancel(source.value)
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
                    await self._gone.wait()
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                pass

    async def _linger_with_tls(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        transport = stream.transport_stream
        self._reading.cancel("the connection says goodbye")
        await self._gone.wait()
        try:
            await stream.unwrap()
        except trio.BrokenResourceError:  # the peer still sends; but our goodbye is out
            while await transport.receive_some(CHUNK):
                pass

    # Reading --------------------------------------------------------------------------------------

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

    async def _read(self) -> None:
        with self._reading:
            while True:
                with trio.CancelScope() as self._patience:
                    await self._read_until_gone()
                if not self._patience.cancelled_caught or not self._incoming.time_out():
                    break
                self._arrived.set()  # the refusal; go on reading, to see the end
            self._end(CancelSource.DISCONNECT)
        self._gone.set()

    async def _read_until_gone(self) -> None:
        incoming = self._incoming
        while True:
            self._be_patient()
            try:
                data = await self._stream.receive_some(CHUNK)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                return
            if not data:
                return
            incoming.feed(data)
            if incoming:
                self._arrived.set()

    def _be_patient(self) -> None:
        """A stage of a request has its time from its begin, however often bytes come."""
        incoming = self._incoming
        if incoming.stages != self._stages:
            self._stages, self._stage_since = incoming.stages, trio.current_time()
        since = self._stage_since
        if incoming.stage is None:
            since = max(since, self._idle_since)
        self._patience.deadline = since + incoming.patience(busy=self._current is not None)

    # Serving --------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        incoming = self._incoming
        while self._lost is None:
            if not incoming:
                if self._draining and not self._expecting:
                    return
                self._arrived = trio.Event()
                await self._arrived.wait()
                continue
            item = incoming.take()
            if isinstance(item, Continue):
                await self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
                continue
            if isinstance(item, Answer):
                await self._answer(item, keep=not item.close)
                if item.close:
                    return
            elif not await self._serve_request(item):
                return

    async def _serve_request(self, item: Whole) -> bool:
        """Serve one request; whether the connection may go on."""
        server, core = self._server, self._server.core
        keep = item.keep_alive and not self._draining
        request = server.endpoint.read(item.head, item.body, self._limits, core.mirrored)
        refusal = None if isinstance(request, Answer) else core.admit()
        if isinstance(request, Answer):
            await self._answer(request, keep=keep)
            return keep
        if refusal is None and self._draining:
            refusal = core.shutting_down()
        if refusal is not None:
            refusal.request_id = request.id
            await self._answer(answer_error(refusal), keep=keep)
            return keep
        now = trio.current_time()
        reply = HttpReply(server.pacer, self._open_stream, now)
        exchange = self._current = core.open(request, self, reply, now)
        self._keep, self._chunked = keep and item.chunked, item.chunked
        server.replies.add(reply)
        self._be_patient()
        try:
            await exchange.run()
            server.replies.discard(reply)  # from here on it is never silent
            if self._lost is not None:
                reply.fall_silent()
            if reply.streamed is not None:
                await reply.streamed.wait()
                keep = self._keep
            else:
                keep = await self._answer_with(exchange, reply, keep=keep and not self._draining)
        finally:
            server.replies.discard(reply)
            self._current = None
            self._idle_since = trio.current_time()
        self._be_patient()
        return keep and self._lost is None

    async def _answer_with(self, exchange: Exchange, reply: HttpReply, *, keep: bool) -> bool:
        frame = reply.take()
        if frame is None:
            return False  # cancelled: nothing more is said, and the connection is over
        status = status_of(exchange.error_code)
        headers = [("content-type", "application/json"), ("content-length", str(len(frame)))]
        head = self._head(status, headers, keep=keep)
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
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"date: {self._server.date()}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if not keep:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def _send(self, data: bytes) -> bool:
        """Whether all of it was taken by the peer's side, in time."""
        view = memoryview(data)
        for start in range(0, len(data), CHUNK):
            if self._lost is not None:
                return False
            limit = self._limits.drain if self._draining else self._limits.stall
            with trio.move_on_after(limit) as scope:
                self._sending = scope
                try:
                    await self._stream.send_all(view[start : start + CHUNK])
                except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                    self._end(CancelSource.DISCONNECT)
                    return False
            if scope.cancelled_caught:
                self._end(CancelSource.STALLED)  # unless it is gone
                return False
        return True

    # What the exchange and the scope tree ask (Peer, Connection) ----------------------------------

    def forget(self, exchange: Exchange) -> None:
        self._server.core.close()

    def scope(self) -> Scope:
        current = self._current
        return Scope(
            kind=ScopeKind.CONNECTION,
            label=self.label,
            state="draining" if self._draining else "serving",
            age=trio.current_time() - self._began_at,
            children=() if current is None else (current.scope(),),
        )


async def serve_http(
    core: Dispatcher,
    host: str,
    port: int,
    endpoint: Endpoint,
    *,
    ssl_context: ssl.SSLContext | None,
    task_status: trio.TaskStatus[int],
) -> None:
    """Listen, report the bound port, and serve until cancelled; then drain."""
    listeners, bound = await open_listeners(host, port, ssl_context)
    await HttpServer(core, endpoint).serve(listeners, bound, task_status)
