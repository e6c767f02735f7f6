"""What tests ask of a server and of what it has said: records, scopes, messages about a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio
from tests.peers.raw import RawPeer, call, same_id, text_of

from trio_mcp import Record, Scope, ScopeKind, Server

__all__ = ["about", "answers", "exchanges", "live", "offloaded", "record_of", "until_live"]


def record_of(server: Server, request_id: Any) -> Record:
    """What the journal says about the one request of this id."""
    (record,) = [r for r in server.journal if same_id(r.request_id, request_id)]
    return record


def exchanges(server: Server) -> list[Scope]:
    """The requests in flight."""
    return [scope for scope in server.scopes().walk() if scope.kind is ScopeKind.EXCHANGE]


def offloaded(server: Server) -> list[Scope]:
    """The work that left the event loop, abandoned threads included."""
    return [scope for scope in server.scopes().walk() if scope.kind is ScopeKind.OFFLOAD]


def about(messages: Sequence[dict[str, Any]], request_id: Any) -> list[dict[str, Any]]:
    """The messages that speak about a request: its answer, its progress, its cancellation."""

    def names(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        keys = ("id", "requestId", "progressToken")
        own = any(key in value and same_id(value[key], request_id) for key in keys)
        return own or any(names(value.get(part)) for part in ("params", "_meta", "error", "data"))

    return [message for message in messages if names(message)]


async def answers(peer: RawPeer, *request_ids: Any, timeout: float = 5) -> list[dict[str, Any]]:
    """The answers to some requests, in the order of the ids, in whatever order they come.

    Raises ``trio.TooSlowError`` if the last one has not come in time.
    """
    found: dict[tuple[type, Any], dict[str, Any]] = {}
    wanted = {(type(request_id), request_id) for request_id in request_ids}
    with trio.fail_after(timeout):
        while wanted - found.keys():
            message = await peer.receive(timeout)
            if "method" not in message and "id" in message:
                found[type(message["id"]), message["id"]] = message
    return [found[type(request_id), request_id] for request_id in request_ids]


async def live(peer: RawPeer) -> int:
    """How many live handlers a launched fixture server has, once it had time to stop some."""
    for _ in range(5):
        await peer.probe(timeout=10)
    await peer.send(call("stats", "stats"))
    return int(text_of(await peer.answer("stats", timeout=10)))


async def until_live(peer: RawPeer, count: int, timeout: float = 10) -> None:
    """Ask a launched fixture server until it has so many live handlers."""
    with trio.fail_after(timeout):
        while await live(peer) != count:  # noqa: ASYNC110 - nothing else tells of it
            await trio.sleep(0.005)
