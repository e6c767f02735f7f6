"""Revision 2026-07-28: every request carries its own version, client and capabilities in ``_meta``.

Specification: *Base Protocol*, "``_meta``"; *Versioning*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from ..errors import ErrorCode, ProtocolError
from ..jsonrpc import Request, RequestId, encode, encode_notification, id_too_long, is_request_id
from ..logs import check_level
from ..models.base import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROGRESS_TOKEN,
    META_PROTOCOL_VERSION,
    META_SERVER_INFO,
    META_SUBSCRIPTION_ID,
    ClientCapabilities,
    Implementation,
    LoggingLevel,
)
from ..models.converter import ModelError, structure, unstructure
from ..progress import ProgressUpdate
from .base import RequestMetadata

__all__ = ["VERSION", "Revision20260728", "client_meta"]

T = TypeVar("T")

VERSION: Final = "2026-07-28"

_NAMES: Final = {
    name: name
    for name in (
        META_CLIENT_CAPABILITIES,
        META_CLIENT_INFO,
        META_LOG_LEVEL,
        META_PROGRESS_TOKEN,
        META_PROTOCOL_VERSION,
    )
}


class Revision20260728:
    """Server side of the revision."""

    version = VERSION

    def __init__(self, server_info: Implementation, id_length: int) -> None:
        self._id_length = id_length
        self._server_meta = {META_SERVER_INFO: msgspec.Raw(encode(unstructure(server_info)))}
        # The clients of one connection say the same with every request: the last one is remembered.
        self._info_json: object = None
        self._info: Implementation | None = None
        self._capabilities_json: object = None
        self._capabilities = ClientCapabilities()

    def read_metadata(self, params: dict[str, Any]) -> RequestMetadata:
        meta = params.get("_meta")
        if type(meta) is not dict:
            raise _invalid(
                f"params._meta: expected an object with {META_PROTOCOL_VERSION} "
                f"and {META_CLIENT_CAPABILITIES}"
            )
        version = meta.get(META_PROTOCOL_VERSION)
        if version != VERSION:
            raise unsupported_version(version)
        capabilities = meta.get(META_CLIENT_CAPABILITIES)
        if capabilities is None:
            raise _invalid(f"params._meta: {META_CLIENT_CAPABILITIES} is missing")
        if capabilities != self._capabilities_json:
            path = f"params._meta.{META_CLIENT_CAPABILITIES}"
            self._capabilities = _read(ClientCapabilities, capabilities, path)
            self._capabilities_json = capabilities
        info = meta.get(META_CLIENT_INFO)
        if info != self._info_json:
            path = f"params._meta.{META_CLIENT_INFO}"
            self._info = None if info is None else _read(Implementation, info, path)
            self._info_json = info
        token = meta.get(META_PROGRESS_TOKEN)
        if token is not None:
            self._check_token(token)
        level = meta.get(META_LOG_LEVEL)
        if level is not None:
            level = _check_log_level(level)
        # Each request has brought the long names once more; it is to live without them.
        meta = {_NAMES.get(name, name): value for name, value in meta.items()}
        meta[META_PROTOCOL_VERSION] = VERSION
        params["_meta"] = meta
        return RequestMetadata(VERSION, self._info, self._capabilities, token, level, meta)

    def _check_token(self, token: object) -> None:
        if not is_request_id(token):
            raise _invalid(f"params._meta.{META_PROGRESS_TOKEN}: expected a string or an integer")
        if id_too_long(token, self._id_length):
            raise _invalid(f"params._meta.{META_PROGRESS_TOKEN}: longer than {self._id_length}")

    def unknown_method(self, request: Request, clip: int) -> ProtocolError:
        meta = request.params.get("_meta")
        ours = isinstance(meta, dict) and meta.get(META_PROTOCOL_VERSION) == VERSION
        if request.method == "initialize" and not ours:
            # Clients of earlier revisions show this message to their users: it names ours.
            requested = request.params.get("protocolVersion")
            return unsupported_version(requested if type(requested) is str else "initialize")
        return ProtocolError(
            ErrorCode.METHOD_NOT_FOUND, f"Method not found: {request.method[:clip]}"
        )

    def read_params(self, model: type[T], params: Mapping[str, Any]) -> T:
        return _read(model, params, "params")

    def write_result(self, result: Any) -> dict[str, Any]:
        data = unstructure(result)
        meta = data.get("_meta")
        data["_meta"] = self._server_meta if meta is None else {**self._server_meta, **meta}
        return data

    def encode_progress(self, token: RequestId, update: ProgressUpdate) -> bytes:
        params: dict[str, Any] = {"progressToken": token, "progress": update.progress}
        if update.total is not None:
            params["total"] = update.total
        if update.message is not None:
            params["message"] = update.message
        return encode_notification("notifications/progress", params)

    def encode_log(self, level: LoggingLevel, data: Any, logger: str | None) -> bytes:
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        return encode_notification("notifications/message", params)

    def encode_subscribed(self, subscription_id: RequestId, method: str, params: object) -> bytes:
        data = unstructure(params)
        data["_meta"] = {META_SUBSCRIPTION_ID: subscription_id}
        return encode_notification(method, data)


def client_meta(
    client_info: Implementation,
    capabilities: ClientCapabilities,
    log_level: LoggingLevel | None = None,
) -> dict[str, Any]:
    """The ``_meta`` that a client of this revision sends with every request."""
    meta = {
        META_PROTOCOL_VERSION: VERSION,
        META_CLIENT_INFO: unstructure(client_info),
        META_CLIENT_CAPABILITIES: unstructure(capabilities),
    }
    if log_level is not None:
        meta[META_LOG_LEVEL] = log_level
    return meta


def unsupported_version(version: object) -> ProtocolError:
    """Why a request that names this version, or none, is refused."""
    if version is None:
        return _invalid(f"params._meta: {META_PROTOCOL_VERSION} is missing")
    if type(version) is not str:
        return _invalid(f"params._meta.{META_PROTOCOL_VERSION}: expected a string")
    return ProtocolError(
        ErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
        f"Unsupported protocol version; this server supports {VERSION}",
        {"supported": [VERSION], "requested": version},
    )


def _check_log_level(level: object) -> LoggingLevel:
    try:
        return check_level(level)
    except ValueError as error:
        raise _invalid(f"params._meta.{META_LOG_LEVEL}: {error}") from None


def _read(model: type[T], value: Any, path: str) -> T:
    try:
        return structure(model, value, at=path)
    except ModelError as error:
        raise _invalid(str(error)) from None


def _invalid(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_PARAMS, f"Invalid params: {message}")
