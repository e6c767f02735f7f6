"""Changes of a server, as they come. Specification: *Subscriptions*."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

import trio

from ..handlers.changes import Change
from ..runtime.call import Call
from ..runtime.errors import CallCancelled, ConnectionLost, ProtocolViolation
from ..runtime.lifecycle import State
from ..runtime.limits import Limits
from ..runtime.models.converter import ModelError, structure
from ..runtime.models.subscriptions import (
    ResourceUpdatedNotificationParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenResult,
)
from ..transports.calling import CallConnection
from .calls import PendingCall, read_result
from .checks import check_flag, check_text

__all__ = ["Changes", "is_too_long", "wanted_changes"]

_LISTEN: Final = "subscriptions/listen"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"
_LISTS: Final = {
    "notifications/tools/list_changed": Change("tools"),
    "notifications/prompts/list_changed": Change("prompts"),
    "notifications/resources/list_changed": Change("resources"),
}


def wanted_changes(
    tools: bool, prompts: bool, resources_list: bool, resources: Sequence[str]
) -> SubscriptionFilter:
    """Raises ``TypeError`` or ``ValueError`` for what nobody can listen to."""
    for what, flag in (
        ("tools", tools),
        ("prompts", prompts),
        ("resources_list", resources_list),
    ):
        check_flag(what, flag)
    if isinstance(resources, str):
        raise TypeError(f"resources are a list of URIs: [{resources!r}], not {resources!r}")
    for uri in resources:
        check_text("the URI of a resource", uri)
    if not (tools or prompts or resources_list or resources):
        raise ValueError("listen() wants to be told to what: tools=True, resources=[uri], …")
    return SubscriptionFilter(
        tools_list_changed=True if tools else None,
        prompts_list_changed=True if prompts else None,
        resources_list_changed=True if resources_list else None,
        resource_subscriptions=list(dict.fromkeys(resources)) or None,
    )


def is_too_long(uri: str, wanted: Collection[str] | None, limits: Limits) -> bool:
    """Whether a URI is one that is not kept: a server decides how long it is, unless it was the
    caller's."""
    return len(uri) > limits.uri_length and uri not in (wanted or ())


