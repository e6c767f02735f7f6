"""A call in flight, as its owner sees it: waiting for it, its progress, its cancellation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

import trio

from ..runtime.call import Call
from ..runtime.journal import Record
from ..runtime.lifecycle import CancelCause, State
from ..runtime.models.tools import CallToolResult
from ..runtime.progress import ProgressUpdate
from .calls import PendingCall, read_result
from .checks import check_text

__all__ = ["StartedCall", "ToolCall"]

R = TypeVar("R", covariant=True)


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
        """Cancel the call; the server is told why. Never waits, and may be called twice. Raises
        ``TypeError`` for a reason that is no text."""
        if reason is not None:
            check_text("the reason of a cancellation", reason)
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
