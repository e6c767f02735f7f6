"""One duplex stream of messages to a server: pipes, a socket, a WebSocket.

One process, one thread, ``poll``. It writes in batches and reads of an answer no more than its id,
so that the server is the bottleneck and not this; see `Channel.drive`.
"""

from __future__ import annotations

import os
import select
import time
from typing import Any, Self

import msgspec

from ..contenders import Contender
from .framing import UPGRADE, Framing, Lines, WebSocketFrames
from .process import STEP_LIMIT, LoadError, ServerProcess
from .requests import BOOK, Message, call, call_parts, check_stock, read, text_of

__all__ = ["Channel", "Driven"]

_CHUNK = 262_144
#: Every so many answers one is read whole, whatever it looks like.
_SAMPLE = 97


class _Answer(msgspec.Struct):
    """As little of an answer as will do."""

    id: int | None = None
    result: msgspec.Raw = msgspec.Raw()


_glance = msgspec.json.Decoder(_Answer).decode


class Driven(msgspec.Struct):
    """Calls that were answered, and each one's latency in seconds.

    It runs from the hand-over to the stream to the reading of the answer, and contains the wait
    behind the other calls in flight. `busy`: the part of the time that this process was at work.
    """

    calls: int
    seconds: float
    latencies: list[float]
    busy: float


class _Window:
    """Calls of `stock` from an id on, and what becomes of them: each must be answered once.

    Answers must be like the one before, byte for byte but for their ids, or else are read whole, as
    some are in any case.
    """

    def __init__(self, first: int) -> None:
        self.waiting = 0
        self.latencies: list[float] = []
        self._first = first
        self._sent_at: list[float] = []
        self._usual = b""
        self._parts = call_parts("stock", BOOK)

    def requests(self, ids: range, now: float) -> list[bytes]:
        """They are sent now."""
        before, after = self._parts
        self._sent_at += [now] * len(ids)
        self.waiting += len(ids)
        return [b"%b%d%b" % (before, number, after) for number in ids]

    def take(self, text: bytes, now: float) -> None:
        """An answer, which was read now. Raises `LoadError` if it is none, or not for these."""
        answer = _glance(text)
        at = -1 if answer.id is None else answer.id - self._first
        if not answer.result or not 0 <= at < len(self._sent_at) or not self._sent_at[at]:
            raise LoadError(f"not what was waited for: {text[:500]!r}")
        self.latencies.append(now - self._sent_at[at])
        self._sent_at[at] = 0.0
        self.waiting -= 1
        if answer.result != self._usual or not at % _SAMPLE:
            check_stock(read(text))
            self._usual = bytes(answer.result)


