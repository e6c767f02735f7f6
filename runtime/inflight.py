"""The requests in flight, for an operator: plain, immutable data, made when somebody asks."""

from __future__ import annotations

from typing import Literal

import attrs
import trio

from .exchange import Exchange
from .jsonrpc import RequestId
from .lifecycle import CancelCause, State
from .scopes import Scope

__all__ = ["InFlight", "in_flight"]


@attrs.frozen(eq=False, kw_only=True)
class InFlight:
    """One request, as it was at one moment. Times are seconds; ``deadline`` is on Trio's clock,
    ``inf`` for none.

    ``key`` is the exchange's: ``server.cancel(key)``, the journal and the log know it. ``target``
    is the tool's name, the URI or the like, where there is one. ``client`` is what the client calls
    itself, ``principal`` the name of who it has proved to be. ``phase`` is ``"queued"``, its
    handler has not begun; ``"working"``, the handler, its children or its clean-up run;
    ``"answering"``, all of them have ended and the answer waits to be written. ``work`` is what it
    has left the event loop with: threads, for one. A peer's texts are clipped to
    ``Limits.text_length``.
    """

    key: int
    request_id: RequestId
    method: str
    target: str | None
    connection: str
    client: str | None
    principal: str | None
    age: float
    state: State
    phase: Literal["queued", "working", "answering"]
    cause: CancelCause | None
    deadline: float
    work: tuple[Scope, ...]


def in_flight(exchange: Exchange) -> InFlight:
    """A request as it is now."""
    clip = exchange.core.limits.text_length
    metadata, principal, target = exchange.metadata, exchange.principal, exchange.target
    scope = exchange.scope()  # which finds out about deadlines that have passed
    return InFlight(
        key=exchange.key,
        request_id=exchange.request.id,
        method=exchange.request.method[:clip],
        target=target[:clip] if target is not None else None,
        connection=exchange.peer.label,
        client=metadata.client_name(clip) if metadata is not None else None,
        principal=principal.name[:clip] if principal is not None else None,
        age=trio.current_time() - exchange.received_at,
        state=exchange.state,
        phase=_phase_of(exchange),
        cause=exchange.cause,
        deadline=scope.deadline,
        work=scope.children,
    )


def _phase_of(exchange: Exchange) -> Literal["queued", "working", "answering"]:
    if exchange.started_at is None:
        return "queued"
    return "working" if exchange.running else "answering"
