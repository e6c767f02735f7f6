"""Like Trio's capacity limiter, in turns between clients: for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from .admission import client_of
from .fair_queue import Gate

if TYPE_CHECKING:
    from ..exchange import Exchange

__all__ = ["FairLimiter"]

_ALL: Final = 2**62
"""Whoever waits belongs to a request in flight, and these have a bound."""


class FairLimiter:
    """``tokens`` of them, each borrowed for an exchange, which may have several."""

    def __init__(self, tokens: int) -> None:
        self._gate: Gate[trio.lowlevel.Task] = Gate(tokens, _ALL)

    @property
    def borrowed_tokens(self) -> int:
        return self._gate.running

    async def acquire(self, exchange: Exchange) -> None:
        """Borrow one; wait for one to be free, if need be, which counts as queued. If cancelled,
        nothing is borrowed. A checkpoint only where it has to wait."""
        gate, client = self._gate, client_of(exchange.peer, exchange.principal)
        if gate.enter(client):
            return
        task = trio.lowlevel.current_task()
        gate.queue.push(client, task)

        def abort(_: object) -> trio.lowlevel.Abort:
            gate.queue.remove(client, task)
            return trio.lowlevel.Abort.SUCCEEDED

        since = trio.current_time()
        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            exchange.queued += trio.current_time() - since
        try:
            await trio.lowlevel.checkpoint_if_cancelled()  # it may have been too late to be felt
        except BaseException:
            self.release(exchange)
            raise

    def release(self, exchange: Exchange) -> None:
        task = self._gate.leave(client_of(exchange.peer, exchange.principal))
        if task is not None:
            trio.lowlevel.reschedule(task)
