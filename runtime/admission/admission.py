"""Which requests may run their handlers now, which wait, and which are refused.

A request that runs a function of the application, of a tool, a resource, a prompt or a completer,
needs a slot: one of the function's own, if that has a limit, and then one of the server's. It holds
them until all that it started has ended, threads that were abandoned included. While it waits it is
a request like any other, in its own nursery: whatever cancels it ends the wait, and its handler
never runs. Who waits has nothing of the server's, at most a slot of its function.

Who comes next, and who gives way, is :mod:`.fair_queue`'s business.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeAlias

import attrs
import trio

from ..errors import ErrorCode, ProtocolError
from ..limits import Limits
from .fair_queue import FairQueue, Gate

if TYPE_CHECKING:
    from ..exchange import Exchange, Peer
    from ..principal import Principal

__all__ = ["Admission", "FunctionLimit", "Slots", "client_of", "overloaded", "retry_later"]


def client_of(peer: Peer, principal: Principal | None) -> Hashable:
    """Who a request counts for, where clients are to have equal chances: who it has proved to be,
    whatever it came over; else whom its connection takes it for."""
    return peer.client if principal is None else ("principal", principal.name)


def overloaded(why: str, limits: Limits) -> ProtocolError:
    """The error for a request that is refused, and has not run."""
    return ProtocolError(
        ErrorCode.OVERLOADED, f"Overloaded: {why}; try again later", retry_later(limits)
    )


def retry_later(limits: Limits) -> dict[str, int]:
    """Goes with every refusal, and with no other error: the request has not run."""
    return {"retryAfterMs": int(limits.retry_after * 1000)}


@attrs.define(eq=False)
class Waiter:
    """A request in the queue of a gate, and its task."""

    exchange: Exchange
    client: Hashable
    gate: Slots
    task: trio.lowlevel.Task
    refusal: ProtocolError | None = None


Slots: TypeAlias = Gate[Waiter]


class FunctionLimit:
    """How many requests may run one function at once, and how many may wait for that."""

    def __init__(self, limit: int, queue: int) -> None:
        self.limit = limit
        self.queue = queue
        self._owner: Admission | None = None
        self._gate: Slots

    def gate(self, admission: Admission) -> Slots:
        """Its gate, a new one in each Trio run."""
        if self._owner is not admission:
            self._owner = admission
            self._gate = Gate(self.limit, self.queue)
        return self._gate


class Admission:
    """The gates of one server, in one Trio run."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._handlers: Slots = Gate(limits.handlers, limits.exchanges, limits.handlers_per_client)
        self._waiting: FairQueue[Waiter] = FairQueue()  # for whichever gate

    def make_way(self, client: Hashable) -> bool:
        """The server has as many requests as it takes: refuse one that waits, if there is one whose
        client has more of them than this one."""
        waiter = self._waiting.who_gives_way(client)
        if waiter is None:
            return False
        self._refuse(waiter, "the server has reached its limit of requests")
        return True

    async def enter(self, exchange: Exchange, limit: FunctionLimit | None) -> None:
        """Take the slots that a request needs; wait for them, if need be. They are its own until
        :meth:`leave`. No checkpoint unless it has to wait.

        Raises ``ProtocolError`` OVERLOADED if there is no room to wait, or none any more. If
        cancelled, it waits no more; what it has got is still to be given back.
        """
        client = client_of(exchange.peer, exchange.principal)
        if limit is not None:
            gate = limit.gate(self)
            if gate.enter(client):
                exchange.gates = (gate,)
            else:
                await self._wait(gate, exchange, client)
        gate = self._handlers
        if gate.enter(client):
            exchange.gates += (gate,)
        else:
            await self._wait(gate, exchange, client)

    def leave(self, exchange: Exchange) -> None:
        """All that the request started has ended: give its slots to who waits for them."""
        client = client_of(exchange.peer, exchange.principal)
        for gate in exchange.gates:
            waiter = gate.leave(client)
            if waiter is not None:
                self._waiting.remove(waiter.client, waiter)
                waiter.exchange.gates += (gate,)
                trio.lowlevel.reschedule(waiter.task)
        exchange.gates = ()

    async def _wait(self, gate: Slots, exchange: Exchange, client: Hashable) -> None:
        """Until the request has a slot of this gate."""
        exchange.started_at = None  # its handler has not begun
        if gate.full:
            self._make_room(gate, client)
        waiter = Waiter(exchange, client, gate, trio.lowlevel.current_task())
        gate.queue.push(client, waiter)
        self._waiting.push(client, waiter)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._remove(waiter)
            return trio.lowlevel.Abort.SUCCEEDED

        exchange.begin_to_wait()
        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            exchange.end_to_wait()
        await trio.lowlevel.checkpoint_if_cancelled()  # it may have been too late to be felt
        if waiter.refusal is not None:
            raise waiter.refusal
        exchange.started_at = trio.current_time()

    def _make_room(self, gate: Slots, client: Hashable) -> None:
        why = f"{gate.limit} like it are running and {len(gate.queue)} waiting"
        waiter = gate.queue.who_gives_way(client)
        if waiter is None:
            raise overloaded(why, self._limits)
        self._refuse(waiter, why)

    def _refuse(self, waiter: Waiter, why: str) -> None:
        """It has waited, and is not to have its turn."""
        self._remove(waiter)
        waiter.refusal = overloaded(f"{why}, and other clients have fewer", self._limits)
        waiter.exchange.refuse()
        trio.lowlevel.reschedule(waiter.task)

    def _remove(self, waiter: Waiter) -> None:
        waiter.gate.queue.remove(waiter.client, waiter)
        self._waiting.remove(waiter.client, waiter)
