"""Server-Sent Events, as this transport reads them. No I/O.

Lines end with CR, LF or CRLF and with nothing else: the text is taken as bytes until its JSON is
decoded, so U+2028 and U+0085 split nothing and no invalid byte is replaced on the way. A line that
ends with CR ends at once, without waiting for an LF that may follow.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EventReader", "EventTooLong"]

_LINE_END: Final = re.compile(rb"\r\n?|\n")
_BOM: Final = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """One event is longer than the limit."""


class EventReader:
    """From chunks of a stream to the data of its message events. Memory is bounded by ``limit``.

    Comments, events of other types, events without data and fields that are not ours are skipped;
    what the stream ends in the middle of never was an event.

    ``last_id`` is the newest event's id, empty for none; ``retry`` the milliseconds that the stream
    wants readers to wait before they come back, ``None`` if it does not say. ``events`` counts
    those that had data.
    """

    def __init__(self, limit: int) -> None:
        self.last_id = b""
        self.retry: int | None = None
        self.events = 0
        self._id = b""
        self._limit = limit
        self._size = 0  # of the event so far, its unfinished line included
        self._line = bytearray()
        self._after_cr = False
        self._first = True
        self._type = b""
        self._data = bytearray()  # each line of it with its end

    def following(self) -> EventReader:
        """A reader of the stream that goes on where this one has ended."""
        reader = EventReader(self._limit)
        reader.last_id = reader._id = self.last_id
        reader.retry = self.retry
        return reader

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that ``chunk`` completes. Raises :class:`EventTooLong`."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        events: list[bytes] = []
        start = 0
        for end in _LINE_END.finditer(chunk):
            self._hold(chunk[start : end.start()])
            self._end_line(events)
            start = end.end()
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        self._hold(chunk[start:])
        return events

    def _hold(self, part: bytes) -> None:
        if part:
            self._line += part
            self._size += len(part)
            if self._size > self._limit:
                raise EventTooLong(f"an event is longer than {self._limit} bytes")

    def _end_line(self, events: list[bytes]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            self._end_event(events)
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data += value.removeprefix(b" ") + b"\n"
        else:
            self._size -= len(line)
            if name == b"event":
                self._type = value.removeprefix(b" ")
            elif name == b"id":
                self._id = value.removeprefix(b" ")
            elif name == b"retry":
                self._set_retry(value.removeprefix(b" "))

    def _set_retry(self, value: bytes) -> None:
        if value.isdigit() and len(value) < 10:
            self.retry = int(value)

    def _end_event(self, events: list[bytes]) -> None:
        data = bytes(self._data[:-1])
        self.last_id = self._id
        if data and self._type in (b"", b"message"):
            events.append(data)
            self.events += 1
        self._size = 0
        self._type = b""
        self._data.clear()
