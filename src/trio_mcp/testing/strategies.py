"""Hypothesis strategies for schedules: ``@given(receiving=schedules())``.

Needs Hypothesis, which ``trio-mcp[testing]`` installs.
"""

from __future__ import annotations

from typing import Any, Final

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    if error.name != "hypothesis":
        raise
    raise ModuleNotFoundError(
        "trio_mcp.testing.strategies needs Hypothesis: install trio-mcp[testing]", name=error.name
    ) from None

from .wires.faults import (
    Break,
    Corrupt,
    Delay,
    Drop,
    Duplicate,
    Fault,
    HalfClose,
    Line,
    Much,
    Position,
    Split,
    Stall,
)

__all__ = ["faults", "positions", "schedules"]

_BYTES: Final = 4096
_LINES: Final = 8


def positions(*, bytes: int = _BYTES, lines: int = _LINES) -> st.SearchStrategy[Position]:
    """Within so many bytes, or so many lines, of the beginning; those of lines come first."""
    line = st.builds(Line, st.integers(1, lines), after=st.just(0) | st.integers(0, 80))
    return line | st.integers(0, bytes)


def faults(
    at: st.SearchStrategy[Position] | None = None,
    *,
    lossless: bool = False,
    longest: float = 120.0,
) -> st.SearchStrategy[Fault]:
    """One fault.

    :param at: where it may be.
    :param lossless: only those that keep all bytes as they are: delays, splits, stalls that end.
    :param longest: seconds of a delay, or of a stall. Others may last for ever.
    """
    at = at if at is not None else positions()
    seconds = st.floats(0, longest, allow_nan=False)
    much: st.SearchStrategy[Any] = st.just("line") | st.integers(1, 200)
    kept: list[st.SearchStrategy[Fault]] = [
        st.builds(Delay, seconds, at=at),
        st.builds(Split, st.integers(1, 64), at=at),
        st.builds(Stall, seconds, at=at),
    ]
    if lossless:
        return st.one_of(kept)
    length: st.SearchStrategy[Much] = much | st.just("rest")
    return st.one_of(
        *kept,
        st.builds(Drop, length, at=at),
        st.builds(Duplicate, much, at=at),
        st.builds(Corrupt, st.integers(1, 255), much, at=at),
        st.builds(Corrupt, st.binary(min_size=1, max_size=40), much, at=at),
        st.builds(Stall, at=at),
        st.builds(HalfClose, at=at),
        st.builds(Break, at=at),
    )


def schedules(
    fault: st.SearchStrategy[Fault] | None = None, *, most: int = 4
) -> st.SearchStrategy[list[Fault]]:
    """A schedule of at most so many faults."""
    return st.lists(fault if fault is not None else faults(), max_size=most)
