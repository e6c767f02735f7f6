"""How many requests an endpoint begins in one turn of the event loop.

A turn of the loop serves all that is ready. So a client with thousands of connections could make
each turn as long as it takes to serve them all, and everybody else would wait for that, although
their requests are refused or done at once. Here a turn begins so many; the others wait for the next
one, in turns between clients. They have been read and are still watched: a close is seen.

The count begins anew in a task that wakes when half of it is used up. So a server that is not
flooded pays next to nothing, and nobody waits.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

import trio

from ...runtime.admission.fair_queue import FairQueue
from ...runtime.limits import Limits

__all__ = ["Turns"]


class Turns:
    """See the module. Who waits has one place for each connection, so there are not many."""

    def __init__(self, limits: Limits) -> None:
        self._most: float = limits.http_turn
        self._half = (limits.http_turn + 1) // 2
        self._begun = 0
        self._waiting: FairQueue[trio.lowlevel.Task] = FairQueue()
        self._needed = trio.Event()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def begin(self) -> bool:
        """Whether a request may begin in this turn, which is counted then; else :meth:`wait`."""
        if self._begun >= self._most:  # as it is while anybody waits
            return False
        self._begun += 1
        if self._begun == self._half:
            self._needed.set()
        return True

    async def wait(self, client: Hashable) -> None:
        """Until a request of this client may begin. If cancelled, it waits no more."""
        task = trio.lowlevel.current_task()
        self._waiting.push(client, task)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiting.remove(client, task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def give(self) -> None:
        """Begin each turn anew, until cancelled; then nobody waits any more."""
        try:
            while True:
                await self._needed.wait()
                self._needed = trio.Event()
                while self._begun >= self._half:
                    self._begin_anew()
                    await trio.lowlevel.checkpoint()
        finally:
            self._most = math.inf
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._begun = 0
        while self._begun < self._most:
            task = self._waiting.pop(_whoever)
            if task is None:
                return
            self._begun += 1
            trio.lowlevel.reschedule(task)


def _whoever(client: Hashable) -> bool:
    return True
