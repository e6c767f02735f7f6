"""What servers answer errors with, as exceptions: one class for each code that says something.

Specification: *Base Protocol*, "Error Codes"; *Resources*, "Error Handling". Made in one place,
`server_error`, whatever the wire is.
"""

from __future__ import annotations

import reprlib
from typing import Any, Final

from .errors import CallTimeout, ConnectionLost, ErrorCode, ServerError

__all__ = [
    "AuthorizationRequired",
    "CancelledByOperator",
    "DeadlineExceeded",
    "HeaderMismatch",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "MethodNotFound",
    "MissingCapability",
    "NoSuchResource",
    "Overloaded",
    "ShuttingDown",
    "UnsupportedVersion",
    "safe_to_repeat",
    "server_error",
    "too_many_requests",
]

_LEGACY_NOT_FOUND: Final = -32002
"""What servers of earlier revisions answer with where there is no such resource."""

_FOREVER: Final = 1e12
"""Milliseconds; a server that wants more of a pause suggests nothing sensible."""

_LONGEST_CHALLENGE: Final = 8192
_SHOWN: Final = 500
"""Characters of a challenge that are kept, and that are shown to people."""


class InvalidRequest(ServerError):
    """-32600: the server takes the message for no request."""


class MethodNotFound(ServerError):
    """-32601: the server does not have this method."""


class InvalidParams(ServerError):
    """-32602: an unknown tool or prompt, a cursor that is none, parameters that do not fit."""


class NoSuchResource(InvalidParams):
    """The answer to reading a resource that is not there: -32602 with a URI, or -32002 from older
    servers. ``uri`` is the one that the server names, or the one that was asked for.

    The server's side raises :class:`~trio_mcp.ResourceNotFound`.
    """

    uri: str | None = None


class InternalError(ServerError):
    """-32603: something in the server failed. How far the request came is not known."""


class HeaderMismatch(ServerError):
    """-32020: what the headers repeat is not what the request says."""


class MissingCapability(ServerError):
    """-32021: the request needs something of the client that it did not declare; ``data`` has it,
    as ``requiredCapabilities``."""


class UnsupportedVersion(ServerError):
    """-32022: the server speaks other revisions, ``supported`` has those that it names."""

    @property
    def supported(self) -> tuple[str, ...]:
        """The revisions that the server names, maybe none."""
        named = self.data.get("supported") if isinstance(self.data, dict) else None
        if not isinstance(named, list):
            return ()
        return tuple(version for version in named if isinstance(version, str))


class _TryLater(ServerError):
    """``retry_after``: seconds that the server suggests to wait; ``None`` if it suggests none."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.retry_after = _seconds_in(data)
        # Our servers say when to come again with every refusal, and with no other error.
        self.refused = self.retry_after is not None


class Overloaded(_TryLater):
    """-31004, ours, or HTTP status 429: too many requests; this one has not run. ``retry_after``:
    seconds to wait before the next try, ``None`` if the server names none."""


class ShuttingDown(_TryLater):
    """-31002, ours: the server is about to end. With ``retry_after`` (seconds) it has refused the
    request; without, the request was running and has been cancelled."""


class DeadlineExceeded(ServerError):
    """-31001, ours: the server's own limit for the request has passed, and it has stopped it."""


class CancelledByOperator(ServerError):
    """-31003, ours: somebody at the server has cancelled the request."""


class AuthorizationRequired(ServerError):
    """-31005, or HTTP status 401: the server wants to know who asks, or has refused who did.

    ``challenge`` is the ``WWW-Authenticate`` of its answer, empty if there was none. The request
    has not run. Specification: *Authorization*, "Error Handling".
    """

    challenge: str = ""
    refused = True

    def __str__(self) -> str:
        told = f"; WWW-Authenticate: {self.challenge[:_SHOWN]}" if self.challenge else ""
        return super().__str__() + told


