"""``server/discover``. Specification 2026-07-28: *Discovery*."""

from __future__ import annotations

from typing import Literal

from attrs import define

from .base import CacheScope, JSONObject, ServerCapabilities

__all__ = ["DiscoverResult"]


@define
class DiscoverResult:
    """What a server is: its protocol versions, capabilities and instructions for a model.

    Its name and version are in `meta`, see `.base.ResultMetaObject`. `ttl_ms` is in milliseconds; a
    negative one counts as 0.
    """

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
    ttl_ms: int = 0
    cache_scope: CacheScope | str = "private"
    """A scope that is neither ``"public"`` nor ``"private"`` counts as private."""
    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None
