"""Lists of a server, page after page. Specification: *Pagination*."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

import trio

from ..runtime.errors import ProtocolViolation
from ..runtime.limits import Limits
from ..runtime.server_errors import InvalidParams

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
    :param key: what tells an entry from the others: its name, or its URI.
    :param limits: ``pages`` is the most that are followed.

    If the server takes a cursor for none (-32602), the list begins anew, once, and does not deliver
    again what it has delivered; unless that was more than ``Limits.list_entries``.

    Raises what ``ask`` raises, and :class:`ProtocolViolation` on a repeated cursor or one page too
    many; what came before is delivered.
    """

    def __init__(
        self,
        method: str,
        ask: Callable[[str | None], Awaitable[P]],
        entries: Callable[[P], list[T]],
        key: Callable[[T], str],
        limits: Limits,
    ) -> None:
        self._method = method
        self._ask: Callable[[str | None], Awaitable[Page]] = ask
        self._entries_of: Callable[[Any], list[T]] = entries
        self._key = key
        self._limits = limits
        self._left = limits.pages
        self._entries: list[T] = []
        self._cursor: str | None = None
        self._more = True
        self._begun_anew = False
        # Hashes, not cursors and names: a server decides how long these are.
        self._seen: set[int] = set()
        self._delivered: set[int] = set()

    def __aiter__(self) -> Pages[T]:
        return self

    async def __anext__(self) -> T:
        while not self._entries:
            if not self._more:
                raise StopAsyncIteration
            await self._next_page()
        await trio.lowlevel.checkpoint()
        entry = self._entries.pop()
        if not self._begun_anew and len(self._delivered) <= self._limits.list_entries:
            self._delivered.add(hash(self._key(entry)))
        return entry

    async def _next_page(self) -> None:
        if not self._left:
            raise ProtocolViolation(f"{self._method}: more than pages={self._limits.pages} pages")
        self._left -= 1
        try:
            page = await self._ask(self._cursor)
        except InvalidParams:
            if not self._can_begin_anew():
                raise
            self._begun_anew = True
            self._cursor = None
            self._seen.clear()
            return
        cursor = page.next_cursor
        if cursor is not None:
            if hash(cursor) in self._seen:
                self._more = False
                raise ProtocolViolation(f"{self._method}: the server gave the same cursor twice")
            self._seen.add(hash(cursor))
        entries: list[T] = self._entries_of(page)[::-1]
        if self._begun_anew:
            entries = [entry for entry in entries if hash(self._key(entry)) not in self._delivered]
        self._entries = entries
        self._cursor = cursor
        self._more = cursor is not None

    def _can_begin_anew(self) -> bool:
        first = self._cursor is None
        return not (first or self._begun_anew or len(self._delivered) > self._limits.list_entries)
