"""Answers to lists and reads, kept for as long as the server says that they are fresh.

One client has one authorization for all of its life, so what is private is kept, too, and shared
with nobody. Answers that took several rounds are not kept. Specification: *Caching*.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import attrs
import trio

from ..handlers.changes import Change
from ..runtime.jsonrpc import decode, encode
from ..runtime.limits import Limits

__all__ = ["CacheKey", "ResponseCache"]

CacheKey: TypeAlias = tuple[str, str | None]
"""The method, and its cursor or URI: what an answer depends on."""

READ: Final = "resources/read"
_CHANGED: Final = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
    "resource": (),
}
_OVERHEAD: Final = 500
"""Bytes that an entry takes besides its texts, about."""
_FOREVER: Final = 10**12
"""Milliseconds."""
_MOST_PARTS: Final = 64
"""Of a URI that was updated; one with more is a part of anything."""


@attrs.frozen
class _Kept:
    data: bytes
    size: int
    generation: int
    stale_at: float


class ResponseCache:
    """At most ``Limits.cache_bytes``; what was used least recently makes room."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._size = limits.cache_bytes
        self._taken = 0
        self._kept: OrderedDict[CacheKey, _Kept] = OrderedDict()
        self._generations: dict[str, int] = {}
        self._updates = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: CacheKey) -> Any:
        """The answer's JSON, if there is one that is fresh; a copy of one's own. Else ``None``."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if trio.current_time() >= kept.stale_at or kept.generation != self._generation(key[0]):
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return decode(kept.data)

    def moment(self, method: str) -> tuple[int, int]:
        """To be taken before asking, and given to :meth:`put`."""
        return self._generation(method), self._updates if method == READ else 0

    def put(self, key: CacheKey, answer: Any, ttl_ms: int, asked_at: tuple[int, int]) -> None:
        """Keep an answer that has just come, unless it may not be kept, or has crossed a change."""
        if ttl_ms <= 0 or asked_at != self.moment(key[0]):
            return
        try:
            data = encode(answer)
        except (RecursionError, ValueError):  # nested as deep as can be: it will be asked for again
            return
        size = len(data) + 4 * len(key[1] or "") + _OVERHEAD
        self._drop(key)
        if size > self._size:
            return
        stale_at = trio.current_time() + min(ttl_ms, _FOREVER) / 1000
        self._kept[key] = _Kept(data, size, asked_at[0], stale_at)
        self._taken += size
        while self._taken > self._size:
            self._drop(next(iter(self._kept)))

    def changed(self, change: Change) -> None:
        """The server says that something is another one now."""
        for method in _CHANGED[change.kind]:
            self.forget(method)
        if change.uri is not None:
            self._updated(change.uri)

    def _updated(self, uri: str) -> None:
        """What is updated may be a part of what was read."""
        self._updates += 1
        if len(uri) > self._limits.uri_length or uri.count("/") > _MOST_PARTS:
            self.forget(READ)  # rather than to look for all that it may be a part of
            return
        for above in _uri_and_those_above(uri):
            self._drop((READ, above))

    def forget(self, method: str) -> None:
        """All answers of this method."""
        self._generations[method] = self._generation(method) + 1

    def clear(self) -> None:
        """All answers, also those that are on their way."""
        for method in (READ, *(method for methods in _CHANGED.values() for method in methods)):
            self.forget(method)
        self._kept.clear()
        self._taken = 0

    def _generation(self, method: str) -> int:
        return self._generations.get(method, 0)

    def _drop(self, key: CacheKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._taken -= kept.size


def _uri_and_those_above(uri: str) -> Iterator[str]:
    while True:
        yield uri
        above, slash, _ = uri.rpartition("/")
        if not slash:
            return
        yield f"{above}/"
        uri = above
