"""The files of a directory among the resources of a server.

Directories are listed and files are read in worker threads, those of the request: they are told
when it is cancelled, given their window, and abandoned if they do not stop.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from typing import TypeVar

import attrs

from ...runtime.context import Context, exchange_of
from ...runtime.errors import ErrorCode, ProtocolError, ResourceNotFound
from ...runtime.models.base import Annotations
from ...runtime.models.content import BlobResourceContents, TextResourceContents
from ...runtime.models.resources import ReadResourceResult, Resource
from ..caching import CacheHint
from .contents import Contents
from .files import Directory, FileEntry, FileNotServed, FileTooLarge

__all__ = ["FilePage", "ServedDirectory"]

logger = logging.getLogger("trio_mcp.resources")

T = TypeVar("T")


@attrs.frozen
class FilePage:
    """Some files of a directory. ``last`` is the path of the last one if there are more."""

    resources: list[Resource]
    last: str | None


@attrs.define(eq=False)
class ServedDirectory:
    """A directory, and what its resources have in common. ``timeout`` is in seconds."""

    files: Directory
    annotations: Annotations
    timeout: float | None
    cache: CacheHint
    _warned: bool = attrs.field(default=False, init=False)

    @property
    def uri(self) -> str:
        """What the URIs of its files begin with."""
        return self.files.uri

    async def list(self, ctx: Context, after: str, count: int) -> FilePage:
        """At most ``count`` files in the order of their paths, those after the path ``after``.

        The whole directory is looked at, up to its limits, each time: files come and go.
        """
        return await self._in_thread(ctx, lambda: self._page(ctx, after, count))

    async def read(self, ctx: Context, uri: str) -> ReadResourceResult:
        """Raises :class:`.ResourceNotFound` for whatever is not served, and ``ProtocolError``
        -32603 for a file that is too large for a message."""
        exchange = exchange_of(ctx)
        timeout = self.timeout if self.timeout is not None else exchange.core.timeout
        if timeout is not None:
            exchange.limit_time(timeout)
        await exchange.core.admission.enter(exchange, None)
        try:
            path = self.files.path_of(uri)
            contents = await self._in_thread(ctx, lambda: self._contents(ctx, path, uri))
        except FileNotServed:
            raise ResourceNotFound(uri) from None
        except FileTooLarge as error:
            raise ProtocolError(ErrorCode.INTERNAL_ERROR, str(error), {"uri": uri}) from None
        return ReadResourceResult(
            [contents], ttl_ms=self.cache.ttl_ms, cache_scope=self.cache.scope
        )

    async def _in_thread(self, ctx: Context, job: Callable[[], T]) -> T:
        exchange = exchange_of(ctx)
        pool = exchange.core.pools.threads()
        return await pool.run(exchange, self.uri, job, is_handler=True)

    # In the thread --------------------------------------------------------------------------------

    def _page(self, ctx: Context, after: str, count: int) -> FilePage:
        listing = self.files.listing(ctx.check_cancelled)
        if listing.truncated and not self._warned:
            self._warned = True
            logger.warning(
                "%s has more files, or is deeper, than its limits allow "
                "(Limits.directory_entries=%d); the rest is not listed",
                self.uri,
                self.files.max_entries,
            )
        start = bisect_right(listing.entries, after.split("/"), key=_order) if after else 0
        page = listing.entries[start : start + count]
        more = start + count < len(listing.entries)
        last = (page[-1].path if page else after) if more else None
        return FilePage([self._resource(entry) for entry in page], last)

    def _resource(self, entry: FileEntry) -> Resource:
        return Resource(
            uri=entry.uri,
            name=entry.name,
            mime_type=entry.mime_type,
            size=entry.size,
            annotations=attrs.evolve(self.annotations, last_modified=entry.last_modified),
        )

    def _contents(self, ctx: Context, path: str, uri: str) -> Contents:
        read = self.files.read_contents(path, ctx.check_cancelled)
        if read.text is not None:
            return TextResourceContents(uri, read.text, read.mime_type)
        return BlobResourceContents(uri, read.blob or "", read.mime_type)


def _order(entry: FileEntry) -> list[str]:
    return entry.path.split("/")
