"""What was said over a wire, as lines of text that can be read, and compared in a test."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Collection, Hashable
from typing import Any

import attrs
import trio

from .wording import Side, Wording, clip, plain

__all__ = ["Entry", "Transcript", "TranscriptDiffers", "given_transcript"]

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s+(?=\S)")
"""Seconds; shown with three decimals, and compared to as many, however they are written."""


class TranscriptDiffers(AssertionError):
    """Something else was said; the text is a diff."""


@attrs.frozen
class Entry:
    """One line. ``sent``: by whom the transcript is named after; else received. ``time`` is in
    seconds, by Trio's clock, since the wire was first used."""

    time: float
    name: str
    sent: bool
    text: str

    @property
    def untimed(self) -> str:
        return f"{self.name} {'->' if self.sent else '<-'} {self.text}"

    def __str__(self) -> str:
        return f"{self.time:6.3f}  {self.untimed}"


class Transcript:
    """Filled by :class:`.RecordedStream`, ``memory_server`` and ``http_stub``.

    :param name: what the lines are named after.
    :param without: methods that are left out, with their answers.
    :param meta: whether ``_meta`` is shown.
    :param width: characters of a line's text; what is longer is cut, and ends with ``…``.
    :param lines: how many are kept; of what comes later only the number (``left_off``).

    Ids are shown as ``#1``, ``#2`` in order of appearance, cursors and states as ``<cursor 1>``:
    the same in every run. ``transcript == text`` and :meth:`compare` hold it against a text:

    - indentation and blank lines do not matter; ``…`` stands for any text in a line, and for any
      lines if it is alone;
    - a line without a time says nothing of the time; ``1``, ``1.0`` and ``1.000`` are one time.
    """

    def __init__(
        self,
        name: str = "client",
        *,
        without: Collection[str] = ("server/discover",),
        meta: bool = False,
        width: int = 200,
        lines: int = 10_000,
    ) -> None:
        self.name = name
        self.left_off = 0
        self._entries: list[Entry] = []
        self._wording = Wording(without, meta=meta)
        self._width = width
        self._lines = lines
        self._began_at: float | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    # Writing --------------------------------------------------------------------------------------

    def message(self, where: Hashable, side: Side, data: bytes, prefix: str = "") -> None:
        """A message of one side, or what should be one. Never raises, whatever it is."""
        self._begin()
        if self._room():
            said = self._wording.say(where, side, data)
            if said is not None:
                self._add(side, prefix + said)

    def note(self, side: Side, text: str) -> None:
        """Something else that one side did."""
        self._begin()
        if self._room():
            self._add(side, text)

    def _begin(self) -> None:
        if self._began_at is None:
            self._began_at = trio.current_time()

    def _room(self) -> bool:
        if len(self._entries) < self._lines:
            return True
        self.left_off += 1
        return False

    def _add(self, side: Side, text: str) -> None:
        assert self._began_at is not None
        time = trio.current_time() - self._began_at
        text = clip(plain(text), self._width)
        self._entries.append(Entry(time, self.name, side == "near", text))

    # Reading --------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join([*map(str, self._entries), *self._ending()])

    def _ending(self) -> list[str]:
        return [f"({self.left_off} more lines)"] if self.left_off else []

    def __repr__(self) -> str:
        return f"<Transcript of {self.name}: {len(self._entries)} lines>"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Transcript):
            return self.untimed() == other.untimed()
        if not isinstance(other, str):
            return NotImplemented
        return self._fits(_lines_of(other))

    __hash__ = None  # type: ignore[assignment]

    def untimed(self) -> list[str]:
        """The lines without their times."""
        return [*(entry.untimed for entry in self._entries), *self._ending()]

    def compare(self, text: str) -> None:
        """Raises :class:`TranscriptDiffers`, an ``AssertionError`` with a diff, if it is not so."""
        difference = self.difference(text)
        if difference:
            raise TranscriptDiffers("\n".join(["the transcript is another one:", *difference]))

    def difference(self, text: str) -> list[str]:
        """The lines of a diff from the text to this; none if it fits."""
        wanted = _lines_of(text)
        if self._fits(wanted):
            return []
        timed = any(_TIME.match(line) for line in wanted)
        said = [str(entry).strip() if timed else entry.untimed for entry in self._entries]
        said += self._ending()
        wanted = [next((one for one in said if _fits(line, one)), line) for line in wanted]
        return [
            line.rstrip()
            for line in difflib.unified_diff(wanted, said, "expected", "said", lineterm="", n=3)
        ]

    def _fits(self, wanted: list[str]) -> bool:
        said = [*map(str, self._entries), *self._ending()]
        reached = {0}  # how many lines may be accounted for
        for line in wanted:
            if line == "…":
                reached = set(range(min(reached), len(said) + 1))
            else:
                reached = {at + 1 for at in reached if at < len(said) and _fits(line, said[at])}
            if not reached:
                return False
        return len(said) in reached


def given_transcript(given: Any) -> Transcript:
    """That one, or a new one for ``None``. Raises ``TypeError`` for anything else."""
    if given is not None and not isinstance(given, Transcript):
        named = repr(given) if isinstance(given, str) else ""
        raise TypeError(f"transcript= takes a Transcript: Transcript({named}), not {given!r:.80}")
    return Transcript() if given is None else given


def _lines_of(text: str) -> list[str]:
    return [line.strip() for line in textwrap.dedent(text).splitlines() if line.strip()]


def _fits(wanted: str, said: str) -> bool:
    at, text = _timed(said.strip())
    if _like(wanted, text):
        return True  # whoever has a name like "7 dwarfs" says it without a time
    wanted_at, wanted = _timed(wanted)
    return wanted_at is not None and wanted_at == at and _like(wanted, text)


def _timed(line: str) -> tuple[str | None, str]:
    """Its time, with three decimals, and the rest of it."""
    found = _TIME.match(line)
    return (f"{float(found[1]):.3f}", line[found.end() :]) if found is not None else (None, line)


def _like(wanted: str, said: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in _spaced(wanted).split("…"))
    return re.fullmatch(pattern, _spaced(said)) is not None


def _spaced(line: str) -> str:
    return re.sub(r"\s+", " ", line)
