"""A call in flight, as its owner sees it: waiting for it, its progress, its cancellation."""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import attrs
import trio

from ..runtime.call import Call
from ..runtime.errors import (
    CallCancelled,
    CallTimeout,
    ConnectionLost,
    ProtocolViolation,
    ServerError,
)
from ..runtime.journal import Record
from ..runtime.jsonrpc import decode
from ..runtime.lifecycle import CancelCause, CancelSource, State
from ..runtime.limits import Limits
from ..runtime.models.converter import ModelError, structure
from ..runtime.models.tools import CallToolResult
from ..runtime.progress import ProgressUpdate
from ..transports.calling import CallConnection
from .answers import Answers, Asked

__all__ = [
    "OnProgress",
    "PendingCall",
    "StartedCall",
    "Timeouts",
    "ToolCall",
    "cancel_calls",
    "read_result",
]

M = TypeVar("M")
R = TypeVar("R", covariant=True)

OnProgress: TypeAlias = Callable[[ProgressUpdate], Awaitable[None] | None]

Limit: TypeAlias = Literal["timeout", "max_timeout"]


def _seconds(_: Timeouts, attribute: attrs.Attribute[float], value: float) -> None:
    if not value > 0:
        name = "timeout" if attribute.name == "idle" else "max_timeout"
        raise ValueError(f"{name} must be more than 0 seconds, not {value!r}")


@attrs.frozen
class Timeouts:
    """Seconds; ``inf`` for none. ``idle`` begins anew with each progress notification, unless
    ``reset_on_progress`` is false, and with each round."""

    idle: float = attrs.field(validator=_seconds)
    total: float = attrs.field(validator=_seconds)
    reset_on_progress: bool = True
    announced: bool = False
    """Whether the server is told of ``total``."""

    def but(
        self, idle: float | None, total: float | None, reset_on_progress: bool | None = None
    ) -> Timeouts:
        """These, with what is not ``None`` in their place."""
        if idle is None and total is None and reset_on_progress is None:
            return self
        return Timeouts(
            self.idle if idle is None else idle,
            self.total if total is None else total,
            self.reset_on_progress if reset_on_progress is None else reset_on_progress,
            self.announced,
        )


