"""Worker processes: Python that computes, beside the loop and beside its lock.

``trio-parallel`` runs them (the extra ``cpu``). A call that is to stop takes its process with it,
SIGKILL, and the next call gets a new one: so this is the only plain function that really stops.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from ..limits import Limits
from .work import Work, WorkKind

if TYPE_CHECKING:
    from trio_parallel import WorkerContext

    from ..exchange import Exchange

__all__ = ["WorkerPool"]

logger = logging.getLogger("trio_mcp.offload")

T = TypeVar("T")

_GRACE = 1.0
"""Seconds that idle workers have to leave when the Trio run ends; then they are killed."""


class WorkerPool:
    """Bounded worker processes. They start when they are needed, and leave after
    ``Limits.worker_idle`` seconds without work, or with the Trio run."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._limiter = trio.CapacityLimiter(limits.workers)
        self._workers: WorkerContext | None = None
        self._opening = trio.Lock()

    async def run(self, exchange: Exchange, label: str, fn: Callable[..., T], *args: Any) -> T:
        """Run ``fn(*args)`` in a worker for ``exchange``; wait for a free one first.

        Cancelled: the worker is killed, in the middle of what it does. Raises ``RuntimeError``
        without ``trio-parallel``.
        """
        workers = await self._open()
        work = Work(exchange, WorkKind.WORKER, label)
        outcome: str | None = "error"
        try:
            async with self._limiter:
                work.start()
                try:
                    result: T = await workers.run_sync(
                        fn, *args, kill_on_cancel=True, limiter=trio.CapacityLimiter(1)
                    )
                    outcome = "result"
                    return result
                except trio.Cancelled:
                    outcome = "stopped"
                    work.record.signals = ("SIGKILL",)
                    exchange.note_cleanup("clean")
                    raise
                finally:
                    work.end(outcome)
        finally:
            exchange.end_work(work)

    async def _open(self) -> WorkerContext:
        async with self._opening:
            if self._workers is None:
                _import()  # tells what is missing, before a task of its own would
                opened = trio.Event()
                trio.lowlevel.spawn_system_task(
                    functools.partial(self._keep_open, opened), name="trio-mcp workers"
                )
                await opened.wait()
        assert self._workers is not None
        return self._workers

    async def _keep_open(self, opened: trio.Event) -> None:
        """Until the end of the Trio run; a system task must not raise."""
        trio_parallel = _import()
        try:
            async with trio_parallel.open_worker_context(
                idle_timeout=self._limits.worker_idle, grace_period=_GRACE
            ) as self._workers:
                opened.set()
                await trio.sleep_forever()
        except trio_parallel.BrokenWorkerError as error:
            logger.warning("worker processes did not leave by themselves: %s", error)
        finally:
            self._workers = None
            opened.set()


def _import() -> Any:
    try:
        import trio_parallel
    except ImportError:
        raise RuntimeError(
            "run_in_process() needs trio-parallel: pip install 'trio-mcp[cpu]'"
        ) from None
    return trio_parallel
