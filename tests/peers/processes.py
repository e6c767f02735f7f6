"""What Linux knows about a process: its memory, its processor time, its descendants."""

from __future__ import annotations

import os
from multiprocessing import resource_tracker
from pathlib import Path

import trio

__all__ = [
    "alive",
    "children",
    "cpu_seconds",
    "exit_status",
    "resident_bytes",
    "resident_bytes_anew",
]

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time used so far, user and system; raises ``OSError`` once it is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int, what: str = "VmRSS") -> int:
    """Resident memory now (``VmRSS``) or at its peak (``VmHWM``)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def resident_bytes_anew() -> int:
    """Resident memory of this process now; from here on its peak is counted anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident_bytes(os.getpid())


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX"


def children() -> list[int]:
    """Processes that this one has started and not yet reaped, but for the one that belongs to
    Python's ``multiprocessing`` and stays until the end."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found.update(map(int, (task / "children").read_text().split()))
    tracker = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    return sorted(found - {tracker})


async def exit_status(process: trio.Process, within: float) -> int:
    """Wait for the end. Raises ``trio.TooSlowError`` after ``within`` seconds."""
    with trio.fail_after(within):
        return await process.wait()
