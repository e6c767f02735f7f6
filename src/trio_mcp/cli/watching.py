"""A request that is watched, answered, and stopped when its user says so."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

from ..client.handles import StartedCall
from ..runtime.errors import CallTimeout, TrioMcpError
from ..runtime.groups import leaf_of
from ..runtime.lifecycle import State
from ..runtime.models.tools import CallToolResult
from .failure import INTERRUPTED, TIMED_OUT, CommandError
from .interrupts import Interrupts
from .questions import Questions
from .show import CallView, call_view
from .targets import Target

__all__ = ["watch"]

M = TypeVar("M")


async def watch(
    interrupts: Interrupts,
    target: Target,
    name: str,
    started: AbstractAsyncContextManager[StartedCall[M]],
    questions: Questions,
    cancel_after: float | None,
) -> tuple[M | None, int]:
    """Show how a call stands until it is over. Its result, and 0; or ``None`` and the exit status.

    SIGINT and SIGTERM cancel it, as does the end of ``cancel_after`` seconds. Raises
    :class:`CommandError` for a question that has no answer.
    """
    try:
        async with started as call:
            with call_view(name) as view:
                questions.view = view
                watched = _WatchedCall(call, view, questions)
                interrupts.gently = watched.cancel
                result = await watched.outcome(cancel_after)
    except (TrioMcpError, CommandError):
        questions.tell_unasked()
        raise
    if result is None:
        interrupts.leaving(target.leave)
        return None, interrupts.status or watched.status
    return result, 0


class _WatchedCall(Generic[M]):
    """A call with its view. ``status`` says how it ended, if not with a result."""

    def __init__(self, call: StartedCall[M], view: CallView, questions: Questions) -> None:
        self.status = INTERRUPTED
        self._call = call
        self._view = view
        self._questions = questions

    def cancel(self, why: str) -> bool:
        """Ask for the end; ``False`` if it has come already."""
        if self._call.state is not State.RUNNING:
            return False
        self._call.cancel(why)
        self._questions.close()
        self._view.stands("cancelling", why)
        return True

    async def outcome(self, cancel_after: float | None) -> M | None:
        """The result; ``None`` if there is none, and ``status`` is to be the exit status."""
        self._view.stands("running")
        result = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._view.animate)
                nursery.start_soon(self._questions.fail)
                if cancel_after is not None:
                    nursery.start_soon(self._cancel_after, cancel_after)
                result = await self._follow()
                nursery.cancel_scope.cancel("the call is over")
        except BaseExceptionGroup as group:
            expected = group.split((TrioMcpError, CommandError))[1] is None
            if not expected:
                raise leaf_of(group) from None
            await self._over("failed")
            raise self._questions.failure or leaf_of(group) from None
        return result

    async def _follow(self) -> M | None:
        call, view = self._call, self._view
        try:
            async for update in call.progress:
                view.progress(update)
            if call.cause is not None:  # cancelled: there will be no result
                await call.ended()  # not only cancelling: the server has been told
                await self._over("stopped")
                return None
            result = await call.result()
        except CallTimeout as error:
            self.status = TIMED_OUT
            await self._over("timed out", f"{error.limit} of {error.seconds:g} s")
            return None
        failed = isinstance(result, CallToolResult) and result.is_error
        await self._over("failed" if failed else "done")
        return result

    async def _over(self, how: str, why: str | None = None) -> None:
        """Say how the call has ended, once nothing is asked on the terminal any more."""
        self._questions.close()
        await self._questions.left()
        self._view.stands(how, why)

    async def _cancel_after(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.cancel(f"--cancel-after {seconds:g}")
