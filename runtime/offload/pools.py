"""The places that a server has for work outside of the loop, in one Trio run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import trio

from ..limits import Limits
from .threads import ThreadPool
from .work import Work
from .workers import WorkerPool

__all__ = ["Pools", "check_pools"]


class Pools:
    """Thread pools, by name and one without; places for commands; worker processes."""

    def __init__(self, limits: Limits, named: Mapping[str, int]) -> None:
        """``named`` are the thread pools that the application wants, with their sizes."""
        self.processes = trio.CapacityLimiter(limits.processes)
        self.workers = WorkerPool(limits)
        self._threads = ThreadPool(limits.threads)
        self._named = {name: ThreadPool(threads) for name, threads in named.items()}

    def threads(self, name: str | None = None) -> ThreadPool:
        """Raises ``ValueError`` for a name that no pool has."""
        if name is None:
            return self._threads
        try:
            return self._named[name]
        except (KeyError, TypeError):
            known = ", ".join(map(repr, self._named)) or "none"
            raise ValueError(
                f"there is no thread pool {name!r:.80}; Server(pools={{name: threads}}) makes them "
                f"(there are: {known})"
            ) from None

    @property
    def stragglers(self) -> Iterator[Work]:
        """Abandoned work that still runs, that of the oldest request first."""
        pools = (self._threads, *self._named.values())
        works = [work for pool in pools for work in pool.stragglers]
        return iter(sorted(works, key=lambda work: work.exchange.key))


def check_pools(pools: Any) -> dict[str, int]:
    """The named thread pools of a server. Raises ``TypeError`` or ``ValueError`` for none."""
    if pools is None:
        return {}
    if not isinstance(pools, Mapping):
        raise TypeError(f"pools are a dict of names and sizes, not {pools!r:.80}")
    for name, threads in pools.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"a pool's name is a text, not {name!r:.80}")
        if isinstance(threads, bool) or not isinstance(threads, int):
            raise TypeError(f"pool {name!r} has a whole number of threads, not {threads!r:.80}")
        if threads < 1:
            raise ValueError(f"pool {name!r} has at least one thread, not {threads}")
    return dict(pools)