class PendingCall:
    """A call with its timeouts, whose owner waits in its own task.

    It may take several rounds, with ``answers`` to what the server asks for: each is a request of
    its own, ``call`` is the newest. The next one is reserved in the step in which the server asks,
    so that what is said about the call's state is true while the application's callbacks run. They
    run in the task that waits (specification: *Multi Round-Trip Requests*).
    """

    _asked: dict[str, Any] | None = None
    _answering = False
    _rounds = 0
    _pauses = 0

    def __init__(
        self,
        connection: CallConnection,
        call: Call,
        timeouts: Timeouts,
        limits: Limits,
        answers: Answers | None = None,
        earlier: PendingCall | None = None,
    ) -> None:
        """``earlier`` is the attempt before this one: they have one total time."""
        self.call = call
        self._connection = connection
        self._timeouts = timeouts
        self._limits = limits
        self._began_at = self._round_began_at = call.began_at
        self._answers = answers
        if earlier is not None:
            self._began_at = earlier._began_at
            call.first_key = earlier.call.first_key
            call.attempt = earlier.call.attempt + 1
        call.tell()
        if answers is not None:
            self._frame = call.frame
            call.on_input_required = self._go_on

    @property
    def rounds(self) -> int:
        """Times that the server has asked for input."""
        return self._rounds

    def left(self) -> float:
        """Seconds until the total time is over, for a next attempt."""
        return self._began_at + self._timeouts.total - trio.current_time()

    def last_start(self, timeout: float) -> float:
        """When the last attempt may begin, if the first one may be ``timeout`` seconds ago."""
        return self._began_at + min(timeout, self._timeouts.total)

    async def finish(self, on_progress: OnProgress | None = None) -> dict[str, Any]:
        """Wait for the result. However this is left, the call is over or cancelled."""
        try:
            while True:
                if on_progress is not None and self.call.updates:
                    await self._deliver(on_progress, self.call.updates.popleft())
                elif not await self.next_change():
                    return self._result()
        except BaseException as error:
            self.abandon(f"the caller {_what_happened(error)}")
            raise

    def _result(self) -> dict[str, Any]:
        try:
            return self.call.result()
        except ConnectionLost as error:
            error.sent = error.sent or self._rounds > 0  # an earlier round has been
            raise
        except ServerError as error:
            error.refused = error.refused and self._rounds == 0  # an earlier round has run
            raise

    async def next_change(self) -> bool:
        """Wait until something happens to the call; ``False`` once it has its result or error."""
        call = self.call
        if call.state is State.COMPLETED or call.state is State.FAILED:
            await trio.lowlevel.checkpoint()
            return False
        if call.state is not State.RUNNING:
            raise CallCancelled(_why(call))
        if self._asked is not None and not self._answering:
            await self._answer(self._asked)
            return True
        changed = call.changed
        idle_at, total_at = self._expiries()
        with trio.CancelScope(deadline=min(idle_at, total_at)) as scope:
            await changed.wait()
        if scope.cancelled_caught and call.state is State.RUNNING:
            raise self._time_out("timeout" if idle_at <= total_at else "max_timeout")
        return True

    def cancel(self, reason: str | None) -> None:
        self._connection.cancel(self.call, CancelSource.CALLER, reason)

    def abandon(self, reason: str) -> None:
        """Cancel the call if it still runs."""
        if self.call.state is State.RUNNING:
            self.cancel(reason)

    async def _deliver(self, on_progress: OnProgress, update: ProgressUpdate) -> None:
        """The owner's callback may be slow: that is no silence of the server, but takes time."""
        _, total_at = self._expiries()
        began_at = trio.current_time()
        with trio.CancelScope(deadline=total_at) as scope:
            called = on_progress(update)
            if inspect.isawaitable(called):
                await called
        now = trio.current_time()
        taken = now - began_at  # which was no silence of the server
        self.call.heard_at = min(now, self.call.heard_at + taken)
        self._round_began_at = min(now, self._round_began_at + taken)
        late = scope.cancelled_caught or trio.current_time() >= total_at
        if late and self.call.state is State.RUNNING:
            raise self._time_out("max_timeout")

    # Further rounds -------------------------------------------------------------------------------

    def _go_on(self, result: dict[str, Any]) -> None:
        """The server asks for input, which ends a request, and not the call."""
        call = self._connection.reserve(self.call.method, self.call.target)
        call.go_on_from(self.call)
        call.on_input_required = self._go_on
        self.call = call
        self._rounds += 1
        self._asked = result

    async def _answer(self, result: dict[str, Any]) -> None:
        """Have the callbacks answer, and make the call again. What they raise cancels the call."""
        call = self.call
        try:
            asked = self._read(call, result)
        except ProtocolViolation as error:
            self._asked = None
            call.broken(error)
            return
        _, total_at = self._expiries()
        self._answering = True
        try:
            with trio.CancelScope(deadline=total_at) as scope:
                more = await self._more_params(call, asked)
            if call.state is State.RUNNING:
                if scope.cancelled_caught or trio.current_time() >= total_at:
                    raise self._time_out("max_timeout")
                assert self._frame is not None
                params = decode(self._frame)["params"]  # the very same, whatever became of ours
                call.heard_at = self._round_began_at = trio.current_time()
                self._connection.send(call, {**params, **more})
        except BaseException as error:
            self.abandon(f"the caller {_what_happened(error)}")
            raise
        finally:
            self._answering = False
            self._asked = None
        call.wake()  # others who wait have timeouts again

    def _read(self, call: Call, result: dict[str, Any]) -> Asked:
        assert self._answers is not None
        if self._rounds > self._limits.input_rounds:
            raise ProtocolViolation(
                f"{call.name}: the server asks for input again and again, more than "
                f"input_rounds={self._limits.input_rounds} times"
            )
        return self._answers.read(result, call.name, self._limits.input_requests)

    async def _more_params(self, call: Call, asked: Asked) -> dict[str, Any]:
        """What goes with the next round, if the call still runs then."""
        assert self._answers is not None
        more: dict[str, Any] = {}
        if asked.questions:
            more["inputResponses"] = await self._answers.ask(asked.questions, call.left_running)
        else:
            await self._pause(call)
        if asked.request_state is not None:
            more["requestState"] = asked.request_state
        return more

    async def _pause(self, call: Call) -> None:
        """The server wants to be asked again, and nothing else: at once, then less eagerly."""
        with trio.move_on_after(self._limits.input_pause * self._pauses):
            await call.left_running()
        self._pauses += 1

    # Timeouts -------------------------------------------------------------------------------------

    def _expiries(self) -> tuple[float, float]:
        timeouts = self._timeouts
        waits = self._asked is not None or self.call.asking  # it does, for us
        heard_at = self.call.heard_at if timeouts.reset_on_progress else self._round_began_at
        idle_at = math.inf if waits else heard_at + timeouts.idle
        return idle_at, self._began_at + timeouts.total

    def _time_out(self, limit: Limit) -> CallTimeout:
        call = self.call
        seconds = self._timeouts.idle if limit == "timeout" else self._timeouts.total
        sent = call.sent
        self._connection.cancel(
            call, CancelSource.TIMEOUT, f"no answer within {limit}={seconds:g} s"
        )
        error = CallTimeout(
            call.name,
            limit=limit,
            seconds=seconds,
            elapsed=trio.current_time() - self._began_at,
            last_progress=call.last_progress,
            outcome="unknown" if sent or self._rounds else "not sent",
        )
        if (violation := self._connection.violation_since(self._began_at)) is not None:
            error.add_note(f"In the meantime the server sent {violation}")
        return error