class Changes:
    """What has changed, change by change: ``async for change in changes``.

    A change that has not been taken yet stands for all that are equal to it. The end of the loop is
    the server's: it has ended the subscription in order. Raises :class:`~trio_mcp.ConnectionLost`
    if the subscription ends in any other way; what came before is delivered.

    If the connection is restarted, the loop goes on: it listens again, and all that was agreed on
    then counts as changed, since it may have, unheard. ``gaps`` counts how often that was.

    ``agreed`` is what the server will tell of, of what was wanted. ``dropped`` counts changes that
    made room because more than ``Limits.changes_backlog`` different ones waited. A wait for the
    next one may be cancelled; none is lost by that (specification: *Subscriptions*).
    """

    def __init__(
        self,
        ask: Callable[[], PendingCall],
        connection: CallConnection,
        wanted: SubscriptionFilter,
        limits: Limits,
        on_change: Callable[[Change], None] | None = None,
    ) -> None:
        """``ask`` asks the server for what is wanted."""
        self.agreed: SubscriptionFilter
        self.dropped = 0
        self.gaps = 0
        self._ask = ask
        self._connection = connection
        self._wanted = wanted
        self._limits = limits
        self._on_change = on_change
        self._changes: OrderedDict[Change, None] = OrderedDict()
        self._since: int | None = None  # the connection's restarts, when the server agreed
        self._left = False
        self._begin()

    def _begin(self) -> None:
        self._pending = self._ask()
        self._acknowledged = False
        self._pending.call.listener = self._heard

    async def acknowledged(self) -> None:
        """Wait until the server has agreed, within the call's timeouts."""
        while not self._acknowledged:
            if not await self._pending.next_change():
                self._pending.call.result()
                raise ProtocolViolation(f"{_LISTEN}: the server ended it before it had begun")

    def leave(self) -> None:
        """Hear no more; the server is told. Never waits."""
        self._left = True
        self._pending.abandon("the caller left")

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> Change:
        await trio.lowlevel.checkpoint()
        while not self._changes:
            call = self._pending.call
            if self._left or call.cause is not None:
                raise CallCancelled("the block of listen() has been left")
            if call.state is not State.RUNNING:
                if not await self._restarted(call):
                    read_result(SubscriptionsListenResult, call.result(), _LISTEN)
                    raise StopAsyncIteration
            elif self._acknowledged:
                await call.changed.wait()
            else:
                await self._pending.next_change()
        change, _ = self._changes.popitem(last=False)
        return change

    async def _restarted(self, call: Call) -> bool:
        """Listen again, if the call was lost with its connection and there is a new one."""
        lost = isinstance(call.error, ConnectionLost)
        if not lost or self._since is None or not await self._connection.renewed(self._since):
            return False
        if call is self._pending.call and not self._left:
            self._begin()
        return True

    # What the server says -------------------------------------------------------------------------

    def _heard(self, method: str, params: dict[str, Any]) -> str | None:
        """A notification of this subscription. What is wrong with it, if anything is."""
        try:
            if method == _ACKNOWLEDGED:
                return self._acknowledge(params)
            if not self._acknowledged:
                return f"{method} before the subscription was acknowledged"
            change = self._change(method, params)
        except ModelError as error:
            return f"a malformed {method}: {error}"
        if change is None:
            return f"{method}, which was not agreed on"
        self._keep(change)
        return None

    def _acknowledge(self, params: dict[str, Any]) -> str | None:
        if self._acknowledged:
            return "a second acknowledgement of a subscription"
        model = SubscriptionsAcknowledgedNotificationParams
        said = structure(model, params, at="params").notifications
        self.agreed = _both(self._wanted, said)
        self._acknowledged = True
        if self._since is not None:
            self.gaps += 1
            for change in _everything(self.agreed):
                self._keep(change)
        self._since = self._connection.restarts
        self._pending.call.wake()
        return "an acknowledgement of more than was wanted" if _exceeds(said, self.agreed) else None

    def _change(self, method: str, params: dict[str, Any]) -> Change | None:
        agreed = self.agreed
        if method == _UPDATED:
            uri = structure(ResourceUpdatedNotificationParams, params, at="params").uri
            if is_too_long(uri, agreed.resource_subscriptions, self._limits):
                if self._on_change is not None:  # what is kept of answers is stale all the same
                    self._on_change(Change("resource", uri))
                raise ModelError(f"params.uri is longer than uri_length={self._limits.uri_length}")
            return None if agreed.resource_subscriptions is None else Change("resource", uri)
        change = _LISTS[method]
        wanted = {
            "tools": agreed.tools_list_changed,
            "prompts": agreed.prompts_list_changed,
            "resources": agreed.resources_list_changed,
        }
        return change if wanted[change.kind] else None

    def _keep(self, change: Change) -> None:
        if self._on_change is not None:
            self._on_change(change)
        self._changes[change] = None  # where it is, if it waits already
        while len(self._changes) > self._limits.changes_backlog:
            self._changes.popitem(last=False)
            self.dropped += 1
        self._pending.call.wake()


def _everything(agreed: SubscriptionFilter) -> Iterator[Change]:
    """All changes that there can be, but for parts of resources."""
    if agreed.tools_list_changed:
        yield Change("tools")
    if agreed.prompts_list_changed:
        yield Change("prompts")
    if agreed.resources_list_changed:
        yield Change("resources")
    for uri in agreed.resource_subscriptions or ():
        yield Change("resource", uri)


def _both(wanted: SubscriptionFilter, said: SubscriptionFilter) -> SubscriptionFilter:
    """What both filters have."""
    uris = set(said.resource_subscriptions or ())
    return SubscriptionFilter(
        (wanted.tools_list_changed and said.tools_list_changed) or None,
        (wanted.prompts_list_changed and said.prompts_list_changed) or None,
        (wanted.resources_list_changed and said.resources_list_changed) or None,
        [uri for uri in wanted.resource_subscriptions or () if uri in uris] or None,
    )


def _exceeds(said: SubscriptionFilter, agreed: SubscriptionFilter) -> bool:
    return (
        bool(said.tools_list_changed and not agreed.tools_list_changed)
        or bool(said.prompts_list_changed and not agreed.prompts_list_changed)
        or bool(said.resources_list_changed and not agreed.resources_list_changed)
        or not {*(said.resource_subscriptions or ())} <= {*(agreed.resource_subscriptions or ())}
    )
