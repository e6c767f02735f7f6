"""The request's metadata headers: they must say what the body says.

Specification: *Streamable HTTP*, "Request Metadata". Plain functions, no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...runtime.errors import ErrorCode, ProtocolError
from ...runtime.jsonrpc import Request
from ...runtime.models.base import META_PROTOCOL_VERSION
from .header_values import decode_value
from .message import RequestHead

__all__ = ["NAMED", "check_metadata"]

_DECIMAL: Final = re.compile(r"(-?[0-9]{1,400})(?:\.0+)?")

NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
}
"""Methods whose ``Mcp-Name`` is required, and the parameter that it mirrors."""


def check_metadata(
    head: RequestHead, request: Request, mirrored: Iterable[tuple[str, Any]] = ()
) -> ProtocolError | None:
    """Whether the headers agree with the body; otherwise HeaderMismatch (-32020).

    ``mirrored`` has, for each ``Mcp-Param-*`` header that the request may have, its name and the
    value in the body, ``None`` for none.
    """
    meta = request.params.get("_meta")
    version = meta.get(META_PROTOCOL_VERSION) if isinstance(meta, dict) else None
    parameter = NAMED.get(request.method)
    named = request.params.get(parameter) if parameter is not None else None
    problem = None
    said_version, said_method, said_name = head.mirrors
    if (
        said_version is None
        or said_version != version
        or said_method != request.method
        or (parameter is not None and (said_name is None or said_name != named))
    ):
        problem = _compare(head, "mcp-protocol-version", version, decode=False)
        problem = problem or _compare(head, "mcp-method", request.method, decode=False)
        if parameter is not None and problem is None:
            problem = _compare(head, "mcp-name", named, decode=True)
    for name, value in mirrored:
        problem = problem or _compare_parameter(head, name, value)
    if problem is None:
        return None
    error = ProtocolError(ErrorCode.HEADER_MISMATCH, f"Header mismatch: {problem}")
    error.request_id = request.id
    return error


_SPELLED: Final = {
    "mcp-protocol-version": "MCP-Protocol-Version",
    "mcp-method": "Mcp-Method",
    "mcp-name": "Mcp-Name",
}


def _compare(head: RequestHead, name: str, expected: Any, *, decode: bool) -> str | None:
    """What is wrong with a header, ``None`` if nothing is, or if only the body is."""
    spelled = _SPELLED[name]
    values = head.get_all(name)
    if not values:
        return f"the {spelled} header is missing"
    if len(values) > 1:
        return f"there is more than one {spelled} header"
    value = values[0]
    if decode:
        try:
            value = decode_value(value)
        except ValueError as error:
            return f"the {spelled} header is invalid: {error}"
    if isinstance(expected, str) and value != expected:
        return f"the {spelled} header says {value[:100]!r}, the body {expected[:100]!r}"
    return None


def _compare_parameter(head: RequestHead, name: str, expected: Any) -> str | None:
    """What is wrong with the header that mirrors an argument, ``None`` if nothing is."""
    values = head.get_all(name.lower())
    if len(values) > 1:
        return f"there is more than one {name} header"
    if expected is None:
        return f"the body has no value for the {name} header" if values else None
    if not values:
        return f"the {name} header is missing"
    try:
        value = decode_value(values[0])
    except ValueError as error:
        return f"the {name} header is invalid: {error}"
    if _is_same(value, expected):
        return None
    return f"the {name} header says {value[:100]!r}, which is not what the body says"


def _is_same(text: str, value: Any) -> bool:
    """Whether a header says what an argument says; numbers are compared as numbers."""
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        number = _DECIMAL.fullmatch(text)
        return number is not None and int(number[1]) == value
    return isinstance(value, str) and text == value
