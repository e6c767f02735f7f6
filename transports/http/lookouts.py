"""Second readers, for connections that are busy for more than a turn of the event loop.

The task that serves a connection cannot read meanwhile. Most requests are done before anything can
have come; for the others, somebody else begins to read.
"""

from __future__ import annotations

from typing import Protocol

import trio

__all__ = ["Lookouts", "Watched"]


class Watched(Protocol):
    """A connection that may have a second reader."""

    def look_out(self) -> None:
        """Have it, if it is still busy. Never waits."""


class Lookouts:
    """Connections say when they become busy, and when they are not any more."""

    def __init__(self) -> None:
        self._fresh: dict[Watched, int] = {}  # and in which of our turns they became busy
        self._turn = 0
        self._resting: trio.lowlevel.Task | None = None

    def note(self, watched: Watched) -> None:
        """It is busy from now on."""
        self._fresh[watched] = self._turn
        if self._resting is not None:
            trio.lowlevel.reschedule(self._resting)
            self._resting = None

    def forget(self, watched: Watched) -> None:
        """It is not."""
        self._fresh.pop(watched, None)

    async def run(self) -> None:
        """Post a lookout where it takes longer, until cancelled."""
        while True:
            while self._fresh:
                self._turn += 1
                await trio.lowlevel.checkpoint()
                self._post()
            await self._rest()

    def _post(self) -> None:
        for watched, since in list(self._fresh.items()):
            if since > self._turn - 2:
                return  # it may be done in this very turn; and so may those that came later
            del self._fresh[watched]
            watched.look_out()

    async def _rest(self) -> None:
        self._resting = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._resting = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
