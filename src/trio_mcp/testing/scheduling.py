"""Trio's scheduler without its chance, so that each run takes the same way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

__all__ = ["seeded_scheduler"]


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
