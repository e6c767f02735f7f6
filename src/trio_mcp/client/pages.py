"""Lists of a server, page after page. Specification: *Pagination*."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

import trio

from ..runtime.errors import ProtocolViolation

__all__ = ["Pages"]

T = TypeVar("T")
P = TypeVar("P", bound="Page")


class Page(Protocol):
    """One page of a list."""

    next_cursor: str | None


class Pages(Generic[T]):
    """All entries of a list. No generator: leaving the loop early leaves nothing behind, and asks
    no further.

    :param method: whose pages they are, for error messages.
    :param ask: gets the page at a cursor; ``None`` (and only ``None``) is the first one. What
        cursors say is not looked into.
    :param entries: of a page.
    :param limit: most pages, ``Limits.pages``.

    Raises what ``ask`` raises, and :class:`ProtocolViolation` on a repeated cursor or one page too
    many; what came before is delivered.
    """

    def __init__(
        self,
        method: str,
        ask: Callable[[str | None], Awaitable[P]],
        entries: Callable[[P], list[T]],
        limit: int,
    ) -> None:
        self._method = method
        self._ask: Callable[[str | None], Awaitable[Page]] = ask
        self._entries_of: Callable[[Any], list[T]] = entries
        self._limit = limit
        self._left = limit
        self._entries: list[T] = []
        self._cursor: str | None = None
        self._seen: set[str] = set()
        self._more = True

    def __aiter__(self) -> Pages[T]:
        return self

    async def __anext__(self) -> T:
        while not self._entries:
            if not self._more:
                raise StopAsyncIteration
            await self._next_page()
        await trio.lowlevel.checkpoint()
        return self._entries.pop()

    async def _next_page(self) -> None:
        if not self._left:
            raise ProtocolViolation(f"{self._method}: more than pages={self._limit} pages")
        self._left -= 1
        page = await self._ask(self._cursor)
        cursor = page.next_cursor
        if cursor is not None:
            if cursor in self._seen:
                self._more = False
                raise ProtocolViolation(f"{self._method}: the server gave the same cursor twice")
            self._seen.add(cursor)
        self._entries = self._entries_of(page)[::-1]
        self._cursor = cursor
        self._more = cursor is not None
