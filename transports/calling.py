"""The client's side of a channel: calls out, answers and progress in.

What a server sends is as hostile as what a client sends: answers nobody waits for, progress for
unknown tokens, lines that are no messages. All of it is ignored, counted and, the first few times,
logged; none of it touches a call.
"""

from __future__ import annotations

import itertools
import logging
import math
import reprlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import attrs
import trio

from ..runtime.call import Call
from ..runtime.errors import ConnectionLost, ProtocolError, ProtocolViolation
from ..runtime.journal import Journal
from ..runtime.jsonrpc import (
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    is_request_id,
)
from ..runtime.lifecycle import CancelSource, State
from ..runtime.limits import Limits
from ..runtime.models.base import META_SUBSCRIPTION_ID
from ..runtime.progress import ProgressUpdate, check_progress
from .channel import Bare, Channel, close_wire
from .framing import Frame, Oversize
from .process import ServerProcess
from .sessions import Session
from .wire import ExplainedWire, Wire

__all__ = [
    "SUBSCRIBED",
    "CallConnection",
    "ClientConnection",
    "OnLog",
    "SessionConnection",
    "Unasked",
    "encode_call",
    "read_progress",
    "subscription_of",
]

logger = logging.getLogger("trio_mcp.connection")

_LOGGED_VIOLATIONS = 5

