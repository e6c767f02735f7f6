"""HTTP connections to a server: requests made ahead, answers read as they come."""

from __future__ import annotations

import select
import socket
import time
from typing import Any, Self

import msgspec

from .channel import Driven
from .process import STEP_LIMIT, LoadError, ServerProcess
from .requests import BOOK, Message, call, check_stock, post, read, text_of

__all__ = ["Line", "Response", "drive"]

_CHUNK = 65_536
#: Every so many answers one is read whole.
_SAMPLE = 17


class Response(msgspec.Struct):
    """A whole answer. `size` is that of all its bytes."""

    status: int
    body: bytes
    size: int
    streamed: bool

    def messages(self) -> list[Message]:
        """The messages in it: one, or those of its events."""
        if self.status != 200:
            raise LoadError(f"the answer is {self.status}: {self.body[:500]!r}")
        if not self.streamed:
            return [read(self.body)]
        lines = self.body.replace(b"\r\n", b"\n").split(b"\n")
        return [read(line[5:]) for line in lines if line.startswith(b"data:") and line[5:].strip()]


def response_in(data: bytes) -> Response | None:
    """The response that these bytes are, if they are all of one."""
    head, blank, body = data.partition(b"\r\n\r\n")
    if not blank:
        return None
    lines = head.lower().split(b"\r\n")
    fields = dict(line.split(b":", 1) for line in lines[1:])
    whole: bytes | None
    if b"content-length" in fields:
        whole = body if len(body) >= int(fields[b"content-length"]) else None
    else:
        whole = _without_chunks(body)
    if whole is None:
        return None
    streamed = b"text/event-stream" in fields.get(b"content-type", b"")
    return Response(int(head[9:12]), whole, len(data), streamed)


def _without_chunks(body: bytes) -> bytes | None:
    if not body.endswith(b"0\r\n\r\n"):
        return None
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(body[at:end].partition(b";")[0], 16)
        if not size:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 4 + size


class Line:
    """A kept connection, with one request at a time. Connects again where it was closed."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up. The next question connects again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, tool: str, **arguments: Any) -> str:
        """Call one tool and return its text."""
        message = self.call(call(1, tool, arguments), tool).messages()[-1]
        return text_of(message)

    def ask_stock(self) -> None:
        """Call `stock`, and look at the whole answer."""
        check_stock(self.call(call(1, "stock", BOOK), "stock").messages()[-1])

    def search(self) -> int:
        """Call `search`, look at the whole answer and its three reports; return its size."""
        response = self.call(call(1, "search", BOOK, progress=True), "search")
        *reports, answer = response.messages()
        if [one.method for one in reports] != ["notifications/progress"] * 3:
            raise LoadError(f"search reported no progress three times: {response.body[:1000]!r}")
        check_stock(answer)
        return response.size

    def call(self, body: bytes, tool: str) -> Response:
        """Post a call and wait for all of its answer."""
        request = post(body, tool, self._server.port)
        fresh = self._socket is None
        if self._socket is None:
            self._socket = self._server.connect()
        try:
            self._socket.sendall(request)
            data = b""
            while (response := response_in(data)) is None:
                chunk = self._socket.recv(_CHUNK)
                if not chunk:
                    raise ConnectionResetError("closed")
                data += chunk
        except OSError as error:
            self.close()
            if fresh:
                raise LoadError(f"a request was not answered: {error!r}") from error
            return self.call(body, tool)  # it was closed while nobody used it
        return response


def drive(server: ServerProcess, in_flight: int, seconds: float, *, search: bool) -> Driven:
    """Call `stock`, or `search`, on so many connections for some seconds; for where there is no
    `wrk`, and where its seconds are too long."""
    posts = _Posts(server, in_flight, search=search)
    try:
        busy = time.process_time()
        began = now = time.perf_counter()
        posts.begin()
        while posts.waiting:
            ready = posts.poll.poll(STEP_LIMIT)
            if not ready:
                raise LoadError("the server did not answer in time")
            now = time.perf_counter()
            for number, _ in ready:
                posts.read(number, now, again=now < began + seconds)
    finally:
        posts.close()
    spent = now - began
    busy = (time.process_time() - busy) / spent
    return Driven(len(posts.latencies), spent, posts.latencies, busy)


class _Posts:
    """Connections, by their descriptors, each with one call under way."""

    def __init__(self, server: ServerProcess, count: int, *, search: bool) -> None:
        tool = "search" if search else "stock"
        self._request = post(call(1, tool, BOOK, progress=search), tool, server.port)
        lines = [server.connect() for _ in range(count)]
        self._lines = {line.fileno(): line for line in lines}
        self._data = dict.fromkeys(self._lines, b"")
        self._sent_at: dict[int, float] = {}
        self.latencies: list[float] = []
        self.poll = select.epoll()
        for number in self._lines:
            self.poll.register(number, select.EPOLLIN)

    @property
    def waiting(self) -> bool:
        return bool(self._sent_at)

    def begin(self) -> None:
        for number in self._lines:
            self._send(number, time.perf_counter())

    def read(self, number: int, now: float, *, again: bool) -> None:
        """Take what came on one; if the answer is whole, send `again`."""
        chunk = self._lines[number].recv(_CHUNK)
        if not chunk:
            raise LoadError("the server closed a connection")
        self._data[number] += chunk
        response = response_in(self._data[number])
        if response is None:
            return
        if response.status != 200 or not len(self.latencies) % _SAMPLE:
            check_stock(response.messages()[-1])
        self.latencies.append(now - self._sent_at.pop(number))
        self._data[number] = b""
        if again:
            self._send(number, now)

    def close(self) -> None:
        self.poll.close()
        for line in self._lines.values():
            line.close()

    def _send(self, number: int, now: float) -> None:
        self._sent_at[number] = now
        self._lines[number].sendall(self._request)
