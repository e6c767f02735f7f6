"""The fixture server, observed from outside of its wire: its handlers, its journal, its scopes.

Run as ``python -m tests.peers.observed_server FD '{"drain": 0.2}'`` it serves stdio; ``FD`` is a
connected socket on which it is observed, also after standard input has ended: one line in
(``look``, ``open_gate``), one line of JSON out. It exits when that socket is closed.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import Any, TypedDict

import attrs
import msgspec
import trio

from trio_mcp import Context, Limits, Record, ScopeKind, Server
from trio_mcp.handlers.changes import ListKind
from trio_mcp.runtime.models.base import (
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)

from .fixture_server import Fixtures

__all__ = ["GATE_TIME", "Observed", "Offering", "Sight"]

GATE_TIME = 20.0
"""Seconds after which a thread goes through a closed gate, so that a failing test can end."""


class Place(TypedDict):
    """Where a book stands."""

    shelf: str
    row: int


@attrs.frozen
class Sight:
    """A server at one moment. ``begun`` and ``released``: labels of handlers, in order."""

    live: int
    begun: list[str]
    released: list[str]
    records: list[dict[str, Any]]
    inflight: int
    exchanges: list[str]
    connections: list[str]
    stragglers: int
    listeners: int


class Offering(Server):
    """A server that says that it has everything of which changes can be told."""

    def capabilities(self) -> ServerCapabilities:
        return ServerCapabilities(
            tools=ToolsCapability(list_changed=True),
            prompts=PromptsCapability(list_changed=True),
            resources=ResourcesCapability(list_changed=True, subscribe=True),
        )


class Observed(Fixtures):
    """The fixture tools, and some that wait until they are let go, or change something."""

    make_server = Offering

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self._gate = trio.Event()
        self._thread_gate = threading.Event()
        for tool in (self.speak, self.gated, self.deaf, self.place, self.touch):
            self.server.tool(tool)
        self.server.tool(timeout=0.05)(self.hurried)
        self.server.tool(self.restock)

    async def speak(self, label: str, ctx: Context) -> str:
        """Report once, then stay; on the way out, a clean-up that awaits."""
        ctx.progress(1, 2, "spoken")
        return await self.sleep(3600, ctx, label)

    async def gated(self, label: str, ctx: Context) -> str:
        """Stay until the gate is open; on the way out, a clean-up that awaits."""
        self.live += 1
        self.begun.append(label)
        try:
            await self._gate.wait()
            return label
        finally:
            with ctx.cleanup(5):
                await trio.lowlevel.checkpoint()
                self.released.append(label)
            self.live -= 1

    def deaf(self, label: str, ctx: Context) -> str:
        """A thread that stays until the gate is open, and never asks; then it has much to say."""
        self.begun.append(label)
        self._thread_gate.wait(GATE_TIME)
        ctx.progress(1)
        return label

    async def hurried(self, ctx: Context) -> str:
        """More to do than there is time for."""
        return await self.sleep(3600, ctx, "hurried")

    async def place(self, shelf: str, row: int) -> Place:
        """Structured content of more than one part."""
        return {"shelf": shelf, "row": row}

    async def touch(self, uris: list[str]) -> None:
        """These resources have been updated, one after the other."""
        for uri in uris:
            self.server.notify_resource_updated(uri)

    async def restock(self, kind: ListKind) -> None:
        """A list has changed."""
        self.server._changed(kind)

    def open_gate(self) -> None:
        """Let go all that wait."""
        self._gate.set()
        self._thread_gate.set()

    def look(self) -> Sight:
        """The server as it is now."""
        server = self.server
        scopes = list(server.scopes().walk())
        return Sight(
            live=self.live,
            begun=list(self.begun),
            released=list(self.released),
            records=[_told(record) for record in server.journal],
            inflight=server._core.inflight,
            exchanges=[s.label for s in scopes if s.kind is ScopeKind.EXCHANGE],
            connections=[s.state for s in scopes if s.kind is ScopeKind.CONNECTION],
            stragglers=len(list(server._core.pools.stragglers)),
            listeners=len(server._subscriptions) + len(server._subscriptions._watching),
        )


def _told(record: Record) -> dict[str, Any]:
    cause = record.cause
    return {
        "id": record.request_id,
        "method": record.method,
        "target": record.target,
        "state": record.state.name,
        "source": None if cause is None else cause.source.name,
        "reason": None if cause is None else cause.reason,
        "cleanup": record.cleanup,
        "late": [late.kind for late in record.late],
        "delivered": record.delivered,
        "error": record.error,
        "is_error": record.is_error,
        "extra_cancels": record.extra_cancels,
        "progress_sent": record.progress_sent,
        "changes_sent": record.changes_sent,
        "changes_coalesced": record.changes_coalesced,
    }


async def _be_observed(observed: Observed, control: trio.SocketStream) -> None:
    rest = b""
    async for data in control:
        *commands, rest = (rest + bytes(data)).split(b"\n")
        for command in commands:
            if command == b"open_gate":
                observed.open_gate()
            await control.send_all(msgspec.json.encode(attrs.asdict(observed.look())) + b"\n")


async def _main(fd: int, limits: dict[str, Any]) -> None:
    observed = Observed(Limits(**limits))
    control = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=fd)))
    async with control, trio.open_nursery() as nursery:
        nursery.start_soon(_be_observed, observed, control)
        await observed.server.serve_stdio()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):  # so that the peer sees the end, as if this had exited
            os.dup2(nothing, standard)
        os.close(nothing)


if __name__ == "__main__":
    trio.run(_main, int(sys.argv[1]), json.loads(sys.argv[2]))
