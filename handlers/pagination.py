"""Pages of a list, and cursors that only this server can make.

Specification: *Pagination*. A cursor seals the name of its list and the place of the last entry it
has shown, so that entries may come and go between two pages without one being lost or doubled. The
empty string is a cursor like any other: one that we never made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from ..runtime.errors import ErrorCode, ProtocolError
from .sealing import Seal, Secret, SecretKeys

__all__ = ["Cursors", "page_of"]

E = TypeVar("E")
P = TypeVar("P")


class Cursors:
    """Seals and opens cursors. With a ``secret`` they survive a restart."""

    def __init__(self, secret: Secret | None) -> None:
        self._seal = Seal(SecretKeys(secret), "cursor")

    def seal(self, name: str, place: Any) -> str:
        return self._seal.close(msgspec.json.encode((name, place)), 0)

    def open(self, name: str, cursor: str, kind: type[P]) -> P:
        """The place sealed for the list ``name``. Raises :class:`ProtocolError` -32602."""
        opened = self._seal.open(cursor, None, 0)
        if opened is not None:
            sealed_name, sealed = msgspec.json.decode(opened, type=tuple[str, Any])
            if sealed_name == name:
                return msgspec.convert(sealed, kind)
        raise ProtocolError(
            ErrorCode.INVALID_PARAMS,
            "Invalid params: this cursor is not one of this list; start again without one",
        )


def page_of(
    placed: Sequence[tuple[int, E]], name: str, cursor: str | None, size: int, cursors: Cursors
) -> tuple[list[E], str | None]:
    """One page of ``(place, entry)``, and the cursor of the next one, ``None`` after the last.

    Places increase along the list, and are never given out twice.
    """
    start = 0
    if cursor is not None:
        start = bisect_right(placed, cursors.open(name, cursor, int), key=_place)
    page = placed[start : start + size]
    entries = [entry for _, entry in page]
    if start + size >= len(placed):
        return entries, None
    return entries, cursors.seal(name, _place(page[-1]))


def _place(placed: tuple[int, object]) -> int:
    return placed[0]
