"""Slots that are given out in turns: who may run at once, and who waits for that.

Theory of operation
===================

A :class:`Gate` has so many slots, for each client at most its share of them. Who finds none waits
in the gate's :class:`FairQueue`: first come, first served within one client, in turns between
clients. So between two turns of a client each of the others that wait has one.

* **No slot is free that somebody may have.** A slot that is given back goes to the next in turn in
  the same step. So whoever comes and finds one free has overtaken nobody.
* **The fullest gives way.** When the queue is full, the newest of the client that has the most
  waiting makes room for a client that has at least two fewer; it has not begun. With one fewer the
  two would only change places, and could do so for ever.

Clients and waiters are any hashable objects, each waiter in a queue once. Nothing here awaits,
reads a clock or does I/O; every step takes the same time, however many wait, but for clients that
have their share already and are passed over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["FairQueue", "Gate"]

W = TypeVar("W", bound=Hashable)


class FairQueue(Generic[W]):
    """Who waits, by client. ``len(queue)`` of them."""

    def __init__(self) -> None:
        self._lines: OrderedDict[Hashable, OrderedDict[W, None]] = OrderedDict()  # next turn first
        self._alike: dict[int, OrderedDict[Hashable, None]] = {}  # clients by how many they have
        self._most = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def waiting(self, client: Hashable) -> int:
        """How many of a client wait."""
        return len(self._lines.get(client, ()))

    def push(self, client: Hashable, waiter: W) -> None:
        """The newest of its client; a client that had none has its turn after all others."""
        line = self._lines.setdefault(client, OrderedDict())
        line[waiter] = None
        self._size += 1
        self._count(client, len(line) - 1, len(line))

    def remove(self, client: Hashable, waiter: W) -> None:
        """It waits no more. Raises ``KeyError`` if it does not."""
        line = self._lines[client]
        del line[waiter]
        self._size -= 1
        self._count(client, len(line) + 1, len(line))
        if not line:
            del self._lines[client]

    def pop(self, may: Callable[[Hashable], bool]) -> W | None:
        """The oldest of the client whose turn it is, of those that ``may``; ``None`` if none is."""
        for client, line in self._lines.items():
            if may(client):
                waiter = next(iter(line))
                self._lines.move_to_end(client)
                self.remove(client, waiter)
                return waiter
        return None

    def who_gives_way(self, client: Hashable) -> W | None:
        """Whose place one more of this client may have: see the module; ``None``: nobody's."""
        if self._most < self.waiting(client) + 2:
            return None
        fullest = next(iter(self._alike[self._most]))
        return next(reversed(self._lines[fullest]))

    def _count(self, client: Hashable, before: int, now: int) -> None:
        if before:
            alike = self._alike[before]
            del alike[client]
            if not alike:
                del self._alike[before]
        if now:
            self._alike.setdefault(now, OrderedDict())[client] = None
        # Counts change by one: if nobody has the most any more, who had it has the most now.
        if now > self._most or self._most not in self._alike:
            self._most = now


class Gate(Generic[W]):
    """``limit`` slots, ``share`` of them at most for one client; ``room`` may wait in ``queue``.

    ``full`` and :meth:`FairQueue.who_gives_way` are for whoever lets clients wait.
    """

    __slots__ = ("_held", "_share", "limit", "queue", "room", "running")

    def __init__(self, limit: int, room: int, share: int | None = None) -> None:
        self.limit = limit
        self.room = room
        self.running = 0
        self.queue: FairQueue[W] = FairQueue()
        self._share = share if share is not None else limit
        self._held: dict[Hashable, int] = {}

    @property
    def full(self) -> bool:
        """Whether nobody more may wait."""
        return len(self.queue) >= self.room

    def enter(self, client: Hashable) -> bool:
        """Take a slot, if one is free for this client."""
        held = self._held.get(client, 0)
        if self.running >= self.limit or held >= self._share:
            return False
        self.running += 1
        self._held[client] = held + 1
        return True

    def leave(self, client: Hashable) -> W | None:
        """Give a slot back. Whoever waited for it has it now, and is returned."""
        self.running -= 1
        held = self._held[client] - 1
        if held:
            self._held[client] = held
        else:
            del self._held[client]
        # At most one: one slot is free, or one client has less than its share.
        return self.queue.pop(self.enter) if self.queue else None
