"""One direction of a wire: the bytes that go in, and what a schedule makes of them. No I/O.

Every position becomes a number of bytes as soon as it is known. Between two such numbers nothing
changes, so the bytes there go as one piece, through whatever is at work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

import attrs

from .faults import (
    Body,
    Break,
    Chunk,
    Corrupt,
    Drop,
    Duplicate,
    Fault,
    HalfClose,
    Hold,
    Line,
    Much,
    Span,
    Split,
)

__all__ = ["Course", "Landmark", "LineMeter", "Meter"]

COPY_BYTES: Final = 16 * 1024 * 1024
"""Of something that comes twice."""

Landmark: TypeAlias = tuple[type[Line | Body | Chunk], int]
"""What positions count from: its kind and its number."""


class Meter(Protocol):
    """Knows where things begin in a stream of bytes."""

    def feed(self, data: bytes) -> Iterable[tuple[Landmark, int]]:
        """What begins in this piece, and at which byte of the whole; a byte that is still to come,
        perhaps."""


class LineMeter:
    """Where lines begin."""

    def __init__(self) -> None:
        self._passed = 0
        self._line = 0

    def feed(self, data: bytes) -> Iterable[tuple[Landmark, int]]:
        if self._line == 0:
            self._line = 1
            yield (Line, 1), 0
        at = data.find(b"\n")
        while at != -1:
            self._line += 1
            yield (Line, self._line), self._passed + at + 1
            at = data.find(b"\n", at + 1)
        self._passed += len(data)


@attrs.define(eq=False)
class _Planned:
    """A fault that has not happened; ``due`` at this byte, once that is known."""

    fault: Fault
    due: int | None


@attrs.define(eq=False)
class _AtWork:
    """A fault with a length. It ends at a byte, or behind an LF, or with the direction."""

    fault: Span
    end: int | None
    with_line: bool
    copy: bytearray = attrs.Factory(bytearray)


class Course:
    """Bytes in with :meth:`feed`, steps out with :meth:`step`.

    :param happened: told of each fault that happens, and at which byte.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        meter: Meter,
        happened: Callable[[Fault, int], None],
    ) -> None:
        self._planned = [
            _Planned(fault, fault.at if isinstance(fault.at, int) else None) for fault in faults
        ]
        self._meter = meter
        self._happened = happened
        self._at_work: list[_AtWork] = []
        self._buffer = bytearray()
        self._passed = 0
        self._ending = False
        self._out: deque[bytes] = deque()
        self._locate(b"")

    @property
    def pending(self) -> tuple[Fault, ...]:
        """What has not happened, in the schedule's order."""
        return tuple(planned.fault for planned in self._planned)

    def feed(self, data: bytes) -> None:
        self._buffer += data
        self._locate(data)

    def finish(self) -> None:
        """Nothing more will be fed."""
        self._ending = True

    def discard(self) -> None:
        """What has been fed and has not come out is lost."""
        self._passed += len(self._buffer)
        self._buffer.clear()
        self._out.clear()

    def step(self) -> bytes | Hold | None:
        """What comes next: bytes, or something that happens; ``None`` until more is fed."""
        while not self._out:
            hold = self._begin()
            if hold is not None:
                return hold
            if self._out:
                break
            if self._buffer:
                self._pass(self._next_change())
            elif self._ending and self._at_work:
                for work in list(self._at_work):
                    self._end(work)
            else:
                return None
        return self._out.popleft()

    # Where things are -----------------------------------------------------------------------------

    def _locate(self, data: bytes) -> None:
        for (kind, number), offset in self._meter.feed(data):
            for planned in self._planned:
                at = planned.fault.at
                if planned.due is None and type(at) is kind and getattr(at, "number", 1) == number:
                    assert not isinstance(at, int)
                    planned.due = offset + at.after

    def _next_change(self) -> int:
        """How many bytes go before anything changes: at least one, at most all there are."""
        changes = [len(self._buffer)]
        for planned in self._planned:
            if planned.due is not None and planned.due > self._passed:
                changes.append(planned.due - self._passed)
        for work in self._at_work:
            if work.end is not None:
                changes.append(work.end - self._passed)
        if any(work.with_line for work in self._at_work):
            at = self._buffer.find(b"\n")
            if at != -1:
                changes.append(at + 1)
        return min(changes)

    # What happens ---------------------------------------------------------------------------------

    def _begin(self) -> Hold | None:
        """What is due at this byte begins; a hold is returned, the rest has its turn after it."""
        for planned in list(self._planned):
            fault = planned.fault
            if planned.due is None or planned.due > self._passed:
                continue
            if not self._buffer:
                early = isinstance(fault, (HalfClose, Break)) and fault.early
                if not early and (not self._ending or isinstance(fault, Span)):
                    continue
            self._planned.remove(planned)
            self._happened(fault, self._passed)
            if isinstance(fault, Hold):
                return fault
            assert isinstance(fault, Span)
            self._set_to_work(fault, fault.length)
        return None

    def _set_to_work(self, fault: Span, much: Much) -> None:
        if isinstance(fault, Corrupt) and isinstance(fault.by, bytes):
            self._emit(fault.by)
        if much != 0:
            end = self._passed + much if isinstance(much, int) else None
            self._at_work.append(_AtWork(fault, end, with_line=much == "line"))

    def _pass(self, count: int) -> None:
        piece = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._passed += count
        line_ends = piece.endswith(b"\n")
        for work in self._at_work:
            if isinstance(work.fault, Corrupt):
                by = work.fault.by
                piece = b"" if isinstance(by, bytes) else bytes(byte ^ by for byte in piece)
        self._emit(piece)
        for work in list(self._at_work):
            if work.end == self._passed or (work.with_line and line_ends):
                self._end(work)

    def _end(self, work: _AtWork) -> None:
        self._at_work.remove(work)
        if isinstance(work.fault, Duplicate):
            self._emit(bytes(work.copy))

    def _emit(self, piece: bytes) -> None:
        """Put out what has become of some bytes, unless they are to be lost, in pieces."""
        size = len(piece)
        for work in self._at_work:
            if isinstance(work.fault, Drop):
                return
            if isinstance(work.fault, Duplicate):
                work.copy += piece[: COPY_BYTES - len(work.copy)]
            elif isinstance(work.fault, Split):
                size = min(size, work.fault.size)
        self._out.extend(piece[at : at + size] for at in range(0, len(piece), size or 1))
