"""``subscriptions/listen``: who wants to hear of which changes. Specification: *Subscriptions*.

A notification is made when its turn to be written comes, not when something changes. Until then a
subscription only remembers what has changed, each change once, so a listener that reads slowly, or
never, costs what it has asked for and no more, and hears of everything all the same: a change says
"look again", and looking shows the newest.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import trio

from ..runtime.context import Context, exchange_of
from ..runtime.dispatch import Dispatcher
from ..runtime.errors import ErrorCode, ProtocolError
from ..runtime.exchange import Exchange
from ..runtime.models.base import META_SUBSCRIPTION_ID, ServerCapabilities
from ..runtime.models.notifications import NotificationParams
from ..runtime.models.subscriptions import (
    ResourceUpdatedNotificationParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from .changes import Change

__all__ = ["Subscription", "Subscriptions"]

_LIST_CHANGED: Final = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}


class Subscriptions:
    """The live subscriptions of one server, by what they are for.

    :param offers: what the server can do; asked with each new subscription.
    """

    def __init__(self, core: Dispatcher, offers: Callable[[], ServerCapabilities]) -> None:
        self._core = core
        self._offers = offers
        self._live: set[Subscription] = set()
        self._watching: dict[Change, set[Subscription]] = {}
        self._posted: dict[Change, None] = {}
        self._posting = threading.Lock()

    def __len__(self) -> int:
        return len(self._live)

    # The method -----------------------------------------------------------------------------------

    async def listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Until the client cancels, or the server drains: then what is pending is said, and the
        result ends the subscription."""
        exchange = exchange_of(ctx)
        granted = self._grant(params.notifications)
        subscription = Subscription(exchange, granted)
        exchange.target = _label(granted)
        # From the acknowledgement to the registration nothing is awaited: no change is lost.
        subscription.acknowledge()
        self._enter(subscription)
        try:
            await subscription.closing.wait()
        finally:
            self._leave(subscription)
        await subscription.all_said()
        return SubscriptionsListenResult(meta={META_SUBSCRIPTION_ID: exchange.request.id})

    def _grant(self, wanted: SubscriptionFilter) -> SubscriptionFilter:
        """The part of what is wanted that this server can do."""
        offers = self._offers()
        tools, prompts, resources = offers.tools, offers.prompts, offers.resources
        uris = wanted.resource_subscriptions
        if uris is None or resources is None or not resources.subscribe:
            uris = None
        elif len(uris) > (limit := self._core.limits.subscribed_resources):
            raise ProtocolError(
                ErrorCode.INVALID_PARAMS,
                f"Invalid params: resourceSubscriptions has {len(uris)} URIs, more than the "
                f"server's limit subscribed_resources={limit}; listen with several requests",
            )
        return SubscriptionFilter(
            tools_list_changed=_both(wanted.tools_list_changed, tools and tools.list_changed),
            prompts_list_changed=_both(
                wanted.prompts_list_changed, prompts and prompts.list_changed
            ),
            resources_list_changed=_both(
                wanted.resources_list_changed, resources and resources.list_changed
            ),
            resource_subscriptions=None if uris is None else list(dict.fromkeys(uris)),
        )

    def _enter(self, subscription: Subscription) -> None:
        self._live.add(subscription)
        for change in subscription.changes:
            self._watching.setdefault(change, set()).add(subscription)

    def _leave(self, subscription: Subscription) -> None:
        self._live.discard(subscription)
        for change in subscription.changes:
            watching = self._watching[change]
            watching.discard(subscription)
            if not watching:
                del self._watching[change]

    # Changes --------------------------------------------------------------------------------------

    def deliver(self, change: Change) -> None:
        """Tell all who watch. Never waits; for any thread.

        What nobody watches costs a look into a dict. From other threads than the event loop's,
        changes wait for it in the order they came in, each once.
        """
        if change not in self._watching:
            return
        if threading.get_ident() == self._core.thread:
            self._tell(change)
            return
        with self._posting:
            self._posted[change] = None
        self._core.call_soon(self._tell_posted)

    def _tell_posted(self) -> None:
        with self._posting:
            posted, self._posted = self._posted, {}
        for change in posted:
            self._tell(change)

    def _tell(self, change: Change) -> None:
        for subscription in self._watching.get(change, ()):
            subscription.add(change)


