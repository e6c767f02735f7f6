"""Who reads the sockets of connections that are busy for more than a turn of the event loop.

The task that serves a connection cannot read meanwhile. Most requests are done before anything can
have come; where it takes longer, one task watches all such sockets, so that a close is seen at
once. It costs neither a task nor a turn of the loop for each.
"""

from __future__ import annotations

import logging
import selectors
from typing import Final, Protocol

import trio

__all__ = ["Lookouts", "Watched"]

BATCH: Final = 32
"""Sockets that are read in one turn of the loop."""

logger = logging.getLogger("trio_mcp.connection")


class Watched(Protocol):
    """A connection on a socket."""

    descriptor: int

    def read_now(self) -> None:
        """Something has come, or the end. Never waits."""

    def give_up(self) -> None:
        """It failed at that, or cannot be watched."""


class Lookouts:
    """Connections say when they become busy, and when they are not any more."""

    def __init__(self) -> None:
        self._fresh: dict[Watched, int] = {}  # and in which of our turns they became busy
        self._watched: set[Watched] = set()
        self._turn = 0
        self._resting: trio.lowlevel.Task | None = None
        self._selector = selectors.DefaultSelector()

    def note(self, watched: Watched) -> None:
        """It is busy from now on."""
        self._fresh[watched] = self._turn
        if self._resting is not None:
            trio.lowlevel.reschedule(self._resting)
            self._resting = None

    def forget(self, watched: Watched) -> None:
        """It is not, or will not be read any more. May be called again."""
        if self._fresh.pop(watched, None) is not None:
            return
        if watched in self._watched:
            self._watched.remove(watched)
            if self._selector.get_map():  # else it has been closed
                self._selector.unregister(watched.descriptor)

    # Tasks ------------------------------------------------------------------------------------

    async def post(self) -> None:
        """Watch those that take longer, until cancelled."""
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
            try:
                self._selector.register(watched.descriptor, selectors.EVENT_READ, watched)
            except OSError:  # the system has no room for one more
                logger.exception("a connection ended: its socket cannot be watched")
                watched.give_up()
            else:
                self._watched.add(watched)

    async def _rest(self) -> None:
        self._resting = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._resting = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def watch(self) -> None:
        """Read what comes, until cancelled."""
        with self._selector:
            while True:
                await trio.lowlevel.wait_readable(self._selector.fileno())
                ready = [key.data for key, _ in self._selector.select(0)]
                while ready:
                    self._read_some(ready)
                    if ready:
                        await trio.lowlevel.checkpoint()

    def _read_some(self, ready: list[Watched]) -> None:
        """Those that still want it. Does not keep the last of them until more comes."""
        for watched in ready[:BATCH]:
            if watched in self._watched:
                self._read(watched)
        del ready[:BATCH]

    def _read(self, watched: Watched) -> None:
        try:
            watched.read_now()
        except Exception:
            logger.exception("a connection ended by a bug")
            self.forget(watched)  # it may clean up for long, and would be read again and again
            watched.give_up()
