"""What every wire has in common for those who test it: sites, peers, requests.

A :class:`Site` is a server that listens on one kind of wire, and can be observed from outside.
A :class:`Peer` is a client of it that is made of raw means: it knows JSON-RPC and its wire, and
nothing of our client library. A :class:`Handle` is one request of a peer. How wires differ is data
of the site. The drivers are in ``channel_wires`` and ``http_wires``.

Whatever a peer hears is held against the official schema, as in ``checked``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import trio
from tests.peers.observed_server import Observed, Sight
from tests.peers.raw import call, request, same_id, text_of

from trio_mcp import Limits

__all__ = ["Handle", "InProcess", "Message", "Peer", "Site", "key_of", "serving"]

Message = dict[str, Any]

PATIENCE = 10.0
"""Seconds that anything may take which has to come."""

AUTO = object()
"""An id that nobody else has."""


def key_of(value: Any) -> tuple[type, Any]:
    """An id or a token, to compare by type and value."""
    return type(value), value


class Handle:
    """One request as its sender sees it.

    ``after`` has whatever was said about it after its answer or its cancellation: there must be
    nothing, but for the one ``farewell`` of a channel to a subscription that the server has ended.
    ``served`` is whether the server is to make an exchange of it, and so a record. On HTTP
    ``status`` is that of its response, and ``over`` is set when that has ended.
    """

    def __init__(self, peer: Peer, message: Message, *, served: bool) -> None:
        self.peer = peer
        self.message = message
        self.served = served
        self.notifications: list[Message] = []
        self.after: list[Any] = []
        self.cancelled = False
        self.farewell: Message | None = None
        self.over = trio.Event()
        self.status: int | None = None
        self._answer: Message | None = None
        self._heard = trio.Condition()

    @property
    def id(self) -> Any:
        return self.message.get("id")

    @property
    def token(self) -> Any:
        """Of its progress, ``None`` for none."""
        return self.message.get("params", {}).get("_meta", {}).get("progressToken")

    @property
    def answered(self) -> bool:
        return self._answer is not None

    async def hear(self, message: Any) -> None:
        """The driver: something was said about this request."""
        if self._is_farewell(message):
            self.farewell = message
        elif self.cancelled or self.answered:
            self.after.append(message)
        elif "method" in message:
            self.notifications.append(message)
        else:
            self._answer = message
        async with self._heard:
            self._heard.notify_all()

    def _is_farewell(self, message: Any) -> bool:
        said = isinstance(message, dict) and message.get("method") == "notifications/cancelled"
        return said and self.answered and not self.cancelled and self.farewell is None

    async def answer(self, timeout: float = PATIENCE) -> Message:
        """Wait for the answer. Raises ``trio.TooSlowError``."""
        with trio.fail_after(timeout):
            async with self._heard:
                while self._answer is None:
                    await self._heard.wait()
        return self._answer

    async def error(self) -> Message:
        """Wait for the answer, which has to be an error."""
        answer = await self.answer()
        assert "error" in answer, answer
        error: Message = answer["error"]
        return error

    async def notified(self, count: int = 1, timeout: float = PATIENCE) -> list[Message]:
        """Wait until so many notifications have come."""
        with trio.fail_after(timeout):
            async with self._heard:
                while len(self.notifications) < count:
                    await self._heard.wait()
        return self.notifications

    async def cancel(self) -> None:
        """Cancel it by the wire's own means; before or after its answer."""
        await self.peer.cancel(self)
        self.cancelled = True


