"""A program on a terminal of its own: what a person would see and type."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["CTRL_C", "Terminal", "on_terminal"]

CTRL_C = "\x03"

_QUOTED_LINES = 40
"""Lines of what was seen that a failure quotes: a live display prints without end."""

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Terminal:
    """Made by :func:`on_terminal`. ``seen`` is all that was printed, without escape sequences."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._bytes = b""

    @property
    def seen(self) -> str:
        return _ESCAPES.sub("", self.raw)

    @property
    def raw(self) -> str:
        return self._bytes.decode(errors="replace")

    @property
    def _tail(self) -> str:
        return "\n".join(self.seen.splitlines()[-_QUOTED_LINES:])

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def until(self, text: str, timeout: float = 10) -> None:
        """Read until something has been printed."""
        end = time.monotonic() + timeout
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0, f"no {text!r} in {timeout} s; the end of it:\n{self._tail}"
            assert self._read(left), f"ended without {text!r}; the end of it:\n{self._tail}"

    def end(self, timeout: float = 10) -> int:
        """Read until the program has ended; its exit status."""
        end = time.monotonic() + timeout
        while self._read(max(end - time.monotonic(), 0)):
            assert time.monotonic() < end, (
                f"still running after {timeout} s; the end of it:\n{self._tail}"
            )
        return self.process.wait(max(end - time.monotonic(), 0.1))

    def _read(self, timeout: float) -> bool:
        """Wait for output; whether there may be more."""
        if not select.select([self._master], [], [], timeout)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux says so when nobody has the terminal open any more
            return False
        self._bytes += data
        return bool(data)


# Its size is the terminal's own, not the one that a test runner has set for what it starts.
_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
}


@contextmanager
def on_terminal(
    command: Sequence[str], *, columns: int = 100, lines: int = 30, cwd: Path | None = None
) -> Iterator[Terminal]:
    """Start a program in a session of its own, with a new terminal; killed in the end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    # The first terminal that a session leader opens becomes its controlling terminal: Ctrl-C works.
    opening = 'exec <>"$0" >&0 2>&0; exec "$@"'
    process = subprocess.Popen(
        ["sh", "-c", opening, os.ttyname(slave), *command],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        cwd=cwd,
        env={**_ENVIRONMENT, "TERM": "xterm-256color"},
    )
    try:
        select.select([master], [], [], 10)  # the slave stays open here until the program has it
        os.close(slave)
        slave = -1
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)
        if slave >= 0:
            os.close(slave)