class Channel:
    """A stream to a server, what is still to be written, and what has been read.

    `answered`: calls of `stock` that :meth:`drive` made. `late`: answers to requests that were
    given up.
    """

    def __init__(self, incoming: int, outgoing: int, framing: Framing) -> None:
        self._in, self._out = incoming, outgoing
        os.set_blocking(incoming, False)
        os.set_blocking(outgoing, False)
        self._framing = framing
        self._poll = select.poll()
        self._same = incoming == outgoing
        self._poll.register(incoming, select.POLLIN)
        self._outgoing = bytearray()
        self._blocked = False
        self._last_id = 0
        self._given_up: range = range(0)
        self._closing: Any = None
        self.answered = 0
        self.late = 0

    @classmethod
    def to(cls, server: ServerProcess, contender: Contender) -> Self:
        """Open one, as soon as the server lets it."""
        if contender.wire == "stdio":
            outgoing, incoming = server.pipes
            return cls(incoming, outgoing, Lines())
        stream = server.connect()
        framing: Framing = Lines()
        if contender.wire == "websocket":
            framing = WebSocketFrames()
            stream.sendall(UPGRADE)
            head = b""
            while not head.endswith(b"\r\n\r\n"):  # a byte at a time, to leave what follows
                byte = stream.recv(1)
                if not byte:
                    raise LoadError(f"the WebSocket was refused: {head!r}")
                head += byte
            if b" 101 " not in head[:20]:
                raise LoadError(f"the WebSocket was refused: {head!r}")
        channel = cls(stream.fileno(), stream.fileno(), framing)
        channel._closing = stream
        return channel

    def close(self) -> None:
        """Hang up; pipes are the process's to close."""
        if self._closing is not None:
            self._closing.close()

    def new_id(self) -> int:
        """Return a request id that was never used."""
        self._last_id += 1
        return self._last_id

    def new_ids(self, count: int) -> range:
        """Return so many of them."""
        self._last_id += count
        return range(self._last_id - count + 1, self._last_id + 1)

    def send(self, *messages: bytes) -> None:
        """Queue messages, and write as much as the stream takes now."""
        self._outgoing += self._framing.join(messages)
        self._write()

    def flush(self) -> None:
        """Wait until all is written. What is read meanwhile must be late."""
        deadline = time.perf_counter() + STEP_LIMIT
        while self._outgoing:
            for text in self._turn(deadline):
                self._note(text)

    def give_up(self, ids: range) -> None:
        """Count answers to these as late, and do not wonder."""
        self._given_up = ids

    def ask(self, tool: str, **arguments: Any) -> str:
        """Call one tool and return its text."""
        number = self.new_id()
        self.send(call(number, tool, arguments))
        return text_of(self._answer(number))

    def ask_stock(self) -> None:
        """Call `stock`, and look at the whole answer."""
        number = self.new_id()
        self.send(call(number, "stock", BOOK))
        check_stock(self._answer(number))

    def drive(self, in_flight: int, seconds: float) -> Driven:
        """Call `stock`, so many in flight, for some seconds, and then wait for all answers."""
        window = _Window(self._last_id + 1)
        busy = time.process_time()
        began = now = time.perf_counter()
        until = began + seconds
        while window.waiting or now < until:
            if now < until and window.waiting < in_flight:
                ids = self.new_ids(in_flight - window.waiting)
                self.send(*window.requests(ids, time.perf_counter()))
            texts = self._turn(until + STEP_LIMIT)
            now = time.perf_counter()
            for text in texts:
                window.take(text, now)
        spent = now - began
        busy = (time.process_time() - busy) / spent
        self.answered += len(window.latencies)
        return Driven(len(window.latencies), spent, window.latencies, busy)

    def _answer(self, number: int) -> Message:
        deadline = time.perf_counter() + STEP_LIMIT
        found: Message | None = None
        while found is None:
            for text in self._turn(deadline):
                message = read(text)
                if message.id == number:
                    found = message
                else:
                    self._note(text)
        return found

    def _note(self, text: bytes) -> None:
        number = read(text).id
        if number is None or number not in self._given_up:
            raise LoadError(f"unexpected message: {text[:500]!r}")
        self.late += 1

    def _turn(self, deadline: float) -> list[bytes]:
        """Wait until the stream moves, move it, and return what arrived whole (perhaps nothing)."""
        left = deadline - time.perf_counter()
        ready = self._poll.poll(left * 1000) if left > 0 else []
        if not ready:
            raise LoadError("the server did not answer in time")
        texts: list[bytes] = []
        for descriptor, events in ready:
            if events & select.POLLOUT or descriptor != self._in:
                self._write()
            if descriptor == self._in and events & ~select.POLLOUT:
                texts += self._read()
        return texts

    def _write(self) -> None:
        try:
            if self._outgoing:
                written = os.write(self._out, self._outgoing)
                del self._outgoing[:written]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            raise LoadError("the server closed the stream") from None
        if bool(self._outgoing) == self._blocked:
            return
        self._blocked = not self._blocked
        if self._same:
            self._poll.modify(self._in, select.POLLIN | select.POLLOUT * self._blocked)
        elif self._blocked:
            self._poll.register(self._out, select.POLLOUT)
        else:
            self._poll.unregister(self._out)

    def _read(self) -> list[bytes]:
        try:
            chunk = os.read(self._in, _CHUNK)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise LoadError("the server closed the stream")
        return self._framing.split(chunk)
