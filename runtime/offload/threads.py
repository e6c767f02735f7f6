"""Threads: plain ``def`` handlers, and what handlers give to :meth:`.Context.run_sync`.

A thread cannot be stopped from outside. When it is to stop, ``check_cancelled()`` starts to raise
inside it at once, and ``interrupt``, if there is one, is called until the function returns. The
request waits for a clean-up window (``Limits.cleanup``), and then abandons the thread: the request
ends, the thread keeps its slot in its pool until it really ends, and the scope tree and the journal
show it. So stragglers are bounded, visible and recorded.

The pools are the handlers' own. The runtime itself uses no threads.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import trio

from ..admission.fair_limiter import FairLimiter
from ..failures import part_passing_on
from ..rounds import InputRequired
from .work import Work, WorkKind

if TYPE_CHECKING:
    from ..exchange import Exchange

__all__ = ["Interrupt", "ThreadPool", "ThreadWork"]

logger = logging.getLogger("trio_mcp.offload")

T = TypeVar("T")

Interrupt: TypeAlias = Callable[[], Any]


class ThreadPool:
    """Bounded worker threads, and the list of those that were abandoned."""

    def __init__(self, threads: int) -> None:
        self._limiter = FairLimiter(threads)
        self._for_clean_up = FairLimiter(threads)
        self.stragglers: set[ThreadWork] = set()

    @property
    def busy(self) -> int:
        """Threads at work, abandoned ones included."""
        return self._limiter.borrowed_tokens + self._for_clean_up.borrowed_tokens

    async def run(
        self,
        exchange: Exchange,
        label: str,
        fn: Callable[[], T],
        *,
        interrupt: Interrupt | None = None,
        is_handler: bool = False,
        is_clean_up: bool = False,
    ) -> T:
        """Run ``fn()`` in a thread for ``exchange``; wait for a free one first.

        On cancellation: still queued, it never starts; running, it is told, interrupted, given its
        window, and then abandoned. What it returns or raises after that is dropped and recorded; of
        a request that was cancelled it is late.

        :param interrupt: makes ``fn`` return soon; called in the loop, and awaited if it is async.
        :param is_handler: ``fn`` makes the answer: not begun for a peer that has too many.
        :param is_clean_up: there are as many threads again for that.
        """
        limiter = self._for_clean_up if is_clean_up else self._limiter
        work = ThreadWork(self, limiter, exchange, label, interrupt, is_handler)
        try:
            return await trio.to_thread.run_sync(
                work.call,
                fn,
                abandon_on_cancel=True,
                limiter=work,  # type: ignore[arg-type]  # anything with the two methods will do
            )
        except trio.Cancelled:
            await work.wind_down()
            raise
        finally:
            exchange.end_work(work)


class ThreadWork(Work):
    """One thread of one exchange. Also the limiter that Trio asks: it tells when a thread really
    begins and really ends, whether or not anybody still waits for it."""

    def __init__(
        self,
        pool: ThreadPool,
        limiter: FairLimiter,
        exchange: Exchange,
        label: str,
        interrupt: Interrupt | None,
        is_handler: bool,
    ) -> None:
        super().__init__(exchange, WorkKind.THREAD, label)
        self._pool = pool
        self._limiter = limiter
        self._interrupt = interrupt
        self._is_handler = is_handler
        self._ended = trio.Event()
        self._outcome: str | None = None

    def call(self, fn: Callable[[], T]) -> T:
        """In the thread."""
        outcome = "error"
        try:
            result = fn()
            outcome = "result"
            return result
        except trio.Cancelled:
            outcome = "stopped"  # it asked
            raise
        except InputRequired:
            outcome = "result"  # a result that asks the client
            raise
        finally:
            self._outcome = outcome

    # Told to stop ---------------------------------------------------------------------------------

    async def wind_down(self) -> None:
        """Wait for the thread, which has been told to stop, but not for ever."""
        if not self.running:
            return
        window = self.exchange.core.limits.cleanup
        try:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + window):
                await self._until_ended()
        finally:
            self._note_how_it_went(window)

    def _note_how_it_went(self, window: float) -> None:
        exchange = self.exchange
        if not self._ended.is_set():
            self.record.abandoned = True
            self._pool.stragglers.add(self)
            logger.warning(
                "exchange %d: the thread of %s did not stop within %g s and is abandoned",
                exchange.key,
                self.record.label,
                window,
            )
            exchange.lingering += 1
            exchange.note_cleanup("abandoned")
        elif self.record.outcome != "stopped":
            self._note_late()
            exchange.note_cleanup("error" if self.record.outcome == "error" else "clean")

    async def _until_ended(self) -> None:
        """Interrupt the function until it returns: the first time it may not have begun yet with
        what can be interrupted."""
        pause = self.exchange.core.limits.interrupt_pause
        while self._interrupt is not None and not self._ended.is_set():
            await self._interrupt_once(self._interrupt)
            with trio.move_on_after(pause):
                await self._ended.wait()
            pause *= 2
        await self._ended.wait()

    async def _interrupt_once(self, interrupt: Interrupt) -> None:
        self.record.interrupts += 1
        try:
            made = interrupt()
            if inspect.isawaitable(made):
                await made
        except trio.Cancelled:
            raise  # the window is over
        except BaseException as raised:
            self._interrupt = None
            logger.error(
                "exchange %d: the interrupt of %s failed; it is not called again",
                self.exchange.key,
                self.record.label,
                exc_info=raised,
            )
            self.exchange.note_cleanup("error")
            if (rest := part_passing_on(raised)) is not None:
                raise rest from None

    def _note_late(self) -> None:
        outcome = self.record.outcome
        if self.exchange.is_cancelled and (outcome == "result" or outcome == "error"):
            self.exchange.note_straggler(outcome)

    # Trio's side of a limiter ---------------------------------------------------------------------

    async def acquire_on_behalf_of(self, _: Any) -> None:
        await self._limiter.acquire(self.exchange)
        refusal = self.exchange.peer.hold(0) if self._is_handler else None
        if refusal is not None:  # a peer that asks for much and reads nothing
            self._limiter.release(self.exchange)
            raise refusal
        self.start()

    def release_on_behalf_of(self, _: Any) -> None:
        interrupted = self.record.interrupts > 0 and self._outcome == "error"
        self.end("stopped" if interrupted else self._outcome)  # to raise is how it was to stop
        self._limiter.release(self.exchange)
        self._pool.stragglers.discard(self)
        self._ended.set()
        if self.record.abandoned:
            self.exchange.thread_left()
            self._note_late()
