"""A call in flight, as who waits for it has it: its rounds, its attempts, its timeouts."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

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
from ..runtime.jsonrpc import decode
from ..runtime.lifecycle import CancelSource, State
from ..runtime.limits import Limits
from ..runtime.models.converter import ModelError, structure
from ..runtime.progress import ProgressUpdate
from ..runtime.server_errors import safe_to_repeat
from ..transports.calling import CallConnection
from .answers import Answers, Asked
from .checks import check_flag, check_seconds
from .retries import Repeats

__all__ = [
    "OnProgress",
    "PendingCall",
    "Timeouts",
    "cancel_calls",
    "read_result",
]

M = TypeVar("M")

OnProgress: TypeAlias = Callable[[ProgressUpdate], Awaitable[None] | None]

Limit: TypeAlias = Literal["timeout", "max_timeout"]


def _seconds(_: Timeouts, attribute: attrs.Attribute[float], value: float) -> None:
    check_seconds("timeout" if attribute.name == "idle" else "max_timeout", value)


def _flag(_: Timeouts, attribute: attrs.Attribute[bool], value: bool) -> None:
    check_flag(attribute.name, value)


@attrs.frozen
class Timeouts:
    """Seconds; ``inf`` for none. ``idle`` begins anew with each progress notification, unless
    ``reset_on_progress`` is false, and with each round."""

    idle: float = attrs.field(validator=_seconds)
    total: float = attrs.field(validator=_seconds)
    reset_on_progress: bool = attrs.field(default=True, validator=_flag)
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

    With ``repeats`` it may take several attempts. They are reserved in the same way, in the step in
    which the one before fails, so that the call is in flight during the pause, too.
    """

    _asked: dict[str, Any] | None = None
    _answering = False
    _again_at: float | None = None  # when the next attempt goes out, on Trio's clock
    _may_have_run = False  # an earlier round has, or an earlier attempt may have
    _rounds = 0
    _pauses = 0

    def __init__(
        self,
        connection: CallConnection,
        call: Call,
        timeouts: Timeouts,
        limits: Limits,
        answers: Answers | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        self.call = call
        self._connection = connection
        self._timeouts = timeouts
        self._limits = limits
        self._began_at = self._round_began_at = call.began_at
        self._answers = answers
        self._repeats = repeats
        call.tell()
        self._frame = None if answers is None and repeats is None else call.frame
        self._look_after(call)

    @property
    def rounds(self) -> int:
        """Times that the server has asked for input."""
        return self._rounds

    def _look_after(self, call: Call) -> None:
        """What ends this request does not have to end the call."""
        self.call = call
        if self._answers is not None:
            call.on_input_required = self._go_on
        if self._repeats is not None:
            call.on_failed = self._repeat

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
        call = self.call
        try:
            return call.result()
        except (ConnectionLost, ServerError) as error:
            if isinstance(error, ConnectionLost):
                error.sent = error.sent or self._may_have_run
            else:
                error.refused = error.refused and not self._may_have_run
            if call.attempt > 1:
                error.add_note(f"This was attempt {call.attempt}")
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
        if self._again_at is not None:
            await self._make_again(self._again_at)
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

    def _go_on(self, result: dict[str, Any]) -> ConnectionLost | None:
        """The server asks for input, which ends a request, and not the call, unless the connection
        is lost for good."""
        try:
            call = self._connection.reserve(self.call.method, self.call.target)
        except ConnectionLost as error:
            error.sent = True  # it was this round that the server has answered
            return error
        call.go_on_from(self.call)
        self._look_after(call)
        self._rounds += 1
        self._may_have_run = True
        self._asked = result
        return None

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

    # Further attempts -----------------------------------------------------------------------------

    def _repeat(self, error: Exception) -> None:
        """An attempt has failed, and maybe not the call. One that is lost in its pause, with a
        connection that will be there again, was not made: another one takes its place."""
        repeats, failed = self._repeats, self.call
        assert repeats is not None
        attempt, again_at = failed.attempt, self._again_at
        if again_at is None:
            pause = repeats.pause_after(error, attempt, self._connection)
            if pause is None or self._rounds:
                return
            attempt += 1
            again_at = trio.current_time() + pause
            if again_at >= self._began_at + min(repeats.retry.timeout, self._timeouts.total):
                return
        try:
            call = self._connection.reserve(failed.method, failed.target)
        except ConnectionLost:
            return  # for good
        call.repeat(failed, attempt)
        self._look_after(call)
        self._again_at = again_at
        self._may_have_run = self._may_have_run or safe_to_repeat(error) is False

    async def _make_again(self, again_at: float) -> None:
        """Wait for the time of the next attempt, which then goes out if it still runs."""
        call = self.call
        with trio.CancelScope(deadline=again_at):
            await call.left_running()
        if call.state is not State.RUNNING:
            return
        assert self._repeats is not None
        assert self._frame is not None
        self._again_at = None
        call.heard_at = self._round_began_at = trio.current_time()
        try:
            self._repeats.send(call, self._frame)
        except ConnectionLost as error:
            call.lost(error)
        else:
            self._frame = call.frame

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
            outcome="unknown" if sent or self._may_have_run else "not sent",
        )
        if (violation := self._connection.violation_since(self._began_at)) is not None:
            error.add_note(f"In the meantime the server sent {violation}")
        return error


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
