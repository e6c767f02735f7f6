"""A function for a worker process, in a module that is quickly imported there."""

from __future__ import annotations

import os
import time

__all__ = ["burn"]


def burn(path: str) -> None:
    """Say which process this is, and compute: for a minute, if nobody ends it."""
    with open(path, "w") as file:
        file.write(f"{os.getpid()}\n")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pass
