"""Revision 2026-07-28: no session; each request says all, and a result may ask for input."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...runtime.call import Call
from ...runtime.eras.revision_2026_07_28 import VERSION, client_meta
from ...runtime.models.base import Implementation, LoggingLevel
from ...runtime.models.converter import unstructure
from ...runtime.models.discovery import DiscoverResult
from ...runtime.models.subscriptions import SubscriptionFilter
from ..answers import Answers
from .base import Open

__all__ = ["ClientRevision20260728"]


class ClientRevision20260728:
    """Client side of the revision: a :class:`~.base.ClientEra`."""

    version = VERSION

    def __init__(self, info: Implementation, answers: Answers, level: LoggingLevel | None) -> None:
        self.meta = client_meta(info, answers.capabilities, level)
        self.answers = answers

    async def discover(self, ask: Callable[[], Awaitable[DiscoverResult]]) -> DiscoverResult:
        return await ask()

    def listen(self, open_call: Open, wanted: SubscriptionFilter) -> Call:
        return open_call("subscriptions/listen", {"notifications": unstructure(wanted)})
