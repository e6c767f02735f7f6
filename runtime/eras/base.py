"""What an era offers to the rest of the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import attrs

from ..errors import ProtocolError
from ..jsonrpc import Request, RequestId
from ..models.base import ClientCapabilities, Implementation, LoggingLevel
from ..progress import ProgressUpdate

__all__ = ["Era", "RequestMetadata"]

T = TypeVar("T")


@attrs.frozen
class RequestMetadata:
    """What a request says about itself, its client and what that client can do."""

    protocol_version: str
    client_info: Implementation | None
    client_capabilities: ClientCapabilities
    progress_token: RequestId | None
    log_level: LoggingLevel | None
    raw: Mapping[str, Any]

    def client_name(self, clip: int) -> str | None:
        """What the client calls itself, at most ``clip`` characters of it; not verified."""
        if self.client_info is None:
            return None
        return f"{self.client_info.name[:clip]} {self.client_info.version[:clip]}"[:clip]


class Era(Protocol):
    """One family of revisions, server side."""

    version: str

    def read_metadata(self, params: dict[str, Any]) -> RequestMetadata:
        """The metadata of a request, which may be tidied up in there. Raises
        :class:`~..errors.ProtocolError`."""

    def unknown_method(self, request: Request, clip: int) -> ProtocolError:
        """The error for a method that nobody serves; names at most ``clip`` characters of it."""

    def read_params(self, model: type[T], params: Mapping[str, Any]) -> T:
        """The parameters as a model. Raises :class:`~..errors.ProtocolError` -32602."""

    def write_result(self, result: Any) -> dict[str, Any]:
        """A result model as this revision's JSON object."""

    def encode_progress(self, token: RequestId, update: ProgressUpdate) -> bytes:
        """A progress notification."""

    def encode_log(self, level: LoggingLevel, data: Any, logger: str | None) -> bytes:
        """A log message; ``data`` is a JSON value."""

    def encode_subscribed(self, subscription_id: RequestId, method: str, params: object) -> bytes:
        """A notification of a subscription; ``params`` is a model."""