class Peer(ABC):
    """A client. Its methods are for one task at a time."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.handles: list[Handle] = []

    async def start(
        self, method: str, params: Message | None = None, *, request_id: Any = AUTO
    ) -> Handle:
        """Send a valid request."""
        return await self.send(request(self._id(request_id), method, params))

    async def call(
        self, tool: str, /, *, request_id: Any = AUTO, token: Any = None, **arguments: Any
    ) -> Handle:
        """Send a ``tools/call``; with ``token`` it asks for progress."""
        return await self.send(call(self._id(request_id), tool, token=token, **arguments))

    async def ask(self, tool: str, /, **arguments: Any) -> Message:
        """Call a tool and wait for the answer."""
        return await (await self.call(tool, **arguments)).answer()

    async def probe(self) -> None:
        """It is served; what was said before the answer has been heard."""
        assert text_of(await self.ask("echo", text="probe")) == "probe"

    def _id(self, request_id: Any) -> Any:
        return self.site.next_id() if request_id is AUTO else request_id

    async def send(self, message: Message, *, served: bool = True) -> Handle:
        """Send a request as it is."""
        handle = Handle(self, message, served=served)
        self.handles.append(handle)
        await self._send(handle)
        return handle

    @abstractmethod
    async def _send(self, handle: Handle) -> None: ...

    @abstractmethod
    async def notify(self, message: Message) -> None:
        """Send a notification; wherever they are acknowledged, wait for that."""

    @abstractmethod
    async def cancel(self, handle: Handle) -> None: ...

    @abstractmethod
    async def disconnect(self) -> None:
        """Be gone, without a word."""

    @abstractmethod
    async def aclose(self) -> None:
        """Leave politely, having heard the server out. After a ``disconnect`` nothing is left."""


class Site(ABC):
    """A server on one kind of wire."""

    name: ClassVar[str]
    cancel_source: ClassVar[str] = "NOTIFICATION"
    """The cause of what :meth:`Handle.cancel` cancels."""
    ids_collide: ClassVar[bool] = True
    """Whether two requests of one peer with the same id are one too many."""
    many_peers: ClassVar[bool] = True
    oversize_ends: ClassVar[bool] = False
    """Whether a message that is too long ends the connection instead of being answered."""

    def __init__(self, nursery: trio.Nursery, limits: dict[str, Any]) -> None:
        self.nursery = nursery
        self.limits = limits
        self.peers: list[Peer] = []
        self.ended = trio.Event()
        self._ids = 0

    def next_id(self) -> int:
        self._ids += 1
        return 1000 + self._ids

    async def connect(self) -> Peer:
        peer = await self._connect()
        self.peers.append(peer)
        return peer

    async def until(self, condition: Callable[[Sight], object]) -> Sight:
        """Look until something has come true."""
        sight = None
        with trio.move_on_after(PATIENCE):
            while True:
                sight = await self.look()
                if condition(sight):
                    return sight
                await trio.sleep(0.002)
        raise AssertionError(f"not in {PATIENCE} s: {sight}")

    async def begun(self, *labels: str) -> None:
        """Wait until the handlers with these labels have begun."""
        await self.until(lambda sight: set(labels) <= set(sight.begun))

    async def record_of(self, handle: Handle) -> dict[str, Any]:
        """What the journal says about a request, which has ended or is about to."""

        def own(sight: Sight) -> list[dict[str, Any]]:
            return [r for r in sight.records if same_id(r["id"], handle.id)]

        (record,) = own(await self.until(own))
        return record

    @abstractmethod
    async def begin(self) -> None:
        """Listen."""

    @abstractmethod
    async def _connect(self) -> Peer: ...

    @abstractmethod
    async def look(self) -> Sight: ...

    @abstractmethod
    async def open_gate(self) -> None:
        """Let all handlers go that wait at the gate."""

    @abstractmethod
    async def shut_down(self) -> None:
        """Ask for a drain, and return while it goes on; ``ended`` is set at its end."""

    @abstractmethod
    async def end(self) -> None:
        """Shut down, and look for what is left."""


@asynccontextmanager
async def serving(kind: type[Site], **limits: Any) -> AsyncGenerator[Site, None]:
    """A server on a wire. In the end each request must have one record, and nothing may be left."""
    async with trio.open_nursery() as nursery:
        site = kind(nursery, limits)
        await site.begin()
        yield site
        await site.open_gate()
        for peer in site.peers:
            with trio.fail_after(PATIENCE):
                await peer.aclose()
        handles = [handle for peer in site.peers for handle in peer.handles]
        served = [handle for handle in handles if handle.served]
        sight = await site.until(lambda sight: _is_idle(sight, len(served)))
        _check_journal(sight, served)
        assert [handle.after for handle in handles if handle.after] == []
        await site.end()
        nursery.cancel_scope.cancel("the test is over")


def _is_idle(sight: Sight, served: int) -> bool:
    busy = sight.exchanges or sight.inflight or sight.live or sight.stragglers or sight.listeners
    return not busy and len(sight.records) >= served


def _check_journal(sight: Sight, served: list[Handle]) -> None:
    assert Counter(key_of(record["id"]) for record in sight.records) == Counter(
        key_of(handle.id) for handle in served
    )
    for record in sight.records:
        assert record["state"] in ("COMPLETED", "FAILED", "CANCELLED")
        assert (record["state"] == "CANCELLED") == (record["source"] is not None)


class InProcess(Site):
    """A server in this process."""

    def __init__(self, nursery: trio.Nursery, limits: dict[str, Any]) -> None:
        super().__init__(nursery, limits)
        self.observed = Observed(Limits(**limits))
        self.server = self.observed.server
        self.port = 0
        self.scope = trio.CancelScope()

    async def begin(self) -> None:
        self.port = await self.nursery.start(self._run)

    async def _run(self, task_status: trio.TaskStatus[int]) -> None:
        with self.scope:
            await self._serve(task_status)
        self.ended.set()

    @abstractmethod
    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        """Listen, tell the port, serve until cancelled."""

    async def look(self) -> Sight:
        return self.observed.look()

    async def open_gate(self) -> None:
        self.observed.open_gate()

    async def shut_down(self) -> None:
        self.scope.cancel("shut down")

    async def end(self) -> None:
        await self.shut_down()
        with trio.fail_after(PATIENCE):
            await self.ended.wait()
        assert list(self.server.scopes().walk())[1:] == []
        assert self.server._core.inflight == 0
