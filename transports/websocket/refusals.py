"""Why a server has refused to open a WebSocket, as the exception that says the same over HTTP."""

from __future__ import annotations

from typing import Final

from trio_websocket import ConnectionRejected

from ...runtime.errors import ErrorCode, ProtocolError, ServerError
from ...runtime.journal import printable
from ...runtime.jsonrpc import Response, parse
from ...runtime.server_errors import server_error

__all__ = ["why_refused"]

_TOLD: Final = (ErrorCode.UNAUTHORIZED, ErrorCode.OVERLOADED, ErrorCode.SHUTTING_DOWN)
"""What says nothing about the address: there is a server of ours, and it has answered."""

_SHOWN: Final = 500
_ID_LENGTH: Final = 8192


def why_refused(rejected: ConnectionRejected) -> ServerError | ConnectionRefusedError:
    """A :class:`ServerError` for who is not let in, or not now; ``ConnectionRefusedError`` for what
    else there is instead of a WebSocket."""
    status, body = rejected.status_code, rejected.body or b""
    error = _error_in(body)
    said = _text(error, body)
    challenge = _challenge_of(rejected)
    if status == 401 or (status == 403 and challenge):
        unknown = {"code": int(ErrorCode.UNAUTHORIZED), "message": f"HTTP {status}{said}"}
        return server_error(error or unknown, "", challenge=challenge)
    if error is not None and error.get("code") in _TOLD:
        return server_error(error, "")
    return ConnectionRefusedError(
        f"the server refused the WebSocket with HTTP status {status}{said}"
    )


def _error_in(body: bytes) -> dict[str, object] | None:
    try:
        message = parse(body, _ID_LENGTH)
    except ProtocolError:
        return None
    return message.error if isinstance(message, Response) else None


def _challenge_of(rejected: ConnectionRejected) -> str:
    told = [
        value.decode("latin-1")
        for name, value in rejected.headers or ()
        if name.lower() == b"www-authenticate"
    ]
    return ", ".join(told)


def _text(error: dict[str, object] | None, body: bytes) -> str:
    """What a refusal says, for people: the message of a JSON-RPC error, else its first bytes."""
    message = error.get("message") if error is not None else None
    if isinstance(message, str):
        return f": {printable(message[:_SHOWN])}"
    return f": {body[:_SHOWN].decode('utf-8', 'replace')!r}" if body else ""
