"""From the bytes of one HTTP/1.1 connection to whole requests, in bounds. No I/O, no clock.

``httptools`` finds the parts; every limit is ours. A request that must be refused ends the parsing:
what follows it on the connection is not looked at. An offer to upgrade is ignored: ``httptools``
stops there, so it gets the head again, without the offer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import attrs
import httptools

from ...runtime.errors import ErrorCode, ProtocolError
from ...runtime.limits import Limits
from .endpoint import answer_error, head_too_large, too_large, too_slow
from .heads import KnownHeads
from .message import Answer, RequestHead

__all__ = ["CONTINUE", "Continue", "Incoming", "Whole"]


@attrs.define(eq=False)
class Whole:
    """A request with its body. ``chunked``: its sender knows chunked transfer coding."""

    head: RequestHead
    body: bytes | bytearray
    keep_alive: bool
    chunked: bool


class Continue:
    """The sender waits for ``100 Continue`` before it sends the body."""


CONTINUE: Final = Continue()

Item: TypeAlias = Whole | Answer | Continue


class Incoming:
    """What has come on a connection, in order, refusals among it.

    ``stage`` is the part of a request that is coming now, ``None`` between two; ``stages`` counts
    its changes.
    """

    def __init__(
        self,
        check_head: Callable[[RequestHead], Answer | None],
        limits: Limits,
        peer: str,
        heads: KnownHeads,
    ) -> None:
        self.stage: Literal["head", "body"] | None = None
        self.stages = 0
        self._check_head = check_head
        self._limits = limits
        self._peer = peer
        self._heads = heads
        self._ready: list[Item] = []  # not more than Limits.http_pipeline, and one
        self._ready_bytes = 0
        self._parser = httptools.HttpRequestParser(self)
        self._deaf = False
        self._unseen = 0  # bytes of this stage that httptools has been given and keeps, at most
        self._url = b""
        self._headers: list[tuple[str, str]] = []
        self._size = 0  # of those headers
        self._head: RequestHead | None = None
        self._body = bytearray()

    def __bool__(self) -> bool:
        """Whether there is something to take."""
        return bool(self._ready)

    def take(self) -> Item:
        """The next request, or what to say to it."""
        item = self._ready.pop(0)
        if isinstance(item, Whole):
            self._ready_bytes -= len(item.body)
        return item

    def feed(self, data: bytes | bytearray) -> None:
        if self._deaf:
            return
        if self.stage is not None or self._ready or type(data) is not bytes:
            self._feed(data)
        elif (known := self._heads.find(data)) is not None:
            self.stages += 1
            body = data[known.body_at :]
            self._ready.append(Whole(known.head, body, keep_alive=True, chunked=True))
            self._ready_bytes = len(body)
        else:
            stages = self.stages
            self._feed(data)
            if self.stage is None and self.stages == stages + 3:
                self._learn(data)

    def _learn(self, data: bytes) -> None:
        """Remember the head of what may have been one whole request."""
        whole = self._ready[0]
        if (
            len(self._ready) == 1
            and isinstance(whole, Whole)
            and whole.keep_alive
            and type(whole.body) is bytearray
        ):
            self._heads.remember(data, whole.head, whole.body)

    def _feed(self, data: bytes | bytearray) -> None:
        stage, stages, size = self.stage, self.stages, len(self._body)
        self._parse(data)
        if self.stage is None or self._deaf:
            return
        if self.stages != stages:
            self._unseen = len(data) if stage is None and self.stages == stages + 1 else 0
        elif len(self._body) != size:
            self._unseen = 0
        else:
            self._unseen += len(data)
        if self._unseen > self._limits.http_head_bytes:
            self._refuse(head_too_large(self._limits))

    def _parse(self, data: bytes | bytearray) -> None:
        while not self._deaf:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as error:
                data = self._without_upgrade(data[error.args[0] :])
            except (
                httptools.HttpParserCallbackError
            ) as error:  # it hides ours, Control-C among them
                raise error.__context__ or error from None
            except httptools.HttpParserError as error:
                self._refuse(_bad(str(error)))

    def _without_upgrade(self, rest: bytes | bytearray) -> bytes:
        """What is to be parsed instead of the offer and what is behind it, by a new parser."""
        if self._deaf:
            return b""
        parser = self._parser
        method, version = parser.get_method(), parser.get_http_version().encode()
        if method == b"CONNECT":
            self._refuse(_bad("this server is no proxy"))
            return b""
        lines = [b"%b %b HTTP/%b" % (method, self._url, version)]
        for name, value in self._headers:
            if name == "connection":
                value = "close" if "close" in value.lower() else "keep-alive"
            if name != "upgrade":
                lines.append(f"{name}: {value}".encode("latin-1"))
        self._parser = httptools.HttpRequestParser(self)
        self.stages -= 1  # it is the same head
        return b"\r\n".join([*lines, b"", rest])

    def patience(self, *, busy: bool) -> float:
        """How many seconds this stage may take from its begin, or the connection may be idle."""
        limits = self._limits
        if self._deaf:
            return float("inf")
        if self.stage == "head":
            return limits.http_head_time
        if self.stage == "body":
            return limits.http_body_time
        return float("inf") if busy else limits.http_idle_time

    def time_out(self) -> bool:
        """The patience is over. ``False``: between two requests, where nobody is to be told."""
        if self.stage is None:
            return False
        self._refuse(too_slow(self.stage))
        return True

    def _refuse(self, answer: Answer) -> None:
        if not self._deaf:
            self._deaf = True
            self._enter(None)
            self._body = bytearray()
            self._ready.append(answer)

    def _enter(self, stage: Literal["head", "body"] | None) -> None:
        self.stage = stage
        self.stages += 1

    # What httptools calls

    def on_message_begin(self) -> None:
        if self._deaf:
            return
        self._enter("head")
        self._url = b""
        self._headers = []
        self._size = 0
        self._head = None
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        if not self._deaf:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.stage == "head":  # not a trailer, nor behind a refusal
            text = value.strip(b" \t").decode("latin-1")
            self._headers.append((_name(name), text))
            self._size += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        if self._deaf or self._parser.should_upgrade():
            return
        self._enter("body")
        if len(self._url) + self._size > self._limits.http_head_bytes:
            self._refuse(head_too_large(self._limits))
            return
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._refuse(attrs.evolve(_bad("this server speaks HTTP/1.1"), status=505))
            return
        try:
            path = _path(self._url)
        except httptools.HttpParserError:
            self._refuse(_bad("the request target is no URL"))
            return
        method = self._parser.get_method().decode("latin-1")
        head = RequestHead(method, path, tuple(self._headers), self._peer)
        refusal = self._check_head(head)
        if refusal is not None:
            self._refuse(attrs.evolve(refusal, close=True))
            return
        self._head = head
        if version == "1.1" and (head.get("expect") or "").lower() == "100-continue":
            self._ready.append(CONTINUE)

    def on_body(self, data: bytes) -> None:
        if self._deaf:
            return
        if len(self._body) + len(data) > self._limits.message_bytes:
            self._refuse(too_large(self._limits))
        else:
            self._body += data

    def on_message_complete(self) -> None:
        if self._deaf or self._parser.should_upgrade():
            return
        assert self._head is not None
        limits = self._limits
        waiting = self._ready_bytes + len(self._body)
        if self._ready and (
            len(self._ready) > limits.http_pipeline or waiting > limits.bytes_per_connection
        ):
            self._refuse(_too_many(limits))
            return
        self._enter(None)
        modern = self._parser.get_http_version() == "1.1"
        keep_alive = modern and self._parser.should_keep_alive()
        self._ready.append(Whole(self._head, self._body, keep_alive, chunked=modern))
        self._ready_bytes = waiting
        self._body = bytearray()
        self._headers = []
        self._head = None


@lru_cache(maxsize=128)
def _name(name: bytes) -> str:
    """Header names are few; those of a hostile peer only push others out."""
    return name.decode("latin-1").lower()


@lru_cache(maxsize=128)
def _path(url: bytes) -> str:
    return (httptools.parse_url(url).path or b"/").decode("latin-1")


def _bad(why: str) -> Answer:
    error = ProtocolError(ErrorCode.INVALID_REQUEST, f"Invalid request: {why}")
    return answer_error(error, status=400, close=True)


def _too_many(limits: Limits) -> Answer:
    error = ProtocolError(
        ErrorCode.OVERLOADED,
        "Overloaded: too many requests wait on this connection; "
        f"http_pipeline={limits.http_pipeline}, "
        f"bytes_per_connection={limits.bytes_per_connection}",
        {"retryAfterMs": int(limits.retry_after * 1000)},
    )
    return answer_error(error, close=True)
