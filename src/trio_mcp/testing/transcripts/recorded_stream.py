"""A Trio stream whose bytes are written down, and otherwise left as they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable
from typing import Final

import trio
from trio.abc import HalfCloseableStream, Stream

from ...transports.framing import LineReader, Oversize
from ..wires.http_reader import Data, Head, HttpReader, NoHttp, Part
from .transcript import Transcript, given_transcript
from .wording import Side, quoted

__all__ = ["RecordedStream"]

MESSAGE_BYTES: Final = 1024 * 1024
"""Of a message that is put in words; of a longer one only that it was there."""


class RecordedStream(HalfCloseableStream):
    """Around any Trio stream: a client's, or a server's (``far=True``).

    :param stream: closed with this one.
    :param transcript: what it is written to.
    :param http: whether it carries HTTP/1.1 instead of lines.

    Around a :class:`.FaultyStream` it records what its user says and hears; within one, what goes
    over the wire.
    """

    def __init__(
        self, stream: Stream, transcript: Transcript, *, far: bool = False, http: bool = False
    ) -> None:
        self.transport_stream = stream
        transcript = given_transcript(transcript)
        sent: Side = "far" if far else "near"
        received: Side = "near" if far else "far"
        if http:
            exchanges: deque[Hashable] = deque()
            responses = _Responses(transcript, exchanges)
            requests = _Requests(transcript, exchanges, responses)
            self._sent, self._received = (responses, requests) if far else (requests, responses)
        else:
            self._sent = _Lines(transcript, sent, self)
            self._received = _Lines(transcript, received, self)

    _sent: _Heard
    _received: _Heard

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._sent.hear(bytes(data))
        try:
            await self.transport_stream.send_all(data)
        except trio.BrokenResourceError:
            self._sent.end("broken")
            raise

    async def wait_send_all_might_not_block(self) -> None:
        await self.transport_stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Raises ``TypeError`` if the stream cannot be half-closed."""
        stream = self.transport_stream
        if not isinstance(stream, HalfCloseableStream):
            raise TypeError(f"a {type(stream).__name__} cannot be half-closed")
        self._sent.end("end")
        await stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            data = await self.transport_stream.receive_some(max_bytes)
        except trio.BrokenResourceError:
            self._received.end("broken")
            raise
        if data:
            self._received.hear(bytes(data))
        else:
            self._received.end("end")
        return data

    def note_break(self) -> None:
        """It is about to be closed, not to be ended but to be reset."""
        self._sent.end("broken")

    async def aclose(self) -> None:
        self._sent.end("end")
        await self.transport_stream.aclose()


class _Heard(ABC):
    """What comes in one direction."""

    def __init__(self, transcript: Transcript, side: Side) -> None:
        self._transcript = transcript
        self._side = side
        self._ended = False

    @abstractmethod
    def hear(self, data: bytes) -> None:
        """More bytes have come."""

    def end(self, how: str) -> None:
        if not self._ended:
            self._ended = True
            self._end(how)

    @abstractmethod
    def _end(self, how: str) -> None:
        """The direction has ended."""


