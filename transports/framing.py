"""Newline framing: one JSON text per line. No I/O.

Specification: *stdio*. We write LF only; we accept CRLF, blank lines and a byte order mark. A line
over the limit costs no more memory than the limit: it is reported once, and reading goes on after
the next LF.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

__all__ = ["Frame", "LineReader", "Oversize", "join_lines"]


class Oversize:
    """Stands for a line longer than ``limit`` bytes, whose content is gone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit


Frame: TypeAlias = bytes | Oversize

LONG: Final = 8 * 1024
"""Bytes of a line that is longer than most."""


class LineReader:
    """Bytes in, lines out; keeps at most ``limit`` bytes of an unfinished line."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._skipping = False

    @property
    def in_a_long_line(self) -> bool:
        """Whether what comes next is part of a line that is longer than most."""
        return self._skipping or len(self._kept) > LONG

    def feed(self, data: bytes | bytearray) -> list[Frame]:
        """The lines that end in ``data``, without their line ends; blank ones left out."""
        *ends, rest = bytes(data).split(b"\n")
        frames: list[Frame] = []
        if ends:
            ends[0] = self._complete(ends[0], frames)
            for line in ends:
                if len(line) > self._limit:
                    frames.append(Oversize(self._limit))
                elif line and not line.isspace():
                    frames.append(line)
        self._keep(rest, frames)
        return frames

    def end(self) -> list[Frame]:
        """The stream has ended: a last line without its LF, if there is one."""
        line = bytes(self._kept)
        self._kept.clear()
        return [line] if line and not line.isspace() else []

    def _complete(self, end: bytes, frames: list[Frame]) -> bytes:
        """The line that ``end`` ends; empty if it was too long, which has been reported."""
        if self._skipping:
            self._skipping = False
            return b""
        if not self._kept:
            return end
        self._kept += end
        line = bytes(self._kept)
        self._kept.clear()
        return line

    def _keep(self, rest: bytes, frames: list[Frame]) -> None:
        if not rest or self._skipping:
            return
        self._kept += rest
        if len(self._kept) > self._limit:
            self._kept.clear()
            self._skipping = True
            frames.append(Oversize(self._limit))


def join_lines(frames: Iterable[bytes]) -> bytes:
    """Frames as bytes for the stream, each followed by one LF."""
    return b"\n".join(frames) + b"\n"
