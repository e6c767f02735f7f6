"""The server's side of a channel: messages in, exchanges and cancel causes out.

The connection scope of the tree. Every rule of "wire event to effect" for channels is here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Iterable

import trio

from ..runtime.dispatch import Dispatcher
from ..runtime.errors import ErrorCode, ProtocolError
from ..runtime.exchange import Exchange, Outgoing
from ..runtime.groups import leaf_of
from ..runtime.jsonrpc import (
    Message,
    Notification,
    Request,
    RequestId,
    encode_error,
    encode_notification,
    id_key,
    is_request_id,
)
from ..runtime.lifecycle import CancelSource
from ..runtime.principal import Principal
from ..runtime.progress import Pacer
from ..runtime.scopes import Scope, ScopeKind
from .channel import Bare, Channel, close_wire
from .framing import Frame
from .wire import Wire

__all__ = ["ServerConnection", "serve_wire"]

logger = logging.getLogger("trio_mcp.connection")


async def serve_wire(core: Dispatcher, wire: Wire, principal: Principal | None = None) -> None:
    """Serve one peer until it closes; then everything it asked for is cancelled, DISCONNECT.

    Cancelling the scope around this call drains: requests in flight have ``Limits.drain`` seconds
    to finish, the rest is cancelled with SHUTDOWN and answered, and then ``trio.Cancelled`` goes
    on. Bounded by the drain limit and the clean-up of the handlers. Closes the wire. ``principal``
    is who the peer is, if that is known.
    """
    connection = ServerConnection(core, wire, principal)
    limit = core.limits.drain
    try:
        async with trio.open_nursery() as nursery:
            # The connection lives in a shield, and this task stands outside of it, so that a
            # cancellation from around us becomes a drain.
            nursery.start_soon(connection.run, name=f"trio-mcp connection {wire.label}")
            try:
                await connection.ended.wait()
            finally:
                connection.drain(trio.current_time() + limit)
    except BaseExceptionGroup as group:
        raise leaf_of(group) from None


class ServerConnection:
    """One peer on a channel: its exchanges by id, and how they reply."""

    pacer: Pacer

    def __init__(self, core: Dispatcher, wire: Wire, principal: Principal | None) -> None:
        self.label = wire.label
        self.client: Hashable = object()  # nobody else
        self.ended = trio.Event()
        self.ignored = 0
        self._core = core
        self._principal = principal
        self._channel = Channel(wire, core.limits)
        self._exchanges: dict[str, Exchange] = {}  # by id_key
        self._refusals: dict[str, deque[_Refusal]] = {}  # by id_key, oldest first
        self._request_bytes = 0
        self._nursery: trio.Nursery
        self._began_at = trio.current_time()
        self._draining = False
        self._drain_asked = trio.Event()
        self._grace = trio.CancelScope()
        self._over = trio.Event()
        self._lost: CancelSource | None = None
        self._changed: trio.Event | None = None
        self._written = trio.Event()

    # Life of the connection ---------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection  # see Exchange.run
    async def run(self) -> None:
        """The connection, from its first byte until nothing of it is left."""
        core = self._core
        core.enter_run()
        core.connections.add(self)
        core.draining.enter(self)
        try:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    self.pacer = Pacer(nursery)
                    nursery.start_soon(self._read)
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._drain)
                    await self._over.wait()
                    self._cancel_all(self._lost)
                    await self._until_idle()
                    self._channel.finish()
                    if self._lost is not CancelSource.STALLED:
                        with trio.move_on_after(core.limits.drain):
                            await self._written.wait()
                    nursery.cancel_scope.cancel("the connection has ended")
        finally:
            self._cancel_all(CancelSource.DISCONNECT)  # none is left, unless we are torn down
            core.connections.discard(self)
            core.draining.leave(self, drained=self._draining)
            self.ended.set()
            await close_wire(self._channel.wire)

    def drain(self, deadline: float) -> None:
        """Take no new requests; let those in flight finish until ``deadline``; then end. May be
        called again, to bring that forward."""
        self._draining = True
        self._grace.deadline = min(self._grace.deadline, deadline)
        self._drain_asked.set()

    async def _read(self) -> None:
        await self._channel.read(self._on_message, self._on_garbage)
        self._end(CancelSource.DISCONNECT)

    async def _write(self) -> None:
        source = await self._channel.write()
        self._written.set()
        if source is not None:
            self._end(source)

    @trio.lowlevel.enable_ki_protection
    async def _drain(self) -> None:
        await self._drain_asked.wait()
        limits = self._core.limits
        self._channel.shorten_stall(limits.drain)
        for exchange in list(self._exchanges.values()):
            exchange.drain()
        with self._grace:
            await self._until_idle()
        self._cancel_all(CancelSource.SHUTDOWN)
        with trio.move_on_after(limits.longest_cleanup + limits.cleanup) as patience:
            await self._until_stopped()
        if patience.cancelled_caught:  # there is no means against them; but it can be said
            self._core.draining.tell_abandoned(self.scope().children)
            await self._until_stopped()
        with trio.move_on_after(limits.drain) as patience:
            await self._until_idle()
        if patience.cancelled_caught:
            self._end(CancelSource.STALLED)
        self._over.set()

    def _end(self, source: CancelSource) -> None:
        if self._lost is None:
            self._lost = source
            self._over.set()

    def _cancel_all(self, source: CancelSource | None) -> None:
        if source is not None:
            for exchange in list(self._exchanges.values()):
                exchange.cancel(source)

    async def _until_idle(self) -> None:
        while self._exchanges:
            await self._change()

    async def _until_stopped(self) -> None:
        while any(exchange.running for exchange in self._exchanges.values()):
            await self._change()

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _note_change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    # What the peer says -------------------------------------------------------------------------

    def _on_message(self, message: Message, now: float) -> None:
        if type(message) is Request:
            self._on_request(message, now)
        elif type(message) is Notification and message.method == "notifications/cancelled":
            self._on_cancelled(message)
        else:
            self.ignored += 1

    def _on_request(self, request: Request, now: float) -> None:
        if self._lost is not None:
            self.ignored += 1  # nobody is left to read an answer
            return
        refusal = self._refusal(request)
        if refusal is not None:
            self._refuse(refusal)
            return
        exchange = self._core.open(request, self, self, now, self._principal)
        self._exchanges[id_key(request.id)] = exchange
        self._request_bytes += request.size
        self._nursery.start_soon(exchange.run, name="trio-mcp exchange")

    def _on_cancelled(self, notification: Notification) -> None:
        """Unknown, finished and malformed: ignored, counted, nothing written."""
        request_id = notification.params.get("requestId")
        key = id_key(request_id) if is_request_id(request_id) else ""
        exchange = self._exchanges.get(key)
        if exchange is None:
            self.ignored += 1
            for refusal in self._refusals.pop(key, ()):
                refusal.dropped = True
            return
        reason = notification.params.get("reason")
        clip = self._core.limits.text_length
        exchange.cancel(
            CancelSource.NOTIFICATION, reason[:clip] if isinstance(reason, str) else None
        )

    def _on_garbage(self, error: ProtocolError, _: Frame) -> None:
        if error.request_id is not None and id_key(error.request_id) in self._exchanges:
            error = _duplicate(error.request_id, error.message)
        self._refuse(error)

    def _refusal(self, request: Request) -> ProtocolError | None:
        if id_key(request.id) in self._exchanges:
            return _duplicate(request.id, "Invalid request: this id is in flight already")
        core, limits = self._core, self._core.limits
        error = None
        if self._draining or self._over.is_set():
            error = core.shutting_down()
        elif len(self._exchanges) >= limits.exchanges_per_connection:
            error = core.overloaded("this connection", limits.exchanges_per_connection)
        if error is None:
            error = self._overloaded_by(request.size)
        if error is None:
            error = core.admit(self, self._principal)
        if error is not None:
            error.request_id = request.id
        return error

    def _overloaded_by(self, size: int) -> ProtocolError | None:
        bound = self._core.limits.bytes_per_connection
        if self._request_bytes + self._channel.queued_bytes + size > bound:
            return self._core.overloaded("this connection", bound)
        return None

    def _refuse(self, error: ProtocolError) -> None:
        if self._channel.refused_bytes > self._core.limits.bytes_per_connection:
            self._end(CancelSource.STALLED)  # it sends what must be refused, and reads nothing
            return
        frame = encode_error(error.request_id, error)
        if error.request_id is None:
            self._channel.put(Bare(frame))
        else:
            self._channel.put(_Refusal(frame, error.request_id, self._refusals))

    # What exchanges ask of their connection (Peer, Reply) -----------------------------------------

    def notify(self, message: Outgoing) -> None:
        self._channel.put(message)

    def finish(self, exchange: Exchange) -> None:
        self._channel.put(exchange)
        if exchange.endless:
            self._channel.put(_Farewell(exchange, self._refusals))
        self._note_change()

    def hold(self, size: int) -> ProtocolError | None:
        refusal = self._overloaded_by(size)
        if refusal is None:
            self._request_bytes += size
        return refusal

    def forget(self, exchange: Exchange) -> None:
        del self._exchanges[id_key(exchange.request.id)]
        self._request_bytes -= exchange.request.size + exchange.held
        self._core.close(exchange)
        self._note_change()

    def exchanges(self) -> Iterable[Exchange]:
        return self._exchanges.values()

    def scope(self) -> Scope:
        return Scope(
            kind=ScopeKind.CONNECTION,
            label=self.label,
            state="draining" if self._draining else "serving",
            age=trio.current_time() - self._began_at,
            children=tuple(exchange.scope() for exchange in self._exchanges.values()),
        )


class _Refusal(Bare):
    """The error for a request that was not accepted; a cancellation that comes in time drops it."""

    def __init__(
        self, frame: bytes, request_id: RequestId, waiting: dict[str, deque[_Refusal]]
    ) -> None:
        super().__init__(frame)
        self.dropped = False
        self._key = id_key(request_id)
        self._waiting = waiting
        waiting.setdefault(self._key, deque()).append(self)

    def take(self) -> bytes | None:
        if self.dropped:
            return None
        same = self._waiting[self._key]
        same.popleft()  # itself: the writer takes them in the order in which they came
        if not same:
            del self._waiting[self._key]
        return super().take()


class _Farewell(_Refusal):
    """Tells that what has no end of its own is over, once its answer has gone out (specification:
    *Cancellation*). A cancellation that comes in time drops it, too."""

    def __init__(self, exchange: Exchange, waiting: dict[str, deque[_Refusal]]) -> None:
        request_id = exchange.request.id
        params = {"requestId": request_id, "reason": "Ended by the server"}
        frame = encode_notification("notifications/cancelled", params)
        super().__init__(frame, request_id, waiting)
        self._exchange = exchange

    def take(self) -> bytes | None:
        frame = super().take()
        return frame if self._exchange.answered else None


def _duplicate(request_id: RequestId | None, message: str) -> ProtocolError:
    """An error without ``id``: the first request of that id is still to be answered with it."""
    return ProtocolError(ErrorCode.INVALID_REQUEST, message, {"requestId": request_id})