class StartedCall(Generic[R]):
    """A call in flight, as its owner sees it.

    Its timeouts act while its owner waits: in :meth:`result`, or for :attr:`progress`. There too,
    callbacks answer what the server asks for; to cancel one cancels the call.
    """

    def __init__(
        self, pending: PendingCall, model: type[R], check: Callable[[R], R] | None = None
    ) -> None:
        """``model`` is what the result is read as; ``check`` may refuse it then."""
        self._pending = pending
        self._model = model
        self._check = check

    @property
    def _call(self) -> Call:
        return self._pending.call

    @property
    def state(self) -> State:
        """CANCELLING: the cancellation is on its way. CANCELLED: the server has been told.

        RUNNING too while callbacks answer what the server asks for.
        """
        return self._call.state

    @property
    def cause(self) -> CancelCause | None:
        """Why it is being cancelled; ``None`` while it is not."""
        return self._call.cause

    @property
    def record(self) -> Record | None:
        """What became of the call, once it has ended. Late answers are counted here.

        Each round is a request of its own, and has a record of its own: this is the last one's.
        """
        return self._call.record

    @property
    def last_progress(self) -> ProgressUpdate | None:
        """The newest update that has come, taken or not."""
        return self._call.last_progress

    @property
    def progress(self) -> AsyncIterator[ProgressUpdate]:
        """Updates as they come, until the call ends: ``async for update in call.progress``.

        At most ``Limits.progress_backlog`` wait to be taken; the newest win.
        """
        return _Updates(self._pending)

    async def result(self) -> R:
        """Wait for the result. Raises what :meth:`.client.Client.call_tool` raises, and
        :class:`~trio_mcp.CallCancelled` after :meth:`cancel`, at once."""
        result = read_result(self._model, await self._pending.finish(), self._call.method)
        return result if self._check is None else self._check(result)

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the call; the server is told why. Never waits, and may be called twice."""
        self._pending.cancel(reason)

    async def ended(self) -> Record:
        """Wait until the state is terminal, after :meth:`cancel` until the server has been told.

        Bounded by ``Limits.stall`` for a call that was cancelled. Raises nothing of the call's own;
        cancelling it does nothing to the call.
        """
        while self._call.record is None:
            await self._call.changed.wait()
        await trio.lowlevel.checkpoint()
        return self._call.record


class ToolCall(StartedCall[CallToolResult]):
    """A tool's call in flight. Made by :meth:`.client.Client.start_tool`."""

    def __init__(
        self, pending: PendingCall, check: Callable[[CallToolResult], CallToolResult]
    ) -> None:
        super().__init__(pending, CallToolResult, check)


class _Updates:
    """The updates of one call. No generator: leaving the loop early leaves nothing behind."""

    def __init__(self, pending: PendingCall) -> None:
        self._pending = pending

    def __aiter__(self) -> _Updates:
        return self

    async def __anext__(self) -> ProgressUpdate:
        pending = self._pending
        await trio.lowlevel.checkpoint()
        while not pending.call.updates:
            if pending.call.state is not State.RUNNING:
                raise StopAsyncIteration
            await pending.next_change()
        return pending.call.updates.popleft()


def cancel_calls(connection: CallConnection, reason: str | None) -> list[Call]:
    """Cancel all calls of a connection that run, but for its subscriptions. Never waits."""
    running = [
        call for call in connection.calls if call.state is State.RUNNING and call.listener is None
    ]
    for call in running:
        connection.cancel(call, CancelSource.CALLER, reason)
    return running


def read_result(model: type[M], data: Any, what: str) -> M:
    """A server's JSON as a model. Raises :class:`ProtocolViolation` that names ``what``."""
    try:
        return structure(model, data, at="result")
    except ModelError as error:
        raise ProtocolViolation(f"{what}: {error}") from None


def _what_happened(error: BaseException) -> str:
    if isinstance(error, trio.Cancelled):
        return "was cancelled"
    return "was interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def _why(call: Call) -> str:
    reason = call.cause.reason if call.cause is not None else None
    return f"{call.name} was cancelled" + (f": {reason}" if reason else "")
