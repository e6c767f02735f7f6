"""Heads of requests that have come before, byte by byte the same. No I/O.

A client says the same with almost every call: what such a head means need not be found out again.
What is remembered came with a request that was parsed, was whole, and kept the connection.
"""

from __future__ import annotations

from typing import Final

import attrs

from .message import RequestHead

__all__ = ["KnownHead", "KnownHeads"]

_END: Final = b"\r\n\r\n"

LONGEST: Final = 2048
"""Bytes of a head that is remembered."""

MOST_HEADERS: Final = 32
"""Headers of such a head; with what is made of them, it takes up to 16 KiB."""


@attrs.frozen(eq=False)
class KnownHead:
    """``body_at`` and ``size``: where the body of such a request begins and ends, in bytes."""

    head: RequestHead
    body_at: int
    size: int


class KnownHeads:
    """Those of one endpoint, the newest ``most`` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[bytes | bytearray, KnownHead] = {}

    def find(self, data: bytes) -> KnownHead | None:
        """The head of the one request that ``data`` is, if it is known."""
        end = data.find(_END, 0, LONGEST)
        known = self._known.get(data[:end]) if end >= 0 else None
        return known if known is not None and known.size == len(data) else None

    def remember(self, data: bytes, head: RequestHead, body: bytearray) -> None:
        """``data`` has been parsed as one whole request, with this head and this body."""
        end = data.find(_END, 0, LONGEST)
        body_at = end + len(_END)
        if end < 0 or len(head.headers) > MOST_HEADERS or data[body_at:] != body:
            return  # too long, or coded: in chunks, for one
        if len(self._known) >= self._most:
            del self._known[next(iter(self._known))]
        self._known[data[:end]] = KnownHead(head, body_at, len(data))