SUBSCRIBED: Final = frozenset(
    {
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""Notifications that belong to a subscription, and say to which."""

OnLog = Callable[[dict[str, Any]], str | None]
"""Takes the parameters of a log message. Returns what is wrong with them, if anything is."""


class CallConnection(Protocol):
    """What the face asks of a connection to a server, whatever carries its calls."""

    journal: Journal
    on_log: OnLog | None
    session: Session | None

    @property
    def label(self) -> str:
        """What it is called in records."""

    @property
    def process(self) -> ServerProcess | None:
        """The server, if it was launched."""

    @property
    def violations(self) -> int:
        """How often the server broke the specification."""

    @property
    def last_violation(self) -> str | None: ...

    @property
    def why_lost(self) -> str | None:
        """Why no more calls are carried; ``None`` as long as they are, now or in a while."""

    @property
    def restarts(self) -> int:
        """How often it was lost and is there again."""

    @property
    def restarting(self) -> bool:
        """Whether it was lost, and will maybe be there again."""

    async def renewed(self, since: int) -> bool:
        """Wait until it is there again; ``since`` is what ``restarts`` was. ``False`` if it was not
        lost. Raises :class:`ConnectionLost` if it stays lost."""

    async def run(self) -> None:
        """Carry calls until :meth:`close`, which must follow."""

    async def close(self) -> None:
        """End it in bounded time, also if cancelled: what waits fails."""

    def abort(self) -> None:
        """Carry no call any more: what waits fails. Let :meth:`close` go to the end at once. Never
        waits."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """Calls in flight, oldest first."""

    @property
    def gone(self) -> bool:
        """Whether it can carry no call any more."""

    def open(self, method: str, params: Mapping[str, Any], target: str | None = None) -> Call:
        """Start a call. Never waits."""

    def reserve(self, method: str, target: str | None = None) -> Call:
        """A call that is not sent yet. Never waits."""

    def send(self, call: Call, params: Mapping[str, Any]) -> None:
        """Send a call that was reserved, and is RUNNING. Never waits."""

    def cancel(self, call: Call, source: CancelSource, reason: str | None = None) -> bool:
        """Cancel a call; the server is told by the wire's own means. Never waits."""

    def violation_since(self, when: float) -> str | None:
        """The newest violation, if it came after ``when``."""

    def in_session(self, session: Session) -> SessionConnection:
        """The connection for a session with the same server: this one, or one that has to be run
        and closed as well. Never waits."""


class SessionConnection(CallConnection, Protocol):
    """A connection in a session: it also carries what belongs to no call."""

    def say(self, frame: bytes) -> None:
        """Send a message that is no request. Never waits; what a lost connection cannot send is
        dropped."""

    async def begin(self, frame: bytes) -> None:
        """The session is agreed on: say so with ``frame``, before anything else goes out."""

    async def hears_changes(self) -> None:
        """Wait until the server can tell of changes in the session, or cannot at all."""


class Unasked:
    """What a server sends besides answers and progress: log messages and changes, for those who
    want them, and what is against the specification: counted, and the first few logged."""

    session: Session | None = None

    def __init__(self, label: str) -> None:
        self.label = label
        self.on_log: OnLog | None = None
        self.violations = 0
        self.last_violation: str | None = None
        self.restarts = 0
        self.restarting = False
        self._violated_at = -math.inf

    @property
    def why_lost(self) -> str | None:
        """``None``: where each call fails alone, there is nothing to lose."""
        return None

    async def renewed(self, since: int) -> bool:
        """``False``: who is lost stays lost."""
        await trio.lowlevel.checkpoint()
        return False

    def violation_since(self, when: float) -> str | None:
        """The newest violation, if it came after ``when``."""
        return self.last_violation if self._violated_at >= when else None

    def _violation(self, what: str) -> None:
        self.violations += 1
        self.last_violation = what
        self._violated_at = trio.current_time()
        if self.violations <= _LOGGED_VIOLATIONS:
            logger.warning("%s sent %s", self.label, what)

    def _on_request(self, request: Request, call: Call | None = None) -> None:
        if self.session is None:
            self._violation("a request from the server, which this revision does not have")
        elif (wrong := self.session.on_request(request, call)) is not None:
            self._violation(wrong)

    def _on_malformed(self, error: ProtocolError, frame: Frame) -> None:
        """Something that is no message. In a session it may have been meant for a question: then
        the server is told, instead of left to wait for an answer."""
        session, request_id = self.session, error.request_id
        if session is None or request_id is None or isinstance(frame, Oversize):
            return
        if "method" in decode(frame):  # without one it is no request, and maybe an answer
            session.on_malformed(encode_error(request_id, error))

    def _on_told(self, session: Session, method: str, params: dict[str, Any]) -> None:
        if (wrong := session.on_notification(method, params)) is not None:
            self._violation(wrong)

    def _on_log(self, params: dict[str, Any]) -> None:
        if self.on_log is None:
            self._violation("a log message, which nobody asked for")
        elif (wrong := self.on_log(params)) is not None:
            self._violation(wrong)

    def _on_subscribed(self, call: Call | None, method: str, params: dict[str, Any]) -> None:
        """A notification of the subscription that ``call`` has opened."""
        if call is None or call.listener is None or call.state in (State.COMPLETED, State.FAILED):
            self._violation(f"{method} of no subscription")
        elif call.state is not State.RUNNING:
            pass  # it crossed our cancellation
        elif (wrong := call.listener(method, params)) is not None:
            self._violation(wrong)


def encode_call(
    request_id: RequestId, method: str, params: Mapping[str, Any], limits: Limits
) -> bytes:
    """A request whose id doubles as its progress token.

    Raises ``ValueError`` or ``TypeError`` for what JSON cannot hold or what is longer than
    ``Limits.message_bytes``.
    """
    meta = {**params.get("_meta", {}), "progressToken": request_id}
    frame = encode_request(request_id, method, {**params, "_meta": meta})
    if len(frame) > limits.message_bytes:
        raise ValueError(
            f"the request has {len(frame)} bytes, more than the limit "
            f"message_bytes={limits.message_bytes}"
        )
    return frame


def subscription_of(params: Mapping[str, Any]) -> RequestId | None:
    """The id of the subscription that a notification belongs to; ``None`` for none."""
    meta = params.get("_meta")
    subscription_id = meta.get(META_SUBSCRIPTION_ID) if type(meta) is dict else None
    return subscription_id if is_request_id(subscription_id) else None


def read_progress(params: dict[str, Any], limits: Limits) -> ProgressUpdate:
    """An update with at most ``Limits.text_length`` characters of its message. Raises
    ``TypeError``, ``ValueError`` or ``OverflowError`` for a malformed one."""
    update = check_progress(
        params.get("progress"),  # type: ignore[arg-type]  # checked there
        params.get("total"),
        params.get("message"),
    )
    if update.message is None:
        return update
    return attrs.evolve(update, message=update.message[: limits.text_length])


class ClientConnection(Unasked):
    """A channel to one server, with the calls that wait for its answers.

    ``ids`` are those of its requests. ``over`` is set in the step in which it is lost, before what
    waits fails.
    """

    def __init__(
        self, wire: Wire, limits: Limits, journal: Journal, process: ServerProcess | None = None
    ) -> None:
        super().__init__(wire.label)
        self.journal = journal
        self.process = process
        self._wire = wire
        self._limits = limits
        self._channel = Channel(wire, limits)
        self.ids: Iterator[int] = itertools.count(1)
        self.over = trio.Event()
        self._calls: dict[RequestId, Call] = {}
        self._cancelled: OrderedDict[RequestId, Call] = OrderedDict()
        self._listened: OrderedDict[RequestId, Call] = OrderedDict()
        self._life = trio.CancelScope(shield=True)
        self._grace: trio.CancelScope | None = None
        self._aborted = False
        self._lost: str | None = None
        self._written = trio.Event()
        self._heard = trio.Event()

    @property
    def why_lost(self) -> str | None:
        return self._lost

    # Life of the connection -----------------------------------------------------------------------

    async def run(self) -> None:
        """Read and write until :meth:`close`, which must follow.

        Shielded until then: what a cancelled caller has to say to the server still goes out.
        """
        try:
            with self._life:
                async with trio.open_nursery() as nursery:
                    if self.process is not None:
                        nursery.start_soon(self.process.drain_stderr)
                        nursery.start_soon(self._watch, self.process)
                    nursery.start_soon(self._write)
                    await self._channel.read(self._on_message, self._on_garbage)
                    if self.process is not None:
                        await self.process.settle()
                    self._lose(_end_of(self._wire))
                    self._heard.set()
        finally:  # a Ctrl-C may have struck in one of the tasks
            self._lose("the client was interrupted")
            self._written.set()

    async def close(self) -> None:
        """End it: what waits fails, what is queued goes out if the server reads, in bounds.

        Cancelling it does not cut it short: a launched server gets its graded end in any case, so
        that what it still does has its chance to be cleaned up. Only :meth:`abort` does.
        """
        limits = self._limits
        self._lose("the client was closed")
        self._channel.finish()
        self._channel.shorten_stall(limits.exit_wait)
        bound = 2 * limits.exit_wait + limits.terminate_wait
        self._grace = trio.CancelScope(shield=True, deadline=trio.current_time() + bound)
        if self._aborted:
            self._grace.cancel("aborted")
        try:
            with self._grace:
                with trio.move_on_after(limits.exit_wait):
                    await self._written.wait()
                if self.process is not None:
                    await self.process.shut_down()
        finally:
            if self.process is not None:
                await self.process.kill()
            self._life.cancel("the client was closed")
            await close_wire(self._wire)

    def abort(self) -> None:
        """What waits fails. No grace: :meth:`close`, now or later, goes to the end at once. Never
        waits."""
        self._aborted = True
        self._lose("the client was aborted")
        if self._grace is not None:
            self._grace.cancel("aborted")

    async def _write(self) -> None:
        source = await self._channel.write()
        self._written.set()
        if source is CancelSource.STALLED:
            self._lose(f"the server read nothing for stall={self._limits.stall:g} s")
        elif source is CancelSource.DISCONNECT:
            await self._lose_after_the_last_words("the server does not read any more")

    async def _watch(self, process: ServerProcess) -> None:
        """Not every end of a process ends its stdout: a child that it left may hold it open."""
        await process.ended()
        await self._lose_after_the_last_words("the server process ended")

    async def _lose_after_the_last_words(self, why: str) -> None:
        with trio.move_on_after(self._limits.exit_wait):
            await self._heard.wait()
        self._lose(why)

    def _lose(self, why: str) -> None:
        if self._lost is not None:
            return
        self._lost = why
        self.over.set()
        for call in list(self._calls.values()):
            call.lost(self._loss(why, sent=call.sent))
        if self.session is not None:
            self.session.lost()

    def _loss(self, why: str, *, sent: bool) -> ConnectionLost:
        process = self.process
        loss = ConnectionLost(
            why,
            sent=sent,
            exit_status=process.exit_status if process is not None else None,
            stderr_tail=process.stderr_tail if process is not None else "",
        )
        if self.last_violation is not None:
            loss.add_note(f"Before, the server sent {self.last_violation}")
        return loss

    # Calls ----------------------------------------------------------------------------------------

    @property
    def calls(self) -> tuple[Call, ...]:
        """Calls in flight, oldest first."""
        return tuple(self._calls.values())

    @property
    def gone(self) -> bool:
        """Whether the connection is lost or closed."""
        return self._lost is not None

    def open(self, method: str, params: Mapping[str, Any], target: str | None = None) -> Call:
        """Start a call: queue its request. Never waits.

        The request's id doubles as its progress token. Raises :class:`ConnectionLost` if the
        connection is gone, ``ValueError`` or ``TypeError`` for what JSON cannot hold or what is
        longer than ``Limits.message_bytes``.
        """
        if self._lost is not None:
            raise self._loss(self._lost, sent=False)
        request_id = next(self.ids)
        frame = encode_call(request_id, method, params, self._limits)
        call = self._new_call(request_id, method, target, frame)
        self._channel.put(call)
        return call

    def reserve(self, method: str, target: str | None = None) -> Call:
        """A call that is not sent yet; it can be cancelled, and is lost with the connection. Never
        waits. Raises :class:`ConnectionLost`."""
        if self._lost is not None:
            raise self._loss(self._lost, sent=False)
        return self._new_call(next(self.ids), method, target, None)

    def send(self, call: Call, params: Mapping[str, Any]) -> None:
        """Send a call that was reserved, and is RUNNING. Never waits, and raises what :meth:`open`
        raises."""
        call.load(encode_call(call.id, call.method, params, self._limits))
        self._channel.put(call)

    def adopt(self, call: Call) -> None:
        """Carry a call that was made elsewhere and has not been sent. Never waits."""
        call.move(self.label, self._forget)
        self._calls[call.id] = call
        if call.frame is not None:
            self._channel.put(call)

    def _new_call(
        self, request_id: RequestId, method: str, target: str | None, frame: bytes | None
    ) -> Call:
        call = Call(
            request_id,
            method,
            target,
            frame,
            self.label,
            self.journal,
            self._forget,
            self._limits,
        )
        self._calls[request_id] = call
        return call

    def cancel(self, call: Call, source: CancelSource, reason: str | None = None) -> bool:
        """Cancel a call: the server is told, if it has heard of the call at all. Never waits."""
        if reason is not None:  # it goes to the peer, and must be text that can
            reason = reason[: self._limits.text_length].encode(errors="backslashreplace").decode()
        if not call.cancel(source, reason):
            return False
        if not call.sent:
            call.stopped()
        else:
            self._channel.put(_Cancellation(call, reason))
        return True

    def _forget(self, call: Call) -> None:
        del self._calls[call.id]
        if call.state is State.CANCELLED and call.sent:
            self._remember(self._cancelled, call)
        if call.listener is not None:
            self._remember(self._listened, call)
        if self.session is not None:
            self.session.call_ended(call)

    def _remember(self, ended: OrderedDict[RequestId, Call], call: Call) -> None:
        ended[call.id] = call
        while len(ended) > self._limits.late_answers:
            ended.popitem(last=False)

    # A session ------------------------------------------------------------------------------------

    def in_session(self, session: Session) -> SessionConnection:
        self.session = session
        return self

    def say(self, frame: bytes) -> None:
        """Queue a message that is no request. A server that does not read what it asked for is
        given up. Never waits."""
        if self._lost is not None:
            return
        self._channel.put(Bare(frame))
        if self._channel.refused_bytes > self._limits.bytes_per_connection:
            self._lose("the server asks, and does not read the answers")

    async def begin(self, frame: bytes) -> None:
        self.say(frame)
        await trio.lowlevel.checkpoint()

    async def hears_changes(self) -> None:
        await trio.lowlevel.checkpoint()

    # What the server says -------------------------------------------------------------------------

    def _on_message(self, message: Message, now: float) -> None:
        if type(message) is Response:
            self._on_response(message)
        elif type(message) is Notification:
            if message.method == "notifications/progress":
                self._on_progress(message.params)
            else:
                self._on_notification(message.method, message.params)
        elif type(message) is Request:
            self._on_request(message)

    def _on_response(self, response: Response) -> None:
        request_id = response.id
        if request_id is None:
            message = (response.error or {}).get("message")
            self._violation(f"an error about no request: {reprlib.repr(message)}")
            return
        call = self._calls.get(request_id) or self._cancelled.pop(request_id, None)
        if call is None or call.sent_at is None:
            if self._lost is None:  # or it may be to one that was lost
                self._violation("an answer to an unknown request")
        else:
            call.answered(response)

    def _on_progress(self, params: dict[str, Any]) -> None:
        token = params.get("progressToken")
        call = self._calls.get(token) if is_request_id(token) else None
        if call is None or call.state is not State.RUNNING or call.sent_at is None:
            return  # late: it crossed our cancellation, or the answer
        try:
            update = read_progress(params, self._limits)
        except (TypeError, ValueError, OverflowError) as error:
            self._violation(f"a malformed progress notification: {error}")
        else:
            call.heard_progress(update)

    def _on_notification(self, method: str, params: dict[str, Any]) -> None:
        if self.session is not None:
            self._on_told(self.session, method, params)
        elif method in SUBSCRIBED:
            listen = subscription_of(params)
            call = None
            if listen is not None:
                call = self._calls.get(listen) or self._listened.get(listen)
            self._on_subscribed(call, method, params)
        elif method == "notifications/message":
            self._on_log(params)
        elif method == "notifications/cancelled":
            self._on_cancelled(params.get("requestId"))

    def _on_cancelled(self, request_id: object) -> None:
        """The server has left a subscription; it says so after the result that ends it."""
        if is_request_id(request_id):
            call = self._calls.get(request_id)
            if call is not None and call.listener is not None:
                why = "the server ended the subscription without a result"
                call.lost(ConnectionLost(why, sent=True))
                return
            if request_id in self._listened:
                return
        self._violation("a cancellation of what is no subscription")

    def _on_garbage(self, error: ProtocolError, frame: Frame) -> None:
        call = None if error.response_id is None else self._calls.get(error.response_id)
        if call is not None:
            call.broken(ProtocolViolation(f"{call.name}: {error.message}"))
        self._violation(f"something that is no message: {error.message}{_quoted(frame)}")
        self._on_malformed(error, frame)


def _end_of(wire: Wire) -> str:
    why = wire.why if isinstance(wire, ExplainedWire) else None
    return why if why is not None else "the server closed the connection"


def _quoted(frame: Frame) -> str:
    """The beginning of a line that is no message, for people who print to the wire by mistake."""
    if isinstance(frame, Oversize):
        return ""
    text = ascii(frame[:60].decode(errors="replace"))
    return f"; it begins with {text}"


class _Cancellation:
    """``notifications/cancelled`` for a call, which has stopped once this is on its way."""

    def __init__(self, call: Call, reason: str | None) -> None:
        self._call = call
        params: dict[str, Any] = {"requestId": call.id}
        if reason is not None:
            params["reason"] = reason
        self._frame = encode_notification("notifications/cancelled", params)
        self.size = len(self._frame)

    def take(self) -> bytes | None:
        return self._frame

    def written(self, delivered: bool) -> None:
        if self._call.state is State.CANCELLING:
            self._call.stopped()
