"""A call in flight, as its owner sees it: waiting for it, its progress, its cancellation."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

import attrs
import trio

from .runtime.call import Call
from .runtime.errors import CallCancelled, CallTimeout, ProtocolViolation
from .runtime.journal import Record
from .runtime.lifecycle import CancelCause, CancelSource, State
from .runtime.models.converter import ModelError, structure
from .runtime.models.results import InputRequiredResult
from .runtime.models.tools import CallToolResult
from .runtime.progress import ProgressUpdate
from .transports.calling import CallConnection

__all__ = ["OnProgress", "PendingCall", "Timeouts", "ToolCall", "read_result", "read_tool_result"]

M = TypeVar("M")

OnProgress: TypeAlias = Callable[[ProgressUpdate], Awaitable[None] | None]

Limit: TypeAlias = Literal["timeout", "max_timeout"]


def _seconds(_: Timeouts, attribute: attrs.Attribute[float], value: float) -> None:
    if not value > 0:
        name = "timeout" if attribute.name == "idle" else "max_timeout"
        raise ValueError(f"{name} must be more than 0 seconds, not {value!r}")


@attrs.frozen
class Timeouts:
    """Seconds; ``inf`` for none. ``idle`` begins anew with each progress notification."""

    idle: float = attrs.field(validator=_seconds)
    total: float = attrs.field(validator=_seconds)

    def but(self, idle: float | None, total: float | None) -> Timeouts:
        """These, with what is not ``None`` in their place."""
        return Timeouts(self.idle if idle is None else idle, self.total if total is None else total)


class PendingCall:
    """A call with its timeouts, whose owner waits in its own task."""

    def __init__(self, connection: CallConnection, call: Call, timeouts: Timeouts) -> None:
        self.call = call
        self._connection = connection
        self._timeouts = timeouts

    async def finish(self, on_progress: OnProgress | None = None) -> dict[str, Any]:
        """Wait for the result. However this is left, the call is over or cancelled."""
        call = self.call
        try:
            while True:
                if on_progress is not None and call.updates:
                    await self._deliver(on_progress, call.updates.popleft())
                elif not await self.next_change():
                    return call.result()
        except BaseException as error:
            self.abandon(f"the caller {_what_happened(error)}")
            raise

    async def next_change(self) -> bool:
        """Wait until something happens to the call; ``False`` once it has its result or error."""
        call = self.call
        if call.state is State.COMPLETED or call.state is State.FAILED:
            await trio.lowlevel.checkpoint()
            return False
        if call.state is not State.RUNNING:
            raise CallCancelled(_why(call))
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
        with trio.CancelScope(deadline=total_at) as scope:
            called = on_progress(update)
            if inspect.isawaitable(called):
                await called
        late = scope.cancelled_caught or trio.current_time() >= total_at
        if late and self.call.state is State.RUNNING:
            raise self._time_out("max_timeout")

    def _expiries(self) -> tuple[float, float]:
        call, timeouts = self.call, self._timeouts
        return call.heard_at + timeouts.idle, call.began_at + timeouts.total

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
            elapsed=trio.current_time() - call.began_at,
            last_progress=call.last_progress,
            outcome="unknown" if sent else "not sent",
        )
        if (violation := self._connection.violation_since(call.began_at)) is not None:
            error.add_note(f"In the meantime the server sent {violation}")
        return error


class ToolCall:
    """A call in flight, as its owner sees it. Made by :meth:`.client.Client.start_tool`.

    Its timeouts act while its owner waits: in :meth:`result`, or for :attr:`progress`.
    """

    def __init__(self, pending: PendingCall) -> None:
        self._pending = pending
        self._call = pending.call

    @property
    def state(self) -> State:
        """CANCELLING: the cancellation is on its way. CANCELLED: the server has been told."""
        return self._call.state

    @property
    def cause(self) -> CancelCause | None:
        """Why it is being cancelled; ``None`` while it is not."""
        return self._call.cause

    @property
    def record(self) -> Record | None:
        """What became of the call, once it has ended. Late answers are counted here."""
        return self._call.record

    @property
    def last_progress(self) -> ProgressUpdate | None:
        return self._call.last_progress

    @property
    def progress(self) -> AsyncIterator[ProgressUpdate]:
        """Updates as they come, until the call ends: ``async for update in call.progress``.

        At most ``Limits.progress_backlog`` wait to be taken; the newest win.
        """
        return _Updates(self._pending)

    async def result(self) -> CallToolResult:
        """Wait for the result. Raises what :meth:`.client.Client.call_tool` raises, and
        :class:`~trio_mcp.CallCancelled` after :meth:`cancel`, at once."""
        return read_tool_result(await self._pending.finish())

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


class _Updates:
    """The updates of one call. No generator: leaving the loop early leaves nothing behind."""

    def __init__(self, pending: PendingCall) -> None:
        self._pending = pending

    def __aiter__(self) -> _Updates:
        return self

    async def __anext__(self) -> ProgressUpdate:
        call = self._pending.call
        await trio.lowlevel.checkpoint()
        while not call.updates:
            if call.state is not State.RUNNING:
                raise StopAsyncIteration
            await self._pending.next_change()
        return call.updates.popleft()


def read_result(model: type[M], data: Any, what: str) -> M:
    """A server's JSON as a model. Raises :class:`ProtocolViolation` that names ``what``."""
    try:
        return structure(model, data, at="result")
    except ModelError as error:
        raise ProtocolViolation(f"{what}: {error}") from None


def read_tool_result(data: dict[str, Any]) -> CallToolResult:
    try:
        result = structure(CallToolResult | InputRequiredResult, data, at="result")
    except ModelError as error:
        raise ProtocolViolation(f"tools/call: {error}") from None
    if isinstance(result, CallToolResult):
        return result
    raise ProtocolViolation(
        "tools/call: the server asks for input, for which this client declared no capability"
    )


def _what_happened(error: BaseException) -> str:
    if isinstance(error, trio.Cancelled):
        return "was cancelled"
    return "was interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def _why(call: Call) -> str:
    reason = call.cause.reason if call.cause is not None else None
    return f"{call.name} was cancelled" + (f": {reason}" if reason else "")