_CLASSES: Final[dict[int, type[ServerError]]] = {
    ErrorCode.INVALID_REQUEST: InvalidRequest,
    ErrorCode.METHOD_NOT_FOUND: MethodNotFound,
    ErrorCode.INVALID_PARAMS: InvalidParams,
    ErrorCode.INTERNAL_ERROR: InternalError,
    ErrorCode.HEADER_MISMATCH: HeaderMismatch,
    ErrorCode.MISSING_CLIENT_CAPABILITY: MissingCapability,
    ErrorCode.UNSUPPORTED_PROTOCOL_VERSION: UnsupportedVersion,
    ErrorCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    ErrorCode.SHUTTING_DOWN: ShuttingDown,
    ErrorCode.CANCELLED_BY_OPERATOR: CancelledByOperator,
    ErrorCode.OVERLOADED: Overloaded,
    ErrorCode.UNAUTHORIZED: AuthorizationRequired,
}


def server_error(
    error: dict[str, Any], method: str, target: str | None = None, challenge: str | None = None
) -> ServerError:
    """The exception for a JSON-RPC error in the answer to a request.

    :param target: what the request was about, the URI for one that reads.
    :param challenge: ``WWW-Authenticate`` of an HTTP answer that wants to know who asks.
    """
    code, message, data = error.get("code"), error.get("message"), error.get("data")
    if type(code) is not int or type(message) is not str:
        shown = reprlib.repr(error)  # short, and never too deep
        code, message, data = 0, f"an error without a proper code and message: {shown}", None
    if challenge is not None:
        unknown = AuthorizationRequired(code, message, data)
        unknown.challenge = _one_line(challenge)
        return unknown
    if method == "resources/read" and (code == _LEGACY_NOT_FOUND or _names_resource(code, data)):
        missing = NoSuchResource(code, message, data)
        named = data.get("uri") if isinstance(data, dict) else None
        missing.uri = named if isinstance(named, str) else target
        return missing
    return _CLASSES.get(code, ServerError)(code, message, data)


def too_many_requests(
    error: dict[str, Any] | None, why: str, retry_after: float | None
) -> Overloaded:
    """HTTP status 429, whoever gives it: the request was refused before it ran. Specification:
    RFC 6585, "429 Too Many Requests".

    :param error: the JSON-RPC error that came with it.
    :param why: what to say where none did.
    :param retry_after: seconds, of the header.
    """
    told = server_error(error or {"code": int(ErrorCode.OVERLOADED), "message": why}, "")
    refused = Overloaded(told.code, told.message, told.data)
    if refused.retry_after is None:
        refused.retry_after = retry_after
    refused.refused = True
    return refused


def safe_to_repeat(error: BaseException) -> bool | float:
    """Whether the request can be made again, whatever it is for: it is known that the server has
    not begun with it, and asking again may help. Where the server says when, it is the seconds to
    wait until then.

    A hook for ``stamina``: ``stamina.AsyncRetryingCaller().on(safe_to_repeat)``.
    """
    if isinstance(error, ConnectionLost):
        return not error.sent
    if isinstance(error, CallTimeout):
        return error.outcome == "not sent"
    if not isinstance(error, ServerError) or not error.refused:
        return False
    if not isinstance(error, _TryLater):
        return False  # who is not let in comes no further by asking again
    return error.retry_after or True


def _one_line(challenge: str) -> str:
    kept = challenge[:_LONGEST_CHALLENGE]
    return "".join(character if character.isprintable() else " " for character in kept)


def _names_resource(code: int, data: Any) -> bool:
    return code == ErrorCode.INVALID_PARAMS and isinstance(data, dict) and "uri" in data


def _seconds_in(data: Any) -> float | None:
    wait = data.get("retryAfterMs") if isinstance(data, dict) else None
    if not isinstance(wait, (int, float)) or isinstance(wait, bool) or not 0 <= wait <= _FOREVER:
        return None
    return wait / 1000
