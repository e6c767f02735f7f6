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
    """Of a process and its process group. ``rss`` is in bytes, ``cpu`` in seconds; so is
    ``waited``, how long its threads were ready to run and others had the cores, 0 where that is not
    told. That of a thread that has ended is lost."""

    descriptors: int
    threads: int
    rss: int
    cpu: float
    waited: float
    processes: int

    def share(self, before: Usage, seconds: float) -> float:
        """Of a core, that it has wanted since then: used or waited for."""
        used = self.cpu - before.cpu
        return max(used, used + self.waited - before.waited) / seconds


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
        sum(one.waited for one in found),
        len(found),
    )


def _members(pid: int) -> Iterator[int]:
    """The process, and those in the group that it leads."""
    for entry in _entries(_PROC):
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
        descriptors,
        int(fields[_THREADS]),
        rss,
        ticks / os.sysconf("SC_CLK_TCK"),
        _waited(pid),
        processes=1,
    )


def _waited(pid: int) -> float:
    """Seconds that its threads have spent in the queues of the scheduler."""
    waited = 0
    for thread in _entries(_PROC / str(pid) / "task"):
        try:
            told = (_PROC / str(pid) / "task" / thread / "schedstat").read_text().split()
            waited += int(told[1])
        except (OSError, IndexError, ValueError):
            pass  # it has ended, or the kernel does not tell
    return waited / 1e9


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
