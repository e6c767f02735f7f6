"""What a process of this machine uses, as Linux tells it under ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

__all__ = ["Usage", "usage_of"]

_PROC: Final = Path("/proc")
_GROUP, _UTIME, _STIME, _THREADS, _RSS = 2, 11, 12, 17, 21
"""Fields of ``/proc/PID/stat`` after the name, from 0."""


@attrs.frozen
class Usage:
    """Of a process and its process group. ``cpu`` is in seconds, ``rss`` in bytes."""

    descriptors: int
    threads: int
    rss: int
    cpu: float
    processes: int


def usage_of(pid: int) -> Usage | None:
    """What it uses now; ``None`` where that is not told: the process is gone, is another user's, or
    the system is none that has ``/proc``."""
    found = [usage for member in _members(pid) if (usage := _one(member)) is not None]
    if not found:
        return None
    return Usage(
        sum(one.descriptors for one in found),
        sum(one.threads for one in found),
        sum(one.rss for one in found),
        sum(one.cpu for one in found),
        len(found),
    )


def _members(pid: int) -> Iterator[int]:
    """The process, and those in the group that it leads."""
    try:
        entries = os.listdir(_PROC)
    except OSError:
        return
    for entry in entries:
        if entry.isdigit():
            fields = _stat(int(entry))
            if int(entry) == pid or (fields and int(fields[_GROUP]) == pid):
                yield int(entry)


def _stat(pid: int) -> list[str]:
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _one(pid: int) -> Usage | None:
    fields = _stat(pid)
    if not fields or fields[0] == "Z":
        return None
    try:
        descriptors = len(os.listdir(_PROC / str(pid) / "fd"))
    except OSError:
        return None
    ticks = int(fields[_UTIME]) + int(fields[_STIME])
    rss = int(fields[_RSS]) * os.sysconf("SC_PAGE_SIZE")
    return Usage(
        descriptors, int(fields[_THREADS]), rss, ticks / os.sysconf("SC_CLK_TCK"), processes=1
    )
