"""Revisions 2024-11-05 to 2025-11-25: one session, begun with ``initialize``.

Specification 2025-11-25: *Lifecycle*; *Resources*, "Subscriptions"; *Logging*.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from ...runtime.call import Call
from ...runtime.eras.earlier import LATEST, agreed_version, discovered_from, initialize_params
from ...runtime.errors import ConnectionLost, ServerError, TrioMcpError
from ...runtime.jsonrpc import Request, encode_notification
from ...runtime.lifecycle import State
from ...runtime.limits import Limits
from ...runtime.models.base import Implementation, LoggingLevel
from ...runtime.models.converter import unstructure
from ...runtime.models.discovery import DiscoverResult
from ...runtime.models.initialization import InitializeResult
from ...runtime.models.subscriptions import SubscriptionFilter
from ...transports.calling import CallConnection, OnLog, SessionConnection, encode_call
from ..answers import Answers
from ..calls import PendingCall, Timeouts, read_result
from ..subscriptions import is_too_long
from .base import Open
from .questions import Questions

__all__ = ["Earlier"]

logger = logging.getLogger("trio_mcp.client")

_LONGEST_ID: Final = 10**18
"""Longer, in digits, than the id of any request."""
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"
_LISTS: Final = (
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
)


class Earlier:
    """Client side of these revisions: a :class:`~.base.ClientEra`, and the
    :class:`~...transports.sessions.Session` of its connection.

    ``nursery`` is where callbacks run, and what waits for the server on behalf of nobody.
    """

    answers = None

    def __init__(
        self,
        info: Implementation,
        answers: Answers,
        level: LoggingLevel | None,
        on_log: OnLog | None,
        limits: Limits,
        nursery: trio.Nursery,
    ) -> None:
        self.meta: Mapping[str, Any] = {}
        self.discovered: DiscoverResult
        self.connection: SessionConnection
        self._questions: Questions
        self._info = info
        self._asked_for = answers
        self._level = level
        self._on_log = on_log
        self._limits = limits
        self._nursery = nursery
        self.agreed: str | None = None
        self._listening: dict[Call, _Listener] = {}
        self._subscribed: dict[str, int] = {}
        self._turn = trio.Lock()

    @property
    def version(self) -> str:
        return self.agreed or LATEST

    # The beginning --------------------------------------------------------------------------------

    def begin(self, connection: CallConnection) -> Call:
        """Ask for a session with the server of this connection. Never waits.

        The call must not be cancelled (specification: *Cancellation*): close the connection.
        """
        self.connection = connection.in_session(self)
        self._questions = Questions(
            self.connection, self._asked_for, self._limits, self._nursery, lambda: self.version
        )
        if self.connection is not connection:
            self._nursery.start_soon(self.connection.run)
        params = initialize_params(self._info, self._asked_for.capabilities)
        return self.connection.open("initialize", params)

    async def go_on(self, initialized: Call, timeouts: Timeouts) -> None:
        """The server has answered: the session begins. Raises :class:`IncompatibleServer` if it
        wants to speak a revision that we do not, and what its answer was if it is none."""
        result = read_result(InitializeResult, initialized.result(), "initialize")
        self.agreed = agreed_version(result)
        self.discovered = discovered_from(result)
        await self.connection.begin(encode_notification("notifications/initialized", {}))
        if self._level is not None and result.capabilities.logging is not None:
            await self._set_level(self._level, timeouts)

    async def _set_level(self, level: LoggingLevel, timeouts: Timeouts) -> None:
        try:
            await self._ask("logging/setLevel", {"level": level}, timeouts)
        except ServerError as error:
            logger.warning("the server does not set its log level: %s", error)

    async def _ask(self, method: str, params: Mapping[str, Any], timeouts: Timeouts) -> None:
        call = self.connection.open(method, params)
        await PendingCall(self.connection, call, timeouts, self._limits).finish()

    async def discover(self, ask: Callable[[], Awaitable[DiscoverResult]]) -> DiscoverResult:
        """What the server said in the beginning: it says it once."""
        await trio.lowlevel.checkpoint()
        return self.discovered

    # Changes --------------------------------------------------------------------------------------

    def listen(self, open_call: Open, wanted: SubscriptionFilter) -> Call:
        """A call that is never sent: it stands for what the session tells, and ends with it."""
        for uri in wanted.resource_subscriptions or ():  # what cannot be sent is told at once
            encode_call(_LONGEST_ID, "resources/subscribe", {"uri": uri}, self._limits)
        call = self.connection.reserve("subscriptions/listen")
        self._nursery.start_soon(self._subscription, call, wanted)
        return call

    async def _subscription(self, call: Call, wanted: SubscriptionFilter) -> None:
        uris: list[str] = []
        try:
            await self.connection.hears_changes()
            if call.state is State.RUNNING:
                declared = self._declared(wanted)
                # Before the first answer: an update may come right after it.
                wanted_uris = declared.resource_subscriptions or []
                listener = self._listening[call] = _Listener(call, wanted_uris, self._limits)
                await self._subscribe(wanted_uris, uris, call)
                declared.resource_subscriptions = [*uris] or None
                if call.state is State.RUNNING:
                    listener.acknowledge(declared)
            await call.left_running()
        except TrioMcpError as error:
            why = f"the subscription failed: {error}"
            call.lost(error if isinstance(error, ConnectionLost) else ConnectionLost(why))
        finally:
            self._listening.pop(call, None)
        await self._unsubscribe(uris)

    def _declared(self, wanted: SubscriptionFilter) -> SubscriptionFilter:
        """What the server says that it tells of, of what is wanted."""
        offers = self.discovered.capabilities
        tools, prompts, resources = offers.tools, offers.prompts, offers.resources
        return SubscriptionFilter(
            (wanted.tools_list_changed and tools and tools.list_changed) or None,
            (wanted.prompts_list_changed and prompts and prompts.list_changed) or None,
            (wanted.resources_list_changed and resources and resources.list_changed) or None,
            wanted.resource_subscriptions if resources and resources.subscribe else None,
        )

    async def _subscribe(self, uris: list[str], done: list[str], call: Call) -> None:
        """Subscribe to what nobody has subscribed to yet; ``done`` is what the server agrees to."""
        for uri in uris:
            if call.state is not State.RUNNING:
                return
            async with self._turn:
                if not self._subscribed.get(uri):
                    try:
                        await self._ask("resources/subscribe", {"uri": uri}, self._bounded())
                    except ServerError as error:
                        logger.info("the server refuses a subscription: %s", error)
                        continue
                self._subscribed[uri] = self._subscribed.get(uri, 0) + 1
                done.append(uri)

    async def _unsubscribe(self, uris: list[str]) -> None:
        """Nobody waits for it: what fails is the server's."""
        answers = True
        for uri in uris:
            async with self._turn:
                self._subscribed[uri] -= 1
                if self._subscribed[uri]:
                    continue
                del self._subscribed[uri]
                if answers:
                    answers = await self._unsubscribe_from(uri)

    async def _unsubscribe_from(self, uri: str) -> bool:
        """Whether the server answers."""
        try:
            await self._ask("resources/unsubscribe", {"uri": uri}, self._bounded())
        except ServerError as error:
            logger.info("a subscription was not ended in order: %s", error)
        except TrioMcpError as error:
            logger.debug("the end of a subscription was not answered: %s", error)
            return False
        return True

    def _bounded(self) -> Timeouts:
        return Timeouts(self._limits.connect, self._limits.connect)

    # What the server says -------------------------------------------------------------------------

    def on_request(self, request: Request, call: Call | None) -> str | None:
        return self._questions.asked(request, call)

    def on_malformed(self, refusal: bytes) -> None:
        self.connection.say(refusal)

    def on_notification(self, method: str, params: dict[str, Any]) -> str | None:
        if method == "notifications/message":
            return self._on_log(params) if self._on_log is not None else None
        if method == "notifications/cancelled":
            self._questions.withdrawn(params.get("requestId"))
        elif method in _LISTS or method == _UPDATED:
            return self._changed(method, params)
        return None  # others are for those who know of them

    def _changed(self, method: str, params: dict[str, Any]) -> str | None:
        """A change, for those who agreed on it. Nobody may be interested: a server that declares
        its changes tells of them unasked."""
        uri = params.get("uri")
        if type(uri) is not str or uri not in self._subscribed:
            uri = None  # a part of one that somebody has subscribed to, and nobody knows which
        wrong: str | None = None
        for listener in [*self._listening.values()]:
            if listener.wants(method, uri):
                wrong = listener.tell(method, params) or wrong
        return wrong

    def call_ended(self, call: Call) -> None:
        if call.state is State.CANCELLED:
            self._questions.call_cancelled(call)

    def lost(self) -> None:
        self._questions.drop()

    def deaf(self, why: str) -> None:
        for call in [*self._listening]:
            call.lost(ConnectionLost(why, sent=True))


