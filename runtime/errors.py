"""Every exception of the library, and the error codes it puts on the wire.

Specification: *Base Protocol*, "Error Codes". Conditions for which the specification has no code
use codes outside of the range that JSON-RPC and MCP reserve (-32768 to -32000), so that nobody can
take them for protocol errors.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

__all__ = [
    "CallCancelled",
    "CallTimeout",
    "ConnectionLost",
    "ErrorCode",
    "IncompatibleServer",
    "ProtocolError",
    "ProtocolViolation",
    "ResourceNotFound",
    "ServerError",
    "ToolError",
    "ToolFailed",
    "TrioMcpError",
    "Unauthorized",
]


class ErrorCode(IntEnum):
    """Codes of JSON-RPC error responses."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603

    HEADER_MISMATCH = -32020
    MISSING_CLIENT_CAPABILITY = -32021
    UNSUPPORTED_PROTOCOL_VERSION = -32022

    # Ours: no code of the specification fits.
    DEADLINE_EXCEEDED = -31001
    SHUTTING_DOWN = -31002
    CANCELLED_BY_OPERATOR = -31003
    OVERLOADED = -31004
    UNAUTHORIZED = -31005


class TrioMcpError(Exception):
    """Base of every exception that this library raises on purpose."""


class ProtocolError(TrioMcpError):
    """Server side: answer the request with this JSON-RPC error.

    :param code: an :class:`ErrorCode` or any other integer.
    :param message: one sentence for the caller's log.
    :param data: any JSON value, sent as ``error.data``; ``None`` sends no data.

    Raises ``TypeError`` for another code or message.

    Where a message was refused whose id could be read, ``request_id`` or, for an answer,
    ``response_id`` has it.
    """

    request_id: str | int | None = None
    response_id: str | int | None = None

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        if not isinstance(code, int) or isinstance(code, bool):
            raise TypeError(f"the code of a ProtocolError is an integer, not {code!r:.80}")
        if not isinstance(message, str):
            raise TypeError(f"the message of a ProtocolError is a text, not {message!r:.80}")
        super().__init__(message)
        self.code = int(code)
        self.message = message
        self.data = data


class ToolError(TrioMcpError):
    """A tool failed in its own business: answered as a result with ``isError: true``.

    The message goes to the model, so it should say what it could do differently
    (specification: *Tools*, "Error Handling").
    """


class ResourceNotFound(ProtocolError):
    """Raise it while a resource is read, if there is no such resource: answered with -32602.

    :param uri: sent as ``data.uri``; in the handler of the request it may be left out, and is then
        the URI that was asked for.

    Specification: *Resources*, "Error Handling".
    """

    def __init__(self, uri: str | None = None) -> None:
        data = None if uri is None else {"uri": uri}
        super().__init__(ErrorCode.INVALID_PARAMS, "Resource not found", data)


class Unauthorized(TrioMcpError):
    """Raise it in ``authenticate`` to refuse a request with a challenge of its own.

    :param challenge: the value of the ``WWW-Authenticate`` header, for example
        ``'Bearer error="insufficient_scope", scope="books:write"'``.
    :param status: 401, or 403 for somebody who is known and may not (specification:
        *Authorization*, "Error Handling").
    :param message: one sentence for the caller's log.

    Raises ``ValueError`` for what no header can hold, and for another status.
    """

    def __init__(self, challenge: str, *, status: int = 401, message: str = "Unauthorized") -> None:
        super().__init__(message)
        if status not in (401, 403):
            raise ValueError(f"status must be 401 or 403, not {status!r}")
        if not (challenge.isascii() and challenge.isprintable() and challenge.strip()):
            raise ValueError(f"challenge must be printable ASCII, not {challenge!r}")
        self.challenge = challenge
        self.status = status
        self.message = message


class ServerError(TrioMcpError):
    """Client side: the server answered with a JSON-RPC error.

    Attributes: ``code`` (int), ``message`` (str), ``data`` (any JSON value or ``None``);
    ``refused``: whether it is known that the server has not begun with the request. Codes that mean
    something have classes of their own, see :mod:`.server_errors`.
    """

    refused = False

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message
        self.data = data


class ToolFailed(TrioMcpError):
    """Client side, on demand: the result of a tool that says that it failed (``is_error``).

    Raised by :meth:`~trio_mcp.CallToolResult.raise_for_error`. The message is the result's text,
    the attribute ``result`` the whole result. It has run; what it has done, it says itself.
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class ConnectionLost(TrioMcpError):
    """Client side: the connection ended before the answer came; the outcome is unknown if sent.

    Attributes: ``sent``: whether the request had begun to go out (``False``: it never ran);
    ``exit_status``: of a launched server process, negative for a signal, ``None`` if unknown;
    ``stderr_tail``: the last lines such a process wrote to its standard error; ``retry_after``: the
    seconds to wait that an HTTP answer suggests which says nothing else, such as a gateway's 503.
    """

    retry_after: float | None = None

    def __init__(
        self,
        message: str,
        *,
        sent: bool = False,
        exit_status: int | None = None,
        stderr_tail: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.sent = sent
        self.exit_status = exit_status
        self.stderr_tail = stderr_tail

    def __str__(self) -> str:
        parts = [self.message]
        if self.exit_status is not None:
            parts.append(f"exit status {self.exit_status}")
        if self.stderr_tail:
            parts.append(f"end of its standard error:\n{self.stderr_tail}")
        return "; ".join(parts)


class CallTimeout(TrioMcpError):
    """Client side: no answer in time; the server was told to cancel, the outcome is unknown.

    Attributes: ``limit``: ``"timeout"`` (silence) or ``"max_timeout"`` (total time);
    ``seconds``: that limit; ``elapsed``: seconds since the call began; ``last_progress``: the last
    progress notification's parameters seen for this call, or ``None``; ``outcome``: ``"unknown"``,
    or ``"not sent"`` if the request had not begun to go out.
    """

    def __init__(
        self,
        target: str,
        *,
        limit: str,
        seconds: float,
        elapsed: float,
        last_progress: Any = None,
        outcome: str = "unknown",
    ) -> None:
        super().__init__(
            f"{target}: no answer within {limit}={seconds:g} s (after {elapsed:.3f} s); "
            f"the outcome is {outcome}"
        )
        self.limit = limit
        self.seconds = seconds
        self.elapsed = elapsed
        self.last_progress = last_progress
        self.outcome = outcome


class CallCancelled(TrioMcpError):
    """Client side: the call was cancelled with ``call.cancel()``; its outcome is unknown.

    Not raised when the Trio scope around the caller is cancelled: that raises ``trio.Cancelled``.
    """


class ProtocolViolation(TrioMcpError):
    """Client side: the server's answer breaks the specification, the message says how.

    Attribute ``status``: of an HTTP answer that is no JSON-RPC, otherwise ``None``.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class IncompatibleServer(TrioMcpError):
    """Client side: the server speaks no protocol revision that this client speaks.

    Attribute ``supported``: the revisions that the server named, possibly empty.
    """

    def __init__(self, message: str, supported: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.supported = supported
