"""Resources: their listing, templates and contents. Specification 2026-07-28: *Resources*."""

from __future__ import annotations

from typing import Literal

from attrs import define

from .base import Annotations, CacheScope, Icon, JSONObject
from .content import BlobResourceContents, TextResourceContents

__all__ = [
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ReadResourceRequestParams",
    "ReadResourceResult",
    "Resource",
    "ResourceTemplate",
]


@define
class Resource:
    """A resource that a server can read."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    """Bytes of the raw content, before base64."""
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: JSONObject | None = None


@define
class ResourceTemplate:
    """A family of resources; `uri_template` is a template by RFC 6570."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    """Only if all of its resources have the same."""
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: JSONObject | None = None


@define
class ListResourcesResult:
    """One page of resources. `ttl_ms` is in milliseconds; a negative one counts as 0."""

    resources: list[Resource]
    next_cursor: str | None = None
    """Where the next page starts; None (and only None) means that this was the last one."""
    ttl_ms: int = 0
    cache_scope: CacheScope | str = "private"
    """A scope that is neither ``"public"`` nor ``"private"`` counts as private."""
    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None


@define
class ListResourceTemplatesResult:
    """One page of templates. `ttl_ms` is in milliseconds; a negative one counts as 0."""

    resource_templates: list[ResourceTemplate]
    next_cursor: str | None = None
    """Where the next page starts; None (and only None) means that this was the last one."""
    ttl_ms: int = 0
    cache_scope: CacheScope | str = "private"
    """A scope that is neither ``"public"`` nor ``"private"`` counts as private."""
    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None


@define
class ReadResourceRequestParams:
    """Params of ``resources/read``."""

    uri: str
    input_responses: JSONObject | None = None
    """Answers to the ``inputRequests`` of an earlier result, by the same keys."""
    request_state: str | None = None
    """What an earlier result carried; under the control of whoever sends it."""
    meta: JSONObject | None = None


@define
class ReadResourceResult:
    """What was read: one item, or several below the URI that was asked for.

    `ttl_ms` is in milliseconds; a negative one counts as 0.
    """

    contents: list[TextResourceContents | BlobResourceContents]
    ttl_ms: int = 0
    cache_scope: CacheScope | str = "private"
    """A scope that is neither ``"public"`` nor ``"private"`` counts as private."""
    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None
