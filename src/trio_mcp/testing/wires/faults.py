"""Faults of a wire, and where on it they happen. Values, nothing more.

A schedule is a sequence of them, for one direction of a wire. Each happens once, when the byte at
its position is about to pass, or the end in its place. What has a length (``much``) has it in bytes
as they were before any fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio

__all__ = [
    "Body",
    "Break",
    "Chunk",
    "Corrupt",
    "Delay",
    "Drop",
    "Duplicate",
    "Fault",
    "HalfClose",
    "Hold",
    "Line",
    "Much",
    "Position",
    "Span",
    "Split",
    "Stall",
    "check_schedule",
]

# Where --------------------------------------------------------------------------------------------


def _check_count(what: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{what} is a whole number, {least} or more, not {value!r:.80}")


def _count(least: int) -> Any:
    def check(_: Any, attribute: attrs.Attribute[int], value: Any) -> None:
        _check_count(attribute.name, value, least)

    return check


@attrs.frozen
class Line:
    """``after`` bytes behind the beginning of a line; the first line has number 1."""

    number: int = attrs.field(validator=_count(1))
    after: int = attrs.field(default=0, validator=_count(0))


@attrs.frozen
class Body:
    """``after`` bytes behind the head of an HTTP message; the framing of chunks counts."""

    after: int = attrs.field(default=0, validator=_count(0))


@attrs.frozen
class Chunk:
    """``after`` bytes behind the beginning of a chunk, which is the line with its size; the first
    chunk of an HTTP message has number 1."""

    number: int = attrs.field(validator=_count(1))
    after: int = attrs.field(default=0, validator=_count(0))


Position: TypeAlias = int | Line | Body | Chunk
"""Where a fault happens: so many bytes behind the beginning, or behind something else.
:class:`Body` and :class:`Chunk` are for HTTP, where the beginning is that of one message."""


def _check_position(_: Any, __: Any, at: Any) -> None:
    if not isinstance(at, (Line, Body, Chunk)):
        _check_count("at", at, 0)


# How much -----------------------------------------------------------------------------------------

Much: TypeAlias = int | Literal["line", "rest"]
"""Bytes; ``"line"``: up to the next LF, and that too; ``"rest"``: all that follows."""

_WORDS: Final = ("line", "rest")


def _check_much(_: Any, __: Any, much: Any) -> None:
    if much not in _WORDS:
        _check_count("much, where it is not 'line' or 'rest',", much, 1)


# What ---------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Fault:
    """One fault, ``at`` one place."""

    at: Position = attrs.field(default=0, validator=_check_position)


@attrs.frozen
class Span(Fault):
    """Happens to bytes, to so many of them."""

    @property
    def length(self) -> Much:
        much: Much = getattr(self, "much")  # noqa: B009
        return much


@attrs.frozen
class Hold(Fault):
    """Happens between two bytes."""


@attrs.frozen
class Drop(Span):
    """Bytes are lost."""

    much: Much = attrs.field(default="line", validator=_check_much)


@attrs.frozen
class Duplicate(Span):
    """Bytes come twice; the copy right behind them. Of a line at most 16 MiB, and not the rest."""

    much: int | Literal["line"] = attrs.field(default="line", validator=_check_much)

    def __attrs_post_init__(self) -> None:
        if str(self.much) == "rest":
            raise ValueError("what has no end cannot come twice: much is a number or 'line'")


def _check_by(_: Any, __: Any, by: Any) -> None:
    if isinstance(by, bytes):
        return
    _check_count("by, where it is no bytes,", by, 1)
    if by > 0xFF:
        raise ValueError(f"the bits of one byte are 1 to 255, not {by}")


@attrs.frozen
class Corrupt(Span):
    """Bytes become others: ``by`` is what stands in their place, or which of their bits are
    flipped. ``much`` is as long as ``by`` unless it is given, or one byte; 0 puts ``by`` in
    between."""

    by: bytes | int = attrs.field(default=0x80, validator=_check_by)
    much: Much | None = None

    def __attrs_post_init__(self) -> None:
        if self.much not in (None, 0, *_WORDS):
            _check_much(None, None, self.much)
        if self.by == b"" and self.much in (None, 0):
            raise ValueError("nothing in the place of nothing is no fault")

    @property
    def length(self) -> Much:
        if self.much is not None:
            return self.much
        return len(self.by) if isinstance(self.by, bytes) else 1


@attrs.frozen
class Split(Span):
    """Bytes go in pieces of ``size``, the last one perhaps shorter. Where they are sent, whoever
    reads may get several at once; where they are received, it is one at a time."""

    size: int = attrs.field(default=1, validator=_count(1))
    much: Much = attrs.field(default="rest", validator=_check_much)


def _check_seconds(_: Any, __: Any, seconds: Any) -> None:
    numeric = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not numeric or not 0 <= seconds < math.inf:
        raise ValueError(f"a finite number of seconds, not negative, is wanted, not {seconds!r}")


@attrs.frozen
class Delay(Hold):
    """What comes next comes ``seconds`` later than it would have, once; the end, if it is that."""

    seconds: float = attrs.field(validator=_check_seconds)


@attrs.frozen
class Stall(Hold):
    """Nothing moves any more: for ever, for so many seconds, or until an event. Where it is
    received, the stream is not read meanwhile, so that its sender has to wait, too."""

    until: trio.Event | float | None = None

    def __attrs_post_init__(self) -> None:
        if self.until is not None and not isinstance(self.until, trio.Event):
            _check_seconds(None, None, self.until)


@attrs.frozen
class HalfClose(Hold):
    """The direction ends as if its sender had closed its side. The sender is not told: what it
    sends afterwards is lost. ``early``: as soon as the bytes before it have passed."""

    early: bool = False


@attrs.frozen
class Break(Hold):
    """The connection breaks, in both directions, as by a reset: ``trio.BrokenResourceError``. Over
    TCP the other end gets the reset; over other streams it sees an end. ``early``: as soon as the
    bytes before it have passed."""

    early: bool = False


def check_schedule(faults: Any, *, http: bool = False) -> tuple[Fault, ...]:
    """Raises ``TypeError`` for what is no schedule, what is no fault, and for positions of HTTP
    elsewhere."""
    if isinstance(faults, Fault):
        raise TypeError(f"a schedule is a list of faults: [{faults!r}], not {faults!r} alone")
    if isinstance(faults, (str, bytes, Mapping)) or not isinstance(faults, Iterable):
        raise TypeError(
            f"a schedule is a list of faults, such as [Drop(at=Line(2))], not {faults!r:.200}"
        )
    checked = tuple(faults)
    for fault in checked:
        if not isinstance(fault, Fault):
            raise TypeError(f"a schedule has faults in it, such as Drop(at=Line(2)), not {fault!r}")
        if isinstance(fault.at, (Body, Chunk)) and not http:
            raise TypeError(f"{fault.at} is a place in an HTTP message: for http_stub")
    return checked
