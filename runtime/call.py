"""One outbound request, the mirror of an exchange: same lifecycle, seen from the other side.

``CANCELLING``: the cancellation is decided and on its way. ``CANCELLED``: the peer has been told,
or could not be, and nobody waits for the answer any more. Whether the peer's work has stopped only
the peer knows: the outcome of a cancelled call is unknown. An answer that comes anyway is late:
recorded, never delivered.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from .errors import ConnectionLost, ProtocolViolation, ServerError
from .journal import CallStatus, Journal, Record
from .jsonrpc import RequestId, Response
from .lifecycle import CancelCause, CancelSource, Lifecycle, State
from .limits import Limits
from .progress import ProgressUpdate
from .server_errors import Overloaded, server_error
from .tracing import GuardedCallSpan

__all__ = ["Call"]

_keys = itertools.count(1)


class Call(Lifecycle):
    """A request being made. An :class:`~.exchange.Outgoing`: it is sent when its turn comes.

    Without a frame it is reserved: it has an id, can be cancelled and be lost, but has to be
    :meth:`load`-ed before it is sent.
    """

    attempt = 1
    """Which attempt at a call this is."""

    on_input_required: Callable[[dict[str, Any]], Exception | None] | None = None
    """Called with a result that asks for input, before the call ends: somebody will go on. Returns
    the call's error if nobody can."""

    on_failed: Callable[[Exception], None] | None = None
    """Called with the error, before the call ends: somebody may make it again."""

    asking = 0
    """Questions of the peer that are being answered: meanwhile it waits for us, and is not silent.
    """

    listener: Callable[[str, dict[str, Any]], str | None] | None = None
    """Of a subscription: called with the method and the parameters of its notifications. Returns
    what is wrong with one, if anything is."""

    def __init__(
        self,
        request_id: RequestId,
        method: str,
        target: str | None,
        frame: bytes | None,
        connection: str,
        journal: Journal,
        forget: Callable[[Call], None],
        limits: Limits,
    ) -> None:
        super().__init__()
        self.key = self.first_key = next(_keys)
        self.id = request_id
        self.method = method
        self.target = target
        self.began_at = trio.current_time()
        self.sent_at: float | None = None
        self.last_progress: ProgressUpdate | None = None
        self.updates: deque[ProgressUpdate] = deque(maxlen=limits.progress_backlog)
        self.heard_at = self.began_at
        self.record: Record | None = None
        self.changed = trio.Event()
        self.trace_id: str | None = None
        self.span: GuardedCallSpan | None = None
        self._frame = frame
        self._connection = connection
        self._journal = journal
        self._forget = forget
        self._result: dict[str, Any] | None = None
        self._error: Exception | None = None
        self._clip = limits.text_length
        self._progress_count = 0

    @property
    def name(self) -> str:
        return f"{self.method} {self.target}" if self.target else self.method

    @property
    def sent(self) -> bool:
        """Whether the request has begun to go out."""
        return self.sent_at is not None

    def status(self) -> CallStatus:
        """The call as it is now."""
        return CallStatus(
            key=self.key,
            first_key=self.first_key,
            request_id=self.id,
            method=self.method,
            target=self.target,
            connection=self._connection,
            state=self.state,
            cause=self.cause,
            sent=self.sent,
            attempt=self.attempt,
            began_at=self.began_at,
            at=trio.current_time(),
        )

    def tell(self) -> None:
        """Those who watch hear of the state that the call has come to."""
        if self._journal.watched:
            self._journal.tell(self.status())

    def result(self) -> dict[str, Any]:
        """The result's JSON, once COMPLETED. Raises the error, once FAILED."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    @property
    def error(self) -> Exception | None:
        """Why it FAILED."""
        return self._error

    # On its way out (an Outgoing) -----------------------------------------------------------------

    @property
    def frame(self) -> bytes | None:
        """The request, as long as it has not been sent."""
        return self._frame

    def load(self, frame: bytes) -> None:
        """The request of a reserved call, which can be sent now."""
        self._frame = frame

    def move(self, connection: str, forget: Callable[[Call], None]) -> None:
        """Another connection carries it from now on; it has not been sent."""
        self._connection = connection
        self._forget = forget

    @property
    def size(self) -> int:
        return 0 if self._frame is None else len(self._frame)

    def take(self) -> bytes | None:
        frame, self._frame = self._frame, None
        if self.state is not State.RUNNING:
            return None  # cancelled before it was sent: the peer never hears of it
        self.sent_at = trio.current_time()
        return frame

    def written(self, delivered: bool) -> None:
        pass

    # What happens to it ---------------------------------------------------------------------------

    def heard_progress(self, update: ProgressUpdate) -> None:
        self._progress_count += 1
        self.last_progress = update
        self.updates.append(update)
        self.heard_at = trio.current_time()
        self.wake()

    def answered(self, response: Response, challenge: str | None = None) -> None:
        """The peer's answer. Late, if the call is not RUNNING any more. ``challenge`` comes with
        an error over HTTP that wants to know who asks."""
        if self.state is State.RUNNING:
            self._result = response.result
            error: Exception | None = None
            if response.error is not None:
                error = server_error(response.error, self.method, self.target, challenge)
            elif (
                self.on_input_required is not None
                and response.result is not None
                and response.result.get("resultType") == "input_required"
            ):
                error = self.on_input_required(response.result)
            self.claim(failed=error is not None)
            if error is None:
                self._end()
            else:
                self._fail(error)
            return
        cause = self.cause
        since = cause.received_at if cause is not None else self.began_at
        late = self.note_late("answer", trio.current_time() - since)
        if self.record is not None:
            self._journal.add_late(self.record, late, self.late)

    def send_again(self, request_id: RequestId, frame: bytes) -> None:
        """The peer refused the request without running it: it goes out as a new one."""
        self.id = request_id
        self.sent_at = None
        self._frame = frame

    def lost(self, error: ConnectionLost | ProtocolViolation | Overloaded) -> None:
        """No answer will come, or none that can be read: the call fails, its outcome unknown if it
        was sent, unless something has refused it."""
        if self.state is State.CANCELLING:
            self.stopped()
        elif self.claim(failed=True):
            self._fail(error)

    def broken(self, error: ProtocolViolation) -> None:
        """The peer answered with something that is no answer."""
        if self.claim(failed=True):
            self._fail(error)

    def cancel(self, source: CancelSource, reason: str | None) -> bool:
        """Decide to cancel. The connection then tells the peer, and calls :meth:`stopped`."""
        if not self.begin_cancel(CancelCause(source, reason, trio.current_time())):
            return False
        self._frame = None  # if it has not been sent yet, it never will be
        self.tell()
        self.wake()
        return True

    def stopped(self) -> None:
        """The peer has been told, or cannot be."""
        self.note_unwound()
        self._end()

    async def left_running(self) -> None:
        """Wait until the call is not RUNNING any more."""
        while self.state is State.RUNNING:
            await self.changed.wait()

    def wake(self) -> None:
        """Something changed: whoever waits looks again."""
        self.changed.set()
        self.changed = trio.Event()

    def go_on_from(self, earlier: Call) -> None:
        """Be the next round of a call: its owner has seen nothing of the change, and its span goes
        on."""
        self.updates = earlier.updates
        self.last_progress = earlier.last_progress
        self.trace_id = earlier.trace_id
        self.span, earlier.span = earlier.span, None
        self.first_key = earlier.first_key
        self.attempt = earlier.attempt
        self.tell()

    def repeat(self, earlier: Call, attempt: int) -> None:
        """Be the next attempt at a call: what its owner has not seen yet stays to be seen."""
        self.updates = earlier.updates
        self.trace_id = earlier.trace_id
        self.first_key = earlier.first_key
        self.attempt = attempt
        self.tell()

    def _fail(self, error: Exception) -> None:
        self._error = error
        try:
            if self.on_failed is not None:
                self.on_failed(error)
        finally:
            self._end()

    def _end(self) -> None:
        self._forget(self)
        self.on_input_required = self.on_failed = None  # no circle for the garbage collector
        now = trio.current_time()
        cancelled = self.cause is not None
        self.record = Record(
            role="client",
            key=self.key,
            request_id=self.id,
            method=self.method,
            target=self.target,
            connection=self._connection,
            peer=None,
            principal=None,
            protocol_version=None,
            received_at=self.began_at,
            started_at=self.sent_at,
            unwound_at=now if cancelled else None,
            ended_at=now,
            state=self.state,
            cause=self.cause,
            extra_cancels=self.extra_cancels,
            error=str(self._error)[: self._clip] if self._error is not None else None,
            is_error=self._result is not None and self._result.get("isError") is True,
            delivered=None,
            cleanup=None,
            cleanups=0,
            late=self.late,
            progress_reported=self._progress_count,
            progress_sent=0,
            trace_id=self.trace_id,
            attempt=self.attempt,
            changes_sent=0,
            changes_coalesced=0,
        )
        self._journal.add(self.record)
        if self.span is not None:
            self.span.end(self.record, _failure_of(self._error))
        self.tell()
        self.wake()


def _failure_of(error: Exception | None) -> int | str | None:
    if isinstance(error, ServerError):
        return error.code
    return None if error is None else type(error).__name__
