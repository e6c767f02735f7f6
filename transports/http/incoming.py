"""From the bytes of one HTTP/1.1 connection to whole requests, in bounds. No I/O, no clock.

``httptools`` finds the parts; every limit is ours. A request that must be refused ends the parsing:
what follows it on the connection is not looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs
import httptools

from ...runtime.errors import ErrorCode, ProtocolError
from ...runtime.limits import Limits
from .endpoint import answer_error, too_large
from .message import Answer, RequestHead

__all__ = ["CONTINUE", "Continue", "Incoming", "Whole"]


@attrs.frozen(eq=False)
class Whole:
    """A request with its body. ``chunked``: its sender knows chunked transfer coding."""

    head: RequestHead
    body: bytes
    keep_alive: bool
    chunked: bool


class Continue:
    """The sender waits for ``100 Continue`` before it sends the body."""


CONTINUE: Final = Continue()

Item: TypeAlias = Whole | Answer | Continue


class Incoming:
    """What has come on a connection: ``ready`` has it in order, refusals among it."""

    def __init__(
        self, check_head: Callable[[RequestHead], Answer | None], limits: Limits, peer: str
    ) -> None:
        self.ready: deque[Item] = deque()
        self._check_head = check_head
        self._limits = limits
        self._peer = peer
        self._parser = httptools.HttpRequestParser(self)
        self._deaf = False
        self._within: str | None = None  # "head" or "body", in the middle of a request
        self._head_bytes = 0
        self._url = b""
        self._headers: list[tuple[str, str]] = []
        self._head: RequestHead | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0

    def feed(self, data: bytes | bytearray) -> None:
        if self._deaf:
            return
        was_in_head = self._within == "head"
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(_bad("this server upgrades to nothing"))
        except (httptools.HttpParserError, httptools.HttpParserInvalidMethodError) as error:
            self._refuse(_bad(str(error)))
        if self._within == "head" and not self._deaf:
            # httptools keeps an unfinished header by itself: count what it was given.
            self._head_bytes = self._head_bytes + len(data) if was_in_head else len(data)
            if self._head_bytes > self._limits.http_head_bytes:
                self._refuse(_head_too_large(self._limits))

    def patience(self, *, busy: bool) -> float:
        """How many seconds the next bytes may take, from now."""
        limits = self._limits
        if self._deaf:
            return float("inf")
        if self._within == "head":
            return limits.http_head_time
        if self._within == "body":
            return limits.http_body_time
        return float("inf") if busy else limits.http_idle_time

    def time_out(self) -> bool:
        """The patience is over. ``False``: between two requests, where nobody is to be told."""
        if self._within is None:
            return False
        error = ProtocolError(
            ErrorCode.INVALID_REQUEST, f"Invalid request: its {self._within} took too long"
        )
        self._refuse(answer_error(error, status=408, close=True))
        return True

    def _refuse(self, answer: Answer) -> None:
        if not self._deaf:
            self._deaf = True
            self._within = None
            self._body = []
            self.ready.append(answer)

    # What httptools calls

    def on_message_begin(self) -> None:
        self._within = "head"
        self._head_bytes = 0
        self._url = b""
        self._headers = []
        self._head = None
        self._body, self._body_bytes = [], 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self._within = "body"
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > self._limits.http_head_bytes:
            self._refuse(_head_too_large(self._limits))
            return
        if self._parser.get_http_version() not in ("1.0", "1.1"):
            self._refuse(attrs.evolve(_bad("this server speaks HTTP/1.1"), status=505))
            return
        try:
            path = httptools.parse_url(self._url).path or b"/"
        except httptools.HttpParserError:
            self._refuse(_bad("the request target is no URL"))
            return
        method = self._parser.get_method().decode("latin-1")
        head = RequestHead(method, path.decode("latin-1"), tuple(self._headers), self._peer)
        refusal = self._check_head(head)
        if refusal is not None:
            self._refuse(refusal)
            return
        self._head = head
        if (head.get("expect") or "").lower() == "100-continue":
            self.ready.append(CONTINUE)

    def on_body(self, data: bytes) -> None:
        if self._deaf:
            return
        self._body_bytes += len(data)
        if self._body_bytes > self._limits.message_bytes:
            self._refuse(too_large(self._limits))
        else:
            self._body.append(data)

    def on_message_complete(self) -> None:
        self._within = None
        if self._deaf or self._head is None:
            return
        self.ready.append(
            Whole(
                self._head,
                b"".join(self._body),
                keep_alive=self._parser.should_keep_alive(),
                chunked=self._parser.get_http_version() == "1.1",
            )
        )
        self._body = []


def _bad(why: str) -> Answer:
    error = ProtocolError(ErrorCode.INVALID_REQUEST, f"Invalid request: {why}")
    return answer_error(error, status=400, close=True)


def _head_too_large(limits: Limits) -> Answer:
    error = ProtocolError(
        ErrorCode.INVALID_REQUEST,
        f"Invalid request: its head is longer than http_head_bytes={limits.http_head_bytes}",
    )
    return answer_error(error, status=431, close=True)
