"""What an era offers to the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from ...runtime.call import Call
from ...runtime.models.discovery import DiscoverResult
from ...runtime.models.subscriptions import SubscriptionFilter
from ..answers import Answers

__all__ = ["ClientEra", "Open"]

Open = Callable[[str, Mapping[str, Any]], Call]
"""Starts a call of a method with its parameters. Never waits."""


class ClientEra(Protocol):
    """One family of revisions, client side."""

    @property
    def version(self) -> str:
        """The revision that is spoken."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """``_meta`` of every request."""

    @property
    def answers(self) -> Answers | None:
        """Who answers results that ask for input; ``None`` if results do not ask."""

    async def discover(self, ask: Callable[[], Awaitable[DiscoverResult]]) -> DiscoverResult:
        """What the server is and can do; ``ask`` asks with ``server/discover``."""

    def listen(self, open_call: Open, wanted: SubscriptionFilter) -> Call:
        """A call that its listener can hear of changes. Never waits."""
