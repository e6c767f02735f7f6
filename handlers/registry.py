"""What a server offers of one kind, by name, in the order in which it was added."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from .pagination import Cursors, page_of

__all__ = ["Registry"]

E = TypeVar("E")


class Registry(Generic[E]):
    """Entries that may come and go while the server runs.

    :param kind: what an entry is, in words: ``"tool"``.
    :param list_name: what its cursors seal: ``"tools"``.
    :param changed: called, synchronously, after an entry was added or removed.
    """

    def __init__(
        self,
        kind: str,
        list_name: str,
        page_size: int,
        cursors: Cursors,
        changed: Callable[[], None],
    ) -> None:
        self._kind = kind
        self._list_name = list_name
        self._page_size = page_size
        self._cursors = cursors
        self._changed = changed
        self._entries: dict[str, tuple[int, E]] = {}
        self._places = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[E]:
        return (entry for _, entry in list(self._entries.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def get(self, name: str) -> E | None:
        placed = self._entries.get(name)
        return None if placed is None else placed[1]

    def add(self, name: str, entry: E) -> None:
        """Raises ``ValueError`` if the name is taken."""
        if name in self._entries:
            raise ValueError(f"there is a {self._kind} named {name!r} already")
        self._places += 1
        self._entries[name] = (self._places, entry)
        self._changed()

    def remove(self, name: str) -> None:
        """What is running goes on. Raises ``KeyError`` if there is none of this name."""
        if name not in self._entries:
            raise KeyError(f"there is no {self._kind} named {name!r}")
        del self._entries[name]
        self._changed()

    def after(self, place: int) -> list[tuple[int, E]]:
        """The entries that were added after the one with this place, each with its own."""
        placed = list(self._entries.values())
        return placed[bisect_right(placed, place, key=_place_of) :]

    def page(self, cursor: str | None) -> tuple[list[E], str | None]:
        """One page, and the cursor of the next. Raises ``ProtocolError`` for a foreign cursor."""
        return page_of(
            list(self._entries.values()), self._list_name, cursor, self._page_size, self._cursors
        )


def _place_of(placed: tuple[int, object]) -> int:
    return placed[0]
