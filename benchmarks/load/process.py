"""A server's process: started, looked at through ``/proc``, and ended."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from ..contenders import Contender

__all__ = ["STEP_LIMIT", "LoadError", "ServerProcess", "most_descriptors", "resident"]

ROOT = Path(__file__).resolve().parents[2]

#: Seconds after which a step of a measurement has failed.
STEP_LIMIT = 60.0
#: Memory has settled when this many readings in a row, this many seconds apart, differ by less
#: than this many bytes; otherwise the last reading counts.
SETTLE_READINGS, SETTLE_INTERVAL, SETTLE_BYTES, SETTLE_LIMIT = 4, 0.05, 65_536, 2.0
#: Bytes of the server's stderr that an error shows.
STDERR_TAIL = 2_000

_TICK = os.sysconf("SC_CLK_TCK")


class LoadError(RuntimeError):
    """The server did not do what the measurement needs. A note holds the end of its stderr."""


class ServerProcess:
    """A server that has been started. For all but standard streams ``port`` is where it listens,
    once :meth:`connect` has returned."""

    def __init__(self, contender: Contender) -> None:
        self.port = 0 if contender.wire == "stdio" else _free_port()
        arguments = [str(self.port)] if self.port else []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `__exit__`)
        self.started_at = time.perf_counter()
        self._process = subprocess.Popen(
            [*contender.command, *arguments],
            cwd=ROOT,
            bufsize=0,
            stdin=subprocess.DEVNULL if self.port else subprocess.PIPE,
            stdout=subprocess.DEVNULL if self.port else subprocess.PIPE,
            stderr=self._stderr,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it, at once: how it would go by itself is not measured here."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        with self._stderr as stderr:
            if isinstance(error, LoadError):
                stderr.seek(0)
                tail = stderr.read()[-STDERR_TAIL:].decode(errors="replace").strip()
                if tail:
                    error.add_note(f"the server's stderr ends with:\n{tail}")

    @property
    def pipes(self) -> tuple[int, int]:
        """Descriptors that lead to its stdin and come from its stdout."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin.fileno(), self._process.stdout.fileno()

    def connect(self) -> socket.socket:
        """Connect to its port, as soon as it listens."""
        deadline = time.monotonic() + STEP_LIMIT
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=STEP_LIMIT)
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise LoadError("the server did not start") from None
                time.sleep(0.005)

    def cpu(self) -> float:
        """Return the seconds of CPU time that the server has used, all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def resident(self) -> int:
        """Return its resident memory in bytes, once that has settled."""
        return resident(self.pid)

    def descriptors(self) -> int:
        """Return how many it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def resident(pid: int) -> int:
    """Return a process's resident memory in bytes, once it has settled."""
    give_up = time.monotonic() + SETTLE_LIMIT
    readings = [_resident_now(pid)]
    while time.monotonic() < give_up:
        time.sleep(SETTLE_INTERVAL)
        readings.append(_resident_now(pid))
        recent = readings[-SETTLE_READINGS:]
        if len(recent) == SETTLE_READINGS and max(recent) - min(recent) < SETTLE_BYTES:
            break
    return readings[-1]


def most_descriptors() -> int:
    """Raise this process's limit on descriptors, which servers inherit, as far as it may go; return
    it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 2**20


def _resident_now(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass
    raise LoadError("the server is gone")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
