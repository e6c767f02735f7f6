"""The endpoint at work: what its requests have in common, whatever carries their bytes."""

from __future__ import annotations

import math
from typing import Final, Protocol

import attrs
import trio

from ...runtime.dispatch import Connection, Dispatcher
from ...runtime.exchange import Peer
from ...runtime.jsonrpc import Request
from ...runtime.principal import Principal
from .authentication import Authentication
from .endpoint import HEALTH, Endpoint, answer_error, health
from .heads import KnownHeads
from .message import Answer, RequestHead

__all__ = ["HttpService", "Served"]

KNOWN_HEADS: Final = 256


class Served(Connection, Protocol):
    """A connection of a carrier, or one request where a carrier shows no connections."""

    def drain(self) -> None:
        """Finish what is being served, begin nothing more."""

    def shut_down(self) -> None:
        """The drain limit has passed: cancel what is still being served."""


class HttpService:
    """One endpoint of one server. A :class:`...runtime.draining.Serving`."""

    def __init__(
        self, core: Dispatcher, endpoint: Endpoint, authentication: Authentication | None
    ) -> None:
        self.core = core
        self.endpoint = endpoint
        self.authentication = authentication
        self._heads = KnownHeads(KNOWN_HEADS)
        self._served: set[Served] = set()
        self._emptied = trio.Event()
        self.reset()

    def reset(self) -> None:
        """It is served anew."""
        self._draining = False
        self._deadline = math.inf
        self._grace = trio.CancelScope()

    @property
    def draining(self) -> bool:
        """Whether nothing more is begun."""
        return self._draining or self.core.draining.begun

    # Requests -------------------------------------------------------------------------------------

    def check_head(self, head: RequestHead) -> Answer | None:
        """The answer to a request that needs no body; ``None`` for the others."""
        if head.path == HEALTH and head.method in ("GET", "HEAD"):
            answer: Answer | None = health(draining=self.draining)
        else:
            answer = self.endpoint.check_head(head, self.core.limits)
        if answer is not None and head.method == "HEAD":
            return attrs.evolve(answer, bare=True)
        return answer

    def known_heads(self) -> KnownHeads:
        """For the requests of one connection. What proves who asks stays with that connection."""
        return self._heads if self.authentication is None else KnownHeads(1)

    def read(
        self, head: RequestHead, body: bytes | bytearray, peer: Peer, principal: Principal | None
    ) -> Request | Answer:
        """The request in a body, admitted; or the answer to what is none, or not now."""
        core = self.core
        request = self.endpoint.read(head, body, core.limits, core.methods, core.mirrored)
        if isinstance(request, Answer):
            return request
        refusal = core.shutting_down() if self.draining else core.admit(peer, principal)
        if refusal is None:
            return request
        refusal.request_id = request.id
        return answer_error(refusal)

    # Who is being served --------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._served)

    def enter(self, served: Served) -> None:
        self._served.add(served)
        self.core.connections.add(served)

    def leave(self, served: Served) -> None:
        self._served.discard(served)
        self.core.connections.discard(served)
        if not self._served:
            self._emptied.set()
            self.core.draining.note_change()

    def drain(self, deadline: float) -> None:
        """Begin nothing more: new requests are answered 503. What is being served has until
        ``deadline``; may be called again, to bring that forward. Never waits."""
        begins = not self._draining
        self._draining = True
        self._grace.deadline = self._deadline = min(self._deadline, deadline)
        over = self._deadline <= trio.current_time()
        for served in list(self._served):
            if begins:
                served.drain()
            if over:
                served.shut_down()

    async def drained(self) -> None:
        """After :meth:`drain`: wait until nothing is being served any more, or for its deadline."""
        with trio.CancelScope(deadline=self._deadline) as self._grace:
            await self._until_empty()

    async def shut_down(self) -> None:
        """Cancel what is still being served, with cause SHUTDOWN, and see it end, in bounds."""
        limits, draining = self.core.limits, self.core.draining
        for served in list(self._served):
            served.shut_down()
        with trio.move_on_after(limits.drain + limits.longest_cleanup):
            await self._until_empty()
        for served in list(self._served):
            draining.tell_abandoned(served.scope().children)

    async def _until_empty(self) -> None:
        while self._served:
            self._emptied = trio.Event()
            await self._emptied.wait()
