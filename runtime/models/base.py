"""What the messages of every feature share: JSON values, ids, metadata, capabilities, paging.

Specification 2026-07-28: *Overview*, "General fields" (``_meta``, ``icons``); *Pagination*;
*Versioning*, "Capabilities".

Conventions of all models: an optional attribute is None when the member is absent, and a JSON
null in its place means the same. Where a JSON null is a value of its own, the default is `UNSET`
instead. Closed sets of strings are ``Literal``; where a newer peer may send a value that we do
not know yet and the value is only a hint, the type is ``Literal[...] | str`` and the unknown
value is kept.
"""

from __future__ import annotations

import enum
from typing import Any, Final, Literal, TypeAlias

from attrs import define, field

__all__ = [
    "META_CLIENT_CAPABILITIES",
    "META_CLIENT_INFO",
    "META_IDEMPOTENCY_KEY",
    "META_LOG_LEVEL",
    "META_PROGRESS_TOKEN",
    "META_PROTOCOL_VERSION",
    "META_SERVER_INFO",
    "META_SUBSCRIPTION_ID",
    "META_TIMEOUT",
    "UNSET",
    "Annotations",
    "CacheScope",
    "ClientCapabilities",
    "ElicitationCapability",
    "Icon",
    "Implementation",
    "JSONObject",
    "JSONValue",
    "LoggingLevel",
    "NotificationMetaObject",
    "PaginatedRequestParams",
    "ProgressToken",
    "PromptsCapability",
    "RequestId",
    "RequestMetaObject",
    "RequestParams",
    "ResourcesCapability",
    "ResultMetaObject",
    "Role",
    "SamplingCapability",
    "ServerCapabilities",
    "ToolsCapability",
    "Unset",
]

JSONValue: TypeAlias = Any
"""Any JSON value as the decoder makes it: dict, list, str, int, float, bool or None.

The one place where the models say ``Any``: such values pass through the converter untouched, the
same object on both sides, never copied.
"""

JSONObject: TypeAlias = dict[str, JSONValue]
"""A JSON object; its values pass through the converter untouched."""


class Unset(enum.Enum):
    """The type of `UNSET`; false in a condition."""

    UNSET = "UNSET"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNSET"

    __str__ = __repr__


UNSET: Final = Unset.UNSET
"""The member is absent, where a JSON null would mean something else. Compare with ``is``."""

RequestId: TypeAlias = str | int
"""A JSON-RPC id. ``7`` and ``"7"`` are two ids; booleans and floats are none."""

ProgressToken: TypeAlias = str | int
"""Ties progress notifications to their request; same rules as `RequestId`."""

Role: TypeAlias = Literal["assistant", "user"]

LoggingLevel: TypeAlias = Literal[
    "alert", "critical", "debug", "emergency", "error", "info", "notice", "warning"
]

CacheScope: TypeAlias = Literal["private", "public"]

META_PROGRESS_TOKEN: Final = "progressToken"
META_PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
META_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
META_IDEMPOTENCY_KEY: Final = "trio-mcp/idempotencyKey"
META_TIMEOUT: Final = "trio-mcp/timeoutMs"
"""Ours: the same in every attempt at a call, for a server that wants to know."""


@define
class Annotations:
    """Hints about how to use or show an item; never a reason to refuse it."""

    audience: list[Role | str] | None = None
    priority: float | None = None
    """From 0 (entirely optional) to 1 (effectively required)."""
    last_modified: str | None = None
    """ISO 8601."""


@define
class Icon:
    """An icon. Its bytes and its URI are untrusted input (specification: *Overview*, "icons")."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    """``"48x48"``, or ``"any"`` for formats that scale."""
    theme: Literal["dark", "light"] | str | None = None


@define
class Implementation:
    """The name and version that a client or server gives itself; not verified, for display only."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


@define
class ElicitationCapability:
    """Which modes of elicitation a client offers; neither set means form mode."""

    form: JSONObject | None = None
    url: JSONObject | None = None


@define
class SamplingCapability:
    """What a client's sampling offers beyond the minimum. Sampling is deprecated."""

    context: JSONObject | None = None
    tools: JSONObject | None = None


@define
class ClientCapabilities:
    """What a client can do; sent with every request. `sampling` and `roots` are deprecated."""

    elicitation: ElicitationCapability | None = None
    sampling: SamplingCapability | None = None
    roots: JSONObject | None = None
    extensions: dict[str, JSONObject] | None = None
    """Settings by extension identifier; an empty object means support without settings."""
    experimental: dict[str, JSONObject] | None = None


@define
class ToolsCapability:
    """Present if a server offers tools."""

    list_changed: bool | None = None


@define
class ResourcesCapability:
    """Present if a server offers resources."""

    subscribe: bool | None = None
    list_changed: bool | None = None


@define
class PromptsCapability:
    """Present if a server offers prompts."""

    list_changed: bool | None = None


@define
class ServerCapabilities:
    """What a server can do. `logging` is deprecated."""

    tools: ToolsCapability | None = None
    resources: ResourcesCapability | None = None
    prompts: PromptsCapability | None = None
    completions: JSONObject | None = None
    logging: JSONObject | None = None
    extensions: dict[str, JSONObject] | None = None
    """Settings by extension identifier; an empty object means support without settings."""
    experimental: dict[str, JSONObject] | None = None


@define
class RequestMetaObject:
    """What MCP itself reads in the ``_meta`` of a request.

    The keys of others stay in the plain dict that `RequestParams.meta` is.
    """

    protocol_version: str = field(metadata={"wire": META_PROTOCOL_VERSION})
    client_capabilities: ClientCapabilities = field(metadata={"wire": META_CLIENT_CAPABILITIES})
    client_info: Implementation | None = field(default=None, metadata={"wire": META_CLIENT_INFO})
    log_level: LoggingLevel | None = field(default=None, metadata={"wire": META_LOG_LEVEL})
    """The request wants ``notifications/message`` from this level on; None: none at all."""
    progress_token: ProgressToken | None = None


@define
class ResultMetaObject:
    """What MCP itself reads in the ``_meta`` of a result."""

    server_info: Implementation | None = field(default=None, metadata={"wire": META_SERVER_INFO})


@define
class NotificationMetaObject:
    """What MCP itself reads in the ``_meta`` of a notification."""

    subscription_id: RequestId | None = field(default=None, metadata={"wire": META_SUBSCRIPTION_ID})


@define
class RequestParams:
    """Params of a request that has none of its own, ``server/discover`` for one."""

    meta: JSONObject | None = None


@define
class PaginatedRequestParams:
    """Params of a list request.

    The cursor is opaque, and the empty string is one: only None asks for the first page.
    """

    cursor: str | None = None
    meta: JSONObject | None = None
