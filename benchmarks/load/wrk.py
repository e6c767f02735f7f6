"""Load by ``wrk``: one thread in C, so many kept connections, each with one request at a time."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import msgspec

from ..peers import tool as command
from .process import STEP_LIMIT, LoadError, ServerProcess
from .requests import BOOK, call

__all__ = ["Counted", "run"]

SCRIPT = Path(__file__).with_name("wrk.lua")
#: Seconds after which an answer is too late to be counted.
LATEST = 30


class Counted(msgspec.Struct):
    """What ``wrk`` counted. `busy`: the part of the time that it was at work."""

    answers: int
    bytes: int
    seconds: float
    p50_ms: float
    p99_ms: float
    refused: int
    broken: int
    busy: float = 0.0


def run(server: ServerProcess, connections: int, seconds: int, *, search: bool) -> Counted:
    """Call `stock`, or `search`, for whole seconds. Raises `LoadError` if any call went wrong."""
    tool = "search" if search else "stock"
    body = call(1, tool, BOOK, progress=search).decode()
    options = ["-t1", f"-c{connections}", f"-d{seconds}s", f"--timeout={LATEST}s"]
    used = _children()
    done = subprocess.run(
        [
            command("wrk", "wrk"),
            *options,
            "-s",
            str(SCRIPT),
            f"http://127.0.0.1:{server.port}",
            "--",
            tool,
            body,
        ],
        capture_output=True,
        text=True,
        timeout=seconds + STEP_LIMIT,
    )
    _, _, summary = done.stdout.partition("\nsummary ")
    if done.returncode or not summary:
        raise LoadError(f"wrk said: {done.stdout}{done.stderr}")
    counted = msgspec.json.decode(summary, type=Counted)
    if counted.refused or counted.broken or not counted.answers:
        raise LoadError(f"wrk counted {counted}")
    counted.busy = (_children() - used) / counted.seconds
    return counted


def _children() -> float:
    """Seconds of CPU time that processes have used which this one waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
