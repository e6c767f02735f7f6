"""Which states have been used, for servers that want each to be used once."""

from __future__ import annotations

import heapq

__all__ = ["UsedStates"]


class UsedStates:
    """Remembers names until they expire, and at most ``size`` of them. Forgets none before.

    In this process only: servers that share a secret do not share this.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._used: set[bytes] = set()
        self._expiries: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self._used)

    def __contains__(self, name: bytes) -> bool:
        return name in self._used

    def is_full(self, now: float) -> bool:
        """Whether there is no room for one more, after what has expired was forgotten."""
        while self._expiries and self._expiries[0][0] < now:
            self._used.discard(heapq.heappop(self._expiries)[1])
        return len(self._used) >= self._size

    def add(self, name: bytes, expires_at: float) -> None:
        self._used.add(name)
        heapq.heappush(self._expiries, (expires_at, name))
