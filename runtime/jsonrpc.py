"""JSON-RPC 2.0 as MCP uses it: messages, ids, strict JSON. Plain functions, no I/O.

Specification: *Base Protocol*, "Messages". Ids are strings or integers, compared by type *and*
value; null, booleans, floats, arrays and objects are not ids. There are no batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

import attrs
import msgspec

from .errors import ErrorCode, ProtocolError

__all__ = [
    "Message",
    "NonFiniteNumber",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "decode",
    "encode",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
    "id_key",
    "id_too_long",
    "is_request_id",
    "parse",
]

RequestId: TypeAlias = str | int

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_BOM: Final = b"\xef\xbb\xbf"
_PLAIN: Final = (str, bytes, bytearray, int, msgspec.Raw)


class NonFiniteNumber(ValueError):
    """A value to be sent holds NaN or an infinity, which JSON does not have."""


# Messages ------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Request:
    """``params`` is always an object; ``size`` is the number of bytes it came in."""

    id: RequestId
    method: str
    params: dict[str, Any]
    size: int = 0


@attrs.define(eq=False)
class Notification:
    """``method`` is empty for a malformed one, which nobody acts on."""

    method: str
    params: dict[str, Any]


@attrs.define(eq=False)
class Response:
    """An answer. ``id`` is ``None`` if an error could not name the request it is about."""

    id: RequestId | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None


Message: TypeAlias = Request | Notification | Response


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """Whether a decoded JSON value is a string or an integer. ``True`` and ``1.0`` are not."""
    kind = type(value)
    return kind is str or kind is int


def decode(data: bytes | bytearray | memoryview) -> Any:
    """The JSON value in ``data``.

    A byte order mark is skipped. Raises :class:`ProtocolError` -32700 for anything that is not one
    JSON text in UTF-8: bytes are never replaced, and NaN is not JSON.
    """
    if data[:3] == _BOM:
        data = data[3:]
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ProtocolError(ErrorCode.PARSE_ERROR, f"Parse error: {error}") from None
    except RecursionError:
        raise ProtocolError(ErrorCode.PARSE_ERROR, "Parse error: nested too deeply") from None


def parse(data: bytes | bytearray | memoryview, id_length: int) -> Message:
    """The message in ``data``.

    :param id_length: longest id in characters or digits.

    Raises :class:`ProtocolError` -32700 (not JSON), -32600 (JSON, but no message) or -32602 (a
    request whose ``params`` is no object). If the error is about a request whose id could be read,
    the exception's ``request_id`` attribute has it.
    """
    value = decode(data)
    if type(value) is not dict:
        raise _invalid("Invalid request: a message is a JSON object; there are no batches")
    method = value.get("method")
    if method is None:
        return _parse_response(value, id_length)
    request_id = value.get("id", _ABSENT)
    if request_id is _ABSENT:
        return _parse_notification(value, method)
    if not is_request_id(request_id):
        raise _invalid("Invalid request: id must be a string or an integer")
    if id_too_long(request_id, id_length):
        raise _invalid(f"Invalid request: the id is longer than {id_length} characters")
    if type(method) is not str:
        raise _invalid("Invalid request: method must be a string", request_id)
    if value.get("jsonrpc") != "2.0":
        raise _invalid('Invalid request: jsonrpc must be "2.0"', request_id)
    params = value.get("params", _NO_PARAMS)
    if type(params) is not dict:
        raise _about(
            ProtocolError(ErrorCode.INVALID_PARAMS, "Invalid params: params must be an object"),
            request_id,
        )
    return Request(request_id, method, params, len(data))


def _parse_notification(value: dict[str, Any], method: object) -> Notification:
    if type(method) is not str:
        raise _invalid("Invalid request: method must be a string")
    if value.get("jsonrpc") != "2.0":
        if method.startswith("notifications/"):
            return Notification("", {})  # malformed, and nobody is to be answered
        raise _invalid('Invalid request: jsonrpc must be "2.0"')
    params = value.get("params")
    return Notification(method, params if type(params) is dict else {})


def _parse_response(value: dict[str, Any], id_length: int) -> Response:
    request_id = value.get("id")
    result, error = value.get("result"), value.get("error")
    if value.get("jsonrpc") != "2.0":
        raise _invalid('Invalid request: jsonrpc must be "2.0"')
    if not (request_id is None or is_request_id(request_id)):
        raise _invalid("Invalid request: id must be a string or an integer")
    if request_id is not None and id_too_long(request_id, id_length):
        raise _invalid(f"Invalid request: the id is longer than {id_length} characters")
    if type(result) is dict and error is None and request_id is not None:
        return Response(request_id, result, None)
    if type(error) is dict and "result" not in value:
        return Response(request_id, None, error)
    if "result" not in value and "error" not in value:
        raise _invalid("Invalid request: neither a request, nor a notification", request_id)
    refusal = _invalid("Invalid response: result or error, one of the two, and an object")
    refusal.response_id = request_id
    raise refusal


def _invalid(message: str, request_id: RequestId | None = None) -> ProtocolError:
    return _about(ProtocolError(ErrorCode.INVALID_REQUEST, message), request_id)


def _about(error: ProtocolError, request_id: RequestId | None) -> ProtocolError:
    error.request_id = request_id
    return error


def id_key(request_id: RequestId) -> str:
    """A key for tables of a peer's ids: type and value, and a hash that no peer can foresee."""
    return f"s{request_id}" if isinstance(request_id, str) else f"i{request_id}"


def id_too_long(request_id: RequestId, id_length: int) -> bool:
    """Whether an id or a token has more than ``id_length`` characters or digits."""
    if isinstance(request_id, str):
        return len(request_id) > id_length
    return abs(request_id) >= 10**18 and len(str(request_id)) > id_length


_ABSENT: Final = object()
_NO_PARAMS: Final[dict[str, Any]] = {}


# Encoding ------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """``value`` as one line of JSON in UTF-8.

    Raises :class:`NonFiniteNumber` where the encoder would write NaN or an infinity as ``null``,
    and ``TypeError`` or ``ValueError`` for what JSON cannot hold.
    """
    data = _encode(value)
    if b"null" in data:  # the only trace that a non-finite number leaves
        _refuse_non_finite(value, "")
    if b"\n" in data or b"\r" in data:  # JSON that somebody else has laid out, as msgspec.Raw
        data = msgspec.json.format(data, indent=-1)
    return data


def _refuse_non_finite(value: Any, path: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NonFiniteNumber(f"{path or 'the value'} is {value}, which JSON does not have")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_non_finite(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{path}[{index}]")
    elif value is not None and not isinstance(value, _PLAIN):
        # An object that the encoder takes apart by itself: a dataclass, a set …
        _refuse_non_finite(msgspec.to_builtins(value, str_keys=True), path)


def encode_result(request_id: RequestId, result: Mapping[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: RequestId | None, error: ProtocolError) -> bytes:
    """An error response; without ``id`` where the request's could not be read."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    if request_id is None:
        return encode({"jsonrpc": "2.0", "error": body})
    return encode({"jsonrpc": "2.0", "id": request_id, "error": body})


def encode_notification(method: str, params: Mapping[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def encode_request(request_id: RequestId, method: str, params: Mapping[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
