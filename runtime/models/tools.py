"""Tools: their definitions, calls and results. Specification 2026-07-28: *Tools*."""

from __future__ import annotations

from typing import Literal

from attrs import define

from ..errors import ToolFailed
from .base import UNSET, CacheScope, Icon, JSONObject, JSONValue
from .content import ContentBlock, TextContent

__all__ = [
    "CallToolRequestParams",
    "CallToolResult",
    "ListToolsResult",
    "Tool",
    "ToolAnnotations",
]


@define
class ToolAnnotations:
    """Hints about what a tool does; from a server that is not trusted they are worth nothing.

    None means the specification's default, which for `destructive_hint` and `open_world_hint` is
    true and for the two others false.
    """

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


@define
class Tool:
    """The definition of a tool. Its schemas are JSON Schema, 2020-12 unless they say otherwise."""

    name: str
    input_schema: JSONObject
    title: str | None = None
    description: str | None = None
    output_schema: JSONObject | None = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    meta: JSONObject | None = None


@define
class ListToolsResult:
    """One page of tools. `ttl_ms` is in milliseconds; a negative one counts as 0."""

    tools: list[Tool]
    next_cursor: str | None = None
    """Where the next page starts; None (and only None) means that this was the last one."""
    ttl_ms: int = 0
    cache_scope: CacheScope | str = "private"
    """A scope that is neither ``"public"`` nor ``"private"`` counts as private."""
    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None


@define
class CallToolRequestParams:
    """Params of ``tools/call``."""

    name: str
    arguments: JSONObject | None = None
    input_responses: JSONObject | None = None
    """Answers to the ``inputRequests`` of an earlier result, by the same keys."""
    request_state: str | None = None
    """What an earlier result carried; under the control of whoever sends it."""
    meta: JSONObject | None = None


@define
class CallToolResult:
    """What a tool returned. An error of the tool itself is a result too, with `is_error` true."""

    content: list[ContentBlock]
    structured_content: JSONValue = UNSET
    """Any JSON value, None for a JSON null; `UNSET` when there is none."""
    is_error: bool | None = None
    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None

    @property
    def text(self) -> str:
        """The text of all its text blocks, one below the other."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    def raise_for_error(self) -> CallToolResult:
        """This result, if the tool did not fail; otherwise raises :class:`~trio_mcp.ToolFailed`."""
        if self.is_error:
            raise ToolFailed(self.text or "the tool failed, and does not say why", self)
        return self
