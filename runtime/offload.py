"""Work that leaves the event loop: threads for plain ``def`` handlers.

A thread cannot be stopped from outside. When its exchange is cancelled, ``check_cancelled()``
starts to raise inside it at once; the exchange waits for it for a clean-up window
(``Limits.cleanup``), and then abandons it: the exchange ends, the thread keeps its slot in the pool
until it really ends, and the scope tree and the journal show it. So stragglers are bounded, visible
and recorded.

The pool is the handlers' own. The runtime itself uses no threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from .fair_limiter import FairLimiter
from .rounds import InputRequired
from .scopes import Scope, ScopeKind

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["ThreadPool", "ThreadWork"]

logger = logging.getLogger("trio_mcp.offload")

T = TypeVar("T")


class ThreadPool:
    """Bounded worker threads, and the list of those that were abandoned."""

    def __init__(self, threads: int) -> None:
        self._limiter = FairLimiter(threads)
        self.stragglers: set[ThreadWork] = set()

    @property
    def busy(self) -> int:
        """Threads at work, abandoned ones included."""
        return self._limiter.borrowed_tokens

    async def run(self, exchange: Exchange, label: str, fn: Callable[[], T]) -> T:
        """Run ``fn()`` in a thread for ``exchange``; wait for a free one first.

        On cancellation: still queued, it never starts; running, it is told, given its window, and
        then abandoned. What it returns or raises after the cancellation is recorded as late.
        """
        work = ThreadWork(self, exchange, label)
        exchange.work += (work,)
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
            exchange.work = tuple(other for other in exchange.work if other is not work)

    async def acquire(self, work: ThreadWork) -> None:
        await self._limiter.acquire(work.exchange)

    def release(self, work: ThreadWork) -> None:
        self._limiter.release(work.exchange)
        self.stragglers.discard(work)


class ThreadWork:
    """One thread of one exchange. Also the limiter that Trio asks: it tells when a thread really
    begins and really ends, whether or not anybody still waits for it."""

    def __init__(self, pool: ThreadPool, exchange: Exchange, label: str) -> None:
        self._pool = pool
        self.exchange = self._exchange = exchange
        self._label = label
        self._began_at = trio.current_time()
        self._running = False
        self._abandoned = False
        self._ended = trio.Event()
        self._kind: str | None = None

    def call(self, fn: Callable[[], T]) -> T:
        """In the thread."""
        kind: str | None = "error"
        try:
            result = fn()
            kind = "result"
            return result
        except trio.Cancelled:
            kind = None  # it asked, and stopped
            raise
        except InputRequired:
            kind = "result"  # a result that asks the client
            raise
        finally:
            self._kind = kind

    async def wind_down(self) -> None:
        """The exchange was cancelled: wait for the thread, but not for ever."""
        if not self._running:
            return
        exchange = self._exchange
        window = exchange.core.limits.cleanup
        with trio.CancelScope(shield=True, deadline=trio.current_time() + window):
            await self._ended.wait()
        if not self._ended.is_set():
            self._abandoned = True
            self._pool.stragglers.add(self)
            logger.warning(
                "exchange %d: the thread of %s did not stop within %g s and is abandoned",
                exchange.key,
                self._label,
                window,
            )
            exchange.lingering += 1
            exchange.note_cleanup("abandoned")
        elif self._kind is not None:
            exchange.note_straggler(self._kind)
            exchange.note_cleanup("error" if self._kind == "error" else "clean")

    def scope(self) -> Scope:
        state = self._exchange.state.value if self._running else "waiting"
        if self._abandoned:
            state = "abandoned"
        return Scope(
            kind=ScopeKind.OFFLOAD,
            label=self._label,
            state=state,
            age=trio.current_time() - self._began_at,
            cause=self._exchange.cause,
            key=self._exchange.key,
        )

    # Trio's side of a limiter

    async def acquire_on_behalf_of(self, _: Any) -> None:
        await self._pool.acquire(self)
        refusal = self._exchange.peer.hold(0)
        if refusal is not None:  # a peer that asks for much and reads nothing
            self._pool.release(self)
            raise refusal
        self._running = True
        self._began_at = trio.current_time()

    def release_on_behalf_of(self, _: Any) -> None:
        self._running = False
        self._pool.release(self)
        self._ended.set()
        if self._abandoned:
            self._exchange.thread_left()
            if self._kind is not None:
                self._exchange.note_straggler(self._kind)
