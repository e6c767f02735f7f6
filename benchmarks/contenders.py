"""Who is measured, on which wire; and who is not, and why."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from . import peers

__all__ = [
    "ABSENT",
    "NAMES",
    "PEERS",
    "WIRES",
    "Contender",
    "contenders",
]

WIRES = {
    "stdio": "stdio",
    "tcp": "TCP",
    "websocket": "WebSocket",
    "http-json": "HTTP, JSON",
    "http-sse": "HTTP, SSE",
    "memory": "in memory",
}
"""What they are called. ``http-sse``: an event stream with three reports of progress."""

NAMES = {
    "ours": "trio-mcp",
    "official": "Python SDK",
    "official-sse": "Python SDK, SSE mode",
    "fastmcp": "fastmcp",
    "typescript": "TypeScript SDK",
    "bare": "raw limit",
}

PEERS = ("official", "official-sse", "fastmcp", "typescript")
"""All but ourselves and the raw limit."""

_ON = {
    "ours": ("stdio", "tcp", "websocket", "http-json", "http-sse", "memory"),
    "official": ("stdio", "http-json", "http-sse", "memory"),
    "official-sse": ("http-json",),
    "fastmcp": ("stdio", "http-json", "http-sse"),
    "typescript": ("stdio", "http-json", "http-sse"),
    "bare": ("stdio", "tcp", "websocket", "http-json", "http-sse", "memory"),
}

ABSENT = {
    **{
        (name, wire): f"{NAMES[name]} has no server for {WIRES[wire]}"
        for name in ("official", "fastmcp", "typescript")
        for wire in ("tcp", "websocket")
    },
    ("fastmcp", "memory"): "fastmcp's client in memory is the Python SDK's",
    ("typescript", "memory"): "node's own clock and callers would be measured, not ours",
}
"""Why a cell is empty."""


@dataclass(frozen=True)
class Contender:
    """A server, started with ``command`` and, unless it is on standard streams, a free port."""

    name: str
    wire: str
    command: Sequence[str]

    @property
    def label(self) -> str:
        """For progress lines."""
        return f"{WIRES[self.wire]}: {NAMES[self.name]}"

    @property
    def ours(self) -> bool:
        return self.name == "ours"

    @property
    def peer(self) -> bool:
        return self.name in PEERS

    @property
    def over_http(self) -> bool:
        return self.wire.startswith("http")


def contenders(name: str, *, installed: bool) -> list[Contender]:
    """One of these names, on all its wires. ``installed``: peers run in environments of their own,
    which are made now; otherwise in this one.

    Raises :class:`~.peers.Missing` for what has to be installed by hand.
    """
    return [Contender(name, wire, _command(name, wire, installed)) for wire in _ON[name]]


def _command(name: str, wire: str, installed: bool) -> list[str]:
    if name == "typescript":
        folder = peers.node_folder()
        return [peers.tool("node", "nodejs"), str(folder / "server.mjs"), wire]
    module = name.partition("-")[0]
    served = "http-sse" if name == "official-sse" else wire
    python = sys.executable
    if installed and module == "official":
        python = peers.python("official")
    elif module == "fastmcp":
        python, module = peers.python("fastmcp"), "fast"
    program = [python, "-m", f"benchmarks.servers.{module}"]
    if wire == "memory":
        return [python, "-m", f"benchmarks.servers.memory_{module}"]
    return [*program, served]
