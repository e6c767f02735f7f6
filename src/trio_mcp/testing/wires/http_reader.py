"""HTTP/1.1 as it passes by, one direction of one connection: messages and where their parts begin.

Only as much as a stub and a transcript need; what is no HTTP is told once, and then nothing more
is. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import attrs

from .course import Landmark, LineMeter
from .faults import Body, Chunk

__all__ = ["HEAD_BYTES", "Data", "End", "Head", "HttpMeter", "HttpReader", "NoHttp", "Part"]

HEAD_BYTES: Final = 64 * 1024
"""Of the longest head, and of the longest line in a chunked body."""


@attrs.frozen
class Head:
    """The first line and the headers, by their names in lower case."""

    line: str
    headers: dict[str, str]
    size: int

    @property
    def status(self) -> int:
        """Of a response; 0 if that is no number."""
        word = self.line.split(" ")[1:2]
        return int(word[0]) if word and word[0].isdecimal() and len(word[0]) < 4 else 0

    @property
    def method(self) -> str:
        return self.line.split(" ")[0]

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]

    @property
    def type(self) -> str:
        """The media type of the body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@attrs.frozen
class Data:
    """Some of a body, without its framing."""

    data: bytes


@attrs.frozen
class End:
    """A message is complete."""


@attrs.frozen
class NoHttp:
    """What follows is no HTTP/1.1, or no longer."""

    why: str


Part: TypeAlias = Head | Data | End | NoHttp

_Kind: TypeAlias = Literal["requests", "responses", "whatever it is"]
_Stage: TypeAlias = Literal[
    "head", "sized", "until close", "size line", "chunk", "end of chunk", "trailers", "off"
]


class HttpReader:
    """Bytes in, parts out. ``landmarks`` grows by what positions can be told from, and ``raw``, if
    that is wanted, by all bytes of what has come out."""

    def __init__(self, kind: _Kind, *, raw: bool = False) -> None:
        self.raw = bytearray()
        self._keeps_raw = raw
        self.landmarks: list[tuple[Landmark, int]] = []
        self._kind = kind
        self._stage: _Stage = "head"
        self._buffer = bytearray()
        self._passed = 0
        self._left = 0
        self._chunk = 0

    @property
    def between(self) -> bool:
        """Whether no message has begun that has not ended."""
        return self._stage == "off" or (self._stage == "head" and not self._buffer)

    def feed(self, data: bytes) -> Iterator[Part]:
        self._buffer += data
        while (part := self._next()) is not None:
            yield part

    def end(self) -> Iterator[Part]:
        """The connection has ended."""
        if self._stage == "until close":
            self._stage = "head"
            yield End()

    def _next(self) -> Part | None:
        while True:
            if self._stage == "head":
                return self._head()
            if self._stage in ("sized", "until close", "chunk"):
                return self._data()
            if self._stage == "off":
                self._take(len(self._buffer))
                return None
            line = self._line()
            if not isinstance(line, bytes):
                return line
            part = self._on_line(line)
            if part is not None:
                return part

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._passed += count
        if self._keeps_raw:
            self.raw += taken
        return taken

    def _off(self, why: str) -> NoHttp:
        self._stage = "off"
        self._take(len(self._buffer))
        return NoHttp(why)

    # The head -------------------------------------------------------------------------------------

    def _head(self) -> Part | None:
        if self._buffer.strip() and not self._buffer.lstrip()[:1].isalpha():
            return self._off("no HTTP")
        at = self._buffer.find(b"\r\n\r\n")
        if max(at, len(self._buffer) if at == -1 else 0) > HEAD_BYTES:
            return self._off("a head without end")
        if at == -1:
            return None
        first, *lines = self._take(at + 4).decode("latin-1").strip("\r\n").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        words = first.split(" ")
        is_response = words[0].startswith("HTTP/1.")
        is_request = len(words) == 3 and words[2].startswith("HTTP/1.")
        if not (is_response and self._kind != "requests") and not (
            is_request and self._kind != "responses"
        ):
            return self._off("no HTTP")
        head = Head(first, headers, at + 4)
        self._begin_body(head, is_response)
        return head

    def _begin_body(self, head: Head, is_response: bool) -> None:
        self.landmarks.append(((Body, 1), self._passed))
        length = head.headers.get("content-length", "")
        self._left = int(length) if length.isdecimal() and len(length) < 19 else 0
        if is_response and head.status == 101:
            self._stage = "off"
        elif is_response and (head.status in (204, 304) or 100 <= head.status < 200):
            self._stage, self._left = "sized", 0
        elif head.headers.get("transfer-encoding", "").lower().endswith("chunked"):
            self._stage, self._chunk = "size line", 0
            self._begin_chunk()
        elif length or not is_response:
            self._stage = "sized"
        else:
            self._stage = "until close"

    # The body -------------------------------------------------------------------------------------

    def _data(self) -> Part | None:
        if self._stage == "until close":
            return Data(self._take(len(self._buffer))) if self._buffer else None
        data = self._take(min(self._left, len(self._buffer)))
        self._left -= len(data)
        if self._left == 0 and self._stage == "chunk":
            self._stage = "end of chunk"
        elif self._left == 0 and not data:
            self._stage = "head"
            return End()
        return Data(data) if data else None

    def _begin_chunk(self) -> None:
        self._chunk += 1
        self.landmarks.append(((Chunk, self._chunk), self._passed))

    def _line(self) -> bytes | NoHttp | None:
        at = self._buffer.find(b"\r\n")
        if max(at, len(self._buffer) if at == -1 else 0) > HEAD_BYTES:
            return self._off("a line without end")
        if at == -1:
            return None
        return self._take(at + 2)[:-2]

    def _on_line(self, line: bytes) -> Part | None:
        """Of the framing of chunks."""
        if self._stage == "size line":
            return self._size(line)
        if self._stage == "end of chunk":
            if line:
                return self._off("a chunk of another size")
            self._stage = "size line"
            self._begin_chunk()
        elif not line:  # behind the trailers
            self._stage = "head"
            return End()
        return None

    def _size(self, line: bytes) -> Part | None:
        digits = line.partition(b";")[0].strip()
        try:
            size = int(digits, 16) if len(digits) < 16 else -1
        except ValueError:
            size = -1
        if size < 0:
            return self._off("no size of a chunk")
        self._left = size
        self._stage = "chunk" if size else "trailers"
        return None


class HttpMeter:
    """Where the body of a message begins, and each of its chunks, and lines as well."""

    def __init__(self) -> None:
        self._reader = HttpReader("whatever it is")
        self._lines = LineMeter()

    def feed(self, data: bytes) -> Iterable[tuple[Landmark, int]]:
        for _ in self._reader.feed(data):
            pass
        found, self._reader.landmarks = self._reader.landmarks, []
        return [*found, *self._lines.feed(data)]
