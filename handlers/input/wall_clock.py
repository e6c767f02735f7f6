"""The system's clock, for what outlives this process. Everything else is on Trio's clock."""

from __future__ import annotations

import time

__all__ = ["wall_clock"]


def wall_clock() -> float:
    """Seconds since the epoch."""
    return time.time()
