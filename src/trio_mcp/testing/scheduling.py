"""Trio's scheduler without its chance, so that each run takes the same way."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio

__all__ = ["Turns", "seeded_scheduler", "taking_turns"]


@contextmanager
def seeded_scheduler(seed: int) -> Iterator[None]:
    """Tasks take their turns in an order that follows from ``seed`` alone.

    What Hypothesis has Trio do for it; the state from before comes back.
    """
    scheduler: Any = trio._core._run  # it has no public switch
    chance = scheduler._r
    before, sorts = chance.getstate(), scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    chance.seed(seed)
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    try:
        yield
    finally:
        chance.setstate(before)
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = sorts


class Turns(random.Random):
    """The order in which tasks that are ready at the same time take their turns, written down.

    Each number is for one time at which there is a choice, and names one of the possible orders; 0,
    which also holds when the numbers are used up, is the order in which the tasks were made.
    ``asked`` counts these times.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(0)
        self.asked = 0
        self._numbers = numbers

    def shuffle(self, x: Any) -> None:
        """Put tasks, sorted by their age, in the order in which Trio takes them: last one first."""
        if len(x) > 1:
            number = self._numbers[self.asked] if self.asked < len(self._numbers) else 0
            self.asked += 1
            x[:] = reversed(_arranged(x, number))
        # else there is no choice


def _arranged(tasks: list[Any], number: int) -> list[Any]:
    """The permutation of that number: its digits say which of the rest comes next."""
    rest, arranged = list(tasks), []
    while rest:
        number, at = divmod(number, len(rest))
        arranged.append(rest.pop(at))
    return arranged


@contextmanager
def taking_turns(turns: Turns) -> Iterator[None]:
    """Tasks take their turns as it is written down."""
    scheduler: Any = trio._core._run
    chance, sorts = scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING = turns, True
    try:
        yield
    finally:
        scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING = chance, sorts