class Subscription:
    """One listener: what it is still to be told. An :class:`~...runtime.exchange.Outgoing`.

    It is in the queue of its reply once, if there is anything to say; with each turn it says one
    thing, the oldest, and queues up again behind the others.
    """

    __slots__ = (
        "_acknowledged",
        "_all_said",
        "_exchange",
        "_granted",
        "_pending",
        "_queued",
        "changes",
        "closing",
    )

    size = 0

    def __init__(self, exchange: Exchange, granted: SubscriptionFilter) -> None:
        self.changes = tuple(_changes_in(granted))
        self.closing = trio.Event()
        self._exchange = exchange
        self._granted = granted
        self._acknowledged = False
        self._pending: OrderedDict[Change, None] = OrderedDict()
        self._queued = False
        self._all_said = trio.Event()

    def acknowledge(self) -> None:
        """The first thing to say; from now on a drain closes the subscription."""
        self._queue()
        self._exchange.end_on_drain(self.closing.set)

    def add(self, change: Change) -> None:
        """Say it when there is time. What waits to be said already is not said twice."""
        if change in self._pending:
            self._exchange.changes_coalesced += 1
            return
        self._pending[change] = None
        if not self._queued:
            self._queue()

    async def all_said(self) -> None:
        """Wait until nothing is pending. A peer that does not read makes this wait for ever: the
        drain is what has a limit."""
        while self._queued:
            self._all_said = trio.Event()
            await self._all_said.wait()

    def take(self) -> bytes | None:
        self._queued = False
        if not self._exchange.speaking:
            self._pending.clear()
            return None
        if self._acknowledged:
            change, _ = self._pending.popitem(last=False)
            frame = self._encode_change(change)
            self._exchange.changes_sent += 1
        else:
            self._acknowledged = True
            frame = self._encode_acknowledgement()
        if self._pending:
            self._queue()
        else:
            self._all_said.set()
        return frame

    def written(self, delivered: bool) -> None:
        pass

    def _queue(self) -> None:
        self._queued = True
        self._exchange.reply.notify(self)

    def _encode_acknowledgement(self) -> bytes:
        return self._encode(
            "notifications/subscriptions/acknowledged",
            SubscriptionsAcknowledgedNotificationParams(self._granted),
        )

    def _encode_change(self, change: Change) -> bytes:
        if change.uri is not None:
            params = ResourceUpdatedNotificationParams(change.uri)
            return self._encode("notifications/resources/updated", params)
        return self._encode(_LIST_CHANGED[change.kind], NotificationParams())

    def _encode(self, method: str, params: object) -> bytes:
        assert self._exchange.era is not None
        return self._exchange.era.encode_subscribed(self._exchange.request.id, method, params)


def _both(wanted: bool | None, offered: object) -> bool | None:
    return True if wanted and offered else None


def _changes_in(granted: SubscriptionFilter) -> Iterable[Change]:
    if granted.tools_list_changed:
        yield Change("tools")
    if granted.prompts_list_changed:
        yield Change("prompts")
    if granted.resources_list_changed:
        yield Change("resources")
    for uri in granted.resource_subscriptions or ():
        yield Change("resource", uri)


def _label(granted: SubscriptionFilter) -> str:
    """What a subscription is for, in the journal and the scope tree: ``"tools, 2 URIs"``."""
    lists = [change.kind for change in _changes_in(granted) if change.uri is None]
    uris = len(granted.resource_subscriptions or ())
    return ", ".join([*lists, *([f"{uris} URI{'s' * (uris != 1)}"] if uris else [])]) or "nothing"
