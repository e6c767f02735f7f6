"""How long the connections of a carrier may take for what they do now."""

from __future__ import annotations

import logging
import math
from typing import Protocol

import trio

__all__ = ["Patience", "Patient"]

logger = logging.getLogger("trio_mcp.connection")


class Patient(Protocol):
    """Somebody whose time is limited."""

    def out_of_time(self) -> None:
        """It has taken too long. Never waits."""

    def give_up(self) -> None:
        """It failed at that."""


class Patience:
    """All who have the same time stand in one line, in the order in which that began."""

    def __init__(self) -> None:
        self._lines: dict[float, dict[Patient, float]] = {}
        self._until = trio.CancelScope()

    def begin(self, patient: Patient, seconds: float, before: float = math.inf) -> None:
        """From now on it has so many seconds, instead of those that it had. ``inf``: as many as it
        likes."""
        if before != math.inf:
            self._lines[before].pop(patient, None)
        if seconds == math.inf:
            return
        line = self._lines.setdefault(seconds, {})
        now = trio.current_time()
        if not line:
            self._until.deadline = min(self._until.deadline, now + seconds)
        line[patient] = now

    async def run(self) -> None:
        """Tell who has taken too long, until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next()) as self._until:
                await trio.sleep_forever()

    def _next(self) -> float:
        """Tell those whose time is over; when that of the next is."""
        now, soonest = trio.current_time(), math.inf
        for seconds, line in list(self._lines.items()):
            over: list[Patient] = []  # not each from the front: a dict looks for that anew
            for patient, since in line.items():
                if since + seconds > now:
                    soonest = min(soonest, since + seconds)
                    break
                over.append(patient)
            for patient in over:
                if line.pop(patient, None) is not None:
                    _tell(patient)
        return soonest


def _tell(patient: Patient) -> None:
    try:
        patient.out_of_time()
    except Exception:
        logger.exception("a connection ended by a bug")
        patient.give_up()