class _Lines(_Heard):
    def __init__(self, transcript: Transcript, side: Side, where: Hashable) -> None:
        super().__init__(transcript, side)
        self._where = where
        self._reader = LineReader(MESSAGE_BYTES)

    def hear(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if isinstance(frame, Oversize):
                self._transcript.note(self._side, f"a message of more than {MESSAGE_BYTES} bytes")
            else:
                self._transcript.message(self._where, self._side, frame)

    def _end(self, how: str) -> None:
        for frame in self._reader.end():
            if isinstance(frame, bytes):
                self._transcript.message(self._where, self._side, frame, "without its end: ")
        self._transcript.note(self._side, how)


class _Http(_Heard):
    """Messages of HTTP. The end of a connection is worth a line only if it ends one of them."""

    def __init__(
        self, transcript: Transcript, side: Side, reader: HttpReader, exchanges: deque[Hashable]
    ) -> None:
        super().__init__(transcript, side)
        self._reader = reader
        self._exchanges = exchanges
        self._head: Head | None = None
        self._body = bytearray()
        self._body_size = 0

    def hear(self, data: bytes) -> None:
        for part in self._reader.feed(data):
            self._on(part)

    def _end(self, how: str) -> None:
        for part in self._reader.end():
            self._on(part)
        if self._head is not None:
            self._transcript.note(self._side, f"{how} after {self._body_size} bytes of its body")
        elif not self._reader.between:
            self._transcript.note(self._side, f"{how} in its head")

    def _on(self, part: Part) -> None:
        if isinstance(part, Head):
            self._head, self._body_size = part, 0
            self._body.clear()
            self._begin(part)
        elif isinstance(part, Data):
            self._body_size += len(part.data)
            self._more(part.data)
        elif isinstance(part, NoHttp):
            self._head = None
            self._transcript.note(self._side, part.why)
        elif self._head is not None:
            head, self._head = self._head, None
            self._complete(head)

    @abstractmethod
    def _begin(self, head: Head) -> None:
        """The head of a message has come."""

    def _more(self, data: bytes) -> None:
        self._body += data[: MESSAGE_BYTES + 1 - len(self._body)]

    @abstractmethod
    def _complete(self, head: Head) -> None:
        """So has all of its body."""

    def _tell_body(self, where: Hashable, head: Head, first: str) -> None:
        if self._body_size > MESSAGE_BYTES:
            self._transcript.note(self._side, f"{first} a body of {self._body_size} bytes")
        elif not self._body:
            self._transcript.note(self._side, first)
        elif head.type == "application/json":
            self._transcript.message(where, self._side, bytes(self._body), f"{first} ")
        else:
            self._transcript.note(self._side, f"{first} {quoted(bytes(self._body))}")


class _Requests(_Http):
    def __init__(
        self, transcript: Transcript, exchanges: deque[Hashable], responses: _Responses
    ) -> None:
        super().__init__(transcript, "near", HttpReader("requests"), exchanges)
        self._responses = responses

    def _end(self, how: str) -> None:
        if self._responses.give_up():
            self._transcript.note(self._side, "hung up")
        else:
            super()._end(how)

    def _begin(self, head: Head) -> None:
        pass

    def _complete(self, head: Head) -> None:
        exchange = object()
        self._exchanges.append(exchange)
        self._tell_body(exchange, head, head.method)


class _Responses(_Http):
    def __init__(self, transcript: Transcript, exchanges: deque[Hashable]) -> None:
        super().__init__(transcript, "far", HttpReader("responses"), exchanges)
        self._exchange: Hashable = None
        self._events = _Events()

    def give_up(self) -> bool:
        """Nobody hears them any more; whether one is missing, or is not complete."""
        missing = not self._ended and (bool(self._exchanges) or self._head is not None)
        self._ended = self._ended or missing
        return missing

    def _begin(self, head: Head) -> None:
        self._exchange = self._exchanges.popleft() if self._exchanges else object()
        if head.type == "text/event-stream":
            self._events = _Events()
            self._transcript.note(self._side, f"{head.status} events")

    def _more(self, data: bytes) -> None:
        assert self._head is not None
        if self._head.type != "text/event-stream":
            super()._more(data)
            return
        for message in self._events.feed(data):
            if message is None:
                self._transcript.note(self._side, f"an event of more than {MESSAGE_BYTES} bytes")
            else:
                self._transcript.message(self._exchange, self._side, message, "event ")

    def _complete(self, head: Head) -> None:
        if head.type == "text/event-stream":
            self._transcript.note(self._side, "end of events")
        else:
            self._tell_body(self._exchange, head, str(head.status))


class _Events:
    """The data of server-sent events; ``None`` for one that is too long."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes | None]:
        found: list[bytes | None] = []
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest
        if len(rest) > MESSAGE_BYTES:
            self._rest = b""
            found.append(None)
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:") and sum(map(len, self._data)) < MESSAGE_BYTES:
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        return found
