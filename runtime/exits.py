"""What a request undoes at its end: the callbacks of :meth:`.context.Context.on_exit`.

They run in the exchange's task, once its nursery has closed and before its outcome is queued, the
last one first. The request's own cancel scope is gone by then. A shield keeps every other one off;
it is bounded, by one deadline for all of them. After it each of those that are left is still
called, in a scope that has been cancelled: plain functions run, and whatever awaits is cancelled
there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

import trio

from .failures import passes_on

__all__ = ["ExitCallbacks"]

logger = logging.getLogger("trio_mcp.exchange")


class ExitCallbacks:
    """The callbacks of one request. Made for the first one: most requests have none.

    ``outcome`` is ``None`` until they have begun to run, and then the worst of them: ``"clean"``,
    ``"error"`` or ``"timed out"``.
    """

    __slots__ = ("_callbacks", "_closed", "_lock", "outcome")

    def __init__(self) -> None:
        self.outcome: str | None = None
        self._lock = threading.Lock()  # held for a step; threads of the handler add callbacks, too
        self._callbacks: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._closed = False

    def add(self, fn: Callable[..., object], args: tuple[Any, ...]) -> bool:
        """One more, in any thread. False: it is too late, all have run."""
        with self._lock:
            if not self._closed:
                self._callbacks.append((fn, args))
            return not self._closed

    @trio.lowlevel.disable_ki_protection
    async def run(self, key: int, seconds: float) -> None:
        """Call them all within ``seconds``. What they raise is logged.

        ``key`` is the exchange's, for the log. Raises only what belongs to a scope around the
        exchange, after all of them have been called.
        """
        deadline = trio.current_time() + seconds
        self.outcome = "clean"
        to_pass_on: BaseException | None = None
        while (callback := self._next()) is not None:
            fn, args = callback
            try:
                with trio.CancelScope(shield=True, deadline=deadline) as scope:
                    made = fn(*args)
                    if isawaitable(made):
                        await made
            except BaseException as raised:
                if passes_on(raised):
                    to_pass_on = raised
                logger.error(
                    "exchange %d: the exit callback %s failed", key, _name(fn), exc_info=raised
                )
                if self.outcome == "clean":
                    self.outcome = "error"
            if scope.cancelled_caught:
                logger.warning(
                    "exchange %d: the exit callback %s was stopped: all of them have %g s "
                    "(Limits.cleanup)",
                    key,
                    _name(fn),
                    seconds,
                )
                self.outcome = "timed out"
        if to_pass_on is not None:
            raise to_pass_on

    def _next(self) -> tuple[Callable[..., object], tuple[Any, ...]] | None:
        with self._lock:
            if self._callbacks:
                return self._callbacks.pop()
            self._closed = True
            return None


def _name(fn: Callable[..., object]) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__name__
