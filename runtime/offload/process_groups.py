"""A process that leads a group of its own, and the end of all that is in it.

Made with ``start_new_session=True``: a Ctrl-C at our terminal does not reach it, and all that it
starts can be reached through its group, unless it leaves that on purpose.
"""

from __future__ import annotations

import os
import signal

import trio

__all__ = ["ProcessGroup"]


class ProcessGroup:
    """The group that ``process`` leads.

    Once it is known to have ended it is left alone: the system may have given its number to others.
    """

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._ended = False

    def send(self, number: signal.Signals) -> bool:
        """Signal all that is in it; ``False`` if nothing is."""
        return self._reach(number)

    @property
    def lives(self) -> bool:
        """Whether anything in it lives."""
        if not self._reach(0):
            return False
        self._ended = not _has_living(self._process.pid)
        return not self._ended

    def _reach(self, number: int) -> bool:
        if self._ended:
            return False
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            self._ended = True
            return False
        except PermissionError:
            return False
        return True

    async def leader_ended(self) -> None:
        """Wait until its leader has ended, whatever lives on of it."""
        await self._process.wait()
        self._ended = self._ended or not self.lives

    async def ends_within(self, seconds: float) -> bool:
        """Whether its leader, and then the rest of it, is gone in time."""
        with trio.move_on_after(seconds):
            await self._process.wait()
            pause = seconds / 1000
            while self.lives:
                await trio.sleep(pause)
                pause = min(2 * pause, seconds / 20)
            return True
        return False


def _has_living(group: int) -> bool:
    """To a signal, the dead are there until somebody has waited for them, and in a container there
    may be nobody who does. Linux tells them apart; elsewhere they count."""
    if _lives_in(group, str(group)):
        return True  # its leader; most often, and no need to look at all that the system runs
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return True
    return not numbers or any(_lives_in(group, number) for number in numbers)


def _lives_in(group: int, number: str) -> bool:
    """Whether the process of this number lives, and is in the group."""
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            state, _, its_group = file.read().rpartition(b")")[2].split(maxsplit=3)[:3]
    except OSError:
        return False  # it has just gone
    return int(its_group) == group and state not in (b"Z", b"X")
