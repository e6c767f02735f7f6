"""What a client may take from an HTTP response for the answer to its request. No I/O.

A server that refuses answers with a JSON-RPC error whatever the status is; what stands in between,
a proxy for one, knows only the status.
"""

from __future__ import annotations

import calendar
import re
from email.utils import parsedate_tz
from http import HTTPStatus
from typing import Final

from ...runtime.errors import ConnectionLost, ProtocolError, ProtocolViolation
from ...runtime.jsonrpc import RequestId, Response, parse

__all__ = [
    "challenge_of",
    "is_answer_to",
    "knows_no_session",
    "media_type_of",
    "read_body",
    "refusal",
    "retry_after_of",
]

_SHOWN: Final = 200

_NO_SESSION: Final = (-32000, -32001)
"""Codes that the official SDKs use where they do not know a session."""

_LONGEST_PAUSE: Final = 1e9
_LONGEST_DATE: Final = 64
"""Seconds, characters; a server that says more suggests nothing sensible."""


def media_type_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_answer_to(request_id: RequestId, response: Response) -> bool:
    """An error may have no id, if the server could not read the request's."""
    if response.id is None:
        return response.error is not None
    return response.id == request_id


def read_body(
    status: int, media_type: str, body: bytes, request_id: RequestId, id_length: int
) -> Response | ConnectionLost | ProtocolViolation:
    """The answer in a whole body; or what the call fails with."""
    success = 200 <= status < 300
    if success and media_type != "application/json":
        what = f"an answer of type {media_type!r}" if media_type else "an answer without a type"
        return ProtocolViolation(f"{what} ({refusal(status, body)})", status=status)
    try:
        message = parse(body, id_length)
    except ProtocolError as error:
        return _no_answer(status, body, error.message)
    if not isinstance(message, Response):
        return _no_answer(status, body, "no response")
    if not is_answer_to(request_id, message):
        return _no_answer(status, body, f"its id is {str(message.id)[:_SHOWN]!r}")
    if not success and message.error is None:
        return _no_answer(status, body, "a result with the status of an error")
    return message


def _no_answer(status: int, body: bytes, why: str) -> ConnectionLost | ProtocolViolation:
    if status >= 500:
        return ConnectionLost(refusal(status, body), sent=True)
    if status >= 300:
        return ProtocolViolation(refusal(status, body), status=status)
    return ProtocolViolation(
        f"the answer is no JSON-RPC response to the request: {why} ({refusal(status, body)})",
        status=status,
    )


def knows_no_session(status: int, body: bytes) -> bool:
    """Whether the answer to a request with a session's id says that there is no such session: 404,
    as the specification wants it, or 400 with words to that effect, as many servers give it. Other
    codes of JSON-RPC are about the request itself.
    """
    if status != 400:
        return status == 404
    try:
        message = parse(body, _SHOWN)
    except ProtocolError:
        return b"session id" in body[:_SHOWN].lower()
    error = message.error if isinstance(message, Response) else None
    if error is None or error.get("code") not in _NO_SESSION:
        return False
    told = error.get("message")
    return isinstance(told, str) and "session" in told[:_SHOWN].lower()


def challenge_of(status: int, www_authenticate: str | None) -> str | None:
    """What an answer says of who may ask, empty if nothing; ``None`` if it is not about that."""
    if status == 401:
        return www_authenticate or ""
    return www_authenticate if status == 403 else None


def retry_after_of(retry_after: str | None, date: str | None) -> float | None:
    """Seconds that an answer suggests to wait; ``None`` if it suggests none, or nonsense.

    A point in time is compared with the ``Date`` of the answer, so no clocks have to agree.
    Specification: RFC 9110, "Retry-After".
    """
    if retry_after is None:
        return None
    if re.fullmatch("[0-9]{1,10}", retry_after):
        pause = float(retry_after)
    else:
        then, now = _seconds_of(retry_after), _seconds_of(date or "")
        if then is None or now is None:
            return None
        pause = max(then - now, 0.0)
    return pause if pause <= _LONGEST_PAUSE else None


def _seconds_of(date: str) -> float | None:
    try:
        parts = parsedate_tz(date) if len(date) <= _LONGEST_DATE else None
        return None if parts is None else float(calendar.timegm(parts[:9])) - (parts[9] or 0)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None  # it raises all of these for what is no date


def refusal(status: int, body: bytes) -> str:
    """A status and the start of a body, for people."""
    try:
        text = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        text = f"HTTP {status}"
    if not body:
        return f"{text}, without a body"
    shown = body[:_SHOWN].decode("utf-8", "replace")
    return f"{text}: {shown!r}" + ("…" if len(body) > _SHOWN else "")
