"""A function for a worker process, in a module that is quickly imported there."""

from __future__ import annotations

import os

__all__ = ["burn"]


def burn(path: str) -> None:
    """Say which process this is, and compute for ever."""
    with open(path, "w") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        pass
