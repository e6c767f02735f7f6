"""The rules of the one HTTP endpoint, whatever carries its bytes. Plain functions, no I/O.

What can be refused by the head of a request alone is refused before its body is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import attrs

from ...runtime.errors import ErrorCode, ProtocolError
from ...runtime.jsonrpc import Notification, Request, encode, encode_error, parse
from ...runtime.limits import Limits
from .message import Answer, RequestHead
from .metadata import check_metadata

__all__ = [
    "HEALTH",
    "LOOPBACK",
    "Endpoint",
    "Mirrored",
    "answer_error",
    "head_too_large",
    "health",
    "retry_after",
    "status_of",
    "too_large",
    "too_slow",
]

HEALTH: Final = "/healthz"

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
Mirrored: TypeAlias = Callable[[Request], Iterable[tuple[str, Any]]]
"""For a request: the ``Mcp-Param-*`` headers it may have, with the values they stand for."""

_HOST: Final = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^:/?#\[\]@\s]+)(?::(?P<port>\d{1,5}))?")
_ORIGIN: Final = re.compile(r"https?://(?P<host>[^/?#@\s]+)", re.IGNORECASE)

_STATUS: Final[dict[int, int]] = {
    ErrorCode.PARSE_ERROR: 400,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.METHOD_NOT_FOUND: 404,
    ErrorCode.INVALID_PARAMS: 400,
    ErrorCode.HEADER_MISMATCH: 400,
    ErrorCode.MISSING_CLIENT_CAPABILITY: 400,
    ErrorCode.UNSUPPORTED_PROTOCOL_VERSION: 400,
    ErrorCode.SHUTTING_DOWN: 503,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.UNAUTHORIZED: 401,
}


def status_of(code: int | None) -> int:
    """The HTTP status of an answer; ``code``: of its JSON-RPC error, ``None`` for a result.

    A request that has run is answered 200, whatever came of it: clients look into the body then.
    Only a shutdown has 503 all the same, for those who stand between.
    """
    return 200 if code is None else _STATUS.get(code, 200)


def answer_error(error: ProtocolError, *, status: int | None = None, close: bool = False) -> Answer:
    """A JSON-RPC error as a whole response."""
    return Answer(
        status if status is not None else status_of(error.code),
        encode_error(error.request_id, error),
        headers=retry_after(error.data),
        close=close,
    )


def retry_after(data: Any) -> tuple[tuple[str, str], ...]:
    """The header that goes with what an error says of when to come again: whole seconds."""
    wait = data.get("retryAfterMs") if isinstance(data, dict) else None
    if type(wait) is not int:
        return ()  # none of ours: a handler's
    return (("retry-after", str(max(1, -(-wait // 1000)))),)


def _lower(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise TypeError(f"hosts and origins are lists of texts: [{names!r}], not {names!r}")
    return tuple(name.lower() for name in names)


def _rooted(_: Any, attribute: Any, path: str) -> None:
    if not path.startswith("/"):
        raise ValueError(f"path must begin with '/', not {path!r}")


@attrs.frozen
class Endpoint:
    """Where the endpoint is, and for whom.

    ``hosts`` are names that a request's ``Host`` may have, ``origins`` are origins of web pages
    that may ask; both with loopback names by default, any port. ``"*"`` allows all.
    """

    path: str = attrs.field(default="/mcp", validator=_rooted)
    hosts: Sequence[str] = attrs.field(default=LOOPBACK, converter=_lower)
    origins: Sequence[str] = attrs.field(default=(), converter=_lower)

    def check_head(self, head: RequestHead, limits: Limits) -> Answer | None:
        """The answer to a request whose body need not be read; ``None`` for the others."""
        misplaced = self.check_place(head)
        if misplaced is not None:
            return misplaced
        if head.method == "OPTIONS":
            return Answer(204, headers=(("allow", "POST"),), close=True)
        if head.method != "POST":
            return attrs.evolve(
                _refuse(405, "the MCP endpoint takes POST"), headers=(("allow", "POST"),)
            )
        media_type = (head.get("content-type") or "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            return _refuse(415, "the body must be application/json")
        length = head.get("content-length")
        if length is not None:
            if not (length.isascii() and length.isdecimal() and len(length) < 20):
                return _refuse(400, "content-length is no number of bytes")
            if int(length) > limits.message_bytes:
                return too_large(limits)
        return None

    def read(
        self,
        head: RequestHead,
        body: bytes | bytearray,
        limits: Limits,
        methods: Container[str],
        mirrored: Mirrored,
    ) -> Request | Answer:
        """The request in a body; or the answer to what is none. The headers of a method that is
        not in ``methods`` are not looked at: an ``initialize`` of an earlier revision has none, and
        whoever answers it knows better what to say."""
        try:
            message = parse(body, limits.id_length)
        except ProtocolError as error:
            return answer_error(error)
        if isinstance(message, Notification):
            return Answer(202)  # also a cancellation: it may never act on another exchange
        if not isinstance(message, Request):
            return answer_error(
                ProtocolError(ErrorCode.INVALID_REQUEST, "Invalid request: no responses are taken")
            )
        if message.method not in methods:
            return message
        mismatch = check_metadata(head, message, mirrored(message))
        return message if mismatch is None else answer_error(mismatch)

    def check_place(self, head: RequestHead) -> Answer | None:
        """The answer to a request that is not for this endpoint, or not from one who may ask."""
        if not self._host_allowed(head):
            host = ascii(head.get("host"))[:200]
            return _refuse(403, f"the Host {host} is not served here; the server's hosts= allow it")
        if not self._origin_allowed(head):
            origin = ascii(head.get("origin"))[:200]
            return _refuse(
                403, f"pages of the Origin {origin} may not ask; the server's origins= allow it"
            )
        if head.path != self.path:
            return _refuse(404, f"there is nothing here; the MCP endpoint is {self.path}")
        return None

    def _host_allowed(self, head: RequestHead) -> bool:
        hosts = head.get_all("host")
        if "*" in self.hosts:
            return True
        return len(hosts) == 1 and _host_matches(hosts[0], self.hosts)

    def _origin_allowed(self, head: RequestHead) -> bool:
        origin = head.get("origin")
        if origin is None or "*" in self.origins:
            return True
        if origin.lower() in self.origins:
            return True
        match = _ORIGIN.fullmatch(origin)
        host = _HOST.fullmatch(match["host"]) if match is not None else None
        return host is not None and _matches(host, LOOPBACK)


@lru_cache(maxsize=128)
def _host_matches(host: str, allowed: Sequence[str]) -> bool:
    match = _HOST.fullmatch(host)
    return match is not None and _matches(match, allowed)


def _matches(host: re.Match[str], allowed: Sequence[str]) -> bool:
    """Whether a host is allowed: by its name with any port, or by name and port."""
    name = host["name"].lower()
    return name.strip("[]") in allowed or name in allowed or f"{name}:{host['port']}" in allowed


def too_large(limits: Limits) -> Answer:
    return _refuse(413, f"the body is longer than message_bytes={limits.message_bytes}")


def too_slow(part: str) -> Answer:
    return _refuse(408, f"its {part} took too long")


def head_too_large(limits: Limits) -> Answer:
    return _refuse(
        431,
        "its head, its trailers or the head of a chunk are longer than "
        f"http_head_bytes={limits.http_head_bytes}",
    )


def health(*, draining: bool) -> Answer:
    """For load balancers: whether new requests are welcome."""
    state = "draining" if draining else "ready"
    return Answer(503 if draining else 200, encode({"status": state}), close=True)


def _refuse(status: int, why: str) -> Answer:
    """Refused by its head: the body is not read, so the connection ends."""
    error = ProtocolError(ErrorCode.INVALID_REQUEST, f"Invalid request: {why}")
    return answer_error(error, status=status, close=True)
