"""The scope tree as it is now: server, connections, exchanges, offloaded work.

The live objects (a server's dispatcher, a connection, an exchange, a thread) are the tree; each can
describe itself. This module holds what such a description is: plain, immutable data.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import attrs

from .lifecycle import CancelCause

__all__ = ["Scope", "ScopeKind"]


class ScopeKind(Enum):
    """What a node of the scope tree stands for."""

    SERVER = "server"
    CONNECTION = "connection"
    EXCHANGE = "exchange"
    OFFLOAD = "offload"
    """A thread or a process that a request started."""


@attrs.frozen
class Scope:
    """One node. Times are seconds; ``deadline`` is on Trio's clock, ``inf`` for none.

    ``state`` is a lifecycle state's value for an exchange, or ``queued`` while it waits for its
    turn; ``serving``, ``draining`` or ``idle`` for a server; ``serving`` or ``draining`` for a
    connection; ``waiting``, ``running``, ``cancelling`` or ``abandoned`` for offloaded work.
    ``key`` is the exchange's key in the journal, where there is one.
    """

    kind: ScopeKind
    label: str
    state: str
    age: float
    deadline: float = float("inf")
    cause: CancelCause | None = None
    key: int | None = None
    children: tuple[Scope, ...] = ()

    def describe(self) -> str:
        """The tree from here on, a line each, indented: for people."""
        cause = f" by {self.cause.source.value}" if self.cause is not None else ""
        key = f" #{self.key}" if self.key is not None else ""
        line = f"{self.kind.value}{key} {self.label}: {self.state}{cause}, {self.age:.3f} s"
        below = ["  " + text for child in self.children for text in child.describe().splitlines()]
        return "\n".join([line, *below])

    def walk(self) -> Iterator[Scope]:
        """This node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()