class _Listener:
    """Who hears of changes. What comes before the listening is agreed on waits for that."""

    def __init__(self, call: Call, wanted: list[str], limits: Limits) -> None:
        self._call = call
        self._wanted = wanted
        self._limits = limits
        self._agreed: SubscriptionFilter | None = None
        self._early: dict[tuple[str, str], dict[str, Any]] = {}

    def acknowledge(self, agreed: SubscriptionFilter) -> None:
        self._agreed = agreed
        self.tell(_ACKNOWLEDGED, {"notifications": unstructure(agreed)})
        early, self._early = self._early, {}
        for (method, _), params in early.items():
            uri = params.get("uri")
            if self.wants(method, uri if type(uri) is str else None):
                self.tell(method, params)

    def wants(self, method: str, uri: str | None) -> bool:
        """``uri``: of the resource that was subscribed to, if that is known."""
        agreed = self._agreed
        if agreed is None:
            return True
        if method == _UPDATED:
            subscribed = agreed.resource_subscriptions
            return subscribed is not None and (uri is None or uri in subscribed)
        tools, prompts, _ = _LISTS
        if method == tools:
            return bool(agreed.tools_list_changed)
        if method == prompts:
            return bool(agreed.prompts_list_changed)
        return bool(agreed.resources_list_changed)

    def tell(self, method: str, params: dict[str, Any]) -> str | None:
        """What is wrong with it, if anything is."""
        if self._agreed is None:
            uri = str(params.get("uri"))
            if is_too_long(uri, self._wanted, self._limits):
                return f"{method} of a URI longer than uri_length={self._limits.uri_length}"
            if len(self._early) < self._limits.changes_backlog:
                self._early[method, uri] = {"uri": params["uri"]} if "uri" in params else {}
            return None
        listener = self._call.listener
        return None if listener is None else listener(method, params)
