"""``server/discover``: what this server is and can do. Specification: *Discovery*."""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.context import Context
from ..runtime.models.base import RequestParams, ServerCapabilities
from ..runtime.models.discovery import DiscoverResult
from .caching import CacheHint

__all__ = ["Discovery"]


class Discovery:
    """Answers discovery.

    :param capabilities: called with each request: features may be added while the server runs.
    """

    def __init__(
        self,
        supported_versions: list[str],
        capabilities: Callable[[], ServerCapabilities],
        instructions: str | None,
        cache: CacheHint,
    ) -> None:
        self._supported_versions = supported_versions
        self._capabilities = capabilities
        self._instructions = instructions
        self._cache = cache

    async def discover(self, ctx: Context, params: RequestParams) -> DiscoverResult:
        return DiscoverResult(
            supported_versions=self._supported_versions,
            capabilities=self._capabilities(),
            instructions=self._instructions,
            ttl_ms=self._cache.ttl_ms,
            cache_scope=self._cache.scope,
        )
