"""``server/discover``: what this server is and can do. Specification: *Discovery*."""

from __future__ import annotations

from ..runtime.context import Context
from ..runtime.models.base import RequestParams, ServerCapabilities
from ..runtime.models.discovery import DiscoverResult
from .caching import CacheHint

__all__ = ["Discovery"]


class Discovery:
    """Answers discovery from what the server was made with."""

    def __init__(
        self,
        supported_versions: list[str],
        capabilities: ServerCapabilities,
        instructions: str | None,
        cache: CacheHint,
    ) -> None:
        self._result = DiscoverResult(
            supported_versions=supported_versions,
            capabilities=capabilities,
            instructions=instructions,
            ttl_ms=cache.ttl_ms,
            cache_scope=cache.scope,
        )

    async def discover(self, ctx: Context, params: RequestParams) -> DiscoverResult:
        return self._result
